"""Intel GPUs through torch's own XPU backend (SYCL on Level Zero); no extension package is needed.

Everything about this kind is here. The same GPUs are also devices of OpenVINO, with other precisions and kernels.

2026-11-26: written against the documented interface and the installed source of torch (torch/xpu/*.py); no machine with
an Intel GPU was available.
"""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarking.core.device_contracts import (
    IN_USE_NAMES,
    STATE_NAMES,
    DeviceHandle,
    DeviceKind,
    Gauge,
    Memory,
)
from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.core.metrics import HZ_PER_MHZ
from benchmarking.core.records import NOT_SUPPORTED, Device, Json, Precision, Readings
from benchmarking.devices.support.gauges import DrmGauge
from benchmarking.devices.support.handles import HostHandle
from benchmarking.devices.support.system_values import (
    UnreadableError,
    all_missing,
    gather,
    number_or_none,
    text_or_empty,
    value_or_reason,
)
from benchmarking.devices.support.torch_gpu import TorchHandle, torch_build, with_counts

WHEELS = "--index-url https://download.pytorch.org/whl/xpu"
VISIBLE = "ZE_AFFINITY_MASK"
"""Level Zero's list of the devices that a process sees."""
VENDOR = "0x8086"
DISPLAY_CLASS = "0x03"
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "float16")
NO_SENSOR = f"{NOT_SUPPORTED}: only torch reads Intel's sensors here"
NOT_READ = f"{NOT_SUPPORTED}: torch.xpu does not report it"
SLOW_POWER = f"{NOT_SUPPORTED}: each reading waits 100 ms, so it is read in energy windows only"


class WatchedXpuHandle(HostHandle):
    """One GPU under a runtime other than torch."""

    def memory_in_use(self) -> Readings:
        return all_missing(NO_SENSOR, IN_USE_NAMES)

    def state(self) -> Readings:
        return all_missing(NO_SENSOR, STATE_NAMES)


class XpuHandle(TorchHandle, WatchedXpuHandle):
    """One GPU under torch."""

    def __init__(self, torch: Any, index: int) -> None:
        super().__init__()
        self._torch, self._backend, self._index = torch, torch.xpu, index
        self.torch_name: str | None = f"xpu:{index}"

    def empty_cache(self) -> None:
        self._torch.xpu.empty_cache()

    def free_memory_bytes(self) -> int | None:
        try:
            return int(self._torch.xpu.mem_get_info(self._index)[0])
        except (AttributeError, RuntimeError):  # torch before 2.8, and GPUs whose driver does not report it
            return None

    def last_level_cache_bytes(self) -> int | None:
        properties = self._torch.xpu.get_device_properties(self._index)
        return int(getattr(properties, "last_level_cache_size", 0)) or None

    def memory_in_use(self) -> Readings:
        own = Readings(values={IN_USE_NAMES[0]: int(self._torch.xpu.memory_reserved(self._index))})
        return own | gather({IN_USE_NAMES[1]: self._used_bytes})

    def _used_bytes(self) -> int:
        try:
            free_bytes, total_bytes = self._torch.xpu.mem_get_info(self._index)
        except (AttributeError, RuntimeError) as error:
            raise UnreadableError(f"{NOT_SUPPORTED}: torch.xpu.mem_get_info: {first_line(error)}") from error
        return int(total_bytes) - int(free_bytes)

    def state(self) -> Readings:
        sensors = {
            "temperature_c": lambda: self._sensor("temperature"),
            "clock_hz": lambda: self._sensor("clock_rate") * HZ_PER_MHZ,
        }
        return all_missing(NOT_READ, STATE_NAMES) | all_missing(SLOW_POWER, ("power_w",)) | gather(sensors)

    def momentary_power_w(self) -> float | None:
        """The card's mean power in the 100 ms that this call takes."""
        return number_or_none(lambda: self._sensor("power_draw"))

    def _sensor(self, name: str) -> float:
        """A sensor by torch's function of this name (torch 2.13, with the package pyzes and for some sensors as root).
        Raises UnreadableError with torch's reason, such as a tile in ZE_AFFINITY_MASK ("0.0"), and for a negative
        value, which is Level Zero's for an unknown one (zes_freq_state_t)."""
        try:
            value = float(getattr(self._torch.xpu, name)(self._index))
            if value < 0:
                raise RuntimeError(f"it is not known ({value:g})")
            return value
        except (AttributeError, ImportError, RuntimeError, ValueError, ZeroDivisionError) as error:
            raise UnreadableError(f"{NOT_SUPPORTED}: torch.xpu.{name}: {first_line(error)}") from error


class XpuDevice(DeviceKind):
    """Intel GPUs. `sys` is the kernel's tree."""

    name = "xpu"
    aliases = ("intel",)
    typical = MappingProxyType({"xpu:0": "Intel GPU (torch)"})
    auto_ranks = ((35, ""),)
    memory: Memory = "own"
    torch_type: str | None = "xpu"
    sdpa_kernels = ("math", "flash")
    gpu_vendor = "intel"
    pci_vendor_id = 0x8086
    has_gauge = True
    container_flags = ("--device", "/dev/dri")

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._sys = sys

    def probe(self) -> tuple[Device, ...]:
        build, has_gpu = torch_build(), self._has_gpu()
        found = {True: "an Intel GPU was found, but ", False: "no Intel GPU was found, and ", None: ""}[has_gpu]
        if build is None:
            return (self.absent(f"{found}torch is not installed: pip install torch {WHEELS}"),)
        if build.xpu is None:
            install = f"pip install --upgrade --force-reinstall torch {WHEELS}"
            return (self.absent(f"{found}torch is built without XPU: {install}"),)
        torch: Any = importlib.import_module("torch")
        if not torch.xpu.is_available():
            advice = "install Intel's compute runtime (Level Zero), and add this user to the group render"
            advice = "the kernel lists none: check lspci" if has_gpu is False else advice
            return (self.absent(f"torch {torch.__version__} finds no Intel GPU: {advice}"),)
        return described([torch.xpu.get_device_properties(index) for index in range(torch.xpu.device_count())])

    def open(self, device: Device) -> DeviceHandle:
        torch: Any = importlib.import_module("torch")
        index = int(device.own_name or 0)
        if not torch.xpu.is_available() or index >= torch.xpu.device_count():
            raise BenchhouseError(f"device {device.selector!r} ({device.name}) is no longer available to torch")
        return XpuHandle(torch, index)

    def watch(self, device: Device, together: Sequence[Device] = ()) -> DeviceHandle:
        # torch numbers the GPUs that are visible now, so a GPU keeps its entry, also when it is watched again.
        entries = os.environ.get(VISIBLE, "").split(",")
        number = int(device.own_name or 0)
        if entries == [""]:
            os.environ[VISIBLE] = str(number)
        elif number < len(entries):
            os.environ[VISIBLE] = entries[number]
        return WatchedXpuHandle()

    def flushes_cache(self, device: Device, *, with_torch: bool) -> bool:
        return with_torch

    def gauge(self, device: Device, process_ids: Sequence[int]) -> Gauge:
        return DrmGauge(process_ids)

    def _has_gpu(self) -> bool | None:
        """Whether the kernel lists a GPU of this vendor; None on other systems than Linux."""
        if platform.system() != "Linux":
            return None
        devices = (path.parent for path in self._sys.glob("bus/pci/devices/*/vendor") if text_or_empty(path) == VENDOR)
        return any(text_or_empty(device / "class").startswith(DISPLAY_CLASS) for device in devices)


def described(found: list[Any]) -> tuple[Device, ...]:
    """The devices of these properties (torch.xpu.get_device_properties), in torch's order."""
    return with_counts([_describe(index, properties) for index, properties in enumerate(found)])


def _describe(index: int, properties: Any) -> Device:
    facts = gather(
        {
            "compute_units": lambda: int(properties.max_compute_units),
            "execution_units": lambda: int(properties.gpu_eu_count),
            "sub_group_sizes": lambda: list(properties.sub_group_sizes),
            "last_level_cache_bytes": lambda: value_or_reason(
                int(getattr(properties, "last_level_cache_size", 0)) or None, "torch reports no cache", NOT_SUPPORTED
            ),
            "has_float64": lambda: bool(properties.has_fp64),
            "platform": lambda: str(properties.platform_name),
        }
    )
    has_half = bool(getattr(properties, "has_fp16", True))
    precisions = tuple(one for one in PRECISIONS if one != "float16" or has_half)
    native: Json = list(precisions)
    return Device(
        type="xpu",
        selector=f"xpu:{index}",
        found=True,
        name=str(properties.name),
        vendor="Intel",
        driver=str(properties.driver_version),
        memory_bytes=int(properties.total_memory),
        facts=facts | Readings(values={"native_precisions": native}),
        precisions=precisions,
    )


PLUGIN = XpuDevice()
