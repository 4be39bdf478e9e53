"""Searches history for the first commit that behaves like BAD rather than GOOD, in git bisect's order.

A step measures a commit and is logged. A commit is bad if a point that changed from GOOD to BAD has also changed there,
in the same direction, by the verdict of `benchhouse ab`. It is good if every such point is equivalent to GOOD, changed
in the other direction, or has no verdict but an interval that excludes half of the change to BAD and includes none at
all: the change may have come in several steps, of which the first is searched. Otherwise it is skipped.

Each step halves the candidates. A commit without a verdict is skipped, and a more distant one is tried next, since
neighbours tend to fail for the same reason. If GOOD is not an ancestor of BAD, their common ancestors are measured
first: if one is bad, the change is on GOOD's side. Finally the culprit is measured in turns with its parent, to confirm
that it made the change.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from benchmarking.core.codec import from_json, to_json
from benchmarking.core.errors import FormatError, UsageError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Json
from benchmarking.core.text import duration, visible
from benchmarking.core.untrusted.input_files import read_json
from benchmarking.core.untrusted.repository import History
from benchmarking.sweep.run import journal

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

    def step(self, role: Role, commit: str, against: str) -> Step | None:
        """The step with the same two commits, in any role but the other of the culprit, which is measured again."""
        same = (one for one in self.steps if (one.commit, one.against) == (commit, against))
        return next((one for one in same if (one.role == "culprit") is (role == "culprit")), None)


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
            there, here = (
                " ".join(map(str, each)) if isinstance(each, tuple) else each[:40] for each in (found, value)
            )
            raise UsageError(
                f"--log {path} belongs to another bisection ({name} {there}, now {here}): choose another path"
            )
    return log


def write_log(path: Path, log: Log, text: str) -> None:
    """Replace the log atomically, as JSON and as text next to it. Raises StorageError."""
    for target, content in ((path, json.dumps(to_json(log), indent=2) + "\n"), (path.with_suffix(".txt"), text)):
        with storage_errors(f"--log: cannot write {target}", "choose another path"):
            journal.replace(target, content)


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
    outcomes = _outcomes(points, expected)
    if "bad" in outcomes.values():
        return "bad", None
    reasons = [f"{name}: {word}" for name, word in outcomes.items() if word != "good"]
    return ("skip", "; ".join(reasons)) if reasons else ("good", None)


def is_inconclusive(points: Sequence[PointChange], expected: Mapping[str, float]) -> bool:
    """Whether more rounds may lead to a verdict on a commit."""
    words = _outcomes(points, expected).values()
    return "bad" not in words and any(word.startswith(UNDECIDED) for word in words)


def endpoints_outcome(points: Sequence[PointChange]) -> tuple[Outcome, str | None]:
    """Whether BAD differs from GOOD: bad where a point changed, good where all are equivalent."""
    if changed_points(points):
        return "bad", None
    if points and all(point.verdict == "equivalent" for point in points):
        return "good", None
    reasons = [f"{point.point}: {point.verdict}: {point.reason}" for point in points if point.verdict != "equivalent"]
    return "skip", "; ".join(reasons) or "no point was measured at both commits"


def _outcomes(points: Sequence[PointChange], expected: Mapping[str, float]) -> dict[str, str]:
    """Expected point -> "bad", "good", or why neither; a reason that more rounds may resolve starts with UNDECIDED."""
    known = {point.point: point for point in points}
    outcomes = dict[str, str]()
    for name, change in expected.items():
        point = known.get(name)
        if point is None:
            outcomes[name] = "not measured"
        elif point.change is None or point.low is None or point.high is None:
            outcomes[name] = f"{point.verdict}: {point.reason}"
        elif point.is_changed and (point.change > 0) == (change > 0):
            outcomes[name] = "bad"
        else:
            half = math.log1p(change) / 2
            excludes_half = math.log1p(point.high) < half if change > 0 else math.log1p(point.low) > half
            excludes_none = point.low > 0 if change > 0 else point.high < 0
            is_good = point.is_changed or point.verdict == "equivalent" or (excludes_half and not excludes_none)
            why_not = f"{UNDECIDED}: {point.change:+.1%} ({point.low:+.1%} .. {point.high:+.1%})"
            outcomes[name] = "good" if is_good else why_not
    return outcomes


def step_line(number: int, step: Step) -> str:
    where = f"{step.commit[:SHORT]} against {step.against[:SHORT]}"
    details = step.reason or "; ".join(map(change_text, step.points))
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


GOLDEN = 0.6180339887498949
"""The fractional parts of its multiples are spread evenly over 0 to 1."""
Kind = Literal["found", "not confirmed", "equal", "not judged", "skipped", "merge base"]
Measure = Callable[[Role, str, str], Step]
"""Measures a commit in turns with another one; arguments: role, commit, other commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    kind: Kind
    """found: a confirmed culprit; not confirmed: a culprit that did not differ from its parent when both were measured;
    equal: BAD is equivalent to GOOD; not judged: it is unclear whether they differ; skipped: the culprit is one of
    several commits, all but the last of which were skipped; merge base: a common ancestor is already bad."""
    commits: tuple[str, ...] = ()
    """The culprit; all candidates if commits were skipped; or the bad common ancestor."""
    parent: str | None = None
    """The commit that the culprit was measured against."""
    step: Step
    """The decisive step: the culprit against its parent, or BAD against GOOD."""


def check_sides(history: History, good: str, bad: str) -> None:
    """Raise UsageError for commits without candidates in between."""
    if good == bad:
        raise UsageError(f"GOOD and BAD are the same commit {good[:SHORT]}: give two different ones")
    if history.merge_bases(good, bad) == (bad,):
        raise UsageError(f"BAD ({bad[:SHORT]}) is an ancestor of GOOD ({good[:SHORT]}): give the older commit first")


def search(history: History, good: str, bad: str, measure: Measure, say: Callable[[str], None]) -> Conclusion:
    """Search for the commit that changed the metric. `say` is called with progress messages."""
    endpoints = measure("whole", bad, good)
    if endpoints.outcome != "bad":
        return Conclusion(kind="equal" if endpoints.outcome == "good" else "not judged", step=endpoints)
    known_good, skipped = [good], set[str]()
    for base in history.merge_bases(good, bad):
        if base == good:
            continue
        step = measure("merge base", base, good)
        if step.outcome == "bad":
            return Conclusion(kind="merge base", commits=(base,), step=step)
        if step.outcome == "good":
            known_good.append(base)
        else:
            say(f"no verdict on the common ancestor {base[:SHORT]}: the change may be before it, on GOOD's side")
            skipped.add(base)
    while True:
        suspects = history.suspects(bad, tuple(known_good))
        remaining = [commit for commit in suspects if commit != bad and commit not in skipped]
        if not remaining:
            break
        # The commit to test: the one that splits the others best, or after a skip, one that is not next to
        # it. git bisect chooses the same way, with pseudo-random numbers in place of the multiples of the
        # golden ratio.
        spread = (len(skipped) * GOLDEN) % 1 if suspects[0] in skipped else 0.0
        commit = remaining[int(len(remaining) * spread**1.5)]
        say(f"{len(remaining)} commits left to test, in about {max(1, round(math.log2(len(remaining))))} steps")
        step = measure("step", commit, good)
        if step.outcome == "bad":
            bad = commit
        elif step.outcome == "good":
            known_good.append(commit)
        else:
            skipped.add(commit)
    undecided = tuple(commit for commit in suspects if commit in skipped)
    if undecided:
        return Conclusion(kind="skipped", commits=(*undecided, bad), step=endpoints)
    parent = next(iter(history.parents(bad)), good)
    step = measure("culprit", bad, parent)
    kind: Kind = "found" if step.outcome == "bad" else "not confirmed"
    return Conclusion(kind=kind, commits=(bad,), parent=parent, step=step)


def conclusion_text(found: Conclusion, history: History) -> str:
    step = found.step
    changes = [f"  {change_text(point)}" for point in step.points]
    if found.kind == "equal":
        return "\n".join(["BAD is equivalent to GOOD: there is no change to find", *changes])
    if found.kind == "not judged":
        reason = visible(step.reason or "")
        return f"no verdict on whether BAD differs from GOOD: {reason}; a higher --max-rounds detects smaller changes"
    texts = ((commit, history.text(commit)) for commit in found.commits)
    named = [f"{commit} {text.subject} ({text.author}, {text.time})" for commit, text in texts]
    if found.kind == "merge base":
        head = "a common ancestor of GOOD and BAD already has the change, so it is on GOOD's side"
        return "\n".join([f"{head}:", f"  {named[0]}", *changes])
    if found.kind == "skipped":
        head = "the culprit is one of these commits, all but the last of which had no verdict:"
        return "\n".join([head, *(f"  {name}" for name in named), "BAD against GOOD:", *changes])
    parent = (found.parent or "")[:SHORT]
    if found.kind == "not confirmed":
        reason = f": {visible(step.reason)}" if step.reason else ""
        differs = "has no verdict against" if step.outcome == "skip" else "shows no such change against"
        head = f"not confirmed: when measured again, the commit {differs} its parent {parent}{reason}"
        steps = "a change that came in several steps may have begun before it: bisect GOOD and that parent to see"
        return "\n".join([head, f"  {named[0]}", *changes, steps])
    return "\n".join([f"culprit: {named[0]}", f"against its parent {parent}:", *changes])
