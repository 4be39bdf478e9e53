"""AIPerf's JSON and CSV (profile_export_aiperf.json, .csv): one load, with GenAI-Perf's metrics and further ones.

The first versions have the metrics under "records". The CSV has no settings.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarking.core.records import Doubt
from db.importers.support.building import UNNAMED, ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.reading import Fields, csv_header, top_fields
from db.importers.support.serving import (
    EXPORT_DEFINITIONS,
    export_result,
    export_task,
    exported_table,
    is_export,
    load_mode,
    model_names,
    server_host,
)

INPUT = {"loadgen", "phases"}
"""Fields of the input settings; every version has one of them."""
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


def _is_aiperf(file: ForeignFile) -> bool:
    data = file.json
    if data is None:
        return bool(csv_header(file, _is_header))
    return is_export(data) and ("aiperf_version" in data or bool(INPUT & data["input_config"].keys()))


def _is_header(cells: list[str]) -> bool:
    """Whether the cells are the header of the CSV; GenAI-Perf's has a percentile and no standard deviation."""
    return cells[:4] == ["Metric", "avg", "min", "max"] and ("std" in cells or len(cells) == 4)


def _of_csv(file: ForeignFile) -> Fields:
    """The metrics of the CSV, which has no settings. Raises NoResultsError if the JSON is in the same folder."""
    if file.path.with_suffix(".json").is_file():
        file.without_results(f"all its numbers are in {file.path.with_suffix('.json').name}")
    return Fields(file, {**exported_table(file, _is_header), "input_config": {"endpoint": {"model_names": [UNNAMED]}}})


def _read(file: ForeignFile) -> Iterator[ForeignRun]:
    top = _of_csv(file) if file.json is None else _metrics_on_top(top_fields(file))
    config = top.required(top.fields, "input_config")
    endpoint, info, load = config.section("endpoint"), top.section("run_info"), _load(config)
    result = export_result(
        top,
        columns=OURS,
        concurrency=load.count("concurrency"),
        request_rate=load.number("rate" if "rate" in load else "request_rate", low=0),
        doubts=_cut_short(top),
    )
    yield ForeignRun(
        stated_times=(top.text("start_time"),),
        started_at=top.time("start_time"),
        finished_at=top.time("end_time"),
        host=server_host(endpoint.any("urls") or endpoint.any("url")),
        tool_version=top.text("aiperf_version"),
        runtime_mode={**({"endpoint": kind} if (kind := endpoint.text("type")) else {}), **load_mode(result)},
        command=(info.text("cli_command"),),
        model_id=_model(config, endpoint),
        task=export_task(top),
        results=[result],
        kept=top.rest(),
    )


def _metrics_on_top(top: Fields) -> Fields:
    """The metrics beside the settings, as newer versions write them: the first versions have them under "records"."""
    records = top.peek("records")
    if not isinstance(records, dict):
        return top
    others = {name: top.peek(name) for name in top if name != "records"}
    return Fields(top.file, {**records, **others})


def _model(config: Fields, endpoint: Fields) -> str:
    """The names of the models: a list of objects with names in newer versions, a list of names in older ones."""
    models = config.fields("models")
    if models is not None:
        return ", ".join(one.required(one.text, "name") for one in models.required(models.objects, "items"))
    return model_names(endpoint, "model_names", endpoint.required(endpoint.any, "model_names"))


def _load(config: Fields) -> Fields:
    """The settings of the load: those of the profiling phase in newer versions."""
    phases = config.objects("phases") or ()
    measuring = [phase for phase in phases if phase.text("kind") in (None, "profiling")]
    return measuring[-1] if measuring else config.section("loadgen")


def _cut_short(top: Fields) -> tuple[Doubt, ...]:
    """A doubt if the load did not run to its end."""
    cancelled, complete, reason = top.flag("was_cancelled"), top.flag("is_complete"), top.text("incomplete_reason")
    if not cancelled and complete is not False:
        return ()
    return (Doubt(kind="load_cut_short", severity="invalid", evidence={"cancelled": cancelled, "reason": reason}),)


PLUGIN = Format(
    name="aiperf",
    summary="AIPerf: profile_export_aiperf.json and .csv",
    definition="aiperf",
    definitions=MEANINGS,
    recognises=_is_aiperf,
    read=_read,
)
