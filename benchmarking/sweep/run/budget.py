"""Keeps the points of a launch within the profile's time budget: slow points get shorter limits, and say so.

How long a call takes, and what a point takes besides its calls, is known from the last point. Every point keeps the
calls that give a median and a spread, one to warm up and three timed ones, where they fit into the budget, and as many
as the profile's least where there is time for more. Where they do not fit, its first call is its warm-up and there are
fewer timed calls, at least one. No point is left out, so a machine that is slow enough exceeds the budget, and the
progress says by how much.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarking.core.metrics import NS_PER_S
from benchmarking.core.records import Json, Measurement, Point
from benchmarking.measure.settings import MIN_CALLS, Settings
from benchmarking.measure.timing import LATENCY_WALL
from benchmarking.sweep.plan.plan import work

LEAST_CALLS = 1 + MIN_CALLS
"""Of a slow point: warm-up and timed calls."""
UNTIMED_CALLS = 3
"""Of a point on a processor: the first one, that of memory and use, and that of read-back and counting."""
WARMUP_SHARE = 1 / 3
"""Of the time for both."""
CUT = ("max_time_s", "warmup_max_time_s", "fixed_warmup_iterations", "min_calls")
"""Settings that the budget changes."""


class Budget:
    """The time of a worker's points, in their order."""

    def __init__(self, settings: Settings, points: Sequence[Point], started_ns: int) -> None:
        """`started_ns` by the monotonic clock: the start of the process, so that loading counts."""
        self._settings = settings
        self._left = list(points)
        self._started_s = started_ns / NS_PER_S
        self._s_per_work: float | None = None
        """Of a call."""
        self._besides = Besides()
        self._begun_s = 0.0

    def next_settings(self) -> Settings:
        """The settings for the next point."""
        settings, points = self._settings, self._left
        self._begun_s = time.monotonic()
        if settings.budget_s is None or settings.fixed_iterations is not None or not points:
            return settings
        works = [work(point) for point in points]
        calls_s = [(self._s_per_work or 0.0) * each for each in works]
        left_s = self._started_s + settings.budget_s - self._begun_s
        room_s = left_s - sum(map(self._besides.seconds, calls_s))
        spare_s = room_s - LEAST_CALLS * sum(calls_s)
        if spare_s < 0 and self._s_per_work and settings.fixed_warmup_iterations is None:
            calls = fewest_calls(room_s, sum(calls_s))
            return replace(settings, max_time_s=0.0, fixed_warmup_iterations=0, min_calls=calls)
        point_s = LEAST_CALLS * calls_s[0] + max(0.0, spare_s) / len(points)
        return replace(
            settings,
            max_time_s=min(settings.max_time_s, (1 - WARMUP_SHARE) * point_s),
            min_calls=self._min_calls(point_s, calls_s[0]),
            warmup_max_time_s=min(settings.warmup_max_time_s, WARMUP_SHARE * point_s),
        )

    def _min_calls(self, point_s: float, call_s: float) -> int:
        """The fewest timed calls of a point with so much time for them and one to warm up."""
        wanted = self._settings.min_calls
        return wanted if not call_s else max(min(MIN_CALLS, wanted), min(wanted, int(point_s / call_s) - 1))

    def settle(self, measurement: Measurement, settings: Settings) -> Measurement:
        """The measurement of the next point, with what the budget changed in its settings."""
        point = self._left.pop(0)
        wall = [samples for samples in measurement.samples if samples.metric == LATENCY_WALL]
        calls = sum(len(samples.values) * samples.inner_loops for samples in wall)
        if calls:
            calls_s = sum(sum(samples.values) * samples.inner_loops for samples in wall) / 1e3
            self._s_per_work = calls_s / calls / work(point)
            self._besides = Besides.of(time.monotonic() - self._begun_s - calls_s, calls_s / calls)
        cut: dict[str, Json] = {
            name: getattr(settings, name) for name in CUT if getattr(settings, name) != getattr(self._settings, name)
        }
        if not cut:
            return measurement
        limits: Json = {"budget_s": self._settings.budget_s, **cut}
        return replace(measurement, extra={**measurement.extra, "budget": limits})


@dataclass(frozen=True, slots=True)
class Besides:
    """What a point takes without its warm-up and timed calls."""

    calls: float = 0.0
    """What grows with the work, in calls: see `UNTIMED_CALLS`."""
    constant_s: float = 0.0
    """What does not, such as the windows of the energy pass."""

    @classmethod
    def of(cls, besides_s: float, call_s: float) -> Besides:
        """Of what a point took, when its calls took `call_s` each."""
        calls = max(0.0, min(UNTIMED_CALLS, besides_s / call_s))
        return cls(calls, max(0.0, besides_s - calls * call_s))

    def seconds(self, call_s: float) -> float:
        """At a point whose calls take `call_s`."""
        return self.constant_s + self.calls * call_s


def fewest_calls(room_s: float, calls_s: float) -> int:
    """The timed calls of every point that fit into the time, at most three, when a call of each takes `calls_s`."""
    return min(MIN_CALLS, max(1, int(room_s / calls_s)))
