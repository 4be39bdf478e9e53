"""ONNX files made by hand: free axes named, fixed ones refused, weights counted, quantizers' forms."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.graphs.bundle import Bundle, Graph, Tensor, read_bundle, write_bundle
from benchmarking.graphs.export import onnx_files
from benchmarking.graphs.export.exporter import convert_bundle

AXES = {"x": {0: "batch", 1: "sequence"}}


def saved(tmp_path, batch="s1", length="s2", out_length="2*s2 + s1", weight=None):
    """y = x W, with the symbols an exporter might leave."""
    weight = np.ones((64, 32), dtype=np.float32) if weight is None else weight
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product", doc_string="from /somebody/model.py")
    node.metadata_props.append(onnx.StringStringEntryProto(key="stack_trace", value="/somebody/model.py"))
    graph = helper.make_graph(
        [node],
        "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, length, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, out_length, 32])],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))
    return path


def test_free_axes_are_named_also_inside_sums(tmp_path):
    path = saved(tmp_path)
    onnx_files.name_free_axes(path, AXES)
    inputs, outputs = onnx_files.tensors(path)
    assert inputs == (Tensor(name="x", dtype="float32", shape=("batch", "sequence", 64)),)
    assert outputs == (Tensor(name="y", dtype="float32", shape=("batch", "2*sequence + batch", 32)),)


def test_a_size_that_a_file_leaves_open_is_a_free_dimension_and_not_0(tmp_path):
    inputs, outputs = onnx_files.tensors(saved(tmp_path, length=None, out_length=0))
    assert inputs[0].shape == ("s1", "x.1", 64)
    assert outputs[0].shape == ("s1", 0, 32)


def test_source_lines_of_nodes_are_removed(tmp_path):
    path = saved(tmp_path)
    onnx_files.name_free_axes(path, AXES)
    assert b"somebody" not in path.read_bytes()


@pytest.mark.parametrize("fixed", [2, "2"], ids=["number", "symbol that is a number"])
def test_an_axis_that_the_exporter_fixed_is_an_error(tmp_path, fixed):
    with pytest.raises(BenchhouseError, match=r"fixed axis 0 \(batch\) of x in model.onnx at 2"):
        onnx_files.name_free_axes(saved(tmp_path, batch=fixed), AXES)


def test_invalid_graph_file_is_refused(tmp_path):
    path = saved(tmp_path)
    model = onnx.load(str(path))
    model.graph.node[0].input[0] = "nobody"
    onnx.save(model, str(path))
    with pytest.raises(BenchhouseError, match=r"model.onnx is not valid ONNX"):
        onnx_files.check(path)


def test_weights_are_counted_in_values_and_bytes(tmp_path):
    path = saved(tmp_path)
    model = onnx.load(str(path))
    model.graph.initializer.append(helper.make_tensor("four", TensorProto.INT4, [3], [1, 2, 3]))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(5, dtype=np.int64), "indices"))
    onnx.save(model, str(path))
    held = onnx_files.weights([path, path])
    # Twice 64 x 32 floats, five 8-byte integers, and three half bytes, which take two bytes.
    assert held.values_by_dtype == {"float32": 4096, "int4": 6, "int64": 10}
    assert held.size_bytes == 2 * (2048 * 4 + 5 * 8 + 2)


def bundle_of(path):
    onnx_files.name_free_axes(path, AXES)
    inputs, outputs = onnx_files.tensors(path)
    graph = Graph(file=path.name, inputs=inputs, outputs=outputs, feeds={"x": "inputs.x"}, result="y", result_name="y")
    bundle = Bundle(kind="forward", graphs={"model": graph}, exporter="by hand")
    write_bundle(path.parent, bundle)
    return bundle


def test_a_manifest_survives_a_round_trip(tmp_path):
    bundle = bundle_of(saved(tmp_path))
    assert read_bundle(tmp_path) == bundle


def test_a_folder_without_a_manifest_holds_no_bundle(tmp_path):
    with pytest.raises(BenchhouseError, match=r"bundle.json is not a valid bundle of graphs"):
        read_bundle(tmp_path)


@pytest.mark.parametrize(
    ("precision", "dtype", "most_bytes", "error"), [("int8", "int8", 2300, 0.02), ("int4", "int4", 1400, 0.15)]
)
def test_quantized_weights_are_small_and_close(tmp_path, precision, dtype, most_bytes, error):
    pytest.importorskip("onnxruntime")
    from benchmarking.graphs.export.agreement import PlainRunner

    generator = np.random.default_rng(0)
    weight = generator.standard_normal((64, 32), dtype=np.float32)
    (tmp_path / "out").mkdir()
    bundle_of(saved(tmp_path, weight=weight))
    facts = convert_bundle(tmp_path, precision, tmp_path / "out")
    assert sum(facts["quantized_operators"].values()) == 1
    assert 2048 <= facts["weight_dtypes"][dtype] <= 2048 + 32  # a zero point a column may be among them
    assert facts["weights_bytes"] < most_bytes
    x = generator.standard_normal((2, 3, 64), dtype=np.float32)
    y = PlainRunner(read_bundle(tmp_path / "out"), tmp_path / "out").call("model", {"x": x})["y"]
    difference = np.linalg.norm(y - x @ weight) / np.linalg.norm(x @ weight)
    assert 0 < difference < error


def test_a_tied_last_layer_is_quantized_too(tmp_path):
    pytest.importorskip("onnxruntime")
    path = saved(tmp_path, weight=np.ones((32, 64), dtype=np.float32))
    model = onnx.load(str(path))
    model.graph.node[0].input[1] = "turned"
    model.graph.node.insert(0, helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0]))
    onnx.save(model, str(path))
    bundle_of(path)
    (tmp_path / "out").mkdir()
    assert convert_bundle(tmp_path, "int8", tmp_path / "out")["quantized_operators"] == {"MatMulInteger": 1}


def test_a_bundle_without_matrix_products_cannot_be_quantized(tmp_path):
    pytest.importorskip("onnxruntime")
    path = saved(tmp_path)
    model = onnx.load(str(path))
    model.graph.node[0].op_type = "Add"
    onnx.save(model, str(path))
    bundle_of(path)
    (tmp_path / "out").mkdir()
    with pytest.raises(UnsupportedError, match="int8: the model's graphs have no matrix product"):
        convert_bundle(tmp_path, "int8", tmp_path / "out")


def test_conversion_to_an_unsupported_precision_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="converted to int8, int4, not to float16"):
        convert_bundle(tmp_path, "float16", tmp_path)


def test_failed_export_has_the_root_cause_without_advice(tmp_path, monkeypatch):
    def convert(traced, path, opset):
        raise RuntimeError("Failed to export the model. Next steps: ...") from ValueError("no such operator\nadvice")

    monkeypatch.setattr(onnx_files, "_export_by_torch", convert)
    with pytest.raises(BenchhouseError, match=r"cannot export the graph 'model': ValueError: no such operator$"):
        onnx_files.export_graph_file(None, tmp_path / "model.onnx", "torch.onnx", 20)
