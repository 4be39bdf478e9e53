"""Confirms what the gate flagged: each flagged run is measured again in a fresh session, and the two are held together.

How a run is measured again is the caller's: this floor cannot measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchmarking.core.errors import UsageError
from benchmarking.core.provenance import MeasuredRun
from benchmarking.core.records import Point
from db.analysis.gate.candidates import Candidate, repeated
from db.analysis.gate.findings import Finding, confirmed, worst_first
from db.analysis.gate.gate import Parameters
from db.run_records import measured_runs

if TYPE_CHECKING:
    from db.warehouse import Warehouse

CONFIRMS = "confirms"
"""The tag of a run that was measured to confirm another: its value is that run's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlaggedRun:
    """A run with a regression, and the points that regressed."""

    run: MeasuredRun
    points: tuple[Point, ...]

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the run that confirms it: its own, and which run that is."""
        return {**self.run.tags, CONFIRMS: self.run.run_id}


MeasureAgain = Callable[[FlaggedRun], str | None]
"""Measures the points again and stores them as a run with the tags; gives why that failed, None where it worked."""


def flagged_runs(warehouse: Warehouse, findings: Iterable[Finding]) -> tuple[FlaggedRun, ...]:
    """The runs with a regression, oldest first."""
    points: dict[str, list[Point]] = {}
    for finding in findings:
        if finding.verdict == "regressed":
            points.setdefault(finding.candidate.run_id, []).append(finding.candidate.point)
    runs = measured_runs(warehouse, "run_id IN (SELECT unnest(?))", (list(points),))
    return tuple(FlaggedRun(run=run, points=tuple(points[run.run_id])) for run in runs)


def with_commands(
    findings: Iterable[Finding], flagged: Iterable[FlaggedRun], command: Callable[[FlaggedRun], str]
) -> tuple[Finding, ...]:
    """The findings, each regression with the command that measures it again, or why there is none."""
    texts = {one.run.run_id: _command_text(one, command) for one in flagged}
    return tuple(
        replace(finding, repeat=texts[finding.candidate.run_id]) if finding.verdict == "regressed" else finding
        for finding in findings
    )


def confirm(
    findings: Sequence[Finding],
    flagged: Iterable[FlaggedRun],
    measure_again: MeasureAgain,
    open_warehouse: Callable[[], Warehouse],
) -> tuple[Finding, ...]:
    """The findings after each flagged run was measured again, worst first. Nothing may hold the database meanwhile."""
    since = datetime.now(UTC).replace(tzinfo=None)
    why_not = {one.run.run_id: one.run.why_not_repeatable or measure_again(one) for one in flagged}
    with open_warehouse() as warehouse:
        return _compared_again(warehouse, findings, why_not, since)


def _command_text(flagged: FlaggedRun, command: Callable[[FlaggedRun], str]) -> str:
    if (why_not := flagged.run.why_not_repeatable) is not None:
        return f"not possible: {why_not}"
    try:
        return command(flagged)
    except UsageError as error:  # stored by a version with other settings
        return f"not possible: {error}"


def _compared_again(
    warehouse: Warehouse, findings: Sequence[Finding], why_not: Mapping[str, str | None], since: datetime
) -> tuple[Finding, ...]:
    """`why_not`: run -> why measuring it again failed. A point that was measured all the same counts."""
    again: dict[tuple[str, str], dict[str, Candidate]] = {}
    compared = []
    for finding in findings:
        candidate = finding.candidate
        if finding.verdict != "regressed":
            compared.append(finding)
            continue
        key = (candidate.run_id, candidate.metric.column)
        if key not in again:
            again[key] = repeated(warehouse, candidate.run_id, since, candidate.metric)
        reason = why_not.get(candidate.run_id)
        compared.append(confirmed(finding, again[key].get(candidate.series_id), reason, Parameters()))
    return worst_first(compared)
