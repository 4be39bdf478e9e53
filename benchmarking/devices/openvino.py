"""OpenVINO's devices: CPU, Intel GPUs and NPUs, and AUTO, which chooses among them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import MappingProxyType
from typing import Any

from benchmarking.core.device_contracts import (
    IN_USE_NAMES,
    STATE_NAMES,
    ColdCache,
    DeviceHandle,
    DeviceKind,
    Gauge,
    Placement,
)
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.plugins import how_to_install, is_processor, processor
from benchmarking.core.records import NOT_SUPPORTED, Device, Json, Precision, Readings
from benchmarking.devices.cpu import CpuHandle
from benchmarking.devices.support.binding import placements
from benchmarking.devices.support.gauges import DrmGauge, NpuGauge, ProcessorGauge
from benchmarking.devices.support.handles import HostHandle
from benchmarking.devices.support.host import host_facts, usable_memory_bytes
from benchmarking.devices.support.ort_providers import DIRECTML, OrtProvider
from benchmarking.devices.support.system_values import UnreadableError, all_missing, gather

TELEMETRY = "openvino_telemetry"

ORDER = ("GPU", "NPU", "CPU", "AUTO")
"""`openvino` alone selects the first of these that is found; records hold the exact one. AUTO must be requested."""

PRECISIONS: dict[str, Precision] = {"FP32": "float32", "BF16": "bfloat16", "FP16": "float16", "INT8": "int8"}
"""Precisions and their OPTIMIZATION_CAPABILITIES. int4 has none: int4 weights run wherever int8 does."""

VENDORS = ("Intel", "AMD", "Apple", "Ampere", "Qualcomm", "Arm")
MEMORY_PROPERTIES = {"GPU": "GPU_DEVICE_TOTAL_MEM_SIZE", "NPU": "NPU_DEVICE_TOTAL_MEM_SIZE"}
COMMON_FACTS = {
    "architecture": "DEVICE_ARCHITECTURE",
    "device_kind": "DEVICE_TYPE",
    "streams_range": "RANGE_FOR_STREAMS",
    "async_requests_range": "RANGE_FOR_ASYNC_INFER_REQUESTS",
    "inference_precision_default": "INFERENCE_PRECISION_HINT",
}
FACTS = {
    "CPU": COMMON_FACTS,
    "GPU": COMMON_FACTS | {"uuid": "DEVICE_UUID", "execution_units": "GPU_EXECUTION_UNITS_COUNT"},
    "NPU": COMMON_FACTS | {"npu_driver": "NPU_DRIVER_VERSION", "npu_compiler": "NPU_COMPILER_VERSION"},
    "AUTO": {},
}
"""Names of facts and OpenVINO's properties, by kind of device."""


def device_name(device: Device) -> str:
    """OpenVINO's name for a device: "GPU.0" for openvino:GPU.0, "CPU" for device cpu."""
    return "CPU" if is_processor(device.type) else device.own_name


def import_openvino() -> Any:
    """The openvino module with telemetry disabled. Raises ImportError if it is not installed.

    Importing it, converting models and compressing weights with nncf each send usage reports from background threads
    through a telemetry package. If that package cannot be imported, OpenVINO falls back to a stub. A measuring process
    must have no such threads, and nothing about a measurement leaves the machine.
    """
    sys.modules.setdefault(TELEMETRY, None)  # type: ignore[arg-type]
    return importlib.import_module("openvino")


class OpenVinoHandle(HostHandle):
    """An open OpenVINO device. The runtime waits for its requests, so there is no queue to synchronize."""

    def __init__(self, openvino_name: str, core: Any) -> None:
        super().__init__()
        self.openvino_name = openvino_name
        """The device name for `Core.compile_model`: "CPU", "GPU.0", "NPU", "AUTO"."""
        self.core = core
        if openvino_name.startswith("CPU"):
            self.torch_name = CpuHandle.torch_name  # the same processor
            self.is_accelerator = False

    def cold_cache(self) -> AbstractContextManager[ColdCache]:
        is_processor = self.openvino_name.startswith("CPU")
        return CpuHandle(self._host_energy).cold_cache() if is_processor else super().cold_cache()

    def state(self) -> Readings:
        """The CPU's state if the CPU computes; OpenVINO itself reports none."""
        if self.openvino_name.startswith(("GPU", "NPU")):
            return all_missing(f"{NOT_SUPPORTED}: OpenVINO reports none for {self.openvino_name}", STATE_NAMES)
        return CpuHandle(self._host_energy).state()

    def memory_in_use(self) -> Readings:
        """The NPU's driver reports the memory of all processes; the other plugins report nothing."""
        unread = all_missing(f"{NOT_SUPPORTED}: OpenVINO reports none for {self.openvino_name}", IN_USE_NAMES)
        if not self.openvino_name.startswith("NPU"):
            return unread
        used = {"device_used_bytes": lambda: int(_read(self.core, self.openvino_name, "NPU_DEVICE_ALLOC_MEM_SIZE"))}
        return unread | gather(used)


class OpenVinoDevice(DeviceKind):
    """Every device that OpenVINO lists. In tests, `module` is a recording of OpenVINO."""

    name = "openvino"
    other_words = ("npu", "vpu", "myriad")
    typical = MappingProxyType({"openvino:GPU": "Intel GPU (OpenVINO)", "openvino:NPU": "Intel NPU"})
    auto_ranks = ((40, "GPU"), (41, "NPU"), (60, "CPU"))
    gpu_vendor = "intel"
    pci_vendor_id = 0x8086
    implied_runtime: str | None = "openvino"
    runs_openvino = True
    has_gauge = True

    def __init__(self, module: Any = None) -> None:
        self._module = module

    def probe(self) -> tuple[Device, ...]:
        try:
            module = self._module or import_openvino()
        except ImportError as error:
            return (self.absent(f"package openvino is missing: {how_to_install()} ({error})"),)
        try:
            core = module.Core()
            names: list[str] = list(core.available_devices)
        except RuntimeError as error:  # OpenVINO raises it for every failure
            return (self.absent(f"OpenVINO {module.__version__} failed to start: {last_line(error)}"),)
        if not names:
            return (
                self.absent(f"OpenVINO {module.__version__} lists no device: pip install --force-reinstall openvino"),
            )
        listed = [*names, "AUTO"]
        known = [name for kind in ORDER for name in listed if name.partition(".")[0] == kind]
        others = [name for name in listed if name not in known]
        return tuple(_describe(core, name, names, module.__version__) for name in (*known, *others))

    def open(self, device: Device) -> DeviceHandle:
        core: Any = (self._module or import_openvino()).Core()
        name = device.own_name
        if name not in [*core.available_devices, "AUTO"]:
            listed = ", ".join(core.available_devices)
            raise BenchhouseError(
                f"device {device.selector!r} is no longer available: OpenVINO lists {listed or 'nothing'}"
            )
        return OpenVinoHandle(name, core)

    def flushes_cache(self, device: Device, *, with_torch: bool) -> bool:
        return device.own_name.startswith("CPU")

    def gauge(self, device: Device, process_ids: Sequence[int]) -> Gauge:
        """OpenVINO does not report a device's load; Linux's drivers count it."""
        if self.is_npu(device):
            return NpuGauge()
        return DrmGauge(process_ids) if self.is_gpu(device) else ProcessorGauge(process_ids)

    def is_gpu(self, device: Device) -> bool:
        return device.own_name.startswith("GPU")

    def is_npu(self, device: Device) -> bool:
        return device.own_name.startswith("NPU")

    def ort_providers(self, device: Device) -> tuple[OrtProvider, ...]:
        provider = OrtProvider(
            name="OpenVINOExecutionProvider",
            install="onnxruntime-openvino",
            precisions=("float32", "float16", "int8"),
            options={"device_type": device.own_name},
            # Without it the provider computes in the device's preferred precision instead of the graph's.
            precision_options={"float32": {"precision": "FP32"}, "float16": {"precision": "FP16"}},
        )
        return (provider, DIRECTML) if self.is_gpu(device) else (provider,)

    def placements(self, device: Device) -> tuple[Placement, ...]:
        """Those of the CPU, if it computes."""
        return placements() if device.own_name.startswith("CPU") else super().placements(device)

    def lock_name(self, device: Device) -> str | None:
        """The CPU's lock for every device that computes on the CPU, including AUTO."""
        is_own = self.is_gpu(device) or self.is_npu(device)
        return f"openvino-{device.own_name}" if is_own else processor().name


def _describe(core: Any, name: str, names: Sequence[str], version: str) -> Device:
    kind = name.partition(".")[0]
    main = gather({key: partial(_read, core, name, key) for key in ("FULL_DEVICE_NAME", "OPTIMIZATION_CAPABILITIES")})
    full_name = str(main.values.get("FULL_DEVICE_NAME", f"OpenVINO {name}"))
    full_name = f"AUTO over {', '.join(names)}" if name == "AUTO" else full_name
    if name.startswith(("GPU", "NPU")):  # its plugins support Intel hardware only, its CPU plugin CPUs of any vendor
        vendor = "Intel"
    elif name == "AUTO":
        vendor = "OpenVINO"
    else:
        vendor = next((known for known in VENDORS if known.lower() in full_name.lower()), "unknown")
    listed = main.values.get("OPTIMIZATION_CAPABILITIES")
    capabilities = [str(capability) for capability in listed] if isinstance(listed, list) else []
    native = tuple(PRECISIONS[capability] for capability in PRECISIONS if capability in capabilities)
    properties = FACTS.get(kind, COMMON_FACTS)
    facts = gather({fact: partial(_read, core, name, property_name) for fact, property_name in properties.items()})
    lists: dict[str, Json] = {"capabilities": list[Json](capabilities), "native_precisions": list[Json](native)}
    return Device(
        type="openvino",
        selector=f"openvino:{name}",
        found=True,
        name=full_name,
        vendor=vendor,
        driver=f"OpenVINO {version.partition('-')[0]}",
        count=max(1, sum(other.partition(".")[0] == kind for other in names)),
        memory_bytes=_memory_bytes(core, name),
        facts=Readings(missing=main.missing) | facts | Readings(values=lists),
        precisions=(*native, "int4") if "int8" in native else native,
    )


def _memory_bytes(core: Any, name: str) -> int | None:
    """The device's memory, or the machine's for the CPU and AUTO; None if the driver does not report it."""
    property_name = MEMORY_PROPERTIES.get(name.partition(".")[0])
    if property_name is None:
        return usable_memory_bytes(host_facts())
    total = gather({"total": partial(_read, core, name, property_name)}).values.get("total")
    return total if isinstance(total, int) else None


def _read(core: Any, name: str, property_name: str) -> Any:
    """A property of a device as JSON. Raises UnreadableError if OpenVINO does not have it (its own RuntimeError)."""
    try:
        return plain(core.get_property(name, property_name))
    except (RuntimeError, TypeError) as error:
        raise UnreadableError(f"{NOT_SUPPORTED}: OpenVINO does not report {property_name} for {name}") from error


def plain(value: Any) -> Json:
    """A property's value as JSON: types as their short names ("f32"), enumeration members as their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    return str(getattr(value, "name", None) or getattr(value, "to_string", lambda: value)())


def last_line(error: BaseException) -> str:
    """The reason in an OpenVINO error: its last line. The lines before it are source locations."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


PLUGIN = OpenVinoDevice()
