"""pyperf's JSON: each of its processes is a launch, with warm-ups and values.

A value is the mean time of `loops` x `inner_loops` calls. The processes in which pyperf calibrates the number of loops
are kept but not counted. Its times have no time zone.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import Any

from benchmarking.core.metrics import BYTES_PER_MB, bytes_to_mb
from benchmarking.core.records import NOT_APPLICABLE, Json, Point, Result, Samples, to_json
from db.importers.support.building import ForeignRun, Format, iso
from db.importers.support.files import ForeignFile
from db.importers.support.measures import block, foreign_result, in_ms, measured, median_of
from db.importers.support.names import arguments_of, is_argument, named_arguments
from db.importers.support.reading import Fields, mostly, shifted, shortened, top_fields, understood

FORMAT_VERSION = "1.0"
UNTIMED = {"byte": ("memory_peak_mb", "MB", 1 / BYTES_PER_MB), "integer": ("value", "1", 1.0)}
"""Unit of a benchmark that measures something else than time -> metric, its unit and the factor to it."""
DEFINITIONS = {
    "latency_wall": "time of a block of calls over loops x inner_loops, by pyperf's timer",
    "process_peak_rss_mb": "mem_max_rss, or of a command its command_max_rss: median over the processes",
    "memory_peak_mb": "the values of --track-memory or --tracemalloc: median over the processes",
    "value": "the values of a benchmark whose unit is a number: median over the processes",
}


@dataclass(frozen=True, kw_only=True)
class Process:
    """One entry of a benchmark's "runs"."""

    values: Sequence[float]
    """Seconds per call (or bytes, or numbers: the benchmark's unit), each from a block of calls."""
    loops: int
    """Loops behind each value."""
    inner_loops: int
    warmups: tuple[tuple[int, float], ...]
    """Loops and value of each."""
    date: datetime | None
    stated_date: str | None
    duration_s: float
    peak_rss_bytes: float | None
    kept: Mapping[str, Json]


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if not isinstance(data, dict) or "version" not in data or not isinstance(data.get("benchmarks"), list):
        return False
    benchmarks = data["benchmarks"]
    return not benchmarks or mostly(benchmarks, lambda one: isinstance(one, dict) and "runs" in one)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    top = top_fields(file)
    version = top.required(top.text, "version")
    if version != FORMAT_VERSION:
        top.refuse("version", f"expected {FORMAT_VERSION}, found {shortened(version)}")
    shared = top.section("metadata")
    benchmarks = enumerate(top.required(top.objects, "benchmarks"))
    yield from understood(file, benchmarks, lambda one: _run(one[1], one[0], shared))


def _run(benchmark: Fields, index: int, shared: Fields) -> ForeignRun:
    # Metadata of all processes of a benchmark: its own, then the suite's.
    of_benchmark = benchmark.section("metadata")
    both = {name: fields.any(name) for fields in (shared, of_benchmark) for name in fields}
    metadata = Fields(benchmark.file, both, benchmark.place("metadata"))
    file, name = benchmark.file, metadata.required(metadata.text, "name")
    runs = benchmark.required(benchmark.objects, "runs")
    processes = list(understood(file, runs, lambda one: _process(one, metadata)))
    if not any(process.values for process in processes):
        benchmark.refuse("runs", "no process has measured values")
    dated = [
        (process.date, shifted(file, process.date, process.duration_s))
        for process in processes
        if process.date is not None
    ]
    cpu = metadata.text("cpu_model_name")
    # The arguments in the benchmark's name, and those that its author wrote into the metadata.
    base, found = named_arguments(name)
    for field in metadata:
        if is_argument(field):
            value = metadata.any(field)
            found[field] = value if isinstance(value, int | float | str) else str(value)
    arguments = arguments_of(base, found)
    return ForeignRun(
        key=f"{index} {name}",
        runtime_mode=arguments.mode,
        results=[_result(metadata, processes, arguments.point)],
        started_at=min((start for start, _ in dated), default=None),
        finished_at=max((end for _, end in dated), default=None),
        stated_times=[process.stated_date for process in processes],
        device_name=cpu,
        cpu_model=cpu,
        cpu_threads=metadata.count("cpu_count"),
        host=metadata.text("hostname"),
        runtime=metadata.text("python_implementation") or "unknown",
        tool_version=metadata.text("perf_version"),
        command=(metadata.text("command"),),
        versions={"python": metadata.text("python_version"), "platform": metadata.text("platform")},
        kept={**metadata.rest(), **benchmark.rest()},
        **{"device_type": "cpu", **arguments.setup},
    )


def _process(entry: Fields, metadata: Fields) -> Process:
    own = entry.section("metadata")
    place = entry.place("warmups")
    values, pairs = entry.numbers("values") or (), enumerate(entry.items("warmups"))
    warmups = tuple(understood(entry.file, pairs, lambda one: _warmup(entry, *one, place)))
    loops, inner_loops = (own.count(name) or metadata.count(name) or 1 for name in ("loops", "inner_loops"))
    rss = [own.number(name, low=0) for name in ("mem_max_rss", "command_max_rss")]
    duration_s, date = own.number("duration", low=0), own.time("date")
    return Process(
        values=values,
        loops=loops,
        inner_loops=inner_loops,
        warmups=warmups,
        date=date,
        stated_date=own.text("date"),
        duration_s=duration_s or 0.0,
        peak_rss_bytes=next((value for value in rss if value is not None), None),
        kept=entry.rest(),
    )


def _warmup(entry: Fields, index: int, pair: Any, place: str) -> tuple[int, float]:
    if not isinstance(pair, list) or len(pair) != 2:
        entry.file.refuse(f"{place}[{index}]: expected [loops, value], found {shortened(pair)}")
    fields = Fields(entry.file, dict(zip(("loops", "value"), pair, strict=True)), f"{place}[{index}]")
    return fields.required(fields.count, "loops"), fields.required(fields.number, "value")


def _result(metadata: Fields, processes: Sequence[Process], point: Point) -> Result:
    measuring = [process for process in processes if process.values]
    finding_loops = [{"warmups": process.warmups, **process.kept} for process in processes if not process.values]
    rss = [process.peak_rss_bytes for process in measuring if process.peak_rss_bytes is not None]
    metrics = {"process_peak_rss_mb": bytes_to_mb(median(rss))} if rss else {}
    shared: dict[str, Any] = {
        "warmup_iterations": sum(loops * process.inner_loops for process in measuring for loops, _ in process.warmups),
        "kept": {"processes": [dict(process.kept) for process in measuring], "finding_loops": to_json(finding_loops)},
    }
    unit = metadata.text("unit") or "second"
    if unit == "second":
        # The warm-ups and values of each process in ms. Warm-ups with different numbers of loops get the smallest one.
        samples: list[Samples] = []
        for launch, process in enumerate(measuring):
            inner, started_at = process.inner_loops, _started(process)
            if process.warmups:
                loops = inner * min(loops for loops, _ in process.warmups)
                values_ms = in_ms(value for _, value in process.warmups)
                warmups = block(launch, values_ms, phase="warmup", inner_loops=loops)
                samples.append(replace(warmups, started_at=started_at))
            values = block(launch, in_ms(process.values), inner_loops=process.loops * inner)
            samples.append(replace(values, started_at=started_at))
        return foreign_result(point, samples=samples, metrics=metrics, **shared)
    if unit not in UNTIMED:
        metadata.refuse("unit", f"expected second, {', '.join(UNTIMED)}, found {shortened(unit)}")
    metric, sample_unit, scale = UNTIMED[unit]
    untimed = [
        measured(
            metric,
            array("d", (value * scale for value in one.values)),
            unit=sample_unit,
            launch=launch,
            started_at=_started(one),
        )
        for launch, one in enumerate(measuring)
    ]
    return foreign_result(
        point,
        metrics={**metrics, metric: median(median_of(one.values) for one in untimed)},
        samples=untimed,
        iterations=sum(len(one.values) for one in untimed),
        launches=len(measuring),
        missing={"latency_median_ms": f"{NOT_APPLICABLE}: the benchmark's unit is {unit}"},
        **shared,
    )


def _started(process: Process) -> str:
    """The start of a process's samples; empty if it is the start of the run."""
    return "" if process.date is None else iso(process.date)


PLUGIN = Format(
    name="pyperf",
    summary="pyperf: a benchmark or a suite of them (json)",
    definition="pyperf",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
