"""An export: the request, the exporters, their output, and the rows and runs of a selection, read month by month.

The output is stdout, a new file or a new folder. It appears under its name when complete, and never replaces anything.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO

from benchmarking.core import plugins
from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import LOOP, Result, Run
from benchmarking.core.terminal import data_stream
from benchmarking.core.text import counted
from db.analysis.selection import EVERYTHING, Selection, unstored
from db.connection import storage_error
from db.file_copy import publish, temporary_sibling
from db.rows import Table
from db.run_records import StoredRun, stored_runs

if TYPE_CHECKING:
    from db.warehouse import Warehouse


PACKAGE = "db.exporters"
Tables = Literal["results", "all"]
"""Only the selected results, or everything down to their raw samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What to export, and where."""

    selection: Selection
    output: Path | None = None
    """A new file or folder; None for stdout."""
    is_folder: bool = False
    """Whether `output` was given as a folder, which a format of one file refuses."""
    tables: Tables = "results"
    """One of the exporter's `tables`."""
    anonymous: bool = False
    """Whether to omit host and user names; only for formats with `can_be_anonymous`."""
    notify: Callable[[str], None]
    """Receives a line about what was left out."""

    @property
    def file(self) -> Path | None:
        """The output of a format that writes one file. Raises UsageError if a folder was given."""
        if self.is_folder:
            raise UsageError(f"--output-dir {self.output}: the format writes one file: give it with --output FILE")
        return self.output

    @property
    def output_paths(self) -> tuple[Path, ...]:
        """The path of the output; empty for stdout."""
        return () if self.output is None else (self.output,)


class Exporter(Protocol):
    """The contract of an exporter: a `PLUGIN` of its module."""

    name: str
    """The value of `--format`."""
    summary: str
    """What it writes, in one line."""
    tables: tuple[Tables, ...]
    """The values of `--tables`, the default first."""

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        """Write the selection; returns the files or folders created, none for stdout.

        Raises StorageError. Raises UsageError if the format can represent nothing in the selection, or if a required
        folder or package is missing.
        """


def exporters() -> tuple[Exporter, ...]:
    """All exporters, by name."""
    return tuple(plugins.by_name(PACKAGE).values())


def exporter_of(file: Path) -> Exporter | None:
    """The exporter for the ending of a file's name, one of its `endings` if it has any; None without one."""
    return next((one for one in exporters() if file.suffix.lower() in getattr(one, "endings", ())), None)


@contextmanager
def text_output(output: Path | None) -> Iterator[TextIO]:
    """A stream for text: stdout, or a new file. Raises UsageError and StorageError."""
    if output is None:
        yield data_stream()
        return
    _check_free(output)
    if output.is_dir():
        raise UsageError(f"{output} is a folder, but the format writes one file: give the path of a file")
    with temporary_sibling(output) as part:
        with _storage_errors(output), part.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        if not publish(part, output):
            raise StorageError(f"{output} already exists: choose another path")


@contextmanager
def folder_output(output: Path | None) -> Iterator[Path]:
    """A folder to write files into, renamed to `output` at the end. Raises UsageError and StorageError."""
    if output is None:
        raise UsageError("the format writes several files: give a folder with --output-dir")
    _check_free(output)
    with temporary_sibling(output) as part, _storage_errors(output):
        part.mkdir()
        try:
            yield part
            if output.is_dir():
                output.rmdir()  # empty; on Windows a folder cannot replace another
            part.rename(output)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _check_free(output: Path) -> None:
    """Raise UsageError unless the path can be created: it does not exist, or is an empty folder."""
    if output.is_dir() and not any(output.iterdir()):
        return
    if output.exists() or output.is_symlink():
        raise UsageError(f"{output} already exists: choose another path")
    if not output.absolute().parent.is_dir():
        raise UsageError(
            f"{output}: the folder {output.absolute().parent} does not exist: create it, or choose another path"
        )


@contextmanager
def _storage_errors(output: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write {output}: {error.strerror or error}") from error


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
            why = unstored(self.warehouse, self.selection)
            raise UsageError(f"{self.warehouse.path}: {words}: nothing to export{why}")
        return months

    def read(
        self, sql: str, month: datetime | None = None, *, whole: bool = False, values: Sequence[object] = ()
    ) -> Table:
        """The answer to a query that may use `chosen` (result_id, run_id, started_at): the selection in one month, or
        in all months. `values` are those of the query's own places (?).

        With `whole`, a selection of everything includes what the view all_results does not show.
        """
        statement, chosen = self._statement(sql, month, whole=whole)
        return self.warehouse.query(statement, [*chosen, *values])

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


def supported_results(
    scope: Scope, request: ExportRequest, why_not: Callable[[Run, Result], str | None]
) -> Iterator[tuple[Run, Result]]:
    """The selected results for which `why_not` returns None, each with its run. The user is notified of the number of
    others by reason.

    Raises UsageError if there is none.
    """
    scope.months()
    kept = {row["result_id"] for row in scope.read("SELECT result_id FROM chosen").dicts()}
    run_ids = [row["run_id"] for row in scope.read(RUN_IDS).dicts()]
    found = 0
    reasons = Counter[str]()
    for stored in stored_runs(scope.warehouse, run_ids):
        for result in stored.run.results:
            if result.result_id not in kept:
                continue
            reason = why_not(stored.run, result)
            if reason is None:
                found += 1
                yield stored.run, result
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
    is_unlimited = any(doubt.kind in ("concurrency_unlimited", "concurrency_not_stated") for doubt in result.doubts)
    if LOOP in run.cell.runtime_mode or result.point.concurrency > 1 or is_unlimited:
        return "a load: several requests at a time, which the format does not know"
    return None
