"""Energy counters of the processor package and the memory, from Linux's powercap tree (RAPL; AMD's are there too)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarking.devices._reading import UnreadableError, read_int, read_text
from benchmarking.records import NOT_SUPPORTED, Json, Readings

POWERCAP = Path("/sys/class/powercap")
UJ_PER_J = 1_000_000


@dataclass(slots=True)
class Zone:
    """One counter of the tree, made ever growing."""

    folder: Path
    last_uj: int
    range_uj: int
    """The counter goes back to 0 past this."""
    total_uj: int = 0

    def read_uj(self) -> int:
        """Microjoules since the zone was opened. Right if read once per wrap-around (minutes at least)."""
        now_uj = read_int(self.folder / "energy_uj")
        step_uj = now_uj - self.last_uj
        self.total_uj += step_uj if step_uj >= 0 else step_uj + self.range_uj
        self.last_uj = now_uj
        return self.total_uj


class Rapl:
    """The domains `cpu_pkg` (all packages) and `dram`, in joules since this was made."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._folder = folder
        self._zones: dict[str, list[Zone]] = {}
        self._missing: dict[str, str] = {}
        for domain, prefix in (("cpu_pkg", "package"), ("dram", "dram")):
            try:
                self._zones[domain] = self._open(prefix)
            except UnreadableError as error:
                self._missing[domain] = str(error)

    def energy_j(self) -> Readings:
        """Both domains, each with a value or a reason."""
        values: dict[str, Json] = {}
        missing = dict(self._missing)
        for domain, zones in self._zones.items():
            try:
                values[domain] = sum(zone.read_uj() for zone in zones) / UJ_PER_J
            except UnreadableError as error:
                missing[domain] = str(error)
        return Readings(values=values, missing=missing)

    def _open(self, prefix: str) -> list[Zone]:
        # Only "intel-rapl:": the kernel shows the package once more as "intel-rapl-mmio:", which would count it twice.
        folders = sorted(self._folder.glob("intel-rapl:*"))
        named = [folder for folder in folders if read_text(folder / "name").startswith(prefix)]
        if not named:
            raise UnreadableError(f"{NOT_SUPPORTED}: no {prefix} counter in {self._folder}")
        return [
            Zone(
                folder=folder,
                last_uj=read_int(folder / "energy_uj"),
                range_uj=read_int(folder / "max_energy_range_uj"),
            )
            for folder in named
        ]
