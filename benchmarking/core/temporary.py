"""Temporary files and folders, and cleanup after killed processes.

The creator of a temporary file or folder holds an operating-system lock on it, which ends with the process. One without
a lock was left behind by a killed process, and the next command in that place removes it. On Windows, which lacks such
locks, nothing is removed.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from benchmarking.core.provenance import uuid7

if sys.platform != "win32":
    import fcntl

SHARED = Path("/tmp" if os.name == "posix" else tempfile.gettempdir())  # noqa: S108 - its users check what is there
"""The parent of folders that processes share. On POSIX not $TMPDIR, which may differ between a machine's users, jobs
and processes."""
UUID7 = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
FOLDER = re.compile(rf"(?:\.|benchhouse-).+\.{UUID7}\.new")
"""Name of a temporary folder."""
LOCKED_FILE = re.compile(rf"\.benchhouse\.{UUID7}\.tmp")
"""Name of a file that is written under its lock, then renamed."""
UNLOCKED_FILE = re.compile(rf"\.(?:.+\.)?{UUID7}\.new(?:\.wal)?")
"""Name of a file written without our lock: a draft, or an unfinished database of an older version."""
UNLOCKED_AGE_S = 3600.0
"""Age from which such a file is a leftover; it is in use only briefly, or locked by DuckDB."""


@contextmanager
def temporary_folder(name: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder in `parent`, deleted at the end; `name` begins with a dot, or for the system's folder (None) with
    "benchhouse-".

    Leftovers of killed processes in the same place are removed first. Raises OSError.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    remove_leftovers(parent)
    with held_folder(parent / temporary_name(name)) as folder:
        yield folder


def temporary_name(name: str) -> str:
    """A free name of a temporary folder, for `held_folder`."""
    return f"{name}.{uuid7()}.new"


@contextmanager
def held_folder(folder: Path) -> Iterator[Path]:
    """Inside, the folder exists and is locked, where the system has locks; it is deleted at the end. Raises OSError."""
    lock: int | None = None
    while True:
        folder.mkdir(mode=0o700)
        if sys.platform == "win32":
            break
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # removed as a leftover before it was locked
        with suppress(OSError):  # a file system without locks, where nothing is removed as a leftover
            fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_named(lock, folder):
            break
        os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the rest is a leftover
        if lock is not None:
            os.close(lock)


def locked_file(path: Path) -> IO[str]:
    """A text file, truncated and open for writing, that is not a leftover until it is closed. Raises OSError.

    A link in its place, which could point to any file, is removed.
    """
    while True:
        if path.is_symlink():
            path.unlink(missing_ok=True)
        file = path.open("w", encoding="utf-8")
        if sys.platform == "win32":
            return file
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if _is_named(file.fileno(), path):
            return file
        file.close()  # removed as a leftover before it was locked


def remove_leftovers(parent: Path) -> None:
    """Delete leftovers of this user's killed processes from a folder, if it is writable."""
    for entry in _candidates(parent):
        with _lock_leftover(entry) as is_left, suppress(OSError):
            if is_left and entry.is_dir():
                shutil.rmtree(entry)
            elif is_left:
                entry.unlink()


def leftovers(parent: Path) -> list[Path]:
    """Leftovers of this user's killed processes in a folder."""
    found = []
    for entry in _candidates(parent):
        with _lock_leftover(entry) as is_left:
            found += [entry] if is_left else []
    return found


def _candidates(parent: Path) -> list[Path]:
    """The entries of a folder whose names are those of temporary files."""
    if sys.platform == "win32":
        return []
    try:
        names = sorted(os.listdir(parent))
    except OSError:
        return []
    patterns = (FOLDER, LOCKED_FILE, UNLOCKED_FILE)
    return [parent / name for name in names if any(pattern.fullmatch(name) for pattern in patterns)]


@contextmanager
def _lock_leftover(path: Path) -> Iterator[bool]:
    """Yields whether an entry is a leftover of this user, which remains true inside. Links are not followed."""
    if sys.platform == "win32":
        yield False
        return
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield False  # gone, a link, or of another user
        return
    try:
        yield _is_left(path, lock)
    finally:
        os.close(lock)


def _is_left(path: Path, lock: int) -> bool:
    if sys.platform == "win32":
        return False
    status = os.fstat(lock)
    if stat.S_ISDIR(status.st_mode):
        may_be = FOLDER.fullmatch(path.name) is not None
    else:
        is_old = time.time() - status.st_mtime > UNLOCKED_AGE_S
        may_be = stat.S_ISREG(status.st_mode) and (is_old or LOCKED_FILE.fullmatch(path.name) is not None)
    if not may_be or status.st_uid != os.geteuid():
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(status.st_mode):
            fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # the kind that DuckDB holds
    except OSError:
        return False
    return _is_named(lock, path)


def _is_named(descriptor: int, path: Path) -> bool:
    """Whether the open file or folder still has this name."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))
