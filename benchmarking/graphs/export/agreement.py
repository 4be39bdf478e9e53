"""Whether exported graphs compute what the torch model does, asked once after each export.

At a shape that nothing was traced at, because an exporter that takes an example's size for a constant is right at that
size. And through the whole call, so that the states that go from step to step are right too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.errors import BenchhouseError
from benchmarking.graphs.bundle import Bundle
from benchmarking.graphs.recipes import SEQUENCE_LENGTH, Recipe
from benchmarking.records import Json, Point, Precision, Workload
from benchmarking.workloads._families import plugin_of

TRACED_BATCH_SIZE, TRACED_SEQUENCE_LENGTH, TRACED_AUDIO_S = 2, 7, 0.6
"""What graphs are traced at where the size is free: small, no two alike, and none of them 1, which exporters take for
something that broadcasts."""
CHECKED_BATCH_SIZE, CHECKED_SEQUENCE_LENGTH, CHECKED_AUDIO_S = 3, 12, 0.9
CHECKED_NEW_TOKENS, CHECKED_STEPS = 4, 2


def traced_point(workload: Workload, point: Point, recipe: Recipe) -> Point:
    """The point whose inputs are traced: the fixed axes are the point's own."""
    length = TRACED_SEQUENCE_LENGTH + _picture_tokens(workload, point)
    return _resized(point, recipe, TRACED_BATCH_SIZE, length, TRACED_AUDIO_S)


def checked_point(workload: Workload, point: Point, recipe: Recipe) -> Point:
    """The point at which graphs and torch are compared."""
    length = CHECKED_SEQUENCE_LENGTH + _picture_tokens(workload, point)
    return _resized(point, recipe, CHECKED_BATCH_SIZE, length, CHECKED_AUDIO_S)


def check_agreement(
    model: Any, workload: Workload, bundle: Bundle, folder: Path, point: Point, recipe: Recipe, precision: Precision
) -> dict[str, Json]:
    """How far the graphs are from the model: `relative_l2`, `max_abs_error`, `equal_token_share`, and the point. Raises
    BenchhouseError when it is more than the precision's tolerance."""
    from benchmarking.graphs.export.plain_runner import PlainRunner
    from benchmarking.graphs.operations import operation_of
    from benchmarking.measure.correctness import about_difference, compare

    where = checked_point(workload, point, recipe)
    inputs = plugin_of(workload).inputs(workload, where, workload.seed)
    reference = _torch_arrays(model, workload, where, inputs)
    operation = operation_of(bundle, PlainRunner(bundle, folder), workload, where, inputs)
    comparison = compare(operation.arrays(operation.run(lambda name: None)), reference)
    if doubts := about_difference(comparison, precision):
        numbers = ", ".join(f"{name} {value}" for name, value in doubts[0].evidence.items())
        raise BenchhouseError(
            f"the exported graphs of {workload.model_id} do not compute what the torch model does at {where.label}: "
            f"{numbers}"
        )
    return {
        "point": where.label,
        "relative_l2": comparison.relative_l2,
        "max_abs_error": comparison.max_abs_error,
        "equal_token_share": comparison.equal_token_share,
    }


def _torch_arrays(model: Any, workload: Workload, point: Point, inputs: Any) -> dict[str, Any]:
    import torch

    plugin = plugin_of(workload)
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    with torch.inference_mode():
        operation = plugin.torch_operation(model, workload, point, tensors, {})
        operation.reset()
        return operation.arrays(operation.run(lambda name: None))


def _picture_tokens(workload: Workload, point: Point) -> int:
    """Places that a picture takes in the prompt."""
    if workload.family != "multimodal":
        return 0
    from benchmarking.workloads._image_prompts import prompt_of

    return prompt_of(workload.config).tokens(int(point.axes["image_size"]))


def _resized(point: Point, recipe: Recipe, batch_size: int, sequence_length: int, audio_s: float) -> Point:
    free = {"audio_seconds": audio_s, "steps": CHECKED_STEPS}
    axes = {name: value if name in recipe.fixed_axes else free.get(name, value) for name, value in point.axes.items()}
    if point.sequence_length is not None and SEQUENCE_LENGTH not in recipe.fixed_axes:
        point = replace(point, sequence_length=sequence_length)
    new_tokens = None if point.new_tokens is None else CHECKED_NEW_TOKENS
    return replace(point, batch_size=batch_size, new_tokens=new_tokens, concurrency=1, axes=axes)
