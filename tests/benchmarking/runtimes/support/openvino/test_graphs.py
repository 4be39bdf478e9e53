"""Bundles made by hand, converted to OpenVINO's files and called: states, requests, weights in fewer bits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import Cell, Device, Point, Readings
from benchmarking.graphs.bundle import Bundle, Graph, State, Tensor, read_bundle, write_bundle
from benchmarking.graphs.operations import DecoderGeneration, ForwardCall
from benchmarking.runtimes.support.openvino import compile as loading
from benchmarking.runtimes.support.openvino.openvino_session import (
    ConcurrentRunner,
    GraphRequest,
    OpenVinoOperation,
    OpenVinoRunner,
)
from benchmarking.workloads.support.resolve import resolve

VOCABULARY, WIDTH = 32, 64
DEVICE = Device(type="cpu", selector="cpu", found=True)
VALUES = np.random.default_rng(0)
EMBEDDING = VALUES.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
MIDDLE = (VALUES.standard_normal((WIDTH, WIDTH)) / 8).astype(np.float32)
HEAD = VALUES.standard_normal((WIDTH, VOCABULARY)).astype(np.float32)

pytest.importorskip("openvino")


def cell(**changes):
    mode = {"hint": "latency", "dynamic": "true"}
    given = {"workload": resolve("tiny-bert", weights="random"), "device": DEVICE, "runtime_mode": mode, **changes}
    return Cell(requested_device="cpu", runtime="openvino", **given)


def write_onnx(path, nodes, inputs, outputs):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    types = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT}
    values = [
        [helper.make_tensor_value_info(one.name, types[one.dtype], list(one.shape)) for one in tensors]
        for tensors in (inputs, outputs)
    ]
    constants = {"embedding": EMBEDDING, "middle": MIDDLE, "head": HEAD, "one": np.array([1], dtype=np.int64)}
    used = {name for node in nodes for name in node.input}
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items() if name in used]
    graph = helper.make_graph(nodes, "by hand", *values, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder whose next token depends on all tokens so far: the head applied to the sum of their embeddings."""
    from onnx import helper

    folder = tmp_path_factory.mktemp("decoder")
    inputs = (
        Tensor(name="input_ids", dtype="int64", shape=("batch", "n")),
        Tensor(name="past", dtype="float32", shape=("batch", "past", WIDTH)),
    )
    outputs = (
        Tensor(name="logits", dtype="float32", shape=("batch", 1, VOCABULARY)),
        Tensor(name="present", dtype="float32", shape=("batch", "total", WIDTH)),
    )
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["seen"]),
        helper.make_node("Concat", ["past", "seen"], ["present"], axis=1),
        helper.make_node("ReduceSum", ["present", "one"], ["sum"], keepdims=1),
        helper.make_node("MatMul", ["sum", "head"], ["logits"]),
    ]
    write_onnx(folder / "decode.onnx", nodes, inputs, outputs)
    state = State(input="past", output="present", first=("batch", 0, WIDTH))
    graph = Graph(
        file="decode.onnx",
        inputs=inputs,
        outputs=outputs,
        feeds={"input_ids": "tokens"},
        states=(state,),
        result="logits",
    )
    write_bundle(folder, Bundle(kind="decoder", graphs={"decode": graph}, exporter="hand", prompt_input="input_ids"))
    return folder


@pytest.fixture(scope="module")
def forward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pass through a model: two products applied to every token's embedding."""
    from onnx import helper

    folder = tmp_path_factory.mktemp("forward")
    inputs = (Tensor(name="input_ids", dtype="int64", shape=("batch", "n")),)
    outputs = (Tensor(name="logits", dtype="float32", shape=("batch", "n", VOCABULARY)),)
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["seen"]),
        helper.make_node("MatMul", ["seen", "middle"], ["inner"]),
        helper.make_node("MatMul", ["inner", "head"], ["logits"]),
    ]
    write_onnx(folder / "model.onnx", nodes, inputs, outputs)
    graph = Graph(
        file="model.onnx", inputs=inputs, outputs=outputs, feeds={"input_ids": "inputs.input_ids"}, result="logits"
    )
    write_bundle(folder, Bundle(kind="forward", graphs={"model": graph}, exporter="hand"))
    return folder


@pytest.fixture
def core() -> Any:
    from benchmarking.devices.openvino import import_openvino

    return import_openvino().Core()


def converted(source, folder, precision="float32"):
    facts = loading.convert(source, folder, precision, "by-hand")
    return folder, facts


def compiled(core, folder, **changes):
    loaded = loading.read(core, folder)
    return loaded, loading.compile_for(cell(**changes), core, loaded, Point(batch_size=2, sequence_length=3))


def greedy(prompt, steps):
    """The decoder by hand."""
    tokens = prompt
    for _ in range(steps):
        logits = EMBEDDING[tokens].sum(axis=1) @ HEAD
        tokens = np.concatenate([tokens, logits.argmax(axis=-1)[:, np.newaxis]], axis=1)
    return tokens[:, prompt.shape[1] :]


def test_generation_keeps_states_in_the_request_and_resets_them_per_call(core, decoder, tmp_path):
    folder, facts = converted(decoder, tmp_path)
    assert facts["weight_dtypes"] == {"float32": 2 * VOCABULARY * WIDTH}
    loaded, graphs = compiled(core, folder)
    assert [one.any_name for one in loaded.models["decode"].inputs] == ["input_ids"]
    runner = OpenVinoRunner({"decode": graphs["decode"].model}, loaded.bundle.graphs, dict)
    for batch_size in (2, 3, 1, 2):
        prompt = VALUES.integers(0, VOCABULARY, (batch_size, 5))
        point = Point(batch_size=batch_size, sequence_length=5, new_tokens=4)
        operation = DecoderGeneration(loaded.bundle, runner, point, {"input_ids": prompt})
        expected = greedy(prompt, 4)
        for _ in range(2):  # the second call must not see the first one's states
            output = operation.run(lambda name: None)
            assert operation.problem(output) is None
            np.testing.assert_array_equal(operation.arrays(output)["tokens"], expected)


def test_unchanged_tensor_is_not_set_again(core, forward, tmp_path):
    loaded, graphs = compiled(core, converted(forward, tmp_path)[0])

    class Counting:
        def __init__(self, request):
            self.request, self.names = request, []

        def set_tensor(self, name, tensor):
            self.names.append(name)
            self.request.set_tensor(name, tensor)

        def __getattr__(self, name):
            return getattr(self.request, name)

    counting = Counting(graphs["model"].model.create_infer_request())
    request = GraphRequest(counting, loaded.bundle.graphs["model"])
    runner = OpenVinoRunner({}, {}, dict)
    first, second = (runner.place(np.full((1, 2), token, dtype=np.int64)) for token in (3, 4))
    for tensor, token in ((first, 3), (first, 3), (second, 4)):
        np.testing.assert_allclose(
            request.infer({"input_ids": tensor})["logits"].data[0, 0],
            EMBEDDING[token] @ MIDDLE @ HEAD,
            rtol=1e-4,
            atol=1e-4,
        )
    assert counting.names == ["input_ids", "input_ids"]


def test_the_queue_is_kept_full_and_completions_are_those_of_requests(core, forward, tmp_path):
    mode = {"hint": "throughput", "dynamic": "true"}  # compiled for other numbers than are run here
    loaded, graphs = compiled(core, converted(forward, tmp_path)[0], runtime_mode=mode)
    assert graphs["model"].facts["performance_hint"] == "THROUGHPUT"
    runner = ConcurrentRunner(graphs["model"].model, loaded.bundle.graphs["model"], 3, dict)
    ids = VALUES.integers(0, VOCABULARY, (16, 500))  # a call takes longer than submitting the next one
    inner = ForwardCall(loaded.bundle, runner, Point(batch_size=16, sequence_length=500), {"input_ids": ids})
    operation = OpenVinoOperation(inner, runner, 0.5, is_one_run=True)
    assert (operation.items_per_call, operation.tokens_per_call) == (16, 16 * 500)
    assert operation.requests_in_flight == 3
    output = operation.run(lambda name: None)
    np.testing.assert_allclose(operation.arrays(output)["logits"], EMBEDDING[ids] @ MIDDLE @ HEAD, rtol=1e-4, atol=1e-4)
    assert operation.runtime_times_ns()["latency_request"] > 0
    done = operation.keep_in_flight(50, time.perf_counter_ns)
    assert len(done) == 50
    assert all(0 < one.runtime_ns <= one.completed_ns - one.submitted_ns for one in done)
    assert [one.completed_ns for one in done] == sorted(one.completed_ns for one in done)
    submitted, ends = sorted(one.submitted_ns for one in done), [one.completed_ns for one in done]
    assert submitted[0] == submitted[2] < min(ends)
    assert submitted[3:] == ends[: len(done) - 3], "each place begins again when it ends"
    assert operation.verified() == {"requests": 3, "requests_agree": True}
    assert len(operation.keep_in_flight(50, time.perf_counter_ns, until_ns=0.0, least=5)) == 5
    inner.more_readings = lambda: Readings(values={"audio_seconds_per_call": 10.0, "tokenize_ms": 2.0})
    expected = {"compile_s": 0.5, "audio_seconds_per_call": 10.0, "tokenize_ms": 2.0}
    assert operation.readings(output).values == expected


def test_requests_with_different_outputs_are_reported(core, forward, tmp_path):
    loaded, graphs = compiled(core, converted(forward, tmp_path)[0])
    runner = ConcurrentRunner(graphs["model"].model, loaded.bundle.graphs["model"], 2, dict)
    runner.call("model", {"input_ids": runner.place(np.zeros((1, 2), dtype=np.int64))})
    runner.keep_in_flight(4, time.perf_counter_ns, float("inf"), 0)
    assert runner.verified()["requests_agree"] is True
    runner._by_number[1].infer({"input_ids": runner.place(np.ones((1, 2), dtype=np.int64))})
    assert runner.verified()["requests_agree"] is False


def test_fixed_shapes_are_those_of_the_point(core, forward, tmp_path):
    bundle = read_bundle(forward)
    arrays = {"input_ids": np.zeros((2, 7), dtype=np.int64)}
    assert loading.shapes_at(bundle, "model", Point(batch_size=2, sequence_length=7), arrays) == {"input_ids": [2, 7]}
    mode = {"hint": "latency", "dynamic": "false"}
    _, graphs = compiled(core, converted(forward, tmp_path)[0], runtime_mode=mode)
    assert list(graphs["model"].model.input(0).shape) == [2, 3]


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("int8", {"uint8": 2 * VOCABULARY * WIDTH + WIDTH * WIDTH}),
        # nncf leaves embeddings and the last product in 8 bits: they cost more accuracy than memory.
        ("int4", {"uint8": 2 * VOCABULARY * WIDTH, "int4": WIDTH * WIDTH}),
    ],
)
def test_weights_in_fewer_bits_are_read_back_from_the_files(core, forward, tmp_path, precision, expected):
    pytest.importorskip("nncf")
    folder, facts = converted(forward, tmp_path, precision)
    zero_points = VOCABULARY + WIDTH + VOCABULARY if precision == "int8" else 2 * VOCABULARY
    assert facts["weight_dtypes"]["uint8"] == expected["uint8"] + zero_points
    assert facts["weight_dtypes"].get("int4") == expected.get("int4")
    assert facts["weights_bytes"] < 0.5 * (EMBEDDING.nbytes + MIDDLE.nbytes + HEAD.nbytes)
    stored, weights_bytes = loading.weights(loading.read(core, folder), cell(precision=precision))
    assert (stored["parameters_by_dtype"], weights_bytes) == (facts["weight_dtypes"], facts["weights_bytes"])


def test_quantization_to_4_bits_without_effect_is_refused(decoder, tmp_path):
    pytest.importorskip("nncf")
    with pytest.raises(
        UnsupportedError, match=r"by-hand has no weights that can become int4; its weights are .* uint8"
    ):
        converted(decoder, tmp_path, "int4")


def test_weights_of_the_wrong_precision_are_refused():
    loading.check_weights({"float32": 10, "uint8": 90}, "int8", "m")
    with pytest.raises(UnsupportedError, match="m has no weights that can become int4; its weights are 90 uint8"):
        loading.check_weights({"uint8": 90}, "int4", "m")
    with pytest.raises(UnsupportedError, match="m has no weights that can become float16; its weights are 9 float32"):
        loading.check_weights({"float32": 9}, "float16", "m")
    with pytest.raises(UnsupportedError, match="requested float32, but the weights of m are 9 float16"):
        loading.check_weights({"float16": 9}, "float32", "m")


def test_build_keys_depend_on_precision_but_not_on_run_settings():
    point = Point(batch_size=1, sequence_length=8)
    digests = {
        precision: loading.build_key(cell(precision=precision), point).digest
        for precision in ("float32", "int8", "int4", "bfloat16")
    }
    assert len({digests["float32"], digests["int8"], digests["int4"]}) == 3
    assert digests["bfloat16"] == digests["float32"]  # a hint, on the same files
    other = cell(runtime_mode={"hint": "throughput", "dynamic": "false"}, num_threads=1)
    assert loading.build_key(other, Point(batch_size=8, sequence_length=32)).digest == digests["float32"]


def test_a_missing_build_is_an_error(tmp_path):
    with pytest.raises(Exception, match=r"no openvino build of tiny-bert at b1 s8 .* run it again"):
        loading.find_build(cell(), Point(batch_size=1, sequence_length=8), BuildStore(tmp_path))


def test_missing_nncf_is_named(monkeypatch):
    monkeypatch.setattr(loading, "is_installed", lambda name: name != "nncf")
    assert loading.missing_for("int8") == "int8 on openvino needs nncf to compress the weights: pip install nncf"
    assert loading.missing_for("float16") is None
