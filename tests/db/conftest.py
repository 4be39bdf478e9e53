"""Warehouses to test with: in memory, or a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from benchmarking.records import dumps
from db import migrate
from db.arrow_rows import arrow_table
from db.rows import AXES, run_rows
from db.warehouse import OWN, SHARED, WRITER, Warehouse


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """Path of an empty warehouse to copy: making one takes longer than most tests."""
    path = tmp_path_factory.mktemp("empty") / "empty.duckdb"
    Warehouse.open(path).close()
    return path


@pytest.fixture
def database(tmp_path, empty_database):
    """Path of an empty warehouse."""
    return Path(shutil.copy(empty_database, tmp_path / "benchmark_db.duckdb"))


@pytest.fixture
def warehouse(tmp_path_factory, empty_database):
    with Warehouse.open(shutil.copy(empty_database, tmp_path_factory.mktemp("warehouse") / "a.duckdb")) as opened:
        yield opened


@pytest.fixture
def spool_run(tmp_path, make_run):
    """A function that writes a run file into the folder "runs" and gives (path, run)."""

    def write(name="run", **fields):
        folder = tmp_path / "runs"
        folder.mkdir(exist_ok=True)
        run = make_run(**fields)
        path = folder / f"{name}.json"
        path.write_text(dumps(run), encoding="utf-8")
        return path, run

    return write


@pytest.fixture
def row_counts():
    """A function that counts the rows of the tables a run goes to."""

    def count(warehouse):
        tables = ("hardware_info", "benchmark_runs", "benchmark_results", "raw_benchmark_data", "series")
        return {table: warehouse.query(f"SELECT count(*) AS n FROM {table}").dicts()[0]["n"] for table in tables}

    return count


@pytest.fixture
def holding():
    """A context manager: another process has the database open for writing, for at most some seconds."""
    code = (
        "import sys, threading; from db.warehouse import Warehouse\n"
        "done = threading.Event()\n"
        "threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()\n"
        "with Warehouse.open(sys.argv[1]): print('open', flush=True); done.wait(float(sys.argv[2]))\n"
    )

    @contextmanager
    def hold(path, seconds=600):
        command = [sys.executable, "-c", code, str(path), str(seconds)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout.readline() == "open\n"
                yield process
            finally:
                process.stdin.close()

    return hold


@pytest.fixture
def file_of_version():
    """A function that makes a database as the program of a version left it: its own tables, and the rows it wrote."""
    import duckdb

    def make(version, path, *runs):
        with duckdb.connect(str(path), config=WRITER) as connection:
            for step in migrate.migrations()[:version]:
                migrate._apply(connection, step)
            for run in runs:
                store_as_then(connection, run)
        return path

    return make


def store_as_then(connection, run):
    """Write what of a run's rows the tables have columns for."""
    described = {table: connection.execute(f"DESCRIBE {table}").fetchall() for table in (*SHARED, *OWN)}
    types = {table: {row[0]: row[1] for row in rows} for table, rows in described.items()}
    metrics = {name for name, kind in types["benchmark_results"].items() if kind == "DOUBLE" and name not in AXES}
    stored_at = datetime(2026, 1, 3)
    rows = run_rows(run, metric_columns=metrics, source=None, source_sha256=None, ingested_at=stored_at)
    for table, kinds in types.items():
        known = [{name: value for name, value in row.items() if name in kinds} for row in rows[table]]
        connection.register("incoming", arrow_table(known, kinds))
        again = "ON CONFLICT DO NOTHING" if table in SHARED else ""
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming {again}")
