"""NVIDIA and AMD GPUs, both behind torch.cuda: shared code of the two kinds, the installed torch, and open handles.

`TorchGpuHandle` is a GPU driven by torch. `WatchedGpuHandle` is a GPU driven by another runtime and only monitored by
the vendor's library. `visible` applies CUDA_VISIBLE_DEVICES and its HIP counterparts.

`TorchTracer` records a GPU's kernels with torch's profiler (Kineto, on CUPTI or roctracer), without the host's
activities. They are read from the trace that it exports in Chrome's format, because its objects in memory differ
between versions of torch.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarking.core.device_contracts import (
    CONDITION_NAMES,
    IN_USE_NAMES,
    PEAK_NAMES,
    STATE_NAMES,
    ColdCache,
    DeviceHandle,
    DeviceKind,
    DeviceTimer,
    Gauge,
    KernelTracer,
    Memory,
    Span,
)
from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import BYTES_PER_MIB, NS_PER_MS, NS_PER_US
from benchmarking.core.records import NOT_SUPPORTED, Device, Json, Readings
from benchmarking.core.temporary import temporary_folder
from benchmarking.devices.support.gauges import MonitorGauge
from benchmarking.devices.support.handles import HostHandle, Monitor, with_method
from benchmarking.devices.support.system_values import UnreadableError, all_missing

FLUSH_FACTOR = 2
"""Multiple of the cache size: caches do not evict strictly in order of use."""
FLUSH_BYTES = 512 * BYTES_PER_MIB
"""Minimum size, for caches behind the L2 that torch does not report (256 MiB on an MI300X)."""
TORCH_TYPE = "cuda"
"""torch's device type for NVIDIA and AMD GPUs, and the name of its CUDA version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchBuild:
    """A build of torch, as in its version file."""

    version: str
    cuda: str | None = None
    """CUDA version that it was built with."""
    hip: str | None = None
    """HIP (ROCm) version that it was built with."""
    xpu: str | None = None
    """Version of Intel's compiler that its XPU backend was built with."""


def torch_build() -> TorchBuild | None:
    """The installed torch, or None. Reads torch/version.py as text: importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("version.py")
    return parse_build(path.read_text()) if path.exists() else None


def parse_build(source: str) -> TorchBuild:
    """Parse the source of a torch/version.py."""
    constants: dict[str, str] = {}
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(targets[0], ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            constants[targets[0].id] = value.value
    version = constants.get("__version__", "of unknown version")
    backends = {field.name: constants.get(field.name) for field in fields(TorchBuild) if field.name != "version"}
    return TorchBuild(version=version, **backends)


def why_not_torch(backend: str, wheel_index: str) -> str | None:
    """Why the installed torch cannot use a backend ("CUDA" or "ROCm"), and what to install; None if it can."""
    build = torch_build()
    index = f"--index-url https://download.pytorch.org/whl/{wheel_index}"
    if build is None:
        return f"torch is not installed: pip install torch {index}"
    if (build.cuda if backend == "CUDA" else build.hip) is not None:
        return None
    target = f"CUDA {build.cuda}" if build.cuda else f"ROCm {build.hip}" if build.hip else "the CPU only"
    # Without --upgrade pip would keep the installed build, which has the same version.
    install = f"pip install --upgrade torch=={build.version.partition('+')[0]} {index}"
    return f"torch {build.version} is built for {target}, not {backend}: {install}"


def why_not_driver(driver: str, cuda_version: object) -> str | None:
    """None, or why a driver with this CUDA version is too old for the installed torch. A driver supports all minor
    versions of its major version."""
    build = torch_build()
    if build is None or build.cuda is None or not isinstance(cuda_version, str):
        return None
    driver_major, torch_major = (int(version.partition(".")[0]) for version in (cuda_version, build.cuda))
    if driver_major >= torch_major:
        return None
    return (
        f"torch {build.version} needs CUDA {build.cuda}, but the NVIDIA driver {driver} supports CUDA {cuda_version}: "
        f"update the driver, or install a torch build for CUDA {driver_major} (https://download.pytorch.org/whl)"
    )


class EventTimer(DeviceTimer):
    """A pair of events on a GPU's current stream, of `torch.cuda`, which on ROCm wraps HIP's, or of `torch.xpu`.

    Without an explicit stream an event would be recorded on the thread's current GPU, which may be another one.
    """

    def __init__(self, backend: Any, index: int) -> None:
        self._begin = backend.Event(enable_timing=True)
        self._end = backend.Event(enable_timing=True)
        self._stream = partial(backend.current_stream, index)

    def start(self) -> None:
        self._begin.record(self._stream())

    def stop(self) -> None:
        self._end.record(self._stream())

    def elapsed_ns(self) -> int:
        elapsed_ms: float = self._begin.elapsed_time(self._end)
        return round(elapsed_ms * NS_PER_MS)


@contextmanager
def flushed_by_torch(torch: Any, handle: DeviceHandle) -> Iterator[ColdCache]:
    """`DeviceHandle.cold_cache` for a GPU that torch drives: a tensor larger than the cache is written."""
    size_bytes = max(FLUSH_FACTOR * (handle.last_level_cache_bytes() or 0), FLUSH_BYTES)
    buffer = [torch.empty(size_bytes, dtype=torch.uint8, device=handle.torch_name)]
    try:
        yield ColdCache(flush=buffer[0].zero_, size_bytes=size_bytes)
    finally:
        buffer.clear()
        handle.empty_cache()


def current_gpu(torch: Any, torch_name: str) -> AbstractContextManager[object]:
    """Makes a GPU the thread's current one; does nothing for other devices.

    Work without an explicit GPU runs on the current one. Unlike set_device(), leaving this context does not create a
    CUDA context on the previously current GPU.
    """
    is_gpu = torch_name.partition(":")[0] == TORCH_TYPE
    context: AbstractContextManager[object] = torch.cuda.device(torch_name) if is_gpu else nullcontext()
    return context


class WatchedGpuHandle(HostHandle):
    """An open GPU without torch. Its runtime's calls are synchronous, and only the runtime has events and peaks."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self._monitor = monitor

    def peak_memory(self) -> Readings:
        return all_missing(f"{NOT_SUPPORTED}: the runtime's allocator does not track a peak", PEAK_NAMES)

    def memory_in_use(self) -> Readings:
        return self._monitor.memory_in_use()

    def state(self) -> Readings:
        return self._monitor.state()

    def energy_j(self) -> Readings:
        return with_method(super().energy_j() | self._monitor.energy_j())

    def momentary_power_w(self) -> float | None:
        return self._monitor.momentary_power_w()

    def close(self) -> None:
        self._monitor.close()


class TorchHandle(HostHandle):
    """The calls of an open GPU that all of torch's backends share."""

    has_queue = True
    _torch: Any
    _backend: Any
    """torch.cuda or torch.xpu."""
    _index: int

    def timer(self) -> DeviceTimer | None:
        return EventTimer(self._backend, self._index)

    def synchronize(self) -> None:
        self._backend.synchronize(self._index)

    def cold_cache(self) -> AbstractContextManager[ColdCache]:
        return flushed_by_torch(self._torch, self)

    def reset_peak_memory(self) -> None:
        self._backend.reset_peak_memory_stats(self._index)

    def peak_memory(self) -> Readings:
        allocated = self._backend.max_memory_allocated(self._index)
        reserved = self._backend.max_memory_reserved(self._index)
        return Readings(values={"device_allocated_peak_bytes": allocated, "device_reserved_peak_bytes": reserved})


class TorchGpuHandle(TorchHandle, WatchedGpuHandle):
    """An open GPU driven by torch and monitored by the vendor's library.

    It is the thread's current GPU until closed, so that work without an explicit GPU creates no context on another.
    """

    def __init__(self, index: int, monitor: Monitor, torch: Any) -> None:
        super().__init__(monitor)
        self.torch_name: str = f"{TORCH_TYPE}:{index}"
        self._index = index
        self._torch, self._backend = torch, torch.cuda
        self._current = ExitStack()
        self._current.enter_context(current_gpu(torch, self.torch_name))

    def tracer(self) -> KernelTracer | None:
        return TorchTracer(self._torch, self._index)

    def empty_cache(self) -> None:
        with current_gpu(self._torch, self.torch_name):
            self._torch.cuda.empty_cache()

    def free_memory_bytes(self) -> int | None:
        return int(self._torch.cuda.mem_get_info(self._index)[0])

    def last_level_cache_bytes(self) -> int | None:
        return int(getattr(self._torch.cuda.get_device_properties(self._index), "L2_cache_size", 0)) or None

    def close(self) -> None:
        self._current.close()
        super().close()


class TorchGpuKind(DeviceKind):
    """A kind of GPU that torch drives as a CUDA device."""

    memory: Memory = "own"
    can_be_several = True
    has_gauge = True
    torch_type: str | None = TORCH_TYPE
    has_cuda_graphs = True
    flash_attention: tuple[int, ...] = (2,)
    has_torchao_kernels = True
    visibility: tuple[tuple[str, ...], ...]
    """Environment variables that hide GPUs from this process: groups that apply one after the other; of a group the
    first one that is set counts, as in torch."""

    def open(self, device: Device) -> DeviceHandle:
        monitor = self.monitor(device)
        torch = import_torch(device)
        self.check_build(torch, device)
        return TorchGpuHandle(torch_index(torch, device), monitor, torch)

    def watch(self, device: Device, together: Sequence[Device] = ()) -> DeviceHandle:
        self.hide_others(together or (device,))
        return WatchedGpuHandle(self.monitor(device))

    def flushes_cache(self, device: Device, *, with_torch: bool) -> bool:
        return with_torch

    def gauge(self, device: Device, process_ids: Sequence[int]) -> Gauge:
        return MonitorGauge(self.monitor(device))

    def check_build(self, torch: Any, device: Device) -> None:
        """Raise UnsupportedError if the installed torch has no kernels for the device."""

    @abstractmethod
    def monitor(self, device: Device) -> Monitor:
        """A monitor of a device by the vendor's library. Raises BenchhouseError."""

    @abstractmethod
    def hide_others(self, devices: Sequence[Device]) -> None:
        """Make these the only devices visible to the process, numbered in this order. Raises UnsupportedError if that
        fails."""

    def settings(self) -> list[str]:
        """The variables of `visibility` that count in this process."""
        return [name for group in self.visibility for name in [one for one in group if one in os.environ][:1]]

    def usable(self, found: Sequence[Device], why_not_torch: str | None) -> tuple[Device, ...]:
        """The GPUs that this process may use, each with the number of GPUs of its model in the machine; or why there
        are none."""
        if why_not_torch:
            return (self.absent(f"{found[0].name} was found, but {why_not_torch}"),)
        usable_devices = with_counts(found)
        for variable in self.settings():
            usable_devices = visible(usable_devices, os.environ[variable]) if usable_devices else usable_devices
        if not usable_devices:
            settings = " ".join(f"{name}={os.environ[name]}" for name in self.settings())
            return (self.absent(f"{settings} hides all GPUs ({len(found)} x {found[0].name}): unset it"),)
        return usable_devices


def with_counts(found: Sequence[Device]) -> tuple[Device, ...]:
    """The GPUs, each with the number of GPUs of its model."""
    counts = Counter(device.name for device in found)
    return tuple(replace(device, count=counts[device.name]) for device in found)


class NoMonitor:
    """The monitor of a GPU without the vendor's library: torch measures, and each sensor is missing with the reason."""

    def __init__(self, why_not: str) -> None:
        self._why_not = f"{NOT_SUPPORTED}: {why_not}"

    def memory_in_use(self) -> Readings:
        return all_missing(self._why_not, IN_USE_NAMES)

    def state(self) -> Readings:
        return all_missing(self._why_not, STATE_NAMES)

    def conditions(self) -> Readings:
        return all_missing(self._why_not, CONDITION_NAMES)

    def energy_j(self) -> Readings:
        return all_missing(self._why_not, ("gpu",))

    def momentary_power_w(self) -> float | None:
        return None

    def utilization_percent(self) -> Json:
        raise UnreadableError(self._why_not)

    def close(self) -> None:
        """Nothing to release."""


def is_gpu_in_use() -> bool:
    """Whether torch in this process already uses a GPU (a model passed in by the user)."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def import_torch(device: Device) -> Any:
    """torch, after checking that it can use GPUs. Raises BenchhouseError with torch's own reason."""
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():  # it does not raise, at most it warns
        try:
            torch.cuda.init()
            why_not = "it initializes but counts no GPU"
        except (AssertionError, RuntimeError) as error:
            why_not = first_line(error)
        raise BenchhouseError(
            f"device {device.selector!r} was found, but torch {torch.__version__} sees no GPU: {why_not}"
        )
    return torch


def torch_index(torch: Any, device: Device) -> int:
    """torch's number of the device. Raises BenchhouseError if torch does not see it.

    torch numbers the GPUs that CUDA_VISIBLE_DEVICES (HIP_, ROCR_) leaves visible, in its own order; the vendor's
    library numbers all. So they are matched by PCI address or UUID, and by number only if both have just one GPU of
    that name, or of no address (Jetson's, whose name and UUID differ between NVML and CUDA).
    """
    known = [device.facts.values.get(name) for name in ("pci_address", "uuid", "mig_uuid", "unique_id")]
    identities = {name.lower().removeprefix("gpu-").removeprefix("mig-") for name in known if isinstance(name, str)}
    visible_gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    matching = [index for index, properties in enumerate(visible_gpus) if identities & _torch_identities(properties)]
    if len(matching) > 1:  # AMD's partitions, which share an address; newer drivers give each an id
        own = {str(device.facts.values.get("unique_id", "")).lower()}
        matching = [index for index in matching if own & _torch_identities(visible_gpus[index])] or matching
    if len(matching) > 1:
        raise BenchhouseError(
            f"device {device.selector!r} is split: torch lists {len(matching)} GPUs at {sorted(identities)}. "
            "Make only one of them visible with CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES"
        )
    if matching:
        return matching[0]
    if len(visible_gpus) == device.count == 1 and (
        visible_gpus[0].name == device.name or "pci_address" in device.facts.missing
    ):
        return 0
    names = ", ".join(f"cuda:{index} {properties.name}" for index, properties in enumerate(visible_gpus)) or "none"
    raise BenchhouseError(
        f"device {device.selector!r} ({device.name}) is not among the GPUs torch sees: {names}. "
        "Check CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES"
    )


def pci_address(domain: int, bus: int, slot: int) -> str:
    """A GPU's PCI address in canonical form; its function is always 0."""
    return f"{domain:04x}:{bus:02x}:{slot:02x}"


def _torch_identities(properties: Any) -> set[str]:
    """PCI address (newer torch) and UUID from torch's properties. HIP's UUID is the ASCII text of its hex digits."""
    identities: set[str] = set()
    if hasattr(properties, "pci_bus_id"):
        slot = getattr(properties, "pci_device_id", 0)
        identities.add(pci_address(getattr(properties, "pci_domain_id", 0), properties.pci_bus_id, slot))
    if uuid := str(getattr(properties, "uuid", "")).lower().removeprefix("gpu-"):
        identities.add(uuid)
        with suppress(ValueError):
            identities.add(bytes.fromhex(uuid.replace("-", "")).decode("ascii").lower())
    return identities


def visible(devices: Sequence[Device], setting: str | None) -> tuple[Device, ...]:
    """The devices that a setting leaves visible, in the order in which they were found.

    Numbers refer to the runtime's order, which matches the driver's only if all GPUs are of one model. With different
    models nothing is hidden here, and the lookup at opening decides. As in the runtime, an entry that matches no device
    ends the list.
    """
    if setting is None:
        return tuple(devices)
    entries = [entry.strip() for entry in setting.split(",")]
    numbered = all(entry.lstrip("-").isdigit() for entry in entries)
    if numbered and entries[0] != "-1" and len({device.name for device in devices}) > 1:
        return tuple(devices)
    # What a variable may call a device: NVIDIA's UUIDs of a GPU and its instance, AMD's unique id as ROCm writes it.
    names: list[tuple[Device, str]] = []
    for device in devices:
        uuids = [device.facts.values.get(name) for name in ("uuid", "mig_uuid")]
        unique = str(device.facts.values.get("unique_id", "")).removeprefix("0x")
        names += [(device, str(name).lower()) for name in (*uuids, f"GPU-{unique}" if unique else None) if name]
    named: list[Device] = []
    for entry in entries:
        # The device of an entry, which is a number or the prefix of a UUID ("GPU-1a2b") or of an instance's ("MIG-3f"),
        # or an instance's older name with its GPU ("MIG-GPU-1a2b/1/0"); an instance that the driver does not list is
        # one of the first split GPU without listed ones.
        if entry.isdigit():
            chosen = devices[int(entry)] if int(entry) < len(devices) else None
        else:
            chosen = next((device for device, name in names if entry and name.startswith(entry.lower())), None)
            if chosen is None and entry.startswith("MIG-"):
                split = [one for one in devices if one.facts.values.get("is_mig_enabled")]
                gpu = entry.lower().removeprefix("mig-").partition("/")[0]
                of_gpu = [one for one in split if str(one.facts.values.get("uuid")).lower() == gpu]
                unlisted = [one for one in split if "mig_uuid" not in one.facts.values]
                chosen = next(iter((*of_gpu, *unlisted)), None)
        if chosen is None:
            break
        named.append(chosen)
    return tuple(device for device in devices if device in named)


WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Categories of work on the device. Its other events are waits (cuda_sync) and user ranges (gpu_user_annotation), which
include idle time."""


class TorchTracer(KernelTracer):
    """Traces one GPU; `index` is torch's number for it."""

    def __init__(self, torch: Any, index: int) -> None:
        self._torch = torch
        self._index = index

    def spans(self, work: Callable[[], None]) -> Sequence[Span]:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            work()
        with temporary_folder("benchhouse-trace") as folder:
            path = folder / "trace.json"
            profiler.export_chrome_trace(str(path))
            spans = device_spans(json.loads(path.read_text()), self._index)
        if not spans:
            raise BenchhouseError(
                "torch's profiler recorded no kernel: its library (CUPTI, roctracer) is missing, or in use by another "
                "profiler"
            )
        return spans


def device_spans(trace: Mapping[str, Any], index: int) -> list[Span]:
    """Times of kernels, copies and fills on the GPU with this number, in ns of the trace's clock.

    Traces hold microseconds with three decimals.
    """
    return [
        (event["ts"] * NS_PER_US, (event["ts"] + event["dur"]) * NS_PER_US)
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and event.get("cat") in WORK and event["args"].get("device") == index
    ]
