"""Compares two selections of stored results point by point, or the values of a column in one selection.

2026-11-22: sides count as interleaved where they ran on one host and the middle launch of each ran between the first
and the last of the other, by the times at which the launches began to measure. A drift of the machine is then in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from benchmarking.core.metrics import Metric
from db.analysis.compare import judging, reading
from db.analysis.compare.judging import Judgement, Pair
from db.analysis.compare.matching import Matched, Measured, Representative, allowed_across, differences, match
from db.analysis.environment import Shift, moved_together
from db.analysis.selection import Selection

if TYPE_CHECKING:
    from db.warehouse import Warehouse

SUBJECT = ("model_id", "device", "runtime", "precision", "num_threads")
"""Columns that identify what was measured, besides the point."""
PROVENANCE = ("git_commit", "tool_version", "host", "driver")
SAME_RESULT = "the same result is on both sides: narrow one of the selections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A result in a comparison."""

    result_id: str
    run_id: str
    started_at: str
    """Of the run, UTC, ISO 8601."""
    results: int
    """The number of selected results of the point, of which this is the newest comparable one."""
    launches: int
    """Launches with a value."""
    value: float | None
    """The result's, in the metric's unit."""
    validity: str | None
    doubts: tuple[str, ...]
    """Kinds, without those of severity info."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A point of both sides and its judgement."""

    point: str
    """Label of the point, or of both points where they differ."""
    subject: Mapping[str, tuple[str | None, str | None]]
    """Model, device, runtime, ... of both sides."""
    differs: Mapping[str, tuple[object, object]]
    """The series keys in which the sides differ, with both values."""
    is_simulated: bool
    """Whether a script or an emulator ran, so that the numbers are not a device's."""
    before: Side
    after: Side
    judgement: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A point of one side only."""

    point: str
    subject: Mapping[str, str | None]
    result_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides and their findings, worst first."""

    before: str
    """The selection as the user typed it."""
    after: str
    metric: str
    unit: str
    findings: tuple[Finding, ...] = ()
    only_before: tuple[Single, ...] = ()
    only_after: tuple[Single, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Findings by verdict."""
    provenance: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    """Commit, host and versions that differ in the same way in all pairs."""
    moved_together: str | None = None
    """In words, that nearly everything moved one way, which suggests the machine and not the code; else None."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing could be compared."""
        return all(one.judgement.verdict == "not comparable" for one in self.findings)


def compare(
    warehouse: Warehouse, before: Selection, after: Selection, metric: Metric, across: Collection[str] = ()
) -> Comparison:
    """Compare the selections; columns to which they give different values, and `across`, may differ."""
    earlier, later = reading.measured(warehouse, (before, after), metric)
    matched = match(earlier, later, allowed_across({*across, *meant_to_differ(before, after)}))
    return _comparison(warehouse, matched, metric, before.text, after.text)


def compare_within(
    warehouse: Warehouse,
    selection: Selection,
    column: str,
    metric: Metric,
    *,
    baseline: str | None = None,
    across: Collection[str] = (),
) -> Comparison:
    """Compare each value of the column with the baseline, by default the first that was measured."""
    groups: dict[str, list[Measured]] = {}
    (results,) = reading.measured(warehouse, (selection,), metric)
    for result in sorted(results, key=lambda one: (one.started_at, one.run_id)):
        groups.setdefault(str(result.about[column]), []).append(result)
    base = next(iter(groups), "") if baseline is None else baseline
    may_differ = allowed_across({column, *across})
    each = [match(groups.get(base, ()), group, may_differ) for value, group in groups.items() if value != base]
    matched = Matched(
        pairs=tuple(pair for one in each for pair in one.pairs),
        refused=tuple(pair for one in each for pair in one.refused),
        only_after=tuple(single for one in each for single in one.only_after),
    )
    others = ", ".join(value for value in groups if value != base)
    return _comparison(warehouse, matched, metric, base, others)


def meant_to_differ(before: Selection, after: Selection) -> frozenset[str]:
    """The columns that both selections have with different words: batch=1 on both sides is no difference."""
    one, other = ({word.strip() for word in each.text.partition("sql:")[0].split(",")} for each in (before, after))
    named = [{name for word in words for name in Selection.parse(word).named} for words in (one - other, other - one)]
    return frozenset(named[0] & named[1])


def is_interleaved(before: Sequence[datetime], after: Sequence[datetime]) -> bool:
    """Whether launches that began at these times were interleaved: the middle one of each side is within the other."""
    if not before or not after:
        return False
    first, second = sorted(before), sorted(after)
    return _middle_is_within(first, second) and _middle_is_within(second, first)


def _middle_is_within(times: Sequence[datetime], others: Sequence[datetime]) -> bool:
    middle = times[(len(times) - 1) // 2], times[len(times) // 2]
    return others[0] <= middle[1] and middle[0] <= others[-1]


def _comparison(warehouse: Warehouse, matched: Matched, metric: Metric, before: str, after: str) -> Comparison:
    all_pairs = [*matched.pairs, *matched.refused]
    at_once = [one.result for pair in matched.pairs if _are_at_once(*pair) for one in pair]
    details = reading.details(warehouse, [one.result for pair in all_pairs for one in pair], at_once, metric)
    pairs = [_pair(base, one, details) for base, one in matched.pairs]
    pairs += [
        Pair(before=(), after=(), why_not=_differing(differences(base.result.keys, one.result.keys)))
        for base, one in matched.refused
    ]
    judgements = judging.judge(pairs, metric)
    findings = [
        _finding(base, one, judgement, details) for (base, one), judgement in zip(all_pairs, judgements, strict=True)
    ]
    return Comparison(
        before=before,
        after=after,
        metric=metric.column,
        unit=metric.unit,
        findings=tuple(sorted(findings, key=lambda one: _badness(one, metric), reverse=True)),
        only_before=tuple(map(_single, matched.only_before)),
        only_after=tuple(map(_single, matched.only_after)),
        counts=Counter(one.verdict for one in judgements),
        provenance=_provenance(matched.pairs),
        moved_together=_moved_together(findings, metric),
    )


def _are_at_once(before: Representative, after: Representative) -> bool:
    """Whether the two runs overlapped on one host, as interleaved runs do."""
    one, other = before.result, after.result
    overlap = one.started_at <= other.finished_at and other.started_at <= one.finished_at
    return one.about["host"] == other.about["host"] and overlap


def _pair(before: Representative, after: Representative, details: reading.Details) -> Pair:
    one, other = before.result, after.result
    scatter = [details.scatter.get(series_id) for series_id in (one.series_id, other.series_id)]
    known = [each for each in scatter if each is not None]
    starts = [details.starts.get(result.result_id, ()) for result in (one, other)]
    return Pair(
        before=details.values.get(one.result_id, ()),
        after=details.values.get(other.result_id, ()),
        why_not=_why_not(one, other),
        is_interleaved=_are_at_once(before, after) and is_interleaved(*starts),
        run_scatter=(known[0], known[1]) if len(known) == 2 else None,
    )


def _why_not(before: Measured, after: Measured) -> str | None:
    """Why two results are not comparable, or None."""
    if before.result_id == after.result_id:
        return SAME_RESULT
    unfit = [f"{name}: {one.unfit}" for name, one in (("A", before), ("B", after)) if one.unfit is not None]
    return "; ".join(unfit) or None


def _differing(keys: Mapping[str, tuple[object, object]]) -> str:
    """Each differing key with both values: "hardware cpu_model: X / Y"."""
    return "; ".join(f"{name}: {_text(one)} / {_text(other)}" for name, (one, other) in keys.items())


def _text(value: object) -> str:
    return "none" if value is None else str(value)


def _finding(before: Representative, after: Representative, judgement: Judgement, details: reading.Details) -> Finding:
    one, other = before.result, after.result
    return Finding(
        point=other.point if one.point == other.point else f"{one.point} / {other.point}",
        subject={name: (one.about[name], other.about[name]) for name in SUBJECT},
        differs=differences(one.keys, other.keys),
        is_simulated=bool(one.keys["simulated"] or other.keys["simulated"]),
        before=_side(before, details),
        after=_side(after, details),
        judgement=judgement,
    )


def _side(representative: Representative, details: reading.Details) -> Side:
    result = representative.result
    return Side(
        result_id=result.result_id,
        run_id=result.run_id,
        started_at=result.started_at.isoformat(),
        results=representative.results,
        launches=len(details.values.get(result.result_id, ())),
        value=result.value,
        validity=result.validity,
        doubts=result.doubts,
    )


def _single(representative: Representative) -> Single:
    result = representative.result
    subject = {name: result.about[name] for name in SUBJECT}
    return Single(point=result.point, subject=subject, result_id=result.result_id)


def _badness(finding: Finding, metric: Metric) -> tuple[int, float]:
    """A sort key: changes for the worse, then other compared results, then results that are not comparable."""
    judgement = finding.judgement
    if judgement.change is None:
        return 0, 0.0
    by = abs(judgement.change)
    return 2 if judgement.is_worse else 1, by if metric.is_worse(judgement.change) else -by


def _provenance(pairs: Sequence[tuple[Representative, Representative]]) -> Mapping[str, tuple[object, object]]:
    """The differences of code, host and versions that all pairs share."""
    each = [differences(_surroundings(before.result), _surroundings(after.result)) for before, after in pairs]
    return {name: both for name, both in each[0].items() if all(one.get(name) == both for one in each)} if each else {}


def _surroundings(result: Measured) -> dict[str, str | None]:
    return {**{name: result.about[name] for name in PROVENANCE}, **result.versions}


def _moved_together(findings: Sequence[Finding], metric: Metric) -> str | None:
    """The common change, in words, of sides that differ in no key and were not interleaved (else the machine's state
    cancels); None without one."""
    judged = [(one, one.judgement.change) for one in findings if one.judgement.change is not None]
    if any(one.differs or one.judgement.scope == "interleaved" for one, _ in judged):
        return None
    together = moved_together(
        Shift(
            group=" ".join(str(one.subject[name]) for name in ("model_id", "runtime", "precision")),
            ratio=1 + change if metric.better == "lower" else 1 / (1 + change),
            is_finding=one.judgement.is_worse is not None,
        )
        for one, change in judged
    )
    return None if together is None else together.text
