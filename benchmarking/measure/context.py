"""The context of every measuring pass: the operation, the device, the settings, and progress reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import field

from benchmarking.core.contracts import Operation
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.measure.settings import Settings

CompileCount = Callable[[], int | None]
"""Returns the number of graphs or kernels that the runtime has compiled in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureContext:
    """One operation on one device, and the settings to measure it with."""

    operation: Operation
    handle: DeviceHandle
    settings: Settings
    live: Reporter = field(default_factory=lambda: Reporter(None))
    compile_count: CompileCount | None = None
    """None for a runtime that compiles nothing."""
    flush: Callable[[], None] | None = None
    """Empties the device's caches before each timed call; None for calls with warm caches."""

    def compiles(self) -> int:
        """Compilations so far; constant if nothing compiles."""
        return 0 if self.compile_count is None else self.compile_count() or 0

    def sleep(self, duration_s: float) -> None:
        """Wait, by the device handle's clock."""
        self.handle.sleep(duration_s)


MIN_INTERVAL_S = 0.25
"""Minimum time between reports: people read no faster, and each report wakes another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Progress of a point while it is measured."""

    phase: str
    """One of first_call, warmup, measure, cooldown, pipeline, energy, memory, monitor, count, trace."""
    calls: int
    """Timed samples so far in this phase."""
    elapsed_s: float
    """Time since the start of the point, by the machine's clock."""
    median_ms: float | None = None
    low_ms: float | None = None
    """95 % interval of the median, ignoring correlation; None with fewer than 6 samples."""
    high_ms: float | None = None


Report = Callable[[Live], None]


class Reporter:
    """Forwards reports: the first of each phase, then at most 4 per second. Does nothing without a receiver."""

    def __init__(self, report: Report | None, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock_s = clock_s
        self._start_s = clock_s()
        self._last_s = -MIN_INTERVAL_S
        self._phase = ""

    def __call__(self, phase: str, values_ms: Sequence[float] = ()) -> None:
        """Report the phase and its values so far. Must not be called inside a timed region."""
        elapsed_s = self._clock_s() - self._start_s
        if self._report is None or (phase == self._phase and elapsed_s - self._last_s < MIN_INTERVAL_S):
            return
        from benchmarking.core.sample_statistics import median_interval

        self._phase, self._last_s = phase, elapsed_s
        interval = median_interval(values_ms, tau=1.0)
        ordered = sorted(values_ms)
        self._report(
            Live(
                phase=phase,
                calls=len(ordered),
                elapsed_s=elapsed_s,
                median_ms=ordered[len(ordered) // 2] if ordered else None,
                low_ms=interval[0] if interval else None,
                high_ms=interval[1] if interval else None,
            )
        )
