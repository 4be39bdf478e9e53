"""Quantized graphs, whatever shapes an exporter recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarking.graphs.export.exporter import QUANTIZERS


@pytest.fixture
def linear(tmp_path: Path) -> tuple[Path, Any]:
    """A file with y = x W^T + b as written by exporters, with the recorded shape of W."""
    weights = np.random.default_rng(0).standard_normal((64, 32), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.ones(64, dtype=np.float32), "b")],
        value_info=[helper.make_tensor_value_info("w", TensorProto.FLOAT, [64, 32])],
    )
    path = tmp_path / "linear.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))
    return path, weights


# At int8 the bound fails where sums of products are cut off, as they are without VNNI when weights take all 8 bits.
@pytest.mark.parametrize(("precision", "error"), [("int8", 0.02), ("int4", 0.2)])
def test_transposed_weight_is_quantized_up_to_rounding(linear, tmp_path, precision, error):
    source, weights = linear
    target = tmp_path / f"{precision}.onnx"
    quantize, operators = QUANTIZERS[precision]
    quantize(source, target)
    found = {node.op_type for node in onnx.load(str(target), load_external_data=False).graph.node}
    assert found & operators
    x = np.random.default_rng(1).standard_normal((3, 32), dtype=np.float32)
    (y,) = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    expected = x @ weights.T + 1
    assert 0 < np.linalg.norm(y - expected) / np.linalg.norm(expected) < error
