"""How long a text a model takes, read from its configuration, and whether a point fits."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarking.records import Json, Point, Workload

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
    if point.sequence_length is None:
        return f"{workload.model_id} takes text: the point needs a sequence length"
    if generates and point.new_tokens is None:
        return f"task {workload.task} generates: the point needs a number of new tokens"
    if not generates and point.new_tokens is not None:
        return f"task {workload.task} of {workload.model_id} generates nothing: leave new tokens out"
    if point.axes:
        return f"{workload.model_id} takes text: it has no axis {', '.join(sorted(point.axes))}"
    return _too_long(workload, point.sequence_length, point.new_tokens or 0, shared_positions)


def _too_long(workload: Workload, prompt: int, new_tokens: int, shared_positions: bool) -> str | None:
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
