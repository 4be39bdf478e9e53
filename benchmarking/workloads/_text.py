"""What the families of text models share: token ids in, a transformers model, attention that can be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.records import Json, Point, Workload
from benchmarking.workloads import _inputs, _limits, _transformers
from benchmarking.workloads._generation import CACHES

if TYPE_CHECKING:
    import numpy as np

DEFAULT_SEQUENCE_LENGTHS = (128, 512)
DEFAULT_NEW_TOKENS = (16,)


class TextFamily:
    """A family whose models take token ids. The families say what their models are called and how they run."""

    without_sdpa: frozenset[str] = frozenset()
    """Model types that have only their own ("eager") attention in transformers."""
    sdpa_since: Mapping[str, tuple[int, int]] = {}
    """Model types that got scaled-dot-product attention in a version of transformers this program may meet."""

    generative_tasks: frozenset[str] = frozenset()
    caches: tuple[str, ...] = CACHES

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        tokens = {"new_tokens": DEFAULT_NEW_TOKENS} if workload.task in self.generative_tasks else {}
        return {"sequence_length": DEFAULT_SEQUENCE_LENGTHS, **tokens}

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        return _limits.positions(config)

    def default_attention(self, config: Mapping[str, Json]) -> str | None:
        model_type = str(config.get("model_type"))
        since = self.sdpa_since.get(model_type)
        if model_type in self.without_sdpa or (since is not None and _transformers_version() < since):
            return "eager"
        return "sdpa"

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        return {"input_ids": _inputs.token_ids(workload, point, seed)}

    def model_class(self, workload: Workload) -> Any:
        return _transformers.model_class(workload)

    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        return _transformers.build(workload, dtype=dtype, attention=attention)

    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        return _transformers.load(workload, dtype=dtype, attention=attention)


def _transformers_version() -> tuple[int, int]:
    """Major and minor of the installed transformers, told without importing it."""
    from importlib.metadata import version

    major, minor = version("transformers").split(".")[:2]
    return int(major), int(minor)
