"""onnxruntime_perf_test: its result file, to which each invocation appends, or its printed output.

The file has no date, device or batch size, and names the model by its folder. Each invocation is a fresh process and
becomes a launch. Its warm-up is one call, whose time only the printed output contains.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarking.core.metrics import MS_PER_S, bytes_to_mb
from benchmarking.core.records import Doubt, Json, Point
from db.importers.support.building import UNNAMED, ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import BATCH_NOT_STATED, block, foreign_result, in_ms, measured
from db.importers.support.reading import LARGEST, parsed_number, shortened, understood

ROW = re.compile(
    r"(?P<model>.*?),(?P<seconds>[-+.\deE]+),(?:(?P<total>[-+.\deE]+),)?(?P<bytes>\d{1,18}),(?P<cpu>-?\d{1,9}),"
    r"(?P<index>\d{1,9})",
    re.ASCII,
)
STATED = re.compile(
    r"(?P<label>Min|Max|P50|P90|P95|P99|P999) Latency(?: is |: )(?P<value>[-+.\deE]+) ?s(ec)?", re.ASCII
)
PRINTED = re.compile(r"(?P<label>[A-Z][A-Za-z ]+): ?(?P<value>[-+.\deE]+) ?(?P<unit>ms|s|%|bytes)?")
LATENCIES = {
    "Min": "latency_min_ms",
    "Max": "latency_max_ms",
    "P50": "latency_median_ms",
    "P90": "latency_p90_ms",
    "P95": "latency_p95_ms",
    "P99": "latency_p99_ms",
    "P999": "latency_p999_ms",
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
COMMAND = re.compile(r"(?:^|[\s/\\>$#%])onnxruntime_perf_test(?:\.exe)?\s+(?P<arguments>-.*)")
"""The command line in a log, with which an invocation begins."""
PROVIDER = re.compile(r"-e (\w+)")
MODEL_PATH = re.compile(r"(?:([^\s/\\]+)[/\\])?([^\s/\\]+)\.(?:onnx|ort)\b")
MAX_HEAD = 200
"""Lines by which a file is recognized."""
FIRST_LABELS = ("Session creation time cost", "Total inference time cost", "Total time cost")
"""Labels of the first line of numbers of an invocation."""
PRINTED_LABELS = (*COUNTS, "Total inference time cost", "Total time cost")
"""Every version prints one of these labels."""
DEFINITIONS = {
    "model_id": "name of the folder that the model's file is in",
    "latency_wall": "time of a call of session.Run; with -c several calls are in flight, which the file does not say",
    "percentiles": "those it states are nearest ranks",
    "process_peak_working_set_mb": "peak working set of the process at the end",
    "cpu_usage_percent": "share of all logical processors that the process kept busy",
    "first_call_ms": "the call before the measured ones, in whole ms",
    "inferences_per_sec": "calls over the time of all of them together",
    "submission": "time to submit a call to the device, which newer versions write before the time of the whole call",
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


def recognises(file: ForeignFile) -> bool:
    return file.json is None and (_is_table(file) or _is_printed(file))


def _is_table(file: ForeignFile) -> bool:
    """Whether most lines are calls or statistics, beginning with call 0 or, if that line is damaged, call 1."""
    head = [line.strip() for line in file.head.splitlines()[:MAX_HEAD] if line.strip()]
    rows = [found for line in head if (found := ROW.fullmatch(line))]
    known = len(rows) + sum(bool(STATED.fullmatch(line)) for line in head)
    return bool(rows) and int(rows[0]["index"]) <= 1 and 2 * known >= len(head)


def _is_printed(file: ForeignFile) -> bool:
    return any(line.startswith(PRINTED_LABELS) and PRINTED.fullmatch(line) for _, line in _lines(file))


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if not _is_table(file):
        if not _is_printed(file):
            file.refuse("the file is empty, or not text")
        runs = ((own, f"{UNNAMED} {index}" if index else UNNAMED) for index, own in enumerate(_printed_parts(file)))
        yield from understood(file, runs, lambda one: _printed(file, *one))
        return
    lines = _lines(file)
    invocations: list[Invocation] = []
    for _ in understood(file, lines, lambda line: _take_line(file, invocations, *line)):
        pass
    for model in dict.fromkeys(invocation.model for invocation in invocations):
        own_ones = [invocation for invocation in invocations if invocation.model == model and invocation.seconds]
        if own_ones:
            samples = [
                one
                for launch, each in enumerate(own_ones)
                for one in (
                    block(launch, in_ms(each.seconds)),
                    measured("submission", in_ms(each.submission), launch=launch),
                )
                if one.values
            ]
            kept: list[Json] = [dict(invocation.stated_ms) for invocation in own_ones if invocation.stated_ms]
            result = foreign_result(
                Point(batch_size=1),
                samples=samples,
                metrics={
                    "process_peak_working_set_mb": bytes_to_mb(
                        median(invocation.peak_bytes for invocation in own_ones)
                    ),
                    "cpu_usage_percent": median(invocation.cpu_percent for invocation in own_ones),
                },
                doubts=_doubts(len(own_ones)),
                warmup_iterations=len(own_ones),
                kept={"stated": kept} if kept else {},
            )
            yield ForeignRun(key=model, model_id=model or UNNAMED, runtime="onnxruntime", results=[result])


def _lines(file: ForeignFile) -> Iterator[tuple[int, str]]:
    """The non-empty lines, with their numbers from 1."""
    lines = enumerate(file.lines(), start=1)
    return ((number, line.strip()) for number, line in lines if line.strip())


def _take_line(file: ForeignFile, found: list[Invocation], number: int, line: str) -> None:
    """Add a line to the last invocation, or begin a new one. Raises FormatError for any other line."""
    row, stated = ROW.fullmatch(line), STATED.fullmatch(line)
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
    return BATCH_NOT_STATED, Doubt(kind="options_may_differ", severity="info", evidence={"invocations": invocations})


def _printed_parts(file: ForeignFile) -> list[list[tuple[int, str]]]:
    """The lines of each invocation in a log. An invocation begins with its command, or with a repeated first label."""
    found: list[list[tuple[int, str]]] = [[]]
    labels: set[str] = set()
    for number, line in _lines(file):
        label = line.partition(":")[0]
        if (label in FIRST_LABELS and label in labels) or (COMMAND.search(line) and labels & set(FIRST_LABELS)):
            found.append([])
            labels = set()
        labels.add(label)
        found[-1].append((number, line))
    return found


def _printed(file: ForeignFile, lines: Sequence[tuple[int, str]], key: str) -> ForeignRun:
    """The printed output of one invocation; other lines are kept."""
    metrics: dict[str, float] = {}
    other: list[Json] = []
    calls: int | None = None
    command = next((found["arguments"] for _, line in lines if (found := COMMAND.search(line))), "")

    def take(number: int, line: str) -> None:
        nonlocal calls
        stated, printed = STATED.fullmatch(line), PRINTED.fullmatch(line)
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
    result = foreign_result(
        Point(batch_size=1),
        metrics={},
        stated=metrics,
        iterations=calls,
        warmup_iterations=1,
        doubts=_doubts(1),
        kept={"lines": other},
    )
    path, provider = MODEL_PATH.search(command), PROVIDER.search(command)
    named = (path[1] if path[2] == "model" else None) or path[2] if path else None
    return ForeignRun(
        key=key,
        model_id=named or "unknown",
        runtime="onnxruntime",
        runtime_mode={"provider": provider[1]} if provider else {},
        command=("onnxruntime_perf_test", *command.split()) if command else (),
        results=[result],
    )


PLUGIN = Format(
    name="onnxruntime_perf_test",
    summary="onnxruntime_perf_test: its result file, or what it prints",
    definition="onnxruntime-perf-test",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
