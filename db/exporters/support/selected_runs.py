"""Rows and runs of a selection, read month by month."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import UsageError
from benchmarking.core.records import LOOP, Result, Run
from benchmarking.core.text import counted
from db.analysis.selection import EVERYTHING, Selection, unknown_models
from db.driver_errors import storage_error
from db.exporters.support.exporting import ExportRequest
from db.run_records import StoredRun, stored_runs
from db.warehouse import Table

if TYPE_CHECKING:
    from db.warehouse import Warehouse

ALL_RESULTS = "SELECT result_id, run_id, started_at FROM all_results WHERE {}"
WHOLE = (
    "SELECT r.result_id, run_id, run.started_at FROM benchmark_runs run LEFT JOIN benchmark_results r USING (run_id)"
)
"""Everything, including device calibrations and runs without a result."""
RUN_IDS = "SELECT run_id FROM chosen GROUP BY run_id ORDER BY min(started_at), run_id"
NOT_MEASURED = "not measured (failed, skipped or timed out)"
"""Why a result without numbers is left out."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A selection of a warehouse."""

    warehouse: Warehouse
    selection: Selection

    @property
    def is_everything(self) -> bool:
        """Whether the selection is the whole warehouse."""
        return self.selection.condition == EVERYTHING.condition

    def months(self, *, whole: bool = False) -> list[datetime]:
        """The first days of the months in which selected runs started, in order. `whole` is as in `read`.

        Raises UsageError if nothing is selected.
        """
        sql = "SELECT DISTINCT date_trunc('month', started_at)::TIMESTAMP AS month FROM chosen ORDER BY month"
        months = [row["month"] for row in self.read(sql, whole=whole).dicts()]
        if not months:
            words = f"{self.selection.text!r} selects nothing" if self.selection.text else "nothing is stored"
            why = unknown_models(self.warehouse, self.selection)
            raise UsageError(f"{self.warehouse.path}: {words}: nothing to export{why}")
        return months

    def read(self, sql: str, month: datetime | None = None, *, whole: bool = False) -> Table:
        """The answer to a query that may use `chosen` (result_id, run_id, started_at): the selection in one month, or
        in all months.

        With `whole`, a selection of everything includes what the view all_results does not show.
        """
        return self.warehouse.query(*self._statement(sql, month, whole=whole))

    def batches(self, sql: str, rows: int) -> Iterator[Any]:
        """The answer for each month in order, as `pyarrow.RecordBatch`es of at most `rows` rows, read as they are
        consumed. Raises UsageError if nothing is selected, StorageError."""
        import pyarrow as pa

        for month in self.months():
            with self.warehouse.cursor() as cursor:
                try:
                    yield from cursor.execute(*self._statement(sql, month)).to_arrow_reader(rows)
                except pa.ArrowException as error:  # an error of DuckDB while the answer is read
                    raise storage_error(str(error), self.warehouse.path) from error

    def _statement(self, sql: str, month: datetime | None, *, whole: bool = False) -> tuple[str, list[object]]:
        everything = whole and self.is_everything
        source = WHOLE if everything else ALL_RESULTS.format(self.selection.condition)
        values: list[object] = [] if everything else list(self.selection.values)
        if month is not None:
            source = f"SELECT * FROM ({source}) WHERE date_trunc('month', started_at) = ?"
            values.append(month)
        return f"WITH chosen AS ({source}) {sql}", values


def whole_runs(scope: Scope) -> Iterator[StoredRun]:
    """Every run with a selected result, with all of its results. Raises UsageError if nothing is selected."""
    scope.months(whole=True)
    run_ids = [row["run_id"] for row in scope.read(RUN_IDS, whole=True).dicts()]
    return stored_runs(scope.warehouse, run_ids)


def selected_runs(scope: Scope) -> Iterator[StoredRun]:
    """The runs, with only their selected results. Raises UsageError if nothing is selected."""
    scope.months()
    ids = scope.read("SELECT run_id, result_id FROM chosen").dicts()
    kept = {row["result_id"] for row in ids}
    run_ids = [row["run_id"] for row in scope.read(RUN_IDS).dicts()]
    for stored in stored_runs(scope.warehouse, run_ids):
        results = tuple(result for result in stored.run.results if result.result_id in kept)
        yield replace(stored, run=replace(stored.run, results=results))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A result with its run."""

    run: Run
    result: Result


def supported_results(
    scope: Scope, request: ExportRequest, why_not: Callable[[Run, Result], str | None]
) -> Iterator[RunResult]:
    """The selected results for which `why_not` returns None. The user is notified of the number of others by reason.

    Raises UsageError if there is none.
    """
    found = 0
    reasons = Counter[str]()
    for stored in selected_runs(scope):
        for result in stored.run.results:
            reason = why_not(stored.run, result)
            if reason is None:
                found += 1
                yield RunResult(run=stored.run, result=result)
            else:
                reasons[reason] += 1
    for reason, count in reasons.items():
        request.notify(f"left out: {counted(count, 'result')}: {reason}")
    if not found:
        raise UsageError("the selection has no result that the format supports")


def why_no_calls(run: Run, result: Result) -> str | None:
    """Why the result has no calls that were made one after another, for formats that know no others; None if it has."""
    if result.status != "ok":
        return NOT_MEASURED
    if LOOP in run.cell.runtime_mode or result.point.concurrency > 1:
        return "a load: several requests at a time, which the format does not know"
    return None
