"""A bundle: the graphs of one model and task, and the calls that are made of them.

By kind of bundle a call runs the graphs

forward          "model", once a call
decoder          "prefill" with the prompt, then "decode" with a token a sequence; "decode" alone where one graph does
                 both; "encoder" first where the prompt has an image
encoder-decoder  "encoder", then "cross" (from the encoder's output to the decoder's keys and values of it), then
                 "decode", first with the start tokens
denoiser         "model", once a step of the denoising loop
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarking.core.errors import BenchhouseError, StorageError, UnsupportedError
from benchmarking.core.model_contracts import BundleKind
from benchmarking.core.records import Json, Precision, Size, WeightsKind, Whole, dumps, from_json, to_json
from benchmarking.core.untrusted.input_files import read_json

MANIFEST = "bundle.json"
MAX_MANIFEST_BYTES = 16_000_000
FORMAT_VERSION = 1
STORED_AS: Mapping[Precision, tuple[str, ...]] = {
    "tf32": ("float32",),
    "int8": ("int8", "uint8"),
    "int4": ("int4", "uint4", "uint8"),
}
"""Types of the weights in the files of a precision, where they have other names. Four bits lie two in a byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input or output of a graph."""

    name: str
    dtype: str
    """numpy's name ("int64", "float32", "bool"), or "bfloat16"."""
    shape: tuple[int | str, ...]
    """A name is a free dimension; equal names are equal sizes within a graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A tensor that a graph passes from one call to the next: a layer's keys, a recurrent state."""

    input: str
    output: str
    first: tuple[int | str, ...]
    """Shape before the first call: "batch" is the batch size, 0 an axis that grows from nothing."""
    first_from: str | None = None
    """Output of the graph "prefill" that is the first value; None for zeros of the shape `first`."""

    def first_shape(self, batch_size: int) -> tuple[int, ...]:
        """The shape before the first call of a batch."""
        return tuple(batch_size if size == "batch" else int(size) for size in self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One ONNX file."""

    file: str
    """In the bundle's folder, as are the files of its weights."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    feeds: Mapping[str, str] = field(default_factory=dict)
    """Input name -> where its value comes from: "inputs.<name>" the family's input of that name, "ones.<name>" and
    "zeros.<name>" those in its shape, "tokens" the tokens so far unseen (batch x n), "mask" ones for all so far
    (batch x length), "positions" those of the unseen (batch x n), "encoder.<output>", "cross.<output>", "latents",
    "timestep". States are not in it."""
    states: tuple[State, ...] = ()
    result: str | None = None
    """The output that is the call's result (logits, hidden states, noise); None for a graph that only feeds another."""
    result_name: str | None = None
    """That output's name in `arrays` of the family's torch operation."""
    more_results: Mapping[str, str] = field(default_factory=dict)
    """Further results of a call, by their names in `arrays`."""

    def input(self, name: str) -> Tensor:
        """The input of that name."""
        return next(tensor for tensor in self.inputs if tensor.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file of an export, as it was written."""

    size_bytes: Size
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What a user's folder of an export has besides the graphs, so that the folder can be measured as a model: the
    model that they are of (its configuration is the folder's config.json), and what tells its files from others."""

    model_id: str
    """As it was exported: hub name, folder, or catalog name."""
    task: str
    format: Literal["onnx", "openvino"]
    """Of the graphs' files."""
    precision: Precision
    weights: WeightsKind
    seed: Whole = 0
    """Of random weights."""
    revision: str | None = None
    """That of the model's weights; None for random ones."""
    fixed_axes: Mapping[str, Json] = field(default_factory=dict)
    """Axes of a point whose values are constants in the graphs."""
    agreement: Mapping[str, Json] = field(default_factory=dict)
    """How far the files were from the torch model when they were written."""
    files: Mapping[str, ExportedFile] = field(default_factory=dict)
    """All files of the export but this manifest, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The content of `bundle.json`."""

    format_version: int = FORMAT_VERSION
    kind: BundleKind
    graphs: Mapping[str, Graph]
    exporter: str
    """What made the files: transformers.exporters, torch.onnx or optimum."""
    parameter_count: int | None = None
    weights_bytes: int | None = None
    """Bytes of the initializers that are loaded: those that several graphs hold count in each."""
    weight_dtypes: Mapping[str, int] = field(default_factory=dict)
    """dtype -> number of values of the initializers, read from the files."""
    start_tokens: tuple[int, ...] = ()
    """The first tokens of a decoder with an encoder."""
    prompt_input: str | None = None
    """The family's input that a decoder reads first ("input_ids"; a captioner's has the start tokens in its first
    columns). None for a decoder that begins with the start tokens alone."""
    encode_phase: str = "encode"
    """Name of the phase of the graph "encoder", as the family's torch operation marks it."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    exported: Exported | None = None
    """Of a user's folder; None in the build cache, where the build's key has this."""

    @property
    def generates(self) -> bool:
        """Whether a call generates tokens."""
        return self.kind not in ("forward", "denoiser")


def write_bundle(folder: Path, bundle: Bundle) -> None:
    """Write the manifest into the folder of the graphs' files."""
    content = to_json(bundle)
    if bundle.exported is None:
        del content["exported"]  # earlier versions read the build cache too
    (folder / MANIFEST).write_text(dumps(content), encoding="utf-8")


def read_bundle(folder: Path) -> Bundle:
    """The bundle in a folder. Raises BenchhouseError for a folder without one."""
    path = folder / MANIFEST
    try:
        return from_json(Bundle, read_json(path, MAX_MANIFEST_BYTES), str(path))
    except (StorageError, ValueError) as error:
        raise BenchhouseError(f"{path}: no bundle of graphs ({error})") from error


def bundle_facts(folder: Path, bundle: Bundle) -> dict[str, Json]:
    """What is in a bundle's files, for `verified`: the graphs, the types of the weights, and the bytes, weights
    included."""
    files = (file for file in folder.iterdir() if file.is_file() and file.suffix != ".json")
    return {
        "graphs": list[Json](bundle.graphs),
        "exporter": bundle.exporter,
        "parameter_dtypes": list[Json](sorted(bundle.weight_dtypes)),
        "parameters_by_dtype": dict(sorted(bundle.weight_dtypes.items())),
        "model_size_bytes": sum(file.stat().st_size for file in files),
    }


def check_weights(bundle: Bundle, precision: Precision) -> None:
    """Raise UnsupportedError for graphs whose weights are not in the requested precision."""
    counts = {name: count for name, count in sorted(bundle.weight_dtypes.items()) if count}
    wanted = STORED_AS.get(precision, (precision,))
    if not any("float" in name for name in counts) and precision == "float32":
        return  # a graph in a file may have no weights, or none but indices
    floats = {name: count for name, count in counts.items() if "float" in name}
    is_there = any(name in counts for name in wanted)
    is_most = precision in ("int8", "int4") or max(floats, key=lambda name: floats[name], default="") in wanted
    if not (is_there and is_most):
        held = ", ".join(f"{count} x {name}" for name, count in counts.items())
        raise UnsupportedError(f"asked for {precision}, but the graphs' weights are {held}")
