"""NVIDIA GPUs, found through NVML and driven through torch.

`cuda:N` is numbered as in nvidia-smi; torch's number for the same GPU is looked up when the device is opened.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import NOT_SUPPORTED, Device, Json, Precision, Readings
from benchmarking.devices.support import nvml as nvidia
from benchmarking.devices.support import ort_providers as directml
from benchmarking.devices.support.handles import Monitor
from benchmarking.devices.support.host import host_facts, usable_memory_bytes
from benchmarking.devices.support.ort_providers import CUDA_MEMORY, OrtProvider
from benchmarking.devices.support.system_values import UnreadableError
from benchmarking.devices.support.torch_gpu import (
    NoMonitor,
    TorchGpuKind,
    is_gpu_in_use,
    why_not_driver,
    why_not_torch,
)

WHEEL_INDEX = "cu130"
VISIBLE = "CUDA_VISIBLE_DEVICES"
SENSORS = "sensors"
"""The fact whose reason says why a GPU is measured without NVML."""

FIRST_CAPABILITY: dict[Precision, tuple[int, int]] = {
    "float32": (0, 0),
    "tf32": (8, 0),
    "bfloat16": (8, 0),
    "float16": (5, 3),
    "float8_e4m3": (8, 9),
    "int8": (6, 1),
    "int4": (7, 5),
}
"""Lowest compute capability with arithmetic in a precision (CUDA programming guide, arithmetic instructions and
tensor cores). From 9.0 on, tensor cores have no int4: it is a storage format for weights."""

ARCHITECTURE = re.compile(r"(?P<kind>sm|compute)_(?P<major>\d+)(?P<minor>\d)(?P<suffix>[af]?)")

LAST_NATIVE_INT4 = (8, 9)

ORT_PROVIDER = OrtProvider(
    name="CUDAExecutionProvider",
    install="'onnxruntime-gpu[cuda,cudnn]'",
    precisions=("float32", "tf32", "bfloat16", "float16", "int8", "int4"),
    options={"device_id": "0", "use_tf32": "0"},  # of the one GPU that `watch` leaves visible; TF32 is on by default
    precision_options={"tf32": {"use_tf32": "1"}},
    memory=CUDA_MEMORY,
    replay_option="enable_cuda_graph",
)


class CudaDevice(TorchGpuKind):
    """NVIDIA GPUs. `module` may be a recording of NVML."""

    name = "cuda"
    aliases = ("nvidia",)
    other_words = ("gpu",)
    typical = MappingProxyType({"cuda:0": "NVIDIA GPU"})
    auto_ranks = ((10, ""),)
    visibility = ((VISIBLE,),)
    has_tf32 = True
    runs_tensorrt = True
    flash_attention = (2, 3, 4)
    sdpa_kernels = ("math", "flash", "efficient", "cudnn")
    gpu_vendor = "nvidia"
    pci_vendor_id = 0x10DE
    container_flags = ("--gpus", "all")

    def __init__(self, module: Any = None) -> None:
        self._module = module

    def probe(self) -> tuple[Device, ...]:
        why_torch = why_not_torch("CUDA", WHEEL_INDEX)
        try:
            nvml = nvidia.Nvml(self._module)
        except nvidia.NvmlError as error:
            if why_torch is None and (found := without_nvml(str(error))):
                return self.usable(found, None)
            return (self.absent("; ".join(filter(None, (str(error), why_torch)))),)
        try:
            handles = [nvml.call("nvmlDeviceGetHandleByIndex", i) for i in range(nvml.call("nvmlDeviceGetCount"))]
            driver = nvidia.text(nvml.call("nvmlSystemGetDriverVersion"))
            if not handles:
                return (self.absent(f"NVIDIA driver {driver} lists no GPU: check lspci"),)
            devices = [self._describe(nvml, index, handle, driver) for index, handle in enumerate(handles)]
        except UnreadableError as error:
            return (self.absent(f"the NVIDIA driver cannot list its GPUs ({error}): check nvidia-smi"),)
        finally:
            nvml.close()
        cuda_version = devices[0].facts.values.get("cuda_driver_version")
        return self.usable(devices, why_torch or why_not_driver(driver, cuda_version))

    def hide_others(self, devices: Sequence[Device]) -> None:
        if not any(device.facts.values.get("is_mig_enabled") for device in devices):
            os.environ[VISIBLE] = ",".join(map(_visible_name, devices))
        # A MIG instance has its own UUID, which is already set.

    def ort_providers(self, device: Device) -> tuple[OrtProvider, ...]:
        return (ORT_PROVIDER, directml.PROVIDER)

    def lock_name(self, device: Device) -> str | None:
        return f"cuda-{device.facts.values.get('uuid', device.selector)}"

    def monitor(self, device: Device) -> Monitor:
        if (why_not := device.facts.missing.get(SENSORS)) is not None:
            return NoMonitor(why_not)
        uuid = str(device.facts.values.get("uuid"))
        try:
            return nvidia.NvmlMonitor(nvidia.Nvml(self._module), uuid, is_in_use=is_gpu_in_use())
        except (nvidia.NvmlError, UnreadableError) as error:
            raise BenchhouseError(f"cannot monitor device {device.selector!r}: {error}") from error

    def check_build(self, torch: Any, device: Device) -> None:
        capability, built = str(device.facts.values.get("compute_capability", "")), torch.cuda.get_arch_list()
        if not has_kernels(capability, built):
            raise UnsupportedError(
                f"{device.name} has compute capability {capability}; torch {torch.__version__} has kernels for "
                f"{', '.join(built)} only: {how_to_get_kernels(torch, capability)}"
            )

    def _describe(self, nvml: nvidia.Nvml, index: int, handle: Any, driver: str) -> Device:
        facts = nvidia.handle_facts(nvml, handle)
        instance = _visible_instance(nvidia.instances(nvml, handle), os.environ.get(VISIBLE))
        if instance is not None:
            facts = facts | instance.facts
        capability = str(facts.values.get("compute_capability", "0.0"))
        native: Json = list(native_precisions(capability))
        return Device(
            type="cuda",
            selector=f"cuda:{index}",
            found=True,
            name=nvidia.text(nvml.call("nvmlDeviceGetName", handle)) if instance is None else instance.name,
            vendor="NVIDIA",
            driver=driver,
            memory_bytes=_memory_bytes(nvml, handle) if instance is None else instance.memory_bytes,
            facts=facts | Readings(values={"native_precisions": native}),
            precisions=precisions(capability),
        )


def without_nvml(why_not: str) -> list[Device]:
    """The GPUs as torch lists them where NVML cannot be used, as in a container with only the compute capability, on
    Jetson and WSL2; empty if torch sees none either. Sensors are missing with the reason, and what to add."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    reason = f"{why_not.partition(':')[0]}; in a container, add NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        capability = f"{properties.major}.{properties.minor}"
        native: Json = list(native_precisions(capability))
        values: dict[str, Json] = {"compute_capability": capability, "native_precisions": native}
        values["multiprocessors"] = int(properties.multi_processor_count)
        if (uuid := getattr(properties, "uuid", None)) is not None:
            values["uuid"] = f"GPU-{str(uuid).removeprefix('GPU-')}"
        found.append(
            Device(
                type="cuda",
                selector=f"cuda:{index}",
                found=True,
                name=str(properties.name),
                vendor="NVIDIA",
                driver=None,
                memory_bytes=int(properties.total_memory),
                facts=Readings(values=values, missing={SENSORS: reason}),
                precisions=precisions(capability),
            )
        )
    return found


def _visible_name(device: Device) -> str:
    """The device's entry in CUDA_VISIBLE_DEVICES: its UUID, or, where none is known (Jetson), its number among the
    devices that are visible now."""
    if (uuid := device.facts.values.get("uuid")) is not None:
        return str(uuid)
    number = int(device.selector.partition(":")[2] or 0)
    entries = os.environ.get(VISIBLE, "").split(",")
    return entries[number].strip() if number < len(entries) and entries[number] else str(number)


def _visible_instance(instances: Sequence[nvidia.Instance], setting: str | None) -> nvidia.Instance | None:
    """The MIG instance that this process uses: the first of those that the setting names, else the first. CUDA shows a
    process a single one. None for a whole GPU."""
    entries = [] if setting is None else [entry.strip().lower() for entry in setting.split(",")]
    for entry in entries:
        if (
            found := next((one for one in instances if entry and one.uuid.lower().startswith(entry)), None)
        ) is not None:
            return found
    return next(iter(instances), None)


def _memory_bytes(nvml: nvidia.Nvml, handle: Any) -> int | None:
    """The GPU's memory, or the machine's where the GPU shares it and NVML reports none (Jetson, GB10). None where this
    user may not read it, as on a GPU split into MIG instances."""
    try:
        return int(nvml.call("nvmlDeviceGetMemoryInfo", handle).total)
    except UnreadableError as error:
        shares_memory = str(error).startswith(NOT_SUPPORTED) and not nvidia.is_split(nvml, handle)
        return usable_memory_bytes(host_facts()) if shares_memory else None


def how_to_get_kernels(torch: Any, capability: str) -> str:
    """Advice on which build of this torch release has kernels for a compute capability, from torch's own table of
    builds; the newest CUDA version wins."""
    builds: dict[str, dict[str, set[int]]] = getattr(torch.cuda, "PYTORCH_RELEASES_CODE_CC", {})
    machine = "aarch64" if platform.machine().lower() == "aarch64" else "x86_64"
    versions = [
        cuda
        for cuda, by_machine in builds.items()
        if by_machine.get(machine) and has_kernels(capability, [f"sm_{code}" for code in by_machine[machine]])
    ]
    release = str(torch.__version__).partition("+")[0]
    if not versions:
        return f"no known build of torch {release} supports it: see https://pytorch.org/get-started/locally"
    index = f"cu{max(versions, key=_pair).replace('.', '')}"
    return f"pip install --upgrade torch=={release} --index-url https://download.pytorch.org/whl/{index}"


def has_kernels(capability: str, built: Sequence[str]) -> bool:
    """Whether a torch built for these architectures (`torch.cuda.get_arch_list`) runs on a compute capability.

    Binaries ("sm_86") run on the same major version with that minor version or a higher one. PTX ("compute_90") is
    compiled for any newer capability. With the suffix "a" neither runs elsewhere; "f" covers the major version.
    Unknown names count as supported.
    """
    matches = [match for name in built if (match := ARCHITECTURE.fullmatch(name))]
    if not matches or not capability:
        return True
    requested = _pair(capability)
    for match in matches:
        kind, major, minor, suffix = match["kind"], int(match["major"]), int(match["minor"]), match["suffix"]
        if suffix == "a":
            runs = (major, minor) == requested
        elif kind == "sm" or suffix == "f":
            runs = major == requested[0] and minor <= requested[1]
        else:
            runs = (major, minor) <= requested
        if runs:
            return True
    return False


def precisions(compute_capability: str) -> tuple[Precision, ...]:
    """Precisions that a GPU with this compute capability ("9.0") can run."""
    capability = _pair(compute_capability)
    return tuple(precision for precision, first in FIRST_CAPABILITY.items() if capability >= first)


def native_precisions(compute_capability: str) -> tuple[Precision, ...]:
    """Precisions with hardware arithmetic at this compute capability."""
    has_int4 = _pair(compute_capability) <= LAST_NATIVE_INT4
    return tuple(precision for precision in precisions(compute_capability) if precision != "int4" or has_int4)


def _pair(compute_capability: str) -> tuple[int, int]:
    major, _, minor = compute_capability.partition(".")
    return int(major), int(minor or 0)


PLUGIN = CudaDevice()
