"""GuideLLM's report (benchmarks.json): a run for each kind of load in it, a result for each load.

Its percentiles are nearest ranks. An empty distribution has 0 everywhere, and a delay that was not measured is -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from benchmarking.core.records import Doubt, Result, Run, Samples
from db.importers.support.building import foreign_result, foreign_run, undated
from db.importers.support.files import ForeignFile
from db.importers.support.measures import MS_PER_S, latency_metrics, measured, supported_tails, worst_status
from db.importers.support.reading import Fields, top_fields
from db.importers.support.serving import LATENCY_COLUMNS, load_doubts, load_point

CLOSED = ("synchronous", "concurrent", "throughput")
"""Loads with a limit on requests in flight; the others send requests at a rate without one."""
STATISTICS = ("mean", "median", "std_dev", "min", "max")
PERCENTILES = ("p25", "p75", "p90", "p95", "p99")
DISTRIBUTIONS = (
    *("requests_per_second", "request_concurrency", "request_latency", "request_dispatch_delay"),
    *("request_scheduled_latency", "request_streaming_iterations_count", "prompt_token_count", "output_token_count"),
    *("total_token_count", "time_to_first_token_ms", "time_to_first_output_token_ms", "time_per_output_token_ms"),
    *("inter_token_latency_ms", "prompt_tokens_per_second", "output_tokens_per_second", "tokens_per_second"),
)
"""Distributions that become metrics; the others are kept."""
SECONDS = ("request_latency", "request_dispatch_delay", "request_scheduled_latency")
OURS = {
    **{("request_latency", name): column for name, column in LATENCY_COLUMNS.items()},
    ("requests_per_second", "mean"): "throughput_samples_per_sec",
    ("output_tokens_per_second", "mean"): "throughput_tokens_per_sec",
    ("time_to_first_token_ms", "median"): "time_to_first_token_ms",
    ("inter_token_latency_ms", "median"): "time_per_output_token_ms",
}
RAW = {"request_latency": ("latency_wall", MS_PER_S), "time_to_first_token_ms": ("time_to_first_token", 1.0)}
"""Field of a request -> metric of its samples, and the factor to ms."""
DEFINITIONS = {
    "latency": "request_latency: from the start of a request to its end, of the requests that succeeded",
    "time_to_first_token_ms": "from the start of a request to the first piece of the stream with a token, median",
    "time_per_output_token_ms": "GuideLLM's inter_token_latency: (last token - first token) / (output tokens - 1) of "
    "each request, median",
    "time_per_output_token_*": "GuideLLM's own: (last token - start of the request) / output tokens, the first one "
    "included",
    "throughput_samples_per_sec": "mean of requests_per_second, of the requests that succeeded",
    "throughput_tokens_per_sec": "mean of output_tokens_per_second, of the requests that succeeded",
    "percentiles": "nearest rank, where they are not computed from raw values",
}


class Guidellm:
    """Reads the JSON of `guidellm run` and `guidellm benchmark`."""

    name = "guidellm"
    summary = "GuideLLM: benchmarks.json"

    def recognises(self, file: ForeignFile) -> bool:
        data = file.json
        if not isinstance(data, dict) or not isinstance(data.get("benchmarks"), list) or not data["benchmarks"]:
            return False
        return all(isinstance(one, dict) and {"metrics", "requests"} <= one.keys() for one in data["benchmarks"])

    def runs(self, file: ForeignFile) -> Iterator[Run]:
        top = top_fields(file)
        loads = [_load(top, benchmark) for benchmark in top.must(top.objects, "benchmarks")]
        metadata = top.section("metadata")
        versions = {"python": metadata.text("python_version"), "platform": metadata.text("platform")}
        shared: dict[str, Any] = {
            "tool_version": metadata.text("guidellm_version"),
            "versions": {name: text for name, text in versions.items() if text},
        }
        for model_id, kind in dict.fromkeys((load.model_id, load.kind) for load in loads):
            yield _run(top, [load for load in loads if (load.model_id, load.kind) == (model_id, kind)], shared)


@dataclass(frozen=True, kw_only=True)
class Load:
    """One benchmark of a report."""

    benchmark: Fields
    strategy: Fields
    model_id: str
    kind: str
    """The strategy's: concurrent, constant, ..."""
    started_at: datetime
    finished_at: datetime
    doubts: tuple[Doubt, ...]


def _load(top: Fields, benchmark: Fields) -> Load:
    config = benchmark.fields("config") or benchmark.section("args")
    strategy = config.section("strategy")
    started, finished = benchmark.unix_time("start_time"), benchmark.unix_time("end_time")
    return Load(
        benchmark=benchmark,
        strategy=strategy,
        model_id=_model(top, benchmark, config) or "unknown",
        kind=strategy.text("type_") or "unknown",
        started_at=started or benchmark.file.modified_at,
        finished_at=finished or started or benchmark.file.modified_at,
        doubts=() if started else (undated(benchmark.file),),
    )


def _model(top: Fields, benchmark: Fields, config: Fields) -> str | None:
    """The model's name: of the backend, or in older reports of the arguments or the worker."""
    for fields, holder, name in (
        (config, "backend", "model"),
        (benchmark, "worker", "backend_model"),
        (top, "args", "model"),
    ):
        found = fields.any(holder)
        if isinstance(found, dict) and isinstance(found.get(name), str):
            return str(found[name])
    return None


def _run(top: Fields, loads: Sequence[Load], shared: Mapping[str, Any]) -> Run:
    results = [_result(load) for load in loads]
    model_id, kind = loads[0].model_id, loads[0].kind
    return foreign_run(
        top.file,
        f"{model_id} {kind}",
        format_name=Guidellm.name,
        definition="guidellm",
        definitions=DEFINITIONS,
        model_id=model_id,
        task="text-generation",
        results=results,
        started_at=min(load.started_at for load in loads),
        finished_at=max(load.finished_at for load in loads),
        runtime_mode={"load": kind},
        kept={name: value for name, value in top.rest().items() if name != "benchmarks"},
        status=worst_status(results),
        **shared,
    )


def _result(load: Load) -> Result:
    benchmark = load.benchmark
    distributions = benchmark.must(benchmark.fields, "metrics")
    totals = distributions.section("request_totals")
    succeeded, errored = totals.whole("successful"), totals.number("errored", low=0)
    samples, metrics = _samples(benchmark, succeeded, load.started_at), _metrics(distributions)
    concurrency, prompt_tokens = _concurrency(load), _length(metrics, "prompt_token_count")
    point = load_point(
        max_concurrency=concurrency,
        request_rate=load.strategy.number("rate", low=0),
        sequence_length=prompt_tokens,
        new_tokens=_length(metrics, "output_token_count"),
        axes={} if prompt_tokens else _mean_axis(metrics),
    )
    if succeeded == 0:
        return foreign_result(point, metrics={}, status="failed", error="no request succeeded", kept=benchmark.rest())
    walls = next((one.values for one in samples if one.metric == "latency_wall"), None)
    computed, too_few, _ = latency_metrics(benchmark.file, [walls]) if walls else ({}, {}, None)
    first = next((one.values for one in samples if one.metric == "time_to_first_token"), None)
    computed |= {"time_to_first_token_ms": median(first)} if first else {}
    stated = {column: metrics[column] for column in computed if column in metrics}
    metrics, unsupported = supported_tails(metrics, succeeded)
    return foreign_result(
        point,
        metrics={**metrics, **computed},
        missing={**unsupported, **too_few},
        samples=samples,
        iterations=succeeded,
        doubts=(
            *load.doubts,
            *_warnings(benchmark),
            *load_doubts(max_concurrency=concurrency, failed_requests=errored),
        ),
        kept={**benchmark.rest(), "stated": stated},
    )


def _concurrency(load: Load) -> int | None:
    """The most requests in flight. A load at a rate has only the client's own limit, which is kept."""
    if load.kind not in CLOSED:
        return None
    return 1 if load.kind == "synchronous" else load.strategy.count("streams") or load.strategy.count("max_concurrency")


def _warnings(benchmark: Fields) -> Iterator[Doubt]:
    """GuideLLM's own warnings."""
    for warning in benchmark.objects("warnings") or ():
        evidence = {name: warning.any(name) for name in warning}
        yield Doubt(kind="guidellm_warning", severity="info", evidence=evidence)


def _metrics(distributions: Fields) -> dict[str, float]:
    """The statistics of the successful requests in ms, by our column where the meaning is the same, else named
    DISTRIBUTION_STATISTIC_UNIT."""
    metrics: dict[str, float] = {}
    for name in DISTRIBUTIONS:
        of_all = distributions.fields(name)
        values = of_all.fields("successful") if of_all else None
        if values is None or not values.number("count"):
            continue
        factor = MS_PER_S if name in SECONDS else 1.0
        is_time = name in SECONDS or name.endswith("_ms")
        for statistic, value in _statistics(values).items():
            own = f"{name.removesuffix('_ms')}_{statistic}{'_ms' if is_time else ''}"
            metrics[OURS.get((name, statistic), own)] = value * factor
    return metrics


def _statistics(values: Fields) -> dict[str, float]:
    percentiles = values.section("percentiles")
    found = {
        **{statistic: values.number(statistic) for statistic in STATISTICS},
        **{percentile: percentiles.number(percentile) for percentile in PERCENTILES},
    }
    return {statistic: value for statistic, value in found.items() if value is not None}


def _length(metrics: Mapping[str, float], name: str) -> int | None:
    """Tokens of every request where all have the same, else None."""
    least, most = metrics.get(f"{name}_min"), metrics.get(f"{name}_max")
    return int(least) if least is not None and least == most and least >= 1 else None


def _mean_axis(metrics: Mapping[str, float]) -> dict[str, int | float]:
    """The mean length of the prompts where they differ: loads of another mean are another series."""
    mean = metrics.get("prompt_token_count_mean")
    return {} if mean is None else {"input_tokens_mean": round(mean)}


def _samples(benchmark: Fields, succeeded: int | None, started_at: datetime) -> list[Samples]:
    """The raw times of the successful requests in ms; empty where the report holds only some of them."""
    requests = benchmark.section("requests")
    of_success = requests.objects("successful") or ()
    found: dict[str, list[float]] = {}
    for request in of_success if len(of_success) == succeeded else ():
        for name, (metric, factor) in RAW.items():
            value = request.number(name, low=0)
            if value is not None:
                found.setdefault(metric, []).append(value * factor)
    return [measured(metric, values, started_at) for metric, values in found.items() if len(values) == succeeded]


PLUGIN = Guidellm()
