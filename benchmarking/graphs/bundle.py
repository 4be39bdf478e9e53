"""A bundle: the graphs of one model and task, and the calls made from them.

It is a build of kind "onnx": one or more ONNX files and the facts needed to run them. Making it needs torch; running it
does not, so a measurement of a graph runtime contains nothing of torch.

Graphs that a call runs, by kind of bundle:

forward          "model", once per call
decoder          "prefill" with the prompt, then "decode" with one token per sequence; only "decode" if one graph does
                 both; "encoder" first if the prompt has an image
encoder-decoder  "encoder", then "cross" (from the encoder's output to the decoder's keys and values), then "decode",
                 first with the start tokens
denoiser         "model", once per step of the denoising loop
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal

from benchmarking.core.errors import BenchhouseError, FormatError, StorageError, UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.model_contracts import BundleKind
from benchmarking.core.records import (
    Json,
    Precision,
    Size,
    WeightsKind,
    Whole,
    Workload,
    dumps,
    from_json,
    json_text,
    to_json,
)
from benchmarking.core.untrusted.input_files import parse_json, read_json

MANIFEST = "bundle.json"
MAX_MANIFEST_BYTES = 16_000_000
FORMAT_VERSION = 1
ORIGIN = "benchhouse.exported"
"""Key of `origin_text` in the metadata of a file itself: ONNX's and GGUF's, and OpenVINO's rt_info under "framework",
where its converters put the metadata of an ONNX file."""
MAX_ORIGIN_CHARACTERS = 10_000
EXPORTED_FROM = "exported_from"
"""Key of the same facts in the description of such a file."""
STORED_AS: Mapping[Precision, tuple[str, ...]] = {
    "tf32": ("float32",),
    "int8": ("int8", "uint8"),
    "int4": ("int4", "uint4", "uint8"),
}
"""Weight types in the files of a precision, if their names differ. Four-bit values are packed two per byte."""
WEIGHT_NAMES: Mapping[str, str] = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
    "i8": "int8",
    "u8": "uint8",
    "i4": "int4",
    "u4": "uint4",
}
"""This project's names for OpenVINO's element types of weights, scales and zero points. Indices and shapes are int64
and int32."""
QUANTIZED_TYPES = ("int4", "uint4", "int8", "uint8")
"""Types of quantized weights, the narrowest first."""
MIN_QUANTIZED_SHARE = 0.1
"""Share of a file's weights from which a quantized type is its precision: embeddings and scales may stay wider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input or output of a graph."""

    name: str
    dtype: str
    """numpy's name ("int64", "float32", "bool"), or "bfloat16"."""
    shape: tuple[int | str, ...]
    """A name is a free dimension; equal names mean equal sizes within a graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A tensor that a graph passes from one call to the next: a layer's keys, a recurrent state."""

    input: str
    output: str
    first: tuple[int | str, ...]
    """Shape before the first call: "batch" is the batch size, 0 an axis that starts empty and grows."""
    first_from: str | None = None
    """Output of the graph "prefill" with the first value; None for zeros of shape `first`."""

    def first_shape(self, batch_size: int) -> tuple[int, ...]:
        """The shape before the first call with a batch."""
        return tuple(batch_size if size == "batch" else int(size) for size in self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One ONNX file."""

    file: str
    """File name in the bundle's folder, which also holds the files of its weights."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    feeds: Mapping[str, str] = field(default_factory=dict)
    """Source of each input's value, by input name: "inputs.<name>" is the family's input with that name, "ones.<name>"
    and "zeros.<name>" are ones and zeros in its shape, "tokens" the new tokens (batch x n), "mask" ones for all tokens
    so far (batch x length), "positions" those of the new tokens (batch x n), and there are "encoder.<output>",
    "cross.<output>", "latents" and "timestep". States are not included."""
    states: tuple[State, ...] = ()
    result: str | None = None
    """The output with the call's result (logits, hidden states, noise); None for a graph that only feeds another."""
    result_name: str | None = None
    """That output's name in `arrays` of the family's torch operation."""
    more_results: Mapping[str, str] = field(default_factory=dict)
    """Other results of a call, by their names in `arrays`."""

    def input(self, name: str) -> Tensor:
        return next(tensor for tensor in self.inputs if tensor.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    size_bytes: Size
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What makes a user's export folder measurable as a model: the model of the graphs (its configuration is the
    folder's config.json), and the identity of its files."""

    model_id: str
    """Model id at the time of export: hub name, folder, or catalog name."""
    task: str
    format: Literal["onnx", "openvino"]
    """Format of the graph files."""
    precision: Precision
    weights: WeightsKind
    seed: Whole = 0
    """Seed of random weights."""
    revision: str | None = None
    """Revision of the model's weights; None for random ones."""
    fixed_axes: Mapping[str, Json] = field(default_factory=dict)
    """Axis values of a point that are constants in the graphs."""
    agreement: Mapping[str, Json] = field(default_factory=dict)
    """Differences between the files and the torch model at the time of export."""
    files: Mapping[str, ExportedFile] = field(default_factory=dict)
    """All files of the export but this manifest, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The content of `bundle.json`."""

    format_version: int = FORMAT_VERSION
    kind: BundleKind
    graphs: Mapping[str, Graph]
    exporter: str
    """The exporter: transformers.exporters, torch.onnx or optimum."""
    parameter_count: int | None = None
    weights_bytes: int | None = None
    """Bytes of the loaded initializers; those in several graphs count once per graph."""
    weight_dtypes: Mapping[str, int] = field(default_factory=dict)
    """Number of initializer values by dtype, read from the files."""
    start_tokens: tuple[int, ...] = ()
    """The first tokens of a decoder with an encoder."""
    prompt_input: str | None = None
    """The family's input that a decoder reads first ("input_ids"; for a captioner its first columns are the start
    tokens). None for a decoder that begins with only the start tokens."""
    encode_phase: str = "encode"
    """Phase name of the graph "encoder", as marked by the family's torch operation."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    exported: Exported | None = None
    """Set in a user's folder; None in the build cache, where the build's key has these facts."""

    @property
    def generates(self) -> bool:
        return self.kind not in ("forward", "denoiser")

    @property
    def forward_graph(self) -> Graph | None:
        """The only graph of a bundle that is one pass; None for a loop of passes, which no few lines run."""
        return next(iter(self.graphs.values())) if self.kind == "forward" else None


def write_bundle(folder: Path, bundle: Bundle) -> None:
    """Write the manifest into the folder with the graph files."""
    content = to_json(bundle)
    if bundle.exported is None:
        del content["exported"]  # earlier versions read the build cache too
    (folder / MANIFEST).write_text(dumps(content), encoding="utf-8")


def read_bundle(folder: Path) -> Bundle:
    """The bundle in a folder. Raises BenchhouseError if there is none."""
    path = folder / MANIFEST
    try:
        return from_json(Bundle, read_json(path, MAX_MANIFEST_BYTES), str(path))
    except (StorageError, ValueError) as error:
        raise BenchhouseError(f"{path} is not a valid bundle of graphs ({error})") from error


def origin_text(workload: Workload) -> str:
    """What a file made from a model says about it, wherever the file goes: bundle.json stays in its folder."""
    return json_text({name: getattr(workload, name) for name in ("model_id", "task", "weights", "seed", "revision")})


def origin_of(stated: object) -> dict[str, Json]:
    """The part of a file's description with the origin that its metadata state; empty if they state none, or nothing
    usable about the weights."""
    try:
        is_text = isinstance(stated, str) and len(stated) <= MAX_ORIGIN_CHARACTERS
        facts = parse_json(str(stated).encode(), ORIGIN) if is_text else None
    except (FormatError, UnicodeEncodeError):
        return {}
    if not isinstance(facts, dict) or facts.get("weights") not in ("pretrained", "random"):
        return {}
    return {EXPORTED_FROM: {name: value for name, value in facts.items() if isinstance(value, str | int | None)}}


def weights_of(description: Mapping[str, Json]) -> WeightsKind:
    """The kind of weights of a described file: as it states, else that of a user's file."""
    match description.get(EXPORTED_FROM):
        case {"weights": "random"}:
            return "random"
        case {"weights": "pretrained"}:
            return "pretrained"
    return "given"


def bundle_facts(folder: Path, bundle: Bundle) -> dict[str, Json]:
    """The contents of a bundle's files, for `verified`: graphs, weight types, and bytes including weights."""
    files = (file for file in folder.iterdir() if file.is_file() and file.suffix != ".json")
    return {
        "graphs": list[Json](bundle.graphs),
        "exporter": bundle.exporter,
        "parameter_dtypes": list[Json](sorted(bundle.weight_dtypes)),
        "parameters_by_dtype": dict(sorted(bundle.weight_dtypes.items())),
        "model_size_bytes": sum(file.stat().st_size for file in files),
    }


def weights_precision(counts: Mapping[str, int]) -> str | None:
    """The precision of weights with these numbers of values by type: the narrowest quantized type that holds at least
    a tenth of them, else the most frequent type; None without weights."""
    weights = {name: count for name, count in counts.items() if count and ("float" in name or name in QUANTIZED_TYPES)}
    total = sum(weights.values())
    for name in QUANTIZED_TYPES:
        if total and weights.get(name, 0) >= MIN_QUANTIZED_SHARE * total:
            return name.removeprefix("u")
    return max(weights, key=lambda name: weights[name], default=None)


def check_weights(bundle: Bundle, precision: Precision) -> None:
    """Raise UnsupportedError if the graphs' weights are not in the requested precision."""
    stored_precision = weights_precision(bundle.weight_dtypes)
    is_quantized = stored_precision in QUANTIZED_TYPES and precision not in ("int8", "int4")
    counts = {name: count for name, count in sorted(bundle.weight_dtypes.items()) if count}
    expected = STORED_AS.get(precision, (precision,))
    if not any("float" in name for name in counts) and precision == "float32":
        return  # a graph file may have no weights, or only indices
    floats = {name: count for name, count in counts.items() if "float" in name}
    has_expected = any(name in counts for name in expected)
    is_main_type = precision in ("int8", "int4") or max(floats, key=lambda name: floats[name], default="") in expected
    if is_quantized or not (has_expected and is_main_type):
        stored = ", ".join(f"{count} x {name}" for name, count in counts.items())
        raise UnsupportedError(f"requested {precision}, but the graphs' weights are {stored}")
