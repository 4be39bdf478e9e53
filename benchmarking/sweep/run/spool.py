"""The spool: each finished point is on disk before the next one starts, and each finished run is one file.

A run in progress is `<name>.partial.jsonl`: the plan in the first line, then a line per load and measurement, each
synced to disk. A line with another plan voids all lines above: a cell of a cluster was moved to another machine after
the first one left without a result. At the end of the run, `<name>.json` replaces the file by an atomic rename.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core.errors import FormatError, StorageError
from benchmarking.core.provenance import Owner
from benchmarking.core.records import (
    Cell,
    LaunchLoad,
    Measurement,
    Preparation,
    Run,
    dumps,
    from_json,
    run_from_json,
    to_json,
)
from benchmarking.core.temporary import remove_leftovers, temporary_folder
from benchmarking.core.untrusted.redaction import expanded, redacted
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run import journal

PARTIAL_SUFFIX = ".partial.jsonl"
PARTIAL_FORMAT = "benchhouse-partial"
PARTIAL_VERSION = 1
PLAN = "Plan"
"""Key of a line with another plan."""
HEAD_BYTES = 400
"""Bytes read from the start of a run file, which contain its run id."""
IDS = re.compile(rb'"run_id": "([0-9a-f-]{36})",\s*"session_id": "([0-9a-f-]{36})"')
MAX_NAME_LENGTH = 200
"""Maximum characters of a run file's name without its suffix; file systems allow 255 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The content of an unfinished run."""

    plan: CellPlan
    preparation: Preparation | None
    """The latest one; None if there is none yet, or none is needed."""
    loads: tuple[LaunchLoad, ...]
    measurements: tuple[Measurement, ...]
    owner: Owner | None
    """The process that last wrote it."""


class PartialRun:
    """The file of a run in progress."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, folder: Path, plan: CellPlan) -> PartialRun:
        """A new file in `folder` with the plan. Raises StorageError."""
        header = {
            "format": PARTIAL_FORMAT,
            "version": PARTIAL_VERSION,
            "plan": redacted(to_json(plan), anonymous=plan.is_anonymous),
        }
        paths = (folder / f"{name}{PARTIAL_SUFFIX}" for name in _names(plan))
        return cls(journal.create(paths, header, lambda path: not cls(path).final_path.exists()))

    @property
    def final_path(self) -> Path:
        """The file of the finished run."""
        return self.path.with_name(self.path.name.removesuffix(PARTIAL_SUFFIX) + ".json")

    def append(self, record: Preparation | LaunchLoad | Measurement) -> None:
        """Append a record, synced to disk. Raises StorageError."""
        with self._storage_errors():
            journal.append(self.path, type(record).__name__, dumps(redacted(to_json(record))))

    def replan(self, plan: CellPlan) -> None:
        """Void the content of the file and continue with this plan. Raises StorageError."""
        with self._storage_errors():
            journal.append(self.path, PLAN, dumps(redacted(to_json(plan), anonymous=plan.is_anonymous)))

    def claim(self) -> None:
        """Record this process as the owner of the file. Raises StorageError."""
        with self._storage_errors():
            journal.claim(self.path)

    def run_file(self) -> Path | None:
        """Its run file, if it was written before the process was killed. Raises StorageError if another run's file is
        in its place."""
        if not self.final_path.exists():
            return None
        if run_id_in(self.final_path) != self.read().plan.run_id:
            raise StorageError(f"{self.final_path} already exists and is not the run of {self.path}: move one of them")
        return self.final_path

    def remove(self) -> None:
        """Delete the file. Raises StorageError."""
        try:
            self.path.unlink()
        except OSError as error:
            raise StorageError(f"cannot remove {self.path}: {error.strerror}") from error

    def finish(self, run: Run) -> Path:
        """Write the finished run and delete the partial file. Raises StorageError; the partial file then stays."""
        try:
            journal.replace(
                self.final_path,
                json.dumps(redacted(to_json(run)), ensure_ascii=False, allow_nan=False, indent=1) + "\n",
            )
            self.path.unlink()
        except OSError as error:
            raise StorageError(
                f"cannot write {self.final_path}: {error.strerror}; everything measured is in {self.path}"
            ) from error
        return self.final_path

    def read(self) -> Progress:
        """The content of the file, without an incomplete last line. Raises FormatError."""
        lines = journal.read(self.path, PARTIAL_FORMAT, PARTIAL_VERSION, "an unfinished benchhouse run")
        start = max(number for number, line in enumerate(lines) if number == 0 or PLAN in line)
        plan, records = lines[start].get(PLAN if start else "plan"), lines[start:]
        preparations = [record["Preparation"] for record in records if "Preparation" in record]
        loads = [record["LaunchLoad"] for record in records if "LaunchLoad" in record]
        measurements = [record["Measurement"] for record in records if "Measurement" in record]
        return Progress(
            plan=from_json(CellPlan, expanded(plan), f"{self.path}: plan"),
            preparation=from_json(Preparation, preparations[-1], f"{self.path}: preparation") if preparations else None,
            loads=tuple(from_json(LaunchLoad, load, f"{self.path}: load") for load in loads),
            measurements=tuple(from_json(Measurement, one, f"{self.path}: measurement") for one in measurements),
            owner=journal.owner(self.path, lines),
        )

    def repair(self) -> None:
        """Remove an incomplete last line, before more are appended. Raises StorageError."""
        journal.repair(self.path)

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"cannot write to {self.path}: {error.strerror}; it holds everything measured so far: "
                "free some space, then run_hardware_benchmark --resume"
            ) from error


def run_id_in(path: Path) -> str | None:
    """The id of the run in a run file, from its start; None for another file."""
    return None if (ids := ids_in(path)) is None else ids[0]


def ids_in(path: Path) -> tuple[str, str] | None:
    """The ids of the run and the session in a run file, from its start; None for another file."""
    try:
        with journal.opened(path, "rb") as file:  # neither a link nor a pipe, since other JSON files may be anything
            match = IDS.search(file.read(HEAD_BYTES) or b"")
    except OSError:
        return None
    return None if match is None else (match[1].decode(), match[2].decode())


def read_run(path: Path) -> Run:
    """The run in a run file. Raises FormatError, StorageError."""
    try:
        return run_from_json(json.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON: {error}") from error


def prepare(folder: Path) -> None:
    """Create the folder, check that it is writable, and remove leftovers of killed processes. Raises StorageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StorageError(f"cannot write to output folder {folder}: {error.strerror}; choose another path") from error
    remove_leftovers(folder)


@contextmanager
def opened_folder(output_dir: Path | None) -> Iterator[Path]:
    """The output folder, ready to be written to; a temporary one for None. Raises StorageError."""
    if output_dir is not None:
        prepare(output_dir)
        yield output_dir
        return
    with temporary_folder("benchhouse-run") as folder:
        yield folder


def unfinished(folder: Path) -> Sequence[PartialRun]:
    """The unfinished runs in a folder, oldest first."""
    paths = folder.glob(f"*{PARTIAL_SUFFIX}")
    return [PartialRun(path) for path in sorted(paths, key=lambda path: (path.stat().st_mtime_ns, path.name))]


def _names(plan: CellPlan) -> Iterator[str]:
    """File names for the run, the first one without a number."""
    base = file_name(plan.cell, plan.started_at)
    yield base
    number = 1
    while True:
        number += 1
        yield f"{base}-{number}"


def file_name(cell: Cell, started_at: str) -> str:
    """The name of a file about a cell, without an ending: model, device, runtime, precision and time."""
    stamp = re.sub(r"[-:]", "", started_at.split(".")[0].removesuffix("Z")) + "Z"
    parts = (cell.workload.model_id, cell.device.selector, cell.runtime, cell.precision, stamp)
    model, *others = (re.sub(r"[^A-Za-z0-9.-]+", "-", part).strip("-.") for part in parts)
    room = MAX_NAME_LENGTH - sum(len(other) + 1 for other in others)
    if len(model) > room:
        digest = hashlib.sha256(cell.workload.model_id.encode()).hexdigest()[:8]
        model = f"{model[: room - 9]}-{digest}"
    return "_".join((model, *others))
