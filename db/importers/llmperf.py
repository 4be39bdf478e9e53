"""llmperf's token_benchmark_ray.py: the summary of one load, and its list of responses.

Times are in s. The tool counts the time to the first token among the times between tokens, so what it calls inter-token
latency is the latency over all output tokens of a request. If the list of responses is in the same folder, its times
are the samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import SERVER, Samples, Scalar
from db.importers.support.building import UNNAMED, ForeignRun, Format
from db.importers.support.files import ForeignFile, beside
from db.importers.support.measures import in_ms, measured
from db.importers.support.reading import Fields, MetricTable, has_keys, json_objects, top_fields
from db.importers.support.serving import (
    NOT_STATED,
    STATISTICS,
    latency_columns,
    leaves,
    load_mode,
    load_result,
    named_statistics,
    same_length,
    server_host,
    token_columns,
)

PREFIX = "results_"
TIMES = {
    "end_to_end_latency_s": "request_latency",
    "ttft_s": "time_to_first_token",
    "inter_token_latency_s": "normalized_time_per_output_token",
}
"""Name in the file -> our metric."""
RAW = {"end_to_end_latency_s": "latency_wall", "ttft_s": "time_to_first_token"}
"""Field of a response -> metric of its samples."""
COLUMNS = {**latency_columns("request_latency"), **token_columns("time_to_first_token", "time_per_output_token")}
NUMBERS: MetricTable = {
    "mean_output_throughput_token_per_s": "throughput_tokens_per_sec",
    "num_completed_requests_per_min": ("throughput_samples_per_sec", 1 / 60),
    "request_output_throughput_token_per_s_mean": "request_output_tokens_per_sec_mean",
    "number_input_tokens_mean": "input_tokens_mean",
    "number_output_tokens_mean": "output_tokens_mean",
}
"""Result -> metric, and the factor to its unit."""
QUANTILES = {"p25": "p25", "median": "p50", "p75": "p75", "p90": "p90", "p95": "p95", "p99": "p99"}
OF_A_RESPONSE = {"end_to_end_latency_s", "ttft_s", "number_output_tokens"}
SUMMARY, RESPONSES = "_summary.json", "_individual_responses.json"
DEFINITIONS = {
    "latency": "end_to_end_latency_s: from sending a request to its last token",
    "time_to_first_token_ms": "median of ttft_s: from sending a request to its first token",
    "normalized_time_per_output_token": "inter_token_latency_s: latency over the output tokens, the first one included",
    "throughput_tokens_per_sec": "mean_output_throughput_token_per_s: output tokens over the time of the whole load",
    "throughput_samples_per_sec": "num_completed_requests_per_min / 60",
    "request_output_tokens_per_sec_mean": "mean over the requests of output tokens over their latency",
}


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if isinstance(data, list):
        return any(has_keys(one, OF_A_RESPONSE) for one in data)
    return isinstance(data, dict) and "num_concurrent_requests" in data and bool(_results(data))


def _results(data: Mapping[str, Any]) -> dict[str, Any]:
    """The results by their flat names without prefix; versions nest them."""
    nested = data.get("results")
    found = dict(leaves(nested, separator="_")) if isinstance(nested, dict) else {}
    found |= {name.removeprefix(PREFIX): value for name, value in data.items() if name.startswith(PREFIX)}
    return found if any(name.startswith(tuple(TIMES)) for name in found) else {}


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if isinstance(file.json, list):
        whole = file.called.with_name(file.called.name.removesuffix(RESPONSES) + SUMMARY)
        if file.called.name.endswith(RESPONSES) and file.is_part_of(whole, recognises):
            file.without_results(f"responses of a load: imported with {whole.name}")
        responses = list(json_objects(file, file.json, "response"))
        failed = sum(map(_failed, responses))
        result = load_result(
            concurrency=None,
            unlimited=NOT_STATED,
            prompt_tokens=_length(responses, "number_input_tokens"),
            new_tokens=_length(responses, "number_output_tokens"),
            requests=len(responses) - failed,
            failed=failed,
            sent=len(responses),
            samples=_samples(responses),
        )
        mode: dict[str, Scalar] = {}
        about: dict[str, Any] = {
            "model_id": UNNAMED,
            "kept": {"responses": [response.rest() for response in responses]},
        }
    else:
        top = top_fields(file)
        # It writes some whole numbers as text.
        results = Fields(file, _results(file.json), "results", numbers_are_text=True)
        own = {name: top.peek(name) for name in top if name != "results" and not name.startswith(PREFIX)}
        others = Fields(file, own)
        # The times of the requests that succeeded are in the list in the folder.
        path = file.called.with_name(file.called.name.removesuffix(SUMMARY) + RESPONSES)
        listed = beside(file, path) if file.called.name.endswith(SUMMARY) else None
        data = None if listed is None else listed.json
        responses = list(json_objects(file, data, f"{path.name}: response")) if isinstance(data, list) else []
        samples, stated = _samples(responses), dict[str, float | None]()
        for name, metric in TIMES.items():
            words = {one: f"{name}_quantiles_{QUANTILES[one]}" for one in QUANTILES}
            words |= {one: f"{name}_{one}" for one in (*STATISTICS, "stddev") if one not in QUANTILES}
            statistics = {statistic: results.number(word, low=0) for statistic, word in words.items()}
            stated |= named_statistics(metric, statistics, COLUMNS, MS_PER_S)
        stated |= results.metrics(NUMBERS, low=0)
        inputs, outputs = (
            same_length(results.number(f"{name}_min"), results.number(f"{name}_max"))
            for name in ("number_input_tokens", "number_output_tokens")
        )
        planned = {name: others.number(name, low=0) for name in ("mean_input_tokens", "mean_output_tokens")}
        result = load_result(
            concurrency=others.count("num_concurrent_requests"),
            unlimited=NOT_STATED,
            prompt_tokens=inputs,
            new_tokens=outputs,
            requests=results.integer("num_completed_requests"),
            failed=results.number("number_errors", low=0),
            sent=results.integer("num_requests_started"),
            axes={name: round(value) for name, value in planned.items() if value},
            stated=stated,
            samples=samples,
        )
        about = {
            "started_at": others.unix_time("timestamp"),
            "model_id": others.text("model") or UNNAMED,
            "host": server_host(others.text("api")),
        }
        # What the user named with --metadata, and the service in the published results.
        mode = {name: word for name in SERVICE if (word := others.text(name))}
        of_requests = others.settings(filter(REQUESTS.fullmatch, others), ("{}", ""))
        mode |= {name: one for name, one in of_requests.items() if one or not name.startswith("stddev")}
        about["kept"] = {**others.rest(), "results": results.rest()}
    yield ForeignRun(
        task="text-generation", results=[result], runtime=SERVER, runtime_mode={**mode, **load_mode(result)}, **about
    )


SERVICE = ("framework", "provider", "llm_api", "backend")
"""Fields that name the service which answered: another service is another series."""

REQUESTS = re.compile(r"stddev_(?:in|out)put_tokens|additional_sampling_params\w*")
"""Fields of what requests contain, beside the mean lengths."""


def _length(responses: Sequence[Fields], name: str) -> int | None:
    """Tokens of each request that succeeded, if all have the same number."""
    counts = {response.unread_copy().number(name, low=0) for response in responses if not _failed(response)}
    return same_length(*counts, *counts) if len(counts) == 1 else None


def _samples(responses: Sequence[Fields]) -> list[Samples]:
    done = [response for response in responses if not _failed(response)]
    values = {
        metric: in_ms(value for response in done if (value := response.number(name, low=0)) is not None)
        for name, metric in RAW.items()
    }
    return [measured(metric, values_ms) for metric, values_ms in values.items()]


def _failed(response: Fields) -> bool:
    return response.peek("error_code") is not None


PLUGIN = Format(
    name="llmperf",
    summary="llmperf: *_summary.json and *_individual_responses.json of token_benchmark_ray.py",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
