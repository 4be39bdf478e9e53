"""Opens DuckDB files: confined to the file, waiting for one that is in use, with DuckDB's errors turned into ours.

The only module that imports duckdb. Every connection is confined before it reads anything: no other file and no
network, no extension, times in UTC, and settings that cannot be changed. A second file is reached through a folder
with a name that nobody can foresee, into which `attached` and `new_database` bring it.

DuckDB has one class for most of its errors, so they are recognized by their text.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import logging
import os
import random
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from benchmarking.core.errors import FormatError, LockedError, StorageError
from benchmarking.core.provenance import uuid7
from benchmarking.core.temporary import held_folder, temporary_name

if TYPE_CHECKING:
    import duckdb

    DuckDB: TypeAlias = duckdb.DuckDBPyConnection


LOG = logging.getLogger(__name__)

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

QUESTIONS: Config = FILE_FORMAT | {"errors_as_json": True, "memory_limit": "2GiB"}
"""For SQL of a user: errors carry their position."""

NO_EXTENSIONS: Config = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}

MEMORY = ":memory:"
"""The path of a database that is no file."""

MAGIC, MAGIC_OFFSET = b"DUCK", 8
"""What a DuckDB file has behind its first checksum."""

LOG_ENDINGS = (".wal", ".wal.checkpoint", ".wal.recovery")
"""Files that DuckDB keeps next to a database: its log, commits during a checkpoint, and the two being joined."""

PRIVATE = "benchhouse-attached"
"""How the name of a connection's folder for other files begins."""

INTERRUPTED = "Query interrupted"
"""The driver's error for a signal during a statement."""

Found = TypeVar("Found")


class Connection(Protocol):
    """The one method of a DuckDB connection that most modules need."""

    def execute(self, query: str, parameters: object = ...) -> Any:
        """Run the statements; the result can be fetched."""


def quoted(name: str) -> str:
    """An SQL identifier: the one way in which a name gets into SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """An SQL string, where a statement takes no parameters."""
    return "'" + text.replace("'", "''") + "'"


RETRY_FIRST_S = 0.02

RETRY_MOST_S = 0.5


def connect(path: str, config: Config, *, read_only: bool, lock_timeout_s: float, locked: bool = True) -> DuckDB:
    """Open the file, confined to it; retries while another process has it open.

    The settings are locked, or by the caller with `lock` after an upgrade, which changes one for a while. Raises
    LockedError, FormatError, StorageError.
    """
    import duckdb

    file = path if path == MEMORY else _database_file(path)
    with translate_errors(path, lock_timeout_s):
        while True:
            before = file_id(path)
            try:
                connection = retrying(lambda: _open(file, config, read_only, locked), lock_timeout_s)
            except duckdb.Error as error:
                if read_only or not log_is_unreadable(str(error)):
                    raise
                _apply_log(path)
                continue
            if before in (None, file_id(path)):
                return connection
            connection.close()  # replaced by a compacted file before it was locked


def _database_file(path: str) -> str:
    """The path as DuckDB is to read it. Raises FormatError for a file of another format, which DuckDB may read as a
    table (CSV, JSON, Parquet), and StorageError for what is no regular file.

    It is absolute: in a relative one, DuckDB takes what stands before a colon for the name of an extension.
    """
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise StorageError(f"{path}: not a regular file: choose another path")
        with suppress(OSError), open(path, "rb") as opened:  # DuckDB says what cannot be read
            head = opened.read(MAGIC_OFFSET + len(MAGIC))
            if head and not head.endswith(MAGIC):
                raise FormatError(f"{path}: not a DuckDB database: choose another path")
    return os.path.abspath(path)


@contextmanager
def confined() -> Iterator[DuckDB]:
    """An empty database in memory."""
    with _open(MEMORY, FILE_FORMAT, read_only=False, locked=True) as connection:
        yield connection


@contextmanager
def attached(connection: DuckDB, path: str, *, lock_timeout_s: float) -> Iterator[str]:
    """Another DuckDB file, attached read-only to the connection: its name in SQL, to be quoted.

    Waits and raises as `connect` does; later errors name the connection's own file.
    """
    with _private_folder(connection) as folder:
        inside = _bring(path, folder, lock_timeout_s)
        # Without the type DuckDB would load an extension for a file that looks like another database's.
        with _attached_as(connection, inside, "TYPE duckdb, READ_ONLY", path, lock_timeout_s) as name:
            yield name


@contextmanager
def new_database(connection: DuckDB, path: Path) -> Iterator[str]:
    """An empty database, attached: its name in SQL, to be quoted. At the end it is moved to `path`."""
    with _private_folder(connection) as folder:
        inside = folder / "new.duckdb"
        options = f"READ_WRITE, STORAGE_VERSION {literal(STORAGE_VERSION)}, BLOCK_SIZE {BLOCK_SIZE_BYTES}"
        with _attached_as(connection, inside, options, str(path), 0.0) as name:
            yield name
        try:
            shutil.move(inside, path)
        except OSError as error:
            raise StorageError(f"cannot create {path}: {error.strerror}: choose another path") from error


@contextmanager
def _attached_as(connection: DuckDB, inside: Path, options: str, path: str, lock_timeout_s: float) -> Iterator[str]:
    name = f"attached_{uuid7()}"
    statement = f"ATTACH {literal(str(inside))} AS {quoted(name)} ({options})"
    with translate_errors(path, lock_timeout_s):
        retrying(lambda: connection.execute(statement), lock_timeout_s)
    try:
        yield name
    finally:
        connection.execute(f"DETACH {quoted(name)}")


def connect_attaching(attach: Callable[[DuckDB], Sequence[str]], config: Config) -> DuckDB:
    """A connection confined to what `attach` has attached to it, and to the folders that it gives.

    For catalogs of other kinds than a DuckDB file. The caller locks its settings, and translates errors.
    """
    import duckdb

    connection = duckdb.connect(config=config | NO_EXTENSIONS)
    try:
        folders = attach(connection)
        _confine(connection, directories=[*folders, _private_path(MEMORY)])
    except BaseException:
        if roll_back(connection):
            connection.close()
        raise
    return connection


def duckdb_version() -> str:
    """The version of DuckDB."""
    import duckdb

    return str(duckdb.__version__)


def load_extension(connection: DuckDB, name: str, package: str, install: str) -> None:
    """Load an extension of DuckDB: of its Python package, or one that DuckDB has installed. Raises StorageError, with
    the command that installs the package.

    DuckDB checks the signature of either.
    """
    import duckdb

    version = f"v{duckdb_version()}"
    spec = importlib.util.find_spec(package)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    files = [os.path.join(folder, "extensions", version, f"{name}.duckdb_extension") for folder in folders]
    wanted = next((literal(file) for file in files if os.path.isfile(file)), quoted(name))
    try:
        connection.execute(f"LOAD {wanted}")
    except duckdb.Error as error:
        found = "" if spec is None else f" (the package {package} is for another version)"
        raise StorageError(
            f"DuckDB {version} needs its extension {name} for this, and cannot load it{found}: {install}, or "
            f"with a network, python -c \"import duckdb; duckdb.sql('INSTALL {name}')\""
        ) from error


def has_triggers() -> bool:
    """Whether this DuckDB has triggers, which 2.0 brought."""
    import duckdb

    return int(duckdb.__version__.split(".")[0]) > 1


def roll_back(connection: Connection) -> bool:
    """Roll back the transaction that is open, if one is, before the connection is closed. False: never close it.

    DuckDB's destructors roll back as well, but where a catalog's server is gone that fails, and a destructor that fails
    aborts the process. A statement that fails has ended the transaction, too: the server undoes it with its connection.
    After an internal error DuckDB takes no statement any more, so such a connection is kept until the process ends.
    """
    import duckdb

    try:
        connection.execute("ROLLBACK")
    except duckdb.FatalException as error:
        LOG.debug("left open: %s", _first_paragraph(str(error)))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        return False
    except duckdb.Error as error:
        LOG.debug("not rolled back: %s", _first_paragraph(str(error)))
    except RuntimeError as error:
        if str(error) != INTERRUPTED:
            raise
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        raise KeyboardInterrupt from error
    return True


def lock(connection: DuckDB) -> None:
    """No setting of the connection can be changed from now on."""
    connection.execute("SET lock_configuration = true")


def _open(path: str, config: Config, read_only: bool, locked: bool) -> DuckDB:
    """A confined connection."""
    import duckdb

    with OPENING:
        connection = duckdb.connect(path, read_only=read_only, config=config | NO_EXTENSIONS)
        try:
            sql = "SELECT system.main.current_setting('enable_external_access')"
            if connection.execute(sql).fetchall()[0][0]:  # else this process has the file open with these settings
                _confine(connection, directories=[] if "errors_as_json" in config else [_private_path(path)])
                if locked:
                    lock(connection)
        except BaseException:
            connection.close()
            raise
    return connection


OPENING = threading.Lock()
"""Connections of a process to one file share their settings, which only one of them can make."""


def _confine(connection: DuckDB, *, directories: Sequence[str] = (), paths: Sequence[str] = ()) -> None:
    """Take away what SQL in a file, or of a user, could reach; the files named stay in reach."""
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    for name, allowed in (("allowed_directories", directories), ("allowed_paths", paths)):
        if allowed:
            connection.execute(f"SET {quoted(name)} = [{', '.join(map(literal, allowed))}]")
    connection.execute("SET enable_external_access = false")


def _private_path(path: str) -> str:
    """Where the connection's folder for other files would be: with the database, or with temporary files."""
    parent = os.path.dirname(os.path.realpath(path))
    has_room = path != MEMORY and os.access(parent, os.W_OK)
    return os.path.join(parent if has_room else os.path.realpath(tempfile.gettempdir()), temporary_name(PRIVATE))


@contextmanager
def _private_folder(connection: DuckDB) -> Iterator[Path]:
    """The folder that the connection can reach, there until the end."""
    allowed = connection.execute("SELECT system.main.current_setting('allowed_directories')").fetchall()[0][0]
    try:
        with held_folder(next(Path(name) for name in allowed if PRIVATE in name)) as folder:
            yield folder
    except OSError as error:
        raise StorageError(f"no folder for a database to be attached: {error.strerror}: {error.filename}") from error


def _bring(path: str, folder: Path, lock_timeout_s: float) -> Path:
    """The file and its log in the folder: linked, or copied under its lock where it cannot be linked."""
    inside = folder / "other.duckdb"
    try:
        for ending, file in database_files(path).items():
            if not ending or os.path.exists(file):
                os.link(file, f"{inside}{ending}")
    except OSError:
        for ending in ("", *LOG_ENDINGS):
            Path(f"{inside}{ending}").unlink(missing_ok=True)
        with connect(path, FILE_FORMAT, read_only=True, lock_timeout_s=lock_timeout_s):
            copy_database(path, inside)
    return inside


def database_files(path: str | Path) -> dict[str, str]:
    """The file and its logs, there or not, by ending. DuckDB keeps logs next to the file that a link leads to."""
    own = os.path.realpath(path)
    return {ending: own + ending for ending in ("", *LOG_ENDINGS)}


def copy_database(path: str | Path, copy: Path) -> None:
    """Copy the file and its logs; nobody writes them meanwhile. Raises StorageError."""
    try:
        for ending, file in database_files(path).items():
            if os.path.exists(file):
                shutil.copyfile(file, f"{copy}{ending}")
    except OSError as error:
        raise StorageError(f"{path} cannot be copied to {copy.parent}: {error.strerror}") from error


def _apply_log(path: str) -> None:
    """Write the file's log into the file. Raises DuckDB's error if the log is damaged.

    DuckDB 1.5 and 2.0 cannot read a log that changes a table with a CHECK when they open its file, but can when they
    attach it to an open database.
    """
    import duckdb

    file = os.path.abspath(path)
    with duckdb.connect(config=FILE_FORMAT | NO_EXTENSIONS) as connection:
        _confine(
            connection,
            paths=[*(file + ending for ending in ("", *LOG_ENDINGS)), *database_files(path).values()],
        )
        lock(connection)
        connection.execute(f"ATTACH {literal(file)} AS attached (TYPE duckdb)")
        connection.execute("CHECKPOINT attached")
        connection.execute("DETACH attached")


def retrying(open_it: Callable[[], Found], lock_timeout_s: float) -> Found:
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
        time.sleep(min(left_s, random.uniform(pause_s / 2, pause_s)))  # noqa: S311 - a pause is no secret
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


def file_id(path: str) -> tuple[int, int] | None:
    """Identity of the file at the path; None without one."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


TRANSIENT = (
    *("Transaction conflict", "Failed to commit DuckLake transaction", "Unable to connect to Postgres"),
    *("server closed the connection", "terminating connection", "the database system is ", "connection to server"),
    *("SSL connection has been closed", "SSL SYSCALL", "no connection to the server", "could not receive data"),
    *("could not send data", "connection is not open", "deadlock detected", "could not serialize access"),
    "Current transaction is aborted",  # DuckLake's own on the catalog: its connection broke in an earlier statement
    *("canceling statement due to", "duplicate key value violates unique constraint"),  # the writers' lock was lost
    'Failed to execute query "ROLLBACK"',  # the server went while a statement that had failed was undone
)
"""Signs of errors of a DuckLake that may pass: another writer was first, or PostgreSQL is being restarted."""


class TransientError(StorageError):
    """An error of a DuckLake that may pass; nothing was stored, or all of it."""


INVALIDATED = ("database has been invalidated", "Attempted to access index 0 within vector of size 0")
"""Signs of errors after which DuckDB takes no statement: DuckLake's own when its catalog's server goes in a commit."""


class InvalidatedError(TransientError):
    """The connection is of no use any more; another one may do."""


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
    if any(sign in text for sign in INVALIDATED):
        return InvalidatedError(f"{path}: DuckDB gave up: {_first_paragraph(parse_message(text).message)}")
    if any(sign in text for sign in TRANSIENT):
        return TransientError(f"{path}: {_first_paragraph(parse_message(text).message)}")
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
