"""Workloads: one file an architecture family, found by listing this folder. Here is the contract they keep, with
the ordinary case as the default of what most of them need not say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.records import Family, Json, Point, Readings, Scalar, Workload

if TYPE_CHECKING:
    import numpy as np

    from benchmarking.runtimes import Mark

Modality = Literal["text", "image", "audio"]
"""A kind of input that a tokenizer or processor makes."""


class FamilyOperation(ABC):
    """What a family makes of a torch model and a point: what `runtimes.Operation` (see there) times, and no more."""

    items_per_call: int
    tokens_per_call: int | None = None
    prompt_tokens_per_call: int | None = None
    new_tokens: int | None = None

    def reset(self) -> None:  # noqa: B027 - most calls keep nothing
        """Bring back the state before a call; nothing, where a call keeps none."""

    @abstractmethod
    def run(self, mark: Mark) -> Any:
        """The timed call."""

    @abstractmethod
    def problem(self, output: Any) -> str | None:
        """What is wrong with an output, or None."""

    def readings(self, output: Any) -> Readings:
        """Further numbers of a call; by default it has none besides its times."""
        return Readings()

    @abstractmethod
    def arrays(self, output: Any) -> dict[str, Any]:
        """What of the output is compared with other runtimes', as numpy arrays by name."""


class WorkloadFamily(ABC):
    """An architecture family. Importing the module imports no torch and no transformers."""

    name: Family
    model_types: frozenset[str]
    """The `model_type`s of transformers' configurations that belong to the family."""
    tasks: tuple[str, ...]
    """Hugging Face task names that can be run, the default first."""
    generative_tasks: frozenset[str] = frozenset()
    """Those of them that generate tokens, and so have the new-tokens axis."""
    caches: tuple[str, ...] = ()
    """Kinds of cache of the tasks that generate, the default first ("dynamic", "static"). They make different cells."""

    modalities: tuple[Modality, ...] = ()
    """What goes into the models, and so the processors they may have; none where nothing is processed (latents)."""
    has_attention_cache: bool = True
    """Whether its heads are attention heads, whose keys and values grow with the text."""
    unit: str = "samples"
    """What `items_per_call` counts, in words."""

    @abstractmethod
    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        """The axes beside the batch size that every point of this workload has, with the values taken when none are
        asked for. Names: sequence_length, new_tokens, and those of `Point.axes`."""

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        """Longest input in tokens, with new tokens counted where they share its positions; None without a limit."""
        return None

    def default_attention(self, config: Mapping[str, Json]) -> str | None:
        """The attention implementation (transformers' name) the model is run with when none is named; None for a model
        that gives no choice of one."""
        return None

    @abstractmethod
    def check(self, workload: Workload, point: Point) -> str | None:
        """None, or why this point cannot be on this model (too long, ...). Called before anything runs."""

    @abstractmethod
    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """The inputs of a call, by the model's argument names, seeded and realistic (no all-zero ids, no padding)."""

    @abstractmethod
    def model_class(self, workload: Workload) -> Any:
        """The torch class of the task's model, its module imported. Raises UnsupportedError when there is none."""

    @abstractmethod
    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        """The task's torch model, made from the configuration in eval mode, its weights for the caller to fill.

        It is made where the caller's `torch.device` context says: on "meta" it costs nothing and has only shapes."""

    @abstractmethod
    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        """The task's torch model in eval mode with the weights in `workload.path`, in host memory, and the names of
        parameters that the weights lack (a head), left for the caller to fill. Raises BenchhouseError for weights that
        are not this model's."""

    @abstractmethod
    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        """The call at a point on a loaded torch model (or a compiled wrapper of one), its inputs in place.

        `mode` is the cell's runtime mode: the kind of cache is in it."""

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        """Those of the family's tasks that a model of this configuration has, the default first."""
        return self.tasks

    def why_not_architecture(self, config: Mapping[str, Json], architectures: Sequence[str]) -> str | None:
        """None, or why a model type of the family is used against it: what follows the model's name in a sentence."""
        return None

    def verified(self, model: Any) -> Mapping[str, Json]:
        """Which code a loaded torch model runs in (kernels or slow reference code, ...), read back from it, where
        models of the family choose it themselves, which changes their speed."""
        return {}
