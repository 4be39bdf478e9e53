"""Older DuckDB files with the same four tables: benchmark_runs, benchmark_results, hardware_info, raw_benchmark_data.

Their columns vary from file to file: a column that the warehouse has too is stored there, a number with a unit in its
name becomes a metric of that name, and everything else is kept. The file does not define its numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarking.core import plugins
from benchmarking.core.records import Json
from db.importers.support.building import ForeignRun, Format
from db.importers.support.duckdb_files import (
    STATUSES,
    ResultRow,
    count_in,
    first,
    has_tables,
    id_in,
    merged,
    raw_by_result,
    read_tables,
    result_of,
    result_row,
    text_in,
)
from db.importers.support.files import ForeignFile
from db.importers.support.reading import Fields

MODEL = ("model_id", "model_name", "model")
FAMILY = ("architecture_type", "architecture", "model_type")
STARTED = ("started_at", "timestamp", "created_at", "run_timestamp", "start_time", "date")
FINISHED = ("finished_at", "completed_at", "end_time")
DEFINITIONS = {"*": "as the program that wrote the file defines it, which the file does not say"}


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if not file.is_duckdb:
        file.refuse("not a DuckDB file")
    tables = read_tables(file)
    hardware = _by(tables.hardware, "hardware_id", "id")
    results = _by(tables.results, "run_id")
    runs = _by(tables.runs, "run_id", "id")
    for run_id in results.keys() - runs.keys():
        results[run_id][0].refuse("run_id", f"{run_id} is not in benchmark_runs")
    raw = raw_by_result(tables)
    for run_id, rows in runs.items():
        if len(rows) > 1:
            rows[1].refuse("run_id", f"{run_id} occurs twice")
        held = [result_row(one, run_id, raw) for one in results.get(run_id, [])]
        # The row of the machine: the one that the run names, or the only one.
        machine_id = id_in(rows[0], "hardware_id")
        only = next(iter(hardware.values())) if machine_id is None and len(hardware) == 1 else ()
        named = hardware.get(machine_id, ()) if machine_id is not None else only
        machine = named[0] if named else Fields(rows[0].file, {}, "hardware_info")
        yield _run(rows[0], run_id, merged(held), machine)


def _by(rows: Sequence[Fields], *names: str) -> dict[str, list[Fields]]:
    found: dict[str, list[Fields]] = {}
    for row in rows:
        key = id_in(row, *names)
        if key is None:
            row.refuse(names[0], "is missing")
        found.setdefault(key, []).append(row)
    return found


def _run(row: Fields, run_id: str, held: Sequence[ResultRow], hardware: Fields) -> ForeignRun:
    started, finished = first(row, STARTED), first(row, FINISHED)
    begin, end = (row.time(name) if name else None for name in (started, finished))
    results = [result_of(one) for one in held]
    family, stated = text_in(row, *FAMILY), text_in(row, "status")
    known = family in plugins.family_names()
    machines, cpu = text_in(hardware, "device_type"), text_in(hardware, "cpu_model", "cpu_name", "cpu", "processor")
    kind = (text_in(row, "device", "device_type") or machines or "unknown").partition(":")[0].lower()
    device_name, memory_bytes = (
        text_in(hardware, "device_name", "gpu_name", "accelerator"),
        hardware.integer("memory_bytes"),
    )
    is_host = kind == "cpu" and (machines or kind).lower() != kind  # the row describes the machine's other device
    found: dict[str, Any] = {
        "model_id": text_in(row, *MODEL) or "unknown",
        "family": family if known else None,
        "task": text_in(row, "task") or "benchmark",
        "runtime": text_in(row, "runtime", "framework", "backend") or "unknown",
        "precision_word": text_in(row, "precision", "dtype", "torch_dtype"),
        "host": text_in(row, "host", "hostname") or text_in(hardware, "host", "hostname"),
        "tool_version": text_in(row, "tool_version"),
        "parameter_count": row.integer("parameter_count"),
        "git_commit": text_in(row, "git_commit", "commit"),
        "git_branch": text_in(row, "git_branch", "branch"),
        "error": text_in(row, "error", "error_message"),
        "device_type": kind,
        "device_name": text_in(row, "device_name") or (cpu if is_host else device_name),
        "device_memory_bytes": None if is_host else memory_bytes,
        "cpu_model": cpu,
        "cpu_cores": count_in(hardware, "cpu_cores", "num_cores", "physical_cores"),
        "cpu_threads": count_in(hardware, "cpu_threads", "logical_cores"),
        "memory_bytes": hardware.integer("system_memory_bytes"),
    }
    own: dict[str, Json] = {"run_id": run_id, "status": stated, "architecture_type": None if known else family}
    kept = {**row.rest(), **{name: value for name, value in own.items() if value is not None}}
    return ForeignRun(
        key=run_id,
        results=results,
        started_at=begin,
        stated_times=(row.text(started),) if started else (),
        finished_at=end if begin and end and end >= begin else None,
        status=None if results else STATUSES.get((stated or "").lower(), "failed"),
        kept={"benchmark_runs": kept, "hardware_info": hardware.rest()},
        **found,
    )


PLUGIN = Format(
    name="benchmark_duckdb",
    summary="older DuckDB files: benchmark_runs, benchmark_results, hardware_info, raw_benchmark_data",
    definition="benchmark-duckdb",
    definitions=DEFINITIONS,
    recognises=has_tables,
    read=read,
)
