"""The queue of the processes that want to write one database file: each waits for its turn before it tries the file.

DuckDB's own lock refuses at once, and every try takes some 20 ms of processor time. With 32 processes that tried again
and again, most of the time went into trying, and chance decided who gave up. Here they wait for an operating-system
lock, which costs nothing and ends with its process. The lock is an aid only: where it cannot be had, DuckDB's decides.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarking.core.command_line import note

BASE = Path("/tmp" if os.name == "posix" else tempfile.gettempdir())  # noqa: S108 - its owner is checked
"""On POSIX not $TMPDIR, which may differ between the processes."""
POLL_S = 0.05
SILENT_S = 5.0
"""Time to wait before that is said."""


@contextmanager
def turn(path: str | Path, limit_s: float) -> Iterator[float]:
    """Inside, no other process of this user has its turn for this file. Waits up to `limit_s`, then goes on without;
    yields the seconds left. Turns of one process may be nested."""
    from filelock import FileLock, Timeout

    began_s, lock_file, lock = time.monotonic(), _lock_file(path), None
    if lock_file is not None:
        lock = FileLock(lock_file, thread_local=False, is_singleton=True)
        try:
            lock.acquire(timeout=min(limit_s, SILENT_S), poll_interval=POLL_S)
        except Timeout:
            try:
                if limit_s > SILENT_S:
                    note(f"{path} is being written by another process: waiting up to {limit_s:g} s (--lock-timeout)")
                lock.acquire(timeout=max(0.0, limit_s - SILENT_S), poll_interval=POLL_S)
            except (Timeout, OSError):
                lock = None
        except OSError:
            lock = None
    try:
        yield max(0.0, limit_s - (time.monotonic() - began_s))
    finally:
        if lock is not None:
            lock.release()


def _lock_file(path: str | Path) -> Path | None:
    """The file of the lock, in a folder of this user; None if there can be no such folder."""
    folder = BASE / f"benchhouse-turns-{os.getuid() if os.name == 'posix' else 0}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = os.stat(folder, follow_symlinks=False)
    except OSError:
        return None
    is_ours = os.name != "posix" or (found.st_uid == os.getuid() and not found.st_mode & 0o022)
    if not stat.S_ISDIR(found.st_mode) or not is_ours:
        return None
    return folder / f"{hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]}.lock"
