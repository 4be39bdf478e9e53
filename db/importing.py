"""Brings other tools' result files into a warehouse, one by one: a bad one is refused and the others go in."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarking.errors import FormatError, StorageError
from benchmarking.records import FORMAT, Run
from db.importers import ForeignFile, importer_for, read_file, recognising
from db.importers._given import Given

State = Literal["imported", "present", "nothing", "unknown", "refused"]
Store = Callable[[Run, ForeignFile], bool]
"""Stores a run, and says whether it is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What became of a file."""

    path: Path
    state: State
    """imported; present: all of it is stored already; nothing: known, but no numbers of its own; unknown: no format
    knows it; refused: broken, or not what was named."""
    format: str | None = None
    reason: str | None = None
    """Of what was not imported."""
    runs: int = 0
    new_runs: int = 0
    results: int = 0
    samples: int = 0
    doubts: Mapping[str, int] = field(default_factory=dict)
    """Kind of doubt -> results that have it."""
    models: tuple[str, ...] = ()
    nameless: int = 0
    """Runs that name neither device nor processor."""


def files_in(places: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """The files named (True), and those of the folders named and of all folders in them (False), hidden ones left out.

    Raises StorageError for a folder that cannot be read.
    """
    for place in places:
        if not place.is_dir():
            yield place, True
            continue
        for folder, folders, names in os.walk(place, onerror=_cannot_read):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            paths = (Path(folder, name) for name in sorted(names) if not name.startswith("."))
            yield from ((path, False) for path in paths if path.is_file())


def import_file(path: Path, is_named: bool, format_name: str | None, given: Given, store: Store) -> Imported:
    """Import a file. One that no format knows is refused when it was named, and only told of when it lay in a folder.

    Raises StorageError when the warehouse cannot take it.
    """
    try:
        file = read_file(path)
        if is_own(file):
            return Imported(path=path, state="refused" if is_named else "unknown", reason=own_reason(path))
        if format_name is None and not is_named and not recognising(file):
            is_broken = file.json_problem is not None and path.suffix == ".json"
            return Imported(path=path, state="refused" if is_broken else "unknown", reason=file.json_problem)
        importer = importer_for(file, format_name)
    except FormatError as error:
        return Imported(path=path, state="refused" if is_named else "unknown", reason=str(error))
    try:
        runs = [given.on(run) for run in importer.runs(file)]
        new_runs = sum(store(run, file) for run in runs)
    except FormatError as error:
        return Imported(path=path, state="refused", format=importer.name, reason=str(error))
    return _imported(path, importer.name, runs, new_runs)


def is_own(file: ForeignFile) -> bool:
    """Whether the file is a run file of ours, which is no foreign one."""
    return isinstance(file.json, dict) and file.json.get("format") == FORMAT


def own_reason(path: Path) -> str:
    """What to do with a run file of ours."""
    return f"{path}: measured by this program: load it with setup_benchmark_db --ingest"


def _imported(path: Path, format_name: str, runs: Sequence[Run], new_runs: int) -> Imported:
    results = [result for run in runs for result in run.results]
    return Imported(
        path=path,
        state="imported" if new_runs else "present" if runs else "nothing",
        format=format_name,
        runs=len(runs),
        new_runs=new_runs,
        results=len(results),
        samples=sum(len(samples.values) for result in results for samples in result.samples),
        doubts=dict(Counter(doubt.kind for result in results for doubt in result.doubts)),
        nameless=sum(run.hardware.device.name is None and run.hardware.cpu_model is None for run in runs),
        models=tuple(dict.fromkeys(run.cell.workload.model_id for run in runs)),
        reason=None if runs else "it holds no numbers that another file beside it has not",
    )


def _cannot_read(error: OSError) -> None:
    raise StorageError(f"cannot read the folder {error.filename}: {error.strerror}") from error
