"""A point profiled: calls with the profiler and without it in turns, so that what the profiler itself costs is known,
and a drift of the machine is in both.

With the device's measured peak rates each operator is limited by one of two: the time that its FLOPs take at the peak
of arithmetic, or that its bytes take at the peak of copying (the roofline model of Williams, Waterman and Patterson,
2009). What limits it is the longer of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarking.core.contracts import Operation
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.profiles import COMPUTE, MEMORY, Bound, Breakdown, CallProfile, CallProfiler, OperatorTime
from benchmarking.core.records import NOT_SUPPORTED
from benchmarking.measure.timing import Stopwatch, quiet_gc

WARM_UP_CALLS = 3
PAUSE_S = 0.005
"""Before each call: the threads of a runtime spin for a while after a call, and would take the processors from those of
the other side."""
COPY_RATE = "copy_bytes_per_sec"
"""Key of the measured rate of copies among the peaks; the others are precisions, with FLOP/s."""
NOT_CALIBRATED = (
    f"{NOT_SUPPORTED}: the device's peak rates were not measured: run_hardware_benchmark --calibrate-device"
)

Tokenize = Callable[[], float]
"""Makes the inputs of one call: the milliseconds it took."""


def profile_point(
    operation: Operation,
    handle: DeviceHandle,
    profiler: CallProfiler,
    num_runs: int,
    tokenize: Tokenize | None = None,
) -> CallProfile:
    """Rounds of a call without and one with the profiler, each first in every second round, after a warm-up of both."""
    watch = Stopwatch(operation, handle)
    watch.run(WARM_UP_CALLS)
    profiler.run(is_kept=False)
    plain, profiled_ns, tokenized = Stopwatch(operation, handle), list[int](), list[float]()
    with quiet_gc():
        for number in range(num_runs):
            tokenized += [] if tokenize is None else [tokenize()]
            for is_profiled in (bool(number % 2), not number % 2):
                handle.sleep(PAUSE_S)
                if is_profiled:
                    profiled_ns.append(profiler.run())
                else:
                    plain.run(1)
    return CallProfile(
        breakdown=profiler.breakdown(),
        latency_ms=tuple(plain.calls_ms),
        profiled_ms=tuple(map(ns_to_ms, profiled_ns)),
        tokenize_ms=tuple(tokenized),
    )


def with_bounds(
    breakdown: Breakdown, peaks: Mapping[str, float], precision: str, why_unknown: str = NOT_CALIBRATED
) -> Breakdown:
    """The operators with what limits them, as far as the peaks of the device are known; else why they are not."""
    flops_per_sec, bytes_per_sec = peaks.get(precision), peaks.get(COPY_RATE)
    if not flops_per_sec or not bytes_per_sec:
        return replace(breakdown, missing={**breakdown.missing, "bound": why_unknown})
    operators = tuple(replace(one, bound=bound(one, flops_per_sec, bytes_per_sec)) for one in breakdown.operators)
    return replace(breakdown, operators=operators)


def bound(operator: OperatorTime, flops_per_sec: float, bytes_per_sec: float) -> Bound | None:
    """What limits an operator; None where its bytes were not counted. An operator without a formula for its FLOPs does
    few a byte."""
    if operator.bytes_accessed is None:
        return None
    of_flops, of_bytes = (operator.flops or 0.0) / flops_per_sec, operator.bytes_accessed / bytes_per_sec
    return COMPUTE if of_flops > of_bytes else MEMORY
