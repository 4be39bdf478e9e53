"""Imports other tools' result files one by one: a bad file is refused and the others are stored.

The user's own values (`GivenValues`) replace or complete those in a file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from benchmarking.core.errors import FormatError, StorageError, UnreadableError
from benchmarking.core.large_samples import large_samples
from benchmarking.core.records import FORMAT, Device, Json, Origin, Precision, Result, Run, canonical_hash
from db.importers.support.building import content_id, foreign_hardware, iso
from db.importers.support.files import ForeignFile, NoResultsError, importer_for, read_file, recognising

State = Literal["imported", "present", "nothing", "unknown", "refused"]
Store = Callable[[Sequence[Run], ForeignFile], int]
"""Stores the runs of a file together; returns how many of them are new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The outcome for one file."""

    path: Path
    state: State
    """imported; present: already stored; nothing: recognized, but without numbers of its own; unknown: no importer
    recognizes it; refused: damaged, or not of the given format."""
    format: str | None = None
    reason: str | None = None
    """Why it was not imported."""
    runs: int = 0
    new_runs: int = 0
    results: int = 0
    samples: int = 0
    doubts: Mapping[str, int] = field(default_factory=dict)
    """Kind of doubt -> number of results that have it."""
    models: tuple[str, ...] = ()
    compacted: bool = False
    """Whether statistics and quantiles were stored instead of too many samples."""
    nameless: int = 0
    """Runs without the name of a device or processor."""


def files_in(places: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """The given files (True), and all files below the given folders (False) except hidden ones.

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


def import_file(path: Path, is_named: bool, format_name: str | None, given: GivenValues, store: Store) -> Imported:
    """Import a file. An unrecognized file is refused if it was named, but only reported if it was in a folder.

    Raises StorageError if the warehouse cannot store it.
    """
    try:
        file = read_file(path)
        if is_run_file(file):
            return Imported(path=path, state="refused" if is_named else "unknown", reason=run_file_advice(path))
        if format_name is None and not is_named and not recognising(file):
            is_broken = file.json_problem is not None and path.suffix == ".json"
            reason = file.json_problem or file.description
            return Imported(path=path, state="refused" if is_broken else "unknown", reason=reason)
        importer = importer_for(file, format_name)
    except (FormatError, UnreadableError) as error:
        return Imported(path=path, state="refused" if is_named else "unknown", reason=str(error))
    try:
        runs = [given.applied_to(run) for run in importer.runs(file)]
        file = file.without_content()  # frees memory for storing
        new_runs = store(runs, file) if runs else 0
    except NoResultsError as error:
        return Imported(path=path, state="nothing", format=importer.name, reason=str(error))
    except FormatError as error:
        return Imported(path=path, state="refused", format=importer.name, reason=str(error))
    return _imported(path, importer.name, runs, new_runs)


def is_run_file(file: ForeignFile) -> bool:
    """Whether the file is one of our own run files."""
    return isinstance(file.json, dict) and file.json.get("format") == FORMAT


def run_file_advice(path: Path) -> str:
    """What to do with one of our own run files."""
    return f"{path}: a run file of this program: load it with setup_benchmark_db --ingest"


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
        compacted=any(one.quantiles is not None for one in large_samples(runs)),
        nameless=sum(run.hardware.device.name is None and run.hardware.cpu_model is None for run in runs),
        models=tuple(dict.fromkeys(run.cell.workload.model_id for run in runs)),
        reason=None if runs else "it is empty",
    )


def _cannot_read(error: OSError) -> None:
    raise StorageError(f"cannot read the folder {error.filename}: {error.strerror}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenValues:
    """Values from the user for imported runs. A value they replace is kept in `origin.kept["replaced"]`."""

    model_id: str | None = None
    device: str | None = None
    """Value of `--device`: cpu, cuda, cuda:1, ..."""
    device_name: str | None = None
    """The vendor's name of the model."""
    precision: Precision | None = None
    started_at: datetime | None = None
    """Naive UTC."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Added to the tags of the file. The id of a run does not depend on tags."""

    def applied_to(self, run: Run) -> Run:
        """The run with these values, on which its ids and hardware_id then depend."""
        tagged = replace(run, provenance=replace(run.provenance, tags={**run.provenance.tags, **self.tags}))
        values = self._values()
        if not values:
            return tagged
        changed = self._changed(tagged)
        dated = changed if self.started_at is None else _at(changed, self.started_at)
        return _renamed(dated, canonical_hash(values))

    def _values(self) -> dict[str, Json]:
        values: dict[str, Json] = {
            "model_id": self.model_id,
            "device": self.device,
            "device_name": self.device_name,
            "precision": self.precision,
            "started_at": None if self.started_at is None else iso(self.started_at),
        }
        return {name: value for name, value in values.items() if value is not None}

    def _changed(self, run: Run) -> Run:
        cell, hardware = run.cell, run.hardware
        device = self._device(cell.device)
        workload = replace(cell.workload, model_id=self.model_id or cell.workload.model_id)
        return replace(
            run,
            cell=replace(
                cell,
                workload=workload,
                device=device,
                requested_device=device.selector,
                precision=self.precision or cell.precision,
            ),
            hardware=foreign_hardware(
                device, hardware.cpu_model, hardware.cpu_cores, hardware.cpu_threads, hardware.memory_bytes
            ),
            origin=None if run.origin is None else self._origin(run, run.origin),
        )

    def _device(self, device: Device) -> Device:
        selector = self.device or device.selector
        return replace(
            device,
            type=device.type if self.device is None else selector.partition(":")[0],
            selector=selector,
            name=self.device_name or device.name,
        )

    def _origin(self, run: Run, origin: Origin) -> Origin:
        file_values: dict[str, Json] = {
            "model_id": run.cell.workload.model_id,
            "device": run.cell.device.selector,
            "device_name": run.cell.device.name,
            "precision": run.cell.precision,
            "started_at": run.started_at,
        }
        replaced = {name: file_values[name] for name, value in self._values().items() if file_values[name] != value}
        return replace(origin, kept={**origin.kept, "replaced": replaced}) if replaced else origin


def _at(run: Run, time: datetime) -> Run:
    """The run moved to that time, with the same duration, and without the doubt about its date."""
    duration = datetime.fromisoformat(run.finished_at) - datetime.fromisoformat(run.started_at)
    try:
        finished = time + duration
    except OverflowError as error:
        raise FormatError(f"a run of {duration} cannot start at {iso(time)}: choose another date") from error
    results = tuple(_result_at(result, iso(time)) for result in run.results)
    return replace(run, started_at=iso(time), finished_at=iso(finished), results=results)


def _result_at(result: Result, time: str) -> Result:
    doubts = tuple(doubt for doubt in result.doubts if doubt.kind != "undated")
    return replace(result, doubts=doubts, samples=tuple(replace(one, started_at=time) for one in result.samples))


def _renamed(run: Run, words: str) -> Run:
    results = tuple(replace(one, result_id=content_id(one.result_id, words)) for one in run.results)
    return replace(run, run_id=content_id(run.run_id, words), results=results)
