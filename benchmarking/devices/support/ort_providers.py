"""ONNX Runtime's execution providers: the description of a device's provider, and DirectML, which devices share.

DirectML is Windows' interface to any GPU with DirectX 12. It is used only on request.

2026-11-21: no machine with Windows and a GPU was available. The DirectML support follows ONNX Runtime's documentation,
its sources and the package onnxruntime-directml 1.24. Arrays go through the host, as binding to DirectML's memory could
not be tested.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from benchmarking.core.errors import UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import kind_of
from benchmarking.core.records import Device, Precision

SUFFIX = "ExecutionProvider"
HOST_MEMORY = "cpu"
"""ONNX Runtime's name for host memory."""
CUDA_MEMORY = "cuda"
"""ONNX Runtime's name for the memory of NVIDIA GPUs."""
ANY_GPU_MEMORY = "gpu"
"""ONNX Runtime's name for the memory of the GPUs that it is built for."""

WORDS = {"dml": "directml"}
"""Values of `--provider` that differ from ONNX Runtime's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrtProvider:
    """An execution provider that drives a device."""

    name: str
    """ONNX Runtime's name: "CUDAExecutionProvider"."""
    install: str
    """The ONNX Runtime package that includes it."""
    precisions: tuple[Precision, ...]
    """Precisions at which it runs graphs unchanged."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The provider's options at any precision."""
    precision_options: Mapping[Precision, Mapping[str, str]] = field(default_factory=dict)
    """Additional options by precision."""
    memory: str | None = None
    """ONNX Runtime's name for the memory that tensors can be bound to ("cpu", "cuda", "gpu"); None without binding."""
    replay_option: str | None = None
    """The option that makes it capture a call's kernels and replay them as one graph; None if it has none."""
    on_request_only: bool = False
    """Whether it must be named, even if the installed ONNX Runtime has no other."""
    has_memory_pattern: bool = True
    """Whether sessions may use memory patterns, which some providers forbid."""
    why_not_here: Callable[[], str | None] | None = None
    """Returns None, or why it cannot exist on this machine, regardless of installed packages."""
    entries: Callable[[Device], tuple[Any, ...]] | None = None
    """Finds ONNX Runtime's entries for a device, for providers whose sessions select devices by entry. Raises
    UnsupportedError."""

    @property
    def word(self) -> str:
        """The value of `--provider`: "cuda", "directml"."""
        word = self.name.removesuffix(SUFFIX).lower()
        return WORDS.get(word, word)

    @property
    def has_own_memory(self) -> bool:
        """Whether tensors can be bound to memory that is not the host's."""
        return self.memory not in (None, HOST_MEMORY)

    def options_at(self, precision: Precision) -> dict[str, str]:
        return {**self.options, **self.precision_options.get(precision, {})}


NAME = "DmlExecutionProvider"

DESCRIPTION = "Description"
"""Key of the adapter's DXGI name in the metadata of ONNX Runtime's hardware device."""

KINDS_OF_GPU = (" (iGPU)", " (dGPU)")
"""Suffixes that OpenVINO adds to Windows' name of the GPU."""


def adapters(device: Device) -> tuple[Any, ...]:
    """ONNX Runtime's entry for the device's adapter, for `add_provider_for_devices`. Raises UnsupportedError unless
    exactly one matches: an index could mean another GPU on the next machine."""
    import onnxruntime

    if not hasattr(onnxruntime, "get_ep_devices"):
        raise UnsupportedError(
            f"onnxruntime {onnxruntime.__version__} cannot list adapters: pip install 'onnxruntime-directml>=1.23'"
        )
    return (adapter_of(device, [entry for entry in onnxruntime.get_ep_devices() if entry.ep_name == NAME]),)


def adapter_of(device: Device, entries: Sequence[Any]) -> Any:
    """DirectML's entry for the device: the only one with its vendor and name."""
    kind = kind_of(device.type)
    vendor_id = None if kind is None else kind.pci_vendor_id
    of_vendor = [entry for entry in entries if entry.device.vendor_id == vendor_id]
    name = device.name or ""
    name = next((name.removesuffix(kind) for kind in KINDS_OF_GPU if name.endswith(kind)), name)
    matching = [entry for entry in of_vendor if description(entry) == name]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(map(description, entries)) or "none"
    why = f"{len(matching)} adapters have this name" if matching else "no adapter has this name"
    raise UnsupportedError(
        f"DirectML cannot identify the adapter of {device.selector} ({device.name}): {why}. Found: {listed}"
    )


def description(entry: Any) -> str:
    return str(dict(entry.device.metadata).get(DESCRIPTION, "unnamed adapter"))


DIRECTML = OrtProvider(
    name=NAME,
    install="onnxruntime-directml",
    precisions=("float32", "float16", "int8", "int4"),
    on_request_only=True,
    has_memory_pattern=False,
    why_not_here=lambda: (
        None if (system := platform.system()) == "Windows" else f"DirectML is part of Windows; this is {system}"
    ),
    entries=adapters,
)
"""DirectML requires sequential execution, which all sessions here use, and no memory patterns."""
