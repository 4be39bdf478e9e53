"""Signals at random moments of the commands that write: python -m tests.attack.signals --tries 20

Each try is SIGINT, SIGTERM, SIGHUP or two SIGINT within 0.2 s. A command must end within 20 s with the signal's exit
code or its own (before and after its handlers, the signal kills Python itself), without a traceback, with at most two
lines about the signal, and without a process of its group left; afterwards the database has no fault, unfinished runs
can be finished, and the temporary folder is empty.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarking.core.records import to_json
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.records import make_run

RUN = ["tiny-bert", "--device", "null", "--runtime", "null", "--batch-sizes", "1,2,4", "--sequence-lengths", "32"]
COMMANDS = {
    "run": [*RUN, "--weights", "random", "--launches", "2", "--save", "--output-dir", "measured"],
    "setup": ["--ingest", "runs"],
    "import": ["foreign.json"],
    "merge": ["other.duckdb"],
    "compact": ["--raw-older-than", "1d"],
    "delete": ["model=gpt2", "--yes"],
    "export": ["--format", "csv"],
    "charts": ["--output-dir", "drawn", "--formats", "png"],
    "publish": ["site"],
    "load": ["m", "--url", "URL", "--request-rate", "20", "--num-requests", "40", "--output-length", "2"],
    "check": [],
}
SERVER = """
import asyncio
from tests.helpers.null_server import Script, serve
asyncio.run(serve(Script(ttft_s=0.01, itl_s=0.001)))
"""
FOREIGN = {
    "context": {"date": "2026-01-01T00:00:00+00:00", "host_name": "h", "num_cpus": 2},
    "benchmarks": [{"name": "BM_x", "run_type": "iteration", "iterations": 9, "real_time": 1.0, "time_unit": "ms"}],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--commands", nargs="+", default=list(COMMANDS))
    given = parser.parse_args()
    failures = 0
    for name in given.commands:
        with tempfile.TemporaryDirectory() as folder:
            failures += _try(name, Path(folder), given.tries)
    return 1 if failures else 0


def _try(name: str, folder: Path, tries: int) -> int:
    environment = {**os.environ, "BENCHHOUSE_CACHE_DIR": str(folder / "cache"), "BENCHHOUSE_LOCK_DIR": str(folder)}
    environment.pop("BENCHMARK_DB_PATH", None)
    for name_of_folder in ("runs", "temporary"):
        (folder / name_of_folder).mkdir()
    environment["TMPDIR"] = str(folder / "temporary")
    (folder / "foreign.json").write_text(json.dumps(FOREIGN))
    for number in range(6):
        (folder / "runs" / f"{number}.json").write_text(json.dumps(to_json(make_run())))
    for path in ("benchmark_db.duckdb", "other.duckdb"):
        with Warehouse.open(folder / path) as warehouse:
            for day in range(1, 5):
                warehouse.ingest(make_run(model_id="gpt2", started_at=f"2025-01-0{day}T00:00:00Z"))
    entry = "import sys; from benchmarking.console_scripts import benchhouse; sys.exit(benchhouse())"
    command = [sys.executable, "-c", entry, name, *COMMANDS[name]]
    draw, outcomes, problems = random.Random(name), Counter(), []
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    command = [address if word == "URL" else word for word in command]
    began_s = time.monotonic()
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=200)
    takes_s = time.monotonic() - began_s
    for _ in range(tries):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **quiet)
        time.sleep(draw.uniform(0.15, takes_s))  # Python itself needs a moment before it can handle signals
        kind = draw.choice(["SIGINT", "SIGTERM", "SIGHUP", "two SIGINT"])
        process.send_signal(getattr(signal, kind.split()[-1]))
        if kind.startswith("two"):
            time.sleep(draw.uniform(0, 0.2))
            process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            err = process.communicate()[1] + "\nhangs"
        outcomes[process.returncode] += 1
        time.sleep(0.3)  # a child whose parent was killed by the signal sees its pipe close
        for one in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if one.pid != process.pid and os.getsid(one.pid) == process.pid:
                    problems.append(f"{kind}: exit code {process.returncode}, left running: {' '.join(one.cmdline())}")
                    one.kill()
        about = [line for line in err.splitlines() if "interrupted" in line.lower()]
        if (
            "Traceback" in err
            or "hangs" in err
            or len(about) > 2
            or process.returncode not in (0, 1, 3, 129, 130, 143, -1, -2, -15)
        ):
            problems.append(f"{kind}: exit code {process.returncode}: {err[-300:]}")
    with Warehouse.open(folder / "benchmark_db.duckdb", lock_timeout_s=60) as warehouse:
        problems += [str(fault) for fault in verify(warehouse)]
    if name == "run":
        resumed = subprocess.run(
            [*command[:4], "--resume", "--output-dir", "measured", "--quiet"],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            check=False,
            timeout=900,
        )
        problems += [f"--resume: exit code {resumed.returncode}"] if resumed.returncode not in (0, 2) else []
        problems += [f"not resumed: {path.name}" for path in folder.glob("measured/*.partial.jsonl")]
    server.kill()
    server.communicate()
    left = [path.name for path in folder.iterdir() if path.name.endswith((".new", ".tmp"))]
    left += [path.name for path in (folder / "temporary").iterdir()]
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(outcomes.items()))
    print(f"{name} ({takes_s:.1f} s): exit codes {codes}; {len(problems)} problems, left behind: {left}", flush=True)
    for problem in problems[:3]:
        print(f"    {problem}", flush=True)
    return len(problems)


if __name__ == "__main__":
    sys.exit(main())
