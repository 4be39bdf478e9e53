"""The warehouse's content in files: run files and Parquet without loss, CSV and Markdown for people, OpenMetrics for
Prometheus.

Run files: each run as the JSON that a measurement writes, which `setup_benchmark_db --ingest FOLDER` loads. A run is
exported as a whole, even if only some of its results are selected: a warehouse that loaded one part could not load the
rest, which has the same run id.

Parquet: the tables, one file per table and month.

    FOLDER/benchmark_runs/2026-01.parquet         and benchmark_results, raw_benchmark_data: by the start of the run
    FOLDER/hardware_info/all.parquet              and the other tables

Nothing is lost: lists and maps stay lists and maps, numbers keep every bit, and each column has its meaning and unit as
metadata. Tables that the warehouse derives from others are left out.

CSV: one line per result with its run and hardware, with all digits; optionally the raw samples. Maps, lists and JSON
are JSON in a cell; times are ISO 8601, UTC; NULL is an empty cell, empty text is `""`. Text that a spreadsheet would
execute is prefixed with an apostrophe.

Markdown: the selected results as a table for a page or a pull request.

OpenMetrics: every number of every result as a gauge in base units, with the time of its run. Prometheus can scrape it,
or `promtool tsdb create-blocks-from openmetrics` loads it. Times are in seconds, sizes in bytes; HELP explains each.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from benchmarking.core import text
from benchmarking.core.axes import AXES, FURTHER
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import BYTES_PER_MB, METRICS, MS_PER_S, PEAK_MEMORY_SQL, YIELD
from benchmarking.core.quality import QUALITY_METRICS
from benchmarking.core.records import Run, dumps
from benchmarking.core.tables import NOTHING
from benchmarking.core.untrusted.redaction import redacted_record
from db.analysis.selection import NEWEST, Selection
from db.exporters.support.exporting import (
    NOT_MEASURED,
    ExportRequest,
    Scope,
    Tables,
    folder_output,
    text_output,
    whole_runs,
)
from db.query import answers
from db.run_records import StoredRun, selected_profiles
from db.values import SETTINGS, heading, readable, with_words

if TYPE_CHECKING:
    from db.warehouse import Warehouse


FILE = ".json"

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
OF_PROFILES = "profile_id IN (SELECT unnest(?))"
SHARED = {
    "hardware_info": f"""hardware_id IN (
        SELECT hardware_id FROM benchmark_runs WHERE run_id IN (SELECT run_id FROM chosen)
        UNION SELECT hardware_id FROM profiles WHERE {OF_PROFILES}
    ) ORDER BY hardware_id""",
    "series": f"""series_id IN {SERIES} OR series_id IN (SELECT series_id FROM profiles WHERE {OF_PROFILES})
        ORDER BY series_id""",
    "profiles": f"{OF_PROFILES} ORDER BY started_at, profile_id",
    **dict.fromkeys(("profile_modules", "profile_ops"), f"{OF_PROFILES} ORDER BY profile_id, ordinal"),
    "series_alias": f"series_id IN {SERIES} ORDER BY series_id",
    "change_points": f"series_id IN {SERIES} ORDER BY change_point_id",
    "alerts": f"series_id IN {SERIES} ORDER BY alert_id",
    "annotations": f"""target_id IN (
        SELECT result_id FROM chosen UNION SELECT run_id FROM chosen UNION FROM {SERIES}
        UNION SELECT hardware_id FROM benchmark_runs WHERE run_id IN (SELECT run_id FROM chosen)
        UNION SELECT alert_id FROM alerts WHERE series_id IN {SERIES}
    ) ORDER BY annotation_id""",
}
"""Condition and order of the other tables: the selected profiles, and the rows related to them and to the selected
results."""

CSV_ORDER = {
    "all_results": "started_at, run_id, batch_size, sequence_length, new_tokens, result_id",
    "raw_samples": "result_id, launch, phase DESC, metric, sample_index",
}
ROWS_AT_ONCE = {"all_results": 32, "raw_samples": 50_000}
"""Rows read at once. A result has JSON of any size, often kilobytes but sometimes megabytes; a sample is short."""
PART_BYTES = 16_000_000
"""Size at which rows are converted and written: large enough to be fast, small enough for wide rows."""

MARKDOWN_ROWS = f"""
SELECT *, {PEAK_MEMORY_SQL} AS memory_peak_mb
FROM all_results WHERE result_id IN (SELECT result_id FROM chosen)
ORDER BY model_id, batch_size, sequence_length, new_tokens, axes, device, runtime, precision, started_at, result_id
"""
WORDS = {
    "model_id": "model",
    "device_name": "device",
    "runtime": "runtime",
    "precision": "precision",
    SETTINGS: heading(SETTINGS),
}
SHOWN = (
    *("latency_p90_ms", "throughput_samples_per_sec", "throughput_tokens_per_sec"),
    *("time_to_first_token_ms", "time_per_output_token_ms"),
)
AXIS_HEADINGS = {name: axis.heading for name, axis in AXES.items()}
NUMBERS = {
    "latency_median_ms": METRICS["latency_median_ms"].heading,
    "interval": "95 % interval",
    **{name: METRICS[name].heading for name in SHOWN},
    "memory_peak_mb": "peak MB",
    **{name: metric.heading_with_unit for name, metric in QUALITY_METRICS.items()},
}
REMARKS = {"verdict": "doubts", "started_at": "started (UTC)"}
IMPLIED = {name: str(axis.implied) for name, axis in AXES.items() if axis.implied is not None}
"""Values that need no column if all results share them."""


class JsonExporter:
    """A folder of run files, one run in a file, or one run per line on stdout."""

    name = "json"
    endings = (".json",)
    summary = "a folder of run files, for benchhouse setup --ingest; FILE.json for one run; stdout: one run per line"
    tables: tuple[Tables, ...] = ("all",)
    can_be_anonymous = True

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        runs = _exported(whole_runs(Scope(warehouse, request.selection)), request)
        if profiles := len(_profile_ids(warehouse, request.selection)):
            request.notify(
                f"left out: {text.counted(profiles, 'profile')}: a run file has no field for them (Parquet does)"
            )
        output = request.output
        if output is None:
            with text_output(None) as stream:
                stream.writelines(f"{dumps(run)}\n" for run in runs)
            return ()
        if output.suffix == FILE and not request.is_folder:
            first = next(runs)
            if next(runs, None) is not None:
                raise UsageError(
                    f"{output}: a run file contains one run, but several are selected: give a folder, or select one run"
                )
            with text_output(output) as stream:
                stream.write(f"{dumps(first)}\n")
        else:
            with folder_output(output) as folder:
                for run in runs:
                    (folder / file_name(run)).write_text(f"{dumps(run)}\n", encoding="utf-8")
        return (output,)


def file_name(run: Run) -> str:
    """A unique file name; names sort by the start of the runs."""
    cell = run.cell
    started = re.sub(r"[-:]|\.\d+", "", run.started_at)
    parts = (started, cell.workload.model_id, cell.device.selector, cell.runtime, cell.precision)
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", "_".join(parts))
    return f"{words[:150]}_{re.sub('[^A-Za-z0-9-]', '-', run.run_id)}{FILE}"


def _exported(stored_runs: Iterator[StoredRun], request: ExportRequest) -> Iterator[Run]:
    """The runs, redacted if asked. The user is notified of samples that a run file cannot contain."""
    for stored in stored_runs:
        if stored.compacted:
            request.notify(
                f"run {stored.run.run_id}: left out the quantiles of {stored.compacted} launches and metrics, whose "
                "raw samples were compacted: a run file has no field for them (Parquet does)"
            )
        yield redacted_record(stored.run, anonymous=True) if request.anonymous else stored.run


class ParquetExporter:
    """A folder with a folder for each table."""

    name = "parquet"
    endings = (".parquet",)
    summary = "a folder with the tables, one file per table and month; with --tables results, without raw samples"
    tables: tuple[Tables, ...] = ("all", "results")

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        scope = Scope(warehouse, request.selection)
        months = scope.months(whole=True)
        left_out = () if request.tables == "all" else ("raw_benchmark_data", "requests")
        with folder_output(request.output) as folder:
            for table, condition in OF_RUNS.items():
                if table not in left_out:
                    for month in months:
                        _write_parquet(scope, table, condition, month, folder / table / f"{month:%Y-%m}.parquet")
            ids = _profile_ids(warehouse, request.selection)
            for table, condition in SHARED.items():
                _write_parquet(scope, table, condition, None, folder / table / "all.parquet", ids)
        return request.output_paths


def _profile_ids(warehouse: Warehouse, selection: Selection) -> list[str]:
    """The ids of the selected profiles. `latest` is the newest session with results, not the newest with profiles."""
    profiles = selected_profiles(warehouse, selection)
    if NEWEST in selection.condition:
        rows = warehouse.query(f"SELECT DISTINCT session_id FROM all_results WHERE {NEWEST}").dicts()
        newest = {row["session_id"] for row in rows}
        profiles = [profile for profile in profiles if profile["session_id"] in newest]
    return [profile["profile_id"] for profile in profiles]


def _write_parquet(
    scope: Scope, table: str, condition: str, month: datetime | None, path: Path, profile_ids: Sequence[str] = ()
) -> None:
    """Write the table's rows, each column with its entry from the data dictionary, to a file; no file without rows."""
    import pyarrow.parquet

    where = "TRUE" if month is None and scope.is_everything else condition
    values = [list(profile_ids)] if OF_PROFILES in where else []
    rows = scope.read(f"SELECT * FROM {table} WHERE {where}", month, whole=True, values=values).arrow()
    if rows.num_rows:
        path.parent.mkdir(exist_ok=True)
        schema = rows.schema
        entries = {field.name: field for field in answers.fields(scope.warehouse, table)}
        for place, name in enumerate(schema.names):
            entry = entries[name]
            words = {"meaning": entry.meaning, "unit": entry.unit, "duckdb_type": entry.type}
            schema = schema.set(place, schema.field(place).with_metadata(words))
        pyarrow.parquet.write_table(rows.cast(schema), path, compression="zstd")


class CsvExporter:
    """A file of results, or with the samples a folder with results.csv and samples.csv."""

    name = "csv"
    endings = (".csv",)
    summary = "one line per result; with --tables all, a folder with results.csv and samples.csv"
    tables: tuple[Tables, ...] = ("results", "all")

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        scope = Scope(warehouse, request.selection)
        scope.months()  # raises for an empty selection before anything is written
        if request.tables == "results":
            with text_output(request.file) as stream:
                _write_csv(scope, "all_results", stream)
        else:
            with folder_output(request.output) as folder:
                for view, name in (("all_results", "results.csv"), ("raw_samples", "samples.csv")):
                    with (folder / name).open("w", encoding="utf-8", newline="") as stream:
                        _write_csv(scope, view, stream)
        return request.output_paths


def _write_csv(scope: Scope, view: str, stream: TextIO) -> None:
    """The rows of a view below a header, read and written in parts of bounded size."""
    import pyarrow as pa

    types = {row["column_name"]: row["column_type"] for row in scope.warehouse.query(f"DESCRIBE {view}").dicts()}
    chosen = "(SELECT result_id FROM chosen)"
    cells = ", ".join(f'{_cell(name, kind)} AS "{name}"' for name, kind in types.items())
    sql = f"SELECT {cells} FROM {view} WHERE result_id IN {chosen} ORDER BY {CSV_ORDER[view]}"
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
    starts = " OR ".join(f"starts_with({column}, chr({ord(start)}))" for start in text.FORMULA_STARTS)
    return f"CASE WHEN ({starts}) AND TRY_CAST({column} AS DOUBLE) IS NULL THEN chr(39) || {column} ELSE {column} END"


class MarkdownExporter:
    """One table, without empty columns."""

    name = "markdown"
    endings = (".md", ".markdown")
    summary = "a table of the results for a page or a pull request"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        scope = Scope(warehouse, request.selection)
        scope.months()
        rows = with_words(scope.read(MARKDOWN_ROWS).dicts(), warehouse)
        axes = [json.loads(row["axes"] or "{}") for row in rows]  # those without a column, such as the rate of a load
        further = {name: name.replace("_", " ") for own in axes for name in sorted(own) if name not in AXES}
        headings = WORDS | AXIS_HEADINGS | further | NUMBERS | REMARKS
        cells: list[dict[str, str]] = []
        for row in (own | stored for own, stored in zip(axes, rows, strict=True)):
            # The interval is that of the typical launch; that of fewer than three would only cover their calls.
            low, high = row["latency_ci_low_ms"], row["latency_ci_high_ms"]
            has_interval = low is not None and high is not None and row["ci_scope"] == "between"
            if row["status"] != "ok":
                verdict = f"{row['status'].replace('_', ' ')}: {row['error']}"
            elif row["doubts"]:
                verdict = f"{row['validity']}: {', '.join(row['doubts'])}"
            else:
                verdict = NOTHING if row["validity"] == "valid" else str(row["validity"])
            texts = {"interval": " .. ".join(text.ends(low, high)) if has_interval else NOTHING, "verdict": verdict}
            cells.append({name: texts[name] if name in texts else _text(row.get(name)) for name in headings})
        kept = [name for name in headings if any(row[name] not in (NOTHING, IMPLIED.get(name)) for row in cells)]
        right = [place for place, name in enumerate(kept) if name not in WORDS | REMARKS]
        lines = [[row[name] for name in kept] for row in cells]
        with text_output(request.file) as stream:
            print(text.markdown_table([headings[name] for name in kept], lines, right=right), file=stream)
        return request.output_paths


def _text(value: Any) -> str:
    return text.number(value) if isinstance(value, float) else readable(value)


PREFIX = "benchhouse_"
LABELS = {
    "model": "model_id",
    **{name: name for name in ("weights", "task", "device", "device_name")},
    **{name: name for name in ("runtime", "runtime_mode", "precision", "num_threads", *AXES)},
    "definition": "origin_definition",
    "validity": "validity",
    "simulated": "simulated",
    "series": "series_id",
}
"""Label -> column. A NULL has no label."""
ROWS = """
SELECT * FROM all_results WHERE result_id IN (SELECT result_id FROM chosen) ORDER BY started_at, result_id
"""
UNITS = {
    "_flops_per_sec": ("_flops_per_second", "flops_per_second", 1, 1),
    "_bytes_per_sec": ("_bytes_per_second", "bytes_per_second", 1, 1),
    "_per_sec": ("_per_second", "", 1, 1),
    "_j_per_call": ("_per_call_joules", "joules", 1, 1),
    "_j_per_query": ("_per_query_joules", "joules", 1, 1),
    "_j": ("_joules", "joules", 1, 1),
    "_bytes": ("_bytes", "bytes", 1, 1),
    "_mb": ("_bytes", "bytes", BYTES_PER_MB, 1),
    "_kb": ("_bytes", "bytes", 1000, 1),
    "_ms": ("_seconds", "seconds", 1, MS_PER_S),
    "_s": ("_seconds", "seconds", 1, 1),
    "_w": ("_watts", "watts", 1, 1),
}
"""Suffix of a column -> suffix of the metric, its unit, and the multiplier and divisor of values; the first match."""
SAME = 1e-9
"""Relative difference of one quantity in two units."""
UNIT_WORDS = (
    (r"\bMB \(10\^6 bytes\)|\bMB\b", "bytes"),
    (r"\bin ms\b", "in seconds"),
    (r"\bin s\b", "in seconds"),
    (r"\bin J\b", "in joules"),
    (r"\bin W\b", "in watts"),
)
"""Unit in the data dictionary, and its name here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The OpenMetrics family of a column."""

    name: str
    unit: str
    """Empty without a unit."""
    times: float
    over: float

    def value(self, stored: float) -> float:
        """The value in the family's unit. Milliseconds are divided by 1000, since 0.001 has no exact binary form."""
        return stored * self.times / self.over


class OpenMetricsExporter:
    """One text in the OpenMetrics 1.0 exposition format."""

    name = "openmetrics"
    endings = (".prom", ".om")
    summary = "gauges in base units for Prometheus, each with the time of its run"
    tables: tuple[Tables, ...] = ("results",)

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        scope = Scope(warehouse, request.selection)
        scope.months()
        selected = scope.read(ROWS).dicts()
        rows = [row for row in selected if row["status"] == "ok"]
        if not rows:
            raise UsageError("the selection has no measured result: there are no numbers to export")
        if len(selected) > len(rows):
            request.notify(f"left out: {text.counted(len(selected) - len(rows), 'result')}: {NOT_MEASURED}")
        columns = {field.name: field for field in answers.fields(warehouse, "all_results")}
        numbers = [name for name, field in columns.items() if field.type == "DOUBLE" and name not in FURTHER]
        # A time has one value, so only the last row of each series and time is kept.
        kept = {(_labels(row), row["started_at"].replace(tzinfo=UTC).timestamp()): row for row in rows}
        if len(rows) > len(kept):
            again = text.counted(len(rows) - len(kept), "result")
            request.notify(f"left out: {again} at the same time as another one of the series")
        others = sorted({name for row in kept.values() for name in row["other_metrics"]} - set(numbers))
        # A family occurs once in the text, and tools state the same quantity in several units: duration_ms, duration_s.
        families = text.grouped((family(column).name, column) for column in (*numbers, *others))
        hidden: dict[str, int] = {}  # values of a metric whose name is that of another one, by metric
        with text_output(request.file) as stream:
            for of_family in families.values():
                column, kind = of_family[0], family(of_family[0])
                meaning = columns[column].meaning if column in columns else f"{column}, which has no column."
                # The samples of a series are contiguous, oldest first.
                samples: dict[str, dict[float, float]] = {}
                for ((labels, time_s), row), name in product(kept.items(), of_family):
                    value = row["other_metrics"].get(name) if name not in row else row[name]
                    if value is None:
                        continue
                    in_base = family(name).value(value)
                    first = samples.setdefault(labels, {}).setdefault(time_s, in_base)
                    if not math.isclose(first, in_base, rel_tol=SAME):
                        hidden[name] = hidden.get(name, 0) + 1
                if samples:
                    stream.write(f"# TYPE {kind.name} gauge\n")
                    if kind.unit:
                        stream.write(f"# UNIT {kind.name} {kind.unit}\n")
                    stream.write(f"# HELP {kind.name} {_escaped(in_base_units(meaning))}\n")
                    for labels, values in samples.items():
                        stream.writelines(
                            f"{kind.name}{{{labels}}} {value!r} {time_s!r}\n" for time_s, value in values.items()
                        )
            stream.write("# EOF\n")
        if hidden:
            count, names = text.counted(sum(hidden.values()), "value"), text.listed([*map(readable, hidden)], 3)
            request.notify(f"left out: {count} of metrics whose name becomes that of another one: {names}")
        return request.output_paths


def family(column: str) -> Family:
    """The metric for a column: latency_median_ms becomes benchhouse_latency_median_seconds."""
    endings = UNITS if YIELD.search(column) is None else ()
    ending = next((one for one in endings if column.endswith(one)), "")
    new, unit, times, over = UNITS.get(ending, ("", "", 1, 1))
    name = PREFIX + re.sub(r"[^A-Za-z0-9_]", "_", column.removesuffix(ending) + new)
    return Family(name=name, unit=unit, times=times, over=over)


def in_base_units(meaning: str) -> str:
    """A column's meaning, with the units of this format: "in seconds" for "in ms"."""
    for pattern, words in UNIT_WORDS:
        meaning = re.sub(pattern, words, meaning)
    return meaning


def _labels(row: Mapping[str, Any]) -> str:
    labels = []
    for label, column in LABELS.items():
        if (value := row[column]) is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            labels.append(f'{label}="{_escaped(text.lower() if isinstance(value, bool) else text)}"')
    return ",".join(labels)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


PLUGINS = (JsonExporter(), ParquetExporter(), CsvExporter(), MarkdownExporter(), OpenMetricsExporter())
