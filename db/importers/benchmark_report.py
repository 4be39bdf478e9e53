"""llm-d's Benchmark Report 0.2, which its converters write for many load generators: one load, in YAML or JSON.

Each statistic states its unit. The whole report is kept with the run, so that it can be exported unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Result, Scalar
from db.importers.support.building import ForeignRun, Format, is_amd
from db.importers.support.files import ForeignFile
from db.importers.support.reading import Fields, yaml_object
from db.importers.support.serving import (
    engine_name,
    latency_columns,
    load_mode,
    load_result,
    named_statistics,
    same_length,
    token_columns,
)

VERSIONS = ("0.2", "0.2.1")
PARTS = ({"run", "results"}, {"scenario", "metrics"})
"""Fields next to `version`, in version 0.2 and in 0.1."""
IN_YAML = re.compile(r"^(version|run|results|scenario|metrics)\s*:", re.MULTILINE)
PART = re.compile(r"inference-perf\.partial\.(stage_\d+)\.yaml")
"""Name of the part that inference-perf writes next to its own report of a stage."""
INFINITY = ".inf"
"""Replaces infinity, which JSON does not have: a concurrency without a limit."""
STATISTICS = (
    *("mean", "mode", "stddev", "min", "p0p1", "p1", "p5", "p10"),
    *("p25", "p50", "p75", "p90", "p95", "p99", "p99p9", "max"),
)
TIMES = (
    *("request_latency", "time_to_first_token", "time_per_output_token"),
    *("inter_token_latency", "normalized_time_per_output_token"),
)
TO_MS = {"s": MS_PER_S, "ms": 1.0, "s/token": MS_PER_S, "ms/token": 1.0}
COLUMNS = {
    **latency_columns("request_latency", {"median": "p50"}),
    **token_columns("time_to_first_token", "time_per_output_token", "p50"),
}
RATES = {
    "request_rate": ("throughput_samples_per_sec", "queries/s"),
    "output_token_rate": ("throughput_tokens_per_sec", "tokens/s"),
    "input_token_rate": ("input_tokens_per_sec", "tokens/s"),
    "total_token_rate": ("total_tokens_per_sec", "tokens/s"),
}
PARALLELISM = ("tp", "dp", "ep", "pp")
DEFINITIONS = {
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
    if isinstance(data, dict):
        names = {str(name) for name in data}
    elif file.head.lstrip().startswith(("{", "[")):
        return False
    else:
        # Searches the whole text: llm-d sorts the fields, so the version is the last one.
        names = set(IN_YAML.findall(file.text or ""))
    return "version" in names and any(part <= names for part in PARTS)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    part = PART.fullmatch(file.path.name)
    if part and file.path.with_name(whole := f"{part[1]}_lifecycle_metrics.json").is_file():
        file.without_results(f"part of inference-perf's report: all its numbers are in {whole}")
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
        entry.section("standardized")
        for entry in stack
        if entry.section("standardized").text("kind") == "inference_engine"
    ]
    tool, tool_version = settings.text("tool"), settings.text("tool_version")
    result = _result(top, settings)
    # The accelerators of all engines, by model name.
    accelerators = [entry.section("accelerator") for entry in engines]
    accelerator = _joined(entry.text("model") for entry in accelerators)
    count = sum(entry.integer("count") or 0 for entry in accelerators)
    kind = "cuda" if "nvidia" in accelerator.lower() else "rocm" if accelerator and is_amd(accelerator) else "unknown"
    # The settings that distinguish series on one machine: parallelism and the configuration of the workload.
    mode: dict[str, Scalar] = {}
    for engine in engines:
        parallelism = engine.section("accelerator").section("parallelism")
        role = engine.text("role") or "replica"
        mode |= {f"{role}_{name}": value for name in PARALLELISM if (value := parallelism.integer(name)) is not None}
    if (workload := load.section("metadata").text("cfg_id")) is not None:
        mode["workload"] = workload
    yield ForeignRun(
        model_id=_joined(entry.section("model").text("name") for entry in engines) or "unknown",
        task="text-generation",
        results=[result],
        started_at=time.time("start"),
        finished_at=time.time("end"),
        stated_times=(time.text("start"),),
        tool_version=" ".join(word for word in (tool, tool_version) if word) or None,
        device_type=kind,
        device_name=accelerator or None,
        device_count=count or 1,
        runtime=engine_name(_joined(entry.text("tool") for entry in engines)),
        runtime_mode={**mode, **load_mode(result)},
        versions={entry.text("tool") or "engine": entry.text("tool_version") for entry in engines},
        kept={"report": Fields(file, data).rest()},
    )


def _joined(words: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(word for word in words if word))


def _result(top: Fields, settings: Fields) -> Result:
    performance = top.section("results").section("request_performance").section("aggregate")
    requests, latency = performance.section("requests"), performance.section("latency")
    throughput = performance.section("throughput")
    stated: dict[str, float | None] = {}
    for name in TIMES:
        times = latency.section(name)
        values = {one: times.number(one) for one in STATISTICS}
        if any(value is not None for value in values.values()):
            if (time_unit := times.text("units")) not in TO_MS:
                times.refuse("units", f"expected {', '.join(TO_MS)}, found {time_unit!r:.40}")
            stated |= named_statistics(name, values, COLUMNS, TO_MS[time_unit])
    for name, (metric, unit) in RATES.items():
        rate = throughput.section(name)
        if "mean" in rate and rate.text("units") != unit:
            rate.refuse("units", f"expected {unit}, found {rate.peek('units')!r:.40}")
        stated[metric] = rate.number("mean")
    total, failures = requests.integer("total"), requests.integer("failures")
    incomplete = requests.integer("incomplete") if "incomplete" in requests else 0  # most tools do not tell them apart
    failed = None if failures is None or incomplete is None else failures + incomplete
    inputs, outputs = requests.section("input_length"), requests.section("output_length")
    prompt_tokens, prompt_tokens_mean = _length(inputs, settings.section("input_seq_len"))
    new_tokens, new_tokens_mean = _length(outputs, settings.section("output_seq_len"))
    return load_result(
        concurrency=None if settings.peek("concurrency") == INFINITY else settings.count("concurrency"),
        request_rate=settings.number("rate_qps", low=0),
        prompt_tokens=prompt_tokens,
        prompt_tokens_mean=prompt_tokens_mean,
        new_tokens=new_tokens,
        requests=None if total is None or failed is None else max(0, total - failed),
        failed=failed,
        sent=total,
        counts_from_schedule=settings.peek("tool") == "benchhouse",
        metrics={"output_tokens_mean": new_tokens_mean},
        stated=stated,
    )


def _length(found: Fields, planned: Fields) -> tuple[int | None, float | None]:
    """The length of all requests, None if they differ, and their mean: as found or, if it is not stated, as planned."""
    mean = found.number("mean")
    if mean is None:
        value = planned.number("value", low=0) or None
        return same_length(value, value) if planned.text("distribution") == "fixed" else None, value
    return same_length(found.number("min"), found.number("max")), mean


PLUGIN = Format(
    name="benchmark_report",
    summary="llm-d's Benchmark Report 0.2 of one load (yaml and json)",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
