"""ONNX files that come with a model, in the layout that Hugging Face's optimum writes: read instead of exported.

    model.onnx                 one pass, or a decoder that takes and gives past keys and values
    decoder_model_merged.onnx  the older form of the second is not read: it chooses between two graphs inside

They are in the model's folder or in its folder `onnx`, with the files of their weights. Only float32 is read from them,
and only with pretrained weights, with which they must agree like any export.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.graph_contracts import Recipe
from benchmarking.core.records import Json, Precision, Workload
from benchmarking.graphs.bundle import Graph, State, Tensor
from benchmarking.graphs.export.files import check, tensors, weight_files

FILE = "model.onnx"
FOLDERS = ("", "onnx")
OPTIMUM = "optimum"
"""The exporter of such a bundle."""
PLANS = frozenset({"forward", "decoder", "picture-prompt"})
"""Export plans of which there may be such files."""
TOKENS, MASK, TYPES, POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"
PAST_INPUT = re.compile(r"past_key_values\.(\d+)\.(key|value)")
MAIN_OUTPUTS = ("logits", "last_hidden_state")


def given_file(workload: Workload, recipe: Recipe, precision: Precision) -> Path | None:
    """The model's own ONNX file, where it has one that is read."""
    if workload.path is None or workload.weights != "pretrained" or precision != "float32":
        return None
    if recipe.plan not in PLANS:
        return None
    paths = (Path(workload.path) / folder / FILE for folder in FOLDERS)
    return next((path for path in paths if path.is_file()), None)


def given_file_identity(path: Path) -> dict[str, Json]:
    """Name -> size and time of change of the file and of its weights' files, which tell it from another unread."""
    files = sorted(path.parent.glob(f"{path.name}*"))
    return {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in files}


def graphs_of(source: Path, recipe: Recipe, folder: Path, family_inputs: frozenset[str]) -> dict[str, Graph]:
    """The graph of a file, copied with its weights into the folder. Raises BenchhouseError for a file whose inputs are
    not those of the layout."""
    for path in (source, *weight_files(source)):
        shutil.copyfile(path, folder / path.relative_to(source.parent))
    check(folder / source.name)
    inputs, outputs = tensors(folder / source.name)
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
        states=tuple(_state(tensor, source) for tensor in inputs if PAST_INPUT.fullmatch(tensor.name)),
        result=result,
        result_name=result,
    )
    if is_decoder and not graph.states:
        raise BenchhouseError(f"{source} takes no past keys and values: move it away to export the model")
    return {"decode" if is_decoder else "model": graph}


def _source(name: str, family_inputs: frozenset[str], source: Path, *, is_decoder: bool) -> str | None:
    """The feed's source of an input; None for a state."""
    if is_decoder:
        known = {TOKENS: "tokens", MASK: "mask", POSITIONS: "positions"}
        if PAST_INPUT.fullmatch(name):
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
