"""inference-perf's reports, and llm-d's Benchmark Report 0.2, which its converters write for many load generators.

inference-perf writes stage_N_lifecycle_metrics.json, and the summary of a load with one stage.

A stage is one load at a rate or a concurrency, with times in s. Other files in its folder complete it: config.yaml has
the model, the stage's part of a Benchmark Report the date, and per_request_lifecycle_metrics.json the times of each
request if there is only one stage. A file of an adapter (LoRA) has its requests alone, which are another series.

A Benchmark Report is one load, in YAML or JSON. Each statistic states its unit. The whole report is kept with the run,
so that it can be exported unchanged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from glob import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarking.core.axes import POINT_FIELDS
from benchmarking.core.doubts import doubt
from benchmarking.core.errors import FormatError
from benchmarking.core.load_doubts import prefix_cache_hit
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import SERVER, Json, Point, Result, Scalar, canonical_hash
from db.importers.support.building import ForeignRun, Format, exported, exported_axes, is_amd
from db.importers.support.files import ForeignFile, beside, called_like, stored
from db.importers.support.measures import as_exported, in_ms, measured
from db.importers.support.reading import (
    INT32_MAX,
    Fields,
    has_keys,
    json_objects,
    top_fields,
    understood,
    yaml_object,
)
from db.importers.support.serving import (
    NOT_STATED,
    STATISTICS,
    UNLIMITED,
    Sent,
    engine_name,
    latency_columns,
    limit_unless_unread,
    load_mode,
    load_result,
    named_statistics,
    requests_record,
    same_length,
    settings_by_path,
    token_columns,
    with_requests,
)

TIMES = ("request_latency", "time_to_first_token", "time_per_output_token", "inter_token_latency")
FURTHER_TIMES = ("normalized_time_per_output_token",)
COLUMNS = {**latency_columns("request_latency"), **token_columns("time_to_first_token", "time_per_output_token")}
RATES = {
    "requests_per_sec": "throughput_samples_per_sec",
    "output_tokens_per_sec": "throughput_tokens_per_sec",
    "input_tokens_per_sec": "input_tokens_per_sec",
    "total_tokens_per_sec": "total_tokens_per_sec",
}
GOODPUT = {
    "request_goodput": "request_goodput_per_sec",
    "token_goodput": "token_goodput_per_sec",
    "goodput_percentage": "request_goodput_percent",
}
SERVER_MEANS = {
    "queue_len": "queue_length_mean",
    "kv_cache_usage_percentage": "kv_cache_usage_percentage_mean",
    "num_requests_swapped": "requests_swapped_mean",
}
OF_SERVER = "_prometheus_metrics"
"""End of the name of a file with the server's own metrics of a load, as Prometheus collected them."""
SERVER_METRICS = doubt("server_metrics", "info", source="Prometheus: the server's histograms, interpolated")
SHARE_NOTHING = "random"
"""The kind of data whose prompts share nothing; the others use texts, or a shared prefix on purpose."""
NO_SETTING = re.compile(
    r"load\.(?:type|interval|stages|num_workers|(?:sweep|worker|circuit|base)[_.].*)|api\.(?:streaming|(?:headers|slo_).*)|"
    r"data\.(?:input|output)_distribution\.(?:mean|total_count)"
)
"""Paths in config.yaml of what does not distinguish series, and of what is read on its own."""
STANDARD = re.compile(r"api\.type=completion|data\.type=mock")
ARRIVALS = ("constant", "poisson")
SUMMARY = "summary_lifecycle_metrics"
OF_CLIENT = "_lifecycle_metrics.json"
STAGES = "stage_*_lifecycle_metrics.json"
STAGE = re.compile(r"stage_(\d+)_lifecycle_metrics\.json")
ADAPTER = re.compile(r"adapter_(.+?)(_stage_\d+)?_lifecycle_metrics\.json")
OF_A_REQUEST = {"start_time", "end_time", "info", "error"}
REQUESTS = "per_request_lifecycle_metrics.json"
DEFINITIONS = {
    "latency": "request_latency: from the start of a request to its end, of the requests that succeeded",
    "time_to_first_token_ms": "median of time_to_first_token: from the start of a request to its first token",
    "time_per_output_token_ms": "median of time_per_output_token: (last token - first token) / (output tokens - 1) of "
    "each request, the tokens as the client counts them",
    "inter_token_latency": "gap between two tokens of a request, of all requests together",
    "normalized_time_per_output_token": "latency / output tokens of each request",
    "throughput_samples_per_sec": "requests that succeeded over the time of the whole stage",
    "throughput_tokens_per_sec": "output tokens of them over the time of the whole stage",
    "request_goodput_per_sec": "requests within every limit of the configuration over the time of the whole stage",
    "request_goodput_percent": "those requests among the ones that succeeded",
    "schedule_delay": "from the time at which a request was to be sent to the time at which it was",
}

VERSIONS = ("0.2", "0.2.1")
PARTS = ({"run", "results"}, {"scenario", "metrics"})
"""Fields next to `version`, in version 0.2 and in 0.1."""
IN_YAML = re.compile(r"^(version|run|results|scenario|metrics)\s*:", re.MULTILINE)
PART = re.compile(r"inference-perf\.partial\.(stage_\d+)\.yaml")
"""Name of the part that inference-perf writes next to its own report of a stage."""
INFINITY = ".inf"
"""Replaces infinity, which JSON does not have: a concurrency without a limit."""
REPORT_WORDS = {
    "mean": ("mean", "avg", "average"),
    "mode": ("mode",),
    "stddev": ("stddev", "std", "std_dev", "stdev"),
    "min": ("min", "minimum"),
    "p0p1": ("p0p1", "p0.1"),
    **{name: (name,) for name in ("p1", "p5", "p10", "p25")},
    "p50": ("median", "p50"),
    **{name: (name,) for name in ("p75", "p90", "p95", "p99")},
    "p99p9": ("p99p9", "p99.9", "p999"),
    "max": ("max", "maximum"),
}
"""Statistic of a report, in its order -> the words that name it in a metric."""
TO_MS = {"s": MS_PER_S, "ms": 1.0, "s/token": MS_PER_S, "ms/token": 1.0}
REPORT_COLUMNS = {
    **latency_columns("request_latency", {"median": "p50"}),
    **token_columns("time_to_first_token", "time_per_output_token", "p50"),
}
REPORT_RATES = {
    "request_rate": ("throughput_samples_per_sec", "queries/s"),
    "output_token_rate": ("throughput_tokens_per_sec", "tokens/s"),
    "input_token_rate": ("input_tokens_per_sec", "tokens/s"),
    "total_token_rate": ("total_tokens_per_sec", "tokens/s"),
}
PARALLELISM = ("tp", "dp", "ep", "pp")
FURTHER_PARALLELISM = ("dp_local", "workers")
"""Stated in each report of newer versions; 1 is none."""
SINGLE_SENDER = {"parallelism": ("1",), "source": ("unknown",)}
"""One process that sends, and prompts of which nothing is said."""
OF_OUR_ENGINE = ("device", "precision", "weights", "runtime_mode")
"""Settings of the engine by which our own exports are recognized."""
REPORT_DEFINITIONS = {
    "latency": "request_latency: end to end, of a request",
    "time_to_first_token_ms": "median of time_to_first_token",
    "time_per_output_token_ms": "median of time_per_output_token: an output token but the first",
    "inter_token_latency": "between two tokens, as the load generator defines it",
    "normalized_time_per_output_token": "an output token, the first included",
    "throughput_samples_per_sec": "mean of request_rate",
    "throughput_tokens_per_sec": "mean of output_token_rate",
}


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if isinstance(data, list):
        return any(has_keys(one, OF_A_REQUEST) for one in data)
    if not isinstance(data, dict) or not {"load_summary", "successes", "failures"} <= data.keys():
        return False
    return isinstance(data["successes"], dict)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    # A pattern of files alone would also match the stages' reports of sessions.
    stages = [path for path in called_like(file, STAGES) if STAGE.fullmatch(path.name)]
    adapter = ADAPTER.fullmatch(file.called.name)
    _refuse_parts(file, stages, adapter)
    top = top_fields(file)
    load, successes, failures = (top.section(name) for name in ("load_summary", "successes", "failures"))
    outputs = successes.section("output_len")
    # Some versions have the distribution of the lengths beside the totals.
    used = successes.section("prompt_tokens")
    prompts = used if "mean" in used or "prompt_len" not in successes else successes.section("prompt_len")
    # At a concurrency, the stated rate only served to compute a deadline: no request waited for it.
    concurrency, rate = load.count("concurrency"), load.rate("requested_rate")
    succeeded, failed = successes.integer("count"), failures.integer("count")
    sent = _sent(file, stages, succeeded, failed)
    unknown = doubt("intended_start_not_stated", "info", taken_for_it="start_time")
    kept: dict[str, Json] = {"requested_rate": rate} if concurrency and rate is not None else {}
    stated = _stated(load, successes)
    doubts = [unknown] if sent and not concurrency else []
    configuration = _configuration(file)
    data, server, planned = (configuration.section(name) for name in ("data", "server", "load"))
    if data.peek("type") == SHARE_NOTHING:
        # Prompts may have been served from the prefix cache although, by the configuration, they share nothing.
        of_cache, all_tokens = (used.unread_copy().number(name, low=0) for name in ("cached", "total"))
        doubts += prefix_cache_hit(of_cache or 0.0, all_tokens or 0.0)
    # Whether the file has the server's own metrics: the client's have objects of latencies and throughputs.
    is_of_server = file.called.stem.endswith(OF_SERVER) or (
        "latency" not in successes and "request_latency" in successes
    )
    doubts += [SERVER_METRICS] if is_of_server else []
    # The times of the requests that succeeded, in ms.
    done = [request for request in sent if request.error is None and request.end_s is not None]
    times = [request.tokens_s for request in done]
    raw = {
        "latency_wall": [request.end_s - request.sent_s for request in done if request.end_s is not None],
        "time_to_first_token": [request.first_s - request.sent_s for request in done if request.first_s is not None],
        "time_per_output_token": [(each[-1] - each[0]) / (len(each) - 1) for each in times if len(each) > 1],
        "inter_token_latency": [after - before for each in times for before, after in pairwise(each)],
    }
    samples = [measured(metric, in_ms(values)) for metric, values in raw.items()]
    requested = _requested(data)
    result = load_result(
        concurrency=concurrency,
        unlimited=limit_unless_unread(
            NOT_STATED if rate is None else UNLIMITED, (load.peek("concurrency"), concurrency)
        ),
        request_rate=None if concurrency else rate,
        prompt_tokens=same_length(prompts.number("min"), prompts.number("max")),
        prompt_tokens_mean=prompts.number("mean"),
        new_tokens=same_length(outputs.number("min"), outputs.number("max")),
        prompt_tokens_requested=requested[0],
        new_tokens_requested=requested[1],
        requests=succeeded,
        failed=failed,
        achieved_per_s=load.number("achieved_rate", low=0),
        lateness_p95_ms=stated.get("schedule_delay_p95_ms"),
        doubts=doubts,
        metrics={
            "duration_s": top.number("benchmark_time_seconds", low=0),
            "achieved_rate_per_sec": load.number("achieved_rate", low=0),
            "send_duration_s": load.number("send_duration", low=0),
            "output_tokens_mean": outputs.number("mean"),
            **({"input_tokens_mean": prompts.number("mean")} if requested[0] else {}),
            "cached_prompt_tokens": used.number("cached", low=0),
        },
        stated=stated,
        samples=samples,
        kept=kept,
    )
    result = with_requests(result, requests_record(sent))
    time, arrivals, api = _time_of_stage(file), planned.text("type"), configuration.section("api")
    parts = {"api": api, "load": planned, "data": data}
    yield ForeignRun(
        model_id=server.text("model_name") or "unknown",
        task="text-generation",
        results=[result],
        runtime_mode={
            **settings_by_path(parts, NO_SETTING, STANDARD),
            **({"streaming": False} if api.peek("streaming") is False else {}),
            **load_mode(result, arrivals if arrivals in ARRIVALS else None),
            "metrics": "server" if is_of_server else None,
            "adapter": adapter[1] if adapter else None,
        },
        started_at=time.time("start"),
        finished_at=time.time("end"),
        stated_times=(time.text("start"),),
        kept=top.rest(),
    )


def _refuse_parts(file: ForeignFile, stages: Sequence[Path], adapter: re.Match[str] | None) -> None:
    """Raise NoResultsError for a file that sums up others or is imported with another one, and says which."""
    if isinstance(file.json, list):
        if len(stages) == 1:
            where = f": imported with {stages[0].name}"
        elif stages:
            where = (
                " with several stages, which the file does not distinguish: each stage has its own file of statistics"
            )
        else:
            where = ": the folder has no stage_N_lifecycle_metrics.json that describes the load"
        file.without_results(f"requests of a load{where}")
    name = file.called.stem
    if name.endswith(OF_SERVER) and stored(
        file.called.with_name(whole := f"{name.removesuffix(OF_SERVER)}{OF_CLIENT}")
    ):
        file.without_results(f"the server's own metrics of the load in {whole}")
    if file.called.name.startswith(SUMMARY) and stages:
        file.without_results("summary of all stages: each stage has its own file in this folder")
    if adapter and not adapter[2] and called_like(file, f"adapter_{escape(adapter[1])}_stage_*{OF_CLIENT}"):
        file.without_results("summary of an adapter's stages: each stage has its own file in this folder")


def _stated(load: Fields, successes: Fields) -> dict[str, float | None]:
    """The statistics in the file, in ms and per second."""
    latency = successes.section("latency") if "latency" in successes else successes  # the server's own metrics
    throughput = successes.section("throughput")
    goodput = successes.section("goodput_metrics")
    stated: dict[str, float | None] = {**throughput.metrics(RATES), **goodput.metrics(GOODPUT, low=0)}
    if "rate" in successes:
        stated |= {
            "throughput_samples_per_sec": successes.number("rate", low=0),
            "throughput_tokens_per_sec": successes.section("output_len").number("rate", low=0),
            "input_tokens_per_sec": successes.section("prompt_len").number("rate", low=0),
            **{metric: successes.section(name).number("mean", low=0) for name, metric in SERVER_MEANS.items()},
        }
    times = {name: latency.section(name) for name in (*TIMES, *FURTHER_TIMES)}
    # The name of the schedule's delay was another one in the first versions.
    times["schedule_delay"] = load.section("schedule_delay" if "schedule_delay" in load else "schedule_accuracy")
    for name, values in times.items():
        statistics = {one: values.number(one) for one in STATISTICS if one in values}
        if "median" not in values:  # the first versions call it p50
            statistics["median"] = values.number("p50")
        stated |= named_statistics(name, statistics, COLUMNS, MS_PER_S)
    return stated


def _sent(file: ForeignFile, stages: Sequence[Path], succeeded: int | None, failed: int | None) -> list[Sent]:
    """The requests listed in the folder; empty if the list covers other stages too, or another number of requests."""
    path = file.called.with_name(REQUESTS)
    if [stage.name for stage in stages] != [file.called.name] or (listed := beside(file, path)) is None:
        return []
    data = listed.json
    if not isinstance(data, list):
        file.leave_out(path.name, "not a list of requests, or truncated")
        return []
    listed = replace(listed, left_out=file.left_out)
    found = list(understood(file, json_objects(listed, data, f"{path.name}: request"), _request))
    errors = sum(request.error is not None for request in found)
    return found if (len(found) - errors, errors) == (succeeded, failed or 0) else []


def _request(request: Fields) -> Sent:
    """A request, without the intended start, which the file does not have."""
    start, end = (request.required(request.number, name) for name in ("start_time", "end_time"))
    info, error = request.section("info"), request.section("error")
    response = info.section("response_metrics")
    tokens = response.numbers("output_token_times") or ()
    words = (error.text("error_type") or "failed") if "error" in request else None
    return Sent(
        intended_s=start,
        sent_s=start,
        first_s=tokens[0] if tokens else None,
        tokens_s=tuple(tokens),
        end_s=end,
        tokens_in=None if words else info.integer("input_tokens"),
        tokens_out=None if words else response.integer("output_tokens"),
        error=words and (f"http_{words.rpartition(' ')[2]}" if words.startswith("HTTP Error ") else "failed"),
        detail=words and (error.text("error_msg") or words),
    )


def _time_of_stage(file: ForeignFile) -> Fields:
    """Start and end of the stage, from its part of a Benchmark Report; empty without one."""
    found = STAGE.fullmatch(file.called.name)
    part = beside(file, file.called.with_name(f"inference-perf.partial.stage_{found[1]}.yaml")) if found else None
    if part is not None:
        report = replace(part, left_out=file.left_out)
        try:
            return Fields(report, yaml_object(report)).section("run").section("time")
        except FormatError as error:
            file.leave_out_row(error)
    return Fields(file, {})


def _configuration(file: ForeignFile) -> Fields:
    """The configuration in the same folder; empty without one."""
    for path in (file.called.with_name(one) for one in ("config.yaml", "config.yml")):
        configuration = beside(file, path)
        if configuration is None:
            continue
        try:
            return Fields(file, yaml_object(configuration), path.name)
        except FormatError as error:
            file.leave_out(path.name, str(error).removeprefix(str(configuration.path)).lstrip(": "))
    return Fields(file, {})


def _requested(data: Fields) -> list[float | None]:
    """The mean lengths of prompts and answers that the configuration of the data asks for; None for none."""
    parts = data.section("shared_prefix")
    found: list[float | None] = []
    for kind, names in (("input", ("system_prompt_len", "question_len")), ("output", ("output_len",))):
        sizes = [data.section(f"{kind}_distribution").peek("mean")]
        lengths = [one for name in names if isinstance(one := parts.peek(name), int | float)]
        sizes += [sum(lengths)] if len(lengths) == len(names) else []
        found.append(next((one for one in sizes if isinstance(one, int | float) and 0 < one <= INT32_MAX), None))
    return found


def is_report(file: ForeignFile) -> bool:
    data = file.json
    if isinstance(data, dict):
        names = {str(name) for name in data}
    elif file.head.lstrip().startswith(("{", "[")):
        return False
    else:
        # Searches the whole text: llm-d sorts the fields, so the version is the last one.
        names = set(IN_YAML.findall(file.text or ""))
    return "version" in names and any(part <= names for part in PARTS)


def read_report(file: ForeignFile) -> Iterator[ForeignRun]:
    part = PART.fullmatch(file.called.name)
    if part:
        file.give_way_to(file.called.with_name(f"{part[1]}_lifecycle_metrics.json"), recognises)
    if isinstance(file.json, dict):
        data: dict[str, Any] = file.parsed(lambda word: INFINITY if word == "Infinity" else None)
    else:
        data = yaml_object(file, infinity=INFINITY)
    version = str(data.get("version"))
    if version not in VERSIONS:
        file.refuse(f"Benchmark Report version {version[:40]!r}, expected {' or '.join(VERSIONS)}")
    top = Fields(file, data)
    run, scenario = top.section("run"), top.section("scenario")
    load, stack = scenario.section("load"), scenario.objects("stack") or ()
    settings, time = load.section("standardized"), run.section("time")
    engines = [
        engine for entry in stack if (engine := entry.section("standardized")).text("kind") == "inference_engine"
    ]
    tool, tool_version = settings.text("tool"), settings.text("tool_version")
    # An export of ours has the run's own settings, and what it found about the result.
    natives = [entry.section("native").section("config") for entry in stack]
    is_own = len(natives) == 1 and all(name in natives[0] for name in OF_OUR_ENGINE)
    of_load = load.section("native").section("config") if is_own else Fields(file, {})
    result = _of_report(top, settings, of_load.count("iterations"))
    # The accelerators of all engines, by model name.
    accelerators = [entry.section("accelerator") for entry in engines]
    accelerator = _joined(entry.text("model") for entry in accelerators)
    count = sum(entry.integer("count") or 0 for entry in accelerators)
    kind = "cuda" if "nvidia" in accelerator.lower() else "rocm" if accelerator and is_amd(accelerator) else "unknown"
    # The settings that distinguish series on one machine: parallelism, the configuration of each part of the stack, and
    # that of the workload.
    mode: dict[str, Scalar] = {}
    for engine in engines:
        parallelism = engine.section("accelerator").section("parallelism")
        role = engine.text("role") or "replica"
        mode |= {f"{role}_{name}": value for name in PARALLELISM if (value := parallelism.integer(name)) is not None}
        further = {name: parallelism.integer(name) or 1 for name in FURTHER_PARALLELISM}
        mode |= {f"{role}_{name}": value for name, value in further.items() if value > 1}
    tools = _joined(entry.text("tool") for entry in engines)
    setup: dict[str, Any] = {"device_type": kind, "device_name": accelerator or None, "runtime": engine_name(tools)}
    setup["task"] = "text-generation"
    if setup["runtime"] == SERVER and tools.lower() not in ("", SERVER):
        mode["engine"] = tools  # one that is not known: two of them are no series
    if not is_own:
        mode |= _of_stack(stack)
        of_sender = settings.other_settings(set(settings) - SINGLE_SENDER.keys(), SINGLE_SENDER)
        mode |= {f"load_{name}": value for name, value in of_sender.items()} | load_mode(result)
    else:
        own = exported(natives[0])
        setup |= own | {"runtime": tools or setup["runtime"], "is_simulated": of_load.flag("simulated") is True}
        if accelerator == setup["device_type"]:
            setup["device_name"] = None  # not known
        mode = own.get("runtime_mode", {})
        result = as_exported(result, of_load.items("doubts"), of_load.text("validity"))
    sizes, workload = of_load.section("point"), load.section("metadata").text("cfg_id")
    if "batch_size" in sizes:
        # The point of a result of ours, of which a report has the product of batch size and concurrency alone.
        stated: Any = {name: size for name in POINT_FIELDS if (size := sizes.count(name)) is not None}
        result = replace(result, point=Point(**{"batch_size": 1, **stated}, axes=exported_axes(sizes.any("axes"))))
    elif workload is not None:
        mode["workload"] = workload
    yield ForeignRun(
        model_id=_joined(entry.section("model").text("name") for entry in engines) or "unknown",
        results=[result],
        started_at=time.time("start"),
        finished_at=time.time("end"),
        stated_times=(time.text("start"),),
        tool_version=" ".join(word for word in (tool, tool_version) if word) or None,
        device_count=count or 1,
        **{**setup, "runtime_mode": mode},
        versions={entry.text("tool") or "engine": entry.text("tool_version") for entry in engines},
        kept={"report": Fields(file, data).rest()},
    )


def _of_stack(stack: Sequence[Fields]) -> dict[str, Scalar]:
    """The configurations of the parts of a stack, by the role of an engine or the name of another part, and their
    number of replicas if there are several: by the report's digest (cfg_id), or one of the arguments and settings."""
    found: dict[str, set[str]] = {}
    replicas: Counter[str] = Counter()
    for part in stack:
        kind, native = part.section("standardized"), part.section("native")
        is_engine = kind.text("kind") == "inference_engine"
        name = (kind.text("role") or "replica") if is_engine else kind.text("tool") or "part"
        given = {word: stated for word in ("args", "config") if (stated := native.section(word).other_settings())}
        digest = part.section("metadata").text("cfg_id") or (canonical_hash(given) if given else None)
        found.setdefault(name, set()).update(filter(None, (digest,)))
        replicas[name] += kind.integer("replicas") or 1
    mode: dict[str, Scalar] = {f"{name}_config": ", ".join(sorted(own)) for name, own in found.items() if own}
    return {**mode, **{f"{name}_replicas": count for name, count in replicas.items() if count > 1}}


def _joined(words: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(word for word in words if word))


def _of_report(top: Fields, settings: Fields, calls: int | None) -> Result:
    """The result of the load; `calls` is the number of latencies, in which several requests may be one batch."""
    performance = top.section("results").section("request_performance").section("aggregate")
    requests, latency = performance.section("requests"), performance.section("latency")
    throughput = performance.section("throughput")
    stated: dict[str, float | None] = {}
    for name in (*TIMES, *FURTHER_TIMES):
        times = latency.section(name)
        values = {one: times.number(one) for one in REPORT_WORDS}
        if any(value is not None for value in values.values()):
            if (time_unit := times.text("units")) not in TO_MS:
                times.refuse("units", f"expected {', '.join(TO_MS)}, found {time_unit!r:.40}")
            stated |= named_statistics(name, values, REPORT_COLUMNS, TO_MS[time_unit])
    for name, (metric, unit) in REPORT_RATES.items():
        rate = throughput.section(name)
        if "mean" in rate and rate.text("units") != unit:
            rate.refuse("units", f"expected {unit}, found {rate.peek('units')!r:.40}")
        stated[metric] = rate.number("mean")
    total, failures = requests.integer("total"), requests.integer("failures")
    incomplete = requests.integer("incomplete") if "incomplete" in requests else 0  # most tools do not tell them apart
    failed = None if failures is None or incomplete is None else failures + incomplete
    inputs, outputs = requests.section("input_length"), requests.section("output_length")
    planned = settings.section("output_seq_len").unread_copy()
    is_planned = planned.text("distribution") != "other"  # in which our reports have the lengths that were found
    prompt_tokens, prompt_tokens_mean = _report_length(inputs, settings.section("input_seq_len"))
    new_tokens, new_tokens_mean = _report_length(outputs, settings.section("output_seq_len"))
    is_unlimited, rate_qps = settings.peek("concurrency") == INFINITY, settings.rate("rate_qps")
    return load_result(
        concurrency=None if is_unlimited else settings.count("concurrency"),
        unlimited=limit_unless_unread(UNLIMITED if is_unlimited else NOT_STATED, (settings.peek("rate_qps"), rate_qps)),
        request_rate=rate_qps,
        prompt_tokens=prompt_tokens,
        prompt_tokens_mean=prompt_tokens_mean,
        new_tokens=new_tokens,
        new_tokens_requested=planned.number("value", low=0) if is_planned else None,
        requests=calls if calls or total is None or failed is None else max(0, total - failed),
        failed=failed,
        sent=total,
        counts_from_schedule=settings.peek("tool") == "benchhouse",
        metrics={"output_tokens_mean": new_tokens_mean},
        stated=stated,
    )


def _report_length(found: Fields, planned: Fields) -> tuple[int | None, float | None]:
    """The length of all requests, None if they differ, and their mean: as found or, if it is not stated, as planned."""
    mean = found.number("mean")
    if mean is None:
        value = planned.number("value", low=0) or None
        return same_length(value, value) if planned.text("distribution") == "fixed" else None, value
    return same_length(found.number("min"), found.number("max")), mean


INFERENCE_PERF = Format(
    name="inference_perf",
    summary="inference-perf: stage_N_lifecycle_metrics.json, summary_lifecycle_metrics.json, and the server's own "
    "*_prometheus_metrics.json",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
BENCHMARK_REPORT = Format(
    name="benchmark_report",
    summary="llm-d's Benchmark Report 0.2 of one load (yaml and json)",
    definitions=REPORT_DEFINITIONS,
    recognises=is_report,
    read=read_report,
)

PLUGINS = (INFERENCE_PERF, BENCHMARK_REPORT)
