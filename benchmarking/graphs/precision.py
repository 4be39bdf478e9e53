"""Bundles at int8 and int4, converted from the float32 bundle.

int8  ONNX Runtime's dynamic quantization: weights of matrix products in 8 bits, activations quantized during the call
int4  weights of matrix products in 4 bits, blocks of 32 with a scale each; activations stay float32

Inputs, outputs and states stay float32. float16 is not a conversion: the half-precision torch model is exported, so
that states and floating-point inputs are float16 in the graph as in torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.core.errors import BenchhouseError, UnsupportedError, first_line
from benchmarking.core.records import Json, Precision
from benchmarking.graphs.bundle import read_bundle, write_bundle

INT4_BLOCK = 32
"""Weights that share a scale. A smaller block is more accurate and takes more bytes; kernels are tuned for 32."""


def converted(bundle_folder: Path, precision: Precision, out_folder: Path) -> dict[str, Json]:
    """Fill an empty folder with the bundle at int8 or int4: the facts of its build.

    Raises UnsupportedError without onnxruntime's quantizers and for a bundle without weights to quantize,
    BenchhouseError when a quantizer fails."""
    from benchmarking.graphs.export.exporter import summary
    from benchmarking.graphs.export.files import weights

    if precision not in QUANTIZERS:
        raise UnsupportedError(f"bundles are converted to {', '.join(QUANTIZERS)}, not to {precision}")
    bundle = read_bundle(bundle_folder)
    counts: dict[str, int] = {}
    for name, graph in bundle.graphs.items():
        _quantized(name, bundle_folder / graph.file, out_folder / graph.file, precision)
        for operator, count in _operators(out_folder / graph.file, QUANTIZERS[precision][1]).items():
            counts[operator] = counts.get(operator, 0) + count
    if not counts:
        raise UnsupportedError(
            f"{precision}: this model's graphs have no matrix product whose weights can be quantized"
        )
    held = weights([out_folder / graph.file for graph in bundle.graphs.values()])
    facts: dict[str, Json] = {**bundle.facts, "quantized_operators": dict(counts)}
    new = replace(bundle, weights_bytes=held.size_bytes, weight_dtypes=held.values_by_dtype, facts=facts)
    write_bundle(out_folder, new)
    return {**summary(new), "quantized_operators": dict(counts)}


def _quantized(name: str, source: Path, target: Path, precision: Precision) -> None:
    from benchmarking.graphs.export.files import quiet

    try:
        with quiet():
            QUANTIZERS[precision][0](source, target)
    except ImportError as error:
        raise UnsupportedError(f"{precision} graphs need onnxruntime's quantizers: {first_line(error)}") from error
    except (RuntimeError, ValueError) as error:
        raise BenchhouseError(f"the graph {name!r} cannot be quantized to {precision}: {first_line(error)}") from error


def _to_int8(source: Path, target: Path) -> None:
    """Only matrix products: ONNX Runtime has no kernel for convolutions with signed 8-bit weights, and embeddings are
    lookups. Each column has its own scale: with a single scale for the whole weight, trained outliers leave the other
    values few steps (the error of MiniLM's output was 37 % instead of 18 %).

    Weights take 7 of the 8 bits. Processors without VNNI add pairs of products in 16 bits, which two large ones exceed:
    the sum saturates silently, and the error of a product of random matrices was 21 % instead of 1 %. With 7 bits it
    cannot, and a file computes the same on every processor."""
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
    """The model with its matrix products in the form that the quantizers look for: a MatMul of a constant.

    Exporters write `Gemm` where there is a bias, and leave a weight that is also an embedding (a tied last layer) to be
    transposed when the model is loaded."""
    import onnx
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
    # The recorded shapes are those before the transposition, on which shape inference fails.
    del graph.value_info[:]
    return model.model


QUANTIZERS: Mapping[str, tuple[Callable[[Path, Path], None], frozenset[str]]] = {
    "int8": (_to_int8, frozenset({"MatMulInteger", "DynamicQuantizeMatMul"})),
    "int4": (_to_int4, frozenset({"MatMulNBits"})),
}
"""Precision -> what makes the file, and operators of which the file must then have some."""


def _operators(path: Path, wanted: frozenset[str]) -> Counter[str]:
    """How many of these operators a file's graph has."""
    import onnx

    nodes = onnx.load(str(path), load_external_data=False).graph.node
    return Counter(node.op_type for node in nodes if node.op_type in wanted)
