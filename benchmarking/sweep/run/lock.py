"""Machine-wide locks of devices: one measuring worker at a time on each, across users and commands.

A lock is an operating-system lock on a file in a folder shared by all users; it ends with its process. The files are
empty and opened read-only, never through a link, so that a folder prepared by another user cannot cause a lock to
overwrite anything. The holder of a lock and its start time also come from the operating system: the holder has a second
lock, which identifies its process, on the byte whose offset is the start time.

Another user can make the folder or a file in it unusable, on purpose or by accident. That delays a command for a
moment; it then uses locks of its own user, and its results carry a doubt.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarking.core import plugins
from benchmarking.core.doubts import doubt
from benchmarking.core.errors import LockedError, StorageError, storage_errors
from benchmarking.core.lazy_modules import psutil
from benchmarking.core.records import Device, Doubt
from benchmarking.core.shared_settings import DEVICE_WAIT_S
from benchmarking.core.temporary import SHARED as BASE
from benchmarking.core.text import duration, time_text, visible
from benchmarking.devices.support.handles import parts

FOLDER_VARIABLE = "BENCHHOUSE_LOCK_DIR"
UNUSABLE_WAIT_S = 30.0
"""Maximum time in seconds to wait for a lock that this user may not open: its creator may be about to share it."""
POLL_S = 0.2
OLDEST_START_S = 1_577_836_800.0
"""2020-01-01. A record lock that starts below is no time: other programs lock a file from its beginning."""
FOLDER_MODE = 0o1777
"""Every user may add files, and only their owner may remove them, as in /tmp."""
FILE_MODE = 0o644
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.:_-]")
RECORD_LOCK = {"linux": "hhqqi4x", "darwin": "qqihh"}
"""Layout of C's `struct flock`: with the fields type, whence, start, length, pid on Linux, start, length, pid, type,
whence on macOS."""


_given_up: set[str] = set()
"""Locks that stayed unusable: this process does not wait for them again."""


class UnusableLockError(StorageError):
    """A lock of all users that this user may not open."""


@contextmanager
def device_lock(name: str, waiting: Callable[[str], None], limit_s: float = DEVICE_WAIT_S) -> Iterator[Doubt | None]:
    """Hold the lock `name`. If it is taken, `waiting` is called once with a message about its holder.

    Yields a doubt if the lock excludes only other commands of this user, because that of all users is unusable. Raises
    LockedError if it is still taken after `limit_s`, StorageError if no folder is usable.
    """
    file_name = f"{NOT_IN_NAMES.sub('-', name)}.lock"
    if os.name == "nt":
        with _acquired_by_filelock(name, _shared_folder() / file_name, waiting, limit_s):
            yield None
        return
    unshared = None
    try:
        descriptor = _acquired(name, lambda: _shared_folder() / file_name, waiting, limit_s)
    except UnusableLockError as error:
        from platformdirs import user_data_path

        own = user_data_path("benchhouse", appauthor=False) / "locks"  # where nobody else can create anything
        with storage_errors(f"cannot create {own} for device locks", _other_folder()):
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
        if name not in _given_up:
            waiting(
                f"{error}: going on with {own}, which excludes only other commands of this user: "
                f"have the lock removed, or {_other_folder()}"
            )
            _given_up.add(name)
        unshared = doubt("unshared_lock", reason=str(error))
        descriptor = _acquired(name, lambda: own / file_name, waiting, limit_s)
    try:
        yield unshared
    finally:
        os.close(descriptor)


def lock_names(device: Device) -> tuple[str, ...]:
    """The locks of a device, one per part, sorted: processes that take several in the same order cannot deadlock."""
    plugin = plugins.device_kind(device.type)
    return tuple(sorted({name for part in parts(device) if (name := plugin.lock_name(part)) is not None}))


@contextmanager
def device_locks(
    device: Device, waiting: Callable[[str], None], limit_s: float | None = None
) -> Iterator[tuple[Doubt, ...]]:
    """Hold the locks of a device, each acquired within `limit_s` (None: an hour). Yields the first doubt, if any."""
    wait_s = DEVICE_WAIT_S if limit_s is None else limit_s
    with ExitStack() as held:
        doubts = [held.enter_context(device_lock(name, waiting, wait_s)) for name in lock_names(device)]
        yield tuple(one for one in doubts if one is not None)[:1]


def _acquired(name: str, path_now: Callable[[], Path], waiting: Callable[[str], None], limit_s: float) -> int:
    """A locked file; closing the descriptor ends the lock. `path_now` is called for each attempt.

    Raises UnusableLockError for a file that this user may not open, after a moment; else as `device_lock` does.
    """
    started_s = time.monotonic()
    has_waited = False
    while True:
        try:
            path = path_now()
            descriptor = _opened(path)
        except UnusableLockError as error:
            end_s = started_s + (0.0 if name in _given_up else min(limit_s, UNUSABLE_WAIT_S))
            if time.monotonic() >= end_s:
                raise
            message = f"{error}: waiting up to {duration(end_s - started_s)} (--lock-timeout)"
        else:
            try:
                is_locked = _is_locked(descriptor, path)
                holder = "" if is_locked else f"{name} is in use by {_holder(descriptor)}"
            except BaseException:
                os.close(descriptor)
                raise
            if is_locked:
                return descriptor
            os.close(descriptor)
            end_s = started_s + limit_s
            if time.monotonic() >= end_s:
                raise _still_taken(holder, limit_s)
            message = _wait_message(holder, limit_s)
        if not has_waited:
            waiting(message)
            has_waited = True
        time.sleep(min(POLL_S, max(0.0, end_s - time.monotonic())))


def _is_locked(descriptor: int, path: Path) -> bool:
    """Try to lock an open file; also False if the file was removed in the meantime."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StorageError(f"cannot lock {path}: {error.strerror}: {_other_folder()}") from error
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not os.path.samestat(named, os.fstat(descriptor)):
        return False
    # A record lock excludes no one; its purpose is that the system reports the process that holds it.
    if sys.platform in RECORD_LOCK:
        with suppress(OSError):  # another process has a record lock without the lock itself, and is reported instead
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, round(1000 * time.time()))
    return True


def _holder(descriptor: int) -> str:
    """A description of the process that holds the record lock: its user, command and since when, as far as known."""
    import fcntl

    kind, start_ms, pid = fcntl.F_UNLCK, 0, 0
    if (layout := RECORD_LOCK.get(sys.platform)) is not None:
        is_linux = sys.platform == "linux"
        question = (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0) if is_linux else (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        with suppress(OSError):
            answer = struct.unpack(layout, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(layout, *question)))
            kind, start_ms, pid = (answer[i] for i in ((0, 2, 4) if is_linux else (3, 0, 2)))
    if kind == fcntl.F_UNLCK or pid <= 0:  # the system does not report it
        return "another process (unknown PID)"
    since_s, now_s = start_ms / 1000, time.time()
    is_time = OLDEST_START_S < since_s <= now_s
    since = f" since {time_text(since_s)}, for {duration(now_s - since_s)}" if is_time else ""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            description = (process.username(), _command(process.cmdline()) or process.name())
    except (psutil.Error, KeyError):
        return f"PID {pid}{since}"
    return f"PID {pid} ({visible(', '.join(description))}){since}"


def _command(words: Sequence[str]) -> str:
    """The name of the command in a process's arguments: that of the script if Python runs one."""
    if words and Path(words[0]).name.startswith("python"):
        arguments = [word for word in words[1:] if not word.startswith("-")]
        return Path(arguments[0]).name if arguments and "-c" not in words else Path(words[0]).name
    return Path(words[0]).name if words else ""


def _opened(path: Path) -> int:
    """The file of a lock, open for reading, created if missing. Raises UnusableLockError if this user may not open it,
    or if anything else is in its place."""
    # O_CREAT is left out for a file that exists: in folders like /tmp Linux refuses it for the files of other users.
    # O_NONBLOCK: a pipe in its place must not block.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        while True:
            try:
                descriptor = os.open(path, flags)
                break
            except FileNotFoundError:
                with suppress(FileExistsError):  # another process created it in the meantime
                    descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, FILE_MODE)
                    os.fchmod(descriptor, FILE_MODE)  # the umask may have removed permissions
                    break
    except OSError as error:
        raise UnusableLockError(f"cannot open the lock {path}{_owner(path)}: {error.strerror}") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise UnusableLockError(f"{path}{_owner(path)} is not a regular lock file")
    return descriptor


@contextmanager
def _acquired_by_filelock(name: str, path: Path, waiting: Callable[[str], None], limit_s: float) -> Iterator[None]:
    """The lock on Windows, where the folder belongs to one user and the holder is unknown."""
    from filelock import FileLock, Timeout

    lock, holder = FileLock(path), f"{name} is in use by another process"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        waiting(_wait_message(holder, limit_s))
        try:
            lock.acquire(timeout=limit_s, poll_interval=POLL_S)
        except Timeout:
            raise _still_taken(holder, limit_s) from None
    except OSError as error:
        raise StorageError(f"cannot open the lock {path}: {error.strerror}: {_other_folder()}") from error
    try:
        yield
    finally:
        lock.release()


def _wait_message(holder: str, limit_s: float) -> str:
    return f"{holder}: waiting up to {duration(limit_s)} (--lock-timeout)"


def _still_taken(holder: str, limit_s: float) -> LockedError:
    return LockedError(
        f"{holder}: not released within {duration(limit_s)}: wait until it ends, or use a longer --lock-timeout"
    )


def _shared_folder() -> Path:
    """The folder of the locks, writable by every user of the machine. Raises UnusableLockError for one that this user
    cannot use, or in which anyone may replace files, and StorageError if the user named it."""
    named = os.path.expanduser(os.environ.get(FOLDER_VARIABLE, ""))
    folder = Path(named) if named else BASE / "benchhouse-locks"
    try:
        folder.mkdir(exist_ok=True)
        found = os.stat(folder, follow_symlinks=False)
        if os.name == "posix" and not named:
            mode = stat.S_IMODE(found.st_mode)
            if not stat.S_ISDIR(found.st_mode):  # a link
                raise NotADirectoryError(0, "not a folder")
            if found.st_uid == os.geteuid():
                if mode != FOLDER_MODE:
                    folder.chmod(FOLDER_MODE)
            elif mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                raise PermissionError(0, "any user may remove locks in it (no sticky bit)")
    except OSError as error:
        problem = f"cannot use {folder}{_owner(folder)}, the folder of the device locks: {error.strerror}"
        if named:
            raise StorageError(f"{problem}: {_other_folder()}") from error
        raise UnusableLockError(problem) from error
    return folder


def _other_folder() -> str:
    return f"choose another folder with {FOLDER_VARIABLE}, the same for all users of this machine"


def _owner(path: Path) -> str:
    """The owner of a file, or of its folder if it is missing or hidden, in brackets after a space; else empty."""
    try:
        import pwd
    except ImportError:  # Windows
        return ""
    for one in (path, path.parent):
        with suppress(OSError):
            number = os.lstat(one).st_uid
            try:
                return f" (of {pwd.getpwuid(number).pw_name})"
            except KeyError:
                return f" (of user {number})"
    return ""
