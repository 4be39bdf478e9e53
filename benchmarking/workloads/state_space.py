"""State-space and other recurrent text models (Mamba, RWKV): a state of a fixed size instead of a growing cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads import _limits, _recurrence
from benchmarking.workloads._text import TextFamily

if TYPE_CHECKING:
    from benchmarking.workloads import FamilyOperation


ONE_SEQUENCE = frozenset({"rwkv"})
"""Model types whose decode step is wrong for a batch: RWKV's state of the token before lacks the sequence axis, so each
sequence is computed with every other one's (seen in transformers 5.17 and 5.23)."""


class StateSpace(TextFamily):
    """Mamba, Mamba-2, Falcon Mamba, RWKV-4.

    No length is too long for a recurrence. RWKV's `context_length` is what its CUDA kernel takes at once, and that
    kernel says so itself.
    """

    name: Family = "state-space"
    has_attention_cache = False
    model_types = frozenset({"falcon_mamba", "mamba", "mamba2", "rwkv"})
    tasks: tuple[str, ...] = ("text-generation",)
    generative_tasks = frozenset({"text-generation"})
    caches: tuple[str, ...] = _recurrence.CACHES

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        return None

    def default_attention(self, config: Mapping[str, Json]) -> str | None:
        return None

    def check(self, workload: Workload, point: Point) -> str | None:
        if (problem := _limits.why_not(workload, point, generates=True, shared_positions=True)) is not None:
            return problem
        model_type, has_steps = workload.config.get("model_type"), (point.new_tokens or 0) > 1
        if model_type in ONE_SEQUENCE and has_steps and point.batch_size > 1:
            return (
                f"batch size {point.batch_size}: transformers' {model_type} mixes the sequences of a batch in its "
                "decode steps, so that neither tokens nor times are the model's; take batch size 1"
            )
        return None

    def verified(self, model: Any) -> Mapping[str, Json]:
        return _recurrence.implementation(model)

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        _recurrence.quiet_fallback()
        return _recurrence.RecurrentGeneration(model, point, inputs)


PLUGIN = StateSpace()
