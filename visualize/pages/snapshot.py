"""A private copy of the database file, renewed when the file changes.

DuckDB lets either one process write or several read. Pages read a copy, so commands that store runs never wait for
them, and pages work while another process has the file open. Changes made on a page go to the user's file, like those
of a command: under the file's lock, with a short wait.

A DuckLake with a PostgreSQL catalog is copied from a snapshot, so writers never wait. One with a catalog file is read
through a copy of the catalog.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.storage_paths import LakePlace, is_lake
from db.connection import database_files
from db.warehouse import RESTART_S, Warehouse

if TYPE_CHECKING:
    from benchmarking.core.live_status import LiveSnapshot

CHECKED_S = 1.0
"""Seconds before the file is checked again for changes."""
SETTLED_S = 0.05
"""A file changed within this time may change again with the same time stamp, whose resolution can be 10 ms."""
WAIT_S = 2.0
"""Seconds a change waits for the file's lock; storing a run is faster."""

T = TypeVar("T")
Signature = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The data for views."""

    warehouse: Warehouse
    """A copy open for queries: read-only, confined and locked. Thread-safe."""
    name: str
    """The user's file."""
    taken_at: datetime
    """Time of the copy, UTC."""
    trouble: str | None = None
    """Why the copy could not be renewed; None if it is current."""
    live_snapshot: Callable[[], LiveSnapshot] | None = None
    """Returns the commands running on this machine; None without a server."""
    kept: dict[str, Any] = field(default_factory=dict)
    """Cached values that depend on no filter; they live as long as the copy."""

    @property
    def word(self) -> str:
        """The file's name, quoted for a shell command."""
        home = "~/" if self.name.startswith("~/") else ""  # shells do not expand it inside quotes
        return home + shlex.quote(self.name.removeprefix(home))

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """The cached value, computed on first use, possibly by two threads at once."""
        if name not in self.kept:
            self.kept[name] = compute()
        return cast("T", self.kept[name])

    @property
    def path(self) -> str:
        """The copy's file, for SQL queries."""
        return self.warehouse.file


class _Copy:
    """A copy with a reader count, deleted once it is replaced and has no readers."""

    def __init__(self, path: str, wait_s: float = 0.0) -> None:
        """Waits for a lake's server that starts. Raises StorageError."""
        self.readers = 1  # held by Snapshots
        self.taken_at = datetime.now(UTC)
        self.kept: dict[str, Any] = {}
        self.signature = _signature(path, wait_s)  # taken before the copy, so a change during copying is noticed
        self.warehouse = Warehouse.open_copy(path)
        self.warehouse.keep_answers()


class Snapshots:
    """The newest copy of a database file. Thread-safe; close it at the end."""

    def __init__(self, path: str | Path) -> None:
        """Make the first copy. Raises StorageError if the file is missing or not a benchhouse database."""
        self._path = str(path)
        self._lock = threading.Lock()
        self._renewing = threading.Lock()
        self._changing = threading.Lock()
        self._trouble: str | None = None
        self._copy = _Copy(self._path, RESTART_S)  # later ones do not wait, since there is a copy to go on with
        self._checked_s = time.monotonic()

    @contextmanager
    def reading(self, *, renewed: bool = True) -> Iterator[Data]:
        """The newest copy (the existing one unless `renewed`), kept until the block ends."""
        if renewed:
            self._renew()
        with self._lock:
            copy = self._copy
            copy.readers += 1
            trouble = self._trouble
        try:
            yield Data(
                warehouse=copy.warehouse, name=self._path, taken_at=copy.taken_at, trouble=trouble, kept=copy.kept
            )
        finally:
            self._leave(copy)

    @contextmanager
    def changing(self) -> Iterator[Warehouse]:
        """The user's file, open for writing; then the copy is replaced, so the next page shows the change.

        Raises LockedError if another process keeps the file locked, StorageError if it cannot be written.
        """
        with self._changing, Warehouse.open(self._path, create=False, lock_timeout_s=WAIT_S) as warehouse:
            yield warehouse
        with self._renewing:  # wait for a renewal that started before the change
            self._replace()

    def close(self) -> None:
        """Delete the copy once it has no readers."""
        self._leave(self._copy)

    def _leave(self, copy: _Copy) -> None:
        with self._lock:
            copy.readers -= 1
            is_left = not copy.readers
        if is_left:
            copy.warehouse.close()

    def _renew(self) -> None:
        """Replace the copy if the file has changed. Other threads continue with the existing one."""
        if time.monotonic() - self._checked_s < CHECKED_S or not self._renewing.acquire(blocking=False):
            return
        try:
            found = None
            with suppress(BenchhouseError):  # copying will report the problem
                found = _signature(self._path)
            if found is not None and found == self._copy.signature:
                self._trouble = None
            else:
                self._replace()
        finally:
            self._checked_s = time.monotonic()
            self._renewing.release()

    def _replace(self) -> None:
        try:
            new = _Copy(self._path)
        except BenchhouseError as error:  # keep serving the existing copy
            self._trouble = str(error)
            return
        with self._lock:
            old, self._copy, self._trouble = self._copy, new, None
        self._leave(old)


def _signature(name: str, wait_s: float = 0.0) -> Signature | None:
    """A value that changes with the database; None if the file may still change unnoticed. Raises StorageError."""
    if is_lake(name):
        place = LakePlace.parse(name)
        if place.is_postgres:
            with Warehouse.open(name, read_only=True, lock_timeout_s=wait_s) as lake:
                return ((lake.lake_snapshot(), 0, 0),)
        name = place.catalog
    states: list[tuple[int, int, int] | None] = []
    newest_s = 0.0
    for file in database_files(name).values():
        try:
            status = Path(file).stat()
        except OSError:
            states.append(None)
            continue
        states.append((status.st_ino, status.st_size, status.st_mtime_ns))
        newest_s = max(newest_s, status.st_mtime_ns / 1e9)
    return None if 0 <= time.time() - newest_s < SETTLED_S else tuple(states)
