"""The metrics that are judged: which way is better, and which raw samples a launch's own value comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A column of benchmark_results that two results can be compared by."""

    column: str
    unit: str
    better: Literal["lower", "higher"] = "lower"
    samples: str | None = None
    """Metric of the raw samples that each launch's value is made of; None where a result has only one value."""
    statistic: Literal["median", "p99"] = "median"
    """What a launch's samples come to: the column of raw_benchmark_data."""

    def is_worse(self, relative_change: float) -> bool:
        """Whether a change (after / before - 1) is one for the worse."""
        return relative_change > 0 if self.better == "lower" else relative_change < 0


METRICS: dict[str, Metric] = {
    metric.column: metric
    for metric in (
        Metric(column="latency_median_ms", unit="ms", samples="latency_wall"),
        Metric(column="latency_p99_ms", unit="ms", samples="latency_wall", statistic="p99"),
        Metric(column="latency_device_median_ms", unit="ms", samples="latency_device"),
        Metric(column="time_to_first_token_ms", unit="ms", samples="time_to_first_token"),
        Metric(column="inter_token_latency_p50_ms", unit="ms", samples="inter_token_latency"),
        Metric(column="inter_token_latency_p99_ms", unit="ms", samples="inter_token_latency", statistic="p99"),
        Metric(column="time_per_output_token_ms", unit="ms"),
        Metric(column="throughput_samples_per_sec", unit="/s", better="higher"),
        Metric(column="throughput_tokens_per_sec", unit="tokens/s", better="higher"),
        Metric(column="first_call_ms", unit="ms"),
        Metric(column="load_time_s", unit="s"),
        Metric(column="compile_s", unit="s"),
        Metric(column="memory_peak_rss_infer_mb", unit="MB"),
        Metric(column="memory_device_allocated_peak_mb", unit="MB"),
        Metric(column="memory_device_process_peak_mb", unit="MB"),
    )
}
"""By column of the view all_results."""
DEFAULT_METRIC = "latency_median_ms"
