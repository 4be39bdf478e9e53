"""Sees that a warehouse can hold what an importer made of a file, and says where in the file it cannot."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarking.errors import FormatError
from benchmarking.records import Result, Run, dumps
from db.importers import ForeignFile
from db.importers._values import INT32_MAX, INT64_MAX, short, short_name

Limited = Iterator[tuple[str, int | None, int, int]]
"""Name of a whole number, its value, the least and the most that its column takes."""


def check_storable(file: ForeignFile, key: str, run: Run) -> None:
    """Raise FormatError for a run that no warehouse can hold: numbers that are none or out of a column's range, half of
    a surrogate pair, nesting without end."""
    where = f"{short_name(key)}: " if key else ""
    try:
        dumps(run).encode()
    except FormatError as error:
        file.refuse(f"{where}{error}")
    except UnicodeEncodeError:
        file.refuse(f"{where}a text holds half of a surrogate pair, which is no character")
    except RecursionError:
        file.refuse(f"{where}too many lists and objects inside each other")
    for name, value, low, high in (*_limited(run), *(each for one in run.results for each in _limited_point(one))):
        if value is not None and not low <= value <= high:
            file.refuse(f"{where}{name} is {short(value)}, expected {low} to {high}")


def _limited(run: Run) -> Limited:
    """Whole numbers of a run with the range of their columns."""
    hardware, cell = run.hardware, run.cell
    yield "device_count", hardware.device.count, 1, INT32_MAX
    yield "device_memory_bytes", hardware.device.memory_bytes, 0, INT64_MAX
    yield "cpu_cores", hardware.cpu_cores, 1, INT32_MAX
    yield "cpu_threads", hardware.cpu_threads, 1, INT32_MAX
    yield "memory_bytes", hardware.memory_bytes, 0, INT64_MAX
    yield "num_threads", cell.num_threads, 1, INT32_MAX
    yield "parameter_count", cell.workload.parameter_count, 0, INT64_MAX


def _limited_point(result: Result) -> Limited:
    point = result.point
    yield "batch_size", point.batch_size, 1, INT32_MAX
    yield "sequence_length", point.sequence_length, 1, INT32_MAX
    yield "new_tokens", point.new_tokens, 1, INT32_MAX
    yield "concurrency", point.concurrency, 1, INT32_MAX
    yield "launches", result.launches, 0, INT32_MAX
    yield "iterations", result.iterations, 0, INT64_MAX
    yield "warmup_iterations", result.warmup_iterations, 0, INT64_MAX
