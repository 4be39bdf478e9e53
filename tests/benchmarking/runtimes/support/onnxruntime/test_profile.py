"""Placement of kernels, read from ONNX Runtime's profiles (recorded on the emulator of Qualcomm's processor)."""

from __future__ import annotations

import json

import pytest

from benchmarking.core.errors import BenchhouseError, FormatError
from benchmarking.devices.cuda import ORT_PROVIDER
from benchmarking.graphs.profiling import Origins, breakdown
from benchmarking.runtimes.support.onnxruntime import kernel_profile
from benchmarking.runtimes.support.onnxruntime.kernel_profile import (
    CPU,
    Kernel,
    placement,
    read_graph_profile,
    read_profile,
)
from benchmarking.runtimes.support.onnxruntime.ort_session import kernel_time_missing, nodes_by_call
from tests.helpers.paths import FIXTURES

RECORDED = FIXTURES / "onnxruntime"
QNN = "QNNExecutionProvider"
CUDA = "CUDAExecutionProvider"


def kernel(name, provider, duration_us=1, outputs=(("float", 2),), operator="MatMul", input_types=("float",)):
    return Kernel(
        name=name,
        operator=operator,
        provider=provider,
        duration_us=duration_us,
        input_types=input_types,
        outputs=outputs,
    )


def event(name, began_us, duration_us, operator, thread=1, **more):
    about = {"op_name": operator, "provider": CPU, **more}
    return {
        "cat": "Node",
        "name": f"{name}_kernel_time",
        "ts": began_us,
        "dur": duration_us,
        "tid": thread,
        "args": about,
    }


def test_node_with_a_subgraph_has_exclusive_and_nested_time(tmp_path):
    events = [
        {"cat": "Session", "name": "model_run", "ts": 0, "dur": 130, "tid": 1, "args": {}},
        event("inner", 12, 30, "MatMul"),
        event("loop", 10, 100, "Loop"),
        event("other", 20, 50, "Add", thread=2),
        event("deeper", 52, 6, "Relu"),
        event("branch", 50, 10, "If"),
        event("after", 110, 20, "MatMul"),
    ]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(events))
    found = read_graph_profile(path, "model")
    assert {one.node: one.inside_us for one in found.kernels if one.inside_us} == {"loop": 40, "branch": 6}
    assert sum(one.duration_us - one.inside_us for one in found.kernels if one.thread == 1) == 120


def test_a_profile_that_lost_events_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_profile, "MAX_EVENTS", 3)
    path = tmp_path / "profile.json"
    path.write_text(json.dumps([event("one", 0, 1, "Add")] * 3))
    with pytest.raises(BenchhouseError, match=r"keeps 3 events .* graph decode has more: .* \(--num-runs\)"):
        read_graph_profile(path, "decode")


def test_graph_on_the_cpu_is_detected_although_the_session_lists_qnn_first():
    facts = placement(read_profile(RECORDED / "qnn_named_first_all_on_cpu.json", "model"), QNN)
    assert facts["nodes_by_provider"] == {CPU: 3}
    assert facts["time_share_by_provider"] == {CPU: 1.0}
    assert facts["operators_on_cpu_unasked"] == {"MatMul": 1, "Relu": 1}
    assert (facts["nodes"], facts["nodes_on_cpu_unasked"], facts["nodes_of_shapes_on_cpu"]) == (3, 2, 1)


def test_node_on_the_cpu_counts_once_over_all_runs():
    facts = placement(read_profile(RECORDED / "qnn_part_on_cpu.json", "model"), QNN)
    assert facts["nodes_by_provider"] == {CPU: 3, QNN: 1}
    assert facts["operators_on_cpu_unasked"] == {"Cast": 1, "NonZero": 1}
    assert facts["time_share_by_provider"][QNN] == pytest.approx((51902 + 35784) / (51902 + 35784 + 91), abs=1e-5)


def test_fully_compiled_graph_leaves_no_nodes_on_the_cpu():
    facts = placement(read_profile(RECORDED / "qnn_whole_graph.json", "model"), QNN)
    assert facts["nodes_by_provider"] == {QNN: 1}
    assert (facts["nodes_on_cpu_unasked"], facts["operators_on_cpu_unasked"]) == (0, {})


def test_on_the_cpu_every_node_is_expected():
    facts = placement(read_profile(RECORDED / "qnn_named_first_all_on_cpu.json", "model"), CPU)
    assert (facts["nodes"], facts["nodes_on_cpu_unasked"], facts["nodes_of_shapes_on_cpu"]) == (3, 0, 0)
    assert facts["compute_types"] == {"float": 1}


def test_shape_nodes_on_the_cpu_are_counted_separately():
    kernels = (
        kernel("a", CUDA, 75),
        kernel("b", CPU, 5, outputs=(("int64", 1),), operator="Shape"),
        kernel("c", CPU, 5, outputs=(("bool", 0), ("int32", 1)), operator="Where"),
        kernel("d", CPU, 5, outputs=(("int64", 2),), operator="Gather"),
        kernel("e", CPU, 10, outputs=(("float", 1),), operator="Mul"),
    )
    facts = placement(kernels, CUDA)
    assert facts["nodes_of_shapes_on_cpu"] == 2
    assert facts["operators_on_cpu_unasked"] == {"Gather": 1, "Mul": 1}
    assert facts["time_share_by_provider"] == {CPU: 0.25, CUDA: 0.75}


def test_products_are_counted_by_the_type_they_compute_in():
    kernels = (
        kernel("a", CPU, input_types=("float16", "float16")),
        kernel("b", CPU, input_types=("float",), operator="FusedMatMul"),
        kernel("c", CPU, input_types=("float",), operator="Add"),
        kernel("d", CPU, input_types=("float",), operator="DynamicQuantizeMatMul"),
        kernel("e", CPU, input_types=("uint8",), operator="MatMulInteger"),
    )
    assert placement(kernels, CPU)["compute_types"] == {"float": 1, "float16": 1, "int8": 2}
    few_bits = (kernel("a", CPU, input_types=("float", "uint8"), operator="MatMulNBits"),)
    assert placement(few_bits, CPU)["compute_types"] == {"float with weights of few bits": 1}
    assert placement(few_bits, CPU, quantizes_activations=True)["compute_types"] == {"int8": 1}


def test_time_shares_are_empty_without_kernels_or_time():
    assert placement((), CUDA)["time_share_by_provider"] == {}
    assert placement((kernel("a", CUDA, 0),), CUDA)["time_share_by_provider"] == {}


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}', '[{"cat": "Node", "args": {}}]', "[1]"])
def test_other_file_is_not_a_profile(tmp_path, text):
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(FormatError, match="not a profile of ONNX Runtime"):
        read_profile(path, "model")


def launch(name, parent, duration_us):
    """A kernel on the device, as ONNX Runtime's cupti_manager.cc and MergeEvents write it."""
    about = {"op_name": "x", "parent_name": parent, "stream": "13", "grid_x": "1", "block_x": "256"}
    return {"cat": "Kernel", "pid": -1, "tid": -1, "dur": duration_us, "ts": 9, "ph": "X", "name": name, "args": about}


def profiles_of(path, events):
    path.write_text(json.dumps(events))
    return {"model": read_graph_profile(path, "model")}


def test_a_build_that_traces_the_device_gives_each_run_of_a_node_the_time_of_its_kernels(tmp_path):
    """Two calls of a product, with one and two kernels, and a node that launches nothing."""
    run = {"cat": "Session", "name": "model_run", "dur": 40, "tid": 1, "args": {}}
    events = [
        {**run, "ts": 0},
        launch("MemcpyHostToDevice", "model_run", 7),
        event("product", 1, 10, "MatMul", provider=CUDA),
        launch("gemm", "product_kernel_time", 300),
        event("shape", 12, 1, "Reshape", provider=CUDA),
        {**run, "ts": 100},
        event("product", 101, 10, "MatMul", provider=CUDA),
        launch("gemm", "product_kernel_time", 310),
        launch("splitK", "product_kernel_time", 50),
    ]
    profiles = profiles_of(tmp_path / "profile.json", events)
    assert [one.device_us for one in profiles["model"].kernels] == [(300,), (), (310, 50)]
    assert kernel_time_missing(ORT_PROVIDER.memory, profiles) is None
    found = breakdown(nodes_by_call(profiles, 2), [1.0, 1.0], Origins(modules={}, module_infos={}))
    product = next(one for one in found.operators if one.operator == "MatMul")
    assert (product.device_ms, product.exclusive_ms) == (pytest.approx(0.33), pytest.approx(0.01))
    (outside,) = found.modules
    assert (outside.device_exclusive_ms, outside.inclusive_samples_ms) == (pytest.approx(0.33), (0.3, 0.36))
    assert found.metrics["kernel_launches"] == 1.5
    assert "kernel_launches" not in found.missing


def test_a_build_that_does_not_trace_the_device_leaves_kernel_time_out_with_the_reason(tmp_path):
    """With a GPU's memory nodes have the times of launches only; in host memory they compute in their own time."""
    profiles = profiles_of(tmp_path / "profile.json", [event("product", 1, 10, "MatMul", provider=CUDA)])
    why_not = kernel_time_missing(ORT_PROVIDER.memory, profiles)
    assert why_not is not None
    assert why_not.startswith("not_supported: this build of ONNX Runtime has the times in which the host launched")
    assert kernel_time_missing("cpu", profiles) is kernel_time_missing(None, profiles) is None
    found = breakdown(nodes_by_call(profiles, 1), [1.0], Origins(modules={}, module_infos={}))
    assert found.operators[0].device_ms is found.modules[0].device_inclusive_ms is None
    assert "kernel_launches" in found.missing


def test_times_of_the_device_that_no_node_launched_are_no_zeros_of_the_nodes(tmp_path):
    without_parent = launch("gemm", None, 300)
    del without_parent["args"]["parent_name"]
    copied = launch("MemcpyHostToDevice", "model_run", 7)
    events = [event("product", 1, 10, "MatMul", provider=CUDA), without_parent, copied]
    profiles = profiles_of(tmp_path / "profile.json", events)
    assert [one.device_us for one in profiles["model"].kernels] == [None]
    assert kernel_time_missing(ORT_PROVIDER.memory, profiles) is not None
