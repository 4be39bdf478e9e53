"""The numbers a result can have: what measures, stores, compares, prints or draws one takes it from this table.

A metric with a column costs one entry here and one migration that adds the column, besides what measures it. Metrics
without an entry (a benchmark's own, other tools') are stored in the column other_metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Source = Literal["samples", "reading", "first_call", "verified", "load_memory", "load_time", "derived"]
"""Where a launch's own value comes from: its raw samples; a single reading (`Measurement.metrics`) or its first call;
what an operation or session read back (`verified`); memory or time of its load (`LaunchLoad`); derived: from the
result's median latency and a reading."""
Statistic = Literal[
    "mean", "median", "sd", "mad", "min", "p25", "p75", "p90", "p95", "p99", "max", "ci_low", "ci_high", "rate"
]

NO_EXPERTS = "no experts to choose from"
NOT_READ_BACK = "the runtime has nothing of this kind to read back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of a result."""

    column: str
    """Its column in benchmark_results and its key in `Result.metrics`."""
    source: Source
    of: str
    """What it is made of, by the source: the metric of the raw samples, or the reading's name."""
    statistic: Statistic = "median"
    """What a launch's samples come to: a field of `sample_statistics.Statistics`, or what is done a second, which is in
    inverse proportion to their mean."""
    over_launches: Literal["median", "least", "most", "interval"] = "median"
    """What the launches' values come to; interval: that of the launches' medians."""
    unit: str = ""
    """Of its values; empty for counts and ratios."""
    better: Literal["lower", "higher"] | None = None
    """Which way is better; None for a fact that is neither."""
    is_judged: bool = False
    """Whether two results can be compared by it, launch by launch."""
    not_applicable: str | None = None
    """Why calls do not have it that are not of the families or runtimes that do; None where every call may."""
    heading: str = ""
    """Of its column in tables of results; empty where tables do not show it."""
    title: str = ""
    """Of a chart's axis, with the unit; empty where no chart draws it."""

    @property
    def is_in_bytes(self) -> bool:
        """Whether launches have it in bytes, although the column is in MB."""
        return self.of.endswith("_bytes") and self.unit == "MB"

    @property
    def is_tail(self) -> bool:
        """Whether it tells of the slowest calls, which blocks of calls hide."""
        return self.of == "latency_wall" and self.statistic in ("p90", "p95", "p99")

    def is_worse(self, relative_change: float) -> bool:
        """Whether a change (after / before - 1) is one for the worse."""
        return relative_change > 0 if self.better == "lower" else relative_change < 0


def _latency(
    column: str, statistic: Statistic, *, is_judged: bool = False, heading: str = "", title: str = ""
) -> Metric:
    """A statistic of the calls' wall times."""
    over: Mapping[str, Literal["least", "most", "interval"]] = {
        "min": "least",
        "max": "most",
        "ci_low": "interval",
        "ci_high": "interval",
    }
    return Metric(
        column=column,
        source="samples",
        of="latency_wall",
        statistic=statistic,
        over_launches=over.get(statistic, "median"),
        unit="ms",
        better="lower",
        is_judged=is_judged,
        heading=heading,
        title=title,
    )


def _phase(column: str, heading: str = "") -> Metric:
    """The time of a call in one phase."""
    of = f"phase_{column.removesuffix('_ms')}"
    return Metric(column=column, source="samples", of=of, unit="ms", better="lower", heading=heading)


def _memory(column: str, of: str, *, is_loading: bool = False, is_judged: bool = False, title: str = "") -> Metric:
    source: Source = "load_memory" if is_loading else "reading"
    return Metric(column=column, source=source, of=of, unit="MB", better="lower", is_judged=is_judged, title=title)


def _energy(column: str) -> Metric:
    return Metric(column=column, source="reading", of=column, unit="J", better="lower")


def _read_back(column: str, *, unit: str = "", over: Literal["median", "most"] = "most") -> Metric:
    """A number that a runtime reads back: of counts the most of any launch, since one that differs is one too many."""
    return Metric(
        column=column,
        source="verified",
        of=column,
        over_launches=over,
        unit=unit,
        better="lower" if unit else None,
        not_applicable=NOT_READ_BACK,
    )


_ALL = (
    _latency("latency_mean_ms", "mean"),
    _latency("latency_median_ms", "median", is_judged=True, heading="median ms", title="Latency per call, median (ms)"),
    _latency("latency_std_ms", "sd"),
    _latency("latency_mad_ms", "mad"),
    _latency("latency_min_ms", "min"),
    _latency("latency_p25_ms", "p25"),
    _latency("latency_p75_ms", "p75"),
    _latency("latency_p90_ms", "p90", heading="p90 ms"),
    _latency("latency_p95_ms", "p95"),
    _latency("latency_p99_ms", "p99", is_judged=True, heading="p99 ms"),
    _latency("latency_max_ms", "max"),
    _latency("latency_ci_low_ms", "ci_low"),
    _latency("latency_ci_high_ms", "ci_high"),
    Metric(
        column="latency_device_median_ms",
        source="samples",
        of="latency_device",
        unit="ms",
        better="lower",
        is_judged=True,
    ),
    Metric(column="host_gap_ms", source="samples", of="latency_device", unit="ms", better="lower"),
    Metric(
        column="throughput_samples_per_sec",
        source="samples",
        of="latency_wall",
        statistic="rate",
        unit="items/s",
        better="higher",
        is_judged=True,
        heading="items/s",
    ),
    Metric(
        column="throughput_tokens_per_sec",
        source="samples",
        of="latency_wall",
        statistic="rate",
        unit="tokens/s",
        better="higher",
        is_judged=True,
        heading="tokens/s",
    ),
    Metric(
        column="time_to_first_token_ms",
        source="samples",
        of="time_to_first_token",
        unit="ms",
        better="lower",
        is_judged=True,
        heading="TTFT ms",
    ),
    Metric(
        column="time_per_output_token_ms",
        source="samples",
        of="time_per_output_token",
        unit="ms",
        better="lower",
        is_judged=True,
        heading="TPOT ms",
    ),
    Metric(
        column="inter_token_latency_p50_ms",
        source="samples",
        of="inter_token_latency",
        unit="ms",
        better="lower",
        is_judged=True,
    ),
    Metric(
        column="inter_token_latency_p99_ms",
        source="samples",
        of="inter_token_latency",
        statistic="p99",
        unit="ms",
        better="lower",
        is_judged=True,
    ),
    Metric(
        column="prefill_tokens_per_sec",
        source="samples",
        of="time_to_first_token",
        statistic="rate",
        unit="tokens/s",
        better="higher",
    ),
    Metric(
        column="decode_tokens_per_sec",
        source="samples",
        of="time_per_output_token",
        statistic="rate",
        unit="tokens/s",
        better="higher",
    ),
    _phase("retrieve_ms", "retrieve ms"),
    _phase("image_encode_ms", "image enc ms"),
    _phase("encode_ms", "encode ms"),
    _phase("prefill_ms"),
    _phase("decode_ms"),
    _phase("step_ms", "step ms"),
    Metric(column="first_call_ms", source="first_call", of="first_call_ms", unit="ms", better="lower", is_judged=True),
    Metric(column="real_time_factor", source="derived", of="audio_seconds_per_call", better="lower", heading="RTF"),
    Metric(column="achieved_flops_per_sec", source="derived", of="flops", unit="FLOP/s", better="higher"),
    Metric(column="time_to_ready_s", source="reading", of="time_to_ready_s", unit="s", better="lower"),
    Metric(
        column="compile_s",
        source="reading",
        of="compile_s",
        unit="s",
        better="lower",
        is_judged=True,
        heading="compile s",
    ),
    Metric(column="tokenize_ms", source="reading", of="tokenize_ms", unit="ms", better="lower"),
    Metric(column="flops", source="reading", of="flops", unit="FLOP"),
    Metric(column="bytes_accessed", source="reading", of="bytes_accessed", unit="B"),
    Metric(
        column="audio_seconds_per_call",
        source="reading",
        of="audio_seconds_per_call",
        unit="s",
        not_applicable="no audio",
    ),
    Metric(column="active_parameter_count", source="reading", of="active_parameter_count", not_applicable=NO_EXPERTS),
    Metric(
        column="expert_load_imbalance",
        source="reading",
        of="expert_load_imbalance",
        better="lower",
        not_applicable=NO_EXPERTS,
    ),
    Metric(column="output_error", source="reading", of="output_error", better="lower", heading="error"),
    Metric(column="output_max_abs_error", source="reading", of="output_max_abs_error", better="lower"),
    Metric(column="output_cosine_similarity", source="reading", of="output_cosine_similarity", better="higher"),
    Metric(column="output_equal_token_share", source="reading", of="output_equal_token_share", better="higher"),
    _energy("energy_soc_j_per_call"),
    _energy("energy_gpu_j_per_call"),
    _energy("energy_cpu_pkg_j_per_call"),
    _energy("energy_dram_j_per_call"),
    Metric(column="energy_idle_w", source="reading", of="energy_idle_w", unit="W"),
    _memory(
        "memory_device_process_peak_mb",
        "device_process_peak_bytes",
        is_judged=True,
        title="Peak device memory of the process (MB)",
    ),
    _memory("memory_device_reserved_peak_mb", "device_reserved_peak_bytes", title="Peak device memory reserved (MB)"),
    _memory(
        "memory_device_allocated_peak_mb",
        "device_allocated_peak_bytes",
        is_judged=True,
        title="Peak device memory allocated (MB)",
    ),
    _memory(
        "memory_peak_rss_infer_mb",
        "peak_rss_infer_bytes",
        is_judged=True,
        title="Peak resident memory of the process (MB)",
    ),
    _memory("memory_device_global_delta_mb", "device_global_delta_bytes"),
    _memory("memory_weights_mb", "weights_bytes", is_loading=True),
    _memory("memory_rss_base_mb", "rss_base_bytes", is_loading=True),
    _memory("memory_peak_rss_load_mb", "peak_rss_load_bytes", is_loading=True),
    _memory("model_size_mb", "model_size_bytes", is_loading=True),
    _read_back("compile_cold_s", unit="s", over="median"),
    _read_back("compile_warm_s", unit="s", over="median"),
    _read_back("graph_count"),
    _read_back("graph_break_count"),
    _read_back("recompile_count"),
    _read_back("nodes"),
    _read_back("nodes_on_cpu_unasked"),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.column: metric for metric in _ALL})
"""By column of benchmark_results."""
LOAD_TIME = Metric(column="load_time_s", source="load_time", of="stages_s", unit="s", better="lower", is_judged=True)
"""What the load of each launch took. All points of a run share it, so its column is in benchmark_runs."""

PEAK_MEMORY: tuple[str, ...] = tuple(name for name, metric in METRICS.items() if metric.unit == "MB" and metric.title)
"""What stands for peak memory: the first that was measured; on a CPU that is the process."""
ENERGY: tuple[str, ...] = tuple(name for name, metric in METRICS.items() if metric.unit == "J")
"""Energy of a call: the whole chip, then its parts."""
TAILS: tuple[str, ...] = tuple(name for name, metric in METRICS.items() if metric.is_tail)
LATENCY: Mapping[str, Statistic] = MappingProxyType(
    {m.column: m.statistic for m in _ALL if m.of == "latency_wall" and m.statistic != "rate"}
)
"""The columns that describe the calls' wall times, and the statistic in each."""


def from_source(source: Source) -> dict[str, Metric]:
    """The metrics of a source, by column."""
    return {name: metric for name, metric in METRICS.items() if metric.source == source}
