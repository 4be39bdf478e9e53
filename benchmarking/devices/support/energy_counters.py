"""The host's energy counters by platform, independent of the measured device.

- Apple silicon: IOReport's "Energy Model", through the package zeus-apple-silicon.
- Windows: the Energy Meter Interface (emi.h), filled by firmware and processor drivers. Meters are listed by cfgmgr32
  and queried by DeviceIoControl: version, size of the metadata, metadata, measurement.
- Linux: the powercap tree, with the processor package and the memory (RAPL, on Intel and AMD).

2026-11-21: the package zeus (0.16) was tried. It reads NVML, amdsmi and RAPL as this module does, but it requires and
imports pandas, scikit-learn, pydantic and amdsmi to read one counter, watches for RAPL's wrap-around from a process
that would run during the measurement, and drops the reason why a domain is missing. Its part for Apple silicon is a
separate package without dependencies (zeus-apple-silicon), which keeps up with the names that Apple changes with every
chip, and is used here. Jetson boards have power meters but no energy counter. zeus sums their power in a process that
polls ten times a second; that is an estimate, so energy is missing on Jetson here.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
import re
import struct
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import FAILED, NO_PERMISSION, NOT_SUPPORTED, Readings
from benchmarking.devices.support.system_values import UnreadableError, all_missing, gather, read_int, read_text


class HostEnergy(Protocol):
    def energy_j(self) -> Readings:
        """Joules by domain (of `ENERGY_DOMAINS`), monotonic, and the reason for each domain without a counter."""


def host_energy(system: str | None = None) -> HostEnergy:
    """The counters of this platform; without counters, each reading has the reason."""
    system = system or platform.system()
    if system == "Darwin":
        return AppleEnergy()
    if system == "Windows":
        return EnergyMeters()
    return Rapl()


MJ_PER_J = 1_000

PARTS = {"cpu_pkg": ("cpu_total_mj",), "dram": ("dram_mj",), "gpu": ("gpu_mj", "gpu_sram_mj")}
"""Domains and the fields of AppleEnergyMetrics that they sum. The first field is required."""

NO_SOC = f"{NOT_SUPPORTED}: Apple counts parts of the chip only"


class AppleEnergy:
    """The domains `cpu_pkg`, `gpu` and `dram`. In tests, `module` is a recording."""

    def __init__(self, module: Any = None, machine: str | None = None) -> None:
        self._why_not: str | None = None
        if (machine := machine or platform.machine()) != "arm64":
            self._why_not = f"{NOT_SUPPORTED}: on macOS for {machine} only root can read energy (powermetrics)"
            return
        try:
            module = module or importlib.import_module("zeus_apple_silicon")
            self._monitor: Any = module.AppleEnergyMonitor()
        except ImportError:
            self._why_not = f"{NOT_SUPPORTED}: needs zeus-apple-silicon: pip install zeus-apple-silicon"
        except RuntimeError as error:
            self._why_not = f"{NOT_SUPPORTED}: IOReport reports no energy: {error}"

    def energy_j(self) -> Readings:
        """All domains in joules since an arbitrary start, each with a value or a reason."""
        if self._why_not is not None:
            return all_missing(self._why_not, (*PARTS, "soc"))
        try:
            metrics = self._monitor.get_cumulative_energy()
        except RuntimeError as error:  # its C++ exceptions
            return all_missing(f"{NOT_SUPPORTED}: IOReport: {error}", (*PARTS, "soc"))
        energy = all_missing(NO_SOC, ("soc",))
        for domain, fields in PARTS.items():
            values = [getattr(metrics, field) for field in fields]
            if values[0] is None:
                why_not = f"{NOT_SUPPORTED}: this chip does not count {fields[0].removesuffix('_mj')}"
                energy |= all_missing(why_not, (domain,))
            else:
                counted = [value for value in values if value is not None]
                energy |= Readings(values={domain: float(sum(counted) / MJ_PER_J)})
        return energy


GET_VERSION, GET_METADATA_SIZE, GET_METADATA, GET_MEASUREMENT = 0x224000, 0x224004, 0x224008, 0x22400C
"""IOCTL_EMI_*: CTL_CODE(FILE_DEVICE_UNKNOWN, 0..3, METHOD_BUFFERED, FILE_READ_ACCESS)."""

J_PER_PWH = 3.6e-9
PICOWATT_HOURS = 0
"""EmiMeasurementUnitPicowattHours, the only unit."""
NAMES_BYTES = 2 * 2 * 16
"""HardwareOEM and HardwareModel: two WCHAR[EMI_NAME_MAX]."""

MEASUREMENT = struct.Struct("<QQ")
"""EMI_CHANNEL_MEASUREMENT_DATA: AbsoluteEnergy, and AbsoluteTime in 100 ns."""

DOMAIN_WORDS = {"cpu_pkg": frozenset({"PKG", "PACKAGE", "SOCKET"}), "dram": frozenset({"DRAM"})}
"""Whole words in a channel's name. Intel's are "RAPL_Package0_PKG", "..._DRAM" and the cores' "..._PP0", which the
package includes; AMD's is "Current Socket Power"."""

NOT_COUNTED = f"{NOT_SUPPORTED}: Windows' energy meters do not cover it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """An open meter and its channels, in the order of its measurements."""

    handle: int
    channels: tuple[str, ...]


class EnergyMeters:
    """The domains `cpu_pkg` (all packages) and `dram`, in joules since an arbitrary start."""

    def __init__(self, api: WindowsMeters | None = None) -> None:
        self._why_not: str | None = None
        self._meters: list[Meter] = []
        try:
            self._api = api or WindowsMeters()
            self._meters = [_meter(self._api, path) for path in self._api.paths()]
            if not self._meters:
                raise UnreadableError(f"{NOT_SUPPORTED}: Windows lists no energy meter (the firmware has none)")
        except UnreadableError as error:
            self._why_not = str(error)

    def energy_j(self) -> Readings:
        """Both domains, each with a value or a reason."""
        if self._why_not is not None:
            return all_missing(self._why_not, (*DOMAIN_WORDS, "gpu", "soc"))
        return all_missing(NOT_COUNTED, ("gpu", "soc")) | gather(
            {name: partial(self._domain_j, name) for name in DOMAIN_WORDS}
        )

    def _domain_j(self, name: str) -> float:
        picowatt_hours, is_counted = 0, False
        for meter in self._meters:
            for index, channel in enumerate(meter.channels):
                if not DOMAIN_WORDS[name] & set(re.split(r"[^A-Z0-9]+", channel.upper())):
                    continue
                data = self._api.control(meter.handle, GET_MEASUREMENT, MEASUREMENT.size * len(meter.channels))
                energy, _ = _unpack(MEASUREMENT, data, MEASUREMENT.size * index)
                picowatt_hours, is_counted = picowatt_hours + energy, True
        if not is_counted:
            names = ", ".join(channel for meter in self._meters for channel in meter.channels)
            raise UnreadableError(f"{NOT_SUPPORTED}: no {name} among the energy meters' channels: {names}")
        return picowatt_hours * J_PER_PWH


def channels_v1(metadata: bytes) -> tuple[str, ...]:
    """The one channel of EMI_METADATA_V1: unit, OEM, model, revision, size of the name, the name."""
    _check_unit(*_unpack(struct.Struct("<I"), metadata, 0))
    header = 4 + NAMES_BYTES
    _, size = _unpack(struct.Struct("<HH"), metadata, header)
    return (_text(metadata, header + 4, size),)


def channels_v2(metadata: bytes) -> tuple[str, ...]:
    """The channels of EMI_METADATA_V2: OEM, model, revision, count, then per channel unit, size of the name, the name.

    A channel begins where the last one's name ends (EMI_CHANNEL_V2_NEXT_CHANNEL).
    """
    _, count = _unpack(struct.Struct("<HH"), metadata, NAMES_BYTES)
    offset, names = NAMES_BYTES + 4, []
    for _ in range(count):
        unit, size = _unpack(struct.Struct("<IH"), metadata, offset)
        _check_unit(unit)
        names.append(_text(metadata, offset + 6, size))
        offset += 6 + size
    return tuple(names)


def _meter(api: WindowsMeters, path: str) -> Meter:
    """A meter with its metadata read. Raises UnreadableError, with the handle closed."""
    handle = api.open(path)
    try:
        (version,) = _unpack(struct.Struct("<H"), api.control(handle, GET_VERSION, 2), 0)
        if version not in (1, 2):
            raise UnreadableError(
                f"{NOT_SUPPORTED}: unknown version {version} of the energy meter (supported: 1 and 2)"
            )
        (size,) = _unpack(struct.Struct("<I"), api.control(handle, GET_METADATA_SIZE, 4), 0)
        metadata = api.control(handle, GET_METADATA, size)
        return Meter(handle=handle, channels=channels_v1(metadata) if version == 1 else channels_v2(metadata))
    except UnreadableError:
        api.close(handle)
        raise


def _unpack(form: struct.Struct, data: bytes, offset: int) -> tuple[int, ...]:
    """The numbers at an offset. Raises UnreadableError if the answer is too short."""
    if len(data) < offset + form.size:
        raise UnreadableError(f"{FAILED}: the energy meter returned {len(data)} bytes, expected {offset + form.size}")
    return form.unpack_from(data, offset)


def _text(data: bytes, offset: int, size: int) -> str:
    if len(data) < offset + size:
        raise UnreadableError(f"{FAILED}: the energy meter returned {len(data)} bytes, expected {offset + size}")
    return data[offset : offset + size].decode("utf-16-le", errors="replace").partition("\0")[0]


def _check_unit(unit: int) -> None:
    if unit != PICOWATT_HOURS:
        raise UnreadableError(f"{NOT_SUPPORTED}: the energy meter counts in unit {unit} instead of picowatt-hours")


GUID_DEVICE_ENERGY_METER = uuid.UUID("45bd8344-7ed6-49cf-a440-c276c933b053")

PRESENT = 0
"""CM_GET_DEVICE_INTERFACE_LIST_PRESENT."""

CR_SUCCESS = 0
GENERIC_READ, SHARE_READ_WRITE, OPEN_EXISTING = 0x80000000, 0x3, 3
INVALID_HANDLE = ctypes.c_void_p(-1).value
ERROR_ACCESS_DENIED = 5


class WindowsMeters:
    """Energy meters of this machine (cfgmgr32.h, fileapi.h, ioapiset.h). Tests pass fake libraries."""

    def __init__(self, cfgmgr32: Any = None, kernel32: Any = None, last_error: Callable[[], int] | None = None) -> None:
        self._cfgmgr32 = cfgmgr32 or _library("cfgmgr32")
        self._kernel32 = kernel32 or _library("kernel32")
        self._last_error: Callable[[], int] = last_error or ctypes.get_last_error  # type: ignore[attr-defined,unused-ignore]
        self._kernel32.CreateFileW.restype = ctypes.c_void_p

    def paths(self) -> list[str]:
        """The meters' device paths. The system returns them zero-terminated, the last with two zeros."""
        guid = (ctypes.c_ubyte * 16)(*GUID_DEVICE_ENERGY_METER.bytes_le)
        length = ctypes.c_ulong()
        self._check_configret(
            self._cfgmgr32.CM_Get_Device_Interface_List_SizeW(ctypes.byref(length), guid, None, PRESENT)
        )
        buffer = (ctypes.c_uint16 * max(1, length.value))()
        self._check_configret(
            self._cfgmgr32.CM_Get_Device_Interface_ListW(guid, None, buffer, ctypes.c_ulong(len(buffer)), PRESENT)
        )
        return [path for path in bytes(buffer).decode("utf-16-le").split("\0") if path]

    def open(self, path: str) -> int:
        """A handle of a meter. Raises UnreadableError."""
        handle = self._kernel32.CreateFileW(path, GENERIC_READ, SHARE_READ_WRITE, None, OPEN_EXISTING, 0, None)
        if handle in (None, INVALID_HANDLE):
            raise UnreadableError(self._reason("CreateFileW of an energy meter"))
        return int(handle)

    def control(self, handle: int, code: int, size: int) -> bytes:
        """The answer of DeviceIoControl, at most `size` bytes. Raises UnreadableError."""
        buffer, returned = ctypes.create_string_buffer(size), ctypes.c_ulong()
        done = self._kernel32.DeviceIoControl(
            ctypes.c_void_p(handle), code, None, 0, buffer, size, ctypes.byref(returned), None
        )
        if not done:
            raise UnreadableError(self._reason(f"DeviceIoControl 0x{code:x} of an energy meter"))
        return buffer.raw[: returned.value]

    def close(self, handle: int) -> None:
        self._kernel32.CloseHandle(ctypes.c_void_p(handle))

    def _check_configret(self, result: int) -> None:
        if result != CR_SUCCESS:
            raise UnreadableError(f"{FAILED}: cannot list energy meters: CONFIGRET {result}")

    def _reason(self, what: str) -> str:
        code = self._last_error()
        return f"{NO_PERMISSION if code == ERROR_ACCESS_DENIED else FAILED}: {what}: error {code}"


def _library(name: str) -> Any:
    """A system library. Raises UnreadableError on systems other than Windows."""
    load: Any = getattr(ctypes, "WinDLL", None)
    if load is None:
        raise UnreadableError(f"{NOT_SUPPORTED}: energy meters need Windows")
    return load(name, use_last_error=True)


POWERCAP = Path("/sys/class/powercap")
UJ_PER_J = 1_000_000


@dataclass(slots=True)
class Zone:
    """One counter of the powercap tree, made monotonic."""

    folder: Path
    last_uj: int
    range_uj: int
    """The counter wraps to 0 past this."""
    total_uj: int = 0

    def read_uj(self) -> int:
        """Microjoules since the zone was opened. Correct if read at least once per wrap-around, which takes minutes."""
        now_uj = read_int(self.folder / "energy_uj")
        step_uj = now_uj - self.last_uj
        self.total_uj += step_uj if step_uj >= 0 else step_uj + self.range_uj
        self.last_uj = now_uj
        return self.total_uj


class Rapl:
    """The domains `cpu_pkg` (all packages) and `dram`, in joules since the object was created."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._folder = folder
        self._zones: dict[str, list[Zone]] = {}
        self._missing: dict[str, str] = {}
        for domain, prefix in (("cpu_pkg", "package"), ("dram", "dram")):
            try:
                # The prefix is "intel-rapl:" because the kernel lists the package again as "intel-rapl-mmio:".
                folders = sorted(self._folder.glob("intel-rapl:*"))
                matching = [folder for folder in folders if read_text(folder / "name").startswith(prefix)]
                if not matching:
                    raise UnreadableError(f"{NOT_SUPPORTED}: no {prefix} counter in {self._folder}")
                self._zones[domain] = [
                    Zone(
                        folder=folder,
                        last_uj=read_int(folder / "energy_uj"),
                        range_uj=read_int(folder / "max_energy_range_uj"),
                    )
                    for folder in matching
                ]
            except UnreadableError as error:
                self._missing[domain] = str(error)

    def energy_j(self) -> Readings:
        """Both domains, each with a value or a reason."""
        return Readings(missing=self._missing) | gather({name: partial(self._domain_j, name) for name in self._zones})

    def _domain_j(self, name: str) -> float:
        return sum(zone.read_uj() for zone in self._zones[name]) / UJ_PER_J
