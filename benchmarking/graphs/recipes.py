"""What a model and task become as graphs: the kind of bundle, and which axes of a point are fixed in it.

Imports nothing heavy: the supervisor asks here whether a workload has graphs at all.

ONNX files that come with a model, in the layout that Hugging Face's optimum writes: read instead of exported anew.

    model.onnx                 one pass, or a decoder that takes and gives past keys and values
    decoder_model_merged.onnx  the older form of the second is not read: it chooses between two graphs inside

They lie in the model's folder or in its `onnx` folder, weights beside them. Only float32 is taken from them, and only
beside pretrained weights, which they must agree with like any export.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarking.core.records import Json, Point, Precision, Workload
from benchmarking.graphs.bundle import BundleKind

WRITERS = frozenset({"whisper"})

"""Speech models with a decoder; the others are one pass over the waveform."""

GRIDS = frozenset({"qwen2_vl", "qwen2_5_vl"})

"""Models whose pictures are grids of patches."""

IMAGE_SIZE, SEQUENCE_LENGTH = "image_size", "sequence_length"


TRANSFORMERS, TORCH = "transformers.exporters", "torch.onnx"

"""Exporters: the first knows how transformers' models must be traced, the second takes any torch module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a workload is exported."""

    kind: BundleKind
    fixed_axes: tuple[str, ...] = ()
    """Axes of a point whose value is built into the graphs, so that another value is another bundle. The batch size is
    never one of them."""
    exporter: str = TRANSFORMERS

    def signature(self, point: Point) -> dict[str, Json]:
        """What of a point the bundle depends on."""
        axes: dict[str, Json] = {SEQUENCE_LENGTH: point.sequence_length, **point.axes}
        return {name: axes[name] for name in self.fixed_axes if axes.get(name) is not None}


def recipe_of(workload: Workload) -> Recipe | str:
    """How a workload is exported, or why it cannot be."""
    if workload.source in ("module", "bench"):
        return f"graphs are exported from a model that has a configuration, not from a {workload.source}"
    model_type = str(workload.config.get("model_type"))
    if workload.family in RECIPES:
        return RECIPES[workload.family](workload, model_type)
    return f"family {workload.family} has no export to graphs"


def _forward(workload: Workload, model_type: str) -> Recipe | str:
    return Recipe(kind="forward")


def _vision(workload: Workload, model_type: str) -> Recipe | str:
    return Recipe(kind="forward", fixed_axes=(IMAGE_SIZE,))


def _decoder_only(workload: Workload, model_type: str) -> Recipe | str:
    return Recipe(kind="decoder" if workload.task == "text-generation" else "forward")


def _encoder_decoder(workload: Workload, model_type: str) -> Recipe | str:
    return Recipe(kind="encoder-decoder")


def _speech(workload: Workload, model_type: str) -> Recipe | str:
    return Recipe(kind="encoder-decoder" if model_type in WRITERS else "forward")


def _mixture_of_experts(workload: Workload, model_type: str) -> Recipe | str:
    if workload.task != "text-generation":
        return (
            f"{model_type} goes through the experts that its router chose one after the other, in a loop whose length "
            "depends on the data: it cannot be traced"
        )
    return Recipe(kind="decoder")


def _vision_text(workload: Workload, model_type: str) -> Recipe | str:
    return Recipe(kind="encoder-decoder" if workload.task == "image-to-text" else "forward", fixed_axes=(IMAGE_SIZE,))


def _state_space(workload: Workload, model_type: str) -> Recipe | str:
    if model_type == "rwkv":
        return "RWKV's state is written to in place, layer by layer, which neither exporter can turn into a graph"
    return Recipe(kind="decoder")


def _diffusion(workload: Workload, model_type: str) -> Recipe | str:
    return Recipe(kind="denoiser", fixed_axes=(IMAGE_SIZE,), exporter=TORCH)


def _multimodal(workload: Workload, model_type: str) -> Recipe | str:
    if model_type in GRIDS:
        return (
            f"{model_type}'s vision part takes patches of pictures of any shape, and its tokens have three positions "
            "each: neither is exported"
        )
    return Recipe(kind="forward" if workload.task == "feature-extraction" else "decoder", fixed_axes=(IMAGE_SIZE,))


def _rag(workload: Workload, model_type: str) -> Recipe | str:
    return (
        "retrieval-augmented generation is an encoder, a search over a corpus and a generator that mixes what several "
        "documents say: that call is not made of graphs"
    )


RECIPES = {
    "encoder-only": _forward,
    "vision": _vision,
    "decoder-only": _decoder_only,
    "diffusion": _diffusion,
    "encoder-decoder": _encoder_decoder,
    "speech": _speech,
    "mixture-of-experts": _mixture_of_experts,
    "multimodal": _multimodal,
    "rag": _rag,
    "state-space": _state_space,
    "vision-text": _vision_text,
}

"""By family."""


FILE = "model.onnx"

FOLDERS = ("", "onnx")

OPTIMUM = "optimum"

KINDS = frozenset({"forward", "decoder"})


def given_file(workload: Workload, recipe: Recipe, precision: Precision) -> Path | None:
    """The model's own ONNX file, where it has one that is read."""
    if workload.path is None or workload.weights != "pretrained" or precision != "float32":
        return None
    if recipe.kind not in KINDS or workload.family == "state-space":
        return None
    paths = (Path(workload.path) / folder / FILE for folder in FOLDERS)
    return next((path for path in paths if path.is_file()), None)


def given_file_identity(path: Path) -> dict[str, Json]:
    """What tells one file from another without reading it: name, size and time of change, of its weights too."""
    beside = sorted(path.parent.glob(f"{path.name}*"))
    return {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in beside}
