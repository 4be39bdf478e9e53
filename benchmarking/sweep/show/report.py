"""A run as a table: a column for each axis of its points and each metric that was measured, then the doubts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarking.core.axes import AXES, Axis
from benchmarking.core.doubts import sentence
from benchmarking.core.metrics import METRICS, PEAK_MEMORY
from benchmarking.core.records import Doubt, Family, Result, Run
from benchmarking.core.tables import GAP, Column, Table, table_of, table_text, text_width, total_width
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, relative_error, visible
from benchmarking.workloads.support.families import family_named

FIRST_NUMBER = METRICS["latency_median_ms"].heading or "latency_median_ms"
"""Heading of the first measured column; the columns before it identify the point."""
WIDTH = 160
"""Preferred width of a table in a file, in characters: doubts that do not fit are counted, and all are explained below
the table."""


def table(run: Run, page: Page = PLAIN) -> str:
    """The results of a run, one row per point, followed by its failures and the meaning of its doubts."""
    workload = run.cell.workload
    weights = f"weights: {workload.weights}"
    if workload.weights_reason:
        weights += f" ({workload.weights_reason})"
    lines = ["", weights, *_remarks(run)]
    return "\n".join([visible(_title(run)), table_text(_table(run, page), page), *map(visible, lines)])


def _title(run: Run) -> str:
    cell = run.cell
    return f"{cell.subject} ({cell.workload.task}) on {cell.device.name}, {cell.runtime}, {cell.precision}"


def _table(run: Run, page: Page) -> Table:
    """Numbers, then doubts: all of them on a terminal, which wraps them; else as many as fit."""
    numbers = table_of(_columns(run), run.results)
    lines = (numbers.headings, *numbers.rows)
    widths = [max(text_width(line[place]) for line in lines) for place in range(len(numbers.headings))]
    room = WIDTH - total_width(widths) - len(GAP) if page.width is None else None
    return replace(
        numbers,
        headings=(*numbers.headings, "doubts"),
        rows=tuple((*row, _verdict(result, room)) for row, result in zip(numbers.rows, run.results, strict=True)),
        numbers=tuple(range(len(numbers.headings))),
        states=(len(numbers.headings),),
        keys=numbers.headings.index(FIRST_NUMBER) if FIRST_NUMBER in numbers.headings else 1,
    )


def items_unit(family: Family | None) -> str:
    """The unit of throughput_samples_per_sec for a family."""
    plugin = family_named(family)
    return "samples/s" if plugin is None else f"{plugin.unit}/s"


def _columns(run: Run) -> list[Column[Result]]:
    """All possible columns in reading order: point, latency and throughput, phases, memory."""
    items = items_unit(run.cell.workload.family)
    several = any(result.point.concurrency > 1 for result in run.results)
    return [
        *(_axis(axis) for name, axis in AXES.items() if several or name != "concurrency"),
        _metric("latency_median_ms"),
        Column(heading="95 % interval", text=_interval),
        _metric("latency_p90_ms"),
        *([_metric("latency_request_median_ms", "request ms")] if several else []),
        _metric("throughput_samples_per_sec", items),
        _metric("throughput_tokens_per_sec"),
        _metric("real_time_factor"),
        _metric("retrieve_ms"),
        _metric("image_encode_ms"),
        _metric("encode_ms"),
        _metric("time_to_first_token_ms"),
        _metric("time_per_output_token_ms"),
        _metric("step_ms"),
        Column(heading="peak MB", text=_peak_memory),
        Column(heading="error", text=_output_error),
        Column(heading="compile s", text=_compile_time),
    ]


def _axis(axis: Axis) -> Column[Result]:
    return Column(heading=axis.heading, text=lambda result: _count(result.point.value(axis.name)))


def _metric(name: str, heading: str | None = None) -> Column[Result]:
    return Column(heading=heading or METRICS[name].heading or name, text=lambda result: _number(result.metrics, name))


def _peak_memory(result: Result) -> str | None:
    return next((f"{result.metrics[name]:.0f}" for name in PEAK_MEMORY if name in result.metrics), None)


def _output_error(result: Result) -> str | None:
    return relative_error(result.metrics["output_error"]) if "output_error" in result.metrics else None


def _compile_time(result: Result) -> str | None:
    """Seconds with an empty and with a filled cache, as far as measured: "35.2, 6.5 warm"."""
    cold, warm = (result.metrics.get(f"compile_{state}_s") for state in ("cold", "warm"))
    if cold is None and warm is None:
        return _number(result.metrics, "compile_s")
    shown = [number(cold)] if cold is not None else []
    return ", ".join([*shown, *([f"{number(warm)} warm"] if warm is not None else [])])


def _verdict(result: Result, room: int | None) -> str:
    """The validity and as many kinds of doubt as fit; the status of a point without numbers."""
    if result.status != "ok":
        return result.status.replace("_", " ")
    kinds = [doubt.kind for doubt in result.doubts if doubt.severity != "info"]
    return _fitting(f"{result.validity}: ", kinds, room) if kinds else ""


def _fitting(start: str, kinds: Sequence[str], room: int | None) -> str:
    """The kinds after `start`; those that do not fit are counted: "noisy: drift, steal +2"."""
    for shown in range(len(kinds), 0, -1):
        text = start + ", ".join(kinds[:shown]) + (f" +{len(kinds) - shown}" if shown < len(kinds) else "")
        if room is None or len(text) <= room:
            return text
    return f"{start}{len(kinds)} doubt{'s' * (len(kinds) > 1)}"


def _remarks(run: Run) -> list[str]:
    """Each failure with its reason, and each kind of doubt with its first evidence, its meaning and what to do."""
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
                remarks.append(f"    {sentence(doubt.kind)}")
    return remarks


def _evidence(doubt: Doubt) -> str:
    return ", ".join(f"{name} = {evidence_value(value)}" for name, value in doubt.evidence.items()) or "no details"


def evidence_value(value: object) -> str:
    """A value of a doubt's evidence as text."""
    return number(value) if isinstance(value, float) else str(value)


def _number(metrics: Mapping[str, float], name: str) -> str | None:
    return number(metrics[name]) if name in metrics else None


def _interval(result: Result) -> str | None:
    """The interval between launches; one of fewer launches speaks of their own calls only and is left out."""
    low, high = (_number(result.metrics, name) for name in ("latency_ci_low_ms", "latency_ci_high_ms"))
    return None if low is None or high is None or result.ci_scope != "between" else f"{low} .. {high}"


def _count(value: float | None) -> str | None:
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)
