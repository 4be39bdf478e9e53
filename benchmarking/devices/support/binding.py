"""Binds the measuring process to logical processors, and finds threads that escaped the binding.

2026-11-21: memory is inspected but not bound. Linux places a page on the node of the thread that first touches it, so a
process whose threads all run on one node has its memory there while the node has memory left. A policy that forbids the
other nodes would kill the process instead of letting it run slowly. The actual placement is read from numa_maps.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from benchmarking.core.device_contracts import Placement
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.metrics import BYTES_PER_KIB
from benchmarking.core.records import NOT_SUPPORTED, Json, Readings
from benchmarking.devices.support.system_values import UnreadableError, core_of, gather, limits, read_text

ROOT = Path("/")
MAX_CPU = 65_535
"""Larger numbers are typos: Linux supports at most 8192 processors."""
ENTRY = re.compile(r"(\d+)(?:-(\d+))?")
FORM = "a list such as 0-3,8"

MAX_NAMED = 8
"""Most threads listed in the evidence; a pool has dozens, which escape together."""

_BOUND: frozenset[int] | None = None
"""The processors that this process is bound to; global, like the affinity itself."""


def checked_cpu_list(cpu_list: str) -> str:
    """The list in canonical form, after checking that this process can be bound to it.

    Raises UsageError for an invalid list, UnsupportedError for processors that do not exist or are not allowed, and on
    systems without affinity.
    """
    cpus = parse_cpu_list(cpu_list)
    try:
        allowed = allowed_cpus()
    except UnreadableError as error:
        is_macos = sys.platform == "darwin"
        why = " (its affinity tags are hints, ignored on Apple silicon)" if is_macos else ""
        name = "macOS" if is_macos else sys.platform
        raise UnsupportedError(f"--cpu-list {cpu_list}: {name} cannot bind a process to processors{why}") from error
    if outside := sorted(set(cpus) - set(allowed)):
        existing = os.cpu_count() or len(allowed)
        why = "do not exist" if outside[0] >= existing else "are outside the affinity or cpuset of this process"
        raise UnsupportedError(
            f"--cpu-list {cpu_list}: processors {cpu_list_text(outside)} {why}; available: {cpu_list_text(allowed)}"
        )
    return cpu_list_text(cpus)


def bind(cpu_list: str) -> None:
    """Bind all threads of this process to the list; later threads inherit it. Raises BenchhouseError."""
    global _BOUND
    cpus = frozenset(parse_cpu_list(checked_cpu_list(cpu_list)))
    try:
        if hasattr(os, "sched_setaffinity"):
            for task in os.listdir("/proc/self/task"):
                with suppress(ProcessLookupError):  # the thread ended after the listing
                    os.sched_setaffinity(int(task), cpus)
        else:
            import psutil

            psutil.Process().cpu_affinity(sorted(cpus))
    except OSError as error:
        raise BenchhouseError(f"cannot bind to processors {cpu_list}: {error.strerror}") from error
    _BOUND = cpus


def binding_lines(cpu_list: str | None) -> list[str]:
    """The lines of Python that bind a process like `bind`; none without a binding. They come first, so that every
    thread inherits it."""
    if cpu_list is None:
        return []
    cpus = ", ".join(map(str, parse_cpu_list(cpu_list)))
    return ["import os", "", f"os.sched_setaffinity(0, {{{cpus}}})", ""]


def affinity(root: Path = ROOT) -> Readings:
    """The processors of this process as the system reports them: `cpu_affinity`, `cpus_allowed` and `cores_allowed`
    (counts), `cpu_quota_cores`, `numa_node` (if all are on one) or `numa_nodes`."""
    readings = gather(
        {
            "cpu_affinity": lambda: cpu_list_text(allowed_cpus()),
            "cpus_allowed": lambda: len(allowed_cpus()),
            "cores_allowed": lambda: physical_cores(allowed_cpus(), root),
        }
    )
    try:
        nodes = numa_nodes(allowed_cpus(), root)
    except UnreadableError as error:
        placed = Readings(missing={"numa_node": str(error)})
    else:
        placed = Readings(values={"numa_node": nodes[0]} if len(nodes) == 1 else {"numa_nodes": list[Json](nodes)})
    quota = limits(root).values.get("cgroup_cpu_quota_cores") if sys.platform == "linux" else None
    return readings | placed | Readings(values={} if quota is None else {"cpu_quota_cores": quota})


def memory_by_node(root: Path = ROOT) -> Readings:
    """`memory_bytes_by_numa_node` of this process, if the kernel reports it: each line of numa_maps has page counts by
    node ("N0=12") and the page size ("kernelpagesize_kB=4")."""
    try:
        numa_maps = read_text(root / "proc/self/numa_maps")
    except UnreadableError as error:
        return Readings(missing={"memory_bytes_by_numa_node": str(error)})
    totals: dict[str, int] = {}
    for line in numa_maps.splitlines():
        size = re.search(r"kernelpagesize_kB=(\d+)", line)
        for node, pages in re.findall(r"\bN(\d+)=(\d+)", line):
            totals[node] = totals.get(node, 0) + int(pages) * int(size[1] if size else 4) * BYTES_PER_KIB
    return Readings(values={"memory_bytes_by_numa_node": dict(sorted(totals.items(), key=lambda one: int(one[0])))})


def escaped_threads(root: Path = ROOT) -> dict[str, Json]:
    """Threads that have run and may run outside the binding, by id: name, allowed processors and the last one used.
    Empty without a binding.

    Libraries that pin their own threads (OpenVINO, OpenMP with a place list, ONNX Runtime with affinities) can move
    them off the list. Pinning them within it is harmless.
    """
    if _BOUND is None or sys.platform != "linux":
        return {}
    escaped: dict[str, Json] = {}
    for folder in sorted(root.glob("proc/self/task/*"), key=lambda path: int(path.name)):
        try:
            stat, status = read_text(folder / "stat"), read_text(folder / "status")
        except UnreadableError:
            continue  # the thread ended after the listing
        mask = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
        name, fields = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
        if mask is None or len(fields) < 37:
            continue
        has_run = int(fields[11]) + int(fields[12]) > 0  # CPU time (proc(5): stat 14 and 15; 39 is the processor)
        if has_run and not set(parse_cpu_list(mask[1])) <= _BOUND and len(escaped) < MAX_NAMED:
            escaped[folder.name] = {"name": name, "cpus_allowed": mask[1], "last_cpu": int(fields[36])}
    return escaped


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The processors of a list in Linux's form ("0-3,8"), ascending, each once. Raises UsageError."""
    cpus: set[int] = set()
    for entry in text.split(","):
        match = ENTRY.fullmatch(entry.strip())
        if match is None:
            raise UsageError(f"--cpu-list takes {FORM}: got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"--cpu-list takes {FORM}: {entry.strip()!r} in {text!r} is descending")
        if last > MAX_CPU:
            raise UsageError(f"--cpu-list takes processor numbers up to {MAX_CPU}: got {last} in {text!r}")
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def cpu_list_text(cpus: Iterable[int]) -> str:
    """The numbers in Linux's form: "0-3,8"."""
    numbers = sorted(set(cpus))
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def allowed_cpus() -> list[int]:
    """The processors this process may run on. Raises UnreadableError on systems without affinity."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    if sys.platform == "win32":
        import psutil

        return sorted(psutil.Process().cpu_affinity())
    raise UnreadableError(f"{NOT_SUPPORTED}: no CPU affinity on this system")


def physical_cores(cpus: Collection[int], root: Path = ROOT) -> int:
    """The number of physical cores of the processors. Raises UnreadableError."""
    folder = root / "sys/devices/system/cpu"
    return len({core_of(folder / f"cpu{cpu}/topology") for cpu in cpus})


def default_threads(cpus: Collection[int], root: Path = ROOT) -> int:
    """The default number of threads of one operator under a binding: one per physical core.

    A second thread on a core shares its arithmetic units, which matrix products already keep busy. If the cores are
    unknown, it is one per logical processor.
    """
    try:
        return physical_cores(cpus, root)
    except UnreadableError:
        return len(cpus)


def placements(root: Path = ROOT) -> tuple[Placement, ...]:
    """The uses of the processors that are worth trying: the runtime's own, half of the cores, which have more memory
    bandwidth each, all logical processors, and one NUMA node, whose memory is near."""
    try:
        cpus = allowed_cpus()
    except UnreadableError:
        return (Placement(),)
    cores, found = default_threads(cpus, root), [Placement()]
    found += [Placement(num_threads=cores // 2)] if cores > 1 else []
    found += [Placement(num_threads=len(cpus))] if len(cpus) > cores else []
    try:
        nodes = numa_nodes(cpus, root)
        near = parse_cpu_list(read_text(root / f"sys/devices/system/node/node{nodes[0]}/cpulist"))
    except (UnreadableError, IndexError):
        return tuple(found)
    found += [Placement(cpu_list=cpu_list_text(set(near) & set(cpus)))] if len(nodes) > 1 else []
    return tuple(found)


def numa_nodes(cpus: Collection[int], root: Path = ROOT) -> list[int]:
    """The NUMA nodes of the processors, ascending. Raises UnreadableError."""
    folder = root / "sys/devices/system/node"
    paths = sorted(folder.glob("node[0-9]*/cpulist"))
    if not paths:
        raise UnreadableError(f"{NOT_SUPPORTED}: no {folder}/node0/cpulist")
    by_node = {int(path.parent.name.removeprefix("node")): read_text(path) for path in paths}
    # A node of memory alone lists no processor.
    return sorted(node for node, text in by_node.items() if text and not set(parse_cpu_list(text)).isdisjoint(cpus))
