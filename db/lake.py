"""A warehouse in DuckLake: tables in Parquet files that many machines can access, the catalog in PostgreSQL or a file.

The schema is that of the migrations, read from a migrated database in memory. DuckLake has no keys, checks or comments
on view columns; only `lake_statements` leaves them out. Identity rests on three things: ids are unique or hashes,
writers first check whether a row exists, and one process writes at a time. The writer holds a PostgreSQL advisory lock
for one transaction, which ends with the process or the server; a catalog in a file is locked by DuckDB. Readers never
wait.

DuckDB's PostgreSQL extension lets SQL connect to any server. So the user's SQL never runs on a connection that has it,
but on a copy of the tables in a file.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from benchmarking.core.command_line import note
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import FormatError, LockedError, StorageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import naive_now, uuid7
from benchmarking.core.storage_paths import DATA_PATH, LakePlace
from benchmarking.core.text import visible
from db import migrate
from db.connection import (
    FILE_FORMAT,
    SILENT_S,
    WRITER,
    Config,
    Connection,
    OldCatalogError,
    TransientError,
    confined,
    connect_attaching,
    duckdb_version,
    literal,
    load_extension,
    new_database,
    note_waiting,
    quoted,
    retry_pauses,
    retrying,
    roll_back,
    translate_errors,
)
from db.connection import connect as connect_file
from db.file_copy import make_folder
from db.server_watch import ServerWatch

if TYPE_CHECKING:
    from db.connection import DuckDB

NAME = "lake"
"""Name of the lake in SQL."""
CATALOG = "lake_catalog"
"""Name of the database with its catalog in SQL."""
LOCK_CONNECTION = "lake_turns"
"""Name in SQL of the PostgreSQL connection that holds the writers' lock."""
WRITERS_LOCK = 0x62656E6368
"""Key of the advisory lock: "bench"."""
LEAST_CONNECT_S, MOST_CONNECT_S = 2, 30
"""Limits of a single attempt to connect to PostgreSQL, in seconds: its client knows no shorter one."""
KEEPALIVE = {"keepalives_idle": 20, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 40_000}
"""A connection whose network was cut ends after 40 s instead of hours."""
SERVER_SIDE = {"tcp_keepalives_idle": 20, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 4}
"""The same for the server, whose session may hold the writers' lock of a machine that was lost."""
NO_OPTIONS = re.compile("unsupported startup parameter|command-line options", re.IGNORECASE)
"""What a pooler between says of a connection with settings for the server."""
LEAST_SILENCE_S, MOST_SILENCE_S = 10.0, 40.0
"""Limits of the time that a server may answer nothing before its connections are ended."""
WAIT_SLICE_S = 2.0
"""Longest wait inside PostgreSQL, after which Ctrl-C takes effect."""
LOCK_WAIT = "lock timeout"
"""Sign of such a wait that has ended."""

EXTENSIONS = {"ducklake": "duckdb_extension_ducklake", "postgres_scanner": "duckdb_extension_postgres_scanner"}
"""DuckDB extension -> the Python package that contains it."""
STORES = {
    "s3": ("httpfs", "s3"),
    "gs": ("httpfs", "gcs"),
    "gcs": ("httpfs", "gcs"),
    "r2": ("httpfs", "r2"),
    "az": ("azure", "azure"),
    "abfss": ("azure", "azure"),
}
"""Scheme of an object store -> the extension that reads it, and DuckDB's type of credentials for it."""
KEY_OPTIONS = "KEY_ID '...', SECRET '...'"
AWS_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
AZURE = "AZURE_STORAGE_CONNECTION_STRING"
CREDENTIALS = {
    "s3": (f"set {AWS_KEYS}", KEY_OPTIONS),
    "gcs": (f"name it s3:// and set {AWS_KEYS}, and AWS_ENDPOINT_URL=https://storage.googleapis.com", KEY_OPTIONS),
    "r2": (
        f"name it s3:// and set {AWS_KEYS}, and AWS_ENDPOINT_URL=https://ACCOUNT.r2.cloudflarestorage.com",
        f"{KEY_OPTIONS}, ACCOUNT_ID '...'",
    ),
    "azure": (f"set {AZURE}", "CONNECTION_STRING '...'"),
}
"""Type of credentials -> how to set them in the environment, and the options of a DuckDB secret."""
LAKE_EXTRA = 'pip install "benchhouse[lake]", which brings DuckDB 1.5.5'

AWS_VARIABLES = {
    "KEY_ID": "AWS_ACCESS_KEY_ID",
    "SECRET": "AWS_SECRET_ACCESS_KEY",
    "SESSION_TOKEN": "AWS_SESSION_TOKEN",
    "REGION": "AWS_REGION",
}
"""Option of a DuckDB secret -> its environment variable."""

STORE_CREDENTIALS = "CREATE PERSISTENT SECRET"

SETTINGS: Config = {"catalog_error_max_schemas": 0}
"""Prevents DuckDB from looking up unknown names in PostgreSQL's own tables."""
UPDATE = re.compile(r"^UPDATE\b[^;]*;$", re.MULTILINE)
"""A statement of a step that corrects rows in place, which a lake takes as a file does."""
RECREATION = re.compile(r"^INSERT INTO (\w+) BY NAME SELECT \* FROM old_\1;$", re.MULTILINE)
"""The rows of a table that a step makes anew for its checks, which a lake does not have."""
CHANGES = re.compile(r"^\s*(UPDATE|DELETE|INSERT)\b", re.MULTILINE)
MERGE_ADVICE = "the lake cannot be upgraded in place: create a new one, and benchhouse merge this one into it"
NO_CATALOG = "database does not exist"
EXISTING = "CREATE_IF_NOT_EXISTS false"
UPGRADED = "AUTOMATIC_MIGRATION true"
DATA_IN_STORE = re.compile(r"Data path (\S+) requires the extension")
LAKE_MISSING = "creating a new DuckLake is explicitly disabled"

COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable, comment FROM system.main.duckdb_columns()
WHERE NOT internal AND database_name = system.main.current_database() AND table_name IN (SELECT unnest(?))
ORDER BY table_name, column_index
"""
COMMENTS = """
SELECT table_name, comment FROM system.main.duckdb_tables()
WHERE database_name = system.main.current_database() AND comment IS NOT NULL ORDER BY table_name
"""
SNAPSHOT = f"SELECT max(snapshot_id) AS snapshot FROM {CATALOG}.ducklake_snapshot"

DATA_BYTES = f"SELECT coalesce(sum(file_size_bytes), 0)::BIGINT FROM {CATALOG}.ducklake_data_file"
NEWEST_FILES = f"""
SELECT concat("schema".path, "table".path, file.path) FROM {CATALOG}.ducklake_data_file file
JOIN {CATALOG}.ducklake_table "table" USING (table_id) JOIN {CATALOG}.ducklake_schema "schema" USING (schema_id)
WHERE file.end_snapshot IS NULL AND file.path_is_relative AND "table".path_is_relative AND "schema".path_is_relative
ORDER BY data_file_id DESC LIMIT 20
"""
"""The places of files in the data folder: some, since one that is lost alone is damage."""
SNAPSHOT_AGE = "1 day"
"""How long older snapshots stay readable, and their files are kept: longer than any query or transaction."""
COMPACTING = (
    f"CALL ducklake_flush_inlined_data({literal(NAME)})",
    f"CALL ducklake_merge_adjacent_files({literal(NAME)})",
    f"CALL ducklake_rewrite_data_files({literal(NAME)})",
    *(
        f"CALL ducklake_{what}({literal(NAME)}, older_than => now() - INTERVAL {literal(SNAPSHOT_AGE)})"
        for what in ("expire_snapshots", "cleanup_old_files")
    ),
)
"""Without `ducklake_delete_orphaned_files`: it deletes every Parquet file below the data folder that this catalog does
not name, also those of the user and of other lakes."""

SCHEDULED = f"SELECT path, path_is_relative FROM {CATALOG}.ducklake_files_scheduled_for_deletion"
OWN_FILE = re.compile(r"main/\w+/ducklake-[0-9a-f-]{36}(?:-delete)?\.parquet", re.ASCII)
"""A file that a lake of ours has written, relative to its data folder."""

T = TypeVar("T")


@dataclass(slots=True, kw_only=True, eq=False)
class Lake:
    """An open lake, with the lock of its writers."""

    place: LakePlace
    lock_timeout_s: float
    _cursors: list[DuckDB] = field(default_factory=list)
    """Open cursors, for `close`."""
    _session: str | None = None
    """Name of the newest connection in PostgreSQL."""
    _given_up: set[str] = field(default_factory=set)
    """Names of connections that DuckDB has invalidated: they stay open, and may hold the writers' lock."""
    _watch: ServerWatch | None = None
    """The watch over the server, while a connection is open."""
    takes_options: bool = True
    """Whether connections can set the server's settings; not through every pooler."""

    @contextmanager
    def cursor(self, connection: DuckDB) -> Iterator[DuckDB]:
        """A cursor whose transaction is ended before it is closed, even if its answer is read in parts."""
        cursor = connection.cursor()
        self._cursors.append(cursor)
        try:
            yield cursor
        finally:
            self._cursors.remove(cursor)
            self._close(cursor, is_ended=roll_back(cursor))

    def close(self, connection: DuckDB) -> None:
        """Close the connection, and roll back what is not committed."""
        self.end_watch()
        ended = [roll_back(one) for one in (*self._cursors, connection)]  # DuckDB closes the cursors with it
        self._close(connection, is_ended=all(ended))

    def _close(self, connection: DuckDB, *, is_ended: bool) -> None:
        if is_ended:
            connection.close()
        elif self._session is not None:
            self._given_up.add(self._session)

    @property
    def reached(self) -> str:
        """The catalog, with the newest connection's name for PostgreSQL."""
        if self._session is None:
            return self.place.catalog
        limits: dict[str, object] = {
            "connect_timeout": max(LEAST_CONNECT_S, math.ceil(min(self.lock_timeout_s, MOST_CONNECT_S))),
            **KEEPALIVE,
        }
        given = re.findall(r"(\w+)\s*=", self.place.catalog)
        if self.takes_options and "service" not in given and "PGSERVICE" not in os.environ:  # which may have its own
            settings = {"lock_timeout": round(1000 * WAIT_SLICE_S), **SERVER_SIDE}
            words = [os.environ.get("PGOPTIONS", ""), *(f"-c {name}={value}" for name, value in settings.items())]
            limits["options"] = "'" + re.sub(r"(['\\\\])", r"\\\1", " ".join(words).strip()) + "'"
        further = " ".join(f"{name}={value}" for name, value in limits.items() if name not in given)
        return f"{self.place.catalog} application_name={self._session} {further}"

    def begin_session(self) -> None:
        """Give the next connection a new name, and watch the server."""
        if self.place.is_postgres:
            self._session = f"benchhouse-{uuid7()}"
            if self._watch is None:
                patience_s = max(LEAST_SILENCE_S, min(self.lock_timeout_s, MOST_SILENCE_S))
                self._watch = ServerWatch(self.place.catalog, patience_s)

    def end_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    @contextmanager
    def transaction(self, connection: DuckDB) -> Iterator[None]:
        """A transaction of the only process that may write. Raises LockedError if others hold the lock too long."""
        with self.turn(connection) as check, migrate.transaction(connection):
            yield
            check()

    @contextmanager
    def turn(self, connection: DuckDB) -> Iterator[Callable[[], None]]:
        """Hold the writers' lock; yields a function that raises if the lock was lost. Raises LockedError."""
        if not self.place.is_postgres:
            yield lambda: None  # DuckDB has locked the catalog's file
            return
        deadline, name = time.monotonic() + self.lock_timeout_s, self.place.name
        with self.cursor(connection) as cursor:
            for session in tuple(self._given_up):
                ending = "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity WHERE application_name = "
                _ask_server(cursor, f"{ending}{literal(session)}")
                self._given_up.discard(session)
            silent_until_s = time.monotonic() + SILENT_S
            while not _has_lock(cursor, self.place, min(WAIT_SLICE_S, deadline - time.monotonic())):
                if time.monotonic() >= silent_until_s:
                    note_waiting(name, "is being written by another process", self.lock_timeout_s)
                    silent_until_s = math.inf
                if time.monotonic() >= deadline:
                    raise LockedError(
                        f"{name} is being written by another process (waited {self.lock_timeout_s:g} s). Run files are "
                        f"kept: load them later with {as_typed('setup')} --ingest FOLDER --db-path {shlex.quote(name)}"
                    )
            yield lambda: _ask_server(cursor, "SELECT 1 AS alive")

    def repeated(self, change: Callable[[], T], *, is_opening: bool = False) -> T:
        """The result of `change`, repeated while its errors are temporary, for `lock_timeout_s` after the first error,
        or if the lake is being opened, after the beginning: a server may be out of reach.

        Raises TransientError with the last error and the attempts made.
        """
        began_s, has_waited = time.monotonic(), False
        deadline = began_s + self.lock_timeout_s if is_opening else None
        for tries, pause_s in enumerate(retry_pauses(), 1):
            try:
                return change()
            except TransientError as error:
                now = time.monotonic()
                deadline = now + self.lock_timeout_s if deadline is None else deadline
                left_s = deadline - now
                if left_s <= 0:
                    attempts = f"tried {tries} times in {self.lock_timeout_s:g} s" if tries > 1 else "tried once"
                    check = "check that the server is running, and " if self.place.is_postgres else ""
                    check = "end the session that locks its catalog, and " if LOCK_WAIT in str(error) else check
                    raise TransientError(
                        f"{error}: {attempts}: {check}run the command again (nothing is stored twice)"
                    ) from error
                if now - began_s >= SILENT_S and not has_waited:
                    problem = "does not answer" if self.place.is_postgres else "takes no change"
                    problem = "has a locked catalog" if LOCK_WAIT in str(error) else problem
                    note(f"{self.place.name} {problem}: trying for up to {left_s:.0f} s more (--lock-timeout)")
                    has_waited = True
            time.sleep(min(left_s, pause_s))
        raise AssertionError("unreachable: the pauses are endless")


def connect(lake: Lake, *, read_only: bool, create: bool) -> DuckDB:
    """A connection whose current database is the lake, confined to its data; its settings are not locked yet.

    Raises StorageError for a missing lake (unless `create`) and for a missing extension; FormatError for a catalog file
    that contains more; LockedError.
    """
    place = lake.place
    if place.data_path is not None and "://" in place.data_path:
        _store_scheme(place, place.data_path)

    def attach_existing(connection: DuckDB) -> None:
        try:
            _attach_lake(connection, lake, EXISTING, is_new=False, read_only=read_only)
        except OldCatalogError:
            if read_only:
                raise
            with lake.turn(connection):
                _attach_lake(connection, lake, EXISTING, UPGRADED, is_new=False, read_only=False)
            note(f"{place.name}: its catalog is upgraded: other machines need DuckDB {duckdb_version()} or newer")

    def attach(connection: DuckDB) -> list[str]:
        """Attach the lake and make it the current database; returns the folders that it needs."""
        lake.begin_session()
        for name in ("ducklake", *(["postgres_scanner"] if place.is_postgres else [])):
            load_extension(connection, name, EXTENSIONS[name], LAKE_EXTRA)
        if place.data_path is not None and "://" in place.data_path:
            _open_store(connection, place, str(place.data_path))
        if place.is_postgres and not read_only:
            connection.execute(f"ATTACH {literal(lake.reached)} AS {LOCK_CONNECTION} (TYPE postgres)")
        try:
            try:
                attach_existing(connection)
            except StorageError as error:
                if (store := DATA_IN_STORE.search(str(error))) is None:
                    raise
                if not place.is_postgres:  # the file may be a stranger's, and the credentials are the user's
                    raise StorageError(
                        f"{place.name}: its catalog names {store[1]} as the place of its data: to read them from "
                        f"there, add {DATA_PATH}{store[1]} to --db-path"
                    ) from error
                _open_store(connection, place, store[1])  # which only the catalog names
                attach_existing(connection)
        except StorageError as error:
            if not any(sign in str(error) for sign in (LAKE_MISSING, NO_CATALOG)):
                raise
            if read_only or not create:
                raise StorageError(
                    f"no lake at {place.name}: create it with {as_typed('setup')} --db-path {shlex.quote(place.name)}"
                ) from error
            # Create the catalog, or attach the one that another process has just created.
            if place.data_path is None:
                raise StorageError(
                    f"{place.name}: the lake does not exist yet, and a new one needs a data folder that every machine "
                    f"can access: add {DATA_PATH}FOLDER to --db-path"
                ) from error
            if not place.is_postgres:
                make_folder(Path(place.catalog).parent)
            if "://" not in place.data_path:
                make_folder(Path(place.data_path))
            with lake.turn(connection):
                _attach_lake(connection, lake, "CREATE_IF_NOT_EXISTS true", is_new=True, read_only=False)
        connection.execute(f"USE {NAME}")
        rows = connection.execute(f"SELECT data_path FROM ducklake_settings({literal(NAME)})").fetchall()
        folder = str(rows[0][0])
        if "://" not in folder:
            _check_folder(connection, place, folder, read_only=read_only)
        return [folder]

    if not place.is_postgres and os.path.exists(place.catalog):
        # Refuse a catalog file that contains more than a catalog.
        path = place.catalog
        with (
            translate_errors(path, lake.lock_timeout_s),
            connect_file(path, FILE_FORMAT, read_only=True, lock_timeout_s=lake.lock_timeout_s) as connection,
        ):
            migrate.refuse_non_catalog(connection, path)
    try:
        with translate_errors(place.name, lake.lock_timeout_s):
            return connect_attaching(attach, SETTINGS | (FILE_FORMAT if read_only else WRITER))
    except BaseException as error:
        lake.end_watch()
        if lake.takes_options and isinstance(error, StorageError) and NO_OPTIONS.search(str(error)):
            lake.takes_options = False
            return connect(lake, read_only=read_only, create=create)
        raise


def _check_folder(connection: DuckDB, place: LakePlace, folder: str, *, read_only: bool) -> None:
    """Raise StorageError if this is not the lake's data folder: files that a writer puts there, such as below the mount
    point of a share that is not mounted, would be missing for all others."""
    is_there = os.path.isdir(folder)
    files = [] if read_only else [path for (path,) in connection.execute(NEWEST_FILES).fetchall()]
    if not is_there and (read_only or files or place.is_postgres):
        problem = "is not on this machine"
    elif files and not any(os.path.exists(os.path.join(folder, path)) for path in files):
        problem = "has none of the newest files that its catalog names"
    else:
        if not is_there:  # the catalog in a file has everything so far
            make_folder(Path(folder))
        return
    raise StorageError(
        f"{place.name}: its data folder {folder} {problem}: mount it, or name its local path with {DATA_PATH}FOLDER "
        "after --db-path"
    )


def prepare(connection: DuckDB, lake: Lake) -> None:
    """Create or upgrade the schema. Raises FormatError for a newer schema, StorageError."""
    name = lake.place.name
    if migrate.is_current(connection, name):
        return
    with lake.transaction(connection):
        if not migrate.is_current(connection, name):  # no other process was faster
            before = migrate.version_of(connection, name)
            updates = list[str]()
            for step in migrate.migrations():
                if step.version > before > 0:
                    updates += UPDATE.findall(step.sql)
                    if CHANGES.search(RECREATION.sub("", UPDATE.sub("", step.sql))):
                        raise StorageError(f"{name}: {step.name} changes rows: {MERGE_ADVICE}")
            columns: dict[str, dict[str, bool]] = {}
            found = connection.execute(COLUMNS, [migrate.table_list(connection)]).fetchall()
            for table, column, _, is_nullable, _ in found:
                columns.setdefault(table, {})[column] = is_nullable
            migrate.drop_views(connection)
            with model() as model_connection:
                for statement in (*lake_statements(model_connection, columns), *updates):
                    connection.execute(statement)
            if before > 0:
                connection.execute(migrate.comments())
            connection.execute(migrate.view_definitions())
            now = naive_now()
            connection.execute(f"DELETE FROM {migrate.BOOKKEEPING}")
            for step in (migrate.views(), *migrate.migrations()):
                connection.execute(
                    f"INSERT INTO {migrate.BOOKKEEPING} (version, name, sha256, applied_at) VALUES (?, ?, ?, ?)",
                    [step.version, step.name, step.sha256, now],
                )


@contextmanager
def model() -> Iterator[DuckDB]:
    """An empty warehouse in memory, as the model for the tables of a lake."""
    with confined() as connection:
        for step in migrate.migrations():
            connection.execute(step.sql)
        connection.execute(migrate.comments())
        yield connection


def lake_statements(model: Connection, present: Mapping[str, Mapping[str, bool]]) -> list[str]:
    """SQL that adds the model's tables and columns that a lake lacks, and lets columns be NULL that the model's can;
    `present` has its columns by table, and whether each can.

    A lake takes names, types, NOT NULL and comments; it has no keys and checks. Raises StorageError for a column that
    needs a value in existing rows.
    """
    statements, new = list[str](), dict[str, list[str]]()
    for table, column, kind, is_nullable, comment in model.execute(COLUMNS, [migrate.table_list(model)]).fetchall():
        if column in present.get(table, ()):
            if is_nullable and not present[table][column]:
                statements.append(f"ALTER TABLE {quoted(table)} ALTER COLUMN {quoted(column)} DROP NOT NULL")
            continue
        if table not in present:
            definition = f"{quoted(column)} {kind}{'' if is_nullable else ' NOT NULL'}"
            new.setdefault(table, []).append(definition)
        elif is_nullable:
            statements.append(f"ALTER TABLE {quoted(table)} ADD COLUMN {quoted(column)} {kind}")
        else:
            raise StorageError(f"{table}.{column} needs a value: {MERGE_ADVICE}")
        if comment is not None:
            statements.append(f"COMMENT ON COLUMN {quoted(table)}.{quoted(column)} IS {literal(comment)}")
    definitions = {table: ", ".join(columns) for table, columns in new.items()}
    created = [f"CREATE TABLE {quoted(table)} ({options})" for table, options in definitions.items()]
    comments = [
        f"COMMENT ON TABLE {quoted(table)} IS {literal(comment)}"
        for table, comment in model.execute(COMMENTS).fetchall()
        if table in new
    ]
    return [*created, *statements, *comments]


def copy_for_questions(connection: DuckDB, target: Path) -> None:
    """Copy a snapshot of the tables into a new file that has no access to the lake."""
    with new_database(connection, target) as name:
        with migrate.transaction(connection):
            for table in migrate.table_list(connection):
                connection.execute(
                    f"CREATE TABLE {quoted(name)}.main.{quoted(table)} AS FROM {NAME}.main.{quoted(table)}"
                )
        _finish_copy(connection, name)


def copy_to_file(connection: DuckDB, target: Path) -> None:
    """Copy everything into a new file, an ordinary warehouse."""
    with new_database(connection, target) as name:
        tables = migrate.table_list(connection)
        connection.execute(f"USE {quoted(name)}")
        try:
            for step in migrate.migrations():
                connection.execute(step.sql)
        finally:
            connection.execute(f"USE {NAME}")
        with migrate.transaction(connection):
            for table in tables:
                source, copy = (f"{database}.main.{quoted(table)}" for database in (NAME, quoted(name)))
                connection.execute(f"INSERT INTO {copy} BY NAME FROM {source}")
        _finish_copy(connection, name)


def compact(connection: DuckDB, lake: Lake) -> tuple[int, int]:
    """Write rows in the catalog into files, join small files, and delete files that are no longer needed.

    Returns the bytes of the data files before and after. Snapshots newer than `SNAPSHOT_AGE` stay readable. Raises
    FormatError for a catalog, perhaps a stranger's, that has other files deleted.
    """
    with lake.turn(connection):
        for path, is_relative in connection.execute(SCHEDULED).fetchall():
            if not is_relative or OWN_FILE.fullmatch(path) is None:
                raise FormatError(
                    f"{lake.place.name}: not compacted, which would delete {visible(path)!r}: its catalog says so, but "
                    "no lake has such a file"
                )
        before, *_, after = (connection.execute(sql).fetchall() for sql in (DATA_BYTES, *COMPACTING, DATA_BYTES))
    return int(before[0][0]), int(after[0][0])


def _finish_copy(connection: DuckDB, name: str) -> None:
    """Add the comments of the tables, and the views with their comments."""
    sql = [
        f"COMMENT ON COLUMN {quoted(table)}.{quoted(column)} IS {literal(comment)}"
        for table, column, _, _, comment in connection.execute(COLUMNS, [migrate.table_list(connection)]).fetchall()
        if comment is not None
    ]
    sql += [
        f"COMMENT ON TABLE {quoted(table)} IS {literal(text)}"
        for table, text in connection.execute(COMMENTS).fetchall()
    ]
    connection.execute(f"USE {quoted(name)}")
    try:
        with migrate.transaction(connection):
            connection.execute(";\n".join(sql))
            migrate.create_views(connection)
    finally:
        connection.execute(f"USE {NAME}")


def _attach_lake(connection: DuckDB, lake: Lake, *further: str, is_new: bool, read_only: bool) -> None:
    place = lake.place
    words = [*further, f"METADATA_CATALOG {literal(CATALOG)}", *(["READ_ONLY"] if read_only else [])]
    if place.data_path is not None:
        folder = place.data_path.rstrip("/") + "/"
        # The folder may be mounted elsewhere on this machine.
        words += [f"DATA_PATH {literal(folder)}", *([] if is_new else ["OVERRIDE_DATA_PATH true"])]
    source = f"ducklake:{'postgres:' if place.is_postgres else ''}{lake.reached}"
    options = ", ".join(words)
    statement = f"ATTACH {literal(source)} AS {NAME} ({options})"
    with translate_errors(place.name, lake.lock_timeout_s):
        retrying(lambda: connection.execute(statement), place.name, lake.lock_timeout_s)


def _store_scheme(place: LakePlace, data: str) -> str:
    """The kind of object store that the data are in. Raises StorageError for an unknown one."""
    scheme = data.partition("://")[0]
    if scheme not in STORES:
        raise StorageError(f"{place.name}: {scheme}:// is not an object store: expected one of {', '.join(STORES)}")
    return scheme


def _open_store(connection: DuckDB, place: LakePlace, data: str) -> None:
    """Load the extension for an object store, with credentials from the environment or stored in DuckDB.

    Raises StorageError without credentials.
    """
    scheme = _store_scheme(place, data)
    extension, kind = STORES[scheme]
    package = f"duckdb_extension_{extension}"
    load_extension(connection, extension, package, f"pip install {package.replace('_', '-')}=={duckdb_version()}")
    credentials = store_options(kind)
    if credentials:
        options = ", ".join(f"{name} {literal(value)}" for name, value in credentials.items())
        connection.execute(f"CREATE OR REPLACE TEMPORARY SECRET {NAME} (TYPE {kind}, SCOPE {literal(data)}, {options})")
    if not connection.execute(f"FROM which_secret({literal(data)}, {literal(kind)})").fetchall():
        variables, options = CREDENTIALS[kind]
        raise StorageError(
            f"{place.name}: no credentials for {data}: {variables}; or store them with DuckDB: "
            f"{STORE_CREDENTIALS} (TYPE {kind}, {options})"
        )


def store_options(kind: str) -> dict[str, str]:
    """Credentials and endpoint of a store from the environment, as options of a DuckDB secret: those of Amazon's own
    tools, or Azure's; empty without any."""
    if kind != "s3":
        text = os.environ.get(AZURE) if kind == "azure" else None
        return {"CONNECTION_STRING": text} if text else {}
    options = {option: value for option, name in AWS_VARIABLES.items() if (value := os.environ.get(name))}
    if not {"KEY_ID", "SECRET"} <= options.keys():
        return {}
    options.setdefault("REGION", os.environ.get("AWS_DEFAULT_REGION") or "us-east-1")
    url = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "")
    if url.netloc:
        options |= {"ENDPOINT": url.netloc, "URL_STYLE": "path", "USE_SSL": str(url.scheme == "https").lower()}
    return options


def _has_lock(cursor: DuckDB, place: LakePlace, wait_s: float) -> bool:
    """Whether the lock was acquired in time; the cursor is then inside the transaction that holds it."""
    wait_ms = max(1, round(1000 * wait_s))
    try:
        cursor.execute("BEGIN")
        with translate_errors(place.name):
            wait = literal(str(wait_ms))
            lock = f"SELECT set_config('lock_timeout', {wait}, true), pg_advisory_xact_lock({WRITERS_LOCK})::text"
            _ask_server(cursor, lock)
    except StorageError as error:
        roll_back(cursor)
        if LOCK_WAIT not in str(error):
            raise
        return False
    return True


def _ask_server(cursor: DuckDB, sql: str) -> None:
    cursor.execute(f"FROM system.main.postgres_query({literal(LOCK_CONNECTION)}, {literal(sql)})").fetchall()
