"""The warehouse: a DuckDB file that runs go into and questions are asked of. The only module that imports duckdb."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from benchmarking.errors import FormatError, LockedError, StorageError
from benchmarking.ids import uuid7
from benchmarking.records import Run
from db import migrate
from db.arrow_rows import arrow_table
from db.rows import Row, run_rows

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

MEMORY = ":memory:"
STORAGE_VERSION = "v1.5.0"
"""Format of the files: 1.5 and 2.0 both read and write it; a file in 2.0's own format would shut 1.5 out."""
RETRY_FIRST_S = 0.02
RETRY_MOST_S = 0.5

Parameters = Sequence[object] | Mapping[str, object]


class Table:
    """The answer to a query."""

    def __init__(self, arrow: Any) -> None:
        self._arrow = arrow

    def arrow(self) -> Any:
        """As a `pyarrow.Table`."""
        return self._arrow

    def df(self) -> pd.DataFrame:
        """As a `pandas.DataFrame`; maps are dictionaries."""
        frame: pd.DataFrame = self._arrow.to_pandas(maps_as_pydicts="strict")
        return frame

    def dicts(self) -> list[dict[str, Any]]:
        """One dictionary a row; maps are dictionaries, JSON is text."""
        return [{name: _plain(value) for name, value in row.items()} for row in self._arrow.to_pylist()]


class Warehouse:
    """An open warehouse; close it, or use it in a `with` statement. It must not be used across a fork."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: str, *, read_only: bool) -> None:
        """Takes over an open connection; `Warehouse.open` makes one."""
        self._connection = connection
        self._pid = os.getpid()
        self._column_types: dict[str, dict[str, str]] = {}
        self.path = path
        self.read_only = read_only

    @classmethod
    def open(
        cls, path: str | Path, *, read_only: bool = False, lock_timeout_s: float = 30.0, create: bool = True
    ) -> Warehouse:
        """The warehouse in the file `path` (":memory:" for one that is gone at its end), brought up to date.

        A file that is missing is made, unless `create` is False or `read_only` is True. One process may hold the file
        at a time, readers beside each other excepted: waits up to `lock_timeout_s` for it, then raises LockedError.
        Raises FormatError for a file that is no warehouse or too new, StorageError for one that cannot be opened.
        """
        name = str(path)
        if name != MEMORY and not Path(name).exists():
            if read_only or not create:
                raise StorageError(f"no database at {name}: make it with setup_benchmark_db --db-path {name}")
            _create(Path(name))
        warehouse = cls(_connect(name, read_only, lock_timeout_s), name, read_only=read_only)
        try:
            warehouse._bring_up_to_date()
        except BaseException:
            warehouse.close()
            raise
        return warehouse

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go; every run that was ingested is in it."""
        with _told(self.path):
            self._connection.close()

    def ingest(self, run: Run, *, source: str | None = None, source_sha256: str | None = None) -> bool:
        """Store a run: all of it when this returns True, nothing when it raises.

        False when the run, or the file it comes from (`source_sha256`), is stored already. Raises FormatError for a
        number that is none, and StorageError when the file cannot be written.
        """
        with self._using() as connection, migrate.transaction(connection):
            if self._has(run.run_id, source_sha256):
                return False
            rows = run_rows(
                run,
                metric_columns={name for name, kind in self._columns("benchmark_results").items() if kind == "DOUBLE"},
                source=source,
                source_sha256=source_sha256,
                ingested_at=datetime.now(UTC).replace(tzinfo=None),
            )
            for table, key in (("hardware_info", "hardware_id"), ("series", "series_id")):
                self._insert(table, rows[table], new_by=key)
            for table in ("benchmark_runs", "benchmark_results", "raw_benchmark_data"):
                self._insert(table, rows[table])
        return True

    def query(self, sql: str, params: Parameters | None = None) -> Table:
        """The answer to a statement, its `?` or `$name` bound to `params`. Raises StorageError with DuckDB's words."""
        import pyarrow as pa

        with self._using() as connection, connection.cursor() as cursor:
            relation = cursor.sql(sql, params=params)
            return Table(pa.table({}) if relation is None else relation.to_arrow_table())

    def backup(self, target: Path) -> None:
        """Copy everything into a new file, which appears only when it is complete. Raises StorageError."""
        if target.exists():
            raise StorageError(f"{target} exists already: a backup is never written over a file; name another")
        part = _beside(target)
        with self._using() as connection:
            quoted = str(part).replace("'", "''")
            try:
                connection.execute(f"ATTACH '{quoted}' AS backup (STORAGE_VERSION '{STORAGE_VERSION}')")
                try:
                    name = connection.execute("SELECT current_database()").fetchall()[0][0]
                    connection.execute(f'COPY FROM DATABASE "{name}" TO backup')
                finally:
                    connection.execute("DETACH backup")
                if not _publish(part, target):
                    raise StorageError(f"{target} appeared meanwhile: a backup is never written over a file")
            finally:
                part.unlink(missing_ok=True)

    def _bring_up_to_date(self) -> None:
        with self._using() as connection:
            if not self.read_only:
                migrate.migrate(connection, self.path)
            elif not migrate.is_current(connection, self.path):
                raise StorageError(
                    f"{self.path}: older than this program, and opened for reading only: "
                    f"upgrade it with setup_benchmark_db --db-path {self.path}"
                )

    @contextmanager
    def _using(self) -> Iterator[duckdb.DuckDBPyConnection]:
        if os.getpid() != self._pid:
            # What a forked child writes through its parent's connection seems to succeed and is lost.
            raise StorageError(f"{self.path}: opened in another process: open it again after a fork")
        with _told(self.path):
            yield self._connection

    def _has(self, run_id: str, source_sha256: str | None) -> bool:
        sql = "SELECT 1 FROM benchmark_runs WHERE run_id = ? OR source_sha256 = ? LIMIT 1"
        return bool(self._connection.execute(sql, [run_id, source_sha256]).fetchall())

    def _columns(self, table: str) -> dict[str, str]:
        """Type by name of the table's columns."""
        if table not in self._column_types:
            sql = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
            self._column_types[table] = dict(self._connection.execute(sql, [table]).fetchall())
        return self._column_types[table]

    def _insert(self, table: str, rows: Sequence[Row], new_by: str | None = None) -> None:
        """Insert the rows; with `new_by`, those whose key is not there yet."""
        self._connection.register("incoming", arrow_table(rows, self._columns(table)))
        known = f"WHERE {new_by} NOT IN (SELECT {new_by} FROM {table})" if new_by else ""
        self._connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming {known}")
        self._connection.unregister("incoming")


def _create(path: Path) -> None:
    """Make an empty warehouse at `path`, complete from the moment it is there.

    Made beside it and moved: two processes that open a missing file at once could else leave an empty one, which DuckDB
    refuses for ever. Who comes second drops his own.
    """
    part = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make a database in {path.parent}: {error.strerror}; name another place") from error
    try:
        with _told(str(path)):
            connection = _connect(str(part), False, 0.0)
            try:
                migrate.migrate(connection, str(path))
            finally:
                connection.close()
        _publish(part, path)
    finally:
        part.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid7()}.new")


def _publish(part: Path, path: Path) -> bool:
    """Give a finished file its name, unless the name is taken: then False."""
    try:
        if os.name == "nt":
            part.rename(path)  # on Windows this refuses an existing name
        else:
            os.link(part, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise StorageError(f"cannot make {path}: {error.strerror}; name another place") from error
    return True


def _connect(path: str, read_only: bool, lock_timeout_s: float) -> duckdb.DuckDBPyConnection:
    """Open the file, trying again while another process holds it."""
    import duckdb

    deadline = time.monotonic() + lock_timeout_s
    pause_s = RETRY_FIRST_S
    with _told(path, lock_timeout_s):
        while True:
            try:
                config = {"storage_compatibility_version": STORAGE_VERSION}
                return duckdb.connect(path, read_only=read_only, config=config)
            except duckdb.IOException as error:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not _is_lock(str(error)):
                    raise
            # Jitter, or processes that started together would keep meeting.
            time.sleep(min(left_s, random.uniform(pause_s / 2, pause_s)))
            pause_s = min(RETRY_MOST_S, 1.5 * pause_s)


@contextmanager
def _told(path: str, waited_s: float = 0.0) -> Iterator[None]:
    """Turn DuckDB's errors into ours, one clear line each."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise _trouble(_first(error, duckdb.Error), path, waited_s) from error


def _first(error: BaseException, kind: type[BaseException]) -> BaseException:
    """The error that started it: what a failed ROLLBACK says afterwards helps nobody."""
    while isinstance(error.__context__, kind):
        error = error.__context__
    return error


def _trouble(error: BaseException, path: str, waited_s: float) -> StorageError:
    text = str(error).strip()
    if _is_lock(text):
        pid = re.search(r"\(PID (\d+)\)", text)
        holder = f"process {pid[1]} (PID) holds it" if pid else "another process holds it"
        return LockedError(
            f"{path} is locked: {holder}, waited {waited_s:g} s. Once it is free, load the run files with "
            f"setup_benchmark_db --ingest FOLDER --db-path {path}"
        )
    if "not a valid DuckDB database" in text:
        return FormatError(f"{path}: not a DuckDB database: name another file with --db-path")
    if type(error).__name__ == "SerializationException" or "newer version of DuckDB" in text:
        return FormatError(f"{path}: written by a newer DuckDB: upgrade with pip install -U duckdb. It says: {text}")
    return StorageError(f"{path}: {text.splitlines()[0]}")


def _is_lock(text: str) -> bool:
    """Whether DuckDB says that another process holds the file (the first is POSIX, the others Windows)."""
    signs = ("Could not set lock on file", "File is already open in", "being used by another process")
    return any(sign in text for sign in signs)


def _plain(value: Any) -> Any:
    """Arrow gives a map as a list of pairs."""
    is_map = isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value)
    return dict(value) if is_map else value
