"""ONNX files that come with a model, in the layout that Hugging Face's optimum writes: read instead of exported anew.

    model.onnx                 one pass, or a decoder that takes and gives past keys and values
    decoder_model_merged.onnx  the older form of the second is not read: it chooses between two graphs inside

They lie in the model's folder or in its `onnx` folder, weights beside them. Only float32 is taken from them, and only
beside pretrained weights, which they must agree with like any export.
"""

from __future__ import annotations

from pathlib import Path

from benchmarking.graphs.recipes import Recipe
from benchmarking.records import Json, Precision, Workload

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


def identity(path: Path) -> dict[str, Json]:
    """What tells one file from another without reading it: name, size and time of change, of its weights too."""
    beside = sorted(path.parent.glob(f"{path.name}*"))
    return {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in beside}
