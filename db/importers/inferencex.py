"""InferenceX's aggregates (before: InferenceMAX): a row for each load, alone or in a list.

Times are in s. Throughputs are for each GPU, prompts and new tokens together; the file has no total.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import SERVER, Scalar
from db.importers.support.building import UNNAMED, ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.reading import Fields, json_objects, mostly, understood
from db.importers.support.serving import (
    device_count,
    latency_columns,
    load_mode,
    load_result,
    parallel_mode,
    token_columns,
)

NEEDED = {"framework", "conc"}
HARDWARE = ("hw", "hardware")
"""The name of the hardware in files, and in rows of the project's site."""
OF_ONE_GPU = "not_stated: the file has the throughput of one GPU: see output_tokens_per_sec_per_gpu"
PER_GPU = {
    "tput_per_gpu": "total_tokens_per_sec_per_gpu",
    "output_tput_per_gpu": "output_tokens_per_sec_per_gpu",
    "input_tput_per_gpu": "input_tokens_per_sec_per_gpu",
}
STATISTIC = re.compile(
    r"(?:(?P<first>mean|median|std|p[\d.]+)_)?(?P<metric>ttft|tpot|itl|e2el|intvty)(?:_(?P<last>mean|std|p[\d.]+))?"
)
COLUMNS = {**latency_columns("e2el"), **token_columns("ttft", "tpot")}
MODE = (
    *("dp_attention", "spec_decoding", "spec_method", "disagg", "is_multinode", "scenario_type", "image"),
    *(
        f"{phase}_{name}"
        for phase in ("prefill", "decode")
        for name in ("tp", "ep", "pp_size", "pcp_size", "dp_attention", "num_workers")
    ),
)
GPUS = ("prefill_gpus", "decode_gpus", "num_prefill_gpu", "num_decode_gpu")
NVIDIA = re.compile(r"(?:nvidia |dgx |rtx |g?[abhlvtb]\d{1,3}s?\b|gh\d{3}|gb\d{3})", re.IGNORECASE)
AMD = re.compile(r"(?:amd |mi\d{3})", re.IGNORECASE)
"""The beginning of a name of hardware of this vendor."""
DEFINITIONS = {
    "latency": "e2el: from sending a request to its last token",
    "time_to_first_token_ms": "median ttft: from sending a request to its first token",
    "time_per_output_token_ms": "median tpot: (latency - ttft) / (output tokens - 1) of each request",
    "itl": "gap between pieces of the stream",
    "intvty": "interactivity: 1 / tpot, in tokens per second of a user",
    "total_tokens_per_sec_per_gpu": "tokens of prompts and answers over the time of the load, for each GPU",
}


def _rows(data: Any) -> list[Any]:
    return data if isinstance(data, list) else [data]


def recognises(file: ForeignFile) -> bool:
    def has_numbers(row: Any) -> bool:
        if not isinstance(row, dict) or not row.keys() >= NEEDED or row.keys().isdisjoint(HARDWARE):
            return False
        nested = row.get("metrics")
        return not PER_GPU.keys().isdisjoint(nested if isinstance(nested, dict) else row)

    return file.json is not None and mostly(_rows(file.json), has_numbers)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    rows = enumerate(json_objects(file, _rows(file.json), "row"), 1)
    yield from understood(file, rows, lambda one: _run(one[1], one[0]))


def _run(row: Fields, number: int) -> ForeignRun:
    hardware, word = next((name for one in HARDWARE if (name := row.text(one))), ""), row.text("precision")
    numbers = row.section("metrics") if "metrics" in row else row
    stated: dict[str, float | None] = {metric: numbers.number(name, low=0) for name, metric in PER_GPU.items()}
    for name in numbers:
        found = STATISTIC.fullmatch(name)
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
            column = COLUMNS.get((found["metric"], statistic), f"{statistic}_{found['metric']}_ms")
            stated[column] = value * MS_PER_S
    result = load_result(
        concurrency=row.count("conc"),
        request_rate=None,
        prompt_tokens=row.count("isl"),
        prompt_tokens_mean=None,
        new_tokens=row.count("osl"),
        requests=None,
        failed=None,
        metrics={},
        stated=stated,
        missing={"throughput_tokens_per_sec": OF_ONE_GPU} if "output_tput_per_gpu" in numbers else {},
    )
    mode: dict[str, Scalar] = {**parallel_mode(row), **load_mode(result)}
    for setting in MODE:
        chosen = row.any(setting)
        if isinstance(chosen, str | bool | int) and str(chosen).lower() not in ("false", "none", "", "0"):
            mode[setting] = chosen
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
        device_type="rocm" if AMD.match(hardware) else "cuda" if NVIDIA.match(hardware) else "unknown",
        device_name=hardware or None,
        device_count=gpus or device_count(row) or of_one or 1,
        runtime=row.text("framework") or SERVER,
        runtime_mode=mode,
        precision_word=word,
        kept=row.rest(),
    )


PLUGIN = Format(
    name="inferencex",
    summary="InferenceX (InferenceMAX): aggregated results, one row or a list (json)",
    definition="inferencex",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
