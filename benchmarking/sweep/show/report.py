"""A run as a table: a column for each axis and each measured metric, then the validity; and the scaling with threads.

Below the table are a sentence for each failure and each kind of doubt, and what a longer profile would add.

Thread scaling is the speedup of each number of threads over the fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from benchmarking.core.axes import AXES, Axis
from benchmarking.core.doubts import KINDS, evidence_words, sentence
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import CUSTOM_METRICS, METRICS, THROUGHPUT_AT_MEDIAN, peak_memory_column
from benchmarking.core.quality import quality_lines
from benchmarking.core.records import Doubt, Family, Result, Run, Status, canonical_hash, to_json
from benchmarking.core.tables import Column, Table, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import counted, first_few, grouped, number, wrapped
from benchmarking.core.verdicts.judging import Speedup, launch_medians_ms, speedups
from benchmarking.core.verdicts.launches import (
    CALLS_NOTE,
    INTERVAL,
    NEXT,
    launch_notes,
    next_launch_text,
    throughput_note,
)
from benchmarking.core.verdicts.words import SIMULATED
from benchmarking.measure.context import DEFAULT_PROFILE, PROFILES
from benchmarking.workloads.support.families import family_named

MAX_POINTS = 3
"""Maximum number of points named with a doubt; others are only counted."""
REQUEST = "request ms"
"""Heading of the time of a request in a call of several."""


def table(run: Run, page: Page = PLAIN) -> str:
    """The results of a run, one row per point, followed by its failures and the meaning of its doubts."""
    cell, workload = run.cell, run.cell.workload
    table = table_of(_columns(run), run.results, page)
    threads = () if cell.num_threads is None else (counted(cell.num_threads, "thread"),)
    words = (cell.runtime, cell.precision, *threads, *table.shared)
    where = cell.device.name or cell.device.selector
    title = f"{cell.subject} ({workload.task}) on {where}, {', '.join(words)}"
    reason = f" ({workload.weights_reason})" if workload.weights_reason else ""
    below = [SIMULATED] if run.is_simulated else []
    below.append(f"weights: {workload.weights}{reason}")
    if run.load_time_s:
        processes = f" (median of {len(run.loads)} processes)" if len(run.loads) > 1 else ""
        below.append(f"load: {number(run.load_time_s)} s{processes}")
    column = METRICS["latency_p90_ms"]
    pooled = [result.point.label for result in run.results if column.column in result.pooled_quantiles]
    if pooled and column.heading in table.headings:
        below.append(f"{column.heading} pooled over the calls of all processes at {first_few(pooled, MAX_POINTS)}")
    below += [] if run.quality is None else quality_lines(run.quality)
    if REQUEST in table.headings:
        below.append(f"{REQUEST}: a request by the runtime's own clock; median ms: a call from outside, with its waits")
    # What the launches say about the next one, and where the throughput does not follow from the median latency.
    below += launch_notes({result.point.label: _launches(result) for result in run.results}, table.left_out)
    for result in run.results:
        per_sec, at_median = map(result.metrics.get, ("throughput_samples_per_sec", THROUGHPUT_AT_MEDIAN))
        if (note := throughput_note(result.point.label, per_sec, at_median, _items(run))) is not None:
            below.append(note)
    below += [
        f"{result.point.label}: {result.status.replace('_', ' ')}: {result.error}"
        for result in run.results
        if result.status != "ok"
    ]
    doubts = ((result.point.label, doubt) for result in run.results for doubt in result.doubts)
    below += doubt_remarks((label, doubt) for label, doubt in doubts if doubt.severity != "info")
    below += [*left_out(table), *_profile(run)]
    above, *notes = (wrapped(text, page.text_width) for text in (title, *below))
    return "\n".join([above, *([table_text(table, page)] if run.results else []), "", *notes])


def left_out(table: Table) -> list[str]:
    """The remark about columns that did not fit."""
    return [f"not shown: {', '.join(table.left_out)} (--json prints every metric)"] if table.left_out else []


def items_unit(family: Family | None) -> str:
    """The unit of throughput_samples_per_sec for a family."""
    plugin = family_named(family)
    return "samples/s" if plugin is None else f"{plugin.unit}/s"


def _items(run: Run) -> str:
    """The unit of the run's throughput."""
    return "calls/s" if run.cell.workload.counts_calls else items_unit(run.cell.workload.family)


def _columns(run: Run) -> list[Column[Result]]:
    """All possible columns in reading order: point, latency and throughput, phases, memory."""
    items = _items(run)
    several = any(result.point.concurrency > 1 for result in run.results)
    has_tokens = any("throughput_tokens_per_sec" in result.metrics for result in run.results)
    custom: dict[str, str] = {}
    for result in run.results:
        stated = result.extra.get(CUSTOM_METRICS)
        for name, item in stated.items() if isinstance(stated, dict) else ():
            unit = str(item.get("unit") or "") if isinstance(item, dict) else ""
            custom[name] = " ".join(filter(None, (name.replace("_", " "), unit)))
    return [
        *(_axis(axis) for name, axis in AXES.items() if several or name != "concurrency"),
        _metric("latency_median_ms"),
        Column(INTERVAL, _interval, is_number=True),
        Column(NEXT, lambda result: next_launch_text(_launches(result)), is_number=True, spare=2),
        _metric("latency_p90_ms", spare=4),
        _metric("total_ms", spare=3),
        *([_metric("latency_request_median_ms", REQUEST)] if several else []),
        _metric("throughput_samples_per_sec", items, spare=5 if has_tokens else 0),
        _metric("throughput_tokens_per_sec"),
        _metric("real_time_factor"),
        _metric("retrieve_ms", spare=2),
        _metric("image_encode_ms", spare=2),
        _metric("encode_ms", spare=2),
        _metric("time_to_first_token_ms"),
        _metric("time_per_output_token_ms"),
        _metric("step_ms"),
        Column(
            "peak MB",
            lambda result: (
                None if (peak := peak_memory_column(result.metrics)) is None else f"{result.metrics[peak]:.0f}"
            ),
            is_number=True,
        ),
        Column(
            "error",
            lambda result: number(value, 2) if (value := result.metrics.get("output_error")) is not None else None,
            is_number=True,
            spare=1,
        ),
        Column("compile s", _compile_time, is_number=True, spare=3),
        *(_metric(name, heading) for name, heading in custom.items()),
        Column("doubts", _verdict, is_state=True),
    ]


def _axis(axis: Axis) -> Column[Result]:
    def text(result: Result) -> str | None:
        value = result.point.value(axis.name)
        return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    return Column(axis.heading, text, is_number=True, is_key=True)


def _metric(name: str, heading: str | None = None, *, spare: int = 0) -> Column[Result]:
    return Column(
        heading or METRICS[name].heading or name,
        lambda result: _number(result.metrics, name),
        is_number=True,
        spare=spare,
    )


def _compile_time(result: Result) -> str | None:
    """Seconds with a cold and with a warm cache, as far as measured: "35.2, 6.5 warm"."""
    cold, warm = (result.metrics.get(f"compile_{state}_s") for state in ("cold", "warm"))
    if cold is None and warm is None:
        return _number(result.metrics, "compile_s")
    shown = [number(cold)] if cold is not None else []
    return ", ".join([*shown, *([f"{number(warm)} warm"] if warm is not None else [])])


def _verdict(result: Result) -> str:
    """The validity if there are doubts; the status of a point without numbers."""
    if result.status != "ok":
        return result.status.replace("_", " ")
    return str(result.validity) if any(doubt.severity != "info" for doubt in result.doubts) else ""


def _launches(result: Result) -> list[float]:
    """The median latency of each launch."""
    return list(launch_medians_ms(result).values())


def doubt_remarks(cases: Iterable[tuple[str, Doubt]]) -> list[str]:
    """Each kind of doubt with its points, meaning and advice, and with the evidence if it makes a result invalid, or if
    the advice refers to it. `cases` are (point, doubt) pairs."""
    remarks = []
    for kind, of_kind in grouped((doubt.kind, (label, doubt)) for label, doubt in cases).items():
        (first_label, first), evidence = of_kind[0], ""
        items, labels = evidence_words(first.evidence), list(dict.fromkeys(label for label, _ in of_kind))
        if items and (first.severity == "invalid" or kind not in KINDS or "in the evidence" in sentence(kind)):
            evidence = f" Found{f' at {first_label}' * (len(labels) > 1)}: {', '.join(items)}."
        remarks.append(f"{kind} ({first_few(labels, MAX_POINTS)}): {sentence(kind)}{evidence}")
    return remarks


def _profile(run: Run) -> list[str]:
    """What a longer profile would add to a run of the default one, and which points its budget cut short."""
    chosen, longer = run.settings, PROFILES["standard"]
    if chosen.get("profile") != DEFAULT_PROFILE or not any(result.status == "ok" for result in run.results):
        return []
    shortened = []
    for result in run.results:
        of_launches = result.extra.get("launches")
        if any(
            "budget" in item
            for item in (of_launches if isinstance(of_launches, list) else ())
            if isinstance(item, dict)
        ):
            shortened.append(result.point.label)
    budget_s, lines = chosen.get("budget_s"), []
    if shortened and isinstance(budget_s, int | float):
        lines = [f"time budget of {number(budget_s)} s: fewer calls at {first_few(shortened, MAX_POINTS)}"]
    asked = chosen.get("launches")  # of an interrupted run, more than there are
    most = max(asked if isinstance(asked, int) else 0, *(result.launches or 0 for result in run.results))
    launches = f"{counted(most, 'launch')} of each point"
    more = f"{longer.launches} launches of each point, " if most < longer.launches else ""
    more += f"calls until the interval is within {longer.target_relative_half_width:.0%}"
    return [*lines, f"profile {DEFAULT_PROFILE}: a first look, {launches}; --profile standard: {more}"]


def _number(metrics: Mapping[str, float], name: str) -> str | None:
    return number(metrics[name]) if name in metrics else None


def _interval(result: Result) -> str | None:
    """The interval of the typical launch; None with fewer than three, where it would only cover their calls."""
    low, high = (_number(result.metrics, name) for name in ("latency_ci_low_ms", "latency_ci_high_ms"))
    return None if low is None or high is None or result.ci_scope != "between" else f"{low} .. {high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPoint:
    """A point with one number of threads."""

    point: str
    """Its label."""
    threads: int
    status: Status
    median_ms: float | None
    speedup: Speedup | None
    """Speedup over the fewest threads that measured the point; None for these, and if one is not ranked."""
    efficiency: float | None
    """Speedup as a share of perfect scaling, where twice the threads take half the time; None without a speedup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """One model on one device in one runtime at one precision, with several numbers of threads."""

    model_id: str
    device: str
    device_name: str | None
    runtime: str
    precision: str
    points: tuple[ScaledPoint, ...]
    """By point, then by the number of threads."""


def scalings(runs: Sequence[Run]) -> tuple[Scaling, ...]:
    """The scaling of each setup that was measured with several numbers of threads."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.cell.num_threads is not None:
            setup = canonical_hash([run.hardware.hardware_id, to_json(replace(run.cell, num_threads=None))])
            groups.setdefault(setup, []).append(run)
    scaled = []
    for group in groups.values():
        if len({run.cell.num_threads for run in group}) == 1:
            continue
        ordered = sorted(group, key=_threads)
        labels = dict.fromkeys(result.point.label for run in ordered for result in run.results)
        cell = ordered[0].cell
        scaled.append(
            Scaling(
                model_id=cell.subject,
                device=cell.device.selector,
                device_name=cell.device.name,
                runtime=cell.runtime,
                precision=cell.precision,
                points=tuple(point for label in labels for point in _points(label, ordered)),
            )
        )
    return tuple(scaled)


def scaling_text(scaling: Scaling, page: Page = PLAIN) -> str:
    """The scaling as text: title, table and remarks."""
    where = scaling.device_name or scaling.device
    texts = [
        f"{scaling.model_id} on {where}, {scaling.runtime}, {scaling.precision}: scaling over threads",
        "efficiency: speedup as a share of perfect scaling, where twice the threads take half the time",
    ]
    if any(point.speedup is not None and point.speedup.scope == "within" for point in scaling.points):
        texts.append(CALLS_NOTE)
    above, *below = (wrapped(text, page.text_width) for text in texts)
    return "\n".join([above, table_text(table_of(_SCALING_COLUMNS, scaling.points, page), page), "", *below])


def _threads(run: Run) -> int:
    return run.cell.num_threads or 0


def _points(label: str, runs: Sequence[Run]) -> list[ScaledPoint]:
    """A point in each run; `runs` by their numbers of threads, ascending."""
    measured = [(run, result) for run in runs for result in run.results if result.point.label == label]
    base = next(((run, result) for run, result in measured if is_ranked(run, result)), None)
    points = []
    for run, result in measured:
        speedup, efficiency = None, None
        if base is not None and base[1] is not result and is_ranked(run, result):
            (speedup,) = speedups([(base[1], result)])
        if speedup is not None and base is not None:
            efficiency = speedup.ratio / (_threads(run) / _threads(base[0]))
        points.append(
            ScaledPoint(
                point=label,
                threads=_threads(run),
                status=result.status,
                median_ms=result.metrics.get("latency_median_ms"),
                speedup=speedup,
                efficiency=efficiency,
            )
        )
    return points


def is_ranked(run: Run, result: Result) -> bool:
    """Whether a result may be compared: measured, not invalid, and on real hardware."""
    is_sound = result.status == "ok" and result.validity != "invalid" and not run.is_simulated
    return is_sound and result.metrics.get("latency_median_ms", 0.0) > 0


def interval_text(ratio: Speedup | None, shown: Callable[[float], str] = "{:#.3g}".format) -> str | None:
    """The interval, followed by "(calls)" if it covers only the calls within the launches."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return f"{shown(ratio.low)} .. {shown(ratio.high)}" + (" (calls)" if ratio.scope == "within" else "")


_scaling_column = partial(Column[ScaledPoint], is_number=True)
_SCALING_COLUMNS: tuple[Column[ScaledPoint], ...] = (
    Column("point", lambda point: point.point, is_key=True),
    _scaling_column(heading="threads", text=lambda point: str(point.threads), is_key=True),
    _scaling_column(
        heading=METRICS["latency_median_ms"].heading,
        text=lambda point: None if point.median_ms is None else number(point.median_ms),
    ),
    _scaling_column(
        heading="speedup", text=lambda point: None if point.speedup is None else f"{point.speedup.ratio:#.3g}"
    ),
    _scaling_column(heading="95 % interval", text=lambda point: interval_text(point.speedup)),
    _scaling_column(
        heading="efficiency", text=lambda point: None if point.efficiency is None else f"{point.efficiency:.0%}"
    ),
    Column("state", lambda point: "" if point.status == "ok" else point.status.replace("_", " "), is_state=True),
)
