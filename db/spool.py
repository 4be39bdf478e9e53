"""Run files: reads them, and loads them into a warehouse. A bad file is refused with its reason; the others go in."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from benchmarking.core.errors import FormatError, StorageError
from benchmarking.core.records import Run, run_from_json

if TYPE_CHECKING:
    from db.warehouse import Warehouse

UNFINISHED = ".partial.jsonl"
"""Ending of the file of a run that was not finished."""
SUMMARY = "benchmark_summary.json"
"""What `batch_benchmark` writes beside the runs: it repeats what is in them, and is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """A run and the file it was read from."""

    path: Path
    sha256: str
    """Hex digest of the file."""
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What became of the files that were to be loaded."""

    loaded: tuple[Path, ...] = ()
    present: tuple[Path, ...] = ()
    """Stored already, from this file or another."""
    refused: tuple[tuple[Path, str], ...] = ()
    """With the reason."""


def read_run(path: Path) -> RunFile:
    """The run in a file. Raises FormatError for one that is cut off, foreign or too new; StorageError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    try:
        data = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON, or cut off: {error}") from error
    return RunFile(path=path, sha256=hashlib.sha256(content).hexdigest(), run=run_from_json(data, str(path)))


def run_files(places: Sequence[Path]) -> tuple[Path, ...]:
    """The run files named, and those in the folders named and below them, each once. Raises StorageError."""
    files = (path for place in places for path in (_entries(place, ".json") if place.is_dir() else [place]))
    return tuple(dict.fromkeys(path for path in files if path.name != SUMMARY))


def unfinished_files(places: Sequence[Path]) -> tuple[Path, ...]:
    """Files of unfinished runs in the folders named and below them. Raises StorageError."""
    return tuple(dict.fromkeys(path for place in places if place.is_dir() for path in _entries(place, UNFINISHED)))


def ingest_files(warehouse: Warehouse, paths: Sequence[Path]) -> Loaded:
    """Store the runs of all files that can be read. Raises StorageError when the warehouse cannot take them."""
    loaded: list[Path] = []
    present: list[Path] = []
    refused: list[tuple[Path, str]] = []
    for path in paths:
        try:
            is_new = warehouse.ingest_file(path)
        except FormatError as error:
            refused.append((path, str(error)))
            continue
        (loaded if is_new else present).append(path)
    return Loaded(loaded=tuple(loaded), present=tuple(present), refused=tuple(refused))


def _entries(folder: Path, ending: str) -> list[Path]:
    """Files of that ending, those of each folder before those of the folders in it. Hidden folders, and links to
    folders, which may lead round in circles, are left out."""

    def refuse(error: OSError) -> NoReturn:
        raise StorageError(f"cannot read the folder {error.filename}: {error.strerror}") from error

    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += sorted(Path(place) / name for name in names if name.endswith(ending))
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
