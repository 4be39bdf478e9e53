"""Keeps the points of a launch within the profile's time budget: slow points get shorter limits, and say so.

How long a call takes is known from the last point, in proportion to the work. Every point keeps the fewest calls that
give a median and a spread, also when that exceeds the budget.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarking.core.metrics import NS_PER_S
from benchmarking.core.records import Json, Measurement, Point
from benchmarking.measure.settings import Settings
from benchmarking.measure.timing import LATENCY_WALL, MIN_CALLS
from benchmarking.sweep.plan.plan import work

UNTIMED_CALLS = 3
"""Of a slow point: the first call, the memory pass, and the counting of FLOPs."""
LEAST_CALLS = 1 + MIN_CALLS
"""Of a slow point: warm-up and timed calls."""
WARMUP_SHARE = 1 / 3
"""Of the time for both."""


class Budget:
    """The time of a worker's points, in their order."""

    def __init__(self, settings: Settings, points: Sequence[Point], started_ns: int) -> None:
        """`started_ns` by the monotonic clock: the start of the process, so that loading counts."""
        self._settings = settings
        self._left = list(points)
        self._started_s = started_ns / NS_PER_S
        self._s_per_work: float | None = None

    def next_settings(self) -> Settings:
        """The settings for the next point."""
        settings, points = self._settings, self._left
        if settings.budget_s is None or settings.fixed_iterations is not None or not points:
            return settings
        calls_s = [(self._s_per_work or 0.0) * work(point) for point in points]
        left_s = self._started_s + settings.budget_s - time.monotonic()
        spare_s = left_s - (LEAST_CALLS + UNTIMED_CALLS) * sum(calls_s)
        room_s = LEAST_CALLS * calls_s[0] + max(0.0, spare_s) / len(points)
        return replace(
            settings,
            max_time_s=min(settings.max_time_s, (1 - WARMUP_SHARE) * room_s),
            warmup_max_time_s=min(settings.warmup_max_time_s, WARMUP_SHARE * room_s),
        )

    def settle(self, measurement: Measurement, settings: Settings) -> Measurement:
        """The measurement of the next point, with the limits that the budget shortened."""
        point = self._left.pop(0)
        values = [one for samples in measurement.samples if samples.metric == LATENCY_WALL for one in samples.values]
        if values:
            self._s_per_work = sum(values) / len(values) / 1e3 / work(point)
        names = ("max_time_s", "warmup_max_time_s")
        cut: dict[str, Json] = {
            name: getattr(settings, name) for name in names if getattr(settings, name) < getattr(self._settings, name)
        }
        if not cut:
            return measurement
        limits: Json = {"budget_s": self._settings.budget_s, **cut}
        return replace(measurement, extra={**measurement.extra, "budget": limits})
