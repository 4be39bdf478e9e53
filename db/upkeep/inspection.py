"""Reads the file of a warehouse without changing it, so that it may be on a read-only medium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarking.core.errors import StorageError
from benchmarking.core.storage_paths import is_lake
from benchmarking.core.temporary import leftovers, temporary_folder
from db.connection import FILE_FORMAT, connect, copy_database, database_files
from db.driver_errors import DamagedError
from db.upkeep.verify import Finding, verify
from db.warehouse import OutdatedError, Warehouse

RUN_FOLDERS = "SELECT DISTINCT source FROM benchmark_runs WHERE source IS NOT NULL"


def verify_file(path: Path, *, lock_timeout_s: float = 30.0) -> list[Finding]:
    """All faults of the warehouse in a file, which is only read. Raises StorageError if it cannot be read."""
    with inspected(path, lock_timeout_s=lock_timeout_s) as warehouse:
        return [*verify(warehouse), *unread_log(path, lock_timeout_s=lock_timeout_s)]


@contextmanager
def inspected(path: str | Path, *, lock_timeout_s: float = 30.0) -> Iterator[Warehouse]:
    """The warehouse in a file, read-only; a warehouse of an older version as an upgraded copy. Raises StorageError."""
    try:
        warehouse = Warehouse.open(path, read_only=True, lock_timeout_s=lock_timeout_s)
    except (OutdatedError, DamagedError) as error:
        if is_lake(path):
            raise
        with _copied(Path(path), lock_timeout_s) as copy:
            try:
                warehouse = Warehouse.open(copy, keeps_old=False)
            except StorageError:
                raise error from None  # the error names the file, not its copy
            warehouse.file_version = error.version if isinstance(error, OutdatedError) else None
            with warehouse:
                yield warehouse
        return
    with warehouse:
        yield warehouse


def leftovers_near(warehouse: Warehouse, path: str | Path) -> list[Path]:
    """Leftovers of killed processes next to the file, in the folders of its run files, and among temporary files."""
    own_folder = [] if is_lake(path) else [Path(path).resolve().parent]
    with suppress(StorageError):
        sources = [Path(row["source"]).parent for row in warehouse.query(RUN_FOLDERS).dicts()]
        folders = dict.fromkeys([*own_folder, *sources])
        return [leftover for folder in folders for leftover in leftovers(folder)]
    return [leftover for folder in own_folder for leftover in leftovers(folder)]


def unread_log(path: Path, *, lock_timeout_s: float = 30.0) -> list[Finding]:
    """A log that DuckDB silently ignores, which shows only when the log is to be written into the file.

    Call this before the file is opened for writing.
    """
    log = Path(database_files(path)[".wal"]) if path.is_symlink() else path.with_name(f"{path.name}.wal")
    size = log.stat().st_size if log.is_file() else 0
    if not size:
        return []
    with _copied(path, lock_timeout_s) as copy:
        try:
            Warehouse.open(copy, keeps_old=False).close()
        except DamagedError:
            return []  # opening the file reports this as an error, so it is not a finding
        log_copy = copy.with_name(f"{copy.name}.wal")
        if not log_copy.exists() or log_copy.stat().st_size != size:
            return []
    problem = f"the log {log} ({size} bytes) was not read: it is damaged, or belongs to another file"
    return [Finding(kind="damage", subject=str(log), problem=problem)]


@contextmanager
def _copied(path: Path, lock_timeout_s: float) -> Iterator[Path]:
    """A temporary copy of the file and its log, made under the file's lock."""
    with temporary_folder("benchhouse-inspection") as folder:
        copy = folder / path.name
        with suppress(DamagedError):  # a log that cannot be read; the lock was free
            connect(str(path), FILE_FORMAT, read_only=True, lock_timeout_s=lock_timeout_s).close()
        copy_database(path, copy)
        yield copy
