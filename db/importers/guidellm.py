"""GuideLLM's report (benchmarks.json): a run for each kind of load, a result for each load.

Its percentiles are nearest ranks. An empty distribution is all 0, and a delay that was not measured is -1.

Time per output token: GuideLLM's inter_token_latency of a request is our time per output token, but its distribution
weights each request by its tokens. So the median and the percentiles are computed from the requests. If the report has
only some of them, its distribution is used where the weights make no difference: all requests have the same number of
output tokens. What GuideLLM calls time_per_output_token includes the first token.

Reports before version 0.4 have the settings under "args", the counts and times of a load under "run_stats", and those
of a request under "scheduler_info". Their time_per_output_token is the time from the first to the last token over all
output tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmarking.core.records import TOO_FEW_SAMPLES, Doubt, Result, Samples
from benchmarking.core.sample_statistics import tail_quantile
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import MS_PER_S, measured, median_of
from db.importers.support.reading import Fields, mostly, top_fields, understood
from db.importers.support.serving import (
    Sent,
    latency_columns,
    load_mode,
    load_result,
    requests_record,
    server_host,
    with_requests,
)

CLOSED = ("synchronous", "concurrent", "throughput")
"""Loads with a limit on requests in flight; the others send requests at a rate, without a limit."""
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
    **latency_columns("request_latency"),
    ("requests_per_second", "mean"): "throughput_samples_per_sec",
    ("output_tokens_per_second", "mean"): "throughput_tokens_per_sec",
    ("time_to_first_token_ms", "median"): "time_to_first_token_ms",
}
RAW = {"request_latency": ("latency_wall", MS_PER_S), "time_to_first_token_ms": ("time_to_first_token", 1.0)}
"""Field of a request -> metric of its samples, and the factor to ms."""
TPOT = "time_per_output_token"
TPOT_FIELD = "inter_token_latency_ms"
TPOT_TAILS = {f"{TPOT}_p90_ms": 0.9, f"{TPOT}_p99_ms": 0.99}
RENAMED = {"time_per_output_token_ms": f"normalized_{TPOT}", TPOT_FIELD: f"token_weighted_{TPOT}"}
"""Distribution -> our name for it, where GuideLLM's name means something else here."""
BEFORE_0_4 = {**RENAMED, "time_per_output_token_ms": "first_to_last_token_per_output_token"}
WEIGHTED = "not_stated: GuideLLM weights its requests by their tokens, and the report has only some of the requests"
DEFINITIONS = {
    "latency": "request_latency: from the start of a request to its end, of the requests that succeeded",
    "time_to_first_token_ms": "from the start of a request to the first piece of the stream with a token, median",
    "time_per_output_token_*": "GuideLLM's inter_token_latency of each request: (last token - first token) / (output "
    "tokens - 1); median and percentiles over the requests",
    "token_weighted_time_per_output_token_*": "the same, with each request weighted by its output tokens - 1",
    "normalized_time_per_output_token_*": "GuideLLM's time_per_output_token: (last token - start of the request) / "
    "output tokens, with each request weighted by its output tokens",
    "throughput_samples_per_sec": "mean of requests_per_second, of the requests that succeeded",
    "throughput_tokens_per_sec": "mean of output_tokens_per_second, of the requests that succeeded",
    "first_to_last_token_per_output_token_*": "time_per_output_token of reports before version 0.4: (last token - "
    "first token) / output tokens",
    "percentiles": "nearest rank, where they are not computed from raw values",
}


@dataclass(frozen=True, kw_only=True)
class Load:
    """One benchmark of a report."""

    model_id: str
    server: str | None
    """Host and port that the requests were sent to."""
    kind: str
    """Type of the strategy: concurrent, constant, ..."""
    started_at: datetime | None
    finished_at: datetime | None
    result: Result


def _is_report(file: ForeignFile) -> bool:
    data = file.json
    if not isinstance(data, dict) or not isinstance(data.get("benchmarks"), list) or not data["benchmarks"]:
        return False
    return mostly(data["benchmarks"], lambda one: isinstance(one, dict) and {"metrics", "requests"} <= one.keys())


def _read(file: ForeignFile) -> Iterator[ForeignRun]:
    top = top_fields(file)
    loads = list(understood(file, top.required(top.objects, "benchmarks"), lambda one: _load(top, one)))
    metadata = top.section("metadata")
    for model_id, kind in dict.fromkeys((load.model_id, load.kind) for load in loads):
        own = [load for load in loads if (load.model_id, load.kind) == (model_id, kind)]
        dated = [load.started_at for load in own if load.started_at is not None]
        is_dated = len(dated) == len(own)
        yield ForeignRun(
            key=f"{model_id} {kind}",
            model_id=model_id,
            task="text-generation",
            results=[load.result for load in own],
            started_at=min(dated) if is_dated else None,
            finished_at=max(load.finished_at or dated[0] for load in own) if is_dated else None,
            runtime_mode={"load": kind, **load_mode(own[0].result)},
            host=own[0].server,
            tool_version=metadata.text("guidellm_version"),
            versions={"python": metadata.text("python_version"), "platform": metadata.text("platform")},
            kept={name: value for name, value in top.rest().items() if name != "benchmarks"},
        )


def _load(top: Fields, benchmark: Fields) -> Load:
    config = benchmark.fields("config") or benchmark.section("args")
    strategy = config.section("strategy")
    kind = strategy.text("type_") or "unknown"
    times = benchmark if "start_time" in benchmark else benchmark.section("run_stats")
    return Load(
        model_id=_of_backend(top, benchmark, config, "model", "backend_model") or "unknown",
        server=server_host(_of_backend(top, benchmark, config, "target", "backend_target")),
        kind=kind,
        started_at=times.unix_time("start_time"),
        finished_at=times.unix_time("end_time"),
        result=_result(benchmark, strategy, kind),
    )


def _of_backend(top: Fields, benchmark: Fields, config: Fields, word: str, older: str) -> str | None:
    """A text about the backend, such as its model, or in older reports of the arguments or the worker."""
    for fields, holder, name in ((config, "backend", word), (benchmark, "worker", older), (top, "args", word)):
        found = fields.any(holder)
        if isinstance(found, dict) and isinstance(found.get(name), str):
            return str(found[name])
    return None


def _result(benchmark: Fields, strategy: Fields, kind: str) -> Result:
    distributions = benchmark.required(benchmark.fields, "metrics")
    is_old = "run_stats" in benchmark
    holder, name = (benchmark.section("run_stats"), "requests_made") if is_old else (distributions, "request_totals")
    totals = holder.section(name)
    succeeded, failed = totals.integer("successful"), totals.number("errored", low=0)
    samples, stated = _samples(benchmark, succeeded), _metrics(distributions, BEFORE_0_4 if is_old else RENAMED)
    values = {one.metric: one.values for one in samples}
    metrics, missing = _token_times(values.get(TPOT), stated)
    if first := values.get("time_to_first_token"):
        metrics["time_to_first_token_ms"] = median_of(first)
    variation = 0.0 if kind == "constant" else 1.0
    result = load_result(
        concurrency=_concurrency(strategy, kind),
        request_rate=strategy.number("rate", low=0),
        prompt_tokens=_length(stated, "prompt_token_count"),
        prompt_tokens_mean=stated.get("prompt_token_count_mean"),
        new_tokens=_length(stated, "output_token_count"),
        requests=succeeded,
        failed=failed,
        lateness_p95_ms=stated.get("request_dispatch_delay_p95_ms"),
        variation=variation,
        doubts=tuple(_warnings(benchmark)),
        metrics=metrics,
        stated=stated,
        missing=missing,
        samples=samples,
        kept=benchmark.rest(),
    )
    sent = _sent(benchmark, succeeded, failed, is_open=kind not in CLOSED)
    return with_requests(result, requests_record(sent), variation=variation)


def _sent(benchmark: Fields, succeeded: int | None, failed: float | None, *, is_open: bool) -> list[Sent]:
    """The requests; empty if the report has only some of them, or comes from a version without their times."""
    lists = benchmark.section("requests").unread_copy()
    of_success, of_failure = (lists.objects(name) or () for name in ("successful", "errored"))
    if (len(of_success), len(of_failure)) != (succeeded, failed or 0):
        return []
    found = [_request(one, error=None, is_open=is_open) for one in of_success]
    found += [_request(one, error="failed", is_open=is_open) for one in of_failure]
    return [one for one in found if one is not None] if None not in found else []


def _request(request: Fields, *, error: str | None, is_open: bool) -> Sent | None:
    """A request; None without its times. In a closed loop the intended start is the actual one."""
    info = request.section("info").unread_copy()
    is_old = "scheduler_info" in request
    times = request.section("scheduler_info").unread_copy() if is_old else info.section("timings")
    start_s, end_s = times.number("request_start"), times.number("request_end")
    if start_s is None or end_s is None:
        return None
    targeted_s = times.number("targeted_start_time" if is_old else "targeted_start") if is_open else None
    return Sent(
        intended_s=start_s if targeted_s is None else min(targeted_s, start_s),
        sent_s=start_s,
        first_s=request.number("first_token_time") if is_old else times.number("first_token_iteration"),
        end_s=end_s,
        tokens_in=request.integer("prompt_tokens"),
        tokens_out=None if error else request.integer("output_tokens"),
        error=error,
        detail=(request if is_old else info).text("error") if error else None,
    )


def _concurrency(strategy: Fields, kind: str) -> int | None:
    """The maximum of requests in flight. A load at a rate only has the client's own limit, which is kept."""
    if kind not in CLOSED:
        return None
    return 1 if kind == "synchronous" else strategy.count("streams") or strategy.count("max_concurrency")


def _warnings(benchmark: Fields) -> Iterator[Doubt]:
    """GuideLLM's own warnings."""
    for warning in benchmark.objects("warnings") or ():
        evidence = {name: warning.any(name) for name in warning}
        yield Doubt(kind="guidellm_warning", severity="info", evidence=evidence)


def _metrics(distributions: Fields, renamed: Mapping[str, str]) -> dict[str, float]:
    """The statistics of the successful requests, in ms: under our column if the meaning is the same, otherwise named
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
            theirs = f"{renamed.get(name, name.removesuffix('_ms'))}_{statistic}{'_ms' if is_time else ''}"
            metrics[OURS.get((name, statistic), theirs)] = value * factor
    return metrics


def _token_times(
    values_ms: Sequence[float] | None, stated: dict[str, float]
) -> tuple[dict[str, float], dict[str, str]]:
    """Median and percentiles of the time per output token, and the reasons for missing ones. Statistics of requests
    with equal numbers of tokens, whose weights are equal, get our names in `stated`."""
    weighted = f"{RENAMED[TPOT_FIELD]}_"
    names = [name for name in stated if name.startswith(weighted)]
    if _length(stated, "output_token_count") is not None:
        for name in names:
            statistic = name.removeprefix(weighted)
            stated[f"{TPOT}_ms" if statistic == "median_ms" else f"{TPOT}_{statistic}"] = stated.pop(name)
    elif names and not values_ms:
        return {}, dict.fromkeys((f"{TPOT}_ms", *TPOT_TAILS), WEIGHTED)
    if not values_ms:
        return {}, {}
    tails = {column: tail_quantile(values_ms, q) for column, q in TPOT_TAILS.items()}
    found = {column: value for column, value in tails.items() if value is not None}
    return {f"{TPOT}_ms": median_of(values_ms), **found}, dict.fromkeys(tails.keys() - found.keys(), TOO_FEW_SAMPLES)


def _statistics(values: Fields) -> dict[str, float]:
    percentiles = values.section("percentiles")
    found = {
        **{statistic: values.number(statistic) for statistic in STATISTICS},
        **{percentile: percentiles.number(percentile) for percentile in PERCENTILES},
    }
    return {statistic: value for statistic, value in found.items() if value is not None}


def _length(metrics: Mapping[str, float], name: str) -> int | None:
    """Tokens per request if all have the same number, otherwise None."""
    least, most = metrics.get(f"{name}_min"), metrics.get(f"{name}_max")
    return int(least) if least is not None and least == most and least >= 1 else None


def _samples(benchmark: Fields, succeeded: int | None) -> list[Samples]:
    """The raw times of the successful requests in ms; empty if the report has only some of them."""
    requests = benchmark.section("requests").objects("successful") or ()
    if len(requests) != succeeded:
        return []
    values: dict[str, array[float]] = {}
    for request in requests:
        for name, (metric, factor) in RAW.items():
            value = request.number(name, low=0)
            if value is not None:
                values.setdefault(metric, array("d")).append(value * factor)
    samples = [measured(metric, times) for metric, times in values.items() if len(times) == succeeded]
    # A request with one token has no time between tokens.
    each = [(request.number(TPOT_FIELD, low=0), request.integer("output_tokens")) for request in requests]
    per_token = array("d", (value for value, tokens in each if value is not None and tokens != 1))
    is_whole = all(value is not None or tokens == 1 for value, tokens in each)
    return [*samples, measured(TPOT, per_token)] if per_token and is_whole else samples


PLUGIN = Format(
    name="guidellm",
    summary="GuideLLM: benchmarks.json",
    definition="guidellm",
    definitions=DEFINITIONS,
    recognises=_is_report,
    read=_read,
)
