"""What CUDA_VISIBLE_DEVICES and its HIP twins leave visible."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarking.records import Device


def visible(devices: Sequence[Device], setting: str | None) -> tuple[Device, ...]:
    """The devices a setting leaves, in the order they were found.

    Numbers count in the runtime's own order, which is the driver's only as long as all GPUs are of one model; with
    unlike models the numbers say nothing here, nothing is hidden, and the lookup at opening decides. As the runtime
    does, an entry that names no device ends the list.
    """
    if setting is None:
        return tuple(devices)
    entries = [entry.strip() for entry in setting.split(",")]
    numbered = all(entry.lstrip("-").isdigit() for entry in entries)
    if numbered and entries[0] != "-1" and len({device.name for device in devices}) > 1:
        return tuple(devices)
    chosen: list[Device] = []
    for entry in entries:
        device = _named(devices, entry)
        if device is None:
            break
        chosen.append(device)
    return tuple(device for device in devices if device in chosen)


def _named(devices: Sequence[Device], entry: str) -> Device | None:
    """The device of an entry: a number, or the beginning of a UUID ("GPU-1a2b"); "MIG-..." is any that is split."""
    if entry.isdigit():
        return devices[int(entry)] if int(entry) < len(devices) else None
    if entry.startswith("MIG-"):
        return next((device for device in devices if device.facts.values.get("is_mig_enabled")), None)
    uuids = ((device, str(device.facts.values.get("uuid", ""))) for device in devices)
    return next((device for device, uuid in uuids if entry and uuid.lower().startswith(entry.lower())), None)
