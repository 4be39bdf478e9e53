"""Several commands resume the same unfinished runs at once, and are killed: python -m tests.attack.resumers --trials 20

Each trial leaves two runs unfinished, then starts commands that resume them until the folder has no unfinished run;
some of the commands are killed. Afterwards every run must have one run file, be stored once, and contain each launch of
each point once, and every measurement that was on disk before must be in it.
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

from benchmarking.sweep.run import spool
from db.warehouse import Warehouse

SWEEP = ["--model-id", "tiny-bert", "--device", "null", "--batch-sizes", "1,2", "--sequence-lengths", "32"]
SWEEP += ["--iterations", "5", "--warmup-iterations", "1", "--launches", "3", "--weights", "random", "--quiet"]
BATCH = ["--models", "tiny-bert,tiny-gpt2", "--devices", "null", "--new-tokens", "2", *SWEEP[4:]]
COMMANDS = {
    "run": ("benchmarking.run_hardware_benchmark", [*SWEEP, "--save", "--runtime", "null"]),
    "batch": ("benchmarking.batch_benchmark", BATCH),
}


def start(folder: Path, module: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "BENCHHOUSE_NULL_SCRIPT": str(folder / "null.json")}
    environment |= {"BENCHHOUSE_CACHE_DIR": str(folder / "cache"), "BENCHHOUSE_LOCK_DIR": str(folder / "locks")}
    environment.pop("BENCHMARK_DB_PATH", None)
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def kept(folder: Path) -> dict[tuple[str, str, int], tuple[float, ...]]:
    """The samples on disk, by run, point and launch."""
    found = {}
    for file in spool.unfinished(folder):
        try:
            progress = file.read()
        except OSError:
            continue
        for one in progress.measurements:
            found[progress.plan.run_id, one.point.label, one.launch] = one.samples[-1].values
    for path in folder.glob("*.json"):
        run = json.loads(path.read_text())
        for result in run.get("results", ()):
            point = result["point"]
            label = f"b{point['batch_size']} s{point['sequence_length']}"
            label += f" n{point['new_tokens']}" if point["new_tokens"] else ""
            for samples in result["samples"]:
                if samples["metric"] == "latency_wall" and samples["phase"] == "measure":
                    found[run["run_id"], label, samples["launch"]] = tuple(samples["values"])
    return found


def trial(kind: str, resumers: int, seed: int) -> str:
    """One trial; returns the outcome. Raises AssertionError for a loss."""
    chance = random.Random(seed)
    module, arguments = COMMANDS[kind]
    with tempfile.TemporaryDirectory() as name:
        folder, results = Path(name), Path(name) / "benchmark_results"
        (folder / "locks").mkdir()
        (folder / "null.json").write_text(json.dumps({"real_time": True, "latency_ms": {"*": [8.0, 9.0]}}))
        first = start(folder, module, *arguments)
        deadline_s = time.monotonic() + 120
        while len(kept(results)) < chance.randint(1, 3) and first.poll() is None:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        first.kill()
        first.communicate()
        before, kills, rounds, refused = kept(results), 0, 0, 0
        while spool.unfinished(results) or list(results.glob("*.manifest.jsonl")):
            rounds += 1
            assert rounds < 12, "the resumers never finish"
            commands = [start(folder, module, "--resume", "--quiet") for _ in range(resumers)]
            if rounds <= 2:
                time.sleep(chance.uniform(0.5, 4.0))
                for victim in chance.sample(commands, chance.randint(0, resumers)):
                    kills += victim.poll() is None
                    victim.kill()
            for command in commands:
                _, err = command.communicate(timeout=240)
                assert "Traceback" not in err, err
                refused += "by PID" in err
        after = kept(results)
        lost = [key for key, values in before.items() if after.get(key) != values]
        assert not lost, f"lost {lost}"
        sql = "select run_id::varchar as run_id, count(*) as n from benchmark_results group by 1 order by 1"
        with Warehouse.open(folder / "benchmark_db.duckdb") as warehouse:
            stored = {row["run_id"]: row["n"] for row in warehouse.query(sql).dicts()}
        runs = {run_id for run_id, *_ in after}
        assert stored.keys() == runs, (stored, runs)
        assert len(after) == len(runs) * 2 * 3, sorted(after)
        assert list(results.glob("*.damaged")) == []
        return f"{len(before)} launches before, {rounds} rounds, {kills} kills, {refused} refused"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--resumers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--kinds", nargs="+", default=list(COMMANDS))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failures = 0
    for number in range(given.trials):
        kind = given.kinds[number % len(given.kinds)]
        resumers = given.resumers[number // len(given.kinds) % len(given.resumers)]
        try:
            outcome = trial(kind, resumers, given.seed + number)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failures, outcome = failures + 1, f"FAILED: {error}"
        print(f"{number + 1:3} {kind} {resumers} resumers: {outcome}", flush=True)
    print(f"{given.trials - failures} of {given.trials} trials without loss")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
