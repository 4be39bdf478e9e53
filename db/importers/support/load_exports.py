"""The files of GenAI-Perf and AIPerf: metric -> {"unit": ..., "avg": ..., "p50": ..., ...}, and the input settings; and
the tables with the same metrics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Doubt, Result
from db.importers.support.files import ForeignFile
from db.importers.support.measures import MS_PER_UNIT
from db.importers.support.reading import Fields, csv_lines, find_header, parsed_number, shortened
from db.importers.support.serving import Columns, latency_columns, load_result

EXPORTED = ("avg", "p50", "p90", "p95", "p99", "min", "max", "std")
"""Statistics that become metrics; the others (p1, p5, p10, sum, ...) are kept."""
TIMES_MS = MS_PER_UNIT | {"sec": MS_PER_S, "seconds": MS_PER_S, "milliseconds": 1.0}
SCALES = {**{unit: ("ms", factor) for unit, factor in TIMES_MS.items()}, "GB": ("mb", 1e3), "MJ": ("j", 1e6)}
"""Unit in the file -> unit in a metric's name, and the factor to it."""
SIGNS = {"%": "percent", "°C": "celsius"}
EXPORT_COLUMNS: Columns = {
    **latency_columns("request_latency", {"mean": "avg", "median": "p50"}),
    ("request_throughput", "avg"): "throughput_samples_per_sec",
    ("output_token_throughput", "avg"): "throughput_tokens_per_sec",
    ("time_to_first_token", "p50"): "time_to_first_token_ms",
}
NAMES = ("request_latency", "request_throughput")
EXPORT_DEFINITIONS = {
    "latency": "request_latency: from sending a request to its last response",
    "throughput_samples_per_sec": "request_throughput: requests over the time of the whole load",
    "throughput_tokens_per_sec": "output_token_throughput: output tokens over the time of the whole load",
    "std": "standard deviations are of the population",
}


def is_export(data: Any) -> bool:
    """Whether the JSON has request metrics as objects with units, and the input settings they were measured with."""
    if not isinstance(data, dict) or not isinstance(data.get("input_config"), dict):
        return False
    metrics = data["records"] if isinstance(data.get("records"), dict) else data
    return any(isinstance(metrics.get(name), dict) and "unit" in metrics[name] for name in NAMES)


CSV_METRIC = re.compile(r"([A-Z][\w %/-]*?)(?: \(([^)]+)\))?")
"""Title of a row: "Time To First Token (ms)", "OSL Mismatch Diff % (%)"."""


def exported_table(file: ForeignFile, is_header: Callable[[list[str]], bool]) -> dict[str, Any]:
    """The metrics of such a file's CSV in the form of the JSON. It has a table of distributions, one of single values,
    and one for the GPUs, whose other columns say which GPU a row is of."""
    found: dict[str, Any] = {}
    header: list[str] = []
    for number, cells in csv_lines(file, start=find_header(file, is_header)[0]):
        if cells[0] in ("Metric", "GPU", "Endpoint"):
            header = ["avg" if name == "Value" else name for name in cells]
            continue
        row = dict(zip(header, cells, strict=False))
        title = CSV_METRIC.fullmatch(row.get("Metric", ""))
        if title is None or len(cells) != len(header):
            expected = f"expected a metric and {len(header) - 1} values, found {','.join(cells)[:60]!r}"
            file.leave_out(f"line {number}", expected)
            continue
        place = {name: cell for name, cell in row.items() if name[:1].isupper()}
        values = {name: parsed_number(cell.replace(",", "")) for name, cell in row.items() if name not in place}
        numbers = {name: value for name, value in values.items() if value not in ("N/A", "")}
        metric, unit = re.sub(r"\W+", "_", title[1].lower()).strip("_"), title[2] or ""
        if "GPU" in place:
            of_gpus = found.setdefault("telemetry_stats", {}).setdefault(metric, {"unit": unit})
            of_gpus[f"gpu{place['GPU']}"] = numbers
        elif "Endpoint" in place:
            endpoints = found.setdefault("telemetry_data", {"endpoints": {}})["endpoints"]
            gpus = endpoints.setdefault(place["Endpoint"], {"gpus": {}})["gpus"]
            named = {name.lower(): cell for name, cell in place.items() if name not in ("Endpoint", "Metric")}
            key = f"gpu_{place.get('GPU_Index')}"
            if key in gpus and gpus[key].get("gpu_uuid") != named.get("gpu_uuid"):
                key = named["gpu_uuid"]  # several machines behind one endpoint have GPUs of the same index
            gpu = gpus.setdefault(key, {**named, "metrics": {}})
            gpu["metrics"][metric] = {"unit": unit, **numbers}
        else:
            found[metric] = {"unit": unit, **numbers}
    return found


def export_result(
    top: Fields,
    *,
    columns: Columns,
    concurrency: int | None,
    request_rate: float | None,
    doubts: Sequence[Doubt] = (),
) -> Result:
    """The result of the one load in such a file. `columns` are the tool's columns in addition to `EXPORT_COLUMNS`."""
    requests = _mean_value(top, "request_count")
    return load_result(
        concurrency=concurrency,
        request_rate=request_rate,
        prompt_tokens=_common_value(top, "input_sequence_length"),
        prompt_tokens_mean=_mean_value(top, "input_sequence_length"),
        new_tokens=_common_value(top, "output_sequence_length"),
        requests=requests,
        failed=_mean_value(top, "error_request_count"),
        doubts=doubts,
        metrics={},
        stated=_export_metrics(top, {**EXPORT_COLUMNS, **columns}),
    )


def export_task(top: Fields) -> str:
    """The task: only text generation has output tokens."""
    return "text-generation" if "output_sequence_length" in top else "feature-extraction"


def model_names(fields: Fields, name: str, value: Any) -> str:
    """The names of the models in a list, joined. Raises FormatError for a list of anything else."""
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        fields.refuse(name, f"expected model names, found {value!r:.60}")
    return ", ".join(value)


def _export_metrics(top: Fields, columns: Columns) -> dict[str, float]:
    """The statistics of every metric in the warehouse's units: under our name if `columns` has one, otherwise as
    METRIC_STATISTIC_UNIT, or METRIC_UNIT for a metric with one value."""
    metrics: dict[str, float] = {}
    for name in [name for name in top if _is_metric(top.peek(name))]:
        metric = top.required(top.fields, name)
        unit = metric.text("unit") or ""
        # "tokens/sec/user" is tokens_per_sec_per_user; a unit in the metric's name is not repeated.
        word = SIGNS.get(unit, re.sub(r"[^a-z0-9]+", "_", unit.lower().replace("/", "_per_")).strip("_"))
        word = "" if "/" not in unit and unit.rstrip("s") in name else word
        word, factor = SCALES.get(unit, (word, 1.0))
        wanted = dict.fromkeys((*EXPORTED, *(statistic for of_metric, statistic in columns if of_metric == name)))
        found = {statistic: metric.scaled(statistic, factor) for statistic in wanted}
        values = {statistic: value for statistic, value in found.items() if value is not None}
        if name in NAMES[:1] and word != "ms":
            metric.refuse("unit", f"expected a time, found {shortened(unit)}")
        for statistic, value in values.items():
            parts = (name, "" if len(values) == 1 else statistic, word)
            metrics[columns.get((name, statistic), "_".join(filter(None, parts)))] = value
    return metrics


def _common_value(top: Fields, name: str) -> int | None:
    """The value of a metric if it is the same whole number from 1 for all requests, otherwise None."""
    metric = top.peek(name)
    if not _is_metric(metric) or metric.get("min") is None or metric.get("min") != metric.get("max"):
        return None
    return Fields(top.file, metric, name).count("min") if metric["min"] >= 1 else None


def _mean_value(top: Fields, name: str) -> float | None:
    """The mean of a metric over the requests; None without the metric."""
    metric = top.peek(name)
    return Fields(top.file, metric, name).number("avg") if _is_metric(metric) else None


def _is_metric(value: Any) -> bool:
    return isinstance(value, dict) and "unit" in value and isinstance(value.get("avg"), int | float)
