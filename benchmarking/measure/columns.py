"""The numbers a result can have: their column names, and the reason for each one that it has not."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarking.measure.streaming import INTER_TOKEN_LATENCY, PHASES, TIME_PER_OUTPUT_TOKEN, TIME_TO_FIRST_TOKEN
from benchmarking.records import NOT_APPLICABLE, NOT_RUN

STATISTICS = ("mean", "median", "std", "min", "p25", "p75", "p90", "p95", "p99", "max", "mad")
LATENCY = (*(f"latency_{name}_ms" for name in STATISTICS), "latency_ci_low_ms", "latency_ci_high_ms")
THROUGHPUT = ("throughput_samples_per_sec", "throughput_tokens_per_sec")

OF_SERIES: Mapping[str, tuple[str, ...]] = {
    "latency_wall": (*LATENCY, *THROUGHPUT),
    "latency_device": ("latency_device_median_ms", "host_gap_ms"),
    TIME_TO_FIRST_TOKEN: ("time_to_first_token_ms", "prefill_tokens_per_sec"),
    TIME_PER_OUTPUT_TOKEN: ("time_per_output_token_ms", "decode_tokens_per_sec"),
    INTER_TOKEN_LATENCY: ("inter_token_latency_p50_ms", "inter_token_latency_p99_ms"),
    **{phase: (f"{phase.removeprefix('phase_')}_ms",) for phase in PHASES},
}
"""Columns computed from each raw metric."""

OF_READING: Mapping[str, str] = {
    "time_to_ready_s": "time_to_ready_s",
    "compile_s": "compile_s",
    "tokenize_ms": "tokenize_ms",
    "flops": "flops",
    "bytes_accessed": "bytes_accessed",
    "audio_seconds_per_call": "audio_seconds_per_call",
    "active_parameter_count": "active_parameter_count",
    "expert_load_imbalance": "expert_load_imbalance",
    "output_error": "output_error",
    "output_max_abs_error": "output_max_abs_error",
    "output_cosine_similarity": "output_cosine_similarity",
    "output_equal_token_share": "output_equal_token_share",
    "energy_gpu_j_per_call": "energy_gpu_j_per_call",
    "energy_cpu_pkg_j_per_call": "energy_cpu_pkg_j_per_call",
    "energy_dram_j_per_call": "energy_dram_j_per_call",
    "energy_soc_j_per_call": "energy_soc_j_per_call",
    "energy_idle_w": "energy_idle_w",
    "peak_rss_infer_bytes": "memory_peak_rss_infer_mb",
    "device_allocated_peak_bytes": "memory_device_allocated_peak_mb",
    "device_reserved_peak_bytes": "memory_device_reserved_peak_mb",
    "device_process_peak_bytes": "memory_device_process_peak_mb",
    "device_global_delta_bytes": "memory_device_global_delta_mb",
}
"""Column of each value with one reading a launch (`Measurement.metrics`)."""

COMPILE_TIMES = ("compile_cold_s", "compile_warm_s")
"""Columns a runtime that compiles may read back: the median over the launches that have them."""
COUNTS = ("graph_count", "graph_break_count", "recompile_count", "nodes", "nodes_on_cpu_unasked")
"""Columns of counts that are read back: the most of any launch, since one that differs is one too many."""
OF_VERIFIED: tuple[str, ...] = (*COMPILE_TIMES, *COUNTS)
"""Columns of what is read back under the same name, by an operation or else by its session (`verified`)."""

OF_LOAD: Mapping[str, str] = {
    "weights_bytes": "memory_weights_mb",
    "rss_base_bytes": "memory_rss_base_mb",
    "peak_rss_load_bytes": "memory_peak_rss_load_mb",
    "model_size_bytes": "model_size_mb",
}
"""Column of each value with one reading a load (`LaunchLoad.memory_bytes`)."""

DERIVED: Mapping[str, str] = {"real_time_factor": "audio_seconds_per_call", "achieved_flops_per_sec": "flops"}
"""Columns computed from the median latency and a reading, and which reading."""

OF_SOME_CALLS: Mapping[str, str] = {
    "audio_seconds_per_call": f"{NOT_APPLICABLE}: no audio",
    "active_parameter_count": f"{NOT_APPLICABLE}: no experts to choose from",
    "expert_load_imbalance": f"{NOT_APPLICABLE}: no experts to choose from",
    **dict.fromkeys(OF_VERIFIED, f"{NOT_APPLICABLE}: the runtime has nothing of this kind to read back"),
}
"""Why readings are absent that only some families or runtimes have."""

ALL: tuple[str, ...] = (
    *(column for columns in OF_SERIES.values() for column in columns),
    "first_call_ms",
    *DERIVED,
    *OF_READING.values(),
    *OF_VERIFIED,
    *OF_LOAD.values(),
)


def reasons_by_column(missing: Mapping[str, str]) -> dict[str, str]:
    """Reasons of raw metrics and readings, by the columns that come of them. A column may also be named itself."""
    reasons: dict[str, str] = {}
    for name, why in missing.items():
        columns = OF_SERIES.get(name) or (OF_READING.get(name) or OF_LOAD.get(name) or name,)
        reasons |= dict.fromkeys(columns, why)
    return reasons


def complete(metrics: Mapping[str, float], reasons: Mapping[str, str], default: str = NOT_RUN) -> dict[str, str]:
    """A reason for every column without a value."""
    absent = dict.fromkeys((name for name in ALL if name not in metrics), default)
    known = {name: why for name, why in reasons.items() if name not in metrics}
    derived = {name: known[of] for name, of in DERIVED.items() if name not in metrics and of in known}
    return {**absent, **derived, **known}
