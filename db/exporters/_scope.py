"""The rows of every table that belong to a selection, and the months they are read by: one is held at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from benchmarking.errors import StorageError, UsageError
from db.analysis.selection import EVERYTHING, Selection
from db.table import Table

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
