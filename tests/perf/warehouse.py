"""Prints how the warehouse fares at size: what ingest takes, what a sample costs, how long four questions take.

    python tests/perf/warehouse.py [--results 10000,100000,1000000] [--ingest-runs 1000] [--peers-results 10000]
        [--folder DIR]

Ingest       run files of 50 points x 200 samples, loaded as `setup_benchmark_db --ingest` does; bytes a sample of the
             column of samples, of its table, of the file, and of the file after `--compact`
Questions    on warehouses of a year's weekly runs, each question's answer of the same size in all of them; the median
             and the slowest of 9, in one process that has asked once before, all rows fetched. The growth is the last
             warehouse's median over the first one's
Peers        the contents of one such warehouse, in it, in MLflow's tracking store on SQLite (a run a result, the way
             its search needs it) and in a folder of run files: the newest results of one model on all hardware, a year
             of one series, and what regressed since, for which the others have a rule of thumb, asked in turns; MLflow
             has to be installed, else it is left out with a word

--folder keeps the warehouses, and finds them there the next time: filling the largest takes most of the time.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import warehouse_data
from warehouse_peers import PLACE, Questions, Wanted, folder_peer, mlflow_peer

from benchmarking.records import Run, dumps
from db.analysis.comparison import compare
from db.analysis.metrics import DEFAULT_METRIC, METRICS
from db.analysis.selection import Selection
from db.run_records import stored_runs
from db.spool import ingest_files
from db.warehouse import Warehouse

ROUNDS = 9
PEER_ROUNDS = 5
SINCE = "2025-12-01"
Question = Callable[[Warehouse], int]


def main() -> None:
    """Print the figures."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        if arguments.ingest_runs:
            ingest(Path(scratch), arguments.ingest_runs)
        scale(arguments.folder or Path(scratch), arguments.results)
        if arguments.peers_results:
            peers(arguments.folder or Path(scratch), Path(scratch), arguments.peers_results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="10000,100000,1000000", type=_sizes)
    parser.add_argument("--ingest-runs", default=1000, type=int)
    parser.add_argument("--peers-results", default=10_000, type=int)
    parser.add_argument("--folder", type=Path)
    return parser.parse_args()


def _sizes(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def ingest(folder: Path, count: int) -> None:
    """What loading so many run files takes, and what a sample costs on disk."""
    files = folder / "runs"
    files.mkdir()
    samples = 0
    for index, run in enumerate(busy_runs(count)):
        (files / f"{index:05}.json").write_text(dumps(run), encoding="utf-8")
        samples += sum(len(one.values) for result in run.results for one in result.samples)
    path = folder / "ingest.duckdb"
    with Warehouse.open(path) as warehouse:
        start = time.perf_counter()
        done = ingest_files(warehouse, sorted(files.iterdir()))
        took_s = time.perf_counter() - start
        warehouse.query("CHECKPOINT")
        column, table = (stored_bytes(warehouse, column) / samples for column in ("samples", None))
    loaded = path.stat().st_size
    Warehouse.compact(path)
    text = sum(file.stat().st_size for file in files.iterdir())
    print(f"ingest of {len(done.loaded)} runs, {samples:,} samples: {took_s:.1f} s, {samples / took_s:,.0f} samples/s")
    print(f"bytes a sample: column {column:.2f}, its table {table:.2f}, file {loaded / samples:.2f}, ", end="")
    print(f"compact {path.stat().st_size / samples:.2f}, run files {text / samples:.2f}", flush=True)
    shutil.rmtree(files)
    path.unlink()


def busy_runs(count: int) -> Sequence[Run]:
    """Runs of 50 points x 4 launches x 50 samples, of 40 cells week after week."""
    rng = random.Random(1)
    shapes = [warehouse_data.result_shapes(rng, 50) for _ in range(4)]
    starts = (warehouse_data.FIRST + timedelta(days=7 * (i // 40), minutes=5 * (i % 40)) for i in range(count))
    return [warehouse_data.run_of(index % 40, start, shapes[index % 4], rng) for index, start in enumerate(starts)]


def stored_bytes(warehouse: Warehouse, column: str | None) -> int:
    """Bytes of the raw samples' table, or one column of it, as its segments say."""
    which = "TRUE" if column is None else f"column_name = '{column}'"
    sql = f"""
        SELECT count(DISTINCT block_id) + coalesce(sum(len(additional_block_ids)), 0) AS blocks
        FROM pragma_storage_info('raw_benchmark_data') WHERE persistent AND {which}
    """
    (row,) = warehouse.query(sql).dicts()
    (size,) = warehouse.query("SELECT block_size FROM pragma_database_size()").dicts()
    return int(row["blocks"]) * int(size["block_size"])


def scale(folder: Path, sizes: Sequence[int]) -> None:
    """The questions at each size, and how they grow."""
    took: dict[str, list[float]] = {}
    for size in sizes:
        with Warehouse.open(filled(folder, size), read_only=True) as warehouse:
            for name, question in questions(warehouse).items():
                middle, worst, rows = asked(question, warehouse)
                took.setdefault(name, []).append(middle)
                figures = f"{middle:8.1f} ms  (slowest {worst:.1f})  {rows} rows"
                print(f"{size:>9,} results  {name:<34} {figures}", flush=True)
    for name, values in took.items():
        print(f"{name:<34} x {sizes[-1] / sizes[0]:g} results: x {values[-1] / values[0]:.2f} time")


def filled(folder: Path, size: int) -> Path:
    """A warehouse of so many results; made where it is not there."""
    path = folder / f"warehouse_{size}.duckdb"
    if not path.exists():
        start = time.perf_counter()
        warehouse_data.fill(path, size)
        print(f"filled {path.name} in {time.perf_counter() - start:.0f} s, {path.stat().st_size / 1e6:.0f} MB")
    return path


def questions(warehouse: Warehouse) -> dict[str, Question]:
    """Name -> what asks it and gives the number of rows of the answer."""
    newest = """
        SELECT run_id FROM benchmark_runs WHERE model_id = 'model-0' AND runtime = 'eager' AND hardware_id = (
            SELECT min(hardware_id) FROM benchmark_runs WHERE model_id = 'model-0'
        ) ORDER BY started_at DESC LIMIT 2
    """
    after, before = (row["run_id"] for row in warehouse.query(newest).dicts())
    series = "SELECT series_id FROM series WHERE model_id = 'model-0' ORDER BY series_id LIMIT 1"
    (row,) = warehouse.query(series).dicts()
    ask = _asking
    return {
        "one model on all hardware": ask("SELECT * FROM hardware_comparison WHERE model_id = ?", ["model-0"]),
        "two runs compared": lambda opened: _compared(opened, before, after),
        "a year of one series": ask(
            "SELECT * FROM history WHERE series_id = ? AND history_time >= ?", [row["series_id"], SINCE]
        ),
        "what regressed in the past year": ask("SELECT * FROM regressions WHERE history_time >= ?", [SINCE]),
    }


def _asking(sql: str, values: Sequence[Any]) -> Question:
    return lambda warehouse: len(warehouse.query(sql, list(values)).dicts())


def _compared(warehouse: Warehouse, before: str, after: str) -> int:
    sides = (Selection.parse(run_id) for run_id in (before, after))
    return len(compare(warehouse, *sides, METRICS[DEFAULT_METRIC]).findings)


def asked(question: Question, warehouse: Warehouse) -> tuple[float, float, int]:
    """Median and slowest milliseconds of the rounds, and the rows; once before, unmeasured."""
    rows = question(warehouse)
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        question(warehouse)
        took.append(1000 * (time.perf_counter() - start))
    return median(took), max(took), rows


def peers(folder: Path, scratch: Path, size: int) -> None:
    """Three questions to the warehouse, MLflow's SQLite and a folder of JSON, in turns."""
    with Warehouse.open(filled(folder, size), read_only=True) as warehouse:
        ids = [
            row["run_id"] for row in warehouse.query("SELECT run_id FROM benchmark_runs ORDER BY started_at").dicts()
        ]
        series = "SELECT * FROM series WHERE model_id = 'model-0' ORDER BY series_id LIMIT 1"
        (row,) = warehouse.query(series).dicts()
        wanted = Wanted(model_id="model-0", series={name: str(row[name]) for name in PLACE}, since=SINCE)
        asking: dict[str, Questions] = {
            "warehouse": {
                "newest": lambda: _count(warehouse, "hardware_comparison WHERE model_id = ?", wanted.model_id),
                "series": lambda: _count(warehouse, "history WHERE series_id = ?", row["series_id"]),
                "regressed": lambda: _count(warehouse, "regressions WHERE history_time >= ?", SINCE),
            }
        }
        for name, make in (("mlflow on sqlite", mlflow_peer), ("folder of run files", folder_peer)):
            try:
                asking[name] = make(scratch, (stored.run for stored in stored_runs(warehouse, ids)), wanted)
            except ImportError as error:
                print(f"{name} is left out: {error}")
        for question in ("newest", "series", "regressed"):
            _compare_peers({name: each[question] for name, each in asking.items()}, f"{size:,} results, {question}")


def _count(warehouse: Warehouse, what: str, value: str) -> int:
    return len(warehouse.query(f"SELECT * FROM {what}", [value]).dicts())


def _compare_peers(asking: Mapping[str, Callable[[], int]], title: str) -> None:
    took: dict[str, list[float]] = {name: [] for name in asking}
    rows = {name: ask() for name, ask in asking.items()}
    for _ in range(PEER_ROUNDS):
        for name, ask in asking.items():
            start = time.perf_counter()
            ask()
            took[name].append(1000 * (time.perf_counter() - start))
    own = median(took["warehouse"])
    for name, values in took.items():
        figures = f"{median(values):9.1f} ms  x {median(values) / own:.1f}  {rows[name]} rows"
        print(f"{title}: {name:<20} {figures}", flush=True)


if __name__ == "__main__":
    main()
