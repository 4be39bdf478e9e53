"""vLLM's `vllm bench serve` (before: benchmark_serving.py): one load, or with --append-result one a line.

Times are in ms, those of the raw lists in s. Where nothing was streamed, or no request had a second token, the file has
0 for the metrics that were not measured. The date is the end of the load, in local time.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TypeVar

from benchmarking.core.records import NOT_APPLICABLE, Doubt, Json, Result, Run, Samples
from db.importers.support.building import foreign_result, foreign_run, undated
from db.importers.support.files import ForeignFile
from db.importers.support.measures import MS_PER_S, latency_metrics, measured, supported_tails
from db.importers.support.reading import Fields, shifted, short, without_zone
from db.importers.support.serving import LATENCY_COLUMNS, common_length, engine, length_axes, load_doubts, load_point

Value = TypeVar("Value")
STATISTIC = re.compile(
    r"(mean|median|std|p[0-9.]+)_(ttft|tpot|itl|e2el|e2el_including_client_queue|client_queue_time)_ms"
)
OURS = {
    ("median", "ttft"): "time_to_first_token_ms",
    ("median", "tpot"): "time_per_output_token_ms",
    **{(statistic, "e2el"): column for statistic, column in LATENCY_COLUMNS.items()},
}
ABSENT_AT_ZERO = ("ttft", "tpot", "itl")
NOT_STREAMED = f"{NOT_APPLICABLE}: 0 in the file, which has it for requests that were not streamed or had one token"
RAW = {"latencies": "latency_wall", "ttfts": "time_to_first_token"}
"""List -> metric of its samples."""
NUMBERS = {
    "duration": "duration_s",
    "total_input_tokens": "total_input_tokens",
    "total_output_tokens": "total_output_tokens",
    "total_input_sequences": "total_input_sequences",
    "request_throughput": "throughput_samples_per_sec",
    "output_throughput": "throughput_tokens_per_sec",
    "total_token_throughput": "total_tokens_per_sec",
    "input_sequence_throughput": "input_sequences_per_sec",
    "request_goodput": "request_goodput_per_sec",
    "max_output_tokens_per_s": "max_output_tokens_per_sec",
    "max_concurrent_requests": "max_concurrent_requests",
    "rtfx": "rtfx",
    "probe_completed": "probe_completed_requests",
    "probe_failed": "probe_failed_requests",
    "probe_median_e2el_ms": "probe_median_e2el_ms",
    "probe_p99_e2el_ms": "probe_p99_e2el_ms",
    "probe_max_e2el_ms": "probe_max_e2el_ms",
    "spec_decode_acceptance_rate": "spec_decode_acceptance_percent",
    "spec_decode_acceptance_length": "spec_decode_acceptance_length",
}
"""Field -> metric; a metric without a column has the field's meaning."""
REQUIRED = {"model_id", "num_prompts", "request_throughput"}
DATE = "%Y%m%d-%H%M%S"
DEFINITIONS = {
    "latency": "e2el: from sending a request to its last byte, of the requests that succeeded",
    "time_to_first_token_ms": "median ttft: from the start of a request to the first output that was streamed",
    "time_per_output_token_ms": "median tpot: (latency - ttft) / (output tokens - 1) of each request",
    "itl": "every gap between chunks of the stream, of all requests together; a chunk need not be one token",
    "std": "standard deviations are of the population",
    "throughput_samples_per_sec": "requests that succeeded over the duration of the whole load",
    "throughput_tokens_per_sec": "output tokens of them over the duration of the whole load",
    "client_queue_time": "wait of a request in the client for a place among max_concurrency",
}


class VllmBenchServe:
    """Reads the output of --save-result and --append-result."""

    name = "vllm_bench_serve"
    summary = "vLLM: vllm bench serve --save-result (json, also several in one file)"

    def recognises(self, file: ForeignFile) -> bool:
        loads = _loads(file)
        return bool(loads) and all(isinstance(load, dict) and load.keys() >= REQUIRED for load in loads)

    def runs(self, file: ForeignFile) -> Iterator[Run]:
        loads = _loads(file)
        if not loads:
            file.refuse("not JSON, or truncated")
        for index, load in enumerate(loads):
            if not isinstance(load, dict):
                file.refuse(f"entry {index + 1}: expected an object, found {short(load)}")
            yield _run(Fields(file, load, f"entry {index + 1}" if len(loads) > 1 else ""), index)


def _loads(file: ForeignFile) -> Sequence[Json]:
    return file.json_lines if file.json is None else (file.json,)


def _run(load: Fields, index: int) -> Run:
    file, date = load.file, load.text("date")
    finished_at = file.modified_at if date is None else _date(load, date)
    started_at = shifted(file, finished_at, -(load.number("duration", low=0) or 0.0))
    doubts = (undated(file),) if date is None else without_zone([date])
    backend, label = load.text("backend") or load.text("endpoint_type"), load.text("label")
    model_id = load.must(load.text, "model_id")
    result = _result(load, started_at, doubts)
    return foreign_run(
        file,
        str(index),
        format_name=VllmBenchServe.name,
        definition="vllm-bench-serve",
        definitions=DEFINITIONS,
        model_id=model_id,
        task="feature-extraction" if "input_sequence_throughput" in load else "text-generation",
        results=[result],
        started_at=started_at,
        finished_at=finished_at,
        runtime=engine(backend),
        runtime_mode={"endpoint": backend} if backend else {},
        tags={"label": label} if label else {},
        kept=load.rest(),
    )


def _date(load: Fields, text: str) -> datetime:
    """The file's date, the end of the load."""
    try:
        return datetime.strptime(text, DATE)
    except ValueError:
        load.refuse("date", f"expected a time such as 20260424-115933, found {short(text)}")


def _result(load: Fields, started_at: datetime, doubts: tuple[Doubt, ...]) -> Result:
    completed, prompts = load.whole("completed"), load.must(load.count, "num_prompts")
    failed = (
        load.number("failed", low=0) if "failed" in load else prompts - (prompts if completed is None else completed)
    )
    concurrency, rate = load.count("max_concurrency"), _rate(load)
    inputs, outputs = load.number("total_input_tokens", low=0), load.number("total_output_tokens", low=0)
    point = load_point(
        max_concurrency=concurrency,
        request_rate=rate,
        sequence_length=common_length(inputs, completed),
        new_tokens=common_length(outputs, completed),
        axes={"num_prompts": prompts, **length_axes(inputs, completed, "input_tokens_mean")},
    )
    metrics, missing = _metrics(load)
    if completed == 0:
        error, zeros = f"none of {prompts} requests succeeded", dict[str, Json](metrics)
        return foreign_result(point, metrics={}, status="failed", error=error, kept={"stated": zeros})
    samples, kept = _samples(load, started_at, has_failures=bool(failed))
    walls = next((one.values for one in samples if one.metric == "latency_wall"), None)
    computed, too_few, _ = latency_metrics(load.file, [walls]) if walls else ({}, {}, None)
    stated, unsupported = supported_tails(metrics, completed)
    return foreign_result(
        point,
        metrics={**stated, **computed},
        missing={**missing, **unsupported, **too_few},
        samples=samples,
        kept=kept,
        iterations=completed,
        doubts=(*doubts, *load_doubts(max_concurrency=concurrency, failed_requests=failed)),
    )


def _rate(load: Fields) -> float | None:
    """Requests a second; None for "inf"."""
    if load.any("request_rate") == "inf":
        return None
    return load.number("request_rate", low=0)


def _metrics(load: Fields) -> tuple[dict[str, float], dict[str, str]]:
    """The measured numbers by our column where the meaning is the same, else by their own name."""
    metrics = {metric: value for name, metric in NUMBERS.items() if (value := load.number(name)) is not None}
    missing: dict[str, str] = {}
    if metrics.get("rtfx") == 0:  # it is 0 for models without audio
        missing["rtfx"] = f"{NOT_APPLICABLE}: no audio, or none that the file counts"
        del metrics["rtfx"]
    for name in load:
        stated = STATISTIC.fullmatch(name)
        if stated is None or (value := load.number(name)) is None:
            continue
        column = OURS.get((stated[1], stated[2]), name)
        if value == 0 and stated[2] in ABSENT_AT_ZERO:
            missing[column] = NOT_STREAMED
        else:
            metrics[column] = value
    return metrics, missing


def _samples(load: Fields, started_at: datetime, *, has_failures: bool) -> tuple[list[Samples], dict[str, Json]]:
    """The raw values of --save-detailed in ms, of the successful requests, and the parts of the lists to keep.

    A failed request has an error: where requests failed and the file has no errors, the lists are kept unread.
    """
    if has_failures and "errors" not in load:
        return [], {}
    errors = _listed(load, "errors")
    kept: dict[str, Json] = {"errors": errors} if any(errors) else {}
    values_s = {metric: _succeeded(load.numbers(name) or (), errors) for name, metric in RAW.items()}
    if "itls" in load:
        gaps = [_gaps(load, index, each) for index, each in enumerate(_listed(load, "itls"))]
        kept["gaps_per_request"] = [len(each) for each in gaps]
        values_s["inter_chunk_latency"] = [gap for each in _succeeded(gaps, errors) for gap in each]
    timed = {metric: [value * MS_PER_S for value in values if value > 0] for metric, values in values_s.items()}
    return [measured(metric, values_ms, started_at) for metric, values_ms in timed.items() if values_ms], kept


def _listed(load: Fields, name: str) -> list[Json]:
    value = load.any(name)
    if value is not None and not isinstance(value, list):
        load.refuse(name, f"expected a list, found {short(value)}")
    return value or []


def _gaps(load: Fields, index: int, gaps: Json) -> tuple[float, ...]:
    place = load.place(f"itls[{index}]")
    return Fields(load.file, {place: gaps}).numbers(place) or ()


def _succeeded(values: Sequence[Value], errors: Sequence[Json]) -> list[Value]:
    """The values of the requests without an error; all values where there is no list of errors."""
    return [value for value, error in itertools.zip_longest(values, errors[: len(values)]) if not error]


PLUGIN = VllmBenchServe()
