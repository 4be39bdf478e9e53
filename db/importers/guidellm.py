"""GuideLLM's report (benchmarks.json): a run for each kind of load, a result for each load.

Its percentiles are nearest ranks. An empty distribution is all 0, and a delay that was not measured is -1.

Time per output token: GuideLLM's inter_token_latency of a request is our time per output token, but its distribution
weights each request by its tokens. So the median and the percentiles are computed from the requests. If the report has
only some of them, its distribution is used where the weights make no difference: all requests have the same number of
output tokens. What GuideLLM calls time_per_output_token includes the first token.

Reports before version 0.4 have the settings under "args", those of the data under "request_loader", the counts and
times of a load under "run_stats", and those of a request under "scheduler_info". Their time_per_output_token is the
time from the first to the last token over all output tokens.

The same report in YAML, and as a table (benchmarks.csv), which has no requests and local times without a zone.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.provenance import naive_utc
from benchmarking.core.records import TOO_FEW_SAMPLES, Samples, Scalar
from benchmarking.core.sample_statistics import tail_quantile
from benchmarking.core.text import grouped
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import measured, median_of
from db.importers.support.reading import Fields, csv_lines, find_header, has_keys, top_fields, understood, yaml_object
from db.importers.support.serving import (
    UNLIMITED,
    Sent,
    latency_columns,
    limit_unless_unread,
    load_mode,
    load_result,
    requests_record,
    rising,
    same_length,
    server_host,
    settings_by_path,
    with_requests,
)

CLOSED = ("synchronous", "concurrent", "throughput")
"""Loads with a limit on requests in flight; the others send requests at a rate, without a limit."""
NO_SETTING = ("type_", "worker_count", "max_concurrency", "streams", "rate", "initial_burst")
"""Settings of a load that do not distinguish series, or are part of the point."""
STANDARD = {
    **dict.fromkeys(("rampup_duration", "startup_duration"), ("0.0", "0", "")),
    "time_scale": ("1.0", "1", ""),
    "schedule_turn": ("idle_gap", ""),
}
OF_PROMPTS = re.compile(
    r"\b((?:first_(?:prompt|output)|prefix|tool_response)_tokens|(?:first_)?(?:prompt|output)_tokens_(?:stdev|min|max)|turns)"
    r"\W{1,6}(\d{1,9})\b"
)
"""What the settings of the data ask for beside the mean lengths, which are axes."""
NOT_SENT = re.compile(
    r"model|target|api_(?:key|routes).*|timeout\w*|http2|follow_redirects|verify|validate_backend.*|request_format|stream|"
    r"extras.*|data\d*\.(?:load_kwargs.*|(?:first_)?(?:prompt|output)_tokens\w*|tool_response_tokens|"
    r"prefix_tokens|turns|samples|random_seed)|(?:warmup|cooldown)\.mode"
)
"""Paths in the settings of the backend and of the data that do not distinguish series, or are read by other names."""
SENT_BY_DEFAULT = re.compile(
    r"kind=openai_http|type_=openai_http|tool_call_missing_behavior=error_stop|data\d*\.kind=synthetic_text"
)
CHAT = ("/v1/chat/completions", "chat_completions")
"""The endpoint by default."""
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


TABLE = {
    ("Request Latency", "Sec"): "request_latency",
    ("Dispatch Delay", "Sec"): "request_dispatch_delay",
    ("Scheduled Latency", "Sec"): "request_scheduled_latency",
    ("Streaming Iterations", "Count"): "request_streaming_iterations_count",
    ("Time to First Token", "ms"): "time_to_first_token_ms",
    ("Time to First Output Token", "ms"): "time_to_first_output_token_ms",
    ("Time per Output Token", "ms"): "time_per_output_token_ms",
    ("Inter Token Latency", "ms"): TPOT_FIELD,
    ("Server Throughput", "Requests/Sec"): "requests_per_second",
    ("Server Throughput", "Concurrency"): "request_concurrency",
    ("Token Metrics", "Input Tokens"): "prompt_token_count",
    ("Token Metrics", "Output Tokens"): "output_token_count",
    ("Token Metrics", "Total Tokens"): "total_token_count",
    ("Token Throughput", "Input Tokens/Sec"): "prompt_tokens_per_second",
    ("Token Throughput", "Output Tokens/Sec"): "output_tokens_per_second",
    ("Token Throughput", "Total Tokens/Sec"): "tokens_per_second",
}
"""Group and unit of a column of the table -> distribution. Before version 0.4, columns have its name."""
TABLE_STATISTICS = {"mean": "mean", "median": "median", "std dev": "std_dev"}
QUANTILES = ("min", "p001", "p01", "p05", "p10", "p25", "p75", "p90", "p95", "p99", "max")
"""What the list in a column of percentiles has."""
OLD_COLUMN = re.compile(r"(Successful|Incomplete|Errored) (\w[\w ]*?) (mean|median|std dev|\[min, [\d., ]+, max\])")
COUNTED = re.compile(r"(?:Request Counts, )?(Successful|Incomplete|Errored|Total)(?: Requests)?")
STRATEGY_VALUE = {"concurrent": "streams", "throughput": "max_concurrency"}
"""Kind of a load -> what the number in "concurrent@4" is; a rate for the others."""
IN_YAML = re.compile(r"^benchmarks:\s*$", re.MULTILINE)


def _is_table(cells: list[str]) -> bool:
    """Whether a line is the first one of a table's header."""
    is_old = {"Run Id", "Name", "Args", "Worker"} <= set(cells) and any(map(OLD_COLUMN.fullmatch, cells))
    return is_old or (cells[0] == "Run Info" and {"Benchmark", "Request Counts"} <= set(cells))


def _is_yaml(file: ForeignFile) -> bool:
    text = file.text or ""
    return not file.head.lstrip().startswith(("{", "[")) and "request_totals:" in text and bool(IN_YAML.search(text))


def _table(file: ForeignFile, start: int) -> Iterator[dict[str, Any]]:
    """The benchmarks of a table in the form of the report."""
    lines = csv_lines(file, start=start)
    header = [next(lines, (0, list[str]()))[1]]
    if header[0][:1] == ["Run Info"]:
        header += [cells for _, cells in (next(lines, (0, [])), next(lines, (0, [])))]
    if len({len(cells) for cells in header}) != 1:
        file.refuse(f"line {start}: the three lines of the header have different numbers of cells")
    names: list[tuple[str, ...]] = list(zip(*header, strict=True))
    for number, cells in lines:
        if len(cells) != len(names):
            file.leave_out(f"line {number}", f"{len(cells)} cells under {len(names)} columns")
        elif cells not in header:
            line = f"line {number}"
            metrics: dict[str, dict[str, Any]] = {}
            counts: dict[str, str] = {}
            others: dict[str, Any] = {}
            for column, cell in dict(zip(names, cells, strict=True)).items():
                name = ", ".join(part for part in column if part)
                old = OLD_COLUMN.fullmatch(name)
                status, _, unit = (column[1] if len(column) == 3 else "").partition(" ")
                if old is not None:
                    status, metric, statistic = old[1], old[2].lower().replace(" ", "_"), old[3]
                else:
                    metric, statistic = TABLE.get((column[0], unit), ""), column[-1].lower()
                if (metric and statistic in (*TABLE_STATISTICS, "percentiles")) or old is not None:
                    found = metrics.setdefault(metric, {}).setdefault(status.lower(), {"percentiles": {}})
                    if statistic in TABLE_STATISTICS:
                        found[TABLE_STATISTICS[statistic]] = cell
                        continue
                    values = _json_of(cell)
                    if isinstance(values, list) and len(values) == len(QUANTILES):
                        named = dict(zip(QUANTILES, values, strict=True))
                        found |= {"min": named.pop("min"), "max": named.pop("max"), "percentiles": named}
                    elif cell:
                        problem = f"expected {len(QUANTILES)} numbers, found {file.beginning(cell)!r}"
                        file.leave_out(f"{line}.{name}", problem)
                elif counted := COUNTED.fullmatch(name):
                    counts[counted[1].lower()] = cell
                elif cell:
                    others[name] = _json_of(cell)
            for found in (one for by_status in metrics.values() for one in by_status.values()):
                # An empty distribution is all 0, and the table does not say how many values there are.
                is_empty = found.get("mean") in (None, "", "0", "0.0") and found.get("max") in (0, None)
                found["count"] = "0" if is_empty else "1"
            yield {"metrics": {**metrics, "request_totals": counts}, **_in_report(others, counts)}


def _in_report(others: dict[str, Any], counts: Mapping[str, str]) -> dict[str, Any]:
    """The other columns, under the report's names where it has them."""
    if "Worker" in others:
        times = {f"{one}_time": _seconds(others.get(f"{one.title()} Time")) for one in ("start", "end")}
        parts = ("args", "worker", "request_loader")
        moved = {name: others.pop(name.replace("_", " ").title(), None) for name in parts}
        return {**others, **moved, "run_stats": {**times, "requests_made": counts}}
    kind, _, value = str(others.pop("Benchmark, Strategy", "")).partition("@")
    profile, index = others.get("Run Info, Profile"), others.get("Run Info, Run Index")
    done = profile.get("completed_strategies") if isinstance(profile, dict) else None
    strategy: Any = {"type_": kind or None, STRATEGY_VALUE.get(kind, "rate"): value if value != "unlimited" else ""}
    if not value and isinstance(done, list) and isinstance(index, int) and 0 <= index < len(done):
        strategy = done[index] if isinstance(done[index], dict) and done[index].get("type_") == kind else strategy
    return {
        **others,
        "config": {"strategy": strategy, "backend": others.get("Run Info, Backend")},
        **{f"{one}_time": _seconds(others.get(f"Timings, {one.title()} Time")) for one in ("start", "end")},
    }


def _json_of(cell: str) -> Any:
    """The JSON in a cell, or its text. Large numbers stay text, and so do NaN and infinity."""
    if not cell.startswith(("{", "[")) and not re.fullmatch(r"-?\d{1,15}", cell):
        return cell
    try:
        return json.loads(cell, parse_constant=str)
    except (ValueError, RecursionError):
        return cell


def _seconds(time: Any) -> float | None:
    """Seconds since 1970 of a local time, read as UTC; None for any other text."""
    try:
        return naive_utc(datetime.fromisoformat(str(time))).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if data is None:
        return bool(find_header(file, _is_table)[0]) or _is_yaml(file)
    if not isinstance(data, dict) or not isinstance(data.get("benchmarks"), list) or not data["benchmarks"]:
        return False
    return any(has_keys(one, {"metrics", "requests"}) for one in data["benchmarks"])


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if file.json is None:  # one report in several formats
        for ending in (".json", ".yaml"):
            file.give_way_to(file.called.with_suffix(ending), lambda other: recognises(other) and _is_of(file, other))
    start, _ = find_header(file, _is_table) if file.json is None else (0, [])
    if start:  # a table, whose numbers are text
        benchmarks = list(_table(file, start))
        report: dict[str, Any] = {"benchmarks": benchmarks}
        for name in ("metadata", "arguments"):  # which each line repeats
            found = [benchmark.pop(f"Runtime Info, {name.title()}", None) for benchmark in benchmarks]
            report["args" if name == "arguments" else name] = found[0] if found and isinstance(found[0], dict) else {}
        top = Fields(file, report, numbers_are_text=True)
    elif file.json is None and _is_yaml(file):
        top = Fields(file, yaml_object(file))
    else:
        top = top_fields(file)
    loads = understood(file, top.required(top.objects, "benchmarks"), lambda one: _load(top, one))
    groups = grouped((load.key, load) for load in loads)
    metadata = top.section("metadata")
    for own in groups.values():
        dated = [load.started_at for load in own if load.started_at is not None]
        ends = [load.finished_at for load in own if load.finished_at is not None]
        is_dated = len(dated) == len(own)
        yield replace(
            own[0],
            results=[result for load in own for result in load.results],
            started_at=min(dated) if is_dated else None,
            finished_at=max(ends) if is_dated and len(ends) == len(own) else None,
            stated_times=[time for load in own for time in load.stated_times],
            tool_version=metadata.text("guidellm_version"),
            versions={"python": metadata.text("python_version"), "platform": metadata.text("platform")},
            kept={name: value for name, value in top.rest().items() if name != "benchmarks"},
        )


def _is_of(file: ForeignFile, report: ForeignFile) -> bool:
    """Whether a table or a report in YAML is of a run in this report: a folder may have those of several runs."""
    data = report.json if report.json is not None else yaml_object(report)
    benchmarks = [one for one in data["benchmarks"] if isinstance(one, dict)] if isinstance(data, dict) else []
    holders = (holder for one in benchmarks for holder in (one, one.get("config")) if isinstance(holder, dict))
    ids = {str(holder["run_id"]) for holder in holders if holder.get("run_id")}
    return not ids or any(one in (file.text or "") for one in ids)


def _load(top: Fields, benchmark: Fields) -> ForeignRun:
    """A load as a run, whose key names the model and the kind of load."""
    config = benchmark.fields("config") or benchmark.section("args")
    strategy = config.section("strategy")
    kind = strategy.text("type_") or "unknown"
    data = [top.peek("config"), top.peek("args"), *(config.peek(name) for name in ("requests", "data"))]
    data.append(benchmark.peek("request_loader"))
    stated_data = json.dumps(data, default=str)
    settings = {
        **strategy.other_settings(NO_SETTING, STANDARD),
        **_of_requests(top.unread_copy(), config.unread_copy(), benchmark.unread_copy().section("request_loader")),
        **_of_prompts(stated_data),
    }
    times = benchmark if "start_time" in benchmark else benchmark.section("run_stats")
    # Read before the rest is kept with the result: a backend has an address, and may have a key.
    model_id = _of_backend(top, benchmark, config, "model", "backend_model") or "unknown"
    stated_load: dict[str, Any] = {
        "host": server_host(_of_backend(top, benchmark, config, "target", "backend_target")),
        "started_at": times.unix_time("start_time"),
        "finished_at": times.unix_time("end_time"),
        "stated_times": [benchmark.text("Timings, Start Time") or benchmark.text("Start Time")],
    }
    distributions = benchmark.required(benchmark.fields, "metrics")
    is_old = "run_stats" in benchmark
    holder, name = (benchmark.section("run_stats"), "requests_made") if is_old else (distributions, "request_totals")
    totals = holder.section(name)
    succeeded, failed = totals.integer("successful"), totals.number("errored", low=0)
    samples, stated = _samples(benchmark, succeeded), _metrics(distributions, BEFORE_0_4 if is_old else RENAMED)
    values = {sample.metric: sample.values for sample in samples}
    metrics, missing = _token_times(values.get(TPOT), stated)
    if first := values.get("time_to_first_token"):
        metrics["time_to_first_token_ms"] = median_of(first)
    variation = 0.0 if kind == "constant" else 1.0
    # The maximum of requests in flight. At a rate it is the user's, in the profile: the strategy has the client's own.
    if kind not in CLOSED:
        profile = config.peek("profile") or benchmark.peek("Run Info, Profile")
        concurrency = Fields(top.file, profile if isinstance(profile, dict) else {}, "profile").count("max_concurrency")
    else:
        concurrency = 1 if kind == "synchronous" else strategy.count("streams") or strategy.count("max_concurrency")
    request_rate = strategy.rate("rate")
    result = load_result(
        concurrency=concurrency,
        unlimited=limit_unless_unread(UNLIMITED, (strategy.peek("rate"), request_rate)),
        request_rate=request_rate,
        prompt_tokens=_length(stated, "prompt_token_count"),
        prompt_tokens_mean=stated.get("prompt_token_count_mean"),
        new_tokens=_length(stated, "output_token_count"),
        prompt_tokens_requested=_requested(stated_data, "prompt_tokens"),
        new_tokens_requested=_requested(stated_data, "output_tokens"),
        requests=succeeded,
        failed=failed,
        lateness_p95_ms=stated.get("request_dispatch_delay_p95_ms"),
        variation=variation,
        doubts=[
            doubt("guidellm_warning", "info", **{name: entry.any(name) for name in entry})
            for entry in benchmark.objects("warnings") or ()
        ]
        + [*rising(settings)],
        metrics=metrics,
        stated=stated,
        missing=missing,
        samples=samples,
        kept=benchmark.rest(),
    )
    # The requests; empty if the report has only some of them, or comes from a version without their times.
    is_open = kind not in CLOSED
    lists = benchmark.section("requests").unread_copy()
    of_success, of_failure = (lists.objects(name) or () for name in ("successful", "errored"))
    sent: list[Sent] = []
    if (len(of_success), len(of_failure)) == (succeeded, failed or 0):
        found = [_request(entry, error=None, is_open=is_open) for entry in of_success]
        found += [_request(entry, error="failed", is_open=is_open) for entry in of_failure]
        sent = [request for request in found if request is not None] if None not in found else []
    return ForeignRun(
        key=" ".join((model_id, kind, *map(str, settings.values()))),
        model_id=model_id,
        task="text-generation",
        results=[with_requests(result, requests_record(sent), variation=variation)],
        runtime_mode={"load": kind, **settings, **load_mode(result)},
        **stated_load,
    )


def _requested(data: str, name: str) -> int | None:
    """The length of this name that the settings of the data ask for; None if they ask for none, or for several."""
    found = set(re.findall(rf"\b{name}\W{{1,6}}(\d{{1,9}})\b", data))
    return int(found.pop()) if len(found) == 1 else None


def _of_requests(top: Fields, config: Fields, loader: Fields) -> dict[str, Scalar]:
    """What the settings of the backend and of the data say of the requests, and which of them do not count."""
    holders = (top.section("config").section("spec"), top.section("args"), loader)
    stated: Any = next((data for one in holders if (data := one.peek("data"))), [])
    kinds = [one for one in (stated if isinstance(stated, list) else [stated]) if isinstance(one, dict | str)]
    parts = {word: config.section(word) for word in ("warmup", "cooldown") if isinstance(config.peek(word), dict)}
    for number, data in enumerate(kinds):
        # A text is either the name of a data set or what synthetic prompts are made of, which is read from it.
        of_set = {} if isinstance(data, str) and re.search(r"[={]", data) else {"path": data}
        parts[f"data{number or ''}"] = Fields(top.file, data if isinstance(data, dict) else of_set)
    backend = config.section("backend") if isinstance(config.peek("backend"), dict) else Fields(top.file, {})
    found = settings_by_path({"": backend, **parts}, NOT_SENT, SENT_BY_DEFAULT)
    extras = backend.section("extras").other_settings(("headers",))  # also what they turn off
    found |= {f"extras.{name}": value for name, value in extras.items()}
    if (endpoint := backend.peek("request_format")) and endpoint not in CHAT:
        found["endpoint"] = str(endpoint)
    return found | ({"streaming": False} if backend.peek("stream") is False else {})


def _of_prompts(data: str) -> dict[str, Scalar]:
    """The spread of the lengths, shared prefixes and turns that the settings of the data ask for, several as a list."""
    found = grouped(OF_PROMPTS.findall(data))
    values = {name: sorted({int(value) for value in stated} - {0}) for name, stated in found.items()}
    values["turns"] = [] if values.get("turns") == [1] else values.get("turns", [])
    return {name: one[0] if len(one) == 1 else ",".join(map(str, one)) for name, one in sorted(values.items()) if one}


def _of_backend(top: Fields, benchmark: Fields, config: Fields, word: str, older: str) -> str | None:
    """A text about the backend, such as its model, or in older reports of the arguments or the worker."""
    for fields, holder, name in ((config, "backend", word), (benchmark, "worker", older), (top, "args", word)):
        found = fields.any(holder)
        if isinstance(found, dict) and isinstance(found.get(name), str):
            return str(found[name])
    return None


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
        percentiles = values.section("percentiles")
        for statistic in (*STATISTICS, *PERCENTILES):
            value = (percentiles if statistic in PERCENTILES else values).number(statistic)
            if value is not None:
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


def _length(metrics: Mapping[str, float], name: str) -> int | None:
    """Tokens per request if all have the same number, otherwise None."""
    return same_length(metrics.get(f"{name}_min"), metrics.get(f"{name}_max"))


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
    summary="GuideLLM: benchmarks.json, benchmarks.yaml and benchmarks.csv",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
