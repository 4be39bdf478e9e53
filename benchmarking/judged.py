"""Has stored runs judged against each other, by processes of their own: the measuring command stays small."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarking.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK
from benchmarking.records import Json
from benchmarking.storing import run_module

COMPARE = "db.commands.compare"
SELECTED = "db.selected"


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
    """What `db.selected` says of the runs of a selection. Raises StorageError."""
    found: list[dict[str, Any]] = json.loads(run_module(SELECTED, db_path, selection).stdout)
    return found
