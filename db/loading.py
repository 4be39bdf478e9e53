"""Finds run files and loads them into a warehouse. A bad file is refused with a reason; the others are loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from benchmarking.core.errors import FormatError, StorageError, UnreadableError
from benchmarking.core.run_file import ProfileFile, RunFile, read_file

if TYPE_CHECKING:
    from db.warehouse import Warehouse

UNFINISHED = ".partial.jsonl"
"""Suffix of an unfinished run's file."""
SUMMARY = "benchmark_summary.json"
"""The summary that `batch_benchmark` writes into its folder of runs."""
OTHER_FILES = ("trace_", "onnx_comparison_")
"""Prefix of the files that `benchhouse profile` writes next to its profiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Files by outcome."""

    loaded: tuple[Path, ...] = ()
    present: tuple[Path, ...] = ()
    """Already stored, from this file or another."""
    refused: tuple[tuple[Path, str], ...] = ()
    """Path and reason."""
    compacted: tuple[Path, ...] = ()
    """The loaded files with more samples than a warehouse stores, of which only quantiles were stored."""


def store(warehouse: Warehouse, file: RunFile | ProfileFile) -> bool:
    """Store the run or profile of a file; False if it is stored already. Raises like `Warehouse.ingest`."""
    source = str(file.path.resolve())
    if isinstance(file, ProfileFile):
        return warehouse.ingest_profile(file.profile, source=source, source_sha256=file.sha256)
    return warehouse.ingest(file.run, source=source, source_sha256=file.sha256)


def run_files(places: Sequence[Path]) -> tuple[Path, ...]:
    """The given run files, and the run files in given folders at any depth, each once. Raises StorageError."""
    files = (path for place in places for path in (_files_with_suffix(place, ".json") if place.is_dir() else [place]))
    return tuple(
        dict.fromkeys(path for path in files if path.name != SUMMARY and not path.name.startswith(OTHER_FILES))
    )


def unfinished_files(places: Sequence[Path]) -> tuple[Path, ...]:
    """Files of unfinished runs in the folders, at any depth. Raises StorageError."""
    return tuple(
        dict.fromkeys(path for place in places if place.is_dir() for path in _files_with_suffix(place, UNFINISHED))
    )


def ingest_files(warehouse: Warehouse, paths: Sequence[Path]) -> Loaded:
    """Store the runs of all readable files. Raises StorageError if the warehouse cannot store them."""
    loaded: list[Path] = []
    present: list[Path] = []
    refused: list[tuple[Path, str]] = []
    compacted: list[Path] = []
    for path in paths:
        try:
            file = read_file(path)
            is_new = store(warehouse, file)
        except (FormatError, UnreadableError) as error:
            refused.append((path, str(error)))
            continue
        (loaded if is_new else present).append(path)
        if is_new and isinstance(file, RunFile) and file.is_compacted:
            compacted.append(path)
        del file  # the next one may be large too
    return Loaded(loaded=tuple(loaded), present=tuple(present), refused=tuple(refused), compacted=tuple(compacted))


def _files_with_suffix(folder: Path, ending: str) -> list[Path]:
    """Files with that suffix; the files of a folder come before those of its subfolders. Hidden folders are skipped,
    and so are links to folders, which may form cycles."""

    def refuse(error: OSError) -> NoReturn:
        raise StorageError(f"cannot read the folder {error.filename}: {error.strerror}") from error

    files: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += sorted(Path(parent) / name for name in names if name.endswith(ending))
    return files
