"""Combines the measurements of a point's launches into one `Result`.

Every statistic is computed per launch and then combined over launches, mostly by the median. Minimum and maximum are
over all calls, and so are percentiles for which one launch has too few calls. Rates, device
times, phases and shares of energy are derived from the raw samples and the amount of work, per launch too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Any

from benchmarking.core.codec import is_number
from benchmarking.core.doubts import validity
from benchmarking.core.metrics import (
    CUSTOM_METRICS,
    DESCRIBED,
    LATENCY_REQUEST,
    LATENCY_WALL,
    METRICS,
    MS_PER_S,
    OF_SINGLE_CALLS,
    OVERLAPPING,
    THROUGHPUT_AT_MEDIAN,
    OverLaunches,
    Source,
    bytes_to_mb,
    from_source,
)
from benchmarking.core.records import (
    FAILED,
    NOT_APPLICABLE,
    NOT_RUN,
    NOT_SUPPORTED,
    TOO_FEW_SAMPLES,
    Doubt,
    Json,
    LaunchLoad,
    Measurement,
    Point,
    Result,
    Status,
    Workload,
)
from benchmarking.core.sample_statistics import IntervalScope, LaunchStatistics, Statistics, describe, over_launches
from benchmarking.core.text import grouped
from benchmarking.measure import doubt_rules
from benchmarking.measure.timing import (
    TOKENIZE,
    Series,
)

PER_CALL = "_j_per_call"
ENERGY_UNITS = {"item": "items_per_call", "token": "tokens_per_call"}
"""Units that a call's energy is divided by, and the key of their number in a call."""


def rate_metrics(measured: Sequence[Measurement]) -> dict[str, float]:
    """Throughput, device times and phases of the launches, by column. A phase's median is over all its occurrences in
    all calls of a launch."""
    by_launch: list[dict[str, float]] = []
    for launch in measured:
        series = measured_series(launch)
        values: dict[str, float] = {}
        # Items (tokens) per call x calls / wall time, where wall time is the sum over sequential calls, or the time
        # from the first start to the last end of requests in flight. It is thus a mean, not the rate at the median.
        wall_ms = launch.extra.get("requests_wall_ms", sum(series[LATENCY_WALL]))
        items, tokens = (_count(launch, key) for key in ("items_per_call", "tokens_per_call"))
        calls_per_s = len(series[LATENCY_WALL]) * MS_PER_S / wall_ms if wall_ms > 0 else None
        if items is not None and calls_per_s is not None:
            values["throughput_samples_per_sec"] = items * calls_per_s
        if tokens is not None and calls_per_s is not None:
            values["throughput_tokens_per_sec"] = tokens * calls_per_s
        medians = {
            "latency_device": "latency_device_median_ms",  # from a pair of events around the call
            LATENCY_REQUEST: "latency_request_median_ms",  # by the runtime's own clock; a call may run several at once
            TOKENIZE: "tokenize_ms",  # to make the inputs of a call
        }
        for name, times_ms in series.items():
            column = f"{name.removeprefix('phase_')}_ms" if name.startswith("phase_") else medians.get(name)
            if column is not None:
                values[column] = median(times_ms)
        by_launch.append(values)
    names = {name for values in by_launch for name in values}
    return {name: median(values[name] for values in by_launch if name in values) for name in sorted(names)}


def energy_shares(measured: Sequence[Measurement]) -> dict[str, float]:
    """Energy per item and per token, as medians over launches.

    `energy_<domain>_j_per_item` and `_j_per_token`; net of the idle power `energy_<domain>_net_j_per_call`, `_item` and
    `_token`; and the standard deviation between windows, `energy_<domain>_sd_j_per_call`.
    """
    names = sorted({name for launch in measured for name in launch.metrics if name.endswith(PER_CALL)})
    shares: dict[str, float] = {}
    for name in names:
        per_call = median(launch.metrics[name] for launch in measured if name in launch.metrics)
        if "_net_" in name or "_sd_" in name:
            shares[name] = per_call
        if "_sd_" not in name:
            shares |= {
                f"{name.removesuffix(PER_CALL)}_j_per_{unit}": per_call / count
                for unit, key in ENERGY_UNITS.items()
                if (count := _count(measured[0], key)) is not None
            }
    return shares


def derived(values: Mapping[str, float], launch: Measurement) -> dict[str, float]:
    """Numbers derived from a point's median times and its other numbers, and from the counts of a launch's call.

    throughput at median = items of a call / median latency: what the throughput would be without slow calls.
    real-time factor = median latency / seconds of audio in a call: below 1 is faster than real time.
    achieved FLOP/s = FLOPs of a call / median latency.
    prefill = prompt tokens / ttft; decode = B (N - 1) / (e2e - ttft) = B / tpot.
    total = time to tokenize + median latency.

    With requests in flight, the median request may have run while the others waited: completed requests per second,
    not their latency, then say how many calls a second there are.
    """
    items, tokens, prompt_tokens, new_tokens = (
        _count(launch, key) for key in ("items_per_call", "tokens_per_call", "prompt_tokens_per_call", "new_tokens")
    )
    latency_s = values["latency_median_ms"] / MS_PER_S
    audio_s, flops = values.get("audio_seconds_per_call"), values.get("flops")
    first_ms, per_token_ms = values.get("time_to_first_token_ms"), values.get("time_per_output_token_ms")
    calls_per_s = 1 / latency_s if latency_s > 0 else None
    if launch.point.concurrency > 1:
        completed = values.get("throughput_samples_per_sec")
        calls_per_s = None if completed is None or items is None else completed / items
    numbers: dict[str, float] = {}
    if items is not None and calls_per_s is not None and launch.point.concurrency == 1:
        numbers[THROUGHPUT_AT_MEDIAN] = items * calls_per_s
    if audio_s:
        numbers["real_time_factor"] = latency_s / audio_s
    if flops is not None and calls_per_s is not None:
        numbers["achieved_flops_per_sec"] = flops * calls_per_s
    if first_ms and prompt_tokens is not None:
        numbers["prefill_tokens_per_sec"] = prompt_tokens * MS_PER_S / first_ms
    if per_token_ms and tokens is not None and new_tokens is not None:
        numbers["decode_tokens_per_sec"] = tokens / new_tokens * MS_PER_S / per_token_ms
    if "tokenize_ms" in values:
        numbers["total_ms"] = values["tokenize_ms"] + values["latency_median_ms"]
    return numbers


def measured_series(measurement: Measurement) -> Series:
    """The timed samples of a launch by raw metric, in milliseconds, without metrics that have no value."""
    return {
        samples.metric: samples.values
        for samples in measurement.samples
        if samples.phase == "measure" and samples.values
    }


def _count(measurement: Measurement, key: str) -> float | None:
    """Number of items, tokens, ... in a call; None if it has none."""
    value = measurement.extra.get(key)
    return value if is_number(value) and value > 0 else None


OVER_LAUNCHES: Mapping[OverLaunches, Callable[[Sequence[float]], float]] = {"median": median, "most": max}


def summarise(
    result_id: str,
    point: Point,
    measurements: Sequence[Measurement],
    loads: Sequence[LaunchLoad],
    *,
    context: Sequence[Doubt] = (),
) -> Result:
    """The point's result. `loads` may cover all launches of the cell; `context` holds doubts about the whole run.

    One measured launch is enough for status ok; failures of other launches then become a doubt.
    """
    measured = [launch for launch in measurements if launch.status == "ok" and LATENCY_WALL in measured_series(launch)]
    if not measured:
        # No launch measured the point: its status is the launches' common one, or failed if they differ.
        statuses = {launch.status for launch in measurements if launch.status != "ok"}
        status: Status = statuses.pop() if len(statuses) == 1 else "failed" if statuses else "skipped"
        errors = [launch.error for launch in measurements if launch.error and launch.status == status]
        reasons = {name: why for launch in measurements for name, why in _by_column(launch.missing).items()}
        return Result(
            result_id=result_id,
            point=point,
            status=status,
            error=errors[0] if errors else "no launch measured this point",
            missing=_complete({}, reasons, NOT_RUN if status == "skipped" else FAILED),
            extra={"launches": [_launch_facts(launch) for launch in measurements]},
        )
    statistics = [describe(measured_series(launch)[LATENCY_WALL]) for launch in measured]
    launches = {launch.launch for launch in measured}
    own_loads = [load for load in loads if load.launch in launches]
    of_load = {load.launch: load.verified for load in own_loads}
    latency = over_launches([measured_series(launch)[LATENCY_WALL] for launch in measured], statistics)
    described = {LATENCY_WALL: latency, **_described(measured, latency.scope)}
    hidden = OF_SINGLE_CALLS if _inner_loops(measured) > 1 else ()  # blocks of calls do not have these
    metrics = {
        metric.column: values.values[metric.statistic]
        for name, values in described.items()
        for metric in DESCRIBED[name]
        if metric.statistic in values.values and metric.column not in hidden
    }
    metrics |= {
        **rate_metrics(measured),
        **_combined("reading", [launch.metrics for launch in measured]),
        **_combined("first_call", [{"first_call_ms": launch.first_call_ms} for launch in measured]),
        # What the point's calls ran on, else what the load found.
        **_combined(
            "verified", [{**of_load.get(launch.launch, {}), **launch.extra.get("verified", {})} for launch in measured]
        ),
        **_combined("load_memory", [load.memory_bytes for load in own_loads]),
        **energy_shares(measured),
    }
    custom, unlike = _custom(measured)
    metrics |= {name: median(launch.metrics[name] for launch in measured if name in launch.metrics) for name in custom}
    reasons = _reasons(measured, own_loads, described) | unlike
    if point.concurrency > 1:
        reasons[THROUGHPUT_AT_MEDIAN] = OVERLAPPING
    others = derived(metrics, measured[0])
    metrics |= {name: value for name, value in others.items() if name not in reasons}
    found = _doubts(measurements, measured, statistics, own_loads, context)
    stop_reasons = {launch.stop_reason for launch in measured}
    percentiles = {name: metric for name, metric in METRICS.items() if name in metrics and metric.is_percentile}
    facts: dict[int, Json] = {id(launch): asdict(of) for launch, of in zip(measured, statistics, strict=True)}
    of_launches: list[Json] = [
        {**_launch_facts(launch), **({"statistics": facts[id(launch)]} if id(launch) in facts else {})}
        for launch in measurements
    ]
    return Result(
        result_id=result_id,
        point=point,
        status="ok",
        validity=validity(found),
        doubts=found,
        launches=len(measured),
        iterations=sum(launch.n for launch in statistics),
        warmup_iterations=sum(launch.warmup_calls for launch in measured),
        stop_reason=stop_reasons.pop() if len(stop_reasons) == 1 else "mixed",
        ci_scope=latency.scope,
        pooled_quantiles=tuple(name for name, m in percentiles.items() if m.statistic in described[m.of].pooled),
        metrics=metrics,
        missing=_complete(metrics, reasons),
        samples=tuple(samples for launch in measured for samples in launch.samples),
        extra={"launches": of_launches, **({CUSTOM_METRICS: custom} if custom else {})},
    )


def _custom(measured: Sequence[Measurement]) -> tuple[dict[str, Json], dict[str, str]]:
    """Unit and direction of each custom metric, and why some have no value."""
    given = [launch.extra["custom_metrics"] for launch in measured if "custom_metrics" in launch.extra]
    custom: dict[str, Json] = {name: definition for stated in given for name, definition in stated.items()}
    why = f"{NOT_SUPPORTED}: its unit or direction differs between launches"
    unlike = {name: why for stated in given for name, definition in stated.items() if definition != custom[name]}
    return {name: definition for name, definition in custom.items() if name not in unlike}, unlike


def _inner_loops(measured: Sequence[Measurement]) -> int:
    """Calls per timed block: the most in any launch."""
    samples = (samples for launch in measured for samples in launch.samples)
    return max(row.inner_loops for row in samples if row.metric == LATENCY_WALL and row.phase == "measure")


def _described(measured: Sequence[Measurement], scope: IntervalScope | None) -> dict[str, LaunchStatistics]:
    """Statistics of the raw metrics other than latency. Intervals are dropped if their scope differs from that of the
    latency interval, since only the latter is stored."""
    found: dict[str, LaunchStatistics] = {}
    for name in DESCRIBED.keys() - {LATENCY_WALL}:
        launches = [series[name] for measurement in measured if name in (series := measured_series(measurement))]
        if launches:
            found[name] = over_launches(launches, [describe(values) for values in launches])
            if found[name].scope != scope:
                values = {key: value for key, value in found[name].values.items() if key not in ("ci_low", "ci_high")}
                found[name] = replace(found[name], values=values, scope=None)
    return found


def _combined(source: Source, launches: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics of a source by column, in the column's unit, from each launch's values by name."""
    values: dict[str, float] = {}
    for metric in from_source(source).values():
        given = (launch.get(metric.of) for launch in launches)
        read = [float(value) for value in given if is_number(value)]
        if read:
            value = OVER_LAUNCHES[metric.over_launches](read)
            values[metric.column] = bytes_to_mb(value) if metric.is_in_bytes else value
    return values


def _doubts(
    measurements: Sequence[Measurement],
    measured: Sequence[Measurement],
    statistics: Sequence[Statistics],
    loads: Sequence[LaunchLoad],
    context: Sequence[Doubt],
) -> tuple[Doubt, ...]:
    failures = {launch.launch: launch.error or launch.status for launch in measurements if launch not in measured}
    weights = {load.launch: load.memory_bytes.get("weights_bytes") for load in loads}
    by_launch: list[tuple[int, tuple[Doubt, ...]]] = []
    for launch in measured:
        peak_bytes = launch.metrics.get("device_allocated_peak_bytes")
        of_memory = doubt_rules.about_device_memory(peak_bytes, weights.get(launch.launch))
        of_calls = doubt_rules.about_calls(launch.extra.get("verified", {}))
        by_launch.append((launch.launch, (*launch.doubts, *of_memory, *of_calls)))
    by_launch += [(load.launch, doubt_rules.about_load(load.verified)) for load in loads]
    between = doubt_rules.about_launches(statistics, failures)
    return (*doubt_rules.merge(by_launch, len(measured)), *between, *context)


def _reasons(measured: Sequence[Measurement], loads: Sequence[LaunchLoad], described: Iterable[str]) -> dict[str, str]:
    """Why columns are absent: the launches' own reasons, and limits from the number and kind of samples."""
    blocks = _inner_loops(measured)
    few = {metric.column: TOO_FEW_SAMPLES for name in described for metric in DESCRIBED[name]}
    why = f"{NOT_APPLICABLE}: timed in blocks of {blocks} calls"
    hidden = dict.fromkeys(OF_SINGLE_CALLS, why) if blocks > 1 else {}
    has_tokens = measured[0].extra.get("tokens_per_call")
    tokens = {} if has_tokens else {"throughput_tokens_per_sec": f"{NOT_APPLICABLE}: no tokens"}
    absent = {m.column: f"{NOT_APPLICABLE}: {m.not_applicable}" for m in METRICS.values() if m.not_applicable}
    missings = [load.missing for load in loads] + [launch.missing for launch in measured]
    by_column = {name: why for missing in missings for name, why in _by_column(missing).items()}
    return {**few, **hidden, **tokens, **absent, **by_column}


def _by_column(missing: Mapping[str, str]) -> dict[str, str]:
    """Reasons by column, from the reasons of raw metrics and readings. Keys may also be columns."""
    columns = grouped((metric.of, metric.column) for metric in METRICS.values() if metric.source != "derived")
    return {column: why for name, why in missing.items() for column in columns.get(name, [name])}


def _complete(metrics: Mapping[str, float], reasons: Mapping[str, str], default: str = NOT_RUN) -> dict[str, str]:
    """A reason for every column without a value; a derived column takes the reason of its reading."""
    absent = dict.fromkeys((name for name in METRICS if name not in metrics), default)
    known = {name: why for name, why in reasons.items() if name not in metrics}
    derived = from_source("derived").items()
    of_readings = {name: known[metric.of] for name, metric in derived if name not in metrics and metric.of in known}
    return {**absent, **of_readings, **known}


def _launch_facts(measurement: Measurement) -> dict[str, Any]:
    """The facts of a launch, without raw samples."""
    if measurement.status != "ok":
        return {"launch": measurement.launch, "status": measurement.status, "error": measurement.error}
    return {
        "launch": measurement.launch,
        "status": measurement.status,
        "started_at": measurement.started_at,
        "finished_at": measurement.finished_at,
        "steady": measurement.steady,
        "warmup_calls": measurement.warmup_calls,
        "first_call_ms": measurement.first_call_ms,
        "stop_reason": measurement.stop_reason,
        "relative_half_width": measurement.relative_half_width,
        "metrics": dict(measurement.metrics),
        "window": dict(measurement.window),
        **{name: value for name, value in measurement.extra.items() if name != CUSTOM_METRICS},
    }


# A calibration run (`benchmarking.calibration`) measures matrix products at one precision, or copies, at several sizes.
# Its best point holds the peak as a metric, which the warehouse copies to the device's row.
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


def with_peak(workload: Workload, results: tuple[Result, ...]) -> tuple[Result, ...]:
    """The results of a run. In a calibration, the best one gets the peak as a metric and the others a reason.

    The best result has the highest rate at its median latency, among results that are not invalid.
    """
    if workload.task != TASK:
        return results
    rates = {index: rate for index, result in enumerate(results) if (rate := rate_of(result)) is not None}
    best = max(rates, key=lambda index: (rates[index], index), default=None)
    changed = list(results)
    for index, rate in rates.items():
        result, name = results[index], peak_name(results[index])
        if index == best:
            changed[index] = replace(result, metrics={**result.metrics, name: rate})
        else:
            missing = {**result.missing, name: f"{NOT_APPLICABLE}: another size was faster"}
            changed[index] = replace(result, missing=missing)
    return tuple(changed)


def rate_of(result: Result) -> float | None:
    """FLOP/s, or copied bytes/s, at the median latency; None for a result without a valid measurement."""
    metrics = result.metrics
    work = metrics.get("bytes_accessed" if is_of_copy(result) else "flops")
    if result.status != "ok" or result.validity == "invalid" or not metrics.get("latency_median_ms") or work is None:
        return None
    return work / (metrics["latency_median_ms"] / MS_PER_S)


def is_of_copy(result: Result) -> bool:
    """Whether a result of a calibration is that of a copy, else of a product of matrices."""
    return COPY_AXIS in result.point.axes


def peak_name(result: Result) -> str:
    """The metric that holds the peak of a result's kind."""
    return PEAK_COPY if is_of_copy(result) else PEAK_FLOPS
