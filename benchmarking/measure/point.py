"""One launch at one point, pass by pass: first call, warm-up, latency, queued calls, energy, memory, use, counting,
kernel time, compile time. For slow calls on a CPU, the memory and usage passes serve as the warm-up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from statistics import median
from typing import Any

from benchmarking.core.contracts import NOT_AS_REQUESTED, NOT_VERIFIED, Operation
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import UnsupportedError, UsageError, first_line, is_device_lost, is_out_of_memory
from benchmarking.core.launch_facts import LaunchFacts
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import ns_to_ms, ns_to_s
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import (
    NOT_APPLICABLE,
    NOT_SUPPORTED,
    Device,
    Doubt,
    Json,
    Measurement,
    Phase,
    Point,
    Readings,
    Samples,
)
from benchmarking.measure import doubt_rules
from benchmarking.measure.context import CompileCount, MeasureContext, Report, Reporter, Settings
from benchmarking.measure.device_time import host_gap_pass, pipelined_pass
from benchmarking.measure.energy import energy_pass
from benchmarking.measure.latency import LatencyPass, WarmUp, is_too_slow, latency_pass, warm_up, warmed_up
from benchmarking.measure.memory import PassResult
from benchmarking.measure.monitor import UsagePass, memory_and_usage
from benchmarking.measure.timing import (
    LATENCY_WALL,
    Series,
    Stopwatch,
    check_requests,
    check_tokens,
    phase_reasons,
    phase_series,
    quiet_gc,
    self_timed_reasons,
    self_timed_series,
    settings_in_flight,
    token_reasons,
    token_series,
)

THROTTLING_KINDS = frozenset({"throttle_reason", "violation_time", "low_clock"})
"""Doubts about throttling by heat or power, which a pause may end; a CPU quota is not included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOutput:
    """The comparison of an output with the reference."""

    result: PassResult = field(default_factory=PassResult)
    doubts: tuple[Doubt, ...] = ()


OutputCheck = Callable[[Mapping[str, Any]], CheckedOutput]
"""Compares a call's output, given as arrays by name, with the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCall:
    """The first call at a point, synchronized."""

    wall_ns: int
    compiles: int
    """Compilations during it."""
    problem: str | None
    """The problem that the operation finds in the output."""
    readings: PassResult
    """The operation's other readings."""
    series: Series
    """The readings that are raw samples, in ms."""
    has_marks: bool
    correctness: CheckedOutput


def measure_point(
    operation: Operation,
    handle: DeviceHandle,
    point: Point,
    launch: int,
    settings: Settings,
    *,
    device: Device | None = None,
    report: Report | None = None,
    compile_count: CompileCount | None = None,
    check: OutputCheck | None = None,
) -> Measurement:
    """One launch's measurement of one point: raw samples, single readings, counters and doubts.

    `report` receives `Live` records, never inside a timed region; `compile_count` returns the runtime's compilations so
    far; `check` compares the first call's output with the reference; `device` is the device to monitor. Raises
    BenchhouseError if the number of requests or tokens differs from the requested one. Exceptions of the operation pass
    through.
    """
    check_requests(operation, point, settings)
    settings = settings_in_flight(settings, operation.requests_in_flight)
    context = MeasureContext(
        operation=operation, handle=handle, settings=settings, live=Reporter(report), compile_count=compile_count
    )
    started_at = utc_now()
    first = _first_call(context, check)
    slow = _slow_calls(context, device, launch, first)
    with _cold_caches(context) as (timed, cold), quiet_gc():
        # Calls that mark phases, time themselves, have a fixed number or need a flush before each have no blocks.
        has_parts = operation.new_tokens is not None or first.has_marks or operation.times_itself
        has_parts = has_parts or operation.requests_in_flight > 1 or timed.flush is not None
        may_block = not has_parts and settings.fixed_iterations is None
        warm = slow.warm if slow else warm_up(timed, may_block=may_block, first_call_ns=first.wall_ns)
        passes = _latency_passes(timed, warm)
    latency = passes[-1]
    call_ns = median(latency.watch.block_ns) / latency.watch.inner_loops
    pipelined = pipelined_pass(context, call_ns)
    energy = energy_pass(context)
    memory, usage = slow.passes if slow else memory_and_usage(context, device, launch, latency.watch.spent_ns)
    counted = PassResult()
    if launch == 0:  # counting is slow, and its result constant
        context.live("count")
        counted = _numbers(operation.count())
    passed = (pipelined, energy, memory, usage.result, counted, host_gap_pass(context, launch, call_ns))
    verified, ends = _read_back(operation)
    result = _merge(
        first.readings,
        first.correctness.result,
        *passed,
        compile_pass(context, first.wall_ns, first.compiles, latency, verified),
    )
    result = _merge(result, _custom_metrics(operation, result))
    times = latency.watch
    absent = token_reasons(operation.new_tokens, streams=operation.streams)
    if not times.device_ns:
        absent["latency_device"] = f"{NOT_SUPPORTED}: {handle.why_no_timer}"
    if operation.times_itself and not operation.marks_itself:
        absent = self_timed_reasons(times)
    return Measurement(
        point=point,
        launch=launch,
        status="ok",
        started_at=started_at,
        finished_at=utc_now(),
        samples=(
            *_samples(warm, latency, launch, operation),
            *(_sample_series(name, values, launch, "measure", started_at, 1) for name, values in first.series.items()),
            *usage.samples,
        ),
        first_call_ms=ns_to_ms(first.wall_ns),
        warmup_calls=warm.calls,
        steady=warm.steady,
        stop_reason=latency.stop_reason,
        relative_half_width=latency.relative_half_width,
        metrics=result.metrics,
        missing={**result.missing, **absent, **phase_reasons(phase_series(times))},
        window=latency.window,
        doubts=(
            *doubt_rules.about_output(first.problem),
            *first.correctness.doubts,
            *doubt_rules.about_clock(timed_by_itself=operation.times_itself),
            *doubt_rules.about_claims(operation.claimed_ms()),
            *doubt_rules.about_warm_up(warm.steady, warm.calls),
            *_doubts(context, latency),
        ),
        extra={**_facts(context, passes), **cold, **warm.extra, **result.extra, **ends},
    )


@contextmanager
def _cold_caches(context: MeasureContext) -> Iterator[tuple[MeasureContext, LaunchFacts]]:
    """The context of the timed calls, with a flush between calls for cold caches, and facts about the flush. The memory
    of the flush is released before the memory pass."""
    if not context.settings.cold_cache:
        yield context, {}
        return
    with context.handle.cold_cache() as cold:
        yield replace(context, flush=cold.flush), {"cold_cache_bytes": cold.size_bytes}


def _first_call(context: MeasureContext, check: OutputCheck | None) -> FirstCall:
    context.live("first_call")
    compiles = context.compiles()
    watch = Stopwatch(context.operation, context.handle)
    output = watch.run(1)
    check_tokens(watch, context.operation.new_tokens, streams=context.operation.streams)
    readings = context.operation.readings(output)
    return FirstCall(
        wall_ns=watch.block_ns[0],
        compiles=context.compiles() - compiles,
        problem=context.operation.problem(output),
        readings=_numbers(readings),
        series={name: tuple(map(float, value)) for name, value in readings.values.items() if isinstance(value, list)},
        has_marks=bool(watch.marks),
        correctness=CheckedOutput() if check is None else check(context.operation.arrays(output)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowCalls:
    """The calls of the memory and usage passes, if they also serve as the warm-up."""

    passes: tuple[PassResult, UsagePass]
    warm: WarmUp


def _slow_calls(context: MeasureContext, device: Device | None, launch: int, first: FirstCall) -> SlowCalls | None:
    """Run the memory and usage passes before the timed calls if the warm-up would be a single call of several seconds
    that reveals nothing; else None. On accelerators these calls do not keep the device busy enough for a warm-up."""
    settings = context.settings
    is_fixed = settings.fixed_warmup_iterations is not None or settings.fixed_iterations is not None
    if is_fixed or settings.cold_cache or context.handle.is_accelerator or not is_too_slow(settings, first.wall_ns):
        return None
    started_at, begin_ns = utc_now(), context.handle.now_ns()
    passes = memory_and_usage(context, device, launch, math.inf)
    calls = passes[0].extra["memory_calls"]
    if not is_too_slow(settings, (context.handle.now_ns() - begin_ns) / max(1, calls)):
        return None  # only the first call was slow: it compiled or read from disk
    return SlowCalls(passes=passes, warm=warmed_up(calls, started_at))


def _custom_metrics(operation: Operation, measured: PassResult) -> PassResult:
    """The operation's own numbers, with units and directions in the details. Raises UsageError for duplicate names and
    for names of built-in readings."""
    given = operation.metrics()
    names = [metric.name for metric in given]
    for name in names:
        if name in measured.metrics or names.count(name) > 1:
            why = "is a built-in reading" if name in measured.metrics else "is used twice"
            raise UsageError(f"metrics(): {name} {why}: choose another name")
    if not given:
        return PassResult()
    definitions: dict[str, Json] = {metric.name: {"unit": metric.unit, "better": metric.better} for metric in given}
    return PassResult(
        metrics={metric.name: float(metric.value) for metric in given}, extra={"custom_metrics": definitions}
    )


def _numbers(readings: Readings) -> PassResult:
    """Readings as the result of a pass: the numbers, and reasons for missing ones."""
    values = {name: float(value) for name, value in readings.values.items() if isinstance(value, int | float)}
    return PassResult(metrics=values, missing=dict(readings.missing))


def _latency_passes(context: MeasureContext, warm: WarmUp) -> list[LatencyPass]:
    """The latency pass, and a second one after a pause if heat or power throttled the first."""
    first = latency_pass(context, warm.next_inner_loops, warm.pass_start)
    if not THROTTLING_KINDS & {doubt.kind for doubt in _doubts(context, first)}:
        return [first]
    context.live("cooldown")
    context.sleep(context.settings.cooldown_s)
    return [first, latency_pass(context, warm.next_inner_loops)]


def _doubts(context: MeasureContext, latency: LatencyPass) -> tuple[Doubt, ...]:
    return (
        *doubt_rules.about_window(latency.window, is_accelerator=context.handle.is_accelerator),
        *doubt_rules.about_samples(latency.watch.calls_ms),
        *doubt_rules.about_stop(
            latency.stop_reason, latency.relative_half_width, context.settings.target_relative_half_width
        ),
    )


def _samples(warm: WarmUp, latency: LatencyPass, launch: int, operation: Operation) -> tuple[Samples, ...]:
    """The raw samples of the warm-up and the latency pass."""
    watch = latency.watch
    samples: list[Samples] = []
    if warm.values_ms:
        samples.append(
            _sample_series(LATENCY_WALL, warm.values_ms, launch, "warmup", warm.started_at, warm.inner_loops)
        )
    series: dict[str, tuple[float, ...]] = {LATENCY_WALL: tuple(watch.calls_ms)}
    if watch.device_ns:
        series["latency_device"] = tuple(watch.device_ms)
    series |= {
        **token_series(watch, operation.new_tokens, streams=operation.streams),
        **phase_series(watch),
        **self_timed_series(watch),
    }
    started_at, loops = latency.started_at, watch.inner_loops
    samples += [_sample_series(name, values, launch, "measure", started_at, loops) for name, values in series.items()]
    return tuple(samples)


def _sample_series(
    metric: str, values: tuple[float, ...], launch: int, phase: Phase, started_at: str, inner_loops: int
) -> Samples:
    return Samples(
        launch=launch,
        phase=phase,
        metric=metric,
        unit="ms",
        started_at=started_at,
        values=values,
        inner_loops=inner_loops,
    )


def _facts(context: MeasureContext, passes: list[LatencyPass]) -> LaunchFacts:
    """The amount of work in a call, from which rates are computed; with several requests in flight, the wall time of
    all timed ones, the denominator of the throughput; and a throttled pass that was repeated."""
    operation, latency = context.operation, passes[-1]
    facts: LaunchFacts = {
        "items_per_call": operation.items_per_call,
        "tokens_per_call": operation.tokens_per_call,
        "prompt_tokens_per_call": operation.prompt_tokens_per_call,
        "new_tokens": operation.new_tokens,
    }
    if operation.requests_in_flight > 1:
        facts["requests_wall_ms"] = ns_to_ms(latency.watch.spent_ns)
        facts["requests_in_flight"] = operation.requests_in_flight
    for throttled in passes[:-1]:
        facts["throttled_try"] = {
            "latency_wall_ms": list(throttled.watch.calls_ms),
            "window": dict(throttled.window),
            "doubts": [doubt.kind for doubt in _doubts(context, throttled)],
            "cooldown_s": context.settings.cooldown_s,
        }
    return facts


def _merge(*results: PassResult) -> PassResult:
    metrics: dict[str, float] = {}
    missing: dict[str, str] = {}
    extra: LaunchFacts = {}
    for result in results:
        metrics |= result.metrics
        missing |= result.missing
        extra |= result.extra
    return PassResult(
        metrics=metrics, missing={name: why for name, why in missing.items() if name not in metrics}, extra=extra
    )


def _read_back(operation: Operation) -> tuple[Mapping[str, Json], LaunchFacts]:
    """What the calls actually ran on, and whether the process can measure more points.

    Everything is measured at this stage, so an error becomes a fact of the point: the calls were not as requested
    (UnsupportedError), or that could not be verified."""
    try:
        return operation.verified(), {}
    except Exception as error:  # noqa: BLE001 - a profiler may raise anything; only the check is lost
        if isinstance(error, UnsupportedError):
            return {NOT_AS_REQUESTED: str(error)}, {}
        ends: LaunchFacts = {}
        if is_out_of_memory(error):
            ends["out_of_memory"] = True
        if is_device_lost(error):
            ends["device_lost"] = True
        return {NOT_VERIFIED: f"{type(error).__name__}: {first_line(error)}"}, ends


SECONDS, STATE = "compile_s", "compile_cache"
"""Keys of `verified`: compile time by the runtime's own clock, and whether its cache was cold or warm."""


def compile_pass(
    context: MeasureContext, first_call_ns: int, first_compiles: int, latency: LatencyPass, verified: Mapping[str, Json]
) -> PassResult:
    """`compile_s`, also stored as `compile_cold_s` or `compile_warm_s` with what was `verified`.

    If the runtime does not report it, it is the first call minus a steady one: an upper bound, marked as such.
    """
    if context.compile_count is None:
        return _without("nothing is compiled", verified)
    runtime_s = verified.get(SECONDS)
    if isinstance(runtime_s, int | float):
        seconds, method = float(runtime_s), "counter"
    else:
        steady_ns = median(latency.watch.block_ns) / latency.watch.inner_loops
        seconds, method = ns_to_s(first_call_ns - steady_ns) if first_compiles else 0.0, "upper_bound"
    if seconds <= 0:
        return _without("the first call compiled nothing", verified)
    state = verified.get(STATE)
    by_state = {} if state is None else {f"compile_{state}_s": seconds}
    extra: LaunchFacts = {"compile_method": method, **_verified({**verified, **by_state})}
    return PassResult(metrics={SECONDS: seconds}, extra=extra)


def _without(why: str, verified: Mapping[str, Json]) -> PassResult:
    return PassResult(missing={SECONDS: f"{NOT_APPLICABLE}: {why}"}, extra=_verified(verified))


def _verified(verified: Mapping[str, Json]) -> LaunchFacts:
    return {"verified": dict(verified)} if verified else {}
