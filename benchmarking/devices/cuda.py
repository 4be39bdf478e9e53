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
from benchmarking.devices.support.handles import Monitor
from benchmarking.devices.support.host import host_facts, usable_memory_bytes
from benchmarking.devices.support.ort_providers import CUDA_MEMORY, DIRECTML, OrtProvider
from benchmarking.devices.support.system_values import UnreadableError
from benchmarking.devices.support.torch_gpu import (
    NoMonitor,
    TorchGpuKind,
    is_gpu_in_use,
    why_not_driver,
    why_not_torch,
    with_counts,
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
        self._hidden: tuple[tuple[Device, ...], str] | None = None
        """The devices that were made visible last, and the setting."""

    def probe(self) -> tuple[Device, ...]:
        why_torch = why_not_torch("CUDA", WHEEL_INDEX)
        try:
            nvml = nvidia.Nvml(self._module)
        except nvidia.NvmlError as error:
            if why_torch is None and (found := without_nvml(error)):
                return with_counts(found)
            return (self.absent("; ".join(filter(None, (str(error), why_torch)))),)
        devices: list[Device] = []
        try:
            count = nvml.call("nvmlDeviceGetCount")
            driver = nvidia.text(nvml.call("nvmlSystemGetDriverVersion"))
            if not count:
                return (self.absent(f"NVIDIA driver {driver} lists no GPU: check lspci"),)
            for index in range(count):
                try:
                    handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
                    devices.append(self._describe(nvml, index, handle, driver))
                except UnreadableError:  # lost, or another user's: it takes no other GPU with it
                    if index == count - 1 and not devices:
                        raise
        except UnreadableError as error:
            return (self.absent(f"the NVIDIA driver cannot list its GPUs ({error}): check nvidia-smi"),)
        finally:
            nvml.close()
        cuda_version, capability = (
            devices[0].facts.values.get(fact) for fact in ("cuda_driver_version", "compute_capability")
        )
        if why_torch is not None:
            why_torch = why_not_torch("CUDA", wheel_index(str(capability or ""), str(cuda_version or "")))
        return self.usable(devices, why_torch or why_not_driver(driver, cuda_version))

    def hide_others(self, devices: Sequence[Device]) -> None:
        if self._hidden == (tuple(devices), os.environ.get(VISIBLE)):  # each of several devices hides the same others
            return
        names = [_visible_name(device) for device in devices]
        known = [name for name in names if name is not None]
        if len(known) == len(names):  # else the driver lists no instance of a split GPU: CUDA chooses one
            os.environ[VISIBLE] = ",".join(known)
            self._hidden = (tuple(devices), os.environ[VISIBLE])

    def ort_providers(self, device: Device) -> tuple[OrtProvider, ...]:
        return (ORT_PROVIDER, DIRECTML)

    def lock_name(self, device: Device) -> str | None:
        return f"cuda-{device.facts.values.get('uuid', device.selector)}"

    def monitor(self, device: Device) -> Monitor:
        if (why_not := device.facts.missing.get(SENSORS)) is not None:
            return NoMonitor(why_not)
        uuid, instance = (device.facts.values.get(name) for name in ("uuid", "mig_uuid"))
        try:
            return nvidia.NvmlMonitor(
                nvidia.Nvml(self._module),
                None if uuid is None else str(uuid),
                is_in_use=is_gpu_in_use(),
                index=_number(device),
                instance_uuid=None if instance is None else str(instance),
            )
        except (nvidia.NvmlError, UnreadableError) as error:
            raise BenchhouseError(f"cannot monitor device {device.selector!r}: {error}") from error

    def check_build(self, torch: Any, device: Device) -> None:
        capability, built = str(device.facts.values.get("compute_capability", "")), torch.cuda.get_arch_list()
        if not has_kernels(capability, built):
            raise UnsupportedError(
                f"{device.name} has compute capability {capability}; torch {torch.__version__} has kernels for "
                f"{', '.join(built)} only: "
                f"{how_to_get_kernels(torch, capability, str(device.facts.values.get('cuda_driver_version', '')))}"
            )

    def _describe(self, nvml: nvidia.Nvml, index: int, handle: Any, driver: str) -> Device:
        facts = nvidia.handle_facts(nvml, handle)
        # The MIG instance that this process uses: the first of those that the setting names, else the first. CUDA shows
        # a process a single one. None for a whole GPU.
        instances = nvidia.instances(nvml, handle)
        entries = [entry.strip().lower() for entry in os.environ.get(VISIBLE, "").split(",")]
        named = (
            instance
            for entry in filter(None, entries)
            for instance in instances
            if instance.uuid.lower().startswith(entry) or (instance.older_name or "").lower() == entry
        )
        instance = next(named, next(iter(instances), None))
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


def without_nvml(error: nvidia.NvmlError) -> list[Device]:
    """The GPUs as torch lists them where NVML cannot be used, as in a container with only the compute capability, on
    Jetson and WSL2; empty if torch sees none either. Sensors are missing with the reason, and what to add."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    reason = f"NVML cannot be used ({error.__cause__}): in a container, add NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    if isinstance(error.__cause__, ImportError):
        reason = str(error)
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


def _number(device: Device) -> int:
    return int(device.own_name or 0)


def _visible_name(device: Device) -> str | None:
    """The device's entry in CUDA_VISIBLE_DEVICES: the UUID of the GPU or of its MIG instance; None for an instance that
    the driver does not list.

    GPUs that torch lists are numbered as they are visible now, so the entry stays what it is. A GPU without a PCI
    address (Jetson's) has another UUID in CUDA than in NVML.
    """
    facts, number = device.facts.values, _number(device)
    entries = [entry.strip() for entry in os.environ.get(VISIBLE, "").split(",")]
    is_listed_by_torch = SENSORS in device.facts.missing
    if is_listed_by_torch and number < len(entries) and entries[number]:
        return entries[number]
    if facts.get("is_mig_enabled"):
        return None if (instance := facts.get("mig_uuid")) is None else str(instance)
    has_cudas_uuid = is_listed_by_torch or "pci_address" not in device.facts.missing
    if has_cudas_uuid and (uuid := facts.get("uuid")) is not None:
        return str(uuid)
    return entries[number] if number < len(entries) and entries[number] else str(number)


def _memory_bytes(nvml: nvidia.Nvml, handle: Any) -> int | None:
    """The GPU's memory, or the machine's where the GPU shares it and NVML reports none (Jetson, GB10). None where this
    user may not read it, as on a GPU split into MIG instances."""
    try:
        return int(nvml.call("nvmlDeviceGetMemoryInfo", handle).total)
    except UnreadableError as error:
        shares_memory = str(error).startswith(NOT_SUPPORTED) and not nvidia.is_split(nvml, handle)
        return usable_memory_bytes(host_facts()) if shares_memory else None


def wheel_index(capability: str, driver_cuda: str) -> str:
    """The index of torch's builds to install for a compute capability and the CUDA version that the driver supports,
    where torch's own table (`PYTORCH_RELEASES_CODE_CC` of 2.13) cannot be asked: no build for CUDA 13 runs with a
    driver for 12 or has kernels below 7.5, and that for 12.6 has none from 10.0 on."""
    if capability and _pair(capability) < (7, 5):
        return "cu126"
    if driver_cuda.startswith("12."):
        return "cu129" if capability and _pair(capability) >= (10, 0) else "cu126"
    return WHEEL_INDEX


def how_to_get_kernels(torch: Any, capability: str, driver_cuda: str = "") -> str:
    """Advice on which build of this torch release has kernels for a compute capability, from torch's own table of
    builds; the newest CUDA version wins, of those that the driver supports (`driver_cuda`: its version; any if
    empty)."""
    builds: dict[str, dict[str, set[int]]] = getattr(torch.cuda, "PYTORCH_RELEASES_CODE_CC", {})
    machine = "aarch64" if platform.machine().lower() == "aarch64" else "x86_64"
    versions = [
        cuda
        for cuda, by_machine in builds.items()
        if by_machine.get(machine) and has_kernels(capability, [f"sm_{code}" for code in by_machine[machine]])
    ]
    if driver_cuda:
        versions = [cuda for cuda in versions if _pair(cuda)[0] <= _pair(driver_cuda)[0]]
    release = str(torch.__version__).partition("+")[0]
    if not versions:
        with_driver = f" with a driver for CUDA {driver_cuda}" if driver_cuda else ""
        return (
            f"no known build of torch {release} supports it{with_driver}: see https://pytorch.org/get-started/locally"
        )
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
