"""NVIDIA's management library (NVML): the facts of each GPU, and a monitor of an open one."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarking.core.device_contracts import IN_USE_NAMES
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import HZ_PER_MHZ, NS_PER_US
from benchmarking.core.plugins import how_to_install
from benchmarking.core.records import FAILED, NO_PERMISSION, NOT_SUPPORTED, Json, Readings
from benchmarking.devices.support.handles import (
    CLOCK_BELOW_MAXIMUM,
    CLOCKS_SETTING,
    GPU_IDLE,
    HARDWARE_SLOWDOWN,
    HARDWARE_THERMAL,
    POWER_BRAKE,
    SOFTWARE_POWER_CAP,
    SOFTWARE_THERMAL,
    SYNC_BOOST,
    Client,
    ProcessOwners,
)
from benchmarking.devices.support.system_values import UnreadableError, first_of, gather, number_or_none
from benchmarking.devices.support.torch_gpu import pci_address

MILLI = 1_000
PERCENT = 100

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
"""nvmlClocksEventReasons of nvml.h. Two are one reason here: 0x2 is a setting of application clocks, 0x100 of the
display's."""

COUNTERS = {
    "SW_POWER_CAP": SOFTWARE_POWER_CAP,
    "SYNC_BOOST": SYNC_BOOST,
    "SW_THERM_SLOWDOWN": SOFTWARE_THERMAL,
    "HW_THERM_SLOWDOWN": HARDWARE_THERMAL,
    "HW_POWER_BRAKE_SLOWDOWN": POWER_BRAKE,
}
"""Suffixes of NVML_FI_DEV_CLOCKS_EVENT_REASON_*: nanoseconds of throttling for this reason since the driver was
loaded."""

FREE_CLOCK = 0.95
"""Share of the highest SM clock. From it on, the clock of a busy GPU counts as free: without a limit it is only a few
MHz off the highest one (nvml.h).

2026-11-27: NVML has no call that reads what `nvidia-smi -lgc` (nvmlDeviceSetGpuLockedClocks) set; application clocks
and clocks of performance states are other settings, which it leaves alone. So the lock is seen by its effect: a busy
GPU stays below its highest clock, and no bit of the mask says why ("clocks are running as high as possible"). Boards
without default application clocks are left out: their voltage limits the clock without a bit."""

VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Field of nvmlValue_t by nvmlValueType_t."""

NO_INSTANCE = 0xFFFF_FFFF
"""The gpuInstanceId of a process on a GPU without MIG instances."""

COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
VIRTUALIZATIONS = {0: "none", 1: "passthrough", 2: "vgpu", 3: "vgpu_host", 4: "vsga_host"}
"""nvmlComputeMode_t and nvmlGpuVirtualizationMode_t."""


class NvmlError(Exception):
    """NVML cannot be used. The message gives the reason and what to do."""


class Nvml:
    """The initialized library. In tests, `module` is a recording of pynvml."""

    def __init__(self, module: Any = None) -> None:
        self.module: Any = module or load_module()
        try:
            self.module.nvmlInit()
        except self.module.NVMLError as error:
            names = self.module
            advice = {
                names.NVML_ERROR_LIBRARY_NOT_FOUND: "the NVIDIA driver is not installed: install it if there is a GPU",
                names.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: modprobe nvidia, or reboot",
                names.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated while the old one was loaded: "
                "reboot",
                names.NVML_ERROR_NO_PERMISSION: "no permission for /dev/nvidia*: grant it to this user or container",
                names.NVML_ERROR_GPU_IS_LOST: "the GPU fell off the bus: reset it or reboot",
            }
            why = advice.get(error.value, "NVML failed to start: check nvidia-smi")
            raise NvmlError(f"{why} ({error})") from error

    def call(self, function: str, *arguments: Any) -> Any:
        """The result of an NVML function. Raises UnreadableError with the reason."""
        try:
            return getattr(self.module, function)(*arguments)
        except self.module.NVMLError as error:
            raise UnreadableError(f"{_reason(self.module, error)}: {function}: {error}") from error
        except AttributeError as error:
            raise UnreadableError(f"{NOT_SUPPORTED}: the installed nvidia-ml-py has no {function}") from error

    def field(self, handle: Any, name: str) -> int:
        """The integer value of an NVML field (NVML_FI_...). Raises UnreadableError."""
        number = getattr(self.module, name, None)
        if number is None:
            raise UnreadableError(f"{NOT_SUPPORTED}: the installed nvidia-ml-py has no {name}")
        (value,) = self.call("nvmlDeviceGetFieldValues", handle, [number])
        if value.nvmlReturn != self.module.NVML_SUCCESS:
            error = self.module.NVMLError(value.nvmlReturn)
            raise UnreadableError(f"{_reason(self.module, error)}: {name}: {error}")
        return int(getattr(value.value, VALUE_FIELDS[value.valueType]))

    def deferred(self, function: str, *arguments: Any) -> Callable[[], Any]:
        return lambda: self.call(function, *arguments)

    def close(self) -> None:
        self.call("nvmlShutdown")


def load_module() -> Any:
    """The module `pynvml`. Raises NvmlError."""
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlError(f"package nvidia-ml-py is missing: {how_to_install()}") from error


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
            "clock_application_hz": lambda: _setting_hz(nvml, handle, "APP_CLOCK_TARGET", "ApplicationsClock"),
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
            "cuda_driver_version": lambda: (  # 13020 is CUDA 13.2
                "{}.{}".format(*divmod(nvml.call("nvmlSystemGetCudaDriverVersion") // 10, 100))
            ),
        }
    )


def default_clock_hz(nvml: Nvml, handle: Any) -> int:
    """The board's default SM clock in Hz; consumer boards have none. Raises UnreadableError."""
    return _setting_hz(nvml, handle, "APP_CLOCK_DEFAULT", "DefaultApplicationsClock")


def _setting_hz(nvml: Nvml, handle: Any, setting: str, older_call: str) -> int:
    """An SM clock setting (NVML_CLOCK_ID_...) in Hz. Falls back to the older call, which CUDA 14 removes; raises
    UnreadableError with that call's reason."""
    clock, number = nvml.module.NVML_CLOCK_SM, getattr(nvml.module, f"NVML_CLOCK_ID_{setting}", None)
    older = nvml.deferred(f"nvmlDeviceGet{older_call}", handle, clock)
    newer = older if number is None else nvml.deferred("nvmlDeviceGetClock", handle, clock, number)
    megahertz: Any = first_of(newer, older)()
    return int(megahertz) * HZ_PER_MHZ


def used_bytes(nvml: Nvml, handle: Any) -> int:
    """Memory in use by all processes, as nvidia-smi shows it. The first version of the call, which older drivers have
    alone, adds what the driver reserves for itself. Raises UnreadableError."""
    version = getattr(nvml.module, "nvmlMemory_v2", None)
    older = nvml.deferred("nvmlDeviceGetMemoryInfo", handle)
    newer = older if version is None else nvml.deferred("nvmlDeviceGetMemoryInfo", handle, version)
    memory: Any = first_of(newer, older)()
    return int(memory.used)


def is_split(nvml: Nvml, handle: Any) -> bool:
    """Whether the GPU is split into instances (MIG); GPUs without MIG do not support the call."""
    try:
        return bool(nvml.call("nvmlDeviceGetMigMode", handle)[0] == 1)
    except UnreadableError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A MIG instance, as a process sees it in place of the GPU."""

    uuid: str
    name: str
    """With its profile: "NVIDIA H100 80GB HBM3 MIG 1g.10gb"."""
    memory_bytes: int | None
    """None if this user may not read it."""
    facts: Readings
    older_name: str | None = None
    """Its name before driver 470, by its GPU and its numbers there, which CUDA still takes: "MIG-GPU-1a2b/1/0"."""


def instances(nvml: Nvml, handle: Any) -> list[Instance]:
    """The MIG instances of a GPU in the driver's order; empty for a whole GPU, and where the driver lists none."""
    if not is_split(nvml, handle):
        return []
    found = []
    try:
        count = int(nvml.call("nvmlDeviceGetMaxMigDeviceCount", handle))
    except UnreadableError:
        return []
    for index in range(count):
        try:
            mig = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
            name, uuid = text(nvml.call("nvmlDeviceGetName", mig)), text(nvml.call("nvmlDeviceGetUUID", mig))
        except UnreadableError:  # numbers without an instance, or one that was just destroyed
            continue
        older_name: str | None = None
        with suppress(UnreadableError):
            numbers = [nvml.call(f"nvmlDeviceGet{kind}InstanceId", mig) for kind in ("Gpu", "Compute")]
            older_name = f"MIG-{text(nvml.call('nvmlDeviceGetUUID', handle))}/{numbers[0]}/{numbers[1]}"
        facts: dict[str, Json] = {"mig_profile": name.rpartition(" MIG ")[2], "mig_uuid": uuid}
        missing: dict[str, str] = {}
        try:
            attributes = nvml.call("nvmlDeviceGetAttributes", mig)
            facts["multiprocessors"] = int(attributes.multiprocessorCount)
            facts["mig_compute_slices"] = int(attributes.computeInstanceSliceCount)
        except UnreadableError as error:
            missing = dict.fromkeys(("multiprocessors", "mig_compute_slices"), str(error))
        memory_bytes: int | None = None
        with suppress(UnreadableError):
            memory_bytes = int(nvml.call("nvmlDeviceGetMemoryInfo", mig).total)
        found.append(
            Instance(
                uuid=uuid,
                name=name,
                memory_bytes=memory_bytes,
                facts=Readings(values=facts, missing=missing),
                older_name=older_name,
            )
        )
    return found


def text(value: str | bytes) -> str:
    """NVML's text, which older bindings return as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _pci(info: Any) -> str:
    return pci_address(info.domain, info.bus, info.device)


class NvmlMonitor:
    """Monitors one GPU by its UUID, or one of its MIG instances. Created before this process uses the GPU, unless
    `is_in_use`."""

    def __init__(
        self,
        nvml: Nvml,
        uuid: str | None,
        own_pid: int | None = None,
        is_in_use: bool = False,
        *,
        index: int = 0,
        instance_uuid: str | None = None,
    ) -> None:
        """`index` is NVML's number of a GPU without a UUID. Raises UnreadableError."""
        self._nvml = nvml
        by_uuid = "nvmlDeviceGetHandleByUUID"
        self._handle = nvml.call("nvmlDeviceGetHandleByIndex", index) if uuid is None else nvml.call(by_uuid, uuid)
        self._is_split = is_split(nvml, self._handle)
        self._has_instance = instance_uuid is not None
        self._part = self._handle if instance_uuid is None else nvml.call(by_uuid, instance_uuid)
        """The instance, or the whole GPU: whose memory and processes are read. Those of a whole GPU in instances are
        all instances', and readable with rights only."""
        self._highest_hz = 0
        """The highest SM clock of all states so far, for boards without a default clock."""
        self._seen_us = time.time_ns() // NS_PER_US
        """Timestamp of the last utilization sample read, on the machine's clock."""
        self._owners = ProcessOwners.at_start(self._compute_clients, own_pid, is_in_use=is_in_use)

    def memory_in_use(self) -> Readings:
        total = gather({"device_used_bytes": lambda: used_bytes(self._nvml, self._part)})
        return total | gather({IN_USE_NAMES[0]: lambda: self._owners.own_bytes(self._compute_clients())})

    def conditions(self) -> Readings:
        module = self._nvml.module
        return gather(
            {
                "clock_hz": lambda: self._call("nvmlDeviceGetClockInfo", module.NVML_CLOCK_SM) * HZ_PER_MHZ,
                "memory_clock_hz": lambda: self._call("nvmlDeviceGetClockInfo", module.NVML_CLOCK_MEM) * HZ_PER_MHZ,
                "temperature_c": first_of(
                    lambda: self._call("nvmlDeviceGetTemperatureV", module.NVML_TEMPERATURE_GPU),
                    lambda: self._call("nvmlDeviceGetTemperature", module.NVML_TEMPERATURE_GPU),
                ),
            }
        )

    def state(self) -> Readings:
        conditions = self.conditions()
        clock_hz = conditions.values.get("clock_hz")
        if isinstance(clock_hz, int):
            self._highest_hz = max(self._highest_hz, clock_hz)
        read = gather(
            {
                "clock_default_hz": lambda: default_clock_hz(self._nvml, self._handle),
                "clock_highest_hz": lambda: self._highest_hz or None,
                "power_w": self._mean_power_w,
                "throttle_reasons": lambda: self._throttle_reasons(clock_hz),
                "throttle_counters": self._throttle_counters,
                "violation_ns": self._violation_ns("THERMAL"),
                "power_violation_ns": self._violation_ns("POWER"),
                # An idle link trains down, so only its state during calls shows the speed of copies.
                "pcie_generation": lambda: self._call("nvmlDeviceGetCurrPcieLinkGeneration"),
                "pcie_width": lambda: self._call("nvmlDeviceGetCurrPcieLinkWidth"),
            }
        )
        return read | conditions | self._owners.use(self._clients)

    def energy_j(self) -> Readings:
        return gather({"gpu": self._energy_j})

    def momentary_power_w(self) -> float | None:
        """Instantaneous power; on newer GPUs the usual reading is the mean of the last second. None under MIG, where
        the reading covers all instances."""
        if self._is_split:
            return None
        instant = "NVML_FI_DEV_POWER_INSTANT"
        return number_or_none(first_of(lambda: self._nvml.field(self._handle, instant) / MILLI, self._mean_power_w))

    def utilization_percent(self) -> Json:
        """The share of the driver's last period (1/6 to 1 s) in which any kernel ran. NVML has none under MIG."""
        return int(self._call("nvmlDeviceGetUtilizationRates").gpu)

    def close(self) -> None:
        self._nvml.close()

    def _call(self, function: str, *arguments: Any) -> Any:
        return self._nvml.call(function, self._handle, *arguments)

    def _mean_power_w(self) -> float:
        return float(self._call("nvmlDeviceGetPowerUsage") / MILLI)

    def _energy_j(self) -> float:
        if self._is_split:
            raise UnreadableError(f"{NOT_SUPPORTED}: under MIG the counter covers the whole GPU")
        return float(self._call("nvmlDeviceGetTotalEnergyConsumption") / MILLI)

    def _compute_clients(self) -> dict[int, Client]:
        """The processes that compute on the GPU, or in its instance."""
        clients: dict[int, Client] = {}
        for process in self._nvml.call("nvmlDeviceGetComputeRunningProcesses", self._part):
            instance: Any = getattr(process, "gpuInstanceId", None)
            is_whole = self._has_instance or instance in (None, NO_INSTANCE)
            clients[int(process.pid)] = Client(
                memory_bytes=process.usedGpuMemory, instance=None if is_whole else int(instance)
            )
        return clients

    def _clients(self) -> dict[int, Client]:
        """All processes on the GPU, with those that computed since the last call. Raises UnreadableError."""
        clients = self._compute_clients()
        try:
            listed = self._nvml.call("nvmlDeviceGetGraphicsRunningProcesses", self._part)
            drawing = frozenset(int(one.pid) for one in listed)
        except UnreadableError:  # the driver does not list them
            drawing = frozenset()
        for pid in drawing:
            clients[pid] = replace(clients.get(pid, Client(computes=False)), is_graphics=True)
        busy = self._busy_percent()
        if busy is None:
            return clients
        # A pid that is listed for utilization only is one of the host's, in another namespace.
        return {pid: replace(one, busy_percent=busy.get(pid, 0)) for pid, one in clients.items()}

    def _busy_percent(self) -> dict[int, int] | None:
        """The largest share of time in which a process's kernels ran, by pid, since the last call. Idle processes are
        left out. None if the driver does not count it (MIG, Windows)."""
        module = self._nvml.module
        try:
            samples = module.nvmlDeviceGetProcessUtilization(self._handle, self._seen_us)
        except module.NVMLError as error:
            is_idle = error.value in (module.NVML_SUCCESS, module.NVML_ERROR_NOT_FOUND)
            return {} if is_idle else None
        busy: dict[int, int] = {}
        for sample in samples:
            if (
                sample.timeStamp > self._seen_us and sample.smUtil <= PERCENT
            ):  # older drivers leave garbage in unused entries
                busy[int(sample.pid)] = max(busy.get(int(sample.pid), 0), int(sample.smUtil))
        self._seen_us = max([self._seen_us, *(int(sample.timeStamp) for sample in samples)])
        return busy

    def _throttle_reasons(self, clock_hz: Json) -> list[Json]:
        names = ("EventReasons", "ThrottleReasons")  # the older name is that of drivers before 535
        calls = (self._nvml.deferred(f"nvmlDeviceGetCurrentClocks{name}", self._handle) for name in names)
        bits: Any = first_of(*calls)()
        if not bits and isinstance(clock_hz, int):
            with suppress(UnreadableError):  # a board without a default clock
                default_clock_hz(self._nvml, self._handle)
                highest_hz = self._call("nvmlDeviceGetMaxClockInfo", self._nvml.module.NVML_CLOCK_SM) * HZ_PER_MHZ
                if clock_hz < FREE_CLOCK * highest_hz:  # not the clock of a busy GPU with free clocks
                    return [CLOCK_BELOW_MAXIMUM]
        return list[Json](sorted({name for bit, name in REASON_BITS.items() if bits & bit}))

    def _throttle_counters(self) -> dict[str, Json]:
        """Nanoseconds of throttling by reason, without the reasons that the driver does not count. Raises
        UnreadableError if it counts none."""
        counters = gather(
            {
                reason: partial(self._nvml.field, self._handle, f"NVML_FI_DEV_CLOCKS_EVENT_REASON_{end}")
                for end, reason in COUNTERS.items()
            }
        )
        if not counters.values:
            raise UnreadableError(next(iter(counters.missing.values())))
        return dict(counters.values)

    def _violation_ns(self, policy: str) -> Callable[[], Json]:
        """Time of throttling for this cause since the driver was loaded. Older drivers need the second call, which
        CUDA 14 removes."""

        def older() -> Json:
            number = getattr(self._nvml.module, f"NVML_PERF_POLICY_{policy}")
            return int(self._call("nvmlDeviceGetViolationStatus", number).violationTime)

        return first_of(lambda: self._nvml.field(self._handle, f"NVML_FI_DEV_PERF_POLICY_{policy}"), older)
