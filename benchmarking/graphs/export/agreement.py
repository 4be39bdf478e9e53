"""Checks once after each export that the graphs compute the same as the torch model.

The shapes differ from the traced ones, because an exporter that treats an example's size as a constant is correct at
that size. Whole calls are compared, which also checks the states passed from step to step.

The graphs run in the simplest runner: every tensor is a numpy array, every state is passed in and out. It is never
measured. The evaluator is ONNX Runtime if it is installed, else ONNX's slow reference evaluator.

A model that subtracts large, nearly equal values, or iterates a chaotic map, magnifies rounding. Two correct float32
programs of it then differ beyond every tolerance, and neither is wrong. Whether its float32 output can judge another
one shows its distance from the same model's float64 output (`float64_error`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.core.lazy_modules import torch
from benchmarking.core.model_contracts import GraphRunner, Recipe
from benchmarking.core.records import Json, Point, Precision, Workload
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.graphs.operations import operation_of
from benchmarking.measure.quality_measures import Comparison, about_difference, compare, tolerance_of
from benchmarking.workloads.support.families import plugin_of

TRACED_BATCH_SIZE, TRACED_SEQUENCE_LENGTH, TRACED_AUDIO_S = 2, 7, 0.6
"""Traced sizes of free axes: small, all different, and none of them 1, which exporters treat as broadcasting."""
CHECKED = ((3, 12, 0.9), (1, 9, 0.7))
"""Batch sizes, sequence lengths and seconds of audio at which graphs are compared with torch."""
CHECKED_NEW_TOKENS, CHECKED_STEPS = 4, 2

Evaluate = Callable[[Mapping[str, np.ndarray]], list[Any]]
"""Maps a graph's inputs to its outputs, both by name."""


def traced_point(workload: Workload, point: Point, recipe: Recipe) -> Point:
    """The point whose inputs are traced, with the point's own fixed axes. A model that computes in blocks is traced
    with more than one, because a single block would be a size that broadcasts."""
    if recipe.is_of_one_point:
        return replace(point, concurrency=1)
    length = TRACED_SEQUENCE_LENGTH + plugin_of(workload).image_tokens(workload, point) + recipe.block_size
    return _resize(point, recipe, TRACED_BATCH_SIZE, length, TRACED_AUDIO_S)


def checked_points(workload: Workload, point: Point, recipe: Recipe) -> tuple[Point, ...]:
    """The points at which graphs are compared with torch. A model that computes in blocks is compared with three blocks
    and with one; graphs for a single point are compared at that point."""
    if recipe.is_of_one_point:
        return (replace(point, concurrency=1),)
    image_tokens = plugin_of(workload).image_tokens(workload, point)
    extras = (image_tokens + 2 * recipe.block_size, image_tokens)
    sizes = [(size, length + extra, audio_s) for (size, length, audio_s), extra in zip(CHECKED, extras, strict=True)]
    if recipe.shortest_prompt is not None:
        sizes.append((1, recipe.shortest_prompt, 0.0))
    return tuple(_resize(point, recipe, *size) for size in sizes)


def check_agreement(
    model: Any, workload: Workload, bundle: Bundle, folder: Path, point: Point, recipe: Recipe, precision: Precision
) -> dict[str, Json]:
    """The differences between the graphs in a folder and the model. Raises as `compare_at` does."""
    try:
        runner = PlainRunner(bundle, folder)
    except Exception as error:
        raise BenchhouseError(f"cannot load the graphs of {workload.model_id}: {first_line(error)}") from error
    return compare_at(checked_points(workload, point, recipe), model, workload, bundle, runner, precision)


def compare_at(
    points: Sequence[Point], model: Any, workload: Workload, bundle: Bundle, runner: GraphRunner, precision: Precision
) -> dict[str, Json]:
    """The largest differences between a bundle's graphs and the model over these points: `relative_l2`,
    `max_abs_error`, `equal_token_share`, each None if no output has it. For an ill-conditioned model also
    `float64_error`, its own difference from its float64 outputs. Raises BenchhouseError if they exceed the precision's
    tolerance, and that does not explain it."""
    comparisons: list[Comparison] = []
    own_errors: list[float] = []
    for point in points:
        inputs = plugin_of(workload).inputs(workload, point, workload.seed)
        reference = torch_arrays(model, workload, point, inputs)
        operation = operation_of(bundle, runner, workload, point, inputs)
        try:
            arrays = operation.arrays(operation.run(lambda name: None))
        except Exception as error:
            raise BenchhouseError(
                f"the exported graphs of {workload.model_id} failed at {point.label}: {first_line(error)}"
            ) from error
        comparisons.append(comparison := compare(arrays, reference))
        if doubts := about_difference(comparison, precision):
            own = float64_error(model, workload, point, inputs) if precision == "float32" else None
            if own is None or not explains(own, comparison):
                numbers = ", ".join(f"{name} {value}" for name, value in doubts[0].evidence.items())
                raise BenchhouseError(
                    f"the exported graphs of {workload.model_id} differ from the torch model at {point.label}: "
                    f"{numbers}"
                )
            own_errors.append(own)

    shares = [one.equal_token_share for one in comparisons if one.equal_token_share is not None]
    return {
        "points": [point.label for point in points],
        "relative_l2": max((one.relative_l2 for one in comparisons if one.relative_l2 is not None), default=None),
        "max_abs_error": max((one.max_abs_error for one in comparisons if one.max_abs_error is not None), default=None),
        "equal_token_share": min(shares, default=None),
        **({"float64_error": max(own_errors)} if own_errors else {}),
    }


def _resize(point: Point, recipe: Recipe, batch_size: int, sequence_length: int, audio_s: float) -> Point:
    free = {"audio_seconds": audio_s, "steps": CHECKED_STEPS}
    axes = {name: value if name in recipe.fixed_axes else free.get(name, value) for name, value in point.axes.items()}
    if point.sequence_length is not None:
        point = replace(point, sequence_length=sequence_length)
    new_tokens = None if point.new_tokens is None else CHECKED_NEW_TOKENS
    return replace(point, batch_size=batch_size, new_tokens=new_tokens, concurrency=1, axes=axes)


class PlainRunner(GraphRunner):
    """A bundle's graphs over numpy arrays."""

    def __init__(
        self, bundle: Bundle, folder: Path, evaluator: Callable[[Path, Graph], Evaluate] | None = None
    ) -> None:
        """`evaluator` opens a graph's file (default: `onnx_evaluator`)."""
        open_graph = evaluator or onnx_evaluator
        self._graphs = bundle.graphs
        self._evaluators = {name: open_graph(folder / graph.file, graph) for name, graph in bundle.graphs.items()}

    def place(self, array: np.ndarray) -> np.ndarray:
        return array

    def fetch(self, tensor: np.ndarray) -> np.ndarray:
        return tensor

    def call(self, graph: str, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = self._evaluators[graph](feeds)
        return {tensor.name: array for tensor, array in zip(self._graphs[graph].outputs, outputs, strict=True)}

    def begin(self, graph: str, batch_size: int, first: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        description = self._graphs[graph]
        zeros = {
            state.input: np.zeros(state.first_shape(batch_size), description.input(state.input).dtype)
            for state in description.states
            if state.input not in first
        }
        return {**zeros, **first}

    def step(
        self, graph: str, feeds: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        outputs = self.call(graph, {**feeds, **states})
        return outputs, {state.input: outputs.pop(state.output) for state in self._graphs[graph].states}


def openvino_evaluator(path: Path, graph: Graph) -> Evaluate:
    """An OpenVINO file on the CPU, with float32 arithmetic even if weights are stored in float16."""
    import openvino

    hints = {"INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(str(path), "CPU", hints).create_infer_request()
    return lambda feeds: [np.array(request.infer(dict(feeds))[tensor.name]) for tensor in graph.outputs]


def onnx_evaluator(path: Path, graph: Graph) -> Evaluate:
    """An ONNX file in ONNX Runtime on the CPU, or in ONNX's reference evaluator."""
    names = [tensor.name for tensor in graph.outputs]
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return lambda feeds: list(session.run(names, dict(feeds)))
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(path))
    return lambda feeds: list(evaluator.run(names, dict(feeds)))


SAME_SIZE = 10.0
"""Another program's error may be this many times the model's own: rounding errors of two orders of the same sums differ
by factors, not by magnitudes."""


def torch_arrays(
    model: Any, workload: Workload, point: Point, inputs: Mapping[str, np.ndarray], dtype: Any = None
) -> Mapping[str, Any]:
    """The outputs of a torch model, by name; `dtype` replaces the type of floating-point inputs."""
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    if dtype is not None:
        tensors = {name: one.to(dtype) if one.is_floating_point() else one for name, one in tensors.items()}
    with torch.inference_mode():
        operation = plugin_of(workload).torch_operation(model, workload, point, tensors, {})
        operation.reset()
        return operation.arrays(operation.run(lambda name: None))


def float64_error(model: Any, workload: Workload, point: Point, inputs: Mapping[str, np.ndarray]) -> float | None:
    """The relative L2 difference between a float32 model's outputs and its float64 outputs; None if it cannot run at
    float64, or has no floating-point output."""
    single = torch_arrays(model, workload, point, inputs)
    tensors = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()]
    before = [tensor.data for tensor in tensors]
    try:
        for tensor in tensors:
            tensor.data = tensor.data.to(torch.float64)
        double = torch_arrays(model, workload, point, inputs, torch.float64)
    except (RuntimeError, TypeError, ValueError, MemoryError):
        return None  # a kernel without float64, or a dtype in the model's code
    finally:
        for tensor, data in zip(tensors, before, strict=True):
            tensor.data = data
    return compare(single, double).relative_l2


def explains(error: float, comparison: Comparison) -> bool:
    """Whether the model's own float64 error explains a difference from its float32 outputs."""
    if error <= tolerance_of("float32", None).relative_l2 or comparison.problem is not None:
        return False
    return comparison.relative_l2 is not None and comparison.relative_l2 <= SAME_SIZE * error
