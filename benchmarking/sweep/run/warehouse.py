"""What a measuring command needs of the warehouse, each time from a separate process, so that it stays small itself.

`db.service` answers; no other module of db is named here. Without duckdb the run files are kept, and loaded elsewhere.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core import child_process
from benchmarking.core.codec import from_json
from benchmarking.core.command_line import note
from benchmarking.core.database_paths import database_exists
from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK, StorageError
from benchmarking.core.provenance import MeasuredRun
from benchmarking.core.records import Json

SERVICE = "db.service"
DATABASE_WAIT_S = 30.0
"""Seconds to wait by default for a database in use by another process."""
WITHOUT_DUCKDB = (
    "duckdb is not installed, so only the run file is written: load it with setup_benchmark_db --ingest where duckdb is"
)

Ingest = Callable[[Path], None]
"""Stores a run file unless its run is stored. Raises StorageError; the file is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredComparison:
    """A comparison of stored runs."""

    text: str
    """For people, or in JSON, as it was requested."""
    exit_code: int
    """0, or 3 where nothing could be compared."""

    @property
    def document(self) -> Json:
        """The comparison that was requested as JSON."""
        found: Json = json.loads(self.text)
        return found


def database(db_path: str, lock_timeout_s: float | None, *, quiet: bool) -> Ingest:
    """What stores a run file in the database, which is opened once now, not after an hour of measuring.

    It is created if it is missing. A `lock_timeout_s` of None is the default. Raises StorageError for a file that is no
    warehouse.
    """
    if importlib.util.find_spec("duckdb") is None:
        note(WITHOUT_DUCKDB)
        return _refuse
    _ask("prepare", db_path)
    wait_s = DATABASE_WAIT_S if lock_timeout_s is None else lock_timeout_s

    def ingest(path: Path) -> None:
        _ask("store", db_path, str(path), "--lock-timeout", f"{wait_s:g}")
        if not quiet:
            note(f"stored in {db_path}")

    return ingest


def compare_stored(before: str, after: str, db_path: str, *flags: str) -> StoredComparison:
    """Two selections compared as `benchhouse compare` does; all but the point may differ. Raises StorageError."""
    done = _ask("compare", db_path, before, after, *flags, accepted=(EXIT_OK, EXIT_NOT_ENOUGH_DATA))
    return StoredComparison(text=done.stdout.rstrip("\n"), exit_code=done.exit_code or EXIT_OK)


def measured_peaks(hardware_id: str, db_path: str) -> dict[str, float]:
    """The measured peak rates of a device: FLOP/s by precision, and copy_bytes_per_sec; empty where it was never
    calibrated, and without duckdb. Raises StorageError."""
    if importlib.util.find_spec("duckdb") is None or not database_exists(db_path):
        return {}
    found: dict[str, float] = json.loads(_ask("peaks", db_path, hardware_id).stdout)
    return found


def selection_of(run_ids: Sequence[str]) -> str:
    """The selection of these runs."""
    return f"run={'|'.join(run_ids)}"


def stored_runs(selection: str, db_path: str) -> list[MeasuredRun]:
    """The runs with results of a selection, oldest first. Raises StorageError."""
    return [from_json(MeasuredRun, run) for run in json.loads(_ask("runs", db_path, selection).stdout)]


def _ask(task: str, *arguments: str, accepted: Sequence[int] = (EXIT_OK,)) -> child_process.Finished:
    """A task of the service, done. Raises StorageError with the reason where it failed."""
    done = child_process.run_module(SERVICE, task, *arguments)
    if done.exit_code not in accepted:
        raise StorageError(done.last_line or f"{SERVICE} {task} ended with exit code {done.exit_code}")
    return done


def _refuse(path: Path) -> None:
    raise StorageError(WITHOUT_DUCKDB)
