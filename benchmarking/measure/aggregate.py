"""A point over its launches: one Result from what the workers sent.

Every statistic is a launch's own first and then the median over launches; only minimum and maximum are over all calls.

Energy of an item and of a token, from the energy of a call.

Rates and token times of a point: per launch from its raw samples, then the median over launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, Literal, TypeGuard

from benchmarking.core.doubts import validity
from benchmarking.core.metrics import LATENCY, METRICS, TAILS, Metric, from_source
from benchmarking.core.records import (
    FAILED,
    NOT_APPLICABLE,
    NOT_RUN,
    TOO_FEW_SAMPLES,
    Doubt,
    Json,
    LaunchLoad,
    Measurement,
    Point,
    Result,
    Samples,
    Status,
)
from benchmarking.core.sample_statistics import Statistics, between_launches_interval, describe, tail_quantile
from benchmarking.core.units import bytes_to_mb
from benchmarking.measure import doubts
from benchmarking.measure.timing import INTER_TOKEN_LATENCY, LATENCY_REQUEST, TIME_PER_OUTPUT_TOKEN, TIME_TO_FIRST_TOKEN

MIN_LAUNCHES_FOR_BETWEEN = 3

"""With 2, the t interval has one degree of freedom and is 12.7 standard errors wide to either side."""

OVER_LAUNCHES: Mapping[str, Callable[[Sequence[float]], float]] = {"median": median, "least": min, "most": max}


def summarise(
    result_id: str,
    point: Point,
    measurements: Sequence[Measurement],
    loads: Sequence[LaunchLoad],
    *,
    context: Sequence[Doubt] = (),
) -> Result:
    """The point's result. `loads` may be those of all launches of the cell; `context` holds the run's own doubts.

    One launch that measured is enough for status ok; the others' failures are then a doubt.
    """
    measured = [one for one in measurements if one.status == "ok" and series(one, "latency_wall") is not None]
    if not measured:
        return _without_numbers(result_id, point, measurements)
    statistics = [describe(_values(one, "latency_wall")) for one in measured]
    launches = {one.launch for one in measured}
    own_loads = [load for load in loads if load.launch in launches]
    low, high, scope = _interval(statistics)
    metrics = {
        **_latency(statistics, blocks=any(_inner_loops(one) > 1 for one in measured)),
        **({} if low is None or high is None else {"latency_ci_low_ms": low, "latency_ci_high_ms": high}),
        **rate_metrics(measured),
        **_readings(measured),
        **_verified_numbers(measured, own_loads),
        **_load_memory(own_loads),
        **energy_shares(measured),
    }
    metrics |= derived(metrics)
    found = _doubts(measurements, measured, statistics, own_loads, context)
    return Result(
        result_id=result_id,
        point=point,
        status="ok",
        validity=validity(found),
        doubts=found,
        launches=len(measured),
        iterations=sum(each.n for each in statistics),
        warmup_iterations=sum(one.warmup_calls for one in measured),
        stop_reason=_common([one.stop_reason for one in measured]),
        ci_scope=scope,
        metrics=metrics,
        missing=_complete(metrics, _reasons(measured, own_loads)),
        samples=tuple(samples for one in measured for samples in one.samples),
        extra=_extra(measurements, measured, statistics),
    )


def series(measurement: Measurement, metric: str) -> Samples | None:
    """The measured samples of one raw metric; None where there are none."""
    found = (one for one in measurement.samples if one.phase == "measure" and one.metric == metric and one.values)
    return next(found, None)


def _values(measurement: Measurement, metric: str) -> tuple[float, ...]:
    found = series(measurement, metric)
    return () if found is None else found.values


def _inner_loops(measurement: Measurement) -> int:
    found = series(measurement, "latency_wall")
    return 1 if found is None else found.inner_loops


def _without_numbers(result_id: str, point: Point, measurements: Sequence[Measurement]) -> Result:
    """The result of a point that no launch measured: what all launches have in common, else failed."""
    statuses = {one.status for one in measurements if one.status != "ok"}
    status: Status = statuses.pop() if len(statuses) == 1 else "failed" if statuses else "skipped"
    errors = [one.error for one in measurements if one.error and one.status == status]
    error = errors[0] if errors else "no launch measured this point"
    reasons = {name: why for one in measurements for name, why in _by_column(one.missing).items()}
    default = NOT_RUN if status == "skipped" else FAILED
    return Result(
        result_id=result_id,
        point=point,
        status=status,
        error=error,
        missing=_complete({}, reasons, default),
        extra={"launches": [_launch_facts(one) for one in measurements]},
    )


def _latency(statistics: Sequence[Statistics], *, blocks: bool) -> dict[str, float]:
    """Latency columns in ms. Of blocks of calls there are no tails: a block's mean hides its slowest call."""
    metrics: dict[str, float] = {}
    for column, statistic in LATENCY.items():
        found = [value for each in statistics if (value := getattr(each, statistic)) is not None]
        if found and (over := METRICS[column].over_launches) != "interval" and not (blocks and column in TAILS):
            metrics[column] = OVER_LAUNCHES[over](found)
    return metrics


def _interval(
    statistics: Sequence[Statistics],
) -> tuple[float | None, float | None, Literal["between", "within"] | None]:
    """The 95 % interval of the median and what it speaks of: launches, or only the calls inside them."""
    medians = [each.median for each in statistics]
    if len(medians) >= MIN_LAUNCHES_FOR_BETWEEN and min(medians) > 0:
        return *between_launches_interval(medians), "between"
    lows = [each.ci_low for each in statistics if each.ci_low is not None]
    highs = [each.ci_high for each in statistics if each.ci_high is not None]
    return (min(lows), max(highs), "within") if lows and highs else (None, None, None)


def _readings(measured: Sequence[Measurement]) -> dict[str, float]:
    """Columns with one reading a launch: the median over launches; bytes become MB."""
    values: dict[str, float] = {}
    for metric in from_source("reading").values():
        read = [one.metrics[metric.of] for one in measured if metric.of in one.metrics]
        if read:
            values[metric.column] = _over_launches(metric, read)
    first_calls = [one.first_call_ms for one in measured if one.first_call_ms is not None]
    return {**values, **({"first_call_ms": median(first_calls)} if first_calls else {})}


def _verified_numbers(measured: Sequence[Measurement], loads: Sequence[LaunchLoad]) -> dict[str, float]:
    """Columns of what was read back: of the point in each launch, else of the launch's load."""
    of_load = {load.launch: load.verified for load in loads}
    told = [{**of_load.get(one.launch, {}), **_verified(one)} for one in measured]
    values: dict[str, float] = {}
    for metric in from_source("verified").values():
        read = [float(value) for each in told if _is_number(value := each.get(metric.of))]
        if read:
            values[metric.column] = _over_launches(metric, read)
    return values


def _over_launches(metric: Metric, values: Sequence[float]) -> float:
    """The launches' values in one, in the column's unit."""
    value = OVER_LAUNCHES[metric.over_launches](values)
    return bytes_to_mb(value) if metric.is_in_bytes else value


def _is_number(value: Json) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _load_memory(loads: Sequence[LaunchLoad]) -> dict[str, float]:
    values: dict[str, float] = {}
    for metric in from_source("load_memory").values():
        read = [load.memory_bytes[metric.of] for load in loads if metric.of in load.memory_bytes]
        if read:
            values[metric.column] = _over_launches(metric, read)
    return values


def _doubts(
    measurements: Sequence[Measurement],
    measured: Sequence[Measurement],
    statistics: Sequence[Statistics],
    loads: Sequence[LaunchLoad],
    context: Sequence[Doubt],
) -> tuple[Doubt, ...]:
    failures = {one.launch: one.error or one.status for one in measurements if one not in measured}
    weights = {load.launch: load.memory_bytes.get("weights_bytes") for load in loads}
    by_launch = [
        (one.launch, (*one.doubts, *_device_memory(one, weights.get(one.launch)), *_placement(_verified(one))))
        for one in measured
    ]
    placements = [
        (load.launch, (*_placement(load.verified), *_processors(load.verified), *doubts.about_adapter(load.verified)))
        for load in loads
    ]
    between = doubts.about_launches([each.median for each in statistics], failures)
    return (*doubts.merge([*by_launch, *placements]), *between, *context)


def _device_memory(measurement: Measurement, weights_bytes: int | None) -> tuple[Doubt, ...]:
    return doubts.about_device_memory(measurement.metrics.get("device_allocated_peak_bytes"), weights_bytes)


def _verified(measurement: Measurement) -> Mapping[str, Json]:
    """What the calls of a measurement really ran on; empty where the runtime cannot tell."""
    verified = measurement.extra.get("verified")
    return verified if isinstance(verified, dict) else {}


def _placement(verified: Mapping[str, Json]) -> tuple[Doubt, ...]:
    unasked, nodes = verified.get("nodes_on_cpu_unasked"), verified.get("nodes")
    return (
        *doubts.about_placement(
            unasked if isinstance(unasked, int) else None, nodes if isinstance(nodes, int) else None
        ),
        *doubts.about_emulation(verified.get("emulated_precision"), verified.get("compute_types")),
    )


def _processors(verified: Mapping[str, Json]) -> tuple[Doubt, ...]:
    return (*doubts.about_threads(verified), *doubts.about_memory_placement(verified))


def _reasons(measured: Sequence[Measurement], loads: Sequence[LaunchLoad]) -> dict[str, str]:
    """Why columns are absent: what the launches said, and what the number and kind of samples forbid."""
    blocks = max(_inner_loops(one) for one in measured)
    few = dict.fromkeys((*LATENCY, *_columns_of("inter_token_latency")), TOO_FEW_SAMPLES)
    tails = dict.fromkeys(TAILS, f"{NOT_APPLICABLE}: timed in blocks of {blocks} calls") if blocks > 1 else {}
    has_tokens = measured[0].extra.get("tokens_per_call")
    tokens = {} if has_tokens else {"throughput_tokens_per_sec": f"{NOT_APPLICABLE}: no tokens"}
    absent = {m.column: f"{NOT_APPLICABLE}: {m.not_applicable}" for m in METRICS.values() if m.not_applicable}
    told = [one.missing for one in loads] + [one.missing for one in measured]
    by_column = {name: why for missing in told for name, why in _by_column(missing).items()}
    return {**few, **tails, **tokens, **absent, **by_column}


def _columns_of(name: str) -> tuple[str, ...]:
    """The columns that come of a raw metric or a reading: none but its own name for what has none."""
    made = (metric for metric in METRICS.values() if metric.of == name and metric.source != "derived")
    return tuple(metric.column for metric in made) or (name,)


def _by_column(missing: Mapping[str, str]) -> dict[str, str]:
    """Reasons of raw metrics and readings, by the columns that come of them. A column may also be named itself."""
    return {column: why for name, why in missing.items() for column in _columns_of(name)}


def _complete(metrics: Mapping[str, float], reasons: Mapping[str, str], default: str = NOT_RUN) -> dict[str, str]:
    """A reason for every column without a value; what is derived from a reading is absent for the reading's reason."""
    absent = dict.fromkeys((name for name in METRICS if name not in metrics), default)
    known = {name: why for name, why in reasons.items() if name not in metrics}
    made = from_source("derived").items()
    derived = {name: known[one.of] for name, one in made if name not in metrics and one.of in known}
    return {**absent, **derived, **known}


def _common(reasons: Sequence[str | None]) -> str | None:
    return reasons[0] if len(set(reasons)) == 1 else "mixed"


def _extra(
    measurements: Sequence[Measurement], measured: Sequence[Measurement], statistics: Sequence[Statistics]
) -> dict[str, Json]:
    """What is kept beside the columns: for every launch its statistics, window and single readings."""
    described = {id(one): asdict(each) for one, each in zip(measured, statistics, strict=True)}
    facts: list[Json] = []
    for one in measurements:
        facts.append({**_launch_facts(one), **({"statistics": described[id(one)]} if id(one) in described else {})})
    return {"launches": facts}


def _launch_facts(measurement: Measurement) -> dict[str, Any]:
    """A launch in short; its raw samples are kept elsewhere."""
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
        **measurement.extra,
    }


PER_CALL = "_j_per_call"

UNITS = {"item": "items_per_call", "token": "tokens_per_call"}

"""What a call's energy is divided among, and how many of them a call has."""


def energy_shares(measured: Sequence[Measurement]) -> dict[str, float]:
    """By name, as medians over launches: `energy_<domain>_j_per_item` and `_j_per_token`, and of what is above the idle
    power `energy_<domain>_net_j_per_call`, `_item`, `_token`; the deviation between windows,
    `energy_<domain>_sd_j_per_call`, has no share."""
    names = sorted({name for one in measured for name in one.metrics if name.endswith(PER_CALL)})
    shares: dict[str, float] = {}
    for name in names:
        per_call = median(one.metrics[name] for one in measured if name in one.metrics)
        if "_net_" in name or "_sd_" in name:
            shares[name] = per_call
        if "_sd_" not in name:
            shares |= {
                f"{name.removesuffix(PER_CALL)}_j_per_{unit}": per_call / count
                for unit, key in UNITS.items()
                if (count := _count(measured[0].extra, key)) is not None
            }
    return shares


def _count(extra: Mapping[str, Json], key: str) -> int | None:
    value = extra.get(key)
    return value if isinstance(value, int) and value > 0 else None


MS_PER_S = 1000.0


Series = Mapping[str, tuple[float, ...]]


def rate_metrics(measured: Sequence[Measurement]) -> dict[str, float]:
    """Every rate and token time that can be had from these launches, by column."""
    by_launch = [_of_launch(one) for one in measured]
    names = {name for values in by_launch for name in values}
    return {name: median(values[name] for values in by_launch if name in values) for name in sorted(names)}


def derived(values: Mapping[str, float]) -> dict[str, float]:
    """What follows from a point's median latency and its readings.

    real-time factor = median latency / seconds of audio in a call: below 1 is faster than it was spoken.
    achieved FLOP/s = FLOPs of a call / median latency.
    """
    latency_s = values["latency_median_ms"] / MS_PER_S
    audio_s, flops = values.get("audio_seconds_per_call"), values.get("flops")
    found: dict[str, float] = {}
    if audio_s:
        found["real_time_factor"] = latency_s / audio_s
    if flops is not None and latency_s > 0:
        found["achieved_flops_per_sec"] = flops / latency_s
    return found


def _of_launch(measurement: Measurement) -> dict[str, float]:
    series = {one.metric: one.values for one in measurement.samples if one.phase == "measure" and one.values}

    def count(name: str) -> int | None:
        value = measurement.extra.get(name)
        return value if isinstance(value, int) and value > 0 else None

    return {
        **_throughput(series, count),
        **_device(series),
        **_request(series),
        **_tokens(series, count),
        **_phases(series),
    }


def _throughput(series: Series, count: Callable[[str], int | None]) -> dict[str, float]:
    """Sequential: items (tokens) of a call x calls / sum of their wall times."""
    wall_ms = series["latency_wall"]
    calls_per_s = len(wall_ms) * MS_PER_S / sum(wall_ms) if sum(wall_ms) > 0 else None
    counts = {
        "throughput_samples_per_sec": count("items_per_call"),
        "throughput_tokens_per_sec": count("tokens_per_call"),
    }
    return {name: each * calls_per_s for name, each in counts.items() if each is not None and calls_per_s is not None}


def _device(series: Series) -> dict[str, float]:
    """The device's own time, and the host's gap around it: the median of the paired differences."""
    device_ms = series.get("latency_device")
    if device_ms is None:
        return {}
    gaps = [wall - device for wall, device in zip(series["latency_wall"], device_ms, strict=True)]
    return {"latency_device_median_ms": median(device_ms), "host_gap_ms": median(gaps)}


def _request(series: Series) -> dict[str, float]:
    """What one request takes by the runtime's own clock, where it has one; a call may be several at once."""
    request_ms = series.get(LATENCY_REQUEST)
    return {} if request_ms is None else {"latency_request_median_ms": median(request_ms)}


def _phases(series: Series) -> dict[str, float]:
    """The median of each phase; of a step, over all steps of all calls."""
    return {
        f"{name.removeprefix('phase_')}_ms": median(values)
        for name, values in series.items()
        if name.startswith("phase_")
    }


def _tokens(series: Series, count: Callable[[str], int | None]) -> dict[str, float]:
    """ttft, tpot, itl; prefill = prompt tokens / ttft and decode = B (N - 1) / (e2e - ttft) = B / tpot, as medians."""
    values: dict[str, float] = {}
    if TIME_TO_FIRST_TOKEN in series:
        first_ms = series[TIME_TO_FIRST_TOKEN]
        values["time_to_first_token_ms"] = median(first_ms)
        prompt_tokens = count("prompt_tokens_per_call")
        if prompt_tokens is not None and min(first_ms) > 0:
            values["prefill_tokens_per_sec"] = median(prompt_tokens * MS_PER_S / each for each in first_ms)
    if TIME_PER_OUTPUT_TOKEN in series:
        per_token_ms = series[TIME_PER_OUTPUT_TOKEN]
        values["time_per_output_token_ms"] = median(per_token_ms)
        tokens, new_tokens = count("tokens_per_call"), count("new_tokens")
        if tokens is not None and new_tokens is not None and min(per_token_ms) > 0:
            values["decode_tokens_per_sec"] = median(tokens / new_tokens * MS_PER_S / each for each in per_token_ms)
    if INTER_TOKEN_LATENCY in series:
        gaps_ms = series[INTER_TOKEN_LATENCY]
        values["inter_token_latency_p50_ms"] = median(gaps_ms)
        p99 = tail_quantile(gaps_ms, 0.99)
        values |= {} if p99 is None else {"inter_token_latency_p99_ms": p99}
    return values
