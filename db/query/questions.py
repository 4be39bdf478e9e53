"""Questions in SQL that somebody typed: one statement that only reads, answered within a time limit, a part at a time.

What keeps it to reading is the connection (`Warehouse.open(..., for_questions=True)`): it opens the file read-only,
reaches no other file and no network, and its settings are locked. Looking at the statement's type only gives clearer
words, and refuses what would be gone with the connection anyway.
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
"""Types of statements that read; MULTI is a PIVOT, to DuckDB 2."""
MISTAKES = ("Parser", "Syntax", "Binder", "Catalog", "Permission", "Invalid Input", "Parameter Not Resolved")
"""Kinds of errors that lie in the statement; the others lie in the data or the machine."""
INTERRUPTED = "Query interrupted"
"""What the driver makes of a Ctrl-C."""
ROWS_AT_ONCE = 10_000


class TimeLimitError(BenchhouseError):
    """The time limit came before the end of the answer. Exit code 124."""

    exit_code = EXIT_TIME_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of an answer."""

    name: str
    type: str
    """As DuckDB writes it: VARCHAR, DOUBLE, MAP(VARCHAR, DOUBLE), ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a question gives."""

    columns: tuple[Column, ...]
    rows: Iterator[Row]
    """Read from the database as they are taken."""


@contextmanager
def answering(
    warehouse: Warehouse, sql: str, params: Mapping[str, str] | None = None, *, timeout_s: float | None = None
) -> Iterator[Answer]:
    """The answer to one statement, `$name` in it bound to `params`; its rows are to be read inside the `with`.

    Raises UsageError, with line and column, for SQL that cannot be understood, that is none or several statements or
    changes something; StorageError for what goes wrong with the data; TimeLimitError; KeyboardInterrupt.
    """
    expired = threading.Event()
    try:
        with warehouse.cursor() as cursor, _limited(cursor, timeout_s, expired):
            _check(cursor, sql)
            cursor.execute(sql, dict(params) if params else None)
            columns = tuple(Column(name=name, type=str(kind)) for name, kind, *_ in cursor.description or ())
            yield Answer(columns=columns, rows=_rows(cursor))
    except RuntimeError as error:
        if str(error) != INTERRUPTED:
            raise
        raise KeyboardInterrupt from error
    except StorageError as error:
        if expired.is_set():
            raise TimeLimitError(f"no answer within {timeout_s:g} s: ask for less, or give it more time") from error
        raise _explained(parse_message(str(error.__cause__)), sql, error) from error


@contextmanager
def _limited(cursor: DuckDB, timeout_s: float | None, expired: threading.Event) -> Iterator[None]:
    """Interrupt what the cursor does once the time is over, and set `expired`; and when something goes wrong: closing
    the cursor would else wait for the end of a statement that nobody waits for any more."""

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
    """See that it is one statement, and that it reads. Raises UsageError."""
    statements = cursor.extract_statements(sql)
    if not statements:
        raise UsageError("there is no statement in it: ask for example SELECT * FROM hardware_comparison")
    # Of a PIVOT, DuckDB 1.5 makes several statements, the first of which have no text.
    count = sum(bool(statement.query.strip()) for statement in statements)
    if count > 1:
        raise UsageError(f"{count} statements: ask one at a time")
    kind = statements[-1].type.name
    if kind not in READING:
        raise UsageError(f"{kind} is not a question: only statements that read are run (SELECT, DESCRIBE, EXPLAIN)")


def _rows(cursor: DuckDB) -> Iterator[Row]:
    if cursor.description:
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            yield from rows


def _explained(words: DuckDbMessage, sql: str, error: StorageError) -> BenchhouseError:
    """The error for whoever typed the statement."""
    if "pytz" in words.message:  # the driver needs a package for times with a zone
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
