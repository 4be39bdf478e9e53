"""Makes a warehouse anew from its run files, and brings over what only the old one has, as far as that can be read.

The old file is kept beside the new one under another name; the new one takes its place in one step.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarking.core.errors import LockedError, StorageError
from db.connection import FILE_FORMAT, connect, why
from db.contents import SUMMED, Conflict, all_column_types, checksum
from db.files import make_folder, publish, temporary_sibling
from db.migrate import quoted
from db.spool import Loaded, ingest_files
from db.upkeep.merge import Merged, merge, up_to_date
from db.upkeep.verify import damage
from db.warehouse import OWN, Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A table of the old warehouse beside the new one's."""

    table: str
    rows_before: int | None
    """None where it could not be read."""
    rows_after: int
    is_equal: bool | None
    """Whether all rows say the same, by their checksum or one by one; None where it could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What was made, and what of the old warehouse is in it."""

    loaded: Loaded
    kept: Path | None = None
    """Where the old file is now; None when there was none."""
    compared: tuple[Compared, ...] = ()
    brought: Merged | None = None
    """What only the old one had; None when there was none, or it could not be read at all."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Table of the old one that could not be read -> why. What of it is in no run file is not here."""

    @property
    def differing(self) -> tuple[Conflict, ...]:
        """Rows that the old one told in another way than the run files, whose words are kept."""
        return () if self.brought is None else _told_otherwise(self.brought, self.lost)


def rebuild(path: Path, files: Sequence[Path], *, lock_timeout_s: float = 30.0) -> Rebuilt:
    """Make the warehouse at `path` from the run files, whatever is there now, and keep that under another name.

    The old one is locked meanwhile, if it can be opened at all. Raises LockedError while another process has it, and
    StorageError where no file is a run or nothing can be written; then everything is as it was.
    """
    path = path.resolve()
    make_folder(path.parent)
    with ExitStack() as hold, temporary_sibling(path) as part:
        trouble = _hold(hold, path, lock_timeout_s) if path.exists() else None
        with Warehouse.open(part) as warehouse:
            loaded = ingest_files(warehouse, files)
            if not loaded.loaded:
                raise StorageError(f"none of {len(files)} files is a run that can be read: {path} was left as it is")
            rebuilt = _with_old(warehouse, path, loaded, trouble) if path.exists() else Rebuilt(loaded=loaded)
        if os.name == "nt":
            hold.close()  # an open file cannot be renamed there
        _replace(path, part, rebuilt.kept)
    return rebuilt


def _hold(hold: ExitStack, path: Path, lock_timeout_s: float) -> str | None:
    """Keep others from writing to the old file until the end; why it cannot be opened, if it cannot."""
    try:
        hold.enter_context(connect(str(path), FILE_FORMAT, read_only=True, lock_timeout_s=lock_timeout_s))
    except LockedError:
        raise
    except StorageError as error:
        return why(error)
    return None


def _with_old(warehouse: Warehouse, path: Path, loaded: Loaded, trouble: str | None) -> Rebuilt:
    """Bring over what only the old one has, and compare the two."""
    kept = _free_name(path)
    if trouble is not None:
        lost = dict.fromkeys(SUMMED, trouble)
        return Rebuilt(loaded=loaded, kept=kept, compared=_uncompared(warehouse, lost), lost=lost)
    with _readable(path) as (source, lost):
        brought = None
        if len(lost) < len(SUMMED):
            brought = merge(warehouse, source, keep_own=True)
        compared = [*_uncompared(warehouse, lost), *(_compared(warehouse, source, brought, lost) if brought else ())]
    compared.sort(key=lambda one: list(SUMMED).index(one.table))
    return Rebuilt(loaded=loaded, kept=kept, compared=tuple(compared), brought=brought, lost=lost)


@contextmanager
def _readable(path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The old file if all of it can be read, else a copy of the tables that can; and those that cannot, with why."""
    trouble = _trouble(path)
    with ExitStack() as stack:
        if trouble is None:
            yield stack.enter_context(up_to_date(path, lock_timeout_s=0.0, check=False)), {}
            return
        copy = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
        with Warehouse.open(copy) as salvaged:
            lost = _salvage(salvaged, path)
        yield copy, lost


def _trouble(path: Path) -> str | None:
    """The first thing that is wrong with the old file; None when all its tables are there and can be read."""
    try:
        with (
            up_to_date(path, lock_timeout_s=0.0, check=False) as current,
            Warehouse.open(current, read_only=True) as old,
        ):
            there = {row["name"] for row in old.query("SELECT table_name AS name FROM duckdb_tables()").dicts()}
            missing = [f"{table} is missing" for table in SUMMED if table not in there]
            return next((problem for _, problem in damage(old)), missing[0] if missing else None)
    except StorageError as error:
        return why(error)


def _salvage(salvaged: Warehouse, path: Path) -> dict[str, str]:
    """Copy every table that can be read. Returns those that cannot, with the reason."""
    lost: dict[str, str] = {}
    with salvaged.beside(path, lock_timeout_s=0.0) as name:
        for table in SUMMED:
            try:
                with salvaged.transaction() as connection:
                    connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {quoted(name)}.{table}")
            except StorageError as error:
                lost[table] = why(error).removeprefix(f"{salvaged.path}: ")
    if lost.keys() & {"benchmark_runs", "benchmark_results"}:  # half a run is none; its samples alone may be missing
        for table in OWN:
            lost.setdefault(table, f"{table} is of no use without {' and '.join(sorted(lost.keys() & set(OWN)))}")
            salvaged.query(f"DELETE FROM {table}")
    return lost


def _uncompared(warehouse: Warehouse, lost: Mapping[str, str]) -> tuple[Compared, ...]:
    return tuple(
        Compared(table=table, rows_before=None, rows_after=_sum(warehouse, table, table)[0], is_equal=None)
        for table in lost
    )


def _compared(warehouse: Warehouse, source: Path, brought: Merged, lost: Mapping[str, str]) -> list[Compared]:
    """Number of rows and checksum of each table that could be read."""
    told_otherwise = {conflict.table for conflict in _told_otherwise(brought, lost)}
    found = []
    with warehouse.beside(source, lock_timeout_s=0.0) as name:
        for table in (table for table in SUMMED if table not in lost):
            before, after = (_sum(warehouse, table, of) for of in (f"{quoted(name)}.{table}", table))
            # Merging has compared the rows one by one, but where samples are back that were only quantiles.
            is_equal = before == after or (before[0] == after[0] and table not in told_otherwise)
            found.append(Compared(table=table, rows_before=before[0], rows_after=after[0], is_equal=is_equal))
    return found


def _told_otherwise(brought: Merged, lost: Mapping[str, str]) -> tuple[Conflict, ...]:
    """The contradictions but for those that there are since a table could not be read."""
    return tuple(conflict for conflict in brought.left_out if conflict.part not in lost)


def _sum(warehouse: Warehouse, table: str, relation: str) -> tuple[int, str]:
    with warehouse.transaction() as connection:
        names = list(all_column_types(connection)[table])
        rows, total = connection.execute(checksum(table, names, relation)).fetchall()[0]
    return int(rows), str(total)


def _free_name(path: Path) -> Path:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    return path.with_name(f"{path.stem}.before-{now}{path.suffix}")


def _replace(path: Path, part: Path, kept: Path | None) -> None:
    """Give the new file the old one's name, and the old one, with its log, the name to keep. Raises StorageError."""
    if kept is None:
        if not publish(part, path):
            raise StorageError(f"{path} was made by somebody else meanwhile: look at it, and try again")
        return
    try:
        if not publish(path, kept):
            raise StorageError(f"{kept} is there already: try again")
        log = path.with_name(f"{path.name}.wal")
        if log.exists():
            log.replace(kept.with_name(f"{kept.name}.wal"))
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be replaced: {error.strerror}; the old one is {kept}") from error
