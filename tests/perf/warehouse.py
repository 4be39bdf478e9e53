"""Prints the cost of a large warehouse: ingest time, bytes per sample, and the time of four queries.

    python tests/perf/warehouse.py [--results 10000,100000,1000000] [--ingest-runs 1000]
        [--peers-results 10000,1000000] [--questions newest,compared,series,regressed] [--folder DIR]

Ingest       run files of 50 points x 200 samples, loaded as `setup_benchmark_db --ingest` does; bytes a sample of the
             column of samples, of its table, of the file, and of the file after `--compact`
Questions    on warehouses of a year's weekly runs, each question's answer of the same size in all of them; the median
             and the slowest of 9, in one process that has asked once before, all rows fetched. The growth is the last
             warehouse's median over the first one's
Peers        the contents of such warehouses, in them, in MLflow's tracking store on SQLite (a run a result, the way its
             search needs it) and in a folder of run files (not of the largest: hours of writing), asked the same in
             turns; MLflow has to be installed, else it is left out with a word

MLflow takes ten minutes for what regressed among a million results: --questions leaves out some.
--folder keeps the warehouses, and finds them there the next time: filling the largest takes most of the time.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median

import warehouse_data
from mlflow_peer import mlflow_peer
from warehouse_peers import CELL, POINT, Questions, Wanted, folder_peer

from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.core.records import Run, dumps
from db.analysis.compare.comparison import compare
from db.analysis.selection import Selection
from db.ingestion import load_files
from db.run_records import stored_runs
from db.warehouse import Warehouse

ROUNDS = 9
PEER_ROUNDS = 5
ONCE_IS_ENOUGH_MS = 60_000
MOST_IN_FILES = 100_000
SINCE = "2025-12-01"
TITLES = {
    "newest": "one model on all hardware",
    "compared": "two runs compared",
    "series": "a year of one series",
    "regressed": "what regressed in the past year",
}


def main() -> None:
    """Print the figures."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        if arguments.ingest_runs:
            ingest(Path(scratch), arguments.ingest_runs)
        scale(arguments.folder or Path(scratch), arguments.results)
        for size in arguments.peers_results:
            peers(arguments.folder or Path(scratch), Path(tempfile.mkdtemp(dir=scratch)), size, arguments.questions)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="10000,100000,1000000", type=_sizes)
    parser.add_argument("--ingest-runs", default=1000, type=int)
    parser.add_argument("--peers-results", default="10000,1000000", type=_sizes)
    parser.add_argument("--questions", default=list(TITLES), type=lambda text: text.split(","))
    parser.add_argument("--folder", type=Path)
    return parser.parse_args()


def _sizes(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


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
        done = load_files(warehouse, sorted(files.iterdir()))
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
            for name, question in questions(warehouse, wanted_of(warehouse)).items():
                middle, worst, rows = asked(question)
                took.setdefault(name, []).append(middle)
                figures = f"{middle:8.1f} ms  (slowest {worst:.1f})  {rows} rows"
                print(f"{size:>9,} results  {TITLES[name]:<34} {figures}", flush=True)
    for name, values in took.items():
        print(f"{TITLES[name]:<34} x {sizes[-1] / sizes[0]:g} results: x {values[-1] / values[0]:.2f} time")


def filled(folder: Path, size: int) -> Path:
    """A warehouse of so many results; made where it is not there."""
    path = folder / f"warehouse_{size}.duckdb"
    if not path.exists():
        start = time.perf_counter()
        warehouse_data.fill(path, size)
        print(f"filled {path.name} in {time.perf_counter() - start:.0f} s, {path.stat().st_size / 1e6:.0f} MB")
    return path


def wanted_of(warehouse: Warehouse) -> Wanted:
    """The newest two runs of a cell, and its first point."""
    sql = """
        SELECT run_id FROM benchmark_runs WHERE model_id = 'model-0' AND runtime = 'eager' AND hardware_id = (
            SELECT min(hardware_id) FROM benchmark_runs WHERE model_id = 'model-0'
        ) ORDER BY started_at DESC LIMIT 2
    """
    after, before = (row["run_id"] for row in warehouse.query(sql).dicts())
    sql = f"SELECT {', '.join(CELL + POINT)} FROM all_results WHERE run_id = ? ORDER BY batch_size, sequence_length"
    place = {name: str(value) for name, value in warehouse.query(sql, [after]).dicts()[0].items()}
    cell, point = ({name: place[name] for name in names} for names in (CELL, POINT))
    return Wanted(cell=cell, point=point, since=SINCE, before=before, after=after)


def questions(warehouse: Warehouse, wanted: Wanted) -> Questions:
    """The warehouse's own."""
    place = {**wanted.cell, **wanted.point}
    named = " AND ".join(f"{name}::VARCHAR = ?" for name in place)
    (row,) = warehouse.query(f"SELECT series_id FROM series WHERE {named}", list(place.values())).dicts()
    series = [row["series_id"], wanted.since]

    def count(what: str, *values: str) -> Callable[[], int]:
        return lambda: len(warehouse.query(f"SELECT * FROM {what}", list(values)).dicts())

    def compared() -> int:
        sides = (Selection.parse(run_id) for run_id in (wanted.before, wanted.after))
        return len(compare(warehouse, *sides, JUDGED[DEFAULT_METRIC]).findings)

    return {
        "newest": count("hardware_comparison WHERE model_id = ?", wanted.cell["model_id"]),
        "series": count("history WHERE series_id = ? AND history_time >= ?", *series),
        "regressed": count("regressions WHERE history_time >= ?", wanted.since),
        "compared": compared,
    }


def asked(question: Callable[[], int]) -> tuple[float, float, int]:
    """Median and slowest milliseconds of the rounds, and the rows; once before, unmeasured."""
    rows = question()
    took = [_timed(question)[0] for _ in range(ROUNDS)]
    return median(took), max(took), rows


def peers(folder: Path, scratch: Path, size: int, names: Sequence[str]) -> None:
    """The questions of these names to the warehouse, MLflow's SQLite and a folder of JSON, in turns."""
    with Warehouse.open(filled(folder, size), read_only=True) as warehouse:
        wanted = wanted_of(warehouse)
        makers: dict[str, Callable[[], Questions]] = {
            "warehouse": lambda: questions(warehouse, wanted),
            "mlflow on sqlite": lambda: mlflow_peer(scratch, warehouse, wanted),
        }
        if size <= MOST_IN_FILES:
            makers["folder of run files"] = lambda: folder_peer(scratch, runs_of(warehouse), wanted)
        asking: dict[str, Questions] = {}
        for name, make in makers.items():
            try:
                asking[name] = make()
            except ImportError as error:
                print(f"{name} is left out: {error}")
        for question in names:
            title = f"{size:>9,} results  {TITLES[question]:<34}"
            compare_peers({name: each[question] for name, each in asking.items()}, title)


def runs_of(warehouse: Warehouse) -> Iterator[Run]:
    """All of them, as they were run."""
    ids = [row["run_id"] for row in warehouse.query("SELECT run_id FROM benchmark_runs ORDER BY started_at").dicts()]
    return (stored.run for stored in stored_runs(warehouse, ids))


def compare_peers(asking: Mapping[str, Callable[[], int]], title: str) -> None:
    """The median of the rounds; of a peer that takes a minute, its only time."""
    rows: dict[str, int] = {}
    took: dict[str, list[float]] = {}
    for name, ask in asking.items():
        once, rows[name] = _timed(ask)
        took[name] = [once] if once > ONCE_IS_ENOUGH_MS else []
    for _ in range(PEER_ROUNDS):
        for name in (name for name in asking if max(took[name], default=0) <= ONCE_IS_ENOUGH_MS):
            took[name].append(_timed(asking[name])[0])
    own = median(took["warehouse"])
    for name, values in took.items():
        figures = f"{median(values):9.1f} ms  x {median(values) / own:.1f}  {rows[name]} rows"
        print(f"{title} {name:<20} {figures}{'  (asked once)' if len(values) == 1 else ''}", flush=True)


def _timed(ask: Callable[[], int]) -> tuple[float, int]:
    start = time.perf_counter()
    rows = ask()
    return 1000 * (time.perf_counter() - start), rows


if __name__ == "__main__":
    main()
