"""The warm-up: calls with the point's exact shape until two consecutive windows are alike. With some profiles the two
windows count as the first calls of the latency pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import NS_PER_MS, NS_PER_S, LaunchFacts
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import Json
from benchmarking.measure.context import MIN_CALLS, MeasureContext, Settings
from benchmarking.measure.timing import PassStart, inner_loops_for, stopwatch

WINDOW_CALLS = 10
SLOW_WINDOW_CALLS = 5
SLOW_CALL_NS = NS_PER_S // 2
"""Longer calls use windows of 5; otherwise the warm-up would cost more than the measurement."""
SHORT_WINDOWS = (WINDOW_CALLS, SLOW_WINDOW_CALLS, MIN_CALLS)
"""Window sizes if steady windows count as timed calls: the first of which four fit into the maximum time, else the
last."""
MIN_TIME_S = 0.5
ACCELERATOR_MIN_TIME_S = 1.0
"""Minimum time on accelerators, whose clocks rise later than those of a CPU."""
GRACE = 10
"""Factor on the maximum number of calls before the minimum time is over, which short calls need to fill it."""
FIRST_CALL_IQR = 1.5
"""Interquartile ranges above the upper quartile (Tukey's inner fence): a longer first call still warms up."""
MAX_RELATIVE_CHANGE = 0.05
"""Largest difference between the medians and quartiles of two windows. A busy machine would never meet a lower
limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    calls: int
    """All calls, counting those in blocks individually."""
    steady: bool | None
    """None if the calls are too slow to decide, or their number was fixed."""
    started_at: str
    values_ms: tuple[float, ...]
    inner_loops: int
    """Calls per value in `values_ms`."""
    next_inner_loops: int
    """Calls per block for the latency pass."""
    extra: LaunchFacts
    pass_start: PassStart | None = None
    """The steady windows if they count as timed calls; they are not included in the calls above."""


def warm_up(context: MeasureContext, *, may_block: bool, first_call_ns: int) -> WarmUp:
    """Run calls until steady, or until the settings' limit. `may_block`: the calls may be timed in blocks."""
    fixed = context.settings.fixed_warmup_iterations
    started_at = utc_now()
    if fixed is not None:
        watch = stopwatch(context)
        watch.run(fixed)
        calls_ms = watch.calls_ms
        return WarmUp(
            calls=fixed,
            steady=None,
            started_at=started_at,
            values_ms=tuple(calls_ms),
            inner_loops=1,
            next_inner_loops=_next_inner_loops(calls_ms or [first_call_ns / NS_PER_MS], may_block),
            extra={},
        )
    context.live("warmup")
    search = SteadySearch(context)
    # The median of the first 3 calls, or the first call alone if it is too slow for windows that count.
    search.watch.run(1 if context.settings.counts_steady_warmup else MIN_CALLS)
    if not is_too_slow(context.settings, search.watch.block_ns[0]) and not context.settings.is_over:
        search.watch.run(MIN_CALLS - len(search.watch))
    call_ns = float(np.median(search.watch.block_ns))
    extra: LaunchFacts = {}
    calibration = 0
    inner_loops = inner_loops_for(call_ns) if may_block else 1
    if inner_loops > 1:
        calibration, extra["calibration_ms"] = len(search.watch), [*search.watch.calls_ms]
        search = SteadySearch(context, inner_loops)
    steady = search.run(call_ns)
    next_inner_loops = _next_inner_loops(search.watch.calls_ms, may_block)
    pass_start = search.steady_windows() if steady and next_inner_loops <= inner_loops else None
    watch = search.watch
    if pass_start is not None:
        extra["warmup_samples_counted"] = len(pass_start.watch)
    return WarmUp(
        calls=calibration + len(watch) * inner_loops,
        steady=steady,
        started_at=started_at,
        values_ms=tuple(watch.calls_ms),
        inner_loops=inner_loops,
        next_inner_loops=next_inner_loops,
        extra=extra,
        pass_start=pass_start,
    )


def is_too_slow(settings: Settings, call_ns: float) -> bool:
    """Whether even the shortest windows, if they count as timed calls, exceed the time of warm-up and timed calls."""
    limit_ns = (settings.warmup_max_time_s + settings.max_time_s) * NS_PER_S
    return settings.counts_steady_warmup and 2 * SHORT_WINDOWS[-1] * call_ns > limit_ns


def _next_inner_loops(calls_ms: Sequence[float], may_block: bool) -> int:
    return inner_loops_for(float(np.median(calls_ms[-WINDOW_CALLS:])) * NS_PER_MS) if may_block else 1


class SteadySearch:
    """Runs calls in windows until two consecutive windows are alike."""

    def __init__(self, context: MeasureContext, inner_loops: int = 1) -> None:
        self.watch = stopwatch(context, inner_loops)
        self._context = context
        self._counts = context.settings.counts_steady_warmup
        self._window = WINDOW_CALLS
        self._starts: list[tuple[int, int, PassStart]] = []
        """Of the last two windows that may count: the samples before them, the time spent, and the start."""
        self._start_window()

    def run(self, call_ns: float) -> bool | None:
        """True if two windows are alike, False at the limit, None if the limit comes before a second window."""
        if is_too_slow(self._context.settings, call_ns):
            return None
        context, watch, settings = self._context, self.watch, self._context.settings
        min_time_ns = (ACCELERATOR_MIN_TIME_S if context.handle.is_accelerator else MIN_TIME_S) * NS_PER_S
        max_time_ns = settings.warmup_max_time_s * NS_PER_S
        window = SLOW_WINDOW_CALLS if watch.spent_ns > len(watch) * SLOW_CALL_NS else WINDOW_CALLS
        if self._counts:
            room = max_time_ns / (call_ns * watch.inner_loops or 1)
            window = next((calls for calls in SHORT_WINDOWS if 4 * calls <= room), SHORT_WINDOWS[-1])
        window = self._window = window * context.operation.requests_in_flight
        least = 3 * window if self._counts else 0
        before = _footprint(context)
        while (watch.spent_ns < max_time_ns or len(watch) < least) and not settings.is_over:
            watch.run(window - len(watch) % window, max_time_ns if len(watch) >= least else math.inf)
            context.live("warmup", watch.calls_ms)
            after, values = _footprint(context), watch.calls_ms
            is_long_enough = watch.spent_ns >= min_time_ns
            are_whole = len(values) >= 2 * window and len(values) % window == 0
            if is_long_enough and are_whole and before == after and alike(values[-2 * window :]):
                return True
            if len(values) >= settings.warmup_max_calls * (1 if is_long_enough else GRACE):
                break
            before = after
            self._start_window()
        return False if len(watch) >= 2 * window else None

    def steady_windows(self) -> PassStart | None:
        """The last two windows, or as many calls as a fixed number allows, moved out of the warm-up."""
        fixed = self._context.settings.fixed_iterations
        least = 0 if fixed is None else len(self.watch) - fixed
        for count, spent_ns, start in self._starts:
            if count >= least:
                return replace(start, watch=self.watch.split(count, spent_ns))
        return None

    def _start_window(self) -> None:
        """Record the state before the next call, if its window may count."""
        if self._counts and len(self.watch) % self._window == 0:
            start = PassStart.now(self._context, self.watch)
            self._starts = [*self._starts[-1:], (len(self.watch), self.watch.spent_ns, start)]


def alike(values: Sequence[float]) -> bool:
    """Whether medians and quartiles of the two halves differ by at most 5 % and the first value is not a high
    outlier."""
    x = np.asarray(values, dtype=np.float64)
    earlier, later = (np.quantile(half, (0.25, 0.5, 0.75)) for half in np.split(x, 2))
    if (np.abs(later - earlier) > MAX_RELATIVE_CHANGE * earlier).any():
        return False
    q1, q3 = np.quantile(x, (0.25, 0.75))
    return bool(x[0] <= q3 + FIRST_CALL_IQR * (q3 - q1))


def _footprint(context: MeasureContext) -> tuple[int, Json]:
    """Values that still change during set-up: compilations and the device's peak memory."""
    return context.compiles(), context.handle.peak_memory().values.get("device_allocated_peak_bytes")
