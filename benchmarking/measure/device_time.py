"""Device time without the host: the time of a call's kernels, and throughput with queued calls.

Both are separate passes after the timed calls, on devices with a queue. A pair of events around a call counts gaps
between kernels as device time, since the first event is recorded before the first kernel reaches the empty queue. The
kernels' spans from a tracer exclude the gaps; the rest of the call's wall time belongs to the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from benchmarking.core.device_contracts import Span
from benchmarking.core.errors import first_line
from benchmarking.core.metrics import NS_PER_S, ns_to_ms, ns_to_s
from benchmarking.core.records import FAILED, NOT_APPLICABLE, NOT_SUPPORTED
from benchmarking.measure.context import MeasureContext
from benchmarking.measure.memory import PassResult, no_mark
from benchmarking.measure.timing import run_untimed

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
    if why_not is not None:
        return PassResult(missing={PIPELINED: why_not})
    context.live("pipeline")
    fixed = context.settings.fixed_iterations
    calls = fixed or min(MAX_QUEUED, max(MIN_QUEUED, math.ceil(ROUND_S * NS_PER_S / max(call_ns, 1))))
    seconds = [ns_to_s(_queued(context, calls)) for _ in range(ROUNDS)]
    if median(seconds) <= 0:
        return PassResult(missing={PIPELINED: f"{FAILED}: the clock did not advance"})
    rate = context.operation.items_per_call * calls / median(seconds)
    return PassResult(metrics={PIPELINED: rate}, extra={"pipelined_calls": calls, "pipelined_rounds_s": list(seconds)})


def _queued(context: MeasureContext, calls: int) -> int:
    """Nanoseconds until all of the queued calls are done."""
    operation, handle = context.operation, context.handle
    handle.synchronize()
    started = handle.now_ns()
    output: object = None
    for _ in range(calls):
        operation.reset()
        output = operation.run(no_mark)
    handle.synchronize()
    stopped = handle.now_ns()
    del output
    return stopped - started


def _inapplicable_reason(context: MeasureContext) -> str | None:
    """Why neither pass applies to these calls."""
    if context.operation.times_itself:
        return f"{NOT_APPLICABLE}: the call times itself"
    if context.operation.requests_in_flight > 1:
        return f"{NOT_APPLICABLE}: {context.operation.requests_in_flight} requests are already in flight"
    if context.settings.cold_cache:
        return f"{NOT_APPLICABLE}: with a cold cache the device also works on the flush between calls"
    return None
