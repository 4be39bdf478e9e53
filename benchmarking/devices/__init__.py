"""Devices: one file each, found by listing this folder. Here is the contract they keep, with the ordinary case as the
default; `_probing` looks for all of them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from benchmarking.records import NOT_APPLICABLE, NOT_SUPPORTED, Device, Readings

if TYPE_CHECKING:
    from benchmarking.devices._ort import OrtProvider

PEAK_NAMES = ("device_allocated_peak_bytes", "device_reserved_peak_bytes")
IN_USE_NAMES = ("device_process_bytes", "device_used_bytes")
STATE_NAMES = (
    "clock_hz",
    "clock_default_hz",
    "memory_clock_hz",
    "temperature_c",
    "power_w",
    "throttle_reasons",
    "violation_ns",
    "foreign_pids",
)
ENERGY_DOMAINS = ("gpu", "cpu_pkg", "dram", "soc")
"""Names of what a device reads, and of the domains that it counts energy in."""

Memory = Literal["own", "host", "unknown"]
"""Where a device computes: in memory of its own, in the machine's, or where it does not say."""

NO_MEMORY = f"{NOT_APPLICABLE}: no device memory of its own"


class DeviceTimer(ABC):
    """A pair of events on the device's own clock around one call."""

    @abstractmethod
    def start(self) -> None:
        """Mark the beginning in the device's queue."""

    @abstractmethod
    def stop(self) -> None:
        """Mark the end in the device's queue."""

    @abstractmethod
    def elapsed_ns(self) -> int:
        """Nanoseconds between the two marks; call it after `synchronize`."""


class DeviceHandle:
    """An open device inside the measuring process. By default one without a queue, events or memory of its own, of
    which nothing can be read."""

    torch_name: str | None = None
    """What torch calls it ("cpu", "cuda:0"); None when torch cannot use it."""
    has_scripted_clock: bool = False
    """Whether a script moves the clock, which the host's noise then does not touch."""

    def now_ns(self) -> int:
        """The wall clock for timing."""
        return time.perf_counter_ns()

    def sleep(self, duration_s: float) -> None:
        """Wait, by the same clock."""
        time.sleep(duration_s)

    def timer(self) -> DeviceTimer | None:
        """A new event pair, or None where the device has no events."""
        return None

    def synchronize(self) -> None:
        """Wait until everything in the device's queue is done."""

    def empty_cache(self) -> None:
        """Give cached memory back to the device."""

    def reset_peak_memory(self) -> None:
        """Start a new peak-memory period."""

    def peak_memory(self) -> Readings:
        """`PEAK_NAMES` since the last reset."""
        return Readings(missing=dict.fromkeys(PEAK_NAMES, NO_MEMORY))

    def memory_in_use(self) -> Readings:
        """`IN_USE_NAMES` (of this process, of all processes) now. Cheap enough for every 20 ms."""
        return Readings(missing=dict.fromkeys(IN_USE_NAMES, NO_MEMORY))

    def state(self) -> Readings:
        """What changes while running: `STATE_NAMES`, of which `throttle_reasons` is a list of str and `foreign_pids`
        one of int."""
        return Readings(missing=dict.fromkeys(STATE_NAMES, NOT_SUPPORTED))

    def energy_j(self) -> Readings:
        """Counters in joules by domain (`ENERGY_DOMAINS`), ever growing; plus `method` (counter, ...)."""
        return Readings(missing=dict.fromkeys((*ENERGY_DOMAINS, "method"), NOT_SUPPORTED))

    def close(self) -> None:
        """Let the device go."""


class DeviceKind(ABC):
    """A kind of device: how to find it, how to open it. Importing the module imports no vendor package."""

    name: str
    """What `--device` takes; the file's name."""
    implied_runtime: str | None = None
    """The runtime picked when none is named; None for the default one."""
    probes_in_process: bool = False
    """True when `probe` is quick and imports nothing heavy; else it runs in a process of its own, with a time limit, so
    that a driver that hangs or crashes costs one line."""

    is_hardware: bool = True
    """Whether it is looked for when devices are listed; else it is there by name only."""
    is_processor: bool = False
    """Whether it is the machine's processor, which every machine has."""
    auto_ranks: tuple[tuple[int, str], ...] = ()
    """When `--device auto` tries it: ranks among all kinds, lowest first, each with the beginning of the part of the
    selector that is meant ("GPU"; "" is any). Empty: never."""
    memory: Memory = "unknown"
    """Where it computes."""
    can_be_several: bool = False
    """Whether several devices of the kind can be taken as one."""
    runs_torch: bool = False
    """Whether torch runs on it."""
    has_tf32: bool = False
    """Whether torch's float32 products can be those of tensor cores there."""
    has_cuda_graphs: bool = False
    """Whether torch records graphs of kernels there: CUDA's, or HIP's under the same name."""
    has_flash_attention: bool = False
    """Whether the package flash-attn runs there."""
    sdpa_kernels: tuple[str, ...] = ()
    """The kernels of scaled-dot-product attention that torch has there, by `--attention`'s words (sdpa:WORD)."""
    gpu_vendor: str | None = None
    """The vendor that a web page's GPU adapter shows (GPUAdapterInfo.vendor); None for what is no GPU."""
    pci_vendor_id: int | None = None
    """PCI's number of that vendor, for GPUs that Windows drives with DirectX 12."""

    @abstractmethod
    def probe(self) -> tuple[Device, ...]:
        """Every device of this kind, or exactly one with `found=False` and the precise reason. Never empty, never
        raises for a missing driver or package."""

    @abstractmethod
    def open(self, device: Device) -> DeviceHandle:
        """Take hold of a found device. Raises BenchhouseError when it is gone."""

    def watch(self, device: Device) -> DeviceHandle:
        """Take hold of a found device for something else than torch to drive, which waits for its own calls: as `open`
        does, where that needs no torch.

        Otherwise makes it the only one of its kind that this process sees, number 0. Call it before the device's driver
        starts. Raises BenchhouseError when it is gone."""
        return self.open(device)

    def lock_name(self, device: Device) -> str | None:
        """Devices with the same lock name are never measured at once on a machine; None needs no lock."""
        return device.selector

    def ort_providers(self, device: Device) -> tuple[OrtProvider, ...]:
        """ONNX Runtime's execution providers that drive it, the wanted one first; none where ONNX Runtime cannot."""
        return ()
