"""What `--list-devices` shows: every kind of device, found or why not."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarking.devices._probing import NOT_HARDWARE
from benchmarking.records import Device, Json, to_json

HEADER = ("DEVICE", "NAME", "MEMORY", "PRECISIONS", "DRIVER")
NOTHING = "-"
BYTES_PER_GB = 1_000_000_000

Found = Mapping[str, tuple[Device, ...]]


def listing_text(found: Found) -> str:
    """A table of the devices that were found, then the reason for each kind that was not. No trailing newline."""
    devices = _hardware(found)
    rows = [HEADER, *(_row(device) for device in devices if device.found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    absent = [f"{device.type.ljust(widths[0])}  {device.why_not}" for device in devices if not device.found]
    return "\n".join([*table, *(["", "NOT FOUND"] if absent else []), *absent])


def listing_json(found: Found) -> list[Json]:
    """The same as records."""
    return [to_json(device) for device in _hardware(found)]


def _hardware(found: Found) -> list[Device]:
    return [device for devices in found.values() for device in devices if device.type not in NOT_HARDWARE]


def _row(device: Device) -> tuple[str, ...]:
    memory = NOTHING if device.memory_bytes is None else f"{device.memory_bytes / BYTES_PER_GB:.1f} GB"
    name = f"{device.name} (emulated, never ranked)" if device.simulated else str(device.name)
    return (device.selector, name, memory, " ".join(device.precisions) or NOTHING, device.driver or NOTHING)
