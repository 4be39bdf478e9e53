"""Warehouses to test with: in memory, or a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from benchmarking.core.axes import FURTHER
from benchmarking.records import Samples, dumps
from db import heads, migrate
from db.arrow_rows import arrow_table
from db.rows import run_rows
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
    metrics = {name for name, kind in types["benchmark_results"].items() if kind == "DOUBLE" and name not in FURTHER}
    stored_at = datetime(2026, 1, 3)
    rows = run_rows(run, metric_columns=metrics, source=None, source_sha256=None, ingested_at=stored_at)
    for table, kinds in types.items():
        known = [{name: value for name, value in row.items() if name in kinds} for row in rows[table]]
        connection.register("incoming", arrow_table(known, kinds))
        again = "ON CONFLICT DO NOTHING" if table in SHARED else ""
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming {again}")
    if connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'series_heads'").fetchall():
        heads.compute(connection)


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


@pytest.fixture
def write_history(make_run):
    """A function that stores a series of the given medians, a run a day from the 1st of January 2026, by copying rows.

    Gives the ids of the results; the run of value n is "RUNTIME-n", its commit 40 digits that begin with n.
    """

    def write(warehouse, values, *, runtime="eager", start="2026-01-01", first=0, shared_sessions=False, **fields):
        run = make_run(runtime=runtime, batch_sizes=(1,), sequence_lengths=(32,), launches=1, iterations=2, **fields)
        warehouse.ingest(run)
        model = run.cell.workload.model_id
        day = datetime.fromisoformat(start)
        places = [
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
        asked = {"places": places, "template": run.run_id}
        with warehouse.transaction() as connection:
            connection.execute(HISTORY_RUNS, asked)
            connection.execute(HISTORY_RESULTS, asked)
            for table in ("benchmark_results", "benchmark_runs"):
                connection.execute(f"DELETE FROM {table} WHERE run_id = ?", [run.run_id])
        return [place["result_id"] for place in places]

    return write


def hostile(run):
    """The run's provenance, with the label beside its own."""
    return replace(run.provenance, description=HOSTILE, tags={"suite": "test", "label": HOSTILE})


HOSTILE = "it's|\"; DROP TABLE series; -- <b>\x1b[31m\n*"
"""A label that every format must give back as it is, or show as it is."""
_asked: dict[str, Path] = {}


@pytest.fixture
def hostile_text():
    """The description of a run in `asked_database`."""
    return HOSTILE


@pytest.fixture
def asked_database(tmp_path_factory, empty_database, make_run, generated):
    """Path of a warehouse to ask, never to write to: bert in January with doubts and a failure, gpt2 on two runtimes in
    February, a vision model in March."""
    if "path" not in _asked:
        path = Path(shutil.copy(empty_database, tmp_path_factory.mktemp("asked") / "asked.duckdb"))
        with Warehouse.open(path) as opened:
            january = {"started_at": "2026-01-02T03:04:05Z", "iterations": 4}
            opened.ingest(make_run(with_failed=True, with_doubtful=True, provenance=hostile(make_run()), **january))
            for runtime in ("eager", "onnxruntime"):
                opened.ingest(generated(runtime=runtime, started_at="2026-02-03T00:00:00Z"))
            opened.ingest(make_run(family="vision", model_id="vit", iterations=4, started_at="2026-03-04T00:00:00Z"))
        _asked["path"] = path
    return _asked["path"]


@pytest.fixture
def generated(make_run):
    """A function that makes a run of gpt2 at one point, 2 launches x 2 calls, with what each call's tokens took."""

    def make(**fields):
        run = make_run(
            model_id="gpt2", family="decoder-only", batch_sizes=(2,), sequence_lengths=(6,), launches=2, **fields
        )
        (result,) = run.results
        samples = tuple(
            Samples(launch=launch, phase="measure", metric=metric, unit="ms", started_at=run.started_at, values=values)
            for launch in (0, 1)
            for metric, values in (
                ("latency_wall", (10.0, 20.0)),
                ("time_to_first_token", (4.0, 5.0)),
                ("time_per_output_token", (2.0, 5.0)),
            )
        )
        return replace(run, results=(replace(result, samples=samples, iterations=4),))

    return make
