"""A copy of a database file as it is at one moment, made without the file's lock.

DuckDB writes a new state into free blocks of the file, and makes it the file's state by writing a header at the end of
a checkpoint. Between checkpoints it appends to the log, whose entries may refer to blocks that are in the file by then.
So if the log is copied before the file, and the headers are the same before and after, the copy is what a crash at that
moment would have left, which DuckDB reads: an unfinished transaction at the end of the log is ignored.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from benchmarking.core.errors import StorageError
from db.connection import WRITER, connect

HEADER_BYTES = 3 * 4096
"""The file's header and two headers of states, of which a checkpoint writes the older one."""
ATTEMPTS = 20
PAUSE_S = 0.05

State = tuple[int, int, bytes]


def copy_unlocked(path: Path, folder: Path, ending: str = ".duckdb") -> Path:
    """A consistent copy in the folder, without a log. Raises StorageError."""
    if not path.exists():
        raise StorageError(f"no database at {path}: create it with setup_benchmark_db --db-path {path}")
    for attempt in range(ATTEMPTS):
        copy = folder / f"{attempt}{ending}"
        before = _state(path)
        for one, target in ((Path(f"{path}.wal"), Path(f"{copy}.wal")), (path, copy)):
            _copy(one, target, path)
        if before is not None and _state(path) == before:
            _apply_log(copy, path)
            return copy
        for target in (copy, Path(f"{copy}.wal")):
            target.unlink(missing_ok=True)
        time.sleep(PAUSE_S)
    raise StorageError(
        f"{path} was written all the time: no copy of it was consistent in {ATTEMPTS} attempts: try again"
    )


def _state(path: Path) -> State | None:
    """What changes with a checkpoint, or with another file at the path; None without a file."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            return status.st_dev, status.st_ino, file.read(HEADER_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error


def _copy(source: Path, target: Path, path: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError as error:  # no log, or a file that is just being replaced
        if not target.parent.is_dir():
            raise StorageError(f"{path} cannot be copied to {target.parent}: {error.strerror}") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be copied to {target.parent}: {error.strerror}") from error


def _apply_log(copy: Path, path: Path) -> None:
    """Write the copy's log into it. Raises StorageError that names the original."""
    if not os.path.exists(f"{copy}.wal"):
        return
    try:
        connect(str(copy), WRITER, read_only=False, lock_timeout_s=0.0).close()
    except StorageError as error:
        raise StorageError(str(error).replace(str(copy), str(path))) from error
