"""Facts of the machine, independent of the measured device (`host_facts`, with the names in `NAMES`), and with them the
hardware record, identity and free memory of a device.

`system_values` reads them on Linux. This module reads sysctl on macOS; on Windows the registry, psutil and kernel32.
`cpu_cores` are physical cores, `cpu_threads` logical processors.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarking.core.codec import is_whole
from benchmarking.core.lazy_modules import psutil
from benchmarking.core.plugins import has, kind_of
from benchmarking.core.records import (
    NO_PERMISSION,
    NOT_APPLICABLE,
    NOT_SUPPORTED,
    Device,
    Hardware,
    Json,
    Readings,
    canonical_hash,
)
from benchmarking.devices.support.system_values import (
    RunCommand,
    UnreadableError,
    all_missing,
    free_in_groups,
    gather,
    linux_facts,
    run_command,
    value_or_reason,
)

HASH_VERSION = 1
"""Incremented whenever `hashed_keys` changes, which changes every id."""
HOST_FIELDS = ("cpu_model", "cpu_cores", "cpu_threads", "memory_bytes")
"""Host facts that are fields of Hardware; the others go into its `host`."""

WHOLE_COMPUTE, WHOLE_MEMORY = ("SPX", "N/A", ""), ("NPS1", "N/A", "")
"""Modes of an AMD GPU that is not partitioned."""

SOFTWARE_RENDERERS = ("swiftshader", "llvmpipe", "lavapipe", "warp", "microsoft basic render")
"""Words in the names of renderers that run on the CPU."""

FREE = "free_memory_bytes"
"""Name of the reading, and of the fact in which a probe may report it."""
TOTAL = "device_memory_bytes"

NAMES = (
    *("cpu_model", "cpu_vendor", "cpu_capabilities", "cpu_cores", "cpu_threads"),
    *("cpu_sockets", "is_smt_active", "numa_nodes", "memory_bytes", "cgroup_version"),
    *("cgroup_cpu_quota_cores", "cgroup_memory_limit_bytes", "os", "os_version", "kernel"),
    *("architecture", "is_virtual_machine", "virtual_machine", "is_container", "container"),
)

CAPABILITY = re.compile(r"(sse4|avx|amx|asimd|sve).*|sme([^p].*)?|fma|f16c|fphp|bf16|i8mm")
"""CPU features that decide which numeric code runs; the hundred others do not affect speed here."""

CGROUP_NAMES = ("cgroup_version", "cgroup_cpu_quota_cores", "cgroup_memory_limit_bytes")


def host_facts(system: str | None = None, root: Path = Path("/")) -> Readings:
    """Every name in `NAMES` with a value or a reason. `root` is the parent folder of Linux's proc and sys."""
    system = system or platform.system()
    common = Readings(values={"os": system, "kernel": platform.release(), "architecture": platform.machine()})
    if system == "Linux":
        facts = linux_facts(root)
    else:
        facts = all_missing(f"{NOT_APPLICABLE}: no cgroups on {system}", CGROUP_NAMES)
        if system == "Darwin":
            facts |= macos_facts()
        elif system == "Windows":
            facts |= windows_facts()
    capabilities = facts.values.get("cpu_capabilities")
    if isinstance(capabilities, list):
        kept: Json = [name for name in capabilities if CAPABILITY.fullmatch(str(name))]
        facts |= Readings(values={"cpu_capabilities": kept})
    return all_missing(f"{NOT_SUPPORTED}: unknown on {system}", NAMES) | common | facts


def text_fact(facts: Readings, name: str) -> str | None:
    """The fact if it is text, else None."""
    value = facts.values.get(name)
    return value if isinstance(value, str) else None


def int_fact(facts: Readings, name: str) -> int | None:
    """The fact if it is an integer, else None."""
    value: Json = facts.values.get(name)
    return value if is_whole(value) else None


def usable_memory_bytes(facts: Readings) -> int | None:
    """The machine's memory, or the cgroup's limit if that is lower; None if neither can be read."""
    amounts = (int_fact(facts, "memory_bytes"), int_fact(facts, "cgroup_memory_limit_bytes"))
    return min((amount for amount in amounts if amount is not None), default=None)


def free_host_bytes(root: Path = Path("/")) -> int:
    """Memory available without swapping, or what the control group leaves of it, whichever is less."""
    available = int(psutil.virtual_memory().available)
    if sys.platform != "linux":
        return available
    return min([available, *free_in_groups(root)])


SYSCTL = ("/usr/sbin/sysctl", "hw", "machdep.cpu", "kern.osproductversion", "kern.hv_vmm_present")

CAPABILITY_NAMES = {
    "FEAT_BF16": "bf16",
    "FEAT_I8MM": "i8mm",
    "FEAT_FP16": "fphp",
    "FEAT_DotProd": "asimddp",
    "FEAT_SME": "sme",
}
"""Apple's names of Arm features and Linux's names for them, which the whole program uses."""


def macos_facts(run: RunCommand = run_command) -> Readings:
    """The machine's facts, under the names of `NAMES`."""
    try:
        values = sysctl_values(run)
    except UnreadableError as error:
        return Readings(missing={"cpu_model": str(error), "memory_bytes": str(error)})

    def text(key: str) -> str:
        return value_or_reason(values.get(key) or None, f"no sysctl {key}", NOT_SUPPORTED)

    model = values.get("machdep.cpu.brand_string", "")
    # Enabled features: hw.optional.arm.FEAT_* on Apple silicon, machdep.cpu.*features on Intel.
    prefix = "hw.optional.arm."
    arm = [key.removeprefix(prefix) for key, value in values.items() if key.startswith(prefix) and value == "1"]
    names = ("machdep.cpu.features", "machdep.cpu.leaf7_features")
    intel = [word.lower() for name in names for word in values.get(name, "").split()]
    capabilities: Json = sorted([CAPABILITY_NAMES.get(name, name) for name in arm] + intel)
    return gather(
        {
            "cpu_model": lambda: text("machdep.cpu.brand_string"),
            "cpu_vendor": lambda: "Apple" if model.startswith("Apple") else "Intel",
            "cpu_capabilities": lambda: capabilities,
            "cpu_cores": lambda: int(text("hw.physicalcpu")),
            "cpu_threads": lambda: int(text("hw.logicalcpu")),
            "cpu_sockets": lambda: int(text("hw.packages")),
            "is_smt_active": lambda: int(text("hw.logicalcpu")) > int(text("hw.physicalcpu")),
            "numa_nodes": lambda: 1,
            "memory_bytes": lambda: int(text("hw.memsize")),
            "os_version": lambda: f"macOS {text('kern.osproductversion')}",
            "is_virtual_machine": lambda: text("kern.hv_vmm_present") == "1",
            "virtual_machine": lambda: value_or_reason(
                values.get("hw.model", "Apple Virtualization") if text("kern.hv_vmm_present") == "1" else None,
                "no virtual machine",
            ),
            "is_container": lambda: False,
        }
    )


def sysctl_values(run: RunCommand = run_command) -> dict[str, str]:
    """sysctl's hardware values by key. Raises UnreadableError."""
    pairs = (line.partition(": ") for line in run(SYSCTL).splitlines())
    return {key: value.strip() for key, separator, value in pairs if separator}


PROCESSOR_KEY = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
BIOS_KEY = r"HARDWARE\DESCRIPTION\System\BIOS"

FEATURES = {10: "sse2", 38: "sse4_2", 39: "avx", 40: "avx2", 41: "avx512f", 19: "asimd", 43: "asimddp"}
"""PF_* numbers for IsProcessorFeaturePresent (winnt.h), by Linux's name of the feature."""

VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}

VIRTUAL_PRODUCTS = ("Virtual Machine", "VMware", "VirtualBox", "QEMU", "KVM", "HVM domU")

ReadRegistry = Callable[[str, str], str]
"""A text value of HKEY_LOCAL_MACHINE by key and name. Raises UnreadableError."""


def read_registry(key: str, name: str) -> str:
    """A text value of HKEY_LOCAL_MACHINE. Raises UnreadableError."""
    winreg: Any = importlib.import_module("winreg")
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as handle:
            return " ".join(str(winreg.QueryValueEx(handle, name)[0]).split())
    except FileNotFoundError as error:
        raise UnreadableError(f"{NOT_SUPPORTED}: no registry value {key}\\{name}") from error
    except PermissionError as error:
        raise UnreadableError(f"{NO_PERMISSION}: registry {key}\\{name}") from error


def windows_facts(registry: ReadRegistry = read_registry, kernel32: Any = None, psutil: Any = None) -> Readings:
    """The machine's facts, under the names of `NAMES`."""
    psutil = psutil or importlib.import_module("psutil")
    kernel32 = kernel32 or ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]

    def processors(*, logical: bool) -> int:
        return int(value_or_reason(psutil.cpu_count(logical=logical), "psutil.cpu_count", NOT_SUPPORTED))

    def numa_nodes() -> int:
        highest = ctypes.c_ulong()
        if not kernel32.GetNumaHighestNodeNumber(ctypes.byref(highest)):
            raise UnreadableError(f"{NOT_SUPPORTED}: GetNumaHighestNodeNumber")
        return highest.value + 1

    return gather(
        {
            "cpu_model": lambda: registry(PROCESSOR_KEY, "ProcessorNameString"),
            "cpu_vendor": lambda: VENDORS.get(
                vendor := registry(PROCESSOR_KEY, "VendorIdentifier"), vendor.partition(" ")[0]
            ),
            "cpu_capabilities": lambda: sorted(
                name for number, name in FEATURES.items() if kernel32.IsProcessorFeaturePresent(number)
            ),
            "cpu_cores": lambda: processors(logical=False),
            "cpu_threads": lambda: processors(logical=True),
            "is_smt_active": lambda: processors(logical=True) > processors(logical=False),
            "numa_nodes": numa_nodes,
            "memory_bytes": lambda: int(psutil.virtual_memory().total),
            "os_version": lambda: f"Windows {platform.version()}",
            "is_virtual_machine": lambda: _windows_virtual_machine(registry) is not None,
            "virtual_machine": lambda: value_or_reason(_windows_virtual_machine(registry), "no virtual machine"),
            "is_container": lambda: False,
        }
    )


def _windows_virtual_machine(registry: ReadRegistry) -> str | None:
    product = f"{registry(BIOS_KEY, 'SystemManufacturer')} {registry(BIOS_KEY, 'SystemProductName')}"
    return product if any(mark in product for mark in VIRTUAL_PRODUCTS) else None


def is_software(name: str) -> bool:
    """Whether the name of a GPU is that of a renderer on the CPU."""
    return any(word in name.lower() for word in SOFTWARE_RENDERERS)


def hardware(device: Device, host: Readings | None = None) -> Hardware:
    """The hardware record of a device, in this machine or in the one with the given facts."""
    host = host_facts() if host is None else host
    keys = hashed_keys(device, host)
    return Hardware(
        hardware_id=canonical_hash(keys)[:16],
        hash_version=HASH_VERSION,
        hashed_keys=keys,
        device=device,
        cpu_model=text_fact(host, "cpu_model"),
        cpu_cores=int_fact(host, "cpu_cores"),
        cpu_threads=int_fact(host, "cpu_threads"),
        memory_bytes=int_fact(host, "memory_bytes"),
        host=Readings(
            values={name: value for name, value in host.values.items() if name not in HOST_FIELDS}, missing=host.missing
        ),
    )


def hashed_keys(device: Device, host: Readings) -> dict[str, Json]:
    """The input of the hardware id's hash: what must be equal for numbers to be comparable.

    It holds only what takes a screwdriver to change: no clocks, power caps, drivers, host names or free memory. Memory
    is included as its size class.
    """
    # Memory that may belong to the host is counted once, as the host's.
    shares_memory = has(device.type, lambda kind: kind.memory != "own")
    has_own_memory = not shares_memory and device.memory_bytes is not None
    memory_bytes = int_fact(host, "memory_bytes")
    # What part of a GPU the device is; empty for a whole one, whose ids are those from before parts were told apart. A
    # MIG instance has its profile, memory and multiprocessors; a partition of an AMD GPU its modes, and the number of
    # compute units, which all partitions of a GPU share.
    facts, partition = device.facts.values, dict[str, Json]()
    modes = [facts.get("compute_partition"), facts.get("memory_partition")]
    if (profile := facts.get("mig_profile")) is not None:
        partition["partition"] = [profile, device.memory_bytes, facts.get("multiprocessors")]
    elif modes[0] not in (None, *WHOLE_COMPUTE) or modes[1] not in (None, *WHOLE_MEMORY):
        partition["partition"] = [*modes, facts.get("compute_units")]
    return {
        "device_type": device.type,
        "device_name": device.name,
        "device_count": device.count,
        "device_memory_class_bytes": memory_class_bytes(device.memory_bytes or 0) if has_own_memory else None,
        "cpu_model": text_fact(host, "cpu_model"),
        "cpu_cores": int_fact(host, "cpu_cores"),
        "cpu_threads": int_fact(host, "cpu_threads"),
        "numa_nodes": int_fact(host, "numa_nodes"),
        "memory_class_bytes": None if memory_bytes is None else memory_class_bytes(memory_bytes),
        **partition,
    }


def memory_class_bytes(memory_bytes: int) -> int:
    """The memory rounded up to 4, 5, 6 or 7 times a power of two: 23.5 GiB is in the 24 GiB class.

    Memory is sold in these sizes, and kernel, firmware and ECC can only reduce it, so rounding up is stable: up to an
    eighth may be missing, except for sizes between the classes (11 GiB is in the 12 GiB class).
    """
    step = 1 << max(memory_bytes.bit_length() - 3, 0)
    return -(-memory_bytes // step) * step


def free_memory(device: Device) -> Readings:
    """`free_memory_bytes` of the device, or why it is unknown along with its upper bound `device_memory_bytes`."""
    kind = kind_of(device.type)
    if kind is not None and kind.memory == "host":
        return Readings(values={FREE: free_host_bytes()})
    if kind is None or kind.memory != "own":
        return Readings(missing={FREE: f"{NOT_APPLICABLE}: it is unknown which memory {device.type} uses"})
    if isinstance(free := device.facts.values.get(FREE), int):
        return Readings(values={FREE: free})
    total = {} if device.memory_bytes is None else {TOTAL: device.memory_bytes}
    return Readings(values=total, missing={FREE: f"{NOT_SUPPORTED}: {device.selector} does not report it"})
