"""The spool: every finished point is on disk before the next one starts, and a finished run is one file.

A run in progress is `<name>.partial.jsonl`: the plan in the first line, then one line for each load and measurement,
each flushed and synced. At the end of the run one `<name>.json` takes its place by an atomic rename.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarking.errors import FormatError, StorageError
from benchmarking.records import LaunchLoad, Measurement, Run, dumps, from_json, to_json
from benchmarking.sweep.plan import CellPlan

PARTIAL_SUFFIX = ".partial.jsonl"
PARTIAL_FORMAT = "benchhouse-partial"
PARTIAL_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process that is or was at work on a run."""

    host: str
    pid: int
    created_s: float
    """Start of the process in Unix seconds: a process id alone comes back one day."""

    def is_alive(self) -> bool:
        """True while the process runs on this machine."""
        import psutil

        if self.host != platform.node():
            return False
        try:
            return psutil.Process(self.pid).create_time() == self.created_s
        except psutil.NoSuchProcess:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What an unfinished run has so far."""

    plan: CellPlan
    loads: tuple[LaunchLoad, ...]
    measurements: tuple[Measurement, ...]
    owner: Owner | None
    """The process that was last at work on it."""


class PartialRun:
    """The file of a run in progress."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, folder: Path, plan: CellPlan) -> PartialRun:
        """A new file in `folder` that holds the plan. Raises StorageError."""
        for name in _names(plan):
            partial = cls(folder / f"{name}{PARTIAL_SUFFIX}")
            try:
                os.close(os.open(partial.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                continue
            except OSError as error:
                raise StorageError(f"cannot write to {folder}: {error.strerror}") from error
            if partial.final_path.exists():  # looked up only now, when the name is ours: it cannot appear any more
                partial.path.unlink()
                continue
            header = {"format": PARTIAL_FORMAT, "version": PARTIAL_VERSION, "plan": to_json(plan)}
            partial._append(json.dumps(header, ensure_ascii=False, allow_nan=False))
            partial.take()
            _sync_folder(folder)
            return partial
        raise AssertionError("the names never end")

    @property
    def final_path(self) -> Path:
        """Where the finished run goes."""
        return self.path.with_name(self.path.name.removesuffix(PARTIAL_SUFFIX) + ".json")

    def append(self, record: LaunchLoad | Measurement) -> None:
        """Keep a load or a measurement, safe on disk when this returns. Raises StorageError."""
        self._append(f'{{"{type(record).__name__}":{dumps(record)}}}')

    def take(self) -> None:
        """Write down that this process is the one at work on the file. Raises StorageError."""
        self._append(f'{{"Owner":{dumps(_this_process())}}}')

    def finish(self, run: Run) -> Path:
        """Write the finished run and drop the partial file. Raises StorageError, the partial file then stays."""
        temporary = self.final_path.with_name(f".{self.final_path.name}.tmp")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(json.dumps(to_json(run), ensure_ascii=False, allow_nan=False, indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.final_path)
            _sync_folder(self.path.parent)
            self.path.unlink()
        except OSError as error:
            raise StorageError(
                f"cannot write {self.final_path}: {error.strerror}; what was measured is in {self.path}"
            ) from error
        return self.final_path

    def read(self) -> Progress:
        """What is in the file. A last line that was cut off by a crash does not count. Raises FormatError."""
        try:
            lines = self.path.read_text(encoding="utf-8").split("\n")
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror}") from error
        records = [self._parse(line, number) for number, line in enumerate(lines[:-1], start=1)]
        if not records or records[0].get("format") != PARTIAL_FORMAT:
            raise FormatError(f"{self.path}: not an unfinished benchhouse run")
        if records[0].get("version") != PARTIAL_VERSION:
            raise FormatError(f"{self.path}: version {records[0].get('version')!r} is not {PARTIAL_VERSION}")
        loads = [record["LaunchLoad"] for record in records if "LaunchLoad" in record]
        measurements = [record["Measurement"] for record in records if "Measurement" in record]
        owners = [record["Owner"] for record in records if "Owner" in record]
        return Progress(
            plan=from_json(CellPlan, records[0]["plan"], f"{self.path}: plan"),
            loads=tuple(from_json(LaunchLoad, load, f"{self.path}: load") for load in loads),
            measurements=tuple(from_json(Measurement, one, f"{self.path}: measurement") for one in measurements),
            owner=from_json(Owner, owners[-1], f"{self.path}: owner") if owners else None,
        )

    def mend(self) -> None:
        """Cut off an unfinished last line, so that appending goes on behind whole ones. Raises StorageError."""
        try:
            with self.path.open("r+b") as file:
                content = file.read()
                file.truncate(content.rfind(b"\n") + 1)
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror}") from error

    def _append(self, line: str) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"cannot write to {self.path}: {error.strerror}; what was measured before is in it: "
                "make room, then run_hardware_benchmark --resume"
            ) from error

    def _parse(self, line: str, number: int) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except ValueError as error:
            raise FormatError(f"{self.path}:{number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise FormatError(f"{self.path}:{number}: not an object")
        return record


def prepare(folder: Path) -> None:
    """Make the folder and see that it can be written to. Raises StorageError."""
    probe = folder / f".{os.getpid()}.probe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise StorageError(f"cannot write to output folder {folder}: {error.strerror}; name another") from error


def unfinished(folder: Path) -> Sequence[PartialRun]:
    """The unfinished runs in a folder, oldest first."""
    paths = folder.glob(f"*{PARTIAL_SUFFIX}")
    return [PartialRun(path) for path in sorted(paths, key=lambda path: (path.stat().st_mtime_ns, path.name))]


def _this_process() -> Owner:
    import psutil

    return Owner(host=platform.node(), pid=os.getpid(), created_s=psutil.Process().create_time())


def _names(plan: CellPlan) -> Any:
    """File names of the run, the plain one first."""
    cell = plan.cell
    stamp = re.sub(r"[-:]", "", plan.started_at.split(".")[0].removesuffix("Z")) + "Z"
    parts = (cell.workload.model_id, cell.device.selector, cell.runtime, cell.precision, stamp)
    base = "_".join(re.sub(r"[^A-Za-z0-9.-]+", "-", part).strip("-.") for part in parts)
    yield base
    number = 1
    while True:
        number += 1
        yield f"{base}-{number}"


def _sync_folder(folder: Path) -> None:
    """Make a new name in the folder survive a power cut, where folders can be synced."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
