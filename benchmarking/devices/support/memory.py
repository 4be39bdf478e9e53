"""Memory that a model could still have: of the machine, within this process's control group, and of a device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Device, Readings
from benchmarking.devices.support.host_linux import controller_folders
from benchmarking.devices.support.kinds import kind_of
from benchmarking.devices.support.reading import UnreadableError, read_text

FREE = "free_memory_bytes"
"""Also the name of the fact in which a device may tell it."""
TOTAL = "device_memory_bytes"

CGROUP_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Limit and use, in versions 2 and 1."""
RECLAIMABLE = frozenset({"inactive_file", "active_file", "total_inactive_file", "total_active_file"})
"""Lines of memory.stat: page cache, which is counted as used but given back when it is needed."""


def free_memory(device: Device) -> Readings:
    """`free_memory_bytes` of the device, or the reason why it is not known; of a GPU then `device_memory_bytes`, all it
    has, which bounds it."""
    kind = kind_of(device.type)
    if kind is not None and kind.memory == "host":
        return Readings(values={FREE: free_host_bytes()})
    if kind is None or kind.memory != "own":
        return Readings(missing={FREE: f"{NOT_APPLICABLE}: where {device.type} computes is not known"})
    if isinstance(free := device.facts.values.get(FREE), int):
        return Readings(values={FREE: free})
    total = {} if device.memory_bytes is None else {TOTAL: device.memory_bytes}
    why_not = f"{NOT_SUPPORTED}: {device.selector} did not tell it when it was found"
    return Readings(values=total, missing={FREE: why_not})


def free_host_bytes(root: Path = Path("/")) -> int:
    """Memory of the machine that can be had without swapping, or what the control group leaves, where that is less."""
    import psutil

    groups = free_in_groups(root) if sys.platform == "linux" else ()
    available = int(psutil.virtual_memory().available)
    return int(min([available, *groups]))


def free_in_groups(root: Path) -> Iterator[int]:
    """What each control group of this process that has a limit leaves. A file that cannot be read limits nothing."""
    try:
        for folder in controller_folders(root, "memory"):
            for limit_name, used_name in CGROUP_FILES:
                if (folder / limit_name).exists() and (limit := read_text(folder / limit_name)) != "max":
                    used = int(read_text(folder / used_name)) - _reclaimable_bytes(folder)
                    yield max(int(limit) - used, 0)
    except UnreadableError:
        return


def _reclaimable_bytes(folder: Path) -> int:
    """Page cache of the group. Version 1 counts the groups below in lines of their own, which hold the others."""
    lines = [line.split() for line in read_text(folder / "memory.stat").splitlines()]
    found = {name: int(value) for name, value in (line for line in lines if len(line) == 2) if name in RECLAIMABLE}
    of_all = {name: value for name, value in found.items() if name.startswith("total_")}
    return sum((of_all or found).values())
