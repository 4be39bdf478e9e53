"""TensorRT's trtexec: its log, and the times of every query (--exportTimes).

A query is one call of the engine. Its latency covers the copy to the device, the computation and the copy back, without
waiting for other queries; all times are in ms. The log contains whole runs, one per command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from benchmarking.core.metrics import BYTES_PER_MIB
from benchmarking.core.records import NOT_APPLICABLE, Json, Point, Result, Samples
from db.importers.support.building import ForeignRun, Format, precision_of
from db.importers.support.files import ForeignFile
from db.importers.support.measures import BATCH_NOT_STATED, foreign_result, measured
from db.importers.support.reading import Fields, mostly

COMMAND = re.compile(r"^&&&& RUNNING TensorRT\.trtexec(?: \[TensorRT v(\d+)\])?.*? # (.*)$", re.MULTILINE)
SUMMARY = "=== Performance summary ==="
SECTION = re.compile(r"^\[[^\]]*\] \[I\] (Host Latency|GPU Compute|Enqueue Time)\s*$", re.MULTILINE)
"""Title of a section of TensorRT 7's log, whose statistics are one to a line."""
SECTIONS = {"Host Latency": "latency", "GPU Compute": "gpu_compute", "Enqueue Time": "enqueue"}
OF_SECTION = re.compile(
    r"\] \[I\] (?:(min|max|mean|median): ([-+.\deE]+) ms|percentile: ([-+.\deE]+) ms at (\d+(?:\.\d+)?)%)"
    r"(?: \(end to end ([-+.\deE]+) ms(?: at [\d.]+%)?\))?"
)
OF_TOTALS = {
    "throughput": re.compile(r"\] throughput: ([-+.\deE]+) qps"),
    "wall": re.compile(r"\] walltime: ([-+.\deE]+) s"),
}
TIME = re.compile(r"\[(\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\]")
STAGES = {
    "Latency": "latency",
    "End-to-End Host Latency": "end_to_end",
    "Enqueue Time": "enqueue",
    "H2D Latency": "h2d",
    "GPU Compute Time": "gpu_compute",
    "D2H Latency": "d2h",
}
LINE = re.compile(rf"\] ({'|'.join(STAGES)}): (min = .*)$", re.MULTILINE)
VALUE = re.compile(r"(min|max|mean|median|percentile\((\d+(?:\.\d+)?)%\)) = ([-+.\deE]+) ms")
THROUGHPUT = re.compile(r"\] Throughput: ([-+.\deE]+) qps")
WALL = re.compile(r"\] Total Host Walltime: ([-+.\deE]+) s")
QUERIES = re.compile(r"Timing trace has (\d{1,15}) queries")
WARM_UP = re.compile(r"Warmup completed (\d{1,15}) queries")
STATED = {
    "model": re.compile(r"\] Model: (\S.*?)\s*$", re.MULTILINE),
    "device": re.compile(r"\] Selected Device: (.+?)\s*$", re.MULTILINE),
    "memory_mib": re.compile(r"\] Device Global Memory: (\d{1,9}) MiB"),
    "precision": re.compile(r"\] Precision: (.+?)\s*$", re.MULTILINE),
    "version": re.compile(r"\] TensorRT version: (\S+)"),
    "implicit_batch": re.compile(r"\] Batch: (\d{1,9})\s*$", re.MULTILINE),
    "streams": re.compile(r"\] (?:Inference )?Streams: (\d{1,9})\s*$", re.MULTILINE),
}
SHAPE = re.compile(r"(?:--(?:shapes|optShapes)=|Input inference shapes?\s*: ?)\S*?[:=](\d{1,9})x")
FILE = re.compile(r"--(?:onnx|loadEngine|uff|model)=(\S+)")
DEFAULT_WARM_UP_MS = 200.0
FIELDS = {"latencyMs": "latency_wall", "computeMs": "latency_device", "h2dMs": "h2d", "d2hMs": "d2h"}
"""Field of --exportTimes -> metric of its samples; others keep their names."""
DEFINITIONS = {
    "latency": "H2D + GPU compute + D2H of a query, by the device's events; percentiles are nearest ranks",
    "latency_device": "GPU compute time of a query",
    "end_to_end": "from the start of a query's H2D to the end of its D2H, waiting included",
    "enqueue": "host time to enqueue a query",
    "queries_per_sec": "queries over the wall time of all of them; with an implicit batch samples over it",
    "throughput_samples_per_sec": "queries_per_sec times the batch size of a query's shapes",
    "warm-up": f"in --exportTimes, queries whose computation began in the first {DEFAULT_WARM_UP_MS:g} ms, the default",
}


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if data is None:
        text = file.text or ""
        has_numbers = (SUMMARY in text and LINE.search(text)) or (SECTION.search(text) and OF_SECTION.search(text))
        return bool(has_numbers or COMMAND.search(text))
    rows = data if isinstance(data, list) else []
    return mostly(rows, lambda one: isinstance(one, dict) and {"computeMs", "latencyMs"} <= one.keys())


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if file.json is not None:
        queries = Fields(file, {"queries": file.json}).objects("queries") or ()
        # Only files of older versions contain the warm-up.
        begins = [query.number("startComputeMs") for query in queries]
        warm = sum(begin is not None and begin < DEFAULT_WARM_UP_MS for begin in begins)
        warm = warm if warm < len(queries) else 0
        columns = {
            name: [query.number(name) for query in queries] for name in dict.fromkeys(n for q in queries for n in q)
        }
        samples: list[Samples] = []
        for name, column in columns.items():
            values = [value for value in column if value is not None]
            if not values:
                continue
            metric = FIELDS.get(name, name)
            samples += [measured(metric, values[:warm], phase="warmup")] if warm else []
            samples.append(measured(metric, values[warm:]))
        result = foreign_result(
            Point(batch_size=1), metrics={}, samples=samples, warmup_iterations=warm, doubts=(BATCH_NOT_STATED,)
        )
        yield ForeignRun(model_id="unknown", runtime="tensorrt", device_type="cuda", results=[result])
        return
    text = file.text or ""
    starts = [found.start() for found in COMMAND.finditer(text)] or _starts(text)
    for index, (start, end) in enumerate(zip(starts, [*starts[1:], len(text)], strict=True)):
        part = text[start:end]
        found = {name: match[1] if (match := pattern.search(part)) else None for name, pattern in STATED.items()}
        command, times = COMMAND.search(part), TIME.findall(part)
        words = command[2] if command else ""
        path = FILE.search(words)
        name = re.split(r"[/\\]", found["model"] or (path[1] if path else ""))[-1]
        is_loaded = "--loadEngine" in words  # then the stated precision does not describe a build
        precision = None if is_loaded else found["precision"]
        mode = {"precisions": precision, "streams": found["streams"] if found["streams"] != "1" else None}
        memory = found["memory_mib"]
        yield ForeignRun(
            key=str(index),
            model_id=name.rpartition(".")[0] or name or "unknown",
            results=[_of_summary(file, part, found["implicit_batch"])],
            started_at=_time(times[0]) if times else None,
            finished_at=_time(times[-1]) if times else None,
            stated_times=[time.isoformat() for one in times[:1] if (time := _time(one))],
            runtime="tensorrt",
            runtime_mode={word: value for word, value in mode.items() if value},
            precision=precision_of(precision),  # several words are a choice, which the builder makes for each layer
            device_type="cuda",
            device_name=found["device"],
            device_memory_bytes=int(memory) * BYTES_PER_MIB if memory else None,
            tool_version=found["version"] or (command[1] if command else None),
            versions={"tensorrt": found["version"]},
            command=words.split(),
        )


def _starts(text: str) -> list[int]:
    """Where each run begins in a log that was cut out without its commands."""
    for title in ("=== Model Options ===", SUMMARY):
        starts = [found.start() for found in re.finditer(rf"^.*{title}", text, re.MULTILINE)]
        if len(starts) >= text.count(SUMMARY):
            return [0, *starts[1:]]
    return [0]


def _time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%m/%d/%Y-%H:%M:%S")
    except ValueError:
        return None


def _of_summary(file: ForeignFile, text: str, implicit_batch: str | None) -> Result:
    shape = SHAPE.search(text)
    batch = int(implicit_batch or (shape[1] if shape else 0))
    point = Point(batch_size=batch or 1)
    stated: dict[str, float | None] = {}
    titles = list(SECTION.finditer(text))  # of a log of TensorRT 7; newer ones have none
    for title, following in zip(titles, [*(match.start() for match in titles[1:]), len(text)], strict=False):
        for statistic, value, at_percentile, percentile, end_to_end in OF_SECTION.findall(text, title.end(), following):
            word = statistic or f"p{percentile}".replace(".", "_")
            stated[f"{SECTIONS[title[1]]}_{word}_ms"] = _number(file, value or at_percentile)
            if end_to_end:
                stated[f"end_to_end_{word}_ms"] = _number(file, end_to_end)
    if SUMMARY not in text and not stated:
        error = re.search(r"\[E\] (.+)", text)
        failure = (
            error[1].strip()[:2000] if error else "the log has no performance summary: inference did not run to its end"
        )
        return foreign_result(point, metrics={}, status="failed", error=failure)
    for stage, line in LINE.findall(text):
        for statistic, percentile, value in VALUE.findall(line):
            column = f"{STAGES[stage]}_{f'p{percentile}'.replace('.', '_') if percentile else statistic}_ms"
            stated[column] = _number(file, value)
    queries, warm_up = QUERIES.search(text), WARM_UP.search(text)
    rate = THROUGHPUT.search(text) or OF_TOTALS["throughput"].search(text)
    wall = WALL.search(text) or OF_TOTALS["wall"].search(text)
    per_sec = _number(file, rate[1]) if rate else None
    missing = {}
    if per_sec == 0 and stated.get("latency_mean_ms"):
        per_sec, missing["queries_per_sec"] = None, "left_out: 0 qps in the log, although queries were timed"
    for copy in ("h2d", "d2h"):
        if stated.get(f"{copy}_max_ms") == 0:  # --noDataTransfers
            unmeasured = [name for name in stated if name.startswith(f"{copy}_")]
            missing |= dict.fromkeys(unmeasured, f"{NOT_APPLICABLE}: 0 ms in the log: nothing was copied")
            stated = {name: value for name, value in stated.items() if name not in unmeasured}
    each = int(implicit_batch or 1)
    kept: list[Json] = [line.strip() for line in text.partition(SUMMARY)[2].splitlines() if "[W]" in line]
    return foreign_result(
        point,
        metrics={
            "queries_per_sec": per_sec,
            "throughput_samples_per_sec": per_sec * (batch // each) if per_sec is not None and batch else None,
            "duration_s": _number(file, wall[1]) if wall else None,
        },
        stated=stated,
        iterations=int(queries[1]) // each or None if queries else None,
        warmup_iterations=int(warm_up[1]) // each if warm_up else None,
        doubts=() if batch else (BATCH_NOT_STATED,),
        missing=missing,
        kept={"warnings": kept} if kept else {},
    )


def _number(file: ForeignFile, text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        file.leave_out("", f"expected a number, found {text[:60]!r}")
        return None


PLUGIN = Format(
    name="trtexec",
    summary="TensorRT's trtexec: its log, and --exportTimes (json)",
    definition="trtexec",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
