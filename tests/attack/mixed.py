"""Commands that write one database at once, some of them killed: python -m tests.attack.mixed --tries 3 --kill

Each mixture starts its commands together; with --kill, half of them are killed (SIGKILL) at a random moment. Afterwards
the database has no fault, every run that a command reported as stored is there once, the earlier runs are there, and no
temporary file is left beside it once it was opened again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarking.core.records import to_json
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.records import make_run

COMPACT = ["compact", "--raw-older-than", "1d"]
SAVERS = [["setup", "--ingest", f"runs/{number}.json"] for number in range(8)]
NOTES = [["annotate", "add", "RUN", f"note {number}"] for number in range(4)]
MIXTURES = {
    "two compact": [COMPACT, COMPACT],
    "two setup --compact": [["setup", "--compact"]] * 2,
    "compact and merge": [COMPACT, ["merge", "other.duckdb"]],
    "compact and 8 savers": [COMPACT, *SAVERS],
    "notes, alerts and a delete": [*NOTES, ["alert", "raise"], ["check"], ["delete", "model=bert", "--yes"]],
    "savers and readers": [*SAVERS[:3], ["show"], ["history"], ["export", "--format", "csv"], ["query", "select 1"]],
}
ENTRY = "import sys; from benchmarking.console_scripts import benchhouse; sys.exit(benchhouse())"
DAYS = 12


def trial(commands: list[list[str]], draw: random.Random, *, kills: bool, lake: bool) -> str:
    """One trial; returns the outcome. Raises AssertionError for a fault."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = f"ducklake:{folder / 'lake.ducklake'}" if lake else str(folder / "benchmark_db.duckdb")
        for part in ("runs", "temporary", "locks"):
            (folder / part).mkdir()
        environment = {**os.environ, "BENCHHOUSE_LOCK_DIR": str(folder / "locks"), "TMPDIR": str(folder / "temporary")}
        environment |= {"BENCHMARK_DB_PATH": place}
        saved = [make_run() for _ in range(8)]
        for number, run in enumerate(saved):
            (folder / "runs" / f"{number}.json").write_text(json.dumps(to_json(run)))
        with Warehouse.open(folder / "other.duckdb") as warehouse:
            other = [warehouse.ingest(make_run(model_id="other")) for _ in range(2)]
        with Warehouse.open(place) as warehouse:
            earlier = [make_run(model_id="gpt2", started_at=f"2025-01-{day:02}T00:00:00Z") for day in range(1, DAYS)]
            for run in earlier:
                warehouse.ingest(run)
        began_s, started = time.monotonic(), []
        for command in commands:
            words = [earlier[0].run_id if word == "RUN" else word for word in command]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
            started.append(
                subprocess.Popen([sys.executable, "-c", ENTRY, *words], cwd=folder, env=environment, **quiet)
            )
        if kills:
            time.sleep(draw.uniform(0.5, 3))
            for process in draw.sample(started, max(1, len(started) // 2)):
                process.kill()
                time.sleep(draw.uniform(0, 0.5))
        errors = []
        for process in started:
            _, err = process.communicate(timeout=240)
            assert "Traceback" not in err, err
            errors += [err.strip()[-200:]] if process.returncode not in (0, 3, -9) else []
        took_s = time.monotonic() - began_s
        with Warehouse.open(place, lock_timeout_s=60) as warehouse:
            faults = verify(warehouse)
            rows = warehouse.query("SELECT run_id::varchar AS id, count(*) AS n FROM benchmark_runs GROUP BY 1").dicts()
            notes = warehouse.query("SELECT count(*) AS n FROM annotations").dicts()[0]["n"]
        stored = {row["id"]: row["n"] for row in rows}
        done = [command for command, process in zip(commands, started, strict=True) if process.returncode == 0]
        wanted = [run.run_id for run in earlier] + [
            saved[number].run_id for number in range(8) if SAVERS[number] in done
        ]
        assert not faults, faults
        assert not errors, errors
        assert set(stored.values()) == {1}, stored
        assert set(wanted) <= set(stored), sorted(set(wanted) - set(stored))
        assert ["merge", "other.duckdb"] not in done or len(stored) >= len(wanted) + len(other)
        assert sum(command in done for command in NOTES) <= notes <= len(NOTES)
        left = [path.name for path in folder.iterdir() if path.name.endswith((".tmp", ".new", ".wal"))]
        left += [path.name for path in (folder / "temporary").iterdir()] if not kills else []
        assert not left, left
        return f"{len(done)} of {len(commands)} done, {len(stored)} runs, {notes} notes, {took_s:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--lake", action="store_true", help="a DuckLake in a file instead of a DuckDB file")
    parser.add_argument("--mixtures", nargs="+", default=list(MIXTURES))
    given = parser.parse_args()
    draw, failures = random.Random(1), 0
    for name in given.mixtures:
        for _ in range(given.tries):
            try:
                outcome = trial(MIXTURES[name], draw, kills=given.kill, lake=given.lake)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failures, outcome = failures + 1, f"FAILED: {error}"
            print(f"{name}: {outcome}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
