"""Qualcomm's NPU through ONNX Runtime's QNN plugin: Snapdragon, or its emulator on x86."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarking.core.device_contracts import STATE_NAMES, DeviceHandle, DeviceKind
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.plugins import processor
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Device, Json, Precision, Readings
from benchmarking.devices.cpu import CpuHandle
from benchmarking.devices.support.handles import HostHandle
from benchmarking.devices.support.host import host_facts, text_fact, usable_memory_bytes
from benchmarking.devices.support.system_values import all_missing

PROVIDER = "QNNExecutionProvider"
BACKENDS = ("htp", "gpu", "cpu")
"""QNN's backends in order of preference, the tensor processor first."""

REFERENCE = "cpu"
"""QNN's reference backend, for checking correctness rather than speed."""
PRECISIONS: Mapping[str, tuple[Precision, ...]] = {
    "htp": ("float16", "int8"),
    "gpu": ("float32", "float16"),
    REFERENCE: ("float32",),
}
"""Precisions of each backend. The tensor processor runs a float32 graph in float16, which is not float32."""

WITHOUT_EMULATOR = ("gpu",)
"""Backends whose library ships in every package but only starts on Snapdragon hardware."""

HARDWARE_MACHINES = ("arm64", "aarch64")
"""Architectures of Snapdragon machines; elsewhere the backends are emulators."""


class QnnHandle(HostHandle):
    """An open NPU, with what session options need. Calls are synchronous."""

    def __init__(self, plugin: QnnDevice, backends: Mapping[str, str], is_simulated: bool) -> None:
        super().__init__()
        self.provider = PROVIDER
        self.backends = backends
        """Library path by backend, for the provider option `backend_path`."""
        self._plugin = plugin
        self._is_simulated = is_simulated

    def provider_devices(self) -> tuple[Any, ...]:
        """ONNX Runtime's entry for the device, for `add_provider_for_devices`. Registers the plugin first."""
        return tuple(self._plugin.provider_devices()[:1])

    def state(self) -> Readings:
        """The CPU's state if an emulator computes on it; QNN itself reports none."""
        if self._is_simulated:
            return CpuHandle(self._host_energy).state()
        return all_missing(f"{NOT_SUPPORTED}: QNN does not report it", STATE_NAMES)


class QnnDevice(DeviceKind):
    """The NPU. In tests, both modules are recordings."""

    name = "qnn"
    other_words = ("qualcomm", "snapdragon", "hexagon", "htp")
    typical = MappingProxyType({"qnn": "Qualcomm NPU"})
    auto_ranks = ((50, ""),)
    implied_runtime: str | None = "qnn"

    def __init__(self, onnxruntime: Any = None, plugin: Any = None) -> None:
        self._onnxruntime = onnxruntime
        self._plugin = plugin

    def probe(self) -> tuple[Device, ...]:
        why_not = self._missing()
        if why_not:
            return (self.absent(why_not),)
        state = self._onnxruntime.capi.onnxruntime_pybind11_state  # its errors have no common base class
        try:
            listed = self.provider_devices()
        except (state.Fail, state.InvalidArgument, state.NotImplemented, state.RuntimeException) as error:
            version = self._onnxruntime.__version__
            return (self.absent(f"onnxruntime {version} cannot load the QNN plugin: {error}"),)
        if not listed:
            return (self.absent(f"the QNN plugin lists no device on this {platform.machine()} machine"),)
        backends = self._backends()
        if not backends:
            folder = Path(self._plugin.get_library_path()).parent
            return (self.absent(f"no QNN backend library in {folder}: pip install --force-reinstall onnxruntime-qnn"),)
        return (self._describe(listed, backends),)

    def is_npu(self, device: Device) -> bool:
        return True

    def open(self, device: Device) -> DeviceHandle:
        why_not = self._missing()
        backends = {} if why_not else self._backends()
        if not backends:
            raise BenchhouseError(f"device 'qnn' is no longer available: {why_not or 'its backend libraries are gone'}")
        return QnnHandle(self, backends, device.simulated)

    def lock_name(self, device: Device) -> str | None:
        """The emulator computes on the processor."""
        return processor().name if device.simulated else self.name

    def _missing(self) -> str | None:
        """Loads the two packages. Returns what must be installed, or None."""
        if platform.system() not in ("Linux", "Windows"):
            return f"QNN needs Windows or Linux; this is {platform.system()}"
        try:
            self._onnxruntime = self._onnxruntime or importlib.import_module("onnxruntime")
        except ImportError as error:
            return f"package onnxruntime is missing: pip install onnxruntime onnxruntime-qnn ({error})"
        if not hasattr(self._onnxruntime, "get_ep_devices"):
            return (
                f"onnxruntime {self._onnxruntime.__version__} does not support plugins: pip install 'onnxruntime>=1.23'"
            )
        try:
            self._plugin = self._plugin or importlib.import_module("onnxruntime_qnn")
        except ImportError:
            return (
                "package onnxruntime-qnn is missing: pip install --no-deps onnxruntime-qnn "
                f"(works with the installed onnxruntime {self._onnxruntime.__version__})"
            )
        is_plugin = hasattr(self._plugin, "get_library_path")
        return None if is_plugin else "onnxruntime-qnn is too old to be a plugin: pip install 'onnxruntime-qnn>=2.0'"

    def provider_devices(self) -> list[Any]:
        """ONNX Runtime's devices from the plugin, the NPU first."""
        devices = [entry for entry in self._onnxruntime.get_ep_devices() if entry.ep_name == PROVIDER]
        if not devices:
            self._onnxruntime.register_execution_provider_library(PROVIDER, self._plugin.get_library_path())
            devices = [entry for entry in self._onnxruntime.get_ep_devices() if entry.ep_name == PROVIDER]
        return sorted(devices, key=lambda entry: ("NPU", "GPU", "CPU").index(_kind(entry)))

    def _backends(self) -> dict[str, str]:
        """Paths of the usable backend libraries by backend, in order of preference."""
        usable = [backend for backend in BACKENDS if _is_snapdragon() or backend not in WITHOUT_EMULATOR]
        paths = {backend: getattr(self._plugin, f"get_qnn_{backend}_path", str)() for backend in usable}
        return {backend: path for backend, path in paths.items() if path and Path(path).exists()}

    def _describe(self, listed: Sequence[Any], backends: dict[str, str]) -> Device:
        host = host_facts()
        is_simulated = not _is_snapdragon()
        first = listed[0]
        description = dict(first.device.metadata).get("Description")
        cpu_name = text_fact(host, "cpu_model") or platform.machine()
        precisions = tuple(dict.fromkeys(precision for backend in backends for precision in PRECISIONS[backend]))
        why = f"{NOT_APPLICABLE}: emulated" if is_simulated else f"{NOT_SUPPORTED}: QNN does not report it to plugins"
        facts: dict[str, Json] = {
            "backends": list[Json](backends),
            "provider_devices": [_kind(entry) for entry in listed],
            "processor": cpu_name,
            "native_precisions": list[Json](precisions),
        }
        return Device(
            type="qnn",
            selector="qnn",
            found=True,
            name=f"Qualcomm HTP emulator on {cpu_name}"
            if is_simulated
            else description or f"Qualcomm NPU of {cpu_name}",
            vendor=str(first.ep_vendor),
            driver=f"QNN plugin {self._plugin.__version__}",
            memory_bytes=usable_memory_bytes(host),
            simulated=is_simulated,
            facts=Readings(values=facts, missing={"htp_architecture": why, "clock_max_hz": why}),
            precisions=precisions,
        )


def _is_snapdragon() -> bool:
    """Whether this machine could be a Snapdragon."""
    return platform.machine().lower() in HARDWARE_MACHINES


def _kind(entry: Any) -> str:
    """NPU, GPU or CPU: the last word of OrtHardwareDeviceType's member."""
    return str(entry.device.type).rpartition(".")[2]


PLUGIN = QnnDevice()
