"""Which torch is installed, told without importing it; and the handle of a GPU that torch drives through torch.cuda."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarking.devices import DeviceTimer
from benchmarking.devices._base import HostHandle, Monitor, with_method
from benchmarking.devices._host_energy import HostEnergy
from benchmarking.errors import BenchhouseError
from benchmarking.records import Device, Readings
from benchmarking.units import NS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchBuild:
    """What torch's own version file says."""

    version: str
    cuda: str | None = None
    """CUDA version it was built with."""
    hip: str | None = None
    """HIP (ROCm) version it was built with."""


def torch_build() -> TorchBuild | None:
    """The installed torch, or None. Reads torch/version.py as text: importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("version.py")
    return parse_build(path.read_text()) if path.exists() else None


def parse_build(source: str) -> TorchBuild:
    """The build that a torch/version.py states."""
    constants: dict[str, str] = {}
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(targets[0], ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            constants[targets[0].id] = value.value
    version = constants.get("__version__", "of unknown version")
    return TorchBuild(version=version, cuda=constants.get("cuda"), hip=constants.get("hip"))


def why_not_torch(backend: str, wheel_index: str) -> str | None:
    """Why the installed torch cannot use a backend ("CUDA" or "ROCm"), and what to install; None when it can."""
    build = torch_build()
    install = f"pip install torch --index-url https://download.pytorch.org/whl/{wheel_index}"
    if build is None:
        return f"torch is not installed: {install}"
    if (build.cuda if backend == "CUDA" else build.hip) is not None:
        return None
    made_for = f"CUDA {build.cuda}" if build.cuda else f"ROCm {build.hip}" if build.hip else "the CPU only"
    return f"torch {build.version} is built without {backend} (for {made_for}): {install}"


class EventTimer(DeviceTimer):
    """A pair of torch.cuda events; HIP's behind the same name on ROCm."""

    def __init__(self, torch: Any) -> None:
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def start(self) -> None:
        self._begin.record()

    def stop(self) -> None:
        self._end.record()

    def elapsed_ns(self) -> int:
        elapsed_ms: float = self._begin.elapsed_time(self._end)
        return round(elapsed_ms * NS_PER_MS)


class TorchGpuHandle(HostHandle):
    """An open GPU: torch works on it, the vendor's library watches it."""

    def __init__(self, index: int, monitor: Monitor, torch: Any, energy: HostEnergy | None = None) -> None:
        super().__init__(energy)
        self.torch_name = f"cuda:{index}"
        self._index = index
        self._monitor = monitor
        self._torch = torch

    def timer(self) -> DeviceTimer | None:
        with self._torch.cuda.device(self._index):
            return EventTimer(self._torch)

    def synchronize(self) -> None:
        self._torch.cuda.synchronize(self._index)

    def empty_cache(self) -> None:
        with self._torch.cuda.device(self._index):
            self._torch.cuda.empty_cache()

    def reset_peak_memory(self) -> None:
        self._torch.cuda.reset_peak_memory_stats(self._index)

    def peak_memory(self) -> Readings:
        allocated = self._torch.cuda.max_memory_allocated(self._index)
        reserved = self._torch.cuda.max_memory_reserved(self._index)
        return Readings(values={"device_allocated_peak_bytes": allocated, "device_reserved_peak_bytes": reserved})

    def memory_in_use(self) -> Readings:
        return self._monitor.memory_in_use()

    def state(self) -> Readings:
        return self._monitor.state()

    def energy_j(self) -> Readings:
        return with_method(super().energy_j() | self._monitor.energy_j())

    def close(self) -> None:
        self._monitor.close()


def is_gpu_in_use() -> bool:
    """Whether torch in this process works on a GPU already (a model handed over by the user)."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def import_torch(device: Device) -> Any:
    """torch, once it is sure that it can use GPUs. Raises BenchhouseError."""
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise BenchhouseError(f"device {device.selector!r} was found, but torch {torch.__version__} sees no GPU")
    return torch


def torch_index(torch: Any, device: Device) -> int:
    """torch's number of the device. Raises BenchhouseError when torch does not see it.

    torch counts what CUDA_VISIBLE_DEVICES (HIP_, ROCR_) leaves, in an order of its own; the vendor's library counts
    all. So the two are matched by PCI address or UUID, and by number only when there is nothing to confuse.
    """
    wanted = _identities(device.facts.values)
    seen = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    matching = [index for index, properties in enumerate(seen) if wanted & _torch_identities(properties)]
    if len(matching) > 1:
        raise BenchhouseError(
            f"device {device.selector!r} is split: torch shows {len(matching)} GPUs at {sorted(wanted)}. "
            "Leave one of them visible with CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES"
        )
    if matching:
        return matching[0]
    if len(seen) == device.count == 1 and seen[0].name == device.name:
        return 0
    names = ", ".join(f"cuda:{index} {properties.name}" for index, properties in enumerate(seen)) or "none"
    raise BenchhouseError(
        f"device {device.selector!r} ({device.name}) is not among the GPUs torch sees: {names}. "
        "Look at CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES"
    )


def pci_address(domain: int, bus: int, slot: int) -> str:
    """A GPU's PCI address in the one form used here; its function is always 0."""
    return f"{domain:04x}:{bus:02x}:{slot:02x}"


def _identities(facts: Mapping[str, object]) -> set[str]:
    names = (facts.get("pci_address"), facts.get("uuid"), facts.get("unique_id"))
    return {name.lower().removeprefix("gpu-") for name in names if isinstance(name, str)}


def _torch_identities(properties: Any) -> set[str]:
    """PCI address (newer torch) and UUID of torch's properties. HIP's UUID is the text of its hex digits, as bytes."""
    found: set[str] = set()
    if hasattr(properties, "pci_bus_id"):
        slot = getattr(properties, "pci_device_id", 0)
        found.add(pci_address(getattr(properties, "pci_domain_id", 0), properties.pci_bus_id, slot))
    uuid = str(getattr(properties, "uuid", "")).lower().removeprefix("gpu-")
    return found | ({uuid, _hip_text(uuid)} if uuid else set())


def _hip_text(uuid: str) -> str:
    """The digits whose ASCII bytes HIP hands out as a UUID; the UUID itself where it is no such thing."""
    try:
        return bytes.fromhex(uuid.replace("-", "")).decode("ascii").lower()
    except ValueError:
        return uuid
