"""What open devices have in common: the host's clock and energy, and for each thing unread a reason."""

from __future__ import annotations

from typing import Protocol

from benchmarking.core.device_contracts import ENERGY_DOMAINS, DeviceHandle
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Readings
from benchmarking.devices.support.energy import HostEnergy, host_energy
from benchmarking.devices.support.reading import absent

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


class HostHandle(DeviceHandle):
    """A device whose host counts energy; the base of the others."""

    def __init__(self, energy: HostEnergy | None = None) -> None:
        self._host_energy = energy or host_energy()

    def energy_j(self) -> Readings:
        return with_method(absent(f"{NOT_APPLICABLE}: no such domain here", ("gpu", "soc")) | self._of_host())

    def _of_host(self) -> Readings:
        """The processor and its memory: a host may count its GPU too, which does nothing here."""
        told = self._host_energy.energy_j()
        return Readings(
            values={name: told.values[name] for name in HOST_DOMAINS if name in told.values},
            missing={name: told.missing[name] for name in HOST_DOMAINS if name in told.missing},
        )


def with_method(energy: Readings) -> Readings:
    """The energy with its `method`: "counter" as soon as one domain has a value."""
    if any(domain in energy.values for domain in ENERGY_DOMAINS):
        return energy | Readings(values={"method": "counter"})
    return energy | absent(f"{NOT_SUPPORTED}: no energy counter", ("method",))
