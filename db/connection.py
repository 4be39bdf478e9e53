"""Opens DuckDB files: confines connections to the file, waits for its lock, and words DuckDB's errors for the user.

The only module that imports duckdb. Every connection is confined before it reads anything: no other files, no network,
no extensions, times in UTC, and settings that cannot be changed. A second file is reached through a folder with an
unpredictable name, where `attached` and `new_database` place it. DuckDB uses one class for most of its errors, so they
are recognized by their text.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import logging
import os
import random
import re
import shlex
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from benchmarking.core.child_process import signals_deferred
from benchmarking.core.command_line import note
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import FormatError, LockedError, StorageError, UsageError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import uuid7
from benchmarking.core.storage_paths import HEAD_BYTES, is_duckdb, is_lake, no_database
from benchmarking.core.temporary import held_folder, temporary_name

if TYPE_CHECKING:
    import duckdb

    DuckDB: TypeAlias = duckdb.DuckDBPyConnection

LOG = logging.getLogger(__name__)

STORAGE_VERSION = "v1.5.0"
"""File format that DuckDB 1.5 and 2.0 read and write; 1.5 cannot read 2.0's own format."""

BLOCK_SIZE_BYTES = 32_768
"""A commit gives each column of a changed table its own block. With DuckDB's default of 262 144, storing a run takes
twice as long, and an empty warehouse takes 0.8 MB. With the minimum of 16 384, samples take more space: they are packed
in groups of 1024, and the rest of a block after the last whole group stays empty. A file keeps the block size that it
was created with."""

Config = dict[str, str | bool | int | float | list[str]]

FILE_FORMAT: Config = {"storage_compatibility_version": STORAGE_VERSION, "default_block_size": BLOCK_SIZE_BYTES}

WRITER: Config = FILE_FORMAT | {"threads": 1}
"""A run has few rows: more threads make storing it slower, and take cores from measurements."""

TEMP_FOLDER_VARIABLE = "BENCHHOUSE_QUERY_TEMP"
"""Names the folder for temporary files to a process that answers a query."""
TEMP_LIMIT_VARIABLE = "BENCHHOUSE_TEMP_LIMIT"
DEFAULT_TEMP_LIMIT = "2GB"
"""Limit of what a connection writes to temporary files; DuckDB's own is 90 % of the free space."""

QUESTIONS: Config = FILE_FORMAT | {"errors_as_json": True, "memory_limit": "2GiB"}
"""For the user's SQL: errors contain their position."""

NO_EXTENSIONS: Config = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}

TEMP_LIMIT = re.compile(r"\d{1,9}(?:\.\d+)? ?[KMGT]i?B", re.IGNORECASE)

MEMORY = ":memory:"
"""The path of a database in memory."""

LOG_ENDINGS = (".wal", ".wal.checkpoint", ".wal.recovery")
"""Files that DuckDB keeps next to a database: its log, commits during a checkpoint, and the two being joined."""

PRIVATE_FOLDER = "benchhouse-attached"
"""Prefix of a connection's folder for other files."""

INTERRUPTED = "Query interrupted"
"""The driver's error for a signal during a statement."""

NO_UTF8 = re.compile(
    r"^Unable to cast Python instance of type <class 'str'>|^std::bad_cast$"
    r"|Python Conversion Failure: cannot encode str as UTF-8"
)
"""The driver's errors for a text that has no UTF-8: the first in DuckDB 1.5, the others in 2.0."""
NOT_UNICODE = "an argument contains bytes that are not UTF-8: give it as UTF-8 text"

LOG_UNREADABLE = "Failure while replaying WAL"
"""Sign of an error for a log that cannot be applied."""
LOCKED = ("Could not set lock on file", "File is already open in", "being used by another process")
"""The driver's errors for a file that is open elsewhere: the first on POSIX systems, the others on Windows."""
FULL = re.compile("No space left on device|Disk quota exceeded|There is not enough space on the disk")
UNWRITABLE = re.compile(r"(?:Cannot open|Could not write) file .*: (Read-only file system|Permission denied)")
"""The system's reasons, which DuckDB words as those of a transaction that failed or even succeeded."""
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
REFUSED = re.compile(
    r'((?:database|role) ".*" (?:does not exist|is not permitted to log in)|permission denied for database .*'
    r"|.*authentication failed for user .*|no pg_hba\.conf entry .*|pg_hba\.conf rejects .*|.*no password supplied"
    r"|server does not support SSL.*)\s*$",
    re.MULTILINE,
)
"""PostgreSQL's and its client's reasons why a connection is refused that another attempt does not change."""
DENIED = re.compile(
    r'": ERROR: +((?:permission denied for|must be owner of|cannot execute [A-Z ]+ in a read-only) [^"\n]*)$',
    re.MULTILINE,
)
"""PostgreSQL's reason, after the statement, why a user or server does not do something."""
STATEMENT = re.compile(
    r'Failed to (?:execute|prepare) (?:query|COPY) ".*": (?=[A-Z]+:|server |SSL |could not |no connection)', re.DOTALL
)
"""DuckLake's words for a failed statement, with all of its text: the rows that were to be stored."""
CATALOG_VERSIONS = re.compile(r"catalog version is ([\w.-]+), but the extension requires version ([\w.-]+\d)")
"""DuckLake's words for a catalog of another version."""
EXCERPT = "\nLINE "
"""Begins PostgreSQL's excerpt of a statement."""
INVALIDATED = ("database has been invalidated", "Attempted to access index 0 within vector of size 0")
"""Signs of errors after which DuckDB accepts no statements: DuckLake raises them if its server disappears in a
commit."""

ARROW_ROWS = 10_000
"""Rows of a batch of Arrow. DuckDB reserves as many in each column of each answer, by default a million: address space
that the process keeps, until it can start no child."""

T = TypeVar("T")


class Connection(Protocol):
    """The only method of a DuckDB connection that most modules need."""

    def execute(self, query: str, parameters: object = ...) -> Any:
        """Run the statements; the result can be fetched."""


def quoted(name: str) -> str:
    """An SQL identifier. Names get into SQL only through this function."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """An SQL string literal, for statements that take no parameters."""
    return "'" + text.replace("'", "''") + "'"


def json_pointer(*names: str) -> str:
    """Where a value is in JSON, by the keys of the objects around it, which may contain any character."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)


RETRY_FIRST_S, RETRY_MOST_S = 0.02, 0.5
"""The first and the longest pause between attempts, in seconds."""


def import_driver() -> None:
    """Import duckdb for the first time. An interrupted import would end in a crash when the process exits."""
    if "duckdb" not in sys.modules:
        with signals_deferred():
            import duckdb  # noqa: F401
    # DuckDB 2 advises relations instead, which hold answers to statements with values as constants in DuckDB 1.5.
    warnings.filterwarnings("ignore", "Arrow output on a DB-API result")


def connect(
    path: str, config: Config, *, read_only: bool, lock_timeout_s: float, locked: bool = True, waited_s: float = 0.0
) -> DuckDB:
    """Open the file, confined to it; retries while another process has it open. `waited_s` is the time that the caller
    has waited for it already.

    The settings are locked, unless the caller does that with `lock` after an upgrade, which changes one temporarily.
    Raises LockedError, FormatError, StorageError.
    """
    import_driver()
    import duckdb

    file = path
    if path != MEMORY:
        if os.path.exists(path):
            check_database_file(path)
        file = os.path.abspath(path)  # in a relative path, DuckDB takes the part before a colon for an extension
    with translate_errors(path, lock_timeout_s + waited_s):
        while True:
            before = file_id(path)
            try:
                connection = retrying(lambda: _open(file, config, read_only, locked), path, lock_timeout_s)
            except duckdb.Error as error:
                if read_only or LOG_UNREADABLE not in str(error):
                    raise
                _apply_log(path)
                continue
            if before in (None, file_id(path)):
                return connection
            connection.close()  # replaced by a compacted file before it was locked


def check_database_file(path: str) -> None:
    """Raise FormatError for a file of another format, which DuckDB might read as a table (CSV, JSON, Parquet), and
    StorageError for anything but a regular file, such as a FIFO, which it would wait for."""
    if not os.path.isfile(path):
        raise StorageError(f"{path}: not a regular file: choose another path")
    with suppress(OSError), open(path, "rb") as opened:  # DuckDB reports unreadable files
        head = opened.read(HEAD_BYTES)
        if head and not is_duckdb(head):
            raise no_database(path)


@contextmanager
def confined() -> Iterator[DuckDB]:
    """A confined connection to an empty database in memory."""
    with _open(MEMORY, FILE_FORMAT, read_only=False, locked=True) as connection:
        yield connection


@contextmanager
def attached(connection: DuckDB, path: str, *, lock_timeout_s: float) -> Iterator[str]:
    """Attach another DuckDB file read-only to the connection; yields its name in SQL, to be quoted.

    Waits and raises like `connect`; later errors name the connection's own file.
    """
    with _private_folder(connection) as folder:
        linked = folder / "other.duckdb"  # the file and its logs: linked, or copied under its lock if that fails
        try:
            for ending, file in database_files(path).items():
                if not ending or os.path.exists(file):
                    os.link(file, f"{linked}{ending}")
        except OSError:
            for ending in ("", *LOG_ENDINGS):
                Path(f"{linked}{ending}").unlink(missing_ok=True)
            with connect(path, FILE_FORMAT, read_only=True, lock_timeout_s=lock_timeout_s):
                copy_database(path, linked)
        # Without the type, DuckDB would load an extension for a file that looks like another kind of database.
        with _attached_as(connection, linked, "TYPE duckdb, READ_ONLY", path, lock_timeout_s) as name:
            yield name


@contextmanager
def new_database(connection: DuckDB, path: Path) -> Iterator[str]:
    """Attach an empty database; yields its name in SQL, to be quoted. At the end it is moved to `path`."""
    with _private_folder(connection) as folder:
        created = folder / "new.duckdb"
        options = f"READ_WRITE, STORAGE_VERSION {literal(STORAGE_VERSION)}, BLOCK_SIZE {BLOCK_SIZE_BYTES}"
        with _attached_as(connection, created, options, str(path), 0.0) as name:
            yield name
        with storage_errors(f"cannot create {path}", "choose another path"):
            shutil.move(created, path)


@contextmanager
def _attached_as(connection: DuckDB, file: Path, options: str, path: str, lock_timeout_s: float) -> Iterator[str]:
    name = f"attached_{uuid7()}"
    statement = f"ATTACH {literal(str(file))} AS {quoted(name)} ({options})"
    with translate_errors(path, lock_timeout_s):
        retrying(lambda: connection.execute(statement), path, lock_timeout_s)
    try:
        yield name
    finally:
        connection.execute(f"DETACH {quoted(name)}")


def connect_attaching(attach: Callable[[DuckDB], Sequence[str]], config: Config) -> DuckDB:
    """A connection confined to what `attach` attaches to it, and to the folders that `attach` returns.

    For catalogs other than a DuckDB file. The caller locks the settings and translates errors.
    """
    import_driver()
    import duckdb

    connection = duckdb.connect(config=config | NO_EXTENSIONS)
    try:
        _import_optional_packages(connection)
        folders = attach(connection)
        _confine(connection, directories=[*folders, _private_path(MEMORY)])
    except BaseException:
        if roll_back(connection):
            connection.close()
        raise
    return connection


def duckdb_version() -> str:
    """The version of DuckDB."""
    import_driver()
    import duckdb

    return str(duckdb.__version__)


def load_extension(connection: DuckDB, name: str, package: str, install: str) -> None:
    """Load a DuckDB extension from its Python package, or one that DuckDB has installed. Raises StorageError, with the
    command that installs the package.

    DuckDB checks the signature in both cases.
    """
    import duckdb

    version = f"v{duckdb_version()}"
    spec = importlib.util.find_spec(package)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    files = [os.path.join(folder, "extensions", version, f"{name}.duckdb_extension") for folder in folders]
    extension = next((literal(file) for file in files if os.path.isfile(file)), quoted(name))
    try:
        connection.execute(f"LOAD {extension}")
    except duckdb.Error as error:
        hint = "" if spec is None else f" (the package {package} is for another version)"
        raise StorageError(
            f"DuckDB {version} needs its extension {name} for this, but cannot load it{hint}: {install}, or "
            f"with a network, python -c \"import duckdb; duckdb.sql('INSTALL {name}')\""
        ) from error


def has_triggers() -> bool:
    """Whether this DuckDB has triggers, which 2.0 introduced."""
    import duckdb

    return int(duckdb.__version__.split(".")[0]) > 1


def roll_back(connection: Connection) -> bool:
    """Roll back the open transaction, if any, before closing the connection. Returns False if it must not be closed.

    DuckDB's destructors roll back as well, but that fails if a catalog's server is gone, and a failing destructor
    aborts the process. A failed statement has ended the transaction too: the server rolls it back with its connection.
    After an internal error DuckDB accepts no more statements, so such a connection is kept until the process ends.
    """
    import duckdb

    try:
        connection.execute("ROLLBACK")
    except duckdb.FatalException as error:
        LOG.debug("left open: %s", first_paragraph(str(error)))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        return False
    except duckdb.Error as error:
        LOG.debug("not rolled back: %s", first_paragraph(str(error)))
    except RuntimeError as error:
        if str(error) != INTERRUPTED:
            raise
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        raise KeyboardInterrupt from error
    return True


def lock(connection: DuckDB) -> None:
    """Lock all settings of the connection."""
    connection.execute("SET lock_configuration = true")


def _open(path: str, config: Config, read_only: bool, locked: bool) -> DuckDB:
    """A confined connection."""
    import_driver()
    import duckdb

    with OPENING:
        # The quota of temporary files, and for the user's SQL their folder.
        given = os.environ.get(TEMP_LIMIT_VARIABLE) or DEFAULT_TEMP_LIMIT
        if TEMP_LIMIT.fullmatch(given) is None:
            raise UsageError(f"{TEMP_LIMIT_VARIABLE}: expected a size such as 500MB or 20GB, found {given!r}")
        folder = os.environ.get(TEMP_FOLDER_VARIABLE) if "errors_as_json" in config else None
        of_temp: Config = {"max_temp_directory_size": given, **({"temp_directory": folder} if folder else {})}
        connection = duckdb.connect(path, read_only=read_only, config=config | NO_EXTENSIONS | of_temp)
        try:
            sql = "SELECT system.main.current_setting('enable_external_access')"
            if connection.execute(sql).fetchall()[0][0]:  # otherwise this process has the file open with these settings
                _confine(connection, directories=[] if "errors_as_json" in config else [_private_path(path)])
                if locked:
                    lock(connection)
            _import_optional_packages(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _import_optional_packages(connection: DuckDB) -> None:
    """Let the driver import pandas, which it would do at the first bound value. It ignores an interruption of that
    import, and the process would continue with a part of pandas."""
    with signals_deferred():
        connection.execute("SELECT ?", [""])


OPENING = threading.Lock()
"""Connections of a process to one file share their settings, which only one of them can set."""


def _confine(connection: DuckDB, *, directories: Sequence[str] = (), paths: Sequence[str] = ()) -> None:
    """Remove access to everything outside the database, except for the named files and folders."""
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    for name, allowed in (("allowed_directories", directories), ("allowed_paths", paths)):
        if allowed:
            connection.execute(f"SET {quoted(name)} = [{', '.join(map(literal, allowed))}]")
    connection.execute("SET enable_external_access = false")


def _private_path(path: str) -> str:
    """The path of the connection's folder for other files: next to the database, or among temporary files."""
    parent = os.path.dirname(os.path.realpath(path))
    has_room = path != MEMORY and os.access(parent, os.W_OK)
    return os.path.join(parent if has_room else os.path.realpath(tempfile.gettempdir()), temporary_name(PRIVATE_FOLDER))


@contextmanager
def _private_folder(connection: DuckDB) -> Iterator[Path]:
    """The folder that the connection can access, which exists until the end."""
    allowed = connection.execute("SELECT system.main.current_setting('allowed_directories')").fetchall()[0][0]
    try:
        with held_folder(next(Path(name) for name in allowed if PRIVATE_FOLDER in name)) as folder:
            yield folder
    except OSError as error:
        raise StorageError(f"no folder for a database to be attached: {error.strerror}: {error.filename}") from error


def database_files(path: str | Path) -> dict[str, str]:
    """The file and its logs by ending, existing or not. DuckDB keeps logs next to the target of a link."""
    target = os.path.realpath(path)
    return {ending: target + ending for ending in ("", *LOG_ENDINGS)}


def has_unread_log(path: str, *, lock_timeout_s: float) -> bool:
    """Whether the file has a log that DuckDB silently ignores, and would delete after the next change. Any other log is
    written into the file, unless this process has it open. Raises like `connect`."""
    log = database_files(path)[".wal"]
    size = os.path.getsize(log) if os.path.isfile(log) else 0
    if not size:
        return False
    connect(path, WRITER, read_only=False, lock_timeout_s=lock_timeout_s).close()
    return os.path.isfile(log) and os.path.getsize(log) == size


def copy_database(path: str | Path, copy: Path) -> None:
    """Copy the file and its logs, which no one may write during the copy. Raises StorageError."""
    with storage_errors(f"{path} cannot be copied to {copy.parent}"):
        for ending, file in database_files(path).items():
            if os.path.exists(file):
                shutil.copyfile(file, f"{copy}{ending}")


def _apply_log(path: str) -> None:
    """Write the file's log into the file. Raises DuckDB's error if the log is damaged.

    DuckDB 1.5 and 2.0 cannot apply a log that changes a table with a CHECK when they open its file, but they can when
    they attach it to an open database.
    """
    import duckdb

    file = os.path.abspath(path)
    with duckdb.connect(config=FILE_FORMAT | NO_EXTENSIONS) as connection:
        _confine(connection, paths=[*(file + ending for ending in ("", *LOG_ENDINGS)), *database_files(path).values()])
        lock(connection)
        connection.execute(f"ATTACH {literal(file)} AS attached (TYPE duckdb)")
        connection.execute("CHECKPOINT attached")
        connection.execute("DETACH attached")


SILENT_S = 2.0
"""Time to wait before that is said."""


def note_waiting(name: str, state: str, limit_s: float) -> None:
    """Say that a database is waited for, and for how long at most."""
    note(f"{name} {state}: waiting up to {round(limit_s, 1):g} s (--lock-timeout)")


def retrying(open_it: Callable[[], T], path: str, lock_timeout_s: float) -> T:
    """The result of `open_it`, retried while another process has the file open."""
    import duckdb

    began_s, is_told = time.monotonic(), False
    for pause_s in retry_pauses():
        try:
            return open_it()
        except duckdb.IOException as error:
            waited_s = time.monotonic() - began_s
            remaining_s = lock_timeout_s - waited_s
            if remaining_s <= 0 or not is_locked(str(error)):
                raise
            if waited_s >= SILENT_S and not is_told:
                note_waiting(path, f"is in use by {_holder(str(error))}", lock_timeout_s)
                is_told = True
        time.sleep(min(remaining_s, pause_s))
    raise AssertionError("unreachable: the pauses are endless")


def retry_pauses() -> Iterator[float]:
    """Growing pauses in seconds, without an end. They are random, so that processes that started or failed together do
    not keep colliding."""
    most_s = RETRY_FIRST_S
    while True:
        yield random.uniform(most_s / 2, most_s)  # noqa: S311 - a pause is no secret
        most_s = min(RETRY_MOST_S, 1.5 * most_s)


@contextmanager
def translate_errors(path: str, waited_s: float = 0.0) -> Iterator[None]:
    """Translate DuckDB's errors into ours, of one line each, and its error for a signal into KeyboardInterrupt.

    Raises UsageError for a bound text that is not Unicode, such as an argument with bytes that are not UTF-8.
    """
    import_driver()
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        first: BaseException = error
        while isinstance(first.__context__, duckdb.Error):  # not the error of a ROLLBACK that failed
            first = first.__context__
        if NO_UTF8.search(str(first)):
            raise _not_unicode(path) from error
        raise storage_error(str(first), path, waited_s) from error
    except RuntimeError as error:
        if str(error) == INTERRUPTED:
            raise KeyboardInterrupt from error
        if NO_UTF8.search(str(error)):
            raise _not_unicode(path) from error
        raise
    except UnicodeEncodeError as error:
        raise _not_unicode(path) from error


def _not_unicode(path: str) -> UsageError:
    """The error about a text without UTF-8: the database's path, or a bound one."""
    from benchmarking.core.untrusted.redaction import readable

    place = path if path == MEMORY or is_lake(path) else os.path.abspath(path)
    if place == readable(place):
        return UsageError(NOT_UNICODE)
    return UsageError(f"{readable(place)}: its path has bytes that are not UTF-8, which DuckDB cannot open: move it")


def file_id(path: str) -> tuple[int, int] | None:
    """Identity of the file at the path; None without a file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


class UnwritableError(StorageError):
    """A file that this process may not write, one on a read-only medium, or a lake whose server refuses it."""


class OldCatalogError(StorageError):
    """A lake whose catalog is of an older DuckLake: a writer upgrades it."""


class TransientError(StorageError):
    """A temporary DuckLake error; either nothing was stored, or everything."""


class InvalidatedError(TransientError):
    """The connection is unusable; a new one may work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuckDbMessage:
    """An error of DuckDB."""

    kind: str
    """Parser, Binder, Catalog, Conversion, INTERRUPT, ...; empty if unknown."""
    message: str
    position: int | None = None
    """Position in the statement, in bytes of UTF-8 from 0."""


def without_end(sql: str) -> str:
    """A statement without the semicolon at its end and the comments after it: DuckDB 2 puts the text of a relation into
    another statement."""
    import duckdb

    text, quoted_kinds = sql.encode(), (duckdb.token_type.comment, duckdb.token_type.string_const)
    tokens = [place for place, kind in duckdb.tokenize(sql) if kind not in quoted_kinds]
    ends = [place for place in tokens if text[place : place + 1] == b";"]
    return text[: ends[-1]].decode() if ends else sql


def parse_message(text: str) -> DuckDbMessage:
    """Parse an error's text: the kind, and on a connection with `errors_as_json`, JSON after it."""
    try:
        fields, _ = json.JSONDecoder().raw_decode(text, text.index('{"exception_type"'))
    except ValueError:  # it has none, or one that is cut off
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
            f"{as_typed('setup')} --rebuild-from FOLDER --db-path {shlex.quote(path)}"
        )
        self.damage = damage


def problem_of(error: StorageError) -> str:
    """The problem, without the advice."""
    return error.damage if isinstance(error, DamagedError) else str(error)


def is_locked(text: str) -> bool:
    """Whether the error means that another process has the file open."""
    return any(sign in text for sign in LOCKED)


def missing_database(path: str) -> StorageError:
    """The error for a path without a database."""
    return StorageError(
        f"no database at {path}: create it with {as_typed('setup')} --db-path {shlex.quote(path)}, or store results "
        f"with {as_typed('run')} MODEL --save --db-path {shlex.quote(path)}"
    )


def _holder(text: str) -> str:
    """Who has the file open, by the driver's error."""
    pid = re.search(r"\(PID (\d+)\)", text)
    return f"PID {pid[1]}" if pid else "another process"


def storage_error(text: str, path: str, waited_s: float = 0.0) -> StorageError:
    """The error for the user: the problem of the database at `path`, and what to do."""
    if is_locked(text):
        return LockedError(
            f"{path} is in use by {_holder(text)} (waited {round(waited_s, 1):g} s). Run files are kept: once the "
            f"database is free, load them with {as_typed('setup')} --ingest FOLDER --db-path {shlex.quote(path)}"
        )
    if LOG_UNREADABLE in text:
        return DamagedError(path, f"its log {path}.wal cannot be read, or belongs to another file")
    if block := re.search(r"does not match stored checksum \d+ in block at location (\d+)", text):
        return DamagedError(path, f"checksum mismatch in the block at byte {block[1]}")
    if end := re.search(r"Could not read enough bytes from file.* from location (\d+)", text):
        return DamagedError(path, f"it is truncated at byte {end[1]}")
    if "Out of Memory Error" in text or "std::bad_alloc" in text:
        problem = first_paragraph(parse_message(text).message).removeprefix("Out of Memory Error: ")
        return StorageError(f"{path}: not enough memory ({problem}): narrow the selection, or allow more memory")
    if full := FULL.search(text):
        return StorageError(f"{path}: {full[0]}: free some there, or choose another path, and run the command again")
    if unwritable := UNWRITABLE.search(text):
        reason = unwritable[1]
        return UnwritableError(f"{path} cannot be opened: {reason}: choose another path, or use a copy of the file")
    if any(sign in text for sign in INVALIDATED):
        return InvalidatedError(f"{path}: DuckDB gave up: {first_paragraph(parse_message(text).message)}")
    if "connection to server" in text and (refused := REFUSED.search(text)):
        reason = refused[1].rpartition(" failed: ")[2].removeprefix("FATAL:").strip()
        return StorageError(
            f"{path}: the server refuses the connection: {reason}: check the database, the user and its password "
            "(PGPASSWORD, ~/.pgpass or a service file); createdb makes a missing database"
        )
    if versions := CATALOG_VERSIONS.search(text):
        found, own = versions.groups()
        if [int(one) for one in re.findall(r"\d+", found)] > [int(one) for one in re.findall(r"\d+", own)]:
            newer = f"written by DuckLake {found}, newer than {own} here"
            return FormatError(f'{path}: {newer}: pip install -U "benchhouse[lake]"')
        return OldCatalogError(
            f"{path}: its catalog is of DuckLake {found}: upgrade it to {own} with {as_typed('setup')} --db-path "
            f"{shlex.quote(path)}; other machines then need DuckDB {duckdb_version()} or newer"
        )
    if denied := DENIED.search(text):
        lacks, _, schema = denied[1].partition("for schema ")
        right = f"GRANT CREATE ON SCHEMA {schema}" if schema else "GRANT it"
        grant = f", or {right}" if lacks.startswith("permission denied") else ""
        return UnwritableError(f"{path}: the server refuses: {denied[1]}: use a user or server that may{grant}")
    if any(sign in text for sign in TRANSIENT):
        message = STATEMENT.sub("Failed to execute a statement: ", parse_message(text).message)
        return TransientError(f"{path}: {first_paragraph(message.partition(EXCERPT)[0])}")
    if "not a valid DuckDB database" in text:
        return no_database(path)
    if "newer version of DuckDB" in text:
        return FormatError(f"{path}: written by a newer DuckDB: upgrade with pip install -U duckdb")
    return StorageError(f"{path}: {first_paragraph(parse_message(text).message)}")


def first_paragraph(text: str) -> str:
    """DuckDB's message without the excerpt of the statement and the hints after it."""
    return " ".join(text.strip().split("\n\n")[0].split())
