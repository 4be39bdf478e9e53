"""The contract of a device plugin: one module in `benchmarking/devices/` with a `PLUGIN`, an instance of `DeviceKind`.

A `DeviceKind` finds devices and states the traits of the kind; `open` gives a `DeviceHandle`, through which the
measuring process waits, times, and reads memory, clocks and energy. Defaults describe the ordinary case, so a plugin
overrides only what differs. `Readings` pair values with the reason for each value that is missing.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from benchmarking.core.errors import UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Device, Readings

if TYPE_CHECKING:
    from benchmarking.devices.support.ort_providers import OrtProvider

Memory = Literal["own", "host", "unknown"]
"""Which memory a device computes in: its own, the machine's, or one that its driver does not report."""

# The names that a handle's readings use; a name missing from the values needs a reason.
PEAK_NAMES = ("device_allocated_peak_bytes", "device_reserved_peak_bytes")
IN_USE_NAMES = ("device_process_bytes", "device_used_bytes")
"""Memory in use by this process and by all processes."""
CONDITION_NAMES = ("temperature_c", "clock_hz", "memory_clock_hz")
"""Conditions that determine how fast the device can be."""
MACHINE_NAMES = ("machine_percent", "machine_used_bytes")
"""Of a processor: its use by all programs of the machine, and the memory that they use."""
STATE_NAMES = (
    *("clock_hz", "clock_default_hz", "memory_clock_hz", "temperature_c"),
    *("power_w", "throttle_reasons", "violation_ns", "foreign_pids"),
)
ENERGY_DOMAINS = ("gpu", "cpu_pkg", "dram", "soc")
"""What an energy counter covers: the GPU, the CPU package, the memory, the whole chip."""

USE_NAMES = ("utilization_percent", "device_used_bytes", "power_w")
"""The share of time in which the device worked, its memory in use by all processes, and its power."""

NO_MEMORY = f"{NOT_APPLICABLE}: no device memory of its own"


class DeviceTimer(ABC):
    """A pair of events on the device's own clock, around one call."""

    @abstractmethod
    def start(self) -> None:
        """Record the first event in the device's queue."""

    @abstractmethod
    def stop(self) -> None:
        """Record the second event in the device's queue."""

    @abstractmethod
    def elapsed_ns(self) -> int:
        """Nanoseconds between the events. Call it after `synchronize`."""


Span = tuple[float, float]
"""Begin and end of a stretch of time, in ns of one clock."""


class KernelTracer(ABC):
    """Records what runs on a device, and when."""

    @abstractmethod
    def spans(self, work: Callable[[], None]) -> Sequence[Span]:
        """A span for each kernel and copy that the device executed while `work` ran; `work` waits for the device.
        Raises BenchhouseError if the tracer cannot start or records nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdCache:
    """A way to flush a device's last-level cache."""

    flush: Callable[[], None]
    """Evicts the data of earlier calls from the cache; may return before the device is done."""
    size_bytes: int
    """Bytes written to flush it."""


class DeviceHandle:
    """An open device in the measuring process.

    The defaults are those of a device without a queue, events or memory of its own, and without sensors.
    """

    torch_name: str | None = None
    """The device's name in torch ("cpu", "cuda:0"); None when torch cannot use it."""
    is_accelerator: bool = True
    """Whether it is an accelerator rather than the CPU; its clocks take longer to rise."""
    has_queue: bool = False
    """Whether calls may return before the device is done, so that further ones can wait in its queue."""
    has_scripted_clock: bool = False
    """Whether a script drives the clock; the host's noise is then not recorded."""

    def now_ns(self) -> int:
        """Wall-clock time in nanoseconds; only differences are meaningful."""
        return time.perf_counter_ns()

    def sleep(self, duration_s: float) -> None:
        """Wait by the clock of `now_ns`."""
        time.sleep(duration_s)

    why_no_timer: str = "the device has no events"
    """Why `timer` returns None."""

    def timer(self) -> DeviceTimer | None:
        """A new pair of events; None when the device has no events."""
        return None

    def synchronize(self) -> None:
        """Wait until the device's queue is empty."""

    def answers(self) -> bool:
        """Whether the process can still use the device: an error of its queue is raised by the next call that waits."""
        try:
            self.synchronize()
        except Exception:  # noqa: BLE001 - whatever a driver raises, the answer is no
            return False
        return True

    def tracer(self) -> KernelTracer | None:
        """A recorder of the device's kernels; None if there is none."""
        return None

    def cold_cache(self) -> AbstractContextManager[ColdCache]:
        """Inside, the last-level cache can be flushed before each call; its memory is released afterwards. Raises
        UnsupportedError if `DeviceKind.flushes_cache` is false."""
        raise UnsupportedError("--cold-cache: the cache of this device cannot be flushed: remove the flag")

    def empty_cache(self) -> None:
        """Return the allocator's cached memory to the device."""

    def reset_peak_memory(self) -> None:
        """Start a new period for `peak_memory`."""

    def peak_memory(self) -> Readings:
        """Peaks of the framework's allocator since the last reset, in bytes (`PEAK_NAMES`)."""
        return Readings(missing=dict.fromkeys(PEAK_NAMES, NO_MEMORY))

    def memory_in_use(self) -> Readings:
        """Bytes in use now (`IN_USE_NAMES`). Must be cheap enough to be called every 20 ms."""
        return Readings(missing=dict.fromkeys(IN_USE_NAMES, NO_MEMORY))

    def free_memory_bytes(self) -> int | None:
        """Memory free for new tensors; None when they are in the machine's memory."""
        return None

    def last_level_cache_bytes(self) -> int | None:
        """Size of the last-level cache, summed over a processor's caches; None when unknown."""
        return None

    def state(self) -> Readings:
        """Clocks, temperature, power and throttling now (`STATE_NAMES`).

        `throttle_reasons` is a list of str, the causes at this moment; `throttle_counters` are ever-growing counters by
        cause, where the device has them. `foreign_pids` is a list of int, the other processes that used the device
        since the last reading; `foreign_use` has for each the share of time and the memory that it used.
        """
        return Readings(missing=dict.fromkeys(STATE_NAMES, NOT_SUPPORTED))

    def energy_j(self) -> Readings:
        """Ever-growing counters in joules, by domain (`ENERGY_DOMAINS`); plus `method`, how they were read."""
        return Readings(missing=dict.fromkeys((*ENERGY_DOMAINS, "method"), NOT_SUPPORTED))

    def momentary_power_w(self) -> float | None:
        """The device's power now, in W; None when it cannot be read. Must be cheap enough to be called every 50 ms."""
        return None

    def close(self) -> None:
        """Release the device."""


class Gauge:
    """Reads a device's use while another process uses it. The defaults return no readings."""

    def read(self) -> Readings:
        """The use now (`USE_NAMES`), with `resident_bytes` where the processes' own memory is meant. A share of time
        is that since the last reading, or the driver's last period. Must be cheap enough for ten readings a second."""
        return Readings(missing=dict.fromkeys(USE_NAMES, NOT_SUPPORTED))

    def conditions(self) -> Readings:
        """The conditions now (`CONDITION_NAMES`); of a processor also the use by all programs (`MACHINE_NAMES`), and
        power since the last reading where energy is counted."""
        return Readings(missing=dict.fromkeys(CONDITION_NAMES, NOT_SUPPORTED))

    def close(self) -> None:
        """Release the vendor's library."""


class Placement(NamedTuple):
    """How a cell uses the machine's processors."""

    num_threads: int | None = None
    """Threads of one operator; None leaves them to the runtime."""
    cpu_list: str | None = None
    """Logical processors that the process is bound to, in Linux's notation; None for all."""


class DeviceKind(ABC):
    """A kind of device: how to find its devices and open one. Importing the module imports no vendor package."""

    name: str
    """The kind's name for `--device`; equal to the module's name."""
    aliases: tuple[str, ...] = ()
    """Aliases, such as its names in other tools."""
    other_words: tuple[str, ...] = ()
    """Words that are not accepted as its name, but that are probably meant for it; lower case."""
    implied_runtime: str | None = None
    """The runtime used when none is named; None for the default runtime."""
    probes_in_process: bool = False
    """Whether `probe` is quick and imports nothing heavy. Other kinds are probed in a child process with a time limit,
    so that a driver that hangs or crashes does not take the program with it."""

    typical: Mapping[str, str] = MappingProxyType({})
    """Typical devices of the kind, selector -> name: the columns of the table of support."""

    # Listing, and selection by `--device auto`.
    is_hardware: bool = True
    """Whether `--list-devices` probes it; if not, it can only be named."""
    about: str | None = None
    """What a kind is that can only be named, for readers of `--list-devices`."""
    is_processor: bool = False
    """Whether it is the machine's CPU, which every machine has."""
    auto_ranks: tuple[tuple[int, str], ...] = ()
    """When `--device auto` tries the kind: (rank, prefix) pairs. Ranks are compared among all kinds, lowest first; the
    prefix limits a rank to some units ("GPU"; "" for any). Empty: never."""

    # Capabilities.
    memory: Memory = "unknown"
    can_be_several: bool = False
    """Whether several devices of the kind can run one model together."""
    torch_type: str | None = None
    """torch's type of its devices ("cpu", "cuda"); None when torch does not run on them."""
    has_gauge: bool = False
    """Whether `gauge` reads the use of its devices."""
    has_tf32: bool = False
    """Whether torch can run float32 matrix products on tensor cores (TF32)."""
    has_cuda_graphs: bool = False
    """Whether torch can record graphs of kernels: CUDA graphs, or HIP graphs under the same name."""
    flash_attention: tuple[int, ...] = ()
    """The versions of FlashAttention's packages that support it."""
    has_torchao_kernels: bool = False
    """Whether torchao's 8-bit and 4-bit kernels run on it."""
    runs_openvino: bool = False
    """Whether OpenVINO has a plugin for it."""
    runs_tensorrt: bool = False
    """Whether TensorRT builds engines for it."""
    sdpa_kernels: tuple[str, ...] = ()
    """torch's kernels for scaled-dot-product attention, by their names in `--attention sdpa:NAME`."""
    gpu_vendor: str | None = None
    """The vendor string of its GPU adapters in a browser (GPUAdapterInfo.vendor); None when it is not a GPU."""
    pci_vendor_id: int | None = None
    """The same vendor's PCI id, for GPUs that Windows drives through DirectX 12."""

    container_flags: tuple[str, ...] = ()
    """Arguments of docker run that give a container access to its devices."""

    @property
    def runs_torch(self) -> bool:
        return self.torch_type is not None

    def absent(self, why_not: str) -> Device:
        """The record of a kind without devices."""
        return Device(type=self.name, selector=self.name, found=False, why_not=why_not)

    @abstractmethod
    def probe(self) -> tuple[Device, ...]:
        """Every device of this kind; or exactly one `Device` with `found=False` and the precise reason.

        Never empty; a missing driver or package is a reason, not an exception.
        """

    @abstractmethod
    def open(self, device: Device) -> DeviceHandle:
        """Open a device that `probe` found. Raises BenchhouseError when it is no longer there."""

    def watch(self, device: Device, together: Sequence[Device] = ()) -> DeviceHandle:
        """Open a device that something other than torch will drive and wait for; the handle only reads it.

        A kind whose `open` needs torch overrides this: it restricts the process to this one device, as number 0, or to
        those that it uses `together`, this one among them, numbered in their order. It must be called before the driver
        starts. Raises BenchhouseError when the device is no longer there.
        """
        return self.open(device)

    def flushes_cache(self, device: Device, *, with_torch: bool) -> bool:
        """Whether its last-level cache can be emptied between calls (`DeviceHandle.cold_cache`), by a process with or
        without torch."""
        return False

    def gauge(self, device: Device, process_ids: Sequence[int]) -> Gauge:
        """Reads the device's use by these processes. Called in a separate process, which opens no context on the
        device. Raises BenchhouseError if the device is no longer there."""
        return Gauge()

    def placements(self, device: Device) -> tuple[Placement, ...]:
        """The uses of the machine's processors that a search for the best configuration tries, the default first."""
        return (Placement(),)

    def lock_name(self, device: Device) -> str | None:
        """Devices with equal lock names are never measured at the same time; None needs no lock."""
        return device.selector

    def is_gpu(self, device: Device) -> bool:
        return self.gpu_vendor is not None

    def is_npu(self, device: Device) -> bool:
        return False

    def ort_providers(self, device: Device) -> tuple[OrtProvider, ...]:
        """ONNX Runtime's execution providers for the device, preferred first; empty when it has none."""
        return ()
