"""The simplest runner there is: every tensor a numpy array, every state handed in and taken out.

It proves bundles and operations right; nothing is measured on it. ONNX Runtime evaluates where it is installed, else
ONNX's own reference evaluator, which is slow.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.core.contracts import GraphRunner
from benchmarking.graphs.bundle import Bundle, Graph

Evaluate = Callable[[Mapping[str, np.ndarray]], list[Any]]


class PlainRunner(GraphRunner):
    """A bundle's graphs over numpy arrays."""

    def __init__(
        self, bundle: Bundle, folder: Path, evaluator: Callable[[Path, Graph], Evaluate] | None = None
    ) -> None:
        """`evaluator` opens the file of a graph; without one it is ONNX that is read."""
        opened = evaluator or onnx_evaluator
        self._graphs = bundle.graphs
        self._evaluators = {name: opened(folder / graph.file, graph) for name, graph in bundle.graphs.items()}

    def place(self, array: np.ndarray) -> np.ndarray:
        return array

    def fetch(self, tensor: np.ndarray) -> np.ndarray:
        return tensor

    def call(self, graph: str, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = self._evaluators[graph](feeds)
        return {tensor.name: array for tensor, array in zip(self._graphs[graph].outputs, outputs, strict=True)}

    def begin(self, graph: str, batch_size: int, first: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = self._graphs[graph]
        zeros = {
            state.input: np.zeros(
                [batch_size if size == "batch" else int(size) for size in state.first], found.input(state.input).dtype
            )
            for state in found.states
            if state.input not in first
        }
        return {**zeros, **first}

    def step(
        self, graph: str, feeds: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        outputs = self.call(graph, {**feeds, **states})
        return outputs, {state.input: outputs.pop(state.output) for state in self._graphs[graph].states}


def openvino_evaluator(path: Path, graph: Graph) -> Evaluate:
    """An OpenVINO file on the CPU, its arithmetic in float32 whatever its weights are stored in."""
    import openvino

    hints = {"INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(str(path), "CPU", hints).create_infer_request()
    return lambda feeds: [np.array(request.infer(dict(feeds))[tensor.name]) for tensor in graph.outputs]


def onnx_evaluator(path: Path, graph: Graph) -> Evaluate:
    """An ONNX file in ONNX Runtime on the CPU, or in ONNX's own evaluator."""
    names = [tensor.name for tensor in graph.outputs]
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return lambda feeds: list(session.run(names, dict(feeds)))
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(path))
    return lambda feeds: list(evaluator.run(names, dict(feeds)))
