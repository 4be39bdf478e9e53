"""Apple's GPU through Metal Performance Shaders: one per machine, with unified memory."""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

from benchmarking.core.device_contracts import (
    IN_USE_NAMES,
    PEAK_NAMES,
    STATE_NAMES,
    ColdCache,
    DeviceHandle,
    DeviceKind,
    Gauge,
    Memory,
)
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import FAILED, NOT_SUPPORTED, Device, Json, Precision, Readings
from benchmarking.devices.support.energy_counters import HostEnergy
from benchmarking.devices.support.handles import HostHandle, with_method
from benchmarking.devices.support.host import sysctl_values
from benchmarking.devices.support.ort_providers import OrtProvider
from benchmarking.devices.support.system_values import RunCommand, UnreadableError, all_missing, gather, run_command
from benchmarking.devices.support.torch_gpu import flushed_by_torch, torch_build

ACCELERATOR = ("/usr/sbin/ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator")
PROFILER = ("/usr/sbin/system_profiler", "-json", "SPDisplaysDataType")
FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
OLDEST_MACOS = 14
"""On older versions torch's wheels do not install, and Metal has no bfloat16."""

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "float16", "int8")
ORT_PROVIDER = OrtProvider(
    name="CoreMLExecutionProvider",
    install="onnxruntime",
    precisions=("float32", "float16"),
    options={"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndGPU"},
)
"""Core ML on the GPU (the Neural Engine is a separate device). Its tensors are in host memory."""

NEEDS_ROOT = f"{NOT_SUPPORTED}: on macOS only root can read it (powermetrics)"


class WatchedMpsHandle(HostHandle):
    """The open GPU under a runtime other than torch. Metal reports no clocks and no memory of other processes."""

    def state(self) -> Readings:
        return all_missing(NEEDS_ROOT, STATE_NAMES)

    def energy_j(self) -> Readings:
        return with_method(self._host_energy.energy_j())


class MpsHandle(WatchedMpsHandle):
    """The open GPU under torch. Metal tracks no peak memory, only current use."""

    torch_name: str | None = "mps"
    has_queue = True
    why_no_timer = (
        "torch's events on MPS are host clocks of completion callbacks, which may run late or in another order, and "
        "recording one commits the command buffer inside the timed call"
    )

    def __init__(self, torch: Any, energy: HostEnergy | None = None) -> None:
        super().__init__(energy)
        self._torch = torch

    def synchronize(self) -> None:
        self._torch.mps.synchronize()

    def cold_cache(self) -> AbstractContextManager[ColdCache]:
        return flushed_by_torch(self._torch, self)

    def empty_cache(self) -> None:
        self._torch.mps.empty_cache()

    def peak_memory(self) -> Readings:
        return all_missing(f"{NOT_SUPPORTED}: Metal does not track peak memory", PEAK_NAMES)

    def memory_in_use(self) -> Readings:
        """Memory that Metal's driver holds for this process; with unified memory there is no total over processes."""
        in_use = Readings(values={IN_USE_NAMES[0]: int(self._torch.mps.driver_allocated_memory())})
        return in_use | all_missing(f"{NOT_SUPPORTED}: unified memory", IN_USE_NAMES[1:])


class IoregGauge(Gauge):
    """The GPU's load over all processes, from the I/O Registry."""

    def __init__(self, run: RunCommand) -> None:
        self._run = run

    def read(self) -> Readings:
        power = all_missing(NEEDS_ROOT, ("power_w",))
        try:
            statistics = self._run(ACCELERATOR)
        except UnreadableError as error:
            return power | all_missing(str(error), ("utilization_percent", "device_used_bytes"))
        return power | gather(
            {
                "utilization_percent": lambda: _statistic(statistics, "Device Utilization %"),
                "device_used_bytes": lambda: _statistic(statistics, "In use system memory"),
            }
        )


def _statistic(registry: str, name: str) -> int:
    """An entry of the driver's PerformanceStatistics. Raises UnreadableError."""
    match = re.search(rf'"{re.escape(name)}"=(\d+)', registry)
    if match is None:
        raise UnreadableError(f"{NOT_SUPPORTED}: ioreg does not report {name!r}")
    return int(match[1])


class MpsDevice(DeviceKind):
    """Apple's GPU. In tests, `run` replays the output of sysctl and system_profiler."""

    name = "mps"
    other_words = ("metal", "apple")
    typical = MappingProxyType({"mps": "Apple GPU"})
    auto_ranks = ((30, ""),)
    memory: Memory = "host"
    torch_type: str | None = "mps"
    sdpa_kernels = ("math",)
    gpu_vendor = "apple"
    has_gauge = True
    probes_in_process = True

    def __init__(self, run: RunCommand = run_command) -> None:
        self._run = run

    def probe(self) -> tuple[Device, ...]:
        system, machine, macos = platform.system(), platform.machine(), platform.mac_ver()[0]
        if system != "Darwin":
            return (self.absent(f"MPS is Apple's GPU and needs macOS on Apple silicon; this is {system} on {machine}"),)
        if machine != "arm64":
            why_not = f"this Python is built for {machine}: torch has MPS on Apple silicon only, with an arm64 Python"
            return (self.absent(why_not),)
        if int(macos.partition(".")[0] or 0) < OLDEST_MACOS:
            why_not = f"macOS {macos} is too old for torch's MPS: upgrade to macOS {OLDEST_MACOS} or newer"
            return (self.absent(why_not),)
        if not torch_build():
            return (self.absent("torch is not installed: pip install torch"),)
        try:
            return (describe(sysctl_values(self._run), self._run),)
        except UnreadableError as error:
            return (self.absent(f"cannot read the hardware description of macOS ({error}): check sysctl hw"),)

    def open(self, device: Device) -> DeviceHandle:
        if os.environ.get(FALLBACK, "0") != "0":
            raise UnsupportedError(
                f"{FALLBACK}={os.environ[FALLBACK]} lets torch run operators that 'mps' lacks on the CPU, and the "
                f"results would mix both devices: unset {FALLBACK}"
            )
        torch: Any = importlib.import_module("torch")
        if not torch.backends.mps.is_available():
            problem = "does not see the GPU" if torch.backends.mps.is_built() else "is built without MPS"
            raise BenchhouseError(f"device 'mps' was found, but torch {torch.__version__} {problem}")
        return MpsHandle(torch)

    def watch(self, device: Device, together: Sequence[Device] = ()) -> DeviceHandle:
        return WatchedMpsHandle()

    def flushes_cache(self, device: Device, *, with_torch: bool) -> bool:
        return with_torch

    def gauge(self, device: Device, process_ids: Sequence[int]) -> Gauge:
        return IoregGauge(self._run)

    def ort_providers(self, device: Device) -> tuple[OrtProvider, ...]:
        return (ORT_PROVIDER,)


def describe(values: dict[str, str], run: RunCommand) -> Device:
    """The GPU as a device, from sysctl's values and the system profiler. Raises UnreadableError without a chip name."""
    try:
        displays = json.loads(run(PROFILER)).get("SPDisplaysDataType", [])
    except UnreadableError as error:
        gpu = all_missing(str(error), ("gpu_cores", "metal_family"))
    except ValueError as error:
        gpu = all_missing(f"{FAILED}: invalid JSON from {PROFILER[0]}: {error}", ("gpu_cores", "metal_family"))
    else:
        display = displays[0] if displays else {}
        gpu = gather(
            {
                "chip": lambda: _text(display, "sppci_model"),
                "gpu_cores": lambda: int(_text(display, "sppci_cores")),
                "metal_family": lambda: _text(display, "spdisplays_mtlgpufamilysupport").removeprefix("spdisplays_"),
            }
        )
    chip = values.get("machdep.cpu.brand_string") or str(gpu.values.get("chip", ""))
    if not chip:
        raise UnreadableError(f"{NOT_SUPPORTED}: no sysctl machdep.cpu.brand_string")
    macos = values.get("kern.osproductversion", platform.mac_ver()[0])
    facts = gather({"macos": lambda: macos, "model": lambda: _text(values, "hw.model")})
    native: Json = list(PRECISIONS)
    return Device(
        type="mps",
        selector="mps",
        found=True,
        name=chip,
        vendor="Apple",
        driver=f"macOS {macos}",
        memory_bytes=int(values["hw.memsize"]) if "hw.memsize" in values else None,
        facts=facts | gpu | Readings(values={"native_precisions": native}),
        precisions=PRECISIONS,
    )


def _text(values: dict[str, str], key: str) -> str:
    if not values.get(key):
        raise UnreadableError(f"{NOT_SUPPORTED}: macOS does not report {key}")
    return values[key]


PLUGIN = MpsDevice()
