"""Rebuilds a warehouse from its run files, and copies readable rows that only the old file has.

The old file is kept under another name; the new one replaces it in one step.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarking.core.errors import LockedError, StorageError, storage_errors
from benchmarking.core.temporary import temporary_folder
from db.conflicts import CHECKSUMMED, Conflict, all_column_types, checksum
from db.connection import FILE_FORMAT, LOG_ENDINGS, connect, file_id, quoted
from db.driver_errors import problem_of
from db.file_copy import make_folder, publish, temporary_sibling
from db.ingestion import RUN_TABLES, Loaded, load_files
from db.upkeep.merging import Merged, merge, upgraded
from db.upkeep.verify import damage
from db.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class ABResult:
    """A table of the old warehouse compared with the new one."""

    table: str
    rows_before: int | None
    """None if it could not be read."""
    rows_after: int
    is_equal: bool | None
    """Whether all rows are equal, by checksum or one by one; None if the table could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The outcome of a rebuild."""

    loaded: Loaded
    kept: Path | None = None
    """New path of the old file; None if there was none."""
    compared: tuple[ABResult, ...] = ()
    copied: Merged | None = None
    """Rows that only the old file had; None if there was no old file, or if it could not be read at all."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Unreadable table of the old file -> reason. Rows of it that are in no run file are lost."""

    @property
    def differing(self) -> tuple[Conflict, ...]:
        """Rows of the old file that differ from the run files; the run files win."""
        return () if self.copied is None else _differing(self.copied, self.lost)


def rebuild(path: Path, files: Sequence[Path], *, lock_timeout_s: float = 30.0) -> Rebuilt:
    """Rebuild the warehouse at `path` from the run files, and keep the old file under another name.

    The old file is locked during the rebuild, if it can be opened. Raises LockedError while another process has it
    open, and StorageError if no file is a run or nothing can be written; then nothing is changed.
    """
    path = path.resolve()
    make_folder(path.parent)
    with ExitStack() as hold, temporary_sibling(path) as part:
        old_fault = None
        if path.exists():
            try:  # keep writers out until the end
                hold.enter_context(connect(str(path), FILE_FORMAT, read_only=True, lock_timeout_s=lock_timeout_s))
            except LockedError:
                raise
            except StorageError as error:
                old_fault = problem_of(error)
        file_before = file_id(str(path))
        with Warehouse.open(part) as warehouse:
            loaded = load_files(warehouse, files)
            if not loaded.loaded:
                raise StorageError(f"none of {len(files)} files is a readable run: {path} was left unchanged")
            rebuilt = _with_old(warehouse, path, loaded, old_fault) if path.exists() else Rebuilt(loaded=loaded)
        if os.name == "nt":
            hold.close()  # Windows cannot rename an open file
        if file_id(str(path)) != file_before:
            raise StorageError(f"{path} was replaced by another process: try again")
        _replace(path, part, rebuilt.kept)
    return rebuilt


def _with_old(warehouse: Warehouse, path: Path, loaded: Loaded, old_fault: str | None) -> Rebuilt:
    """Copy the rows that only the old file has, and compare the two."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    kept = path.with_name(f"{path.stem}.before-{now}{path.suffix}")
    if old_fault is not None:
        lost = dict.fromkeys(CHECKSUMMED, old_fault)
        return Rebuilt(loaded=loaded, kept=kept, compared=_uncompared(warehouse, lost), lost=lost)
    with _readable(path) as (source, lost):
        compared, copied = list(_uncompared(warehouse, lost)), None
        readable = [table for table in CHECKSUMMED if table not in lost]
        if readable:
            copied = merge(warehouse, source, keep_own=True)
            differing = {conflict.table for conflict in _differing(copied, lost)}
            with warehouse.attached(source, lock_timeout_s=0.0) as name:
                for table in readable:
                    before, after = (_sum(warehouse, table, part) for part in (f"{quoted(name)}.{table}", table))
                    # Merging has compared the rows one by one, except where samples replaced quantiles.
                    is_equal = before == after or (before[0] == after[0] and table not in differing)
                    compared.append(
                        ABResult(table=table, rows_before=before[0], rows_after=after[0], is_equal=is_equal)
                    )
    compared.sort(key=lambda result: list(CHECKSUMMED).index(result.table))
    return Rebuilt(loaded=loaded, kept=kept, compared=tuple(compared), copied=copied, lost=lost)


@contextmanager
def _readable(path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The old file, or a copy of its readable tables if some are unreadable; and the unreadable ones with reasons."""
    try:
        with (
            upgraded(path, lock_timeout_s=0.0, check=False) as current,
            Warehouse.open(current, read_only=True) as old,
        ):
            tables = {row["name"] for row in old.query("SELECT table_name AS name FROM duckdb_tables()").dicts()}
            is_whole = tables.issuperset(CHECKSUMMED) and next(damage(old), None) is None
    except StorageError:
        is_whole = False
    if is_whole:
        with upgraded(path, lock_timeout_s=0.0, check=False) as current:
            yield current, {}
        return
    lost: dict[str, str] = {}
    with temporary_folder("benchhouse-rebuild") as folder:
        copy = folder / path.name
        with Warehouse.open(copy) as salvaged:
            with salvaged.attached(path, lock_timeout_s=0.0) as name:
                for table in CHECKSUMMED:
                    try:
                        with salvaged.transaction() as connection:
                            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {quoted(name)}.{table}")
                    except StorageError as error:
                        lost[table] = problem_of(error).removeprefix(f"{salvaged.path}: ")
            if lost.keys() & {"benchmark_runs", "benchmark_results"}:  # a run may lack only its samples
                for table in RUN_TABLES:
                    without = " and ".join(sorted(lost.keys() & set(RUN_TABLES)))
                    lost.setdefault(table, f"{table} is useless without {without}")
                    salvaged.query(f"DELETE FROM {table}")
        yield copy, lost


def _uncompared(warehouse: Warehouse, lost: Mapping[str, str]) -> tuple[ABResult, ...]:
    return tuple(
        ABResult(table=table, rows_before=None, rows_after=_sum(warehouse, table, table)[0], is_equal=None)
        for table in lost
    )


def _differing(copied: Merged, lost: Mapping[str, str]) -> tuple[Conflict, ...]:
    """The conflicts, except those due to unreadable tables."""
    return tuple(conflict for conflict in copied.left_out if conflict.part not in lost)


def _sum(warehouse: Warehouse, table: str, relation: str) -> tuple[int, str]:
    with warehouse.transaction() as connection:
        names = list(all_column_types(connection)[table])
        rows, total = connection.execute(checksum(table, names, relation)).fetchall()[0]
    return int(rows), str(total)


def _replace(path: Path, part: Path, kept: Path | None) -> None:
    """Rename the old file with its log to `kept`, and the new file to `path`. Raises StorageError."""
    if kept is None:
        if not publish(part, path):
            raise StorageError(f"{path} already exists: another process created it: check it, and try again")
        return
    with storage_errors(f"{path} cannot be replaced", f"the old file is {kept}"):
        if not publish(path, kept):
            raise StorageError(f"{kept} already exists: try again")
        for ending in LOG_ENDINGS:
            with suppress(FileNotFoundError):
                os.replace(f"{path}{ending}", f"{kept}{ending}")
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
