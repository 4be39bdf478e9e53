"""Warehouses to test with: in memory, or a file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from benchmarking.core.records import Provenance, Run, Samples, dumps
from db.warehouse import Warehouse
from tests.helpers import databases
from tests.helpers.records import RunMaker, with_own_median


@pytest.fixture
def database(tmp_path: Path, empty_database: Path) -> Path:
    """Path of an empty warehouse."""
    return Path(shutil.copy2(empty_database, tmp_path / "benchmark_db.duckdb"))


@pytest.fixture(scope="session")
def empty_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalog of an empty lake in a file, to copy; all of it is in the catalog."""
    pytest.importorskip("duckdb_extension_ducklake")
    path = tmp_path_factory.mktemp("lake") / "empty.ducklake"
    Warehouse.open(f"ducklake:{path}").close()
    return path


@pytest.fixture
def place(empty_lake: Path, tmp_path: Path) -> str:
    """An empty lake in a file."""
    (tmp_path / "own.ducklake.files").mkdir()
    return f"ducklake:{shutil.copy(empty_lake, tmp_path / 'own.ducklake')}"


@pytest.fixture(params=["file", "lake"])
def file_or_lake(request: pytest.FixtureRequest) -> str:
    """The name of an empty warehouse of either kind."""
    return str(request.getfixturevalue("database" if request.param == "file" else "place"))


@pytest.fixture
def warehouse(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Warehouse]:
    with Warehouse.open(shutil.copy2(empty_database, tmp_path_factory.mktemp("warehouse") / "a.duckdb")) as opened:
        yield opened


@pytest.fixture
def spool_run(tmp_path: Path, make_run: RunMaker) -> Callable[..., tuple[Path, Run]]:
    """A function that writes a run file into the folder "runs" and gives (path, run)."""

    def write(name: str = "run", **fields: Any) -> tuple[Path, Run]:
        folder = tmp_path / "runs"
        folder.mkdir(exist_ok=True)
        run = make_run(**fields)
        path = folder / f"{name}.json"
        path.write_text(dumps(run), encoding="utf-8")
        return path, run

    return write


@pytest.fixture
def row_counts() -> Callable[[Warehouse], dict[str, int]]:
    """A function that counts the rows of the tables a run goes to."""

    def count(warehouse: Warehouse) -> dict[str, int]:
        tables = ("hardware_info", "benchmark_runs", "benchmark_results", "raw_benchmark_data", "series")
        return {table: warehouse.query(f"SELECT count(*) AS n FROM {table}").dicts()[0]["n"] for table in tables}

    return count


@pytest.fixture
def holding() -> Callable[..., AbstractContextManager[ForkServerProcess]]:
    """A context manager: another process has the database open for writing, for at most some seconds."""
    return databases.holding


@pytest.fixture
def file_of_version() -> Callable[..., Path]:
    """A function that makes a database as the program of a version left it."""
    return databases.file_of_version


@pytest.fixture
def write_history() -> Callable[..., list[str]]:
    """A function that stores a series of the given medians, a run a day."""
    return databases.write_history


def hostile(run: Run) -> Provenance:
    """The run's provenance with the hostile label as description and tag."""
    return replace(run.provenance, description=HOSTILE, tags={"suite": "test", "label": HOSTILE})


HOSTILE = "it's|\"; DROP TABLE series; -- <b>\x1b[31m\n*"
"""A label that every format must give back as it is, or show as it is."""
_asked: dict[str, Path] = {}


@pytest.fixture
def hostile_text() -> str:
    """The description of a run in `asked_database`."""
    return HOSTILE


@pytest.fixture
def asked_database(
    tmp_path_factory: pytest.TempPathFactory, empty_database: Path, make_run: RunMaker, generated: RunMaker
) -> Path:
    """Path of a warehouse to ask, never to write to: bert in January with doubts and a failure, gpt2 on two runtimes in
    February, a vision model in March."""
    if "path" not in _asked:
        path = Path(shutil.copy2(empty_database, tmp_path_factory.mktemp("asked") / "asked.duckdb"))
        with Warehouse.open(path) as opened:
            january = {"started_at": "2026-01-02T03:04:05Z", "iterations": 4}
            opened.ingest(make_run(with_failed=True, with_doubtful=True, provenance=hostile(make_run()), **january))
            for runtime in ("eager", "onnxruntime"):
                opened.ingest(generated(runtime=runtime, started_at="2026-02-03T00:00:00Z"))
            opened.ingest(make_run(family="vision", model_id="vit", iterations=4, started_at="2026-03-04T00:00:00Z"))
        _asked["path"] = path
    return _asked["path"]


@pytest.fixture
def generated(make_run: RunMaker) -> RunMaker:
    """A function that makes a run of gpt2 at one point, 2 launches x 2 calls, with what each call's tokens took."""

    def make(**fields: Any) -> Run:
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
        return replace(run, results=(with_own_median(replace(result, samples=samples, iterations=4)),))

    return make
