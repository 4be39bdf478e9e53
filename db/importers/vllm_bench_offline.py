"""vLLM's `vllm bench latency` and `vllm bench throughput` (before: benchmark_latency.py, benchmark_throughput.py).

The file of --output-json has only numbers; its .pytorch.json also has the model and the command's arguments. Times are
in s. A latency covers a whole batch, with prompts and new tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarking.core.records import Json, Point, Result, Scalar
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.load_clients import merged_records
from db.importers.support.measures import BATCH_NOT_STATED, block, foreign_result, in_ms
from db.importers.support.reading import Fields, top_fields
from db.importers.support.serving import device_count, load_result, parallel_mode

LATENCY = {"avg_latency", "latencies", "percentiles"}
THROUGHPUT = {"elapsed_time", "num_requests", "total_num_tokens", "requests_per_second", "tokens_per_second"}
MODE = ("quantization", "kv_cache_dtype", "enforce_eager")
PLAIN: tuple[object, ...] = (None, False, 1, "auto")
"""Values that carry no information."""
DEFINITIONS = {
    "latency": "one call of generate for the whole batch: prompts and all new tokens, after warm-up calls",
    "throughput_samples_per_sec": "requests_per_second: all requests, given to the engine at once, over their time",
    "total_tokens_per_sec": "tokens_per_second: tokens of the prompts and new tokens together over that time",
}


def _data(file: ForeignFile) -> Mapping[str, Any] | None:
    """The numbers in the form of --output-json, with model and arguments if the file has them."""
    records = merged_records(file.json)
    if records is None:
        return file.json if isinstance(file.json, dict) else None
    shared = {"model": records.model, "arguments": dict(records.arguments), **records.information}
    if "latency" in records.values:
        return {**shared, "latencies": list(records.values["latency"])}
    return {**shared, **{name: values[0] for name, values in records.values.items() if values}}


def recognises(file: ForeignFile) -> bool:
    data = _data(file)
    return data is not None and (data.keys() >= LATENCY or data.keys() >= THROUGHPUT)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    data = _data(file)
    if data is None:
        top_fields(file)
    sibling = file.path.with_suffix(".pytorch.json")
    if isinstance(file.json, dict) and sibling.is_file():
        file.without_results(f"all its numbers are in {sibling.name}")
    fields = Fields(file, data or {})
    arguments = fields.section("arguments")
    mode: dict[str, Scalar] = {"engine": "offline"}
    for name in MODE:
        value = arguments.any(name)
        if isinstance(value, str | int) and value not in PLAIN:
            mode[name] = value
    yield ForeignRun(
        model_id=fields.text("model") or "unknown",
        task="text-generation",
        runtime=arguments.text("backend") or "vllm",
        runtime_mode={**mode, **parallel_mode(arguments)},
        device_count=device_count(arguments) or 1,
        precision_word=arguments.text("dtype"),
        results=[_latency(fields, arguments) if "latencies" in fields else _throughput(fields, arguments)],
        kept=fields.rest(),
    )


def _latency(fields: Fields, arguments: Fields) -> Result:
    seconds = fields.required(fields.numbers, "latencies")
    mean_s, std_s, percentiles = fields.number("avg_latency"), fields.number("std_latency"), fields.any("percentiles")
    batch = arguments.count("batch_size")
    stated: dict[str, Json] = {"avg_latency": mean_s, "std_latency": std_s, "percentiles": percentiles}
    return foreign_result(
        Point(
            batch_size=batch or 1,
            sequence_length=arguments.count("input_len"),
            new_tokens=arguments.count("output_len"),
        ),
        metrics={},
        samples=[block(0, in_ms(seconds))] if seconds else [],
        warmup_iterations=arguments.integer("num_iters_warmup"),
        doubts=() if batch else (BATCH_NOT_STATED,),
        kept={"stated": {name: value for name, value in stated.items() if value is not None}},
    )


def _throughput(fields: Fields, arguments: Fields) -> Result:
    requests, tokens = fields.integer("num_requests"), fields.number("total_num_tokens", low=0)
    axes: dict[str, int | float] = {"num_prompts": requests} if requests else {}
    if requests and tokens and "input_len" not in arguments:
        axes["tokens_per_request"] = round(tokens / requests)
    return load_result(
        concurrency=None,
        request_rate=None,
        prompt_tokens=arguments.count("input_len"),
        prompt_tokens_mean=None,
        new_tokens=arguments.count("output_len"),
        requests=requests,
        failed=None,
        axes=axes,
        metrics={
            "throughput_samples_per_sec": fields.number("requests_per_second", low=0),
            "total_tokens_per_sec": fields.number("tokens_per_second", low=0),
            "duration_s": fields.number("elapsed_time", low=0),
            "total_tokens": tokens,
        },
    )


PLUGIN = Format(
    name="vllm_bench_offline",
    summary="vLLM: vllm bench latency and vllm bench throughput, --output-json (json and .pytorch.json)",
    definition="vllm-bench-offline",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
