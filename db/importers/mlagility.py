"""Files of MLAgility, turnkey and lemonade: a build's stats or state.yaml, and the report on all builds (CSV).

The files have mean latencies in ms only; throughput is in inferences per second. A build that was never measured
becomes a result with the reason. Latencies estimated by a compiler are kept, but are not results.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from benchmarking.core.metrics import BYTES_PER_GIB, MS_PER_S, bytes_to_mb
from benchmarking.core.records import SERVER, Json, Point, Result, Scalar, Status
from benchmarking.core.untrusted.redaction import cut_to
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile, called_like, each_beside
from db.importers.support.measures import BATCH_NOT_STATED, foreign_result
from db.importers.support.reading import (
    MAX_YAML_BYTES,
    Fields,
    MetricTable,
    csv_header,
    csv_rows,
    parsed_number,
    shortened,
    understood,
    yaml_object,
)
from db.importers.support.serving import OUTPUT_REQUESTED

TOP_LEVEL = re.compile(r"^([a-z_]\w*):", re.MULTILINE)
NOT_YAML = re.compile(r"^(?:```|[A-Za-z]\w* \w+ )", re.MULTILINE)
"""A line of a document that shows such a file: a fence, or the start of a sentence."""
BUILD = {"build_status", "evaluations", "performance", "benchmark_status", "turnkey_version", "onnxflow_version"}
NAMED = {"build_name", "config", "hash", "parameters", "model_name", "uid", "labels"}
"""A build's file has at least one field of each set."""
STATS = "*_stats.yaml"
"""What the file of a build with its numbers is called; state.yaml beside it has none."""
MODELS = {"model_name", "checkpoint"}
REPORT = {
    *("mean_latency_units", "build_status", "x86_latency", "nvidia_latency", "gpu_latency", "gpu_e2e_latency"),
    *("seconds_to_first_token", "token_generation_tokens_per_second"),
}
"""A report has the model's name or lemonade's checkpoint, and one of these."""
OLD_COLUMNS = {
    "x86_latency": {"device_type": "x86", "runtime": "ort"},
    "nvidia_latency": {"device_type": "nvidia", "runtime": "trt"},
    "gpu_latency": {"device_type": "nvidia", "runtime": "trt"},
    "gpu_e2e_latency": {"device_type": "nvidia", "runtime": "trt"},
}
"""Mean latency in ms, one column per device, in MLAgility's reports."""
DEVICES = {"x86": "cpu", "nvidia": "cuda"}
RUNTIMES = {"ort": "onnxruntime", "trt": "tensorrt", "torch-eager": "eager", "torch-compiled": "compiled"}
ENGINES = {"huggingface": "eager", "oga": "onnxruntime-genai", "llama-cpp": "llama.cpp", "bench": SERVER, "": "unknown"}
"""The measuring tool's name before "-bench" -> the runtime; `bench` alone sends requests to a server."""
NO_SETTING = re.compile(
    r".*bench(?:mark)?|load|accuracy-.*|.*-prompt|report|discover|verify-exporter|load-build|cache|version|system-info"
)
"""Tools that measure, test, or show, but leave the model and its engine as they are."""
FIXED_LENGTH = {"huggingface-bench", "oga-bench"}
"""Tools that count no iteration with an answer of another length than the requested one."""
NUMBERS: MetricTable = {
    "mean_latency": "latency_mean_ms",
    "throughput": "inferences_per_sec",
    "seconds_to_first_token": ("time_to_first_token_mean_ms", MS_PER_S),
    "std_dev_seconds_to_first_token": ("time_to_first_token_std_ms", MS_PER_S),
    "prefill_tokens_per_second": "prefill_tokens_per_sec",
    "std_dev_prefill_tokens_per_second": "prefill_tokens_std_per_sec",
    "token_generation_tokens_per_second": "decode_tokens_per_sec",
    "std_dev_tokens_per_second": "decode_tokens_std_per_sec",
    **dict.fromkeys(
        ("max_memory_used_gbyte", "max_memory_used_GB", "max_memory_used_gb"),
        ("process_peak_rss_mb", bytes_to_mb(BYTES_PER_GIB)),
    ),
    "onnx_total_flops": "flops",
}
"""Field -> metric and the factor to its unit."""
TOKENS = ("prompt_tokens", "response_tokens")
RATE, SPEED = "token_generation_tokens_per_second", "decode_tokens_per_sec"
MEASURED = ("mean_latency", "throughput", "seconds_to_first_token", RATE)
UNITS = {"mean_latency_units": "milliseconds (ms)", "throughput_units": "inferences per second (IPS)"}
STATUSES: Mapping[str, Status] = {"timeout": "timed_out", "error": "failed", "killed": "failed", "incomplete": "failed"}
NESTED = ("labels", "config", "system_info")
DEFINITIONS = {
    "latency_mean_ms": "mean latency of an inference, of 100 by default",
    "inferences_per_sec": "throughput: inferences a second, whatever the batch of one is",
    "time_to_first_token_mean_ms": "seconds_to_first_token: mean over the iterations",
    "prefill_tokens_per_sec": "prompt tokens over the time to the first token",
    "decode_tokens_per_sec": "token_generation_tokens_per_second: tokens after the first over their time",
    "process_peak_rss_mb": "max_memory_used_gbyte: highest resident size that was seen (1024^3 bytes each)",
    "flops": "onnx_total_flops: floating-point operations of the ONNX graph",
}


def recognises(file: ForeignFile) -> bool:
    if len(file.content) > MAX_YAML_BYTES or not (text := file.text):
        return False
    if csv_header(file, _is_header):
        return True
    names = set(TOP_LEVEL.findall(text))
    return bool(names & BUILD and names & NAMED) and not NOT_YAML.search(text)


def _is_header(cells: list[str]) -> bool:
    names = {cell.strip() for cell in cells}
    return bool(names & MODELS and names & REPORT)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if csv_header(file, _is_header):
        evaluations = [*enumerate(_of_report(file))]
        names = {str(one.peek("build_name")) for _, one in evaluations}
        builds = {name: _stated_by_build(file, name) for name in names}
        own = [one for one in evaluations if _stated(one[1]) not in builds[str(one[1].peek("build_name"))]]
        if evaluations and not own and not file.left_out:
            file.without_results("its rows are in the files of the builds beside it")
        evaluations = own
    else:
        evaluations = [*enumerate(_of_build(file))]
        if not any(name in one for _, one in evaluations for name in MEASURED):
            build = yaml_object(file).get("build_name")
            for stats in called_like(file, STATS):
                file.give_way_to(stats, lambda one: recognises(one) and yaml_object(one).get("build_name") == build)
    return understood(file, evaluations, lambda one: _run(one[1], str(one[0])))


def _stated_by_build(file: ForeignFile, name: str) -> set[tuple[object, ...]]:
    """The numbers that the file of the build of this name, below the report's folder, states."""
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", name):
        return set()
    return each_beside(file, called_like(file, f"{name}/{STATS}", f"builds/{name}/{STATS}"), _stated_in)


def _stated_in(build: ForeignFile) -> frozenset[tuple[object, ...]]:
    return frozenset(map(_stated, _of_build(build))) if recognises(build) else frozenset()


def _stated(one: Fields) -> tuple[object, ...]:
    return *(parsed_number(str(one.peek(name))) for name in MEASURED), one.unread_copy().time("timestamp")


def _of_report(file: ForeignFile) -> Iterator[Fields]:
    """The evaluations in a report: one per row, or in older reports one per device and row. "-" is an empty cell."""
    for row in csv_rows(file, _is_header):
        values = {name.strip(): _cell(value) for name in row if (value := row.any(name)) not in (None, "-")}
        old = [name for name in OLD_COLUMNS if name in values]
        others = {name: value for name, value in values.items() if name not in OLD_COLUMNS}
        for name in old:
            own = {**others, **OLD_COLUMNS[name], "mean_latency": values[name]}
            yield Fields(file, own, f"{row.path}: {name}", numbers_are_text=True)
        if not old:
            yield Fields(file, values, row.path, numbers_are_text=True)


def _cell(text: Json) -> Json:
    """The value of a cell: lists and dictionaries are in Python notation, the rest is text."""
    if not isinstance(text, str) or not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(json.dumps(ast.literal_eval(text), allow_nan=False))  # type: ignore[no-any-return]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def _of_build(file: ForeignFile) -> Sequence[Fields]:
    """The evaluations of one build: its shared fields, overridden by each evaluation's own."""
    if not TOP_LEVEL.search(file.text or ""):  # checked first, since parsing takes seconds
        file.refuse("not YAML with a mapping at the top level")
    data = {name: value for name, value in yaml_object(file).items() if value != "-"}
    parts = {"": data}  # by the place in the file
    for holder in ("performance", "evaluations"):
        own = data.get(holder)
        if isinstance(own, dict) and own and all(isinstance(one, dict) for one in own.values()):
            shared = {name: value for name, value in data.items() if name != holder}
            parts = {f"{holder}.{name}": {**shared, **one, "evaluation": str(name)} for name, one in own.items()}
    return [Fields(file, values, place, numbers_are_text=True) for place, values in parts.items()]


def _run(evaluation: Fields, key: str) -> ForeignRun:
    nested = {name: evaluation.any(name) for name in NESTED if name in evaluation}
    errors = evaluation.any("error_log")
    # The name of the model, or else of the build.
    labels, config = nested.get("labels"), nested.get("config")
    label = labels.get("name") if isinstance(labels, dict) else None
    found = (
        evaluation.text("model_name"),
        evaluation.text("checkpoint"),
        label[0] if isinstance(label, list) and label else label,
        evaluation.text("build_name"),
        config.get("build_name") if isinstance(config, dict) else None,
    )
    model_id = next((name for name in found if isinstance(name, str) and name), "unknown")
    family = (evaluation.text("device_type") or "").partition("::")[0].lower()
    device, runtime = evaluation.text("device"), evaluation.text("runtime")
    # The tools that prepared and measured the model, in their order.
    sequence = evaluation.peek("selected_sequence_of_tools")
    tools = [str(one) for one in sequence] if isinstance(sequence, list) else []
    engine = next((one.removesuffix("-bench") for one in tools if one.endswith("bench")), "")
    preparing = [one for one in tools if not (NO_SETTING.fullmatch(one) or (engine and engine in one))]
    beams = evaluation.count("num_beams") or 1
    mode: dict[str, Scalar | None] = {"backend": evaluation.text("backend") or None}
    mode |= {"tools": ", ".join(preparing) or None, "num_beams": beams if beams > 1 else None}
    version, runtime_version = evaluation.text("turnkey_version"), evaluation.text("runtime_version")
    system = nested.get("system_info")
    if isinstance(system, list):  # lemonade's report on performance
        system = dict(one.split(": ", 1) for one in system if isinstance(one, str) and ": " in one)
    processor = system.get("Processor") if isinstance(system, dict) else None
    kind = family or (device or "unknown").lower()
    return ForeignRun(
        key=key,
        model_id=model_id,
        parameter_count=evaluation.integer("parameters" if "parameters" in evaluation else "params"),
        task=evaluation.text("task") or "benchmark",
        model_revision=evaluation.text("hash"),
        started_at=evaluation.time("timestamp"),
        results=_results(evaluation, errors, tools),
        device_type=DEVICES.get(kind, kind),
        device_name=device if family else None,  # in lemonade's files `device` is the type, in turnkey's the name
        cpu_model=processor if isinstance(processor, str) else None,
        runtime=RUNTIMES.get(runtime or "", runtime or ENGINES.get(engine, engine)),
        runtime_mode=mode,
        precision_word=evaluation.text("dtype") or ("float16" if "convert-fp16" in tools else None),
        tool_version=version,
        versions={runtime: runtime_version} if runtime else {},
        kept={**evaluation.rest(), **nested, **({} if errors is None else {"error_log": errors})},
    )


def _results(evaluation: Fields, errors: Json, tools: Collection[str]) -> list[Result]:
    """One result, or one for each prompt; for a build without numbers its status and error, or its benchmark's."""
    for name, unit in UNITS.items():
        if (stated := evaluation.text(name)) not in (None, unit):
            evaluation.refuse(name, f"expected {unit}, found {shortened(stated)}")
    names = (*NUMBERS, *TOKENS)
    values = {name: evaluation.any(name) for name in names if name in evaluation}
    listed = {name: len(value) for name, value in values.items() if isinstance(value, list)}
    prompts = max((count for name, count in listed.items() if name != "response_tokens"), default=1)
    iterations, warmups = (evaluation.integer(name) for name in ("iterations", "warmup_iterations"))
    each = []
    for index in range(prompts):
        given: dict[str, Json] = {}
        for name, value in values.items():
            # Newer versions of lemonade have the response of each iteration, one prompt after the other.
            size, odd = divmod(listed.get(name, 1), prompts)
            if isinstance(value, list) and not (size and odd):  # else it is unknown which ones are of this prompt
                own = value[index * max(size, 1) : (index + 1) * max(size, 1)]
            else:
                own = value if isinstance(value, list) else [value]
            if own:
                given[name] = own if any(one != own[0] for one in own) else own[0]
        each.append(Fields(evaluation.file, given, evaluation.path, numbers_are_text=True))
    if not any(name in entry for entry in each for name in MEASURED):
        words = [str(evaluation.any(name)).rpartition(".")[2].lower() for name in ("benchmark_status", "build_status")]
        status: Status = next((STATUSES[word] for word in words if word in STATUSES), "skipped")
        error = errors[0] if isinstance(errors, list) and errors else errors
        if not isinstance(error, str) or not error:
            states = ", ".join(word for word in words if word != "none") or "none"
            error = f"the file holds no measurement (status: {states})"
        return [foreign_result(Point(batch_size=1), status=status, error=cut_to(error, 2000))]
    requested = evaluation.count("output_tokens")
    answered = requested if FIXED_LENGTH.intersection(tools) else None
    found = []
    for fields in each:
        metrics, missing = fields.metrics(NUMBERS), {}
        if metrics.get(SPEED) == 0:
            missing = {SPEED: "left_out: 0 in the file: too few tokens were requested to time them"}
            metrics = {name: value for name, value in metrics.items() if not name.startswith("decode_")}
        point = Point(
            batch_size=1,
            sequence_length=_tokens(fields, "prompt_tokens"),
            new_tokens=answered if requested else _tokens(fields, "response_tokens"),
            axes={OUTPUT_REQUESTED: requested} if requested and not answered else {},
        )
        result = foreign_result(
            point,
            metrics=metrics,
            iterations=iterations,
            warmup_iterations=warmups,
            missing=missing,
            doubts=() if "prompt_tokens" in fields else (BATCH_NOT_STATED,),
            kept={**fields.rest(), **{name: fields.any(name) for name in TOKENS if name in fields}},
        )
        found.append(result)
    return found


def _tokens(fields: Fields, name: str) -> int | None:
    """A whole number of tokens from 1; None for a fractional mean, or iterations of different lengths."""
    if isinstance(fields.peek(name), list):
        return None
    number = fields.number(name)
    return int(number) if number is not None and number >= 1 and number.is_integer() else None


PLUGIN = Format(
    name="mlagility",
    summary="MLAgility, turnkey, lemonade: *_stats.yaml, state.yaml, report (csv)",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
    restates=True,
)
