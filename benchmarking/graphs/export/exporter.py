"""The bundle of a workload's torch model: exported, or read from the ONNX file that comes with it, then checked.

Each export plan has its function: it gives the graphs to trace, which are then written one by one.

A file that comes with a model is in the layout that Hugging Face's optimum writes, in the model's folder or in its
folder `onnx`, with the files of its weights: `model.onnx`, one pass, or a decoder that takes and gives past keys and
values. The older form of the second, `decoder_model_merged.onnx`, is not read: it chooses between two graphs inside.
Only float32 is read from such a file, and only with pretrained weights, with which it must agree like any export.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.graph_contracts import ExportPlan, Recipe
from benchmarking.core.records import Json, Point, Precision, Workload
from benchmarking.graphs.bundle import Bundle, Graph, State, Tensor, write_bundle
from benchmarking.graphs.export import files
from benchmarking.workloads.support.families import plugin_of, recipe_of

if TYPE_CHECKING:
    from benchmarking.graphs.export.plans import Plan, Traced

GIVEN_FILE = "model.onnx"
GIVEN_FOLDERS = ("", "onnx")
OPTIMUM = "optimum"
"""The exporter of a bundle that was read from the model's own file."""
GIVEN_PLANS = frozenset({"forward", "decoder", "picture-prompt"})
"""Export plans of which there may be such files."""
TOKENS, MASK, TYPES, POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"
PAST_INPUT = re.compile(r"past_key_values\.(\d+)\.(key|value)")
MAIN_OUTPUTS = ("logits", "last_hidden_state")


def export_bundle(
    workload: Workload, point: Point, folder: Path, *, precision: Precision, opset: int
) -> dict[str, Json]:
    """Fill an empty folder with the bundle of a workload whose fixed axes are a point's: the facts of its build.

    The graphs are checked, and compared with the torch model at shapes that they were not traced at. Raises
    UnsupportedError for a workload without graphs, BenchhouseError when the export fails or the outputs differ."""
    from benchmarking.graphs.export.agreement import check_agreement
    from benchmarking.runtimes.support.torch.model_loading import load_model, parameter_count

    recipe = recipe_of(workload)
    assert isinstance(recipe, Recipe), recipe  # the build's key was made from it
    attention = plugin_of(workload).default_attention(workload.config)
    model, _ = load_model(workload, precision, attention)
    model.requires_grad_(False)
    bundle = _given(workload, recipe, point, folder, precision)
    if bundle is None:
        bundle = _made(_plan(recipe, model, workload, point), recipe, folder, opset)
    facts = {**bundle.facts, **_torch_facts(model, workload, point, recipe)}
    bundle = dataclasses.replace(bundle, parameter_count=parameter_count(model), facts=facts)
    write_bundle(folder, bundle)
    agreement = check_agreement(model, workload, bundle, folder, point, recipe, precision)
    return {**summary(bundle), "opset": opset, "agreement": agreement}


def summary(bundle: Bundle) -> dict[str, Json]:
    """The facts of a bundle that go into its build's."""
    return {
        "exporter": bundle.exporter,
        "bundle_kind": bundle.kind,
        "graphs": list(bundle.graphs),
        "parameter_count": bundle.parameter_count,
        "weights_bytes": bundle.weights_bytes,
        "weight_dtypes": dict(bundle.weight_dtypes),
    }


def _plan(recipe: Recipe, model: Any, workload: Workload, point: Point) -> Plan:
    from benchmarking.graphs.export import encoder_decoder, plans, recurrent

    functions: dict[ExportPlan, Callable[[Any, Workload, Recipe, Point], Plan]] = {
        "forward": plans.forward_plan,
        "decoder": plans.decoder_plan,
        "recurrent": recurrent.plan,
        "picture-prompt": plans.picture_prompt_plan,
        "sequence-to-sequence": encoder_decoder.plan,
        "caption": encoder_decoder.caption_plan,
        "denoiser": plans.denoiser_plan,
    }
    return functions[recipe.plan](model, workload, recipe, point)


def _torch_facts(model: Any, workload: Workload, point: Point, recipe: Recipe) -> dict[str, Json]:
    """The readings of the torch operation that the recipe names, found in a call of the traced size."""
    if not recipe.torch_facts:
        return {}
    import torch

    from benchmarking.graphs.export.agreement import traced_point
    from benchmarking.graphs.export.plans import family_inputs

    where = traced_point(workload, point, recipe)
    inputs = family_inputs(model, workload, where)
    with torch.no_grad():
        readings = plugin_of(workload).torch_operation(model, workload, where, inputs, {}).readings(None)
    return {name: value for name, value in readings.values.items() if name in recipe.torch_facts}


def _written(traced: Traced, name: str, folder: Path, exporter: str, opset: int) -> Graph:
    path = folder / f"{name}.onnx"
    files.write(traced, path, exporter, opset)
    files.tidy(path, traced.axes)
    files.check(path)
    inputs, outputs = files.tensors(path)
    return Graph(
        file=path.name,
        inputs=inputs,
        outputs=outputs,
        feeds={name: source for name, source in traced.feeds.items() if name in {tensor.name for tensor in inputs}},
        states=traced.states,
        result=traced.result,
        result_name=traced.result,
        more_results=traced.more_results,
    )


def _given(workload: Workload, recipe: Recipe, point: Point, folder: Path, precision: Precision) -> Bundle | None:
    """The bundle of the model's own ONNX file, where it has one."""
    source = given_file(workload, recipe, precision)
    if source is None:
        return None
    inputs = plugin_of(workload).inputs(workload, point, workload.seed)
    graphs = _given_graphs(source, recipe, folder, frozenset(inputs))
    prompt = {"prompt_input": "input_ids"} if recipe.kind == "decoder" else {}
    return _bundle(graphs, recipe, folder, OPTIMUM, prompt)


def _made(plan: Plan, recipe: Recipe, folder: Path, opset: int) -> Bundle:
    exporter = files.installed_exporter(recipe.exporter)
    graphs = {name: _written(traced, name, folder, exporter, opset) for name, traced in plan.graphs.items()}
    return _bundle(graphs, recipe, folder, exporter, plan.fields)


def _bundle(
    graphs: Mapping[str, Graph], recipe: Recipe, folder: Path, exporter: str, fields: Mapping[str, Any]
) -> Bundle:
    weights = files.weights([folder / graph.file for graph in graphs.values()])
    bundle = Bundle(
        kind=recipe.kind,
        graphs=graphs,
        exporter=exporter,
        weights_bytes=weights.size_bytes,
        weight_dtypes=weights.values_by_dtype,
    )
    return dataclasses.replace(bundle, **fields)


def given_file(workload: Workload, recipe: Recipe, precision: Precision) -> Path | None:
    """The model's own ONNX file, where it has one that is read."""
    if workload.path is None or workload.weights != "pretrained" or precision != "float32":
        return None
    if recipe.plan not in GIVEN_PLANS:
        return None
    paths = (Path(workload.path) / folder / GIVEN_FILE for folder in GIVEN_FOLDERS)
    return next((path for path in paths if path.is_file()), None)


def given_file_identity(path: Path) -> dict[str, Json]:
    """Name -> size and time of change of the file and of its weights' files, which tell it from another unread."""
    files = sorted(path.parent.glob(f"{path.name}*"))
    return {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in files}


def _given_graphs(source: Path, recipe: Recipe, folder: Path, family_inputs: frozenset[str]) -> dict[str, Graph]:
    """The graph of a file, copied with its weights into the folder. Raises BenchhouseError for a file whose inputs are
    not those of the layout."""
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
