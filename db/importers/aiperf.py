"""AIPerf's JSON (profile_export_aiperf.json): one load, with GenAI-Perf's metrics and further ones."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarking.core.records import Doubt, Result, Run
from db.importers.support.building import foreign_run, undated
from db.importers.support.files import ForeignFile
from db.importers.support.reading import Fields, top_fields, without_zone
from db.importers.support.serving import DEFINITIONS, export_result, export_task, is_export, model_names

INPUT = {"loadgen", "phases"}
"""Fields of its input; every version has one of them."""
OURS = {("inter_token_latency", "p50"): "time_per_output_token_ms"}
MEANINGS = {
    **DEFINITIONS,
    "time_to_first_token_ms": "median of time_to_first_token: from the start of a request to its first response with "
    "content",
    "time_per_output_token_ms": "median of inter_token_latency: (latency - time to first token) / (output tokens - "
    "those of the first response, 1 in older versions)",
    "inter_token_latency": "as time_per_output_token_ms",
    "inter_chunk_latency": "gap between two responses of the stream, each of which may be of several tokens",
}


class Aiperf:
    """Reads the output of `aiperf profile`."""

    name = "aiperf"
    summary = "AIPerf: profile_export_aiperf.json"

    def recognises(self, file: ForeignFile) -> bool:
        data = file.json
        return is_export(data) and ("aiperf_version" in data or bool(INPUT & data["input_config"].keys()))

    def runs(self, file: ForeignFile) -> Iterator[Run]:
        top = top_fields(file)
        config = top.must(top.fields, "input_config")
        endpoint = config.section("endpoint")
        kind, version = endpoint.text("type"), top.text("aiperf_version")
        started_at, finished_at = top.time("start_time"), top.time("end_time")
        doubts = without_zone([top.text("start_time")]) if started_at else (undated(file),)
        info = top.section("run_info")
        command = info.text("cli_command")
        model_id, result = _model(config, endpoint), _result(top, config, doubts)
        yield foreign_run(
            file,
            "",
            format_name=self.name,
            definition="aiperf",
            definitions=MEANINGS,
            model_id=model_id,
            task=export_task(top),
            results=[result],
            started_at=started_at or file.modified_at,
            finished_at=finished_at,
            runtime_mode={"endpoint": kind} if kind else {},
            command=(command,) if command else (),
            tool_version=version,
            kept=top.rest(),
        )


def _model(config: Fields, endpoint: Fields) -> str:
    """The models' names: a list of objects with names in newer versions, of names in older ones."""
    models = config.fields("models")
    if models is not None:
        return ", ".join(one.must(one.text, "name") for one in models.must(models.objects, "items"))
    return model_names(endpoint, "model_names", endpoint.must(endpoint.any, "model_names"))


def _result(top: Fields, config: Fields, doubts: tuple[Doubt, ...]) -> Result:
    load = _load(config)
    return export_result(
        top,
        columns=OURS,
        concurrency=load.count("concurrency"),
        request_rate=load.number("rate" if "rate" in load else "request_rate", low=0),
        doubts=(*doubts, *_cut_short(top)),
    )


def _load(config: Fields) -> Fields:
    """The settings of the load: those of the profiling phase in newer versions."""
    phases = config.objects("phases") or ()
    measuring = [phase for phase in phases if phase.text("kind") in (None, "profiling")]
    return measuring[-1] if measuring else config.section("loadgen")


def _cut_short(top: Fields) -> tuple[Doubt, ...]:
    """A doubt when the load did not run to its end."""
    cancelled, complete, reason = top.flag("was_cancelled"), top.flag("is_complete"), top.text("incomplete_reason")
    if not cancelled and complete is not False:
        return ()
    return (Doubt(kind="load_cut_short", severity="invalid", evidence={"cancelled": cancelled, "reason": reason}),)


PLUGIN = Aiperf()
