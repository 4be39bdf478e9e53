"""Graphs in a real browser, on WebAssembly and on WebGPU: the same values and marks as in other runtimes.

They are skipped, with the reason, where there is no browser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import Point, Workload
from benchmarking.graphs.bundle import Bundle, Graph, State, Tensor
from benchmarking.graphs.operations import operation_of
from benchmarking.runtimes.support.browser import browser_session as session
from benchmarking.runtimes.support.browser.browser_runtime import Adapter
from benchmarking.runtimes.support.browser.browser_session import profile_of
from benchmarking.runtimes.support.browser.page import ModelPage

VOCABULARY, WIDTH = 11, 4
POINT = Point(batch_size=2, sequence_length=3, new_tokens=4)
PROMPT = np.array([[1, 2, 3], [4, 5, 10]])
RANDOM = np.random.default_rng(7)
EMBEDDING = RANDOM.normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
HEAD = RANDOM.normal(size=(WIDTH, VOCABULARY)).astype(np.float32)
CROSS = RANDOM.normal(size=(WIDTH, WIDTH)).astype(np.float32)
WEIGHTS = {"embedding": EMBEDDING, "head": HEAD, "cross": CROSS}
SHAPES = {"ids": ("batch", "n"), "past": ("batch", "p", WIDTH), "seen": ("batch", "s", WIDTH)}


@pytest.fixture(scope="module", params=["wasm", "webgpu host", "webgpu device"])
def page(request: pytest.FixtureRequest, open_page: Callable[..., ModelPage]) -> Iterator[ModelPage]:
    """Shared by all tests of a kind, since a browser takes a second to start."""
    name, _, io_mode = request.param.partition(" ")
    opened = open_page(name, io_mode=io_mode or "host", num_threads=2 if name == "wasm" else 1)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def workload() -> Workload:
    from benchmarking.workloads.support.resolve import resolve

    return resolve("tiny-bert")


def graph(folder, name, nodes, inputs, outputs, **fields):
    """A graph file and its description: `inputs` and `outputs` are names; ids are integers, all else floats."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def value(one):
        kind = TensorProto.INT64 if one in ("ids", "t") else TensorProto.FLOAT
        return helper.make_tensor_value_info(one, kind, SHAPES.get(one, ("batch", None, None)))

    made = helper.make_graph(
        [
            helper.make_node(operator, list(taken), [given], **attributes)
            for operator, taken, given, attributes in nodes
        ],
        name,
        [value(one) for one in inputs],
        [value(one) for one in outputs],
        [numpy_helper.from_array(array, key) for key, array in WEIGHTS.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / f"{name}.onnx", save_as_external_data=True, location=f"{name}.data", size_threshold=0)
    kinds = {one: "int64" if one in ("ids", "t") else "float32" for one in (*inputs, *outputs)}
    tensors = {one: Tensor(name=one, dtype=kind, shape=SHAPES.get(one, ())) for one, kind in kinds.items()}
    return Graph(
        file=f"{name}.onnx",
        inputs=tuple(tensors[one] for one in inputs),
        outputs=tuple(tensors[one] for one in outputs),
        **fields,
    )


EMBED = ("Gather", ("embedding", "ids"), "embedded", {})
PAST = State(input="past", output="present", first=("batch", 0, WIDTH))


def forward(folder, name="model"):
    nodes = [EMBED, ("MatMul", ("embedded", "head"), "scores", {}), ("Tanh", ("scores",), "out", {})]
    fields = {"feeds": {"ids": "inputs.input_ids"}, "result": "out", "result_name": "logits"}
    return Bundle(
        kind="forward", exporter="by hand", graphs={"model": graph(folder, name, nodes, ["ids"], ["out"], **fields)}
    )


def decode(folder, *more, feeds, states=(PAST,)):
    """The mean of all embeddings so far, through the head."""
    nodes = [
        EMBED,
        ("Concat", ("past", "embedded"), "present", {"axis": 1}),
        ("Concat", ("present", *more), "all", {"axis": 1}),
        ("ReduceMean", ("all",), "mean", {"axes": [1], "keepdims": 1}),
        ("MatMul", ("mean", "head"), "logits", {}),
    ]
    fields = {"feeds": {"ids": "tokens", **feeds}, "states": states, "result": "logits"}
    return graph(folder, "decode", nodes, ["ids", "past", *more], ["logits", "present"], **fields)


def decoder(folder):
    return Bundle(
        kind="decoder", exporter="by hand", graphs={"decode": decode(folder, feeds={})}, prompt_input="input_ids"
    )


def decoder_with_prefill(folder):
    """The prompt has its own graph, whose output is the first state."""
    nodes = [
        EMBED,
        ("ReduceMean", ("embedded",), "mean", {"axes": [1], "keepdims": 1}),
        ("MatMul", ("mean", "head"), "logits", {}),
        ("Identity", ("embedded",), "kept", {}),
    ]
    prefill = graph(folder, "prefill", nodes, ["ids"], ["logits", "kept"], feeds={"ids": "tokens"}, result="logits")
    states = (replace(PAST, first_from="kept"),)
    graphs = {"prefill": prefill, "decode": decode(folder, feeds={}, states=states)}
    return Bundle(kind="decoder", exporter="by hand", graphs=graphs, prompt_input="input_ids")


def encoder_decoder(folder):
    encoder = graph(
        folder,
        "encoder",
        [EMBED, ("Tanh", ("embedded",), "hidden", {})],
        ["ids"],
        ["hidden"],
        feeds={"ids": "inputs.input_ids"},
    )
    cross = graph(
        folder,
        "cross",
        [("MatMul", ("seen", "cross"), "keys", {})],
        ["seen"],
        ["keys"],
        feeds={"seen": "encoder.hidden"},
    )
    graphs = {"encoder": encoder, "cross": cross, "decode": decode(folder, "seen", feeds={"seen": "cross.keys"})}
    return Bundle(kind="encoder-decoder", exporter="by hand", graphs=graphs, start_tokens=(0,))


def denoiser(folder):
    SHAPES.update(x=("batch", "c", 2), t=("batch",))
    nodes = [
        ("Cast", ("t",), "time", {"to": 1}),
        ("Constant", (), "sizes", {"value_ints": [-1, 1, 1]}),
        ("Reshape", ("time", "sizes"), "column", {}),
        ("Tanh", ("x",), "bent", {}),
        ("Mul", ("bent", "column"), "noise", {}),
    ]
    fields = {"feeds": {"x": "latents", "t": "timestep"}, "result": "noise"}
    facts = {"latents": "latents", "schedule": {"alphas": [0.9, 0.8, 0.7, 0.6], "last": 1.0, "offset": 1}}
    graphs = {"model": graph(folder, "model", nodes, ["x", "t"], ["noise"], **fields)}
    return Bundle(kind="denoiser", exporter="by hand", graphs=graphs, facts=facts)


def generated(tokens, seen, steps):
    """Tokens and first logits by numpy."""
    first, chosen = None, []
    for _ in range(steps):
        seen = [*seen, EMBEDDING[tokens]]
        logits = np.concatenate(seen, axis=1).mean(axis=1) @ HEAD
        first = logits if first is None else first
        tokens = logits.argmax(axis=-1)[:, None]
        chosen.append(tokens)
    return {"tokens": np.concatenate(chosen, axis=1), "logits": first}


def expected(bundle):
    """Numpy's output for the same inputs."""
    if bundle.kind == "forward":
        return {"logits": np.tanh(EMBEDDING[PROMPT] @ HEAD)}
    if bundle.kind == "decoder":
        return generated(PROMPT, [], POINT.new_tokens)
    cross = np.tanh(EMBEDDING[PROMPT]) @ CROSS
    return generated(np.zeros((2, 1), dtype=int), [cross], POINT.new_tokens)


def loaded(page, bundle, folder, workload, point=POINT, arrays=None):
    """The operation of a bundle in a page."""
    arrays = {"input_ids": PROMPT} if arrays is None else arrays
    page.browser.call("close")
    page.fetch(folder, bundle)
    page.open()
    inner = operation_of(bundle, session.PassThroughRunner(), workload, point, arrays)
    inputs, more = session.page_inputs(bundle, point, arrays)
    page.prepare(bundle, point, inputs, more)
    return session.PageOperation(inner, page, bundle)


@pytest.mark.parametrize("made", [forward, decoder, decoder_with_prefill, encoder_decoder])
def test_every_kind_of_bundle_computes_as_numpy_in_every_call(page, workload, tmp_path, made):
    bundle = made(tmp_path)
    operation = loaded(
        page, bundle, tmp_path, workload, POINT if made is not forward else replace(POINT, new_tokens=None)
    )
    for _ in range(3):
        number = operation.run(None)
        assert operation.own_times_ns()["latency_wall"] > 0
        arrays = operation.arrays(number)
        assert operation.problem(number) is None
        for name, array in expected(bundle).items():
            assert np.allclose(arrays[name], array, atol=1e-5), name
    names = [name for name, _ in operation.own_marks_ns()]
    encode = ["encode"] if made is encoder_decoder else []
    assert names == encode + ["token"] * (0 if made is forward else POINT.new_tokens)
    ends = [after for _, after in operation.own_marks_ns()]
    assert ends == sorted(ends)
    assert all(0 <= end <= operation.own_times_ns()["latency_wall"] for end in ends)


def test_denoising_loop_matches_the_other_runtimes(page, workload, tmp_path):
    from benchmarking.graphs.operations import denoising_steps

    bundle = denoiser(tmp_path)
    point = Point(batch_size=2, axes={"steps": 2})
    latents = RANDOM.normal(size=(2, 3, 2)).astype(np.float32)
    operation = loaded(page, bundle, tmp_path, workload, point, {"latents": latents})
    number = operation.run(None)
    wanted = latents
    for step in denoising_steps(bundle, point):
        wanted = wanted * np.float32(step.keep) + np.tanh(wanted) * np.float32(step.timestep) * np.float32(step.add)
    assert np.allclose(operation.arrays(number)["latents"], wanted, atol=1e-5)
    assert [name for name, _ in operation.own_marks_ns()] == ["step", "step"]


def test_the_page_reports_where_nodes_ran_and_computes_as_before(page, workload, tmp_path):
    bundle = decoder(tmp_path)
    operation = loaded(page, bundle, tmp_path, workload)
    facts = profile_of(page)
    provider = "CPUExecutionProvider" if page.settings.provider["name"] == "wasm" else "WebGpuExecutionProvider"
    assert facts["nodes_by_provider"][provider] >= 3
    assert facts["nodes_on_cpu_unasked"] == 0
    assert facts["compute_types"] == {"float": 1}
    assert np.array_equal(operation.arrays(operation.run(None))["tokens"], expected(bundle)["tokens"])


def test_threads_isolation_and_the_clock_are_read_back(page, workload, tmp_path):
    loaded(page, forward(tmp_path), tmp_path, workload, replace(POINT, new_tokens=None))
    opened = page.open()
    assert opened["threads"] == page.settings.num_threads
    assert opened["workers"] == page.settings.num_threads - 1
    assert page.started["crossOriginIsolated"] is True
    assert 0 < page.started["clockStepMs"] <= 0.02


def test_software_adapters_are_marked_as_simulated(page):
    if page.settings.provider["name"] != "webgpu":
        assert page.open()["adapter"] is None
        return
    shown, used = (Adapter.from_page(adapter) for adapter in (page.browser.call("adapter"), page.open()["adapter"]))
    assert shown.is_software
    assert replace(shown, features=()) == replace(used, features=())
    assert set(used.features) <= set(shown.features)


def test_the_browsers_memory_is_counted(page, workload, tmp_path):
    operation = loaded(page, forward(tmp_path), tmp_path, workload, replace(POINT, new_tokens=None))
    operation.run(None)
    assert operation.resident_bytes() > 50_000_000
    assert operation.readings(operation.run(None)).values["wasm_memory_bytes"] >= 1 << 24


def test_released_output_is_not_replaced_by_a_later_one(page, workload, tmp_path):
    operation = loaded(page, forward(tmp_path), tmp_path, workload, replace(POINT, new_tokens=None))
    first = operation.run(None)
    operation.run(None)
    with pytest.raises(BenchhouseError, match=f"the page failed at send: the output of call {first} is gone"):
        operation.arrays(first)


def test_unloadable_graph_has_the_librarys_message(page, tmp_path):
    bundle = forward(tmp_path)
    page.browser.call("close")
    page.fetch(tmp_path, bundle)
    (tmp_path / "model.data").unlink()
    (tmp_path / "model.data").write_bytes(b"\0" * 8)
    page.fetch(tmp_path, bundle)
    with pytest.raises(BenchhouseError, match=r"the page failed at open: "):
        page.open()


def test_a_files_name_may_have_characters_that_addresses_do_not(page, workload, tmp_path):
    operation = loaded(page, forward(tmp_path, "mein Modell #1 50%? ü"), tmp_path, workload)
    assert operation.arrays(operation.run(lambda name: None))["logits"].shape == (2, 3, VOCABULARY)


def test_a_bundle_larger_than_webassembly_is_refused(page, tmp_path, monkeypatch):
    from benchmarking.runtimes.support.browser import page as browser_page

    bundle = forward(tmp_path)
    monkeypatch.setattr(browser_page, "MAX_BUNDLE_BYTES", 100)
    with pytest.raises(UnsupportedError, match="WebAssembly can address 100"):
        page.fetch(tmp_path, bundle)
