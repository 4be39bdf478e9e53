"""Signals at random moments of the commands that write: python -m tests.attack.signals --tries 20

Each try is SIGINT, SIGTERM, SIGHUP or two SIGINT within 0.2 s. A command must end within 20 s with the signal's exit
code or its own (before and after its handlers, the signal kills Python itself), without a traceback, with at most two
lines about the signal, and without a process of its group left; afterwards the database has no fault, unfinished runs
can be finished, and the temporary folder is empty. Commands with "/" alternate: the first makes what the second needs.
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
from itertools import groupby
from pathlib import Path

import psutil

from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.core.records import to_json
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.git_repositories import GitRepository
from tests.helpers.paths import ROOT
from tests.helpers.records import make_run

GRID = ["--devices", "null", "--batch-sizes", "1,2", "--sequence-lengths", "32", "--weights", "random"]
GRID += ["--launches", "2", "--quiet", "--output-dir", "measured"]
NULL = ["tiny-bert", "--device", "null", "--runtime", "null", "--batch-sizes", "1", "--sequence-lengths", "32"]
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
    "batch": [
        "--models",
        "tiny-bert,tiny-gpt2",
        "--new-tokens",
        "2",
        *GRID,
        "/",
        "--resume",
        "--quiet",
        "--output-dir",
        "measured",
    ],
    "benches": ["--benches", "BENCHES", "--enable-mock", "--iterations", "5", "--launches", "2"],
    "ab": [
        f"benchhouse run {' '.join(NULL)}",
        f"benchhouse run {' '.join(NULL)}",
        "--rounds",
        "2",
        "--max-rounds",
        "2",
    ],
    "bisect": ["HEAD~3", "HEAD", "--rounds", "3", "--max-rounds", "3", "--", "benchhouse", "run", *NULL],
    "cache": ["delete", "--all", "--yes", "/", "list"],
    "series": ["alias", "SERIES", "OTHER", "--reason", "renamed", "/", "unalias", "SERIES"],
    "annotate": ["add", "RUN", "a note", "/", "list"],
    "alert": ["raise", "/", "list"],
    "top": ["--interval", "0.1"],
    "load --serve": ["m", "--serve", "SERVE", "--concurrency", "1,2", "--duration", "1", "--output-length", "2"],
}
RESUME = {
    "run": ["--resume", "--output-dir", "measured", "--quiet"],
    "batch": ["--resume", "--output-dir", "measured", "--quiet"],
}
SERVER = """
import asyncio, sys
from tests.helpers.null_server import NullServer, Script, serve
async def at(port):
    async with NullServer(Script(ttft_s=0.01, itl_s=0.001), port=port):
        await asyncio.sleep(600)
asyncio.run(at(int(sys.argv[1])) if sys.argv[1:] else serve(Script(ttft_s=0.01, itl_s=0.001)))
"""
LEFT_S = 5
"""How long a child may outlive its command."""
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
            failures += _try(name, Path(folder) / "work", given.tries)
    return 1 if failures else 0


def _prepared(folder: Path) -> dict[str, str]:
    """Fill a new folder with what the commands need; returns what stands for names in them."""
    repository = GitRepository(folder)
    for number in range(4):
        repository.commit(f"change {number}", {".gitignore": "*\n", "number.txt": str(number)})
    for name_of_folder in ("runs", "temporary"):
        (folder / name_of_folder).mkdir()
    (folder / "foreign.json").write_text(json.dumps(FOREIGN))
    (folder / "server.py").write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r}){SERVER}")
    for number in range(6):
        (folder / "runs" / f"{number}.json").write_text(json.dumps(to_json(make_run())))
    for path in ("benchmark_db.duckdb", "other.duckdb"):
        with Warehouse.open(folder / path) as warehouse:
            for day in range(1, 5):
                run = make_run(model_id="gpt2", started_at=f"2025-01-0{day}T00:00:00Z")
                warehouse.ingest(run)
            ids = warehouse.query("SELECT DISTINCT series_id FROM benchmark_results ORDER BY ALL").dicts()
    return {
        "RUN": run.run_id,
        "SERIES": str(ids[0]["series_id"]),
        "OTHER": str(ids[1]["series_id"]),
        "BENCHES": str(ROOT / "benchmarking" / "benches" / "examples" / "mock_benchmark.py"),
        "SERVE": f"{sys.executable} server.py {{port}}",
    }


def _try(name: str, folder: Path, tries: int) -> int:
    names = _prepared(folder)
    environment = {**os.environ, "BENCHHOUSE_CACHE_DIR": str(folder / "cache"), "BENCHHOUSE_LOCK_DIR": str(folder)}
    environment.pop("BENCHMARK_DB_PATH", None)
    environment["TMPDIR"] = str(folder / "temporary")
    draw, outcomes, problems = random.Random(name), Counter[int](), list[str]()
    server = subprocess.Popen([sys.executable, str(folder / "server.py")], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    names["URL"] = server.stdout.readline().strip()
    entry = "import sys; from benchmarking.console_scripts import benchhouse; sys.exit(benchhouse())"
    words = [names.get(word, word) for word in COMMANDS[name]]
    parts = [list(part) for is_sign, part in groupby(words, key="/".__eq__) if not is_sign] or [[]]
    commands = [[sys.executable, "-c", entry, *name.split()[:1], *part] for part in parts]
    takes_s = []
    for command in commands:
        began_s = time.monotonic()
        with suppress(subprocess.TimeoutExpired):  # `top` never ends
            subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                check=False,
                timeout=3 if name == "top" else 200,
            )
        takes_s.append(time.monotonic() - began_s)
    for number in range(tries):
        if name == "cache":
            _fill_cache(folder / "cache")
        turn = number % len(commands)
        kind = draw.choice(["SIGINT", "SIGTERM", "SIGHUP", "two SIGINT"])
        code, err, left = _interrupted(commands[turn], folder, environment, kind, draw, takes_s[turn])
        outcomes[code] += 1
        problems += [f"{kind}: exit code {code}, left running: {one}" for one in left]
        about = [line for line in err.splitlines() if "interrupted" in line.lower()]
        is_usual = code in (0, 1, 3, 129, 130, 143, -1, -2, -15) or (code == 2 and "--resume" in commands[turn])
        if "Traceback" in err or "hangs" in err or len(about) > 2 or not is_usual:
            problems.append(f"{kind}: exit code {code}: {err[-300:]}")
    with Warehouse.open(folder / "benchmark_db.duckdb", lock_timeout_s=60) as warehouse:
        problems += [str(fault) for fault in verify(warehouse)]
    if name in ("run", "batch"):
        problems += _not_resumed([*commands[0][:4], *RESUME[name]], folder, environment)
    server.kill()
    server.communicate()
    left_files = [path.name for path in folder.iterdir() if path.name.endswith((".new", ".tmp"))]
    left_files += [path.name for path in (folder / "temporary").iterdir()]
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(outcomes.items()))
    print(
        f"{name} ({sum(takes_s):.1f} s): exit codes {codes}; {len(problems)} problems, left behind: {left_files}",
        flush=True,
    )
    for problem in problems[:3]:
        print(f"    {problem}", flush=True)
    return len(problems)


def _not_resumed(command: list[str], folder: Path, environment: dict[str, str]) -> list[str]:
    """Resume until no unfinished run is left, each time the newest batch; returns what failed."""
    while left := sorted(path.name for path in folder.glob("measured/*.partial.jsonl")):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        resumed = subprocess.run(command, cwd=folder, env=environment, check=False, timeout=900, **quiet)
        if resumed.returncode:
            return [f"--resume: exit code {resumed.returncode}", *(f"not resumed: {name}" for name in left)]
    return []


def _interrupted(
    command: list[str], folder: Path, environment: dict[str, str], kind: str, draw: random.Random, takes_s: float
) -> tuple[int, str, list[str]]:
    """Exit code, stderr, and the processes left, of a command that gets a signal at a random moment."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **quiet)
    time.sleep(draw.uniform(0.15, takes_s))  # Python itself needs a moment before it can handle signals
    process.send_signal(getattr(signal, kind.split()[-1]))
    if kind.startswith("two"):
        time.sleep(draw.uniform(0, 0.2))
        process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        err = process.communicate()[1] + "\nhangs"
    ends_s = time.monotonic() + LEFT_S  # a child whose parent was killed by the signal sees its pipe close
    while (left := _of_session(process.pid)) and time.monotonic() < ends_s:
        time.sleep(0.1)
    commands = []
    for one in left:
        with suppress(psutil.Error):
            commands.append(" ".join(one.cmdline()))
            one.kill()
    return process.returncode, err, commands


def _of_session(session: int) -> list[psutil.Process]:
    """The processes of a session, without its leader."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if one.pid != session and os.getsid(one.pid) == session:
                found.append(one)
    return found


def _fill_cache(folder: Path) -> None:
    def fill(build: Path) -> dict[str, int]:
        (build / "file").write_bytes(bytes(1000))
        return {}

    for number in range(40):
        BuildStore(folder).get(BuildKey(kind="onnx", parts={"number": number}), fill)


if __name__ == "__main__":
    sys.exit(main())
