"""The handle of a GPU that something else than torch drives: the vendor's library watches it, nothing waits for it."""

from __future__ import annotations

from benchmarking.devices import PEAK_NAMES
from benchmarking.devices._base import HostHandle, Monitor, with_method
from benchmarking.devices._host_energy import HostEnergy
from benchmarking.devices._reading import absent
from benchmarking.records import NOT_SUPPORTED, Readings


class WatchedGpuHandle(HostHandle):
    """An open GPU without torch. Its runtime's calls return when they are done; events and peaks are the runtime's."""

    def __init__(self, monitor: Monitor, energy: HostEnergy | None = None) -> None:
        super().__init__(energy)
        self._monitor = monitor

    def peak_memory(self) -> Readings:
        return absent(f"{NOT_SUPPORTED}: the runtime's allocator tells no peak", PEAK_NAMES)

    def memory_in_use(self) -> Readings:
        return self._monitor.memory_in_use()

    def state(self) -> Readings:
        return self._monitor.state()

    def energy_j(self) -> Readings:
        return with_method(super().energy_j() | self._monitor.energy_j())

    def close(self) -> None:
        self._monitor.close()
