"""The machine's facts on Windows, from the registry, psutil and kernel32."""

from __future__ import annotations

import ctypes
import importlib
import platform
from collections.abc import Callable
from typing import Any

from benchmarking.devices._reading import UnreadableError, gather
from benchmarking.records import NO_PERMISSION, NOT_APPLICABLE, NOT_SUPPORTED, Json, Readings

PROCESSOR_KEY = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
BIOS_KEY = r"HARDWARE\DESCRIPTION\System\BIOS"

FEATURES = {10: "sse2", 38: "sse4_2", 39: "avx", 40: "avx2", 41: "avx512f", 19: "asimd", 43: "asimddp"}
"""PF_* numbers of IsProcessorFeaturePresent (winnt.h), by Linux's name for the same."""

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
        raise UnreadableError(f"{NOT_SUPPORTED}: registry {key}\\{name}") from error
    except PermissionError as error:
        raise UnreadableError(f"{NO_PERMISSION}: registry {key}\\{name}") from error


def facts(registry: ReadRegistry = read_registry, kernel32: Any = None, psutil: Any = None) -> Readings:
    """The machine's facts; names as in `_host`."""
    psutil = psutil or importlib.import_module("psutil")
    kernel32 = kernel32 or ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
    return gather(
        {
            "cpu_model": lambda: registry(PROCESSOR_KEY, "ProcessorNameString"),
            "cpu_vendor": lambda: _vendor(registry(PROCESSOR_KEY, "VendorIdentifier")),
            "cpu_capabilities": lambda: sorted(
                name for number, name in FEATURES.items() if kernel32.IsProcessorFeaturePresent(number)
            ),
            "cpu_cores": lambda: _count(psutil.cpu_count(logical=False)),
            "cpu_threads": lambda: _count(psutil.cpu_count(logical=True)),
            "is_smt_active": lambda: _count(psutil.cpu_count(logical=True)) > _count(psutil.cpu_count(logical=False)),
            "numa_nodes": lambda: _numa_nodes(kernel32),
            "memory_bytes": lambda: int(psutil.virtual_memory().total),
            "os_version": lambda: f"Windows {platform.version()}",
            "is_virtual_machine": lambda: _virtual_machine(registry) is not None,
            "virtual_machine": lambda: _named_virtual_machine(registry),
            "is_container": lambda: False,
        }
    )


def _vendor(identifier: str) -> str:
    return {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}.get(identifier, identifier.partition(" ")[0])


def _count(value: int | None) -> int:
    if value is None:
        raise UnreadableError(f"{NOT_SUPPORTED}: psutil.cpu_count")
    return value


def _numa_nodes(kernel32: Any) -> int:
    highest = ctypes.c_ulong()
    if not kernel32.GetNumaHighestNodeNumber(ctypes.byref(highest)):
        raise UnreadableError(f"{NOT_SUPPORTED}: GetNumaHighestNodeNumber")
    return highest.value + 1


def _virtual_machine(registry: ReadRegistry) -> str | None:
    product = f"{registry(BIOS_KEY, 'SystemManufacturer')} {registry(BIOS_KEY, 'SystemProductName')}"
    return product if any(mark in product for mark in VIRTUAL_PRODUCTS) else None


def _named_virtual_machine(registry: ReadRegistry) -> Json:
    product = _virtual_machine(registry)
    if product is None:
        raise UnreadableError(f"{NOT_APPLICABLE}: no virtual machine")
    return product
