"""Energy counters of Apple silicon, as IOReport's "Energy Model" gives them through the package zeus-apple-silicon."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable
from typing import Any

from benchmarking.devices._reading import UnreadableError, absent, gather
from benchmarking.records import NOT_SUPPORTED, Json, Readings

MJ_PER_J = 1_000
PARTS = {"cpu_pkg": ("cpu_total_mj",), "dram": ("dram_mj",), "gpu": ("gpu_mj", "gpu_sram_mj")}
"""Our domains, and the fields of AppleEnergyMetrics that make them up. The first of them must be there."""
NO_SOC = f"{NOT_SUPPORTED}: Apple counts parts of the chip, not the whole"


class AppleEnergy:
    """The domains `cpu_pkg`, `gpu` and `dram`. Give `module` to read a recording in place of the machine."""

    def __init__(self, module: Any = None, machine: str | None = None) -> None:
        self._why_not: str | None = None
        self._monitor: Any = None
        try:
            self._monitor = _monitor(module, machine or platform.machine())
        except UnreadableError as error:
            self._why_not = str(error)

    def energy_j(self) -> Readings:
        """All domains in joules since an arbitrary moment, or their reason."""
        if self._why_not is not None:
            return absent(self._why_not, (*PARTS, "soc"))
        try:
            told = self._monitor.get_cumulative_energy()
        except RuntimeError as error:  # what its C++ exceptions become
            return absent(f"{NOT_SUPPORTED}: IOReport: {error}", (*PARTS, "soc"))
        return absent(NO_SOC, ("soc",)) | gather({domain: _joules(told, fields) for domain, fields in PARTS.items()})


def _joules(told: Any, fields: tuple[str, ...]) -> Callable[[], Json]:
    def read() -> Json:
        values = [getattr(told, field) for field in fields]
        if values[0] is None:
            raise UnreadableError(f"{NOT_SUPPORTED}: this chip does not count {fields[0].removesuffix('_mj')}")
        return float(sum(value for value in values if value is not None) / MJ_PER_J)

    return read


def _monitor(module: Any, machine: str) -> Any:
    """The library's monitor. Raises UnreadableError with the reason."""
    if machine != "arm64":
        raise UnreadableError(f"{NOT_SUPPORTED}: macOS on {machine} tells energy to root alone (powermetrics)")
    try:
        module = module or importlib.import_module("zeus_apple_silicon")
        return module.AppleEnergyMonitor()
    except ImportError as error:
        raise UnreadableError(f"{NOT_SUPPORTED}: needs zeus-apple-silicon: pip install zeus-apple-silicon") from error
    except RuntimeError as error:
        raise UnreadableError(f"{NOT_SUPPORTED}: IOReport gives no energy: {error}") from error
