"""The files of vLLM's and SGLang's benchmarks, and InferenceX's aggregates of them. (What they print is another format:
`vllm_printed`.)

`vllm bench serve` (before: benchmark_serving.py) has one load, or one per line with --append-result. The files of
`vllm bench sweep` are run=N.json and summary.json for each combination, and a summary.csv: a sweep appends the number
of the run and the varied parameters to the load's own fields; the varied parameters are part of the series. Times are
in ms, but in s in the raw lists. If nothing was streamed, or no request had a second token, the file has 0 for the
metrics that were not measured. The date is the end of the load, in local time. The .pytorch.json of a load has its
statistics, with everything else as their metadata.

`vllm bench latency` and `vllm bench throughput` (before: benchmark_latency.py, benchmark_throughput.py): the file of
--output-json has only numbers; its .pytorch.json also has the model and the command's arguments. Times are in s. A
latency covers a whole batch, with prompts and new tokens.

SGLang's `python -m sglang.bench_serving --output-file FILE.jsonl` has one load per line, without a date. Times are in
ms, but in s in the raw lists (--output-details). Model, device and precision come from the server's information, if the
server provided it.

InferenceX (before: InferenceMAX) has a row for each load, alone or in a list. Times are in s. Throughputs are for each
GPU, prompts and new tokens together; only rows of agentic loads have totals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from benchmarking.core.load_doubts import prefix_cache_hit
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import NOT_APPLICABLE, REQUEST_RATE, SERVER, Json, Requests, Result, Scalar
from db.importers.support.building import UNNAMED, ForeignRun, Format, split_arguments
from db.importers.support.files import ForeignFile, beside, called_like
from db.importers.support.load_clients import (
    CLIENT_DEFINITIONS,
    CLIENT_STATISTIC,
    ENGINE,
    OFFLINE_ENGINE,
    Records,
    arrivals_of,
    batch_result,
    client_result,
    client_settings,
    client_task,
    engine_settings,
    first_length,
    has_all,
    has_drawn_lengths,
    launched_with,
    length_requested,
    measurements_in,
    settings_of_requests,
)
from db.importers.support.measures import block, in_ms
from db.importers.support.reading import (
    Fields,
    csv_header,
    csv_rows,
    has_columns,
    has_keys,
    json_objects,
    parsed_number,
    shifted,
    shortened,
    understood,
)
from db.importers.support.serving import (
    GPU_COUNTS,
    INPUT_REQUESTED,
    NOT_STATED,
    OUTPUT_REQUESTED,
    PARALLELISM,
    UNLIMITED,
    Sent,
    device_count,
    engine_not_stated,
    latency_columns,
    load_mode,
    load_result,
    of_ramp,
    parallel_mode,
    ramp_of,
    requests_record,
    token_columns,
    with_requests,
)

SERVE_NUMBERS = {
    "total_token_throughput": "total_tokens_per_sec",
    "total_input_sequences": "total_input_sequences",
    "input_sequence_throughput": "input_sequences_per_sec",
    "request_goodput": "request_goodput_per_sec",
    "request_goodput:": "request_goodput_per_sec",  # in older versions
    "rtfx": "rtfx",
    "probe_completed": "probe_completed_requests",
    "probe_failed": "probe_failed_requests",
    "probe_median_e2el_ms": "probe_median_e2el_ms",
    "probe_p99_e2el_ms": "probe_p99_e2el_ms",
    "probe_max_e2el_ms": "probe_max_e2el_ms",
    "spec_decode_acceptance_rate": "spec_decode_acceptance_percent",
    "spec_decode_acceptance_length": "spec_decode_acceptance_length",
}
SERVE_NAMED = {"model_id", "num_prompts"}
SERVE_REQUIRED = SERVE_NAMED | {"request_throughput"}
DATE = "%Y%m%d-%H%M%S"
NO_AUDIO = f"{NOT_APPLICABLE}: no audio, or none that the file counts"
SERVE_DEFINITIONS = {
    "latency": "e2el: from sending a request to its last byte, of the requests that succeeded",
    "time_to_first_token_ms": "median ttft: from the start of a request to the first output that was streamed",
    "itl": "every gap between chunks of the stream, of all requests together; a chunk need not be one token",
    "std": "standard deviations are of the population",
    **CLIENT_DEFINITIONS,
    "client_queue_time": "wait of a request in the client for a place among max_concurrency",
}

ARGUMENTS = "arguments of the command"
"""The field of a load with them, which only its .pytorch.json has."""
OUTPUT_LENGTHS = ("output_len", "output_length", "osl", "max_tokens", "random_output_len", "custom_output_len")
RUN_NUMBER = "run_number"
"""The first field that a sweep adds; its warm-up has -1."""
IS_SUMMARY = has_columns(*SERVE_REQUIRED, RUN_NUMBER)
SWEEP_NAME = "_benchmark_name"
TEXTS = ("date", "model_id", "tokenizer_id", "label", "backend", "endpoint_type")
FAILED_RUN = {"error_type", "error", "serve_overrides"}

OWN_FILES = "summary of a sweep: each run has its own file, run=N.json"

AT_ONCE = ("inf", math.inf)
OFFLINE_LATENCY = {"avg_latency", "latencies", "percentiles"}
OFFLINE_THROUGHPUT = {"elapsed_time", "num_requests", "total_num_tokens", "requests_per_second", "tokens_per_second"}
MEASURED = ("avg_latency", "elapsed_time")
OFFLINE_NUMBERS = {
    "requests_per_second": "throughput_samples_per_sec",
    "tokens_per_second": "total_tokens_per_sec",
    "elapsed_time": "duration_s",
}
OFFLINE_DEFINITIONS = {
    "latency": "one call of generate for the whole batch: prompts and all new tokens, after warm-up calls",
    "throughput_samples_per_sec": "requests_per_second: all requests, given to the engine at once, over their time",
    "total_tokens_per_sec": "tokens_per_second: tokens of the prompts and new tokens together over that time",
}

SGLANG_NUMBERS = {
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
SGLANG_ENGINE = [name for name in ENGINE if name != "speculative_algorithm"]
SGLANG_REQUIRED = {"backend", "dataset_name", "request_rate", "completed", "mean_e2e_latency_ms"}
RANDOM, CHATS = ("random", "image"), "sharegpt"
"""Beginnings of the names of data whose lengths are stated as random_*_len, and the data with lengths of their own."""
SGLANG_DEFINITIONS = {
    "latency": "e2e_latency: from sending a request to the last piece of its stream, of the requests that succeeded",
    "time_to_first_token_ms": "median ttft: from the start of a request to the first piece of its stream with text",
    "itl": "gap between two pieces of the stream over the tokens of the later one, once for each of them",
    "std": "standard deviations are of the population",
    **CLIENT_DEFINITIONS,
    "concurrency_mean": "sum of all latencies over the duration",
    "request_goodput_per_sec": "requests within every limit of --goodput over the duration of the whole load",
    "slo_attainment_share": "those requests among all that were sent",
    "cached_prompt_tokens": "tokens of the prompts that the server took from its prefix cache",
}

INFERENCEX_NEEDED = {"framework", "conc"}
INFERENCEX_HARDWARE = ("hw", "hardware")
"""The name of the hardware in files, and in rows of the project's site."""
OF_ONE_GPU = "not_stated: the file has the throughput of one GPU: see output_tokens_per_sec_per_gpu"
PER_GPU = {
    "tput_per_gpu": "total_tokens_per_sec_per_gpu",
    "output_tput_per_gpu": "output_tokens_per_sec_per_gpu",
    "input_tput_per_gpu": "input_tokens_per_sec_per_gpu",
}
ALL_GPUS = {
    "total_tput_tps": "total_tokens_per_sec",
    "output_tput_tps": "throughput_tokens_per_sec",
    "input_tput_tps": "input_tokens_per_sec",
}
AGENTIC = "request_metrics"
"""The object with the numbers of an agentic load, whose requests differ in length."""
INFERENCEX_STATISTIC = re.compile(
    r"(?:(?P<first>mean|median|std|p[\d.]+)_)?(?P<metric>ttft|tpot|itl|e2el|intvty)(?:_(?P<last>mean|std|p[\d.]+))?"
)
INFERENCEX_COLUMNS = {**latency_columns("e2el"), **token_columns("ttft", "tpot")}
GPUS = ("prefill_gpus", "decode_gpus", "num_prefill_gpu", "num_decode_gpu")
NOT_OF_SERVER = re.compile(
    r"hw|hardware|conc|image|model|infmax_model_prefix|precision|framework|[io]sl|mtp|metrics|server_metrics|warnings|"
    r"request_\w+|num_requests_\w+|kv_cache_pool_tokens|total_\w+|(?:\w+_)?(?:id|date|version|sha|commit)|\w{0,60}tput\w{0,60}|"
    + "|".join((*GPUS, *GPU_COUNTS, *PARALLELISM))
)
"""Fields of a row with its model, size, device, versions, or results, which are in the run elsewhere."""
OF_OBJECTS = ("router", "dataset")
"""Objects that state settings; other ones hold results."""
DEGREE = re.compile(r"(?:prefill_|decode_)?(?:pp|[dp]cp)(?:_size)?")
"""A degree of parallelism, which is none at 1; rows of the site have it beside the results."""
NVIDIA = re.compile(r"(?:nvidia |dgx |rtx |g?[abhlvtb]\d{1,3}s?\b|gh\d{3}|gb\d{3})", re.IGNORECASE)
AMD = re.compile(r"(?:amd |mi\d{3})", re.IGNORECASE)
"""The beginning of a name of hardware of this vendor."""
INFERENCEX_DEFINITIONS = {
    "latency": "e2el: from sending a request to its last token",
    "time_to_first_token_ms": "median ttft: from sending a request to its first token",
    "time_per_output_token_ms": "median tpot: (latency - ttft) / (output tokens - 1) of each request",
    "itl": "gap between pieces of the stream",
    "intvty": "interactivity: 1 / tpot, in tokens per second of a user",
    "total_tokens_per_sec_per_gpu": "tokens of prompts and answers over the time of the load, for each GPU",
}


def is_serve(file: ForeignFile) -> bool:
    if has_keys(file.json, FAILED_RUN):
        return True
    # A load, also one of which scripts keep only the latencies.
    return any(
        has_keys(load, SERVE_NAMED) and ("request_throughput" in load or any(map(CLIENT_STATISTIC.fullmatch, load)))
        for load in _served_loads(file)
    )


def _served_loads(file: ForeignFile) -> Sequence[Json]:
    if records := measurements_in(file):
        loads = ({**_plain(one), ARGUMENTS: one.arguments} for one in records)
        return [load for load in loads if not _is_offline(load)]
    if isinstance(file.json, list):
        return file.json  # a summary.json
    if file.json is None and not file.json_lines and csv_header(file, IS_SUMMARY):
        return [
            {name: _value(name, text) for name in row if name and (text := row.peek(name))}
            for row in csv_rows(file, IS_SUMMARY)
        ]
    return file.json_values


def _plain(records: Records) -> dict[str, Any]:
    """The numbers of a measurement in the form of the tool's own file."""
    latencies = records.values.get("latency")
    firsts = {name: values[0] for name, values in records.values.items() if values}
    return {**records.information, **(firsts if latencies is None else {"latencies": list(latencies)})}


def _value(name: str, text: str) -> Json:
    """The value of a cell that pandas wrote: true, false, a finite number, or the text."""
    value = text if name in TEXTS else {"True": True, "False": False}.get(text, parsed_number(text))
    return text if isinstance(value, float) and not math.isfinite(value) else value


def read_serve(file: ForeignFile) -> Iterator[ForeignRun]:
    path, data = file.called, file.json
    if has_keys(data, FAILED_RUN):
        file.without_results(f"failed run of a sweep: {shortened(data['error_type'])}: {shortened(data['error'])}")
    if isinstance(data, dict) and data.get(RUN_NUMBER) == -1:
        file.without_results("warm-up of a sweep")
    loads = _served_loads(file)
    if path.name.endswith(".pytorch.json") and len(loads) == 1:
        dates = _dates(file)
        whole = path.with_name(path.name.removesuffix(".pytorch.json") + ".json")
        file.give_way_to(whole, lambda other: is_serve(other) and dates <= _dates(other))
    if path.name == "summary.csv" and called_like(file, "*/run=*.json"):
        file.without_results(OWN_FILES)
    if not loads:
        file.refuse("not JSON, or truncated")
    (first, *others) = loads = _with_arguments(file, loads)
    is_single = not others and isinstance(first, dict)
    entries = list(enumerate([Fields(file, first)] if is_single else json_objects(file, loads, "entry")))
    if path.name == "summary.json":  # beside which a run may have its own file
        numbers = [load.peek(RUN_NUMBER) for _, load in entries]
        owns = [path.with_name(f"run={number if isinstance(number, int) else ''}.json") for number in numbers]
        entries = [entry for entry, own in zip(entries, owns, strict=True) if not file.is_part_of(own, is_serve)]
        if not entries:
            file.without_results(OWN_FILES)
    yield from understood(file, entries, lambda entry: _served_run(entry[1], entry[0]))


def _dates(file: ForeignFile) -> set[str]:
    """When its loads ended, by which they are known in other files; "None" is of any."""
    return {"None", *(str(load.get("date")) for load in _served_loads(file) if isinstance(load, dict))}


def _with_arguments(file: ForeignFile, loads: Sequence[Any]) -> Sequence[Any]:
    """The loads, with the arguments of its command the one whose .pytorch.json is in the folder: of several that were
    appended, the last one. What the others were sent with is not known."""
    other = beside(file, file.called.with_suffix(".pytorch.json"))
    stated = {str(one.information.get("date")): one.arguments for one in (measurements_in(other) if other else ())}
    return [
        {**load, ARGUMENTS: stated[date]}
        if isinstance(load, dict) and (date := str(load.get("date"))) in stated
        else load
        for load in loads
    ]


def _served_run(load: Fields, index: int) -> ForeignRun:
    backend = load.text("backend") or load.text("endpoint_type")
    # InferenceX's client also writes when the load began and ended, in a time that has a zone; the date is local.
    began_at, finished_at = (load.unix_time(f"benchmark_{end}_time_unix") for end in ("start", "end"))
    date = None
    if began_at is None:
        date, finished_at = load.text("date"), load.time_like("date", DATE, "20260424-115933")
        took_s = load.number("duration", low=0) or 0.0
        began_at = shifted(load.file, finished_at, -took_s) if finished_at else None
    sent, completed = load.required(load.count, "num_prompts"), load.integer("completed")
    counted = None if completed is None else max(0, sent - completed)
    failed = load.number("failed", low=0) if "failed" in load else counted
    requests = _requests(load)
    # A sweep varied the fields after the number of the run: numbers are axes, the others part of the mode.
    names = list(load)
    after = names[names.index(RUN_NUMBER) + 1 :] if RUN_NUMBER in names else []
    varied = {name: load.peek(name) for name in after if name in load}
    axes, _ = split_arguments({name: value for name, value in varied.items() if type(value) in (int, float)})
    mode: dict[str, Scalar] = {
        name.lstrip("_") if name == SWEEP_NAME else name: value if isinstance(value, bool | int | str) else str(value)
        for name, value in varied.items()
        if name not in axes
    }
    arrivals, variation = arrivals_of(load.peek("burstiness"))
    # Other settings are only in the user's own metadata, as text, beside what the user wrote for the record, and in the
    # arguments of the command.
    arguments = load.section(ARGUMENTS)
    own = Fields(load.file, {name: load.peek(name) for name in load if name not in varied})
    result = client_result(
        load,
        sent=sent,
        failed=failed,
        numbers=SERVE_NUMBERS,
        unlimited=UNLIMITED if "request_rate" in load or "max_concurrency" in load else NOT_STATED,
        axes={"num_prompts": sent, **axes},
        prompt_tokens_requested=length_requested(arguments, "input"),
        new_tokens_requested=first_length(own, OUTPUT_LENGTHS) or length_requested(arguments, "output"),
        has_drawn_lengths=has_drawn_lengths(arguments),
        variation=variation,
    )
    if result.metrics.get("rtfx") == 0:  # it is 0 for models without audio
        metrics = {name: value for name, value in result.metrics.items() if name != "rtfx"}
        result = replace(result, metrics=metrics, missing={**result.missing, "rtfx": NO_AUDIO})
    result = with_requests(result, requests, variation=variation)
    ramp = ramp_of(load)
    mode |= {**(arrivals if ramp or REQUEST_RATE in result.point.axes else {}), **load_mode(result)}
    return ForeignRun(
        key=str(index),
        stated_times=(date,),
        model_id=load.required(load.text, "model_id"),
        task=client_task(load),
        results=[result],
        started_at=began_at,
        finished_at=finished_at,
        runtime=SERVER,
        runtime_mode={
            "endpoint": backend or None,
            "ramp_up": ramp,
            **engine_settings(own),
            **settings_of_requests(own),
            **client_settings(arguments),
            **parallel_mode(own),
            **mode,
        },
        device_count=device_count(load) or 1,
        doubts=(*engine_not_stated(backend), *of_ramp(ramp)),
        tags={"label": load.text("label")},
        kept=load.rest(),
    )


def _requests(load: Fields) -> tuple[Requests, ...]:
    """The requests of a detailed result; empty if the file lacks their times. The client itself writes no latencies,
    but the first token's and the gaps after it, which add up to them.

    In a closed loop the client submits all requests at once, and they wait in its queue: the intended start of a
    request is the actual one. In an open loop the intended start is the arrival, before that wait.
    """
    fields = load.unread_copy()
    has_latencies = "latencies" in fields
    times = ("start_times", "ttfts", "latencies" if has_latencies else "ttfts")
    columns: list[list[Any]] = [
        *(list(fields.column(name, low=-math.inf if name == "start_times" else 0) or ()) for name in times),
        *(fields.whole_column(name) for name in ("input_lens", "output_lens")),
    ]
    gaps, errors, sent = fields.each("itls"), fields.items("errors"), columns[0]
    if not sent or {len(sent)} != {len(one) for one in (*columns, gaps, errors)}:
        return ()
    waits = list(fields.column("queue_times", low=0) or ())
    is_open = fields.peek("max_concurrency") is None or fields.peek("request_rate") != "inf"
    waits = waits if is_open and len(waits) == len(sent) else [0.0] * len(sent)
    found = []
    for place, values in enumerate(zip(*columns, waits, strict=True)):
        start, first_s, latency_s, tokens_in, tokens_out, wait_s = values
        if None in values:
            continue  # a value of it is left out
        error, after = errors[place], fields.number_list(gaps[place], f"itls[{place}]", low=0)
        if not has_latencies:
            if not error and not has_all(after, gaps[place]):
                continue  # a gap of it is left out
            latency_s = first_s + sum(after) if first_s else 0.0  # without a first output, its end is unknown
        tokens = accumulate((start + first_s, *after)) if first_s else ()
        found.append(
            Sent(
                intended_s=start - wait_s,
                sent_s=start,
                first_s=start + first_s if first_s else None,
                tokens_s=tuple(tokens),
                end_s=start + latency_s if latency_s else None,
                tokens_in=tokens_in,
                tokens_out=None if error else tokens_out,
                error="failed" if error else None,
                detail=str(error) if error else None,
            )
        )
    if not any(request.end_s is not None for request in found):
        return ()  # nothing was streamed: the file has no request's end
    return requests_record(found)


def _offline_data(file: ForeignFile) -> list[Mapping[str, Any]]:
    """The numbers in the form of --output-json, with model and arguments if the file has them."""
    if not (records := measurements_in(file)):
        return [file.json] if _is_offline(file.json) else []
    found = ({"model": one.model, "arguments": dict(one.arguments), **_plain(one)} for one in records)
    return list(filter(_is_offline, found))


def _is_offline(data: Any) -> bool:
    return has_keys(data, OFFLINE_LATENCY) or has_keys(data, OFFLINE_THROUGHPUT)


def is_offline(file: ForeignFile) -> bool:
    return bool(_offline_data(file))


def read_offline(file: ForeignFile) -> Iterator[ForeignRun]:
    if isinstance(file.json, dict):
        own = [file.json.get(name) for name in MEASURED]  # of another run, the other file has other numbers
        file.give_way_to(
            file.called.with_suffix(".pytorch.json"),
            lambda other: any(own == [one.get(name) for name in MEASURED] for one in _offline_data(other)),
        )
    runs = [Fields(file, data) for data in _offline_data(file)]
    yield from understood(file, enumerate(runs), _offline_run)


def _offline_run(numbered: tuple[int, Fields]) -> ForeignRun:
    number, fields = numbered
    arguments = fields.section("arguments")
    return ForeignRun(
        key=str(number or ""),
        model_id=fields.text("model") or fields.text("model_id") or UNNAMED,  # the second in vLLM 0.32
        task="text-generation",
        runtime=arguments.text("backend") or "vllm",
        runtime_mode={
            "engine": "offline",
            **settings_of_requests(arguments),
            **engine_settings(arguments, OFFLINE_ENGINE),
            **parallel_mode(arguments),
        },
        device_count=device_count(arguments) or 1,
        device_type=(arguments.text("device") or "auto").replace("auto", "unknown"),
        model_revision=arguments.text("revision"),
        precision_word=arguments.text("dtype"),
        results=[
            _offline_latency(fields, arguments) if "latencies" in fields else _offline_throughput(fields, arguments)
        ],
        kept=fields.rest(),
    )


def _offline_latency(fields: Fields, arguments: Fields) -> Result:
    seconds = fields.required(fields.numbers, "latencies")
    mean_s, std_s, percentiles = fields.number("avg_latency"), fields.number("std_latency"), fields.any("percentiles")
    stated: dict[str, Json] = {"avg_latency": mean_s, "std_latency": std_s, "percentiles": percentiles}
    kept: dict[str, Json] = {"stated": {name: value for name, value in stated.items() if value is not None}}
    return batch_result(arguments, samples=[block(0, in_ms(seconds))], kept=kept)


def _offline_throughput(fields: Fields, arguments: Fields) -> Result:
    requests, tokens = fields.integer("num_requests"), fields.number("total_num_tokens", low=0)
    axes: dict[str, int | float] = {"num_prompts": requests} if requests else {}
    if requests and tokens and "input_len" not in arguments:
        axes["tokens_per_request"] = round(tokens / requests)
    return load_result(
        concurrency=None,
        prompt_tokens=arguments.count("input_len"),
        new_tokens=arguments.count("output_len"),
        requests=requests,
        axes=axes,
        metrics={**fields.metrics(OFFLINE_NUMBERS, low=0), "total_tokens": tokens},
    )


def _sglang_run(numbered: tuple[int, Fields]) -> ForeignRun:
    number, load = numbered
    backend, servers = load.text("backend"), load.section("server_info")
    # A router in front of several servers describes each, those of prompts apart from those of new tokens.
    parts = {name: servers.objects(name) or () for name in ("decode", "prefill")}
    each = [*parts["decode"], *parts["prefill"]] or [servers]
    server = each[0]
    errors = load.peek("errors")
    failed = sum(map(bool, errors)) if isinstance(errors, list) else None
    name = "served_model_name" if "served_model_name" in server else "model_path"
    split = ", ".join(f"{len(own)} {name}" for name, own in parts.items() if own) or server.text("disaggregation_mode")
    mode: dict[str, Scalar | None] = {
        "endpoint": backend,
        "quantization": server.text("quantization"),
        "disaggregation": None if split == "null" else split,
        "speculation": server.text("speculative_algorithm"),
        **engine_settings(server.unread_copy(), (*SGLANG_ENGINE, *launched_with(str(server.peek("launch_command"))))),
    }
    result, doubts = _sglang_load(load, failed), () if "server_info" in load else engine_not_stated(backend)
    cached = load.section("cache_report").number("total_cached_tokens", low=0)
    if cached is not None and result.status == "ok":
        result = replace(result, metrics={**result.metrics, "cached_prompt_tokens": cached})
    if str(load.peek("dataset_name")).startswith(RANDOM):  # prompts that share nothing
        doubts = (*doubts, *prefix_cache_hit(cached or 0.0, result.metrics.get("total_input_tokens", 0.0)))
    arrivals = "trace" if load.peek("request_rate") == "trace" else "poisson"
    return ForeignRun(
        key=str(number),
        model_id=server.text(name) or "unknown",
        model_revision=server.text("revision"),
        task=client_task(load),
        results=[result],
        runtime="sglang" if "server_info" in load else SERVER,  # only its own server describes itself
        doubts=doubts,
        device_count=sum(device_count(one) or 1 for one in each),
        runtime_mode={
            **parallel_mode(server),
            **load_mode(result, arrivals if load.peek("request_rate") != "inf" else None),
            **{word: value for word, value in mode.items() if value},
            **settings_of_requests(load),
        },
        precision_word=server.text("dtype"),
        device_type=server.text("device") or "unknown",
        versions={"sglang": server.text("version")},
        tags={"tag": load.text("tag")},
        kept=load.rest(),
    )


def _sglang_load(load: Fields, failed: int | None) -> Result:
    planned = load.unread_copy()
    data, completed, errors = planned.text("dataset_name") or "", planned.integer("completed"), load.peek("errors")
    is_random = data.startswith(RANDOM)
    prompt, length = (planned.count(f"random_{one}_len") if is_random else None for one in ("input", "output"))
    # Only of requests that are all sent at once, their number decides how long each waits.
    is_at_once = load.peek("request_rate") in AT_ONCE and load.peek("max_concurrency") is None
    sent = len(errors) if isinstance(errors, list) and errors else completed
    result = client_result(
        load,
        sent=None,
        failed=failed,
        numbers=SGLANG_NUMBERS,
        axes={"num_prompts": sent} if sent and is_at_once else {},
        prompt_tokens_requested=prompt,
        has_drawn_lengths=is_random and load.peek("random_range_ratio") != 1,
        new_tokens_requested=planned.count("sharegpt_output_len") if data == CHATS else length,
    )
    if completed != 0 or not is_random or load.peek("random_range_ratio") != 1:
        return result
    # What the lengths of all requests would have been.
    requested = (INPUT_REQUESTED, OUTPUT_REQUESTED)
    axes = {name: value for name, value in result.point.axes.items() if name not in requested}
    return replace(result, point=replace(result.point, sequence_length=prompt, new_tokens=length, axes=axes))


def _inferencex_rows(file: ForeignFile) -> list[Any]:
    return file.json if isinstance(file.json, list) else [file.json]


def _is_inferencex_row(row: Any) -> bool:
    if not has_keys(row, INFERENCEX_NEEDED) or row.keys().isdisjoint(INFERENCEX_HARDWARE):
        return False
    nested = row.get("metrics")
    return AGENTIC in row or not PER_GPU.keys().isdisjoint(nested if isinstance(nested, dict) else row)


def _inferencex_numbers(row: Fields) -> Fields:
    """The numbers of a row, those of an agentic load by the names that they have in other rows."""
    if AGENTIC not in row:
        return row.section("metrics") if "metrics" in row else row
    agentic = row.section(AGENTIC)
    latencies, rates = agentic.section("latency"), agentic.section("throughput")
    numbers: dict[str, Any] = {}
    for metric in latencies:
        statistics = latencies.section(metric)
        numbers |= {
            name: statistics.any(statistic)
            for statistic in statistics
            if INFERENCEX_STATISTIC.fullmatch(name := f"{statistic}_{metric}")
        }
    of_one = rates.section("per_gpu")
    numbers |= {name: of_one.any(f"{name.removesuffix('tput_per_gpu') or 'total_'}tput_tps") for name in PER_GPU}
    numbers |= {
        f"{name}_tput_tps": rates.section(name).any("tokens_per_second") for name in ("total", "output", "input")
    }
    return Fields(row.file, {name: one for name, one in numbers.items() if one is not None}, f"{row.path}.{AGENTIC}")


def _inferencex_settings(row: Fields, numbers: Fields) -> dict[str, Scalar]:
    """What a row states of its server and load, so that what is not known here tells runs apart: texts, whole numbers,
    true and false, those of the site's rows also among the results."""
    found: dict[str, Scalar] = {}
    for part in (row, numbers):
        less = {
            name
            for name in part
            if NOT_OF_SERVER.fullmatch(name)
            or INFERENCEX_STATISTIC.fullmatch(name)
            or not (isinstance(one := part.peek(name), str | int) or name in OF_OBJECTS)
            or str(one).lower() in ("false", "none", "off", "0", *(("1",) if DEGREE.fullmatch(name) else ()))
            or (part is not row and isinstance(one, int) and not DEGREE.fullmatch(name))
        }
        found = part.other_settings(less) | found
    return found


def _inferencex_run(numbered: tuple[int, Fields]) -> ForeignRun:
    number, row = numbered
    hardware, word = next((name for one in INFERENCEX_HARDWARE if (name := row.text(one))), ""), row.text("precision")
    gpu = hardware.rpartition(":")[2]  # also in "cluster:h100-dgxc"
    numbers, counts_of = _inferencex_numbers(row), row.section("request_accounting")
    stated: dict[str, float | None] = {**numbers.metrics({**PER_GPU, **ALL_GPUS}, low=0)}
    for name in numbers:
        found = INFERENCEX_STATISTIC.fullmatch(name)
        if found is None or (found["first"] is None) == (found["last"] is None):
            continue
        statistic = found["first"] or found["last"]
        statistic = "median" if statistic == "p50" else statistic
        value = numbers.number(name, low=0)
        if value is None:
            continue
        if found["metric"] == "intvty":
            stated[f"{statistic}_intvty_tokens_per_sec"] = value
        else:
            column = INFERENCEX_COLUMNS.get((found["metric"], statistic), f"{statistic}_{found['metric']}_ms")
            stated[column] = value * MS_PER_S
    result = load_result(
        concurrency=row.count("conc"),
        prompt_tokens=row.count("isl"),
        new_tokens=row.count("osl"),
        requests=row.integer("num_requests_successful"),
        failed=counts_of.integer("records_error_dropped"),
        stated=stated,
        missing={"throughput_tokens_per_sec": OF_ONE_GPU}
        if "output_tput_per_gpu" in numbers and "throughput_tokens_per_sec" not in stated
        else {},
    )
    mode: dict[str, Scalar] = {**parallel_mode(numbers), **parallel_mode(row), **load_mode(result)}
    parts = [name for phase in ("prefill", "decode") if (name := row.text(f"{phase}_hw"))]
    mode |= _inferencex_settings(row, numbers)
    if str(row.any("mtp")).lower() in ("on", "true"):  # the name of speculative decoding in the first versions
        mode.setdefault("spec_decoding", "mtp")
    # Only a disaggregated server has other GPUs for prompts than for new tokens; others state the same ones twice.
    counts = [row.integer(name) or 0 for name in GPUS]
    of_workers = [(row.integer(f"{phase}_num_workers"), row.integer(f"{phase}_tp")) for phase in ("prefill", "decode")]
    is_split = "disagg" in mode or row.peek("disagg") is None
    counts = counts if any(counts) else [(workers or 0) * (each or 0) for workers, each in of_workers]
    gpus = (sum if is_split else max)(counts)
    of_one = max(each or 0 for _, each in of_workers)
    return ForeignRun(
        key=str(number),
        model_id=row.text("model") or row.text("infmax_model_prefix") or UNNAMED,
        task="text-generation",
        results=[result],
        started_at=row.time("date") if "date" in row else None,
        device_type="rocm" if AMD.match(gpu) else "cuda" if NVIDIA.match(gpu) else "unknown",
        device_name=", ".join(parts) if len(set(parts)) > 1 else hardware or None,
        device_count=gpus or device_count(row) or of_one or 1,
        runtime=row.text("framework") or SERVER,
        runtime_mode=mode,
        precision_word=word,
        versions={"image": row.text("image")},
        kept=row.rest(),
    )


SERVE = Format(
    name="vllm_bench_serve",
    summary="vLLM: vllm bench serve --save-result (json, also several in one file, and .pytorch.json), "
    "vllm bench sweep (run=N.json, summary.json, summary.csv)",
    definitions=SERVE_DEFINITIONS,
    recognises=is_serve,
    read=read_serve,
    shares_files=True,
)
OFFLINE = Format(
    name="vllm_bench_offline",
    summary="vLLM: vllm bench latency and vllm bench throughput, --output-json (json and .pytorch.json)",
    definitions=OFFLINE_DEFINITIONS,
    recognises=is_offline,
    read=read_offline,
    shares_files=True,
)
SGLANG = Format(
    name="sglang_bench_serving",
    summary="SGLang: python -m sglang.bench_serving --output-file (jsonl)",
    definitions=SGLANG_DEFINITIONS,
    recognises=lambda file: any(has_keys(one, SGLANG_REQUIRED) for one in file.json_values),
    read=lambda file: understood(file, enumerate(json_objects(file, file.json_values, "line"), 1), _sglang_run),
)
INFERENCEX = Format(
    name="inferencex",
    summary="InferenceX (InferenceMAX): aggregated results, one row or a list (json)",
    definitions=INFERENCEX_DEFINITIONS,
    recognises=lambda file: any(map(_is_inferencex_row, _inferencex_rows(file))),
    read=lambda file: understood(
        file, enumerate(json_objects(file, _inferencex_rows(file), "row"), 1), _inferencex_run
    ),
)

PLUGINS = (SERVE, OFFLINE, SGLANG, INFERENCEX)
