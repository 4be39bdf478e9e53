"""AIPerf's JSON and CSV (profile_export_aiperf.json, .csv): one load, with GenAI-Perf's metrics and further ones.

The first versions have the metrics under "records". The CSV has no settings. The file of a sweep
(profile_export_aiperf_sweep.json) has the means of each combination of parameters, without model and settings; it is
read if the files of its runs are not in the same folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarking.core.records import Doubt, Json, Result
from db.importers.support.building import UNNAMED, ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.load_clients import (
    EXPORT_DEFINITIONS,
    export_result,
    export_task,
    exported_table,
    is_export,
    model_names,
)
from db.importers.support.names import is_amd
from db.importers.support.reading import Fields, csv_header, top_fields, understood
from db.importers.support.serving import load_mode, server_host

INPUT = {"loadgen", "phases"}
"""Fields of the input settings; every version has one of them."""
RUN_FILE = "profile_export_aiperf.json"
ARRIVALS = ("poisson", "gamma", "constant")
OURS = {("inter_token_latency", "p50"): "time_per_output_token_ms"}
MEANINGS = {
    **EXPORT_DEFINITIONS,
    "time_to_first_token_ms": "median of time_to_first_token: from the start of a request to its first response with "
    "content",
    "time_per_output_token_ms": "median of inter_token_latency: (latency - time to first token) / (output tokens - "
    "those of the first response, 1 in older versions)",
    "inter_token_latency": "as time_per_output_token_ms",
    "inter_chunk_latency": "gap between two responses of the stream, each of which may be of several tokens",
}


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if data is None:
        return bool(csv_header(file, _is_header))
    if _of_several_runs(data) is not None:
        return True
    return is_export(data) and ("aiperf_version" in data or bool(INPUT & data["input_config"].keys()))


def _of_several_runs(data: Any) -> str | None:
    """The way in which AIPerf aggregated several runs into the file ("sweep", ...); None for any other file."""
    if not isinstance(data, dict):
        return None
    holders = (data, data.get("metadata"))
    words = [
        holder["aggregation_type"] for holder in holders if isinstance(holder, dict) and "aggregation_type" in holder
    ]
    return str(words[0]) if words and ("num_profile_runs" in data or "aiperf_version" in data) else None


def _is_header(cells: list[str]) -> bool:
    """Whether the cells are the header of the CSV; GenAI-Perf's has a percentile and no standard deviation."""
    statistics = set(cells[1:])
    return cells[0] == "Metric" and {"avg", "min", "max"} <= statistics and ("std" in statistics or len(cells) == 4)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if (aggregated := _of_several_runs(file.json)) is not None:
        yield _of_sweep(file, aggregated)
        return
    if file.json is None:  # the CSV, which has no settings
        file.give_way_to(file.path.with_suffix(".json"))
        settings = {"input_config": {"endpoint": {"model_names": [UNNAMED]}}}
        top = Fields(file, {**exported_table(file, _is_header), **settings})
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
        model_id = model_names(endpoint, "model_names", endpoint.required(endpoint.any, "model_names"))
    # The settings of the load: those of the profiling phase in newer versions.
    measuring = [
        phase
        for phase in config.objects("phases") or ()
        if (phase.text("kind") or phase.text("name")) != "warmup" and not phase.flag("exclude_from_results")
    ]
    load = measuring[-1] if measuring else config.section("loadgen")
    # A doubt if the load did not run to its end.
    cancelled, complete, reason = top.flag("was_cancelled"), top.flag("is_complete"), top.text("incomplete_reason")
    evidence: dict[str, Json] = {"cancelled": cancelled, "reason": reason}
    is_cut_short = cancelled or complete is False
    result = export_result(
        top,
        columns=OURS,
        concurrency=load.count("concurrency"),
        request_rate=load.number("rate" if "rate" in load else "request_rate", low=0),
        doubts=[Doubt(kind="load_cut_short", severity="invalid", evidence=evidence)] if is_cut_short else [],
    )
    arrivals = load.text("type")
    yield ForeignRun(
        stated_times=(top.text("start_time"),),
        started_at=top.time("start_time"),
        finished_at=top.time("end_time"),
        host=server_host(endpoint.any("urls") or endpoint.any("url")),
        tool_version=top.text("aiperf_version"),
        runtime_mode={
            **({"endpoint": kind} if (kind := endpoint.text("type")) else {}),
            **load_mode(result, arrivals if arrivals in ARRIVALS else None),
        },
        command=(info.text("cli_command"),),
        **_gpus(top),
        model_id=model_id,
        task=export_task(top),
        results=[result],
        kept=top.rest(),
    )


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


def _of_sweep(file: ForeignFile, aggregated: str) -> ForeignRun:
    """The combinations of a sweep. Raises NoResultsError if each run has its own file, or for another aggregate."""
    if aggregated != "sweep":
        file.without_results(f"aggregate ({aggregated[:40]}) of several runs, each of which has its own {RUN_FILE}")
    folder = file.path.absolute().parent
    folder = folder.parent if folder.name == "sweep_aggregate" else folder
    if any(next(folder.glob(f"{place}{RUN_FILE}"), None) for place in ("", "*/", "*/*/")):
        file.without_results(f"aggregate of a sweep: each run has its own file, {RUN_FILE}")
    top = top_fields(file)
    combinations = top.required(top.objects, "per_combination_metrics")
    results = list(understood(file, combinations, _of_combination))
    return ForeignRun(
        model_id=UNNAMED,
        task="text-generation",
        results=results,
        runtime_mode=load_mode(results[0]) if results else {},
        kept=top.rest(),
    )


def _of_combination(combination: Fields) -> Result:
    """The load with these parameters. Their names may be paths: phases.profiling.concurrency."""
    parameters = combination.section("parameters")
    named = Fields(
        combination.file,
        {name.rpartition(".")[2]: parameters.any(name) for name in parameters},
        parameters.path,
    )
    return export_result(
        combination.required(combination.fields, "metrics"),
        columns=OURS,
        concurrency=named.count("concurrency"),
        request_rate=named.number("rate" if "rate" in named else "request_rate", low=0),
    )


PLUGIN = Format(
    name="aiperf",
    summary="AIPerf: profile_export_aiperf.json and .csv, and profile_export_aiperf_sweep.json",
    definition="aiperf",
    definitions=MEANINGS,
    recognises=recognises,
    read=read,
)
