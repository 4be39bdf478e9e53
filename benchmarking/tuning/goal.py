"""What a search is for: the objective, the limits, and what one launch says about both.

A limit is compared with the value of a launch. What other launches may do is unknown after a single one, so a
configuration is hopeless only if a bound beyond which they hardly go misses the limit: a launch counts as 10 %
uncertain and memory as 2 %, as in `benchhouse recommend`, and a percentile with too few calls is at least the median.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarking.core.metrics import PEAK_MEMORY, energy_per_item
from benchmarking.core.records import Result
from benchmarking.tuning.race import Launch

LIMITS = ("latency", "latency_p90", "latency_p95", "latency_p99", "ttft", "memory", "energy", "throughput")
"""What can be limited, in the grammar of `benchmarking.core.limits`."""
MORE_IS_BETTER = frozenset({"throughput"})
UNSEEN = 0.10
"""How far other launches may be from a launch; see `db.analysis.recommend.recommendation.UNSEEN_LAUNCHES`."""
UNSEEN_MEMORY = 0.02
COLUMNS: Mapping[str, str] = {
    "latency": "latency_median_ms",
    "latency_p90": "latency_p90_ms",
    "latency_p95": "latency_p95_ms",
    "latency_p99": "latency_p99_ms",
    "ttft": "time_to_first_token_ms",
}


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

    def launch(self, result: Result) -> Launch:
        """What a result of one launch says."""
        if result.status != "ok" or result.validity not in ("valid", "noisy"):
            return Launch(cost=None)
        values = {name: _value(result, name) for name in {*self.limits, *COLUMNS, "throughput", "energy"}}
        objective = {"cost": "throughput"}.get(self.objective, self.objective)
        found = values[objective]
        cost = None if not found else 1 / found if objective in MORE_IS_BETTER else found
        excess = {name: _share(name, values[name], limit) for name, limit in self.limits.items()}
        return Launch(
            cost=cost,
            excess=excess,
            least_excess={name: _share(name, _bound(name, values), limit) for name, limit in self.limits.items()},
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
    unseen = 1 + (UNSEEN_MEMORY if name == "memory" else UNSEEN)
    return value * unseen if name in MORE_IS_BETTER else value / unseen


def _share(name: str, value: float | None, limit: float) -> float | None:
    if value is None or (name in MORE_IS_BETTER and value <= 0):
        return None
    return limit / value if name in MORE_IS_BETTER else value / limit
