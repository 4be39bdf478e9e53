"""Google Benchmark's JSON and CSV: a run for each benchmark function of an execution, a result for each set of its
arguments.

A repetition gives one raw value, the mean time of a block of iterations; all repetitions come from one process. The
arguments are in the name: "BM_Sort/64/order:2/repeats:3/threads:4".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import count
from statistics import fmean
from types import MappingProxyType
from typing import Any

from benchmarking.core.codec import is_number
from benchmarking.core.doubts import doubt
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Doubt, Json, Result, Scalar
from benchmarking.core.text import grouped
from db.importers.support.building import Arguments, ForeignRun, Format, arguments_of
from db.importers.support.files import ForeignFile
from db.importers.support.measures import HIDDEN, MS_PER_UNIT, block, foreign_result, measured
from db.importers.support.reading import (
    Fields,
    csv_header,
    csv_lines,
    csv_table_rows,
    find_header,
    has_benchmarks,
    has_columns,
    parsed_number,
    shortened,
    top_fields,
    understood,
)

AGGREGATES = {"mean": "latency_mean_ms", "median": "latency_median_ms"}
"""Aggregate of the repetitions -> column; used if the file does not have the repetitions. (Each of them is a block of
calls, so that their standard deviation is not that of calls.)"""
SETTINGS = re.compile(
    r"(?:/min_time:\d+\.\d+)?(?:/min_warmup_time:\d+\.\d+)?(?:/iterations:(?P<iterations>\d{1,18}))?"
    r"(?:/repeats:(?P<repeats>\d{1,9}))?(?P<clock>(?:/process_time)?(?:/(?:real|manual)_time)?)"
    r"(?:/threads:(?P<threads>\d{1,9}))?$"
)
"""The end of a name, behind all arguments: how long to measure, by which clock, in how many threads."""
LENGTHS = {"iterations": "iterations", "repeats": "repetitions"}
"""Setting that an argument may be called like -> the field that has its number in an entry."""
IS_HEADER = has_columns("name", "iterations", "real_time", "cpu_time", "time_unit")
"""The header of the CSV, which may follow printed context."""
NUMBERS = ("iterations", "real_time", "cpu_time")
"""Columns of which a row has one, unless its benchmark failed."""
CSV_AGGREGATE = re.compile(r"(.+)_(mean|median|stddev|cv|BigO|RMS)")
CONTEXT = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*)|Running (?P<executable>\S.*)|CPU Caches:"
    r"|Run on \((?P<num_cpus>\d{1,6}) X (?P<mhz_per_cpu>[\d.]+) MHz CPU ?s?\)|Load Average: (?P<load_avg>[\d., ]+)"
    r"|L(?P<level>\d) (?P<type>\w+) (?P<size>\d{1,9}) KiB(?: \(x\d+\))?"
    r"|\*\*\*WARNING\*\*\* (?:(?P<cpu_scaling_enabled>CPU scaling is enabled)"
    r"|Library was built as (?P<library_build_type>DEBUG)|ASLR is enabled).*"
)
"""What is printed above a table, under the names of the JSON."""
WARNINGS: Mapping[str, str | bool] = {"CPU scaling is enabled": True, "DEBUG": "debug"}
OLD_DATE = "%Y/%m/%d-%H:%M:%S"
COMPLEXITY = ("BigO", "RMS")
COUNTERS = {"items_per_second": "throughput_samples_per_sec", "bytes_per_second": "bytes_per_sec"}
PER_CPU_TIME = {"throughput_samples_per_sec": "items_per_cpu_sec", "bytes_per_sec": "bytes_per_cpu_sec"}
"""Column of a rate over the wall time -> its name over the CPU time."""
OF_CPU_TIME = "not_stated: the benchmark's rate is over its CPU time, not its wall time"
OF_NO_VERSION = "not_stated: versions of the library divide the time by the threads or not, and the file names none"
SAME_TIME = 0.05
"""Relative difference up to which CPU time and wall time are taken as equal."""
INSTANCE = ("family_index", "per_family_instance_index")
STATED = ("name", "run_name", "run_type", *INSTANCE, "repetition_index")
"""Fields that identify an entry."""
NO_COUNTERS = (*STATED, "real_time", "cpu_time", "time_unit", "iterations", "repetitions", "threads", "label")
RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(.*)")
DEBUG_LIBRARY = doubt("debug_library", "info")
NAMED = re.compile(r"([A-Za-z_]\w*):([^:].*)")
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
DEFINITIONS = {
    "latency_wall": "real_time of a repetition: wall time of its block of iterations over their number, or what the "
    "benchmark itself stated (manual_time); of several threads the mean of their own iterations, which is real_time "
    "times their number in files of versions before 1.9.0",
    "real_time_ms": "real_time of several threads in a file that names no version: before 1.9.0 over their number",
    "cpu_time_ms": "cpu_time of an iteration, mean over the repetitions",
    "throughput_samples_per_sec": "items_per_second as the benchmark counts its items, mean over the repetitions; "
    "items_per_cpu_sec where it is over a CPU time that differs from the wall time",
    "bytes_per_sec": "bytes_per_second as the benchmark counts them, mean over the repetitions",
    "rates of several threads": "of all of them over the wall time, and over the CPU time of all of them",
    "counter_*": "a counter of the benchmark's own, mean over the repetitions",
}


@dataclass(frozen=True, kw_only=True)
class Name:
    """The parts of a benchmark's name."""

    function: str
    arguments: Arguments
    clock: Mapping[str, Scalar]
    """The requested clock, if there is one."""
    threads: int

    @property
    def is_wall(self) -> bool:
        """Whether rates are over the wall time."""
        return str(self.clock.get("clock")).endswith(("real_time", "manual_time"))

    @property
    def series(self) -> str:
        """Equal for the results of one run."""
        own = self.arguments
        variant = {"variant": own.mode["variant"]} if "variant" in own.mode else {}
        base = f"{self.function} {sorted({**self.clock, **variant}.items())}"
        return base if own.key == f"{self.function} {own.mode.get('variant')}" else f"{base} {own.key}"


def recognises(file: ForeignFile) -> bool:
    data = file.json
    if data is None:
        return bool(csv_header(file, IS_HEADER))
    return has_benchmarks(data, {"context"}, "name") and isinstance(data["context"], dict)


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    for index, top in enumerate(_of_csv(file) if file.json is None else [top_fields(file)]):
        yield from _runs(file, top, index)


def _runs(file: ForeignFile, top: Fields, index: int) -> Iterator[ForeignRun]:
    """The runs of one execution; several append their tables to one file."""
    context = top.required(top.fields, "context")
    # The file does not name the CPU: the sizes of its caches distinguish models.
    threads, stated_caches = context.count("num_cpus"), {"caches": context.any("caches")}
    caches = Fields(file, stated_caches, context.path).objects("caches") or ()
    sizes = [
        f"L{fields.integer('level')} {fields.text('type')} {(fields.integer('size') or 0) // 1024} KiB"
        for fields in caches
    ]
    described = "; ".join((f"{threads or 'unknown number of'} logical processors", *filter(None, (", ".join(sizes),))))
    shared: dict[str, Any] = {
        "device_type": "cpu",
        "device_name": f"CPU ({described})",
        "cpu_threads": threads,
        "host": context.text("host_name"),
        "command": (context.text("executable"),),
        "tool_version": context.text("library_version"),
        "stated_times": (context.text("date"),),
        "started_at": context.time_like("date", OLD_DATE, "2015/03/17-18:40:25")
        if "/" in str(context.peek("date"))
        else context.time("date"),
    }
    doubts = (
        *((doubt("governor", cpu_scaling_enabled=True),) if context.peek("cpu_scaling_enabled") is True else ()),
        *((DEBUG_LIBRARY,) if context.peek("library_build_type") == "debug" else ()),
    )
    # The entries of each name, and the complexity fitted to each function.
    entries: dict[str, list[Fields]] = {}
    complexity: dict[str, list[Json]] = {}
    named = understood(
        file,
        _with_aggregates(top.required(top.objects, "benchmarks")),
        lambda entry: (entry.text("run_name") or entry.required(entry.text, "name"), entry),
    )
    for stated, entry in named:
        if entry.text("aggregate_name") in COMPLEXITY:
            complexity.setdefault(stated, []).append(_whole(entry))
        else:
            entries.setdefault(stated, []).append(entry)
    kept = {**context.rest(), **top.rest()}
    like_settings = _arguments_like_settings(entries)
    named_entries = [
        pair for stated, own in entries.items() for pair in _instances(stated, _told_apart(own), like_settings)
    ]
    runs = grouped((name.series, (name, own)) for name, own in named_entries)
    version = "unknown" if file.json is None else shared["tool_version"]
    for series, benchmarks in runs.items():
        first = benchmarks[0][0]
        yield ForeignRun(
            key=f"{series} #{index + 1}" if index else series,
            results=list(understood(file, benchmarks, lambda one: _result(*one, doubts, version))),
            runtime="native",
            runtime_mode={**first.clock, **first.arguments.mode},
            kept=kept | ({"complexity": complexity[first.function]} if first.function in complexity else {}),
            **{**shared, **first.arguments.setup},
        )


def _told_apart(entries: Sequence[Fields]) -> list[list[Fields]]:
    """The entries of each benchmark that was registered under one name. Only the newer JSON numbers them; elsewhere
    labels tell them apart, of which repetitions may have several. Those end with aggregates, which all have."""
    if any(entry.peek(name) is not None for entry in entries for name in INSTANCE):
        return [*grouped((str([entry.peek(name) for name in INSTANCE]), entry) for entry in entries).values()]
    labelled: list[tuple[str, Fields]] = []
    names = [entry.peek("aggregate_name") for entry in entries]
    seen = set[object]()
    for name, entry in zip(names, entries, strict=True):
        is_first = not labelled or not any(names) or (bool(seen) and (name is None or name in seen))
        seen = {*(() if is_first else seen), *([name] if name else ())}
        labelled.append((str(entry.peek("label")) if is_first else labelled[-1][0], entry))
    return [*grouped(labelled).values()]


def _arguments_like_settings(entries: Mapping[str, Sequence[Fields]]) -> set[tuple[str, str]]:
    """Functions that have an argument called like a setting (ArgName("iterations")), with its name: where the number in
    a name is not the one that was measured with, or where only aggregates tell and there are several."""
    numbers: dict[tuple[str, str], set[int]] = {}
    is_measured: dict[tuple[str, str], bool] = {}
    for text, own in entries.items():
        stated = settings.groupdict() if (settings := SETTINGS.search(text)) else {}
        for setting, name in LENGTHS.items():
            if stated.get(setting) is None:
                continue
            key, number = (text.partition("/")[0], setting), int(stated[setting])
            numbers.setdefault(key, set()).add(number)
            for entry in own:
                if entry.peek("run_type") == "aggregate" or entry.peek("error_occurred") or entry.peek("skipped"):
                    continue
                if (measured_with := entry.peek(name)) is not None:
                    # The iterations are those of all threads together.
                    same = measured_with in (number, number * int(stated["threads"] or 1))
                    is_measured[key] = is_measured.get(key, True) and same
    return {key for key, several in numbers.items() if not is_measured.get(key, len(several) == 1)}


def _instances(
    stated: str, instances: Sequence[Sequence[Fields]], like_settings: Set[tuple[str, str]]
) -> Iterator[tuple[Name, Sequence[Fields]]]:
    """The entries of each benchmark that was registered under this name: several have their labels as variants, or
    their number if the labels do not tell them apart."""
    labels = [own[0].peek("label") for own in instances]
    is_told = len(set(map(str, labels))) == len(labels)
    for index, (label, own) in enumerate(zip(labels, instances, strict=True)):
        variant = {"label": str(label)} if is_told and label else {"instance": f"#{index + 1}"} if index else {}
        yield parsed_name(stated, variant if len(instances) > 1 else {}, like_settings), own


def _with_aggregates(entries: Sequence[Fields]) -> Iterator[Fields]:
    """The entries. The first versions tell an aggregate of repetitions only by the end of its name: it is one if the
    repetitions, or the mean and the deviation of the same name, are in the file. A statistic of the benchmark's own is
    a single entry beside the mean of the same name, of as many iterations as that has repetitions."""
    named = [(str(entry.peek("name")), entry) for entry in entries]
    names = Counter(name for name, _ in named)
    means = {
        of: entry.peek("repetitions") or entry.peek("iterations")
        for name, entry in named
        if name.endswith("_mean") and ((of := name.removesuffix("_mean")) in names or f"{of}_stddev" in names)
    }
    for name, entry in named:
        if "run_type" in entry:
            yield entry
            continue
        found = CSV_AGGREGATE.fullmatch(name)
        base = found[1] if found and (found[1] in names or found[1] in means) else None
        if base is None and names[name] == 1:
            cuts = [name[: cut.start()] for cut in re.finditer("_", name)][::-1]
            base = next((one for one in cuts if means.get(one) and means[one] == entry.peek("iterations")), None)
        if base is None:
            yield entry
            continue
        stated = {field: entry.peek(field) for field in entry}
        stated |= {"run_name": base, "run_type": "aggregate", "aggregate_name": name.removeprefix(f"{base}_")}
        stated["repetitions"] = stated.pop("iterations", None)
        yield Fields(entry.file, stated, entry.path)


def _of_csv(file: ForeignFile) -> list[Fields]:
    """The rows of each table as entries of the JSON. An aggregate is recognized by the end of its name."""
    rows = csv_table_rows(file, IS_HEADER, ends_early=True)
    entries = ((table, _entry(file, row)) for table, row in rows)
    tables = grouped((table, entry) for table, entry in entries if entry)
    start, _ = find_header(file, IS_HEADER)
    headers = [number for number, cells in csv_lines(file, start=start) if IS_HEADER(cells)]
    contexts = _printed_contexts(file, headers)
    return [
        Fields(file, {"context": contexts[table], "benchmarks": own}, f"table {index + 1}" if index else "")
        for index, (table, own) in enumerate(tables.items())
    ]


def _printed_contexts(file: ForeignFile, headers: Sequence[int]) -> list[dict[str, Any]]:
    """The context of each table as in the JSON, from what is printed above its header, which is not left out then."""
    contexts: list[dict[str, Any]] = [{} for _ in (*headers, None)]  # the last is below the last of them
    read: set[str] = set()
    for number, line in enumerate(file.lines(), 1):
        if not (found := CONTEXT.fullmatch(line.strip())):
            continue
        context = contexts[bisect_left(headers, number)]
        stated = {name: word for name, word in found.groupdict().items() if word}
        if "size" in stated:
            cache = {"level": int(stated["level"]), "type": stated["type"], "size": int(stated["size"]) * 1024}
            context.setdefault("caches", []).append(cache)
        else:
            numbers = {name: parsed_number(stated[name]) for name in ("num_cpus", "mhz_per_cpu") if name in stated}
            context |= {name: WARNINGS.get(word, word) for name, word in stated.items()} | numbers
        read.add(f"line {number}")
    for one in [one for one in file.left_out if one.place in read]:
        del file.left_out[one]
    return contexts


def _entry(file: ForeignFile, row: Fields) -> dict[str, Any] | None:
    """The row as an entry of the JSON; None if it is none, which is left out."""
    values: dict[str, Any] = {
        name: parsed_number(cell) if name != "name" else cell for name in row if (cell := row.text(name))
    }
    has_numbers = any(isinstance(values.get(name), int | float) for name in NUMBERS)
    if values.get("error_occurred") != "true" and not (has_numbers and "time_unit" in set(row)):
        # The context of a run that was appended, or what a program printed.
        file.leave_out(row.path, f"not a row of the table: {file.beginning(','.join(map(str, values.values())))!r}")
        return None
    aggregate = CSV_AGGREGATE.fullmatch(str(values.get("name")))
    if aggregate is not None:
        values |= {"run_name": aggregate[1], "run_type": "aggregate", "aggregate_name": aggregate[2]}
        values["repetitions"] = values.pop("iterations", None)
    return {**values, "error_occurred": values.get("error_occurred") == "true"}


def parsed_name(
    text: str,
    variant: Mapping[str, str] = MappingProxyType({}),
    like_settings: Set[tuple[str, str]] = frozenset(),
) -> Name:
    """The function and arguments in a name such as "BM_Sort/64/order:2/repeats:3", and those of a variant; unnamed
    arguments by position, and a name for the second time with its number."""
    settings = SETTINGS.search(text)
    first, *parts = (text[: settings.start()] if settings else text).split("/")
    stated = settings.groupdict() if settings else {}
    parts += [f"{one}:{stated[one]}" for one in LENGTHS if stated.get(one) and (first, one) in like_settings]
    parts += [f"threads:{stated['threads']}"] if stated.get("threads") else []
    function = [first]
    arguments: dict[str, int | float | str] = {}
    unnamed, numbers = count(), defaultdict[str, Iterator[int]](lambda: count(2))
    for part in parts:
        named = NAMED.fullmatch(part)
        if named is None and not NUMBER.fullmatch(part):
            function.append(part)
            continue
        stated_name, value = (named[1], named[2]) if named else (f"arg{next(unnamed)}", part)
        name = stated_name
        while name in arguments:
            name = f"{stated_name}_{next(numbers[stated_name])}"
        arguments[name] = parsed_number(value)
    function_name = "/".join(function)
    return Name(
        function=function_name,
        arguments=arguments_of(function_name, {**arguments, **variant}),
        clock={"clock": clock.strip("/")} if (clock := stated.get("clock")) else {},
        threads=int(stated.get("threads") or 1),
    )


def _whole(entry: Fields) -> dict[str, Json]:
    """The entry, unchanged."""
    return {name: entry.any(name) for name in entry}


@dataclass(frozen=True, kw_only=True)
class Factors:
    """What several threads make of the numbers of a version of the library."""

    time: float = 1.0
    """From real_time to the wall time of an iteration."""
    wall_rate: float = 1.0
    """From a rate over the wall time to that of all threads."""
    cpu_rate: float = 1.0
    """From a rate over the CPU time to one over that of all threads."""


def _factors(version: str | None, threads: int) -> Factors | None:
    """None for several threads if the version is not known. Files without one are of a version before 1.8.4.

    Before 1.9.0 real_time was over the threads; from then on the time of a rate was that of all threads together, which
    1.9.5 divides by their number (google/benchmark #1836 and #2081).
    """
    if threads == 1:
        return Factors()
    found = RELEASE.fullmatch(version or "1.8.3")
    if found is None or (number := tuple(map(int, found.groups()[:3]))) == (0, 0, 0):
        return None
    if number >= (1, 9, 5):
        return Factors(cpu_rate=1 / threads)
    if found[4]:  # some commit on the way to the next release
        return None
    return Factors(wall_rate=threads) if number >= (1, 9) else Factors(time=threads)


def _result(name: Name, entries: Sequence[Fields], doubts: Sequence[Doubt], version: str | None) -> Result:
    point = name.arguments.point
    repetitions = [entry for entry in entries if entry.text("run_type") != "aggregate"]
    aggregates = [entry for entry in entries if entry.text("run_type") == "aggregate"]
    for entry in repetitions:
        if (has_failed := entry.flag("error_occurred")) or entry.flag("skipped"):
            return foreign_result(
                point,
                status="failed" if has_failed else "skipped",
                error=entry.text("error_message") or entry.text("skip_message") or "the benchmark does not say why",
                kept={"entries": [_whole(fields) for fields in entries]},
                doubts=doubts,
            )
    kept: dict[str, Json] = {"aggregates": [_whole(entry) for entry in aggregates]}
    stated = entries[0].peek("threads")
    factors = _factors(version, stated if type(stated) is int and stated > 0 else name.threads)
    factor = factors.time if factors else 1.0
    if not repetitions:  # written with --benchmark_report_aggregates_only
        found = {entry.text("aggregate_name"): entry for entry in aggregates}
        columns = AGGREGATES if factors else {"mean": "real_time_ms"}
        metrics = {column: _ms(found[name], "real_time") * factor for name, column in columns.items() if name in found}
        of_mean = [found[name].unread_copy() for name in ("mean",) if name in found]
        cpu_ms, times_ms = ([_ms(fields, name) for fields in of_mean] for name in ("cpu_time", "real_time"))
        counters, missing = _counters(of_mean, times_ms, cpu_ms, name.is_wall, factors)
        return foreign_result(
            point,
            metrics={**metrics, **counters},
            missing={"latency_std_ms": HIDDEN, **missing},
            iterations=aggregates[0].integer("repetitions"),
            kept=kept,
            doubts=doubts,
        )
    blocks = [entry.count("iterations") or 1 for entry in repetitions]
    values_ms, cpu_ms = (
        list(understood(repetitions[0].file, repetitions, lambda entry, name=column: _ms(entry, name)))  # type: ignore[misc]
        for column in ("real_time", "cpu_time")
    )
    if len(set(blocks)) > 1:
        kept["iterations"] = list[Json](blocks)
    counters, missing = _counters(repetitions, values_ms, cpu_ms, name.is_wall, factors)
    times_ms = [value * factor for value in values_ms]
    if factors is None and times_ms:
        counters["real_time_ms"] = fmean(times_ms)
    rests: list[Json] = [
        {word: rest for word, rest in repetition.rest().items() if word not in STATED} for repetition in repetitions
    ]
    return foreign_result(
        point,
        metrics=counters,
        missing=missing,
        samples=[
            block(0, times_ms, inner_loops=min(blocks))
            if factors
            else measured("real_time", times_ms, inner_loops=min(blocks))
        ],
        iterations=len(times_ms),
        kept={**kept, "entries": rests},
        doubts=doubts,
    )


def _counters(
    entries: Sequence[Fields],
    values_ms: Sequence[float],
    cpu_ms: Sequence[float],
    is_wall: bool,
    factors: Factors | None,
) -> tuple[dict[str, float], dict[str, str]]:
    """The CPU time and the benchmark's own counters, means over the entries, and the reasons for those that are left
    out: a counter with a value that cannot be takes no other with it."""
    counters: dict[str, float] = {}
    missing: dict[str, str] = {}
    for counter in (field for field in (entries[0] if entries else ()) if field not in NO_COUNTERS):
        stated = [entry.peek(counter) for entry in entries]
        if not all(map(is_number, stated)):
            continue
        column = COUNTERS.get(counter, f"counter_{counter}") if factors else f"counter_{counter}"
        values = [entry.number(counter) for entry in entries]
        numbers = [value for value in values if value is not None]
        if len(numbers) == len(values):
            counters[column] = fmean(numbers)
        else:
            bad = next(one for one, value in zip(stated, values, strict=True) if value is None)
            missing[column] = f"left_out: {shortened(bad)} in the file"
    rates = {column: counters.pop(column) for column in PER_CPU_TIME if column in counters}
    if factors is None:
        missing |= {column: OF_NO_VERSION for name, column in COUNTERS.items() if f"counter_{name}" in counters}
        missing["latency_median_ms"] = OF_NO_VERSION
    elif is_wall:
        counters |= {column: rate * factors.wall_rate for column, rate in rates.items()}
    elif factors != Factors() or (
        values_ms and cpu_ms and abs(fmean(cpu_ms) - fmean(values_ms)) > SAME_TIME * fmean(values_ms)
    ):
        # A rate is over the CPU time, unless the benchmark asks for the wall time.
        counters |= {PER_CPU_TIME[column]: rate * factors.cpu_rate for column, rate in rates.items()}
        missing |= dict.fromkeys(rates, OF_CPU_TIME)
    else:
        counters |= rates
    return {**({"cpu_time_ms": fmean(cpu_ms)} if cpu_ms else {}), **counters}, missing


def _ms(entry: Fields, field_name: str) -> float:
    unit = entry.text("time_unit") or "ns"
    if unit not in MS_PER_UNIT:
        entry.refuse("time_unit", f"expected {', '.join(MS_PER_UNIT)}, found {unit!r}")
    value = entry.required(entry.number, field_name)
    if value == 0 and field_name == "real_time" and entry.text("aggregate_name") not in ("stddev", "cv"):
        entry.refuse(field_name, f"0, which is no time of {entry.text('name')!r}")
    return value * MS_PER_UNIT[unit]


PLUGIN = Format(
    name="google_benchmark",
    summary="Google Benchmark: --benchmark_out (json and csv)",
    definitions=DEFINITIONS,
    names_benchmarks=True,
    recognises=recognises,
    read=read,
)
