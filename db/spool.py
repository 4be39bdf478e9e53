"""Reads run files, and loads them into a warehouse. A bad file is refused with a reason; the others are loaded."""

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
"""Suffix of the file of an unfinished run."""
SUMMARY = "benchmark_summary.json"
"""The summary that `batch_benchmark` writes into the folder of its runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """A run and the file it was read from."""

    path: Path
    sha256: str
    """Hex digest of the file."""
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Files by outcome."""

    loaded: tuple[Path, ...] = ()
    present: tuple[Path, ...] = ()
    """Already stored, from this file or another."""
    refused: tuple[tuple[Path, str], ...] = ()
    """With the reason."""


def read_run(path: Path) -> RunFile:
    """The run in a file. Raises FormatError for a truncated, foreign or too new one; StorageError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    try:
        data = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON, or truncated: {error}") from error
    return RunFile(path=path, sha256=hashlib.sha256(content).hexdigest(), run=run_from_json(data, str(path)))


def run_files(places: Sequence[Path]) -> tuple[Path, ...]:
    """The run files among the places, and those in folders among them at any depth, each once. Raises StorageError."""
    files = (path for place in places for path in (_entries(place, ".json") if place.is_dir() else [place]))
    return tuple(dict.fromkeys(path for path in files if path.name != SUMMARY))


def unfinished_files(places: Sequence[Path]) -> tuple[Path, ...]:
    """Files of unfinished runs in the folders, at any depth. Raises StorageError."""
    return tuple(dict.fromkeys(path for place in places if place.is_dir() for path in _entries(place, UNFINISHED)))


def ingest_files(warehouse: Warehouse, paths: Sequence[Path]) -> Loaded:
    """Store the runs of all readable files. Raises StorageError if the warehouse cannot store them."""
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
    """Files with that suffix, those of a folder before those of its subfolders. Hidden folders and links to folders,
    which may form cycles, are skipped."""

    def refuse(error: OSError) -> NoReturn:
        raise StorageError(f"cannot read the folder {error.filename}: {error.strerror}") from error

    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += sorted(Path(place) / name for name in names if name.endswith(ending))
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
