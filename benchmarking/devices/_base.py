"""What open devices have in common: the host's clock and energy, and for each thing unread a reason."""

from __future__ import annotations

import time
from typing import Protocol

from benchmarking.devices import DeviceTimer
from benchmarking.devices._host_energy import ENERGY_DOMAINS as ENERGY_DOMAINS
from benchmarking.devices._host_energy import HostEnergy, host_energy
from benchmarking.devices._reading import absent
from benchmarking.records import NOT_APPLICABLE, NOT_SUPPORTED, Readings

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

HOST_DOMAINS = ("cpu_pkg", "dram")

# Words in `throttle_reasons`, the same for every vendor. Power that software capped is no throttling by itself.
GPU_IDLE = "gpu_idle"
CLOCKS_SETTING = "clocks_setting"
SOFTWARE_POWER_CAP = "software_power_cap"
HARDWARE_SLOWDOWN = "hardware_slowdown"
SYNC_BOOST = "sync_boost"
SOFTWARE_THERMAL = "software_thermal"
HARDWARE_THERMAL = "hardware_thermal"
POWER_BRAKE = "power_brake"


class Monitor(Protocol):
    """What a vendor's management library, or the kernel in its place, tells about one open device."""

    def memory_in_use(self) -> Readings:
        """As `DeviceHandle.memory_in_use`."""

    def state(self) -> Readings:
        """As `DeviceHandle.state`."""

    def energy_j(self) -> Readings:
        """The domains the device itself counts; the host's are added by the handle."""

    def close(self) -> None:
        """Let the library go."""


class HostHandle:
    """A device without a queue, events or memory of its own; the base of the others."""

    torch_name: str | None = None

    def __init__(self, energy: HostEnergy | None = None) -> None:
        self._host_energy = energy or host_energy()

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def timer(self) -> DeviceTimer | None:
        return None

    def synchronize(self) -> None:
        """Nothing to wait for: calls return when they are done."""

    def empty_cache(self) -> None:
        """Nothing is cached on the device."""

    def reset_peak_memory(self) -> None:
        """No peak is kept on the device."""

    def peak_memory(self) -> Readings:
        return absent(f"{NOT_APPLICABLE}: no device memory of its own", PEAK_NAMES)

    def memory_in_use(self) -> Readings:
        return absent(f"{NOT_APPLICABLE}: no device memory of its own", IN_USE_NAMES)

    def state(self) -> Readings:
        return absent(NOT_SUPPORTED, STATE_NAMES)

    def energy_j(self) -> Readings:
        return with_method(absent(f"{NOT_APPLICABLE}: no such domain here", ("gpu", "soc")) | self._of_host())

    def _of_host(self) -> Readings:
        """The processor and its memory: a host may count its GPU too, which does nothing here."""
        told = self._host_energy.energy_j()
        return Readings(
            values={name: told.values[name] for name in HOST_DOMAINS if name in told.values},
            missing={name: told.missing[name] for name in HOST_DOMAINS if name in told.missing},
        )

    def close(self) -> None:
        """Nothing is held."""


def with_method(energy: Readings) -> Readings:
    """The energy with its `method`: "counter" as soon as one domain has a value."""
    if any(domain in energy.values for domain in ENERGY_DOMAINS):
        return energy | Readings(values={"method": "counter"})
    return energy | absent(f"{NOT_SUPPORTED}: no energy counter", ("method",))
