"""GenAI-Perf's JSON (profile_export_genai_perf.json): one load, without a date, a version or a device."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarking.core.records import Result, Run
from db.importers.support.building import foreign_result, foreign_run, undated
from db.importers.support.files import ForeignFile
from db.importers.support.measures import supported_tails
from db.importers.support.reading import Fields, top_fields
from db.importers.support.serving import (
    DEFINITIONS,
    common_value,
    is_export,
    load_doubts,
    load_point,
    mean_value,
    metrics_in,
)

INPUT = {"perf_analyzer", "service_kind", "concurrency", "request_rate", "stimulus"}
"""Fields of its input, one of which every version has."""
MEANINGS = {
    **DEFINITIONS,
    "time_to_first_token_ms": "median of time_to_first_token: from sending a request to its first response",
    "inter_token_latency": "of each request (latency - time to first token) / (output tokens - 1), in older versions "
    "the gap between two responses / tokens of the later one: the file does not say which",
}


class GenaiPerf:
    """Reads what `genai-perf profile` writes to its artifact folder."""

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
            task="text-generation" if "output_sequence_length" in top else "feature-extraction",
            results=[result],
            started_at=file.modified_at,
            runtime_mode={"endpoint": kind} if kind else {},
            kept=top.rest(),
        )


def _model(config: Fields) -> str:
    name = "model_names" if "model_names" in config else "model"
    names = config.must(config.any, name)
    models = names if isinstance(names, list) else [names]
    if not models or not all(isinstance(model, str) for model in models):
        config.refuse(name, f"expected names of models, found {names!r:.60}")
    return ", ".join(str(model) for model in models)


def _result(top: Fields, config: Fields) -> Result:
    analyzer = config.fields("perf_analyzer") or config
    stimulus = analyzer.fields("stimulus") or config
    concurrency, rate = stimulus.count("concurrency"), stimulus.number("request_rate", low=0)
    requests = mean_value(top, "request_count")
    length = common_value(top, "input_sequence_length")
    mean = mean_value(top, "input_sequence_length")
    metrics, missing = supported_tails(metrics_in(top, {}), requests)
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
        doubts=(undated(top.file), *load_doubts(max_concurrency=concurrency, failed_requests=None)),
    )


PLUGIN = GenaiPerf()
