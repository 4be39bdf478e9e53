"""Nodes that run are matched to the modules that they were exported from, and their times are added up by hand."""

from __future__ import annotations

import onnx
import pytest

from benchmarking.graphs.profiling import CLASSES, SCOPES, NodeTime, Origins, breakdown
from benchmarking.runtimes.support.onnxruntime.profile import GraphProfile, Kernel
from benchmarking.runtimes.support.onnxruntime.profiling import by_call


def node(name, operator, *scopes):
    """A node with the metadata that torch's exporter writes: modules around it, then the operator itself."""
    made = onnx.helper.make_node(operator, ["x"], ["x"], name=name)
    paths, classes = ["", *(path for path, _ in scopes), name], ["own.Wrapper", *(one for _, one in scopes), "aten.op"]
    for key, value in ((SCOPES, paths), (CLASSES, classes)):
        made.metadata_props.add(key=key, value=repr(value))
    return made


@pytest.fixture
def origins(tmp_path):
    model, layer = ("model", "transformers.BertModel"), ("model.layer.0", "transformers.BertLayer")
    attention = ("model.layer.0.attention", "transformers.BertAttention")
    dense = ("model.layer.0.output", "torch.nn.modules.linear.Linear")
    nodes = [
        node("node_linear_1", "MatMul", model, layer, attention),
        node("node_linear_2", "Gemm", model, layer, dense),
        node("node_add_3", "Add", ("_empty_nn_module_stack", "_empty_nn_module_stack")),
        onnx.helper.make_node("Shape", ["x"], ["y"], name="bare"),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [], [])
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "model.onnx"))
    return Origins.of({"model": tmp_path / "model.onnx"})


def test_a_fused_node_belongs_to_the_module_of_the_name_that_its_own_begins_with(origins):
    assert origins.module("model", "node_linear_1") == "layer.0.attention"
    assert origins.module("model", "node_linear_2/MatMulAddFusion/_1") == "layer.0.output"
    assert {origins.module("model", name) for name in ("node_add_3", "bare", "Attention_0", "")} == {""}
    kinds = {path: place.kind for path, place in origins.places.items()}
    assert kinds["layer.0.attention"] == "attention"
    assert kinds["layer.0.output"] == "feed_forward"
    assert kinds["BertModel"] == "other"


def test_nodes_of_one_name_in_two_graphs_belong_to_the_modules_of_their_own_graph(tmp_path):
    for name, part in (("encoder", "encoder"), ("decode", "decoder")):
        around = (f"model.{part}.block.0", "transformers.T5Block")
        graph = onnx.helper.make_graph(
            [node("node_matmul", "MatMul", ("model", "transformers.T5"), around)], "g", [], []
        )
        onnx.save(onnx.helper.make_model(graph), str(tmp_path / f"{name}.onnx"))
    found = Origins.of({name: tmp_path / f"{name}.onnx" for name in ("encoder", "decode")})
    assert found.module("encoder", "node_matmul/Fused") == "encoder.block.0"
    assert found.module("decode", "node_matmul/Fused") == "decoder.block.0"
    assert found.module("cross", "node_matmul") == ""


def test_times_of_nodes_add_up_to_modules_and_the_rest_is_outside_of_operators(origins):
    def call(factor):
        times = (("node_linear_1", 2.0), ("node_linear_2/MatMulAddFusion/", 1.0), ("bare", 0.5))
        return [
            NodeTime(graph="model", name=name, operator="MatMul", placed="CPU", ms=ms * factor) for name, ms in times
        ]

    found = breakdown([call(1), call(3)], [5.0, 12.0], origins)
    exclusive = {one.module: one.exclusive_ms for one in found.modules}
    assert exclusive == pytest.approx({"layer.0": 0.0, "layer.0.attention": 4.0, "layer.0.output": 2.0, "": 2.5})
    assert sum(exclusive.values()) == pytest.approx(found.host_ms) == 8.5
    layer = next(one for one in found.modules if one.module == "layer.0")
    assert (layer.inclusive_ms, layer.inclusive_samples_ms) == (6.0, (3.0, 9.0))
    assert found.metrics == {"operator_calls": 3.0, "outside_operators_ms": 1.5}
    assert found.details == {"matched_share": pytest.approx(6 / 7)}


def test_runs_of_a_graph_are_divided_evenly_among_the_calls():
    def kernel(began_us):
        about = {"operator": "MatMul", "provider": "CPU", "input_types": (), "outputs": ()}
        return Kernel(name=f"model/0/at_{began_us}", duration_us=1000, began_us=began_us, **about)

    profile = GraphProfile(kernels=tuple(map(kernel, (11, 12, 21, 31, 41))), runs_us=(10, 20, 30, 40))
    calls = by_call({"model": profile}, 2)
    assert [[one.name for one in call] for call in calls] == [["at_11", "at_12", "at_21"], ["at_31", "at_41"]]
    assert calls[0][0].ms == 1.0
