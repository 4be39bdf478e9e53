"""What the families of transformers' models share: how a model is made and loaded, and which attention it can have.

What the families of text models share: token ids in, a transformers model, attention that can be chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.core.contracts import Modality, WorkloadFamily
from benchmarking.core.records import Json, Point, Workload
from benchmarking.workloads.support import limits, synthetic_inputs, transformers_models
from benchmarking.workloads.support.generation import CACHES

if TYPE_CHECKING:
    import numpy as np


class TransformersFamily(WorkloadFamily):
    """A family whose models are transformers'. The families say what they are called, what goes in and how they run."""

    without_attention: frozenset[str] = frozenset()
    """Model types that have no attention, or give no choice of one."""
    without_sdpa: frozenset[str] = frozenset()
    """Model types that have only their own ("eager") attention in transformers."""
    sdpa_since: Mapping[str, tuple[int, int]] = {}
    """Model types that got scaled-dot-product attention in a version of transformers this program may meet."""

    def default_attention(self, config: Mapping[str, Json]) -> str | None:
        model_type = str(config.get("model_type"))
        if model_type in self.without_attention:
            return None
        since = self.sdpa_since.get(model_type)
        if model_type in self.without_sdpa or (since is not None and _transformers_version() < since):
            return "eager"
        return "sdpa"

    def model_class(self, workload: Workload) -> Any:
        return transformers_models.model_class(workload)

    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        return transformers_models.build(workload, dtype=dtype, attention=attention)

    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        return transformers_models.load(workload, dtype=dtype, attention=attention)


def _transformers_version() -> tuple[int, int]:
    """Major and minor of the installed transformers, told without importing it."""
    from importlib.metadata import version

    major, minor = version("transformers").split(".")[:2]
    return int(major), int(minor)


DEFAULT_SEQUENCE_LENGTHS = (128, 512)

DEFAULT_NEW_TOKENS = (16,)


class TextFamily(TransformersFamily):
    """A family whose models take token ids."""

    modalities: tuple[Modality, ...] = ("text",)
    caches: tuple[str, ...] = CACHES

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        tokens = {"new_tokens": DEFAULT_NEW_TOKENS} if workload.task in self.generative_tasks else {}
        return {"sequence_length": DEFAULT_SEQUENCE_LENGTHS, **tokens}

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        return limits.positions(config)

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        return {"input_ids": synthetic_inputs.token_ids(workload, point, seed)}
