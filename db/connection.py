"""Opens a DuckDB file, waits for it while another process has it, and says in one line what went wrong with it.

The only module that imports duckdb.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from db.trouble import is_locked, storage_error

if TYPE_CHECKING:
    import duckdb

    DuckDB: TypeAlias = duckdb.DuckDBPyConnection

STORAGE_VERSION = "v1.5.0"
"""Format of the files: 1.5 and 2.0 both read and write it; a file in 2.0's own format would shut 1.5 out."""
BLOCK_SIZE_BYTES = 16_384
"""The smallest there is. Committing gives each column of a table that is written to a block of its own: with DuckDB's
262 144 a run takes twice the time to store, and an empty warehouse 0.8 MB. A file keeps the size it was made with."""
Config = dict[str, str | bool | int | float | list[str]]
FILE_FORMAT: Config = {
    "storage_compatibility_version": STORAGE_VERSION,
    "default_block_size": BLOCK_SIZE_BYTES,
}
WRITER: Config = FILE_FORMAT | {"threads": 1}
"""A run is few rows: more threads make storing it slower, and take a core from whatever else is being measured."""
RETRY_FIRST_S = 0.02
RETRY_MOST_S = 0.5


def connect(path: str, config: Config, *, read_only: bool, lock_timeout_s: float) -> DuckDB:
    """Open the file, trying again while another process holds it. Raises LockedError, FormatError, StorageError."""
    import duckdb

    deadline = time.monotonic() + lock_timeout_s
    pause_s = RETRY_FIRST_S
    with told(path, lock_timeout_s):
        while True:
            named = _file_named(path)
            try:
                connection = duckdb.connect(path, read_only=read_only, config=config)
            except duckdb.IOException as error:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not is_locked(str(error)):
                    raise
            else:
                if named in (None, _file_named(path)):
                    return connection
                connection.close()  # the file was replaced by a compact one before it was locked
                continue
            # Jitter, or processes that started together would keep meeting.
            time.sleep(min(left_s, random.uniform(pause_s / 2, pause_s)))
            pause_s = min(RETRY_MOST_S, 1.5 * pause_s)


@contextmanager
def told(path: str, waited_s: float = 0.0) -> Iterator[None]:
    """Turn DuckDB's errors into ours, one clear line each."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        first: BaseException = error
        while isinstance(first.__context__, duckdb.Error):  # what a failed ROLLBACK says afterwards helps nobody
            first = first.__context__
        raise storage_error(str(first), path, waited_s) from error


def _file_named(path: str) -> tuple[int, int] | None:
    """Which file has the name now; None for none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
