"""Builds run records from a foreign file's contents, and checks that a warehouse can hold them.

Ids are hashes of the file's content: reading the same file again gives the same run.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from benchmarking.core.doubts import validity
from benchmarking.core.errors import FormatError
from benchmarking.core.records import (
    Cell,
    Device,
    Doubt,
    Family,
    Hardware,
    Json,
    Origin,
    Point,
    Precision,
    Provenance,
    Readings,
    Result,
    Run,
    Samples,
    Scalar,
    Status,
    WeightsKind,
    Workload,
    canonical_hash,
    dumps,
)
from db.importers.support.files import ForeignFile
from db.importers.support.reading import INT32_MAX, INT64_MAX, short, short_name

HASH_VERSION = 1
"""Version of the keys that an imported hardware_id is a hash of."""
INDEX = re.compile(r":\d+$")
"""The index in a selector such as cuda:1, which is no part of the hardware; the GPU of openvino:GPU is."""
NOT_STATED = "not_stated: the file does not say"

Limit = tuple[str, int | None, int, int]
"""Name of a whole number, its value, and the range of its column."""


def content_id(*parts: str) -> str:
    """A UUID version 8 (RFC 9562): 122 bits of the parts' SHA-256.

    It contains no time: an undated file's time is its modification time, which a copy changes.
    """
    value = int.from_bytes(hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()[:16], "big")
    value = value & ~(0xF << 76) | 0x8 << 76  # version
    value = value & ~(0x3 << 62) | 0x2 << 62  # variant
    return str(uuid.UUID(int=value))


def iso(time: datetime) -> str:
    """A naive UTC time in the records' notation."""
    return f"{time.isoformat()}+00:00"


def foreign_result(
    point: Point,
    *,
    metrics: Mapping[str, float],
    samples: Sequence[Samples] = (),
    iterations: int | None = None,
    launches: int = 1,
    warmup_iterations: int = 0,
    doubts: Sequence[Doubt] = (),
    missing: Mapping[str, str] | None = None,
    kept: Mapping[str, Json] | None = None,
    status: Status = "ok",
    error: str | None = None,
) -> Result:
    """Another tool's result; `foreign_run` sets its id.

    `metrics` have the warehouse's names and units; `kept` holds the file's other fields. Samples of latency_wall, if
    any, take precedence over `iterations`. A missing median gets a reason.
    """
    counted = sum(len(one.values) for one in samples if one.metric == "latency_wall" and one.phase == "measure")
    reasons = dict(missing or {})
    if "latency_median_ms" not in metrics:
        reasons.setdefault("latency_median_ms", NOT_STATED)
    return Result(
        result_id="",
        point=point,
        status=status,
        error=error,
        validity=validity(doubts) if status == "ok" else None,
        doubts=tuple(doubts),
        launches=launches if status == "ok" else 0,
        iterations=counted or iterations or 0,
        warmup_iterations=warmup_iterations,
        metrics=dict(metrics),
        missing=reasons,
        samples=tuple(samples),
        extra={"kept": dict(kept or {})},
    )


def foreign_run(
    file: ForeignFile,
    key: str,
    *,
    format_name: str,
    definition: str,
    definitions: Mapping[str, str],
    model_id: str,
    results: Sequence[Result],
    started_at: datetime,
    finished_at: datetime | None = None,
    family: Family | None = None,
    task: str = "benchmark",
    model_config: Mapping[str, Json] | None = None,
    model_revision: str | None = None,
    parameter_count: int | None = None,
    weights: WeightsKind = "given",
    device_type: str = "unknown",
    device_selector: str | None = None,
    device_name: str | None = None,
    device_count: int = 1,
    device_memory_bytes: int | None = None,
    cpu_model: str | None = None,
    cpu_cores: int | None = None,
    cpu_threads: int | None = None,
    memory_bytes: int | None = None,
    runtime: str = "unknown",
    runtime_mode: Mapping[str, Scalar] | None = None,
    precision: Precision = "unknown",
    num_threads: int | None = None,
    host: str = "unknown",
    tool_version: str | None = None,
    versions: Mapping[str, str] | None = None,
    git_commit: str | None = None,
    git_branch: str | None = None,
    git_commit_time: datetime | None = None,
    command: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    settings: Mapping[str, Json] | None = None,
    kept: Mapping[str, Json] | None = None,
    status: Status | None = None,
    error: str | None = None,
) -> Run:
    """Another tool's run. `key` identifies it among the runs in the file.

    Its ids come from the file's content and the key, its hardware_id from the names of its device and processor.
    """
    run_id = content_id(format_name, file.sha256, key)
    device = Device(
        type=device_type,
        selector=device_selector or device_type,
        found=True,
        name=device_name,
        count=device_count,
        memory_bytes=device_memory_bytes,
    )
    numbered = tuple(
        replace(result, result_id=content_id(format_name, file.sha256, key, str(index)))
        for index, result in enumerate(results)
    )
    run = Run(
        run_id=run_id,
        session_id=content_id(format_name, file.sha256),
        status=status or ("ok" if all(one.status == "ok" for one in numbered) else "failed"),
        error=error,
        started_at=iso(started_at),
        finished_at=iso(finished_at or started_at),
        cell=Cell(
            workload=Workload(
                model_id=model_id,
                family=family,
                task=task,
                source="import",
                config=dict(model_config or {}),
                config_hash=canonical_hash(dict(model_config or {})),
                weights=weights,
                revision=model_revision,
                parameter_count=parameter_count,
            ),
            device=device,
            requested_device=device.selector,
            runtime=runtime,
            runtime_mode=dict(runtime_mode or {}),
            precision=precision,
            num_threads=num_threads,
        ),
        hardware=foreign_hardware(device, cpu_model, cpu_cores, cpu_threads, memory_bytes),
        provenance=Provenance(
            tool_version=f"{format_name} {tool_version}" if tool_version else format_name,
            command=tuple(command),
            host=host,
            git_commit=git_commit,
            git_branch=git_branch,
            git_commit_time=iso(git_commit_time) if git_commit_time else None,
            versions=dict(versions or {}),
            tags=dict(tags or {}),
        ),
        settings=dict(settings or {}),
        environment=Readings(),
        results=numbered,
        origin=Origin(
            format=format_name,
            tool_version=tool_version,
            definition=definition,
            definitions=dict(definitions),
            kept=dict(kept or {}),
        ),
    )
    check_storable(file, key, run)
    return run


def foreign_hardware(
    device: Device, cpu_model: str | None, cpu_cores: int | None, cpu_threads: int | None, memory_bytes: int | None
) -> Hardware:
    """The machine by the names in the file, of which its id is a hash: never the id of a machine that we measured."""
    keys: dict[str, Any] = {
        "imported": True,
        "device_type": INDEX.sub("", device.selector),
        "device_name": device.name,
        "device_count": device.count,
        "cpu_model": cpu_model,
        "cpu_cores": cpu_cores,
    }
    return Hardware(
        hardware_id=canonical_hash(keys)[:16],
        hash_version=HASH_VERSION,
        hashed_keys=keys,
        device=device,
        cpu_model=cpu_model,
        cpu_cores=cpu_cores,
        cpu_threads=cpu_threads,
        memory_bytes=memory_bytes,
    )


def undated(file: ForeignFile) -> Doubt:
    """The doubt of results in a file without a date: the file's modification time is used."""
    return Doubt(kind="undated", severity="info", evidence={"file_modified_at": iso(file.modified_at)})


def check_storable(file: ForeignFile, key: str, run: Run) -> None:
    """Raise FormatError for a run that no warehouse can hold: not a number, out of a column's range, an unpaired
    surrogate, too deep nesting."""
    where = f"{short_name(key)}: " if key else ""
    try:
        dumps(run).encode()
    except FormatError as error:
        file.refuse(f"{where}{error}")
    except UnicodeEncodeError:
        file.refuse(f"{where}a text holds an unpaired surrogate, which is not a character")
    except RecursionError:
        file.refuse(f"{where}lists and objects are nested too deeply")
    for name, value, low, high in (*_limits(run), *(each for one in run.results for each in _point_limits(one))):
        if value is not None and not low <= value <= high:
            file.refuse(f"{where}{name} is {short(value)}, expected {low} to {high}")


def _limits(run: Run) -> tuple[Limit, ...]:
    hardware, cell = run.hardware, run.cell
    return (
        ("device_count", hardware.device.count, 1, INT32_MAX),
        ("device_memory_bytes", hardware.device.memory_bytes, 0, INT64_MAX),
        ("cpu_cores", hardware.cpu_cores, 1, INT32_MAX),
        ("cpu_threads", hardware.cpu_threads, 1, INT32_MAX),
        ("memory_bytes", hardware.memory_bytes, 0, INT64_MAX),
        ("num_threads", cell.num_threads, 1, INT32_MAX),
        ("parameter_count", cell.workload.parameter_count, 0, INT64_MAX),
    )


def _point_limits(result: Result) -> tuple[Limit, ...]:
    sizes = ("batch_size", "sequence_length", "new_tokens", "concurrency")
    return (
        *((name, getattr(result.point, name), 1, INT32_MAX) for name in sizes),
        ("launches", result.launches, 0, INT32_MAX),
        ("iterations", result.iterations, 0, INT64_MAX),
        ("warmup_iterations", result.warmup_iterations, 0, INT64_MAX),
    )
