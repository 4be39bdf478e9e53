"""A measuring command's access to the warehouse, through separate processes, so that the command itself stays small.

Uses only the module `db.service`. Without duckdb, run files are kept and can be loaded elsewhere.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarking.core import child_process
from benchmarking.core.codec import from_json, to_json
from benchmarking.core.command_line import note
from benchmarking.core.errors import EXIT_FAILED, EXIT_NOT_ENOUGH_DATA, EXIT_OK, EXIT_USAGE, StorageError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import MeasuredRun
from benchmarking.core.quality import Quality
from benchmarking.core.records import Json
from benchmarking.core.shared_settings import DATABASE_WAIT_S
from benchmarking.core.storage_paths import database_exists
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.verdicts.words import EXIT_GATE_FAILED

SERVICE = "db.service"
WITHOUT_DUCKDB = (
    "duckdb is not installed, so only the run file was written: load it on a machine with duckdb, with "
    "benchhouse setup --ingest"
)


class Ingest(Protocol):
    """Stores run files whose runs are not stored already. Raises StorageError; the files are kept."""

    def __call__(self, *paths: Path) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredComparison:
    """A comparison of stored runs."""

    text: str
    """As text or JSON, as requested."""
    exit_code: int
    """0, or 3 if nothing could be compared; with `--fail-on`, 1 if that failed and 3 if it is not known."""

    @property
    def document(self) -> Json:
        """The comparison, if it was requested as JSON."""
        found: Json = json.loads(self.text)
        return found


def database(db_path: str, lock_timeout_s: float | None, *, quiet: bool) -> Ingest:
    """The function that stores run files in the database, which is opened now rather than after an hour of measuring.

    It is created if missing. A `lock_timeout_s` of None means the default. Raises StorageError for a file that is not a
    warehouse.
    """
    if importlib.util.find_spec("duckdb") is None:
        note(WITHOUT_DUCKDB)
        return _refuse
    wait_s = DATABASE_WAIT_S if lock_timeout_s is None else lock_timeout_s
    _ask("prepare", db_path, "--lock-timeout", f"{wait_s:g}")

    def ingest(*paths: Path) -> None:
        _ask("store", db_path, *map(str, paths), "--lock-timeout", f"{wait_s:g}")
        if not quiet:
            note(f"stored in {db_path}")

    return ingest


def compare_stored(before: str, after: str, db_path: str, *flags: str) -> StoredComparison:
    """The comparison of two selections, like `benchhouse compare`; all but the point may differ. Raises
    StorageError."""
    accepted = (EXIT_OK, EXIT_NOT_ENOUGH_DATA, EXIT_GATE_FAILED)
    done = _ask("compare", db_path, before, after, *flags, accepted=accepted)
    code = EXIT_FAILED if done.exit_code == EXIT_GATE_FAILED else done.exit_code or EXIT_OK
    return StoredComparison(text=done.stdout.rstrip("\n"), exit_code=code)


def measured_peaks(hardware_id: str, db_path: str) -> dict[str, float]:
    """The measured peak rates of a device: FLOP/s by precision, and copy_bytes_per_sec; empty if it was never
    calibrated, or without duckdb. Raises StorageError."""
    if importlib.util.find_spec("duckdb") is None or not database_exists(db_path):
        return {}
    found: dict[str, float] = json.loads(_ask("peaks", db_path, hardware_id).stdout)
    return found


def selection_of(run_ids: Sequence[str]) -> str:
    """The selection expression of these runs."""
    return f"run={'|'.join(run_ids)}"


def stored_runs(selection: str, db_path: str) -> list[MeasuredRun]:
    """The runs with results in a selection, oldest first. Raises StorageError."""
    return [from_json(MeasuredRun, run) for run in json.loads(_ask("runs", db_path, selection).stdout)]


def store_quality(found: Mapping[str, Quality], db_path: str, lock_timeout_s: float | None) -> None:
    """Store the quality of stored runs, by run id. Raises StorageError."""
    wait_s = DATABASE_WAIT_S if lock_timeout_s is None else lock_timeout_s
    with temporary_folder("benchhouse-quality") as folder:
        file = folder / "quality.json"
        file.write_text(json.dumps(to_json(found)), encoding="utf-8")
        _ask("quality", db_path, str(file), "--lock-timeout", f"{wait_s:g}")


def _ask(task: str, *arguments: str, accepted: Sequence[int] = (EXIT_OK,)) -> child_process.Finished:
    """Run a task of the service. Raises StorageError with the reason if it fails, UsageError for a wrong selection."""
    done = child_process.run_module(SERVICE, task, *arguments)
    if done.exit_code == EXIT_USAGE and done.last_line:
        raise UsageError(done.last_line)
    if done.exit_code not in accepted:
        raise StorageError(done.last_line or f"{SERVICE} {task} ended with exit code {done.exit_code}")
    return done


def _refuse(*paths: Path) -> None:
    raise StorageError(WITHOUT_DUCKDB)
