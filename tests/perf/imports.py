"""Prints the time of importing a table of MLPerf with many rows, the memory of importing many raw values, and the CPU
time of each file in a folder of small ones.

python -m tests.perf.imports [ROWS] [MEGABYTES] [FILES]
"""

from __future__ import annotations

import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOAD = Path(__file__).parents[1] / "fixtures/imports/vllm_bench_serve/over_saturated.json"
TABLE = Path(__file__).parents[1] / "fixtures/imports/mlperf/v41_summary.csv"
BYTES_A_VALUE = 20


def main() -> None:
    given = [int(text) for text in sys.argv[1:]]
    rows, megabytes, files = [*given, *(2000, 200, 1000)[len(given) :]]
    with tempfile.TemporaryDirectory() as folder:
        _import("rows of MLPerf", rows, _table(Path(folder, "summary.csv"), rows))
        _import("MB of raw values", megabytes, _samples(Path(folder, "values.json"), megabytes))
        _folder(Path(folder, "small"), files)


def _folder(folder: Path, files: int) -> None:
    """Import a folder of small files of loads, and an empty one, which takes the same start."""
    load = json.loads(LOAD.read_text())
    for count in (1, files):
        own = folder / str(count)
        own.mkdir(parents=True)
        for number in range(count):
            (own / f"{number}.json").write_text(json.dumps({**load, "duration": 100.0 + number}))
    seconds = {}
    for count in (1, files):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "db.commands.import_results", str(folder / str(count)), "--db-path"]
        subprocess.run([*command, str(folder / f"{count}.duckdb")], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds[count] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    each_ms = 1000 * (seconds[files] - seconds[1]) / (files - 1)
    print(f"a folder of {files} small files: {each_ms:.1f} ms of CPU per file, {seconds[1]:.2f} s to start")


def _table(path: Path, rows: int) -> Path:
    with TABLE.open(newline="") as opened:
        header, *known = csv.reader(opened)
    with path.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(header)
        for number in range(rows):
            row = list(known[number % len(known)])
            row[header.index("SystemName")] = f"System {number}"
            writer.writerow(row)
    return path


def _samples(path: Path, megabytes: int) -> Path:
    """A file of pyperf with so many values."""
    values = random.Random(1)
    with path.open("w") as opened:
        opened.write('{"version": "1.0", "metadata": {"name": "many", "unit": "second"}, "benchmarks": [{"runs": [')
        opened.write('{"values": [0.01')
        for _ in range(megabytes * 1_000_000 // BYTES_A_VALUE):
            opened.write(f", {values.uniform(0.01, 0.02):.16f}")
        opened.write("]}]}]}")
    return path


def _import(what: str, amount: int, path: Path) -> None:
    command = [sys.executable, "-m", "db.commands.import_results", str(path), "--json"]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--db-path", str(path.with_suffix(".duckdb"))], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    stored = json.loads(done.stdout)["files"][0] if done.stdout else {"new_runs": done.stderr}
    print(
        f"{amount} {what} ({path.stat().st_size / 1e6:.0f} MB): {seconds:.1f} s, at most {peak_mb:.0f} MB resident; "
        f"{stored['new_runs']} runs, {stored.get('samples')} values {stored.get('reason') or ''}"
    )


if __name__ == "__main__":
    main()
