"""What the families of transformers' models share: how a model is made and loaded, and which attention it can have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.records import Json, Workload
from benchmarking.workloads import WorkloadFamily, _transformers


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
