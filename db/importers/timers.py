"""The files of programs that time functions or commands. Numeric parameters are axes; others make separate runs.

pyperf's JSON: each of its processes is a launch, with warm-ups and values. A value is the mean time of `loops` x
`inner_loops` calls. The processes in which pyperf calibrates the number of loops are kept but not counted. Its times
have no time zone.

pytest-benchmark's JSON (--benchmark-json, --benchmark-save): a run for each test, a result for each of its cases. A
round gives one raw value, the mean time of its iterations in s; without --benchmark-save-data the file has only
statistics.

hyperfine's JSON (--export-json): a run for each command, with one value in s per execution in a fresh process. The file
names neither date nor machine.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import median
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import BYTES_PER_MB, MS_PER_S, bytes_to_mb
from benchmarking.core.records import NOT_APPLICABLE, Json, Point, Result, Samples, to_json
from benchmarking.core.text import grouped
from db.importers.support.building import (
    Arguments,
    ForeignRun,
    Format,
    arguments_of,
    as_argument,
    field_of,
    iso,
    named_arguments,
)
from db.importers.support.files import ForeignFile
from db.importers.support.measures import block, foreign_result, in_ms, measured, median_of
from db.importers.support.reading import (
    Fields,
    has_benchmarks,
    has_keys,
    parsed_number,
    shifted,
    shortened,
    top_fields,
    understood,
)

FORMAT_VERSION = "1.0"
UNTIMED = {"byte": ("memory_peak_mb", "MB", 1 / BYTES_PER_MB), "integer": ("value", "1", 1.0)}
"""Unit of a benchmark that measures something else than time -> metric, its unit and the factor to it."""
PYPERF_DEFINITIONS = {
    "latency_wall": "time of a block of calls over loops x inner_loops, by pyperf's timer",
    "process_peak_rss_mb": "mem_max_rss, or of a command its command_max_rss: median over the processes",
    "memory_peak_mb": "the values of --track-memory or --tracemalloc: median over the processes",
    "value": "the values of a benchmark whose unit is a number: median over the processes",
}

STATED = {
    **{name: (f"latency_{name}_ms", MS_PER_S) for name in ("mean", "median", "min", "max")},
    "stddev": ("latency_std_ms", MS_PER_S),
}
PYTEST_STATED = STATED | {
    "q1": ("latency_p25_ms", MS_PER_S),
    "q3": ("latency_p75_ms", MS_PER_S),
    "iqr": ("latency_iqr_ms", MS_PER_S),
}
"""Statistic in s -> metric, and the factor to ms."""
PYTEST_DEFINITIONS = {
    "latency_wall": "time of a round over its iterations, by the benchmark's timer",
    "calls_per_sec": "ops: 1 / mean",
    "cpu_time_ms": "CPU time of a round over its iterations, by the benchmark's timer: mean over the rounds",
}
UNSERIALIZABLE = re.compile(r"UNSERIALIZABLE\[(.*)\]")
"""How pytest-benchmark writes a parameter that JSON has no type for, such as torch.float16."""
ADDRESS = re.compile(r" at 0x[0-9a-f]+>", re.IGNORECASE)
"""In the text of an object or a function."""
WALL_TIMER = "perf_counter"
CPU_TIMERS = ("process_time", "process_time_ns", "thread_time", "thread_time_ns")

CPU = {"user": ("cpu_user_ms", MS_PER_S), "system": ("cpu_system_ms", MS_PER_S)}
HYPERFINE_DEFINITIONS = {
    "latency_wall": "wall time of a run of the command: start of its process to its end, less the time of an empty "
    "shell where it ran in one",
    "cpu_user_ms": "CPU time of the command in user mode, mean over its runs",
    "cpu_system_ms": "CPU time of the command in the kernel, mean over its runs",
    "process_peak_rss_mb": "memory_usage_byte: highest resident size of a run, median over the runs",
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


def read_pyperf(file: ForeignFile) -> Iterator[ForeignRun]:
    top = top_fields(file)
    version = top.required(top.text, "version")
    if version != FORMAT_VERSION:
        top.refuse("version", f"expected {FORMAT_VERSION}, found {shortened(version)}")
    shared = top.section("metadata")
    benchmarks = enumerate(top.required(top.objects, "benchmarks"))
    yield from understood(file, benchmarks, lambda one: _pyperf_run(one[1], one[0], shared))


def _pyperf_run(benchmark: Fields, index: int, shared: Fields) -> ForeignRun:
    # Metadata of all processes of a benchmark: its own, then the suite's.
    of_benchmark = benchmark.section("metadata")
    both = {name: fields.any(name) for fields in (shared, of_benchmark) for name in fields}
    metadata = Fields(benchmark.file, both, benchmark.place("metadata"))
    file, name = benchmark.file, metadata.required(metadata.text, "name")
    runs = benchmark.required(benchmark.objects, "runs")
    processes = list(understood(file, runs, lambda one: _process(one, metadata)))
    if not any(process.values for process in processes):
        benchmark.refuse("runs", "no process has measured values")
    dated = [(one.date, shifted(file, one.date, one.duration_s)) for one in processes if one.date is not None]
    cpu = metadata.text("cpu_model_name")
    # The arguments in the benchmark's name, and those that its author wrote into the metadata. Without --name, pyperf
    # calls every statement "timeit", and every command "command".
    unnamed = {"timeit": "timeit_stmt", "command": "command"}.get(name)
    stated = metadata.text(unnamed) if unnamed else None
    base, found = (stated, {}) if stated else named_arguments(name)
    if stated and (prepared := metadata.text("timeit_setup")):
        found["setup"] = prepared
    for field in metadata:
        if field_of(field):
            found[field] = as_argument(metadata.any(field))
    arguments = arguments_of(base, found)
    return ForeignRun(
        key=f"{index} {name}",
        runtime_mode=arguments.mode,
        results=[_pyperf_result(metadata, processes, arguments.point)],
        started_at=min((start for start, _ in dated), default=None),
        finished_at=max((end for _, end in dated), default=None),
        stated_times=[process.stated_date for process in processes],
        cpu_model=cpu,
        cpu_threads=metadata.count("cpu_count"),
        host=metadata.text("hostname"),
        runtime=metadata.text("python_implementation") or "unknown",
        tool_version=metadata.text("perf_version"),
        command=(metadata.text("command"),),
        versions={"python": metadata.text("python_version"), "platform": metadata.text("platform")},
        kept={**metadata.rest(), **benchmark.rest()},
        **{"device_type": "cpu", "device_name": cpu, **arguments.setup},
    )


def _process(entry: Fields, metadata: Fields) -> Process:
    def warmup(numbered: tuple[int, Any]) -> tuple[int, float]:
        place, pair = f"{entry.place('warmups')}[{numbered[0]}]", numbered[1]
        if not isinstance(pair, list) or len(pair) != 2:
            entry.file.refuse(f"{place}: expected [loops, value], found {shortened(pair)}")
        fields = Fields(entry.file, dict(zip(("loops", "value"), pair, strict=True)), place)
        return fields.required(fields.count, "loops"), fields.required(fields.number, "value")

    own, values = entry.section("metadata"), entry.numbers("values") or ()
    loops, inner_loops = (own.count(name) or metadata.count(name) or 1 for name in ("loops", "inner_loops"))
    rss = [own.number(name, low=0) for name in ("mem_max_rss", "command_max_rss")]
    return Process(
        values=values,
        loops=loops,
        inner_loops=inner_loops,
        warmups=tuple(understood(entry.file, enumerate(entry.items("warmups")), warmup)),
        date=own.time("date"),
        stated_date=own.text("date"),
        duration_s=own.number("duration", low=0) or 0.0,
        peak_rss_bytes=next((value for value in rss if value is not None), None),
        kept=entry.rest(),
    )


def _pyperf_result(metadata: Fields, processes: Sequence[Process], point: Point) -> Result:
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


def read_pytest_benchmark(file: ForeignFile) -> Iterator[ForeignRun]:
    top = top_fields(file)
    # Fields of the runs about machine, commit and time.
    machine, commit = top.section("machine_info"), top.section("commit_info")
    cpu = machine.section("cpu")
    name = cpu.text("brand_raw") or cpu.text("brand") or machine.text("processor") or None
    shared = {
        "started_at": top.time("datetime"),
        "stated_times": (top.text("datetime"),),
        "tool_version": top.text("version"),
        "runtime": machine.text("python_implementation") or "unknown",
        "versions": {"python": machine.text("python_version")},
        "host": machine.text("node"),
        "device_type": "cpu",
        "device_name": name,
        "cpu_model": name,
        "cpu_threads": cpu.count("count"),
        "git_commit": commit.text("id"),
        "git_branch": commit.text("branch"),
        "git_dirty": commit.flag("dirty"),
        "git_commit_time": commit.time("time"),
        "kept": {name: value for name, value in top.rest().items() if name != "benchmarks"},
    }
    found = understood(file, top.required(top.objects, "benchmarks"), _case)
    for key, cases in grouped((case[0].key, case) for case in found).items():
        first = cases[0][0]
        yield ForeignRun(
            key=key, runtime_mode=first.mode, results=[result for _, result in cases], **{**shared, **first.setup}
        )


def _case(benchmark: Fields) -> tuple[Arguments, Result]:
    name, parameters = benchmark.required(benchmark.text, "fullname"), benchmark.section("params")
    found = {parameter: as_argument(parameters.any(parameter)) for parameter in parameters}
    for parameter, value in found.items():
        if isinstance(value, str) and (quoted := UNSERIALIZABLE.fullmatch(value)):
            found[parameter] = quoted[1]
    base, _, id_in_name = name.partition("[")
    if any(isinstance(value, str) and ADDRESS.search(value) for value in found.values()):
        # An object is another text in each session: what pytest calls it is its name.
        of_all = benchmark.text("param") or id_in_name.removesuffix("]")
        lasting = {name: value for name, value in found.items() if not ADDRESS.search(str(value))}
        found = {**lasting, "param": of_all} if len(found) > 1 else dict.fromkeys(found, of_all)
    arguments = arguments_of(base if found else name, found)
    stats = benchmark.required(benchmark.fields, "stats")
    calls, values = stats.count("iterations") or 1, stats.numbers("data")
    timer = (benchmark.unread_copy().section("options").text("timer") or WALL_TIMER).rpartition(".")[2]
    if timer != WALL_TIMER:
        arguments = replace(arguments, mode={**arguments.mode, "clock": timer})
    is_wall = timer not in CPU_TIMERS
    result = foreign_result(
        arguments.point,
        samples=[replace(block(0, in_ms(values), inner_loops=calls), metric="latency_wall" if is_wall else "cpu_time")],
        metrics=stats.metrics({"ops": "calls_per_sec"} if is_wall else {"mean": ("cpu_time_ms", MS_PER_S)}, low=0),
        stated=stats.metrics(PYTEST_STATED) if is_wall else {},
        iterations=stats.integer("rounds"),
        inner_loops=calls,
        missing={} if is_wall else {"latency_median_ms": f"{NOT_APPLICABLE}: {timer} measures CPU time"},
        kept={**benchmark.rest(), "inner_loops": calls},
    )
    return arguments, result


def is_hyperfine(file: ForeignFile) -> bool:
    results = file.json.get("results") if isinstance(file.json, dict) else None
    return isinstance(results, list) and any(has_keys(one, {"command", "mean", "user", "system"}) for one in results)


def _hyperfine_run(numbered: tuple[int, Fields]) -> ForeignRun:
    index, result = numbered
    command = result.required(result.text, "command")
    parameters = result.section("parameters")
    found = {name: parsed_number(str(parameters.any(name))) for name in parameters}
    if "parameter" in result:  # versions before 1.11 have one, without its name
        found["parameter"] = parsed_number(str(result.any("parameter")))
    arguments = arguments_of(command or "unknown", found)
    seconds, memory = result.numbers("times", low=0), result.numbers("memory_usage_byte", low=0)
    means = result.metrics(CPU)
    # A doubt if the command failed (hyperfine --ignore-failure): it may not have done its work.
    codes = result.items("exit_codes")
    failed = [code for code in codes if code != 0]
    measured = foreign_result(
        arguments.point,
        samples=[block(0, in_ms(seconds))],
        metrics={**means, "process_peak_rss_mb": bytes_to_mb(median_of(memory)) if memory else None},
        stated=result.metrics(STATED),
        doubts=[doubt("command_failed", "invalid", n=len(failed), of=len(codes))] if failed else [],
    )
    return ForeignRun(
        key=f"{index} {command}",
        runtime="native",
        runtime_mode=arguments.mode,
        command=(command,),
        results=[measured],
        kept=result.rest(),
        **{"device_type": "cpu", **arguments.setup},
    )


PYPERF = Format(
    name="pyperf",
    summary="pyperf: a benchmark or a suite of them (json)",
    definitions=PYPERF_DEFINITIONS,
    names_benchmarks=True,
    recognises=lambda file: has_benchmarks(file.json, {"version"}, "runs"),
    read=read_pyperf,
)
PYTEST_BENCHMARK = Format(
    name="pytest_benchmark",
    summary="pytest-benchmark: --benchmark-json, --benchmark-save (json)",
    definitions=PYTEST_DEFINITIONS,
    names_benchmarks=True,
    recognises=lambda file: has_benchmarks(file.json, {"machine_info", "datetime"}, "stats"),
    read=read_pytest_benchmark,
)
HYPERFINE = Format(
    name="hyperfine",
    summary="hyperfine: --export-json",
    definitions=HYPERFINE_DEFINITIONS,
    names_benchmarks=True,
    recognises=is_hyperfine,
    read=lambda file: understood(file, enumerate(top_fields(file).objects("results") or ()), _hyperfine_run),
)

PLUGINS = (PYPERF, PYTEST_BENCHMARK, HYPERFINE)
