"""Facts of the machine, whatever device is measured on it.

Names: cpu_model, cpu_vendor, cpu_capabilities, cpu_cores (physical), cpu_threads (logical processors), cpu_sockets,
is_smt_active, numa_nodes, memory_bytes, cgroup_version, cgroup_cpu_quota_cores, cgroup_memory_limit_bytes, os,
os_version, kernel, architecture, is_virtual_machine, virtual_machine, is_container, container.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path

from benchmarking.devices._reading import absent
from benchmarking.records import NOT_APPLICABLE, NOT_SUPPORTED, Json, Readings

NAMES = (
    "cpu_model",
    "cpu_vendor",
    "cpu_capabilities",
    "cpu_cores",
    "cpu_threads",
    "cpu_sockets",
    "is_smt_active",
    "numa_nodes",
    "memory_bytes",
    "cgroup_version",
    "cgroup_cpu_quota_cores",
    "cgroup_memory_limit_bytes",
    "os",
    "os_version",
    "kernel",
    "architecture",
    "is_virtual_machine",
    "virtual_machine",
    "is_container",
    "container",
)
CAPABILITY = re.compile(r"(sse4|avx|amx|asimd|sve).*|sme([^p].*)?|fma|f16c|fphp|bf16|i8mm")
"""Processor features that decide what numeric code runs; the hundred others say nothing about speed here."""

CGROUP_NAMES = ("cgroup_version", "cgroup_cpu_quota_cores", "cgroup_memory_limit_bytes")


def host_facts(system: str | None = None, root: Path = Path("/")) -> Readings:
    """Every name of `NAMES` with a value or a reason. `root` is where Linux's proc and sys are found."""
    system = system or platform.system()
    common = Readings(values={"os": system, "kernel": platform.release(), "architecture": platform.machine()})
    return absent(f"{NOT_SUPPORTED}: unknown on {system}", NAMES) | common | _relevant(_of_system(system, root))


def text_fact(facts: Readings, name: str) -> str | None:
    """The fact if it is there and text."""
    value = facts.values.get(name)
    return value if isinstance(value, str) else None


def int_fact(facts: Readings, name: str) -> int | None:
    """The fact if it is there and a whole number."""
    value: Json = facts.values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def usable_memory_bytes(facts: Readings) -> int | None:
    """The machine's memory, or the cgroup's limit where that is lower; None when neither can be read."""
    amounts = (int_fact(facts, "memory_bytes"), int_fact(facts, "cgroup_memory_limit_bytes"))
    return min((amount for amount in amounts if amount is not None), default=None)


def _relevant(facts: Readings) -> Readings:
    """The facts with the capabilities narrowed to those of `CAPABILITY`."""
    capabilities = facts.values.get("cpu_capabilities")
    if not isinstance(capabilities, list):
        return facts
    kept: Json = [name for name in capabilities if CAPABILITY.fullmatch(str(name))]
    return facts | Readings(values={"cpu_capabilities": kept})


def _of_system(system: str, root: Path) -> Readings:
    if system == "Linux":
        from benchmarking.devices import _host_linux

        return _host_linux.facts(root)
    no_cgroups = absent(f"{NOT_APPLICABLE}: no cgroups on {system}", CGROUP_NAMES)
    if system == "Darwin":
        from benchmarking.devices import _host_macos

        return no_cgroups | _host_macos.facts()
    if system == "Windows":
        from benchmarking.devices import _host_windows

        return no_cgroups | _host_windows.facts()
    return no_cgroups
