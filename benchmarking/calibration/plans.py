"""Plans of `--calibrate-device`: one per precision for matrix products, and one for copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarking.benches.config import BenchmarkConfig
from benchmarking.benches.discovery import Bench
from benchmarking.benches.planning import BenchPlanning, plan_benches
from benchmarking.calibration.sizes import find_sizes
from benchmarking.core import plugins
from benchmarking.core.command_line import note
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import NOT_SUPPORTED, Device, Precision
from benchmarking.core.shared_settings import DEVICE_WAIT_S
from benchmarking.devices.support.kinds import names_with
from benchmarking.devices.support.select import select
from benchmarking.measure.peaks import COPY_AXIS, MATRIX_AXIS, TASK
from benchmarking.sweep.plan.plan import CellPlan, Machine
from benchmarking.sweep.run.lock import device_lock

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
        """The outline as lines."""
        lines = [
            f"device     {self.device.selector}: {self.device.name}",
            f"products   {', '.join(self.precisions)}",
            "copies     blocks that exceed the last-level cache",
            "sizes      determined by trial on the device before measuring, which takes a few seconds",
        ]
        return "\n".join([*lines, *(f"skipped    {name}: {why}" for name, why in self.remarks.items())])


def outline(requested: str, machine: Machine | None = None) -> Outline:
    """The outline for the requested device. Raises UsageError for a device that torch cannot use."""
    device = select(requested, _unsupported_reason, (Machine() if machine is None else machine).devices)
    precisions = tuple(name for name in PRECISIONS if name in device.precisions)
    others = (name for name in device.precisions if name not in PRECISIONS)
    remarks: dict[str, str] = dict.fromkeys(others, f"{NOT_SUPPORTED}: torch has no matrix product in this precision")
    return Outline(device=device, precisions=precisions, remarks=remarks)


def plan_calibration(
    planning: BenchPlanning,
    requested: str,
    say: Callable[[str], None] = note,
    *,
    device_wait_s: float | None = None,
) -> Calibration:
    """The calibration of the requested device. Searches for sizes on the device, which takes a few seconds and is
    announced through `say`.

    Raises UsageError for a device that torch cannot use, and BenchhouseError if nothing can be measured.
    """
    machine = Machine()
    plan_outline = outline(requested, machine)
    device = plan_outline.device
    lock_name = plugins.load("benchmarking.devices", device.type).lock_name(device)
    say(f"searching for sizes on {device.selector} ({device.name})")
    with device_lock(lock_name, note, DEVICE_WAIT_S if device_wait_s is None else device_wait_s):
        sizes = find_sizes(device, plan_outline.precisions)
    remarks = dict(plan_outline.remarks)
    if not sizes.cache_known:
        remarks["last-level cache"] = f"size unknown: assuming {sizes.cache_bytes / 1e6:.0f} MB"
    remarks |= sizes.missing
    benches = []
    for precision, matrices in sizes.matrices.items():
        base = BenchmarkConfig(name=TASK, precision=precision)  # checked when it is made
        benches.append(_bench("MatrixProduct", tuple(replace(base, axes={MATRIX_AXIS: size}) for size in matrices)))
    if sizes.copies_bytes:
        base = BenchmarkConfig(name=TASK, options={"cache_bytes": sizes.cache_bytes})
        benches.append(_bench("Copy", tuple(replace(base, axes={COPY_AXIS: size}) for size in sizes.copies_bytes)))
    if not benches:
        raise BenchhouseError(f"nothing can be measured on {device.selector}: {remarks}")
    # A peak rate needs neither energy nor memory nor a long warm-up.
    warmup_s = min(planning.settings.warmup_max_time_s, WARMUP_MAX_TIME_S)
    settings = replace(planning.settings, energy_windows=0, memory_calls=1, warmup_max_time_s=warmup_s)
    plans = plan_benches(benches, replace(planning, device=requested, settings=settings), machine)
    return Calibration(device=device, plans=plans, remarks=remarks)


def _unsupported_reason(device: Device) -> str | None:
    torch_devices = names_with(lambda kind: kind.runs_torch)
    if device.type not in torch_devices:
        return f"calibration needs torch, which runs on {', '.join(torch_devices)}"
    return None


def _bench(class_name: str, configs: tuple[BenchmarkConfig, ...]) -> Bench:
    return Bench(
        path=FILE,
        class_name=class_name,
        configs=configs,
        devices=names_with(lambda kind: kind.runs_torch),
        timed_by="benchhouse",
        task=TASK,
        is_mock=False,
    )
