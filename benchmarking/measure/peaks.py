"""The peak rates of a device: derived from the results of a calibration run, and shown as a table.

A calibration run (`benchmarking.calibration`) measures matrix products at one precision, or copies, at several sizes.
Its best point holds the peak as a metric, which the warehouse copies to the device's row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import NOT_APPLICABLE, Result, Run, Workload
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, visible

TASK = "device-calibration"
"""The task and model id of calibration runs."""
PEAK_FLOPS = "peak_flops_per_sec"
PEAK_COPY = "peak_copy_bytes_per_sec"
MATRIX_AXIS = "matrix_size"
"""Rows and columns of the square matrices."""
COPY_AXIS = "copy_bytes"
"""Bytes that a copy reads; it writes the same number."""
CACHE_MARGIN = 4
"""Minimum size of a copy in last-level caches, so that cached parts hardly count."""

HEADINGS = ("measured", "precision", "size", "median ms", "rate", "remarks")
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def with_peak(workload: Workload, results: tuple[Result, ...]) -> tuple[Result, ...]:
    """The results of a run. In a calibration, the best one gets the peak as a metric and the others a reason.

    The best result has the highest rate at its median latency, among results that are not invalid.
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
    """FLOP/s, or copied bytes/s, at the median latency; None for a result without a valid measurement."""
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
    """One row per point, with the peaks marked; the notes (subject -> reason) below."""
    rows = []
    for cell, result in ((run.cell, result) for run in runs for result in run.results):
        is_copy, axes, rate = _is_copy(result), result.point.axes, _rate(result)
        what, precision = ("copy", "-") if is_copy else ("matrix product", cell.precision)
        size = f"{axes[COPY_AXIS] / 1e6:.0f} MB" if is_copy else str(axes[MATRIX_AXIS])
        if rate is None:
            rows.append((what, precision, size, "-", "-", f"{result.status}: {result.error or result.validity}"))
            continue
        mark = "peak" if _peak_name(result) in result.metrics else ""
        doubts = "" if result.validity == "valid" else f"({result.validity})"
        median = number(result.metrics["latency_median_ms"])
        factor, prefix = next(((factor, prefix) for factor, prefix in UNITS if rate >= factor), (1.0, ""))
        text = f"{number(rate / factor)} {prefix}{'B/s' if is_copy else 'FLOP/s'}"
        rows.append((what, precision, size, median, text, " ".join(filter(None, (mark, doubts)))))
    grid = Table(headings=HEADINGS, rows=tuple(rows), numbers=(2, 3, 4), keys=2)
    title = f"peaks of {runs[0].cell.device.name} ({runs[0].cell.device.selector})" if runs else "no peaks"
    remarks = [visible(f"{what}: {why}") for what, why in (notes or {}).items()]
    return "\n".join([visible(title), table_text(grid, page), *([""] if remarks else []), *remarks])
