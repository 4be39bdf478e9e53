"""DirectML: Windows' own way to any GPU with DirectX 12, a provider of ONNX Runtime that has to be asked for.

2026-11-21: written from ONNX Runtime's documentation, sources and the package onnxruntime-directml 1.24; no machine
with Windows and a GPU was at hand. Arrays go through the host: binding to DirectML's memory could not be tried.

How ONNX Runtime drives a device: its execution providers, which each device's file names for itself.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import Device, Precision
from benchmarking.devices.support.kinds import kind_of

SUFFIX = "ExecutionProvider"
HOST_MEMORY = "cpu"
"""ONNX Runtime's name for the host's memory."""

WORDS = {"dml": "directml"}
"""What users call a provider where ONNX Runtime's name of it is another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrtProvider:
    """An execution provider that drives a device."""

    name: str
    """ONNX Runtime's: "CUDAExecutionProvider"."""
    install: str
    """The package of ONNX Runtime that is built with it."""
    precisions: tuple[Precision, ...]
    """Precisions of graphs that it runs as they are."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The provider's own, beside those of a precision."""
    precision_options: Mapping[Precision, Mapping[str, str]] = field(default_factory=dict)
    """What is added to them at a precision."""
    memory: str | None = None
    """ONNX Runtime's name for the memory its tensors can be bound to: "cpu", "cuda"; None where none can."""
    is_asked_for: bool = False
    """Whether it is taken only when it is named, and never because the installed ONNX Runtime has no other."""
    has_memory_pattern: bool = True
    """Whether sessions may plan their memory ahead, which some providers forbid."""
    why_not_here: Callable[[], str | None] | None = None
    """None, or what tells why this machine cannot have it whatever is installed."""
    entries: Callable[[Device], tuple[Any, ...]] | None = None
    """Finds ONNX Runtime's own entries of a device, where sessions are told by them which one is meant. Raises
    UnsupportedError."""

    @property
    def word(self) -> str:
        """What `--provider` takes: "cuda", "directml"."""
        word = self.name.removesuffix(SUFFIX).lower()
        return WORDS.get(word, word)

    @property
    def has_own_memory(self) -> bool:
        """Whether tensors can be bound to memory that is not the host's."""
        return self.memory not in (None, HOST_MEMORY)

    def options_at(self, precision: Precision) -> dict[str, str]:
        """All options at a precision."""
        return {**self.options, **self.precision_options.get(precision, {})}


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
