"""Commands that write one database at once, some of them killed: python -m tests.attack.mixed --tries 3 --kill

Each mixture starts its commands together; with --kill, half of them are killed (SIGKILL) at a random moment, and with
--restart a lake's PostgreSQL server crashes meanwhile and starts again. Afterwards the database has no fault, every run
that a command reported as stored is there once, the earlier runs are there, sites and exports are complete, and no
temporary file is left beside the database once it was opened again.
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
from contextlib import nullcontext
from pathlib import Path

from benchmarking.core.records import Run, to_json
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.attack.signals import FOREIGN
from tests.helpers.postgres import Server, running
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
    "three sites": [["publish", "site"]] * 3,
    "three exports": [["export", "--format", "csv", "--output", "results.csv"]] * 3,
    "imports and a merge": [*[["import", "foreign.json"]] * 3, ["merge", "other.duckdb"], *SAVERS[:2]],
    "deletes and savers": [*[["delete", "model=doomed", "--yes"]] * 2, *SAVERS[:4]],
    "aliases and labels": [
        *[["series", "alias", "SERIES", "OTHER", "--reason", "renamed"]] * 2,
        ["series", "unalias", "SERIES"],
        *[["annotate", "label", "format=google_benchmark", "--model-id", f"model-{number}"] for number in range(2)],
    ],
    "alerts": [["alert", "raise"], ["alert", "raise"], ["check"], *NOTES[:2]],
    "savers and readers": [*SAVERS[:3], ["show"], ["history"], ["export", "--format", "csv"], ["query", "select 1"]],
}
ENTRY = "import sys; from benchmarking.console_scripts import benchhouse; sys.exit(benchhouse())"
DAYS = 11
EXPECTED = ("exists", "is not an alias", "already an alias")


def trial(
    commands: list[list[str]], draw: random.Random, *, kills: bool, place: str | None, server: Server | None
) -> str:
    """One trial; returns the outcome. Raises AssertionError for a fault."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = (place or str(folder / "benchmark_db.duckdb")).replace("FOLDER", name)
        environment, saved, earlier, names = _prepared(folder, place)
        began_s, started = time.monotonic(), []
        for command in commands:
            words = [names.get(word, word) for word in command]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
            started.append(
                subprocess.Popen([sys.executable, "-c", ENTRY, *words], cwd=folder, env=environment, **quiet)
            )
        if kills:
            time.sleep(draw.uniform(0.5, 3))
            for process in draw.sample(started, max(1, len(started) // 2)):
                process.kill()
                time.sleep(draw.uniform(0, 0.5))
        if server is not None:
            time.sleep(draw.uniform(0, 3))
            server.stop()
            server.start()
        errors = []
        for process in started:
            _, err = process.communicate(timeout=240)
            assert "Traceback" not in err, err
            errors += [err.strip()[-200:]] if process.returncode not in (0, 3, -9) else []
        took_s = time.monotonic() - began_s
        done = [command for command, process in zip(commands, started, strict=True) if process.returncode == 0]
        with Warehouse.open(place, lock_timeout_s=60) as warehouse:
            faults = verify(warehouse)
            rows = warehouse.query("SELECT DISTINCT run_id::varchar AS id, model_id FROM all_results").dicts()
            count = warehouse.query("SELECT count(*) AS n FROM benchmark_runs").dicts()[0]["n"]
            notes = warehouse.query("SELECT count(*) AS n FROM annotations").dicts()[0]["n"]
        stored = {row["id"] for row in rows}
        kept = earlier[:DAYS] if any(command[0] == "delete" for command in commands) else earlier
        wanted = [run.run_id for run in kept] + [saved[number].run_id for number in range(8) if SAVERS[number] in done]
        assert not faults, faults
        # One that was faster has written the file or removed the alias.
        errors = [one for one in errors if not any(word in one for word in EXPECTED)]
        assert not errors, errors
        assert count == len(stored), (count, len(stored))
        assert set(wanted) <= stored, sorted(set(wanted) - stored)
        assert ["merge", "other.duckdb"] not in done or len(stored) >= len(wanted) + 2
        assert ["delete", "model=doomed", "--yes"] not in done or "doomed" not in {row["model_id"] for row in rows}
        assert sum(command in done for command in NOTES) <= notes <= len(NOTES)
        if (folder / "results.csv").exists():
            assert len((folder / "results.csv").read_text().splitlines()) == 1 + sum(
                len(run.results) for run in earlier
            )
        if (folder / "site").exists():
            pages = list((folder / "site").rglob("*.html"))
            assert pages, "an empty site"
            assert all(page.read_text().rstrip().endswith("</html>") for page in pages)
        left = [path.name for path in folder.iterdir() if path.name.endswith((".tmp", ".new", ".wal"))]
        left += [path.name for path in (folder / "temporary").iterdir()] if not kills else []
        assert not left or kills, left
        return f"{len(done)} of {len(commands)} done, {count} runs, {notes} notes, left {left}, {took_s:.0f} s"


def _prepared(folder: Path, place: str) -> tuple[dict[str, str], list[Run], list[Run], dict[str, str]]:
    """The commands' variables, the runs they save, those stored before, and what stands for names in the commands."""
    for part in ("runs", "temporary", "locks"):
        (folder / part).mkdir()
    environment = {**os.environ, "BENCHHOUSE_LOCK_DIR": str(folder / "locks"), "TMPDIR": str(folder / "temporary")}
    saved = [make_run() for _ in range(8)]
    for number, run in enumerate(saved):
        (folder / "runs" / f"{number}.json").write_text(json.dumps(to_json(run)))
    (folder / "foreign.json").write_text(json.dumps(FOREIGN))
    with Warehouse.open(folder / "other.duckdb") as warehouse:
        for _ in range(2):
            warehouse.ingest(make_run(model_id="other"))
    earlier = [make_run(model_id="gpt2", started_at=f"2025-01-{day:02}T00:00:00Z") for day in range(1, DAYS + 1)]
    earlier += [make_run(model_id="doomed") for _ in range(3)]
    with Warehouse.open(place) as warehouse:
        for run in earlier:
            warehouse.ingest(run)
        ids = warehouse.query("SELECT DISTINCT series_id FROM benchmark_results ORDER BY ALL").dicts()
    names = {"RUN": earlier[0].run_id, "SERIES": str(ids[0]["series_id"]), "OTHER": str(ids[1]["series_id"])}
    return environment | {"BENCHMARK_DB_PATH": place}, saved, earlier, names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument(
        "--lake", choices=["file", "postgres"], help="a DuckLake with such a catalog, not a DuckDB file"
    )
    parser.add_argument("--restart", action="store_true", help="the PostgreSQL server crashes and starts again")
    parser.add_argument("--mixtures", nargs="+", default=list(MIXTURES))
    given = parser.parse_args()
    draw, failures = random.Random(given.seed), 0
    with running(fsync=given.restart) if given.lake == "postgres" else nullcontext() as server:
        for number, name in enumerate([name for name in given.mixtures for _ in range(given.tries)]):
            place = (
                {"file": "ducklake:FOLDER/lake.ducklake", None: None}.get(given.lake)
                if server is None
                else (f"ducklake:postgres:{server.database(f'lake{number}')}?data_path=FOLDER/data")
            )
            crashes = server if given.restart else None
            try:
                outcome = trial(MIXTURES[name], draw, kills=given.kill, place=place, server=crashes)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failures, outcome = failures + 1, f"FAILED: {error}"
            print(f"{name}: {outcome}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
