"""Warehouses to test with: in memory, or a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarking.records import dumps
from db.warehouse import Warehouse


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
