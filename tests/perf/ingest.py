"""Prints what storing costs: a run of 10 000 samples, 200 runs one after the other, and bytes per raw sample.

Every figure is of a real file on disk, made in a temporary folder. The samples are what a clock gives: whole
nanoseconds written as milliseconds, log-normal around the median with a slow drift and outliers; constant ones would
compress to nothing. Run it with `python tests/perf/ingest.py`.
"""

from __future__ import annotations

import dataclasses
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from benchmarking.core.provenance import uuid7
from benchmarking.core.records import (
    Cell,
    Device,
    Hardware,
    LaunchLoad,
    Point,
    Provenance,
    Result,
    Run,
    Samples,
    Workload,
    canonical_hash,
    dumps,
)
from db.warehouse import Warehouse

LAUNCHES = 5
RUNS = 200
SAMPLES_ON_DISK = 4_000_000
NOW = "2026-01-02T03:04:05Z"


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        show("ingest of one run with 10 000 samples", one_run(Path(folder)), "ms", "at most 100")
        show(f"{RUNS} runs, a connection each", many_runs(Path(folder), a_connection_each), "s", "at most 10")
        show(f"{RUNS} runs, one connection", many_runs(Path(folder), one_connection), "s", "at most 10")
        used, file, compact = bytes_per_sample(Path(folder))
        show(f"bytes per raw sample, of {SAMPLES_ON_DISK:,}", used, "B", "at most 4")
        show("the same, with the file's free blocks", file, "B", "none")
        show("the same, after setup_benchmark_db --compact", compact, "B", "at most 4")


def show(what: str, value: float, unit: str, target: str) -> None:
    print(f"{what:<45} {value:8.2f} {unit:<2}  (target: {target})", flush=True)


def one_run(folder: Path, rounds: int = 11) -> float:
    """Median milliseconds of `Warehouse.ingest`, into a file that holds runs already."""
    took_ms = []
    with Warehouse.open(folder / "one.duckdb") as warehouse:
        for run in runs(rounds, samples=10_000):
            start_ns = time.perf_counter_ns()
            warehouse.ingest(run)
            took_ms.append((time.perf_counter_ns() - start_ns) / 1e6)
    return median(took_ms)


def many_runs(folder: Path, store: Callable[[Path, list[Path]], None]) -> float:
    """Seconds to load run files, each of 4 points and 360 samples, into a file that is there already."""
    database = folder / f"{store.__name__}.duckdb"
    Warehouse.open(database).close()
    paths = [folder / f"{store.__name__}-{i}.json" for i in range(RUNS)]
    for path, run in zip(paths, runs(RUNS, samples=360, points=4), strict=True):
        path.write_text(dumps(run), encoding="utf-8")
    start_ns = time.perf_counter_ns()
    store(database, paths)
    return (time.perf_counter_ns() - start_ns) / 1e9


def a_connection_each(database: Path, paths: list[Path]) -> None:
    """What `run_hardware_benchmark --save` does."""
    for path in paths:
        with Warehouse.open(database) as warehouse:
            warehouse.ingest_file(path)


def one_connection(database: Path, paths: list[Path]) -> None:
    """What `setup_benchmark_db --ingest` does."""
    with Warehouse.open(database) as warehouse:
        for path in paths:
            warehouse.ingest_file(path)


def bytes_per_sample(folder: Path) -> tuple[float, float, float]:
    """Growth in blocks that are in use, of the file, and of the compacted file, over its samples; all else that a run
    stores included.

    A checkpoint writes what it changes to new blocks before it frees the old ones: the file also holds free blocks,
    which the next runs fill.
    """
    path = folder / "big.duckdb"
    with Warehouse.open(path) as warehouse:
        empty_bytes, empty_file_bytes = used_bytes(warehouse), path.stat().st_size
        count = 40
        for run in runs(count, samples=SAMPLES_ON_DISK // count, points=4):
            warehouse.ingest(run)
        warehouse.query("CHECKPOINT")
        grown_bytes = used_bytes(warehouse) - empty_bytes
    grown_file_bytes = path.stat().st_size - empty_file_bytes
    Warehouse.compact(path)
    compact_bytes = path.stat().st_size - empty_file_bytes
    return grown_bytes / SAMPLES_ON_DISK, grown_file_bytes / SAMPLES_ON_DISK, compact_bytes / SAMPLES_ON_DISK


def used_bytes(warehouse: Warehouse) -> int:
    (size,) = warehouse.query("SELECT used_blocks * block_size AS bytes FROM pragma_database_size()").dicts()
    return int(size["bytes"])


def runs(count: int, samples: int, points: int = 1) -> Iterator[Run]:
    """Runs with so many samples each, spread over points and launches."""
    rng = random.Random(0)
    base = made_up_run()
    for _ in range(count):
        results = tuple(result(rng, 2**i, samples // points // LAUNCHES) for i in range(points))
        yield dataclasses.replace(base, run_id=uuid7(), session_id=uuid7(), results=results)


def result(rng: random.Random, batch_size: int, iterations: int) -> Result:
    launches = tuple(latencies(rng, launch, 12.5 * batch_size, iterations) for launch in range(LAUNCHES))
    values = [value for one in launches for value in one.values]
    names = ("mean", "std", "min", "p25", "p75", "p90", "p95", "p99", "max", "ci_high")
    middle_ms = median(values)
    metrics = {f"latency_{name}_ms": middle_ms * (1 + rng.random() / 10) for name in names}
    return Result(
        result_id=uuid7(),
        point=Point(batch_size=batch_size, sequence_length=128),
        status="ok",
        validity="valid",
        launches=LAUNCHES,
        iterations=LAUNCHES * iterations,
        stop_reason="target",
        ci_scope="between",
        metrics={**metrics, "latency_median_ms": middle_ms, "latency_ci_low_ms": middle_ms},
        missing={f"energy_{domain}_j_per_call": "not_supported" for domain in ("gpu", "cpu_pkg", "dram", "soc")},
        samples=launches,
    )


def latencies(rng: random.Random, launch: int, around_ms: float, iterations: int) -> Samples:
    """One launch's latencies: its own level, 2 % noise, a slow drift, and an outlier in a hundred."""
    level_ns = around_ms * 1e6 * rng.lognormvariate(0, 0.01)
    values = []
    for i in range(iterations):
        outlier = 1 + rng.expovariate(4) if rng.random() < 0.01 else 1.0
        drift = 1 + 0.01 * i / iterations
        values.append(round(level_ns * drift * rng.lognormvariate(0, 0.02) * outlier) / 1e6)
    return Samples(
        launch=launch, phase="measure", metric="latency_wall", unit="ms", started_at=NOW, values=tuple(values)
    )


def made_up_run() -> Run:
    """A run without results, of a realistic size."""
    device = Device(type="cpu", selector="cpu", found=True, name="CPU", memory_bytes=16_000_000_000)
    config = {"model_type": "bert", **{f"setting_{i}": i for i in range(30)}}
    workload = Workload(
        model_id="bert-base-uncased",
        family="encoder-only",
        task="feature-extraction",
        source="catalog",
        config=config,
        config_hash=canonical_hash(config),
        weights="random",
        parameter_count=109_482_240,
    )
    keys = {"cpu_model": "CPU", "cpu_cores": 8}
    stages = {"spawn": 0.1, "import": 2.0, "device_init": 0.0, "weights_read": 1.0, "to_device": 0.2}
    return Run(
        run_id=uuid7(),
        session_id=uuid7(),
        status="ok",
        started_at=NOW,
        finished_at=NOW,
        cell=Cell(workload=workload, device=device, requested_device="cpu", runtime="eager"),
        hardware=Hardware(hardware_id=canonical_hash(keys)[:16], hash_version=1, hashed_keys=keys, device=device),
        provenance=Provenance(
            tool_version="0.1.0",
            command=("run_hardware_benchmark", "--model-id", "bert-base-uncased"),
            host="host",
            versions={f"package_{i}": "1.2.3" for i in range(20)},
        ),
        settings={"profile": "standard"},
        loads=tuple(LaunchLoad(launch=launch, stages_s=stages) for launch in range(LAUNCHES)),
    )


if __name__ == "__main__":
    main()
