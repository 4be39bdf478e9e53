"""Logical processors: lists of them as they are written, which may be used, and which share a core or a memory node."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

from benchmarking.devices._reading import UnreadableError, read_int, read_text
from benchmarking.errors import UsageError
from benchmarking.records import NOT_SUPPORTED

ROOT = Path("/")
MAX_CPU = 65_535
"""Larger numbers are a slip of the hand: Linux itself is built for 8192 at most."""
ENTRY = re.compile(r"(\d+)(?:-(\d+))?")
FORM = "a list such as 0-3,8"


def parse(text: str) -> tuple[int, ...]:
    """The processors of a list as Linux writes it ("0-3,8"), ascending, each once. Raises UsageError."""
    found: set[int] = set()
    for entry in text.split(","):
        match = ENTRY.fullmatch(entry.strip())
        if match is None:
            raise UsageError(f"--cpu-list takes {FORM}: got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"--cpu-list takes {FORM}: {entry.strip()!r} in {text!r} runs backwards")
        if last > MAX_CPU:
            raise UsageError(f"--cpu-list takes processors up to {MAX_CPU}: got {last} in {text!r}")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def listed(cpus: Iterable[int]) -> str:
    """The numbers as Linux writes them: "0-3,8"."""
    numbers = sorted(set(cpus))
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def allowed_cpus() -> list[int]:
    """The processors this process may run on. Raises UnreadableError where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    if sys.platform == "win32":
        import psutil

        return sorted(psutil.Process().cpu_affinity())
    raise UnreadableError(f"{NOT_SUPPORTED}: the system has no CPU affinity call")


def physical_cores(cpus: Collection[int], root: Path = ROOT) -> int:
    """How many cores the processors are on: two of one core count once. Raises UnreadableError."""
    folder = root / "sys/devices/system/cpu"
    topologies = [folder / f"cpu{cpu}/topology" for cpu in cpus]
    return len({(read_int(path / "physical_package_id"), read_int(path / "core_id")) for path in topologies})


def default_threads(cpus: Collection[int], root: Path = ROOT) -> int:
    """Threads of one operator that a binding implies where none are asked for: one to a core.

    A second thread on a core shares its arithmetic units, which matrix products keep busy already. Where the cores are
    not known there is one thread to a processor.
    """
    try:
        return physical_cores(cpus, root)
    except UnreadableError:
        return len(cpus)


def numa_nodes(cpus: Collection[int], root: Path = ROOT) -> list[int]:
    """The memory nodes the processors belong to, ascending. Raises UnreadableError."""
    folder = root / "sys/devices/system/node"
    paths = sorted(folder.glob("node[0-9]*/cpulist"))
    if not paths:
        raise UnreadableError(f"{NOT_SUPPORTED}: no {folder}/node0/cpulist")
    by_node = {int(path.parent.name.removeprefix("node")): read_text(path) for path in paths}
    # A node of memory alone lists no processor.
    return sorted(node for node, text in by_node.items() if text and not set(parse(text)).isdisjoint(cpus))
