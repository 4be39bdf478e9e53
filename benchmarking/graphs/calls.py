"""What calls of bundles share, whatever is called: counts, readings, and the family's inputs in a graph's types."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarking.errors import BenchhouseError
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.graphs.runner import GraphRunner, Placed
from benchmarking.records import NOT_SUPPORTED, Json, Point, Readings
from benchmarking.runtimes import Operation

Arrays = Mapping[str, np.ndarray]
"""The inputs of a call by the family's names for them."""


class GraphOperation(Operation):
    """What the calls of every kind of bundle share. Nothing outlives one: each begins with fresh states, whose cost is
    the call's."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point) -> None:
        self.items_per_call = point.batch_size
        self.tell: Callable[[], Readings] = Readings
        """What else there is to know of a call: how long its inputs take to make, seconds of audio, ..."""
        self._bundle = bundle
        self._runner = runner

    @abstractmethod
    def arrays(self, output: Any) -> dict[str, np.ndarray]:
        """The output on the host by name, as the family's torch operation names it: float32, tokens int64."""

    def problem(self, output: Any) -> str | None:
        """None, or how much of an output is NaN or infinite."""
        found = (non_finite(name, array) for name, array in self.arrays(output).items())
        return next((problem for problem in found if problem is not None), None)

    def readings(self, output: Any) -> Readings:
        return self.tell()

    def count(self) -> Readings:
        why = f"{NOT_SUPPORTED}: operators are counted in torch's models, not in graphs"
        return Readings(missing=dict.fromkeys(("flops", "bytes_accessed"), why))

    def verified(self) -> Mapping[str, Json]:
        """What the runner read back of its calls."""
        return self._runner.verified()

    def _placed(self, graph: Graph, arrays: Arrays) -> dict[str, Placed]:
        """The feeds that the family's inputs settle, in the graph's types and where the runner wants them."""
        made = {name: _made(arrays, source, graph.input(name).dtype) for name, source in graph.feeds.items()}
        return {name: self._runner.place(array) for name, array in made.items() if array is not None}


def non_finite(name: str, array: np.ndarray) -> str | None:
    """None, or how much of an array is NaN or infinite."""
    finite = np.isfinite(array)
    return None if finite.all() else f"NaN or Inf in {name}: {array.size - int(finite.sum())} of {array.size} values"


def as_float32(array: np.ndarray) -> np.ndarray:
    """The array in float32, as outputs are compared."""
    return np.asarray(array, dtype=np.float32)


def as_dtype(arrays: Arrays, name: str, dtype: str) -> np.ndarray:
    """One of the family's inputs in a graph's type. Raises BenchhouseError when it is not there."""
    if name not in arrays:
        raise BenchhouseError(
            f"the bundle takes an input {name!r}, which the family does not make: {', '.join(arrays)}"
        )
    return np.ascontiguousarray(arrays[name], dtype=dtype)


def _made(arrays: Arrays, source: str, dtype: str) -> np.ndarray | None:
    """What the family's inputs make of a feed's source; None where it is something else."""
    kind, _, name = source.partition(".")
    if kind == "inputs":
        return as_dtype(arrays, name, dtype)
    if kind in ("ones", "zeros"):
        shape = as_dtype(arrays, name, dtype).shape
        return np.ones(shape, dtype=dtype) if kind == "ones" else np.zeros(shape, dtype=dtype)
    return None
