"""AIPerf's JSON (profile_export_aiperf.json): one load, with metrics as GenAI-Perf has them and more of them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarking.core.records import Doubt, Result, Run
from db.importers.support.building import foreign_result, foreign_run, undated
from db.importers.support.files import ForeignFile
from db.importers.support.measures import supported_tails
from db.importers.support.reading import Fields, top_fields, without_zone
from db.importers.support.serving import (
    DEFINITIONS,
    common_value,
    is_export,
    load_doubts,
    load_point,
    mean_value,
    metrics_in,
)

INPUT = {"loadgen", "phases"}
"""Fields of its input, one of which every version has."""
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
    """Reads what `aiperf profile` writes to its artifact folder."""

    name = "aiperf"
    summary = "AIPerf: profile_export_aiperf.json"

    def recognises(self, file: ForeignFile) -> bool:
        data = file.json
        return is_export(data) and ("aiperf_version" in data or bool(INPUT & data["input_config"].keys()))

    def runs(self, file: ForeignFile) -> Iterator[Run]:
        top = top_fields(file)
        config = top.must(top.fields, "input_config")
        endpoint = config.fields("endpoint") or Fields(file, {})
        kind, version = endpoint.text("type"), top.text("aiperf_version")
        started_at, finished_at = top.time("start_time"), top.time("end_time")
        doubts = without_zone([top.text("start_time")]) if started_at else (undated(file),)
        info = top.fields("run_info") or Fields(file, {})
        command = info.text("cli_command")
        model_id, result = _model(config, endpoint), _result(top, config, doubts)
        yield foreign_run(
            file,
            "",
            format_name=self.name,
            definition="aiperf",
            definitions=MEANINGS,
            model_id=model_id,
            task="text-generation" if "output_sequence_length" in top else "feature-extraction",
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
    names = endpoint.must(endpoint.any, "model_names")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        endpoint.refuse("model_names", f"expected names of models, found {names!r:.60}")
    return ", ".join(str(name) for name in names)


def _result(top: Fields, config: Fields, doubts: tuple[Doubt, ...]) -> Result:
    load = _load(config)
    concurrency = load.count("concurrency")
    rate = load.number("rate", low=0) if "rate" in load else load.number("request_rate", low=0)
    requests, failed = mean_value(top, "request_count"), mean_value(top, "error_request_count")
    length, mean = common_value(top, "input_sequence_length"), mean_value(top, "input_sequence_length")
    metrics, missing = supported_tails(metrics_in(top, OURS), requests)
    return foreign_result(
        load_point(
            max_concurrency=concurrency,
            request_rate=rate,
            sequence_length=length,
            new_tokens=common_value(top, "output_sequence_length"),
            axes={} if mean is None or length is not None else {"input_tokens_mean": round(mean)},
        ),
        metrics=metrics,
        missing=missing,
        iterations=None if requests is None else int(requests),
        doubts=(*doubts, *_cut_short(top), *load_doubts(max_concurrency=concurrency, failed_requests=failed)),
    )


def _load(config: Fields) -> Fields:
    """What was asked for of the load: the profiling phase in newer versions."""
    phases = config.objects("phases") or ()
    measuring = [phase for phase in phases if phase.text("kind") in (None, "profiling")]
    return measuring[-1] if measuring else config.fields("loadgen") or Fields(config.file, {})


def _cut_short(top: Fields) -> tuple[Doubt, ...]:
    """A doubt when the tool says that the load did not run to its end."""
    cancelled, complete, reason = top.flag("was_cancelled"), top.flag("is_complete"), top.text("incomplete_reason")
    if not cancelled and complete is not False:
        return ()
    return (Doubt(kind="load_cut_short", severity="invalid", evidence={"cancelled": cancelled, "reason": reason}),)


PLUGIN = Aiperf()
