"""The manifest of a batch: its plans and which runs are stored, so that an interrupted batch can be resumed.

`batch_<session>.manifest.jsonl` exists while a batch is unfinished. Its first line contains all plans; which cells are
started or finished follows from the run ids of the partial files and run files in the same folder.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from benchmarking.core.command_line import note
from benchmarking.core.errors import FormatError, StorageError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import this_process
from benchmarking.core.records import Cell, dumps, from_json, to_json
from benchmarking.core.storage_paths import absolute_database, is_lake
from benchmarking.core.untrusted.redaction import expanded, redacted
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run import journal, spool

SUFFIX = ".manifest.jsonl"
FORMAT = "benchhouse-batch"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInfo:
    """A batch without its cells."""

    session_id: str
    command: tuple[str, ...]
    started_at: str
    """UTC, ISO 8601."""
    db_path: str | None
    """Absolute path; None to write run files only."""
    report: str | None
    """Absolute path of the report."""


class Manifest:
    """The file of an unfinished batch."""

    def __init__(
        self, held: journal.Hold, info: BatchInfo, plans: tuple[CellPlan, ...], stored: frozenset[str], lines: int
    ) -> None:
        self.path = held.path
        self._held = held
        self._lines = lines
        self.info = info
        self.plans = plans
        self.stored = set(stored)
        """Run ids of the runs in the database."""

    @classmethod
    def create(cls, folder: Path, info: BatchInfo, plans: tuple[CellPlan, ...]) -> Manifest:
        """A new batch in `folder`. Raises StorageError."""
        is_anonymous = all(plan.is_anonymous for plan in plans)
        content = redacted({"about": to_json(info), "plans": to_json(plans)}, anonymous=is_anonymous)
        header = {"format": FORMAT, "version": VERSION, **content}
        path = folder / _name(info.session_id)
        return cls(journal.create([path], header, lambda path: True), info, plans, frozenset(), 0)

    @classmethod
    def open(cls, path: Path) -> Manifest | None:
        """The batch of a file, which is locked until `release`; None if another process has finished it. Raises
        LockedError while another process continues it, FormatError, StorageError."""
        held = journal.hold(path)
        if held is None:
            return None
        try:
            records = journal.read(path, FORMAT, VERSION, "an unfinished batch")
            info = from_json(BatchInfo, expanded(records[0].get("about")), f"{path}: about")
            if path.name != _name(info.session_id):  # the name of the log contains the id too
                raise FormatError(f"{path}: not the manifest of session {info.session_id!r}: restore its file name")
            noted = [record["Stored"] for record in records if "Stored" in record]
            plans = from_json(tuple[CellPlan, ...], expanded(records[0].get("plans")), f"{path}: plans")
            stored = frozenset(from_json(tuple[str, ...], noted, f"{path}: stored"))
            return cls(held, info, plans, stored, len(records))
        except BaseException:
            held.release()
            raise

    def release(self) -> None:
        """End the lock."""
        self._held.release()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of its plans."""
        return tuple(plan.cell for plan in self.plans)

    def owns(self, path: str, also: str | None = None) -> bool:
        """Whether a path is in the folder of this file, following links, or is `also`. A DuckLake is not in any
        folder."""
        if is_lake(path):
            return also is not None and absolute_database(also) == path
        resolved = Path(path).resolve()
        return resolved.is_relative_to(self.path.parent.resolve()) or (
            also is not None and resolved == Path(also).resolve()
        )

    def own_path(self, path: str | None, flag: str, *, also: str | None = None) -> str | None:
        """A path from this file that a resumed batch may write to: in its folder, or `also`, the command's default.

        Raises UsageError for any other path, which must be given on the command line.
        """
        if path is None or self.owns(path, also):
            return path
        raise UsageError(
            f"--resume: {self.path} refers to {path}, outside its folder: to use it, repeat {flag} {shlex.quote(path)}"
        )

    def claim(self) -> None:
        """Record this process as the owner of the batch. Raises StorageError."""
        if (copy := journal.repair(self.path, self._lines)) is not None:
            line = self._lines + 1
            note(f"{self.path}: repaired: it ends before line {line}, which is damaged; {copy.name} has all lines")
        self._append("Owner", this_process())

    def note_stored(self, run_id: str) -> None:
        """Record that a run is in the database. Raises StorageError."""
        self.stored.add(run_id)
        self._append("Stored", run_id)

    def close(self) -> None:
        """Delete the manifest of a complete batch. Raises StorageError."""
        try:
            self.path.unlink()
        except OSError as error:
            raise StorageError(f"cannot remove {self.path}: {error.strerror}") from error
        self.release()

    def _append(self, name: str, content: object) -> None:
        try:
            journal.append(self.path, name, dumps(content))
        except OSError as error:
            raise StorageError(f"cannot write to {self.path}: {error.strerror}") from error


def _name(session_id: str) -> str:
    return f"batch_{session_id}{SUFFIX}"


def unfinished(folder: Path) -> Sequence[Path]:
    """The manifests in a folder, newest first: their names contain the time."""
    return sorted(folder.glob(f"batch_*{SUFFIX}"), reverse=True)


def run_files(folder: Path) -> dict[str, Path]:
    """The finished runs in a folder by run id."""
    found = {}
    for path in folder.glob("*.json"):
        if (run_id := spool.run_id_in(path)) is not None:
            found[run_id] = path
    return found


def partial_runs(folder: Path, manifest: Manifest) -> list[spool.PartialRun]:
    """The unfinished runs of a batch in its folder. Raises FormatError for an invalid file."""
    own = {plan.run_id for plan in manifest.plans}
    found = []
    for file in spool.unfinished(folder):
        plan = file.read().plan
        if plan.run_id in own or plan.session_id == manifest.info.session_id:
            found.append(file)
    return found
