"""A consistent copy of a database file, made without the file's lock, files that appear only when complete, and the
queue of a file's writers.

DuckDB writes a new state into free blocks of the file, and makes it the current one by writing a header at the end of a
checkpoint. Between checkpoints it appends to the log, whose entries may refer to blocks that are in the file by then.
During a checkpoint the log is frozen, and other threads commit to a second one. So if the logs are copied before the
file, and the headers and the set of logs are the same before and after, the copy is what a crash at that moment would
have left. DuckDB can read that: it ignores an unfinished transaction at the end of a log.

Blocks of metadata are rewritten in place, with new parts behind the old ones. A block that is read in the middle of
such a write is torn. So whatever was read of a file that is being written is read again until two reads agree.
"""

from __future__ import annotations

import errno
import filecmp
import glob
import hashlib
import itertools
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from benchmarking.core.command_line import note
from benchmarking.core.errors import StorageError, storage_errors
from benchmarking.core.temporary import SHARED, temporary_folder
from db.connection import (
    FILE_FORMAT,
    LOG_ENDINGS,
    SILENT_S,
    WRITER,
    DamagedError,
    check_database_file,
    connect,
    copy_database,
    database_files,
    file_id,
    has_unread_log,
    missing_database,
    note_waiting,
)

HEADER_BYTES = 3 * 4096
"""The file's header and two headers of states, of which a checkpoint writes the older one."""
CHUNK_BYTES = 1 << 20
SETTLED_S = 0.05
"""A file whose time of change is older than this is not being written; such times have steps of up to 10 ms."""
ATTEMPTS = 20
PAUSE_S = 0.05
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

# The queue of the processes that want to write one database file: each waits for its turn before it tries the file.
# DuckDB's own lock refuses at once, and every try takes some 20 ms of processor time. With 32 processes that tried
# again and again, most of the time went into trying, and chance decided who gave up. Here they wait for an
# operating-system lock, which costs nothing and ends with its process. It is an aid only: where it cannot be had,
# DuckDB's decides.
POLL_S = 0.05

State = tuple[bytes, tuple[tuple[int, int] | None, ...]]
Times = tuple[int, int]


def copy_unlocked(path: Path, folder: Path, ending: str = ".duckdb") -> Path:
    """A consistent copy in the folder, without a log. Raises StorageError."""
    if not path.exists():
        raise missing_database(str(path))
    check_database_file(str(path))
    damage: DamagedError | None = None
    for attempt in range(ATTEMPTS):
        copy = folder / f"{attempt}{ending}"
        try:
            if _copy_once(path, copy):
                _apply_log(copy, path)
                return copy
        except DamagedError as error:  # of the copy, or of the file
            if damage is not None:
                raise
            damage = error
        for file in database_files(copy).values():
            Path(file).unlink(missing_ok=True)
        time.sleep(PAUSE_S)
    raise StorageError(
        f"{path} was written all the time: no copy of it was consistent in {ATTEMPTS} attempts: try again"
    )


def _copy_once(path: Path, copy: Path) -> bool:
    """Copy logs and file; whether they belong together."""
    before, times = _state(path), _times(path)
    try:
        for ending in (*LOG_ENDINGS, ""):
            with suppress(FileNotFoundError):  # no log, or a file that is just being replaced
                shutil.copyfile(database_files(path)[ending], f"{copy}{ending}")
        is_unchanged = times is not None and time.time() - times[1] / 1e9 > SETTLED_S and _times(path) == times
        is_consistent = copy.exists() and (is_unchanged or _settle(path, copy))
    except OSError as error:
        advice = "free some space there, or choose another folder with TMPDIR" if error.errno in NO_SPACE else None
        problem = f"{path} cannot be copied to {copy.parent}: {error.strerror}"
        raise StorageError(f"{problem}: {advice}" if advice else problem) from error
    return is_consistent and before is not None and _state(path) == before


def _settle(path: Path, copy: Path) -> bool:
    """Read again what has been read until it is the same; whether it was in the end."""
    size = copy.stat().st_size
    offsets = list(range(0, size, CHUNK_BYTES))
    with path.open("rb") as file, copy.open("r+b") as target:
        for _ in range(ATTEMPTS):
            changed = []
            for offset in offsets:
                file.seek(offset)
                target.seek(offset)
                length = min(CHUNK_BYTES, size - offset)
                content = file.read(length)
                if content != target.read(length):
                    target.seek(offset)
                    target.write(content)
                    changed.append(offset)
            if not changed:
                return True
            offsets = changed
            target.flush()
    return False


def _times(path: Path) -> Times | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _state(path: Path) -> State | None:
    """What changes with a checkpoint, or with another file at the path; None without a file."""
    with storage_errors(f"{path} cannot be read"), suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(HEADER_BYTES), tuple(file_id(part) for part in database_files(path).values())
    return None


def _apply_log(copy: Path, path: Path) -> None:
    """Write the copy's log into it. Raises StorageError."""
    if any(os.path.exists(f"{copy}{ending}") for ending in LOG_ENDINGS):
        with errors_naming(str(path), str(copy)):
            connect(str(copy), WRITER, read_only=False, lock_timeout_s=0.0).close()


def old_copies(path: Path) -> list[Path]:
    """The files with names of copies that were kept before upgrades of the file."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.schema-*.backup"))


def keep_old(path: Path, version: int, *, lock_timeout_s: float) -> None:
    """Copy a file of an older schema next to it, under a name that is free, before it is upgraded. A copy that an
    interrupted upgrade has left is enough. Raises StorageError."""
    earlier, numbers = old_copies(path), itertools.chain([""], (f".{number}" for number in itertools.count(1)))
    names = (path.with_name(f"{path.name}.schema-{version}{number}.backup") for number in numbers)
    target = next(name for name in names if not name.exists())
    copy_as_it_is(path, target, lock_timeout_s=lock_timeout_s)
    with storage_errors(f"{path} cannot be compared with its copies"):
        if any(filecmp.cmp(one, target, shallow=False) for one in earlier):
            target.unlink()
            return
    note(f"{path}: schema {version} is upgraded; the old file is kept as {target} until --verify finds no fault")


def copy_as_it_is(path: Path, target: Path, *, lock_timeout_s: float) -> None:
    """Copy a file of any schema, with what its log has, to a new path. Raises StorageError."""
    with temporary_sibling(target) as part:
        with connect(str(path), FILE_FORMAT, read_only=True, lock_timeout_s=lock_timeout_s):
            copy_database(path, part)
        _apply_log(part, path)
        share_as(path, part)
        if not publish(part, target):
            raise StorageError(f"{target} already exists: choose another path")


def share_as(path: Path, copy: Path) -> None:
    """Let those read and write a copy, before it gets its name, who may with the file: it becomes one of the same group
    and, where this user may give files away, owner. Its owner always may; where this user may not give it to the group,
    another one may what all others may. Raises StorageError."""
    with storage_errors(f"cannot write {copy}"):
        of_file = path.stat()
        mode = of_file.st_mode & 0o777 | stat.S_IRUSR | stat.S_IWUSR
        for owner in (of_file.st_uid, -1) if hasattr(os, "chown") else ():
            with suppress(OSError):
                os.chown(copy, owner, of_file.st_gid)
                break
        if copy.stat().st_gid != of_file.st_gid:  # another group is not to have what was that one's
            mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
    with suppress(OSError):  # a file system without permissions of its own, as of a USB stick
        copy.chmod(mode)


@contextmanager
def errors_naming(name: str, copy: str) -> Iterator[None]:
    """Errors of a copy name what the user knows."""
    try:
        yield
    except StorageError as error:
        error.args = (str(error).replace(copy, name),)
        raise


NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)
"""Errors of `os.link` on file systems without hard links."""


@contextmanager
def temporary_sibling(path: Path) -> Iterator[Path]:
    """A free path on the same file system for an unfinished file; it and its log are deleted at the end.

    Raises StorageError if nothing can be written there.
    """
    with ExitStack() as stack:
        with storage_errors(f"cannot write to {path.parent}", "choose another path"):
            folder = stack.enter_context(temporary_folder(f".{path.name}", path.parent))
        yield folder / path.name


def replace_file(path: Path, content: bytes, advice: str = "choose another path") -> None:
    """Write a file in one step, in place of an earlier one, which stays if that fails. Raises StorageError."""
    with temporary_sibling(path) as part, storage_errors(f"cannot write {path}", advice):
        part.write_bytes(content)
        part.replace(path)


def publish(part: Path, path: Path) -> bool:
    """Move a finished file to its path. False if the path exists. Raises StorageError."""
    with storage_errors(f"cannot create {path}", "choose another path"), suppress(FileExistsError):
        if os.name == "nt":
            part.rename(path)  # on Windows this refuses an existing name; elsewhere it would replace it
            return True
        try:
            os.link(part, path)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            # The name is reserved first, so that nothing is replaced; an empty file is visible for a moment.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            part.replace(path)
        return True
    return False


def make_folder(folder: Path) -> None:
    """Create the folder and its parents. Raises StorageError."""
    with storage_errors(f"cannot create the folder {folder}", "choose another path"):
        folder.mkdir(parents=True, exist_ok=True)


def remove_temporary_files(path: str) -> None:
    """Delete what killed processes left in the folder of a database's temporary files. Only for a process that has the
    file open alone."""
    folder = Path(f"{os.path.abspath(path)}.tmp")
    if folder.is_dir() and not folder.is_symlink():
        for entry in folder.glob("duckdb_temp_*"):
            with suppress(OSError):
                entry.unlink()
        with suppress(OSError):  # other files are not ours
            folder.rmdir()


def keep_unread_log(path: str, *, lock_timeout_s: float) -> None:
    """Rename the file's log if DuckDB ignores it, before a change of the file deletes it, and say so. Call this in a
    `turn`. Raises like `connect`."""
    if not has_unread_log(path, lock_timeout_s=lock_timeout_s):
        return
    with temporary_folder("benchhouse-log") as folder:  # that of a database that this process has open can be read
        copy = folder / os.path.basename(path)
        copy_database(path, copy)
        if not has_unread_log(str(copy), lock_timeout_s=0.0):
            return
    log = Path(database_files(path)[".wal"])
    kept = log.with_name(f"{log.name}.unread-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
    with storage_errors(f"{log} cannot be renamed"):
        log.rename(kept)
    problem = "cannot be read (it is damaged, cut off, or of another file), and what only it has is not in the database"
    note(f"{path}: its log {problem}: kept as {kept}")


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
                    note_waiting(str(path), "is being written by another process", limit_s)
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
    folder = SHARED / f"benchhouse-turns-{os.getuid() if os.name == 'posix' else 0}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = os.stat(folder, follow_symlinks=False)
    except OSError:
        return None
    is_ours = os.name != "posix" or (found.st_uid == os.getuid() and not found.st_mode & 0o022)
    if not stat.S_ISDIR(found.st_mode) or not is_ours:
        return None
    return folder / f"{hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]}.lock"
