"""benchmark_v2's first layout: a JSON file with a model's scenarios, with statistics, raw times and GPU utilization."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import fmean

from benchmarking.core.metrics import BYTES_PER_MB, BYTES_PER_MIB, MS_PER_S
from benchmarking.core.records import PRECISIONS, Doubt, Point, Result, Samples, Scalar
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import block, foreign_result, in_ms, measured, median_of, negative_times
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
TOKEN_TIMES = ("time_to_first_token", "time_per_output_token_seconds")
NO_NAME = ("", "unknown", "N/A")


def recognises(file: ForeignFile) -> bool:
    data = file.json
    return isinstance(data, dict) and isinstance(data.get("benchmark_scenarios"), list) and "model_name" in data


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    """A run for each scenario, since each has its own runtime settings."""
    top = top_fields(file)
    model_name = top.text("model_name") or "unknown"
    scenarios = enumerate(top.objects("benchmark_scenarios") or (), 1)
    yield from understood(file, scenarios, lambda one: _run(f"{one[0]}", one[1], model_name))


def _run(key: str, scenario: Fields, model_name: str) -> ForeignRun:
    metadata = scenario.section("metadata")
    config, hardware = metadata.section("config"), metadata.section("hardware_info")
    result = _result(scenario, config)
    mode: dict[str, Scalar] = {name: value for name in MODE if (value := config.text(name))}
    if (uses_cache := config.flag("use_cache")) is False:
        mode["use_cache"] = uses_cache
    for name in ("compile_options", "custom_params"):
        if given := config.any(name):
            mode[name] = json.dumps(given, sort_keys=True, ensure_ascii=False)
    dtype = (config.text("torch_dtype") or "").removeprefix("torch.")
    # The configuration names the device by torch's type; without it, the tool ran on the GPU that the file lists.
    gpu, gpu_mib = hardware.text("gpu_name"), hardware.number("gpu_memory_total", low=0)
    gpu = None if gpu in NO_NAME else gpu
    kind = (config.text("device") or ("cuda" if gpu else "unknown")).partition(":")[0]
    is_gpu = kind == "cuda" and gpu is not None
    total_mib = hardware.number("memory_total", low=0)
    return ForeignRun(
        key=key,
        model_id=config.text("model_id") or model_name,
        family="decoder-only",
        task="text-generation",
        results=[result],
        started_at=metadata.time("timestamp"),
        stated_times=(str(metadata.peek("timestamp") or ""),),
        device_type="rocm" if is_gpu and is_amd(gpu or "") else kind,
        device_name=gpu if is_gpu else None,
        device_memory_bytes=round(gpu_mib * BYTES_PER_MIB) if is_gpu and gpu_mib else None,
        cpu_threads=hardware.count("cpu_count"),
        memory_bytes=None if total_mib is None else round(total_mib * BYTES_PER_MIB),
        runtime=RUNTIMES.get(config.text("variant") or "", "eager"),
        runtime_mode=mode,
        precision=next((precision for precision in PRECISIONS if precision == dtype), "unknown"),
        versions={name: hardware.text(f"{name}_version") for name in ("torch", "python", "cuda")},
        git_commit=metadata.text("commit_id"),
        tags={"scenario": scenario.text("scenario_name")},
        settings={"iterations": config.integer("measurement_iterations")},
        kept=scenario.rest(),
        error=result.error,
    )


def _result(scenario: Fields, config: Fields) -> Result:
    point = Point(
        batch_size=config.count("batch_size") or 1,
        sequence_length=config.count("sequence_length"),
        new_tokens=config.count("num_tokens_to_generate"),
    )
    measures, gpu = scenario.section("measurements"), scenario.section("gpu_metrics")
    latency, first, each = (measures.section(name) for name in ("latency", *TOKEN_TIMES))
    latencies, firsts, means = (in_ms(entry.numbers("measurements") or ()) for entry in (latency, first, each))
    samples: list[Samples] = [block(0, latencies)] if latencies else []
    samples += [measured("time_to_first_token", firsts)] if firsts else []
    samples += [measured("time_per_output_token", means)] if means else []
    doubts = [doubt for sample in samples for doubt in negative_times(sample.metric, sample.values)]
    if means:
        doubts.insert(0, Doubt(kind="token_divisor", severity="info", evidence={"new_tokens": point.new_tokens}))
    mean_ms = fmean(latencies) if latencies else latency.unread_copy().scaled("mean", MS_PER_S)
    rates: dict[str, float | None] = {}
    if mean_ms is not None and mean_ms > 0:
        rate = point.batch_size / mean_ms * MS_PER_S
        rates["throughput_samples_per_sec"] = rate
        if point.new_tokens:
            rates["throughput_tokens_per_sec"] = rate * point.new_tokens
    # The tokens per second as the file states them: they count the tokens of a batch as the tool does.
    speed = measures.section("tokens_per_second")
    if speed.text("unit") in (None, "tokens/sec", "tokens/s", "tokens/second"):
        speeds = {name: speed.number(name, low=0) for name in (*STATED, "std")}
        raw = speed.unread_copy().numbers("measurements", low=0)
        mean = speeds["mean"] if speeds["mean"] is not None else fmean(raw) if raw else speeds["median"]
        rates |= {f"tokens_per_second_{name}": value for name, value in speeds.items()}
        rates |= {} if mean is None else {"throughput_tokens_per_sec": mean}
    else:
        speed.leave_out("unit", f"expected tokens/sec, found {speed.peek('unit')!r:.40}")
    further = {
        f"{metric}_{name}_ms": times.scaled(name, MS_PER_S)
        for times, metric in ((first, "time_to_first_token"), (each, "time_per_output_token"))
        for name in (*STATED, "std")
        if name != "median"
    }
    return foreign_result(
        point,
        samples=samples,
        metrics={
            "time_to_first_token_ms": median_of(firsts) if firsts else first.scaled("median", MS_PER_S),
            "time_per_output_token_ms": median_of(means) if means else each.scaled("median", MS_PER_S),
            **rates,
            # The lowest values, the number of samples and the monitor's status are only kept.
            **{metric: gpu.scaled(name, factor, low=0) for name, (metric, factor) in GPU_METRICS.items()},
        },
        stated={
            **{f"latency_{name}_ms": latency.scaled(name, MS_PER_S) for name in STATED},
            "stated_latency_population_std_ms": latency.scaled("std", MS_PER_S),
            **further,
        },
        iterations=config.integer("measurement_iterations"),
        warmup_iterations=config.integer("warmup_iterations"),
        doubts=doubts,
    )


PLUGIN = Format(
    name="benchmark_scenarios",
    summary="benchmark_v2 in its first layout: model_name, benchmark_scenarios, gpu_metrics (json)",
    definition="benchmark-v2-scenarios",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
