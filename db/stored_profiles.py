"""Converts profiles to rows of the warehouse, and selects and reads stored ones."""

from __future__ import annotations

import shlex
from dataclasses import fields
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import FURTHER, POINT_FIELDS
from benchmarking.core.errors import FormatError, UsageError
from benchmarking.core.profiles import ModuleTime, OperatorTime, Profile
from benchmarking.core.records import NOT_SUPPORTED
from db.rows import (
    PROVENANCE_COLUMNS,
    Row,
    hardware_row,
    json_text,
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
    breakdown = profile.call.breakdown
    keys = {"profile_id": profile.profile_id}
    profile_columns = _profile_row(profile) | {"source": source, "source_sha256": source_sha256, "ingested_at": now}
    return {
        "hardware_info": [hardware_row(profile.run)],
        "series": [series_row(profile.run, profile.point)],
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


def _profile_row(profile: Profile) -> Row:
    run, call = profile.run, profile.call
    cell, workload, breakdown = run.cell, run.cell.workload, call.breakdown
    plain, profiled = median(call.latency_ms), median(call.profiled_ms)
    commit_time = run.provenance.git_commit_time
    where = f"profile {profile.profile_id}"
    metrics = dict(breakdown.metrics)
    weights_bytes = run.loads[0].memory_bytes.get("weights_bytes") if run.loads else None
    reason = f"{NOT_SUPPORTED}: the profiler of {profile.run.cell.runtime} does not tell"
    return {
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
    }


def _row_of(one: ModuleTime | OperatorTime) -> Row:
    """A column for each field."""
    row = {field.name: getattr(one, field.name) for field in fields(one)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}
