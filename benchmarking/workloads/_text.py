"""What the families of text models share: token ids in, a transformers model, attention that can be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarking.records import Json, Point, Workload
from benchmarking.workloads import Modality, _inputs, _limits
from benchmarking.workloads._generation import CACHES
from benchmarking.workloads._transformers_family import TransformersFamily

if TYPE_CHECKING:
    import numpy as np

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
        return _limits.positions(config)

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        return {"input_ids": _inputs.token_ids(workload, point, seed)}
