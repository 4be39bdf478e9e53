"""What a search is for: the objective, the limits, and what one launch says about both.

A limit is compared with the value of a launch. What other launches may do is unknown after a single one, so a
configuration is hopeless only if a bound beyond which they hardly go misses the limit: a launch counts as 10 %
uncertain and memory as 2 %, as in `benchhouse recommend`, and a percentile with too few calls is at least the median.
A percentile that the calls of one launch do not show is that of the calls of all launches so far.
Quality belongs to the loaded model: a limit on it is met by the worse end of its interval, and hopeless if the better
end misses it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import PEAK_MEMORY, energy_per_item
from benchmarking.core.quality import QUALITY_LIMITS, Quality
from benchmarking.core.records import Result
from benchmarking.core.sample_statistics import PERCENTILES, TAIL_MIN_SAMPLES
from benchmarking.core.verdicts.launches import UNSEEN_LAUNCHES
from benchmarking.tuning.race import Launch

LIMITS = (
    *("latency", "latency_p90", "latency_p95", "latency_p99", "ttft", "memory", "energy", "throughput"),
    *QUALITY_LIMITS,
)
"""What can be limited, in the grammar of `benchmarking.core.shared_settings`."""
MORE_IS_BETTER = frozenset({"throughput", "agreement"})
UNSEEN_MEMORY = 0.02
COLUMNS: Mapping[str, str] = {
    "latency": "latency_median_ms",
    "latency_p90": "latency_p90_ms",
    "latency_p95": "latency_p95_ms",
    "latency_p99": "latency_p99_ms",
    "ttft": "time_to_first_token_ms",
}
SHOWN_BY_CALLS = ("latency_p90", "latency_p95", "latency_p99")
"""Limits on a percentile of the calls, which needs more calls than a median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is optimized, within which limits."""

    objective: str
    """throughput, latency, energy or cost; on one device, the cheapest is the one with the highest throughput."""
    limits: Mapping[str, float]
    """In ms, MB, J per item, or items (tokens, where there are some) per second."""

    @property
    def needs_energy(self) -> bool:
        return self.objective == "energy" or "energy" in self.limits

    @property
    def needs_quality(self) -> bool:
        return any(name in QUALITY_LIMITS for name in self.limits)

    @property
    def calls_to_know(self) -> int:
        """The calls that show all limited percentiles; 0 if none is limited."""
        return max(
            (TAIL_MIN_SAMPLES[PERCENTILES[name[-3:]]] for name in self.limits if name in SHOWN_BY_CALLS), default=0
        )

    def launch(self, result: Result, quality: Quality | None = None, *, so_far: Result | None = None) -> Launch:
        """What a result of one launch says, with the quality of the loaded model and the result of all launches so
        far."""
        if result.status != "ok" or result.validity not in ("valid", "noisy"):
            return Launch(cost=None)
        measured = {name for name in self.limits if name not in QUALITY_LIMITS}
        values = {name: _value(result, name) for name in {*measured, *COLUMNS, "throughput", "energy"}}
        for name in SHOWN_BY_CALLS:
            if values[name] is None and so_far is not None:
                values[name] = _value(so_far, name)
        objective = {"cost": "throughput"}.get(self.objective, self.objective)
        found = values[objective]
        cost = None if not found else 1 / found if objective in MORE_IS_BETTER else found
        least = {name: _bound(name, values) for name in measured}
        for name in self.limits:
            if name in QUALITY_LIMITS:
                least[name], values[name] = _quality_ends(name, quality)
        return Launch(
            cost=cost,
            excess={name: _share(name, values[name], limit) for name, limit in self.limits.items()},
            least_excess={name: _share(name, least[name], limit) for name, limit in self.limits.items()},
        )


def _value(result: Result, name: str) -> float | None:
    """The limited quantity of a result; None if it was not measured."""
    metrics = result.metrics
    if name == "memory":
        return next((metrics[column] for column in PEAK_MEMORY if column in metrics), None)
    if name == "energy":
        return energy_per_item(metrics, result.point.batch_size * result.point.concurrency)[0]
    if name == "throughput":
        return metrics.get("throughput_tokens_per_sec") or metrics.get("throughput_samples_per_sec")
    return metrics.get(COLUMNS[name])


def _bound(name: str, values: Mapping[str, float | None]) -> float | None:
    """The most favourable value that other launches may have."""
    value = values[name]
    if value is None and name.startswith("latency_"):
        value = values["latency"]
    if value is None:
        return None
    unseen = 1 + (UNSEEN_MEMORY if name == "memory" else UNSEEN_LAUNCHES)
    return value * unseen if name in MORE_IS_BETTER else value / unseen


def _quality_ends(name: str, quality: Quality | None) -> tuple[float | None, float | None]:
    """The better and the worse end of the interval of a measure; None if it is unknown."""
    found = None if quality is None else quality.values.get(QUALITY_LIMITS[name])
    if found is None:
        return None, None
    return (found.high, found.low) if name in MORE_IS_BETTER else (found.low, found.high)


def _share(name: str, value: float | None, limit: float) -> float | None:
    if value is None:
        return None
    if name in MORE_IS_BETTER:
        return limit / value if value > 0 else math.inf
    return value / limit
