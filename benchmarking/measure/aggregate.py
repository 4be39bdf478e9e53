"""Combines the measurements of a point's launches into one `Result`.

Every statistic is computed per launch and then combined over launches, mostly by the median. Minimum and maximum are
over all calls, and so are percentiles for which one launch has too few calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Any, TypeGuard

from benchmarking.core.doubts import validity
from benchmarking.core.metrics import (
    CUSTOM_METRICS,
    DESCRIBED,
    METRICS,
    OF_SINGLE_CALLS,
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
)
from benchmarking.core.sample_statistics import IntervalScope, LaunchStatistics, Statistics, describe, over_launches
from benchmarking.measure import doubts
from benchmarking.measure.rates import derived, energy_shares, measured_series, rate_metrics
from benchmarking.measure.timing import LATENCY_WALL

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
    measured = [one for one in measurements if one.status == "ok" and LATENCY_WALL in measured_series(one)]
    if not measured:
        return _without_numbers(result_id, point, measurements)
    statistics = [describe(measured_series(one)[LATENCY_WALL]) for one in measured]
    launches = {one.launch for one in measured}
    own_loads = [load for load in loads if load.launch in launches]
    latency = over_launches([measured_series(one)[LATENCY_WALL] for one in measured], statistics)
    described = {LATENCY_WALL: latency, **_described(measured, latency.scope)}
    hidden = OF_SINGLE_CALLS if _inner_loops(measured) > 1 else ()
    metrics = {
        **_columns(described, hidden),
        **rate_metrics(measured),
        **_combined("reading", [one.metrics for one in measured]),
        **_combined("first_call", [{"first_call_ms": one.first_call_ms} for one in measured]),
        **_combined("verified", _verified_by_launch(measured, own_loads)),
        **_combined("load_memory", [load.memory_bytes for load in own_loads]),
        **energy_shares(measured),
    }
    custom, unlike = _custom(measured)
    metrics |= {name: median(one.metrics[name] for one in measured if name in one.metrics) for name in custom}
    reasons = _reasons(measured, own_loads, described) | unlike
    metrics |= {name: value for name, value in derived(metrics, point.concurrency).items() if name not in reasons}
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
        ci_scope=latency.scope,
        pooled_quantiles=_pooled(described, metrics),
        metrics=metrics,
        missing=_complete(metrics, reasons),
        samples=tuple(samples for one in measured for samples in one.samples),
        extra={**_extra(measurements, measured, statistics), **({CUSTOM_METRICS: custom} if custom else {})},
    )


def _custom(measured: Sequence[Measurement]) -> tuple[dict[str, Json], dict[str, str]]:
    """Unit and direction of each custom metric, and why some have no value."""
    given = [stated for one in measured if isinstance(stated := one.extra.get(CUSTOM_METRICS), dict)]
    custom: dict[str, Json] = {name: definition for stated in given for name, definition in stated.items()}
    why = f"{NOT_SUPPORTED}: its unit or direction differs between launches"
    unlike = {name: why for stated in given for name, definition in stated.items() if definition != custom[name]}
    return {name: definition for name, definition in custom.items() if name not in unlike}, unlike


def _without_numbers(result_id: str, point: Point, measurements: Sequence[Measurement]) -> Result:
    """The result of a point that no launch measured: the launches' common status, or failed if they differ."""
    statuses = {one.status for one in measurements if one.status != "ok"}
    status: Status = statuses.pop() if len(statuses) == 1 else "failed" if statuses else "skipped"
    errors = [one.error for one in measurements if one.error and one.status == status]
    reasons = {name: why for one in measurements for name, why in _by_column(one.missing).items()}
    return Result(
        result_id=result_id,
        point=point,
        status=status,
        error=errors[0] if errors else "no launch measured this point",
        missing=_complete({}, reasons, NOT_RUN if status == "skipped" else FAILED),
        extra={"launches": [_launch_facts(one) for one in measurements]},
    )


def _inner_loops(measured: Sequence[Measurement]) -> int:
    """Calls per timed block: the most in any launch."""
    wall = [each for one in measured for each in one.samples if each.metric == LATENCY_WALL and each.phase == "measure"]
    return max(each.inner_loops for each in wall)


def _described(measured: Sequence[Measurement], scope: IntervalScope | None) -> dict[str, LaunchStatistics]:
    """Statistics of the raw metrics other than latency. Intervals are dropped if their scope differs from that of the
    latency interval, since only the latter is stored."""
    found: dict[str, LaunchStatistics] = {}
    for name in DESCRIBED.keys() - {LATENCY_WALL}:
        launches = [values for one in measured if (values := measured_series(one).get(name))]
        if launches:
            found[name] = over_launches(launches, [describe(values) for values in launches])
            if found[name].scope != scope:
                found[name] = replace(found[name], values=_without_interval(found[name].values), scope=None)
    return found


def _without_interval(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if name not in ("ci_low", "ci_high")}


def _columns(described: Mapping[str, LaunchStatistics], hidden: Sequence[str]) -> dict[str, float]:
    """Statistics in ms by column, without those (`hidden`) that blocks of calls do not have."""
    return {
        metric.column: one.values[metric.statistic]
        for name, one in described.items()
        for metric in DESCRIBED[name]
        if metric.statistic in one.values and metric.column not in hidden
    }


def _pooled(described: Mapping[str, LaunchStatistics], metrics: Mapping[str, float]) -> tuple[str, ...]:
    """The columns whose percentile is taken over the samples of all launches."""
    of = {name: one.pooled for name, one in described.items()}
    return tuple(
        column for column, m in METRICS.items() if column in metrics and m.is_percentile and m.statistic in of[m.of]
    )


def _combined(source: Source, launches: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics of a source by column, in the column's unit, from each launch's values by name."""
    values: dict[str, float] = {}
    for metric in from_source(source).values():
        read = [float(value) for launch in launches if _is_number(value := launch.get(metric.of))]
        if read:
            value = OVER_LAUNCHES[metric.over_launches](read)
            values[metric.column] = bytes_to_mb(value) if metric.is_in_bytes else value
    return values


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _verified(measurement: Measurement) -> Mapping[str, Json]:
    """What a launch's calls actually ran on; empty if the runtime does not report it."""
    verified = measurement.extra.get("verified")
    return verified if isinstance(verified, dict) else {}


def _verified_by_launch(measured: Sequence[Measurement], loads: Sequence[LaunchLoad]) -> list[Mapping[str, Json]]:
    """The verification of each launch: of the point, else of the launch's load."""
    of_load = {load.launch: load.verified for load in loads}
    return [{**of_load.get(one.launch, {}), **_verified(one)} for one in measured]


def _doubts(
    measurements: Sequence[Measurement],
    measured: Sequence[Measurement],
    statistics: Sequence[Statistics],
    loads: Sequence[LaunchLoad],
    context: Sequence[Doubt],
) -> tuple[Doubt, ...]:
    failures = {one.launch: one.error or one.status for one in measurements if one not in measured}
    weights = {load.launch: load.memory_bytes.get("weights_bytes") for load in loads}
    of_calls = [
        (one.launch, (*one.doubts, *_device_memory(one, weights.get(one.launch)), *doubts.about_calls(_verified(one))))
        for one in measured
    ]
    of_loads = [(load.launch, doubts.about_load(load.verified)) for load in loads]
    between = doubts.about_launches(statistics, failures)
    return (*doubts.merge([*of_calls, *of_loads], len(measured)), *between, *context)


def _device_memory(measurement: Measurement, weights_bytes: int | None) -> tuple[Doubt, ...]:
    return doubts.about_device_memory(measurement.metrics.get("device_allocated_peak_bytes"), weights_bytes)


def _reasons(measured: Sequence[Measurement], loads: Sequence[LaunchLoad], described: Iterable[str]) -> dict[str, str]:
    """Why columns are absent: the launches' own reasons, and limits from the number and kind of samples."""
    blocks = _inner_loops(measured)
    few = {metric.column: TOO_FEW_SAMPLES for name in described for metric in DESCRIBED[name]}
    why = f"{NOT_APPLICABLE}: timed in blocks of {blocks} calls"
    hidden = dict.fromkeys(OF_SINGLE_CALLS, why) if blocks > 1 else {}
    has_tokens = measured[0].extra.get("tokens_per_call")
    tokens = {} if has_tokens else {"throughput_tokens_per_sec": f"{NOT_APPLICABLE}: no tokens"}
    absent = {m.column: f"{NOT_APPLICABLE}: {m.not_applicable}" for m in METRICS.values() if m.not_applicable}
    stated = [one.missing for one in loads] + [one.missing for one in measured]
    by_column = {name: why for missing in stated for name, why in _by_column(missing).items()}
    return {**few, **hidden, **tokens, **absent, **by_column}


def _columns_of(name: str) -> tuple[str, ...]:
    """The columns computed from a raw metric or reading, or its own name if there are none."""
    derived = (metric for metric in METRICS.values() if metric.of == name and metric.source != "derived")
    return tuple(metric.column for metric in derived) or (name,)


def _by_column(missing: Mapping[str, str]) -> dict[str, str]:
    """Reasons by column, from the reasons of raw metrics and readings. Keys may also be columns."""
    return {column: why for name, why in missing.items() for column in _columns_of(name)}


def _complete(metrics: Mapping[str, float], reasons: Mapping[str, str], default: str = NOT_RUN) -> dict[str, str]:
    """A reason for every column without a value; a derived column takes the reason of its reading."""
    absent = dict.fromkeys((name for name in METRICS if name not in metrics), default)
    known = {name: why for name, why in reasons.items() if name not in metrics}
    derived = from_source("derived").items()
    of_readings = {name: known[one.of] for name, one in derived if name not in metrics and one.of in known}
    return {**absent, **of_readings, **known}


def _common(reasons: Sequence[str | None]) -> str | None:
    return reasons[0] if len(set(reasons)) == 1 else "mixed"


def _extra(
    measurements: Sequence[Measurement], measured: Sequence[Measurement], statistics: Sequence[Statistics]
) -> dict[str, Json]:
    """Stored in addition to the columns: each launch's statistics, window and single readings."""
    described = {id(one): asdict(each) for one, each in zip(measured, statistics, strict=True)}
    facts: list[Json] = []
    for one in measurements:
        facts.append({**_launch_facts(one), **({"statistics": described[id(one)]} if id(one) in described else {})})
    return {"launches": facts}


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
