"""A bundle: the graphs of one model and task, and how they belong together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Json, dumps, from_json

MANIFEST = "bundle.json"
FORMAT_VERSION = 1

BundleKind = Literal["forward", "decoder", "encoder-decoder", "denoiser"]
"""What calls are made of the graphs:

forward          "model", once a call
decoder          "prefill" takes the prompt, "decode" a token a sequence; where both are one graph, it is "decode"
                 alone; "encoder" comes first where there is something beside the prompt to look at
encoder-decoder  "encoder", then "cross" (from the encoder's output to what the decoder keeps of it), then "decode",
                 which takes in the start tokens first
denoiser         "model", once a step of the denoising loop
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input or output of a graph."""

    name: str
    dtype: str
    """numpy's name: "int64", "float32", "bool"; "bfloat16" by its own."""
    shape: tuple[int | str, ...]
    """A name stands for a dimension that is free; equal names are equal sizes within a graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A tensor that a graph hands from one call to the next: a layer's keys, a recurrent state."""

    input: str
    output: str
    first: tuple[int | str, ...]
    """Shape before the first call: "batch" stands for the batch size, 0 for what grows from nothing."""
    first_from: str | None = None
    """Output of the graph "prefill" that the first value is; None for zeros of the shape `first`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One ONNX file."""

    file: str
    """In the bundle's folder; its weights may lie beside it."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    feeds: Mapping[str, str] = field(default_factory=dict)
    """Input name -> where its value comes from: "inputs.<name>" the family's input of that name, "ones.<name>" and
    "zeros.<name>" those in its shape, "tokens" the tokens so far unseen (batch x n), "mask" ones for all so far
    (batch x length), "positions" those of the unseen (batch x n), "encoder.<output>", "cross.<output>", "latents",
    "timestep". States are not in it."""
    states: tuple[State, ...] = ()
    result: str | None = None
    """The output that the call is about (logits, hidden states, noise), None for a graph that only feeds another."""
    result_name: str | None = None
    """What the family's torch operation calls that output in `arrays`."""
    more_results: Mapping[str, str] = field(default_factory=dict)
    """Further outputs that a call is about, by their names in `arrays`."""

    def input(self, name: str) -> Tensor:
        """The input of a name."""
        return next(tensor for tensor in self.inputs if tensor.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The content of `bundle.json`."""

    format_version: int = FORMAT_VERSION
    kind: BundleKind
    graphs: Mapping[str, Graph]
    exporter: str
    """transformers.exporters, torch.onnx or optimum: what made the files."""
    parameter_count: int | None = None
    weights_bytes: int | None = None
    """Of the graphs' initializers, those that several graphs hold counted in each: what is loaded."""
    weight_dtypes: Mapping[str, int] = field(default_factory=dict)
    """dtype of the initializers -> how many values are of it, read from the files."""
    start_tokens: tuple[int, ...] = ()
    """What an encoder-decoder's decoder begins with."""
    prompt_input: str | None = None
    """The family's input that a decoder takes in first: "input_ids" of a decoder-only model; of a captioner too, with
    the start tokens in its first columns. None where a decoder begins with the start tokens alone."""
    encode_phase: str = "encode"
    """What the phase of the graph "encoder" is called, as the family's torch operation marks it."""
    facts: Mapping[str, Json] = field(default_factory=dict)


def write_bundle(folder: Path, bundle: Bundle) -> None:
    """Put the manifest into the folder that has the graphs' files."""
    (folder / MANIFEST).write_text(dumps(bundle), encoding="utf-8")


def read_bundle(folder: Path) -> Bundle:
    """The bundle in a folder. Raises BenchhouseError for a folder without one."""
    path = folder / MANIFEST
    try:
        return from_json(Bundle, json.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, ValueError) as error:
        raise BenchhouseError(f"{path}: no bundle of graphs ({error})") from error
