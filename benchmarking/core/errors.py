"""Expected errors and the exit code of each.

Every message says what was requested, what was found and what to do; commands print it as one line on stderr. Any other
exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_ENOUGH_DATA = 3
EXIT_TIME_LIMIT = 124

OUT_OF_MEMORY_TEXTS: Mapping[str, str] = {
    "out of memory": "torch, CUDA, HIP, Metal, ggml",
    "out_of_memory": "CUDA_ERROR_OUT_OF_MEMORY",
    "outofmemory": "TensorRT's error code 2, cudaErrorMemoryAllocation's name in HIP (hipErrorOutOfMemory)",
    "out_of_host_memory": "OpenCL, Level Zero, Vulkan",
    "out_of_device_memory": "Level Zero and Unified Runtime (torch's XPU), Vulkan",
    "erroroutofdevicememory": "Vulkan's C++ names, in ggml",
    "erroroutofhostmemory": "Vulkan's C++ names, in ggml",
    "out_of_resources": "OpenCL (CL_OUT_OF_RESOURCES), Unified Runtime (torch's XPU)",
    "cl_invalid_buffer_size": "OpenCL: a buffer above the device's limit",
    "cl_mem_object_allocation_failure": "OpenCL",
    "alloc_failed": "cuBLAS, cuDNN 8, cuSOLVER, cuSPARSE, cuFFT and AMD's counterparts (CUBLAS_STATUS_ALLOC_FAILED)",
    "rocblas_status_memory_error": "rocBLAS",
    "miopenstatusallocfailed": "MIOpen",
    "allocation_failed": "cuDNN 9 (CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)",
    "invalid buffer size": "torch's MPS: a tensor above Metal's largest buffer",
    "[metal::malloc]": "MLX",
    "bad_alloc": "the C++ library",
    "cannot allocate memory": "the C library (ENOMEM)",
    "failed to map segment": "the dynamic linker, of a library that is imported",
    "bad allocation": "the C++ library of Windows",
    "can't allocate memory": "torch's allocator on the CPU",
    "can not allocate": "OpenVINO, oneDNN",
    "could not allocate memory": "CTranslate2, oneDNN",
    "unable to allocate": "numpy, ggml (unable to allocate CUDA0 buffer)",
    "failed to allocate": "ggml, ONNX Runtime, TensorRT",
    "could not be allocated": "TensorRT: a requested amount of GPU memory",
    "insufficient memory": "Metal's command buffers, of torch and MLX",
    "not enough memory": "torch on Windows",
    "allocation failed": "WebGPU, WebAssembly",
    "allocation_failure": "OpenCL, and OpenVINO's GPU plugin",
    "exceeded max size of memory": "OpenVINO's GPU plugin",
    "bfcarena": "ONNX Runtime's allocator",
}
"""Texts of a failed allocation, in lower case, and where they come from."""

ENDED_BY_METAL = ("command buffer execution failed", "kiogpucommandbuffercallbackerror")
DEVICE_LOST_TEXTS: Mapping[str, str] = {
    "device-side assert triggered": "CUDA 710",
    "an illegal memory access was encountered": "CUDA 700, HIP",
    "an illegal instruction was encountered": "CUDA 715",
    "misaligned address": "CUDA 716",
    "invalid program counter": "CUDA 718",
    "hardware stack error": "CUDA 714",
    "operation not supported on global/shared address space": "CUDA 717",
    "unspecified launch failure": "CUDA 719, HIP",
    "the launch timed out and was terminated": "CUDA 702",
    "status_execution_failed": "cuBLAS, cuDNN and hipBLAS, whose kernels failed",
    ENDED_BY_METAL[0]: "MLX: Metal ended a kernel",
    ENDED_BY_METAL[1]: "Metal, which then ignores further command buffers of the process",
    "exec_status_error_for_events_in_wait_list": "OpenCL, after a kernel that failed",
    "uncorrectable ecc error": "CUDA 214",
    "uncorrectable nvlink error": "CUDA 220",
    "invalid access of peer gpu memory over nvlink": "CUDA 721",
    "context is destroyed": "CUDA 709",
    "gpu is lost": "NVML, and Xid 79 in the kernel's log",
    "fallen off the bus": "Xid 79 in the kernel's log",
    "device_lost": "Level Zero, Vulkan",
    "device lost": "WebGPU",
    "device was lost": "WebGPU",
    "device removed": "Direct3D",
    "device_removed": "Direct3D",
}
"""Texts of errors after which every further call of the process on its device fails, in lower case, and where they come
from; the messages of torch and ONNX Runtime contain them."""


LEAST_ADDRESS_SPACE = 1_000_000_000
"""Bytes. At 300 to 950 MB, charts, publish and export were seen to hang or to be ended by a library."""
LOW_ADDRESS_SPACE = 8_000_000_000
"""Bytes. OpenBLAS reserves tens of MB for each processor, of which a machine may have a hundred."""


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


def first_line(error: BaseException | str) -> str:
    """The first line of a library's message; the rest is usually advice for the library's own users."""
    return str(error).strip().split("\n")[0]


def is_out_of_memory(error: BaseException | str) -> bool:
    """Whether an error of Python or of a library, or its message, means that host or device memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError | OutOfMemoryError) or any(part in text for part in OUT_OF_MEMORY_TEXTS)


def out_of_memory_line(error: BaseException) -> str | None:
    """What a command prints when memory ran out in its own process; None for any other error.

    Below a limit of the address space, an import may also fail without a reason, or a thread may not start.
    """
    limit = _address_space_limit()
    signs = ("can't start new thread", "without setting an exception", "without exception set")
    is_limited = limit is not None and any(sign in str(error) for sign in signs)
    if not is_limited and not (is_out_of_memory(error) and isinstance(error, Exception)):
        return None
    problem = f"out of memory: {first_line(error) or type(error).__name__}"
    if limit is None:
        return f"{problem}: free memory, or choose less data"
    return f"{problem}: this process may use {limit / 1e6:.0f} MB of address space (ulimit -v): raise the limit"


def require_address_space() -> None:
    """Raise OutOfMemoryError below the lowest limit of the address space at which libraries still report a lack of
    memory: OpenBLAS waits forever for memory, and DuckDB and jemalloc end the process.

    Below a low limit, OpenBLAS starts no threads in this process and its children, since each reserves memory.
    """
    limit = _address_space_limit()
    if limit is None:
        return
    if limit < LEAST_ADDRESS_SPACE:
        raise OutOfMemoryError(
            f"this process may use {limit / 1e6:.0f} MB of address space (ulimit -v), and needs at least "
            f"{LEAST_ADDRESS_SPACE / 1e6:.0f} MB: raise the limit"
        )
    if limit < LOW_ADDRESS_SPACE:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _address_space_limit() -> int | None:
    """In bytes; None without a limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def is_device_lost(error: BaseException | str | None) -> bool:
    """Whether an error, its cause, or its message means that the process can no longer use its device, as after an
    illegal memory access on a GPU. A command buffer that Metal ends for lack of memory leaves the device usable."""
    if error is None:
        return False
    texts = [str(text).lower() for text in (error, *getattr(error, "__notes__", ()))]
    lost = ((part, text) for text in texts for part in DEVICE_LOST_TEXTS if part in text)
    if any(part not in ENDED_BY_METAL or "insufficient memory" not in text for part, text in lost):
        return True
    return not isinstance(error, str) and is_device_lost(error.__cause__ or error.__context__)


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
def storage_errors(what: str, advice: str = "") -> Iterator[None]:
    """Inside, an OSError becomes a StorageError: "cannot write FILE: No space left on device: choose another path"."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what}: {error.strerror or error}{advice and f': {advice}'}") from error


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
