"""GenAI-Perf's JSON and CSV (profile_export_genai_perf.json, .csv): one load, without a date, a version or a device.

The CSV has the same metrics, rounded to two digits, but no input settings: the name of its folder describes the load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.load_clients import (
    EXPORT_DEFINITIONS,
    export_result,
    export_task,
    exported_table,
    is_export,
    model_names,
)
from db.importers.support.reading import Fields, csv_header, parsed_number, top_fields
from db.importers.support.serving import load_mode

INPUT = {"perf_analyzer", "service_kind", "concurrency", "request_rate", "stimulus"}
"""Fields of the input settings; every version has one of them."""
MEANINGS = {
    **EXPORT_DEFINITIONS,
    "time_to_first_token_ms": "median of time_to_first_token: from sending a request to its first response",
    "inter_token_latency": "of each request (latency - time to first token) / (output tokens - 1), in older versions "
    "the gap between two responses / tokens of the later one: the file does not say which",
}
CSV_HEADER = ["Metric", "avg", "min", "max", "p99"]
FOLDER = re.compile(r".*(concurrency|request_rate)(\d+(?:\.\d+)?)")


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if data is None:
        return bool(csv_header(file, _is_header))
    return is_export(data) and "aiperf_version" not in data and bool(INPUT & data["input_config"].keys())


def _is_header(cells: list[str]) -> bool:
    return cells[: len(CSV_HEADER)] == CSV_HEADER and "std" not in cells  # which AIPerf has


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if file.json is None:  # the CSV, in the form of the JSON
        file.give_way_to(file.path.with_suffix(".json"))
        load = FOLDER.fullmatch(file.path.absolute().parent.name)
        settings = {"model": "unknown", **({load[1]: parsed_number(load[2])} if load else {})}
        top = Fields(file, {**exported_table(file, _is_header), "input_config": settings})
    else:
        top = top_fields(file)
    config = top.required(top.fields, "input_config")
    endpoint = config.fields("endpoint") or config
    analyzer = config.fields("perf_analyzer") or config
    stimulus = analyzer.fields("stimulus") or config
    result = export_result(
        top,
        columns={},
        concurrency=stimulus.count("concurrency"),
        request_rate=stimulus.number("request_rate", low=0),
    )
    named = "model_names" if "model_names" in config else "model"
    models = config.required(config.any, named)
    yield ForeignRun(
        model_id=model_names(config, named, models if isinstance(models, list) else [models]),
        task=export_task(top),
        runtime_mode={**({"endpoint": kind} if (kind := endpoint.text("type")) else {}), **load_mode(result)},
        results=[result],
        kept=top.rest(),
    )


PLUGIN = Format(
    name="genai_perf",
    summary="GenAI-Perf: profile_export_genai_perf.json and .csv",
    definition="genai-perf",
    definitions=MEANINGS,
    recognises=recognises,
    read=read,
)
