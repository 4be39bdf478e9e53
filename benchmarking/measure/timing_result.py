"""Times of calls from any source, and their statistics: for scripts and benchmarks that time something themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Result
from benchmarking.core.sample_statistics import Statistics, describe, quantile, tail_min_samples
from benchmarking.measure.timing import LATENCY_WALL

PERCENT = 100
TAIL = 0.9
"""Percentiles this far out, on either side, need enough calls beyond them."""


@dataclass(frozen=True, slots=True)
class TimingResult:
    """Times of calls, or of the one call that a benchmark measured (`latency`), in seconds. Raises UsageError if there
    are none, or if one is not a time."""

    values_s: tuple[float, ...]
    """Seconds of each call, in call order."""
    tokens_per_second: float | None = None
    """The generation rate that a benchmark reports for its call."""
    time_to_first_token: float | None = None
    """Seconds to the first token of its call."""
    total_tokens_generated: int | None = None
    """Tokens that its call generated, over all sequences."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further facts for the benchmark's own use."""

    def __init__(
        self,
        values_s: Iterable[float] = (),
        *,
        latency: float | None = None,
        tokens_per_second: float | None = None,
        time_to_first_token: float | None = None,
        total_tokens_generated: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        values = tuple(map(float, values_s)) or (() if latency is None else (float(latency),))
        if not values:
            raise UsageError("TimingResult needs the seconds of each call, or latency=SECONDS: got none")
        times = (*values, *(() if time_to_first_token is None else (float(time_to_first_token),)))
        if not all(math.isfinite(value) and value >= 0 for value in times):
            raise UsageError("TimingResult takes seconds from 0: got " + repr(times)[:60])
        object.__setattr__(self, "values_s", values)
        object.__setattr__(self, "tokens_per_second", tokens_per_second)
        object.__setattr__(self, "time_to_first_token", time_to_first_token)
        object.__setattr__(self, "total_tokens_generated", total_tokens_generated or None)
        object.__setattr__(self, "metadata", dict(metadata or {}))

    @classmethod
    def of(cls, result: Result, metric: str = LATENCY_WALL) -> TimingResult:
        """The timed calls of a result over all launches, from a raw metric in ms. Raises UsageError if there are none,
        or if calls were timed in blocks, where only means are known."""
        of_metric = [
            samples
            for samples in result.samples
            if (samples.metric, samples.unit, samples.phase) == (metric, "ms", "measure")
        ]
        if not of_metric:
            known = ", ".join(sorted({samples.metric for samples in result.samples})) or "none"
            raise UsageError(f"{result.point.label}: no samples of {metric}. Found: {known}")
        if any(samples.inner_loops > 1 for samples in of_metric):
            raise UsageError(f"{result.point.label}: the calls were timed in blocks, so only means are known")
        return cls(value / MS_PER_S for samples in of_metric for value in samples.values)

    @property
    def statistics(self) -> Statistics:
        """All statistics in seconds, with the 95 % interval of the median."""
        return describe(self.values_s)

    @property
    def latency(self) -> float:
        """The mean in seconds, under its name in benchmark_v2: with a single call, its time."""
        return self.mean_s

    @property
    def mean_s(self) -> float:
        """The mean in seconds."""
        return math.fsum(self.values_s) / len(self.values_s)

    @property
    def median_s(self) -> float:
        """The median in seconds."""
        return quantile(self.values_s, 0.5)

    def percentile_s(self, percent: float) -> float | None:
        """A percentile in seconds, by linear interpolation; None for p90 and above (or p10 and below) if there are too
        few calls (`tail_min_samples`). Raises UsageError."""
        share = percent / PERCENT
        if not 0 < share < 1:
            raise UsageError(f"percentile_s takes a number between 0 and 100: got {percent!r}")
        if max(share, 1 - share) >= TAIL and len(self.values_s) < tail_min_samples(share):
            return None
        return quantile(self.values_s, share)
