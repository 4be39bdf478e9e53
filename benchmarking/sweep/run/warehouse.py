"""Stores run files in the warehouse, by processes of their own: the measuring command stays small beside its workers.

Without duckdb the run files are kept and loaded elsewhere.

Has stored runs judged against each other, by processes of their own: the measuring command stays small.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarking.core import child_process
from benchmarking.core.command_line import note
from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK, StorageError
from benchmarking.core.records import Json

WITHOUT_DUCKDB = (
    "duckdb is not installed, so only the run file is written: load it with setup_benchmark_db --ingest where duckdb is"
)

SPEAKER = re.compile(r"^(setup_benchmark_db|benchhouse compare|db\.selected): (error: )?")

"""Who says it: those who run as modules speak of themselves."""


Ingest = Callable[[Path], None]

"""Stores a run file; one that is stored already stays as it is. Raises StorageError when it cannot; the file stays."""


def database(db_path: str, lock_timeout_s: float, *, quiet: bool) -> Ingest:
    """What stores a run file in the database, which is seen to work now, not after an hour of measuring.

    It is made if it is missing. Raises StorageError for a file that is no warehouse.
    """
    if importlib.util.find_spec("duckdb") is None:
        note(WITHOUT_DUCKDB)
        return _refuse
    run_module("db.commands.prepare_database", db_path)

    def ingest(path: Path) -> None:
        limit = f"{lock_timeout_s:g}"
        run_module(
            "db.setup_benchmark_db", "--db-path", db_path, "--ingest", str(path), "--lock-timeout", limit, "--quiet"
        )
        if not quiet:
            note(f"stored in {db_path}")

    return ingest


def _refuse(path: Path) -> None:
    raise StorageError(WITHOUT_DUCKDB)


def run_module(module: str, *arguments: str, fine: Sequence[int] = (EXIT_OK,)) -> child_process.Finished:
    """A module that has run in a process of its own. Raises StorageError with its last word when it fails."""
    done = child_process.run_module(module, *arguments)
    if done.exit_code not in fine:
        raise StorageError(SPEAKER.sub("", done.last_line or f"{module} ended with {done.exit_code}"))
    return done


COMPARE = "db.commands.compare"

SELECTED = "db.commands.selected_runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A comparison, as it was said."""

    text: str
    exit_code: int
    """0, or 3 where nothing could be compared."""

    @property
    def document(self) -> Json:
        """The comparison that was asked for as JSON."""
        found: Json = json.loads(self.text)
        return found


def judged(before: str, after: str, db_path: str, *further: str) -> Judged:
    """What `benchhouse compare` says of two selections; whatever was asked to differ may. Raises StorageError."""
    fine = (EXIT_OK, EXIT_NOT_ENOUGH_DATA)
    done = run_module(COMPARE, before, after, "--db-path", db_path, "--across", "all", *further, fine=fine)
    return Judged(text=done.stdout.rstrip("\n"), exit_code=done.exit_code or EXIT_OK)


def of_runs(run_ids: Sequence[str]) -> str:
    """The selection of these runs."""
    return f"run={'|'.join(run_ids)}"


def stored_runs(selection: str, db_path: str) -> list[dict[str, Any]]:
    """What `db.commands.selected_runs` says of the runs of a selection. Raises StorageError."""
    found: list[dict[str, Any]] = json.loads(run_module(SELECTED, db_path, selection).stdout)
    return found
