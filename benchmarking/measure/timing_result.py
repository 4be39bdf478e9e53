"""Times of calls from any source, and their statistics: for scripts that time something themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarking.core.errors import UsageError
from benchmarking.core.records import Result
from benchmarking.core.sample_statistics import Statistics, describe, tail_min_samples
from benchmarking.measure.timing import LATENCY_WALL

PERCENT = 100
MS_PER_S = 1_000
TAIL = 0.9
"""Percentiles this far out, on either side, need enough calls beyond them."""


@dataclass(frozen=True, slots=True)
class TimingResult:
    """Times of calls. Raises UsageError if there are none, or if one is not a time."""

    values_s: tuple[float, ...]
    """Seconds of each call, in call order."""

    def __init__(self, values_s: Iterable[float]) -> None:
        values = tuple(map(float, values_s))
        if not values:
            raise UsageError("TimingResult needs the seconds of each call: got none")
        if not all(math.isfinite(value) and value >= 0 for value in values):
            raise UsageError("TimingResult takes seconds from 0: got " + repr(values)[:60])
        object.__setattr__(self, "values_s", values)

    @classmethod
    def of(cls, result: Result, metric: str = LATENCY_WALL) -> TimingResult:
        """The timed calls of a result over all launches, from a raw metric in ms. Raises UsageError if there are none,
        or if calls were timed in blocks, where only means are known."""
        found = [one for one in result.samples if (one.metric, one.unit, one.phase) == (metric, "ms", "measure")]
        if not found:
            known = ", ".join(sorted({one.metric for one in result.samples})) or "none"
            raise UsageError(f"{result.point.label}: no samples of {metric}. Found: {known}")
        if any(one.inner_loops > 1 for one in found):
            raise UsageError(f"{result.point.label}: the calls were timed in blocks, so only means are known")
        return cls(value / MS_PER_S for one in found for value in one.values)

    @property
    def statistics(self) -> Statistics:
        """All statistics in seconds, with the 95 % interval of the median."""
        return describe(self.values_s)

    @property
    def mean_s(self) -> float:
        """The mean in seconds."""
        return math.fsum(self.values_s) / len(self.values_s)

    @property
    def median_s(self) -> float:
        """The median in seconds."""
        return self._quantile(0.5)

    def percentile_s(self, percent: float) -> float | None:
        """A percentile in seconds, by linear interpolation; None for p90 and above (or p10 and below) if there are too
        few calls (`tail_min_samples`). Raises UsageError."""
        share = percent / PERCENT
        if not 0 < share < 1:
            raise UsageError(f"percentile_s takes a number between 0 and 100: got {percent!r}")
        if max(share, 1 - share) >= TAIL and len(self.values_s) < tail_min_samples(share):
            return None
        return self._quantile(share)

    def _quantile(self, share: float) -> float:
        import numpy as np

        return float(np.quantile(self.values_s, share))
