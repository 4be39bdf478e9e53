"""Keeps the points of a launch within the profile's time budget: slow points get shorter limits, which are recorded.

The duration of a call and the overhead of a point are taken from the previous point. If the budget permits, every point
gets at least one warm-up and three timed calls, enough for a median and a spread, and up to the profile's minimum if
there is more time. Otherwise the first call is the warm-up, followed by fewer timed calls, at least one.

Calls may be slower than the previous point promised, so the clock is also read between calls: once the budget is spent,
a point ends with what it has. The points that are left then get one timed call each while that fits twice the budget;
the others are skipped, with the command that measures them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import LATENCY_WALL, NS_PER_S
from benchmarking.core.records import Json, Measurement, Point
from benchmarking.core.text import number
from benchmarking.measure.context import MIN_CALLS, Settings
from benchmarking.sweep.plan.plan import work

MIN_POINT_CALLS = 1 + MIN_CALLS
"""Warm-up and timed calls of a slow point."""
UNTIMED_CALLS = 3
"""Other calls of a point on a processor: the first one, one for memory and use, and one for verification and
counting."""
MOST_BUDGETS = 2
"""Times the budget within which points get one call after it is spent."""
WARMUP_SHARE = 1 / 3
"""Share of the time of both."""
CHANGED_SETTINGS = ("max_time_s", "warmup_max_time_s", "fixed_warmup_iterations", "min_calls")
"""Settings changed by the budget."""


class Budget:
    """The time budget of a worker's points, in order."""

    def __init__(self, settings: Settings, points: Sequence[Point], started_ns: int) -> None:
        """`started_ns` by the monotonic clock: the start of the process, so that loading counts."""
        self._settings = settings
        self._left = list(points)
        self._started_s = started_ns / NS_PER_S
        self._s_per_work: float | None = None
        """Seconds of a call."""
        self._overhead = Overhead()
        self._begun_s = 0.0

    def next_settings(self) -> Settings:
        settings, points = self._settings, self._left
        self._begun_s = time.monotonic()
        if settings.budget_s is None or settings.fixed_iterations is not None or not points:
            return settings
        budget_s = settings.budget_s
        settings = replace(settings, deadline_s=self._started_s + budget_s)
        works = [work(point) for point in points]
        calls_s = [(self._s_per_work or 0.0) * value for value in works]
        left_s = self._started_s + budget_s - self._begun_s
        room_s = left_s - sum(map(self._overhead.seconds, calls_s))
        spare_s = room_s - MIN_POINT_CALLS * sum(calls_s)
        if spare_s < 0 and self._s_per_work and settings.fixed_warmup_iterations is None:
            calls = fewest_calls(room_s, sum(calls_s))
            short = replace(settings, max_time_s=0.0, fixed_warmup_iterations=0, min_calls=calls)
            return replace(short, memory_calls=1, monitor_s=0.0) if left_s <= 0 else short
        point_s = MIN_POINT_CALLS * calls_s[0] + max(0.0, spare_s) / len(points)
        min_calls = settings.min_calls
        if calls_s[0]:  # as many as fit into this time, beside a warm-up call
            min_calls = max(min(MIN_CALLS, min_calls), min(min_calls, int(point_s / calls_s[0]) - 1))
        return replace(
            settings,
            max_time_s=min(settings.max_time_s, (1 - WARMUP_SHARE) * point_s),
            min_calls=min_calls,
            warmup_max_time_s=min(settings.warmup_max_time_s, WARMUP_SHARE * point_s),
        )

    def why_skipped(self) -> str | None:
        """Why the next point is skipped; None if it is measured. The first point is always measured, and the others
        while their fewest calls end within twice the budget."""
        settings, points = self._settings, self._left
        if settings.budget_s is None or settings.fixed_iterations is not None or not self._s_per_work or not points:
            return None
        spent_s = time.monotonic() - self._started_s
        call_s = self._s_per_work * work(points[0])
        needed_s = 2 * call_s + self._overhead.seconds(call_s)
        if spent_s + needed_s <= MOST_BUDGETS * settings.budget_s:
            return None
        spent = f"the time budget of {round(settings.budget_s, 1):g} s is spent"
        if spent_s <= settings.budget_s:
            spent = f"{spent_s:.0f} s of the time budget of {round(settings.budget_s, 1):g} s are spent"
        return (
            f"{spent}, and a warm-up and a timed call, about {number(needed_s)} s in all, would exceed"
            f" {MOST_BUDGETS} times the budget"
        )

    def skip(self) -> Point:
        """Remove the next point; returns it."""
        return self._left.pop(0)

    def record(self, measurement: Measurement, settings: Settings) -> Measurement:
        """The measurement, with the settings that the budget changed; its durations apply to the next point."""
        point = self._left.pop(0)
        calls, calls_s = timed_calls(measurement)
        if calls:
            self._s_per_work = calls_s / calls / work(point)
            self._overhead = Overhead.of(time.monotonic() - self._begun_s - calls_s, calls_s / calls)
        changed: dict[str, Json] = {
            name: getattr(settings, name)
            for name in CHANGED_SETTINGS
            if getattr(settings, name) != getattr(self._settings, name)
        }
        if not changed and measurement.stop_reason != "budget":
            return measurement
        limits = {"budget_s": self._settings.budget_s, **changed}
        return replace(measurement, extra={**measurement.extra, "budget": limits})


def timed_calls(measurement: Measurement) -> tuple[int, float]:
    """The number of a measurement's timed calls, and their total seconds."""
    wall = [samples for samples in measurement.samples if samples.metric == LATENCY_WALL]
    calls = sum(len(samples.values) * samples.inner_loops for samples in wall)
    return calls, sum(sum(samples.values) * samples.inner_loops for samples in wall) / 1e3


@dataclass(frozen=True, slots=True)
class Overhead:
    """The time of a point apart from its warm-up and timed calls."""

    calls: float = 0.0
    """The part that grows with the work, in calls; see `UNTIMED_CALLS`."""
    constant_s: float = 0.0
    """The constant part, such as the windows of the energy pass."""

    @classmethod
    def of(cls, overhead_s: float, call_s: float) -> Overhead:
        """An overhead of `overhead_s` in total, at a point with calls of `call_s`."""
        calls = max(0.0, min(UNTIMED_CALLS, overhead_s / call_s)) if call_s > 0 else 0.0
        return cls(calls, max(0.0, overhead_s - calls * call_s))

    def seconds(self, call_s: float) -> float:
        """The overhead of a point whose calls take `call_s`."""
        return self.constant_s + self.calls * call_s


def fewest_calls(room_s: float, calls_s: float) -> int:
    """The timed calls per point, at most three, that fit into the time, if one call of each point takes `calls_s`."""
    if calls_s <= 0:
        return MIN_CALLS
    return min(MIN_CALLS, max(1, int(room_s / calls_s)))
