"""onnxruntime's transformers/benchmark.py: its detail CSV (a row for each measurement) and its summary CSV (a row for
each model and setting, a column of mean latencies for each batch and sequence length).

Times are in ms, rounded to 0.01. The file names no hardware but the kind of device. The tool appends to its files, with
another header for each run. Its fusion CSV counts operators, and has no times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarking.core.records import Point, Result, Scalar
from db.importers.support.building import UNNAMED, ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import foreign_result
from db.importers.support.names import precision_of
from db.importers.support.reading import Fields, csv_header, csv_rows, has_columns, understood

IS_DETAIL = has_columns("engine", "model_name", "batch_size", "sequence_length", "average_latency_ms")
IS_FUSION = has_columns("model_filename", "datetime", "transformers", "torch")
CELL = re.compile(r"b(\d{1,6})(?:_s(\d{1,7}))?")
"""Column of the summary: "b1_s128", or "b1" for a model without sequence lengths."""
METRICS = {
    "average_latency_ms": "latency_mean_ms",
    "latency_90_percentile": "latency_p90_ms",
    "latency_95_percentile": "latency_p95_ms",
    "latency_99_percentile": "latency_p99_ms",
    "QPS": "throughput_samples_per_sec",
}
RUNTIMES = {"torch": "eager", "torch2": "compiled", "torchscript": "torchscript", "tensorflow": "tensorflow"}
MODE = ("optimizer", "io_binding", "inputs", "custom_layer_num", "providers")
PLAIN = ("", "None", "NA", "False", "no_opt", "0")
HALF = {"True": "float16", "False": "float32"}
"""Value of the first versions' column fp16 -> precision."""
PROVIDERS = {"rocm": "rocm", "migraphx": "rocm", "dml": "directml"}
"""Word in the name of a provider -> kind of its GPU; cuda for the others."""
DEFINITIONS = {
    "latency": "a call of the model with random token ids of one batch, warmed up",
    "throughput_samples_per_sec": "QPS: batch size over the mean latency",
    "latency_variance": "kept as the tool writes it: the variance in s^2 times 1000",
}


def _is_summary_header(cells: list[str]) -> bool:
    return {"engine", "model_name"} <= set(cells) and any(CELL.fullmatch(cell) for cell in cells)


def recognises(file: ForeignFile) -> bool:
    headers = (IS_DETAIL, _is_summary_header, IS_FUSION)
    return file.json is None and any(csv_header(file, fits) for fits in headers)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if not (csv_header(file, IS_DETAIL) or csv_header(file, _is_summary_header)):
        file.without_results("fusion statistics of benchmark.py: numbers of operators, no times")
    is_detail = bool(csv_header(file, IS_DETAIL))
    rows = csv_rows(file, IS_DETAIL if is_detail else _is_summary_header, ends_early=not is_detail)
    yield from understood(file, rows, _of_detail if is_detail else _of_summary)


def _of_detail(row: Fields) -> ForeignRun:
    setup = _setup(row)
    point = Point(batch_size=row.required(row.count, "batch_size"), sequence_length=row.count("sequence_length"))
    result = foreign_result(
        point,
        metrics={},
        stated={metric: row.number(name, low=0) for name, metric in METRICS.items()},
        iterations=row.integer("test_times"),
    )
    time = row.text("datetime")
    return ForeignRun(
        key=row.path,
        results=[result],
        started_at=row.time("datetime"),
        stated_times=(time,),
        kept=row.rest(),
        **setup,
    )


def _of_summary(row: Fields) -> ForeignRun:
    results: list[Result] = []
    for name in row:
        size = CELL.fullmatch(name)
        if size is None or (latency := row.number(name, low=0)) is None:
            continue
        point = Point(batch_size=int(size[1]), sequence_length=int(size[2]) if size[2] else None)
        results.append(foreign_result(point, metrics={"latency_mean_ms": latency}))
    if not results:
        row.file.refuse(f"{row.path}: no latency")
    return ForeignRun(key=row.path, results=results, kept=row.rest(), **_setup(row))


def _setup(row: Fields) -> Mapping[str, Any]:
    half = HALF.get(row.text("fp16") or "", "")
    engine, word = row.text("engine") or "", (row.text("precision") or half).rpartition(".")[2]
    precision = precision_of(word or None)
    mode: dict[str, Scalar] = {name: text for name in MODE if (text := row.text(name) or "") not in PLAIN}
    if precision == "other":
        mode["precision"] = word
    device = (row.text("device") or "unknown").lower()
    provider = str(mode.get("providers", "")).lower()
    return {
        "model_id": row.text("model_name") or UNNAMED,
        "task": "benchmark",
        "runtime": RUNTIMES.get(engine, engine or "unknown"),
        "runtime_mode": mode,
        "precision": precision,
        "num_threads": row.count("threads") if row.peek("threads") not in ("-1", "0") else None,
        "device_type": next((kind for name, kind in PROVIDERS.items() if name in provider), "cuda")
        if device in ("gpu", "cuda")
        else device,
        "versions": {engine: row.text("version")} if engine else {},
    }


PLUGIN = Format(
    name="onnxruntime_transformers_benchmark",
    summary="onnxruntime's transformers/benchmark.py: detail and summary (csv)",
    definition="onnxruntime-transformers-benchmark",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
