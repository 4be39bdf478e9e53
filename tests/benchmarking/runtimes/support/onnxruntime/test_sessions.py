"""Sessions and runners of ONNX Runtime on graphs small enough to compute by hand."""

from __future__ import annotations

import dataclasses
import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarking.core.errors import BenchhouseError, OutOfMemoryError, UnsupportedError
from benchmarking.core.records import Point, Readings
from benchmarking.devices import cuda, rocm
from benchmarking.devices.cpu import ORT_PROVIDER
from benchmarking.graphs.bundle import Bundle, Graph, State, Tensor
from benchmarking.graphs.operations import ForwardCall
from benchmarking.runtimes.support.onnxruntime import ort_runtime, ort_session
from benchmarking.runtimes.support.onnxruntime.ort_runtime import (
    SessionSettings,
    assigned_nodes,
    default_num_threads,
    open_graph,
    session_facts,
    translate_error,
)
from benchmarking.runtimes.support.onnxruntime.ort_session import (
    GraphSource,
    LoadedGraphs,
    bindable_memory,
    load_graphs,
    runner_of,
)

SETTINGS = SessionSettings(provider=ORT_PROVIDER, precision="float32", num_threads=1)
CUDA = dataclasses.replace(SETTINGS, provider=cuda.ORT_PROVIDER)
X = np.array([[1.0, 1.0, 1.0], [0.0, 2.0, -1.0]], dtype=np.float32)
Y = [[3.0, 2.5], [4.0, 0.0]]
"""relu(X @ WEIGHT): of row 1 (1+2, -1+.5+3), of row 2 (4, 1-3)."""
IO_MODES = pytest.mark.parametrize("io_mode", ["host", "device"])

WEIGHT = np.array([[1.0, -1.0], [2.0, 0.5], [0.0, 3.0]], dtype=np.float32)
ONNX_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


def forward_bundle(folder: Path) -> Bundle:
    """y = relu(x @ WEIGHT), x of batch x 3; and s, the shape of x."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
    ]
    x, y, s = tensor("x", ("batch", 3)), tensor("y", ("batch", 2)), tensor("s", (2,), "int64")
    save(folder / "model.onnx", nodes, (x,), (y, s), {"w": WEIGHT})
    graph = Graph(
        file="model.onnx", inputs=(x,), outputs=(y, s), feeds={"x": "inputs.x"}, result="y", result_name="logits"
    )
    return Bundle(kind="forward", graphs={"model": graph}, exporter="by hand", weight_dtypes={"float32": WEIGHT.size})


def decoder_bundle(folder: Path) -> Bundle:
    """A decoder with a growing state of all tokens as floats: seen = past ++ tokens, logits = sum(seen) * [1, 2]."""
    nodes = [
        helper.make_node("Cast", ["tokens"], ["new"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["past", "new"], ["seen"], axis=1),
        helper.make_node("ReduceSum", ["seen", "axes"], ["total"], keepdims=1),
        helper.make_node("Mul", ["total", "w"], ["flat"]),
        helper.make_node("Unsqueeze", ["flat", "axes"], ["logits"]),
    ]
    tokens, past = tensor("tokens", ("batch", "new"), "int64"), tensor("past", ("batch", "length"))
    logits, seen = tensor("logits", ("batch", 1, 2)), tensor("seen", ("batch", "longer"))
    weights = {"w": np.array([1.0, 2.0], dtype=np.float32), "axes": np.array([1], dtype=np.int64)}
    save(folder / "decode.onnx", nodes, (tokens, past), (logits, seen), weights)
    graph = Graph(
        file="decode.onnx",
        inputs=(tokens, past),
        outputs=(logits, seen),
        feeds={"tokens": "tokens"},
        states=(State(input="past", output="seen", first=("batch", 0)),),
        result="logits",
    )
    return Bundle(kind="decoder", graphs={"decode": graph}, exporter="by hand", weight_dtypes={"float32": 2})


def tensor(name: str, shape: tuple[int | str, ...], dtype: str = "float32") -> Tensor:
    return Tensor(name=name, dtype=dtype, shape=shape)


def save(path: Path, nodes, inputs, outputs, weights) -> None:
    def described(tensors):
        return [helper.make_tensor_value_info(one.name, ONNX_TYPES[one.dtype], one.shape) for one in tensors]

    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "graph", described(inputs), described(outputs), initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


@pytest.fixture
def forward(tmp_path: Path) -> tuple[Path, Bundle]:
    return tmp_path, forward_bundle(tmp_path)


@pytest.fixture
def decoder(tmp_path: Path) -> tuple[Path, Bundle]:
    return tmp_path, decoder_bundle(tmp_path)


def loaded_from(made: tuple[Path, Bundle], settings: ort_runtime.SessionSettings) -> LoadedGraphs:
    folder, bundle = made
    return load_graphs(GraphSource(folder=folder, bundle=bundle, settings=settings))


@IO_MODES
def test_a_forward_pass_gives_every_output_by_name(forward, io_mode):
    runner = runner_of(loaded_from(forward, SETTINGS), io_mode)
    outputs = runner.call("model", {"x": runner.place(X)})
    assert runner.fetch(outputs["y"]).tolist() == Y
    assert runner.fetch(outputs["s"]).tolist() == [2, 3]


@IO_MODES
def test_other_inputs_of_another_shape_give_other_outputs(forward, io_mode):
    runner = runner_of(loaded_from(forward, SETTINGS), io_mode)
    first = runner.call("model", {"x": runner.place(X)})
    kept = runner.fetch(first["y"])
    second = runner.call("model", {"x": runner.place(2 * X[:1])})
    assert runner.fetch(second["y"]).tolist() == [[6.0, 5.0]]
    assert kept.tolist() == Y


def test_unchanged_inputs_are_not_bound_again(forward, monkeypatch):
    runner = runner_of(loaded_from(forward, SETTINGS), "device")
    feeds = {"x": runner.place(X)}
    first = runner.call("model", feeds)["y"].data_ptr()
    bound = []
    binding = runner._bindings["model"]._binding
    monkeypatch.setattr(type(binding), "bind_ortvalue_input", lambda self, name, value: bound.append(name))
    assert runner.call("model", feeds)["y"].data_ptr() == first
    assert bound == []


@IO_MODES
def test_states_grow_from_empty_in_each_call(decoder, io_mode):
    runner = runner_of(loaded_from(decoder, SETTINGS), io_mode)
    for _ in range(2):
        states = runner.begin("decode", 2, {})
        seen = []
        for tokens in ([[1, 2], [3, 4]], [[5], [6]], [[0], [1]]):
            outputs, states = runner.step("decode", {"tokens": runner.place(np.array(tokens))}, states)
            assert list(outputs) == ["logits"]
            seen.append(runner.fetch(outputs["logits"])[:, 0].tolist())
        assert seen == [[[3.0, 6.0], [7.0, 14.0]], [[8.0, 16.0], [13.0, 26.0]], [[8.0, 16.0], [14.0, 28.0]]]
        assert runner.fetch(states["past"]).tolist() == [[1, 2, 5, 0], [3, 4, 6, 1]]


@IO_MODES
def test_the_output_of_another_graph_replaces_zeros_as_a_first_state(decoder, io_mode):
    folder, bundle = decoder
    state = State(input="past", output="seen", first=("batch", 0), first_from="kept")
    graph = dataclasses.replace(bundle.graphs["decode"], states=(state,))
    loaded = loaded_from((folder, dataclasses.replace(bundle, graphs={"decode": graph})), SETTINGS)
    runner = runner_of(loaded, io_mode)
    states = runner.begin("decode", 1, {"past": runner.place(np.array([[10.0]], dtype=np.float32))})
    outputs, _ = runner.step("decode", {"tokens": runner.place(np.array([[1]]))}, states)
    assert runner.fetch(outputs["logits"]).tolist() == [[[11.0, 22.0]]]


@IO_MODES
def test_verified_counts_the_kernels_of_a_call_by_provider(forward, io_mode):
    loaded = loaded_from(forward, SETTINGS)
    runner = runner_of(loaded, io_mode, lambda other: other.call("model", {"x": other.place(X)}))
    verified = runner.verified()
    assert verified["nodes_by_provider"] == {"CPUExecutionProvider": 3}
    assert (verified["nodes"], verified["nodes_on_cpu_unasked"]) == (3, 0)
    assert verified["compute_types"] == {"float": 1}


def test_half_precision_computed_in_float32_is_reported_as_emulated(forward):
    """As on x86, for which ONNX Runtime has no float16 kernels; the float32 graph has the same effect as its casts."""
    half = dataclasses.replace(SETTINGS, precision="float16")
    runner = runner_of(loaded_from(forward, half), "host", lambda other: other.call("model", {"x": X}))
    assert runner.verified()["emulated_precision"] == "float16"
    whole = runner_of(loaded_from(forward, SETTINGS), "host", lambda other: other.call("model", {"x": X}))
    assert "emulated_precision" not in whole.verified()


def test_profiles_are_not_left_behind(forward, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runner = runner_of(loaded_from(forward, SETTINGS), "host", lambda other: other.call("model", {"x": X}))
    runner.verified()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx"]


def test_silent_fallback_from_cuda_to_the_cpu_is_refused(forward):
    """A real fallback: without a GPU or CUDA's libraries, ONNX Runtime prints a line and uses the CPU."""
    if any(entry.ep_name == "CUDAExecutionProvider" for entry in onnxruntime.get_ep_devices()):
        pytest.skip("this machine has a GPU that ONNX Runtime can use")
    folder, bundle = forward
    with pytest.raises(UnsupportedError, match=r"requested CUDAExecutionProvider, but .* runs on CPUExecutionProvider"):
        open_graph(folder / bundle.graphs["model"].file, CUDA)


def session_that(providers, nodes):
    parts = [SimpleNamespace(ep_name=name, get_nodes=lambda count=count: [None] * count) for name, count in nodes]
    return SimpleNamespace(get_providers=lambda: providers, get_provider_graph_assignment_info=lambda: parts)


def test_first_provider_without_nodes_is_refused():
    named = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    with pytest.raises(
        UnsupportedError, match="took no node of the graph in ONNX Runtime: all nodes run on CPUExecutionProvider"
    ):
        ort_runtime._check_providers(session_that(named, [("CPUExecutionProvider", 3)]), CUDA)
    ort_runtime._check_providers(session_that(named, [("CPUExecutionProvider", 3), (named[0], 1)]), CUDA)


def test_the_settings_are_read_back(forward):
    folder, _bundle = forward
    session = open_graph(folder / "model.onnx", dataclasses.replace(SETTINGS, num_threads=2))
    assert session_facts(session, SETTINGS) == {
        "providers": ["CPUExecutionProvider"],
        "provider_options": {},
        "num_threads": 2,
        "num_interop_threads": 1,
        "graph_optimization": "all",
        "execution_mode": "sequential",
        "memory_pattern": True,
        "allow_spinning": True,
    }
    assert assigned_nodes(session) in (None, {"CPUExecutionProvider": 3})


def test_free_dimensions_are_fixed_for_providers_that_need_it(forward):
    folder, _ = forward
    session = open_graph(folder / "model.onnx", dataclasses.replace(SETTINGS, dimensions={"batch": 7}))
    assert session.get_inputs()[0].shape == [7, 3]


@pytest.mark.parametrize(
    ("cores", "quota", "allowed", "expected"),
    [(8, None, 16, 8), (8, 2.5, 16, 3), (8, None, 4, 4), (None, None, 6, 6), (8, 0.5, 16, 1)],
)
def test_threads_are_the_cores_that_may_be_used(monkeypatch, cores, quota, allowed, expected):
    facts = {"cpu_cores": cores, "cgroup_cpu_quota_cores": quota}
    known = Readings(values={name: value for name, value in facts.items() if value is not None})
    monkeypatch.setattr(ort_runtime, "host_facts", lambda: known)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(allowed)), raising=False)
    assert default_num_threads() == expected


def test_an_error_is_one_line_without_source_locations():
    long = "/src/x.cc:71 virtual f() Error: [ONNXRuntimeError] : 1 : FAIL : no such thing\nmore"
    assert str(translate_error("loading", RuntimeError(long))) == "loading: ONNX Runtime failed: no such thing"
    assert isinstance(
        translate_error("running", RuntimeError("Failed to allocate memory for requested buffer")), OutOfMemoryError
    )
    assert isinstance(translate_error("running", MemoryError()), OutOfMemoryError)


def test_invalid_graph_file_is_a_benchhouse_error(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"nothing")
    with pytest.raises(BenchhouseError, match=r"loading model\.onnx on CPUExecutionProvider: ONNX Runtime failed: "):
        open_graph(path, SETTINGS)


def test_bfloat16_on_the_cpu_is_refused_by_onnx_runtime_itself(tmp_path):
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.BFLOAT16, (2, 2)) for name in "xy")
    model = helper.make_model(
        helper.make_graph([node], "graph", [x], [y]), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(UnsupportedError, match="ONNX Runtime lacks a kernel"):
        open_graph(tmp_path / "model.onnx", SETTINGS)


def test_amd_memory_has_its_own_name_in_onnx_runtime():
    """In the installed library, "cuda" always has NVIDIA's PCI vendor, and "gpu" the vendor of the build's GPUs."""
    from onnxruntime.capi.onnxruntime_inference_collection import OrtDevice, OrtDeviceVendorId

    migraphx, older = rocm.ORT_PROVIDERS
    assert OrtDevice.make("cuda", 0).device_vendor_id() == OrtDeviceVendorId.NVIDIA
    assert (migraphx.memory, older.memory, cuda.ORT_PROVIDER.memory) == ("gpu", "cuda", "cuda")
    assert OrtDevice.make(migraphx.memory, 0).device_type() == OrtDevice.make("cuda", 0).device_type()
    assert bindable_memory(migraphx) == "gpu"


def test_memory_unknown_to_the_installed_version_is_refused():
    hip = dataclasses.replace(rocm.ORT_PROVIDERS[0], memory="hip")
    with pytest.raises(UnsupportedError, match=r"cannot bind to the memory 'hip' of MIGraphXExecutionProvider"):
        bindable_memory(hip)


def test_captured_calls_keep_the_addresses_of_their_outputs(forward):
    """On the CPU, which captures nothing, with the addresses and run options of a GPU."""
    replayed = dataclasses.replace(SETTINGS, is_replayed=True, dimensions={"batch": 2})
    runner = runner_of(loaded_from(forward, replayed), "device")
    feeds = {"x": runner.place(X)}
    first = runner.call("model", feeds)
    assert runner.fetch(first["y"]).tolist() == Y
    addresses = [value.data_ptr() for value in first.values()]
    assert [value.data_ptr() for value in runner.call("model", feeds).values()] == addresses
    with pytest.raises(BenchhouseError, match="captured with other inputs"):
        runner.call("model", {"x": runner.place(X)})


@pytest.mark.parametrize("is_replayed", [False, True])
def test_calls_are_profiled_unless_they_replay_a_captured_graph(forward, tmp_path, make_run, monkeypatch, is_replayed):
    """A replay runs no nodes: only those of the capture would be in the profile."""
    folder, bundle = forward
    point = Point(batch_size=2)
    settings = dataclasses.replace(SETTINGS, is_replayed=is_replayed, dimensions={"batch": 2} if is_replayed else {})
    source = GraphSource(folder=folder, bundle=bundle, settings=settings)
    monkeypatch.setattr(ort_session, "open_processing", lambda workload, stage: SimpleNamespace(verified={}))
    monkeypatch.setattr(
        ort_session, "graph_operation", lambda bundle, runner, *rest: ForwardCall(bundle, runner, point, {"x": X})
    )
    cell = dataclasses.replace(make_run().cell, runtime_mode={"io_mode": "device"})
    session = ort_session.OrtSession(cell, (point,), lambda point: source, lambda name: nullcontext())
    profiler = session.operation(point).profiler(tmp_path, lambda: None)
    assert (profiler is None) is is_replayed


@IO_MODES
def test_a_failed_call_is_a_benchhouse_error(forward, io_mode):
    runner = runner_of(loaded_from(forward, SETTINGS), io_mode)
    with pytest.raises(BenchhouseError, match="running graph 'model': ONNX Runtime failed: "):
        runner.call("model", {"x": runner.place(np.zeros((2, 5), dtype=np.float32))})
