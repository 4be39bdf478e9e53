"""transformers' benchmark_v2: the JSON file with a model's scenarios, and the JSON lines on the hub."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from benchmarking.core.metrics import BYTES_PER_MB, BYTES_PER_MIB, MS_PER_S
from benchmarking.core.records import NOT_SUPPORTED, Doubt, Json, Point, Result, Samples, Scalar
from benchmarking.core.sample_statistics import tail_quantile
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import block, foreign_result, in_ms, measured, median_of, negative_times
from db.importers.support.names import is_amd
from db.importers.support.reading import Fields, json_objects, mostly, shortened, understood

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
MODE = ("attn_implementation", "sdpa_backend", "compile_mode", "kernelize", "continuous_batching")
JSON_MODE = ("compile_kwargs", "compile_options")
FILE_NAME = re.compile(r"(.+)_benchmark_\d{8}_\d{6}\.json")
"""The model in a file's name, with underscores for slashes: older versions name it nowhere else."""
LONGEST_PROMPT = 400
"""About the tokens of the text that prompts are cut from: longer prompts come out this long."""
TOKEN_TIMES = ("timestamps", "token_generation_times")
"""Times of the tokens since the start of generate, in newer and first versions."""
NO_TIMES = f"{NOT_SUPPORTED}: the file has no times of single tokens, only their mean a call"
MB_PER_GIB = 1024 * BYTES_PER_MIB / BYTES_PER_MB
NOTHING = ("", "N/A", "unknown", "None")
Times = tuple[Sequence[float], ...]
"""The times of each request's tokens, in seconds."""


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if isinstance(data, dict) and not _is_entry(data):
        return mostly(data.values(), _is_entry)
    return mostly(file.json_lines, _is_entry)


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
    mode: dict[str, Scalar] = {}
    for name in MODE:
        value = config.any(name)
        if isinstance(value, str | bool | int) and value not in (False, ""):
            mode[name] = value
    for name in JSON_MODE:
        value = config.any(name)
        if value:
            mode[name] = json.dumps(value, sort_keys=True, ensure_ascii=False)
    # The file does not name the device, but if it lists a GPU, the tool ran on it.
    gpu, gpu_gib = hardware.text("gpu_name"), hardware.number("gpu_memory_total_gb", low=0)
    gpu = None if gpu in NOTHING else gpu
    named = FILE_NAME.fullmatch(entry.file.path.name)
    result = _result(entry, metadata, config)
    return ForeignRun(
        key=key,
        model_id=metadata.text("model_id") or (named[1] if named else "unknown"),
        family="decoder-only",
        task="text-generation",
        results=[result],
        started_at=metadata.time("timestamp"),
        device_type="unknown" if gpu is None else "rocm" if is_amd(gpu) else "cuda",
        device_name=gpu,
        device_memory_bytes=round(gpu_gib * MB_PER_GIB * BYTES_PER_MB) if gpu and gpu_gib else None,
        runtime="compiled" if {"compile_mode", "compile_kwargs"} & mode.keys() else "eager",
        runtime_mode=mode,
        versions={"torch": hardware.text("torch_version"), "python": hardware.text("python_version")},
        git_commit=metadata.text("commit_id"),
        git_branch=metadata.text("branch_name"),
        settings={"iterations": config.integer("measurement_iterations")},
        kept=entry.rest(),
        error=result.error,
    )


def _result(entry: Fields, metadata: Fields, config: Fields) -> Result:
    point = Point(
        batch_size=config.count("batch_size") or 1,
        sequence_length=config.count("sequence_length"),
        new_tokens=config.count("num_tokens_to_generate"),
    )
    is_newest = "success" in metadata
    has_succeeded = metadata.flag("success") is not False
    name = next((name for name in MEASUREMENTS if name in entry), MEASUREMENTS[0])
    measures = entry.section(name)
    latencies = in_ms(measures.numbers("e2e_latency") or ())
    if not (has_succeeded and latencies):
        why = "the tool could not run it" if not has_succeeded else "no call was measured"
        return foreign_result(point, metrics={}, status="failed", error=why)
    gpu: Json = measures.any("gpu_metrics")
    samples, metrics, missing = _generation(measures, point)
    # The highest reading of the GPU's memory over all iterations.
    peaks: list[float] = []
    for place, iteration in enumerate(gpu) if isinstance(gpu, list) else ():
        if isinstance(iteration, dict):
            peaks += Fields(entry.file, iteration, f"gpu_metrics[{place}]").numbers("memory_used", low=0) or ()
    memory = {"memory_device_global_peak_mb": max(peaks) * MB_PER_GIB} if peaks else {}
    found = [Doubt(kind="not_stated", severity="info", evidence={"fields": ["precision", "device"]})]
    if point.sequence_length and point.sequence_length > LONGEST_PROMPT:
        evidence: dict[str, Json] = {"sequence_length": point.sequence_length, "prompt_tokens_about": LONGEST_PROMPT}
        found.append(Doubt(kind="prompt_cut", severity="noisy", evidence=evidence))
    if not is_newest and "inter_token_latency" in measures:
        # Earlier versions divided by all tokens, including the first.
        found.append(Doubt(kind="token_divisor", severity="info", evidence={"new_tokens": point.new_tokens}))
    found += negative_times("latency_wall", latencies)
    doubts = (*found, *(doubt for sample in samples for doubt in negative_times(sample.metric, sample.values)))
    mean_ms = fmean(latencies)
    rates: dict[str, float] = {}
    if mean_ms > 0:
        rates["throughput_samples_per_sec"] = point.batch_size / mean_ms * MS_PER_S
        if point.new_tokens:
            rates["throughput_tokens_per_sec"] = rates["throughput_samples_per_sec"] * point.new_tokens
    return foreign_result(
        point,
        samples=[block(0, latencies), *samples],
        metrics=metrics | rates | memory,
        missing=missing,
        warmup_iterations=config.integer("warmup_iterations"),
        doubts=doubts,
        kept={"gpu_metrics": gpu} if gpu else {},
    )


def _generation(measures: Fields, point: Point) -> tuple[list[Samples], dict[str, float], dict[str, str]]:
    """First token and the tokens after it, from their times if the file has them, otherwise from the tool's means."""
    first, means = (in_ms(measures.numbers(name) or ()) for name in ("time_to_first_token", "inter_token_latency"))
    name = next((name for name in TOKEN_TIMES if name in measures), TOKEN_TIMES[0])
    timed = ((index, one) for index, one in enumerate(measures.each(name)) if one is not None)
    calls = list(understood(measures.file, timed, lambda one: _requests(measures, f"{name}[{one[0]}]", one[1])))
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
    samples: list[Samples] = []
    metrics: dict[str, float] = {}
    if first:
        samples.append(measured("time_to_first_token", first))
        metrics["time_to_first_token_ms"] = median_of(first)
    if means:
        samples.append(measured("time_per_output_token", means))
        metrics["time_per_output_token_ms"] = median_of(means)
        if (mean := fmean(means)) > 0:
            metrics["decode_tokens_per_sec"] = point.batch_size / mean * MS_PER_S
    if not gaps:
        return samples, metrics, dict.fromkeys(("inter_token_latency_p50_ms", "inter_token_latency_p99_ms"), NO_TIMES)
    samples.append(measured("inter_token_latency", gaps))
    p99 = tail_quantile(gaps, 0.99)
    gap_metrics = {
        "inter_token_latency_p50_ms": median_of(gaps),
        **({} if p99 is None else {"inter_token_latency_p99_ms": p99}),
    }
    return samples, metrics | gap_metrics, {}


def _requests(fields: Fields, place: str, requests: object) -> Times:
    """The times of a call: a list for each request, or in the first versions of its tokens alone."""
    if isinstance(requests, array) or (
        isinstance(requests, list) and mostly(requests, lambda one: isinstance(one, int | float))
    ):
        return (fields.number_list(requests, place),)
    if not isinstance(requests, list):
        fields.refuse(place, f"expected a list of requests, found {shortened(requests)}")
    return tuple(fields.number_list(one, f"{place}[{index}]") for index, one in enumerate(requests))


PLUGIN = Format(
    name="transformers_benchmark_v2",
    summary="transformers benchmark_v2: <model>_benchmark_<time>.json, and the JSON lines pushed to the hub",
    definition="transformers-benchmark-v2",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
