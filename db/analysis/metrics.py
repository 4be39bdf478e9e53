"""The metrics that two results can be compared by."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarking.core import metrics
from benchmarking.core.metrics import Metric as Metric

METRICS: Mapping[str, Metric] = MappingProxyType(
    {metric.column: metric for metric in (*metrics.METRICS.values(), metrics.LOAD_TIME) if metric.is_judged}
)
"""By column of the view all_results."""
DEFAULT_METRIC = "latency_median_ms"
