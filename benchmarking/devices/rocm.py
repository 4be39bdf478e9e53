"""AMD GPUs, found through the Linux kernel and amdsmi, driven through torch, which calls them "cuda:N" too."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import NOT_SUPPORTED, Device, Json, Precision, Readings
from benchmarking.devices.support import amd
from benchmarking.devices.support.amd import Node, SysfsMonitor, node_facts, nodes
from benchmarking.devices.support.handles import Monitor
from benchmarking.devices.support.ort_providers import ANY_GPU_MEMORY, CUDA_MEMORY, OrtProvider
from benchmarking.devices.support.system_values import UnreadableError, all_missing, read_text
from benchmarking.devices.support.torch_gpu import TorchGpuKind, is_gpu_in_use, why_not_torch

WHEEL_INDEX = "rocm7.1"
VISIBLE = "ROCR_VISIBLE_DEVICES"
NUMBERED_AGAIN = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Variables whose numbers count what the first one leaves visible; HIP's wins."""
GFX_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
"""Makes ROCm treat a GPU as another target."""
OWN_FIELDS = ("name", "driver", "memory_bytes")
"""Facts that are fields of Device."""

ORT_PRECISIONS: tuple[Precision, ...] = ("float32", "float16", "int8")
ORT_PROVIDERS = (
    OrtProvider(
        name="MIGraphXExecutionProvider",
        install="onnxruntime-migraphx",
        precisions=ORT_PRECISIONS,
        options={"device_id": "0"},
        memory=ANY_GPU_MEMORY,
    ),
    OrtProvider(
        name="ROCMExecutionProvider",
        install="onnxruntime-rocm",
        precisions=ORT_PRECISIONS,
        options={"device_id": "0"},
        memory=CUDA_MEMORY,
    ),
)
"""Providers, which see only the one GPU that `watch` leaves visible.

2026-11-22: no machine with an AMD GPU was available, so the names of HIP's memory come from ONNX Runtime's Python layer
(onnxruntime_inference_collection.py). "gpu" is the memory of the GPUs that the build targets (since 1.23, pull request
25346). "cuda" used to mean the same; since pull request 27594 (1.31 or earlier) it is NVIDIA only: `OrtDevice.make`
gives it NVIDIA's PCI vendor, for which an AMD build has no allocator. There is no "hip". The last version with the ROCm
provider is 1.22, which has only "cuda"."""

NO_BFLOAT16 = ("gfx8", "gfx900", "gfx906", "gfx101", "gfx103")
"""Targets without bfloat16 arithmetic: before MI100 (gfx908), and RDNA 1 and 2."""
NO_INT8_DOT = ("gfx8", "gfx900", "gfx1010")
"""Targets without an int8 dot product: before Vega 20 (gfx906), and the first RDNA."""
FLOAT8 = ("gfx940", "gfx941", "gfx942", "gfx950")
"""Targets whose float8 (e4m3) torchao's matrix products support: MI300 (the fnuz variant) and MI350."""


class RocmDevice(TorchGpuKind):
    """AMD GPUs. `sys` and `dev` are the kernel's trees; in tests, `module` is a recording of amdsmi."""

    name = "rocm"
    aliases = ("amd",)
    other_words = ("hip",)
    typical = MappingProxyType({"rocm:0": "AMD GPU"})
    auto_ranks = ((20, ""),)
    visibility = ((VISIBLE,), NUMBERED_AGAIN)
    sdpa_kernels = ("math", "flash", "efficient")
    gpu_vendor = "amd"
    container_flags = ("--device", "/dev/kfd", "--device", "/dev/dri")

    def __init__(self, module: Any = None, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self._module = module
        self._sys = sys
        self._dev = dev

    def probe(self) -> tuple[Device, ...]:
        why_torch = why_not_torch("ROCm", WHEEL_INDEX)
        why_driver, nodes_found = self._driver_nodes()
        if why_driver:
            return (self.absent("; ".join(filter(None, (why_driver, why_torch)))),)
        by_address: dict[str, Readings] = {}  # amdsmi's facts
        why_no_smi = ""
        try:
            smi = amd.AmdSmi(self._module)
        except amd.AmdSmiError as error:
            why_no_smi = str(error)
        else:
            try:
                by_address = {address: amd.handle_facts(smi, handle) for address, handle in smi.handles().items()}
            except UnreadableError as error:
                why_no_smi = str(error)
            finally:
                smi.close()
        described = [
            self._describe(i, node, by_address.get(node.place), why_no_smi) for i, node in enumerate(nodes_found)
        ]
        return self.usable(described, why_torch)

    def hide_others(self, devices: Sequence[Device]) -> None:
        ids = [device.facts.values.get("unique_id") for device in devices]
        if not {None, "", "0"} & set(ids):
            os.environ[VISIBLE] = ",".join(f"GPU-{str(one).removeprefix('0x')}" for one in ids)
            for variable in NUMBERED_AGAIN:
                os.environ.pop(variable, None)
            return
        # Without an id: a single GPU that this process numbers 0, which is the only visible one or the first of all.
        settings = [os.environ[name].split(",") for name in self.settings()]
        is_first = devices[0].selector == "rocm:0" and all(entries[0].strip() == "0" for entries in settings)
        if len(devices) > 1 or not (is_first or any(len(entries) == 1 for entries in settings)):
            names = ", ".join(repr(device.selector) for device in devices)
            raise UnsupportedError(
                f"device {names} cannot be selected, as it has no unique id: make it the only visible GPU with "
                f"{VISIBLE}"
            )

    def ort_providers(self, device: Device) -> tuple[OrtProvider, ...]:
        return ORT_PROVIDERS

    def check_build(self, torch: Any, device: Device) -> None:
        target, override = str(device.facts.values.get("gfx_target", "")), os.environ.get(GFX_OVERRIDE)
        built = {name.partition(":")[0] for name in torch.cuda.get_arch_list() if name.startswith("gfx")}
        has_generic = any(name.endswith("generic") for name in built)
        if built and target and target not in built and not has_generic and not override:
            raise UnsupportedError(
                f"{device.name} is target {target}; torch {torch.__version__} has kernels for "
                f"{', '.join(sorted(built))} only: install a torch build for it (https://download.pytorch.org/whl), or "
                f"override the target with {GFX_OVERRIDE}"
            )

    def lock_name(self, device: Device) -> str | None:
        address = str(device.facts.values.get("pci_address", device.selector))
        return f"rocm-{address.replace(':', '-')}"

    def _driver_nodes(self) -> tuple[str | None, list[Node]]:
        """Why the driver cannot be used, or the GPUs it lists."""
        if platform.system() != "Linux":
            return f"ROCm's driver is supported on Linux only; this is {platform.system()}", []
        try:
            gpu_nodes = nodes(self._sys)
        except UnreadableError as error:
            reason = str(error).partition(": ")[2]
            return f"the amdgpu driver is not loaded ({reason}): install ROCm's driver if there is an AMD GPU", []
        if not gpu_nodes:
            return "the amdgpu driver lists no compute GPU: check lspci", []
        kfd = self._dev / "kfd"
        if not os.access(kfd, os.R_OK | os.W_OK):
            return f"no permission for {kfd}: add this user to the groups render and video", []
        return None, gpu_nodes

    def _describe(self, index: int, node: Node, smi_facts: Readings | None, why_no_smi: str) -> Device:
        why_not = why_no_smi or f"amdsmi lists no GPU at {node.place}"
        facts = node_facts(node) | (smi_facts or all_missing(f"{NOT_SUPPORTED}: {why_not}", ("driver",)))
        rest = {name: value for name, value in facts.values.items() if name not in OWN_FIELDS}
        reasons = {name: why for name, why in facts.missing.items() if name not in OWN_FIELDS}
        target = str(facts.values["gfx_target"])
        native: Json = list(precisions(target))
        memory = facts.values.get("memory_bytes")
        try:  # the version of the out-of-tree driver; the in-tree driver has the kernel's
            kernel_driver = read_text(self._sys / "module/amdgpu/version")
        except UnreadableError:
            kernel_driver = f"Linux {platform.release()}"
        return Device(
            type="rocm",
            selector=f"rocm:{index}",
            found=True,
            name=str(facts.values["name"]),
            vendor="AMD",
            driver=str(facts.values.get("driver", kernel_driver)),
            memory_bytes=memory if isinstance(memory, int) else None,
            facts=Readings(values={**rest, "pci_address": node.address, "native_precisions": native}, missing=reasons),
            precisions=precisions(target),
        )

    def monitor(self, device: Device) -> Monitor:
        address = f"{device.facts.values.get('pci_address')}.{device.facts.values.get('pci_function', 0)}"
        try:
            return amd.AmdSmiMonitor(amd.AmdSmi(self._module), address, is_in_use=is_gpu_in_use())
        except (amd.AmdSmiError, UnreadableError):  # readings that need amdsmi are missing, with that reason
            by_address = {node.place: node for node in self._driver_nodes()[1]}
        if address not in by_address:
            raise BenchhouseError(
                f"device {device.selector!r} ({device.name}) is no longer available: no AMD GPU at {address}"
            )
        return SysfsMonitor(by_address[address])


def precisions(gfx_target: str) -> tuple[Precision, ...]:
    """Precisions with hardware arithmetic on a target. No int4, and no tf32: torch does not enable it on MI300 by
    default."""
    supported: list[Precision] = ["float32", "float16"]
    supported += [] if gfx_target.startswith(NO_BFLOAT16) else ["bfloat16"]
    supported += ["float8_e4m3"] if gfx_target.startswith(FLOAT8) else []
    supported += [] if gfx_target.startswith(NO_INT8_DOT) else ["int8"]
    return tuple(supported)


PLUGIN = RocmDevice()
