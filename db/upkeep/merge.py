"""Merges another warehouse into this one: each row once, and nothing from a file that contradicts this one.

A run is added with all of its results and raw samples, or not at all. Hardware and series are equal if their ids,
which are hashes, are equal. Merging is commutative, associative and idempotent in content; where and when a run was
stored (`source`, `ingested_at`) is kept from the warehouse that had it first.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core.database_paths import LakePlace, is_lake
from benchmarking.core.errors import FormatError, UsageError
from benchmarking.core.temporary import temporary_folder
from db.connection import FILE_FORMAT, Connection, connect, copy_database
from db.contents import Conflict, all_column_types, conflicts, conflicts_text
from db.upkeep.other_warehouse import Alias, OtherWarehouse, stored_aliases, table_names, united_aliases
from db.upkeep.verify import CHECKS
from db.warehouse import OutdatedError, Warehouse

NEEDED = ("orphan", "duplicate")
"""Kinds of faults for which another warehouse is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What another warehouse added, or would add."""

    added: Mapping[str, int]
    """New rows by table; for raw_benchmark_data, samples."""
    present: int
    """Number of its runs that are already stored here."""
    samples_restored: int
    """Results with only quantiles here that got the samples (or finer quantiles)."""
    samples_kept: int
    """Results with the samples (or finer quantiles) here and only quantiles there."""
    left_out: tuple[Conflict, ...] = ()
    """Conflicting rows, kept as they are here; only with `keep_own`."""


class ConflictError(FormatError):
    """Another warehouse has different content under the same id."""

    def __init__(self, path: str | Path, found: Sequence[Conflict]) -> None:
        super().__init__(f"{path}: contradicts this database, nothing was added: {conflicts_text(found)}")
        self.conflicts = tuple(found)


def merge(
    warehouse: Warehouse,
    path: str | Path,
    *,
    lock_timeout_s: float = 30.0,
    dry_run: bool = False,
    keep_own: bool = False,
) -> Merged:
    """Add everything that the warehouse in the file `path` has and this one lacks. The file is never changed.

    A file of an older version is upgraded in a copy. `dry_run` only counts. With `keep_own`, conflicting rows stay as
    they are here and the rest is added. Otherwise raises ConflictError; also FormatError for a file that is not a
    warehouse or has dangling references, LockedError and StorageError. After an error nothing has been added.
    """
    if _is_same(str(path), warehouse.path):
        raise UsageError(f"{path} is the database itself: give another warehouse to merge")

    def taken(connection: Connection, name: str) -> Merged:
        other, aliases = _compare(connection, name)
        if other.conflicts and not keep_own:
            raise ConflictError(path, other.conflicts)
        other.mark_new_runs()
        merged = _counts(other, aliases)
        if not dry_run:
            other.take(aliases)
        return merged

    def whole() -> Merged:
        # A replaced connection has nothing attached.
        with (
            warehouse.attached(current, lock_timeout_s=lock_timeout_s) as name,
            warehouse.transaction() as connection,
        ):
            return taken(connection, name)

    with upgraded(path, lock_timeout_s=lock_timeout_s, check=not keep_own) as current:
        return warehouse.repeated(whole)


def _compare(connection: Connection, name: str) -> tuple[OtherWarehouse, dict[str, Alias]]:
    """The other warehouse with its conflicts, and the new or changed aliases."""
    mine, theirs = (stored_aliases(connection, of) for of in (str, table_names(name)))
    aliases, clashing = united_aliases(mine, theirs)
    found = (*conflicts(connection, str, table_names(name)), *clashing)
    changed = {series: alias for series, alias in aliases.items() if mine.get(series) != alias}
    columns = all_column_types(connection)
    return OtherWarehouse(connection=connection, database=name, columns=columns, conflicts=found), changed


def _counts(other: OtherWarehouse, aliases: Mapping[str, Alias]) -> Merged:
    return Merged(
        added={**other.new(), "series_alias": len(aliases)},
        present=other.present(),
        samples_restored=other.restorable(),
        samples_kept=other.kept_finer(),
        left_out=other.conflicts,
    )


@contextmanager
def upgraded(path: str | Path, *, lock_timeout_s: float, check: bool) -> Iterator[Path]:
    """The file of a warehouse, or a copy if it is a lake or of an older version.

    With `check`, raises FormatError for dangling references.
    """
    if is_lake(path):
        with temporary_folder("benchhouse-lake") as folder:
            with Warehouse.open(path, read_only=True, lock_timeout_s=lock_timeout_s) as lake:
                if check:
                    _refuse_faults(lake)
                lake.backup(folder / "lake.duckdb")
            yield folder / "lake.duckdb"
        return
    path = Path(path)
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
    with temporary_folder("benchhouse-upgrade") as folder:
        copy = folder / path.name
        with connect(str(path), FILE_FORMAT, read_only=True, lock_timeout_s=lock_timeout_s):
            copy_database(path, copy)
        with Warehouse.open(copy) as other:
            if check:
                _refuse_faults(other)
        yield copy


def _is_same(path: str, own: str) -> bool:
    if is_lake(path) and is_lake(own):
        return LakePlace.parse(path).catalog == LakePlace.parse(own).catalog
    return os.path.exists(path) and os.path.exists(own) and os.path.samefile(path, own)


def _refuse_faults(other: Warehouse) -> None:
    for kind, sql in CHECKS:
        faults = other.query(sql).dicts() if kind in NEEDED else []
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            raise FormatError(
                f"{other.path} is damaged: {faults[0]['problem']}{more}: check it with "
                f"setup_benchmark_db --verify --db-path {shlex.quote(other.path)}"
            )
