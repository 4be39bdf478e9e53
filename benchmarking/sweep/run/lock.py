"""Machine-wide locks of devices: one measuring worker at a time on each, across users and commands."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarking.core import plugins
from benchmarking.core.device_contracts import DeviceKind
from benchmarking.core.errors import StorageError
from benchmarking.core.records import Device
from benchmarking.devices.support.handles import parts

POLL_S = 0.2


@contextmanager
def device_lock(name: str | None, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock `name`; nothing for None. If it is taken, `waiting` is called once with a message about its holder.

    It is a lock of the operating system, so it is released however its holder ends.
    """
    if name is None:
        yield
        return
    from filelock import FileLock, Timeout

    folder = _folder()
    holder = folder / f"{name}.pid"
    lock = FileLock(folder / f"{name}.lock", mode=0o666)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        waiting(f"{name} is in use by another benchmark (PID {_holder(holder)}): waiting for it")
        lock.acquire(poll_interval=POLL_S)
    except OSError as error:
        raise StorageError(f"cannot lock {name} in {folder}: {error.strerror}") from error
    try:
        holder.write_text(str(os.getpid()))
        yield
    finally:
        lock.release()


def lock_names(device: Device) -> tuple[str, ...]:
    """The locks of a device, one per part, sorted: processes that take several in the same order cannot deadlock."""
    plugin: DeviceKind = plugins.load("benchmarking.devices", device.type)
    return tuple(sorted({name for part in parts(device) if (name := plugin.lock_name(part)) is not None}))


@contextmanager
def device_locks(names: Sequence[str], waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold these locks, acquired in the given order."""
    with ExitStack() as held:
        for name in names:
            held.enter_context(device_lock(name, waiting))
        yield


def _folder() -> Path:
    """The folder of the locks, writable for every user of the machine."""
    folder = Path(tempfile.gettempdir()) / "benchhouse-locks"
    try:
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            folder.chmod(0o1777)
    except OSError as error:
        raise StorageError(f"cannot create {folder}, the folder of the device locks: {error.strerror}") from error
    return folder


def _holder(path: Path) -> str:
    try:
        return path.read_text().strip() or "unknown"
    except OSError:
        return "unknown"  # acquired a moment ago, or by a user whose files are not readable
