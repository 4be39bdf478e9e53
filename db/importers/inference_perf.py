"""inference-perf's reports: stage_N_lifecycle_metrics.json, and the summary of a load of one stage.

A stage is one load at a rate, its times in s. The model is in config.yaml in the same folder, where it was saved there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile, read_file
from db.importers.support.measures import MS_PER_S
from db.importers.support.reading import Fields, top_fields, yaml_object
from db.importers.support.serving import STATISTICS, latency_columns, load_result, named

TIMES = ("request_latency", "time_to_first_token", "time_per_output_token", "inter_token_latency")
FURTHER_TIMES = ("normalized_time_per_output_token",)
COLUMNS = {
    **latency_columns("request_latency"),
    ("time_to_first_token", "median"): "time_to_first_token_ms",
    ("time_per_output_token", "median"): "time_per_output_token_ms",
}
RATES = {
    "requests_per_sec": "throughput_samples_per_sec",
    "output_tokens_per_sec": "throughput_tokens_per_sec",
    "input_tokens_per_sec": "input_tokens_per_sec",
    "total_tokens_per_sec": "total_tokens_per_sec",
}
SUMMARY = "summary_lifecycle_metrics"
DEFINITIONS = {
    "latency": "request_latency: from the start of a request to its end, of the requests that succeeded",
    "time_to_first_token_ms": "median of time_to_first_token: from the start of a request to its first token",
    "time_per_output_token_ms": "median of time_per_output_token: (last token - first token) / (output tokens - 1) of "
    "each request, the tokens as the client counts them",
    "inter_token_latency": "gap between two tokens of a request, of all requests together",
    "normalized_time_per_output_token": "latency / output tokens of each request",
    "throughput_samples_per_sec": "requests that succeeded over the time of the whole stage",
    "throughput_tokens_per_sec": "output tokens of them over the time of the whole stage",
}


def _is_report(file: ForeignFile) -> bool:
    data = file.json
    if not isinstance(data, dict) or not {"load_summary", "successes", "failures"} <= data.keys():
        return False
    return isinstance(data["successes"], dict) and isinstance(data["load_summary"], dict)


def _read(file: ForeignFile) -> Iterator[ForeignRun]:
    if file.path.name.startswith(SUMMARY) and any(file.path.parent.glob("stage_*_lifecycle_metrics.json")):
        file.without_results("the summary of all stages: each is in a file of its own in this folder")
    top = top_fields(file)
    load, successes, failures = (top.section(name) for name in ("load_summary", "successes", "failures"))
    latency, throughput = successes.section("latency"), successes.section("throughput")
    prompts, outputs = successes.section("prompt_len"), successes.section("output_len")
    stated = {metric: throughput.number(name) for name, metric in RATES.items()}
    for name in (*TIMES, *FURTHER_TIMES):
        times = latency.section(name)
        stated |= named(name, {one: times.number(one) for one in STATISTICS}, COLUMNS, MS_PER_S)
    result = load_result(
        concurrency=load.count("concurrency"),
        request_rate=load.number("requested_rate", low=0),
        prompt_tokens=_common(prompts),
        prompt_tokens_mean=prompts.number("mean"),
        new_tokens=_common(outputs),
        requests=successes.whole("count"),
        failed=failures.number("count", low=0),
        metrics={
            "achieved_rate_per_sec": load.number("achieved_rate", low=0),
            "send_duration_s": load.number("send_duration", low=0),
            "output_tokens_mean": outputs.number("mean"),
        },
        stated=stated,
    )
    yield ForeignRun(
        model_id=_model(file),
        task="text-generation",
        results=[result],
        kept=top.rest(),
    )


def _common(lengths: Fields) -> int | None:
    """The length of all requests; None where they differ."""
    least, most = lengths.number("min"), lengths.number("max")
    return int(least) if least is not None and least == most and least >= 1 else None


def _model(file: ForeignFile) -> str:
    for name in ("config.yaml", "config.yml"):
        path = file.path.with_name(name)
        server: Any = yaml_object(read_file(path)).get("server") if path.is_file() else None
        if isinstance(server, dict) and isinstance(server.get("model_name"), str):
            return str(server["model_name"])
    return "unknown"


PLUGIN = Format(
    name="inference_perf",
    summary="inference-perf: stage_N_lifecycle_metrics.json and summary_lifecycle_metrics.json",
    definition="inference-perf",
    definitions=DEFINITIONS,
    recognises=_is_report,
    read=_read,
)
