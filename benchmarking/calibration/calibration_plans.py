"""Plans of `--calibrate-device`: one per precision for matrix products, and one for copies.

Suitable sizes of matrices and copies are found by trial on the device, in a child process (`main`). A product of 10 to
100 ms is long compared with clock resolution and kernel launch, and short enough to be repeated. A copy must not fit in
the last-level cache.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarking.benches.discovery import Bench
from benchmarking.benches.model_benchmark import BenchmarkConfig
from benchmarking.benches.runner import BenchPlanning, plan_benches
from benchmarking.core import plugins
from benchmarking.core.child_process import ChildError, claimed_stdout, run_module_json
from benchmarking.core.command_line import note
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, is_out_of_memory
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import torch
from benchmarking.core.plugins import names_with
from benchmarking.core.records import FAILED, NOT_SUPPORTED, Device, Precision, Run, dumps, from_json
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, visible
from benchmarking.core.untrusted.redaction import cut_to
from benchmarking.devices.support.host import free_host_bytes
from benchmarking.devices.support.select import select
from benchmarking.measure.aggregate import CACHE_MARGIN, COPY_AXIS, MATRIX_AXIS, TASK, is_of_copy, peak_name, rate_of
from benchmarking.sweep.plan.plan import CellPlan, Machine
from benchmarking.sweep.run.lock import device_locks

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
            Sizes,
            run_module_json("benchmarking.calibration.calibration_plans", input_text=request, limit_s=TIME_LIMIT_S),
        )
    except ChildError as error:
        raise BenchhouseError(f"no suitable sizes found on {device.selector}: {error}") from error


def main() -> int:
    """Answer the request on stdin. The output of libraries goes to stderr."""
    stdout = claimed_stdout()
    request = from_json(SizeRequest, json.load(sys.stdin))
    print(dumps(search_sizes(request.device, request.precisions)), file=stdout, flush=True)
    return 0


def search_sizes(device: Device, precisions: tuple[Precision, ...]) -> Sizes:
    """Try products and copies of growing size on the device."""
    from benchmarking.runtimes.support.torch.torch_settings import MatmulPrecision, dtype_of

    handle: DeviceHandle = plugins.device_kind(device.type).open(device)
    free_bytes = handle.free_memory_bytes()
    budget_bytes = int(MEMORY_SHARE * (free_host_bytes() if free_bytes is None else free_bytes))
    matrices: dict[str, tuple[int, ...]] = {}
    missing: dict[str, str] = {}
    for precision in precisions:
        try:
            dtype = dtype_of(precision)
            largest = int((budget_bytes / 3 / torch.empty((), dtype=dtype).element_size()) ** 0.5)
            flags = MatmulPrecision(precision)
            try:
                rate = best_rate(partial(_product_seconds, handle, dtype), largest)
            finally:
                flags.restore()
            matrices[precision] = sizes_for(rate, largest)
        except (RuntimeError, TypeError) as error:
            reason = FAILED if is_out_of_memory(error) else NOT_SUPPORTED
            missing[precision] = f"{reason}: {cut_to(' '.join(str(error).split()), 200)}"
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


def _product_seconds(handle: DeviceHandle, dtype: Any, size: int) -> float:
    left, right = (torch.randn(size, size, device=handle.torch_name, dtype=dtype) for _ in range(2))
    return _seconds(handle, partial(torch.mm, left, right))


def _copy_sizes(handle: DeviceHandle, cache_bytes: int, budget_bytes: int) -> tuple[int, ...]:
    """A copy that takes long enough, and one of half its size if that also exceeds the cache."""
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


FILE = str(Path(__file__).with_name("benches.py"))
WARMUP_MAX_TIME_S = 3.0
"""Long enough for clocks to rise, since there are several points."""
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bfloat16", "float16")
"""Precisions in which torch multiplies matrices; tf32 on NVIDIA GPUs only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The measurements of a device, and the parts that cannot be measured."""

    device: Device
    plans: tuple[CellPlan, ...]
    remarks: Mapping[str, str]
    """Item that is not measured or is assumed -> the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a calibration will measure, derived from the device without running anything on it. Sizes are determined
    during the measurement."""

    device: Device
    precisions: tuple[Precision, ...]
    """Of the matrix products."""
    remarks: Mapping[str, str]
    """Precision -> why it is not measured."""

    @property
    def text(self) -> str:
        lines = [
            f"device     {self.device.selector}: {self.device.name}",
            f"products   {', '.join(self.precisions)}",
            "copies     blocks that exceed the last-level cache",
            "sizes      determined by trial on the device before measuring, which takes a few seconds",
        ]
        return "\n".join([*lines, *(f"skipped    {name}: {why}" for name, why in self.remarks.items())])


def outline(requested: str, machine: Machine | None = None) -> Outline:
    """The outline for the requested device. Raises UsageError for a device that torch cannot use."""
    torch_devices = names_with(lambda kind: kind.runs_torch)
    why_not = f"calibration needs torch, which runs on {', '.join(torch_devices)}"
    devices = (Machine() if machine is None else machine).devices
    device = select(requested, lambda device: None if device.type in torch_devices else why_not, devices)
    precisions = tuple(name for name in PRECISIONS if name in device.precisions)
    others = (name for name in device.precisions if name not in PRECISIONS)
    remarks: dict[str, str] = dict.fromkeys(others, f"{NOT_SUPPORTED}: torch has no matrix product in this precision")
    return Outline(device=device, precisions=precisions, remarks=remarks)


def plan_calibration(
    planning: BenchPlanning, requested: str, say: Callable[[str], None] = note, *, device_wait_s: float | None = None
) -> Calibration:
    """The calibration of the requested device. Searches for sizes on the device, which takes a few seconds and is
    announced through `say`.

    Raises UsageError for a device that torch cannot use, and BenchhouseError if nothing can be measured.
    """
    machine = Machine()
    plan_outline = outline(requested, machine)
    device = plan_outline.device
    say(f"searching for sizes on {device.selector} ({device.name})")
    with device_locks(device, note, device_wait_s):
        sizes = find_sizes(device, plan_outline.precisions)
    remarks = dict(plan_outline.remarks)
    if not sizes.cache_known:
        remarks["last-level cache"] = f"size unknown: assuming {sizes.cache_bytes / 1e6:.0f} MB"
    remarks |= sizes.missing
    measured: list[tuple[str, BenchmarkConfig, str, tuple[int, ...]]] = [
        ("MatrixProduct", BenchmarkConfig(name=TASK, precision=precision), MATRIX_AXIS, matrices)
        for precision, matrices in sizes.matrices.items()
    ]
    if sizes.copies_bytes:
        base = BenchmarkConfig(name=TASK, options={"cache_bytes": sizes.cache_bytes})
        measured.append(("Copy", base, COPY_AXIS, sizes.copies_bytes))
    if not measured:
        raise BenchhouseError(f"nothing can be measured on {device.selector}: {remarks}")
    benches = [
        Bench(
            path=FILE,
            class_name=class_name,
            configs=tuple(replace(base, axes={axis: size}) for size in values),
            devices=names_with(lambda kind: kind.runs_torch),
            timed_by="benchhouse",
            task=TASK,
            is_mock=False,
        )
        for class_name, base, axis, values in measured
    ]
    # A peak rate needs neither energy nor memory nor a long warm-up.
    warmup_s = min(planning.settings.warmup_max_time_s, WARMUP_MAX_TIME_S)
    settings = replace(planning.settings, energy_windows=0, memory_calls=1, warmup_max_time_s=warmup_s)
    plans = plan_benches(benches, replace(planning, device=requested, settings=settings), machine)
    return Calibration(device=device, plans=plans, remarks=remarks)


HEADINGS = ("measured", "precision", "size", "median ms", "rate", "remarks")
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def peaks_table(runs: Sequence[Run], notes: Mapping[str, str] | None = None, page: Page = PLAIN) -> str:
    """One row per point, with the peaks marked; the notes (subject -> reason) below."""
    rows = []
    for cell, result in ((run.cell, result) for run in runs for result in run.results):
        is_copy, axes, rate = is_of_copy(result), result.point.axes, rate_of(result)
        what, precision = ("copy", "-") if is_copy else ("matrix product", cell.precision)
        size = f"{axes[COPY_AXIS] / 1e6:.0f} MB" if is_copy else str(axes[MATRIX_AXIS])
        if rate is None:
            rows.append((what, precision, size, "-", "-", f"{result.status}: {result.error or result.validity}"))
            continue
        mark = "peak" if peak_name(result) in result.metrics else ""
        doubts = "" if result.validity == "valid" else f"({result.validity})"
        median = number(result.metrics["latency_median_ms"])
        factor, prefix = next(((factor, prefix) for factor, prefix in UNITS if rate >= factor), (1.0, ""))
        text = f"{number(rate / factor)} {prefix}{'B/s' if is_copy else 'FLOP/s'}"
        rows.append((what, precision, size, median, text, " ".join(filter(None, (mark, doubts)))))
    grid = Table(headings=HEADINGS, rows=tuple(rows), numbers=(2, 3, 4), keys=2)
    title = f"peaks of {runs[0].cell.device.name} ({runs[0].cell.device.selector})" if runs else "no peaks"
    remarks = [visible(f"{what}: {why}") for what, why in (notes or {}).items()]
    return "\n".join([visible(title), table_text(grid, page), *([""] if remarks else []), *remarks])


if __name__ == "__main__":
    sys.exit(main())
