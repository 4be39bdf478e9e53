"""How large the cache is that a copy must not stay in."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarking.devices._reading import UnreadableError, read_int, read_text

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def last_level_cache_bytes(torch_name: str, cpus: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Bytes of the last-level cache of torch's device, all of a processor's together; None where nothing tells."""
    if torch_name.startswith("cuda"):
        import torch

        told = getattr(torch.cuda.get_device_properties(torch_name), "L2_cache_size", 0)
        return int(told) or None
    if torch_name == "cpu" and sys.platform == "linux":
        return linux_cache_bytes(cpus)
    return None


def linux_cache_bytes(cpus: Path) -> int | None:
    """The sum of the caches of the highest level, each of which several processors share."""
    levels: dict[int, dict[str, int]] = {}
    try:
        for folder in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
            if read_text(folder / "type") != "Instruction":
                shared = levels.setdefault(read_int(folder / "level"), {})
                shared[read_text(folder / "shared_cpu_list")] = size_bytes(read_text(folder / "size"))
    except (UnreadableError, ValueError):
        return None  # containers and some boards hide a part: a sum without it would be too small
    return sum(levels[max(levels)].values()) if levels else None


def size_bytes(text: str) -> int:
    """Linux's notation: "32768K"."""
    unit = UNITS.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit
