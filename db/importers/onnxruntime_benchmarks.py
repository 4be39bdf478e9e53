"""The benchmarks of ONNX Runtime's projects.

onnxruntime_perf_test has a result file, to which each invocation appends, and printed output. The file has no date,
device or batch size, and names the model by its folder. A log may have the command, whose flags are its settings. Each
invocation is a fresh process and becomes a launch. Its warm-up is one call, whose time only the printed output
contains.

onnxruntime-genai's benchmark/python/benchmark_e2e.py writes records as JSON and as CSV. A record is one batch size,
prompt length and number of new tokens, with means over the repetitions and no variation. The numbers of repetitions and
warm-ups in it are defaults of the record's class, not what was run, so they are only kept. The CSV of the first
versions names neither model nor device: a table, or a line for each quantity.

onnxruntime's transformers/benchmark.py writes a detail CSV (a row for each measurement) and a summary CSV (a row for
each model and setting, a column of mean latencies for each batch and sequence length). Times are in ms, rounded to
0.01. The file names no hardware but the kind of device. The tool appends to its files, with another header for each
run. Its fusion CSV counts operators, and has no times.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from operator import itemgetter
from statistics import median
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import BYTES_PER_GIB, MS_PER_S, bytes_to_mb
from benchmarking.core.records import Doubt, Json, Point, Result, Scalar
from benchmarking.core.text import grouped
from db.importers.support.building import UNNAMED, ForeignRun, Format, precision_of, unnamed
from db.importers.support.files import ForeignFile, called_like, each_beside
from db.importers.support.measures import BATCH_NOT_STATED, SAME_RATE, block, foreign_result, in_ms, measured
from db.importers.support.reading import (
    LARGEST,
    Fields,
    MetricTable,
    agreed,
    commands_of,
    csv_header,
    csv_lines,
    csv_rows,
    has_columns,
    json_objects,
    parsed_number,
    put_at,
    shortened,
    understood,
    words_of,
)

PERF_TEST_ROW = re.compile(
    r"(?P<model>[^,]*),(?P<seconds>[-+.\deE]+),(?:(?P<total>[-+.\deE]+),)?(?P<bytes>\d{7,18}),(?P<cpu>-1|1?\d{1,2}),"
    r"(?P<index>\d{1,9})",
    re.ASCII,
)
"""A call: the process has a megabyte at least, and the CPUs are busy at 0 to 100 %, or -1 where it is not known."""
PERF_TEST_STATED = re.compile(
    r"(?P<label>Min|Max|P50|P90|P95|P99|P999) Latency(?: is |: )(?P<value>[-+.\deE]+) ?s(ec)?", re.ASCII
)
PRINTED = re.compile(r"(?P<label>[A-Z][A-Za-z ]+): ?(?P<value>[-+.\deE]+) ?(?P<unit>ms|s|%|bytes)?")
LATENCIES = {
    "P50": "latency_median_ms",
    **{label: f"latency_{label.lower()}_ms" for label in ("Min", "Max", "P90", "P95", "P99", "P999")},
}
NUMBERS = {
    "Session creation time cost": ("session_creation_ms", "s"),
    "First inference time cost": ("first_call_ms", "ms"),
    "Average inference time cost": ("latency_mean_ms", "ms"),
    "Average inference time cost total": ("latency_mean_ms", "ms"),
    "Average time cost": ("latency_mean_ms", "ms"),
    "Number of inferences per second": ("inferences_per_sec", ""),
    "Avg CPU usage": ("cpu_usage_percent", "%"),
    "Peak working set size": ("process_peak_working_set_mb", "bytes"),
    "Total inference run time": ("duration_ms", "s"),
    "Total run time": ("duration_ms", "s"),
}
"""Printed label -> metric, and the unit if the line has none."""
FACTORS = {"ms": 1.0, "s": MS_PER_S, "%": 1.0, "bytes": bytes_to_mb(1), "": 1.0}
COUNTS = ("Total inference requests", "Total iterations")
PROGRAM = "onnxruntime_perf_test"
COMMAND = re.compile(rf"(?<![\w.-]){PROGRAM}(?:\.exe)?\s+(?:-|\\$|(?:\"[^\"]+|'[^']+|\S+)\.(?:onnx|ort)\b)")
"""The beginning of a command line in a log, with which an invocation begins: flags may precede the model or follow."""
FLAG = re.compile(r"(?:^|\s)--?(\w+)(?:[ =](\"[^\"]*\"|'[^']*'|[^-\s]\S*))?(?=\s|$)")
VALUED = {
    "y": "inter_op_num_threads",
    "o": "optimization_level",
    "d": "cudnn_conv_algo",
    "i": "provider_options",
    "f": "free_dimensions",
    "F": "free_dimensions_by_denotation",
    "C": "session_config",
    "T": "thread_affinity",
}
SWITCHES = {
    "P": "parallel_executor",
    "A": "no_memory_arena",
    "M": "no_memory_pattern",
    "q": "separate_copy_stream",
    "g": "device_bindings",
    "z": "denormal_as_zero",
    "D": "no_spinning",
    "Z": "no_spinning_between_runs",
}
"""Flags that change what is measured -> their settings."""
NO_SETTING = re.compile(
    r"[ecxmrtpusvnlhbISRX]|model|opt_\w+|hold_ms_\w+|\w*telemetry\w*|list_ep_devices|plugin_ep_libs|compile_only"
)
"""Other flags that are elsewhere in the run, or that change no number."""
OF_PROVIDER = {
    **dict.fromkeys(("cpu", "dnnl", "mkldnn", "acl", "armnn", "xnnpack"), "cpu"),
    **dict.fromkeys(("cuda", "tensorrt", "nvtensorrtrtx"), "cuda"),
    **dict.fromkeys(("rocm", "migraphx"), "rocm"),
    "dml": "directml",
    "openvino": "openvino",
    "qnn": "qnn",
}
"""Execution provider -> the kind of its device."""
THREADS = re.compile(r"Setting (intra|inter)_op_num_threads to ([1-9]\d{0,5})")
WITH_VALUE = {*VALUED, *"ecxmrtpubSRX"}
"""Letters of flags that a value follows: no model, although -u is a path of one."""
MODEL_PATH = re.compile(r"(?<![^/\\])(?:([^/\\]+)[/\\])?([^/\\]+)\.(?:onnx|ort)\b")
MAX_HEAD = 200
"""Lines by which a file is recognized."""
FIRST_LABELS = ("Session creation time cost", "Total inference time cost", "Total time cost")
"""Labels of the first line of numbers of an invocation."""
PRINTED_LABELS = (*COUNTS, "Total inference time cost", "Total time cost")
"""Every version prints one of these labels."""
PERF_TEST_DEFINITIONS = {
    "model_id": "name of the folder that the model's file is in",
    "latency_wall": "time of a call of session.Run; with -c several calls are in flight, which the file does not say",
    "percentiles": "those it states are nearest ranks",
    "process_peak_working_set_mb": "peak working set of the process at the end",
    "cpu_usage_percent": "share of all logical processors that the process kept busy",
    "first_call_ms": "the call before the measured ones, in whole ms",
    "inferences_per_sec": "calls over the time of all of them together",
    "submission": "time to submit a call to the device, which newer versions write before the time of the whole call",
}

BACKEND = "onnxruntime-genai"
OWN = "token_generation_latency_ms"
"""A metric that every record has, but no record of other tools with the same class."""
IS_HEADER = has_columns("config.backend", f"metrics.{OWN}", "trigger_date")
FIRST_VERSIONS = ("Batch Size", "Prompt Length", "Token Generation Latency (ms)")
"""Titles in the CSV of the first versions: at the top, or at the left with a column for each record."""
IS_FIRST_HEADER = has_columns(*FIRST_VERSIONS)
SIZES = ("batch_size", "prompt_length", "tokens_generated", "max_length")
DATE = "%Y-%m-%d %H:%M:%S"
MB_PER_GIB = bytes_to_mb(BYTES_PER_GIB)
GENAI_METRICS: MetricTable = {
    "wall_clock_time_s": ("latency_mean_ms", MS_PER_S),
    "prompt_processing_latency_ms": "prompt_processing_mean_ms",
    "prompt_processing_throughput_tps": "prefill_tokens_per_sec",
    OWN: "time_per_output_token_mean_ms",
    "token_generation_throughput_tps": "decode_tokens_per_sec",
    "tokenization_latency_ms": "tokenize_mean_ms",
    "tokenization_throughput_tps": "tokenize_tokens_per_sec",
    "sampling_latency_ms": "sampling_mean_ms",
    "sampling_throughput_tps": "sampling_tokens_per_sec",
    "peak_gpu_memory_gb": ("gpu_memory_peak_mb", MB_PER_GIB),
    "peak_cpu_memory_gb": ("cpu_memory_peak_mb", MB_PER_GIB),
}
"""Metric in the file -> our metric, and the factor to its unit."""
COUNTS_THE_BUFFER = "the file counts max_length tokens a sequence, which is not its prompt and new tokens"
DEVICES = ("cpu", "cuda", "rocm", "openvino", "qnn")
"""Execution providers that are named like our devices."""
GENAI_DEFINITIONS = {
    "latency": "wall_clock_time_s: tokenizing, the prompt and all new tokens of the batch, on average",
    "prefill_tokens_per_sec": "batch size times prompt length over the mean time of processing the prompt",
    "prompt_processing_mean_ms": "processing the prompt; older files have it per token of the prompt, which shows in "
    "their throughput",
    "time_per_output_token_mean_ms": "mean time of a step of the whole batch, in older versions without sampling",
    "decode_tokens_per_sec": "batch size over that time",
    "total_tokens_per_sec": "wall_clock_throughput_tps: tokens of prompts and new tokens over the wall-clock time",
    "gpu_memory_peak_mb": "of the whole GPU that has most in use, every 0.1 s (the file's GB are GiB)",
    "cpu_memory_peak_mb": "of the whole machine, every 0.1 s (the file's GB are GiB)",
}

IS_DETAIL = has_columns("engine", "model_name", "batch_size", "sequence_length", "average_latency_ms")
IS_FUSION = has_columns("model_filename", "datetime", "transformers", "torch")
CELL = re.compile(r"b(\d{1,6})(?:_s(\d{1,7}))?")
"""Column of the summary: "b1_s128", or "b1" for a model without sequence lengths."""
TRANSFORMERS_METRICS = {
    "average_latency_ms": "latency_mean_ms",
    "latency_90_percentile": "latency_p90_ms",
    "latency_95_percentile": "latency_p95_ms",
    "latency_99_percentile": "latency_p99_ms",
    "QPS": "throughput_samples_per_sec",
}
RUNTIMES = {"torch": "eager", "torch2": "compiled", "torchscript": "torchscript", "tensorflow": "tensorflow"}
MODE = ("optimizer", "io_binding", "inputs", "custom_layer_num", "providers")
PLAIN = ("", "None", "NA", "False", "no_opt", "0")
HALF = {"True": "float16", "False": "float32"}
"""Value of the first versions' column fp16 -> precision."""
PROVIDERS = {"rocm": "rocm", "migraphx": "rocm", "dml": "directml"}
"""Word in the name of a provider -> kind of its GPU; cuda for the others."""
OF_ROW: Mapping[str, Any] = {"key": "", "results": (), "started_at": None, "stated_times": (), "kept": {}}
"""What differs between the row of a summary and those of the details for the same setup."""
TRANSFORMERS_DEFINITIONS = {
    "latency": "a call of the model with random token ids of one batch, warmed up",
    "throughput_samples_per_sec": "QPS: batch size over the mean latency",
    "latency_variance": "kept as the tool writes it: the variance in s^2 times 1000",
}


@dataclass(kw_only=True)
class Invocation:
    """The lines of one invocation: one for each call, then optionally its statistics."""

    model: str
    seconds: array[float] = field(default_factory=lambda: array("d"))
    submission: array[float] = field(default_factory=lambda: array("d"))
    """The time to submit each call to the device, in s; empty in older versions."""
    peak_bytes: float = 0.0
    cpu_percent: float = 0.0
    stated_ms: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    """Calls so far, with those that are left out."""


def _is_table(file: ForeignFile) -> bool:
    """Whether most lines are statistics or calls in their order, beginning with call 0 or, if that line is damaged,
    call 1. Names of columns are above other tables alone."""
    head = [line.strip() for line in file.head.splitlines()[:MAX_HEAD] if line.strip()]
    calls = [int(found["index"]) for line in head if (found := PERF_TEST_ROW.fullmatch(line))]
    if not calls or calls[0] > 1 or ("," in head[0] and not re.search(r"\d", head[0])):
        return False
    in_order = sum(call in (0, before + 1) for before, call in pairwise([0, *calls]))
    return 2 * (in_order + sum(bool(PERF_TEST_STATED.fullmatch(line)) for line in head)) >= len(head)


def _is_printed(file: ForeignFile) -> bool:
    return any(line.startswith(PRINTED_LABELS) and PRINTED.fullmatch(line) for _, line in _lines(file))


def read_perf_test(file: ForeignFile) -> Iterator[ForeignRun]:
    if not _is_table(file):
        if not _is_printed(file):
            file.refuse("the file is empty, or not text")
        runs = enumerate(_printed_parts(file))
        yield from understood(file, runs, lambda one: _printed(file, *one))
        return
    invocations: list[Invocation] = []
    for _ in understood(file, _lines(file), lambda line: _take_line(file, invocations, *line)):
        pass
    for model, own in grouped((one.model, one) for one in invocations if one.seconds).items():
        times = (
            (block(launch, in_ms(one.seconds)), measured("submission", in_ms(one.submission), launch=launch))
            for launch, one in enumerate(own)
        )
        kept: list[Json] = [dict(one.stated_ms) for one in own if one.stated_ms]
        result = foreign_result(
            Point(batch_size=1),
            samples=[samples for of_launch in times for samples in of_launch],
            metrics={
                "process_peak_working_set_mb": bytes_to_mb(median(one.peak_bytes for one in own)),
                "cpu_usage_percent": median(one.cpu_percent for one in own),
            },
            doubts=_doubts(len(own)),
            warmup_iterations=len(own),
            kept={"stated": kept} if kept else {},
        )
        yield ForeignRun(key=model, model_id=model or UNNAMED, runtime="onnxruntime", results=[result])


def _lines(file: ForeignFile) -> Iterator[tuple[int, str]]:
    """The non-empty lines, with their numbers from 1."""
    lines = enumerate(file.lines(), start=1)
    return ((number, line.strip()) for number, line in lines if line.strip())


def _take_line(file: ForeignFile, found: list[Invocation], number: int, line: str) -> None:
    """Add a line to the last invocation, or begin a new one. Raises FormatError for any other line."""
    row, stated = PERF_TEST_ROW.fullmatch(line), PERF_TEST_STATED.fullmatch(line)
    if row is not None:
        if not found or int(row["index"]) == 0:
            found.append(Invocation(model=row["model"]))
        last = found[-1]
        if int(row["index"]) < last.calls or row["model"] != last.model:
            file.refuse(f"line {number}: expected call {last.calls} of {last.model}, found {shortened(line)}")
        if (index := int(row["index"])) > last.calls:
            file.leave_out(f"line {number}", f"expected call {last.calls} of {last.model}, found {shortened(line)}")
        last.calls = index + 1
        seconds = _number(file, number, row["total"] or row["seconds"])
        if row["total"] is not None:
            last.submission.append(_number(file, number, row["seconds"]))
        last.seconds.append(seconds)
        last.peak_bytes, last.cpu_percent = float(row["bytes"]), float(row["cpu"])
    elif stated is not None and found:
        found[-1].stated_ms[LATENCIES[stated["label"]]] = _number(file, number, stated["value"]) * MS_PER_S
    else:
        file.refuse(f"line {number}: expected model,seconds,bytes,percent,call or a statistic, found {shortened(line)}")


def _number(file: ForeignFile, line: int, text: str) -> float:
    number = parsed_number(text)
    if isinstance(number, str) or not abs(number) < LARGEST:
        file.refuse(f"line {line}: expected a number, found {shortened(text)}")
    return float(number)


def _doubts(invocations: int) -> tuple[Doubt, ...]:
    if invocations < 2:
        return (BATCH_NOT_STATED,)
    return BATCH_NOT_STATED, doubt("options_may_differ", "info", invocations=invocations)


def _printed_parts(file: ForeignFile) -> list[list[tuple[int, str]]]:
    """The lines of each invocation in a log. An invocation begins with its command, its threads, or a repeated first
    label."""
    found: list[list[tuple[int, str]]] = [[]]
    labels: set[str] = set()
    for number, line in _lines(file):
        label = line.partition(":")[0]
        is_begin = COMMAND.search(line) or THREADS.match(line)
        if (label in FIRST_LABELS and label in labels) or (is_begin and labels & set(FIRST_LABELS)):
            found.append([])
            labels = set()
        labels.add(label)
        found[-1].append((number, line))
    return found


def _printed(file: ForeignFile, index: int, lines: Sequence[tuple[int, str]]) -> ForeignRun:
    """The printed output of one invocation; other lines are kept."""
    metrics: dict[str, float] = {}
    other: list[Json] = []
    calls: int | None = None

    def take(number: int, line: str) -> None:
        nonlocal calls
        stated, printed = PERF_TEST_STATED.fullmatch(line), PRINTED.fullmatch(line)
        if stated is not None:
            metrics[LATENCIES[stated["label"]]] = _number(file, number, stated["value"]) * MS_PER_S
        elif printed is not None and printed["label"] in NUMBERS:
            metric, unit = NUMBERS[printed["label"]]
            metrics[metric] = _number(file, number, printed["value"]) * FACTORS[printed["unit"] or unit]
        elif printed is not None and printed["label"] in COUNTS:
            calls = int(_number(file, number, printed["value"]))
        else:
            other.append(line)

    for _ in understood(file, lines, lambda line: take(*line)):
        pass
    # Of several commands above the numbers what they say alike.
    labelled = (at for at, (_, line) in enumerate(lines) if line.startswith((*FIRST_LABELS, *COUNTS)))
    numbers = next(labelled, len(lines))
    commands = [
        one
        for one in commands_of(PROGRAM, "\n".join(line for _, line in lines[:numbers]))
        if COMMAND.match(one.partition("\n")[0])
    ]
    each = [_given(one) for one in commands]
    given = agreed(each)
    given |= {{"intra": "x", "inter": "y"}[one[1]]: one[2] for line in other if (one := THREADS.match(str(line)))}
    counts = {flag: int(given[flag]) for flag in "cx" if re.fullmatch(r"[1-9]\d{0,5}", given.get(flag, ""))}
    result = foreign_result(
        Point(batch_size=1, concurrency=counts.get("c", 1)),
        stated=metrics,
        iterations=calls,
        warmup_iterations=1,
        doubts=_doubts(1),
        kept={"lines": other},
    )
    is_default = {one.get("e") for one in each} == {None} and "plugin_ep" not in "".join(commands)
    provider = given.get("e") or ("cpu" if is_default else "")
    mode: dict[str, Scalar | None] = {"provider": provider if "e" in given else None}
    mode |= {word: given[flag] for flag, word in VALUED.items() if flag in given}
    mode |= {word: True for flag, word in SWITCHES.items() if flag in given}
    others = {
        flag: value if value and not MODEL_PATH.search(value) else True  # what follows a switch may be the model
        for flag, value in given.items()
        if not (flag in VALUED or flag in SWITCHES or NO_SETTING.fullmatch(flag))
    }
    mode |= Fields(file, others).other_settings()
    return ForeignRun(
        key=unnamed(index),
        model_id=given.get("model") or unnamed(index if commands else 0),
        runtime="onnxruntime",
        device_type=OF_PROVIDER.get(provider, "unknown"),
        num_threads=counts.get("x"),
        runtime_mode=mode,
        command=(PROGRAM, *words_of(commands[0])[1:]) if len(commands) == 1 else (),
        results=[result],
    )


def _given(command: str) -> dict[str, str]:
    """The flags of a command, and the name of its model."""
    given: dict[str, str] = {}
    for flag, value in FLAG.findall(command):
        stated = value.strip("\"'")
        given[flag] = f"{given[flag]} {stated}" if flag in given and flag in "fF" else stated  # one dimension each
    words = words_of(command)
    # What follows an unknown flag may be its value, or the model after a switch.
    found = [
        (before.startswith("-"), path)
        for before, word in pairwise(words)
        if before.lstrip("-") not in WITH_VALUE and not word.startswith("-") and (path := MODEL_PATH.search(word))
    ]
    path = min(found, key=itemgetter(0), default=(False, None))[1]
    return given | ({"model": (path[1] if path[2] == "model" else None) or path[2]} if path else {})


Mean = tuple[str, str, float | None]
Cell = tuple[str, str, str, str, str]
"""Model, precision, execution provider, package and its version; precision and version may be empty."""


def is_genai(file: ForeignFile) -> bool:
    if file.json is None:
        return bool(csv_header(file, IS_HEADER) or csv_header(file, IS_FIRST_HEADER)) or _is_transposed(file)
    parts = ("config", "metadata", "metrics")
    return isinstance(file.json, list) and any(
        isinstance(record, dict)
        and "trigger_date" in record
        and all(isinstance(record.get(name), dict) or (name == "metadata" and name in record) for name in parts)
        and record["config"].get("backend") == BACKEND
        and OWN in record["metrics"]
        for record in file.json
    )


def read_genai(file: ForeignFile) -> Iterator[ForeignRun]:
    if file.json is None:
        file.give_way_to(file.called.with_suffix(".json"), is_genai)
        if csv_header(file, IS_HEADER):
            entries = csv_rows(file, IS_HEADER)
        else:
            entries = _columns(file) if _is_transposed(file) else csv_rows(file, IS_FIRST_HEADER)
    elif isinstance(file.json, list):
        entries = json_objects(file, file.json, "record")
    else:
        file.refuse("not a list of records, or truncated")
    records = understood(file, map(_nested, entries) if file.json is None else entries, _record)
    for index, (cell, own) in enumerate(grouped(records).items()):
        model_id, word, provider, package, version = cell
        stated = [record.text("trigger_date") for record, _ in own]
        times = [time for one, _ in own if (time := one.time_like("trigger_date", DATE, "2026-03-01 12:00:00"))]
        precision = precision_of(word)
        mode: dict[str, Scalar] = {"execution_provider": provider}
        if precision == "other":
            mode["precision"] = word
        yield ForeignRun(
            key=str(index),
            model_id=model_id,
            task="text-generation",
            results=[result for _, result in own],
            started_at=min(times, default=None),
            stated_times=stated,
            device_type=provider.lower() if provider.lower() in DEVICES else "unknown",
            runtime=BACKEND,
            runtime_mode=mode,
            precision=precision,
            versions={package: version},
            kept={"records": [record.rest() for record, _ in own]},
        )


def _is_transposed(file: ForeignFile) -> bool:
    return {line.partition(",")[0] for line in file.head.splitlines()} >= set(FIRST_VERSIONS)


def _columns(file: ForeignFile) -> Iterator[Fields]:
    """The records of a file with a line for each quantity: its title, and its value in each record. Where the titles
    begin again, another file was joined."""
    tables: list[dict[str, list[str]]] = [{}]
    for _, (title, *values) in csv_lines(file):
        if title in tables[-1]:
            tables.append({})
        tables[-1][title] = values
    for number, table in enumerate(tables, 1):
        place = f"table {number}, column" if len(tables) > 1 else "column"
        for column in range(max(map(len, table.values()), default=0)):
            record = {title: values[column] or None for title, values in table.items() if column < len(values)}
            yield Fields(file, record, f"{place} {column + 2}", numbers_are_text=True)


def _nested(row: Fields) -> Fields:
    """A row of the CSV as a record of the JSON. Its columns are paths, in the first versions titles: "Token Generation
    Latency (ms)" is metrics.token_generation_latency_ms."""
    record: dict[str, Any] = {}
    has_titles = "config.backend" not in set(row)
    for name in row:
        path = name.split(".")
        if has_titles:
            word = re.sub(r"\W+", "_", name.lower()).strip("_").replace("_gib", "_gb")
            path = ["config" if word in SIZES else "metrics", word]
        put_at(record, path, row.peek(name), row)
    return Fields(row.file, record, row.path, numbers_are_text=True)


def _record(fields: Fields) -> tuple[Cell, tuple[Fields, Result]]:
    config, metadata = fields.section("config"), fields.section("metadata")
    model, precision = config.section("model_info").text("full_name"), config.text("precision")
    provider, package = metadata.text("device") or "unknown", metadata.text("package_name") or BACKEND
    values = fields.section("metrics")
    prompt, new = config.count("prompt_length"), config.count("tokens_generated")
    length, total = config.count("max_length"), values.number("wall_clock_throughput_tps", low=0)
    batch = config.count("batch_size") or 1
    metrics: dict[str, float | None] = {**values.metrics(GENAI_METRICS, low=0)}
    took_ms, speed = map(metrics.get, ("prompt_processing_mean_ms", "prefill_tokens_per_sec"))
    if prompt and took_ms and speed and math.isclose(speed * took_ms / MS_PER_S, batch, rel_tol=SAME_RATE):
        metrics["prompt_processing_mean_ms"] = took_ms * prompt
    missing = {}
    if prompt is not None and new is not None and length == prompt + new:
        metrics["total_tokens_per_sec"] = total
    elif total is not None:
        missing["total_tokens_per_sec"] = COUNTS_THE_BUFFER
    result = foreign_result(
        Point(batch_size=batch, sequence_length=prompt, new_tokens=new),
        metrics=metrics,
        missing=missing,
        kept={"max_length": length, "wall_clock_throughput_tps": total} if missing else {},
    )
    cell = (model or UNNAMED, precision or "", provider, package, metadata.text("package_version") or "")
    return cell, (fields, result)


def _is_summary_header(cells: list[str]) -> bool:
    return {"engine", "version", "model_name", "inputs"} <= set(cells) and any(CELL.fullmatch(cell) for cell in cells)


def read_transformers(file: ForeignFile) -> Iterator[ForeignRun]:
    if csv_header(file, IS_DETAIL):
        yield from understood(file, csv_rows(file, IS_DETAIL), _of_detail)
        return
    if not csv_header(file, _is_summary_header):
        file.without_results("fusion statistics of benchmark.py: numbers of operators, no times")
    # What details in the folder state is theirs: they have its time, too.
    detailed = each_beside(file, called_like(file, "*detail*.csv"), _means_in)
    found = False
    for run in understood(file, csv_rows(file, _is_summary_header, ends_early=True), _of_summary):
        if own := [result for result in run.results if _mean_of(run, result) not in detailed]:
            found = True
            yield replace(run, results=own)
    if not found and not file.left_out:
        file.without_results("all its numbers are in the details beside it")


def _means_in(details: ForeignFile) -> frozenset[Mean]:
    """The means that a file of details states; none of another file."""
    rows = csv_rows(details, IS_DETAIL) if csv_header(details, IS_DETAIL) else ()
    return frozenset(_mean_of(run, run.results[0]) for run in understood(details, rows, _of_detail))


def _mean_of(run: ForeignRun, result: Result) -> Mean:
    """A mean latency with its setup and sizes, by which it is known in the summary and in the details."""
    return repr(replace(run, **OF_ROW)), result.point.label, result.metrics.get("latency_mean_ms")


def _of_detail(row: Fields) -> ForeignRun:
    setup = _setup(row)
    point = Point(batch_size=row.required(row.count, "batch_size"), sequence_length=row.count("sequence_length"))
    result = foreign_result(
        point,
        stated=row.metrics(TRANSFORMERS_METRICS, low=0),
        iterations=row.integer("test_times"),
    )
    time = row.text("datetime")
    return ForeignRun(
        key=row.path, results=[result], started_at=row.time("datetime"), stated_times=(time,), kept=row.rest(), **setup
    )


def _of_summary(row: Fields) -> ForeignRun:
    results: list[Result] = []
    for name in row:
        size = CELL.fullmatch(name)
        if size is None or (latency := row.number(name, low=0)) is None:
            continue
        point = Point(batch_size=int(size[1]), sequence_length=int(size[2]) if size[2] else None)
        results.append(foreign_result(point, metrics={"latency_mean_ms": latency}))
    if not results:
        row.file.refuse(f"{row.path}: no latency")
    return ForeignRun(key=row.path, results=results, kept=row.rest(), **_setup(row))


def _setup(row: Fields) -> Mapping[str, Any]:
    half = HALF.get(row.text("fp16") or "", "")
    engine, word = row.text("engine") or "", (row.text("precision") or half).rpartition(".")[2]
    precision = precision_of(word or None)
    mode = row.settings(MODE, PLAIN)
    if precision == "other":
        mode["precision"] = word
    device = (row.text("device") or "unknown").lower()
    provider = str(mode.get("providers", "")).lower()
    return {
        "model_id": row.text("model_name") or UNNAMED,
        "task": "benchmark",
        "runtime": RUNTIMES.get(engine, engine or "unknown"),
        "runtime_mode": mode,
        "precision": precision,
        "num_threads": row.count("threads") if row.peek("threads") not in ("-1", "0") else None,
        "device_type": next((kind for name, kind in PROVIDERS.items() if name in provider), "cuda")
        if device in ("gpu", "cuda")
        else device,
        "versions": {engine: row.text("version")} if engine else {},
    }


PERF_TEST = Format(
    name="onnxruntime_perf_test",
    summary="onnxruntime_perf_test: its result file, or what it prints",
    definitions=PERF_TEST_DEFINITIONS,
    recognises=lambda file: file.json is None and (_is_table(file) or _is_printed(file)),
    read=read_perf_test,
)
GENAI = Format(
    name="onnxruntime_genai_benchmark",
    summary="onnxruntime-genai's benchmark_e2e.py: --output (csv, and the json beside it)",
    definitions=GENAI_DEFINITIONS,
    recognises=is_genai,
    read=read_genai,
)
TRANSFORMERS = Format(
    name="onnxruntime_transformers_benchmark",
    summary="onnxruntime's transformers/benchmark.py: detail and summary (csv)",
    definitions=TRANSFORMERS_DEFINITIONS,
    recognises=lambda file: (
        file.json is None and any(csv_header(file, fits) for fits in (IS_DETAIL, _is_summary_header, IS_FUSION))
    ),
    read=read_transformers,
)

PLUGINS = (PERF_TEST, GENAI, TRANSFORMERS)
