"""Stores run files in the warehouse, by processes of their own: the measuring command stays small beside its workers.

Without duckdb the run files are kept and loaded elsewhere.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarking.cli_support import note
from benchmarking.core import child_process
from benchmarking.errors import EXIT_OK, StorageError

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
    run_module("db.ready", db_path)

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
