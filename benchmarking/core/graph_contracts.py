"""The contract between exported graphs and the runtimes that run them.

A family's `Recipe` tells `benchmarking/graphs/` how to export its models; a runtime gives a `GraphRunner` that loads
the exported graphs and runs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.records import Json, Point

if TYPE_CHECKING:
    import numpy as np

ExportPlan = Literal["forward", "decoder", "recurrent", "picture-prompt", "sequence-to-sequence", "caption", "denoiser"]
"""How a model is split into graphs; `graphs/export/` has a function for each."""

BundleKind = Literal["forward", "decoder", "encoder-decoder", "denoiser"]
"""How the graphs are called; described in `graphs/bundle.py`."""

BUNDLE_KINDS: Mapping[ExportPlan, BundleKind] = {
    "forward": "forward",
    "decoder": "decoder",
    "recurrent": "decoder",
    "picture-prompt": "decoder",
    "sequence-to-sequence": "encoder-decoder",
    "caption": "encoder-decoder",
    "denoiser": "denoiser",
}

TRANSFORMERS_EXPORTER, TORCH_EXPORTER = "transformers.exporters", "torch.onnx"
"""The first knows how to trace transformers models, the second exports any torch module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a workload is exported to graphs."""

    plan: ExportPlan
    fixed_axes: tuple[str, ...] = ()
    """Names in `Point.axes` whose values are constants in the graphs; other values need another export."""
    exporter: str = TRANSFORMERS_EXPORTER
    start_tokens: tuple[int, ...] = ()
    """First tokens of a decoder with an encoder; empty for the start token in the model's configuration."""
    block_size: int = 0
    """Positions that the model computes together; 0 for a model without blocks."""
    shortest_prompt: int | None = None
    """A short prompt that takes another path through the model, where the graphs are compared with torch as well."""
    torch_facts: tuple[str, ...] = ()
    """Readings of the torch operation that graphs cannot give, stored in the bundle's facts."""

    @property
    def kind(self) -> BundleKind:
        """How the graphs are called."""
        return BUNDLE_KINDS[self.plan]

    def signature(self, point: Point) -> dict[str, Json]:
        """The values of a point that the export depends on."""
        return {name: point.axes[name] for name in self.fixed_axes if point.axes.get(name) is not None}


Placed = Any
"""A tensor where the runtime needs it: an OrtValue on the device, an openvino.Tensor, a numpy array."""
States = Any
"""What a graph passes from one call to the next; a runtime may keep it inside (OpenVINO's stateful models)."""


class GraphRunner(ABC):
    """The exported graphs of one model, loaded in one runtime.

    Its calls are part of the timed region and do nothing beyond their task.
    """

    @abstractmethod
    def place(self, array: np.ndarray) -> Placed:
        """Put an array where the graphs read it; the copy stays valid and unchanged while its operation uses it.

        Timed only for the tokens of a generation and the latents of a denoising step.
        """

    @abstractmethod
    def fetch(self, tensor: Placed) -> np.ndarray:
        """A tensor on the host, after waiting for the device. May be the runner's own buffer, valid until the graph's
        next call."""

    @abstractmethod
    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        """Run a stateless graph; its outputs by name."""

    @abstractmethod
    def begin(self, graph: str, batch_size: int, first: Mapping[str, Placed]) -> States:
        """Fresh states of a graph. `first` maps the inputs of states that another graph's outputs initialize; all
        other states are zero or empty."""

    @abstractmethod
    def step(self, graph: str, feeds: Mapping[str, Placed], states: States) -> tuple[Mapping[str, Placed], States]:
        """Run a stateful graph: its outputs without the states, and the new states."""

    def verified(self) -> Mapping[str, Json]:
        """What the calls really ran on, read back afterwards; empty when the runtime does not report it."""
        return {}
