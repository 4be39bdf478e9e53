"""DirectML: Windows' own way to any GPU with DirectX 12, a provider of ONNX Runtime that has to be asked for.

2026-11-21: written from ONNX Runtime's documentation, sources and the package onnxruntime-directml 1.24; no machine
with Windows and a GPU was at hand. Arrays go through the host: binding to DirectML's memory could not be tried.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

from benchmarking.devices._kinds import kind_of
from benchmarking.devices._ort import OrtProvider
from benchmarking.errors import UnsupportedError
from benchmarking.records import Device

NAME = "DmlExecutionProvider"
DESCRIPTION = "Description"
"""DXGI's name of an adapter, in the metadata of ONNX Runtime's hardware device."""
KINDS_OF_GPU = (" (iGPU)", " (dGPU)")
"""What OpenVINO puts behind the name that Windows has."""


def why_not_here() -> str | None:
    """None, or why there is no DirectML on this machine."""
    system = platform.system()
    return None if system == "Windows" else f"DirectML is a part of Windows; this is {system}"


def adapters(device: Device) -> tuple[Any, ...]:
    """ONNX Runtime's entry of the device's adapter, for `add_provider_for_devices`. Raises UnsupportedError when none,
    or not exactly one, is the device: a number alone would name another GPU on the next machine."""
    import onnxruntime

    if not hasattr(onnxruntime, "get_ep_devices"):
        raise UnsupportedError(
            f"onnxruntime {onnxruntime.__version__} does not list its adapters: "
            "pip install 'onnxruntime-directml>=1.23'"
        )
    return (adapter_of(device, [entry for entry in onnxruntime.get_ep_devices() if entry.ep_name == NAME]),)


def adapter_of(device: Device, entries: Sequence[Any]) -> Any:
    """The entry among DirectML's that is the device: the only one of its vendor and of its name."""
    kind = kind_of(device.type)
    vendor_id = None if kind is None else kind.pci_vendor_id
    of_vendor = [entry for entry in entries if entry.device.vendor_id == vendor_id]
    found = [entry for entry in of_vendor if description(entry) == _name(device)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(map(description, entries)) or "none"
    why = f"{len(found)} adapters are called that" if found else "no adapter is called that"
    raise UnsupportedError(f"DirectML cannot tell which adapter is {device.selector} ({device.name}): {why}: {listed}")


def description(entry: Any) -> str:
    """What an adapter is called."""
    return str(dict(entry.device.metadata).get(DESCRIPTION, "an adapter without a name"))


def _name(device: Device) -> str:
    name = device.name or ""
    return next((name.removesuffix(kind) for kind in KINDS_OF_GPU if name.endswith(kind)), name)


PROVIDER = OrtProvider(
    name=NAME,
    install="onnxruntime-directml",
    precisions=("float32", "float16", "int8", "int4"),
    is_asked_for=True,
    has_memory_pattern=False,
    why_not_here=why_not_here,
    entries=adapters,
)
"""DirectML takes sequential execution only, as every session here has it, and no memory pattern."""
