"""Made-up but realistic contents of a warehouse: runs as the program stores them, and a year of them.

A cell (a model on one device and runtime) is measured once a week for a year: 50 runs of 50 points, each of 4 launches
of 25 calls. A model has 4 cells, so that a question about one model, one run or one series has an answer of the same
size however large the warehouse is. The samples are whole nanoseconds, log-normal, with a level of their own for each
launch and an outlier in a hundred; statistics, doubts and evidence are what the program makes of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.core.records import (
    Cell,
    Device,
    Hardware,
    LaunchLoad,
    Measurement,
    Point,
    Provenance,
    Result,
    Run,
    Samples,
    Workload,
    canonical_hash,
)
from benchmarking.measure.aggregate import summarise
from db import ingestion, migrate
from db.analysis.history.changes import update_changes
from db.connection import FILE_FORMAT, connect
from db.warehouse import Warehouse

LAUNCHES = 4
POINTS = 50
RUNS_A_CELL = 50
CELLS_A_MODEL = 4
RESULTS_A_CELL = RUNS_A_CELL * POINTS
FIRST = datetime(2025, 11, 24, 9, tzinfo=UTC)
"""Start of the first week's runs; later ones follow week by week."""
STATES = {"load_average_1m": 0.4, "cpu_frequency_mhz": 3400.0, "steal_fraction": 0.0, "pressure_some_avg10": 0.1}

FIRST_WEEK = """
CREATE TEMP TABLE first_runs AS SELECT * FROM benchmark_runs;
CREATE TEMP TABLE first_results AS SELECT * FROM benchmark_results;
CREATE TEMP TABLE first_samples AS
SELECT raw.*, r.run_id FROM raw_benchmark_data raw JOIN benchmark_results r USING (result_id);
"""
COPY_RUNS = """
INSERT INTO benchmark_runs BY NAME
SELECT * REPLACE (
    copied(run_id, $week) AS run_id, copied(session_id, $week) AS session_id,
    started_at + to_days(7 * $week) AS started_at, finished_at + to_days(7 * $week) AS finished_at,
    git_commit_time + to_days(7 * $week) AS git_commit_time, md5(git_commit || $week) AS git_commit
) FROM first_runs
"""
COPY_RESULTS = """
INSERT INTO benchmark_results BY NAME
SELECT * REPLACE (
    copied(result_id, $week) AS result_id, copied(run_id, $week) AS run_id,
    round(latency_median_ms * drawn(run_id, $week), 6) AS latency_median_ms,
    round(latency_mean_ms * drawn(run_id, $week), 6) AS latency_mean_ms,
    round(latency_p90_ms * drawn(run_id, $week), 6) AS latency_p90_ms,
    round(latency_ci_low_ms * drawn(run_id, $week), 6) AS latency_ci_low_ms,
    round(latency_ci_high_ms * drawn(run_id, $week), 6) AS latency_ci_high_ms
) FROM first_results
"""
COPY_SAMPLES = """
INSERT INTO raw_benchmark_data BY NAME
SELECT * EXCLUDE (run_id) REPLACE (list_avg(samples) AS mean, list_median(samples) AS median)
FROM (
    SELECT * REPLACE (
        copied(result_id, $week) AS result_id, started_at + to_days(7 * $week) AS started_at,
        list_transform(samples, lambda x: round(x * drawn(run_id, $week), 6)) AS samples
    ) FROM first_samples
)
"""
MACROS = """
CREATE TEMP MACRO copied(id, week) AS printf('%08x', ('0x' || id[1:8])::UBIGINT + week * 9228)
    || id[9:24] || md5(id || week)[1:12];
CREATE TEMP MACRO drawn(id, week) AS (0.98 + (hash(id, week) % 40000) / 1e6)
    * CASE WHEN id = '{slower}' AND week >= {slower_from} THEN 1.12 ELSE 1 END;
"""
"""An id of another week: a week is 9 228 times 2^16 ms, the step of a UUIDv7's first 8 digits. And a run's own level,
up to 2 % off, the same for all of it; one cell is 12 % slower from some week on."""
SLOWER_FROM = 30


def fill(path: Path, results: int) -> None:
    """A warehouse of so many results in a file that is not there yet: the first week by way of ingest, the others as
    copies of it in SQL, week by week as they would have come. Its change points are searched."""
    with Warehouse.open(path) as warehouse:
        for run in weekly_runs(results // RESULTS_A_CELL):
            warehouse.ingest(run)
        (first,) = warehouse.query("SELECT min(run_id) AS run_id FROM benchmark_runs").dicts()
    with connect(str(path), FILE_FORMAT, read_only=False, lock_timeout_s=0) as connection:
        connection.execute(MACROS.format(slower=first["run_id"], slower_from=SLOWER_FROM) + FIRST_WEEK)
        with migrate.transaction(connection):
            for week in range(1, RUNS_A_CELL):
                for statement in (COPY_RUNS, COPY_RESULTS, COPY_SAMPLES):
                    connection.execute(statement, {"week": week})
            ingestion.compute_latest(connection)
        connection.execute("CHECKPOINT")
    with Warehouse.open(path) as warehouse:
        update_changes(warehouse, JUDGED[DEFAULT_METRIC])


def weekly_runs(cells: int) -> Iterator[Run]:
    """One run of each cell, minutes apart, 25 samples a launch."""
    rng = random.Random(0)
    shapes = [result_shapes(rng, 25) for _ in range(2)]
    for cell in range(cells):
        started = FIRST + timedelta(minutes=5 * cell)
        yield run_of(cell, started, shapes[cell % 2], rng)


def result_shapes(rng: random.Random, samples: int) -> tuple[Result, ...]:
    """The results of a run: batch sizes and sequence lengths, summarised as the program does."""
    grid = itertools.islice(
        itertools.product((1, 2, 4, 8, 16), (32, 64, 128, 192, 256, 320, 384, 448, 512, 768)), POINTS
    )
    return tuple(
        summarise("", point, [measurement(rng, point, launch, samples) for launch in range(LAUNCHES)], LOADS)
        for point in (Point(batch_size=batch, sequence_length=length) for batch, length in grid)
    )


def run_of(cell: int, started: datetime, shapes: tuple[Result, ...], rng: random.Random) -> Run:
    """A run of the cell, with the shapes at its own level as results."""
    run_id, level = id_at(started, rng), rng.lognormvariate(0, 0.3)
    results = tuple(at_level(shape, id_at(started, rng), level) for shape in shapes)
    model, place = divmod(cell, CELLS_A_MODEL)
    hardware = machine(place // 2)
    return Run(
        run_id=run_id,
        session_id=run_id,
        status="ok",
        started_at=started.isoformat(),
        finished_at=(started + timedelta(minutes=4)).isoformat(),
        cell=Cell(
            workload=workload(model),
            device=hardware.device,
            requested_device="cpu",
            runtime=("eager", "onnxruntime")[place % 2],
            runtime_mode={"attention": "sdpa"},
        ),
        hardware=hardware,
        provenance=Provenance(
            tool_version="0.1.0",
            command=("run_hardware_benchmark", "--model-id", workload(model).model_id, "--save"),
            host=f"host-{place // 2}",
            git_commit=canonical_hash(started.isoformat())[:40],
            git_branch="main",
            git_dirty=False,
            git_commit_time=started.isoformat(),
            versions={f"package_{i}": "1.2.3" for i in range(20)},
        ),
        settings={"profile": "standard", "launches": LAUNCHES},
        loads=LOADS,
        results=results,
    )


def at_level(shape: Result, result_id: str, level: float) -> Result:
    """The result, every time in it multiplied: whole nanoseconds stay whole."""
    samples = tuple(
        dataclasses.replace(one, values=tuple(round(value * level * 1e6) / 1e6 for value in one.values))
        for one in shape.samples
    )
    metrics = {name: value * level if name.startswith("latency_") else value for name, value in shape.metrics.items()}
    return dataclasses.replace(shape, result_id=result_id, samples=samples, metrics=metrics)


def measurement(rng: random.Random, point: Point, launch: int, samples: int) -> Measurement:
    """One launch: its own level, 2 % noise, an outlier in a hundred."""
    level_ns = point.batch_size * (point.sequence_length or 1) * 4e4 * rng.lognormvariate(0, 0.01)
    values = tuple(
        round(level_ns * rng.lognormvariate(0, 0.02) * (1 + rng.expovariate(4) * (rng.random() < 0.01))) / 1e6
        for _ in range(samples)
    )
    started = FIRST.isoformat()
    return Measurement(
        point=point,
        launch=launch,
        status="ok",
        started_at=started,
        finished_at=started,
        samples=(
            Samples(
                launch=launch, phase="measure", metric="latency_wall", unit="ms", started_at=started, values=values
            ),
        ),
        first_call_ms=3 * values[0],
        warmup_calls=5,
        steady=True,
        stop_reason="target",
        window=STATES,
    )


def workload(model: int) -> Workload:
    config = {"model_type": "bert", "name": f"model-{model}", **{f"setting_{i}": i for i in range(30)}}
    return Workload(
        model_id=f"model-{model}",
        family="encoder-only",
        task="feature-extraction",
        source="catalog",
        config=config,
        config_hash=canonical_hash(config),
        weights="random",
        parameter_count=100_000_000 + model,
    )


def machine(number: int) -> Hardware:
    device = Device(type="cpu", selector="cpu", found=True, name=f"CPU {number}", memory_bytes=16_000_000_000)
    keys = {"cpu_model": f"CPU {number}", "cpu_cores": 8}
    return Hardware(
        hardware_id=canonical_hash(keys)[:16],
        hash_version=1,
        hashed_keys=keys,
        device=device,
        cpu_model=f"CPU {number}",
    )


def id_at(time: datetime, rng: random.Random) -> str:
    """A UUIDv7 of that time."""
    milliseconds = int(time.timestamp() * 1000)
    digits = f"{milliseconds:012x}7{rng.getrandbits(12):03x}8{rng.getrandbits(60):015x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


LOADS = tuple(
    LaunchLoad(
        launch=launch,
        stages_s={"spawn": 0.1, "import": 2.0, "device_init": 0.0, "weights_read": 1.0, "to_device": 0.2},
        memory_bytes={"weights_bytes": 437_900_000, "rss_base_bytes": 300_000_000},
        verified={"weight_dtypes": {"float32": 109_482_240}, "device": "cpu"},
    )
    for launch in range(LAUNCHES)
)
