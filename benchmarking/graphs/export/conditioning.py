"""Whether a model's float32 output can judge another one: its distance from the same model's float64 output.

A model that subtracts large, nearly equal values, or iterates a chaotic map, magnifies rounding. Two correct float32
programs of it then differ beyond every tolerance, and neither is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarking.core.records import Point, Workload
from benchmarking.workloads.support.families import plugin_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from benchmarking.measure.correctness import Comparison

SAME_SIZE = 10.0
"""Another program's error may be this many times the model's own: rounding errors of two orders of the same sums differ
by factors, not by magnitudes."""


def torch_arrays(
    model: Any, workload: Workload, point: Point, inputs: Mapping[str, np.ndarray], dtype: Any = None
) -> Mapping[str, Any]:
    """The outputs of a torch model, by name; `dtype` replaces the type of floating-point inputs."""
    import torch

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
    import torch

    from benchmarking.measure.correctness import compare

    single = torch_arrays(model, workload, point, inputs)
    try:
        with _doubled(model):
            double = torch_arrays(model, workload, point, inputs, torch.float64)
    except (
        RuntimeError,
        TypeError,
        ValueError,
        MemoryError,
    ):  # a kernel without float64, or a dtype in the model's code
        return None
    return compare(single, double).relative_l2


def explains(error: float | None, comparison: Comparison) -> bool:
    """Whether the model's own float64 error explains a difference from its float32 outputs."""
    from benchmarking.measure.correctness import tolerance_of

    if error is None or error <= tolerance_of("float32", None).relative_l2 or comparison.problem is not None:
        return False
    return comparison.relative_l2 is not None and comparison.relative_l2 <= SAME_SIZE * error


@contextmanager
def _doubled(model: Any) -> Iterator[None]:
    """The model's floating-point parameters and buffers are float64 inside, and unchanged afterwards."""
    import torch

    tensors = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()]
    before = [tensor.data for tensor in tensors]
    try:
        for tensor in tensors:
            tensor.data = tensor.data.to(torch.float64)
        yield
    finally:
        for tensor, data in zip(tensors, before, strict=True):
            tensor.data = data
