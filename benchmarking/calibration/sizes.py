"""Finds suitable sizes of matrices and copies on a device by trial, in a child process.

A product of 10 to 100 ms is long compared with clock resolution and kernel launch, and short enough to be repeated.
A copy must not fit in the last-level cache.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any

from benchmarking.core.child_process import ChildError, run_module_json
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, is_out_of_memory
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import FAILED, NOT_SUPPORTED, Device, Precision, dumps, from_json, to_json
from benchmarking.devices.support.host import free_host_bytes
from benchmarking.measure.peaks import CACHE_MARGIN

TIME_LIMIT_S = 300.0
TARGETS_S = (0.012, 0.060)
"""Durations of the chosen products, at the rate of the last trial; the true rate at that size is usually higher."""
MIN_PRODUCT_S = 0.003
"""The shortest product that gives a reliable rate."""
FIRST_SIZE, STEP = 128, 64
"""The first size of the search, and the unit of chosen sizes: a multiple of every kernel's tile."""
MIN_COPY_S = 0.010
FIRST_COPY_BYTES = 1 << 28
UNKNOWN_CACHE_BYTES = 1 << 28
"""Assumed size of a last-level cache of unknown size; few are larger."""
MEMORY_SHARE = 0.25
"""Share of the free memory for all matrices, or for both blocks of a copy."""
TRIES = 4
GROWTH = 3.0
"""Minimum growth of the time when the size doubles. A product should take 8 times as long; less growth means that the
smaller one was waiting for a busy processor, which repetition would not reveal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes to measure on a device."""

    matrices: Mapping[str, tuple[int, ...]]
    """Sizes by precision, ascending."""
    copies_bytes: tuple[int, ...]
    cache_bytes: int
    """Last-level caches in total, read if `cache_known`, else assumed."""
    cache_known: bool
    missing: Mapping[str, str] = field(default_factory=dict)
    """Precision or "copy" -> why it is not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRequest:
    """The request to the child process."""

    device: Device
    precisions: tuple[Precision, ...]


def find_sizes(device: Device, precisions: tuple[Precision, ...]) -> Sizes:
    """The sizes for a device. Raises BenchhouseError when the search fails."""
    request = dumps(SizeRequest(device=device, precisions=precisions))
    try:
        return from_json(
            Sizes, run_module_json("benchmarking.calibration.sizes", input_text=request, limit_s=TIME_LIMIT_S)
        )
    except ChildError as error:
        raise BenchhouseError(f"no suitable sizes found on {device.selector}: {error}") from error


def main() -> int:
    """Answer the request on stdin. The output of libraries goes to stderr."""
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = from_json(SizeRequest, json.load(sys.stdin))
    stdout.write(json.dumps(to_json(search_sizes(request.device, request.precisions))))
    stdout.flush()
    return 0


def search_sizes(device: Device, precisions: tuple[Precision, ...]) -> Sizes:
    """Try products and copies of growing size on the device."""
    import torch

    from benchmarking.core import plugins
    from benchmarking.runtimes.support.torch.settings import MatmulPrecision, dtype_of

    handle: DeviceHandle = plugins.load("benchmarking.devices", device.type).open(device)
    budget_bytes = int(MEMORY_SHARE * _free_bytes(handle))
    matrices: dict[str, tuple[int, ...]] = {}
    missing: dict[str, str] = {}
    for precision in precisions:
        try:
            dtype = dtype_of(precision)
            largest = int((budget_bytes / 3 / torch.empty((), dtype=dtype).element_size()) ** 0.5)
            flags = MatmulPrecision(precision)
            try:
                rate = best_rate(lambda size: _seconds(handle, _product(handle, size, dtype)), largest)  # noqa: B023
            finally:
                flags.restore()
            matrices[precision] = sizes_for(rate, largest)
        except (RuntimeError, TypeError) as error:
            reason = FAILED if is_out_of_memory(error) else NOT_SUPPORTED
            missing[precision] = f"{reason}: {' '.join(str(error).split())[:200]}"
    known_cache_bytes = handle.last_level_cache_bytes()
    cache_bytes = known_cache_bytes or UNKNOWN_CACHE_BYTES
    copies = _copy_sizes(handle, cache_bytes, budget_bytes)
    if not copies:
        missing["copy"] = (
            f"{NOT_SUPPORTED}: the usable share of free memory, {budget_bytes} bytes, is too small for the cache"
        )
    handle.close()
    return Sizes(
        matrices=matrices,
        copies_bytes=copies,
        cache_bytes=cache_bytes,
        cache_known=known_cache_bytes is not None,
        missing=missing,
    )


def best_rate(seconds_at: Callable[[int], float], largest: int) -> float:
    """The highest FLOP/s of products of doubling size, up to one that takes long enough for a reliable rate."""
    size, previous_seconds, rate = FIRST_SIZE, math.inf, 0.0
    while True:
        seconds = seconds_at(size)
        rate = max(rate, 2 * size**3 / seconds) if seconds > 0 else rate
        is_reliable = seconds >= MIN_PRODUCT_S and seconds >= GROWTH * previous_seconds
        if is_reliable or seconds >= TARGETS_S[-1] or 2 * size > largest:
            return rate
        size, previous_seconds = 2 * size, seconds


def sizes_for(flops_per_sec: float, largest: int) -> tuple[int, ...]:
    """Sizes whose products take `TARGETS_S` at a rate: n = (rate x s / 2)^(1/3), rounded to steps, within bounds."""
    ideal_sizes = (round((flops_per_sec * target_s / 2) ** (1 / 3) / STEP) * STEP for target_s in TARGETS_S)
    last = max(largest // STEP * STEP, STEP)
    return tuple(sorted({min(max(size, STEP), last) for size in ideal_sizes}))


def _product(handle: DeviceHandle, size: int, dtype: Any) -> Callable[[], object]:
    import torch

    left, right = (torch.randn(size, size, device=handle.torch_name, dtype=dtype) for _ in range(2))
    return partial(torch.mm, left, right)


def _copy_sizes(handle: DeviceHandle, cache_bytes: int, budget_bytes: int) -> tuple[int, ...]:
    """A copy that takes long enough, and one of half its size if that also exceeds the cache."""
    import torch

    smallest, largest = CACHE_MARGIN * cache_bytes, budget_bytes // 2
    size = max(FIRST_COPY_BYTES, 2 * smallest)
    if size > largest:
        size = largest // 4 * 4
        return (size,) if size >= smallest else ()
    while 2 * size <= largest:
        source = torch.ones(size // 4, dtype=torch.float32, device=handle.torch_name)
        target = torch.zeros_like(source)
        if _seconds(handle, partial(target.copy_, source)) >= MIN_COPY_S:
            break
        size *= 2
    return (size // 2, size)


def _seconds(handle: DeviceHandle, call: Callable[[], object]) -> float:
    """The shortest time of a few calls, after an untimed one."""
    durations: list[float] = []
    for _ in range(1 + TRIES):
        handle.synchronize()
        started = time.perf_counter()
        call()
        handle.synchronize()
        durations.append(time.perf_counter() - started)
    return min(durations[1:])


def _free_bytes(handle: DeviceHandle) -> int:
    free_bytes = handle.free_memory_bytes()
    return free_host_bytes() if free_bytes is None else free_bytes


if __name__ == "__main__":
    sys.exit(main())
