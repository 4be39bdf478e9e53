"""CSV: one line per result with its run and hardware, with all digits; optionally the raw samples.

Maps, lists and JSON are JSON in a cell; times are ISO 8601, UTC; NULL is an empty cell, empty text is `""`. Text that a
spreadsheet would execute is prefixed with an apostrophe.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from benchmarking.core.text import FORMULA_STARTS
from db.exporters.support.exporting import ExportRequest, Scope, Tables, folder_output, text_output

if TYPE_CHECKING:
    from db.warehouse import Warehouse

ORDER = {
    "all_results": "started_at, run_id, batch_size, sequence_length, new_tokens, result_id",
    "raw_samples": "result_id, launch, phase DESC, metric, sample_index",
}
ROWS_AT_ONCE = {"all_results": 32, "raw_samples": 50_000}
"""Rows read at once. A result has JSON of any size, often kilobytes but sometimes megabytes; a sample is short."""
PART_BYTES = 16_000_000
"""Size at which rows are converted and written: large enough to be fast, small enough for wide rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvExporter:
    """A file of results, or with the samples a folder with results.csv and samples.csv."""

    name: str = "csv"
    summary: str = "one line per result; with --tables all, a folder with results.csv and samples.csv"
    tables: tuple[Tables, ...] = ("results", "all")

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        scope = Scope(warehouse, request.selection)
        scope.months()  # raises for an empty selection before anything is written
        if request.tables == "results":
            with text_output(request.file) as stream:
                _write(scope, "all_results", stream)
        else:
            with folder_output(request.output) as folder:
                for view, name in (("all_results", "results.csv"), ("raw_samples", "samples.csv")):
                    with (folder / name).open("w", encoding="utf-8", newline="") as stream:
                        _write(scope, view, stream)
        return request.output_paths


def _write(scope: Scope, view: str, stream: TextIO) -> None:
    """The rows of a view below a header, read and written in parts of bounded size."""
    import pyarrow as pa

    types = {row["column_name"]: row["column_type"] for row in scope.warehouse.query(f"DESCRIBE {view}").dicts()}
    chosen = "(SELECT result_id FROM chosen)"
    cells = ", ".join(f'{_cell(name, kind)} AS "{name}"' for name, kind in types.items())
    sql = f"SELECT {cells} FROM {view} WHERE result_id IN {chosen} ORDER BY {ORDER[view]}"
    stream.write(_csv_text(pa.table({name: [] for name in types}), has_header=True))
    part: list[Any] = []
    size = 0
    for batch in scope.batches(sql, ROWS_AT_ONCE[view]):
        part.append(batch)
        size += batch.nbytes
        if size >= PART_BYTES:
            stream.write(_csv_text(pa.Table.from_batches(part), has_header=False))
            part, size = [], 0
    if part:
        stream.write(_csv_text(pa.Table.from_batches(part), has_header=False))


def _csv_text(table: Any, *, has_header: bool) -> str:
    import pyarrow.csv

    content = io.BytesIO()
    pyarrow.csv.write_csv(table, content, pyarrow.csv.WriteOptions(include_header=has_header))
    return content.getvalue().decode()


def _cell(name: str, kind: str) -> str:
    """The SQL of a column's cells: `text.spreadsheet_safe` for text, numbers unchanged."""
    if kind.startswith("MAP") or kind.endswith("[]"):
        return f'to_json("{name}")::VARCHAR'
    if kind == "TIMESTAMP":
        return f"replace(\"{name}\"::VARCHAR, ' ', 'T')"
    column = f'"{name}"'
    if kind != "VARCHAR":
        return column
    starts = " OR ".join(f"starts_with({column}, chr({ord(start)}))" for start in FORMULA_STARTS)
    return f"CASE WHEN ({starts}) AND TRY_CAST({column} AS DOUBLE) IS NULL THEN chr(39) || {column} ELSE {column} END"


PLUGIN = CsvExporter()
