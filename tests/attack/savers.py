"""Many processes store runs in one database at once: python -m tests.attack.savers --savers 32

Prints how many succeeded with the default time limit, and how long the slowest took.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarking.core.records import to_json
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.records import make_run

QUICK = ["--device", "null", "--runtime", "null", "--batch-sizes", "1", "--sequence-lengths", "32", "--iterations", "5"]
QUICK += ["--weights", "random", "--warmup-iterations", "1", "--launches", "1", "--save", "--quiet"]


def commands(kind: str, count: int, folder: Path) -> list[list[str]]:
    if kind == "run":
        command = [sys.executable, "-m", "benchmarking.run_hardware_benchmark", "--model-id", "tiny-bert", *QUICK]
        return [command] * count
    files = [folder / f"{number}.json" for number in range(count)]
    for file in files:
        file.write_text(json.dumps(to_json(make_run())))
    return [[sys.executable, "-m", "db.setup_benchmark_db", "--ingest", str(file), "--quiet"] for file in files]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--savers", type=int, default=32)
    parser.add_argument("--kinds", nargs="+", default=["ingest", "run"])
    given = parser.parse_args()
    failures = 0
    for kind in given.kinds:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "locks").mkdir()
            environment = {**os.environ, "BENCHHOUSE_LOCK_DIR": str(folder / "locks")}
            environment |= {"BENCHHOUSE_CACHE_DIR": str(folder / "cache")}
            environment.pop("BENCHMARK_DB_PATH", None)
            began_s, ends = time.monotonic(), []
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
            running = [
                subprocess.Popen(command, cwd=folder, env=environment, **quiet)
                for command in commands(kind, given.savers, folder)
            ]
            errors = []
            for process in running:
                _, err = process.communicate(timeout=900)
                ends.append(time.monotonic() - began_s)
                errors += [err.strip().splitlines()[-1]] if process.returncode else []
            with Warehouse.open(folder / "benchmark_db.duckdb", read_only=True) as warehouse:
                stored = warehouse.query("SELECT count(*) AS n FROM benchmark_runs").dicts()[0]["n"]
                faults = verify(warehouse)
        print(f"{kind}: {given.savers - len(errors)} of {given.savers} succeeded, {stored} runs stored, {faults=}, ")
        print(f"  median {statistics.median(ends):.1f} s, slowest {max(ends):.1f} s; {errors[:2]}", flush=True)
        failures += len(errors) + (stored != given.savers) + len(faults)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
