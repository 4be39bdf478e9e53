"""A page's calls as operations: their inputs, times, and outputs on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarking.core.contracts import Operation
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Point, Workload
from benchmarking.graphs.bundle import Bundle, Graph, State, Tensor
from benchmarking.graphs.operations import operation_of
from benchmarking.measure.timing import Stopwatch
from benchmarking.runtimes.support.browser import browser_session as session
from benchmarking.runtimes.support.browser.page import graphs_description

IDS = Tensor(name="ids", dtype="int32", shape=("batch", "n"))
LOGITS = Tensor(name="logits", dtype="float32", shape=("batch", 1, 5))
FORWARD = Bundle(
    kind="forward",
    exporter="by hand",
    graphs={
        "model": Graph(
            file="model.onnx",
            inputs=(IDS,),
            outputs=(
                Tensor(name="out", dtype="float32", shape=("batch",)),
                Tensor(name="pooled", dtype="float32", shape=()),
            ),
            feeds={"ids": "inputs.input_ids"},
            result="out",
            result_name="last_hidden_state",
        )
    },
)
DECODE = Graph(
    file="decode.onnx",
    inputs=(IDS, Tensor(name="past", dtype="float32", shape=("batch", "p", 4))),
    outputs=(LOGITS, Tensor(name="present", dtype="float32", shape=("batch", "q", 4))),
    feeds={"ids": "tokens", "seen": "encoder.hidden"},
    states=(State(input="past", output="present", first=("batch", 0, 4)),),
    result="logits",
)
DECODER = Bundle(kind="decoder", exporter="by hand", graphs={"decode": DECODE}, prompt_input="input_ids")
ENCODER = Graph(
    file="encoder.onnx",
    inputs=(IDS,),
    outputs=(
        Tensor(name="hidden", dtype="float32", shape=("batch", "n", 4)),
        Tensor(name="extra", dtype="float32", shape=()),
    ),
    feeds={"ids": "inputs.input_ids"},
)
WITH_ENCODER = Bundle(
    kind="encoder-decoder",
    exporter="by hand",
    graphs={"encoder": ENCODER, "cross": Graph(file="c.onnx", inputs=(), outputs=()), "decode": DECODE},
    start_tokens=(7, 8),
)
DENOISER = Bundle(
    kind="denoiser",
    exporter="by hand",
    graphs={
        "model": Graph(
            file="model.onnx",
            inputs=(
                Tensor(name="sample", dtype="float32", shape=("batch", 1)),
                Tensor(name="t", dtype="int64", shape=("batch",)),
            ),
            outputs=(Tensor(name="noise", dtype="float32", shape=("batch", 1)),),
            feeds={"sample": "latents", "t": "timestep"},
            result="noise",
        )
    },
    facts={"latents": "latents", "schedule": {"alphas": [0.9, 0.8, 0.7, 0.6], "last": 1.0, "offset": 0}},
)
POINT = Point(batch_size=2, sequence_length=3)
PROMPT = {"input_ids": np.array([[1, 2, 3], [4, 5, 6]])}


class FakePage:
    """A page with finished calls. `sent` counts requests for an output."""

    def __init__(self, arrays, tokens=None, marks=()):
        self.browser = FakeBrowser()
        self.arrays, self.tokens, self.marks = arrays, tokens, list(marks)
        self.calls = self.sent = 0

    def call(self):
        self.calls += 1
        return {"number": self.calls, "wallMs": 2.5 * self.calls, "marks": self.marks}

    def output(self, number, names):
        self.sent += 1
        if number != self.calls:
            raise BenchhouseError(f"the output of call {number} is gone")
        return {name: self.arrays[name] for name in names}, self.tokens


class FakeBrowser:
    def process_ids(self):
        return ()

    def call(self, method):
        assert method == "memory"
        return {"wasmBytes": [1 << 24, 1 << 16], "heapBytes": None}


@pytest.fixture
def make(workload: Workload) -> Callable[..., Any]:
    """A function that makes an operation on a fake page."""

    def make_one(bundle, page, point=POINT, arrays=PROMPT):
        inner = operation_of(bundle, session.PassThroughRunner(), workload, point, arrays)
        return session.PageOperation(inner, page, bundle)

    return make_one


@pytest.fixture(scope="module")
def workload() -> Workload:
    from benchmarking.workloads.support.resolve import resolve

    return resolve("tiny-bert")


def test_the_page_times_the_call_and_its_parts(make):
    operation = make(FORWARD, FakePage({}, marks=[["encode", 0.5], ["token", 1.25]]))
    assert operation.times_itself
    assert operation.marks_itself
    for part in ("own_times_ns", "own_marks_ns", "arrays", "verified", "resident_bytes"):
        assert getattr(type(operation), part) is not getattr(Operation, part)
    assert operation.run(lambda name: pytest.fail("the page marks")) == 1
    assert operation.own_times_ns() == {"latency_wall": 2_500_000}
    assert operation.own_marks_ns() == [("encode", 500_000), ("token", 1_250_000)]


def test_stopwatch_converts_the_pages_marks_to_its_clock(make):
    class Handle:
        def now_ns(self):
            return 1000

        def timer(self):
            return None

        def synchronize(self):
            pass

    watch = Stopwatch(make(FORWARD, FakePage({}, marks=[["token", 1.0], ["token", 2.0]])), Handle())
    watch.run(2)
    assert watch.calls_ms == [2.5, 5.0]
    marks = [("token", 1_001_000), ("token", 2_001_000)]
    assert [(started, list(found)) for started, found in watch.call_marks()] == [(1000, marks), (1000, marks)]


def test_forward_pass_returns_its_result_under_the_familys_name(make):
    page = FakePage({"out": np.array([1.5, 2.0], dtype=np.float16)})
    operation = make(FORWARD, page)
    number = operation.run(None)
    assert page.sent == 0
    arrays = operation.arrays(number)
    assert list(arrays) == ["last_hidden_state"]
    assert arrays["last_hidden_state"].dtype == np.float32
    assert arrays["last_hidden_state"].tolist() == [1.5, 2.0]
    assert operation.problem(number) is None
    assert page.sent == 1
    assert (operation.items_per_call, operation.tokens_per_call, operation.new_tokens) == (2, 6, None)


def test_output_of_an_earlier_call_is_gone(make):
    operation = make(FORWARD, FakePage({"out": np.zeros(2)}))
    first = operation.run(None)
    operation.run(None)
    with pytest.raises(BenchhouseError, match="the output of call 1 is gone"):
        operation.arrays(first)


def test_nan_in_the_pages_output_is_a_problem(make):
    operation = make(FORWARD, FakePage({"out": np.array([1.0, np.nan])}))
    assert operation.problem(operation.run(None)) == "NaN or Inf in last_hidden_state: 1 of 2 values"


def test_a_generation_has_its_tokens_by_sequence_and_the_last_positions_logits(make):
    first = np.arange(20, dtype=np.float32).reshape(2, 2, 5)
    page = FakePage({"first": first, "last": np.zeros((2, 1, 5))}, tokens=[[10, 20], [11, 21], [12, 22]])
    operation = make(DECODER, page, Point(batch_size=2, sequence_length=3, new_tokens=3))
    number = operation.run(None)
    arrays = operation.arrays(number)
    assert arrays["tokens"].tolist() == [[10, 11, 12], [20, 21, 22]]
    assert arrays["logits"].tolist() == [[5, 6, 7, 8, 9], [15, 16, 17, 18, 19]]
    assert operation.problem(number) is None
    assert (operation.new_tokens, operation.tokens_per_call, operation.prompt_tokens_per_call) == (3, 6, 6)


def test_a_generation_of_one_token_has_one_set_of_logits(make):
    page = FakePage({"first": np.ones((2, 1, 5))}, tokens=[[1, 2]])
    operation = make(DECODER, page, Point(batch_size=2, sequence_length=3, new_tokens=1))
    assert operation.problem(operation.run(None)) is None


def test_missing_tokens_are_a_problem(make):
    page = FakePage({"first": np.ones((2, 1, 5)), "last": np.ones((2, 1, 5))}, tokens=[[1, 2]])
    operation = make(DECODER, page, Point(batch_size=2, sequence_length=3, new_tokens=2))
    assert operation.problem(operation.run(None)) == "token count: 2 rows of [1], expected 2 each"


def test_readings_have_the_pages_memory_or_the_reason(make):
    operation = make(FORWARD, FakePage({"out": np.zeros(2)}))
    readings = operation.readings(operation.run(None))
    assert readings.values["wasm_memory_bytes"] == (1 << 24) + (1 << 16)
    assert readings.missing["js_heap_bytes"] == "not_supported: pages cannot read it in this browser"


def test_inputs_are_of_the_graphs_types_under_the_graphs_names():
    inputs, more = session.page_inputs(FORWARD, POINT, PROMPT)
    assert more == {}
    assert {name: array.dtype.name for name, array in inputs.items()} == {"model.ids": "int32"}
    assert inputs["model.ids"].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_decoder_is_fed_the_prompt_and_an_encoder_decoder_its_start_tokens():
    inputs, _ = session.page_inputs(DECODER, POINT, PROMPT)
    assert inputs["prompt"].tolist() == [[1, 2, 3], [4, 5, 6]]
    inputs, _ = session.page_inputs(WITH_ENCODER, POINT, PROMPT)
    assert sorted(inputs) == ["encoder.ids", "prompt"]
    assert inputs["prompt"].tolist() == [[7, 8], [7, 8]]
    assert inputs["prompt"].dtype == np.int32


def test_denoiser_is_fed_latents_and_timesteps():
    latents = np.array([[0.5], [1.0]])
    point = Point(batch_size=2, axes={"image_size": 8, "steps": 2})
    inputs, more = session.page_inputs(DENOISER, point, {"latents": latents})
    assert sorted(inputs) == ["latents", "timestep.0", "timestep.1"]
    assert (inputs["timestep.0"].tolist(), inputs["timestep.1"].tolist()) == ([2, 2], [0, 0])
    assert [sorted(step) for step in more["steps"]] == [["add", "keep"], ["add", "keep"]]


def test_only_results_are_fetched_and_outputs_for_other_graphs_stay_in_the_page():
    description = graphs_description(WITH_ENCODER, on_device=True)
    assert (description["encoder"]["fetched"], description["encoder"]["on_device"]) == (["hidden"], ["hidden"])
    assert (description["decode"]["fetched"], description["decode"]["on_device"]) == (
        ["logits", "present"],
        ["present"],
    )
    description = graphs_description(FORWARD, on_device=True)
    assert (description["model"]["fetched"], description["model"]["on_device"]) == (["out"], ["out"])
    assert graphs_description(WITH_ENCODER, on_device=False)["decode"]["on_device"] == []


def test_graphs_in_a_page_cannot_be_called_from_the_process():
    with pytest.raises(BenchhouseError, match="graph model is in the page"):
        session.PassThroughRunner().call("model", {})
