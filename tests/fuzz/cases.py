"""Cases: made from a target, seed and number, or kept as files; run, reduced to the input that matters, and kept."""

from __future__ import annotations

import dataclasses
import importlib
import json
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.fuzz.sandbox import Command, Problem, Scratch, run_all

TARGETS = (
    "run_files",
    "foreign_files",
    "databases",
    "words",
    "yaml_files",
    "caches",
    "unfinished",
    "model_folders",
)
KEPT = Path(__file__).with_name("kept")
COMMANDS = "commands.json"
INPUT = "input"


@contextmanager
def made(name: str, seed: int, number: int, base: Path) -> Iterator[tuple[Scratch, tuple[Command, ...]]]:
    """The folders and commands of a case."""
    target = importlib.import_module(f"tests.fuzz.targets.{name}")
    with _scratch(base) as scratch:
        yield scratch, target.make(Random(f"{seed} {name} {number}"), scratch, base)


def run_case(name: str, seed: int, number: int, base: Path) -> list[Problem]:
    """The problems of a new case."""
    with made(name, seed, number, base) as (scratch, commands):
        return run_all(scratch, commands)


@contextmanager
def shrunk(
    name: str, seed: int, number: int, base: Path, problem: Problem
) -> Iterator[tuple[Scratch, tuple[Command, ...]]]:
    """The case, not run yet, without the files of its folders that the problem does not need."""
    gone: set[str] = set()
    with made(name, seed, number, base) as (scratch, _):
        names = sorted(path.relative_to(scratch.work).as_posix() for path in scratch.work.glob("*/*"))
    size = len(names) // 2
    while size:
        for start in range(0, len(names), size):
            tried = gone | set(names[start : start + size])
            with made(name, seed, number, base) as (scratch, commands):
                _remove(scratch, tried)
                if any(one.kind == problem.kind for one in run_all(scratch, commands)):
                    gone = tried
        names = [one for one in names if one not in gone]
        size //= 2
    with made(name, seed, number, base) as (scratch, commands):
        _remove(scratch, gone)
        yield scratch, commands


def _remove(scratch: Scratch, names: set[str]) -> None:
    for name in names:
        path = scratch.work / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def keep(folder: Path, scratch: Scratch, commands: Sequence[Command], problem: Problem) -> None:
    """Write the input and the commands of a case to a folder."""
    folder.mkdir(parents=True)
    text = json.dumps(
        {"problem": dataclasses.asdict(problem), "commands": [dataclasses.asdict(one) for one in commands]}, indent=1
    )
    (folder / COMMANDS).write_text(text + "\n")
    shutil.copytree(scratch.work, folder / INPUT, symlinks=True, ignore=_pipes)


def _pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (path := Path(folder, name)).is_fifo() or path.name == "base.duckdb"]


def kept() -> list[str]:
    """The names of the kept cases."""
    return sorted(path.parent.name for path in KEPT.glob(f"*/{COMMANDS}"))


def run_kept(name: str, base: Path) -> list[Problem]:
    """The problems of a kept case: none, once they are mended."""
    data = json.loads((KEPT / name / COMMANDS).read_text())
    commands = [
        Command(**{key: tuple(value) if isinstance(value, list) else value for key, value in one.items()})
        for one in data["commands"]
    ]
    with _scratch(base) as scratch:
        shutil.copytree(KEPT / name / INPUT, scratch.work, symlinks=True, dirs_exist_ok=True)
        return run_all(scratch, commands)


@contextmanager
def _scratch(base: Path) -> Iterator[Scratch]:
    root = base / uuid.uuid4().hex[:12]
    try:
        yield Scratch(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
