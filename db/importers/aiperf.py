"""NVIDIA's load generators: AIPerf, and GenAI-Perf before it.

Their JSON has metrics, metric -> {"unit": ..., "avg": ..., "p50": ..., ...}, and the input settings they were measured
with; the first versions of AIPerf have the metrics under "records". The CSV has the same metrics without the settings;
GenAI-Perf's are rounded to two digits, and the name of its folder describes the load. GenAI-Perf's files have no date,
version or device.

If the list of requests of AIPerf (profile_export.jsonl) is in the folder of the JSON, its times are the samples.

The file of a sweep of AIPerf (profile_export_aiperf_sweep.json) has the means of each combination of parameters,
without model and settings; it is read if the files of its runs are not in the same folder.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.records import Doubt, Result, Samples, Scalar
from benchmarking.core.text import grouped
from db.importers.support.building import UNNAMED, ForeignRun, Format, is_amd
from db.importers.support.files import ForeignFile, beside, called_like
from db.importers.support.measures import MS_PER_WORD, measured
from db.importers.support.reading import (
    INT32_MAX,
    Fields,
    csv_header,
    csv_lines,
    find_header,
    has_keys,
    json_objects,
    parsed_number,
    shortened,
    top_fields,
    understood,
)
from db.importers.support.serving import (
    NOT_STATED,
    UNLIMITED,
    Columns,
    latency_columns,
    limit_unless_unread,
    load_mode,
    load_result,
    rising,
    same_length,
    server_host,
    settings_by_path,
)

EXPORTED = ("avg", "p50", "p90", "p95", "p99", "min", "max", "std")
"""Statistics that become metrics; the others (p1, p5, p10, sum, ...) are kept."""
SCALES = {**{unit: ("ms", factor) for unit, factor in MS_PER_WORD.items()}, "GB": ("mb", 1e3), "MJ": ("j", 1e6)}
"""Unit in the file -> unit in a metric's name, and the factor to it."""
OF_SCALES = {word for word, _ in SCALES.values()}
SIGNS = {"%": "percent", "°C": "celsius"}
EXPORT_COLUMNS: Columns = {
    **latency_columns("request_latency", {"mean": "avg", "median": "p50"}),
    ("request_throughput", "avg"): "throughput_samples_per_sec",
    ("output_token_throughput", "avg"): "throughput_tokens_per_sec",
    ("time_to_first_token", "p50"): "time_to_first_token_ms",
}
NAMES = ("request_latency", "request_throughput")
RAW = {
    "request_latency": "latency_wall",
    "time_to_first_token": "time_to_first_token",
    "inter_token_latency": "time_per_output_token",
}
"""Metric of a request -> metric of its samples."""
OF_A_REQUEST = {"metadata", "metrics"}
EXPORT_DEFINITIONS = {
    "latency": "request_latency: from sending a request to its last response",
    "throughput_samples_per_sec": "request_throughput: requests over the time of the whole load",
    "throughput_tokens_per_sec": "output_token_throughput: output tokens over the time of the whole load",
    "std": "standard deviations are of the population",
}
CSV_METRIC = re.compile(r"([A-Z].*?)(?: \(([^()+]+)\))?")
"""Title of a row, and its unit: "OSL Mismatch Diff % (%)", "HTTP Waiting (TTFB) (ms)", "Completed Requests (Success +
Error)"."""

AIPERF_INPUT = {"loadgen", "phases"}
"""Fields of the input settings; every version has one of them."""
RUN_FILE = "profile_export_aiperf.json"
SWEPT_LENGTH = re.compile(r"(?:^|[._])(isl|osl)(?:[._]mean)?$")
"""The path of a parameter of a sweep that is a length."""
ARRIVALS = ("poisson", "gamma", "constant")
NO_SETTING = (
    *("name", "kind", "type", "exclude_from_results", "requests", "duration", "sessions", "concurrency", "rate"),
    *("grace_period", "sla", "seamless", "failed_request_threshold", "request_rate", "request_count"),
    *("benchmark_duration", "benchmark_grace_period", "warmup_request_count", "warmup_duration"),
)
"""Settings of a load that do not distinguish series, or are axes."""
PATTERN = ("type", "arrival_pattern", "request_rate_mode")
"""What AIPerf's versions call the arrivals, the newest first."""
BY_DEFAULT_IN = re.compile(r'"delay": 0(?:\.0)?, |, "strategy": "linear"')
"""The same in the text of an object: of a cancellation, and of a ramp."""
REPLAYED = {"trajectory_start_min_ratio": ("0.25",), "trajectory_start_max_ratio": ("0.75",)}
STANDARD = {
    **dict.fromkeys(PATTERN, (*ARRIVALS, "concurrency_burst")),  # which are the arrivals, or a limit alone
    **dict.fromkeys(("smoothness", "arrival_smoothness"), ("1.0", "1")),
    **REPLAYED,
    "auto_offset": ("True",),
    "request_cancellation_rate": ("0.0", "0"),
    "request_cancellation_delay": ("0.0", "0"),
}
"""Values that files may state and that are defaults, or elsewhere in the run."""
NOT_SENT = re.compile(
    r"(?:(?:data\d*|input)\.)?(?:name|entries|entries_explicit|records|num_dataset_entries|num_prompts)|"
    r"(?:input\.)?(?:goodput|headers?)(?:\..*)?|type|endpoint_type|streaming|api_key|u|async|grpc_method|wait_for_model_.*|"
    r"(?:input\.)?conversation\.num|"
    r".*\b(?:isl|osl|input_tokens|output_tokens|synthetic_tokens)(?:\.mean)?|(?:synthetic_input|output)_tokens_mean|"
    r"model|models|model_names|formatted_model_name|tokenizer|subcommand|config|generate_plots|concurrency|request_rate|"
    r"measurement_interval|stability_percentage|(?:warmup_)?request_count|num_(?:warmup_)?requests"
)
"""Paths of settings that change no request, and of those that are read on their own."""
SENT_BY_DEFAULT = re.compile(
    r"(?:.*\.)?(?:batch_size(?:_text|_image)?=1|(?:turns?\.|session_turns_)mean=1(?:\.0)?|"
    r"(?:turn_)?delay[._]ratio=1\.0|prefix_prompt[._]length=100|image_(?:width|height)_mean=100|"
    r"image_?s?[._]format=png|audio\.format=wav|(?:depths|sample_rates)=\[16(?:\.0)?\]|num_channels=1|block_size=512|"
    r"sampling=sequential|cache_bust\.target=none|random_corpus_style=vllm|format=single_turn|open_loop_replay=True|"
    r"force_min_tokens=True|audio\.channels=1|images\.source=noise|images\.source_sampling=random-with-replacement|"
    r"rankings\.(?:passages\.value=10|passage_tokens\.value=128|query_tokens\.value=32)(?:\.0)?|"
    r"prompt_source=synthetic|model_selection_strategy=round_robin|connection_reuse(?:_strategy)?=pooled)|"
    r"backend=tensorrtllm|data\.type=synthetic"
)
"""Defaults, which GenAI-Perf's files and those of AIPerf's several runs all state, as PATH=VALUE."""
OURS = {("inter_token_latency", "p50"): "time_per_output_token_ms"}
AIPERF_MEANINGS = {
    **EXPORT_DEFINITIONS,
    "time_to_first_token_ms": "median of time_to_first_token: from the start of a request to its first response with "
    "content",
    "time_per_output_token_ms": "median of inter_token_latency: (latency - time to first token) / (output tokens - "
    "those of the first response, 1 in older versions)",
    "inter_token_latency": "as time_per_output_token_ms",
    "inter_chunk_latency": "gap between two responses of the stream, each of which may be of several tokens",
}

GENAI_INPUT = {"perf_analyzer", "service_kind", "concurrency", "request_rate", "stimulus"}
"""Fields of the input settings; every version has one of them."""
GENAI_MEANINGS = {
    **EXPORT_DEFINITIONS,
    "time_to_first_token_ms": "median of time_to_first_token: from sending a request to its first response",
    "inter_token_latency": "of each request (latency - time to first token) / (output tokens - 1), in older versions "
    "the gap between two responses / tokens of the later one: the file does not say which",
}
CSV_HEADER = ["Metric", "avg", "min", "max", "p99"]
FOLDER = re.compile(r".*(concurrency|request_rate)(\d+(?:\.\d+)?)")


def is_aiperf(file: ForeignFile) -> bool:
    data = file.json
    if data is None:
        return bool(csv_header(file, _is_aiperf_header)) or _has_requests(file)
    if _of_several_runs(data) is not None:
        return True
    return _is_export(data) and ("aiperf_version" in data or bool(AIPERF_INPUT & data["input_config"].keys()))


def _has_requests(file: ForeignFile) -> bool:
    """Whether the file has a request of AIPerf on each line."""
    first = next(iter(file.json_lines), None)
    return has_keys(first, OF_A_REQUEST) and has_keys(first["metadata"], {"request_start_ns"})


def _of_several_runs(data: Any) -> str | None:
    """The way in which AIPerf aggregated several runs into the file ("sweep", ...); None for any other file."""
    if not isinstance(data, dict):
        return None
    holders = (data, data.get("metadata"))
    words = [
        holder["aggregation_type"] for holder in holders if isinstance(holder, dict) and "aggregation_type" in holder
    ]
    return str(words[0]) if words and ("num_profile_runs" in data or "aiperf_version" in data) else None


def _is_aiperf_header(cells: list[str]) -> bool:
    """Whether the cells are the header of the CSV; GenAI-Perf's has a percentile and no standard deviation."""
    statistics = set(cells[1:])
    return cells[0] == "Metric" and {"avg", "min", "max"} <= statistics and ("std" in statistics or len(cells) == 4)


def read_aiperf(file: ForeignFile) -> Iterator[ForeignRun]:
    if (aggregated := _of_several_runs(file.json)) is not None:
        yield from _of_sweep(file, aggregated)
        return
    if _has_requests(file):
        file.without_results(f"requests of a load: their times are imported with {RUN_FILE} in their folder")
    if file.json is None:  # the CSV, which has no settings
        file.give_way_to(file.called.with_suffix(".json"), is_aiperf)
        settings = {"input_config": {"endpoint": {"model_names": [UNNAMED]}}}
        top = Fields(file, {**_exported_table(file, _is_aiperf_header), **settings})
    else:
        top = top_fields(file)
    # The first versions have the metrics under "records", newer ones beside the settings.
    if file.json is not None and isinstance(records := top.peek("records"), dict):
        top = Fields(file, {**records, **{name: top.peek(name) for name in top if name != "records"}})
    config = top.required(top.fields, "input_config")
    endpoint, info = config.section("endpoint"), top.section("run_info")
    # The names of the models: a list of objects with names in newer versions, a list of names in older ones.
    if (models := config.fields("models")) is not None:
        model_id = ", ".join(entry.required(entry.text, "name") for entry in models.required(models.objects, "items"))
    else:
        model_id = _model_names(endpoint, "model_names", endpoint.required(endpoint.any, "model_names"))
    # The settings of the load: those of the profiling phase in newer versions.
    measuring = [
        phase
        for phase in config.objects("phases") or ()
        if (phase.text("kind") or phase.text("name")) != "warmup" and not phase.flag("exclude_from_results")
    ]
    load = measuring[-1] if measuring else config.section("loadgen")
    # A doubt if the load did not run to its end.
    cancelled, complete, reason = top.flag("was_cancelled"), top.flag("is_complete"), top.text("incomplete_reason")
    is_cut_short = cancelled or complete is False
    doubts = [doubt("load_cut_short", "invalid", cancelled=cancelled, reason=reason)] if is_cut_short else []
    of_load = _of_phase(load, NO_SETTING, STANDARD)
    if len(measuring) > 1:  # whose requests are one result
        of_load = {
            "phases": json.dumps([_of_phase(one.unread_copy(), ("name", "kind"), REPLAYED) for one in measuring])
        }
        load = Fields(file, {name: load.peek(name) for name in load if name == "type"}, load.path)
    samples = _request_times(file, top)
    result = _export_result(top, OURS, load, [*doubts, *rising(of_load)], _requested(config), samples)
    arrivals = next((stated for name in PATTERN if (stated := load.text(name))), None)
    yield ForeignRun(
        stated_times=(top.text("start_time"),),
        started_at=top.time("start_time"),
        finished_at=top.time("end_time"),
        host=server_host(endpoint.any("urls") or endpoint.any("url")),
        tool_version=top.text("aiperf_version"),
        runtime_mode={
            "endpoint": endpoint.text("type") or None,
            **_of_requests(top, config, endpoint),
            **of_load,
            **load_mode(result, arrivals if arrivals in ARRIVALS else None),
        },
        command=(info.text("cli_command"),),
        **_gpus(top),
        model_id=model_id,
        task=_task(top),
        results=[result],
        kept=top.rest(),
    )


def _of_phase(load: Fields, less: Collection[str], plain: Mapping[str, Collection[str]]) -> dict[str, Scalar]:
    """The settings of a phase as in `other_settings`. What steers an adaptive load says nothing of another one, whose
    defaults the reports of several runs and of sweeps state."""
    steering = () if load.peek("adaptive_scale") else [name for name in load if name.startswith("adaptive_")]
    found = load.other_settings((*less, *steering), plain)
    return {name: BY_DEFAULT_IN.sub("", value) if isinstance(value, str) else value for name, value in found.items()}


def _request_times(file: ForeignFile, top: Fields) -> list[Samples]:
    """The times of the requests that succeeded, from the list beside a report; none if their means are not those of the
    report, as in the list of another run or of a part of the requests."""
    name = file.called.name.removesuffix(".json").removesuffix("_aiperf")  # of --profile-export-prefix
    listed = None if file.json is None else beside(file, file.called.with_name(f"{name}.jsonl"))
    if listed is None:
        return []
    times = {metric: array("d") for metric in RAW}
    for request in json_objects(file, listed.json_lines, f"{name}.jsonl: line"):
        about, metrics = request.section("metadata"), request.section("metrics")
        kind = about.text("phase_kind") or about.text("benchmark_phase")
        if request.peek("error") is None and not about.flag("was_cancelled") and kind != "warmup":
            for metric, found in times.items():
                if (time := _ms(metrics.section(metric), "value")) is not None:
                    found.append(time)
    means = {metric: _ms(_metric(top, metric), "avg") for metric in RAW}
    return [
        measured(RAW[metric], found)
        for metric, found in times.items()
        if found and (mean := means[metric]) is not None and math.isclose(fmean(found), mean, rel_tol=1e-6)
    ]


def _ms(metric: Fields, name: str) -> float | None:
    """A value of a metric in the unit that it states, in ms."""
    return metric.scaled(name, SCALES.get(metric.text("unit") or "", ("ms", 1.0))[1], low=0)


def _gpus(top: Fields) -> dict[str, Any]:
    """Fields of the run about the GPUs that worked during the load, by the tool's telemetry; empty without it."""
    endpoints = top.unread_copy().section("telemetry_data").section("endpoints")
    working: dict[str, str] = {}
    for gpus in (endpoints.section(name).section("gpus") for name in endpoints):
        for gpu in (gpus.section(name) for name in gpus):
            metrics, name = gpu.section("metrics"), gpu.text("gpu_name")
            peaks = [metrics.section(metric).number("max") for metric in metrics if "gpu_utilization" in metric]
            if name and 0 not in peaks:
                working[gpu.text("gpu_uuid") or f"{gpu.path}"] = name
    names = ", ".join(dict.fromkeys(working.values()))
    if not names:
        return {}
    return {"device_type": "rocm" if is_amd(names) else "cuda", "device_name": names, "device_count": len(working)}


def _of_sweep(file: ForeignFile, aggregated: str) -> Iterator[ForeignRun]:
    """The combinations of a sweep: a run for those that differ in the load and the lengths alone. Raises NoResultsError
    if each run has its own file, or for another aggregate."""
    if aggregated != "sweep":
        file.without_results(f"aggregate ({aggregated[:40]}) of several runs, each of which has its own {RUN_FILE}")
    folder = file.path.absolute().parent
    folder = folder.parent if folder.name == "sweep_aggregate" else folder
    if called_like(file, *(f"{place}{RUN_FILE}" for place in ("", "*/", "*/*/")), folder=folder):
        file.without_results(f"aggregate of a sweep: each run has its own file, {RUN_FILE}")

    def of_combination(combination: Fields) -> tuple[dict[str, Scalar], Result]:
        # The names of its parameters may be paths: phases.profiling.concurrency, datasets.main.prompts.isl.mean.
        parameters = combination.section("parameters")
        lengths = {found[1]: name for name in parameters if (found := SWEPT_LENGTH.search(name))}
        requested = [parameters.number(lengths[short]) if short in lengths else None for short in ("isl", "osl")]
        last = {name: name.rpartition(".")[2] for name in parameters if name not in lengths.values()}
        others = {name: parameters.any(name) for name in last if last[name] not in NO_SETTING}
        values = {last[name]: parameters.any(name) for name in last if name not in others}
        metrics = combination.required(combination.fields, "metrics")
        result = _export_result(metrics, OURS, Fields(file, values, parameters.path), requested=requested)
        return Fields(file, others, parameters.path).other_settings(), result

    top = top_fields(file)
    combinations = understood(file, top.required(top.objects, "per_combination_metrics"), of_combination)
    runs = grouped((json.dumps(settings, sort_keys=True), (settings, result)) for settings, result in combinations)
    kept = top.rest()
    for key, ((settings, first), *others) in runs.items():
        yield ForeignRun(
            key=key if settings else "",
            model_id=UNNAMED,
            task="text-generation",
            results=[first, *(result for _, result in others)],
            runtime_mode={**settings, **load_mode(first)},
            kept=kept,
        )


def is_genai_perf(file: ForeignFile) -> bool:
    data = file.json
    if data is None:
        return bool(csv_header(file, _is_genai_header))
    return _is_export(data) and "aiperf_version" not in data and bool(GENAI_INPUT & data["input_config"].keys())


def _is_genai_header(cells: list[str]) -> bool:
    return cells[: len(CSV_HEADER)] == CSV_HEADER and "std" not in cells  # which AIPerf has


def read_genai_perf(file: ForeignFile) -> Iterator[ForeignRun]:
    if file.json is None:  # the CSV, in the form of the JSON
        file.give_way_to(file.called.with_suffix(".json"), is_genai_perf)
        load = FOLDER.fullmatch(file.path.absolute().parent.name)
        settings = {"model": "unknown", **({load[1]: parsed_number(load[2])} if load else {})}
        top = Fields(file, {**_exported_table(file, _is_genai_header), "input_config": settings})
    else:
        top = top_fields(file)
    config = top.required(top.fields, "input_config")
    endpoint = config.section("endpoint") if isinstance(config.peek("endpoint"), dict) else config
    analyzer = config.fields("perf_analyzer") or config
    stimulus = analyzer.fields("stimulus") or config
    result = _export_result(top, {}, stimulus, requested=_requested(config))
    named = "model_names" if "model_names" in config else "model"
    models = config.required(config.any, named)
    yield ForeignRun(
        model_id=_model_names(config, named, models if isinstance(models, list) else [models]),
        task=_task(top),
        runtime_mode={
            "endpoint": endpoint.text("type" if "type" in endpoint else "endpoint_type") or None,
            **_of_requests(top, config, endpoint),
            **load_mode(result),
        },
        results=[result],
        kept=top.rest(),
    )


def _is_export(data: Any) -> bool:
    """Whether the JSON has request metrics as objects with units, and the input settings they were measured with."""
    if not isinstance(data, dict) or not isinstance(data.get("input_config"), dict):
        return False
    metrics = data["records"] if isinstance(data.get("records"), dict) else data
    return any(isinstance(metrics.get(name), dict) and "unit" in metrics[name] for name in NAMES)


def _exported_table(file: ForeignFile, is_header: Callable[[list[str]], bool]) -> dict[str, Any]:
    """The metrics of such a file's CSV in the form of the JSON. It has a table of distributions, one of single values,
    and one for the GPUs, whose other columns say which GPU a row is of."""
    found: dict[str, Any] = {}
    header: list[str] = []
    for number, cells in csv_lines(file, start=find_header(file, is_header)[0]):
        if found and is_header(cells) and not any(name[:1].isupper() for name in cells[1:]):
            file.leave_out(f"line {number}", "another export begins, which is left out: import it by itself")
            break
        if cells[0] in ("Metric", "GPU", "Endpoint"):
            header = ["avg" if name == "Value" else name for name in cells]
            continue
        row = dict(zip(header, cells, strict=False))
        title = CSV_METRIC.fullmatch(row.get("Metric", ""))
        if title is None or len(cells) != len(header):
            expected = f"expected a metric and {len(header) - 1} values, found {file.beginning(','.join(cells))!r}"
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
                key = named.get("gpu_uuid", key)  # several machines behind one endpoint have GPUs of the same index
            gpu = gpus.setdefault(key, {**named, "metrics": {}})
            gpu["metrics"][metric] = {"unit": unit, **numbers}
        else:
            found[metric] = {"unit": unit, **numbers}
    return found


def _of_requests(top: Fields, config: Fields, endpoint: Fields) -> dict[str, Scalar]:
    """What the settings say of a request but the lengths: by their path those of the endpoint, of the input and of the
    data; and that answers came in one piece."""
    own = config.unread_copy()
    parts = {"": endpoint, "input": own.section("input")}
    parts |= {f"data{number or ''}": one for number, one in enumerate(own.objects("datasets") or ())}
    is_streamed = endpoint.peek("streaming")
    if is_streamed is None:
        is_streamed = "time_to_first_token" in top or "output_sequence_length" not in top
    mode = settings_by_path(parts, NOT_SENT, SENT_BY_DEFAULT)
    return mode if is_streamed else {**mode, "streaming": False}


def _requested(config: Fields) -> list[float | None]:
    """The mean lengths of prompts and answers that the settings of an export ask for: of the data in newer versions of
    AIPerf, of the input in older ones and in GenAI-Perf; None if they ask for none. Prompts of a file have their
    own."""
    own = config.unread_copy()
    prompts, asked = [data.section("prompts") for data in own.objects("datasets") or ()], own.section("input")
    found: list[float | None] = []
    for short, word, synthetic in (("isl", "input_tokens", "synthetic_tokens"), ("osl", "output_tokens", "")):
        places = [*(one.section(short) for one in prompts), asked.section("prompt").section(word)]
        means = [place.peek("mean") for place in (*places, asked.section(synthetic or word))]
        means += [own.peek(f"{word}_mean"), own.peek(f"synthetic_{word}_mean")]
        if synthetic and (asked.peek("file") or own.peek("input_file")):
            means = []
        found.append(next((one for one in means if isinstance(one, int | float) and 0 < one <= INT32_MAX), None))
    return found


def _export_result(
    top: Fields,
    columns: Columns,
    load: Fields,
    doubts: Sequence[Doubt] = (),
    requested: Sequence[float | None] = (None, None),
    samples: Sequence[Samples] = (),
) -> Result:
    """The result of the one load in such a file, with these settings. `columns` are the tool's columns in addition to
    `EXPORT_COLUMNS`; `requested` are the lengths of prompts and answers that the settings ask for."""
    # The arrivals of a load without a limit: a rate, or those of a trace.
    is_open = any(load.peek(name) not in (None, "concurrency") for name in ("type", "rate", "request_rate"))
    concurrency = load.count("concurrency")
    name_of_rate = "rate" if "rate" in load else "request_rate"
    request_rate = load.rate(name_of_rate)
    sizes = (load.peek(name_of_rate), request_rate), (load.peek("concurrency"), concurrency)
    columns = {**EXPORT_COLUMNS, **columns}
    metrics: dict[str, float] = {}
    for name in filter(lambda name: _is_metric(top.peek(name)), top):
        metric = top.required(top.fields, name)
        unit = metric.text("unit") or ""
        # "tokens/sec/user" is tokens_per_sec_per_user; a unit in the metric's name is not repeated.
        word = SIGNS.get(unit, re.sub(r"[^a-z0-9]+", "_", unit.lower().replace("/", "_per_")).strip("_"))
        word = "" if "/" not in unit and unit.rstrip("s") in name else word
        word, factor = SCALES.get(unit, (word, 1.0))
        wanted = dict.fromkeys((*EXPORTED, *(statistic for of_metric, statistic in columns if of_metric == name)))
        low = 0.0 if word in OF_SCALES else -math.inf  # differences may be negative, times and sizes are not
        found = {statistic: metric.scaled(statistic, factor, low=low) for statistic in wanted}
        values = {statistic: value for statistic, value in found.items() if value is not None}
        if name == "request_latency" and word != "ms":
            metric.refuse("unit", f"expected a time, found {shortened(unit)}")
        for statistic, value in values.items():
            parts = (name, "" if len(values) == 1 else statistic, word)
            metrics[columns.get((name, statistic), "_".join(filter(None, parts)))] = value
    lengths = [_metric(top, f"{word}_sequence_length") for word in ("input", "output")]
    prompt_tokens, new_tokens = (same_length(one.number("min"), one.number("max")) for one in lengths)
    return load_result(
        concurrency=concurrency,
        unlimited=limit_unless_unread(UNLIMITED if is_open else NOT_STATED, *sizes),
        request_rate=request_rate,
        prompt_tokens=prompt_tokens,
        prompt_tokens_mean=lengths[0].number("avg"),
        new_tokens=new_tokens,
        prompt_tokens_requested=requested[0],
        new_tokens_requested=requested[1],
        requests=_metric(top, "request_count").number("avg"),
        failed=_metric(top, "error_request_count").number("avg"),
        doubts=doubts,
        stated=metrics,
        samples=samples,
    )


def _task(top: Fields) -> str:
    """The task: only text generation has output tokens."""
    return "text-generation" if "output_sequence_length" in top else "feature-extraction"


def _model_names(fields: Fields, name: str, value: Any) -> str:
    """The names of the models in a list, joined. Raises FormatError for a list of anything else."""
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        fields.refuse(name, f"expected model names, found {value!r:.60}")
    return ", ".join(value)


def _metric(top: Fields, name: str) -> Fields:
    """The statistics of a metric over the requests; empty without the metric."""
    return Fields(top.file, metric if _is_metric(metric := top.peek(name)) else {}, name)


def _is_metric(value: Any) -> bool:
    return isinstance(value, dict) and "unit" in value and isinstance(value.get("avg"), int | float)


AIPERF = Format(
    name="aiperf",
    summary="AIPerf: profile_export_aiperf.json and .csv, and profile_export_aiperf_sweep.json",
    definitions=AIPERF_MEANINGS,
    recognises=is_aiperf,
    read=read_aiperf,
)
GENAI_PERF = Format(
    name="genai_perf",
    summary="GenAI-Perf: profile_export_genai_perf.json and .csv",
    definitions=GENAI_MEANINGS,
    recognises=is_genai_perf,
    read=read_genai_perf,
)

PLUGINS = (AIPERF, GENAI_PERF)
