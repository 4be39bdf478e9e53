"""How ONNX Runtime drives a device: its execution providers, which each device's file names for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarking.records import Device, Precision

SUFFIX = "ExecutionProvider"
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

    def options_at(self, precision: Precision) -> dict[str, str]:
        """All options at a precision."""
        return {**self.options, **self.precision_options.get(precision, {})}
