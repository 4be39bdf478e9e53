"""NVIDIA's management library: the facts of each GPU, and a watch on an open one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from benchmarking.core.device_contracts import IN_USE_NAMES
from benchmarking.core.records import FAILED, NO_PERMISSION, NOT_SUPPORTED, Json, Readings
from benchmarking.devices.support.handles import (
    CLOCKS_SETTING,
    GPU_IDLE,
    HARDWARE_SLOWDOWN,
    HARDWARE_THERMAL,
    POWER_BRAKE,
    SOFTWARE_POWER_CAP,
    SOFTWARE_THERMAL,
    SYNC_BOOST,
)
from benchmarking.devices.support.reading import UnreadableError, gather
from benchmarking.devices.support.torch_gpu import Owners, pci_address

HZ_PER_MHZ = 1_000_000
MILLI = 1_000

REASON_BITS = {
    0x1: GPU_IDLE,
    0x2: CLOCKS_SETTING,
    0x4: SOFTWARE_POWER_CAP,
    0x8: HARDWARE_SLOWDOWN,
    0x10: SYNC_BOOST,
    0x20: SOFTWARE_THERMAL,
    0x40: HARDWARE_THERMAL,
    0x80: POWER_BRAKE,
    0x100: CLOCKS_SETTING,
}
"""nvmlClocksEventReasons of nvml.h; 0x2 are application clocks, 0x100 the display's."""

COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
VIRTUALIZATIONS = {0: "none", 1: "passthrough", 2: "vgpu", 3: "vgpu_host", 4: "vsga_host"}
"""nvmlComputeMode_t and nvmlGpuVirtualizationMode_t."""


class NvmlError(Exception):
    """NVML cannot be used; the message has the reason and advice."""


class Nvml:
    """The library, initialized. `module` may be a recording in place of the machine."""

    def __init__(self, module: Any = None) -> None:
        self.module: Any = module or load_module()
        try:
            self.module.nvmlInit()
        except self.module.NVMLError as error:
            raise NvmlError(_why_not(self.module, error)) from error

    def call(self, function: str, *arguments: Any) -> Any:
        """The result of an NVML function. Raises UnreadableError with the reason."""
        try:
            return getattr(self.module, function)(*arguments)
        except self.module.NVMLError as error:
            raise UnreadableError(f"{_reason(self.module, error)}: {function}: {error}") from error

    def deferred(self, function: str, *arguments: Any) -> Callable[[], Any]:
        """The call, to be made later."""
        return lambda: self.call(function, *arguments)

    def close(self) -> None:
        """Release the library."""
        self.call("nvmlShutdown")


def load_module() -> Any:
    """The module `pynvml`. Raises NvmlError."""
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlError("package nvidia-ml-py is missing: pip install nvidia-ml-py") from error


def _why_not(module: Any, error: Any) -> str:
    advice = {
        module.NVML_ERROR_LIBRARY_NOT_FOUND: "the NVIDIA driver is not installed: install it where there is a GPU",
        module.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: modprobe nvidia, or reboot",
        module.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated under a running one: reboot",
        module.NVML_ERROR_NO_PERMISSION: "no permission for /dev/nvidia*: give this user or container the devices",
        module.NVML_ERROR_GPU_IS_LOST: "the GPU fell off the bus: reset it or reboot",
    }
    return f"{advice.get(error.value, 'NVML does not start: check nvidia-smi')} ({error})"


def _reason(module: Any, error: Any) -> str:
    if error.value == module.NVML_ERROR_NO_PERMISSION:
        return NO_PERMISSION
    unsupported = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "DEPRECATED", "ARGUMENT_VERSION_MISMATCH", "NO_DATA")
    codes = {getattr(module, f"NVML_ERROR_{name}", None) for name in unsupported}
    return NOT_SUPPORTED if error.value in codes else FAILED


def handle_facts(nvml: Nvml, handle: Any) -> Readings:
    """The facts of a GPU that do not change while it runs."""
    clock = nvml.module.NVML_CLOCK_SM
    return gather(
        {
            "uuid": lambda: text(nvml.call("nvmlDeviceGetUUID", handle)),
            "pci_address": lambda: _pci(nvml.call("nvmlDeviceGetPciInfo", handle)),
            "compute_capability": lambda: "{}.{}".format(*nvml.call("nvmlDeviceGetCudaComputeCapability", handle)),
            "cuda_cores": nvml.deferred("nvmlDeviceGetNumGpuCores", handle),
            "power_cap_w": lambda: nvml.call("nvmlDeviceGetPowerManagementLimit", handle) / MILLI,
            "power_cap_default_w": lambda: nvml.call("nvmlDeviceGetPowerManagementDefaultLimit", handle) / MILLI,
            "clock_default_hz": lambda: default_clock_hz(nvml, handle),
            "clock_max_hz": lambda: nvml.call("nvmlDeviceGetMaxClockInfo", handle, clock) * HZ_PER_MHZ,
            "clock_application_hz": lambda: nvml.call("nvmlDeviceGetApplicationsClock", handle, clock) * HZ_PER_MHZ,
            "temperature_slowdown_c": lambda: nvml.call(
                "nvmlDeviceGetTemperatureThreshold", handle, nvml.module.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
            ),
            "is_mig_enabled": lambda: nvml.call("nvmlDeviceGetMigMode", handle)[0] == 1,
            "is_ecc_enabled": lambda: nvml.call("nvmlDeviceGetEccMode", handle)[0] == 1,
            "ecc_uncorrected_errors": lambda: nvml.call(
                "nvmlDeviceGetTotalEccErrors",
                handle,
                nvml.module.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.module.NVML_VOLATILE_ECC,
            ),
            "compute_mode": lambda: COMPUTE_MODES.get(nvml.call("nvmlDeviceGetComputeMode", handle), "unknown"),
            "virtualization": lambda: VIRTUALIZATIONS.get(
                nvml.call("nvmlDeviceGetVirtualizationMode", handle), "unknown"
            ),
            "is_display_attached": lambda: nvml.call("nvmlDeviceGetDisplayMode", handle) == 1,
            "is_display_active": lambda: nvml.call("nvmlDeviceGetDisplayActive", handle) == 1,
            "is_persistence_enabled": lambda: nvml.call("nvmlDeviceGetPersistenceMode", handle) == 1,
            "pcie_generation": nvml.deferred("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            "pcie_generation_max": nvml.deferred("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            "pcie_width": nvml.deferred("nvmlDeviceGetCurrPcieLinkWidth", handle),
            "pcie_width_max": nvml.deferred("nvmlDeviceGetMaxPcieLinkWidth", handle),
            "cuda_driver_version": lambda: _cuda_version(nvml.call("nvmlSystemGetCudaDriverVersion")),
        }
    )


def default_clock_hz(nvml: Nvml, handle: Any) -> int:
    """The SM clock the board runs at by default, in Hz. Consumer boards have none. Raises UnreadableError."""
    return int(nvml.call("nvmlDeviceGetDefaultApplicationsClock", handle, nvml.module.NVML_CLOCK_SM)) * HZ_PER_MHZ


def is_split(nvml: Nvml, handle: Any) -> bool:
    """Whether the GPU is split into instances (MIG); GPUs without MIG do not support the call."""
    try:
        return bool(nvml.call("nvmlDeviceGetMigMode", handle)[0] == 1)
    except UnreadableError:
        return False


def text(value: str | bytes) -> str:
    """NVML's text; older bindings give bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _pci(info: Any) -> str:
    return pci_address(info.domain, info.bus, info.device)


def _cuda_version(number: int) -> str:
    """13020 is CUDA 13.2."""
    return f"{number // 1000}.{number % 1000 // 10}"


class NvmlMonitor:
    """Watches one GPU, by its UUID; created before this process uses the GPU, unless `is_in_use`."""

    def __init__(self, nvml: Nvml, uuid: str, own_pid: int | None = None, is_in_use: bool = False) -> None:
        self._nvml = nvml
        self._handle = nvml.call("nvmlDeviceGetHandleByUUID", uuid)
        self._owners = Owners.now(self._processes, own_pid, is_in_use=is_in_use)
        self._is_split = is_split(nvml, self._handle)

    def memory_in_use(self) -> Readings:
        total = gather({"device_used_bytes": lambda: int(self._call("nvmlDeviceGetMemoryInfo").used)})
        return total | gather({IN_USE_NAMES[0]: lambda: self._owners.own_bytes(self._processes())})

    def state(self) -> Readings:
        module = self._nvml.module
        return gather(
            {
                "clock_hz": lambda: self._call("nvmlDeviceGetClockInfo", module.NVML_CLOCK_SM) * HZ_PER_MHZ,
                "clock_default_hz": lambda: default_clock_hz(self._nvml, self._handle),
                "memory_clock_hz": lambda: self._call("nvmlDeviceGetClockInfo", module.NVML_CLOCK_MEM) * HZ_PER_MHZ,
                "temperature_c": lambda: self._call("nvmlDeviceGetTemperature", module.NVML_TEMPERATURE_GPU),
                "power_w": lambda: self._call("nvmlDeviceGetPowerUsage") / MILLI,
                "throttle_reasons": self._throttle_reasons,
                "violation_ns": lambda: self._violation_ns(module.NVML_PERF_POLICY_THERMAL),
                "power_violation_ns": lambda: self._violation_ns(module.NVML_PERF_POLICY_POWER),
                # An idle link trains down: only its state during calls is the speed of copies.
                "pcie_generation": lambda: self._call("nvmlDeviceGetCurrPcieLinkGeneration"),
                "pcie_width": lambda: self._call("nvmlDeviceGetCurrPcieLinkWidth"),
                "foreign_pids": lambda: list[Json](self._owners.foreign(frozenset(self._processes()))),
            }
        )

    def energy_j(self) -> Readings:
        return gather({"gpu": self._energy_j})

    def close(self) -> None:
        self._nvml.close()

    def _call(self, function: str, *arguments: Any) -> Any:
        return self._nvml.call(function, self._handle, *arguments)

    def _energy_j(self) -> float:
        if self._is_split:
            raise UnreadableError(f"{NOT_SUPPORTED}: under MIG the counter is the whole GPU's")
        return float(self._call("nvmlDeviceGetTotalEnergyConsumption") / MILLI)

    def _processes(self) -> Mapping[int, int | None]:
        """Bytes of each process that computes on the GPU, by pid; None where the driver has no number (Windows)."""
        listed = self._call("nvmlDeviceGetComputeRunningProcesses")
        return {int(process.pid): process.usedGpuMemory for process in listed}

    def _throttle_reasons(self) -> list[Json]:
        try:
            bits = self._call("nvmlDeviceGetCurrentClocksEventReasons")
        except UnreadableError:  # drivers before 535 have the call under its older name
            bits = self._call("nvmlDeviceGetCurrentClocksThrottleReasons")
        return list[Json](sorted({name for bit, name in REASON_BITS.items() if bits & bit}))

    def _violation_ns(self, policy: int) -> int:
        """Time the clocks were held down for this cause since the driver was loaded (nvmlViolationTime_t, in ns)."""
        return int(self._call("nvmlDeviceGetViolationStatus", policy).violationTime)
