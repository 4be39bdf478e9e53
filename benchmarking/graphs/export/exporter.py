"""The bundle of a workload's torch model: exported, or read from an ONNX file that comes with the model, then checked;
and converted to int8 and int4.

Each export plan has a function that returns the graphs to trace, which are then written one by one.

A file that comes with a model must have the layout of Hugging Face's optimum, in the model's folder or its subfolder
`onnx`, next to the files of its weights: `model.onnx` as one pass, or as a decoder with past keys and values as inputs
and outputs. The older decoder form, `decoder_model_merged.onnx`, is not read, since it chooses between two subgraphs.
Such files are read only at float32 and for pretrained weights, with which they must agree like any export.

int8  ONNX Runtime's dynamic quantization: 8-bit weights of matrix products, activations quantized during the call
int4  4-bit weights of matrix products, in blocks of 32 with one scale each; activations stay float32

Inputs, outputs and states stay float32. float16 is not a conversion: the half-precision torch model is exported, so
states and floating-point inputs are float16 in the graph as in torch.
"""

from __future__ import annotations

import dataclasses
import io
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import BenchhouseError, UnsupportedError, first_line
from benchmarking.core.lazy_modules import onnx
from benchmarking.core.model_contracts import ExportPlan, Recipe
from benchmarking.core.records import Json, Point, Precision, Workload
from benchmarking.graphs.bundle import EXPORTED_FROM, Bundle, Graph, State, Tensor, read_bundle, write_bundle
from benchmarking.graphs.export import onnx_files
from benchmarking.workloads.support import exported_folder, graph_file
from benchmarking.workloads.support.exported_folder import is_export, why_not_point
from benchmarking.workloads.support.families import plugin_of, recipe_of
from benchmarking.workloads.support.graph_contents import WEIGHTS

if TYPE_CHECKING:
    from benchmarking.graphs.export.graph_plans import Plan

SHIPPED_FILE = "model.onnx"
SHIPPED_FOLDERS = ("", "onnx")
USER_FILE = "given"
"""Exporter name of a bundle made from a user's graph file."""
OPTIMUM = "optimum"
"""Exporter name of a bundle read from the model's own file."""
SHIPPED_PLANS = frozenset({"forward", "decoder", "picture-prompt"})
"""Export plans for which such files may exist."""
TOKENS, MASK, TYPES, POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"
PAST_INPUT = re.compile(r"past_key_values\.(\d+)\.(key|value)")
MAIN_OUTPUTS = ("logits", "last_hidden_state")
INT4_BLOCK = 32
"""Number of weights that share a scale. Smaller blocks are more accurate and take more bytes; kernels are tuned for
32."""


def export_bundle(
    workload: Workload, point: Point, folder: Path, *, precision: Precision, opset: int
) -> dict[str, Json]:
    """Fill an empty folder with the bundle of a workload, with a point's fixed axes. Returns the facts of the build.

    The graphs are checked and compared with the torch model at shapes other than the traced ones. Raises
    UnsupportedError for a workload without graphs, BenchhouseError if the export fails or the outputs differ."""
    if is_export(workload):
        # The bundle of an exported folder and its graphs, whose contents are read again.
        if (why_not := why_not_point(workload, point)) is not None:
            raise UnsupportedError(why_not)
        shipped = exported_folder.copy_checked(workload, folder)
        exported = shipped.exported
        assert exported is not None  # `copy_checked` returns no other
        if exported.format == "onnx":
            paths = [folder / graph.file for graph in shipped.graphs.values()]
            for path in paths:
                onnx_files.check(path)
            shipped = with_weights(shipped, folder)
        write_bundle(folder, dataclasses.replace(shipped, exported=None))
        copied = {name: file.sha256 for name, file in sorted(exported.files.items()) if (folder / name).exists()}
        return {
            **build_facts(shipped),
            EXPORTED_FROM: exported.model_id,
            "exported_files": dict[str, Json](copied),
            "agreement": dict(exported.agreement),
        }
    if workload.source == "file":
        return _bundle_of_file(workload, folder)
    from benchmarking.graphs.export.agreement import check_agreement, traced_point
    from benchmarking.runtimes.support.torch.model_loading import load_model, parameter_count

    recipe = recipe_of(workload)
    assert isinstance(recipe, Recipe), recipe  # the build's key was made from it
    attention = plugin_of(workload).default_attention(workload.config)
    model, _ = load_model(workload, precision, attention)
    model.requires_grad_(False)
    bundle = _bundle_of_shipped_file(workload, recipe, point, folder, precision)
    if bundle is None:
        bundle = _bundle_of_plan(model, workload, recipe, point, folder, opset)
    facts = dict(bundle.facts)
    if recipe.torch_facts:  # readings of the torch operation, from a call of the traced size
        import torch

        from benchmarking.graphs.export.graph_plans import family_inputs

        point_traced = traced_point(workload, point, recipe)
        inputs = family_inputs(model, workload, point_traced)
        with torch.no_grad():
            readings = plugin_of(workload).torch_operation(model, workload, point_traced, inputs, {}).readings(None)
        facts |= {name: value for name, value in readings.values.items() if name in recipe.torch_facts}
    bundle = dataclasses.replace(bundle, parameter_count=parameter_count(model), facts=facts)
    write_bundle(folder, bundle)
    agreement = check_agreement(model, workload, bundle, folder, point, recipe, precision)
    return {**build_facts(bundle), "opset": opset, "agreement": agreement}


def _bundle_of_file(workload: Workload, folder: Path) -> dict[str, Json]:
    """Fill an empty folder with the bundle of a graph file, which is called once with all its inputs."""
    copy = graph_file.copy_checked(workload, folder)
    config: Any = workload.config
    inputs, outputs = (
        tuple(Tensor(name=one["name"], dtype=one["dtype"], shape=tuple(one["shape"])) for one in config[side])
        for side in ("inputs", "outputs")
    )
    names = [tensor.name for tensor in outputs]
    graph = Graph(
        file=copy.name,
        inputs=inputs,
        outputs=outputs,
        feeds={tensor.name: f"inputs.{tensor.name}" for tensor in inputs},
        result=names[0],
        result_name=names[0],
        more_results={name: name for name in names[1:]},
    )
    bundle = Bundle(
        kind="forward",
        graphs={"model": graph},
        exporter=USER_FILE,
        parameter_count=workload.parameter_count,
        weight_dtypes=config.get(WEIGHTS, {}),
    )
    if graph_file.format_of(workload) == "onnx":
        onnx_files.check(copy)
        bundle = with_weights(bundle, folder)
    write_bundle(folder, bundle)
    origin = config.get(EXPORTED_FROM)
    return build_facts(bundle) | ({} if origin is None else {EXPORTED_FROM: origin.get("model_id")})


def with_weights(bundle: Bundle, folder: Path) -> Bundle:
    """The bundle with the bytes and types of the weights in its files."""
    weights = onnx_files.weights([folder / graph.file for graph in bundle.graphs.values()])
    return dataclasses.replace(bundle, weights_bytes=weights.size_bytes, weight_dtypes=weights.values_by_dtype)


def build_facts(bundle: Bundle) -> dict[str, Json]:
    return {
        "exporter": bundle.exporter,
        "bundle_kind": bundle.kind,
        "graphs": list(bundle.graphs),
        "parameter_count": bundle.parameter_count,
        "weights_bytes": bundle.weights_bytes,
        "weight_dtypes": dict(bundle.weight_dtypes),
    }


def _bundle_of_plan(model: Any, workload: Workload, recipe: Recipe, point: Point, folder: Path, opset: int) -> Bundle:
    """The bundle of the graphs that the recipe's plan traces, each exported, rewritten by its family and checked."""
    from benchmarking.graphs.export import graph_plans, several_graphs

    functions: dict[ExportPlan, Callable[[Any, Workload, Recipe, Point], Plan]] = {
        "forward": graph_plans.forward_plan,
        "decoder": graph_plans.decoder_plan,
        "recurrent": several_graphs.recurrent_plan,
        "picture-prompt": graph_plans.picture_prompt_plan,
        "sequence-to-sequence": several_graphs.plan,
        "caption": several_graphs.caption_plan,
        "denoiser": graph_plans.denoiser_plan,
    }
    plan = functions[recipe.plan](model, workload, recipe, point)
    exporter = onnx_files.installed_exporter(recipe.exporter)
    graphs: dict[str, Graph] = {}
    for graph_name, traced in plan.graphs.items():
        path = folder / f"{graph_name}.onnx"
        onnx_files.export_graph_file(traced, path, exporter, opset)
        plugin_of(workload).rewrite(workload, path)
        onnx_files.check_opset(path, opset, exporter)
        onnx_files.name_free_axes(path, traced.axes)
        onnx_files.check(path)
        inputs, outputs = onnx_files.tensors(path)
        input_names = {tensor.name for tensor in inputs}
        graphs[graph_name] = Graph(
            file=path.name,
            inputs=inputs,
            outputs=outputs,
            feeds={name: source for name, source in traced.feeds.items() if name in input_names},
            states=traced.states,
            result=traced.result,
            result_name=traced.result,
            more_results=traced.more_results,
        )
    return with_weights(Bundle(kind=recipe.kind, graphs=graphs, exporter=exporter, **plan.fields), folder)


def _bundle_of_shipped_file(
    workload: Workload, recipe: Recipe, point: Point, folder: Path, precision: Precision
) -> Bundle | None:
    """The bundle of the model's own ONNX file, copied with its weights into the folder; None if it has no file. Raises
    BenchhouseError if the file's inputs do not match the layout."""
    source = shipped_file(workload, recipe, precision)
    if source is None:
        return None
    to_export = "move it away to export the model"
    for path in (source, *onnx_files.weight_files(source)):
        shutil.copyfile(path, folder / path.relative_to(source.parent))
    onnx_files.check(folder / source.name)
    inputs, outputs = onnx_files.tensors(folder / source.name)
    is_decoder = recipe.kind == "decoder"
    if is_decoder:
        sources = {TOKENS: "tokens", MASK: "mask", POSITIONS: "positions"}
    else:
        family_inputs = plugin_of(workload).inputs(workload, point, workload.seed)
        sources = {
            MASK: f"ones.{TOKENS}",
            TYPES: f"zeros.{TOKENS}",
            **{name: f"inputs.{name}" for name in family_inputs},
        }
    feeds: dict[str, str] = {}
    states: list[State] = []
    for tensor in inputs:
        is_state = PAST_INPUT.fullmatch(tensor.name) is not None
        if not (is_state and is_decoder):
            if tensor.name not in sources:
                raise BenchhouseError(f"{source} has an unknown input {tensor.name!r}: {to_export}")
            feeds[tensor.name] = sources[tensor.name]
        if is_state:
            heads, width = tensor.shape[1], tensor.shape[3]
            if isinstance(heads, str) or isinstance(width, str):
                raise BenchhouseError(f"{source} does not specify the size of {tensor.name}: {to_export}")
            output = tensor.name.replace("past_key_values", "present", 1)
            states.append(State(input=tensor.name, output=output, first=("batch", heads, 0, width)))
    result = next((name for name in MAIN_OUTPUTS if name in {tensor.name for tensor in outputs}), None)
    if result is None:
        raise BenchhouseError(f"{source} has no output {' or '.join(MAIN_OUTPUTS)}: {to_export}")
    if is_decoder and not states:
        raise BenchhouseError(f"{source} has no inputs for past keys and values: {to_export}")
    graph = Graph(
        file=source.name,
        inputs=inputs,
        outputs=outputs,
        feeds=feeds,
        states=tuple(states),
        result=result,
        result_name=result,
    )
    bundle = Bundle(
        kind=recipe.kind,
        graphs={"decode" if is_decoder else "model": graph},
        exporter=OPTIMUM,
        prompt_input=TOKENS if is_decoder else None,
    )
    return with_weights(bundle, folder)


def shipped_file(workload: Workload, recipe: Recipe, precision: Precision) -> Path | None:
    """The model's own ONNX file, if it has a readable one."""
    is_possible = workload.source != "file" and workload.weights == "pretrained" and precision == "float32"
    if workload.path is None or not is_possible or recipe.plan not in SHIPPED_PLANS:
        return None
    paths = (Path(workload.path) / folder / SHIPPED_FILE for folder in SHIPPED_FOLDERS)
    return next((path for path in paths if path.is_file()), None)


def shipped_file_identity(path: Path) -> dict[str, Json]:
    """Size and modification time of the file and its weights' files by name, which identify it without reading it."""
    files = sorted(path.parent.glob(f"{path.name}*"))
    return {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in files}


def convert_bundle(bundle_folder: Path, precision: Precision, out_folder: Path) -> dict[str, Json]:
    """Fill an empty folder with the bundle at int8 or int4. Returns the facts of its build.

    Raises UnsupportedError without onnxruntime's quantizers or for a bundle without weights to quantize,
    BenchhouseError if a quantizer fails."""
    if precision not in QUANTIZERS:
        raise UnsupportedError(f"bundles can be converted to {', '.join(QUANTIZERS)}, not to {precision}")
    bundle = read_bundle(bundle_folder)
    quantize, operators = QUANTIZERS[precision]
    counts: Counter[str] = Counter()
    for name, graph in bundle.graphs.items():
        try:
            import onnx

            with onnx_files.quiet(io.StringIO()):
                quantize(bundle_folder / graph.file, out_folder / graph.file)
        except ImportError as error:
            raise UnsupportedError(f"{precision} graphs need onnxruntime's quantizers: {first_line(error)}") from error
        except (RuntimeError, ValueError) as error:
            raise BenchhouseError(f"cannot quantize graph {name!r} to {precision}: {first_line(error)}") from error
        nodes = onnx.load(str(out_folder / graph.file), load_external_data=False).graph.node
        counts.update(node.op_type for node in nodes if node.op_type in operators)
    if not counts:
        raise UnsupportedError(f"{precision}: the model's graphs have no matrix product with weights to quantize")
    quantized: dict[str, Json] = {"quantized_operators": dict(counts)}
    new = with_weights(dataclasses.replace(bundle, facts={**bundle.facts, **quantized}), out_folder)
    write_bundle(out_folder, new)
    return {**build_facts(new), **quantized}


def _to_int8(source: Path, target: Path) -> None:
    """Quantizes only matrix products: ONNX Runtime has no kernel for convolutions with signed 8-bit weights, and
    embeddings are lookups. Each column has its own scale. With a single scale for the whole weight, trained outliers
    leave few steps for the other values (the error of MiniLM's output was 37 % instead of 18 %).

    Weights use 7 of the 8 bits. CPUs without VNNI add pairs of products in 16 bits, where two large ones overflow: the
    sum saturates silently, and the error of a product of random matrices was 21 % instead of 1 %. With 7 bits it cannot
    overflow, and a file computes the same on every CPU."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        _quantizable(source),
        target,
        op_types_to_quantize=["MatMul"],
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=True,
        use_external_data_format=True,
    )


def _to_int4(source: Path, target: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(_quantizable(source), bits=4, block_size=INT4_BLOCK, is_symmetric=True)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target), use_external_data_format=True)


def _quantizable(source: Path) -> Any:
    """The model with matrix products in the form that the quantizers expect: a MatMul with a constant.

    Exporters write `Gemm` if there is a bias, and leave a weight that is also an embedding (a tied last layer) to be
    transposed when the model is loaded."""
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = ONNXModel(onnx.load(str(source)))
    graph = model.model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in [node for node in graph.node if node.op_type == "Transpose" and node.input[0] in weights]:
        array = onnx.numpy_helper.to_array(weights[node.input[0]])
        order = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"), None)
        graph.initializer.append(onnx.numpy_helper.from_array(array.transpose(order).copy(), node.output[0]))
        graph.node.remove(node)
    model.replace_gemm_with_matmul()
    # The recorded shapes are from before the transposition and would make shape inference fail.
    del graph.value_info[:]
    return model.model


QUANTIZERS: Mapping[str, tuple[Callable[[Path, Path], None], frozenset[str]]] = {
    "int8": (_to_int8, frozenset({"MatMulInteger", "DynamicQuantizeMatMul"})),
    "int4": (_to_int4, frozenset({"MatMulNBits"})),
}
"""By precision: the function that makes the file, and operators of which the file must then have some."""
