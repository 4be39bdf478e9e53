"""Workloads: one file an architecture family, found by listing this folder. Here is the contract they keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from benchmarking.records import Family, Json, Point, Readings, Scalar, Workload

if TYPE_CHECKING:
    import numpy as np

    from benchmarking.runtimes import Mark


class FamilyOperation(Protocol):
    """What a family makes of a torch model and a point: all of `runtimes.Operation` (see there) but the counting."""

    items_per_call: int
    tokens_per_call: int | None
    prompt_tokens_per_call: int | None
    new_tokens: int | None

    def reset(self) -> None: ...

    def run(self, mark: Mark) -> Any: ...

    def problem(self, output: Any) -> str | None: ...

    def readings(self, output: Any) -> Readings: ...

    def arrays(self, output: Any) -> dict[str, Any]:
        """What of the output is compared with other runtimes', as numpy arrays by name."""


class WorkloadPlugin(Protocol):
    """An architecture family. Importing the module imports no torch and no transformers."""

    name: Family
    model_types: frozenset[str]
    """The `model_type`s of transformers' configurations that belong to the family."""
    tasks: tuple[str, ...]
    """Hugging Face task names that can be run, the default first."""
    generative_tasks: frozenset[str]
    """Those of them that generate tokens, and so have the new-tokens axis."""
    caches: tuple[str, ...]
    """Kinds of cache of the tasks that generate, the default first ("dynamic", "static"). They make different cells."""

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        """The axes beside the batch size that every point of this workload has, with the values taken when none are
        asked for. Names: sequence_length, new_tokens, and those of `Point.axes`."""

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        """Longest input in tokens, with new tokens counted where they share its positions; None without a limit."""

    def default_attention(self, config: Mapping[str, Json]) -> str | None:
        """The attention implementation (transformers' name) the model is run with when none is named; None for a model
        that gives no choice of one."""

    def check(self, workload: Workload, point: Point) -> str | None:
        """None, or why this point cannot be on this model (too long, ...). Asked before anything runs."""

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """The inputs of a call, by the model's argument names, seeded and realistic (no all-zero ids, no padding)."""

    def model_class(self, workload: Workload) -> Any:
        """The torch class of the task's model, its module imported. Raises UnsupportedError when there is none."""

    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        """The task's torch model, made from the configuration in eval mode, its weights for the caller to fill.

        It is made where the caller's `torch.device` context says: on "meta" it costs nothing and has only shapes."""

    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        """The task's torch model in eval mode with the weights in `workload.path`, in host memory, and the names of
        parameters that the weights lack (a head), left for the caller to fill. Raises BenchhouseError for weights that
        are not this model's."""

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        """The call at a point on a loaded torch model (or a compiled wrapper of one), its inputs in place.

        `mode` is the cell's runtime mode: the kind of cache is in it."""


@runtime_checkable
class TellsImplementation(Protocol):
    """What a family has besides whose models choose their own code, which changes their speed."""

    def verified(self, model: Any) -> Mapping[str, Json]:
        """Which code a loaded torch model runs in (kernels or slow reference code, ...), read back from it."""


@runtime_checkable
class ChoosesTasks(Protocol):
    """What a family has besides when not every model of it has every task."""

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        """Those of the family's tasks that a model of this configuration has, the default first."""
