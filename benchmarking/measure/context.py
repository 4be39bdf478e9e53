"""How a point is measured: the settings, by profile and by the flags that change it, and the context of every pass (the
operation, the device, the settings, and progress reports).

The profile quick (the default) is for a first impression, standard for comparisons, reference for published numbers.
Imports nothing heavy, because the supervisor uses it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Literal

from benchmarking.core.contracts import Operation
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.quality import QualitySettings
from benchmarking.core.sample_statistics import median_interval

MIN_CALLS = 3
"""With fewer calls there is neither a median nor a spread."""

ProfileName = Literal["quick", "standard", "reference"]
COLD_CACHE = "cold_cache"
"""Key in a cell's runtime mode for calls with cold caches; absent for warm caches."""
DEFAULT_PROFILE: ProfileName = "quick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that controls the measurement of a point in one launch; only `launches` controls the sweep."""

    profile: ProfileName = "standard"
    launches: int = 3
    target_relative_half_width: float = 0.02
    """Target for the 95 % confidence interval of the median within a launch."""
    min_samples: int = 30
    max_samples: int = 960
    min_time_s: float = 1.0
    max_time_s: float = 20.0
    """Measured time per point and launch."""
    min_calls: int = MIN_CALLS
    """Minimum number of timed calls per point and launch, even past `max_time_s`; fewer if the budget is too small."""
    accelerator_min_time_s: float = 5.0
    """Replaces `min_time_s` on accelerators, whose clocks fall as they heat up."""
    fixed_iterations: int | None = None
    """Exact number of timed calls (stop_reason fixed); None to stop at the target or a limit."""
    fixed_warmup_iterations: int | None = None
    """Exact number of warm-up calls; None to stop when steady."""
    warmup_max_calls: int = 300
    warmup_max_time_s: float = 30.0
    counts_steady_warmup: bool = False
    """Whether the warm-up's windows count as timed calls once they are steady. They are then shorter, too: for calls
    that are slow relative to the limits, a separate warm-up would cost more than the measurement."""
    budget_s: float | None = None
    """Time for all points of a launch, from the start of its process; limits of slow points are shortened to keep it.
    None for no limit."""
    deadline_s: float | None = None
    """Time, by the monotonic clock, after which a point ends with the calls that it has, at least one; None for none.
    Set by the budget."""
    memory_calls: int = 5
    """Calls in the memory pass if peaks are sampled; a high-water mark has no gaps and needs a single call."""
    monitor_s: float = 2.0
    """Duration of the calls during which the device's use is sampled; 0 for none."""
    energy_window_s: float = 5.0
    energy_windows: int = 3
    cooldown_s: float = 15.0
    """Pause before repeating (once) a latency pass that was throttled by heat or power."""
    point_per_process: bool = False
    """Whether every point gets a fresh worker process: for clean memory peaks, and for torch.compile."""
    cold_cache: bool = False
    """Whether the last-level cache is emptied before each timed call."""
    seed: int = 0
    quality: QualitySettings | None = None
    """What the quality of the model is measured on, once per run; None for no measure of quality."""

    @property
    def is_over(self) -> bool:
        return self.left_s <= 0

    @property
    def left_s(self) -> float:
        """Seconds to the deadline, negative after it; infinite for none."""
        return math.inf if self.deadline_s is None else self.deadline_s - time.monotonic()

    @property
    def mode(self) -> dict[str, bool]:
        """The settings that distinguish a series, added to the runtime's mode."""
        return {COLD_CACHE: True} if self.cold_cache else {}


PROFILES: dict[ProfileName, Settings] = {
    "quick": Settings(
        profile="quick",
        launches=1,
        target_relative_half_width=0.05,
        min_samples=10,
        max_samples=200,
        min_time_s=0.5,
        max_time_s=5.0,
        min_calls=5,
        accelerator_min_time_s=2.0,
        warmup_max_time_s=3.0,
        counts_steady_warmup=True,
        budget_s=150.0,
        energy_windows=1,
        monitor_s=0.5,
    ),
    "standard": Settings(),
    "reference": Settings(
        profile="reference",
        launches=5,
        target_relative_half_width=0.01,
        min_samples=60,
        max_samples=4800,
        min_time_s=3.0,
        max_time_s=60.0,
        accelerator_min_time_s=15.0,
        monitor_s=5.0,
        point_per_process=True,
    ),
}


def settings(
    profile: ProfileName,
    *,
    iterations: int | None = None,
    warmup_iterations: int | None = None,
    launches: int | None = None,
    cold_cache: bool = False,
    seed: int = 0,
) -> Settings:
    """A profile with the flags applied. Raises UsageError for invalid counts."""
    if iterations is not None and iterations < 1:
        raise UsageError(f"--iterations takes a number from 1: got {iterations}")
    if warmup_iterations is not None and warmup_iterations < 0:
        raise UsageError(f"--warmup-iterations takes a number from 0: got {warmup_iterations}")
    if launches is not None and launches < 1:
        raise UsageError(f"--launches takes a number from 1: got {launches}")
    if profile not in PROFILES:
        raise UsageError(f"unknown profile {profile!r}: known: {', '.join(PROFILES)}")
    base = PROFILES[profile]
    count = base.launches if launches is None else launches
    return replace(
        base,
        fixed_iterations=iterations,
        fixed_warmup_iterations=warmup_iterations,
        launches=count,
        # Several launches are for comparisons, where more launches are worth more than longer ones.
        budget_s=None if base.budget_s is None else base.budget_s * 2 / (1 + count),
        cold_cache=cold_cache,
        seed=seed,
    )


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
