"""The metrics that are judged: which way is better, and where each launch's own value comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A column of all_results that two results can be compared by."""

    column: str
    unit: str
    better: Literal["lower", "higher"] = "lower"
    samples: str | None = None
    """Metric of the raw samples that each launch's value is made of; None where a launch has a single reading."""
    statistic: Literal["median", "p99", "rate"] = "median"
    """What a launch's samples come to: a column of raw_benchmark_data, or what is done a second, which is in inverse
    proportion to their mean."""
    reading: str | None = None
    """Path of the launch's single reading in what is kept of a launch (`extra.launches`); bytes become MB."""

    of_load: bool = False
    """Whether it is what the load of each launch took, which all points of a run share."""

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
        Metric(column="time_per_output_token_ms", unit="ms", samples="time_per_output_token"),
        Metric(
            column="throughput_samples_per_sec", unit="/s", better="higher", samples="latency_wall", statistic="rate"
        ),
        Metric(
            column="throughput_tokens_per_sec",
            unit="tokens/s",
            better="higher",
            samples="latency_wall",
            statistic="rate",
        ),
        Metric(column="first_call_ms", unit="ms", reading="$.first_call_ms"),
        Metric(column="load_time_s", unit="s", of_load=True),
        Metric(column="compile_s", unit="s", reading="$.metrics.compile_s"),
        Metric(column="memory_peak_rss_infer_mb", unit="MB", reading="$.metrics.peak_rss_infer_bytes"),
        Metric(column="memory_device_allocated_peak_mb", unit="MB", reading="$.metrics.device_allocated_peak_bytes"),
        Metric(column="memory_device_process_peak_mb", unit="MB", reading="$.metrics.device_process_peak_bytes"),
    )
}
"""By column of the view all_results."""
DEFAULT_METRIC = "latency_median_ms"
