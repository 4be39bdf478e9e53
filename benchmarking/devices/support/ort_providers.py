"""ONNX Runtime's execution providers: what a device states about its own, and the one that several devices share.

That is DirectML, Windows' interface to any GPU with DirectX 12, which is used only on request.

2026-11-21: DirectML was written from ONNX Runtime's documentation, its sources and the package onnxruntime-directml
1.24; no machine with Windows and a GPU was available. Arrays go through the host: binding to DirectML's memory could
not be tried.
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
"""ONNX Runtime's name of the host's memory."""
CUDA_MEMORY = "cuda"
"""ONNX Runtime's name of the memory of NVIDIA's GPUs."""
ANY_GPU_MEMORY = "gpu"
"""ONNX Runtime's name of the memory of the GPUs that it is built for."""

WORDS = {"dml": "directml"}
"""`--provider`'s name where it is not ONNX Runtime's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrtProvider:
    """An execution provider that drives a device."""

    name: str
    """ONNX Runtime's name: "CUDAExecutionProvider"."""
    install: str
    """The package of ONNX Runtime that includes it."""
    precisions: tuple[Precision, ...]
    """Precisions of the graphs that it runs unchanged."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The provider's options at any precision."""
    precision_options: Mapping[Precision, Mapping[str, str]] = field(default_factory=dict)
    """Further options at a precision."""
    memory: str | None = None
    """ONNX Runtime's name of the memory that tensors can be bound to ("cpu", "cuda", "gpu"); None where none can."""
    replay_option: str | None = None
    """The option by which it captures the kernels of a call and replays them as one graph; None without one."""
    on_request_only: bool = False
    """Whether it is used only when named, even if the installed ONNX Runtime has no other."""
    has_memory_pattern: bool = True
    """Whether sessions may plan their memory ahead, which some providers forbid."""
    why_not_here: Callable[[], str | None] | None = None
    """Returns None, or why this machine cannot have it, independent of installed packages."""
    entries: Callable[[Device], tuple[Any, ...]] | None = None
    """Finds ONNX Runtime's entries of a device, where sessions select devices by them. Raises UnsupportedError."""

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
        """All options at a precision."""
        return {**self.options, **self.precision_options.get(precision, {})}


NAME = "DmlExecutionProvider"

DESCRIPTION = "Description"
"""The key of DXGI's name of an adapter, in the metadata of ONNX Runtime's hardware device."""

KINDS_OF_GPU = (" (iGPU)", " (dGPU)")
"""OpenVINO's suffixes to the name that Windows has."""


def why_not_here() -> str | None:
    """None, or why there is no DirectML on this machine."""
    system = platform.system()
    return None if system == "Windows" else f"DirectML is part of Windows; this is {system}"


def adapters(device: Device) -> tuple[Any, ...]:
    """ONNX Runtime's entry of the device's adapter, for `add_provider_for_devices`. Raises UnsupportedError unless
    exactly one matches: a number alone would be another GPU on the next machine."""
    import onnxruntime

    if not hasattr(onnxruntime, "get_ep_devices"):
        raise UnsupportedError(
            f"onnxruntime {onnxruntime.__version__} does not list its adapters: "
            "pip install 'onnxruntime-directml>=1.23'"
        )
    return (adapter_of(device, [entry for entry in onnxruntime.get_ep_devices() if entry.ep_name == NAME]),)


def adapter_of(device: Device, entries: Sequence[Any]) -> Any:
    """DirectML's entry of the device: the only one of its vendor and name."""
    kind = kind_of(device.type)
    vendor_id = None if kind is None else kind.pci_vendor_id
    of_vendor = [entry for entry in entries if entry.device.vendor_id == vendor_id]
    found = [entry for entry in of_vendor if description(entry) == _name(device)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(map(description, entries)) or "none"
    why = f"{len(found)} adapters have that name" if found else "no adapter has that name"
    raise UnsupportedError(
        f"DirectML cannot identify the adapter of {device.selector} ({device.name}): {why}: {listed}"
    )


def description(entry: Any) -> str:
    """An adapter's name."""
    return str(dict(entry.device.metadata).get(DESCRIPTION, "an adapter without a name"))


def _name(device: Device) -> str:
    name = device.name or ""
    return next((name.removesuffix(kind) for kind in KINDS_OF_GPU if name.endswith(kind)), name)


PROVIDER = OrtProvider(
    name=NAME,
    install="onnxruntime-directml",
    precisions=("float32", "float16", "int8", "int4"),
    on_request_only=True,
    has_memory_pattern=False,
    why_not_here=why_not_here,
    entries=adapters,
)
"""DirectML allows sequential execution only, as in every session here, and no memory pattern."""
