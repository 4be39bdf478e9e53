"""benchmark_v2's first layout: a JSON file with a model's scenarios, with statistics, raw times and GPU utilization."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from benchmarking.core.metrics import BYTES_PER_MB, BYTES_PER_MIB
from benchmarking.core.records import PRECISIONS, Doubt, Json, Point, Precision, Result, Samples, Scalar
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import MS_PER_S, block, foreign_result, in_ms, measured, median_of, negative_times
from db.importers.support.names import is_amd
from db.importers.support.reading import Fields, top_fields, understood

DEFINITIONS = {
    "latency_*": "a call of generate, by CUDA events on a GPU, else by the clock; the standard deviation is stated",
    "time_to_first_token_ms": "a call of generate for one token, made by itself before each timed call",
    "time_per_output_token_ms": "the latency over all tokens of a sequence, the first one included",
    "throughput_*": "sequences of a call over the mean latency; tokens: tokens_per_second of the file, mean over the "
    "calls or else the median; without it tokens of all sequences over the mean latency",
    "utilization_*": "of the first GPU, sampled during the timed calls",
    "memory_device_used_mean_mb": "memory in use on the whole first GPU, by every process",
}
MB_PER_MIB = BYTES_PER_MIB / BYTES_PER_MB
RUNTIMES = {"compiled": "compiled", "kernelized": "kernelized"}
"""Variant -> runtime; others are eager."""
MODE = ("attn_implementation", "sdpa_backend", "compile_mode")
STATED = ("mean", "median", "min", "max", "p25", "p75", "p90", "p95", "p99")
GPU_METRICS = {
    "gpu_utilization_mean": ("utilization_mean_percent", 1.0),
    "gpu_utilization_max": ("utilization_max_percent", 1.0),
    "gpu_memory_used_mean": ("memory_device_used_mean_mb", MB_PER_MIB),
    "gpu_memory_used_max": ("memory_device_global_peak_mb", MB_PER_MIB),
}
"""Name in the file -> our name, and the factor to its unit."""
NO_NAME = ("", "unknown", "N/A")


def _is_scenarios(file: ForeignFile) -> bool:
    data = file.json
    return isinstance(data, dict) and isinstance(data.get("benchmark_scenarios"), list) and "model_name" in data


def _read(file: ForeignFile) -> Iterator[ForeignRun]:
    """A run for each scenario, since each has its own runtime settings."""
    top = top_fields(file)
    model_name = top.text("model_name") or "unknown"
    scenarios = enumerate(top.objects("benchmark_scenarios") or (), 1)
    yield from understood(file, scenarios, lambda one: _run(f"{one[0]}", one[1], model_name))


def _run(key: str, scenario: Fields, model_name: str) -> ForeignRun:
    metadata = scenario.section("metadata")
    config, hardware = metadata.section("config"), metadata.section("hardware_info")
    result = _result(scenario, config)
    total_mib = hardware.number("memory_total", low=0)
    runtime_mode: dict[str, Scalar] = {name: value for name in MODE if (value := config.text(name))}
    if (uses_cache := config.flag("use_cache")) is False:
        runtime_mode["use_cache"] = uses_cache
    for name in ("compile_options", "custom_params"):
        if given := config.any(name):
            runtime_mode[name] = json.dumps(given, sort_keys=True, ensure_ascii=False)
    return ForeignRun(
        key=key,
        model_id=config.text("model_id") or model_name,
        family="decoder-only",
        task="text-generation",
        results=[result],
        started_at=metadata.time("timestamp"),
        stated_times=(str(metadata.peek("timestamp") or ""),),
        **_device(hardware, config),
        cpu_threads=hardware.count("cpu_count"),
        memory_bytes=None if total_mib is None else round(total_mib * BYTES_PER_MIB),
        runtime=RUNTIMES.get(config.text("variant") or "", "eager"),
        runtime_mode=runtime_mode,
        precision=_precision(config),
        versions={
            "torch": hardware.text("torch_version"),
            "python": hardware.text("python_version"),
            "cuda": hardware.text("cuda_version"),
        },
        git_commit=metadata.text("commit_id"),
        tags={"scenario": scenario.text("scenario_name")},
        settings={"iterations": config.integer("measurement_iterations")},
        kept=scenario.rest(),
        error=result.error,
    )


def _device(hardware: Fields, config: Fields) -> dict[str, Any]:
    """The device that the configuration names, which begins with torch's device type."""
    name, memory_mib = hardware.text("gpu_name"), hardware.number("gpu_memory_total", low=0)
    has_name = name is not None and name not in NO_NAME
    # A file whose configuration names no device ran on the GPU that it lists.
    kind = (config.text("device") or ("cuda" if has_name else "unknown")).partition(":")[0]
    if kind != "cuda" or name is None or not has_name:
        return {"device_type": kind}
    return {
        "device_type": "rocm" if is_amd(name) else kind,
        "device_name": name,
        "device_memory_bytes": round(memory_mib * BYTES_PER_MIB) if memory_mib else None,
    }


def _precision(config: Fields) -> Precision:
    stated = (config.text("torch_dtype") or "").removeprefix("torch.")
    return next((precision for precision in PRECISIONS if precision == stated), "unknown")


def _result(scenario: Fields, config: Fields) -> Result:
    point = Point(
        batch_size=config.count("batch_size") or 1,
        sequence_length=config.count("sequence_length"),
        new_tokens=config.count("num_tokens_to_generate"),
    )
    measures = scenario.section("measurements")
    latency, first = measures.section("latency"), measures.section("time_to_first_token")
    each, speed = measures.section("time_per_output_token_seconds"), measures.section("tokens_per_second")
    latencies, firsts, means = _raw_ms(latency), _raw_ms(first), _raw_ms(each)
    samples: list[Samples] = [block(0, latencies)] if latencies else []
    samples += [measured("time_to_first_token", firsts)] if firsts else []
    samples += [measured("time_per_output_token", means)] if means else []
    mean_ms = fmean(latencies) if latencies else _ms(latency.unread_copy(), "mean")
    has_means = bool(means)
    found: list[Doubt] = []
    if has_means:
        evidence: dict[str, Json] = {"new_tokens": point.new_tokens}
        found.append(Doubt(kind="token_divisor", severity="info", evidence=evidence))
    doubts = (*found, *(doubt for one in samples for doubt in negative_times(one.metric, one.values)))
    if not mean_ms or mean_ms <= 0:
        rates = {}
    else:
        rate = point.batch_size / mean_ms * MS_PER_S
        tokens = {"throughput_tokens_per_sec": rate * point.new_tokens} if point.new_tokens else {}
        rates = {"throughput_samples_per_sec": rate, **tokens}
    return foreign_result(
        point,
        samples=samples,
        metrics={
            "time_to_first_token_ms": median_of(firsts) if firsts else _ms(first, "median"),
            "time_per_output_token_ms": median_of(means) if means else _ms(each, "median"),
            **rates,
            **_speeds(speed),
            **_gpu(scenario.section("gpu_metrics")),
        },
        stated={
            **{f"latency_{name}_ms": _ms(latency, name) for name in STATED},
            "stated_latency_population_std_ms": _ms(latency, "std"),
            **_further(first, "time_to_first_token"),
            **_further(each, "time_per_output_token"),
        },
        iterations=config.integer("measurement_iterations"),
        warmup_iterations=config.integer("warmup_iterations"),
        doubts=doubts,
    )


def _further(statistics: Fields, metric: str) -> dict[str, float | None]:
    """The other statistics of a time, in ms."""
    return {f"{metric}_{name}_ms": _ms(statistics, name) for name in (*STATED, "std") if name != "median"}


def _speeds(speed: Fields) -> dict[str, float | None]:
    """The tokens per second as the file states them: they count the tokens of a batch as the tool does."""
    if speed.text("unit") not in (None, "tokens/sec", "tokens/s", "tokens/second"):
        speed.leave_out("unit", f"expected tokens/sec, found {speed.peek('unit')!r:.40}")
        return {}
    found = {name: speed.number(name, low=0) for name in (*STATED, "std")}
    raw = speed.unread_copy().numbers("measurements", low=0)
    mean = found["mean"] if found["mean"] is not None else fmean(raw) if raw else found["median"]
    others = {f"tokens_per_second_{name}": value for name, value in found.items()}
    return {**others, **({} if mean is None else {"throughput_tokens_per_sec": mean})}


def _raw_ms(statistics: Fields) -> array[float]:
    return in_ms(statistics.numbers("measurements") or ())


def _ms(statistics: Fields, name: str) -> float | None:
    value = statistics.number(name)
    return None if value is None else value * MS_PER_S


def _gpu(gpu: Fields) -> dict[str, float | None]:
    """GPU utilization and memory; the lowest values, the number of samples and the monitor's status are only kept."""
    found = {ours: (gpu.number(name, low=0), factor) for name, (ours, factor) in GPU_METRICS.items()}
    return {name: None if value is None else value * factor for name, (value, factor) in found.items()}


PLUGIN = Format(
    name="benchmark_scenarios",
    summary="benchmark_v2 in its first layout: model_name, benchmark_scenarios, gpu_metrics (json)",
    definition="benchmark-v2-scenarios",
    definitions=DEFINITIONS,
    recognises=_is_scenarios,
    read=_read,
)
