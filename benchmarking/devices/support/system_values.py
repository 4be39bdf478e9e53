"""Reads system values, and records why a value cannot be read; and the facts of a machine with Linux.

These come from /proc and /sys under a root, and from control groups (version 1 or 2) and the kernel's log.

Control groups give limits of CPU time and memory, free memory, and throttling by the CPU quota (see cgroup-v2 and
sched-bwc in the kernel's documentation).

The kernel's log says why a GPU failed (NVIDIA's Xid messages). It is readable for root, or for everybody where
kernel.dmesg_restrict is 0, and seldom in containers.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from benchmarking.core.child_process import program, run_program
from benchmarking.core.errors import first_line
from benchmarking.core.metrics import BYTES_PER_KIB, HZ_PER_KHZ
from benchmarking.core.records import FAILED, NO_PERMISSION, NOT_APPLICABLE, NOT_SUPPORTED, Json, Readings

Value = TypeVar("Value")
RunCommand = Callable[[Sequence[str]], str]
"""Runs a command and returns its stdout. Raises UnreadableError."""

COMMAND_LIMIT_S = 10.0
"""Time limit of a system tool; the slowest one used (system_profiler) takes about a second."""


class UnreadableError(Exception):
    """A value cannot be read. The message is the reason as stored in `Readings.missing`."""


def gather(sources: Mapping[str, Callable[[], Json]]) -> Readings:
    """Each name's value, or the reason its source raised as UnreadableError. Also of a library that fails on what the
    system shows it: no sensor ends a measurement."""
    values: dict[str, Json] = {}
    missing: dict[str, str] = {}
    for name, source in sources.items():
        try:
            values[name] = source()
        except UnreadableError as error:
            missing[name] = str(error)
        except (OSError, ValueError) as error:
            missing[name] = f"{FAILED}: {first_line(error)}"
    return Readings(values=values, missing=missing)


def all_missing(reason: str, names: Iterable[str]) -> Readings:
    """Readings with every name missing for the same reason."""
    return Readings(missing=dict.fromkeys(names, reason))


def read_text(path: Path) -> str:
    """The file's text without surrounding white space. Raises UnreadableError with the path."""
    try:
        return path.read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnreadableError(f"{NOT_SUPPORTED}: no {path}") from error
    except PermissionError as error:
        raise UnreadableError(f"{NO_PERMISSION}: {path}") from error
    except OSError as error:
        raise UnreadableError(f"{FAILED}: {path}: {error.strerror}") from error


def text_or_empty(path: Path) -> str:
    """The file's text, or "" if it cannot be read: for files whose absence is an answer in itself."""
    try:
        return read_text(path)
    except UnreadableError:
        return ""


def first_of(*sources: Callable[[], Json]) -> Callable[[], Json]:
    """A source that returns the first of these values that can be read, else raises the last UnreadableError."""

    def read() -> Json:
        for source in sources[:-1]:
            try:
                return source()
            except UnreadableError:
                continue
        return sources[-1]()

    return read


def number_or_none(source: Callable[[], Json]) -> float | None:
    """A source's number, or None if it cannot be read: for numbers whose reason is recorded elsewhere."""
    try:
        value = source()
    except UnreadableError:
        return None
    return float(value) if isinstance(value, int | float) else None


def read_int(path: Path) -> int:
    """The integer in the file. Raises UnreadableError."""
    text = read_text(path)
    try:
        return int(text, 0)
    except ValueError as error:
        raise UnreadableError(f"{FAILED}: {path} holds {text[:40]!r}, not a number") from error


def matched(path: Path, pattern: str, problem: str) -> str:
    """The pattern's first group in the file. Raises UnreadableError with the problem and the path without a match."""
    found = re.search(pattern, read_text(path), re.MULTILINE)
    if found is None:
        raise UnreadableError(f"{NOT_SUPPORTED}: {problem} in {path}")
    return found[1]


def value_or_reason(value: Value | None, what: str, reason: str = NOT_APPLICABLE) -> Value:
    """The value. Raises UnreadableError with the reason for None."""
    if value is None:
        raise UnreadableError(f"{reason}: {what}")
    return value


def run_command(arguments: Sequence[str]) -> str:
    """A system tool's stdout. Raises UnreadableError if the tool is missing, fails or hangs."""
    name, *rest = arguments
    path = program(name)
    if path is None:
        raise UnreadableError(f"{NOT_SUPPORTED}: no command {name}")
    try:
        done = run_program((path, *rest), limit_s=COMMAND_LIMIT_S)
    except PermissionError as error:
        raise UnreadableError(f"{NO_PERMISSION}: {name}") from error
    if done.exit_code is None:
        raise UnreadableError(f"{FAILED}: {name} took more than {COMMAND_LIMIT_S:g} s")
    if done.exit_code != 0:
        raise UnreadableError(f"{FAILED}: {name}: {done.last_line or f'exit code {done.exit_code}'}")
    return done.stdout


VENDORS = {
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "HygonGenuine": "Hygon",
    "CentaurHauls": "Centaur",
    "0x41": "Arm",
    "0x42": "Broadcom",
    "0x46": "Fujitsu",
    "0x48": "HiSilicon",
    "0x4e": "NVIDIA",
    "0x51": "Qualcomm",
    "0x61": "Apple",
    "0xc0": "Ampere",
}
"""x86 vendor strings and the implementer codes of Arm's main ID register."""

ARM_PARTS = {
    "0xd03": "Cortex-A53",
    "0xd08": "Cortex-A72",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse N1",
    "0xd40": "Neoverse V1",
    "0xd49": "Neoverse N2",
    "0xd4f": "Neoverse V2",
    "0xd83": "Neoverse V3",
    "0xd8e": "Neoverse N3",
}
"""Part numbers of Arm's own cores (implementer 0x41)."""

CONTAINERS = {
    "docker": "docker",
    "kubepods": "kubernetes",
    "libpod": "podman",
    "lxc": "lxc",
    "containerd": "containerd",
}
"""Kinds of container by substrings of PID 1's cgroup path, or of the folders of which the root's overlay consists."""
CONTAINER_MARKS = {
    ".dockerenv": "docker",
    "run/.containerenv": "podman",
    ".singularity.d": "apptainer",
    "var/run/secrets/kubernetes.io": "kubernetes",
}
"""Kinds of container by files of theirs."""


def linux_facts(root: Path) -> Readings:
    """The machine's facts, with the names in `host.NAMES`."""
    try:
        processor = _processor(read_text(root / "proc/cpuinfo"))
    except UnreadableError as error:
        processor = all_missing(str(error), ("cpu_model", "cpu_vendor", "cpu_capabilities", "cpu_threads"))
    nodes = root / "sys/devices/system/node"
    rest = gather(
        {
            "cpu_cores": lambda: len({core_of(topology) for topology in _topologies(root)}),
            "cpu_sockets": lambda: len({read_int(path / "physical_package_id") for path in _topologies(root)}),
            "is_smt_active": lambda: read_int(root / "sys/devices/system/cpu/smt/active") == 1,
            "numa_nodes": lambda: value_or_reason(
                sum(path.is_dir() for path in nodes.glob("node[0-9]*")) or None, f"no {nodes}", NOT_SUPPORTED
            ),
            "memory_bytes": lambda: (
                int(matched(root / "proc/meminfo", r"^MemTotal:\s+(\d+) kB", "no MemTotal")) * BYTES_PER_KIB
            ),
            "os_version": lambda: matched(root / "etc/os-release", r'^PRETTY_NAME="?([^"\n]*)', "no PRETTY_NAME"),
            "is_virtual_machine": lambda: _virtual_machine(root) is not None,
            "virtual_machine": lambda: value_or_reason(_virtual_machine(root), "no virtual machine"),
            "is_container": lambda: _container(root) is not None,
            "container": lambda: value_or_reason(_container(root), "no container"),
        }
    )
    return processor | rest | limits(root)


def _processor(cpuinfo: str) -> Readings:
    """Model, vendor, capabilities and logical processors from /proc/cpuinfo, for x86 and Arm."""
    blocks: list[dict[str, str]] = []
    for block in cpuinfo.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
        blocks.append({key.strip(): " ".join(value.split()) for key, _, value in pairs})
    processors = [block for block in blocks if "processor" in block]
    first = processors[0] if processors else {}

    def model() -> Json:
        if "model name" in first:
            return first["model name"]
        part, implementer = first.get("CPU part"), first.get("CPU implementer")
        if part and implementer:
            part_name = ARM_PARTS.get(part) if implementer == "0x41" else None
            return f"{VENDORS.get(implementer, implementer)} {part_name or f'part {part}'}"
        fallback = next((block[key] for block in blocks for key in ("Hardware", "cpu") if key in block), None)
        return value_or_reason(fallback, "no model in /proc/cpuinfo", NOT_SUPPORTED)

    vendor = first.get("vendor_id") or first.get("CPU implementer")
    flags = first.get("flags") or first.get("Features")
    return gather(
        {
            "cpu_model": model,
            "cpu_vendor": lambda: value_or_reason(
                vendor and VENDORS.get(vendor, vendor), "no vendor in /proc/cpuinfo", NOT_SUPPORTED
            ),
            "cpu_capabilities": lambda: value_or_reason(
                sorted(flags.split()) if flags else None, "no flags in /proc/cpuinfo", NOT_SUPPORTED
            ),
            "cpu_threads": lambda: value_or_reason(
                len(processors) or None, "no processor in /proc/cpuinfo", NOT_SUPPORTED
            ),
        }
    )


def _topologies(root: Path) -> list[Path]:
    """The topology folders of the processors. Offline ones have none, and are not counted."""
    folder = root / "sys/devices/system/cpu"
    topologies = [path for path in folder.glob("cpu[0-9]*/topology") if path.is_dir()]
    if not topologies:
        raise UnreadableError(f"{NOT_SUPPORTED}: no {folder}/cpu0/topology")
    return topologies


def core_of(topology: Path) -> str:
    """The physical core of a processor, by the processors that share it. `core_id` alone does not tell cores apart: on
    Arm and RISC-V it counts from 0 in each cluster (drivers/base/arch_topology.c), and on x86 in each die before Linux
    6.9. Raises UnreadableError."""
    for name in ("core_cpus_list", "thread_siblings_list"):  # the newer name, and that before Linux 5.2
        if processors := text_or_empty(topology / name):
            return processors
    return f"package {read_int(topology / 'physical_package_id')}, core {read_int(topology / 'core_id')}"


VIRTUAL_PRODUCT = re.compile(r"QEMU|KVM|VMware|VirtualBox|Virtual Machine|Bochs|Xen|dummy-virt")
"""Products of hypervisors; the last is the board that QEMU gives Arm guests without firmware."""


def _virtual_machine(root: Path) -> str | None:
    """The hypervisor, from the CPU's flag, the firmware's tables or Xen's folder; None on bare metal. Raises
    UnreadableError without any of these, nor a board's device tree."""
    tables = [f"sys/class/dmi/id/{name}" for name in ("sys_vendor", "product_name")]
    product = " ".join(text_or_empty(root / name) for name in tables)
    product = product.strip() or text_or_empty(root / "proc/device-tree/model").strip("\0")
    cpuinfo = text_or_empty(root / "proc/cpuinfo")
    has_flag = " hypervisor" in cpuinfo
    hypervisor = text_or_empty(root / "sys/hypervisor/type")
    is_virtual_product = VIRTUAL_PRODUCT.search(product) is not None
    if not (product or hypervisor or re.search(r"^flags\b", cpuinfo, re.MULTILINE)):
        raise UnreadableError(f"{NOT_SUPPORTED}: no flags in /proc/cpuinfo, and no {root / tables[0]}")
    if not (has_flag or hypervisor or is_virtual_product):
        return None
    return product or hypervisor or "unknown hypervisor"


def _container(root: Path) -> str | None:
    """The kind of container this process runs in; None outside containers. Raises UnreadableError where nothing tells,
    as in a container that has a namespace of its own for control groups, and no mark of its runtime."""
    for path, kind in CONTAINER_MARKS.items():
        if (root / path).exists():
            return kind
    groups = text_or_empty(root / "proc/1/cgroup")
    mounts = text_or_empty(root / "proc/self/mountinfo").splitlines()
    layers = [line for line in mounts if line.split()[4:5] == ["/"] and " - overlay " in line]
    marked = "\n".join((groups, *layers))
    known = text_or_empty(root / "run/systemd/container") or next(
        (kind for mark, kind in CONTAINERS.items() if mark in marked), None
    )
    if known is None and not re.search(r":/.", groups):
        raise UnreadableError(f"{NOT_SUPPORTED}: no mark of a container, and no group of its own in /proc/1/cgroup")
    return known


UNLIMITED_BYTES = 1 << 62
"""Version 1 represents "no limit" by the largest page-aligned number below 2^63."""
MEMORY_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""File names of limit and use, in versions 2 and 1."""
RECLAIMABLE = frozenset({"inactive_file", "active_file", "total_inactive_file", "total_active_file"})
"""Lines of memory.stat for page cache, which counts as used but is reclaimed on demand."""


def limits(root: Path) -> Readings:
    """cgroup_version, cgroup_cpu_quota_cores and cgroup_memory_limit_bytes; the last two are missing if unlimited, and
    not_supported if the groups cannot be seen. The version is 2 if only the unified hierarchy is mounted, 1 if
    controllers have mounts of their own."""

    def version() -> int:
        mount = root / "sys/fs/cgroup"
        if not mount.is_dir():
            raise UnreadableError(f"{NOT_SUPPORTED}: no {mount}")
        if (mount / "cgroup.controllers").exists():
            return 2
        return value_or_reason(1 if any(mount.glob("*/*")) else None, f"nothing mounted in {mount}", NOT_SUPPORTED)

    return gather(
        {
            "cgroup_version": version,
            "cgroup_cpu_quota_cores": lambda: value_or_reason(min(_quotas(root), default=None), "no CPU quota"),
            "cgroup_memory_limit_bytes": lambda: value_or_reason(
                min(_memory_limits(root), default=None), "no memory limit"
            ),
        }
    )


def _quotas(root: Path) -> Iterator[float]:
    """CPU quotas in cores, of this group and its ancestors."""
    for folder in controller_folders(root, "cpu"):
        path, old_path = folder / "cpu.max", folder / "cpu.cfs_quota_us"  # of versions 2 and 1
        quota, _, period = (read_text(path) if path.exists() else "max").partition(" ")
        if quota != "max":
            yield int(quota) / int(period)
        quota_us = int(read_text(old_path)) if old_path.exists() else -1
        if quota_us > 0:
            yield quota_us / int(read_text(folder / "cpu.cfs_period_us"))


def _memory_limits(root: Path) -> Iterator[int]:
    """Memory limits in bytes, of this group and its ancestors."""
    for folder in controller_folders(root, "memory"):
        for name, _ in MEMORY_FILES:
            text = read_text(folder / name) if (folder / name).exists() else "max"
            if text != "max" and int(text) < UNLIMITED_BYTES:
                yield int(text)


def free_in_groups(root: Path) -> Iterator[int]:
    """Memory left in each control group of this process that has a limit. One with an unreadable file counts as one
    without limit."""
    with suppress(UnreadableError):
        for folder in controller_folders(root, "memory"):
            for limit_name, used_name in MEMORY_FILES:
                with suppress(UnreadableError, ValueError):
                    if not (folder / limit_name).exists() or (limit := read_text(folder / limit_name)) == "max":
                        continue
                    used = int(read_text(folder / used_name))
                    # Less the page cache. In version 1, totals that include child groups have lines of their own.
                    lines = [line.split() for line in read_text(folder / "memory.stat").splitlines()]
                    pairs = (line for line in lines if len(line) == 2)
                    sizes = {name: int(value) for name, value in pairs if name in RECLAIMABLE}
                    totals = {name: value for name, value in sizes.items() if name.startswith("total_")}
                    yield max(int(limit) - used + sum((totals or sizes).values()), 0)


def controller_folders(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's group and its ancestors, in the controller's own hierarchy and the unified one.

    Inside a container the path in /proc may be the host's, which is not mounted there. The root of the mount is then
    the container's group, so it is always included. Raises UnreadableError if the hierarchy that has the controller is
    not mounted: what it limits is then unknown.
    """
    groups = [line.split(":", 2)[1:] for line in read_text(root / "proc/self/cgroup").splitlines()]
    has_own = any(controller in controllers.split(",") for controllers, _ in groups)
    for controllers, path in groups:
        if controllers and controller not in controllers.split(","):
            continue
        mounts, mark = ([controllers, controller], "*") if controllers else (["", "unified"], "cgroup.controllers")
        mount = next((m for name in mounts if any((m := root / "sys/fs/cgroup" / name).glob(mark))), None)
        if mount is not None:
            path_parts = [part for part in path.split("/") if part and part != ".."]
            yield from (mount.joinpath(*path_parts[:depth]) for depth in range(len(path_parts), -1, -1))
        elif controllers or not has_own:
            raise UnreadableError(f"{NOT_SUPPORTED}: no control groups of {controller} in {root / 'sys/fs/cgroup'}")


def throttling(root: Path) -> dict[str, int]:
    """`periods` in which the quota ran out and `ns` lost to it, summed over this process's group and its ancestors.

    A group's own file does not count throttling by its parents' quotas. Raises UnreadableError if no group counts it.
    """
    counts: list[tuple[int, int]] = []
    for path in (folder / "cpu.stat" for folder in controller_folders(root, "cpu")):
        lines = read_text(path).splitlines() if path.exists() else []
        fields = {words[0]: int(words[1]) for line in lines if len(words := line.split()) == 2}
        if "nr_throttled" in fields:  # the root of version 2 has none
            old_ns = fields.get("throttled_time", 0)
            lost_ns = fields["throttled_usec"] * 1000 if "throttled_usec" in fields else old_ns
            counts.append((fields["nr_throttled"], lost_ns))
    if not counts:
        raise UnreadableError(f"{NOT_SUPPORTED}: no control group of this process counts throttling")
    return {"periods": sum(periods for periods, _ in counts), "ns": sum(ns for _, ns in counts)}


CACHE_SIZE_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def last_level_cache_bytes(cpus: Path) -> int | None:
    """Total size of the highest-level caches, each shared by several processors; None if any size is unknown."""
    levels: dict[int, dict[str, int]] = {}
    try:
        for folder in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
            if read_text(folder / "type") != "Instruction":
                shared = levels.setdefault(read_int(folder / "level"), {})
                size = read_text(folder / "size")  # in Linux's notation: "32768K"
                size_bytes = int(size.rstrip("KMG")) * CACHE_SIZE_UNITS.get(size[-1:], 1)
                shared[read_text(folder / "shared_cpu_list")] = size_bytes
    except (UnreadableError, ValueError):
        return None  # containers and some boards hide caches, and the sum would be too small
    return sum(levels[max(levels)].values()) if levels else None


TEMPERATURE_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Drivers of CPU temperature sensors."""
MILLI = 1_000


def processor_clock_hz(sys: Path, name: str = "scaling_cur_freq") -> float:
    """The mean clock of the processors whose clock can be read, or the mean of another cpufreq file. Raises
    UnreadableError if none can."""
    paths = sorted(sys.glob(f"devices/system/cpu/cpu[0-9]*/cpufreq/{name}"))
    clocks_khz = _readable(paths, f"{NOT_SUPPORTED}: no {sys}/devices/system/cpu/cpu0/cpufreq/{name}")
    return sum(clocks_khz) / len(clocks_khz) * HZ_PER_KHZ


def processor_temperature_c(sys: Path) -> float:
    """The highest temperature of the CPU's sensors that can be read. Raises UnreadableError if none can."""
    folders = [
        name.parent for name in sys.glob("class/hwmon/hwmon*/name") if text_or_empty(name) in TEMPERATURE_SENSORS
    ]
    paths = [path for folder in folders for path in sorted(folder.glob("temp*_input"))]
    return max(_readable(paths, f"{NOT_SUPPORTED}: no CPU sensor in {sys}/class/hwmon")) / MILLI


def _readable(paths: Iterable[Path], why_not: str) -> list[int]:
    """The integers in the files, without files that cannot be read: a sensor without a value answers with an error, and
    a processor without a clock with "<unknown>". Raises UnreadableError if none can: without files for `why_not`."""
    found: list[int] = []
    trouble = UnreadableError(why_not)
    for path in paths:
        try:
            found.append(read_int(path))
        except UnreadableError as error:
            trouble = error
    if not found:
        raise trouble
    return found


LOG = Path("/dev/kmsg")
XID = re.compile(
    r"^\d+,\d+,(?P<since_boot_us>\d+),[^;]*;"
    r"NVRM: Xid \(PCI:(?P<address>[0-9a-fA-F:.]+)\): (?P<number>\d+), (?P<text>[^\n]+)"
)
"""A record of NVIDIA's driver: "4,1021,16612594736,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."."""
MAX_RECORDS = 100_000
MAX_TEXT = 160
RECENT_S = 300.0
"""Age of the messages that may be about a failure of just now."""


def last_xid(address: object, log: Path = LOG) -> str | None:
    """The last Xid in five minutes of the GPU with this PCI address ("0000:1b:00"), in words: "Xid 79 in the kernel's
    log: GPU has fallen off the bus."; None if there is none, or if the log cannot be read."""
    if not isinstance(address, str) or not address:
        return None
    found = None
    for line in _lines(log):
        match = XID.search(line)
        if match is None or not match["address"].lower().startswith(address.lower()):
            continue
        if time.monotonic() - int(match["since_boot_us"]) / 1e6 <= RECENT_S:
            found = f"Xid {match['number']} in the kernel's log: {match['text'].strip()[:MAX_TEXT]}"
    return found


def _lines(log: Path) -> list[str]:
    """The records of the kernel's log. It is read without waiting for further ones."""
    try:
        descriptor = os.open(log, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return []
    records: list[str] = []
    try:
        for _ in range(MAX_RECORDS):
            try:
                record = os.read(descriptor, 8192)
            except BrokenPipeError:  # a record was overwritten before it was read
                continue
            if not record:
                break
            records.append(record.decode(errors="replace"))
    except OSError:  # no further record
        pass
    finally:
        os.close(descriptor)
    return "".join(one if one.endswith("\n") else f"{one}\n" for one in records).splitlines()
