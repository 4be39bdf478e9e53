"""The build cache: records of builds, links, names."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from benchmarking.builds.store import RECORD
from tests.fuzz.base import write_cache
from tests.fuzz.mutations import WORDS, file_mutated
from tests.fuzz.sandbox import Command, Scratch


def make(random: Random, scratch: Scratch, base: Path) -> tuple[Command, ...]:
    """Write the input of a case; its commands."""
    folders = write_cache(scratch.work / "theirs")
    for folder in folders:
        record = folder / RECORD
        match random.randrange(8):
            case 0:
                record.unlink()
                record.symlink_to(random.choice(("../../../../outside/canary.txt", "/dev/zero", "nothing")))
            case 1:
                record.unlink()
                os.mkfifo(record)
            case 2:
                (folder.parent / random.choice(("..x", "x" * 64, "\x1b[31m", "=1+1"))).mkdir()
                (folder / "linked").symlink_to("../../../../outside")
            case 3:
                (folder.parent / folder.name[::-1]).symlink_to("../../../outside")
            case _:
                record.write_bytes(file_mutated(random, record.read_bytes()))
    hostile = random.choice(WORDS).replace("\0", "")
    actions = (
        ("list",),
        ("list", "--json"),
        ("stats", "--json"),
        ("report",),
        ("report", "--output", "made.csv"),
        ("delete", "--all", "--yes"),
        ("delete", hostile),
        ("delete", "--kind", "onnx"),
        ("delete", "--model", hostile),
        ("delete", "--older-than", hostile),
    )
    words = ("cache", *random.choice(actions), "--cache-dir", "theirs")
    return (Command(words=words, writes=("work/theirs", "work/made.csv")),)
