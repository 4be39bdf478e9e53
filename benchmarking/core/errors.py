"""Expected errors and the exit code of each.

Every message says what was requested, what was found and what to do; commands print it as one line on stderr. Any other
exception is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_ENOUGH_DATA = 3
EXIT_TIME_LIMIT = 124

OUT_OF_MEMORY_TEXTS = (
    "out of memory",
    "out_of_memory",
    "out_of_host_memory",
    "out_of_device_memory",
    "bad_alloc",
    "bad allocation",
    "can't allocate memory",
    "can not allocate",
    "could not allocate memory",
    "failed to allocate memory",
    "not enough memory",
    "allocation failed",
    "allocation_failure",
    "exceeded max size of memory",
    "bfcarena",
)
"""Texts of a failed allocation, in lower case: of the C++ library, torch, CUDA, HIP, Metal, ONNX Runtime, OpenCL, Level
Zero, OpenVINO and browsers."""


DEVICE_LOST_TEXTS = (
    "device-side assert triggered",
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "misaligned address",
    "invalid program counter",
    "hardware stack error",
    "operation not supported on global/shared address space",
    "unspecified launch failure",
    "the launch timed out and was terminated",
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "invalid access of peer gpu memory over nvlink",
    "context is destroyed",
    "device_lost",
    "device lost",
    "device was lost",
    "device removed",
    "device_removed",
)
"""Texts of errors after which every further call of the process on its device fails, in lower case: of CUDA (also in
the messages of torch and ONNX Runtime), HIP, Level Zero, WebGPU and Direct3D."""


class BenchhouseError(Exception):
    """An expected failure: the work could not be done or finished. Exit code 1."""

    exit_code = EXIT_FAILED


class UsageError(BenchhouseError):
    """An invalid request: an unknown name, an impossible grid, an absent device. Exit code 2."""

    exit_code = EXIT_USAGE


class Interrupted(KeyboardInterrupt):
    """SIGTERM or SIGHUP: it ends a command as Ctrl-C does, with exit code 128 + the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class UnsupportedError(UsageError):
    """A combination that is not supported (device and precision, runtime and model). Exit code 2."""


class NotInstalledError(UsageError):
    """The packages of an extra are not installed; the message has the command for it. Exit code 2."""


class OutOfMemoryError(BenchhouseError):
    """Host or device memory ran out while loading or running a model."""


class StorageError(BenchhouseError):
    """A file or database could not be read or written."""


class LockedError(StorageError):
    """Another process holds the database or the device; the message names it."""


class WorkersLostError(BenchhouseError):
    """The scheduler of a cluster was lost, or no worker is left to continue."""


class UnreadableError(StorageError):
    """A file cannot be opened or read, or is not a regular file."""


class FormatError(StorageError):
    """A file is truncated, has an unknown format, or was written by a newer version."""


def first_line(error: BaseException) -> str:
    """The first line of a library's message; the rest is usually advice for the library's own users."""
    return str(error).strip().split("\n")[0]


def is_out_of_memory(error: BaseException | str) -> bool:
    """Whether an error of Python or of a library, or its message, means that host or device memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(part in text for part in OUT_OF_MEMORY_TEXTS)


def is_device_lost(error: BaseException | str | None) -> bool:
    """Whether an error, its cause, or its message means that the process can no longer use its
    device, as after an illegal memory access on a GPU."""
    if error is None:
        return False
    text = " ".join((str(error), *getattr(error, "__notes__", ()))).lower()
    earlier = None if isinstance(error, str) else error.__cause__ or error.__context__
    return any(part in text for part in DEVICE_LOST_TEXTS) or is_device_lost(earlier)


def out_of_memory(doing: str, error: BaseException) -> OutOfMemoryError:
    """The OutOfMemoryError for a failed allocation, with the first line of the library's message."""
    return OutOfMemoryError(f"out of memory while {doing}: {first_line(error) or type(error).__name__}")


@contextmanager
def memory_errors(doing: str) -> Iterator[None]:
    """Inside, a failed allocation raises OutOfMemoryError; other errors pass through."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise out_of_memory(doing, error) from error
        raise


@contextmanager
def always_after(close: Callable[[], object]) -> Iterator[None]:
    """Run `close` at the end. When both raise, the first error is raised and the second becomes its note."""
    try:
        yield
    except Exception as error:
        try:
            close()
        except Exception as second:  # noqa: BLE001 - the first error is the reason; this one is kept with it
            error.add_note(f"during cleanup: {type(second).__name__}: {second}")
        raise
    close()
