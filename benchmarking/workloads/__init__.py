"""Workloads: one file an architecture family, found by listing this folder. Here is the contract they keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from benchmarking.records import Family, Json, Point, Workload

if TYPE_CHECKING:
    import numpy as np

    from benchmarking.runtimes import Operation


class WorkloadPlugin(Protocol):
    """An architecture family. Importing the module imports no torch and no transformers."""

    name: Family
    model_types: frozenset[str]
    """The `model_type`s of transformers' configurations that belong to the family."""
    tasks: tuple[str, ...]
    """Hugging Face task names that can be run, the default first."""
    generative_tasks: frozenset[str]
    """Those of them that generate tokens, and so have the new-tokens axis."""

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        """Longest input in tokens, with new tokens counted where they share its positions; None without a limit."""

    def check(self, workload: Workload, point: Point) -> str | None:
        """None, or why this point cannot be on this model (too long, ...). Asked before anything runs."""

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """The inputs of a call, by the model's argument names, seeded and realistic (no all-zero ids, no padding)."""

    def build(self, workload: Workload) -> Any:
        """The torch model class's empty instance for the task, on the meta device, in eval mode."""

    def torch_operation(self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any]) -> Operation:
        """The call at a point on a loaded torch model (or a compiled wrapper of one), its inputs in place."""
