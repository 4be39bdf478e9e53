"""Tells DuckDB's errors apart, and words them for the user.

DuckDB uses one class for most of its errors, so they are recognized by their text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import FormatError, LockedError, StorageError

TRANSIENT = (
    *("Transaction conflict", "Failed to commit DuckLake transaction", "Unable to connect to Postgres"),
    *("server closed the connection", "terminating connection", "the database system is ", "connection to server"),
    *("SSL connection has been closed", "SSL SYSCALL", "no connection to the server", "could not receive data"),
    *("could not send data", "connection is not open", "deadlock detected", "could not serialize access"),
    "Current transaction is aborted",  # DuckLake's own on the catalog: its connection broke in an earlier statement
    *("canceling statement due to", "duplicate key value violates unique constraint"),  # another writer took the lock
    'Failed to execute query "ROLLBACK"',  # the server disappeared while a failed statement was rolled back
)
"""Signs of temporary DuckLake errors: another writer was first, or PostgreSQL is restarting."""


class TransientError(StorageError):
    """A temporary DuckLake error; either nothing was stored, or everything."""


INVALIDATED = ("database has been invalidated", "Attempted to access index 0 within vector of size 0")
"""Signs of errors after which DuckDB accepts no statements: DuckLake raises them if its server disappears in a
commit."""


class InvalidatedError(TransientError):
    """The connection is unusable; a new one may work."""


LOCKED = ("Could not set lock on file", "File is already open in", "being used by another process")
"""The first on POSIX systems, the others on Windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckDbMessage:
    """An error of DuckDB."""

    kind: str
    """Parser, Binder, Catalog, Conversion, INTERRUPT, ...; empty if unknown."""
    message: str
    position: int | None = None
    """Position in the statement, in bytes of UTF-8 from 0."""


def parse_message(text: str) -> DuckDbMessage:
    """Parse an error's text: the kind, and on a connection with `errors_as_json`, JSON after it."""
    start = text.find('{"exception_type"')
    if start < 0:
        return DuckDbMessage(kind="", message=text)
    try:
        fields, _ = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return DuckDbMessage(kind="", message=text)
    position = fields.get("position")
    return DuckDbMessage(
        kind=fields["exception_type"],
        message=fields["exception_message"],
        position=int(position) if position is not None else None,
    )


class DamagedError(FormatError):
    """A damaged database file."""

    def __init__(self, path: str, damage: str) -> None:
        """`damage` names the damaged part and the problem."""
        super().__init__(
            f"{path} is damaged: {damage}: rebuild it from the run files with "
            f"{as_typed('setup')} --rebuild-from FOLDER --db-path {path}"
        )
        self.damage = damage


def problem_of(error: StorageError) -> str:
    """The problem, without the advice."""
    return error.damage if isinstance(error, DamagedError) else str(error)


def is_locked(text: str) -> bool:
    """Whether the error means that another process has the file open."""
    return any(sign in text for sign in LOCKED)


def log_is_unreadable(text: str) -> bool:
    """Whether the error means that the file's log cannot be applied."""
    return "Failure while replaying WAL" in text


def missing_database(path: str) -> StorageError:
    """The error for a path without a database."""
    return StorageError(
        f"no database at {path}: create it with {as_typed('setup')} --db-path {path}, or store results with "
        f"{as_typed('run')} MODEL --save --db-path {path}"
    )


def storage_error(text: str, path: str, waited_s: float = 0.0) -> StorageError:
    """The error for the user: the problem of the database at `path`, and what to do."""
    if is_locked(text):
        pid = re.search(r"\(PID (\d+)\)", text)
        holder = f"PID {pid[1]}" if pid else "another process"
        return LockedError(
            f"{path} is in use by {holder} (waited {waited_s:g} s). Run files are kept: once the database is "
            f"free, load them with {as_typed('setup')} --ingest FOLDER --db-path {path}"
        )
    if log_is_unreadable(text):
        return DamagedError(path, f"its log {path}.wal cannot be read, or belongs to another file")
    if block := re.search(r"does not match stored checksum \d+ in block at location (\d+)", text):
        return DamagedError(path, f"checksum mismatch in the block at byte {block[1]}")
    if end := re.search(r"Could not read enough bytes from file.* from location (\d+)", text):
        return DamagedError(path, f"it is truncated at byte {end[1]}")
    if "Out of Memory Error" in text or "std::bad_alloc" in text:
        problem = first_paragraph(parse_message(text).message).removeprefix("Out of Memory Error: ")
        return StorageError(f"{path}: not enough memory ({problem}): narrow the selection, or allow more memory")
    if any(sign in text for sign in INVALIDATED):
        return InvalidatedError(f"{path}: DuckDB gave up: {first_paragraph(parse_message(text).message)}")
    if any(sign in text for sign in TRANSIENT):
        return TransientError(f"{path}: {first_paragraph(parse_message(text).message)}")
    if "not a valid DuckDB database" in text:
        return FormatError(f"{path}: not a DuckDB database: choose another path")
    if "newer version of DuckDB" in text:
        return FormatError(f"{path}: written by a newer DuckDB: upgrade with pip install -U duckdb")
    match = re.search(r"Cannot open file .*: (Read-only file system|Permission denied)", text)
    if match is not None:
        return StorageError(f"{path} cannot be opened: {match[1]}: choose another path, or use a copy of the file")
    return StorageError(f"{path}: {first_paragraph(parse_message(text).message)}")


def first_paragraph(text: str) -> str:
    """DuckDB's message without the excerpt of the statement and the hints after it."""
    return " ".join(text.strip().split("\n\n")[0].split())
