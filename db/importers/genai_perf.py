"""GenAI-Perf's JSON (profile_export_genai_perf.json): one load, without a date, a version or a device."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarking.core.records import Result, Run
from db.importers.support.building import foreign_run, undated
from db.importers.support.files import ForeignFile
from db.importers.support.reading import Fields, top_fields
from db.importers.support.serving import DEFINITIONS, export_result, export_task, is_export, model_names

INPUT = {"perf_analyzer", "service_kind", "concurrency", "request_rate", "stimulus"}
"""Fields of its input; every version has one of them."""
MEANINGS = {
    **DEFINITIONS,
    "time_to_first_token_ms": "median of time_to_first_token: from sending a request to its first response",
    "inter_token_latency": "of each request (latency - time to first token) / (output tokens - 1), in older versions "
    "the gap between two responses / tokens of the later one: the file does not say which",
}


class GenaiPerf:
    """Reads the output of `genai-perf profile`."""

    name = "genai_perf"
    summary = "GenAI-Perf: profile_export_genai_perf.json"

    def recognises(self, file: ForeignFile) -> bool:
        data = file.json
        return is_export(data) and "aiperf_version" not in data and bool(INPUT & data["input_config"].keys())

    def runs(self, file: ForeignFile) -> Iterator[Run]:
        top = top_fields(file)
        config = top.must(top.fields, "input_config")
        endpoint = config.fields("endpoint") or config
        kind = endpoint.text("type")
        model_id, result = _model(config), _result(top, config)
        yield foreign_run(
            file,
            "",
            format_name=self.name,
            definition="genai-perf",
            definitions=MEANINGS,
            model_id=model_id,
            task=export_task(top),
            results=[result],
            started_at=file.modified_at,
            runtime_mode={"endpoint": kind} if kind else {},
            kept=top.rest(),
        )


def _model(config: Fields) -> str:
    name = "model_names" if "model_names" in config else "model"
    names = config.must(config.any, name)
    return model_names(config, name, names if isinstance(names, list) else [names])


def _result(top: Fields, config: Fields) -> Result:
    analyzer = config.fields("perf_analyzer") or config
    stimulus = analyzer.fields("stimulus") or config
    return export_result(
        top,
        columns={},
        concurrency=stimulus.count("concurrency"),
        request_rate=stimulus.number("request_rate", low=0),
        doubts=(undated(top.file),),
    )


PLUGIN = GenaiPerf()
