"""One pass through a model as one graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from benchmarking.graphs.export.agreement import traced_point
from benchmarking.graphs.export.tracing import BATCH, SEQUENCE, Plan, Traced
from benchmarking.graphs.recipes import Recipe
from benchmarking.records import Point, Workload
from benchmarking.workloads._families import plugin_of

FREE_AXES: Mapping[str, Mapping[int, str]] = {
    "input_ids": {0: BATCH, 1: SEQUENCE},
    "input_values": {0: BATCH, 1: SEQUENCE},
}
"""Inputs with more free axes than their first."""


class FamilyCall(torch.nn.Module):
    """The family's own call of its model, so that everything it passes besides the inputs is in the graph."""

    def __init__(self, model: Any, workload: Workload, point: Point, outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self._family, self._workload, self._point, self._outputs = plugin_of(workload), workload, point, outputs

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        operation = self._family.torch_operation(self.model, self._workload, self._point, inputs, {})
        operation.reset()
        output = operation.run(lambda name: None)
        return {name: getattr(output, name) for name in self._outputs}


def plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The graph "model": the family's inputs in, what it compares out."""
    where = traced_point(workload, point, recipe)
    inputs = family_inputs(model, workload, where)
    outputs, more = _outputs(model, workload, where, inputs)
    traced = Traced(
        module=FamilyCall(model, workload, where, (*outputs, *more)),
        inputs=inputs,
        axes={name: FREE_AXES.get(name, {0: BATCH}) for name in inputs},
        feeds={name: f"inputs.{name}" for name in inputs},
        result=outputs[0],
        result_name=outputs[0],
        more_results={name: name for name in outputs[1:]},
    )
    return Plan(graphs={"model": traced})


def family_inputs(model: Any, workload: Workload, point: Point) -> dict[str, torch.Tensor]:
    """A family's inputs as tensors, those of floating point in the dtype of the model's parameters."""
    from benchmarking.workloads._forward import floats_as

    arrays = plugin_of(workload).inputs(workload, point, workload.seed)
    return floats_as(model, {name: torch.from_numpy(array) for name, array in arrays.items()})


def _outputs(
    model: Any, workload: Workload, point: Point, inputs: Mapping[str, torch.Tensor]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of the model's output that the family compares, and its other tensors: what torch computes the graph
    computes too (BERT's pooler), which it would leave out if nobody asked for it."""
    with torch.no_grad():
        operation = plugin_of(workload).torch_operation(model, workload, point, inputs, {})
        operation.reset()
        output = operation.run(lambda name: None)
    compared = tuple(operation.arrays(output))
    return compared, tuple(
        name for name, value in output.items() if isinstance(value, torch.Tensor) and name not in compared
    )
