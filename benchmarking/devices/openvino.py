"""Devices of OpenVINO: CPU, Intel GPUs and NPUs, and AUTO, which chooses among them itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarking.core.device_contracts import IN_USE_NAMES, STATE_NAMES, DeviceHandle, DeviceKind
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import NOT_SUPPORTED, Device, Json, Precision, Readings
from benchmarking.devices.cpu import CpuHandle
from benchmarking.devices.support import ort_providers as directml
from benchmarking.devices.support.energy import HostEnergy
from benchmarking.devices.support.handle import HostHandle
from benchmarking.devices.support.host import host_facts, usable_memory_bytes
from benchmarking.devices.support.openvino_library import import_openvino
from benchmarking.devices.support.ort_providers import OrtProvider
from benchmarking.devices.support.reading import UnreadableError, absent, gather

ORDER = ("GPU", "NPU", "CPU", "AUTO")
"""`openvino` alone means the first of these that is there; the exact one is stored. AUTO only when it is asked for."""

PRECISIONS: dict[str, Precision] = {"FP32": "float32", "BF16": "bfloat16", "FP16": "float16", "INT8": "int8"}
"""OPTIMIZATION_CAPABILITIES and our words. int4 has none: weights stored in it run wherever int8 does."""

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
"""Our names and OpenVINO's properties, by kind of device."""


class OpenVinoHandle(HostHandle):
    """An open device of OpenVINO. Its requests are waited for by the runtime, so there is no queue to synchronize."""

    def __init__(self, openvino_name: str, core: Any, energy: HostEnergy | None = None) -> None:
        super().__init__(energy)
        self.openvino_name = openvino_name
        """What `Core.compile_model` takes: "CPU", "GPU.0", "NPU", "AUTO"."""
        self.core = core
        if openvino_name.startswith("CPU"):
            self.torch_name = "cpu"  # the same processor, which is to be warmed up and judged like device cpu

    def state(self) -> Readings:
        """The processor's state where the processor computes; OpenVINO itself tells none."""
        if self.openvino_name.startswith(("GPU", "NPU")):
            return absent(f"{NOT_SUPPORTED}: OpenVINO does not tell it for {self.openvino_name}", STATE_NAMES)
        return CpuHandle(self._host_energy).state()

    def memory_in_use(self) -> Readings:
        """The NPU's driver tells what all processes hold; the other plugins tell nothing."""
        unread = absent(f"{NOT_SUPPORTED}: OpenVINO does not tell it for {self.openvino_name}", IN_USE_NAMES)
        if not self.openvino_name.startswith("NPU"):
            return unread
        used = {"device_used_bytes": lambda: int(_property(self.core, self.openvino_name, "NPU_DEVICE_ALLOC_MEM_SIZE"))}
        return unread | gather(used)


class OpenVinoDevice(DeviceKind):
    """Everything OpenVINO lists. Give `module` to read a recording in its place."""

    name = "openvino"
    auto_ranks = ((40, "GPU"), (41, "NPU"), (60, "CPU"))
    gpu_vendor = "intel"
    pci_vendor_id = 0x8086
    implied_runtime: str | None = "openvino"

    def __init__(self, module: Any = None) -> None:
        self._module = module

    def probe(self) -> tuple[Device, ...]:
        try:
            module = self._module or import_openvino()
        except ImportError as error:
            return (self._absent(f"package openvino is missing: pip install openvino ({error})"),)
        try:
            core = module.Core()
            names: list[str] = list(core.available_devices)
        except RuntimeError as error:  # what OpenVINO raises for everything
            return (self._absent(f"OpenVINO {module.__version__} does not start: {_last_line(error)}"),)
        if not names:
            return (
                self._absent(f"OpenVINO {module.__version__} has no device: pip install --force-reinstall openvino"),
            )
        return tuple(_describe(core, name, names, module.__version__) for name in _ordered([*names, "AUTO"]))

    def open(self, device: Device) -> DeviceHandle:
        core: Any = (self._module or import_openvino()).Core()
        name = device.selector.partition(":")[2]
        if name not in [*core.available_devices, "AUTO"]:
            listed = ", ".join(core.available_devices)
            raise BenchhouseError(f"device {device.selector!r} is gone: OpenVINO lists {listed or 'nothing'}")
        return OpenVinoHandle(name, core)

    def ort_providers(self, device: Device) -> tuple[OrtProvider, ...]:
        name = device.selector.partition(":")[2]
        own = OrtProvider(
            name="OpenVINOExecutionProvider",
            install="onnxruntime-openvino",
            precisions=("float32", "float16", "int8"),
            options={"device_type": name},
            # Without it the provider computes in its device's favourite precision, whatever the graph says.
            precision_options={"float32": {"precision": "FP32"}, "float16": {"precision": "FP16"}},
        )
        return (own, directml.PROVIDER) if name.startswith("GPU") else (own,)

    def lock_name(self, device: Device) -> str | None:
        """The CPU's lock for what computes on the CPU, AUTO among it."""
        name = device.selector.partition(":")[2]
        return f"openvino-{name}" if name.startswith(("GPU", "NPU")) else "cpu"

    def _absent(self, why: str) -> Device:
        return Device(type="openvino", selector="openvino", found=False, why_not=why)


def _ordered(names: Sequence[str]) -> list[str]:
    known = [name for kind in ORDER for name in names if name.partition(".")[0] == kind]
    return known + [name for name in names if name not in known]


def _describe(core: Any, name: str, names: Sequence[str], version: str) -> Device:
    kind = name.partition(".")[0]
    main = gather({key: _asked(core, name, key) for key in ("FULL_DEVICE_NAME", "OPTIMIZATION_CAPABILITIES")})
    full_name = str(main.values.get("FULL_DEVICE_NAME", f"OpenVINO {name}"))
    full_name = f"AUTO over {', '.join(names)}" if name == "AUTO" else full_name
    listed = main.values.get("OPTIMIZATION_CAPABILITIES")
    capabilities = [str(capability) for capability in listed] if isinstance(listed, list) else []
    native = tuple(PRECISIONS[capability] for capability in PRECISIONS if capability in capabilities)
    properties = FACTS.get(kind, COMMON_FACTS)
    told = gather({ours: _asked(core, name, theirs) for ours, theirs in properties.items()})
    lists: dict[str, Json] = {"capabilities": list[Json](capabilities), "native_precisions": list[Json](native)}
    return Device(
        type="openvino",
        selector=f"openvino:{name}",
        found=True,
        name=full_name,
        vendor=_vendor(full_name, name),
        driver=f"OpenVINO {version.partition('-')[0]}",
        count=max(1, sum(other.partition(".")[0] == kind for other in names)),
        memory_bytes=_memory_bytes(core, name),
        facts=Readings(missing=main.missing) | told | Readings(values=lists),
        precisions=(*native, "int4") if "int8" in native else native,
    )


def _vendor(full_name: str, name: str) -> str:
    """OpenVINO's GPU and NPU plugins are for Intel's alone; its CPU plugin runs on every vendor's."""
    if name.startswith(("GPU", "NPU")):
        return "Intel"
    if name == "AUTO":
        return "OpenVINO"
    known = ("Intel", "AMD", "Apple", "Ampere", "Qualcomm", "Arm")
    return next((vendor for vendor in known if vendor.lower() in full_name.lower()), "unknown")


def _memory_bytes(core: Any, name: str) -> int | None:
    """The device's memory; the machine's for the CPU and AUTO; None where the driver does not tell."""
    theirs = MEMORY_PROPERTIES.get(name.partition(".")[0])
    if theirs is None:
        return usable_memory_bytes(host_facts())
    total = gather({"total": _asked(core, name, theirs)}).values.get("total")
    return total if isinstance(total, int) else None


def _asked(core: Any, name: str, theirs: str) -> Any:
    return lambda: _plain(_property(core, name, theirs))


def _property(core: Any, name: str, theirs: str) -> Any:
    """A property of a device. Raises UnreadableError; OpenVINO raises RuntimeError where there is none."""
    try:
        return core.get_property(name, theirs)
    except (RuntimeError, TypeError) as error:
        raise UnreadableError(f"{NOT_SUPPORTED}: OpenVINO gives no {theirs} for {name}") from error


def _plain(value: Any) -> Json:
    """OpenVINO's values as JSON: its enumerations and types become their names."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return str(getattr(value, "name", None) or getattr(value, "to_string", lambda: value)())


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


PLUGIN = OpenVinoDevice()
