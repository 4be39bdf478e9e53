"""Results of serving benchmarks: a server under a load of requests to one model.

A call is one request: batch size 1, latency from its start to its end. The most requests in flight are the point's
concurrency; where the tool does not limit them, it is stored as 1 with a doubt. A request rate is an axis.

GenAI-Perf and AIPerf export the same JSON: metric -> {"unit": ..., "avg": ..., "p50": ..., ...}, and the tool's input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarking.core.records import Doubt, Point, Result
from db.importers.support.building import foreign_result
from db.importers.support.measures import supported_tails
from db.importers.support.reading import Fields, short

LATENCY_COLUMNS = {
    "mean": "latency_mean_ms",
    "median": "latency_median_ms",
    "min": "latency_min_ms",
    "p25": "latency_p25_ms",
    "p75": "latency_p75_ms",
    "p90": "latency_p90_ms",
    "p95": "latency_p95_ms",
    "p99": "latency_p99_ms",
    "max": "latency_max_ms",
}
"""Statistic -> column. A tool's standard deviation, which is of the population, goes by the tool's name."""
ENGINES = ("vllm", "sglang", "tgi", "tensorrt", "lmdeploy", "scalellm", "deepspeed", "tensorrtllm")


def load_point(
    *,
    max_concurrency: int | None,
    request_rate: float | None,
    sequence_length: int | None,
    new_tokens: int | None,
    axes: Mapping[str, int | float],
) -> Point:
    """The point of a load. `request_rate` is in requests a second, None for as many as the concurrency allows."""
    rate = {} if request_rate is None else {"request_rate": request_rate}
    return Point(
        batch_size=1,
        sequence_length=sequence_length,
        new_tokens=new_tokens,
        concurrency=max_concurrency or 1,
        axes={**axes, **rate},
    )


def load_doubts(*, max_concurrency: int | None, failed_requests: float | None) -> tuple[Doubt, ...]:
    """The doubts of any load: no limit on concurrency; failed requests, which no number includes."""
    doubts = []
    if max_concurrency is None:
        doubts.append(Doubt(kind="concurrency_unlimited", severity="info", evidence={"concurrency_stored": 1}))
    if failed_requests:
        doubts.append(Doubt(kind="failed_requests", severity="noisy", evidence={"failed_requests": failed_requests}))
    return tuple(doubts)


def common_length(total: float | None, requests: int | None) -> int | None:
    """Tokens of each request where the total is a whole number of them a request; None where they differ."""
    if not total or not requests or total % requests:
        return None
    return int(total // requests)


def length_axes(total: float | None, requests: int | None, name: str) -> dict[str, int | float]:
    """The mean, rounded, as an axis where requests differ in length: loads of another mean are another series."""
    if not total or not requests or common_length(total, requests) is not None:
        return {}
    return {name: round(total / requests)}


def engine(backend: str | None) -> str:
    """The server's runtime, from the client's name for its interface; "unknown" where that names none."""
    first = (backend or "").partition("-")[0].lower()
    return first if first in ENGINES else "unknown"


STATISTICS = ("avg", "p50", "p90", "p95", "p99", "min", "max", "std")
"""Statistics that become metrics; the others (p1, p5, p10, sum, ...) are kept."""
TIMES_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "milliseconds": 1.0}
SCALES = {**{unit: ("ms", factor) for unit, factor in TIMES_MS.items()}, "GB": ("mb", 1e3), "MJ": ("j", 1e6)}
"""Unit in the file -> unit in the name of a metric, and the factor to it."""
SIGNS = {"%": "percent", "°C": "celsius"}
SAME = {"mean": "avg", "median": "p50"}
"""What `LATENCY_COLUMNS` calls a statistic -> what the files call it."""
OURS = {
    **{("request_latency", SAME.get(name, name)): column for name, column in LATENCY_COLUMNS.items()},
    ("request_throughput", "avg"): "throughput_samples_per_sec",
    ("output_token_throughput", "avg"): "throughput_tokens_per_sec",
    ("time_to_first_token", "p50"): "time_to_first_token_ms",
}
"""Metric and statistic -> column of the same meaning."""
NAMES = ("request_latency", "request_throughput")
DEFINITIONS = {
    "latency": "request_latency: from sending a request to its last response",
    "throughput_samples_per_sec": "request_throughput: requests over the time of the whole load",
    "throughput_tokens_per_sec": "output_token_throughput: output tokens over the time of the whole load",
    "std": "standard deviations are of the population",
}


def is_export(data: Any) -> bool:
    """Whether the JSON has metrics of requests as objects with units, and the input they were measured with."""
    if not isinstance(data, dict) or not isinstance(data.get("input_config"), dict):
        return False
    return any(isinstance(data.get(name), dict) and "unit" in data[name] for name in NAMES)


def export_result(
    top: Fields,
    *,
    columns: Mapping[tuple[str, str], str],
    concurrency: int | None,
    request_rate: float | None,
    doubts: Sequence[Doubt],
) -> Result:
    """The result of the one load that is in such a file. `columns` are those that the tool has besides `OURS`."""
    requests, failed = _mean_value(top, "request_count"), _mean_value(top, "error_request_count")
    length, mean = _common_value(top, "input_sequence_length"), _mean_value(top, "input_sequence_length")
    metrics, missing = supported_tails(_metrics(top, {**OURS, **columns}), requests)
    return foreign_result(
        load_point(
            max_concurrency=concurrency,
            request_rate=request_rate,
            sequence_length=length,
            new_tokens=_common_value(top, "output_sequence_length"),
            axes={} if mean is None or length is not None else {"input_tokens_mean": round(mean)},
        ),
        metrics=metrics,
        missing=missing,
        iterations=None if requests is None else int(requests),
        doubts=(*doubts, *load_doubts(max_concurrency=concurrency, failed_requests=failed)),
    )


def export_task(top: Fields) -> str:
    """The task: only text generation has output tokens."""
    return "text-generation" if "output_sequence_length" in top else "feature-extraction"


def model_names(fields: Fields, name: str, value: Any) -> str:
    """The models' names in a list, joined. Raises FormatError for a list of anything else."""
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        fields.refuse(name, f"expected names of models, found {value!r:.60}")
    return ", ".join(value)


def _metrics(top: Fields, columns: Mapping[tuple[str, str], str]) -> dict[str, float]:
    """The statistics of every metric in the warehouse's units: under our names where `columns` has one, else as
    METRIC_STATISTIC_UNIT, or METRIC_UNIT for a metric with one value."""
    metrics: dict[str, float] = {}
    for name in [name for name in top if _is_metric(top.file.json[name])]:
        metrics |= _statistics(top.must(top.fields, name), name, columns)
    return metrics


def _common_value(top: Fields, name: str) -> int | None:
    """A metric's value where all requests have the same, a whole number from 1; None where they differ."""
    metric = top.file.json.get(name)
    if not _is_metric(metric) or metric.get("min") is None or metric.get("min") != metric.get("max"):
        return None
    return Fields(top.file, metric, name).count("min") if metric["min"] >= 1 else None


def _mean_value(top: Fields, name: str) -> float | None:
    """A metric's mean over the requests; None without the metric."""
    metric = top.file.json.get(name)
    return Fields(top.file, metric, name).number("avg") if _is_metric(metric) else None


def _is_metric(value: Any) -> bool:
    return isinstance(value, dict) and "unit" in value and isinstance(value.get("avg"), int | float)


def _statistics(metric: Fields, name: str, columns: Mapping[tuple[str, str], str]) -> dict[str, float]:
    unit = metric.text("unit") or ""
    word, factor = SCALES.get(unit, (_word(unit, name), 1.0))
    wanted = dict.fromkeys((*STATISTICS, *(statistic for metric_name, statistic in columns if metric_name == name)))
    found = {statistic: metric.number(statistic) for statistic in wanted}
    values = {statistic: value * factor for statistic, value in found.items() if value is not None}
    if name in NAMES[:1] and word != "ms":
        metric.refuse("unit", f"expected a time, found {short(unit)}")
    one = len(values) == 1
    return {
        columns.get((name, statistic), "_".join(part for part in (name, "" if one else statistic, word) if part)): value
        for statistic, value in values.items()
    }


def _word(unit: str, name: str) -> str:
    """The unit as part of a name: "tokens/sec/user" is tokens_per_sec_per_user; none where the name says it already."""
    if "/" not in unit and unit.rstrip("s") in name:
        return ""
    return SIGNS.get(unit, re.sub(r"[^a-z0-9]+", "_", unit.lower().replace("/", "_per_")).strip("_"))
