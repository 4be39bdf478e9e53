"""airspeed velocity's result files, one per machine, commit and environment: a run for each benchmark.

Files of version 1, which have an object for each benchmark and times beside them, are read in the form of version 2.

Each combination of parameters is a result; non-numeric parameters make separate runs. The file contains neither the
names of parameters nor the units of tracked values. Histories are ordered by commit time. Another version of a
benchmark's code, or another environment, makes another series.
"""

from __future__ import annotations

import ast
import itertools
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from benchmarking.core.errors import StorageError
from benchmarking.core.metrics import MS_PER_S, bytes_to_mb
from benchmarking.core.records import NOT_APPLICABLE, Json, Point, Result
from benchmarking.core.text import grouped
from benchmarking.core.untrusted.redaction import LEFT_OUT, is_secret_name
from db.importers.support.building import Argument, Arguments, ForeignRun, Format, arguments_of, as_argument
from db.importers.support.files import ForeignFile, read_file, stored_beside
from db.importers.support.measures import block, foreign_result, in_ms
from db.importers.support.reading import INT32_MAX, Fields, parsed_number, shifted, shortened, top_fields, understood

VERSION = 2
FIRST_STATISTICS = {"stats_q_25": "q_25", "stats_q_75": "q_75", "stats_number": "number", "stats_repeat": "repeat"}
"""Column of a statistic -> its name in a file of version 1."""
SKIPPED = "nan"
"""Value of a combination that its set-up skipped; null means failed."""
Kind = Literal["time", "peakmem", "mem", "track"]
KINDS: Mapping[str, Kind] = {"timeraw": "time", "time": "time", "peakmem": "peakmem", "mem": "mem", "track": "track"}
"""Prefix of a benchmark's name -> what it measures."""
METRICS: Mapping[Kind, str] = {
    "time": "latency_median_ms",
    "peakmem": "memory_peak_rss_infer_mb",
    "mem": "object_size_mb",
    "track": "tracked_value",
}
MOST_CASES = 100_000
"""Maximum combinations of a benchmark's parameters: a few short lists can make billions."""
INTERVAL = {"stats_ci_99_a": "latency_ci_99_low_ms", "stats_ci_99_b": "latency_ci_99_high_ms"}
QUARTILES = {"stats_q_25": "latency_p25_ms", "stats_q_75": "latency_p75_ms"}
"""Rounded by asv, so used only without recorded samples."""
DEFINITIONS = {
    "latency_median_ms": "asv's result of a time benchmark: median of its samples, each the mean of `number` calls, of "
    "all its processes together",
    "latency_ci_99_low_ms": "lower end of asv's 99 % interval of the median",
    "latency_ci_99_high_ms": "upper end of asv's 99 % interval of the median",
    "memory_peak_rss_infer_mb": "peakmem: highest resident size of the process that ran the benchmark, set-up included",
    "object_size_mb": "mem: size of the object that the benchmark returns",
    "tracked_value": "track: what the benchmark returns; its unit is not in the file",
}


def recognises(file: ForeignFile) -> bool:
    return isinstance(file.json, dict) and {"commit_hash", "params", "results"} <= file.json.keys()


def _of_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """The object in the form of version 2."""
    shared = {name: value for name in FIRST_SHARED if isinstance(value := data.get(name), dict)}
    found = data["results"] if isinstance(data["results"], dict) else {}
    rows: dict[str, dict[str, Any]] = {}
    for name, given in found.items():
        # Without parameters, a benchmark has its value alone, or values that are not in lists.
        own = {**given} if isinstance(given, dict) else {"result": given}
        for column in ("result", "stats"):
            if column in own and not isinstance(own[column], list | array):
                own[column] = [own[column]]
        stats = [one if isinstance(one, dict) else {} for one in own.get("stats") or ()]
        ends = [one.get("ci_99") for one in stats]
        columns = {
            **{column: [one.get(word) for one in stats] for column, word in FIRST_STATISTICS.items()},
            **{
                column: [one[place] if isinstance(one, list | array) and len(one) == 2 else None for one in ends]
                for place, column in enumerate(INTERVAL)
            },
        }
        rows[name] = {
            **{
                column: values if any(value is not None for value in values) else None
                for column, values in columns.items()
            },
            "result": own.get("result"),
            "params": own.get("params") or [],
            "samples": own.get("samples"),
            "version": shared.get("benchmark_version", {}).get(name),
            "started_at": shared.get("started_at", {}).get(name),
            "duration": shared.get("duration", {}).get(name),
            "profile": shared.get("profiles", {}).get(name),
        }
    others = {name: value for name, value in data.items() if name not in shared}
    # As asv names an environment: its Python, then its requirements.
    requirements = data["requirements"] if isinstance(data.get("requirements"), dict) else {}
    parts = [f"py{data.get('python')}", *(f"{name}{version or ''}" for name, version in sorted(requirements.items()))]
    environment = {"env_name": "-".join(parts)} if data.get("python") else {}
    results = {name: [*row.values()] for name, row in rows.items()}
    columns_of_all = [*next(iter(rows.values()), ())]
    return {**environment, **others, "version": VERSION, "result_columns": columns_of_all, "results": results}


FIRST_SHARED = ("benchmark_version", "started_at", "duration", "profiles")
"""Fields of version 1 with a value for each benchmark."""


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    top = top_fields(file)
    version = top.integer("version")
    if version is None:
        top.required(top.unread_copy().fields, "results")
        version = VERSION if "result_columns" in top else 1
    if version == 1:
        top = Fields(file, _of_version_1(file.json))
    elif version != VERSION:
        top.refuse("version", f"expected 1 or {VERSION}, found {version}: a version of asv that is not known here")
    params = top.required(top.fields, "params")
    requirements = top.fields("requirements")
    cpu, machine, threads = params.text("cpu"), params.text("machine"), parsed_number(str(params.any("num_cpu")))
    python = top.text("python") or params.text("python")
    versions = {name: requirements.any(name) for name in requirements} if requirements else {}
    shared = {
        "host": machine,
        "device_type": "cpu",
        "device_name": cpu or machine,
        "cpu_model": cpu,
        "cpu_threads": threads if isinstance(threads, int) and 0 < threads <= INT32_MAX else None,
        "git_commit": top.required(top.text, "commit_hash"),
        "git_commit_time": _time(top, "date"),
        "versions": {name: str(value) for name, value in {"python": python, **versions}.items() if value},
    }
    environment = top.text("env_name") or "unknown"
    variables = top.peek("env_vars")
    for name, value in variables.items() if isinstance(variables, dict) else ():
        if is_secret_name(name) and isinstance(value, str):  # asv's name of an environment has them
            environment = environment.replace(f"{name}{value}", f"{name}{LEFT_OUT}")
    columns = [str(name) for name in top.items("result_columns")]
    results = top.required(top.fields, "results")
    entries = list(understood(file, results, lambda name: (name, _entry(results, name, columns))))
    kept = top.rest()
    for runs in understood(file, entries, lambda named: list(_runs(named[1], named[0], shared, environment, kept))):
        yield from runs


def _entry(results: Fields, name: str, columns: Sequence[str]) -> Fields:
    """A benchmark's columns by name; the last ones may be missing."""
    values = results.items(name)
    if name in results and not values:
        results.refuse(name, f"expected a list of {len(columns)} values, found {shortened(results.peek(name))}")
    if len(values) > len(columns):
        results.refuse(name, f"{len(values)} values for {len(columns)} result_columns")
    return Fields(results.file, dict(zip(columns, values, strict=False)), results.place(name))


def _time(fields: Fields, name: str) -> datetime | None:
    """Naive UTC of milliseconds since 1970."""
    milliseconds = fields.number(name)
    if milliseconds is None:
        return None
    try:
        return datetime(1970, 1, 1) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        fields.leave_out(name, f"expected milliseconds since 1970, found {shortened(milliseconds)}")
        return None


def _runs(
    entry: Fields, name: str, shared: Mapping[str, Any], environment: str, kept: Mapping[str, Json]
) -> Iterator[ForeignRun]:
    started_at, duration_s = _time(entry, "started_at"), entry.number("duration", low=0) or 0.0
    code = entry.text("version")
    params = [value if isinstance(value, list) else [value] for value in entry.items("params")]
    # A file of results has no names of parameters, but asv's descriptions above the machine's folder do. The last
    # parameter varies fastest.
    folder = entry.file.path.resolve().parent.parent
    descriptions = stored_beside(entry.file, folder / "benchmarks.json", folder)
    described = None if descriptions is None else _described(descriptions).get(name)
    names = described.get("param_names") if isinstance(described, dict) else None
    if not isinstance(names, list) or [bool(isinstance(one, str) and one) for one in names] != [True] * len(params):
        names = [f"param{place}" for place in range(len(params))]
    count = math.prod(map(len, params))
    if count > MOST_CASES:
        entry.refuse("params", f"{count} combinations, expected at most {MOST_CASES}")
    per_case = [name for name in entry if name in ("result", "samples") or name.startswith("stats_")]
    columns = {name: entry.any(name) for name in per_case}
    for column, values in columns.items():
        if values is not None and not (isinstance(values, list) and len(values) == count):
            entry.refuse(column, f"expected {count} values, one per combination of parameters")
    cases: list[tuple[Arguments, Fields]] = []  # each combination, with its result, samples and stats_* by column
    for index, combination in enumerate(itertools.product(*params)):
        found = dict(zip(names, map(_argument, combination), strict=True))
        of_case = {name: values[index] for name, values in columns.items() if isinstance(values, list)}
        place = f"{entry.path}[{index}]" if combination else entry.path
        cases.append((arguments_of(name, found), Fields(entry.file, of_case, place)))
    # A benchmark's type, or else the prefix of its name, tells what is measured.
    stated = described.get("type") if isinstance(described, dict) else None
    last_word = str(stated or name.rpartition(".")[2]).lower()
    kind: Kind = next((one for prefix, one in KINDS.items() if last_word.startswith(prefix)), "track")
    for key, own in grouped((case[0].key, case) for case in cases).items():
        arguments = own[0][0]
        yield ForeignRun(
            key=key,
            model_revision=code,
            runtime="python",
            runtime_mode={"environment": environment, **arguments.mode},
            results=list(understood(entry.file, own, lambda case: _result(case[0].point, case[1], kind))),
            started_at=started_at,
            finished_at=shifted(entry.file, started_at, duration_s) if started_at else None,
            kept={**kept, **entry.rest()},
            **{**shared, **arguments.setup},
        )


@lru_cache(maxsize=8)
def _described(path: Path) -> Mapping[str, Any]:
    try:
        data = read_file(path).json
    except StorageError:
        return {}
    return data if isinstance(data, dict) else {}


def _argument(text: Any) -> Argument:
    """A parameter from its Python notation: a number, a text without its quotes, or the notation itself."""
    try:
        value = ast.literal_eval(str(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return str(text)
    return as_argument(value) if isinstance(value, int | float | str) else str(text)


def _result(point: Point, fields: Fields, kind: Kind) -> Result:
    if fields.any("result") is None:
        return foreign_result(point, status="failed", error="failed: asv's results do not say why")
    if fields.any("result") == SKIPPED:
        return foreign_result(point, status="skipped", error="skipped by the benchmark's set-up")
    value = fields.required(fields.number, "result")
    if kind != "time":
        return foreign_result(
            point,
            metrics={METRICS[kind]: value if kind == "track" else bytes_to_mb(value)},
            iterations=1,
            missing={"latency_median_ms": f"{NOT_APPLICABLE}: a {kind} benchmark"},
            kept=fields.rest(),
        )
    calls, samples_s = fields.count("stats_number") or 1, fields.numbers("samples")
    metrics = {"latency_median_ms": value * MS_PER_S}
    missing: dict[str, str] = {}
    for name, column in (INTERVAL if samples_s else INTERVAL | QUARTILES).items():
        # asv writes an infinite interval for few samples, and computes a negative one.
        if (seconds := fields.number(name, low=0)) is not None:
            metrics[column] = seconds * MS_PER_S
        elif name in fields:
            missing[column] = f"left_out: {shortened(fields.peek(name))} in the file"
    return foreign_result(
        point,
        metrics=metrics,
        samples=[block(0, in_ms(samples_s), inner_loops=calls)],
        iterations=None if samples_s else fields.integer("stats_repeat"),
        missing=missing,
        kept=fields.rest() | ({} if samples_s else {"stats_number": calls}),
    )


PLUGIN = Format(
    name="asv",
    summary="airspeed velocity: results/MACHINE/COMMIT-ENVIRONMENT.json",
    definitions=DEFINITIONS,
    names_benchmarks=True,
    recognises=recognises,
    read=read,
)
