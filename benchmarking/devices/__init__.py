"""Devices: one file each, found by listing this folder. Here is the contract they keep; `_probing` asks them all."""

from __future__ import annotations

from typing import Protocol

from benchmarking.records import Device, Readings


class DeviceTimer(Protocol):
    """A pair of events on the device's own clock around one call."""

    def start(self) -> None:
        """Mark the beginning in the device's queue."""

    def stop(self) -> None:
        """Mark the end in the device's queue."""

    def elapsed_ns(self) -> int:
        """Nanoseconds between the two marks; call it after `synchronize`."""


class DeviceHandle(Protocol):
    """An open device inside the measuring process."""

    torch_name: str | None
    """What torch calls it ("cpu", "cuda:0"); None when torch cannot use it."""

    def now_ns(self) -> int:
        """The wall clock for timing: `time.perf_counter_ns`, except on the null device."""

    def timer(self) -> DeviceTimer | None:
        """A new event pair, or None where the device has no events."""

    def synchronize(self) -> None:
        """Wait until everything in the device's queue is done."""

    def empty_cache(self) -> None:
        """Give cached memory back to the device."""

    def reset_peak_memory(self) -> None:
        """Start a new peak-memory period."""

    def peak_memory(self) -> Readings:
        """`device_allocated_peak_bytes` and `device_reserved_peak_bytes` since the last reset."""

    def memory_in_use(self) -> Readings:
        """`device_process_bytes` and `device_used_bytes` (all processes) now. Cheap enough for every 20 ms."""

    def state(self) -> Readings:
        """What changes while running: `clock_hz`, `clock_default_hz`, `memory_clock_hz`, `temperature_c`, `power_w`,
        `throttle_reasons` (list of str), `violation_ns`, `foreign_pids` (list of int)."""

    def energy_j(self) -> Readings:
        """Counters in joules by domain, ever growing: `gpu`, `cpu_pkg`, `dram`, `soc`; plus `method` (counter, ...)."""

    def close(self) -> None:
        """Let the device go."""


class DevicePlugin(Protocol):
    """A kind of device: how to find it, how to open it. Importing the module imports no vendor package."""

    name: str
    """What `--device` takes; the file's name."""
    implied_runtime: str | None
    """The runtime picked when none is named; None for the default (eager)."""
    probes_in_process: bool
    """True when `probe` is quick and imports nothing heavy; else it is asked in a process of its own, with a
    time limit, so that a driver that hangs or crashes costs one line."""

    def probe(self) -> tuple[Device, ...]:
        """Every device of this kind, or exactly one with `found=False` and the precise reason. Never empty, never
        raises for a missing driver or package."""

    def open(self, device: Device) -> DeviceHandle:
        """Take hold of a found device. Raises BenchhouseError when it is gone."""

    def lock_name(self, device: Device) -> str | None:
        """Devices with the same lock name are never measured at once on a machine; None needs no lock."""
