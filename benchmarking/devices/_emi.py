"""Energy counters of Windows: the Energy Meter Interface (emi.h), which firmware and processor drivers fill.

Its devices are listed by cfgmgr32 and asked by DeviceIoControl: version, size of the metadata, metadata, measurement.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarking.devices._reading import UnreadableError, absent, gather
from benchmarking.records import FAILED, NOT_SUPPORTED, Json, Readings

GET_VERSION, GET_METADATA_SIZE, GET_METADATA, GET_MEASUREMENT = 0x224000, 0x224004, 0x224008, 0x22400C
"""IOCTL_EMI_*: CTL_CODE(FILE_DEVICE_UNKNOWN, 0..3, METHOD_BUFFERED, FILE_READ_ACCESS)."""
J_PER_PWH = 3.6e-9
"""A picowatt-hour, the one unit there is (EmiMeasurementUnitPicowattHours is 0)."""
PICOWATT_HOURS = 0
NAMES_BYTES = 2 * 2 * 16
"""HardwareOEM and HardwareModel: two WCHAR[EMI_NAME_MAX]."""
MEASUREMENT = struct.Struct("<QQ")
"""EMI_CHANNEL_MEASUREMENT_DATA: AbsoluteEnergy, and AbsoluteTime in 100 ns."""

DOMAIN_WORDS = {"cpu_pkg": frozenset({"PKG", "PACKAGE", "SOCKET"}), "dram": frozenset({"DRAM"})}
"""Whole words in a channel's name. Intel names "RAPL_Package0_PKG", "..._DRAM" and the cores' "..._PP0", which the
package holds already; AMD "Current Socket Power"."""
NOT_COUNTED = f"{NOT_SUPPORTED}: Windows' energy meters tell it for no device"


class MeterApi(Protocol):
    """The system's calls; `_emi_windows` has the real ones."""

    def paths(self) -> Sequence[str]:
        """The energy meters' device paths. Raises UnreadableError."""

    def open(self, path: str) -> int:
        """A handle of a meter. Raises UnreadableError."""

    def control(self, handle: int, code: int, size: int) -> bytes:
        """What DeviceIoControl answers, at most `size` bytes. Raises UnreadableError."""

    def close(self, handle: int) -> None:
        """Let a handle go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """An open meter and its channels, in the order of its measurements."""

    handle: int
    channels: tuple[str, ...]


class EnergyMeters:
    """The domains `cpu_pkg` (all packages) and `dram`, in joules since an arbitrary moment."""

    def __init__(self, api: MeterApi | None = None) -> None:
        self._why_not: str | None = None
        self._meters: list[Meter] = []
        try:
            self._api = api or _windows()
            self._meters = [_meter(self._api, path) for path in self._api.paths()]
            if not self._meters:
                raise UnreadableError(f"{NOT_SUPPORTED}: Windows lists no energy meter (its firmware offers none)")
        except UnreadableError as error:
            self._why_not = str(error)

    def energy_j(self) -> Readings:
        """Both domains, each with a value or a reason."""
        if self._why_not is not None:
            return absent(self._why_not, (*DOMAIN_WORDS, "gpu", "soc"))
        return absent(NOT_COUNTED, ("gpu", "soc")) | gather({name: self._domain(name) for name in DOMAIN_WORDS})

    def _domain(self, name: str) -> Callable[[], Json]:
        def read() -> Json:
            found = [(meter, index) for meter in self._meters for index in _of_domain(meter.channels, name)]
            if not found:
                listed = ", ".join(channel for meter in self._meters for channel in meter.channels)
                raise UnreadableError(f"{NOT_SUPPORTED}: no {name} among the energy meters' channels: {listed}")
            return sum(self._picowatt_hours(meter, index) for meter, index in found) * J_PER_PWH

        return read

    def _picowatt_hours(self, meter: Meter, index: int) -> int:
        data = self._api.control(meter.handle, GET_MEASUREMENT, MEASUREMENT.size * len(meter.channels))
        energy, _ = _unpack(MEASUREMENT, data, MEASUREMENT.size * index)
        return energy


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


def _meter(api: MeterApi, path: str) -> Meter:
    """A meter with its metadata read. Raises UnreadableError, the handle closed."""
    handle = api.open(path)
    try:
        (version,) = _unpack(struct.Struct("<H"), api.control(handle, GET_VERSION, 2), 0)
        if version not in (1, 2):
            raise UnreadableError(f"{NOT_SUPPORTED}: energy meter of version {version}; known: 1 and 2")
        (size,) = _unpack(struct.Struct("<I"), api.control(handle, GET_METADATA_SIZE, 4), 0)
        metadata = api.control(handle, GET_METADATA, size)
        return Meter(handle=handle, channels=channels_v1(metadata) if version == 1 else channels_v2(metadata))
    except UnreadableError:
        api.close(handle)
        raise


def _of_domain(channels: Sequence[str], name: str) -> list[int]:
    words = [set(re.split(r"[^A-Z0-9]+", channel.upper())) for channel in channels]
    return [index for index, named in enumerate(words) if named & DOMAIN_WORDS[name]]


def _unpack(form: struct.Struct, data: bytes, offset: int) -> tuple[int, ...]:
    """The numbers at an offset. Raises UnreadableError for an answer that is too short."""
    if len(data) < offset + form.size:
        raise UnreadableError(f"{FAILED}: the energy meter answered {len(data)} bytes, {offset + form.size} are needed")
    return form.unpack_from(data, offset)


def _text(data: bytes, offset: int, size: int) -> str:
    if len(data) < offset + size:
        raise UnreadableError(f"{FAILED}: the energy meter answered {len(data)} bytes, {offset + size} are needed")
    return data[offset : offset + size].decode("utf-16-le", errors="replace").partition("\0")[0]


def _check_unit(unit: int) -> None:
    if unit != PICOWATT_HOURS:
        raise UnreadableError(f"{NOT_SUPPORTED}: the energy meter counts in unit {unit}, not in picowatt-hours")


def _windows() -> MeterApi:
    from benchmarking.devices._emi_windows import WindowsMeters

    return WindowsMeters()
