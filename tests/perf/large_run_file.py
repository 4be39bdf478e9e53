"""Prints what storing a large run file costs: peak memory and its ratio to the file, and time per MB.

Run it with `python tests/perf/large_run_file.py [MB ...]` (default 20 90 500; the limit is 1 GB of memory for 2000). A
process of its own loads each file into a new database. With `--json` before the sizes the files are parsed at once, as
files below 16 MB are: the figures to compare with.
"""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from ingest import NOW, made_up_run, result

from benchmarking.core.provenance import uuid7
from benchmarking.core.records import Samples, dumps

LAUNCHES = 2
SAMPLES = 100_000
"""Of a launch."""
LOAD = """
import sys
from pathlib import Path
from benchmarking.core import run_file
from db import ingestion
from db.warehouse import Warehouse
if sys.argv[3] == "--json":
    run_file.LARGE_BYTES = Path(sys.argv[2]).stat().st_size
with Warehouse.open(sys.argv[1]) as warehouse:
    done = ingestion.load_files(warehouse, [Path(sys.argv[2])])
assert not done.refused, done.refused
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


def main(arguments: list[str]) -> None:
    """Print the figures."""
    way = "--json" if "--json" in arguments else "--stream"
    sizes = [int(one) for one in arguments if one.isdigit()] or [20, 90, 500]
    for size_mb in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.json"
            write(path, size_mb)
            megabytes = path.stat().st_size / 1e6
            peak_mb, took_s = load(Path(folder) / "a.duckdb", path, way)
        print(
            f"{megabytes:6.0f} MB: peak memory {peak_mb:6.0f} MB, {peak_mb / megabytes:5.2f} of the file; "
            f"{took_s:6.1f} s, {1000 * took_s / megabytes:5.1f} ms/MB",
            flush=True,
        )


def load(database: Path, path: Path, way: str) -> tuple[float, float]:
    """Peak memory in MB and seconds of a process that stores the file."""
    command = [sys.executable, "-c", LOAD, str(database), str(path), way]
    start_s = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout) / 1000, time.perf_counter() - start_s


def write(path: Path, size_mb: int) -> None:
    """A run file of about the size: results of LAUNCHES launches with SAMPLES samples each."""
    head, tail = dumps(made_up_run()).split('"results":[]')
    with path.open("w", encoding="utf-8") as written:
        written.write(f'{head}"results":[')
        for number, text in enumerate(results(size_mb * 1_000_000)):
            written.write(f",{text}" if number else text)
        written.write(f"]{tail}")


def results(size_bytes: int) -> Iterator[str]:
    """Results in JSON, until they are of the size."""
    import random

    made = result(random.Random(0), 1, SAMPLES)
    values = made.samples[0].values
    samples = tuple(
        Samples(launch=launch, phase="measure", metric="latency_wall", unit="ms", started_at=NOW, values=values)
        for launch in range(LAUNCHES)
    )
    metrics = {**made.metrics, "latency_median_ms": median(values), "latency_ci_low_ms": median(values)}
    made = dataclasses.replace(made, samples=samples, launches=LAUNCHES, iterations=LAUNCHES * SAMPLES, metrics=metrics)
    text = dumps(made)
    for number in itertools.count(1):
        if size_bytes <= 0:
            return
        point = dataclasses.replace(made.point, batch_size=number)
        yield text.replace(made.result_id, uuid7()).replace(dumps(made.point), dumps(point))
        size_bytes -= len(text)


if __name__ == "__main__":
    main(sys.argv[1:])
