"""Prints what storing costs in a DuckLake on PostgreSQL with 8 writers, against a DuckDB file with 8 and with 1.

Every writer is a process that stores its own runs one after the other over one connection, as a coordinator does; the
8 writers of a file open it for each run, since only one may have it open. Then the same 8 writers again, killed at
random moments and started anew, with the server restarted in the middle, and counts that must be exact. PostgreSQL is
started here from Debian's packages, with fsync. Run it with `python -m tests.perf.lake`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarking.core.records import dumps
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers import postgres
from tests.helpers.records import make_run

STORE = """
import sys
from pathlib import Path
from db.warehouse import Warehouse

database, way, folder = sys.argv[1:4]
files = sorted(Path(folder).glob("*.json"))
if way == "once":
    with Warehouse.open(database, lock_timeout_s=300) as warehouse:
        for file in files:
            warehouse.ingest_file(file)
else:
    for file in files:
        with Warehouse.open(database, lock_timeout_s=300) as warehouse:
            warehouse.ingest_file(file)
"""
COUNTS = """
SELECT (SELECT count(*) FROM benchmark_runs) AS runs, (SELECT count(DISTINCT run_id) FROM benchmark_runs) AS ids,
    (SELECT count(*) FROM benchmark_results) AS results, (SELECT count(*) FROM raw_benchmark_data) AS raw
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=8, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=100, metavar="N", help="runs of each (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="of the kills (default: %(default)s)")
    arguments = parser.parse_args(argv)
    why = postgres.missing()
    if why is not None:
        raise SystemExit(why)
    with tempfile.TemporaryDirectory() as name, postgres.running(fsync=True) as server:
        folder = Path(name)
        batches = [spooled(folder / f"runs-{writer}", arguments.runs) for writer in range(arguments.writers)]
        everything = arguments.writers * arguments.runs

        def lake(database: str) -> str:
            return f"ducklake:postgres:{server.database(database)}?data_path={folder / database}"

        for what, database, way, shares in (
            ("one writer into a file, one connection", str(folder / "one.duckdb"), "once", batches[:1]),
            ("one writer into a lake, one connection", lake("one"), "once", batches[:1]),
            (
                f"{arguments.writers} writers into a file, a connection a run",
                str(folder / "all.duckdb"),
                "each",
                batches,
            ),
            (f"{arguments.writers} writers into a lake, a connection each", lake("all"), "once", batches),
        ):
            Warehouse.open(database).close()
            took_s = timed(database, way, shares)
            show(what, len(shares) * arguments.runs, took_s)
            check(database, len(shares) * arguments.runs)
        database = lake("killed")
        Warehouse.open(database).close()
        began = time.monotonic()
        kills = with_faults(database, batches, server, random.Random(arguments.seed))
        check(database, everything)
        show(f"the same, {kills} kills and a restart of the server", everything, time.monotonic() - began)
        began = time.monotonic()
        with Warehouse.open(database, read_only=True) as warehouse:
            findings = verify(warehouse)
        print(f"verify: {len(findings)} faults, {time.monotonic() - began:.1f} s")
        for before, do in (("as it is", None), ("compacted", Warehouse.compact)):
            if do is not None:
                began = time.monotonic()
                do(database)
                print(f"compact: {time.monotonic() - began:.1f} s")
            asked(database, before)


def spooled(folder: Path, count: int) -> Path:
    """A folder of run files."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.json").write_text(dumps(make_run()), encoding="utf-8")
    return folder


def timed(database: str, way: str, folders: Sequence[Path]) -> float:
    """Seconds for one writer a folder."""
    began = time.monotonic()
    writers = [writer(database, way, folder) for folder in folders]
    codes = [process.wait() for process in writers]
    assert codes == [0] * len(codes), codes
    return time.monotonic() - began


def writer(database: str, way: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", STORE, database, way, str(folder)])


def with_faults(
    database: str, folders: Sequence[Path], server: postgres.Server, chance: random.Random, *, kills_each: int = 3
) -> int:
    """One writer a folder, each killed so many times at random moments and started again; the server is stopped as by
    a crash when half of the kills are done. Gives how many kills hit a writer that was at work."""
    left = dict.fromkeys(folders, kills_each)
    working = {folder: writer(database, "once", folder) for folder in folders}
    done = 0
    restart_at = len(folders) * kills_each // 2
    while any(left.values()):
        time.sleep(chance.uniform(0.05, 1.0))
        folder = chance.choice([one for one, kills in left.items() if kills])
        left[folder] -= 1
        process = working[folder]
        done += process.poll() is None
        os.kill(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()
        working[folder] = writer(database, "once", folder)
        if sum(left.values()) == restart_at:
            server.stop()
            time.sleep(0.5)
            server.start()
    for folder, process in working.items():
        while (code := process.wait()) < 0:  # DuckDB's extension may abort when its server is gone
            done += 1
            process = writer(database, "once", folder)
        assert code == 0, code
    return done


def check(database: str, runs: int) -> None:
    """Raise AssertionError unless every run is stored once."""
    with Warehouse.open(database, read_only=True) as warehouse:
        (found,) = warehouse.query(COUNTS).dicts()
    run = make_run()
    results, raw = len(run.results), sum(len(result.samples) for result in run.results)
    assert found == {"runs": runs, "ids": runs, "results": runs * results, "raw": runs * raw}, found


def asked(database: str, state: str) -> None:
    """Print how long a process takes to open the lake, and to answer."""
    began = time.monotonic()
    with Warehouse.open(database, read_only=True) as warehouse:
        opened = time.monotonic()
        warehouse.query("SELECT * FROM latest_results")
        latest = time.monotonic()
        warehouse.query("SELECT avg(value) FROM raw_samples")
        raw = time.monotonic()
    figures = {"open": opened - began, "latest_results": latest - opened, "all samples": raw - latest}
    print(f"{state}: {', '.join(f'{what} {took_s:.2f} s' for what, took_s in figures.items())}")
    began = time.monotonic()
    with Warehouse.open(database, for_questions=True):
        print(f"{state}: copy for questions {time.monotonic() - began:.2f} s")


def show(what: str, runs: int, took_s: float) -> None:
    print(f"{what:<55} {runs:4} runs {took_s:7.1f} s {runs / took_s:7.1f} runs/s", flush=True)


if __name__ == "__main__":
    main()
