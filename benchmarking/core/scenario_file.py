"""The JSON of benchmark_v2's first layout: the name of a model, and a scenario per result with times in seconds.

    {"model_name": ..., "benchmark_scenarios": [
        {"scenario_name": ..., "metadata": {timestamp, commit_id, hardware_info, config},
         "measurements": {"latency": {measurements, mean, median, std, min, max, p25, ..., p99, unit}, ...},
         "gpu_metrics": {gpu_utilization_mean, ..., gpu_memory_used_mean, ..., sample_count, gpu_monitoring_status}}]}

As in benchmark_v2 itself, statistics cover all iterations together, the standard deviation is the population's, memory
is in MiB, and the time per output token is the latency divided by all tokens, including the first: those that the
benchmark states, else those requested. Means of blocks of
calls have no statistics of how calls vary. What the layout has no fields for (`facts`) is in the metadata, under
"benchhouse".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Any

from benchmarking.core import plugins
from benchmarking.core.metrics import BYTES_PER_MB, BYTES_PER_MIB, LATENCY_WALL, MS_PER_S, STATED_PER_TOKEN
from benchmarking.core.records import Result, Run, Samples
from benchmarking.core.sample_statistics import quantile_of_sorted
from benchmarking.core.text import told_apart

QUANTILES = {"p25": 0.25, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99}
EXPORTED = (LATENCY_WALL, "time_to_first_token", "time_per_output_token")
"""Metrics whose raw samples files of these layouts have, those of all launches in one list."""
RATES = ("throughput_samples_per_sec", "throughput_tokens_per_sec", "decode_tokens_per_sec")
"""Metrics that readers of these layouts would compute from the latency, although a result may count them otherwise."""
GPU_SERIES = {
    "gpu_utilization": ("utilization", 1.0),
    "gpu_memory_used": ("memory_device_used", BYTES_PER_MB / BYTES_PER_MIB),
}
"""Name in the file -> the raw metric, and the factor between their units."""
OWN_FIELDS = ("variant", "model_id", "compile_mode", "sdpa_backend", "use_cache", "attention", "attn_implementation")
"""Settings of a run that the layout has fields for."""
BENCH_OWN_FIELDS = ("compile_options", "generation_config")
"""Further ones, of a user-written benchmark."""
NO_GPU = {"gpu_monitoring_status": "disabled", "gpu_monitoring_reason": "no_gpus_available"}
NO_SAMPLES = {"gpu_monitoring_status": "failed", "gpu_monitoring_reason": "no_samples_collected"}


def scenario_file(model_name: str, results: Iterable[tuple[Run, Result]]) -> dict[str, Any]:
    """The document of the results that have raw latency samples; others are omitted."""
    scenarios: list[dict[str, Any]] = []
    settings: list[dict[str, Any]] = []
    for run, result in results:
        latency_s = [value / MS_PER_S for value in raw_values(result, LATENCY_WALL)]
        if not latency_s:
            continue
        series = {"latency": (latency_s, "seconds")}
        if first_ms := raw_values(result, "time_to_first_token"):
            series["time_to_first_token"] = ([value / MS_PER_S for value in first_ms], "seconds")
        per_token_s = [value / MS_PER_S for value in raw_values(result, STATED_PER_TOKEN)]
        if not per_token_s and (tokens := result.point.new_tokens) is not None:
            per_token_s = [value / tokens for value in latency_s]
        if len(per_token_s) == len(latency_s):
            series["tokens_per_second"] = ([1 / value for value in per_token_s if value > 0], "tokens/sec")
            series["time_per_output_token_seconds"] = (per_token_s, "seconds/token")
        in_blocks = any(one.inner_loops > 1 for one in timed_samples(result, LATENCY_WALL))
        measurements = {
            name: _statistics(name, values, unit, in_blocks=in_blocks and name != "time_to_first_token")
            for name, (values, unit) in series.items()
            if values
        }
        cell, point, mode, versions = run.cell, result.point, run.cell.settings, run.provenance.versions
        # Settings of a user-written benchmark are in its workload's config.
        of_bench = cell.workload.config if cell.workload.source == "bench" else {}
        own_fields = (*OWN_FIELDS, *BENCH_OWN_FIELDS) if of_bench else OWN_FIELDS
        places = {"name": cell.workload.model_id, "device": cell.device.selector, "num_threads": cell.num_threads}
        settings.append({**places, "cpu_list": cell.cpu_list, **mode})
        # Only devices with their own memory report it.
        is_of_device = any(name.startswith("memory_device_") for name in result.metrics)
        kind = plugins.kind_of(cell.device.type)
        is_gpu = kind is not None and kind.is_gpu(cell.device)
        has_gpu = is_gpu or is_of_device or bool(raw_values(result, "memory_device_used"))
        uses = {name: [value * by for value in raw_values(result, metric)] for name, (metric, by) in GPU_SERIES.items()}
        host_bytes, device_bytes = run.hardware.memory_bytes, cell.device.memory_bytes
        device_mib = None if device_bytes is None else device_bytes // BYTES_PER_MIB
        hardware = {
            "gpu_name": cell.device.name if has_gpu else "unknown",
            "gpu_memory_total": device_mib if has_gpu else 0,
            "cpu_count": run.hardware.cpu_threads,
            "memory_total": None if host_bytes is None else host_bytes // BYTES_PER_MIB,
            "python_version": versions.get("python"),
            "torch_version": versions.get("torch"),
            "cuda_version": versions.get("cuda"),
        }
        model_id, variant = cell.workload.config.get("model_id"), str(mode.get("variant", cell.runtime))
        scenarios.append(
            {
                "scenario_name": f"{variant} {cell.precision} {point.label}",
                "metadata": {
                    "timestamp": run.started_at.replace("Z", "+00:00"),
                    "commit_id": run.provenance.git_commit,
                    "hardware_info": hardware,
                    "config": {
                        "name": cell.workload.model_id,
                        "model_id": model_id if isinstance(model_id, str) else cell.workload.model_id,
                        "variant": variant,
                        "warmup_iterations": result.warmup_iterations,
                        "measurement_iterations": result.iterations,
                        "num_tokens_to_generate": point.new_tokens,
                        "device": cell.device.selector,
                        "torch_dtype": cell.precision,
                        "compile_mode": mode.get("compile_mode"),
                        **{name: of_bench[name] for name in BENCH_OWN_FIELDS if of_bench.get(name)},
                        **{name: mode[name] for name in ("sdpa_backend", "use_cache") if name in mode},
                        "batch_size": point.batch_size,
                        "sequence_length": point.sequence_length,
                        "attn_implementation": mode.get("attention", mode.get("attn_implementation")),
                        "custom_params": {name: value for name, value in mode.items() if name not in own_fields},
                    },
                    "benchhouse": facts(run, result),
                },
                "measurements": measurements,
                "gpu_metrics": gpu_summary(uses) if has_gpu else dict(NO_GPU),
            }
        )
    names = told_apart([scenario["scenario_name"] for scenario in scenarios], settings)
    for scenario, name in zip(scenarios, names, strict=True):
        scenario["scenario_name"] = name
    return {"model_name": model_name, "benchmark_scenarios": scenarios}


def facts(run: Run, result: Result) -> dict[str, Any]:
    """What the layouts of other tools have no field for, and our importers read back."""
    cell = run.cell
    return {
        "run_id": run.run_id,
        "result_id": result.result_id,
        "device": cell.device.selector,
        "device_name": cell.device.name,
        "device_count": cell.device.count,
        "runtime": cell.runtime,
        "runtime_mode": cell.settings,
        "precision": cell.precision,
        "num_threads": cell.num_threads,
        "weights": cell.workload.weights,
        "family": cell.workload.family,
        "task": cell.workload.task,
        "simulated": run.is_simulated,
        **({"axes": dict(result.point.axes)} if result.point.axes else {}),
        "launches": result.launches,
        "rates": {name: result.metrics[name] for name in RATES if name in result.metrics},
        "samples": {
            metric: [[len(one.values), one.inner_loops] for one in timed_samples(result, metric) if one.values]
            for metric in EXPORTED
        },
        "validity": result.validity,
        "doubts": [doubt.kind for doubt in result.doubts],
    }


def timed_samples(result: Result, metric: str) -> list[Samples]:
    """The timed raw samples of a metric, launch by launch; empty without any."""
    samples = (sample for sample in result.samples if sample.metric == metric and sample.phase == "measure")
    return sorted(samples, key=lambda one: one.launch)


def raw_values(result: Result, metric: str) -> list[float]:
    """The values of the timed raw samples of a metric, launch by launch."""
    return [value for sample in timed_samples(result, metric) for value in sample.values]


def _statistics(name: str, values: Sequence[float], unit: str, *, in_blocks: bool) -> dict[str, Any]:
    ordered = sorted(values)
    known = {"name": name, "measurements": list(values), "mean": fmean(values), "median": median(values), "unit": unit}
    if in_blocks:
        return known
    return {
        **known,
        "std": pstdev(values),
        "min": ordered[0],
        "max": ordered[-1],
        **{name: quantile_of_sorted(ordered, share) for name, share in QUANTILES.items()},
    }


def gpu_summary(found: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Mean, maximum and minimum of each series of a GPU that has values; the reason if none has."""
    filled = {name: values for name, values in found.items() if values}
    if not filled:
        return dict(NO_SAMPLES)
    return {
        **{f"{name}_mean": fmean(values) for name, values in filled.items()},
        **{f"{name}_max": max(values) for name, values in filled.items()},
        **{f"{name}_min": min(values) for name, values in filled.items()},
        "sample_count": max(map(len, filled.values())),
        "gpu_monitoring_status": "success",
    }
