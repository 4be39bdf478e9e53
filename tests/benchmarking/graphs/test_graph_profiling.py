"""Executed nodes are matched to the modules they were exported from, with times added up by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from benchmarking.devices import cpu
from benchmarking.graphs.profiling import NodeTime, Origins, breakdown
from benchmarking.runtimes.support.onnxruntime.kernel_profile import GraphProfile, Kernel, read_graph_profile
from benchmarking.runtimes.support.onnxruntime.ort_runtime import SessionSettings
from benchmarking.runtimes.support.onnxruntime.ort_session import merge_traces, nodes_by_call, optimised_graphs
from tests.helpers.traced_graphs import graph_in_modules, node


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


def test_fused_node_belongs_to_the_module_of_its_name_prefix(origins):
    assert origins.module("model", "node_linear_1") == "layer.0.attention"
    assert origins.module("model", "node_linear_2/MatMulAddFusion/_1") == "layer.0.output"
    assert {origins.module("model", name) for name in ("node_add_3", "bare", "Attention_0", "")} == {""}
    kinds = {path: place.kind for path, place in origins.module_infos.items()}
    assert kinds["layer.0.attention"] == "attention"
    assert kinds["layer.0.output"] == "feed_forward"
    assert kinds["BertModel"] == "other"


def test_a_node_without_module_information_belongs_to_the_consumers_of_its_results(tmp_path):
    layer, dense = ("layer.0", "own.Layer"), ("layer.0.dense", "torch.nn.modules.linear.Linear")
    outside = ("_empty_nn_module_stack", "_empty_nn_module_stack")

    def made(name, inputs, output, *scopes):
        one = node(name, "Add", *scopes) if scopes else onnx.helper.make_node("Split", inputs, [output], name=name)
        one.input[:], one.output[:] = inputs, [output]
        return one

    nodes = [
        made("node_first", ["x"], "a", layer),
        made("split", ["a"], "b"),
        made("node_dense", ["b"], "c", layer, dense),
        made("node_dense_too", ["b"], "d", layer, dense),
        made("joined", ["c", "a"], "e"),
        made("size", ["x"], "f"),
        made("node_mask", ["f"], "g", outside),
        made("", ["e"], "h"),
    ]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [], [])), str(tmp_path / "model.onnx"))
    found = Origins.of({"model": tmp_path / "model.onnx"})
    assert found.module("model", "split") == "layer.0.dense"
    assert found.module("model", "joined") == "layer.0"  # nobody takes its result: what is around what it is made of
    assert {found.module("model", name) for name in ("size", "node_mask")} == {""}
    assert found.tensors["model", "b"] == "layer.0.dense"


def test_renamed_node_has_the_module_of_its_tensor(tmp_path):
    path = graph_in_modules(tmp_path)
    origins = Origins.of({"model": path})
    changed = onnx.load(str(path))
    names = {"node_layer_norm": "SkipLayerNormalization", "node_linear": "fused node_linear", "node_gelu": "token_1"}
    for one in changed.graph.node:
        one.name = names.get(one.name, one.name)
        del one.metadata_props[:]
    changed.graph.node[2].output[0] = changed.graph.node[3].input[0] = "made by the runtime"
    onnx.save(changed, str(tmp_path / "optimised.onnx"))
    found = origins.optimised({"model": tmp_path / "optimised.onnx"})
    assert {name: found.module("model", name) for name in (*names.values(), "node_linear_1")} == {
        "SkipLayerNormalization": "layer.0.norm",
        "fused node_linear": "layer.0.dense",
        "token_1": "layer.0.dense",  # where its result is used
        "node_linear_1": "layer.0.dense",
    }
    assert origins.module("model", "SkipLayerNormalization") == ""


def test_optimized_graph_is_written_without_weights(tmp_path):
    graph = SimpleNamespace(file=graph_in_modules(tmp_path).name)
    bundle = SimpleNamespace(graphs={"model": graph}, weights_bytes=16_384)
    settings = SessionSettings(provider=cpu.ORT_PROVIDER, precision="float32", num_threads=1)
    source = SimpleNamespace(folder=tmp_path, bundle=bundle, settings=settings)
    written = tmp_path / "written"
    written.mkdir()
    (path,) = optimised_graphs(source, written).values()
    assert [one.name for one in written.iterdir()] == [path.name]
    assert len(onnx.load(str(path), load_external_data=False).graph.node) == 4
    bundle.weights_bytes = 10**10
    assert optimised_graphs(source, written) == {}


def test_nodes_with_equal_names_belong_to_their_own_graphs_modules(tmp_path):
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
    assert breakdown([[]], [5.0], origins).details == {}, "without nodes, none is unmatched"


def test_mean_call_has_no_samples(origins):
    mean = [NodeTime(graph="model", name="of the engine", module="layer.0", operator="Add", placed="CPU", ms=2.0)]
    found = breakdown([mean], [5.0, 7.0], origins, has_samples=False)
    assert {one.module: one.exclusive_ms for one in found.modules} == {"layer.0": 2.0, "": 4.0}
    assert [one.inclusive_samples_ms for one in found.modules] == [(), ()]


def test_each_event_of_onnx_runtimes_own_profile_counts_once(tmp_path):
    path = graph_in_modules(tmp_path)
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "ort")
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for _ in range(6):
        session.run(None, {"x": np.ones((4, 64), dtype=np.float32)})
    written = Path(session.end_profiling())
    events = [one for one in json.loads(written.read_text()) if one["name"].endswith("_kernel_time")]
    calls = nodes_by_call({"model": read_graph_profile(written, "model")}, 3)
    found = breakdown(calls, [1e3] * 3, Origins.of({"model": path}))
    assert [len(call) for call in calls] == [len(events) // 3] * 3
    assert sum(one.calls for one in found.operators) * 3 == len(events)
    assert sum(one.exclusive_ms for one in found.operators) * 3e3 == pytest.approx(sum(one["dur"] for one in events))
    assert {one.module for one in found.operators} >= {"layer.0.norm", "layer.0.dense"}
    assert sum(one.exclusive_ms for one in found.modules) == pytest.approx(found.host_ms)
    traced = merge_traces({"first": written, "second": written})
    assert [one["args"]["name"] for one in traced if one["ph"] == "M"] == ["first", "second"]
    assert {one["pid"] for one in traced} == {1, 2}


def test_runs_of_a_graph_are_divided_evenly_among_the_calls():
    def kernel(began_us):
        about = {"operator": "MatMul", "provider": "CPU", "input_types": (), "outputs": ()}
        return Kernel(name=f"model/0/at_{began_us}", duration_us=1000, began_us=began_us, **about)

    profile = GraphProfile(kernels=tuple(map(kernel, (11, 12, 21, 31, 41))), runs_us=(10, 20, 30, 40))
    calls = nodes_by_call({"model": profile}, 2)
    assert [[one.name for one in call] for call in calls] == [["at_11", "at_12", "at_21"], ["at_31", "at_41"]]
    assert calls[0][0].ms == 1.0
