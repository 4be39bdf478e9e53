"""Older DuckDB files with the same four tables: benchmark_runs, benchmark_results, hardware_info, raw_benchmark_data.

Their columns vary from file to file: a column that the warehouse has too is stored there, a number with a unit in its
name becomes a metric of that name, what is known as a setting distinguishes series, and everything else is kept. The
file does not define its numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from benchmarking.core import plugins
from benchmarking.core.errors import StorageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Doubt, Json, Phase, Point, Result, Scalar, Status
from benchmarking.core.text import grouped
from db.connection import Config, connect, quoted, translate_errors
from db.importers.support.building import ForeignRun, Format, exported_axes
from db.importers.support.files import ForeignFile
from db.importers.support.measures import BATCH_NOT_STATED, MS_PER_UNIT, foreign_result, measured, supported_tails
from db.importers.support.reading import Fields, shortened, understood
from db.values import plain

if TYPE_CHECKING:
    from db.connection import DuckDB


REQUIRED = ("benchmark_runs", "benchmark_results")
OPTIONAL = ("hardware_info", "raw_benchmark_data")
BOOKKEEPING = "schema_migrations"
"""A table that warehouses of this program have: such a file is merged, not imported."""
SETTINGS: Config = {"enable_external_access": False, "threads": 1, "memory_limit": "2GiB"}
"""Prevents the file from making DuckDB read other files, or fill the memory."""
MAX_ROWS, MAX_SIZE = 1_000_000, 30_000_000
"""Maximum of rows of a table, and of values in lists and characters of a file: half a megabyte can hold billions of
equal ones."""
ROWS_AT_ONCE = 1000
LOCK_TIMEOUT_S = 5.0
TABLES = "SELECT table_name FROM system.main.duckdb_tables() WHERE NOT internal AND schema_name = 'main'"
COLUMNS = """
SELECT column_name, column_name IN (SELECT column_name FROM system.main.pragma_storage_info('main.' || $1))
FROM system.main.duckdb_columns()
WHERE NOT internal AND schema_name = 'main' AND table_name = $1 ORDER BY column_index
"""
"""The columns of a table, and whether each is stored: a generated one runs an expression of the file when it is read.
(Of a table without rows nothing is stored.)"""
STATUSES: dict[str, Status] = {
    **dict.fromkeys(("ok", "success", "successful", "completed", "complete", "passed", "done"), "ok"),
    **dict.fromkeys(("failed", "error", "failure", "crashed"), "failed"),
    **dict.fromkeys(("skipped", "unsupported"), "skipped"),
    **dict.fromkeys(("timed_out", "timeout"), "timed_out"),
}
JOINS = ("result_id", "run_id", "batch_size", "sequence_length")
"""Columns that join raw values to their result, if both tables have them."""
TO_MS = MS_PER_UNIT | {"sec": MS_PER_S, "seconds": MS_PER_S}
STATISTICS = {
    **dict.fromkeys(("mean", "avg", "average"), "mean"),
    **dict.fromkeys(("median", "p50"), "median"),
    **dict.fromkeys(("std", "stddev", "std_dev"), "std"),
    **{name: name for name in ("min", "max", "p25", "p75", "p90", "p95", "p99")},
}
"""Word for a statistic -> the word in our columns."""
WORDS = "|".join(sorted(STATISTICS, key=len, reverse=True))
LATENCY = re.compile(rf"(?:({WORDS})_)?(?:inference_)?(?:latency|time)(?:_({WORDS}))?_({'|'.join(TO_MS)})")
SYNONYMS = {
    "samples_per_sec": "throughput_samples_per_sec",
    "samples_per_second": "throughput_samples_per_sec",
    "throughput_samples_per_second": "throughput_samples_per_sec",
    "tokens_per_sec": "throughput_tokens_per_sec",
    "tokens_per_second": "throughput_tokens_per_sec",
    "throughput_tokens_per_second": "throughput_tokens_per_sec",
    "ttft_ms": "time_to_first_token_ms",
    "tpot_ms": "time_per_output_token_ms",
    "first_token_latency_ms": "time_to_first_token_ms",
}
UNITED = re.compile(
    r".+_(ns|us|ms|s|sec|seconds|mb|mib|gb|gib|kb|bytes|per_sec|per_second|percent|pct|w|j|flops|tokens)"
)
SIZES = {
    "batch_size": ("batch_size", "batch"),
    "sequence_length": ("sequence_length", "seq_length", "seq_len", "input_length"),
    "new_tokens": ("new_tokens", "max_new_tokens", "output_length"),
    "concurrency": ("concurrency",),
}
"""Field of a point -> its columns; the first that has a value counts."""
OF_POINT = {column for columns in SIZES.values() for column in columns}
COUNTS = {
    **SIZES,
    "iterations": ("iterations", "num_iterations", "num_runs"),
    "warmup_iterations": ("warmup_iterations", "num_warmup"),
}
"""What a result's row states, or else its run's, by the columns of both."""
MODEL = ("model_id", "model_name", "model")
FAMILY = ("architecture_type", "architecture", "model_type")
RUNTIME = ("runtime", "framework", "backend")
PRECISION = ("precision", "dtype", "torch_dtype")
DEVICE = ("device", "device_type")
SETUP = (
    *(MODEL, FAMILY, RUNTIME, PRECISION, DEVICE),
    *((name,) for name in ("task", "device_name", "device_count", "hardware_id")),
    ("model_revision", "revision"),
)
"""The columns of what a run is of. A result's row that states them is of another run where they differ."""
THREADS = ("num_threads", "threads")
OF_RESULT = (*COUNTS.values(), *SETUP, THREADS)
CONFIGURATIONS = ("metadata", "settings", "params", "parameters", "configuration", "config")
"""Columns of objects whose fields are named like columns; the last one counts."""
SETTING = re.compile(
    r"runtime_mode|(?:use|enable)_\w+|\w+_enabled|\w*(?:attention|attn|optimi[sz]ation|quantization|compile|sdpa|kv_cache)"
    r"(?:_(?:implementation|backend|level|mode|method|dtype|type|bits))?|(?:compile|execution|power)_mode|opt_level|"
    r"execution_provider|(?:num_)?beams|(?:tensor|pipeline|data)_parallel(?:_size)?|(?:tp|pp|dp)_size",
)
"""Columns of a run or a result that tell series apart. Others, also of text, may differ in every run."""
PLAIN = (False, "", "none", "None")
"""What such a column has where nothing is set."""
LONG = (("metric_name", "metric"), ("metric_value", "value"), ("metric_unit", "unit"))
"""Columns of a table with one metric per row: its name, value and unit."""
RAW_LISTS = ("samples", "values")
RAW_VALUE = re.compile(rf"(?:latency|inference_time|duration|elapsed|time|value)(?:_({'|'.join(TO_MS)}))?")
RAW_METRICS = {**dict.fromkeys(("latency", "inference_latency", "inference_time", "latency_ms"), "latency_wall")}
RAW_ORDER = ("iteration", "iteration_index", "sample_index", "sample")
RAW_LAUNCH = ("launch", "launch_index", "process")
PHASES: tuple[Phase, ...] = get_args(Phase)


Tables = Mapping[str, Sequence[Fields]]
"""The rows by table, as fields whose path is the table and row number."""
Raw = tuple[tuple[str, ...], Mapping[tuple[str, ...], Sequence["RawValues"]]]
"""The columns that join raw values to their result, and the raw values by what is in these columns."""


@contextmanager
def _opened(file: ForeignFile, *, lock_timeout_s: float) -> Iterator[tuple[DuckDB, set[str]]]:
    """A connection to the database, and the names of its tables. Raises StorageError."""
    opened = connect(str(file.path), SETTINGS, read_only=True, lock_timeout_s=lock_timeout_s)
    with translate_errors(str(file.path)), opened as connection:
        yield connection, {name for (name,) in connection.execute(TABLES).fetchall()}


def has_tables(file: ForeignFile) -> bool:
    """Whether the file is a DuckDB database with the tables, but not a warehouse of this program."""
    if not file.is_duckdb:
        return False
    try:
        with _opened(file, lock_timeout_s=0.0) as (_, names):
            return names.issuperset(REQUIRED) and BOOKKEEPING not in names
    except StorageError:  # locked, damaged or from a newer DuckDB: not recognized
        return False


def read_tables(file: ForeignFile) -> Tables:
    """The rows of the tables in insertion order, without NULLs. Raises FormatError for a file without them,
    StorageError for an unreadable one."""
    tables: dict[str, list[Fields]] = {name: [] for name in (*REQUIRED, *OPTIONAL)}
    with _opened(file, lock_timeout_s=LOCK_TIMEOUT_S) as (connection, names):
        if absent := [name for name in REQUIRED if name not in names]:
            file.refuse(f"no table {' and no table '.join(absent)}")
        size = 0
        for table in sorted(tables.keys() & names):  # our own names, never from the file
            held = connection.execute(COLUMNS, [table]).fetchall()
            columns = [name for name, is_stored in held if is_stored]
            if not columns:
                continue
            for name in (name for name, is_stored in held if not is_stored):
                file.leave_out(f"{table}.{name}", "a generated column, whose expression is not run")
            ((count,),) = connection.execute(f"SELECT system.main.count(*) FROM main.{table}").fetchall()
            if count > MAX_ROWS:
                file.refuse(f"{table}: {count:,} rows: expected at most {MAX_ROWS:,}: import it in parts")
            selected = ", ".join(quoted(name) for name in columns)
            cursor = connection.execute(f"SELECT {selected} FROM main.{table} ORDER BY rowid")
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                for row in rows:
                    named = zip(columns, row, strict=True)
                    values = {name.lower(): plain(value) for name, value in named if value is not None}
                    place = f"{table} row {len(tables[table]) + 1}"
                    tables[table].append(_with_configuration(Fields(file, values, place, numbers_are_text=True)))
                    size += sum(len(value) for value in row if isinstance(value, str | bytes | list | dict))
                    if size > MAX_SIZE:
                        file.refuse(
                            f"{place}: more than {MAX_SIZE:,} values in lists and characters: import it in parts"
                        )
    return tables


def _with_configuration(row: Fields) -> Fields:
    """The row with what its objects of settings state under the names of columns that it lacks."""
    held = {name.lower(): value for place in CONFIGURATIONS for name, value in _object_in(row, place).items()}
    lacking = {name for names in OF_RESULT if first(row, names) is None for name in names}
    known = {name for name in held if name in lacking or (SETTING.fullmatch(name) and name not in row)}
    return _over({name: held[name] for name in known}, row)


def _over(values: Mapping[str, Any], row: Fields) -> Fields:
    """The row with these values in place of its own."""
    all_values = {**{name: row.peek(name) for name in row}, **values}
    named = {name: value for name, value in all_values.items() if value is not None}
    return Fields(row.file, named, row.path, numbers_are_text=True) if values else row


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One row of results, or several rows of one point with one metric each."""

    point: Point
    metrics: Mapping[str, float]
    raw: tuple[RawValues, ...]
    iterations: int | None
    warmup_iterations: int | None
    status: Status
    error: str | None
    doubts: tuple[Doubt, ...]
    rows: tuple[Json, ...]
    """The other fields of the rows."""
    mode: Mapping[str, Scalar]
    """The settings in the rows."""
    setup: Mapping[str, str]
    """What they state of `SETUP`, by the first of its columns."""


def raw_by_result(file: ForeignFile, tables: Tables) -> Raw:
    """The raw values of each result. Those of none are left out."""
    # The columns that join raw values to their result: only its id if there is one.
    raw, results = tables["raw_benchmark_data"], tables["benchmark_results"]
    shared = [name for name in JOINS if all(name in row for row in (*raw, *results))]
    joins = ("result_id",) if "result_id" in shared else tuple(shared)
    if raw and not joins:
        unknown = f"is missing, and so are {', '.join(JOINS[1:])}: the result of the raw values is unknown"
        file.leave_out("raw_benchmark_data.result_id", unknown)
        raw = ()
    there = {_values_in(row, joins) for row in results}

    def read(row: Fields) -> tuple[tuple[str, ...], RawValues | None]:
        key = _values_in(row, joins)
        if key not in there:
            row.refuse(joins[0], f"{', '.join(key)} is not in benchmark_results")
        return key, raw_values(row)

    return joins, grouped((key, values) for key, values in understood(file, raw, read) if values is not None)


def _values_in(row: Fields, columns: Sequence[str]) -> tuple[str, ...]:
    """The row's values in the columns, as text."""
    return tuple(str(row.any(name)) for name in columns)


def result_row(row: Fields, run_id: str, raw: Raw, of_run: Mapping[str, int | None]) -> ResultRow:
    """One row of results with its raw values, and what its run states of `COUNTS`."""
    joins, values_by_key = raw
    found = values_by_key.get(_values_in(row, joins), ())
    counts = {
        name: count_in(row, *columns) if first(row, columns) else of_run.get(name) for name, columns in COUNTS.items()
    }
    point = Point(
        batch_size=counts["batch_size"] or 1,
        sequence_length=counts["sequence_length"],
        new_tokens=counts["new_tokens"],
        concurrency=counts["concurrency"] or 1,
        axes=exported_axes(_object_in(row, "axes")),
    )
    warmups = sum(len(values.values) for values in found if values.phase == "warmup") or None
    stated_warmups = counts["warmup_iterations"]
    stated, error = text_in(row, "status"), text_in(row, "error", "error_message")
    metrics = metrics_of(row)
    status = STATUSES.get((stated or "ok").lower(), "ok" if metrics else "failed")
    ids: dict[str, Json] = {"run_id": run_id, "result_id": id_in(row, "result_id", "id")}
    mode = settings_in(row)
    setup = {names[0]: str(row.any(name)) for names in SETUP if (name := first(row, names))}
    return ResultRow(
        point=point,
        metrics=metrics,
        raw=tuple(found),
        iterations=counts["iterations"],
        warmup_iterations=warmups if stated_warmups is None else stated_warmups,
        status=status,
        error=error or (f"status {stated!r}, and no reason" if status != "ok" else None),
        doubts=(BATCH_NOT_STATED,) if counts["batch_size"] is None else (),
        rows=({**row.rest(), **ids, **({} if stated is None else {"status": stated})},),
        mode=mode,
        setup=setup,
    )


def merged(held: Sequence[ResultRow]) -> list[ResultRow]:
    """Merge rows of one point without a common metric into one result: such tables have one metric per row."""
    found: list[ResultRow] = []
    newest: dict[str, int] = {}
    for row in held:
        other = found[newest[row.point.label]] if row.point.label in newest else None
        if other is None or not row.metrics or other.metrics.keys() & row.metrics.keys():
            newest[row.point.label] = len(found)
            found.append(row)
        else:
            found[newest[row.point.label]] = replace(
                other,
                metrics={**other.metrics, **row.metrics},
                raw=other.raw if other.raw == row.raw else other.raw + row.raw,
                rows=other.rows + row.rows,
            )
    return found


def result_of(held: ResultRow) -> Result:
    """The result; latency columns that the file does not state are computed from the raw values."""
    raw_rest = [dict(one.kept) for one in held.raw]
    groups = grouped(((row.launch, row.phase, row.metric, row.unit), row) for row in held.raw)
    samples = [
        measured(metric, values, unit=unit, launch=launch, phase=phase)
        for (launch, phase, metric, unit), own in groups.items()
        if (values := [value for row in sorted(own, key=lambda row: row.order) for value in row.values])
    ]
    walls = [sample.values for sample in samples if sample.metric == "latency_wall" and sample.phase == "measure"]
    metrics, missing = supported_tails(held.metrics, sum(map(len, walls)) or held.iterations)
    return foreign_result(
        held.point,
        metrics=metrics,
        missing=missing,
        samples=samples,
        iterations=held.iterations,
        warmup_iterations=held.warmup_iterations,
        doubts=held.doubts,
        status=held.status,
        error=held.error,
        kept={"rows": list(held.rows), **({"raw_benchmark_data": raw_rest} if any(raw_rest) else {})},
    )


@dataclass(frozen=True, kw_only=True)
class RawValues:
    """The values in one row of raw data; times are in ms."""

    launch: int
    phase: Phase
    metric: str
    unit: str
    order: float
    values: tuple[float, ...]
    kept: Mapping[str, Json]
    """The other fields of the row."""


def first(fields: Fields, names: Sequence[str]) -> str | None:
    """The first of the columns that has a value in this row."""
    return next((name for name in names if name in fields), None)


def metrics_of(fields: Fields) -> dict[str, float]:
    """The metrics in a row of results: one per column, or the only one of the row."""
    name, value, unit = (first(fields, names) for names in LONG)
    if name is not None and value is not None:
        stated = fields.text(unit) if unit else None
        number, called = fields.number(value), fields.text(name) or name
        named = called if stated is None or called.endswith(f"_{stated}") else f"{called}_{stated}"
        return {} if number is None else _metric(named.lower(), number)
    found: dict[str, float] = {}
    for column in list(fields):
        if column in OF_POINT:
            continue
        if column in SYNONYMS or LATENCY.fullmatch(column) or UNITED.fullmatch(column):
            number = fields.number(column)
            found |= {} if number is None else _metric(column, number)
    return found


def _metric(name: str, number: float) -> dict[str, float]:
    latency = LATENCY.fullmatch(name)
    statistic = latency and (latency[1] or latency[2])
    if latency and statistic:
        return {f"latency_{STATISTICS[statistic]}_ms": number * TO_MS[latency[3]]}
    return {SYNONYMS.get(name, name): number}


def raw_values(fields: Fields) -> RawValues | None:
    """The values in a row of raw data; None for a row without any. Raises FormatError for times without a unit."""
    listed = first(fields, RAW_LISTS)
    single = next((name for name in fields if RAW_VALUE.fullmatch(name) and name in fields), None)
    column = listed or single
    if column is None:
        return None
    metric, of_name = text_in(fields, "metric", "metric_name") or "latency_wall", RAW_VALUE.fullmatch(column)
    stated = (of_name and of_name[1]) or text_in(fields, "unit", "metric_unit")
    if stated is None:
        fields.refuse(column, "no unit: expected one in the column's name or in a column unit")
    values = fields.numbers(column) if listed else (fields.required(fields.number, column),)
    order, launch = first(fields, RAW_ORDER), first(fields, RAW_LAUNCH)
    launched, ordered = launch and fields.integer(launch), order and fields.number(order)
    is_warmup = fields.flag("is_warmup") or fields.flag("warmup")
    word = "warmup" if is_warmup else (fields.text("phase") or "measure").lower()
    phase = next((phase for phase in PHASES if word.startswith(phase)), None)
    if phase is None:
        fields.refuse("phase", f"expected {' or '.join(PHASES)}, found {shortened(word)}")
    return RawValues(
        launch=launched or 0,
        phase=phase,
        metric=RAW_METRICS.get(metric.lower(), metric),
        unit="ms" if stated in TO_MS else stated,
        order=ordered or 0.0,
        values=tuple(value * TO_MS.get(stated, 1.0) for value in values or ()),
        kept=fields.rest(),
    )


def id_in(row: Fields, *names: str) -> str | None:
    """The row's id as text; None without one."""
    name = first(row, names)
    return None if name is None else str(row.any(name))


def text_in(row: Fields, *names: str) -> str | None:
    """The text in the first of the columns that has a value."""
    name = first(row, names)
    return None if name is None else row.text(name)


def settings_in(row: Fields) -> dict[str, Scalar]:
    """The settings in the row's columns, those of an object by the names in it, and the number of threads. A number
    with a fraction was measured."""
    found: dict[str, Scalar] = {}
    for name in [name for name in row if SETTING.fullmatch(name)]:
        if isinstance(value := row.peek(name), float) and not value.is_integer():
            continue
        if not (values := _object_in(row, name)):
            found |= row.settings((name,), PLAIN)
            continue
        held = Fields(row.file, values, row.place(name), numbers_are_text=True)
        threads = count_in(held, *THREADS)
        found |= held.other_settings(THREADS) | ({} if threads is None else {"num_threads": threads})
        if not held.rest():  # else what is of one machine is kept
            row.any(name)
    threads = count_in(row, *THREADS)
    return found if threads is None else {**found, "num_threads": threads}


def _object_in(row: Fields, name: str) -> dict[str, Any]:
    """The object in a column, also as JSON text; empty for anything else."""
    value = row.peek(name)
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def count_in(row: Fields, *names: str) -> int | None:
    """The whole number from 1 in the first of the columns that has a value."""
    name = first(row, names)
    return None if name is None else row.count(name)


STARTED = ("started_at", "timestamp", "created_at", "run_timestamp", "start_time", "date")
FINISHED = ("finished_at", "completed_at", "end_time")
DEFINITIONS = {"*": "as the program that wrote the file defines it, which the file does not say"}


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    if not file.is_duckdb:
        file.refuse("not a DuckDB file")
    tables = read_tables(file)
    hardware = _by(file, tables["hardware_info"], "hardware_id", "id")
    results = _by(file, tables["benchmark_results"], "run_id")
    runs = _by(file, tables["benchmark_runs"], "run_id", "id")
    for row in (row for run_id, rows in results.items() if run_id not in runs for row in rows):
        file.leave_out(row.place("run_id"), f"{row.any('run_id')} is not in benchmark_runs")
    raw = raw_by_result(file, tables)

    def read_run(named: tuple[str, list[Fields]]) -> list[ForeignRun]:
        run_id, rows = named
        if len(rows) > 1:
            rows[1].refuse("run_id", f"{run_id} occurs twice, so it is unknown of which its results are")
        entries = results.get(run_id, [])
        lacking = {name: of for name, of in COUNTS.items() if any(first(one, of) is None for one in entries)}
        counts = {name: count_in(rows[0], *columns) for name, columns in lacking.items()}
        held = list(understood(file, entries, lambda entry: result_row(entry, run_id, raw, counts)))
        return list(_runs(run_id, rows[0], held, hardware))

    for found in understood(file, runs.items(), read_run):
        yield from found


def _runs(
    run_id: str, row: Fields, held: Sequence[ResultRow], hardware: Mapping[str, Sequence[Fields]]
) -> Iterator[ForeignRun]:
    """The runs of a row of runs and its results: one for each setup and each setting of these."""
    of_run = settings_in(row.unread_copy())
    stated = {names[0]: str(row.peek(name)) for names in SETUP if (name := first(row, names))}
    groups = grouped(
        (
            (
                json.dumps({**of_run, **one.mode}, sort_keys=True),
                json.dumps({name: word for name, word in one.setup.items() if stated.get(name) != word}),
            ),
            one,
        )
        for one in held
    )
    for (text, other), alike in (groups or {(json.dumps(of_run), "{}"): []}).items():
        mode, own = json.loads(text), json.loads(other)
        run_results = list(understood(row.file, merged(alike), result_of))
        kinds = {word.partition(":")[0] for word in (stated.get("device", ""), own.get("device", "")) if word}
        if "hardware_id" in own or len(kinds) > 1:  # then the device that the run names is another one
            own = {"device_name": None, "device_count": None} | own
        found = _setup(run_id, _over(own, row), hardware)
        yield ForeignRun(
            key=" ".join((run_id, *([text] if mode else ()), *([other] if own else ()))),
            results=run_results,
            status=None if run_results else STATUSES.get((text_in(row, "status") or "").lower(), "failed"),
            num_threads=mode.pop("num_threads", None),
            runtime_mode=mode,
            **found,
        )


def _setup(run_id: str, row: Fields, hardware: Mapping[str, Sequence[Fields]]) -> dict[str, Any]:
    """What a row of runs and that of its machine state, but for settings."""
    # The row of the machine: the one that the run names, or the only one.
    machine_id = id_in(row, "hardware_id")
    only = next(iter(hardware.values())) if machine_id is None and len(hardware) == 1 else ()
    named = hardware.get(machine_id, ()) if machine_id is not None else only
    machine = named[0] if named else Fields(row.file, {}, "hardware_info")
    started, finished = first(row, STARTED), first(row, FINISHED)
    begin, end = (row.time(name) if name else None for name in (started, finished))
    family, status = text_in(row, *FAMILY), text_in(row, "status")
    known = family in plugins.family_names()
    machines, cpu = text_in(machine, "device_type"), text_in(machine, "cpu_model", "cpu_name", "cpu", "processor")
    kind = (text_in(row, *DEVICE) or machines or "unknown").partition(":")[0].lower()
    device_name, memory_bytes = (
        text_in(machine, "device_name", "gpu_name", "accelerator"),
        machine.integer("memory_bytes"),
    )
    is_host = kind == "cpu" and (machines or kind).lower() != kind  # the row describes the machine's other device
    found: dict[str, Any] = {
        "started_at": begin,
        "stated_times": (row.text(started),) if started else (),
        "finished_at": end if begin and end and end >= begin else None,
        "model_id": text_in(row, *MODEL) or "unknown",
        "family": family if known else None,
        "task": text_in(row, "task") or "benchmark",
        "runtime": text_in(row, *RUNTIME) or "unknown",
        "precision_word": text_in(row, *PRECISION),
        "host": text_in(row, "host", "hostname") or text_in(machine, "host", "hostname"),
        "tool_version": text_in(row, "tool_version"),
        "parameter_count": row.integer("parameter_count"),
        "git_commit": text_in(row, "git_commit", "commit"),
        "git_branch": text_in(row, "git_branch", "branch"),
        "error": text_in(row, "error", "error_message"),
        "device_type": kind,
        "device_name": text_in(row, "device_name") or (cpu if is_host else device_name),
        "device_memory_bytes": None if is_host else memory_bytes,
        "device_count": count_in(row, "device_count") or count_in(machine, "device_count") or 1,
        "model_revision": text_in(row, "model_revision", "revision"),
        "cpu_model": cpu,
        "cpu_cores": count_in(machine, "cpu_cores", "num_cores", "physical_cores"),
        "cpu_threads": count_in(machine, "cpu_threads", "logical_cores"),
        "memory_bytes": machine.integer("system_memory_bytes"),
    }
    settings_in(row)  # which are in the mode, and not kept once more
    own: dict[str, Json] = {"run_id": run_id, "status": status, "architecture_type": None if known else family}
    kept = {**row.rest(), **{name: value for name, value in own.items() if value is not None}}
    return {**found, "kept": {"benchmark_runs": kept, "hardware_info": machine.rest()}}


def _by(file: ForeignFile, rows: Sequence[Fields], *names: str) -> dict[str, list[Fields]]:
    """The rows by their id; those without one are left out."""

    def named(row: Fields) -> tuple[str, Fields]:
        return id_in(row, *names) or row.refuse(names[0], "is missing"), row

    return grouped(understood(file, rows, named))


PLUGIN = Format(
    name="benchmark_duckdb",
    summary="older DuckDB files: benchmark_runs, benchmark_results, hardware_info, raw_benchmark_data",
    definitions=DEFINITIONS,
    recognises=has_tables,
    read=read,
)
