"""pytest-benchmark's JSON (--benchmark-json, --benchmark-save): a run for each test, a result for each of its cases.

A round gives one raw value, the mean time of its iterations in s; without --benchmark-save-data the file has only
statistics. Numeric parameters of a test are axes; the others make separate runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Result
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import block, foreign_result, in_ms
from db.importers.support.names import Arguments, arguments_of
from db.importers.support.reading import Fields, mostly, top_fields, understood

STATED = {
    **{name: f"latency_{name}_ms" for name in ("mean", "median", "min", "max")},
    "stddev": "latency_std_ms",
    "q1": "latency_p25_ms",
    "q3": "latency_p75_ms",
    "iqr": "latency_iqr_ms",
}
DEFINITIONS = {
    "latency_wall": "time of a round over its iterations, by the benchmark's timer",
    "calls_per_sec": "ops: 1 / mean",
}


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if not isinstance(data, dict) or not {"machine_info", "benchmarks", "datetime"} <= data.keys():
        return False
    benchmarks = data["benchmarks"]
    return isinstance(benchmarks, list) and (
        not benchmarks or mostly(benchmarks, lambda one: isinstance(one, dict) and "stats" in one)
    )


def read(file: ForeignFile) -> Iterator[ForeignRun]:
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
        "git_commit_time": commit.time("time"),
        "kept": {name: value for name, value in top.rest().items() if name != "benchmarks"},
    }
    groups: dict[str, list[tuple[Arguments, Result]]] = {}
    for arguments, result in understood(file, top.required(top.objects, "benchmarks"), _case):
        groups.setdefault(arguments.key, []).append((arguments, result))
    for key, cases in groups.items():
        first = cases[0][0]
        yield ForeignRun(
            key=key,
            runtime_mode=first.mode,
            results=[result for _, result in cases],
            **{**shared, **first.setup},
        )


def _case(benchmark: Fields) -> tuple[Arguments, Result]:
    name, parameters = benchmark.required(benchmark.text, "fullname"), benchmark.section("params")
    found = {}
    for parameter in parameters:
        value = parameters.any(parameter)
        found[parameter] = value if isinstance(value, int | float | str) and not isinstance(value, bool) else str(value)
    arguments = arguments_of(name.partition("[")[0] if found else name, found)
    stats = benchmark.required(benchmark.fields, "stats")
    calls, values = stats.count("iterations") or 1, stats.numbers("data")
    stated = {column: stats.number(name) for name, column in STATED.items()}
    result = foreign_result(
        arguments.point,
        samples=[block(0, in_ms(values), inner_loops=calls)] if values else [],
        metrics={"calls_per_sec": stats.number("ops", low=0)},
        stated={column: value * MS_PER_S for column, value in stated.items() if value is not None},
        iterations=stats.integer("rounds"),
        kept={**benchmark.rest(), "inner_loops": calls},
    )
    return arguments, result


PLUGIN = Format(
    name="pytest_benchmark",
    summary="pytest-benchmark: --benchmark-json, --benchmark-save (json)",
    definition="pytest-benchmark",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
