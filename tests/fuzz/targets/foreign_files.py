"""Other tools' files: changed recordings are imported, and what went in passes `--verify`."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.base import copied, database, reading, verifying
from tests.fuzz.mutations import file_mutated
from tests.fuzz.sandbox import Command, Scratch
from tests.helpers.paths import FIXTURES

FILES = 12
LINES = 8
"""Maximum lines of messages about a file: five values that are left out, how many more, and the file's own."""
MAX_SIZE_BYTES = 200_000


@cache
def recordings() -> tuple[Path, ...]:
    """The files of the importers' tests."""
    found = sorted(path for path in (FIXTURES / "imports").rglob("*") if path.is_file() and path.name != "README.md")
    return tuple(path for path in found if path.stat().st_size < MAX_SIZE_BYTES)


def make(random: Random, scratch: Scratch, base: Path) -> tuple[Command, ...]:
    """Write the input of a case; its commands."""
    names = [f"theirs/{number}/{_write(random, scratch.work / 'theirs' / str(number))}" for number in range(FILES)]
    given = ["theirs"] if random.random() < 0.2 else names
    flags: list[str] = []
    for flag, value in (("--device", "cuda"), ("--model-id", "gpt2"), ("--precision", "float16")):
        flags += [flag, value] if random.random() < 0.5 else []
    if random.random() < 0.2:
        flags += ["--format", random.choice(recordings()).relative_to(FIXTURES / "imports").parts[0]]
    copied(database(base), scratch.work / "mine.duckdb")
    words = ("import", *given, *flags, "--db-path", "mine.duckdb")
    imported = Command(words=words, writes=("work/mine.duckdb",), lines=LINES * FILES + 3, limit_s=60)
    return (imported, verifying("mine.duckdb", must_hold=True), reading(random, "mine.duckdb"))


def _write(random: Random, folder: Path) -> str:
    source = random.choice(recordings())
    content = file_mutated(random, source.read_bytes())
    name = source.name
    if random.random() < 0.05:
        content, name = gzip.compress(content), f"{name}.gz"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(content)
    return name
