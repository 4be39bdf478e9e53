"""The peak of a calibration run, put where it was measured; and the table of them.

What a device can do at most: large matrix products in each precision and a large copy, measured as all else is.

Each is somebody's benchmark (`benches.py`) in a run of its own, at sizes found by trying (`sizes.py`). The best point
of a run carries the peak (`peaks.py`), from where the warehouse takes it to the device's row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarking.core.records import NOT_APPLICABLE, Result, Run, Workload
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, visible

MS_PER_S = 1000.0

HEADINGS = ("measured", "precision", "size", "median ms", "rate", "remarks")

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def with_peak(workload: Workload, results: tuple[Result, ...]) -> tuple[Result, ...]:
    """The results of a run, and if it is a calibration the peak among the metrics of the best one.

    The best has the highest rate at its median call, and a valid output; the others get the reason.
    """
    rates = [_rate(result) if workload.task == TASK else None for result in results]
    order = sorted((index for index, rate in enumerate(rates) if rate is not None), key=lambda index: rates[index] or 0)
    changed = list(results)
    for index in order:
        result, name, rate = results[index], _peak_name(results[index]), rates[index]
        if index == order[-1] and rate is not None:
            changed[index] = replace(result, metrics={**result.metrics, name: rate})
        else:
            missing = {**result.missing, name: f"{NOT_APPLICABLE}: another size was faster"}
            changed[index] = replace(result, missing=missing)
    return tuple(changed)


def _rate(result: Result) -> float | None:
    """FLOP/s, or copied bytes/s, at the median call; None for what was not measured, or came out wrong."""
    metrics = result.metrics
    work = metrics.get("bytes_accessed" if _is_copy(result) else "flops")
    if result.status != "ok" or result.validity == "invalid" or not metrics.get("latency_median_ms") or work is None:
        return None
    return work / (metrics["latency_median_ms"] / MS_PER_S)


def _is_copy(result: Result) -> bool:
    return COPY_AXIS in result.point.axes


def _peak_name(result: Result) -> str:
    return PEAK_COPY if _is_copy(result) else PEAK_FLOPS


def table(runs: Sequence[Run], notes: Mapping[str, str] | None = None, page: Page = PLAIN) -> str:
    """What was measured, a line each, the peaks marked; below it the notes."""
    rows = tuple(_row(run, result) for run in runs for result in run.results)
    grid = Table(headings=HEADINGS, rows=rows, numbers=(2, 3, 4), keys=2)
    title = f"peaks of {runs[0].cell.device.name} ({runs[0].cell.device.selector})" if runs else "no peaks"
    remarks = [visible(f"{what}: {why}") for what, why in (notes or {}).items()]
    return "\n".join([visible(title), table_text(grid, page), *([""] if remarks else []), *remarks])


def _row(run: Run, result: Result) -> tuple[str, str, str, str, str, str]:
    is_copy, axes = _is_copy(result), result.point.axes
    what, precision = ("copy", "-") if is_copy else ("matrix product", run.cell.precision)
    size = f"{axes[COPY_AXIS] / 1e6:.0f} MB" if is_copy else str(axes[MATRIX_AXIS])
    rate = _rate(result)
    if rate is None:
        return (what, precision, size, "-", "-", f"{result.status}: {result.error or result.validity}")
    mark = "peak" if _peak_name(result) in result.metrics else ""
    doubts = "" if result.validity == "valid" else f"({result.validity})"
    median = number(result.metrics["latency_median_ms"])
    unit = "B/s" if is_copy else "FLOP/s"
    return (what, precision, size, median, f"{_short(rate)}{unit}", " ".join(filter(None, (mark, doubts))))


def _short(value: float) -> str:
    for factor, prefix in UNITS:
        if value >= factor:
            return f"{number(value / factor)} {prefix}"
    return f"{number(value)} "


TASK = "device-calibration"

"""The task, and the model id, of calibration runs."""

PEAK_FLOPS = "peak_flops_per_sec"

PEAK_COPY = "peak_copy_bytes_per_sec"

MATRIX_AXIS = "matrix_size"

"""Rows, and columns, of the square matrices."""

COPY_AXIS = "copy_bytes"

"""Bytes that a copy reads; it writes as many."""

CACHE_MARGIN = 4

"""A copy is this many times the last-level cache at least: what stays in a cache then hardly counts."""
