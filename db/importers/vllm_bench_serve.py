"""vLLM's `vllm bench serve` (before: benchmark_serving.py): one load, or with --append-result one a line.

Times are in ms, those of the raw lists in s. Where nothing was streamed, or no request had a second token, the file has
0 for the metrics that were not measured. The date is the end of the load, in local time. The .pytorch.json of a load
has its statistics, and the rest of it as their information.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from benchmarking.core.records import NOT_APPLICABLE, Json
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.reading import Fields, shifted, short
from db.importers.support.serving import client_result, engine, merged_records

NUMBERS = {
    "total_token_throughput": "total_tokens_per_sec",
    "total_input_sequences": "total_input_sequences",
    "input_sequence_throughput": "input_sequences_per_sec",
    "request_goodput": "request_goodput_per_sec",
    "rtfx": "rtfx",
    "probe_completed": "probe_completed_requests",
    "probe_failed": "probe_failed_requests",
    "probe_median_e2el_ms": "probe_median_e2el_ms",
    "probe_p99_e2el_ms": "probe_p99_e2el_ms",
    "probe_max_e2el_ms": "probe_max_e2el_ms",
    "spec_decode_acceptance_rate": "spec_decode_acceptance_percent",
    "spec_decode_acceptance_length": "spec_decode_acceptance_length",
}
REQUIRED = {"model_id", "num_prompts", "request_throughput"}
DATE = "%Y%m%d-%H%M%S"
NO_AUDIO = f"{NOT_APPLICABLE}: no audio, or none that the file counts"
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


def _is_load(file: ForeignFile) -> bool:
    loads = _loads(file)
    return bool(loads) and all(isinstance(load, dict) and load.keys() >= REQUIRED for load in loads)


def _loads(file: ForeignFile) -> Sequence[Json]:
    records = merged_records(file.json)
    if records is not None:
        return ({**records.information, **{name: values[0] for name, values in records.values.items() if values}},)
    return file.json_lines if file.json is None else (file.json,)


def _read(file: ForeignFile) -> Iterator[ForeignRun]:
    loads = _loads(file)
    if file.path.name.endswith(".pytorch.json"):
        whole = file.path.with_name(file.path.name.removesuffix(".pytorch.json") + ".json")
        if whole.is_file():
            file.without_results(f"all its numbers are in {whole.name}")
    if not loads:
        file.refuse("not JSON, or truncated")
    for index, load in enumerate(loads):
        if not isinstance(load, dict):
            file.refuse(f"entry {index + 1}: expected an object, found {short(load)}")
        yield _run(Fields(file, load, f"entry {index + 1}" if len(loads) > 1 else ""), index)


def _run(load: Fields, index: int) -> ForeignRun:
    date, backend = load.text("date"), load.text("backend") or load.text("endpoint_type")
    finished_at = None if date is None else _date(load, date)
    sent, completed = load.must(load.count, "num_prompts"), load.whole("completed")
    failed = load.number("failed", low=0) if "failed" in load else sent - (sent if completed is None else completed)
    result = client_result(load, sent=sent, failed=failed, numbers=NUMBERS, axes={"num_prompts": sent})
    if result.metrics.get("rtfx") == 0:  # it is 0 for models without audio
        metrics = {name: value for name, value in result.metrics.items() if name != "rtfx"}
        result = replace(result, metrics=metrics, missing={**result.missing, "rtfx": NO_AUDIO})
    return ForeignRun(
        key=str(index),
        stated_times=(date,),
        model_id=load.must(load.text, "model_id"),
        task="feature-extraction" if "input_sequence_throughput" in load else "text-generation",
        results=[result],
        started_at=shifted(load.file, finished_at, -(load.number("duration", low=0) or 0.0)) if finished_at else None,
        finished_at=finished_at,
        runtime=engine(backend),
        runtime_mode={"endpoint": backend} if backend else {},
        tags={"label": load.text("label")},
        kept=load.rest(),
    )


def _date(load: Fields, text: str) -> datetime:
    """The file's date, the end of the load."""
    try:
        return datetime.strptime(text, DATE)
    except ValueError:
        load.refuse("date", f"expected a time such as 20260424-115933, found {short(text)}")


PLUGIN = Format(
    name="vllm_bench_serve",
    summary="vLLM: vllm bench serve --save-result (json, also several in one file, and .pytorch.json)",
    definition="vllm-bench-serve",
    definitions=DEFINITIONS,
    recognises=_is_load,
    read=_read,
)
