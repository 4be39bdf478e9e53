"""Prints the time of importing a table of MLPerf with many rows, and the memory of importing many raw values.

python -m tests.perf.imports [ROWS] [MEGABYTES]
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

TABLE = Path(__file__).parents[1] / "fixtures/imports/mlperf/v41_summary.csv"
BYTES_A_VALUE = 20


def main() -> None:
    rows, megabytes = (int(text) for text in (*sys.argv[1:], "2000", "200")[:2])
    with tempfile.TemporaryDirectory() as folder:
        _import("rows of MLPerf", rows, _table(Path(folder, "summary.csv"), rows))
        _import("MB of raw values", megabytes, _samples(Path(folder, "values.json"), megabytes))


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
