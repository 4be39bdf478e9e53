"""Databases for tests: in use by another process, of an older version, or with a history of runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache
from multiprocessing.connection import Listener
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarking.core.axes import FURTHER
from benchmarking.core.records import Run
from db import ingestion, migrate
from db.connection import WRITER, Connection
from db.file_copy import make_folder, publish, temporary_sibling
from db.ingestion import RUN_TABLES, SHARED_TABLES
from db.migrate import Views
from db.rows import arrow_table, run_rows
from db.warehouse import Warehouse
from tests.helpers.forked import run_code, started
from tests.helpers.records import make_run

REFUSE_FOREIGN, CLOSE = migrate.refuse_foreign, Warehouse.close

HOLD = """
import sys
from multiprocessing.connection import Client
from db.warehouse import Warehouse

with Client(sys.argv[1]) as caller, Warehouse.open(sys.argv[2]):
    caller.send("open")
    caller.poll(float(sys.argv[3]))
"""
"""Opens a database for writing, reports it, and closes it when its caller hangs up or after some seconds."""
STORE_AND_DIE = """
import os, sys
from pathlib import Path
from db.warehouse import Warehouse

warehouse = Warehouse.open(sys.argv[1])
warehouse.ingest_file(Path(sys.argv[2]))
os._exit(0)
"""
HISTORY_RUNS = """
INSERT INTO benchmark_runs
SELECT benchmark_runs.* REPLACE (
    place.run_id AS run_id, coalesce(place.session_id, place.run_id) AS session_id,
    place.started_at AS started_at, place.started_at AS git_commit_time, place.git_commit AS git_commit
)
FROM benchmark_runs, (SELECT unnest($places, recursive := true)) place WHERE benchmark_runs.run_id = $template
"""
HISTORY_RESULTS = """
INSERT INTO benchmark_results
SELECT benchmark_results.* REPLACE (
    place.run_id AS run_id, place.result_id AS result_id, place.value AS latency_median_ms,
    1000 / place.value AS throughput_samples_per_sec
)
FROM benchmark_results, (SELECT unnest($places, recursive := true)) place WHERE benchmark_results.run_id = $template
"""


def copying(empty_database: Path) -> Callable[[Path], None]:
    """A function that creates a warehouse as a copy of an empty one."""

    def create(path: Path) -> None:
        make_folder(path.parent)
        with temporary_sibling(path) as part:
            shutil.copy2(empty_database, part)
            publish(part, path)

    return create


class Examined:
    """Files that this process has opened, and copies of them by `shutil.copy2`: what `db.migrate.refuse_foreign` found
    in one is still true while nobody else has written to it, and looking at the whole catalog is half of opening it."""

    def __init__(self, empty_database: Path) -> None:
        self.create = copying(empty_database)
        self.views: dict[tuple[int, ...], Views] = {}
        self.found: dict[str, Views] = {}

    def refuse_foreign(self, connection: Connection, path: str, database: str | None = None, **how: bool) -> Views:
        state = () if any(how.values()) else _state(path)
        if state in self.views:
            return self.views[state]
        views = REFUSE_FOREIGN(connection, path, database, **how)
        if state and database is None and migrate.are_own_views(views):
            self.views[state] = self.found[path] = views
        return views

    def close(self, warehouse: Warehouse) -> None:
        CLOSE(warehouse)
        views = self.found.get(warehouse.path)
        if warehouse.path == warehouse.file and views is not None and (state := _state(warehouse.path)):
            self.views[state] = views


def _state(path: str) -> tuple[int, ...]:
    """Different after anybody has written to the file; empty without a file, or with a log beside it."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return () if os.path.exists(f"{path}.wal") else (status.st_size, status.st_mtime_ns)


@contextmanager
def holding(path: str | Path, seconds: float = 600) -> Iterator[ForkServerProcess]:
    """Another process has the database open for writing, for at most some seconds."""
    with Listener() as listener:
        process = started(HOLD, listener.address, path, seconds)
        with listener.accept() as holder:
            assert holder.recv() == "open"
            yield process
    process.join()


def leave_log(path: str | Path, run_file: Path) -> None:
    """Store a run as a process that is killed before the log is taken into the file."""
    assert run_code(STORE_AND_DIE, path, run_file).returncode == 0


@cache
def empty_file_of_version(version: int) -> bytes:
    """A database without rows as the program of a version made it."""
    import duckdb

    with TemporaryDirectory() as folder:
        path = Path(folder, "empty.duckdb")
        if version > 1:
            path.write_bytes(empty_file_of_version(version - 1))
        with duckdb.connect(str(path), config=WRITER) as connection:
            migrate._apply(connection, migrate.migrations()[version - 1])
        return path.read_bytes()


def file_of_version(version: int, path: Path, *runs: Run) -> Path:
    """A database as the program of a version left it: its own tables, and the rows it wrote."""
    import duckdb

    path.write_bytes(empty_file_of_version(version))
    with duckdb.connect(str(path), config=WRITER) as connection:
        for run in runs:
            store_as_then(connection, run)
    return path


def store_as_then(connection: Any, run: Run) -> None:
    """Write what of a run's rows the tables have columns for."""
    there = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    tables = [table for table in (*SHARED_TABLES, *RUN_TABLES) if table in there]
    described = {table: connection.execute(f"DESCRIBE {table}").fetchall() for table in tables}
    types = {table: {row[0]: row[1] for row in rows} for table, rows in described.items()}
    metrics = {name for name, kind in types["benchmark_results"].items() if kind == "DOUBLE" and name not in FURTHER}
    stored_at = datetime(2026, 1, 3)
    rows = run_rows(run, metric_columns=metrics, source=None, source_sha256=None, ingested_at=stored_at)
    for table, kinds in types.items():
        known = [{name: value for name, value in row.items() if name in kinds} for row in rows[table]]
        connection.register("incoming", arrow_table(known, kinds))
        again = "ON CONFLICT DO NOTHING" if table in SHARED_TABLES else ""
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming {again}")
    if connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'series_heads'").fetchall():
        ingestion.compute_latest(connection)


def write_history(
    warehouse: Warehouse,
    values: Iterable[float],
    *,
    runtime: str = "eager",
    start: str = "2026-01-01",
    first: int = 0,
    shared_sessions: bool = False,
    **fields: Any,
) -> list[str]:
    """Store a series of the given medians, a run a day from the 1st of January 2026, by copying rows.

    Returns the ids of the results; the run of value n is "RUNTIME-n", its commit 40 digits that begin with n.
    """
    run = make_run(runtime=runtime, batch_sizes=(1,), sequence_lengths=(32,), launches=1, iterations=2, **fields)
    warehouse.ingest(run)
    model = run.cell.workload.model_id
    day = datetime.fromisoformat(start)
    places: list[dict[str, Any]] = [
        {
            "run_id": f"{model}-{runtime}-{number}",
            "result_id": f"{model}-{runtime}-result-{number:04}",
            "session_id": f"session-{number}" if shared_sessions else None,
            "started_at": day + timedelta(days=number),
            "git_commit": f"{number:04}".ljust(40, "f"),
            "value": float(value),
        }
        for number, value in enumerate(values, start=first)
    ]
    parameters = {"places": places, "template": run.run_id}
    with warehouse.transaction() as connection:
        connection.execute(HISTORY_RUNS, parameters)
        connection.execute(HISTORY_RESULTS, parameters)
        for table in ("benchmark_results", "benchmark_runs"):
            connection.execute(f"DELETE FROM {table} WHERE run_id = ?", [run.run_id])
    return [place["result_id"] for place in places]
