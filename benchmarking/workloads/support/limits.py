"""How long a text a model takes, read from its configuration, and whether a point fits."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from benchmarking.core.axes import AXES
from benchmarking.core.records import Json, Point, Workload

POSITION_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
"""Where configurations keep the number of positions, the most common name first."""


def positions(config: Mapping[str, Json]) -> int | None:
    """The number of positions the configuration gives, or None."""
    values = (config.get(key) for key in POSITION_KEYS)
    return next((value for value in values if isinstance(value, int)), None)


def why_not(workload: Workload, point: Point, *, generates: bool, shared_positions: bool) -> str | None:
    """None, or what about a point does not suit a text model.

    `generates`: the task has new tokens. `shared_positions`: they follow the prompt in the same positions
    (decoder-only); else they have positions of their own, as many as the prompt.
    """
    names = ("sequence_length", "new_tokens") if generates else ("sequence_length",)
    if (problem := wrong_axes(workload, point, names)) is not None:
        return problem
    return too_long(workload, point.sequence_length or 0, point.new_tokens or 0, shared_positions=shared_positions)


def wrong_axes(workload: Workload, point: Point, names: Collection[str]) -> str | None:
    """None, or which axis a point lacks, or has too many: `names` are the workload's, beside the batch size."""
    has = axes_of(point)
    for name in names:
        if name not in has:
            return f"task {workload.task} of {workload.model_id}: the point lacks its {AXES[name].noun}"
    return next((no_axis(workload, name, names) for name in has if name not in names), None)


def no_axis(workload: Workload, name: str, names: Collection[str]) -> str:
    """Why an axis makes no sense for a workload whose own ones are `names`."""
    task = f"task {workload.task} of {workload.model_id}"
    if name == "new_tokens":
        return f"{task} generates nothing: leave new tokens out"
    has = ", ".join(AXES[own].noun for own in ("batch_size", *names))
    return f"{task} has no {AXES[name].noun if name in AXES else name}; its grid is {has}"


def axes_of(point: Point) -> dict[str, float]:
    """The point's values on the axes beside batch size and concurrency."""
    return {**{name: value for name, value in point.stated.items() if not AXES[name].of_every_model}, **point.axes}


def too_long(workload: Workload, prompt: int, new_tokens: int, *, shared_positions: bool) -> str | None:
    """None, or how a prompt and new tokens (0 for none) go beyond the model's positions."""
    limit = workload.max_sequence_length
    if limit is None:
        return None
    if shared_positions and new_tokens and prompt + new_tokens > limit:
        return (
            f"sequence length {prompt} and {new_tokens} new tokens are {prompt + new_tokens}: "
            f"{workload.model_id} takes at most {limit}"
        )
    if prompt > limit:
        return f"sequence length {prompt}: {workload.model_id} takes at most {limit}"
    if not shared_positions and new_tokens > limit:
        return f"{new_tokens} new tokens: {workload.model_id} generates at most {limit}"
    return None
