"""The contracts of architecture families, and of exported graphs and the runtimes that run them.

A module in `benchmarking/workloads/` has a `PLUGIN` of type WorkloadFamily. Default methods describe the ordinary case,
so a family overrides only what differs. `check` and `why_not_architecture` return None when all is well, else the
reason in words. `contracts` has the calls that a family makes.

A family's `Recipe` tells `benchmarking/graphs/` how to export its models; a runtime gives a `GraphRunner` that loads
the exported graphs and runs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.records import Family, Json, Point, Readings, Scalar, Workload

ExportPlan = Literal["forward", "decoder", "recurrent", "picture-prompt", "sequence-to-sequence", "caption", "denoiser"]
"""How a model is split into graphs; `graphs/export/` has a function for each."""

BundleKind = Literal["forward", "decoder", "encoder-decoder", "denoiser"]
"""How the graphs are called; see `graphs/bundle.py`."""

BUNDLE_KINDS: Mapping[ExportPlan, BundleKind] = {
    "forward": "forward",
    "decoder": "decoder",
    "recurrent": "decoder",
    "picture-prompt": "decoder",
    "sequence-to-sequence": "encoder-decoder",
    "caption": "encoder-decoder",
    "denoiser": "denoiser",
}

ONE_GRAPH: tuple[ExportPlan, ...] = ("forward", "decoder", "denoiser")
"""Plans with a single graph."""

TRANSFORMERS_EXPORTER, TORCH_EXPORTER = "transformers.exporters", "torch.onnx"
"""The first can trace transformers models, the second exports any torch module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a workload is exported to graphs."""

    plan: ExportPlan
    fixed_axes: tuple[str, ...] = ()
    """Names in `Point.axes` whose values are constants in the graphs; other values need another export."""
    exporter: str = TRANSFORMERS_EXPORTER
    start_tokens: tuple[int, ...] = ()
    """First tokens of the decoder of an encoder-decoder model; empty for the start token in its configuration."""
    block_size: int = 0
    """Positions that the model computes together; 0 for a model without blocks."""
    shortest_prompt: int | None = None
    """A short prompt that takes another path through the model, at which the graphs are also compared with torch."""
    torch_facts: tuple[str, ...] = ()
    """Readings of the torch operation that graphs cannot give, stored in the bundle's facts."""
    is_of_one_point: bool = False
    """Whether graphs are exported at the shapes of one point each, for a family whose inputs have no others."""

    @property
    def kind(self) -> BundleKind:
        """How the graphs are called."""
        return BUNDLE_KINDS[self.plan]

    def signature(self, point: Point) -> dict[str, Json]:
        """The values of a point that the export depends on."""
        if self.is_of_one_point:
            return {"point": point.label}
        return {name: point.axes[name] for name in self.fixed_axes if point.axes.get(name) is not None}


Placed = Any
"""A tensor where the runtime needs it: an OrtValue on the device, an openvino.Tensor, a numpy array."""
States = Any
"""The state that a graph passes from call to call; a runtime may keep it internally (OpenVINO's stateful models)."""


class GraphRunner(ABC):
    """The exported graphs of one model, loaded in one runtime.

    Its calls are part of the timed region and do nothing beyond their task.
    """

    @abstractmethod
    def place(self, array: np.ndarray) -> Placed:
        """Put an array where the graphs read it; the copy stays valid and unchanged while its operation uses it.

        Timed only for the tokens of a generation that are chosen on the host, and the latents of a denoising step.
        """

    @abstractmethod
    def fetch(self, tensor: Placed) -> np.ndarray:
        """A tensor on the host, after waiting for the device. May be the runner's own buffer, valid until the graph's
        next call."""

    def keep(self, logits: Placed) -> Placed:
        """Logits of at least the last position that later calls leave as they are now. By default a copy, for runners
        that hand out their buffers."""
        return self.place(self.fetch(logits)[:, -1:].copy())

    def next_tokens(self, logits: Placed) -> Placed:
        """The first of the most likely tokens at the last position (batch x positions x vocabulary -> batch x 1,
        int64), where the graphs read it. By default chosen on the host, which the logits are copied to.

        Timed for every token of a generation.
        """
        return self.place(self.fetch(logits)[:, -1:].argmax(axis=-1))

    @abstractmethod
    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        """Run a stateless graph; its outputs by name."""

    @abstractmethod
    def begin(self, graph: str, batch_size: int, first: Mapping[str, Placed]) -> States:
        """Fresh states of a graph. `first` maps the inputs of states that another graph's outputs initialize; all
        other states are zero or empty."""

    @abstractmethod
    def step(self, graph: str, feeds: Mapping[str, Placed], states: States) -> tuple[Mapping[str, Placed], States]:
        """Run a stateful graph: its outputs without the states, and the new states."""

    def verified(self) -> Mapping[str, Json]:
        """What the calls really ran on, read back afterwards; empty when the runtime does not report it."""
        return {}


Modality = Literal["text", "image", "audio"]
"""A kind of input that a tokenizer or processor makes."""
QualityKind = Literal["text", "embeddings", "labels", "tokens", "latents"]
"""What the quality of a task is measured on: the probabilities of the tokens of a text; or what a call returns, as in
`measure.quality_measures`."""


class WorkloadFamily(ABC):
    """An architecture family. Importing the module imports neither torch nor transformers."""

    name: Family
    rank: int = 100
    """Its place in tables and charts; families of equal rank go by name."""
    catalog: tuple[Mapping[str, Json], ...] = ()
    """Models of the catalog besides those in the family's file in the folder catalog, in the same format. Those not on
    the hub ("hub": False) are tiny, for tests and the support table."""
    model_types: frozenset[str]
    """The `model_type`s of transformers' configurations that belong to the family."""
    caches: tuple[str, ...] = ()
    """Kinds of KV cache for generation ("dynamic", "static"), the default first. Each is a separate series."""
    modalities: tuple[Modality, ...] = ()
    """The models' inputs, and so the processors they may have; empty when nothing is preprocessed (latents)."""
    unsupported_model_types: frozenset[str] = frozenset()
    """Well-known unsupported `model_type`s of the family, for the error message."""
    has_routed_experts: bool = False
    """Whether a router sends each token to a few experts, a choice that rounding can change."""
    has_attention_cache: bool = True
    """Whether its models have a key-value cache that grows with the text."""
    can_split_batch: bool = True
    """Whether the rows of a batch are independent, so that it can be split over several devices."""
    unit: str = "samples"
    """The unit of `items_per_call`."""
    quality: Mapping[str, QualityKind] = {}
    """Task -> what its quality is measured on; the default task first."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The supported Hugging Face tasks, the default first."""
        return tuple(self.quality)

    @property
    def generative_tasks(self) -> frozenset[str]:
        """The tasks that generate tokens, and so have the axis new_tokens."""
        return frozenset(task for task, kind in self.quality.items() if kind in ("text", "tokens"))

    @abstractmethod
    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        """The axes of every point of this workload other than batch_size, with their default values.

        Names: sequence_length, new_tokens and those of `Point.axes`.
        """

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        """The longest input in tokens, including new tokens where they share its positions; None without a limit."""
        return None

    def only_batch_size(self, workload: Workload) -> int | None:
        """The batch size that the workload is limited to; None for any."""
        return None

    def default_attention(self, config: Mapping[str, Json]) -> str | None:
        """The default attention implementation, by transformers' name; None when the model offers no choice."""
        return None

    @abstractmethod
    def check(self, workload: Workload, point: Point) -> str | None:
        """None, or why this model cannot run at this point (too long, ...). Called before anything runs."""

    @abstractmethod
    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """The inputs of a call by the model's argument names: seeded and realistic (no all-zero ids, no padding)."""

    @abstractmethod
    def model_class(self, workload: Workload) -> Any:
        """The torch class for the task, imported. Raises UnsupportedError when there is none."""

    @abstractmethod
    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        """The torch model for the task from the configuration alone, in eval mode; the caller fills the weights.

        It is built on the device of the caller's `torch.device` context; on "meta" it costs nothing and has only
        shapes.
        """

    @abstractmethod
    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        """The torch model for the task with the weights in `workload.path`, in eval mode and host memory; and the names
        of parameters that the weights lack (a head), for the caller to fill.

        Raises BenchhouseError for weights of another model.
        """

    def load_quantized(
        self, workload: Workload, *, dtype: Any, attention: str | None, device: str | None
    ) -> tuple[Any, tuple[str, ...]]:
        """As `load`, for a checkpoint whose weights are quantized; on `device` if that is given, since their layout
        depends on it. Raises UnsupportedError for a family that has no such checkpoints."""
        raise UnsupportedError(f"{workload.model_id} is quantized, which family {self.name} does not support")

    @abstractmethod
    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        """The call at a point on a loaded torch model (or a compiled wrapper of it), its inputs in place.

        `mode` holds the cell's runtime settings, the kind of cache among them.
        """

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        """The family's tasks that a model of this configuration supports, the default first."""
        return self.tasks

    def why_not_architecture(self, config: Mapping[str, Json], architectures: Sequence[str]) -> str | None:
        """None, or why a model of a known `model_type` is not one of the family: the end of a sentence that begins with
        the model's name."""
        return None

    def recipe(self, workload: Workload) -> Recipe | str:
        """How a model of the family is exported to graphs, or why it cannot be."""
        return f"family {self.name} has no export to graphs"

    def quality_kind(self, workload: Workload) -> QualityKind | None:
        """What the workload's quality is measured on; None if it is not measured."""
        return self.quality.get(workload.task)

    counts_image_tokens: bool = False
    """Whether the sequence length includes the positions of images."""

    def image_tokens(self, workload: Workload, point: Point) -> int:
        """Number of prompt positions that an image occupies."""
        return 0

    def graph_readings(self, workload: Workload, point: Point, facts: Mapping[str, Json]) -> Readings:
        """The equivalent of `FamilyOperation.readings` for a call of exported graphs, from their bundle's facts."""
        return Readings()

    def outputs(self, output: Any) -> Mapping[str, Any]:
        """The values in the output of one pass by name, for its export; by default the fields of a ModelOutput."""
        return dict(output.items())

    def rewrite(self, workload: Workload, graph: Path) -> None:  # noqa: B027 - most are used as they were exported
        """Rewrite the ONNX file of an exported graph in place, before it is checked."""

    def verified(self, model: Any) -> Mapping[str, Json]:
        """Which code a loaded torch model runs (optimized kernels or slow reference code), read back from it; empty
        when models of the family have no such choice."""
        return {}
