"""airspeed velocity's result files, one per machine, commit and environment: a run for each benchmark.

Each combination of parameters is a result; non-numeric parameters make separate runs. The file contains neither the
names of parameters nor the units of tracked values. Histories are ordered by commit time. Another version of a
benchmark's code, or another environment, makes another series.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from benchmarking.core.metrics import bytes_to_mb
from benchmarking.core.records import NOT_APPLICABLE, Json, Point, Result
from db.importers.support.building import ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.measures import MS_PER_S, block, foreign_result, in_ms
from db.importers.support.names import Argument, split_arguments
from db.importers.support.reading import INT32_MAX, Fields, parsed_number, shifted, shortened, top_fields

VERSION = 2
SKIPPED = "NaN"
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


@dataclass(frozen=True, kw_only=True)
class Case:
    """One combination of a benchmark's parameters."""

    axes: Mapping[str, int | float]
    variant: str | None
    """The non-numeric parameters; None without any."""
    fields: Fields
    """Its result, samples and stats_*, by column."""


def _is_results(file: ForeignFile) -> bool:
    return isinstance(file.json, dict) and {"commit_hash", "params", "results"} <= file.json.keys()


def _read(file: ForeignFile) -> Iterator[ForeignRun]:
    top_fields(file)  # refuses anything but an object
    top = Fields(file, file.parsed(str))
    version = top.required(top.integer, "version")
    if version != VERSION:
        top.refuse("version", f"expected {VERSION}, found {version}: convert the file with asv update")
    shared, environment = _shared(top)
    columns = [str(name) for name in top.items("result_columns")]
    results = top.required(top.fields, "results")
    entries = {name: _entry(results, name, columns) for name in results}
    kept = top.rest()
    for name, entry in entries.items():
        yield from _runs(entry, name, shared, environment, kept)


def _shared(top: Fields) -> tuple[dict[str, Any], str]:
    """Fields of the runs about machine, commit and environment, and the environment's name."""
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
    return shared, top.text("env_name") or "unknown"


def _entry(results: Fields, name: str, columns: Sequence[str]) -> Fields:
    """A benchmark's columns by name; the last ones may be missing."""
    values = results.items(name)
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
        fields.refuse(name, f"expected milliseconds since 1970, found {shortened(milliseconds)}")


def _runs(
    entry: Fields, name: str, shared: Mapping[str, Any], environment: str, kept: Mapping[str, Json]
) -> Iterator[ForeignRun]:
    started_at, duration_s = _time(entry, "started_at"), entry.number("duration", low=0) or 0.0
    code = entry.text("version")
    cases = _cases(entry)
    for variant in dict.fromkeys(case.variant for case in cases):
        yield ForeignRun(
            key=f"{name} {variant}",
            model_id=name,
            model_revision=code,
            runtime="python",
            runtime_mode={"environment": environment, **({} if variant is None else {"variant": variant})},
            results=[_result(case, _kind(name)) for case in cases if case.variant == variant],
            started_at=started_at,
            finished_at=shifted(entry.file, started_at, duration_s) if started_at else None,
            kept={**kept, **entry.rest()},
            **shared,
        )


def _kind(name: str) -> Kind:
    """What the benchmark measures, by the prefix of its name, as in asv."""
    last = name.rpartition(".")[2].lower()
    return next((kind for prefix, kind in KINDS.items() if last.startswith(prefix)), "track")


def _cases(entry: Fields) -> list[Case]:
    """The combinations of parameters, the last parameter varying fastest."""
    params = [value if isinstance(value, list) else [value] for value in entry.items("params")]
    combinations = list(itertools.product(*params))
    per_case = [name for name in entry if name in ("result", "samples") or name.startswith("stats_")]
    columns = {name: entry.any(name) for name in per_case}
    for name, values in columns.items():
        if values is not None and not (isinstance(values, list) and len(values) == len(combinations)):
            entry.refuse(name, f"expected {len(combinations)} values, one per combination of parameters")
    cases = []
    for index, combination in enumerate(combinations):
        axes, variant = split_arguments({f"param{place}": _argument(text) for place, text in enumerate(combination)})
        own = {name: values[index] for name, values in columns.items() if isinstance(values, list)}
        place = f"{entry.path}[{index}]" if combination else entry.path
        cases.append(Case(axes=axes, variant=variant, fields=Fields(entry.file, own, place)))
    return cases


def _argument(text: Any) -> Argument:
    """A parameter from its Python notation: a number, a text without its quotes, or the notation itself."""
    try:
        value = ast.literal_eval(str(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return str(text)
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else str(text)


def _result(case: Case, kind: Kind) -> Result:
    point, fields = Point(batch_size=1, axes=case.axes), case.fields
    if fields.any("result") is None:
        return foreign_result(point, metrics={}, status="failed", error="failed: asv's results do not say why")
    if fields.any("result") == SKIPPED:
        return foreign_result(point, metrics={}, status="skipped", error="skipped by the benchmark's set-up")
    value = fields.required(fields.number, "result")
    if kind == "time":
        return _timed(point, fields, value * MS_PER_S)
    return foreign_result(
        point,
        metrics={METRICS[kind]: value if kind == "track" else bytes_to_mb(value)},
        iterations=1,
        missing={"latency_median_ms": f"{NOT_APPLICABLE}: a {kind} benchmark"},
        kept=fields.rest(),
    )


def _timed(point: Point, fields: Fields, median_ms: float) -> Result:
    metrics = {"latency_median_ms": median_ms, **_stated(fields, INTERVAL)}
    calls = fields.count("stats_number") or 1
    samples_s = fields.numbers("samples")
    if samples_s:
        samples = [block(0, in_ms(samples_s), inner_loops=calls)]
        return foreign_result(point, metrics=metrics, samples=samples, kept=fields.rest())
    repeats = fields.integer("stats_repeat")
    metrics |= _stated(fields, QUARTILES)
    return foreign_result(point, metrics=metrics, iterations=repeats, kept={**fields.rest(), "stats_number": calls})


def _stated(fields: Fields, columns: Mapping[str, str]) -> dict[str, float]:
    """The statistics in the file, in ms."""
    found = {column: fields.number(name) for name, column in columns.items()}
    return {column: seconds * MS_PER_S for column, seconds in found.items() if seconds is not None}


PLUGIN = Format(
    name="asv",
    summary="airspeed velocity: results/MACHINE/COMMIT-ENVIRONMENT.json",
    definition="asv",
    definitions=DEFINITIONS,
    recognises=_is_results,
    read=_read,
)
