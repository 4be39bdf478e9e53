"""A lake's PostgreSQL server that stops during a command: python -m tests.attack.stopped_server

The server's processes are stopped (SIGSTOP) at a random moment of a command, so that it neither answers nor closes. The
command must end in time with one line; afterwards the server goes on, the command is repeated, and every run is there
once.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarking.core.records import to_json
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.postgres import Server, running
from tests.helpers.records import make_run

MODULES = {"show": "db.commands.show", "history": "db.commands.history", "ingest": "db.setup_benchmark_db"}
WAIT_S, LIMIT_S = 5, 120


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=6)
    given = parser.parse_args()
    problems, draw = 0, random.Random(1)
    with running() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = f"ducklake:postgres:{server.database('lake')}?data_path={folder / 'data'}"
        with Warehouse.open(database) as warehouse:
            for _ in range(3):
                warehouse.ingest(make_run())
        for number in range(given.tries):
            kind = ("ingest", "show", "history")[number % 3]
            runs = folder / f"{number}.json"
            runs.write_text(json.dumps(to_json(make_run())))
            words = ["--ingest", str(runs), "--quiet", "--lock-timeout", str(WAIT_S)] if kind == "ingest" else []
            command = [sys.executable, "-m", MODULES[kind], *words, "--db-path", database]
            began_s = time.monotonic()
            subprocess.run(command, capture_output=True, check=False, timeout=LIMIT_S)  # how long it takes
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(draw.uniform(0.5, 1.0) * (time.monotonic() - began_s))
            stopped = _signal(server, signal.SIGSTOP)
            at_s = time.monotonic()
            try:
                _, err = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                err = process.communicate()[1] + "\nhangs"
            took_s = time.monotonic() - at_s
            _signal(server, signal.SIGCONT, stopped)
            lines = [line for line in err.splitlines() if "does not answer: trying" not in line]
            is_good = "hangs" not in err and "Traceback" not in err and (process.returncode == 0 or len(lines) == 1)
            problems += not is_good
            print(
                f"{kind}: exit code {process.returncode} after {took_s:.1f} s: {err.strip()[-200 if is_good else 0 :]}",
                flush=True,
            )
            if kind == "ingest":
                again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
                problems += again.returncode != 0
                print(again.stderr, end="", flush=True)
        with Warehouse.open(database, read_only=True) as warehouse:
            runs_stored = warehouse.query("SELECT count(*) AS n FROM benchmark_runs").dicts()[0]["n"]
            faults = verify(warehouse)
    expected = 3 + (given.tries + 2) // 3
    print(f"{runs_stored} of {expected} runs stored once, {faults=}, {problems} problems", flush=True)
    return 0 if (problems, runs_stored, faults) == (0, expected, []) else 1


def _signal(server: Server, number: signal.Signals, processes: Sequence[psutil.Process] = ()) -> list[psutil.Process]:
    """Send a signal to the server and its connections; returns its processes."""
    pid = int((server.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    found = list(processes) or [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for one in found:
        one.send_signal(number)
    return found


if __name__ == "__main__":
    sys.exit(main())
