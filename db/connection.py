"""Opens DuckDB files: waits for one that is in use, and turns DuckDB's errors into ours.

The only module that imports duckdb. DuckDB has one class for most of its errors, so they are recognized by their text.
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
"""Format of the files, read and written by DuckDB 1.5 and 2.0; 1.5 cannot read 2.0's own format."""

BLOCK_SIZE_BYTES = 32_768
"""A commit gives each column of a changed table its own block: with DuckDB's default of 262 144 storing a run takes
twice the time, and an empty warehouse 0.8 MB. With the minimum of 16 384 samples take more room: they are packed in
groups of 1024, and the rest of a block behind the last whole group stays empty. A file keeps the size it was created
with."""

Config = dict[str, str | bool | int | float | list[str]]

FILE_FORMAT: Config = {
    "storage_compatibility_version": STORAGE_VERSION,
    "default_block_size": BLOCK_SIZE_BYTES,
}

WRITER: Config = FILE_FORMAT | {"threads": 1}
"""A run is few rows: more threads make storing it slower, and take cores from measurements."""

QUESTIONS: Config = FILE_FORMAT | {"enable_external_access": False, "errors_as_json": True, "lock_configuration": True}
"""For SQL of a user: no other file can be reached, the settings are locked, and errors carry their position."""

INTERRUPTED = "Query interrupted"
"""The driver's error for a signal during a statement."""

Found = TypeVar("Found")

RETRY_FIRST_S = 0.02

RETRY_MOST_S = 0.5


def connect(path: str, config: Config, *, read_only: bool, lock_timeout_s: float) -> DuckDB:
    """Open the file; retries while another process has it open. Raises LockedError, FormatError, StorageError."""
    import duckdb

    with translate_errors(path, lock_timeout_s):
        while True:
            before = _file_id(path)
            try:
                connection = _retrying(lambda: duckdb.connect(path, read_only=read_only, config=config), lock_timeout_s)
            except duckdb.Error as error:
                if read_only or not log_is_unreadable(str(error)):
                    raise
                _apply_log(path)
                continue
            if before in (None, _file_id(path)):
                return connection
            connection.close()  # replaced by a compacted file before it was locked


@contextmanager
def attached(connection: DuckDB, path: str, *, lock_timeout_s: float) -> Iterator[str]:
    """Another DuckDB file, attached read-only to the connection: its name in SQL, to be quoted.

    Waits and raises as `connect` does; later errors name the connection's own file.
    """
    name = f"attached_{uuid7()}"
    quoted_path = path.replace("'", "''")
    # Without the type DuckDB would load an extension for a file that looks like another database's.
    statement = f"ATTACH '{quoted_path}' AS \"{name}\" (TYPE duckdb, READ_ONLY)"
    with translate_errors(path, lock_timeout_s):
        _retrying(lambda: connection.execute(statement), lock_timeout_s)
    try:
        yield name
    finally:
        connection.execute(f'DETACH "{name}"')


def _apply_log(path: str) -> None:
    """Write the file's log into the file. Raises DuckDB's error if the log is damaged.

    DuckDB 1.5 and 2.0 cannot read a log that changes a table with a CHECK when they open its file, but can when they
    attach it to an open database.
    """
    import duckdb

    quoted_path = path.replace("'", "''")
    with duckdb.connect(config=FILE_FORMAT) as connection:
        connection.execute(f"ATTACH '{quoted_path}' AS attached (TYPE duckdb)")
        connection.execute("CHECKPOINT attached")
        connection.execute("DETACH attached")


def _retrying(open_it: Callable[[], Found], lock_timeout_s: float) -> Found:
    """The result of opening, retried while another process has the file open."""
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
        # Jitter, so that processes that started together do not keep colliding.
        time.sleep(min(left_s, random.uniform(pause_s / 2, pause_s)))
        pause_s = min(RETRY_MOST_S, 1.5 * pause_s)


@contextmanager
def translate_errors(path: str, waited_s: float = 0.0) -> Iterator[None]:
    """Turn DuckDB's errors into ours, of one line each, and its error for a signal into KeyboardInterrupt."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        first: BaseException = error
        while isinstance(first.__context__, duckdb.Error):  # not the error of a ROLLBACK that failed
            first = first.__context__
        raise storage_error(str(first), path, waited_s) from error
    except RuntimeError as error:
        if str(error) != INTERRUPTED:
            raise
        raise KeyboardInterrupt from error


def _file_id(path: str) -> tuple[int, int] | None:
    """Identity of the file at the path; None without one."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


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
    """An error's text, which is JSON behind the kind on a connection with `errors_as_json`."""
    start = text.find('{"exception_type"')
    if start < 0:
        return DuckDbMessage(kind="", message=text)
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return DuckDbMessage(kind="", message=text)
    position = found.get("position")
    return DuckDbMessage(
        kind=found["exception_type"],
        message=found["exception_message"],
        position=int(position) if position is not None else None,
    )


class DamagedError(FormatError):
    """A damaged database file."""

    def __init__(self, path: str, damage: str) -> None:
        """`damage` names the part, and what is wrong with it."""
        super().__init__(
            f"{path} is damaged: {damage}: rebuild it from the run files with "
            f"setup_benchmark_db --rebuild-from FOLDER --db-path {path}"
        )
        self.damage = damage


def problem_of(error: StorageError) -> str:
    """What is wrong, without the advice."""
    return error.damage if isinstance(error, DamagedError) else str(error)


def is_locked(text: str) -> bool:
    """Whether the error is that another process has the file open."""
    return any(sign in text for sign in LOCKED)


def log_is_unreadable(text: str) -> bool:
    """Whether the error is that the file's log cannot be applied."""
    return "Failure while replaying WAL" in text


def storage_error(text: str, path: str, waited_s: float = 0.0) -> StorageError:
    """The error for a user: what is wrong with the database at `path`, and what to do."""
    if is_locked(text):
        return LockedError(
            f"{path} is in use by {_holder(text)} (waited {waited_s:g} s). Run files are kept: once the database is "
            f"free, load them with setup_benchmark_db --ingest FOLDER --db-path {path}"
        )
    damage = _damage(text, path)
    if damage is not None:
        return DamagedError(path, damage)
    if "not a valid DuckDB database" in text:
        return FormatError(f"{path}: not a DuckDB database: choose another path")
    if "newer version of DuckDB" in text:
        return FormatError(f"{path}: written by a newer DuckDB: upgrade with pip install -U duckdb")
    place = re.search(r"Cannot open file .*: (Read-only file system|Permission denied)", text)
    if place is not None:
        return StorageError(f"{path} cannot be opened: {place[1]}: choose another path, or use a copy of the file")
    return StorageError(f"{path}: {_first_paragraph(parse_message(text).message)}")


def _damage(text: str, path: str) -> str | None:
    """What is damaged in the file, or in its log; None for any other error."""
    if log_is_unreadable(text):
        return f"its log {path}.wal cannot be read, or belongs to another file"
    block = re.search(r"does not match stored checksum \d+ in block at location (\d+)", text)
    if block is not None:
        return f"checksum mismatch in the block at byte {block[1]}"
    end = re.search(r"Could not read enough bytes from file.* from location (\d+)", text)
    if end is not None:
        return f"it is truncated at byte {end[1]}"
    return None


def _holder(text: str) -> str:
    pid = re.search(r"\(PID (\d+)\)", text)
    return f"PID {pid[1]}" if pid else "another process"


def _first_paragraph(text: str) -> str:
    """DuckDB's message without the extract of the statement and the hints behind it."""
    return " ".join(text.strip().split("\n\n")[0].split())
