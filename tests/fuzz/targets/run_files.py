"""Run files: a folder of changed ones is loaded, and what went in passes `--verify`."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from random import Random

from tests.fuzz.base import copied, database, reading, run_files, verifying
from tests.fuzz.mutations import file_mutated, tree_mutated
from tests.fuzz.sandbox import CODE, Command, Scratch

FILES = 24


def make(random: Random, scratch: Scratch, base: Path) -> tuple[Command, ...]:
    """Write the input of a case; its commands."""
    (folder := scratch.work / "runs").mkdir()
    for number in range(FILES):
        _write(random, folder / f"{number}.json")
    (scratch.work / "numpy.py").write_text(CODE)
    ingest = ("setup_benchmark_db", "--ingest", "runs", "--db-path", "mine.duckdb")
    if random.random() < 0.8:
        copied(database(base), scratch.work / "mine.duckdb")
    loaded = Command(words=ingest, writes=("work/mine.duckdb",), lines=FILES + 2, limit_s=60)
    again = () if random.random() < 0.7 else (loaded,)
    drawn = ("visualize_benchmarks", "--json-path", "runs", "--formats", "svg", "--output-dir", "made")
    last = reading(random, "mine.duckdb")
    if random.random() < 0.03:
        last = Command(words=drawn, writes=("work/made",), lines=FILES + 2, limit_s=120)
    return (loaded, *again, verifying("mine.duckdb", must_hold=True), last)


def _write(random: Random, path: Path) -> None:
    data = random.choice(run_files())
    text = tree_mutated(random, {**data, "run_id": f"00000000-0000-0000-0000-{random.randrange(10**12):012}"})
    match random.randrange(40):
        case 0:
            path.symlink_to(random.choice(("nothing", "/dev/zero", "../../outside/canary.txt", path.name)))
        case 1:
            os.mkfifo(path)
        case 2:
            path.mkdir()
        case 3:
            path.with_suffix(".json.gz").write_bytes(gzip.compress(text.encode()))
        case 4 | 5:
            path.write_bytes(file_mutated(random, text.encode()))
        case _:
            path.write_text(text)
