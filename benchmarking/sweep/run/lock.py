"""One measuring worker at a time on a device of this machine, whoever started it."""

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
    """Hold the machine-wide lock `name`; `waiting` is told once who holds it when it is not free. None needs no lock.

    The lock is the operating system's, so it goes with its holder however that ends.
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
        waiting(f"another benchmark (PID {_holder(holder)}) is measuring on {name}: waiting for it")
        lock.acquire(poll_interval=POLL_S)
    except OSError as error:
        raise StorageError(f"cannot lock {name} in {folder}: {error.strerror}") from error
    try:
        holder.write_text(str(os.getpid()))
        yield
    finally:
        lock.release()


def lock_names(device: Device) -> tuple[str, ...]:
    """The locks of a device, one for each of several, in the one order in which everybody takes them."""
    plugin: DeviceKind = plugins.load("benchmarking.devices", device.type)
    return tuple(sorted({name for part in parts(device) if (name := plugin.lock_name(part)) is not None}))


@contextmanager
def device_locks(names: Sequence[str], waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold all these locks, taken in their order."""
    with ExitStack() as held:
        for name in names:
            held.enter_context(device_lock(name, waiting))
        yield


def _folder() -> Path:
    """The folder of the locks, which every user of the machine can write to."""
    folder = Path(tempfile.gettempdir()) / "benchhouse-locks"
    try:
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            folder.chmod(0o1777)
    except OSError as error:
        raise StorageError(f"cannot make the folder of the device locks, {folder}: {error.strerror}") from error
    return folder


def _holder(path: Path) -> str:
    try:
        return path.read_text().strip() or "unknown"
    except OSError:
        return "unknown"  # taken a moment ago, or by a user whose files cannot be read: the lock counts all the same
