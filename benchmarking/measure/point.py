"""One launch at one point, pass by pass: first call, warm-up, latency, queued calls, energy, memory, use, counting,
kernel time, compile time. For slow calls on a CPU, the memory and usage passes serve as the warm-up.

Device time without the host is the time of a call's kernels, and throughput with queued calls. Both are separate passes
after the timed calls, on devices with a queue. A pair of events around a call counts gaps between kernels as device
time, since the first event is recorded before the first kernel reaches the empty queue. The kernels' spans from a
tracer exclude the gaps; the rest of the call's wall time belongs to the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from statistics import fmean, median
from typing import Any

from benchmarking.core.contracts import NOT_AS_REQUESTED, NOT_VERIFIED, Operation
from benchmarking.core.device_contracts import DeviceHandle, Span
from benchmarking.core.errors import UnsupportedError, UsageError, first_line, is_device_lost, is_out_of_memory
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import LATENCY_WALL, NS_PER_S, STATED_PER_TOKEN, LaunchFacts, ns_to_ms, ns_to_s
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import (
    FAILED,
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
from benchmarking.measure.energy import energy_pass
from benchmarking.measure.memory import PassResult
from benchmarking.measure.monitor import memory_and_usage
from benchmarking.measure.timing import (
    LatencyPass,
    Series,
    Stopwatch,
    check_requests,
    check_tokens,
    latency_pass,
    no_mark,
    phase_reasons,
    phase_series,
    quiet_gc,
    run_untimed,
    self_timed_reasons,
    settings_in_flight,
    token_reasons,
    token_series,
)
from benchmarking.measure.warm_up import WarmUp, is_too_slow, warm_up

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
        # Calls that mark phases, time themselves, have a fixed number or need a flush or reset before each have no
        # blocks.
        has_parts = operation.new_tokens is not None or first.has_marks or operation.times_itself
        has_parts = has_parts or operation.keeps_state
        has_parts = has_parts or operation.requests_in_flight > 1 or timed.flush is not None
        may_block = not has_parts and settings.fixed_iterations is None
        warm = slow[0] if slow else warm_up(timed, may_block=may_block, first_call_ns=first.wall_ns)
        passes = _latency_passes(timed, warm)
    latency = passes[-1]
    call_ns = median(latency.watch.block_ns) / latency.watch.inner_loops
    pipelined = pipelined_pass(context, call_ns)
    energy = energy_pass(context)
    memory, usage = slow[1] if slow else memory_and_usage(context, device, launch, latency.watch.spent_ns)
    counted = PassResult()
    if launch == 0:  # counting is slow, and its result constant
        context.live("count")
        counted = _numbers(operation.count())
    passed = (pipelined, energy, memory, usage, counted, host_gap_pass(context, launch, call_ns))
    verified, ends = _read_back(operation)
    result = _merge(
        first.readings,
        first.correctness.result,
        *passed,
        compile_pass(context, first.wall_ns, first.compiles, latency, verified),
    )
    result = _merge(result, _custom_metrics(operation, result))
    times = latency.watch
    facts = _facts(context, passes)
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
            *doubt_rules.about_tokens(point, operation.tokens_per_call, facts["tokens_per_call"]),
            *doubt_rules.about_warm_up(warm.steady, warm.calls),
            *_doubts(context, latency),
        ),
        extra={**facts, **cold, **warm.extra, **result.extra, **ends},
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


def _slow_calls(
    context: MeasureContext, device: Device | None, launch: int, first: FirstCall
) -> tuple[WarmUp, tuple[PassResult, PassResult]] | None:
    """Run the memory and usage passes before the timed calls, as the warm-up, if that would be a single call of several
    seconds that reveals nothing; else None. On accelerators these calls do not keep the device busy enough for a
    warm-up."""
    settings = context.settings
    is_fixed = settings.fixed_warmup_iterations is not None or settings.fixed_iterations is not None
    if is_fixed or settings.cold_cache or context.handle.is_accelerator or not is_too_slow(settings, first.wall_ns):
        return None
    started_at, begin_ns = utc_now(), context.handle.now_ns()
    passes = memory_and_usage(context, device, launch, math.inf)
    calls = passes[0].extra["memory_calls"]
    if not is_too_slow(settings, (context.handle.now_ns() - begin_ns) / max(1, calls)):
        return None  # only the first call was slow: it compiled or read from disk
    warm = WarmUp(
        calls=calls, steady=None, started_at=started_at, values_ms=(), inner_loops=1, next_inner_loops=1, extra={}
    )
    return warm, passes


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
    context.handle.sleep(context.settings.cooldown_s)
    return [first, latency_pass(context, warm.next_inner_loops)]


def _doubts(context: MeasureContext, latency: LatencyPass) -> tuple[Doubt, ...]:
    is_accelerator = context.handle.is_accelerator
    return (
        *doubt_rules.about_window(latency.window, is_accelerator=is_accelerator),
        *doubt_rules.about_samples(
            latency.watch.calls_ms,
            context.operation.requests_in_flight,
            inner_loops=latency.watch.inner_loops,
            is_accelerator=is_accelerator,
        ),
        *doubt_rules.about_stop(
            latency.stop_reason, latency.relative_half_width, context.settings.target_relative_half_width
        ),
    )


def _samples(warm: WarmUp, latency: LatencyPass, launch: int, operation: Operation) -> tuple[Samples, ...]:
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
        **{name: tuple(map(ns_to_ms, values)) for name, values in watch.own_ns.items()},
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


def _tokens_per_call(operation: Operation, watch: Stopwatch) -> float | None:
    """The tokens of a call: those requested, or the mean of those that the calls state; None if only some do."""
    if (stated_ns := watch.own_ns.get(STATED_PER_TOKEN)) is None:
        return operation.tokens_per_call
    if len(stated_ns) != len(watch):
        return None
    mean = fmean(call_ns / each_ns for call_ns, each_ns in zip(watch.block_ns, stated_ns, strict=True))
    return round(mean) if math.isclose(mean, round(mean), rel_tol=1e-3) else mean


def _facts(context: MeasureContext, passes: list[LatencyPass]) -> LaunchFacts:
    """The amount of work in a call, from which rates are computed; with several requests in flight, the wall time of
    all timed ones, the denominator of the throughput; and a throttled pass that was repeated."""
    operation, latency = context.operation, passes[-1]
    facts: LaunchFacts = {
        "items_per_call": operation.items_per_call,
        "tokens_per_call": _tokens_per_call(operation, latency.watch),
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
    runtime_s, state = verified.get(SECONDS), verified.get(STATE)
    seconds, method, why_not = 0.0, "upper_bound", "the first call compiled nothing"
    if context.compile_count is None:
        why_not = "nothing is compiled"
    elif isinstance(runtime_s, int | float):
        seconds, method = float(runtime_s), "counter"
    elif first_compiles:
        seconds = ns_to_s(first_call_ns - median(latency.watch.block_ns) / latency.watch.inner_loops)
    if seconds > 0 and state is not None:
        verified = {**verified, f"compile_{state}_s": seconds}
    extra: LaunchFacts = {"verified": dict(verified)} if verified else {}
    if seconds <= 0:
        return PassResult(missing={SECONDS: f"{NOT_APPLICABLE}: {why_not}"}, extra=extra)
    return PassResult(metrics={SECONDS: seconds}, extra={"compile_method": method, **extra})


HOST_GAP = "host_gap_ms"
TRACED_CALLS = 3
LONG_CALL_NS = NS_PER_S // 10
"""Longer calls are traced once: generating many tokens launches hundreds of thousands of kernels, with a kilobyte of
trace for each."""

PIPELINED = "throughput_pipelined"
ROUNDS = 3
"""Rounds, of which the median is taken."""
ROUND_S = 0.5
MIN_QUEUED, MAX_QUEUED = 10, 10_000
"""Calls in a round: with fewer, the ends of the round would weigh more than a tenth; more only use host memory."""


def host_gap_pass(context: MeasureContext, launch: int, call_ns: float) -> PassResult:
    """`host_gap_ms`: the wall time of a call (`call_ns`) minus the time in which any kernel or copy ran. Measured in
    the first launch only, since a tracer stays attached to its process."""
    tracer = context.handle.tracer()
    why_not = _inapplicable_reason(context)
    if why_not is None and not context.handle.is_accelerator:
        why_not = f"{NOT_APPLICABLE}: the host is the device"
    if why_not is not None or tracer is None:
        return PassResult(missing={HOST_GAP: why_not or f"{NOT_SUPPORTED}: no kernel tracer for this device"})
    if launch > 0:
        return PassResult()
    context.live("trace")
    calls = 1 if call_ns > LONG_CALL_NS else TRACED_CALLS

    def traced_calls() -> None:
        for _ in range(calls):
            run_untimed(context, 1)
            context.handle.synchronize()

    try:
        spans = tracer.spans(traced_calls)
    except Exception as error:  # noqa: BLE001 - a profiler may raise anything; only this metric is lost
        return PassResult(missing={HOST_GAP: f"{FAILED}: {first_line(error)}"})
    busy_ns = covered_ns(spans) / calls
    # A tracer may slow kernels down a little, so a device that never waits could show a negative gap.
    gap_ms = ns_to_ms(max(0.0, call_ns - busy_ns))
    kernels = len(spans) / calls
    return PassResult(
        metrics={HOST_GAP: gap_ms},
        extra={"traced_calls": calls, "kernel_ms_per_call": ns_to_ms(busy_ns), "kernels_per_call": kernels},
    )


def covered_ns(spans: Iterable[Span]) -> float:
    """The time covered by at least one span: kernels of several streams overlap."""
    total, end = 0.0, -math.inf
    for begin, until in sorted(spans):
        total += max(0.0, until - max(begin, end))
        end = max(end, until)
    return total


def pipelined_pass(context: MeasureContext, call_ns: float) -> PassResult:
    """`throughput_pipelined`: items per second when calls are queued one after another with a single wait at the end.
    `call_ns` is the wall time of a synchronized call."""
    why_not = _inapplicable_reason(context)
    if why_not is None and not context.handle.has_queue:
        why_not = f"{NOT_APPLICABLE}: calls are synchronous, so there is no queue"
    if why_not is None and context.operation.new_tokens is not None:
        why_not = f"{NOT_APPLICABLE}: each generated token waits for the device"
    if why_not is None and context.operation.keeps_state:
        why_not = f"{NOT_APPLICABLE}: the arguments are restored before each call"
    if why_not is not None:
        return PassResult(missing={PIPELINED: why_not})
    context.live("pipeline")
    fixed = context.settings.fixed_iterations
    calls = fixed or min(MAX_QUEUED, max(MIN_QUEUED, math.ceil(ROUND_S * NS_PER_S / max(call_ns, 1))))
    operation, handle, seconds = context.operation, context.handle, list[float]()
    for _ in range(ROUNDS):
        handle.synchronize()
        started = handle.now_ns()
        output: object = None
        for _ in range(calls):
            operation.reset()
            output = operation.run(no_mark)
        handle.synchronize()
        seconds.append(ns_to_s(handle.now_ns() - started))
        del output
    if median(seconds) <= 0:
        return PassResult(missing={PIPELINED: f"{FAILED}: the clock did not advance"})
    rate = operation.items_per_call * calls / median(seconds)
    return PassResult(metrics={PIPELINED: rate}, extra={"pipelined_calls": calls, "pipelined_rounds_s": [*seconds]})


def _inapplicable_reason(context: MeasureContext) -> str | None:
    """Why neither pass applies to these calls."""
    if context.operation.times_itself:
        return f"{NOT_APPLICABLE}: the call times itself"
    if context.operation.requests_in_flight > 1:
        return f"{NOT_APPLICABLE}: {context.operation.requests_in_flight} requests are already in flight"
    if context.settings.cold_cache:
        return f"{NOT_APPLICABLE}: with a cold cache the device also works on the flush between calls"
    return None
