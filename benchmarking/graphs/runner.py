"""What a runtime on graphs gives: a bundle's graphs, loaded and ready to be called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.records import Json

if TYPE_CHECKING:
    import numpy as np

Placed = Any
"""A tensor where the runtime wants it: an OrtValue on the device, an openvino.Tensor, a numpy array."""

States = Any
"""What a graph hands from one call to the next; a runtime may keep it to itself (OpenVINO's stateful models)."""


class GraphRunner(ABC):
    """The graphs of one bundle in one runtime. Calls of it are in the timed region: they do no more than they must."""

    @abstractmethod
    def place(self, array: np.ndarray) -> Placed:
        """An array put where the graphs take it from; outside the timed region, but for the tokens of a generation and
        the latents of a denoising step. What was placed stays as it is until the operation is done with."""

    @abstractmethod
    def fetch(self, tensor: Placed) -> np.ndarray:
        """A tensor on the host; waits for the device. It may be the runner's own buffer, which holds until the graph is
        called again."""

    @abstractmethod
    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        """Run a graph without states: its outputs by name."""

    @abstractmethod
    def begin(self, graph: str, batch_size: int, first: Mapping[str, Placed]) -> States:
        """Fresh states of a graph: `first` has those that come from another graph's outputs, by the state's input name;
        the others are zeros, or empty."""

    @abstractmethod
    def step(self, graph: str, feeds: Mapping[str, Placed], states: States) -> tuple[Mapping[str, Placed], States]:
        """Run a graph with states: its outputs that are no states, and the states after it."""

    def verified(self) -> Mapping[str, Json]:
        """What the calls really ran on, read back after them; empty where the runtime does not say."""
        return {}
