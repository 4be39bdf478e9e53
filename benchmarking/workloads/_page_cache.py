"""How much of some files the page cache holds: what reading them costs depends on it more than on anything else.

Linux tells by cachestat(2), since 6.5, or by mincore(2) over a mapping. Elsewhere there is no call for it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarking.records import FAILED, NO_PERMISSION, NOT_APPLICABLE, NOT_SUPPORTED, Json, Workload
from benchmarking.workloads._weight_files import weight_files

WARM_SHARE = 0.99
COLD_SHARE = 0.01
CACHESTAT_NUMBER = 451
"""The same on every architecture but alpha (include/uapi/asm-generic/unistd.h)."""


class _Range(ctypes.Structure):
    """struct cachestat_range of linux/mman.h."""

    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    """struct cachestat of linux/mman.h, in pages."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def page_cache_of(workload: Workload) -> dict[str, Json]:
    """`weights_file_bytes` and the state of the weight files, as `page_cache` gives it; empty for random weights, which
    no file is read for."""
    if workload.weights != "pretrained" or workload.path is None:
        return {}
    files = weight_files(Path(workload.path))
    return {"weights_file_bytes": sum(path.stat().st_size for path in files), **page_cache(files)}


def page_cache(files: Sequence[Path]) -> dict[str, Json]:
    """The state of the files together: `page_cache` is warm (99 % of the pages and more), cold (1 % and less), mixed
    or unknown; `page_cache_share` is the share of pages in memory, or `page_cache_reason` why it is not known."""
    if sys.platform != "linux":
        return _unknown(f"{NOT_SUPPORTED}: {sys.platform} does not tell which pages of a file it holds")
    if not sum(path.stat().st_size for path in files):
        return _unknown(f"{NOT_APPLICABLE}: no file to read")
    try:
        counts = [_resident_pages(path) for path in files]
    except OSError as error:
        return _unknown(f"{NO_PERMISSION if isinstance(error, PermissionError) else FAILED}: {error}")
    share = sum(resident for resident, _ in counts) / sum(total for _, total in counts)
    return {"page_cache": state_of(share), "page_cache_share": round(share, 4)}


def state_of(share: float) -> str:
    """The word for a share of resident pages."""
    return "warm" if share >= WARM_SHARE else "cold" if share <= COLD_SHARE else "mixed"


def _unknown(reason: str) -> dict[str, Json]:
    return {"page_cache": "unknown", "page_cache_reason": reason}


def _resident_pages(path: Path) -> tuple[int, int]:
    """Pages of the file in memory, and all of them. Raises OSError."""
    size = path.stat().st_size
    if not size:
        return 0, 0
    total = -(-size // mmap.PAGESIZE)
    with path.open("rb") as file:
        cached = _cachestat(file.fileno(), size)
        if cached is not None:
            return min(cached, total), total
        _check_mincore_tells(path)
        return _mincore(file.fileno(), size, total), total


def _cachestat(descriptor: int, size: int) -> int | None:
    """Pages of an open file in memory; None where the kernel or a sandbox has no cachestat, or keeps it back."""
    pages = _Pages()
    asked = _Range(0, size)
    answer = ctypes.CDLL(None).syscall(
        ctypes.c_long(CACHESTAT_NUMBER), ctypes.c_uint(descriptor), ctypes.byref(asked), ctypes.byref(pages), 0
    )
    return int(pages.cached) if answer == 0 else None


def _check_mincore_tells(path: Path) -> None:
    """Raise PermissionError for a file that is neither this user's nor writable: of those mincore says, since Linux
    5.2, that every page is in memory."""
    if path.stat().st_uid != os.geteuid() and not os.access(path, os.W_OK):
        raise PermissionError(f"{path.name} is another user's, of whose pages Linux tells nothing")


def _mincore(descriptor: int, size: int, total: int) -> int:
    """Pages of an open file in memory, by mapping it without touching a page. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    # A private mapping may be written to, which ctypes asks for before it gives an address; nothing is written.
    with mmap.mmap(descriptor, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapping:
        start = ctypes.c_char.from_buffer(mapping)
        vector = (ctypes.c_ubyte * total)()
        answer = library.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), vector)
        error = ctypes.get_errno()
        del start  # the mapping cannot be closed while something points into it
    if answer != 0:
        raise OSError(error, f"mincore: {os.strerror(error)}")
    return sum(byte & 1 for byte in bytes(vector))
