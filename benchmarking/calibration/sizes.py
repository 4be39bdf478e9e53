"""Finds, by trying upward, how large matrices and copies must be on a device, in a process of its own.

A product that takes 10 to 100 ms is long beside the clock and the launch of a kernel, and short enough to be repeated.

How large the cache is that a copy must not stay in.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarking.core.child_process import ChildError, ask
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import FAILED, NOT_SUPPORTED, Device, Precision, dumps, from_json, to_json
from benchmarking.devices.support.reading import UnreadableError, read_int, read_text
from benchmarking.measure.peaks import CACHE_MARGIN
from benchmarking.runtimes.support.torch.settings import is_out_of_memory

TIME_LIMIT_S = 300.0

TARGETS_S = (0.012, 0.060)

"""What products are to take, by the rate of the last one tried; the true rate at that size is higher as a rule."""

LONG_ENOUGH_S = 0.003

"""A product from which that rate can be told."""

FIRST_SIZE, STEP = 128, 64

"""Of the search, and of the sizes chosen: a multiple of every kernel's tile."""

COPY_S = 0.010

FIRST_COPY_BYTES = 1 << 28

UNKNOWN_CACHE_BYTES = 1 << 28

"""Taken for a last-level cache whose size nobody tells; few are larger."""

SHARE_OF_MEMORY = 0.25

"""Of the free memory, for all matrices or both blocks together."""

TRIES = 4

GROWTH = 3.0

"""Of the time when the size doubles, from which it is the product's (it grows by 8) and not a wait for a processor that
others use, which no number of tries would show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What to measure on a device."""

    matrices: Mapping[str, tuple[int, ...]]
    """Sizes by precision, ascending."""
    copies_bytes: tuple[int, ...]
    cache_bytes: int
    """Last-level cache, all of them together; `cache_known` tells whether it was read or assumed."""
    cache_known: bool
    missing: Mapping[str, str] = field(default_factory=dict)
    """Precision, or "copy" -> why it is not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the searching process is asked."""

    device: Device
    precisions: tuple[Precision, ...]


def find_sizes(device: Device, precisions: tuple[Precision, ...]) -> Sizes:
    """The sizes for a device. Raises BenchhouseError when they cannot be found."""
    question = dumps(Question(device=device, precisions=precisions))
    try:
        return from_json(Sizes, ask("benchmarking.calibration.sizes", question=question, limit_s=TIME_LIMIT_S))
    except ChildError as error:
        raise BenchhouseError(f"no sizes were found on {device.selector}: {error}") from error


def main() -> int:
    """Answer the question on stdin. What libraries print goes to stderr."""
    home = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    question = from_json(Question, json.load(sys.stdin))
    home.write(json.dumps(to_json(search(question.device, question.precisions))))
    home.flush()
    return 0


def search(device: Device, precisions: tuple[Precision, ...]) -> Sizes:
    """Try products and copies on the device, smallest first."""
    from benchmarking.core import plugins

    handle: DeviceHandle = plugins.load("benchmarking.devices", device.type).open(device)
    budget_bytes = int(SHARE_OF_MEMORY * _free_bytes(handle))
    matrices: dict[str, tuple[int, ...]] = {}
    missing: dict[str, str] = {}
    for precision in precisions:
        try:
            matrices[precision] = _matrix_sizes(handle, precision, budget_bytes)
        except (RuntimeError, TypeError) as error:
            reason = FAILED if is_out_of_memory(error) else NOT_SUPPORTED
            missing[precision] = f"{reason}: {' '.join(str(error).split())[:200]}"
    cache_bytes = last_level_cache_bytes(handle.torch_name or "cpu")
    copies = _copy_sizes(handle, UNKNOWN_CACHE_BYTES if cache_bytes is None else cache_bytes, budget_bytes)
    if not copies:
        missing["copy"] = (
            f"{NOT_SUPPORTED}: {budget_bytes} bytes, a share of the free memory, are too few for the cache"
        )
    handle.close()
    return Sizes(
        matrices=matrices,
        copies_bytes=copies,
        cache_bytes=UNKNOWN_CACHE_BYTES if cache_bytes is None else cache_bytes,
        cache_known=cache_bytes is not None,
        missing=missing,
    )


def _matrix_sizes(handle: DeviceHandle, precision: Precision, budget_bytes: int) -> tuple[int, ...]:
    import torch

    from benchmarking.runtimes.support.torch.settings import MatmulPrecision, dtype_of

    dtype = dtype_of(precision)
    largest = int((budget_bytes / 3 / torch.empty((), dtype=dtype).element_size()) ** 0.5)
    flags = MatmulPrecision(precision)
    try:
        rate = best_rate(lambda size: _seconds(handle, _product(handle, size, dtype)), largest)
    finally:
        flags.restore()
    return sizes_for(rate, largest)


def best_rate(seconds_at: Callable[[int], float], largest: int) -> float:
    """The highest FLOP/s of products of doubling size, up to one that takes long enough for its rate to be believed."""
    size, before, rate = FIRST_SIZE, math.inf, 0.0
    while True:
        seconds = seconds_at(size)
        rate = max(rate, 2 * size**3 / seconds)
        is_believed = seconds >= LONG_ENOUGH_S and seconds >= GROWTH * before
        if is_believed or seconds >= TARGETS_S[-1] or 2 * size > largest:
            return rate
        size, before = 2 * size, seconds


def sizes_for(flops_per_sec: float, largest: int) -> tuple[int, ...]:
    """Sizes whose products take `TARGETS_S` at a rate: n = (rate x s / 2)^(1/3), to the nearest step, within bounds."""
    wanted = (round((flops_per_sec * target_s / 2) ** (1 / 3) / STEP) * STEP for target_s in TARGETS_S)
    last = max(largest // STEP * STEP, STEP)
    return tuple(sorted({min(max(size, STEP), last) for size in wanted}))


def _product(handle: DeviceHandle, size: int, dtype: Any) -> Callable[[], object]:
    import torch

    left, right = (torch.randn(size, size, device=handle.torch_name, dtype=dtype) for _ in range(2))
    return partial(torch.mm, left, right)


def _copy_sizes(handle: DeviceHandle, cache_bytes: int, budget_bytes: int) -> tuple[int, ...]:
    """A copy that takes long enough, and one of half its size if that is still too large for the cache."""
    import torch

    least, largest = CACHE_MARGIN * cache_bytes, budget_bytes // 2
    size = max(FIRST_COPY_BYTES, 2 * least)
    if size > largest:
        size = largest // 4 * 4
        return (size,) if size >= least else ()
    while 2 * size <= largest:
        source = torch.ones(size // 4, dtype=torch.float32, device=handle.torch_name)
        target = torch.zeros_like(source)
        if _seconds(handle, partial(target.copy_, source)) >= COPY_S:
            break
        size *= 2
    return (size // 2, size)


def _seconds(handle: DeviceHandle, call: Callable[[], object]) -> float:
    """The shortest of some calls, after one that does not count."""
    taken: list[float] = []
    for _ in range(1 + TRIES):
        handle.synchronize()
        started = time.perf_counter()
        call()
        handle.synchronize()
        taken.append(time.perf_counter() - started)
    return min(taken[1:])


def _free_bytes(handle: DeviceHandle) -> int:
    if handle.torch_name is not None and handle.torch_name.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(handle.torch_name)[0])
    from benchmarking.devices.support.host import free_host_bytes

    return free_host_bytes()


UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def last_level_cache_bytes(torch_name: str, cpus: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Bytes of the last-level cache of torch's device, all of a processor's together; None where nothing tells."""
    if torch_name.startswith("cuda"):
        import torch

        told = getattr(torch.cuda.get_device_properties(torch_name), "L2_cache_size", 0)
        return int(told) or None
    if torch_name == "cpu" and sys.platform == "linux":
        return linux_cache_bytes(cpus)
    return None


def linux_cache_bytes(cpus: Path) -> int | None:
    """The sum of the caches of the highest level, each of which several processors share."""
    levels: dict[int, dict[str, int]] = {}
    try:
        for folder in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
            if read_text(folder / "type") != "Instruction":
                shared = levels.setdefault(read_int(folder / "level"), {})
                shared[read_text(folder / "shared_cpu_list")] = size_bytes(read_text(folder / "size"))
    except (UnreadableError, ValueError):
        return None  # containers and some boards hide a part: a sum without it would be too small
    return sum(levels[max(levels)].values()) if levels else None


def size_bytes(text: str) -> int:
    """Linux's notation: "32768K"."""
    unit = UNITS.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit


if __name__ == "__main__":
    sys.exit(main())
