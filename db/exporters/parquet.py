"""Parquet: the warehouse's tables, one file per table and month.

    FOLDER/benchmark_runs/2026-01.parquet         and benchmark_results, raw_benchmark_data: by the start of the run
    FOLDER/hardware_info/all.parquet              and the other tables

Nothing is lost: lists and maps stay lists and maps, numbers keep every bit, and each column has its meaning and unit as
metadata. Tables that the warehouse derives from others are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from db.exporters.support.exporting import ExportRequest, Scope, Tables, folder_output
from db.query import dictionary

if TYPE_CHECKING:
    from db.warehouse import Warehouse

OF_RUNS = {
    "benchmark_runs": "run_id IN (SELECT run_id FROM chosen) ORDER BY started_at, run_id",
    "benchmark_results": "result_id IN (SELECT result_id FROM chosen) ORDER BY run_id, result_id",
    "quality_results": "run_id IN (SELECT run_id FROM chosen) ORDER BY run_id, metric",
    "raw_benchmark_data": "result_id IN (SELECT result_id FROM chosen) ORDER BY result_id, launch, phase DESC, metric",
    "requests": "result_id IN (SELECT result_id FROM chosen) ORDER BY result_id, launch, phase DESC, ordinal",
}
"""Condition and order of the tables with one file per month."""
SERIES = """(
    SELECT series_id FROM benchmark_results WHERE result_id IN (SELECT result_id FROM chosen)
    UNION
    SELECT canonical_series_id FROM benchmark_results JOIN series_alias USING (series_id)
    WHERE result_id IN (SELECT result_id FROM chosen)
)"""
SHARED = {
    "hardware_info": """hardware_id IN (
        SELECT hardware_id FROM benchmark_runs WHERE run_id IN (SELECT run_id FROM chosen)
    ) ORDER BY hardware_id""",
    "series": f"series_id IN {SERIES} ORDER BY series_id",
    "series_alias": f"series_id IN {SERIES} ORDER BY series_id",
    "change_points": f"series_id IN {SERIES} ORDER BY change_point_id",
    "alerts": f"series_id IN {SERIES} ORDER BY alert_id",
    "annotations": f"""target_id IN (
        SELECT result_id FROM chosen UNION SELECT run_id FROM chosen UNION FROM {SERIES}
        UNION SELECT hardware_id FROM benchmark_runs WHERE run_id IN (SELECT run_id FROM chosen)
        UNION SELECT alert_id FROM alerts WHERE series_id IN {SERIES}
    ) ORDER BY annotation_id""",
}
"""Condition and order of the other tables: the rows related to the selected results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetExporter:
    """A folder with a folder for each table."""

    name: str = "parquet"
    summary: str = "a folder with the tables, one file per table and month; with --tables results, without raw samples"
    tables: tuple[Tables, ...] = ("all", "results")

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        scope = Scope(warehouse, request.selection)
        months = scope.months(whole=True)
        left_out = () if request.tables == "all" else ("raw_benchmark_data", "requests")
        with folder_output(request.output) as folder:
            for table, condition in OF_RUNS.items():
                if table not in left_out:
                    for month in months:
                        _write(scope, table, condition, month, folder / table / f"{month:%Y-%m}.parquet")
            for table, condition in SHARED.items():
                _write(scope, table, condition, None, folder / table / "all.parquet")
        return request.output_paths


def _write(scope: Scope, table: str, condition: str, month: datetime | None, path: Path) -> None:
    """Write the table's rows, each column with its entry from the data dictionary, to a file; no file without rows."""
    import pyarrow.parquet

    where = "TRUE" if month is None and scope.is_everything else condition
    rows = scope.read(f"SELECT * FROM {table} WHERE {where}", month, whole=True).arrow()
    if rows.num_rows:
        path.parent.mkdir(exist_ok=True)
        schema = rows.schema
        entries = {field.name: field for field in dictionary.fields(scope.warehouse, table)}
        for place, name in enumerate(schema.names):
            entry = entries[name]
            words = {"meaning": entry.meaning, "unit": entry.unit, "duckdb_type": entry.type}
            schema = schema.set(place, schema.field(place).with_metadata(words))
        pyarrow.parquet.write_table(rows.cast(schema), path, compression="zstd")


PLUGIN = ParquetExporter()
