"""Brings what another warehouse holds into this one: each row once, and nothing of a file that contradicts.

A run is taken with its results and raw samples, or not at all. Hardware and series are the same where their ids are,
which are hashes of what they are. Merging is commutative, associative and idempotent in what rows say: only where and
when a run was stored (`source`, `ingested_at`) is told by the warehouse that had it first.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core.errors import FormatError, StorageError, UsageError
from db.connection import FILE_FORMAT, connect
from db.contents import Conflict, all_column_types, conflicts, conflicts_text
from db.migrate import Connection
from db.upkeep.other_warehouse import Alias, OtherWarehouse, stored_aliases, table_names, united_aliases
from db.upkeep.verify import CHECKS
from db.warehouse import OutdatedError, Warehouse

NEEDED = ("orphan", "duplicate")
"""Faults of another warehouse that must not come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What another warehouse brought, or would bring."""

    added: Mapping[str, int]
    """New rows by table; of raw_benchmark_data the samples."""
    present: int
    """Its runs that were here already."""
    samples_restored: int
    """Results of which only quantiles were here, and the samples (or finer quantiles) came in."""
    samples_kept: int
    """Results of which the samples (or finer quantiles) are here, and only quantiles there."""
    left_out: tuple[Conflict, ...] = ()
    """What contradicts, and stayed as it is here; only where that was asked for."""


class ConflictError(FormatError):
    """Another warehouse says something else under the same id."""

    def __init__(self, path: Path, found: Sequence[Conflict]) -> None:
        super().__init__(f"{path}: nothing of it was taken, since it contradicts what is here: {conflicts_text(found)}")
        self.conflicts = tuple(found)


def merge(
    warehouse: Warehouse,
    path: Path,
    *,
    lock_timeout_s: float = 30.0,
    dry_run: bool = False,
    keep_own: bool = False,
) -> Merged:
    """Take in what the warehouse in the file `path` has and this one has not; the file itself is never changed.

    One of an older version is brought up to date in a copy. `dry_run` only counts. With `keep_own` what contradicts
    stays as it is here, and the rest comes in. Otherwise raises ConflictError; FormatError for a file that is no
    warehouse or has rows without what they refer to; LockedError; StorageError. Then nothing of it is here.
    """
    if os.path.exists(path) and os.path.exists(warehouse.path) and os.path.samefile(path, warehouse.path):
        raise UsageError(f"{path} is the database itself: name another one to merge into it")
    with (
        up_to_date(path, lock_timeout_s=lock_timeout_s, check=not keep_own) as current,
        warehouse.beside(current, lock_timeout_s=lock_timeout_s) as name,
        warehouse.transaction() as connection,
    ):
        beside, aliases = _compare(connection, name)
        if beside.conflicts and not keep_own:
            raise ConflictError(path, beside.conflicts)
        beside.mark_new_runs()
        merged = _counted(beside, aliases)
        if not dry_run:
            beside.take(aliases)
        return merged


def _compare(connection: Connection, name: str) -> tuple[OtherWarehouse, dict[str, Alias]]:
    """The other warehouse with what it contradicts, and the aliases that are new or read otherwise."""
    mine, theirs = (stored_aliases(connection, of) for of in (str, table_names(name)))
    aliases, clashing = united_aliases(mine, theirs)
    found = (*conflicts(connection, str, table_names(name)), *clashing)
    changed = {series: alias for series, alias in aliases.items() if mine.get(series) != alias}
    columns = all_column_types(connection)
    return OtherWarehouse(connection=connection, database=name, columns=columns, conflicts=found), changed


def _counted(beside: OtherWarehouse, aliases: Mapping[str, Alias]) -> Merged:
    return Merged(
        added={**beside.new(), "series_alias": len(aliases)},
        present=beside.present(),
        samples_restored=beside.restorable(),
        samples_kept=beside.kept_finer(),
        left_out=beside.conflicts,
    )


@contextmanager
def up_to_date(path: Path, *, lock_timeout_s: float, check: bool) -> Iterator[Path]:
    """The file of a warehouse, or a copy of it that was brought up to date, to be read.

    Raises FormatError where rows refer to nothing, if that is to be checked.
    """
    try:
        with Warehouse.open(path, read_only=True, lock_timeout_s=lock_timeout_s) as other:
            if check:
                _refuse_faults(other)
        is_old = False
    except OutdatedError:
        is_old = True
    if not is_old:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with connect(str(path), FILE_FORMAT, read_only=True, lock_timeout_s=lock_timeout_s):
            _copy(path, copy)  # while nobody may write to it
        with Warehouse.open(copy) as other:
            if check:
                _refuse_faults(other)
        yield copy


def _copy(path: Path, copy: Path) -> None:
    """The file and its log. Raises StorageError."""
    try:
        for ending in ("", ".wal"):
            if path.with_name(f"{path.name}{ending}").exists():
                shutil.copyfile(path.with_name(f"{path.name}{ending}"), copy.with_name(f"{copy.name}{ending}"))
    except OSError as error:
        raise StorageError(
            f"{path}: is of an older version, and cannot be copied to {copy.parent} to be brought up to date: "
            f"{error.strerror}"
        ) from error


def _refuse_faults(other: Warehouse) -> None:
    for kind, sql in CHECKS:
        faults = other.query(sql).dicts() if kind in NEEDED else []
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            raise FormatError(
                f"{other.path}: is damaged: {faults[0]['problem']}{more}: look at it with "
                f"setup_benchmark_db --verify --db-path {other.path}"
            )
