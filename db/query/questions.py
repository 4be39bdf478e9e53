"""Questions in SQL from users: one read-only statement, answered within a time limit, in parts.

The connection (`Warehouse.open(..., for_questions=True)`) is what keeps it to reading: the file is opened read-only, no
other file and no network can be reached, and the settings are locked. The type of the statement is checked only for
clearer messages, and to refuse what would be lost with the connection.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import EXIT_TIME_LIMIT, BenchhouseError, StorageError, UsageError
from db.connection import DuckDbMessage, parse_message

if TYPE_CHECKING:
    from db.connection import DuckDB
    from db.warehouse import Warehouse

Row = tuple[Any, ...]

READING = ("SELECT", "EXPLAIN", "PRAGMA", "MULTI")
"""Types of statements that read; MULTI is a PIVOT in DuckDB 2."""
MISTAKES = ("Parser", "Syntax", "Binder", "Catalog", "Permission", "Invalid Input", "Parameter Not Resolved")
"""Kinds of errors of the statement; all others are of the data or the machine."""
ROWS_AT_ONCE = 10_000


class TimeLimitError(BenchhouseError):
    """The time limit was reached. Exit code 124."""

    exit_code = EXIT_TIME_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of an answer."""

    name: str
    type: str
    """DuckDB's name: VARCHAR, DOUBLE, MAP(VARCHAR, DOUBLE), ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a question."""

    columns: tuple[Column, ...]
    rows: Iterator[Row]
    """Read from the database as they are consumed."""


@contextmanager
def answering(
    warehouse: Warehouse, sql: str, params: Mapping[str, str] | None = None, *, timeout_s: float | None = None
) -> Iterator[Answer]:
    """The answer to one statement, with `params` bound to its `$name`; the rows are read inside the `with`.

    Raises UsageError, with line and column, for invalid SQL, for no or several statements, and for one that changes
    something; StorageError for errors of the data; TimeLimitError; KeyboardInterrupt.
    """
    expired = threading.Event()
    try:
        with warehouse.cursor() as cursor, _limited(cursor, timeout_s, expired):
            _check(cursor, sql)
            cursor.execute(sql, dict(params) if params else None)
            columns = tuple(Column(name=name, type=str(kind)) for name, kind, *_ in cursor.description or ())
            yield Answer(columns=columns, rows=_rows(cursor))
    except StorageError as error:
        if expired.is_set():
            raise TimeLimitError(f"no answer within {timeout_s:g} s: narrow it, or raise --timeout") from error
        raise _explained(parse_message(str(error.__cause__)), sql, error) from error


@contextmanager
def _limited(cursor: DuckDB, timeout_s: float | None, expired: threading.Event) -> Iterator[None]:
    """Interrupt the cursor at the time limit, and set `expired`; and on any error, since closing the cursor would
    otherwise wait for the end of the statement."""

    def stop() -> None:
        expired.set()
        cursor.interrupt()

    timer = None if timeout_s is None else threading.Timer(timeout_s, stop)
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    except BaseException:
        cursor.interrupt()
        raise
    finally:
        if timer is not None:
            timer.cancel()


def _check(cursor: DuckDB, sql: str) -> None:
    """Raise UsageError unless it is one statement that reads."""
    statements = cursor.extract_statements(sql)
    if not statements:
        raise UsageError("no statement: give one, such as SELECT * FROM hardware_comparison")
    # DuckDB 1.5 splits a PIVOT into several statements, of which only the last has a text.
    count = sum(bool(statement.query.strip()) for statement in statements)
    if count > 1:
        raise UsageError(f"{count} statements: give one at a time")
    kind = statements[-1].type.name
    if kind not in READING:
        raise UsageError(f"{kind} is not read-only: use SELECT, DESCRIBE or EXPLAIN")


def _rows(cursor: DuckDB) -> Iterator[Row]:
    if cursor.description:
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            yield from rows


def _explained(words: DuckDbMessage, sql: str, error: StorageError) -> BenchhouseError:
    """The error for the user."""
    if "pytz" in words.message:  # the driver needs that package for times with a zone
        return UsageError("a TIMESTAMP WITH TIME ZONE cannot be shown: cast it, for example now()::TIMESTAMP")
    place = "" if words.position is None else f"{error_position(sql, words.position)}: "
    if words.kind in MISTAKES:
        return UsageError(f"{place}{words.message}")
    return StorageError(f"{place}{words.message}") if place else error


def error_position(sql: str, position: int) -> str:
    """Line and column, both from 1, of a position in bytes of UTF-8: "line 2, column 5"."""
    before = sql.encode()[:position].decode(errors="ignore")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return f"line {line}, column {column}"
