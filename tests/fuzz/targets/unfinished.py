"""Files of unfinished runs and batches: `--resume` on a stranger's folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

from tests.fuzz.base import copied, unfinished
from tests.fuzz.mutations import OUTSIDE, bytes_mutated, tree_mutated
from tests.fuzz.sandbox import CODE, Command, Scratch

CHANGES = (
    ("runtime", "bench"),
    ("runtime", "support.torch.session"),
    ("path", "theirs/bench.py"),
    ("db_path", f"{OUTSIDE}/pwned.duckdb"),
    ("report", f"{OUTSIDE}/pwned.md"),
    ("model_id", f"{OUTSIDE}/canary.txt"),
    ("run_id", "../../outside/pwned"),
    ("session_id", "x/../../outside/pwned"),
    ("kernel_repo", "theirs"),
    ("type", "../x"),
    ("timeout_s", 1e300),
    ("batch_size", 10**9),
    ("iterations", 10**12),
)


def make(random: Random, scratch: Scratch, base: Path) -> tuple[Command, ...]:
    """Write the input of a case; its commands."""
    partial, manifest = unfinished(base)
    (folder := scratch.work / "theirs").mkdir()
    is_batch = random.random() < 0.5
    path = folder / (manifest if is_batch else partial).name
    copied(manifest if is_batch else partial, path)
    path.write_bytes(_mutated(random, path.read_bytes()))
    (folder / "bench.py").write_text(CODE)
    if random.random() < 0.15:
        link = folder / random.choice((f"{path.stem.split('.')[0]}.log", "report.md", "benchmark_summary.json"))
        link.symlink_to(random.choice(("../../outside/canary.txt", "../../outside/pwned")))
    if random.random() < 0.05:
        path.unlink()
        os.mkfifo(path)
    command = "batch_benchmark" if is_batch else "run_hardware_benchmark"
    words = (command, "--resume", "--output-dir", "theirs", "--db-path", "mine.duckdb")
    return (Command(words=words, writes=("work/theirs", "work/mine.duckdb"), limit_s=60, lines=5),)


def _mutated(random: Random, content: bytes) -> bytes:
    lines = content.decode().split("\n")
    number = random.choice((0, 0, random.randrange(len(lines))))
    match random.randrange(10):
        case 0:
            return bytes_mutated(random, content)
        case 1:
            lines.insert(number, lines[number])
        case 2 | 3 | 4 | 5 if lines[number]:
            data = json.loads(lines[number])
            _set(data, *random.choice(CHANGES))
            lines[number] = json.dumps(data)
        case _ if lines[number]:
            lines[number] = tree_mutated(random, json.loads(lines[number]))
    return "\n".join(lines).encode()


def _set(data: object, name: str, value: object) -> None:
    """Set every field of that name."""
    for inner in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        _set(inner, name, value)
    if isinstance(data, dict) and name in data:
        data[name] = value
