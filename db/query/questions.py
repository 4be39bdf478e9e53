"""SQL queries of users: one read-only statement, executed in a separate process within limits.

All SQL of users comes through here, including that of selections. The process opens the file read-only and is confined
to it (`db.connection`). It is killed at the time limit, since DuckDB does not interrupt every function, and its memory
is limited to MEMORY_BYTES. The type of the statement is checked only for clearer messages, and to refuse statements
whose effect would be lost with the connection.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal
from uuid import UUID

from benchmarking.core.child_process import module_command, start
from benchmarking.core.command_line import hide_pandas
from benchmarking.core.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_TIME_LIMIT,
    BenchhouseError,
    FormatError,
    LockedError,
    StorageError,
    UsageError,
)
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.suggestions import nearest
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.text import first_few, numbered
from db.connection import TEMP_FOLDER_VARIABLE, literal, quoted

if TYPE_CHECKING:
    from db.connection import DuckDB, DuckDbMessage
    from db.warehouse import Warehouse

Row = tuple[Any, ...]
Form = Literal["rows", "parquet"]
"""Format in which an answer is sent."""

READ_STATEMENTS = ("SELECT", "EXPLAIN", "PRAGMA", "MULTI")
"""Types of statements that read; MULTI is a PIVOT in DuckDB 2."""
STATEMENT_ERRORS = ("Parser", "Syntax", "Binder", "Catalog", "Permission", "Invalid Input", "Parameter Not Resolved")
"""Kinds of errors in the statement; all others are errors of the data or the machine."""
FILE_ERRORS = ("", "IO", "INTERNAL", "FATAL", "INTERRUPT", "Connection", "Serialization", "TransactionContext")
"""Kinds of errors of the file or the program, whose messages name the file; all others are errors of values."""
MESSAGE_ROWS = 10_000
MESSAGE_SIZE = 4_000_000
"""Rows in a message, and characters or elements in their values, at which it is sent."""
ROWS_AT_ONCE = 100
"""Rows that are read at once: few, since a row may have megabytes."""
PARQUET_GROUP_ROWS = 122_880
"""Rows per group of a Parquet file, as in DuckDB itself."""
MEMORY_BYTES = 4 * 1024**3
"""Memory limit of a query. DuckDB keeps its tables within half of it and spills the rest to disk; its functions on
single values heed no other limit."""
NICENESS = 10
"""Of the process that answers: other work, such as the pages of the dashboard, comes first."""
LOCK_TIMEOUT_S = 30.0
"""Time to wait for the lock of the file, by default."""
GRACE_S = 5.0
"""Time after the limit at which the process ends by itself if it was not killed."""
EXIT_NO_MEMORY = 137
"""Of the process that answers: as if the system had killed it for its memory."""
TOO_LARGE = f"the query needs more than {MEMORY_BYTES // 1024**3} GB of memory: narrow it"


KINDS: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("date", date.isoformat, date.fromisoformat),
    time: ("time", time.isoformat, time.fromisoformat),
    Decimal: ("decimal", str, Decimal),
    UUID: ("uuid", str, UUID),
    bytes: ("bytes", bytes.hex, bytes.fromhex),
    tuple: ("tuple", list, tuple),
    dict: ("pairs", lambda value: [list(pair) for pair in value.items()], dict),
}
"""Type of value that JSON does not have -> key of the object that is sent for one, and how it is sent and received."""
RECEIVED = {name: received for name, _, received in KINDS.values()}
INFINITE = {datetime.max: "infinity", datetime.min: "-infinity"}
"""How DuckDB's driver gives a time that is infinite -> DuckDB's text, which it gives of other times beyond the years 1
to 9999."""


TIMES: Mapping[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "date": (re.compile(r"\d{4}-\d\d-\d\d"), date.fromisoformat),
    "timestamp_ns": (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?"), datetime.fromisoformat),
    "time_ns": (re.compile(r"(?!24)\d\d:\d\d:\d\d(\.\d{1,6})?"), time.fromisoformat),
}
"""Type of a column that is read as text -> the texts of values that Python has, and the conversion of one."""
NANOSECONDS = re.compile(r"(?<=\d) (?=\d\d:\d\d:\d\d\.\d{7})")


class TimeLimitError(BenchhouseError):
    """The time limit was reached. Exit code 124."""

    exit_code = EXIT_TIME_LIMIT


ERRORS: dict[str, type[BenchhouseError]] = {
    kind.__name__: kind for kind in (UsageError, LockedError, FormatError, StorageError, TimeLimitError)
}
"""Errors that the process can send, by name."""


class Stopper:
    """Ends the query of a caller that no longer waits for it, from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self._is_stopped = False

    def stop(self) -> None:
        """Kill the process that answers, or the one that is about to."""
        with self._lock:
            self._is_stopped = True
            for process in self._processes:
                process.kill()

    def watch(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._processes.append(process)
            if self._is_stopped:
                process.kill()


STOPPER: ContextVar[Stopper | None] = ContextVar("stopper", default=None)
"""Stops the queries of this context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of an answer."""

    name: str
    type: str
    """DuckDB's name: VARCHAR, DOUBLE, MAP(VARCHAR, DOUBLE), ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a query."""

    columns: tuple[Column, ...]
    rows: Iterator[Row]
    """Read from the database as they are consumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimit:
    """Limits of an answer that its reader holds in memory."""

    rows: int
    """Maximum rows; the rest are left out."""
    bytes: int
    """Maximum size of the rows, as they are sent; more is an error."""


@contextmanager
def answering(
    database: str | Path,
    sql: str,
    params: Mapping[str, str] | None = None,
    *,
    timeout_s: float | None = None,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    limit: AnswerLimit | None = None,
) -> Iterator[Answer]:
    """The answer to one statement, with `params` bound to its `$name`; the rows are read inside the `with`.

    The time limit starts when the file is open. Raises UsageError, with line and column, for invalid SQL, for zero or
    several statements, and for one that changes something; StorageError and its subclasses for errors of the file, the
    data and memory; TimeLimitError.
    """
    with _question_process(database, sql, params, "rows", timeout_s, lock_timeout_s, limit) as (answers, columns):
        yield Answer(columns=columns, rows=answers.rows())


@contextmanager
def answering_in_parquet(database: str | Path, sql: str, *, timeout_s: float | None) -> Iterator[Iterator[bytes]]:
    """The answer to one statement as a Parquet file, in parts, written by the same process within the same limits.

    Raises like `answering`, and UsageError for a column whose type Parquet does not have.
    """
    with _question_process(database, sql, None, "parquet", timeout_s, LOCK_TIMEOUT_S) as (answers, _):
        yield answers.parts()


@contextmanager
def _question_process(
    database: str | Path,
    sql: str,
    params: Mapping[str, str] | None,
    form: Form,
    timeout_s: float | None,
    lock_timeout_s: float,
    limit: AnswerLimit | None = None,
) -> Iterator[tuple[_Answers, tuple[Column, ...]]]:
    """The messages of the process, read up to the columns; and the columns' names and types."""
    question = {
        "database": str(database),
        "sql": sql,
        "params": dict(params or {}),
        "form": form,
        "timeout_s": timeout_s,
        "lock_timeout_s": lock_timeout_s,
        "most_rows": None if limit is None else limit.rows,
    }
    timer: threading.Timer | None = None
    with (
        temporary_folder("benchhouse-query") as folder,  # removed here even if the process is killed
        start(
            module_command("db.query.questions"),
            stdin=subprocess.PIPE,
            stderr=None,
            variables={TEMP_FOLDER_VARIABLE: str(folder)},
        ) as process,
    ):
        if (stopper := STOPPER.get()) is not None:
            stopper.watch(process)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # it has ended; its answer has the reason
                process.stdin.write(json.dumps(question))
                process.stdin.close()
            pipe = os.fdopen(process.stdout.fileno(), "rb", closefd=False)
            answers = _Answers(pipe, None if limit is None else limit.bytes, process)
            answers.next("open")
            if timeout_s is not None:

                def expire() -> None:
                    answers.expired_s = timeout_s
                    process.kill()

                timer = threading.Timer(timeout_s, expire)
                timer.daemon = True
                timer.start()
            columns = tuple(Column(name=name, type=kind) for name, kind in answers.next("columns"))
            yield answers, columns
        finally:
            if timer is not None:
                timer.cancel()
            process.kill()  # the rest of its answer may be unread


class _Answers:
    """The messages of the process, one line of JSON each: "open", "columns", "rows" or "part", "end"; or "error"."""

    def __init__(self, pipe: IO[bytes], most_bytes: int | None, process: subprocess.Popen[str]) -> None:
        self._pipe = pipe
        self._most_bytes = most_bytes
        self._process = process
        self.expired_s: float | None = None
        """The time limit, once it is over."""

    def next(self, expected: str) -> Any:
        """The content of the next message, which is of the expected kind; None at the end. Raises the error in it."""
        line = self._pipe.readline(-1 if self._most_bytes is None else self._most_bytes + 1)
        if self._most_bytes is not None and len(line) > self._most_bytes:
            raise StorageError(f"the answer has more than {self._most_bytes / 1e6:.0f} MB: select less")
        try:
            kind, content = json.loads(line, object_hook=_received)
        except ValueError:  # killed, maybe in the middle of a line
            if self.expired_s is not None:
                raise TimeLimitError(
                    f"no answer within {self.expired_s:g} s: narrow the query, or raise --timeout"
                ) from None
            if self._process.wait() == EXIT_FAILED:
                raise StorageError("the process that answers the query failed, for the reason above") from None
            raise StorageError(TOO_LARGE) from None
        if kind == "error":
            name, message = content
            raise ERRORS[name](message)
        return content if kind == expected else None

    def rows(self) -> Iterator[Row]:
        """The rows, as they arrive."""
        while (rows := self.next("rows")) is not None:
            yield from map(tuple, rows)

    def parts(self) -> Iterator[bytes]:
        """The parts of a file, as they arrive."""
        while (part := self.next("part")) is not None:
            yield part


def _sent(value: Any) -> Any:
    """A value as JSON; `_received` converts it back."""
    if isinstance(value, list):
        return [_sent(item) for item in value]
    if (kind := KINDS.get(type(value))) is None:
        return value
    if type(value) is datetime and value in INFINITE:
        return INFINITE[value]
    name, sent, _ = kind
    return {name: _sent(sent(value))}


def _received(sent: dict[str, Any]) -> Any:
    """The value of a JSON object whose only key is the name of a kind."""
    [(name, content)] = sent.items()
    return RECEIVED[name](content)


def main() -> int:
    """Answer the query on stdin, to stdout."""
    with suppress(AttributeError, OSError):
        os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the calling process is interrupted, and kills this one
    question = json.loads(sys.stdin.buffer.read())
    try:
        for message in _answer(question):
            sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
            sys.stdout.buffer.flush()
    except (BrokenPipeError, MemoryError):  # the process that asks has gone, or says what happened
        os._exit(EXIT_NO_MEMORY)
    return EXIT_OK


def _answer(question: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The messages, the last of which is "end" or "error"."""
    from db.warehouse import Warehouse

    try:
        lock_timeout_s = question["lock_timeout_s"]
        with Warehouse.open(question["database"], for_questions=True, lock_timeout_s=lock_timeout_s) as warehouse:
            limit_memory()
            if question["timeout_s"] is not None:
                # The calling process kills this one at the limit, unless it has gone.
                timer = threading.Timer(question["timeout_s"] + GRACE_S, os._exit, [EXIT_FAILED])
                timer.daemon = True
                timer.start()
            yield "open", None
            yield from _run_query(warehouse, question)
        yield "end", None
    except MemoryError:
        yield "error", ("StorageError", TOO_LARGE)
    except BenchhouseError as error:
        name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in ERRORS)
        yield "error", (name, str(error))


def _run_query(warehouse: Warehouse, question: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    from db.connection import parse_message, translate_errors, without_end

    sql, most_rows, before = question["sql"], question["most_rows"], ""
    try:
        with warehouse.cursor() as cursor:
            # Raise UsageError unless it is one read-only statement.
            statements = cursor.extract_statements(sql)
            if not statements:
                raise UsageError("expected a statement, such as SELECT * FROM hardware_comparison: got none")
            # DuckDB 1.5 splits a PIVOT into several statements; only the last one has a text.
            count = sum(bool(statement.query.strip()) for statement in statements)
            if count > 1:
                raise UsageError(f"expected one statement: got {count}")
            kind = statements[-1].type.name
            if kind not in READ_STATEMENTS:
                raise UsageError(f"{kind} is not read-only: use SELECT, DESCRIBE or EXPLAIN")
            params, texts, inside = question["params"] or None, list[str](), f"{without_end(sql)}\n)"
            if question["form"] == "rows":
                with suppress(StorageError), translate_errors(warehouse.path):  # raised below, with its position
                    cursor.execute(f"FROM ({inside} LIMIT 0", params)  # runs nothing
                    kinds = [kind for _, kind, *_ in cursor.description or ()]
                    texts = [_with_texts(kind) for kind in kinds]
            if any(texts):
                kept = ", ".join(f"#{place}{text and f'::{text}'}" for place, text in enumerate(texts, 1))
                before = "FROM ("
                cursor.execute(f"DESCRIBE {sql}", params)  # a column in parentheses has a name of its own
                columns = [(name, kind) for (name, *_), kind in zip(cursor.fetchall(), kinds, strict=True)]
                cursor.execute(f"{before}{inside} SELECT {kept}", params)
            else:
                cursor.execute(sql, params)
                columns = [(name, kind) for name, kind, *_ in cursor.description or ()]
            yield "columns", [(name, str(kind)) for name, kind in columns]
            if question["form"] == "parquet":
                yield from (("part", _sent(part)) for part in _parquet(cursor))
                return
            if not columns:
                return
            groups = _row_groups(cursor.fetchmany) if most_rows is None else iter([cursor.fetchmany(most_rows)])
            for rows in filter(None, groups):
                if any(texts):
                    rows = [tuple(map(_of_text, row, kinds)) for row in rows]
                yield "rows", [[_sent(value) for value in row] for row in rows]
    except StorageError as error:
        problem = parse_message(str(error.__cause__))
        for name, value in question["params"].items():
            if problem.kind == "Conversion" and f"'{value}'" in problem.message:
                raise UsageError(f"{name}={value}: {problem.message}") from error
        raise _explained(problem, sql, error, warehouse, start=len(before)) from error


def _with_texts(kind: Any) -> str:
    """DuckDB's type with texts in place of what the driver would change; empty without any. Python has no months, for
    which it would give 30 days each, no infinite dates, which would be the last and the first of the calendar, and no
    nanoseconds."""
    if kind.id in ("interval", "date", "timestamp_ns", "time_ns"):
        return "VARCHAR"
    if kind.id not in ("struct", "tuple", "list", "array", "map", "union"):  # tuples are those of row() in DuckDB 2
        return ""
    parts = [(name, inner, "" if name == "size" else _with_texts(inner)) for name, inner in kind.children]
    if not any(text for _, _, text in parts):
        return ""
    inner = [text or str(own) for _, own, text in parts]
    if kind.id in ("list", "array"):
        return f"{inner[0]}[{inner[1] if kind.id == 'array' else ''}]"
    if kind.id == "map":
        return f"MAP({', '.join(inner)})"
    names = [quoted(name or f"v{place}") for place, (name, _, _) in enumerate(parts, 1)]  # those of row() have none
    fields = [f"{name} {text}" for name, text in zip(names, inner, strict=True)]
    if kind.id == "union":
        return f"UNION({', '.join(fields[1:])})"  # without its tag
    return f"STRUCT({', '.join(fields)})"


def _of_text(value: Any, kind: Any) -> Any:
    """A date or time of a column that was read as text; what Python lacks is still the text, in ISO 8601."""
    if value is None or kind.id not in TIMES:
        return value
    form, parsed = TIMES[kind.id]
    return parsed(value) if form.fullmatch(value) else NANOSECONDS.sub("T", value)


def _row_groups(fetch: Callable[[int], list[Row]]) -> Iterator[list[Row]]:
    """The rows of the answer in groups of bounded size, read as they are sent."""
    group: list[Row] = []
    size = 0
    while rows := fetch(ROWS_AT_ONCE):
        group += rows
        size += sum(len(value) for row in rows for value in row if isinstance(value, str | bytes | list | dict))
        if len(group) >= MESSAGE_ROWS or size >= MESSAGE_SIZE:
            yield group
            group, size = [], 0
    yield group


class _Written(io.RawIOBase):
    """A file that is written sequentially and taken away in parts."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, part: Any) -> int:
        self._parts.append(bytes(part))
        self._size += len(self._parts[-1])
        return len(self._parts[-1])

    def taken(self) -> bytes:
        """What was written since the last call."""
        part = b"".join(self._parts)
        self._parts.clear()
        return part


def _parquet(cursor: DuckDB) -> Iterator[bytes]:
    """The cursor's answer as a file, one part per group of rows. Raises UsageError."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        reader = cursor.to_arrow_reader(PARQUET_GROUP_ROWS)
        names = numbered(reader.schema.names)
        schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
        file = _Written()
        for field in schema:  # Parquet has no INTERVAL, UNION, ...
            try:
                parquet.ParquetWriter(io.BytesIO(), pa.schema([field])).close()
            except pa.ArrowException as error:
                raise UsageError(
                    f"Parquet has no type for {field.name!r}, which is {field.type}: cast it, for example "
                    f'"{field.name}"::VARCHAR'
                ) from error
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch.rename_columns(names))
                yield file.taken()
        yield file.taken()
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"the answer cannot be written as Parquet: {str(error).splitlines()[0]}") from error


def limit_memory() -> None:
    """Limit the growth of this process and its children to MEMORY_BYTES, if the system supports it."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limit, and macOS refuses it
        import resource

        own_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = MEMORY_BYTES + own_bytes
        _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard_limit < 0 else min(limit, hard_limit), hard_limit))


OTHER_TABLES = {
    **dict.fromkeys(("result", "results", "benchmark", "benchmarks", "measurements", "metrics"), "all_results"),
    **dict.fromkeys(("run", "runs", "models", "sessions"), "benchmark_runs"),
    **dict.fromkeys(("hardware", "devices", "machines"), "hardware_info"),
    **dict.fromkeys(("samples", "raw", "raw_data", "latencies"), "raw_samples"),
    **dict.fromkeys(("load", "loads", "serving", "servers", "rates", "goodput"), "load_curve"),
}
"""Names that people guess -> our table, which DuckDB would not find similar."""
NO_COLUMN = re.compile(r'(?:Referenced|(?:Values list|Table) "\w+" does not have a) column (?:named )?"(\w+)"')
HAVE_COLUMN = """
SELECT DISTINCT table_name FROM system.main.duckdb_columns()
WHERE NOT internal AND column_name = ? AND table_name != 'schema_migrations'
ORDER BY table_name NOT IN ('latest_results', 'all_results'), table_name NOT LIKE '%results', table_name
"""
"""Tables and views with a column: first those that have most of them."""
OTHER_COLUMNS = {"state": "status (of the measurement) or validity (of its numbers)"}
"""Names that people guess -> our columns, which DuckDB would not find similar."""
SHORT_WORDS = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2e": "latency",
    "mem": "memory",
}
"""Words that people shorten -> those of our columns."""
EQUAL_WORDS: Mapping[str, Sequence[str]] = {
    word: ours.split()
    for words, ours in {
        "backend engine framework server": "runtime",
        "dtype quant quantization": "precision",
        "created date time timestamp": "started",
        "errors failures failed": "failed error",
        "limit limits met meets ok share slo within holds": "goodput slo",
        "avg average": "mean",
        "sd stddev stdev": "std",
        "best max peak": "highest max peak",
        "ram vram": "memory",
        "qps rps": "requests",
        "second seconds throughput": "sec",
        "tps": "tokens",
        "median": "p50",
        "p50": "median",
        "gpu": "device",
        "len": "length",
        "seq": "sequence",
        "samples": "iterations",
        "sha": "commit",
    }.items()
    for word in words.split()
}
"""Words in the names of columns that people guess -> words in ours."""
COLUMNS = """
SELECT table_name, column_name FROM system.main.duckdb_columns()
WHERE NOT internal AND list_contains(?::VARCHAR[], table_name) ORDER BY table_name, column_index
"""
OTHER_KEYS = "SELECT DISTINCT unnest(map_keys(other_metrics)) AS name FROM benchmark_results"
LOAD_METRIC = re.compile(r"other_metrics\['(\w+)'\] AS")
"""A metric of load tests in the view that has a column for it."""
NEAR = re.compile(r'syntax error at or near "(\w+)"')
IS_KEYWORD = "SELECT 1 FROM duckdb_keywords() WHERE keyword_name = ? AND keyword_category = 'unreserved'"
"""Words that name a column only behind AS."""
PERCENTILE = re.compile(r"\w+ Function with name \w*percentile\w* does not exist", re.IGNORECASE)
TABLE_NAMES = """
SELECT table_name AS name FROM system.main.duckdb_columns() WHERE NOT internal AND schema_name = 'main'
GROUP BY table_name ORDER BY table_name
"""
"""The names of tables and views."""
NO_TABLE = re.compile(r"Table with name (\w+) does not exist")


def _explained(
    problem: DuckDbMessage, sql: str, error: StorageError, warehouse: Warehouse, *, start: int
) -> BenchhouseError:
    """The error for the user; `start` is where the statement begins in what was run."""
    position = "" if problem.position is None else f"{error_position(sql, problem.position - start)}: "
    if problem.kind == "Parser" and (word := re.fullmatch(r"\s*(\w+)\s*;?\s*", sql)):
        example = "SELECT * FROM " + OTHER_TABLES.get(word[1].lower(), "benchmark_results")
        return UsageError(f"{word[1]} is no statement: write one such as {example} (--describe lists the tables)")
    if (near := NEAR.match(problem.message)) and warehouse.query(IS_KEYWORD, [near[1].lower()]).dicts():
        return UsageError(f"{position}{problem.message}: as a name, write AS {near[1]} (it is also a word of SQL)")
    if table := NO_TABLE.match(problem.message):
        name = table[1].lower()
        stored = [row["name"] for row in warehouse.query(TABLE_NAMES).dicts()]
        by_parts = map(OTHER_TABLES.get, name.split("_"))  # load_results is one of loads
        guessed = [OTHER_TABLES.get(name), *nearest(name, stored, number=1, similar=0.8), *by_parts]
        if ours := next(filter(None, guessed), None):
            return UsageError(f"{position}there is no table {table[1]}: did you mean {ours}?")
    if PERCENTILE.match(problem.message):
        return UsageError(f"{position}a percentile is quantile_cont(COLUMN, 0.95)")
    column = NO_COLUMN.match(problem.message)
    if column and (ours := _column_of_loads(column[1], sql)):
        return UsageError(f"{position}load_curve has no column {column[1]}: there it is the column {ours}")
    if column and (ours := _stored_in(column[1])):
        of_loads = ", or a column of load_curve" if _is_of_loads(column[1]) else ""
        return UsageError(f"{position}there is no column {column[1]}: it is {ours}, as of all_results{of_loads}")
    if column and column[1] in OTHER_COLUMNS:
        return UsageError(f"{position}there is no column {column[1]}: did you mean {OTHER_COLUMNS[column[1]]}?")
    if column:
        return UsageError(f"{position}{_other_columns(column[1], sql, warehouse)}")
    if "pytz" in problem.message:  # the driver needs this package for times with a zone
        return UsageError("TIMESTAMP WITH TIME ZONE is not supported: cast it, for example now()::TIMESTAMP")
    if problem.kind == "Out of Memory":
        return StorageError(TOO_LARGE)
    if problem.kind in STATEMENT_ERRORS:
        return UsageError(f"{position}{problem.message}")
    if position or (type(error) is StorageError and problem.kind not in FILE_ERRORS):
        return StorageError(f"{position}{problem.message}")
    return error


def _stored_in(name: str) -> str | None:
    """The expression for the rate or a setting of a load test, which tables show by name; None for other names."""
    from benchmarking.core.records import REQUEST_RATE
    from db.analysis.recommend.servers import LOAD_SETTINGS
    from db.values import is_of_server

    if name == REQUEST_RATE:
        return f"axes->>'{name}'"
    return f"runtime_mode->>'{name}'" if name in LOAD_SETTINGS or is_of_server(name) else None


def _is_of_loads(name: str) -> bool:
    """Whether the view of load tests has a column of this name."""
    from db.migrate import view_query

    return re.search(rf"(?:\bAS|\br\.) ?{re.escape(name)}\b", view_query("load_curve")) is not None


def _column_of_loads(name: str, sql: str) -> str | None:
    """The column of the view of load tests that a statement about it takes out of JSON, as other tables have it; None
    for other statements."""
    asked = re.search(rf"\b{re.escape(name)}\s*->>?\s*'(?:\$\.)?(\w+)'", sql)
    is_ours = asked is not None and re.search(r"\bload_curve\b", sql) and _is_of_loads(asked[1])
    return asked[1] if asked and is_ours else None


def _other_columns(name: str, sql: str, warehouse: Warehouse) -> str:
    """What to say of a column that a statement's tables lack: which other tables have it, else "there is no column
    rate: did you mean request_rate?" by the words in the names of their columns, and of the metrics without one."""
    from difflib import get_close_matches

    from db.migrate import view_query

    columns = warehouse.query(COLUMNS, [re.findall(r"\w+", sql)]).dicts()
    known = {row["column_name"]: row["column_name"] for row in columns}
    if "other_metrics" in known:
        stored = [row["name"] for row in warehouse.query(OTHER_KEYS).dicts()]
        keys = dict.fromkeys([*LOAD_METRIC.findall(view_query("load_curve")), *stored])
        known |= {key: f"other_metrics[{literal(key)}]" for key in keys}
    full = "_".join(SHORT_WORDS.get(word, word) for word in name.lower().split("_"))
    words = full.split("_")

    def unlike(column: str) -> tuple[int, bool, int]:
        """How many of the words it lacks, whether it is no column, and how many words it has."""
        own = column.lower().split("_")
        lacks = sum(
            not {word, *EQUAL_WORDS.get(word, ())} & {*own} and not get_close_matches(word, own, cutoff=0.84)
            for word in words
        )
        return lacks, known[column] != column, len(own)

    ranked = sorted((unlike(column), place, column) for place, column in enumerate(known))
    least = ranked[0][0][0] if ranked else len(words)
    meant = [known[column] for (lacks, *_), _, column in ranked if lacks == least < len(words)][:3]
    if full in known:
        meant = [known[full]]
    elif have := [row["table_name"] for row in warehouse.query(HAVE_COLUMN, [name]).dicts()]:
        places = f"{first_few(have, 3)} {'has' if len(have) == 1 else 'have'} it"
        return f"no column {name} in what this selects from: {places}"
    listed = f"benchhouse query --describe {columns[0]['table_name'] if columns else 'TABLE'} lists the columns"
    return f"there is no column {name}: " + (f"did you mean {' or '.join(meant)}? " if meant else "") + listed


def error_position(sql: str, position: int) -> str:
    """Line and column, both from 1, of a position in bytes of UTF-8: "line 2, column 5"."""
    before = sql.encode()[:position].decode(errors="ignore")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return f"line {line}, column {column}"


if __name__ == "__main__":
    hide_pandas()
    sys.exit(main())
