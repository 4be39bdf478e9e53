"""Inputs that look like text: seeded token ids, every row as long as was asked, nothing padded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarking.errors import UsageError
from benchmarking.records import Json, Point, Workload

if TYPE_CHECKING:
    import numpy as np

VOCABULARY_MARGIN = 20
"""One in twenty ids is left out at either end of the vocabulary. Special, unused and single-byte tokens sit there
(BERT's first 999, T5's last 128), and a configuration names few of them."""

MODALITIES = frozenset({"audio", "image", "video", "vision"})
"""Words in the names of a configuration's ids that stand for something other than text."""


def token_ids(workload: Workload, point: Point, seed: int) -> np.ndarray:
    """Random token ids, int64 of shape (batch_size, sequence_length); the same seed and point give the same ids."""
    import numpy as np

    if point.sequence_length is None:
        raise UsageError(f"{workload.model_id} takes text: a point needs a sequence length")
    if workload.vocab_size is None:
        raise UsageError(f"the configuration of {workload.model_id} has no vocab_size")
    margin = workload.vocab_size // VOCABULARY_MARGIN
    ordinary = np.arange(margin, workload.vocab_size - margin)
    ordinary = ordinary[~np.isin(ordinary, special_ids(workload))]
    generator = np.random.default_rng([seed, point.batch_size, point.sequence_length])
    return generator.choice(ordinary, size=(point.batch_size, point.sequence_length)).astype(np.int64)


def special_ids(workload: Workload) -> list[int]:
    """The ids the configuration gives a meaning to (`pad_token_id`, `eos_token_id`, ...), sorted."""
    named = (value for key, value in workload.config.items() if key.endswith("_token_id"))
    return sorted({number for value in named for number in _numbers(value)})


def placeholder_ids(workload: Workload) -> list[int]:
    """The ids that stand in a prompt for pictures, video or sound (`image_token_id`, `image_token_index`, ...)."""
    named = {key: value for key, value in workload.config.items() if key.endswith(("_token_id", "_token_index"))}
    return sorted({n for key, value in named.items() if MODALITIES & set(key.split("_")) for n in _numbers(value)})


def vocabulary_size(workload: Workload) -> int | None:
    """The number of ids the model has embeddings for, where a text model inside it may be what says so."""
    inner = workload.config.get("text_config")
    nested = inner.get("vocab_size") if isinstance(inner, dict) else None
    size = workload.vocab_size if workload.vocab_size is not None else nested
    return size if isinstance(size, int) else None


def _numbers(value: Json) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [number for number in values if isinstance(number, int) and not isinstance(number, bool)]
