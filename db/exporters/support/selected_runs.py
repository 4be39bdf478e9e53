"""The rows of every table that belong to a selection, and the months they are read by: one is held at a time.

The runs of a selection, as records, for targets that take one run after the other.

What a target that is about generating text can take, and what is said of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.records import Result, Run
from db.analysis.selection import EVERYTHING, Selection
from db.exporters.support.exporting import Wanted
from db.run_records import StoredRun, stored_runs
from db.warehouse import Table

if TYPE_CHECKING:
    from db.warehouse import Warehouse

ALL_RESULTS = "SELECT result_id, run_id, started_at FROM all_results WHERE {}"
WHOLE = (
    "SELECT r.result_id, run_id, run.started_at FROM benchmark_runs run LEFT JOIN benchmark_results r USING (run_id)"
)
"""Everything: also what is no result of a model, the calibrations of devices, and runs that came to no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A selection of a warehouse, to be read."""

    warehouse: Warehouse
    selection: Selection

    @property
    def is_everything(self) -> bool:
        """Whether nothing was left out."""
        return self.selection.condition == EVERYTHING.condition

    def months(self, *, whole: bool = False) -> list[datetime]:
        """The months (their first days) in which runs of the selection started, in order. `whole` as with `read`.

        Raises UsageError when nothing is selected.
        """
        sql = "SELECT DISTINCT date_trunc('month', started_at)::TIMESTAMP AS month FROM chosen ORDER BY month"
        try:
            months = [row["month"] for row in self.read(sql, whole=whole).dicts()]
        except StorageError as error:
            if "sql:" in self.selection.text:  # the condition is somebody's own words
                raise UsageError(str(error)) from error
            raise
        if not months:
            words = f"{self.selection.text!r} selects nothing" if self.selection.text else "nothing is stored"
            raise UsageError(f"{self.warehouse.path}: {words}: there is nothing to export")
        return months

    def read(self, sql: str, month: datetime | None = None, *, whole: bool = False) -> Table:
        """The answer to a query that may name `chosen` (result_id, run_id, started_at): what is selected, of one month
        or of all.

        With `whole`, a selection of everything is all there is, and not only what the view all_results shows.
        """
        everything = whole and self.is_everything
        source = WHOLE if everything else ALL_RESULTS.format(self.selection.condition)
        values: list[object] = [] if everything else list(self.selection.values)
        if month is not None:
            source = f"SELECT * FROM ({source}) WHERE date_trunc('month', started_at) = ?"
            values.append(month)
        return self.warehouse.query(f"WITH chosen AS ({source}) {sql}", values)

    def by_month(self, sql: str) -> Iterator[Table]:
        """The answers of each month, in order. Raises UsageError when nothing is selected."""
        for month in self.months():
            yield self.read(sql, month)


RUN_IDS = "SELECT run_id FROM chosen GROUP BY run_id ORDER BY min(started_at), run_id"


def whole_runs(scope: Scope) -> Iterator[StoredRun]:
    """Every run with a selected result, with all of its results. Raises UsageError when nothing is selected."""
    scope.months(whole=True)
    run_ids = [row["run_id"] for row in scope.read(RUN_IDS, whole=True).dicts()]
    return stored_runs(scope.warehouse, run_ids)


def selected_runs(scope: Scope) -> Iterator[StoredRun]:
    """The runs with those of their results that are selected. Raises UsageError when nothing is selected."""
    scope.months()
    ids = scope.read("SELECT run_id, result_id FROM chosen").dicts()
    kept = {row["result_id"] for row in ids}
    run_ids = [row["run_id"] for row in scope.read(RUN_IDS).dicts()]
    for stored in stored_runs(scope.warehouse, run_ids):
        results = tuple(result for result in stored.run.results if result.result_id in kept)
        yield replace(stored, run=replace(stored.run, results=results))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """A result that the target has a place for, with its run."""

    run: Run
    result: Result


def fitting(runs: Iterable[Run], why_not: Callable[[Run, Result], str | None], wanted: Wanted) -> Iterator[Fitting]:
    """The results for which `why_not` gives no reason. How many have which reason is said.

    Raises UsageError when there is none.
    """
    found = 0
    reasons: dict[str, int] = {}
    for run in runs:
        for result in run.results:
            reason = why_not(run, result)
            if reason is None:
                found += 1
                yield Fitting(run=run, result=result)
            else:
                reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in reasons.items():
        wanted.say(f"left out: {count} result{'s' * (count > 1)}: {reason}")
    if not found:
        raise UsageError("nothing that the format has a place for is selected")


def values(result: Result, metric: str) -> list[float]:
    """The raw samples of a metric, one launch after the other; empty where there are none."""
    return [
        value
        for samples in sorted(result.samples, key=lambda samples: samples.launch)
        if samples.metric == metric and samples.phase == "measure"
        for value in samples.values
    ]
