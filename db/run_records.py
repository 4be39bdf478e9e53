"""Reads stored runs back as records: the inverse of `db.rows`; and profiles, both ways.

A record read back is not identical in everything: it lacks the run's file (name, digest, time of storing), `hardware`
describes the device as the first run on the hardware found it, and compacted raw samples are missing.
`StoredRun.compacted` counts the launches and metrics without them.

Profiles are converted to the rows of their own tables; stored ones are selected, and read as rows.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import FURTHER, POINT_COLUMNS, POINT_FIELDS
from benchmarking.core.errors import FormatError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.profiles import ModuleTime, OperatorTime, Profile
from benchmarking.core.provenance import MeasuredRun
from benchmarking.core.quality import Quality, QualityValue, source_of
from benchmarking.core.records import (
    NOT_SUPPORTED,
    Cell,
    Device,
    Doubt,
    Hardware,
    LaunchLoad,
    Origin,
    Point,
    Preparation,
    Provenance,
    Readings,
    Requests,
    Result,
    Run,
    Samples,
    Workload,
    from_json,
    json_text,
)
from benchmarking.core.text import grouped
from db.rows import (
    CELL_COLUMNS,
    HARDWARE_COLUMNS,
    PROVENANCE_COLUMNS,
    QUALITY_COLUMNS,
    REQUEST_COLUMNS,
    RESULT_COLUMNS,
    RUN_COLUMNS,
    SAMPLES_COLUMNS,
    WORKLOAD_COLUMNS,
    Columns,
    Row,
    hardware_row,
    quality_rows,
    record_columns,
    series_id,
    series_keys,
    series_row,
    utc,
)

if TYPE_CHECKING:
    from db.analysis.selection import Selection
    from db.connection import Connection
    from db.warehouse import Warehouse


StoredRow = Mapping[str, Any]

STAGES = ("spawn", "import", "device_init", "tokenizer", "weights_read", "to_device")
"""Stages in launch order, which stored JSON does not keep; the floating-point sum depends on it."""
GROUP_SIZE = 50
"""Number of runs that are read with one query per table."""
RUNS = """
SELECT run.*, hardware.* EXCLUDE (hardware_id, simulated, first_seen_at)
FROM benchmark_runs run JOIN hardware_info hardware USING (hardware_id)
WHERE run_id IN (SELECT unnest($runs)) ORDER BY started_at, run_id
"""
RESULTS = "SELECT * FROM benchmark_results WHERE run_id IN (SELECT unnest($runs)) ORDER BY result_id"
RAW = """
SELECT raw.* FROM raw_benchmark_data raw JOIN benchmark_results USING (result_id)
WHERE run_id IN (SELECT unnest($runs)) ORDER BY result_id, launch, phase DESC, metric
"""
REQUESTS = """
SELECT requests.* FROM requests JOIN benchmark_results USING (result_id)
WHERE run_id IN (SELECT unnest($runs)) ORDER BY result_id, launch, phase DESC, ordinal
"""
QUALITY = """
SELECT * FROM all_measures_of_quality WHERE run_id IN (SELECT unnest($runs)) AND (NOT $own OR measured_by = run_id)
ORDER BY run_id, measured_by <> run_id, metric
"""
BESIDE = """
SELECT run_id, metric, measured_by FROM all_measures_of_quality
WHERE run_id IN (SELECT unnest($runs)) AND measured_by <> run_id
"""
ADD_QUALITY = """
INSERT INTO quality_results BY NAME
SELECT $run_id AS run_id, $metric AS metric, $value AS value, $low AS low, $high AS high, $unit AS unit,
    $windows AS windows, $by_window AS by_window, $inputs AS inputs, $how AS how, $missing AS missing
WHERE $run_id IN (SELECT run_id FROM benchmark_runs)
"""
METRICS = """
SELECT column_name AS name FROM duckdb_columns()
WHERE NOT internal AND table_name = 'benchmark_results' AND data_type = 'DOUBLE' ORDER BY column_index
"""
MEASURED_COLUMNS = (
    *("run_id", "model_id", "model_source", "task", "weights", "device", "runtime", "precision", "num_threads"),
    *("cpu_list", "tags", "origin_format", "model_revision", "config_hash"),
)
"""Columns of benchmark_runs that are unchanged fields of MeasuredRun."""
POINTS = f"""
SELECT run_id, status, {", ".join(POINT_COLUMNS)} FROM benchmark_results
WHERE run_id IN (SELECT unnest($runs)) ORDER BY result_id
"""
MEASURED_RUNS = """
SELECT {columns}, runtime_mode, settings, hashed_keys,
    if(model_source = 'file' AND architecture_type IS NULL, config, NULL) AS graph_config,
    run_id IN (SELECT run_id FROM quality_results WHERE value IS NOT NULL) AS has_quality
FROM benchmark_runs JOIN hardware_info USING (hardware_id)
WHERE run_id IN (SELECT run_id FROM all_results WHERE {condition}) ORDER BY started_at, run_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run read back from the warehouse."""

    run: Run
    compacted: int = 0
    """Number of launches and metrics with compacted raw samples, which the run lacks."""


def stored_runs(warehouse: Warehouse, run_ids: Sequence[str]) -> Iterator[StoredRun]:
    """The runs, read in groups, each sorted by start. Raises StorageError."""
    metrics = [row["name"] for row in warehouse.query(METRICS).dicts() if row["name"] not in FURTHER]
    for start in range(0, len(run_ids), GROUP_SIZE):
        yield from _read_group(warehouse, list(run_ids[start : start + GROUP_SIZE]), metrics)


def _read_group(warehouse: Warehouse, run_ids: list[str], metrics: Sequence[str]) -> Iterator[StoredRun]:
    """The runs of a group. Its rows are freed before those of the next group are read."""
    raw, requests = (_grouped(warehouse, sql, run_ids, "result_id") for sql in (RAW, REQUESTS))
    results = _grouped(warehouse, RESULTS, run_ids, "run_id")
    quality = qualities(warehouse, run_ids, only_own=True)
    for row in warehouse.query(RUNS, {"runs": run_ids}).dicts():
        compacted, records = 0, []
        for result in results.get(row["run_id"], []):
            samples = raw.get(result["result_id"], [])
            compacted += sum(one["compacted_at"] is not None for one in samples)
            records.append(_result(result, samples, requests.get(result["result_id"], []), metrics))
        run = replace(_run(row, tuple(records)), quality=quality.get(row["run_id"]))
        yield StoredRun(run=run, compacted=compacted)


def measured_runs(warehouse: Warehouse, condition: str, values: Sequence[object]) -> tuple[MeasuredRun, ...]:
    """The settings of the runs that have results matching the condition, oldest first."""
    sql = MEASURED_RUNS.format(columns=", ".join(MEASURED_COLUMNS), condition=condition)
    rows = warehouse.query(sql, values).dicts()
    results = _grouped(warehouse, POINTS, [row["run_id"] for row in rows], "run_id")
    runs = []
    for row in rows:
        of_run = results.get(row["run_id"], [])
        graph = json.loads(row["graph_config"] or "{}")  # its keys are those of `workloads.support.graph_file`
        runs.append(
            MeasuredRun(
                **{name: row[name] for name in MEASURED_COLUMNS},
                runtime_mode=json.loads(row["runtime_mode"]),
                settings=json.loads(row["settings"]),
                hashed_keys=json.loads(row["hashed_keys"]),
                dims=graph.get("dims", {}),
                input_values=graph.get("input_values", {}),
                has_inputs_file="inputs_file" in graph,
                points=tuple(Point.from_columns(result) for result in of_run),
                has_skipped_points=any(result["status"] == "skipped" for result in of_run),
                has_quality=row["has_quality"],
            )
        )
    return tuple(runs)


def _grouped(warehouse: Warehouse, sql: str, run_ids: Sequence[str], key: str) -> dict[str, list[dict[str, Any]]]:
    return grouped((row[key], row) for row in warehouse.query(sql, {"runs": list(run_ids)}).dicts())


def _run(row: StoredRow, results: tuple[Result, ...]) -> Run:
    loads = []
    for stored in json.loads(row["loads"]):
        load: LaunchLoad = from_json(LaunchLoad, stored, "loads")
        in_order = {stage: load.stages_s[stage] for stage in STAGES if stage in load.stages_s}
        loads.append(replace(load, stages_s={**in_order, **load.stages_s}))
    return Run(
        **_fields(row, RUN_COLUMNS),
        started_at=_time(row["started_at"]),
        finished_at=None if row["finished_at"] is None else _time(row["finished_at"]),
        cell=Cell(
            **_fields(row, CELL_COLUMNS),
            workload=Workload(**_fields(row, WORKLOAD_COLUMNS), config=json.loads(row["config"])),
            device=_record(Device, row, "device_details"),
            runtime_mode=json.loads(row["runtime_mode"]),
        ),
        hardware=Hardware(
            **_fields(row, HARDWARE_COLUMNS),
            hashed_keys=json.loads(row["hashed_keys"]),
            device=_record(Device, row, "details"),
            host=_record(Readings, row, "host_details"),
        ),
        provenance=Provenance(
            **_fields(row, PROVENANCE_COLUMNS),
            command=tuple(shlex.split(row["command"])),
            git_commit_time=None if row["git_commit_time"] is None else _time(row["git_commit_time"]),
            versions=row["versions"],
            tags=row["tags"],
        ),
        settings=json.loads(row["settings"]),
        environment=_record(Readings, row, "environment"),
        preparation=None if row["preparation"] is None else _record(Preparation, row, "preparation"),
        loads=tuple(loads),
        results=results,
        origin=None if row["origin"] is None else _record(Origin, row, "origin"),
    )


def qualities(warehouse: Warehouse, run_ids: Sequence[str], *, only_own: bool = False) -> dict[str, Quality]:
    """The quality of the models of runs, by run, where it was measured: by the run, and unless `only_own` also by an
    imported evaluation of the same model, precision and engine."""
    stored = warehouse.query(QUALITY, {"runs": list(run_ids), "own": only_own}).dicts()
    found = {}
    for run_id, rows in grouped((row["run_id"], row) for row in stored).items():
        by_source = {source_of(row["metric"]): row for row in rows}
        of_pass = by_source.get("inputs", rows[0])
        inputs, how = of_pass["inputs"], json.loads(of_pass["how"])
        for source, of_metric in by_source.items():
            if source != "inputs" and (of_source := json.loads(of_metric["how"]).get(source)) is not None:
                how[source] = of_source
        values = {
            row["metric"]: QualityValue(
                **_fields(row, QUALITY_COLUMNS),
                by_window=tuple(row["by_window"]),
                inputs=None if row["inputs"] == inputs else row["inputs"],
            )
            for row in rows
            if row["value"] is not None
        }
        missing = {row["metric"]: row["missing"] for row in rows if row["metric"] not in values}
        found[run_id] = Quality(inputs=inputs, values=values, missing=missing, how=how)
    return found


def evaluations_beside(warehouse: Warehouse, run_ids: Sequence[str]) -> dict[tuple[str, str], str]:
    """The imported evaluation that measured the quality of a run, by run and metric; none for its own."""
    rows = warehouse.query(BESIDE, {"runs": list(run_ids)}).dicts()
    return {(row["run_id"], row["metric"]): row["measured_by"] for row in rows}


def store_quality(warehouse: Warehouse, found: Mapping[str, Quality]) -> None:
    """Store the quality of runs (by run id) in place of what they have of the same source (text, questions); what was
    measured of another stays. Unknown runs are left out. All or nothing."""

    def store(connection: Connection) -> None:
        for run_id, quality in found.items():
            measured = {source_of(metric) for metric in quality.values}
            stored = connection.execute(
                "SELECT metric, value IS NOT NULL FROM quality_results WHERE run_id = $run", {"run": run_id}
            ).fetchall()
            kept = {source_of(metric) for metric, is_measured in stored if is_measured} - measured
            replaced = [metric for metric, _ in stored if source_of(metric) not in kept]
            connection.execute(
                "DELETE FROM quality_results WHERE run_id = $run AND list_contains($replaced, metric)",
                {"run": run_id, "replaced": replaced},
            )
            for row in quality_rows(run_id, quality):
                if source_of(row["metric"]) not in kept:
                    connection.execute(ADD_QUALITY, {**dict.fromkeys(("value", "low", "high", "missing")), **row})

    warehouse.change(store)


def _fields(row: StoredRow, columns: Columns) -> dict[str, Any]:
    return {field: row[column] for column, field in columns.items()}


def _result(row: StoredRow, raw: Sequence[StoredRow], requests: Sequence[StoredRow], metrics: Sequence[str]) -> Result:
    extra = json.loads(row["extra"])
    doubts = extra.pop("doubts")
    records = []
    for (launch, phase), group in groupby(requests, lambda request: (request["launch"], request["phase"])):
        rows = list(group)
        columns = {name: tuple(request[name] for request in rows) for name in REQUEST_COLUMNS if name != "token_ms"}
        records.append(
            Requests(
                launch=launch,
                phase=phase,
                started_at=_time(rows[0]["started_at"]),
                token_ms=tuple(tuple(request["token_ms"]) for request in rows),
                **columns,
            )
        )
    return Result(
        **_fields(row, RESULT_COLUMNS),
        point=Point.from_columns(row),
        doubts=tuple(from_json(Doubt, doubt, "doubts") for doubt in doubts),
        pooled_quantiles=tuple(row["pooled_quantiles"]),
        metrics={**{name: row[name] for name in metrics if row[name] is not None}, **row["other_metrics"]},
        missing=row["missing"],
        samples=tuple(
            Samples(
                **_fields(stored, SAMPLES_COLUMNS),
                started_at=_time(stored["started_at"]),
                values=tuple(stored["samples"]),
            )
            for stored in raw
            if stored["compacted_at"] is None
        ),
        requests=tuple(records),
        extra=extra,
    )


def _record(kind: Any, row: StoredRow, column: str) -> Any:
    return from_json(kind, json.loads(row[column]), column)


def _time(value: datetime) -> str:
    return f"{value.isoformat()}Z"


TABLES = ("profiles", "profile_modules", "profile_ops")
METRIC_COLUMNS = (
    *("outside_operators_ms", "operator_calls", "kernel_launches", "device_busy_ms", "device_idle_ms"),
    *("largest_gap_ms", "allocations", "allocated_bytes", "peak_bytes", "flops", "bytes_accessed", "graph_count"),
    "graph_break_count",
)
"""Columns of profiles for metrics of a breakdown; other metrics go to other_metrics."""

SELECTABLE = f"""
WITH all_results AS (
    SELECT profile_id AS result_id, profile_id AS run_id, hardware_info.device_type, hardware_info.device_name,
        coalesce(git_commit_time, started_at) AS history_time, NULL AS validity, NULL AS origin_format,
        {", ".join(f"TRY_CAST(axes->>'{name}' AS DOUBLE) AS {name}" for name in FURTHER)}, profiles.*
    FROM profiles JOIN hardware_info USING (hardware_id)
), benchmark_runs AS (SELECT profile_id AS run_id, session_id, git_commit FROM profiles)
"""
"""Profiles in the form of results, with the columns that selections name."""
SELECTED_PROFILES = SELECTABLE + "SELECT * FROM all_results WHERE {condition} ORDER BY started_at DESC, profile_id DESC"
PEAKS = "SELECT peak_flops, peak_copy_bytes_per_sec FROM hardware_info WHERE hardware_id = ?"
COPY_RATE = "copy_bytes_per_sec"


def profile_rows(profile: Profile, *, source: str | None, source_sha256: str | None, now: datetime) -> dict[str, Any]:
    """The rows of every table that a profile is stored in."""
    keys = {"profile_id": profile.profile_id}
    run, call = profile.run, profile.call
    cell, workload, breakdown = run.cell, run.cell.workload, call.breakdown
    plain, profiled = median(call.latency_ms), median(call.profiled_ms)
    commit_time = run.provenance.git_commit_time
    where = f"profile {profile.profile_id}"
    metrics = dict(breakdown.metrics)
    weights_bytes = run.loads[0].memory_bytes.get("weights_bytes") if run.loads else None
    reason = f"{NOT_SUPPORTED}: the profiler of {cell.runtime} does not tell"
    profile_columns = {
        "profile_id": profile.profile_id,
        "session_id": run.session_id,
        "hardware_id": run.hardware.hardware_id,
        "series_id": series_id(series_keys(run, profile.point)),
        "model_id": workload.model_id,
        "model_revision": workload.revision,
        "weights": workload.weights,
        "architecture_type": workload.family,
        "task": workload.task,
        "device": cell.device.selector,
        "runtime": cell.runtime,
        "runtime_mode": json_text(cell.runtime_mode),
        "precision": cell.precision,
        "num_threads": cell.num_threads,
        **{name: getattr(profile.point, name) for name in POINT_FIELDS},
        "axes": json_text(profile.point.axes),
        "profiler": call.profiler,
        "calls": len(call.profiled_ms),
        "latency_median_ms": plain,
        "profiled_median_ms": profiled,
        "profiler_overhead_share": profiled / plain - 1 if plain > 0 else None,
        "tokenize_median_ms": median(call.tokenize_ms) if call.tokenize_ms else None,
        "total_median_ms": median(call.total_ms) if call.total_ms else None,
        "latency_samples_ms": list(call.latency_ms),
        "profiled_samples_ms": list(call.profiled_ms),
        "tokenize_samples_ms": list(call.tokenize_ms),
        "host_ms": breakdown.host_ms,
        **{name: metrics.pop(name, None) for name in METRIC_COLUMNS},
        "other_metrics": list(metrics.items()),
        "weights_bytes": weights_bytes,
        "peaks": list(profile.peaks.items()),
        "missing": list(
            {
                **{name: reason for name in METRIC_COLUMNS if name not in breakdown.metrics},
                **breakdown.missing,
                **call.missing,
            }.items()
        ),
        "details": json_text(breakdown.details),
        "started_at": utc(run.started_at, f"{where}: started_at"),
        "finished_at": utc(run.finished_at or "", f"{where}: finished_at"),
        **record_columns(run.provenance, PROVENANCE_COLUMNS),
        "git_commit_time": None if commit_time is None else utc(commit_time, f"{where}: git_commit_time"),
        "versions": list(run.provenance.versions.items()),
        "tags": list(run.provenance.tags.items()),
        "command": shlex.join(run.provenance.command),
        "format_version": profile.format_version,
        "source": source,
        "source_sha256": source_sha256,
        "ingested_at": now,
    }
    return {
        "hardware_info": [hardware_row(run)],
        "series": [series_row(run, profile.point)],
        "profiles": [profile_columns],
        "profile_modules": [keys | {"ordinal": i} | _row_of(part) for i, part in enumerate(breakdown.modules)],
        "profile_ops": [keys | {"ordinal": i} | _row_of(part) for i, part in enumerate(breakdown.operators)],
    }


def is_stored(connection: Connection, profile: Profile, source_sha256: str | None) -> bool:
    """Whether the profile, or its file, is stored. Raises FormatError for a different profile with the same id."""
    sql = "SELECT profile_id, source_sha256 FROM profiles WHERE profile_id = ? OR source_sha256 = ?"
    stored = dict(connection.execute(sql, [profile.profile_id, source_sha256]).fetchall())
    other = stored.get(profile.profile_id, source_sha256)
    if other != source_sha256 and other is not None and source_sha256 is not None:
        raise FormatError(f"profile {profile.profile_id} is already stored with different content")
    return bool(stored)


def newest_profile(warehouse: Warehouse, selection: Selection) -> Row:
    """The newest profile of a selection, as a row. Raises UsageError for an empty selection, or one with SQL."""
    if selection.sql is not None:
        raise UsageError(f"sql:{selection.sql}: not supported for profiles: select them by fields, ids or commits")
    rows = selected_profiles(warehouse, selection)
    if not rows:
        raise UsageError(f"{selection.text}: no profile: make one with benchhouse profile MODEL --save")
    return rows[0]


def selected_profiles(warehouse: Warehouse, selection: Selection) -> list[Row]:
    """The profiles of a selection, newest first; empty for a selection with SQL, which selects results."""
    if selection.sql is not None:
        return []
    return list(warehouse.query(SELECTED_PROFILES.format(condition=selection.condition), selection.values).dicts())


def profile_parts(warehouse: Warehouse, table: str, profile_id: str) -> list[Row]:
    """The rows of a profile in profile_modules or profile_ops, in order."""
    return warehouse.query(f"SELECT * FROM {table} WHERE profile_id = ? ORDER BY ordinal", [profile_id]).dicts()


def measured_peaks(warehouse: Warehouse, hardware_id: str) -> dict[str, float]:
    """The device's measured peak rates: FLOP/s by precision, and `COPY_RATE`; empty if it was never calibrated."""
    rows = warehouse.query(PEAKS, [hardware_id]).dicts()
    if not rows:
        return {}
    copy = rows[0]["peak_copy_bytes_per_sec"]
    return {**(rows[0]["peak_flops"] or {}), **({} if copy is None else {COPY_RATE: copy})}


def _row_of(one: ModuleTime | OperatorTime) -> Row:
    """A column for each field."""
    row = {field.name: getattr(one, field.name) for field in fields(one)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}
