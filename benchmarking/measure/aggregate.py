"""A point over its launches: one Result from what the workers sent.

Every statistic is a launch's own first and then the median over launches; only minimum and maximum are over all calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, Literal, TypeGuard

from benchmarking.estimates import Statistics, between_launches_interval, describe
from benchmarking.measure import columns, doubts, rates
from benchmarking.measure.energy_shares import energy_shares
from benchmarking.records import (
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
from benchmarking.units import bytes_to_mb

MIN_LAUNCHES_FOR_BETWEEN = 3
"""With 2, the t interval has one degree of freedom and is 12.7 standard errors wide to either side."""
PLAIN_STATISTICS = ("mean", "median", "sd", "p25", "p75", "p90", "p95", "p99", "mad")
TAILS = ("latency_p90_ms", "latency_p95_ms", "latency_p99_ms")


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
        **rates.metrics(measured),
        **_readings(measured),
        **_verified_numbers(measured, own_loads),
        **_load_memory(own_loads),
        **energy_shares(measured),
    }
    metrics |= rates.derived(metrics)
    found = _doubts(measurements, measured, statistics, own_loads, context)
    return Result(
        result_id=result_id,
        point=point,
        status="ok",
        validity=doubts.validity(found),
        doubts=found,
        launches=len(measured),
        iterations=sum(each.n for each in statistics),
        warmup_iterations=sum(one.warmup_calls for one in measured),
        stop_reason=_common([one.stop_reason for one in measured]),
        ci_scope=scope,
        metrics=metrics,
        missing=columns.complete(metrics, _reasons(measured, own_loads)),
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
    reasons = {name: why for one in measurements for name, why in columns.reasons_by_column(one.missing).items()}
    default = NOT_RUN if status == "skipped" else FAILED
    return Result(
        result_id=result_id,
        point=point,
        status=status,
        error=error,
        missing=columns.complete({}, reasons, default),
        extra={"launches": [_launch_facts(one) for one in measurements]},
    )


def _latency(statistics: Sequence[Statistics], *, blocks: bool) -> dict[str, float]:
    """Latency columns in ms. Of blocks of calls there are no tails: a block's mean hides its slowest call."""
    plain = {
        name: [value for each in statistics if (value := getattr(each, name)) is not None] for name in PLAIN_STATISTICS
    }
    metrics = {f"latency_{name.replace('sd', 'std')}_ms": median(values) for name, values in plain.items() if values}
    metrics["latency_min_ms"] = min(each.min for each in statistics)
    metrics["latency_max_ms"] = max(each.max for each in statistics)
    return {name: value for name, value in metrics.items() if not (blocks and name in TAILS)}


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
    for name, column in columns.OF_READING.items():
        read = [one.metrics[name] for one in measured if name in one.metrics]
        if read:
            values[column] = bytes_to_mb(median(read)) if column.endswith("_mb") else median(read)
    first_calls = [one.first_call_ms for one in measured if one.first_call_ms is not None]
    return {**values, **({"first_call_ms": median(first_calls)} if first_calls else {})}


def _verified_numbers(measured: Sequence[Measurement], loads: Sequence[LaunchLoad]) -> dict[str, float]:
    """Columns of what was read back: of the point in each launch, else of the launch's load."""
    of_load = {load.launch: load.verified for load in loads}
    told = [{**of_load.get(one.launch, {}), **_verified(one)} for one in measured]
    values: dict[str, float] = {}
    for name in columns.OF_VERIFIED:
        read = [float(value) for each in told if _is_number(value := each.get(name))]
        if read:
            values[name] = max(read) if name in columns.COUNTS else median(read)
    return values


def _is_number(value: Json) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _load_memory(loads: Sequence[LaunchLoad]) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, column in columns.OF_LOAD.items():
        read = [load.memory_bytes[name] for load in loads if name in load.memory_bytes]
        if read:
            values[column] = bytes_to_mb(median(read))
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
    few = dict.fromkeys((*columns.LATENCY, *columns.OF_SERIES["inter_token_latency"]), TOO_FEW_SAMPLES)
    tails = dict.fromkeys(TAILS, f"{NOT_APPLICABLE}: timed in blocks of {blocks} calls") if blocks > 1 else {}
    tokens = {} if measured[0].extra.get("tokens_per_call") else {columns.THROUGHPUT[1]: f"{NOT_APPLICABLE}: no tokens"}
    told = [one.missing for one in loads] + [one.missing for one in measured]
    by_column = {name: why for missing in told for name, why in columns.reasons_by_column(missing).items()}
    return {**few, **tails, **tokens, **columns.OF_SOME_CALLS, **by_column}


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
