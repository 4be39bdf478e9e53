"""airspeed velocity's result files, each of a machine, commit and environment: a run for each benchmark.

A combination of parameters is a result; parameters other than numbers make separate runs. The file does not have the
parameters' names, nor the units of tracked values. Histories are ordered by the commit's time. Another version of a
benchmark's code, or another environment, is another series.
"""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from benchmarking.core.records import NOT_APPLICABLE, Doubt, Json, Point, Result, Run
from benchmarking.core.units import bytes_to_mb
from db.importers.support.building import foreign_result, foreign_run, undated
from db.importers.support.files import ForeignFile
from db.importers.support.measures import MS_PER_S, block, timed_result, worst_status
from db.importers.support.names import Argument, split_arguments
from db.importers.support.reading import INT32_MAX, Fields, parsed_number, shifted, short, top_fields

VERSION = 2
SKIPPED = "NaN"
"""The value of a combination that its set-up skipped; null is one that failed."""
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
"""Rounded by asv: used only where no samples were recorded."""
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
    """The parameters other than numbers; None without any."""
    fields: Fields
    """Its result, samples and stats_*, by column."""


class Asv:
    """Reads the files results/MACHINE/COMMIT-ENVIRONMENT.json of asv."""

    name = "asv"
    summary = "airspeed velocity: results/MACHINE/COMMIT-ENVIRONMENT.json"

    def recognises(self, file: ForeignFile) -> bool:
        return isinstance(file.json, dict) and {"commit_hash", "params", "results"} <= file.json.keys()

    def runs(self, file: ForeignFile) -> Iterator[Run]:
        top_fields(file)  # refuses anything but an object
        top = Fields(file, json.loads(file.text or "{}", parse_constant=str))
        version = top.must(top.whole, "version")
        if version != VERSION:
            top.refuse("version", f"expected {VERSION}, found {version}: convert it with asv update")
        shared, environment = _shared(top)
        columns = [str(name) for name in _list(top, "result_columns")]
        results = top.must(top.fields, "results")
        entries = {name: _entry(results, name, columns) for name in results}
        kept = top.rest()
        for name, entry in entries.items():
            yield from _runs(entry, name, shared, environment, kept)


def _shared(top: Fields) -> tuple[dict[str, Any], str]:
    """Arguments of `foreign_run` about machine, commit and environment, and the environment's name."""
    params = top.must(top.fields, "params")
    requirements = top.fields("requirements")
    cpu, threads = params.text("cpu"), parsed_number(str(params.any("num_cpu")))
    python = top.text("python") or params.text("python")
    versions = {name: requirements.any(name) for name in requirements} if requirements else {}
    shared = {
        "format_name": Asv.name,
        "definition": "asv",
        "definitions": DEFINITIONS,
        "host": params.text("machine") or "unknown",
        "device_type": "cpu",
        "device_name": cpu or params.text("machine"),
        "cpu_model": cpu,
        "cpu_threads": threads if isinstance(threads, int) and 0 < threads <= INT32_MAX else None,
        "git_commit": top.must(top.text, "commit_hash"),
        "git_commit_time": _time(top, "date"),
        "versions": {name: str(value) for name, value in {"python": python, **versions}.items() if value},
    }
    return shared, top.text("env_name") or "unknown"


def _entry(results: Fields, name: str, columns: Sequence[str]) -> Fields:
    """A benchmark's columns by name; the last ones may be missing."""
    values = _list(results, name)
    if len(values) > len(columns):
        results.refuse(name, f"{len(values)} values for {len(columns)} result_columns")
    return Fields(results.file, dict(zip(columns, values, strict=False)), results.place(name))


def _list(fields: Fields, name: str) -> list[Json]:
    value = fields.must(fields.any, name)
    if not isinstance(value, list):
        fields.refuse(name, f"expected a list, found {short(value)}")
    return value


def _time(fields: Fields, name: str) -> datetime | None:
    """Naive UTC of milliseconds since 1970."""
    milliseconds = fields.number(name)
    if milliseconds is None:
        return None
    try:
        return datetime(1970, 1, 1) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        fields.refuse(name, f"expected milliseconds since 1970, found {short(milliseconds)}")


def _runs(
    entry: Fields, name: str, shared: Mapping[str, Any], environment: str, kept: Mapping[str, Json]
) -> Iterator[Run]:
    started = _time(entry, "started_at")
    started_at = started or entry.file.modified_at
    doubts = () if started else (undated(entry.file),)
    duration_s = entry.number("duration", low=0) or 0.0
    code = entry.text("version")
    cases = _cases(entry)
    for variant in dict.fromkeys(case.variant for case in cases):
        own = [case for case in cases if case.variant == variant]
        results = [_result(case, _kind(name), started_at, doubts) for case in own]
        mode = {"environment": environment, **({} if variant is None else {"variant": variant})}
        yield foreign_run(
            entry.file,
            f"{name} {variant}",
            model_id=name,
            model_revision=code,
            runtime="python",
            runtime_mode=mode,
            results=results,
            started_at=started_at,
            finished_at=shifted(entry.file, started_at, duration_s),
            status=worst_status(results),
            kept={**kept, **entry.rest()},
            **shared,
        )


def _kind(name: str) -> Kind:
    """What the benchmark measures, by the prefix of its name, as in asv."""
    last = name.rpartition(".")[2].lower()
    return next((kind for prefix, kind in KINDS.items() if last.startswith(prefix)), "track")


def _cases(entry: Fields) -> list[Case]:
    """The combinations of parameters, the last parameter varying fastest."""
    params = [value if isinstance(value, list) else [value] for value in _list(entry, "params")]
    combinations = list(itertools.product(*params))
    per_case = [name for name in entry if name in ("result", "samples") or name.startswith("stats_")]
    columns = {name: entry.any(name) for name in per_case}
    for name, values in columns.items():
        if values is not None and not (isinstance(values, list) and len(values) == len(combinations)):
            entry.refuse(name, f"expected {len(combinations)} values, one a combination of parameters")
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


def _result(case: Case, kind: Kind, started_at: datetime, doubts: Sequence[Doubt]) -> Result:
    point, fields = Point(batch_size=1, axes=case.axes), case.fields
    if fields.any("result") is None:
        return foreign_result(point, metrics={}, status="failed", error="failed: asv's results do not say why")
    if fields.any("result") == SKIPPED:
        return foreign_result(point, metrics={}, status="skipped", error="skipped by the benchmark's set-up")
    value = fields.must(fields.number, "result")
    if kind != "time":
        return foreign_result(
            point,
            metrics={METRICS[kind]: value if kind == "track" else bytes_to_mb(value)},
            doubts=doubts,
            iterations=1,
            missing={"latency_median_ms": f"{NOT_APPLICABLE}: a {kind} benchmark"},
            kept=fields.rest(),
        )
    return _timed(point, fields, value * MS_PER_S, started_at, doubts)


def _timed(point: Point, fields: Fields, median_ms: float, started_at: datetime, doubts: Sequence[Doubt]) -> Result:
    metrics = {"latency_median_ms": median_ms, **_stated(fields, INTERVAL)}
    calls = fields.count("stats_number") or 1
    samples_s = fields.numbers("samples")
    if samples_s:
        samples = [block(0, [one * MS_PER_S for one in samples_s], started_at, inner_loops=calls)]
        return timed_result(fields.file, point, samples, metrics=metrics, doubts=doubts, kept=fields.rest())
    metrics |= _stated(fields, QUARTILES)
    repeats = fields.whole("stats_repeat")
    kept = {**fields.rest(), "stats_number": calls}
    return foreign_result(point, metrics=metrics, iterations=repeats, doubts=doubts, kept=kept)


def _stated(fields: Fields, columns: Mapping[str, str]) -> dict[str, float]:
    """The statistics in the file, in ms."""
    found = {column: fields.number(name) for name, column in columns.items()}
    return {column: seconds * MS_PER_S for column, seconds in found.items() if seconds is not None}


PLUGIN = Asv()
