"""onnxruntime-genai's benchmark/python/benchmark_e2e.py: its records as JSON and as CSV.

A record is one batch size, prompt length and number of new tokens, with means over the repetitions and no variation.
The numbers of repetitions and warm-ups in it are defaults of the record's class, not what was run, so they are only
kept. The CSV of the first versions names neither model nor device: a table, or a line for each quantity.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Point, Result, Scalar
from db.importers.support.building import UNNAMED, ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import SAME_RATE, foreign_result
from db.importers.support.names import precision_of
from db.importers.support.reading import (
    Fields,
    csv_header,
    csv_lines,
    csv_rows,
    has_columns,
    json_objects,
    mostly,
    understood,
)

BACKEND = "onnxruntime-genai"
OWN = "token_generation_latency_ms"
"""A metric that every record has, but no record of other tools with the same class."""
IS_HEADER = has_columns("config.backend", f"metrics.{OWN}", "trigger_date")
FIRST_VERSIONS = ("Batch Size", "Prompt Length", "Token Generation Latency (ms)")
"""Titles in the CSV of the first versions: at the top, or at the left with a column for each record."""
IS_FIRST_HEADER = has_columns(*FIRST_VERSIONS)
SIZES = ("batch_size", "prompt_length", "tokens_generated", "max_length")
DATE = "%Y-%m-%d %H:%M:%S"
MB_PER_GIB = 1073.741824
METRICS = {
    "wall_clock_time_s": ("latency_mean_ms", MS_PER_S),
    "prompt_processing_latency_ms": ("prompt_processing_mean_ms", 1.0),
    "prompt_processing_throughput_tps": ("prefill_tokens_per_sec", 1.0),
    OWN: ("time_per_output_token_mean_ms", 1.0),
    "token_generation_throughput_tps": ("decode_tokens_per_sec", 1.0),
    "tokenization_latency_ms": ("tokenize_mean_ms", 1.0),
    "tokenization_throughput_tps": ("tokenize_tokens_per_sec", 1.0),
    "sampling_latency_ms": ("sampling_mean_ms", 1.0),
    "sampling_throughput_tps": ("sampling_tokens_per_sec", 1.0),
    "peak_gpu_memory_gb": ("gpu_memory_peak_mb", MB_PER_GIB),
    "peak_cpu_memory_gb": ("cpu_memory_peak_mb", MB_PER_GIB),
}
"""Metric in the file -> our metric, and the factor to it."""
COUNTS_THE_BUFFER = "the file counts max_length tokens a sequence, which is not its prompt and new tokens"
DEVICES = ("cpu", "cuda", "rocm", "openvino", "qnn")
"""Execution providers that are named like our devices."""
DEFINITIONS = {
    "latency": "wall_clock_time_s: tokenizing, the prompt and all new tokens of the batch, on average",
    "prefill_tokens_per_sec": "batch size times prompt length over the mean time of processing the prompt",
    "prompt_processing_mean_ms": "processing the prompt; older files have it per token of the prompt, which shows in "
    "their throughput",
    "time_per_output_token_mean_ms": "mean time of a step of the whole batch, in older versions without sampling",
    "decode_tokens_per_sec": "batch size over that time",
    "total_tokens_per_sec": "wall_clock_throughput_tps: tokens of prompts and new tokens over the wall-clock time",
    "gpu_memory_peak_mb": "of the whole GPU that has most in use, every 0.1 s (the file's GB are GiB)",
    "cpu_memory_peak_mb": "of the whole machine, every 0.1 s (the file's GB are GiB)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One of the file's records."""

    fields: Fields
    cell: tuple[str, ...]
    """Model, precision, execution provider, package and its version; precision and version may be empty."""
    date: str | None
    """As written."""
    result: Result


def recognises(file: ForeignFile) -> bool:
    if file.json is None:
        return bool(csv_header(file, IS_HEADER) or csv_header(file, IS_FIRST_HEADER)) or _is_transposed(file)
    parts = ("config", "metadata", "metrics")
    return isinstance(file.json, list) and mostly(
        file.json,
        lambda record: (
            isinstance(record, dict)
            and "trigger_date" in record
            and all(isinstance(record.get(name), dict) or (name == "metadata" and name in record) for name in parts)
            and record["config"].get("backend") == BACKEND
            and OWN in record["metrics"]
        ),
    )


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if file.json is None:
        file.give_way_to(file.path.with_suffix(".json"))
        if csv_header(file, IS_HEADER):
            entries = csv_rows(file, IS_HEADER)
        else:
            entries = map(_with_paths, _columns(file) if _is_transposed(file) else csv_rows(file, IS_FIRST_HEADER))
    elif isinstance(file.json, list):
        entries = json_objects(file, file.json, "record")
    else:
        file.refuse("not a list of records, or truncated")
    cells: dict[tuple[str, ...], list[Record]] = {}
    for record in understood(file, entries, lambda entry: _record(_nested(entry) if file.json is None else entry)):
        cells.setdefault(record.cell, []).append(record)
    for index, (cell, records) in enumerate(cells.items()):
        model_id, word, provider, package, version = cell
        times = [time for one in records if (time := one.fields.time_like("trigger_date", DATE, "2026-03-01 12:00:00"))]
        precision = precision_of(word)
        mode: dict[str, Scalar] = {"execution_provider": provider}
        if precision == "other":
            mode["precision"] = word
        yield ForeignRun(
            key=str(index),
            model_id=model_id,
            task="text-generation",
            results=[one.result for one in records],
            started_at=min(times, default=None),
            stated_times=[one.date for one in records],
            device_type=provider.lower() if provider.lower() in DEVICES else "unknown",
            runtime=BACKEND,
            runtime_mode=mode,
            precision=precision,
            versions={package: version},
            kept={"records": [one.fields.rest() for one in records]},
        )


def _is_transposed(file: ForeignFile) -> bool:
    return {line.partition(",")[0] for line in file.head.splitlines()} >= set(FIRST_VERSIONS)


def _columns(file: ForeignFile) -> Iterator[Fields]:
    """The records of a file with a line for each quantity: its title, and its value in each record."""
    lines = [cells for _, cells in csv_lines(file)]
    for column in range(1, max(map(len, lines))):
        record = {cells[0]: cells[column] or None for cells in lines if column < len(cells)}
        yield Fields(file, record, f"column {column + 1}", numbers_are_text=True)


def _with_paths(row: Fields) -> Fields:
    """A record of the first versions under the paths of later ones: "Token Generation Latency (ms)" is
    metrics.token_generation_latency_ms."""
    names = {name: re.sub(r"\W+", "_", name.lower()).strip("_").replace("_gib", "_gb") for name in row}
    record = {f"{'config' if to in SIZES else 'metrics'}.{to}": row.peek(name) for name, to in names.items()}
    return Fields(row.file, record, row.path, numbers_are_text=True)


def _nested(row: Fields) -> Fields:
    """A row of the CSV, whose columns are paths, as a record of the JSON."""
    record: dict[str, Any] = {}
    for name in row:
        *path, last = name.split(".")
        place = record
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                row.refuse(name, "lies below a column that has a value itself")
        place[last] = row.peek(name)
    return Fields(row.file, record, row.path, numbers_are_text=True)


def _record(fields: Fields) -> Record:
    config, metadata = fields.section("config"), fields.section("metadata")
    model, precision = config.section("model_info").text("full_name"), config.text("precision")
    provider, package = metadata.text("device") or "unknown", metadata.text("package_name") or BACKEND
    values = fields.section("metrics")
    prompt, new = config.count("prompt_length"), config.count("tokens_generated")
    length, total = config.count("max_length"), values.number("wall_clock_throughput_tps", low=0)
    batch = config.count("batch_size") or 1
    metrics = {metric: values.scaled(name, factor, low=0) for name, (metric, factor) in METRICS.items()}
    took_ms, speed = metrics["prompt_processing_mean_ms"], metrics["prefill_tokens_per_sec"]
    if prompt and took_ms and speed and math.isclose(speed * took_ms / MS_PER_S, batch, rel_tol=SAME_RATE):
        metrics["prompt_processing_mean_ms"] = took_ms * prompt
    missing = {}
    if prompt is not None and new is not None and length == prompt + new:
        metrics["total_tokens_per_sec"] = total
    elif total is not None:
        missing["total_tokens_per_sec"] = COUNTS_THE_BUFFER
    result = foreign_result(
        Point(batch_size=batch, sequence_length=prompt, new_tokens=new),
        metrics=metrics,
        missing=missing,
        kept={"max_length": length, "wall_clock_throughput_tps": total} if missing else {},
    )
    return Record(
        fields=fields,
        cell=(model or UNNAMED, precision or "", provider, package, metadata.text("package_version") or ""),
        date=fields.text("trigger_date"),
        result=result,
    )


PLUGIN = Format(
    name="onnxruntime_genai_benchmark",
    summary="onnxruntime-genai's benchmark_e2e.py: --output (csv, and the json beside it)",
    definition="onnxruntime-genai-benchmark",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
