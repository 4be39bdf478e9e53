"""The manifest of a batch: its plans and which runs are stored, so that an interrupted batch can continue.

`batch_<session>.manifest.jsonl` exists while a batch is unfinished. Its first line holds every plan; which cells are
started or finished follows from the run ids of the partial files and run files in the same folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.records import dumps, from_json, to_json
from benchmarking.core.redaction import restored, stored
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run import journal, spool

SUFFIX = ".manifest.jsonl"
FORMAT = "benchhouse-batch"
VERSION = 1
HEAD_BYTES = 400
"""Read from the start of a run file, where its run id is."""
RUN_ID = re.compile(r'"run_id": "([0-9a-f-]{36})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
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

    def __init__(self, path: Path, about: About, plans: tuple[CellPlan, ...], stored: frozenset[str]) -> None:
        self.path = path
        self.about = about
        self.plans = plans
        self.stored = set(stored)
        """Run ids of the runs in the database."""

    @classmethod
    def create(cls, folder: Path, about: About, plans: tuple[CellPlan, ...]) -> Manifest:
        """A new batch in `folder`. Raises StorageError."""
        is_anonymous = all(plan.is_anonymous for plan in plans)
        content = stored({"about": to_json(about), "plans": to_json(plans)}, anonymous=is_anonymous)
        header = {"format": FORMAT, "version": VERSION, **content}
        path = folder / f"batch_{about.session_id}{SUFFIX}"
        return cls(journal.create([path], header, lambda path: True), about, plans, frozenset())

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """The batch of a file. Raises FormatError, StorageError, and UsageError while another process uses it."""
        records = journal.read(path, FORMAT, VERSION, "an unfinished batch")
        owner = journal.owner(path, records)
        if owner is not None and owner.is_alive():
            raise UsageError(f"{path}: in use by PID {owner.pid}: wait for it, or end it")
        return cls(
            path,
            from_json(About, restored(records[0]["about"]), f"{path}: about"),
            from_json(tuple[CellPlan, ...], restored(records[0]["plans"]), f"{path}: plans"),
            frozenset(record["Stored"] for record in records if "Stored" in record),
        )

    def take(self) -> None:
        """Record this process as the owner of the batch. Raises StorageError."""
        journal.mend(self.path)
        self._append("Owner", journal.this_process())

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

    def _append(self, name: str, content: object) -> None:
        try:
            journal.append(self.path, name, dumps(content))
        except OSError as error:
            raise StorageError(f"cannot write to {self.path}: {error.strerror}") from error


def unfinished(folder: Path) -> Sequence[Path]:
    """The manifests in a folder, newest first: their names contain the time."""
    return sorted(folder.glob(f"batch_*{SUFFIX}"), reverse=True)


def run_files(folder: Path) -> dict[str, Path]:
    """The finished runs in a folder by run id."""
    found = {}
    for path in folder.glob("*.json"):
        with path.open(encoding="utf-8", errors="replace") as file:  # other JSON files may hold anything
            match = RUN_ID.search(file.read(HEAD_BYTES))
        if match is not None:
            found[match[1]] = path
    return found


def partial_runs(folder: Path) -> dict[str, spool.PartialRun]:
    """The unfinished runs in a folder by run id. Raises FormatError for a file that is none."""
    return {partial.read().plan.run_id: partial for partial in spool.unfinished(folder)}
