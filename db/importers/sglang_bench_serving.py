"""SGLang's `python -m sglang.bench_serving --output-file FILE.jsonl`: one load per line, without a date.

Times are in ms, but in s in the raw lists (--output-details). Model, device and precision come from the server's
information, if the server provided it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarking.core.records import SERVER, Json
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.load_clients import client_result
from db.importers.support.reading import Fields, json_objects, mostly, understood
from db.importers.support.serving import (
    device_count,
    engine_not_stated,
    load_mode,
    parallel_mode,
)

NUMBERS = {
    "input_throughput": "input_tokens_per_sec",
    "total_throughput": "total_tokens_per_sec",
    "total_input_text_tokens": "total_input_text_tokens",
    "total_input_vision_tokens": "total_input_vision_tokens",
    "total_output_tokens_retokenized": "total_output_tokens_retokenized",
    "concurrency": "concurrency_mean",
    "accept_length": "spec_decode_acceptance_length",
    "request_goodput": "request_goodput_per_sec",
    "slo_attainment": "slo_attainment_share",
}
REQUIRED = {"backend", "dataset_name", "request_rate", "max_concurrency", "completed", "mean_e2e_latency_ms"}
DEFINITIONS = {
    "latency": "e2e_latency: from sending a request to the last piece of its stream, of the requests that succeeded",
    "time_to_first_token_ms": "median ttft: from the start of a request to the first piece of its stream with text",
    "time_per_output_token_ms": "median tpot: (latency - ttft) / (output tokens - 1) of each request",
    "itl": "gap between two pieces of the stream over the tokens of the later one, once for each of them",
    "std": "standard deviations are of the population",
    "throughput_samples_per_sec": "requests that succeeded over the duration of the whole load",
    "throughput_tokens_per_sec": "output tokens of them over the duration of the whole load",
    "concurrency_mean": "sum of all latencies over the duration",
    "request_goodput_per_sec": "requests within every limit of --goodput over the duration of the whole load",
    "slo_attainment_share": "those requests among all that were sent",
}


def _loads(file: ForeignFile) -> Sequence[Json]:
    return file.json_lines if file.json is None else (file.json,)


def recognises(file: ForeignFile) -> bool:
    return mostly(_loads(file), lambda one: isinstance(one, dict) and one.keys() >= REQUIRED)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    loads = enumerate(json_objects(file, _loads(file), "line"), 1)
    yield from understood(file, loads, lambda entry: _run(entry[1], str(entry[0])))


def _run(load: Fields, key: str) -> ForeignRun:
    backend, server = load.text("backend"), load.section("server_info")
    errors = load.peek("errors")
    failed = sum(map(bool, errors)) if isinstance(errors, list) else None
    name = "served_model_name" if "served_model_name" in server else "model_path"
    mode = {"endpoint": backend, "quantization": server.text("quantization")}
    result = client_result(load, sent=None, failed=failed, numbers=NUMBERS, axes={})
    arrivals = "trace" if load.peek("request_rate") == "trace" else "poisson"
    return ForeignRun(
        key=key,
        model_id=server.text(name) or "unknown",
        task="text-generation",
        results=[result],
        runtime="sglang" if "server_info" in load else SERVER,  # only its own server describes itself
        doubts=() if "server_info" in load else engine_not_stated(backend),
        device_count=device_count(server) or 1,
        runtime_mode={
            **{word: value for word, value in mode.items() if value},
            **parallel_mode(server),
            **load_mode(result, arrivals if load.peek("request_rate") != "inf" else None),
        },
        precision_word=server.text("dtype"),
        device_type=server.text("device") or "unknown",
        versions={"sglang": server.text("version")},
        tags={"tag": load.text("tag")},
        kept=load.rest(),
    )


PLUGIN = Format(
    name="sglang_bench_serving",
    summary="SGLang: python -m sglang.bench_serving --output-file (jsonl)",
    definition="sglang-bench-serving",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
