"""Graphs from an ONNX file of optimum's: which of its inputs is fed with what."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from benchmarking.errors import BenchhouseError
from benchmarking.graphs.bundle import Graph, State, Tensor
from benchmarking.graphs.export import files
from benchmarking.graphs.recipes import Recipe

PAST = re.compile(r"past_key_values\.(\d+)\.(key|value)")
TOKENS, MASK, TYPES, POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"
MAIN_OUTPUTS = ("logits", "last_hidden_state")


def graphs_of(source: Path, recipe: Recipe, folder: Path, family_inputs: frozenset[str]) -> dict[str, Graph]:
    """Copy the file and its weights into the folder, and say how it is called. Raises BenchhouseError for a file whose
    inputs are not those of the layout."""
    for path in (source, *files.weight_files(source)):
        shutil.copyfile(path, folder / path.relative_to(source.parent))
    files.check(folder / source.name)
    inputs, outputs = files.tensors(folder / source.name)
    is_decoder = recipe.kind == "decoder"
    feeds = {tensor.name: _source(tensor.name, family_inputs, source, is_decoder=is_decoder) for tensor in inputs}
    result = next((name for name in MAIN_OUTPUTS if name in {tensor.name for tensor in outputs}), None)
    if result is None:
        raise BenchhouseError(f"{source} gives none of {', '.join(MAIN_OUTPUTS)}: move it away to export the model")
    graph = Graph(
        file=source.name,
        inputs=inputs,
        outputs=outputs,
        feeds={name: feed for name, feed in feeds.items() if feed is not None},
        states=tuple(_state(tensor, source) for tensor in inputs if PAST.fullmatch(tensor.name)),
        result=result,
        result_name=result,
    )
    if is_decoder and not graph.states:
        raise BenchhouseError(f"{source} takes no past keys and values: move it away to export the model")
    return {"decode" if is_decoder else "model": graph}


def _source(name: str, family_inputs: frozenset[str], source: Path, *, is_decoder: bool) -> str | None:
    """Where an input's value comes from; None for a state."""
    if is_decoder:
        known = {TOKENS: "tokens", MASK: "mask", POSITIONS: "positions"}
        if PAST.fullmatch(name):
            return None
    else:
        known = {MASK: f"ones.{TOKENS}", TYPES: f"zeros.{TOKENS}"}
        known |= {one: f"inputs.{one}" for one in family_inputs}
    if name not in known:
        raise BenchhouseError(f"{source} takes an input {name!r}, which is not known: move it away to export the model")
    return known[name]


def _state(tensor: Tensor, source: Path) -> State:
    heads, width = tensor.shape[1], tensor.shape[3]
    if isinstance(heads, str) or isinstance(width, str):
        raise BenchhouseError(f"{source} does not say how large {tensor.name} is: move it away to export the model")
    return State(
        input=tensor.name,
        output=tensor.name.replace("past_key_values", "present", 1),
        first=("batch", heads, 0, width),
    )
