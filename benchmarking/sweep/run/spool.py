"""The spool: each finished point is on disk before the next one starts, and each finished run is one file.

A run in progress is `<name>.partial.jsonl`: the plan in the first line, then a line per load and measurement, each
synced to disk. A line with another plan voids all lines above: a cell of a cluster was moved to another machine after
the first one left without a result. At the end of the run, `<name>.json` replaces the file by an atomic rename.

`--output` names a further file, which a command writes its results to.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from benchmarking.core.command_line import note
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import FormatError, StorageError, UsageError, storage_errors
from benchmarking.core.quality import Quality
from benchmarking.core.records import Cell, Json, LaunchLoad, Measurement, Preparation, Run, dumps, from_json, to_json
from benchmarking.core.run_file import read_run
from benchmarking.core.storage_paths import check_folder
from benchmarking.core.temporary import remove_leftovers, temporary_folder
from benchmarking.core.untrusted.redaction import expanded, redacted
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run import journal

Record = Preparation | LaunchLoad | Measurement | Quality
"""What a run in progress consists of."""
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


class Progress:
    """The content of an unfinished run, from the first plan of its file on."""

    def __init__(self, plan: CellPlan) -> None:
        self.lines = 1
        """The lines of the file that it was read from; the next one is damaged or contradicts them."""
        self._begin(plan)

    def _begin(self, plan: CellPlan) -> None:
        self.plan = plan
        self.preparation: Preparation | None = None
        """The latest one; None if there is none yet, or none is needed."""
        self.loads: tuple[LaunchLoad, ...] = ()
        self.quality: Quality | None = None
        self._measured: dict[tuple[str, int], Measurement] = {}
        self._labels = {point.label for point in plan.points}

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        return tuple(self._measured.values())

    @property
    def records(self) -> tuple[tuple[LaunchLoad, ...], tuple[Measurement, ...], Preparation | None, Quality | None]:
        """What a `Track` begins with."""
        return self.loads, self.measurements, self.preparation, self.quality

    def add(self, record: journal.Record, where: str) -> bool:
        """Add a line; False if it contradicts the plan or an earlier line. Raises FormatError."""
        planned = range(self.plan.settings.launches)
        if PLAN in record:
            self._begin(from_json(CellPlan, expanded(record[PLAN]), where))
        elif "Preparation" in record:
            self.preparation = from_json(Preparation, record["Preparation"], where)
        elif "Quality" in record:
            self.quality = from_json(Quality, record["Quality"], where)
        elif "LaunchLoad" in record:
            load = from_json(LaunchLoad, record["LaunchLoad"], where)
            if load.launch not in planned:
                return False
            self.loads += (load,)
        elif "Measurement" in record:
            measured = from_json(Measurement, record["Measurement"], where)
            key = (measured.point.label, measured.launch)
            series = [(samples.launch, samples.phase, samples.metric) for samples in measured.samples]
            is_consistent = (
                measured.launch in planned
                and measured.point.label in self._labels
                and key not in self._measured
                and len(set(series)) == len(series)
                and all(launch == measured.launch for launch, *_ in series)
            )
            if is_consistent:
                self._measured[key] = measured
            return is_consistent
        return True


class PartialRun:
    """The file of a run in progress. Who continues it holds its lock from the first reading to the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: journal.Hold | None = None

    @classmethod
    def create(cls, folder: Path, plan: CellPlan) -> PartialRun:
        """A new file in `folder` with the plan, locked. Raises StorageError."""
        header = {
            "format": PARTIAL_FORMAT,
            "version": PARTIAL_VERSION,
            "plan": redacted(to_json(plan), anonymous=plan.is_anonymous),
        }
        name = file_name(plan.cell, plan.started_at, is_anonymous=plan.is_anonymous)
        paths = (folder / f"{name}{ending}{PARTIAL_SUFFIX}" for ending in journal.endings())
        held = journal.create(paths, header, lambda path: not cls(path).final_path.exists())
        created = cls(held.path)
        created._held = held
        return created

    @property
    def final_path(self) -> Path:
        """The file of the finished run."""
        return self.path.with_name(self.path.name.removesuffix(PARTIAL_SUFFIX) + ".json")

    def hold(self) -> bool:
        """Lock the file until `release`; False if another process has finished it. Raises LockedError, StorageError."""
        self._held = self._held or journal.hold(self.path)
        return self._held is not None

    def release(self) -> None:
        """End the lock, if it is held."""
        if self._held is not None:
            self._held.release()
            self._held = None

    def append(self, record: Record) -> None:
        """Append a record, synced to disk. Raises StorageError."""
        with self._storage_errors():
            journal.append(self.path, type(record).__name__, dumps(redacted(to_json(record))))

    def replan(self, plan: CellPlan) -> None:
        """Void the content of the file and continue with this plan. Raises StorageError."""
        with self._storage_errors():
            journal.append(self.path, PLAN, dumps(redacted(to_json(plan), anonymous=plan.is_anonymous)))

    def take_over(self, progress: Progress) -> None:
        """Continue the held file: record this process as its owner, after removing what `read` left out of `progress`.
        Raises StorageError."""
        copy = journal.repair(self.path, progress.lines)
        if copy is not None:
            note(
                f"{self.path}: repaired: line {progress.lines + 1} is damaged or contradicts the lines above, so the "
                f"file ends before it, and the points after it are measured again; {copy.name} has all lines"
            )
        with self._storage_errors():
            journal.claim(self.path)

    def run_file(self) -> Path | None:
        """Its run file, if it was written before the process was killed; None for one that could not be stored, which
        `write` replaces. Raises StorageError if another run's file is in its place."""
        if not self.final_path.exists():
            return None
        self._check_place(self.read().plan.run_id)
        try:
            read_run(self.final_path)
        except FormatError as error:
            note(f"{error}: this run file is made again from {self.path.name}")
            return None
        return self.final_path

    def remove(self) -> None:
        """Delete the file. Raises StorageError."""
        with storage_errors(f"cannot remove {self.path}"):
            self.path.unlink()
        self.release()

    def write(self, run: Run) -> Path:
        """Write the finished run, and read it back as the database does. The partial file stays, for `remove`. Raises
        StorageError."""
        self._check_place(run.run_id)
        try:
            journal.replace(self.final_path, document_text(run))
            read_run(self.final_path)
        except OSError as error:
            raise StorageError(
                f"cannot write {self.final_path}: {error.strerror}; everything measured is in {self.path}"
            ) from error
        except StorageError as error:
            raise StorageError(f"cannot be read back: {error}; everything measured is in {self.path}") from error
        return self.final_path

    def read(self) -> Progress:
        """The longest beginning of the file whose lines are complete and consistent. Raises FormatError for a file
        without a plan, StorageError."""
        header, *records = journal.read(self.path, PARTIAL_FORMAT, PARTIAL_VERSION, "an unfinished benchhouse run")
        progress = Progress(from_json(CellPlan, expanded(header.get("plan")), f"{self.path}: plan"))
        with suppress(FormatError):
            while progress.lines <= len(records) and progress.add(
                records[progress.lines - 1], f"{self.path}:{progress.lines + 1}"
            ):
                progress.lines += 1
        return progress

    def _check_place(self, run_id: str) -> None:
        if self.final_path.exists() and (ids_in(self.final_path) or ("", ""))[0] != run_id:
            raise StorageError(f"{self.final_path} already exists and is not the run of {self.path}: move one of them")

    def _storage_errors(self) -> AbstractContextManager[None]:
        advice = f"it holds everything measured so far: free some space, then {as_typed('run')} --resume"
        return storage_errors(f"cannot write to {self.path}", advice)


def ids_in(path: Path) -> tuple[str, str] | None:
    """The ids of the run and the session in a run file, from its start; None for another file."""
    try:
        with journal.opened(path, "rb") as file:  # neither a link nor a pipe, since other JSON files may be anything
            match = IDS.search(file.read(HEAD_BYTES) or b"")
    except OSError:
        return None
    return None if match is None else (match[1].decode(), match[2].decode())


def prepare(folder: Path) -> None:
    """Create the folder, check that it can be written to, and remove leftovers of killed processes. Raises
    StorageError."""
    check_folder(folder)
    with storage_errors(f"cannot create {folder}", "choose another path"):
        folder.mkdir(parents=True, exist_ok=True)
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
    files = []
    for path in folder.glob(f"*{PARTIAL_SUFFIX}"):
        with suppress(FileNotFoundError):  # finished in the meantime
            files.append((path.lstat().st_mtime_ns, path.name, PartialRun(path)))
    return [file for *_, file in sorted(files, key=lambda file: file[:2])]


def readable(files: Sequence[PartialRun], report: Callable[[StorageError], None]) -> list[tuple[PartialRun, CellPlan]]:
    """The files with their plans; of one that cannot be read, which stays as it is, the error is reported. One that
    another process has finished in the meantime is left out."""
    found = []
    for file in files:
        try:
            found.append((file, file.read().plan))
        except StorageError as error:
            if os.path.lexists(file.path):
                report(error)
    return found


@contextmanager
def held(files: Sequence[PartialRun]) -> Iterator[list[PartialRun]]:
    """The files that are still unfinished, in the given order, locked inside. Raises LockedError if another process
    holds one."""
    try:
        # The same order everywhere: one process gets them all.
        names = {file.path for file in sorted(files, key=lambda file: file.path) if file.hold()}
        yield [file for file in files if file.path in names]
    finally:
        for file in files:
            file.release()


def safe_part(text: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")


def file_name(cell: Cell, started_at: str, *, is_anonymous: bool = False) -> str:
    """The name of a file about a cell, without an ending: model, device, runtime, precision and time."""
    model_id = redacted(cell.workload.model_id, anonymous=True) if is_anonymous else cell.workload.model_id
    stamp = re.sub(r"[-:]", "", started_at.split(".")[0].removesuffix("Z")) + "Z"
    parts = (model_id, cell.device.selector, cell.runtime, cell.precision, stamp)
    model, *others = map(safe_part, parts)
    room = MAX_NAME_LENGTH - sum(len(other) + 1 for other in others)
    if len(model) > room:
        digest = hashlib.sha256(model_id.encode()).hexdigest()[:8]
        model = f"{model[: room - 9]}-{digest}"
    return "_".join((model, *others))


AUTO = "auto"
"""The value of `--output` for a name that is made here."""
RESULTS_DIR = "results"


def checked(output: str, kind: str, model_id: str) -> Path:
    """The file of `--output`, checked before anything is measured; `auto` is results/KIND_MODEL_TIME.json. Its folder
    is made when it is written. Raises UsageError if it cannot be."""
    if output == AUTO:
        model = safe_part(Path(model_id).name)
        path = Path(RESULTS_DIR) / f"{kind}_{model}_{datetime.now():%Y%m%d_%H%M%S}.json"
    else:
        path = Path(output)
    if path.is_dir():
        raise UsageError(f"--output {output} is a folder: give a file, such as {path / 'results.json'}")
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if existing != path and not existing.is_dir():
        raise UsageError(f"--output {output}: {existing} is a file: choose another path")
    if not os.access(existing, os.W_OK):
        raise UsageError(f"--output {output}: no permission to write to {existing}: choose another path")
    return path


def write(path: Path, document: Json) -> None:
    """Write a document as JSON, without secrets. Raises StorageError."""
    prepare(path.parent)
    with storage_errors(f"cannot write {path}", "choose another path"):
        journal.replace(path, document_text(document))


def document_text(document: object) -> str:
    """A record or document as JSON, without secrets."""
    return json.dumps(redacted(to_json(document)), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
