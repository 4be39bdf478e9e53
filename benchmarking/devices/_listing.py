"""What `--list-devices` shows: every kind of device, found or why not."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarking.core.tables import NOTHING, Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.devices._kinds import names_with
from benchmarking.records import Device, Json, to_json

HEADINGS = ("device", "name", "memory", "precisions", "driver")
NUMBERS = (2,)
ABSENT_HEADINGS = ("not found", "why")
BYTES_PER_GB = 1_000_000_000

Found = Mapping[str, tuple[Device, ...]]


def listing_text(found: Found, page: Page = PLAIN) -> str:
    """A table of the devices that were found, then the reason for each kind that was not. No trailing newline."""
    devices = _hardware(found)
    rows = tuple(_row(device) for device in devices if device.found)
    absent = tuple((device.type, str(device.why_not)) for device in devices if not device.found)
    tables = [Table(headings=HEADINGS, rows=rows, numbers=NUMBERS)]
    tables += [Table(headings=ABSENT_HEADINGS, rows=absent)] if absent else []
    return "\n\n".join(table_text(table, page) for table in tables)


def listing_json(found: Found) -> list[Json]:
    """The same as records."""
    return [to_json(device) for device in _hardware(found)]


def _hardware(found: Found) -> list[Device]:
    hardware = names_with(lambda kind: kind.is_hardware)
    return [device for devices in found.values() for device in devices if device.type in hardware]


def _row(device: Device) -> tuple[str, ...]:
    memory = NOTHING if device.memory_bytes is None else f"{device.memory_bytes / BYTES_PER_GB:.1f} GB"
    name = f"{device.name} (emulated, never ranked)" if device.simulated else str(device.name)
    return (device.selector, name, memory, " ".join(device.precisions) or NOTHING, device.driver or NOTHING)
