"""The host's own energy counters, whatever device is measured: each platform's, behind one face.

2026-11-21: the package zeus was tried (0.16). Its readings of NVML, amdsmi and RAPL are those made here, but come with
pandas, scikit-learn, pydantic and amdsmi as requirements, import all of them to read one counter, watch RAPL's
wrap-around from a process of their own, which would run beside what is measured, and drop the reason why a domain is
absent. Its part for Apple silicon is a package of its own without requirements (zeus-apple-silicon) that knows what
Apple renames with every chip: that one is used. Jetson boards have power meters and no counter; zeus adds them up in a
process that polls ten times a second, so there an energy would be an estimate, and is absent here.
"""

from __future__ import annotations

import platform
from typing import Protocol

from benchmarking.records import Readings


class HostEnergy(Protocol):
    """Counters of the host."""

    def energy_j(self) -> Readings:
        """Joules by domain (of `devices.ENERGY_DOMAINS`), ever growing, and the reason for each that is not counted."""


def host_energy(system: str | None = None) -> HostEnergy:
    """The counters of this platform; where there are none, that has its reason in each reading."""
    system = system or platform.system()
    if system == "Darwin":
        from benchmarking.devices._apple_energy import AppleEnergy

        return AppleEnergy()
    if system == "Windows":
        from benchmarking.devices._emi import EnergyMeters

        return EnergyMeters()
    from benchmarking.devices._rapl import Rapl

    return Rapl()
