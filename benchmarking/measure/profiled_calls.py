"""Profiles a point: calls with and without the profiler alternate, which reveals the profiler's overhead and spreads
any drift of the machine over both.

With the device's measured peak rates, each operator is bound by arithmetic or by memory: the longer of the time for its
FLOPs at the arithmetic peak and the time for its bytes at the copy peak (the roofline model of Williams, Waterman and
Patterson, 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarking.core.contracts import Operation
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.profiles import COMPUTE, MEMORY, Bound, Breakdown, CallProfile, CallProfiler, OperatorTime
from benchmarking.core.records import NOT_SUPPORTED
from benchmarking.measure.doubts import about_profiler, about_samples, about_window
from benchmarking.measure.noise import Window
from benchmarking.measure.timing import Stopwatch, quiet_gc

WARM_UP_CALLS = 3
PAUSE_S = 0.005
"""Pause before each call: a runtime's threads spin for a while after a call and would compete with those of the other
side."""
COPY_RATE = "copy_bytes_per_sec"
"""Key of the measured copy rate among the peaks; the other keys are precisions, with FLOP/s."""
NOT_CALIBRATED = f"{NOT_SUPPORTED}: the device's peak rates were not measured: benchhouse run --calibrate-device"

Tokenize = Callable[[], float]
"""Makes the inputs of one call and returns the milliseconds it took."""


def profile_point(
    operation: Operation,
    handle: DeviceHandle,
    profiler: CallProfiler,
    num_runs: int,
    tokenize: Tokenize | None = None,
) -> CallProfile:
    """Rounds of one call without and one with the profiler, in alternating order, after a warm-up of both."""
    watch = Stopwatch(operation, handle)
    watch.run(WARM_UP_CALLS)
    profiler.run(is_kept=False)
    plain, profiled_ns, tokenized = Stopwatch(operation, handle), list[int](), list[float]()
    noise = Window(handle, processes=operation.process_ids())
    with quiet_gc():
        for number in range(num_runs):
            tokenized += [] if tokenize is None else [tokenize()]
            for is_profiled in (bool(number % 2), not number % 2):
                handle.sleep(PAUSE_S)
                if is_profiled:
                    profiled_ns.append(profiler.run())
                else:
                    plain.run(1)
            noise.sample()
    window, profiled_ms = noise.close(), tuple(map(ns_to_ms, profiled_ns))
    return CallProfile(
        breakdown=profiler.breakdown(),
        latency_ms=tuple(plain.calls_ms),
        profiled_ms=profiled_ms,
        tokenize_ms=tuple(tokenized),
        window=window,
        doubts=(
            *about_samples(plain.calls_ms),
            *about_window(window, is_accelerator=handle.is_accelerator),
            *about_profiler(plain.calls_ms, profiled_ms),
        ),
    )


def with_bounds(
    breakdown: Breakdown, peaks: Mapping[str, float], precision: str, why_unknown: str = NOT_CALIBRATED
) -> Breakdown:
    """The operators with their bounds as far as the device's peaks are known, else the reason."""
    flops_per_sec, bytes_per_sec = peaks.get(precision), peaks.get(COPY_RATE)
    if not flops_per_sec or not bytes_per_sec:
        return replace(breakdown, missing={**breakdown.missing, "bound": why_unknown})
    operators = tuple(replace(one, bound=bound(one, flops_per_sec, bytes_per_sec)) for one in breakdown.operators)
    return replace(breakdown, operators=operators)


def bound(operator: OperatorTime, flops_per_sec: float, bytes_per_sec: float) -> Bound | None:
    """What limits an operator; None if its bytes were not counted. Operators without a FLOP formula do few FLOPs per
    byte."""
    if operator.bytes_accessed is None:
        return None
    of_flops, of_bytes = (operator.flops or 0.0) / flops_per_sec, operator.bytes_accessed / bytes_per_sec
    return COMPUTE if of_flops > of_bytes else MEMORY
