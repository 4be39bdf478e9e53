"""transformers' benchmark_v2: the JSON file with a model's scenarios, and the JSON lines on the hub.

Its first layout is one JSON object with a list of scenarios, with statistics, raw times and GPU utilization.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.metrics import BYTES_PER_GIB, BYTES_PER_MIB, MS_PER_S, bytes_to_mb
from benchmarking.core.records import NOT_SUPPORTED, PRECISIONS, Doubt, Json, Point, Result, Samples
from benchmarking.core.sample_statistics import tail_quantile
from benchmarking.core.scenario_file import RATES
from db.importers.support.building import ForeignRun, Format, exported, exported_axes, is_amd
from db.importers.support.files import ForeignFile
from db.importers.support.measures import (
    MS_PER_WORD,
    as_exported,
    foreign_result,
    in_ms,
    measured,
    median_of,
    medians,
    of_launches,
)
from db.importers.support.reading import (
    Fields,
    MetricTable,
    has_keys,
    json_objects,
    shortened,
    top_fields,
    understood,
)

DEFINITIONS = {
    "latency_*": "a call of generate, warmed up; with continuous batching all requests of a batch, sent at once",
    "throughput_*": "sequences and new tokens of a call over the mean latency; for decode_tokens_per_sec over the mean "
    "time per output token",
    "time_to_first_token_ms": "from the start of generate to the first token; of several requests the earliest",
    "time_per_output_token_ms": "from the first token to the last over the tokens after the first, mean over requests",
    "inter_token_latency_*": "gaps between successive tokens of a request, where the file has their times",
    "memory_device_global_peak_mb": "highest memory in use on the whole first GPU, by every process",
    "runtime_mode": "the scenario as the tool rewrote it: what it does not support together is turned off",
}
MEASUREMENTS = ("measurements", "measures")
NO_SETTING = (
    *("name", "warmup_iterations", "measurement_iterations"),
    *("batch_size", "sequence_length", "num_tokens_to_generate"),
)
"""Fields of a configuration that are no settings of the runtime."""
FILE_NAME = re.compile(r"(.+)_benchmark_\d{8}_\d{6}\.json")
"""The model in a file's name, with underscores for slashes: older versions name it nowhere else."""
LONGEST_PROMPT = 400
"""About the tokens of the text that prompts are cut from: longer prompts come out this long."""
TEXT = {"family": "decoder-only", "task": "text-generation"}
"""What the tool measures."""
TOKEN_TIMES = ("timestamps", "token_generation_times")
"""Times of the tokens since the start of generate, in newer and first versions."""
NO_TIMES = f"{NOT_SUPPORTED}: the file has no times of single tokens, only their mean a call"
MB_PER_GIB, MB_PER_MIB = bytes_to_mb(BYTES_PER_GIB), bytes_to_mb(BYTES_PER_MIB)
NOTHING = ("", "N/A", "unknown", "None")
Times = tuple[Sequence[float], ...]
"""The times of each request's tokens, in seconds."""

FIRST_DEFINITIONS = {
    "latency_*": "a call of generate, by CUDA events on a GPU, else by the clock; the standard deviation is stated",
    "time_to_first_token_ms": "a call of generate for one token, made by itself before each timed call",
    "time_per_output_token_ms": "the latency over all tokens of a sequence, the first one included",
    "throughput_*": "sequences of a call over the mean latency; tokens: tokens_per_second of the file, mean over the "
    "calls or else the median; without it tokens of all sequences over the mean latency",
    "utilization_*": "of the first GPU, sampled during the timed calls",
    "memory_device_used_mean_mb": "memory in use on the whole first GPU, by every process",
}
FIRST_RUNTIMES = ("compiled", "kernelized")
"""Variants that are runtimes; others are eager."""
FIRST_MODE = (
    *("attn_implementation", "sdpa_backend", "compile_mode"),
    *("compile_options", "generation_config", "custom_params"),
)
FIRST_STATED = ("mean", "median", "min", "max", "p25", "p75", "p90", "p95", "p99")
GPU_METRICS: MetricTable = {
    "gpu_utilization_mean": "utilization_mean_percent",
    "gpu_utilization_max": "utilization_max_percent",
    "gpu_memory_used_mean": ("memory_device_used_mean_mb", MB_PER_MIB),
    "gpu_memory_used_max": ("memory_device_global_peak_mb", MB_PER_MIB),
}
"""Name in the file -> our name, and the factor to its unit."""
FIRST_TOKEN_TIMES = ("time_to_first_token", "time_per_output_token_seconds")


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if isinstance(data, dict) and not _is_entry(data):
        return any(map(_is_entry, data.values()))
    return any(map(_is_entry, file.json_lines))


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    """A run for each scenario, since each has its own runtime settings."""
    if isinstance(file.json, dict) and not _is_entry(file.json):
        top = Fields(file, file.json)
        yield from understood(file, top, lambda key: _run(key, top.required(top.fields, key)))
        return
    if not file.json_lines:
        file.refuse("expected scenarios by hash, or one scenario per line")
    rows = json_objects(file, file.json_lines, "line")
    yield from understood(file, rows, lambda row: _run(row.text("benchmark_config_hash") or row.path, row))


def _is_entry(data: Any) -> bool:
    return isinstance(data, dict) and "metadata" in data and any(name in data for name in MEASUREMENTS)


def _run(key: str, entry: Fields) -> ForeignRun:
    metadata = entry.required(entry.fields, "metadata")
    config = entry.fields("config") or metadata.fields("config") or entry.refuse("config", "is missing")
    hardware = metadata.section("hardware_info")
    mode = config.unread_copy().other_settings(NO_SETTING)
    # The file does not name the device, but if it lists a GPU, the tool ran on it.
    gpu, gpu_gib = hardware.text("gpu_name"), hardware.number("gpu_memory_total_gb", low=0)
    gpu = None if gpu in NOTHING else gpu
    named = FILE_NAME.fullmatch(entry.file.called.name)
    facts = metadata.section("benchhouse")
    setup: dict[str, Any] = {
        **TEXT,
        "device_type": "unknown" if gpu is None else "rocm" if is_amd(gpu) else "cuda",
        "device_name": gpu,
        "runtime": "compiled" if {"compile_mode", "compile_kwargs"} & mode.keys() else "eager",
        "runtime_mode": mode,
        **exported(facts),
    }
    result = as_exported(_result(entry, metadata, config, facts), facts.items("doubts"), facts.text("validity"))
    return ForeignRun(
        key=key,
        model_id=metadata.text("model_id") or (named[1] if named else "unknown"),
        results=[result],
        started_at=metadata.time("timestamp"),
        device_memory_bytes=round(gpu_gib * BYTES_PER_GIB) if gpu and gpu_gib else None,
        **setup,
        versions={"torch": hardware.text("torch_version"), "python": hardware.text("python_version")},
        git_commit=metadata.text("commit_id"),
        git_branch=metadata.text("branch_name"),
        settings={"iterations": config.integer("measurement_iterations")},
        kept=entry.rest(),
        error=result.error,
    )


def _point(config: Fields, facts: Fields) -> Point:
    return Point(
        batch_size=config.count("batch_size") or 1,
        sequence_length=config.count("sequence_length"),
        new_tokens=config.count("num_tokens_to_generate"),
        axes=exported_axes(facts.any("axes")),
    )


def _result(entry: Fields, metadata: Fields, config: Fields, facts: Fields) -> Result:
    point = _point(config, facts)
    is_newest = "success" in metadata
    has_succeeded = metadata.flag("success") is not False
    name = next((name for name in MEASUREMENTS if name in entry), MEASUREMENTS[0])
    measures = entry.section(name)
    latencies = in_ms(measures.numbers("e2e_latency"))
    if not (has_succeeded and latencies):
        why = "the tool could not run it" if not has_succeeded else "no call was measured"
        return foreign_result(point, status="failed", error=why)
    gpu: Json = measures.any("gpu_metrics")
    launches = facts.section("samples")
    samples, metrics, missing = _generation(measures, point, launches)
    # The highest reading of the GPU's memory over all iterations.
    peaks: list[float] = []
    for place, iteration in enumerate(gpu) if isinstance(gpu, list) else ():
        if isinstance(iteration, dict):
            peaks += Fields(entry.file, iteration, f"gpu_metrics[{place}]").numbers("memory_used", low=0) or ()
    memory = {"memory_device_global_peak_mb": max(peaks) * MB_PER_GIB} if peaks else {}
    found: list[Doubt] = []
    if not_stated := [name for name in ("precision", "device") if name not in facts]:
        found.append(doubt("not_stated", "info", fields=list(not_stated)))
    if "result_id" not in facts and point.sequence_length and point.sequence_length > LONGEST_PROMPT:
        sizes = {"sequence_length": point.sequence_length, "prompt_tokens_about": LONGEST_PROMPT}
        found.append(doubt("prompt_cut", "noisy", **sizes))
    if not is_newest and "inter_token_latency" in measures:
        # Earlier versions divided by all tokens, including the first.
        found.append(doubt("token_divisor", "info", new_tokens=point.new_tokens))
    return foreign_result(
        point,
        samples=[*of_launches("latency_wall", latencies, launches.any("latency_wall")), *samples],
        metrics=metrics | _rates(point, fmean(latencies), facts) | memory,
        missing=missing,
        warmup_iterations=config.integer("warmup_iterations"),
        doubts=found,
        kept={"gpu_metrics": gpu} if gpu else {},
    )


def _rates(point: Point, mean_ms: float | None, facts: Fields) -> dict[str, float | None]:
    """Those that an export of ours states, as other tools count and withhold them; else items over the mean latency."""
    if (stated := facts.fields("rates")) is not None:
        return {name: stated.number(name, low=0) for name in RATES}
    if mean_ms is None or mean_ms <= 0:
        return {}
    rate = point.batch_size / mean_ms * MS_PER_S
    return {"throughput_samples_per_sec": rate, "throughput_tokens_per_sec": rate * (point.new_tokens or 0) or None}


def _generation(
    measures: Fields, point: Point, launches: Fields
) -> tuple[list[Samples], dict[str, float | None], dict[str, str]]:
    """First token and the tokens after it, from their times if the file has them, otherwise from the tool's means;
    with the sizes of launches in an export of ours."""
    first, means = (in_ms(measures.numbers(name)) for name in ("time_to_first_token", "inter_token_latency"))
    name = next((name for name in TOKEN_TIMES if name in measures), TOKEN_TIMES[0])

    def times_of(numbered: tuple[int, object]) -> Times:
        """The times of a call: a list for each request, or in the first versions of its tokens alone."""
        place, requests = f"{name}[{numbered[0]}]", numbered[1]
        if isinstance(requests, array) or (
            isinstance(requests, list) and not any(isinstance(one, list | array) for one in requests)
        ):
            return (measures.number_list(requests, place),)
        if not isinstance(requests, list):
            measures.refuse(place, f"expected a list of requests, found {shortened(requests)}")
        return tuple(measures.number_list(one, f"{place}[{index}]") for index, one in enumerate(requests))

    timed = ((index, one) for index, one in enumerate(measures.each(name)) if one is not None)
    calls = list(understood(measures.file, timed, times_of))
    if calls and not first and not means:
        # The first versions state neither; these are the definitions of the others.
        first = in_ms([min(times[0] for times in requests if times) for requests in calls if any(requests)])
        means = in_ms(
            [
                fmean((times[-1] - times[0]) / (len(times) - 1) for times in requests)
                for requests in calls
                if requests and min(map(len, requests)) > 1
            ]
        )
    gaps = array("d")
    for requests in calls:
        # Requests of a batch with equal times count once.
        distinct = {array("d", request).tobytes(): request for request in requests}
        gaps.extend((after - before) * MS_PER_S for times in distinct.values() for before, after in pairwise(times))
    metrics = medians([measured("time_to_first_token", first), measured("time_per_output_token", means)])
    samples = of_launches("time_to_first_token", first, launches.any("time_to_first_token"))
    samples += of_launches("time_per_output_token", means, launches.any("time_per_output_token"))
    if means and (mean := fmean(means)) > 0:
        metrics["decode_tokens_per_sec"] = point.batch_size / mean * MS_PER_S
    if not gaps:
        return samples, metrics, dict.fromkeys(("inter_token_latency_p50_ms", "inter_token_latency_p99_ms"), NO_TIMES)
    metrics |= {"inter_token_latency_p50_ms": median_of(gaps), "inter_token_latency_p99_ms": tail_quantile(gaps, 0.99)}
    return [*samples, measured("inter_token_latency", gaps)], metrics, {}


def read_first_layout(file: ForeignFile) -> Iterator[ForeignRun]:
    """A run for each scenario, since each has its own runtime settings."""
    top = top_fields(file)
    model_name = top.text("model_name") or "unknown"
    scenarios = enumerate(top.objects("benchmark_scenarios") or (), 1)
    yield from understood(file, scenarios, lambda one: _first_run(f"{one[0]}", one[1], model_name))


def _first_run(key: str, scenario: Fields, model_name: str) -> ForeignRun:
    metadata = scenario.section("metadata")
    config, hardware = metadata.section("config"), metadata.section("hardware_info")
    facts = metadata.section("benchhouse")
    result = as_exported(_first_result(scenario, config, facts), facts.items("doubts"), facts.text("validity"))
    mode = config.settings(FIRST_MODE)
    if (uses_cache := config.flag("use_cache")) is False:
        mode["use_cache"] = uses_cache
    variant = config.text("variant") or ""
    dtype = (config.text("torch_dtype") or "").removeprefix("torch.")
    # The configuration names the device by torch's type; without it, the tool ran on the GPU that the file lists.
    gpu, gpu_mib = hardware.text("gpu_name"), hardware.number("gpu_memory_total", low=0)
    gpu = None if gpu in NOTHING else gpu
    kind = (config.text("device") or ("cuda" if gpu else "unknown")).partition(":")[0]
    is_gpu = gpu is not None and (kind == "cuda" or "device" in facts)
    total_mib = hardware.number("memory_total", low=0)
    setup: dict[str, Any] = {
        **TEXT,
        "device_type": "rocm" if is_gpu and is_amd(gpu or "") else kind,
        "device_name": gpu if is_gpu else None,
        "runtime": variant if variant in FIRST_RUNTIMES else "eager",
        "runtime_mode": mode,
        "precision": next((precision for precision in PRECISIONS if precision == dtype), "unknown"),
        **exported(facts),
    }
    return ForeignRun(
        key=key,
        model_id=config.text("model_id") or model_name,
        results=[result],
        started_at=metadata.time("timestamp"),
        stated_times=(str(metadata.peek("timestamp") or ""),),
        device_memory_bytes=round(gpu_mib * BYTES_PER_MIB) if is_gpu and gpu_mib else None,
        cpu_threads=hardware.count("cpu_count"),
        memory_bytes=None if total_mib is None else round(total_mib * BYTES_PER_MIB),
        **setup,
        versions={name: hardware.text(f"{name}_version") for name in ("torch", "python", "cuda")},
        git_commit=metadata.text("commit_id"),
        tags={"scenario": scenario.text("scenario_name")},
        settings={"iterations": config.integer("measurement_iterations")},
        kept=scenario.rest(),
        error=result.error,
    )


def _first_result(scenario: Fields, config: Fields, facts: Fields) -> Result:
    point = _point(config, facts)
    measures, gpu = scenario.section("measurements"), scenario.section("gpu_metrics")
    times = [_times(measures.section(name)) for name in ("latency", *FIRST_TOKEN_TIMES)]
    (latency, latency_ms), (first, first_ms), (each, each_ms) = times
    latencies, firsts, means = (
        array("d", (value * unit_ms for value in entry.numbers("measurements") or ())) for entry, unit_ms in times
    )
    launches = facts.section("samples")
    divisor = doubt("token_divisor", "info", new_tokens=point.new_tokens)
    mean_ms = fmean(latencies) if latencies else latency.unread_copy().scaled("mean", latency_ms)
    rates = _rates(point, mean_ms, facts)
    # The tokens per second as the file states them: they count the tokens of a batch as the tool does. In an export of
    # ours they are those of one sequence.
    speed = measures.section("tokens_per_second")
    if speed.text("unit") in (None, "tokens/sec", "tokens/s", "tokens/second"):
        speeds = {name: speed.number(name, low=0) for name in (*FIRST_STATED, "std")}
        raw = speed.unread_copy().numbers("measurements", low=0)
        mean = speeds["mean"] if speeds["mean"] is not None else fmean(raw) if raw else speeds["median"]
        rates |= {f"tokens_per_second_{name}": value for name, value in speeds.items()}
        if mean is not None and "result_id" not in facts:
            rates["throughput_tokens_per_sec"] = mean
    else:
        speed.leave_out("unit", f"expected tokens/sec, found {shortened(speed.peek('unit'))}")
    further = {
        f"{metric}_{name}_ms": entry.scaled(name, unit_ms)
        for (entry, unit_ms), metric in zip(times[1:], ("time_to_first_token", "time_per_output_token"), strict=True)
        for name in (*FIRST_STATED, "std")
        if name != "median"
    }
    return foreign_result(
        point,
        samples=[
            *of_launches("latency_wall", latencies, launches.any("latency_wall")),
            *of_launches("time_to_first_token", firsts, launches.any("time_to_first_token")),
            *of_launches("time_per_output_token", means, launches.any("latency_wall")),
        ],
        metrics={
            "time_to_first_token_ms": median_of(firsts) if firsts else first.scaled("median", first_ms),
            "time_per_output_token_ms": median_of(means) if means else each.scaled("median", each_ms),
            **rates,
            # The lowest values, the number of samples and the monitor's status are only kept.
            **gpu.metrics(GPU_METRICS, low=0),
        },
        stated={
            **{f"latency_{name}_ms": latency.scaled(name, latency_ms) for name in FIRST_STATED},
            "stated_latency_population_std_ms": latency.scaled("std", latency_ms),
            **further,
        },
        iterations=config.integer("measurement_iterations"),
        warmup_iterations=config.integer("warmup_iterations"),
        doubts=(divisor,) if means else (),
    )


def _times(entry: Fields) -> tuple[Fields, float]:
    """Times of a scenario and the milliseconds in their unit, by default seconds; none of a unit that is not known."""
    word = entry.text("unit") or "seconds"
    unit_ms = MS_PER_WORD.get(word.removesuffix("/token"))
    if unit_ms is not None:
        return entry, unit_ms
    entry.leave_out("unit", f"expected seconds or milliseconds, found {shortened(word)}")
    return Fields(entry.file, {}, entry.path), 1.0


BENCHMARK_V2 = Format(
    name="transformers_benchmark_v2",
    summary="transformers benchmark_v2: <model>_benchmark_<time>.json, and the JSON lines pushed to the hub",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
FIRST_LAYOUT = Format(
    name="benchmark_scenarios",
    summary="benchmark_v2 in its first layout: model_name, benchmark_scenarios, gpu_metrics (json)",
    definition="benchmark-v2-scenarios",
    definitions=FIRST_DEFINITIONS,
    recognises=lambda file: (
        has_keys(file.json, {"model_name", "benchmark_scenarios"})
        and isinstance(file.json["benchmark_scenarios"], list)
    ),
    read=read_first_layout,
)

PLUGINS = (BENCHMARK_V2, FIRST_LAYOUT)
