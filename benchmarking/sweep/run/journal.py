"""Append-only files of JSON lines, each synced to disk before `append` returns.

The first line is a header, the others are records. An incomplete last line, left by a crash, is ignored. Links are
never followed, since a link in another user's folder could point to any file.

Who writes a journal, or continues one, holds an operating-system lock on it, which ends with the process. The lock is
on the file itself, so that no lock file is left behind or deleted while another process waits for it.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from benchmarking.core.errors import FormatError, LockedError, StorageError, storage_errors
from benchmarking.core.provenance import Owner, this_process, uuid7
from benchmarking.core.records import dumps, from_json
from benchmarking.core.temporary import locked_file

NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)
"""Errors of `os.link` on file systems that do not support hard links."""

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Errors of `flock` on file systems without locks."""
CLAIM_S = 2.0
"""Time to wait for the holder of a lock to write its PID, in seconds."""

MAX_BYTES = 1 << 30
"""Maximum size of a file to read, as for run files."""
NO_FOLLOWING = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags that neither follow a link nor block on a pipe without a writer; Windows has neither flag."""

Record = dict[str, Any]


def endings() -> Iterator[str]:
    """What is added to a name until it is free: nothing, then -2, -3, ..."""
    return itertools.chain([""], (f"-{number}" for number in itertools.count(2)))


def opened(path: Path, mode: str, *, buffering: int = -1) -> IO[Any]:
    """The file, opened like by `open`, but never through a link; text is UTF-8. Raises OSError."""
    encoding = None if "b" in mode else "utf-8"
    opener = lambda name, flags: os.open(name, flags | NO_FOLLOWING, 0o666)  # noqa: E731
    return open(path, mode, buffering, encoding=encoding, opener=opener)


class Hold:
    """The lock on a journal."""

    def __init__(self, path: Path, lock: Any) -> None:
        """`lock` is an open file, or on Windows a `FileLock`, which has a file of its own."""
        self.path = path
        self._lock = lock

    def release(self) -> None:
        """End the lock; calls after the first one do nothing."""
        (self._lock.close if sys.platform != "win32" else self._lock.release)()


def hold(path: Path) -> Hold | None:
    """Lock a journal, without waiting; None if it is gone.

    Raises LockedError, with the holder, while another process or another part of this one holds it; StorageError.
    """
    if sys.platform == "win32":
        from filelock import FileLock, Timeout

        if not path.exists():
            return None
        lock = FileLock(path.with_name(f".{path.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise _in_use(path) from None
        return Hold(path, lock)
    try:
        file = opened(path, "rb+", buffering=0)  # writable, since network file systems lock no other files exclusively
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error.strerror}") from error
    try:
        _lock(file, path)
        if os.path.samestat(os.lstat(path), os.fstat(file.fileno())):
            return Hold(path, file)
    except FileNotFoundError:
        pass  # finished between opening and locking
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def create(paths: Iterable[Path], header: Mapping[str, Any], is_free: Callable[[Path], bool]) -> Hold:
    """A new journal at the first path that is free, owned and locked by this process; it appears with its header
    complete.

    `is_free` is called once the path is reserved, so that its answer stays valid. Raises StorageError.
    """
    candidates = iter(paths)
    path = next(candidates)
    draft = path.with_name(f".{uuid7()}.new")
    held = None
    try:
        with opened(draft, "x") as file:
            file.write(json.dumps(header, ensure_ascii=False, allow_nan=False) + "\n")
        claim(draft)
        while held is None:
            held = _name(draft, path)
            if held is not None and not is_free(path):
                path.unlink()
                held.release()
                held = None
            if held is None:
                path = next(candidates)
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"cannot write to {path.parent}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return held


def append(path: Path, name: str, content: str) -> None:
    """Append the line {name: content}, content being JSON, and sync it to disk. Raises OSError."""
    with opened(path, "a") as file:
        file.write(f'{{"{name}":{content}}}\n')
        file.flush()
        os.fsync(file.fileno())


def claim(path: Path) -> None:
    """Record this process as the owner of the file. Raises OSError."""
    append(path, "Owner", dumps(this_process()))


def read(path: Path, kind: str, version: int, what: str) -> list[Record]:
    """The header and the records up to the first line that is none. Raises FormatError for a file that is not `what`,
    StorageError."""
    header, *lines = _lines(path) or [b""]
    records = [_parse(path, header, 1)]
    if records[0].get("format") != kind:
        raise FormatError(f"{path}: not {what}")
    if records[0].get("version") != version:
        raise FormatError(f"{path}: expected version {version}, found {records[0].get('version')!r}")
    with suppress(FormatError):
        for number, line in enumerate(lines, start=2):
            records.append(_parse(path, line, number))
    return records


def repair(path: Path, lines: int) -> Path | None:
    """Keep only the first lines of the file, and remove an incomplete last line, before more are appended.

    Returns the copy of the file as it was, if more than an incomplete line was removed. Raises StorageError.
    """
    copy = None
    try:
        with opened(path, "r+b") as file:
            content = file.read()
            complete = [line + b"\n" for line in content.split(b"\n")[:-1]]
            if len(complete) > lines:
                names = (path.with_name(f"{path.name}.damaged{ending}") for ending in endings())
                copy = next(name for name in names if not os.path.lexists(name))
                with opened(copy, "xb") as kept:
                    kept.write(content)
            file.truncate(sum(map(len, complete[:lines])))
    except OSError as error:
        raise StorageError(f"cannot write {error.filename or path}: {error.strerror}") from error
    return copy


def replace(path: Path, text: str) -> None:
    """Write or replace a file atomically. Raises OSError, and leaves no draft then."""
    temporary = path.with_name(f".benchhouse.{uuid7()}.tmp")  # whatever the length of the name
    with locked_file(temporary) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            if os.name != "nt":
                temporary.replace(path)  # under its lock
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
    if os.name == "nt":
        temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder if possible, so that a new name in it survives a power failure."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name(draft: Path, path: Path) -> Hold | None:
    """The lock on the complete draft, which got this name; None if the name is taken."""
    if sys.platform != "win32":
        file = opened(draft, "rb+", buffering=0)
        _lock(file, draft)  # first, so that the named file is never unlocked
        try:
            os.link(draft, path)
        except OSError as error:
            file.close()
            if error.errno not in (*NO_LINKS, errno.EEXIST):
                raise
            if error.errno == errno.EEXIST:
                return None
        else:
            return Hold(path, file)
    try:  # without hard links the file is briefly visible but empty
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return None
    held = hold(path)
    path.write_bytes(draft.read_bytes())
    return held


def _lock(file: IO[Any], path: Path) -> None:
    """Lock an open journal. Without locks on its file system, its owner may not be running. Raises LockedError."""
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _in_use(path) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise StorageError(f"cannot lock {path}: {error.strerror}") from error
        owners = _owners(path)
        if owners and owners[-1].is_alive():
            raise _in_use(path) from error


def _in_use(path: Path) -> LockedError:
    """The error for a journal that is held, with the process that does: it writes its PID right after locking."""
    deadline_s = time.monotonic() + CLAIM_S
    while True:
        owners = _owners(path)
        if owners and (owners[-1].is_alive() or not owners[-1].is_here()):
            break
        if time.monotonic() >= deadline_s:
            return LockedError(f"{path}: in use by another process: wait until it ends, or stop it")
        time.sleep(CLAIM_S / 40)
    where = "" if owners[-1].is_here() else " of another machine"
    doing = "being resumed" if len(owners) > 1 else "in use"
    return LockedError(f"{path}: {doing} by PID {owners[-1].pid}{where}: wait until it ends, or stop it")


def _owners(path: Path) -> list[Owner]:
    """The owners that a journal names; none for an unreadable one."""
    with suppress(StorageError, ValueError, LookupError):
        records = [json.loads(line) for line in _lines(path) if line.startswith(b'{"Owner":')]
        return [from_json(Owner, record["Owner"], "owner") for record in records]
    return []


def _lines(path: Path) -> list[bytes]:
    """The lines with an end."""
    with storage_errors(f"cannot read {path}"), opened(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise FormatError(f"{path}: expected a file of at most {MAX_BYTES >> 30} GiB")
        content: bytes = file.read()
    return content.split(b"\n")[:-1]


def _parse(path: Path, line: bytes, number: int) -> Record:
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}:{number}: not UTF-8: {error.reason} at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}:{number}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise FormatError(f"{path}:{number}: not an object")
    return record
