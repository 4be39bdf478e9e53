"""A run as a table for people."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarking.records import Doubt, Result, Run

PEAK_MEMORY = ("memory_device_process_peak_mb", "memory_device_allocated_peak_mb", "memory_peak_rss_infer_mb")
"""What stands for peak memory in the table: the first that was measured; on a CPU that is the process."""


def table(run: Run) -> str:
    """The results of a run, one line a point, and below them what the doubts and failures mean."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    cell = run.cell
    generates = any(result.point.new_tokens is not None for result in run.results)
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, title=_title(run), title_justify="left")
    for column in _columns(generates):
        grid.add_column(column, justify="left" if column == "doubts" else "right", no_wrap=True)
    for result in run.results:
        grid.add_row(*_row(result, generates))
    console = Console(width=240, color_system=None, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(grid)
    lines = [line.rstrip() for line in capture.get().splitlines() if line.strip()]
    weights = f"weights: {cell.workload.weights}"
    if cell.workload.weights_reason:
        weights += f" ({cell.workload.weights_reason})"
    return "\n".join([*lines, "", weights, *_remarks(run)])


def _title(run: Run) -> str:
    cell = run.cell
    return f"{cell.workload.model_id} ({cell.workload.task}) on {cell.device.name}, {cell.runtime}, {cell.precision}"


def _columns(generates: bool) -> list[str]:
    first = ["batch", "sequence", *(["new tokens"] if generates else [])]
    speed = ["median ms", "95 % interval", "p90 ms", "samples/s", "tokens/s"]
    tokens = ["TTFT ms", "TPOT ms"] if generates else []
    return [*first, *speed, *tokens, "peak MB", "doubts"]


def _row(result: Result, generates: bool) -> list[str]:
    point, metrics = result.point, result.metrics
    cells = [str(point.batch_size), _count(point.sequence_length), *([_count(point.new_tokens)] if generates else [])]
    cells += [_number(metrics, "latency_median_ms"), _interval(metrics)]
    names = ["latency_p90_ms", "throughput_samples_per_sec", "throughput_tokens_per_sec"]
    names += ["time_to_first_token_ms", "time_per_output_token_ms"] if generates else []
    cells += [_number(metrics, name) for name in names]
    cells.append(next((f"{metrics[name]:.0f}" for name in PEAK_MEMORY if name in metrics), "-"))
    return [*cells, _verdict(result)]


def _verdict(result: Result) -> str:
    """The validity and the kinds of doubt, or the status of a point without numbers."""
    if result.status != "ok":
        return result.status.replace("_", " ")
    kinds = ", ".join(doubt.kind for doubt in result.doubts if doubt.severity != "info")
    return f"{result.validity}: {kinds}" if kinds else ""


def _remarks(run: Run) -> list[str]:
    """Each failure with its reason, and the first evidence of each kind of doubt."""
    remarks = [
        f"{result.point.label}: {result.status.replace('_', ' ')}: {result.error}"
        for result in run.results
        if result.status != "ok"
    ]
    seen: set[str] = set()
    for result in run.results:
        for doubt in result.doubts:
            if doubt.severity != "info" and doubt.kind not in seen:
                seen.add(doubt.kind)
                remarks.append(f"{doubt.kind} ({doubt.severity}), first at {result.point.label}: {_evidence(doubt)}")
    return remarks


def _evidence(doubt: Doubt) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in doubt.evidence.items()) or "no details"


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _number(metrics: Mapping[str, float], name: str) -> str:
    """Four significant digits, and never an exponent."""
    if name not in metrics:
        return "-"
    value = metrics[name]
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _interval(metrics: Mapping[str, float]) -> str:
    names = ("latency_ci_low_ms", "latency_ci_high_ms")
    return " .. ".join(_number(metrics, name) for name in names) if names[0] in metrics else "-"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)
