"""How long a text a model takes, read from its configuration, and whether a point fits."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from benchmarking.records import Json, Point, Workload

POSITION_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
"""Where configurations keep the number of positions, the most common name first."""

AXIS_NAMES: Mapping[str, str] = {
    "batch_size": "batch size",
    "sequence_length": "sequence length",
    "new_tokens": "number of new tokens",
    "image_size": "image size",
    "audio_seconds": "length of audio",
    "steps": "number of steps",
    "documents": "number of documents",
    "top_k": "top-k",
}
"""Every axis but concurrency, in the words of messages."""


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
            return f"task {workload.task} of {workload.model_id}: the point lacks its {AXIS_NAMES[name]}"
    return next((no_axis(workload, name, names) for name in has if name not in names), None)


def no_axis(workload: Workload, name: str, names: Collection[str]) -> str:
    """Why an axis makes no sense for a workload whose own ones are `names`."""
    task = f"task {workload.task} of {workload.model_id}"
    if name == "new_tokens":
        return f"{task} generates nothing: leave new tokens out"
    has = ", ".join(AXIS_NAMES[own] for own in ("batch_size", *names))
    return f"{task} has no {AXIS_NAMES.get(name, name)}; its grid is {has}"


def axes_of(point: Point) -> dict[str, float]:
    """The point's values on the axes beside batch size and concurrency."""
    fields = {"sequence_length": point.sequence_length, "new_tokens": point.new_tokens}
    return {**{name: value for name, value in fields.items() if value is not None}, **point.axes}


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
