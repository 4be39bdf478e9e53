"""Opens a DuckDB file, waits for it while another process has it, and says in one line what went wrong with it.

The only module that imports duckdb.

What DuckDB's errors mean here, told from their words: it has one class for most of them.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from benchmarking.core.errors import FormatError, LockedError, StorageError
from benchmarking.core.provenance import uuid7

if TYPE_CHECKING:
    import duckdb

    DuckDB: TypeAlias = duckdb.DuckDBPyConnection


STORAGE_VERSION = "v1.5.0"

"""Format of the files: 1.5 and 2.0 both read and write it; a file in 2.0's own format would shut 1.5 out."""

BLOCK_SIZE_BYTES = 32_768

"""Committing gives each column of a table that is written to a block of its own: with DuckDB's 262 144 a run takes
twice the time to store, and an empty warehouse 0.8 MB. In 16 384, the smallest there is, samples take more room: they
are packed 1024 at a time, and what is left of a block behind the last whole packet stays empty. A file keeps the size
it was made with."""

Config = dict[str, str | bool | int | float | list[str]]

FILE_FORMAT: Config = {
    "storage_compatibility_version": STORAGE_VERSION,
    "default_block_size": BLOCK_SIZE_BYTES,
}

WRITER: Config = FILE_FORMAT | {"threads": 1}

"""A run is few rows: more threads make storing it slower, and take a core from whatever else is being measured."""

QUESTIONS: Config = FILE_FORMAT | {"enable_external_access": False, "errors_as_json": True, "lock_configuration": True}

"""For SQL that somebody types: it reaches no file but this one, and cannot change that it does not; where an error is
comes as a number."""

Found = TypeVar("Found")

RETRY_FIRST_S = 0.02

RETRY_MOST_S = 0.5


def connect(path: str, config: Config, *, read_only: bool, lock_timeout_s: float) -> DuckDB:
    """Open the file, trying again while another process holds it. Raises LockedError, FormatError, StorageError."""
    import duckdb

    with translate_errors(path, lock_timeout_s):
        while True:
            named = _file_named(path)
            try:
                connection = _waiting(lambda: duckdb.connect(path, read_only=read_only, config=config), lock_timeout_s)
            except duckdb.Error as error:
                if read_only or not log_is_unreadable(str(error)):
                    raise
                _take_log_in(path)
                continue
            if named in (None, _file_named(path)):
                return connection
            connection.close()  # the file was replaced by a compact one before it was locked


@contextmanager
def attached(connection: DuckDB, path: str, *, lock_timeout_s: float) -> Iterator[str]:
    """Another DuckDB file, read beside the connection's own until the end: its name in SQL, to be quoted.

    Waits for the file, and raises, as `connect` does; trouble later on is told of the connection's own file.
    """
    name = f"beside_{uuid7()}"
    quoted_path = path.replace("'", "''")
    # Its type is said, since DuckDB would else load an extension for a file that looks like another database's.
    statement = f"ATTACH '{quoted_path}' AS \"{name}\" (TYPE duckdb, READ_ONLY)"
    with translate_errors(path, lock_timeout_s):
        _waiting(lambda: connection.execute(statement), lock_timeout_s)
    try:
        yield name
    finally:
        connection.execute(f'DETACH "{name}"')


def _take_log_in(path: str) -> None:
    """Bring the file's log into it from beside. Raises DuckDB's error where the log is really damaged.

    DuckDB 1.5 and 2.0 fail to read a log that changes a table with a CHECK when they open its file, but not when they
    attach it to a database that is open.
    """
    import duckdb

    quoted_path = path.replace("'", "''")
    with duckdb.connect(config=FILE_FORMAT) as connection:
        connection.execute(f"ATTACH '{quoted_path}' AS beside (TYPE duckdb)")
        connection.execute("CHECKPOINT beside")
        connection.execute("DETACH beside")


def _waiting(open_it: Callable[[], Found], lock_timeout_s: float) -> Found:
    """What opening gives, tried again while another process holds the file."""
    import duckdb

    deadline = time.monotonic() + lock_timeout_s
    pause_s = RETRY_FIRST_S
    while True:
        try:
            return open_it()
        except duckdb.IOException as error:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not is_locked(str(error)):
                raise
        # Jitter, or processes that started together would keep meeting.
        time.sleep(min(left_s, random.uniform(pause_s / 2, pause_s)))
        pause_s = min(RETRY_MOST_S, 1.5 * pause_s)


@contextmanager
def translate_errors(path: str, waited_s: float = 0.0) -> Iterator[None]:
    """Turn DuckDB's errors into ours, one clear line each."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        first: BaseException = error
        while isinstance(first.__context__, duckdb.Error):  # what a failed ROLLBACK says afterwards helps nobody
            first = first.__context__
        raise storage_error(str(first), path, waited_s) from error


def _file_named(path: str) -> tuple[int, int] | None:
    """Which file has the name now; None for none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


LOCKED = ("Could not set lock on file", "File is already open in", "being used by another process")

"""The first is what POSIX systems say, the others Windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckDbMessage:
    """What DuckDB said."""

    kind: str
    """Parser, Binder, Catalog, Conversion, INTERRUPT, ...; empty where it is not told."""
    message: str
    position: int | None = None
    """Where in the statement, in bytes of UTF-8 from 0."""


def parse_message(text: str) -> DuckDbMessage:
    """What an error says, also on a connection whose errors are JSON behind their kind."""
    start = text.find('{"exception_type"')
    if start < 0:
        return DuckDbMessage(kind="", message=text)
    try:
        told, _ = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return DuckDbMessage(kind="", message=text)
    position = told.get("position")
    return DuckDbMessage(
        kind=told["exception_type"],
        message=told["exception_message"],
        position=int(position) if position is not None else None,
    )


class DamagedError(FormatError):
    """A database file of which a part is not what was written."""

    def __init__(self, path: str, damage: str) -> None:
        """`damage` says which part, and what is wrong with it."""
        super().__init__(
            f"{path} is damaged: {damage}: make it anew from the run files with "
            f"setup_benchmark_db --rebuild-from FOLDER --db-path {path}"
        )
        self.damage = damage


def why(error: StorageError) -> str:
    """What is wrong, without what to do about it."""
    return error.damage if isinstance(error, DamagedError) else str(error)


def is_locked(text: str) -> bool:
    """Whether DuckDB says that another process holds the file."""
    return any(sign in text for sign in LOCKED)


def log_is_unreadable(text: str) -> bool:
    """Whether DuckDB says that it cannot take in what is in the file's log."""
    return "Failure while replaying WAL" in text


def storage_error(text: str, path: str, waited_s: float = 0.0) -> StorageError:
    """The error for a user: what happened to the database at `path`, and what to do."""
    if is_locked(text):
        return LockedError(
            f"{path} is locked: {_holder(text)}, waited {waited_s:g} s. Nothing is lost that is in a run file: "
            f"once the database is free, load it with setup_benchmark_db --ingest FOLDER --db-path {path}"
        )
    damage = _damage(text, path)
    if damage is not None:
        return DamagedError(path, damage)
    if "not a valid DuckDB database" in text:
        return FormatError(f"{path}: not a DuckDB database (any more): name another file")
    if "newer version of DuckDB" in text:
        return FormatError(f"{path}: written by a newer DuckDB: upgrade with pip install -U duckdb")
    return StorageError(f"{path}: {_first_paragraph(parse_message(text).message)}")


def _damage(text: str, path: str) -> str | None:
    """What is broken in the file, or in its log; None where DuckDB speaks of something else."""
    if log_is_unreadable(text):
        return f"its log {path}.wal cannot be read, or belongs to another file"
    block = re.search(r"does not match stored checksum \d+ in block at location (\d+)", text)
    if block is not None:
        return f"the block at byte {block[1]} is not what was written"
    end = re.search(r"Could not read enough bytes from file.* from location (\d+)", text)
    if end is not None:
        return f"it is cut off, and should go on behind byte {end[1]}"
    return None


def _holder(text: str) -> str:
    pid = re.search(r"\(PID (\d+)\)", text)
    return f"the process with PID {pid[1]} holds it" if pid else "another process holds it"


def _first_paragraph(text: str) -> str:
    """DuckDB's message without the extract of the statement and the hints that follow it."""
    return " ".join(text.strip().split("\n\n")[0].split())
