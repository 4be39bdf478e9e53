"""vLLM's `vllm bench serve` (before: benchmark_serving.py): one load, or one per line with --append-result; and the
files of `vllm bench sweep`: run=N.json and summary.json for each combination, and a summary.csv.

A sweep appends the number of the run and the varied parameters to the load's own fields; the varied parameters are part
of the series.

Times are in ms, but in s in the raw lists. If nothing was streamed, or no request had a second token, the file has 0
for the metrics that were not measured. The date is the end of the load, in local time. The .pytorch.json of a load has
its statistics, with everything else as their metadata.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from benchmarking.core.records import NOT_APPLICABLE, SERVER, Json, Requests, Scalar
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.load_clients import CLIENT_STATISTIC, client_result, has_all, merged_records
from db.importers.support.names import split_arguments
from db.importers.support.reading import (
    Fields,
    csv_header,
    csv_rows,
    has_columns,
    json_objects,
    mostly,
    parsed_number,
    shifted,
    shortened,
    understood,
)
from db.importers.support.serving import (
    Sent,
    device_count,
    engine_not_stated,
    load_mode,
    parallel_mode,
    requests_record,
    with_requests,
)

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
NAMED = {"model_id", "num_prompts"}
REQUIRED = NAMED | {"request_throughput"}
MOST_SHAPE = 1e6
"""Maximum burstiness of the gamma distribution of arrivals: above it they count as constant."""
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


RUN_NUMBER = "run_number"
"""The first field that a sweep adds; its warm-up has -1."""
IS_SUMMARY = has_columns(*REQUIRED, RUN_NUMBER)
SWEEP_NAME = "_benchmark_name"
TEXTS = ("date", "model_id", "tokenizer_id", "label", "backend", "endpoint_type")
FAILED_RUN = {"error_type", "error", "serve_overrides"}


def recognises(file: ForeignFile) -> bool:
    if isinstance(file.json, dict) and file.json.keys() >= FAILED_RUN:
        return True
    # A load, also one of which scripts keep only the latencies.
    return mostly(
        _loads(file),
        lambda load: (
            isinstance(load, dict)
            and load.keys() >= NAMED
            and ("request_throughput" in load or any(map(CLIENT_STATISTIC.fullmatch, load)))
        ),
    )


def _loads(file: ForeignFile) -> Sequence[Json]:
    records = merged_records(file.json)
    if records is not None:
        return ({**records.information, **{name: values[0] for name, values in records.values.items() if values}},)
    if isinstance(file.json, list):
        return file.json  # a summary.json
    if file.json is None and not file.json_lines and csv_header(file, IS_SUMMARY):
        return [
            {name: _value(name, text) for name in row if name and (text := row.peek(name))}
            for row in csv_rows(file, IS_SUMMARY)
        ]
    return file.json_lines if file.json is None else (file.json,)


def _value(name: str, text: str) -> Json:
    """The value of a cell that pandas wrote: true, false, a finite number, or the text."""
    value = text if name in TEXTS else {"True": True, "False": False}.get(text, parsed_number(text))
    return text if isinstance(value, float) and not math.isfinite(value) else value


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    path, data = file.path, file.json
    if isinstance(data, dict) and data.keys() >= FAILED_RUN:
        file.without_results(f"failed run of a sweep: {shortened(data['error_type'])}: {shortened(data['error'])}")
    if isinstance(data, dict) and data.get(RUN_NUMBER) == -1:
        file.without_results("warm-up of a sweep")
    if path.name.endswith(".pytorch.json"):
        whole = path.with_name(path.name.removesuffix(".pytorch.json") + ".json")
        if whole.is_file():
            file.without_results(f"all its numbers are in {whole.name}")
    if path.name in ("summary.json", "summary.csv") and any(path.parent.glob(f"{SUMMARISED[path.suffix]}run=*.json")):
        file.without_results("summary of a sweep: each run has its own file, run=N.json")
    loads = _loads(file)
    if not loads:
        file.refuse("not JSON, or truncated")
    single = len(loads) == 1 and isinstance(loads[0], dict)
    entries = enumerate([Fields(file, loads[0])] if single else json_objects(file, loads, "entry"))  # type: ignore[arg-type]
    yield from understood(file, entries, lambda entry: _run(entry[1], entry[0]))


SUMMARISED = {".json": "", ".csv": "*/"}
"""Extension of a summary -> path of the runs in it."""


def _run(load: Fields, index: int) -> ForeignRun:
    date, backend = load.text("date"), load.text("backend") or load.text("endpoint_type")
    finished_at = load.time_like("date", DATE, "20260424-115933")
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
    shape = load.peek("burstiness")
    variation = shape**-0.5 if isinstance(shape, int | float) and 0 < shape < MOST_SHAPE else 1.0
    axes = {"num_prompts": sent, **axes}
    result = client_result(load, sent=sent, failed=failed, numbers=NUMBERS, axes=axes, variation=variation)
    if result.metrics.get("rtfx") == 0:  # it is 0 for models without audio
        metrics = {name: value for name, value in result.metrics.items() if name != "rtfx"}
        result = replace(result, metrics=metrics, missing={**result.missing, "rtfx": NO_AUDIO})
    result = with_requests(result, requests, variation=variation)
    arrivals = None if shape is None else "poisson" if shape == 1 else "gamma"
    mode |= load_mode(result, arrivals if "request_rate" in result.point.axes else None)
    return ForeignRun(
        key=str(index),
        stated_times=(date,),
        model_id=load.required(load.text, "model_id"),
        task="feature-extraction" if "input_sequence_throughput" in load else "text-generation",
        results=[result],
        started_at=shifted(load.file, finished_at, -(load.number("duration", low=0) or 0.0)) if finished_at else None,
        finished_at=finished_at,
        runtime=SERVER,
        runtime_mode={
            **({"endpoint": backend} if backend else {}),
            **{name: value for name, value in parallel_mode(load).items() if name not in varied},
            **mode,
        },
        device_count=device_count(load) or 1,
        doubts=engine_not_stated(backend),
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
    names = ("start_times", "ttfts", "latencies" if has_latencies else "ttfts", "input_lens", "output_lens")
    columns = [list(fields.column(name) or ()) for name in names]
    gaps, errors, sent = fields.each("itls"), fields.items("errors"), columns[0]
    if not sent or {len(sent)} != {len(one) for one in (*columns, gaps, errors)}:
        return ()
    waits = list(fields.column("queue_times") or ())
    is_open = fields.peek("max_concurrency") is None or fields.peek("request_rate") != "inf"
    waits = waits if is_open and len(waits) == len(sent) else [0.0] * len(sent)
    found = []
    for place, values in enumerate(zip(*columns, waits, strict=True)):
        start, first_s, latency_s, tokens_in, tokens_out, wait_s = values
        if start is None or first_s is None or latency_s is None or None in values:
            continue  # a value of it is left out
        error, after = errors[place], fields.number_list(gaps[place], f"itls[{place}]")
        if not has_latencies:
            if not error and not has_all(after, gaps[place]):
                continue  # a gap of it is left out
            latency_s = first_s + sum(after) if first_s else 0.0  # without a first output, its end is unknown
        tokens = accumulate((start + first_s, *after)) if first_s else ()
        found.append(
            Sent(
                intended_s=start - (wait_s or 0.0),
                sent_s=start,
                first_s=start + first_s if first_s else None,
                tokens_s=tuple(tokens),
                end_s=start + latency_s if latency_s else None,
                tokens_in=int(tokens_in),
                tokens_out=None if error else int(tokens_out),
                error="failed" if error else None,
                detail=str(error) if error else None,
            )
        )
    if not any(request.end_s is not None for request in found):
        return ()  # nothing was streamed: the file has no request's end
    return requests_record(found)


PLUGIN = Format(
    name="vllm_bench_serve",
    summary="vLLM: vllm bench serve --save-result (json, also several in one file, and .pytorch.json), "
    "vllm bench sweep (run=N.json, summary.json, summary.csv)",
    definition="vllm-bench-serve",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
