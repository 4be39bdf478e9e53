"""Whether exported graphs compute what the torch model does, asked once after each export.

At shapes that nothing was traced at, because an exporter that takes an example's size for a constant is right at that
size. And through the whole call, so that the states that go from step to step are right too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.core.records import Json, Point, Precision, Workload
from benchmarking.graphs.bundle import Bundle
from benchmarking.graphs.recipes import SEQUENCE_LENGTH, Recipe
from benchmarking.workloads.support.configuration import integer
from benchmarking.workloads.support.families import plugin_of

if TYPE_CHECKING:
    from benchmarking.core.contracts import GraphRunner
    from benchmarking.measure.correctness import Comparison

TRACED_BATCH_SIZE, TRACED_SEQUENCE_LENGTH, TRACED_AUDIO_S = 2, 7, 0.6
"""What graphs are traced at where the size is free: small, no two alike, and none of them 1, which exporters take for
something that broadcasts."""
CHECKED = ((3, 12, 0.9), (1, 9, 0.7))
"""Batch sizes, sequence lengths and seconds of audio at which graphs and torch are compared."""
SHORTEST_PROMPT = 2
"""Of state-space models: shorter than their convolution is wide, which changes the shape of what it remembers."""
CHECKED_NEW_TOKENS, CHECKED_STEPS = 4, 2
BLOCK_SIZES = {"mamba2": 256}
"""Model types that compute in blocks of positions, with transformers' default. They are traced at two blocks, because
one would be a size that broadcasts, and checked at one and at three."""


def traced_point(workload: Workload, point: Point, recipe: Recipe) -> Point:
    """The point whose inputs are traced: the fixed axes are the point's own."""
    length = TRACED_SEQUENCE_LENGTH + _picture_tokens(workload, point) + block_size(workload)
    return _resized(point, recipe, TRACED_BATCH_SIZE, length, TRACED_AUDIO_S)


def checked_points(workload: Workload, point: Point, recipe: Recipe) -> tuple[Point, ...]:
    """The points at which graphs and torch are compared."""
    shortest = [(1, SHORTEST_PROMPT, 0.0)] if workload.family == "state-space" else []
    more = (_picture_tokens(workload, point) + 2 * block_size(workload), _picture_tokens(workload, point))
    return tuple(
        _resized(point, recipe, batch_size, length + extra, audio_s)
        for (batch_size, length, audio_s), extra in zip(
            (*CHECKED, *shortest), (*more, *[0] * len(shortest)), strict=True
        )
    )


def block_size(workload: Workload) -> int:
    """Positions that are computed together; 0 where there are no blocks."""
    model_type = str(workload.config.get("model_type"))
    return integer(workload.config, "chunk_size", BLOCK_SIZES[model_type]) if model_type in BLOCK_SIZES else 0


def check_agreement(
    model: Any, workload: Workload, bundle: Bundle, folder: Path, point: Point, recipe: Recipe, precision: Precision
) -> dict[str, Json]:
    """How far the graphs are from the model. Raises as `compare_at` does."""
    from benchmarking.graphs.export.plain_runner import PlainRunner

    try:
        runner = PlainRunner(bundle, folder)
    except Exception as error:
        raise BenchhouseError(f"the graphs of {workload.model_id} do not load: {first_line(error)}") from error
    return compare_at(checked_points(workload, point, recipe), model, workload, bundle, runner, precision)


def compare_at(
    points: Sequence[Point], model: Any, workload: Workload, bundle: Bundle, runner: GraphRunner, precision: Precision
) -> dict[str, Json]:
    """How far a bundle's graphs are from the model, at the worst of the points: `relative_l2`, `max_abs_error`,
    `equal_token_share`, and the points. Raises BenchhouseError when it is more than the precision's tolerance."""
    found = [_compared(model, workload, bundle, runner, where, precision) for where in points]
    shares = [one.equal_token_share for one in found if one.equal_token_share is not None]
    return {
        "points": [where.label for where in points],
        "relative_l2": max(one.relative_l2 or 0.0 for one in found),
        "max_abs_error": max(one.max_abs_error or 0.0 for one in found),
        "equal_token_share": min(shares, default=None),
    }


def _compared(
    model: Any, workload: Workload, bundle: Bundle, runner: GraphRunner, where: Point, precision: Precision
) -> Comparison:
    from benchmarking.graphs.operations import operation_of
    from benchmarking.measure.correctness import about_difference, compare

    inputs = plugin_of(workload).inputs(workload, where, workload.seed)
    reference = _torch_arrays(model, workload, where, inputs)
    operation = operation_of(bundle, runner, workload, where, inputs)
    try:
        arrays = operation.arrays(operation.run(lambda name: None))
    except Exception as error:
        raise BenchhouseError(
            f"the exported graphs of {workload.model_id} do not run at {where.label}: {first_line(error)}"
        ) from error
    comparison = compare(arrays, reference)
    if doubts := about_difference(comparison, precision):
        numbers = ", ".join(f"{name} {value}" for name, value in doubts[0].evidence.items())
        raise BenchhouseError(
            f"the exported graphs of {workload.model_id} do not compute what the torch model does at {where.label}: "
            f"{numbers}"
        )
    return comparison


def _torch_arrays(model: Any, workload: Workload, point: Point, inputs: Any) -> Mapping[str, Any]:
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
    from benchmarking.workloads.support.image_prompts import prompt_of

    return prompt_of(workload.config).tokens(int(point.axes["image_size"]))


def _resized(point: Point, recipe: Recipe, batch_size: int, sequence_length: int, audio_s: float) -> Point:
    free = {"audio_seconds": audio_s, "steps": CHECKED_STEPS}
    axes = {name: value if name in recipe.fixed_axes else free.get(name, value) for name, value in point.axes.items()}
    if point.sequence_length is not None and SEQUENCE_LENGTH not in recipe.fixed_axes:
        point = replace(point, sequence_length=sequence_length)
    new_tokens = None if point.new_tokens is None else CHECKED_NEW_TOKENS
    return replace(point, batch_size=batch_size, new_tokens=new_tokens, concurrency=1, axes=axes)
