"""The steps of a bisection: the measurements of a commit, its outcome, and the log.

A commit is bad if a point that changed from GOOD to BAD has also changed there, in the same direction, by the verdict
of `benchhouse ab`. It is good if every such point is equivalent to GOOD, changed in the other direction, or has no
verdict but an interval that excludes half of the change to BAD. Otherwise it is skipped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from benchmarking.core.codec import from_json, to_json
from benchmarking.core.errors import FormatError, StorageError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Json
from benchmarking.core.temporary import temporary_name
from benchmarking.core.text import duration, visible
from benchmarking.core.untrusted.input_files import read_json

FORMAT = "benchhouse bisect"
VERSION = 1
MAX_LOG_BYTES = 100_000_000
UNDECIDED = "undecided"
SHORT = 12
"""Characters of a commit in a line of text."""
Role = Literal["whole", "merge base", "step", "culprit"]
"""Why a commit is measured: BAD against GOOD, a common ancestor, a step in between, the culprit against its parent."""
Outcome = Literal["bad", "good", "skip"]
ROLES = {"whole": "BAD", "merge base": "common ancestor", "step": "step", "culprit": "culprit and its parent"}
OUTCOMES = {"bad": "changed", "good": "not changed", "skip": "skipped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PointChange:
    """The change of a point between two commits. Changes are relative: 0.1 means 10 % more."""

    point: str
    """Model, device, runtime, precision and point."""
    verdict: str
    reason: str | None = None
    is_worse: bool | None = None
    before: float | None = None
    after: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def is_changed(self) -> bool:
        return self.is_worse is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A commit that was measured in turns with another one."""

    role: Role
    commit: str
    subject: str
    against: str
    outcome: Outcome
    reason: str | None = None
    """Why it is skipped, or why BAD has no verdict."""
    points: tuple[PointChange, ...] = ()
    rounds: int = 0
    seconds: float = 0.0
    run_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Run ids of sides a (the other commit) and b; in the database if runs are saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log of a bisection: the search, and the steps so far."""

    format: str = FORMAT
    version: int = VERSION
    good: str
    bad: str
    command: tuple[str, ...]
    metric: str
    looks: tuple[int, ...]
    """The numbers of rounds after which a verdict is attempted."""
    steps: tuple[Step, ...] = ()
    conclusion: Json = None
    """The conclusion of a finished bisection."""

    def step(self, commit: str, against: str) -> Step | None:
        """The step with the same two commits, in any role."""
        return next((step for step in self.steps if (step.commit, step.against) == (commit, against)), None)


def read_log(path: Path, requested: Log) -> Log:
    """The log of an interrupted bisection, or `requested` if there is none. Raises UsageError for any other file."""
    if not path.exists():
        return requested
    try:
        log = from_json(Log, read_json(path, MAX_LOG_BYTES))
    except FormatError as error:
        raise UsageError(f"--log {path}: not a log of {FORMAT}: {error}: choose another path") from error
    if (log.format, log.version) != (FORMAT, VERSION):
        raise UsageError(f"--log {path}: {log.format!r} version {log.version}, expected {FORMAT!r} version {VERSION}")
    for name in ("good", "bad", "command", "metric", "looks"):
        if (found := getattr(log, name)) != (value := getattr(requested, name)):
            raise UsageError(
                f"--log {path} belongs to another bisection ({name} {_short(found)}, now {_short(value)}): "
                "choose another path"
            )
    return log


def write_log(path: Path, log: Log, text: str) -> None:
    """Replace the log atomically, as JSON and as text next to it. Raises StorageError."""
    for target, content in ((path, json.dumps(to_json(log), indent=2) + "\n"), (path.with_suffix(".txt"), text)):
        draft = target.with_name(temporary_name(f".{target.name}"))
        try:
            draft.write_text(content, encoding="utf-8")
            draft.replace(target)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise StorageError(f"--log: cannot write {target}: {error.strerror}: choose another path") from error


def point_changes(comparison: Json) -> tuple[PointChange, ...]:
    """The points of a comparison in the JSON format of `benchhouse compare --json`."""
    document: Any = comparison
    return tuple(
        PointChange(
            point=" ".join(
                [*(str(sides[1]) for sides in finding["subject"].values() if sides[1] is not None), finding["point"]]
            ),
            **{name: finding["judgement"][name] for name in PointChange.__dataclass_fields__ if name != "point"},
        )
        for finding in document["findings"]
    )


def changed_points(points: Sequence[PointChange]) -> dict[str, float]:
    """Points that changed from GOOD to BAD -> the change; only regressions, if there are any, else improvements."""
    changed = [point for point in points if point.is_changed and point.change is not None]
    worse = [point for point in changed if point.is_worse]
    return {point.point: point.change for point in worse or changed if point.change is not None}


def outcome(points: Sequence[PointChange], expected: Mapping[str, float]) -> tuple[Outcome, str | None]:
    """The outcome of a commit, and why it is skipped. `expected` is the change from GOOD to BAD by point."""
    known = {point.point: point for point in points}
    outcomes = [(name, _point_outcome(known.get(name), change)) for name, change in expected.items()]
    if any(word == "bad" for _, word in outcomes):
        return "bad", None
    if all(word == "good" for _, word in outcomes):
        return "good", None
    reasons = [f"{name}: {word}" for name, word in outcomes if word not in ("bad", "good")]
    return "skip", "; ".join(reasons)


def is_inconclusive(points: Sequence[PointChange], expected: Mapping[str, float]) -> bool:
    """Whether more rounds may lead to a verdict on a commit."""
    known = {point.point: point for point in points}
    words = [_point_outcome(known.get(name), change) for name, change in expected.items()]
    return "bad" not in words and any(word.startswith(UNDECIDED) for word in words)


def endpoints_outcome(points: Sequence[PointChange]) -> tuple[Outcome, str | None]:
    """Whether BAD differs from GOOD: bad where a point changed, good where all are equivalent."""
    if changed_points(points):
        return "bad", None
    if points and all(point.verdict == "equivalent" for point in points):
        return "good", None
    reasons = [f"{point.point}: {point.verdict}: {point.reason}" for point in points if point.verdict != "equivalent"]
    return "skip", "; ".join(reasons) or "no point was measured at both commits"


def _point_outcome(point: PointChange | None, change: float) -> str:
    """ "bad", "good", or why neither; a reason that more rounds may resolve starts with UNDECIDED."""
    if point is None:
        return "not measured"
    if point.change is None or point.low is None or point.high is None:
        return f"{point.verdict}: {point.reason}"
    if point.is_changed and (point.change > 0) == (change > 0):
        return "bad"
    half = math.log1p(change) / 2
    excludes_half = math.log1p(point.high) < half if change > 0 else math.log1p(point.low) > half
    if point.is_changed or point.verdict == "equivalent" or excludes_half:
        return "good"
    return f"{UNDECIDED}: {point.change:+.1%} ({point.low:+.1%} .. {point.high:+.1%})"


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value)[:40]


def step_line(number: int, step: Step) -> str:
    """A step as one line."""
    where = f"{step.commit[:SHORT]} against {step.against[:SHORT]}"
    details = f"{step.reason}" if step.reason else "; ".join(map(change_text, step.points))
    how = f"{step.rounds} rounds, {duration(step.seconds)}" if step.rounds else "not measured"
    return visible(
        f"{number}. {ROLES[step.role]}: {where} ({step.subject}): {OUTCOMES[step.outcome]}: {details} [{how}]"
    )


def log_text(log: Log, conclusion: str | None = None) -> str:
    """The log as text: the search, a line per step, and the conclusion."""
    head = [
        f"good: {log.good}",
        f"bad: {log.bad}",
        f"metric: {log.metric}, rounds: {', '.join(map(str, log.looks))}",
        visible(f"command: {' '.join(log.command)}"),
    ]
    steps = [step_line(number, step) for number, step in enumerate(log.steps, 1)]
    return "\n".join([*head, "", *steps, *(["", conclusion] if conclusion else [])]) + "\n"


def change_text(point: PointChange) -> str:
    """The change of a point with its interval and verdict."""
    if point.change is None:
        return visible(f"{point.point}: {point.verdict}: {point.reason}")
    interval = "" if point.low is None or point.high is None else f" ({point.low:+.1%} .. {point.high:+.1%})"
    return visible(f"{point.point}: {point.change:+.1%}{interval}, {point.verdict}")
