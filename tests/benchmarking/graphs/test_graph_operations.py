"""Calls of bundles on a runner in plain numpy: loops, marks, counts and problems of outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.model_contracts import GraphRunner
from benchmarking.core.records import Point, Workload
from benchmarking.graphs.bundle import Bundle, Graph, State, Tensor
from benchmarking.graphs.operations import operation_of, result_outputs, start_tokens_of
from benchmarking.workloads.support.denoising import step_between

VOCABULARY = 7
TEXT = Workload(
    model_id="by-hand",
    family="decoder-only",
    task="text-generation",
    source="catalog",
    config={},
    config_hash="0",
    weights="random",
)
PROMPT = {"input_ids": np.array([[1, 2], [3, 4]])}
POINT = Point(batch_size=2, sequence_length=2, new_tokens=3)


class Counting(GraphRunner):
    """Its decoder's next token is the sum of all tokens so far, modulo the vocabulary; logits are one-hot. Every output
    is one buffer, overwritten in each call, as a runtime may do it."""

    def __init__(self, add=0, bad=None):
        self.calls = []
        self._add, self._bad = add, bad
        self._buffer = None

    def place(self, array):
        return array

    def fetch(self, tensor):
        return tensor

    def call(self, graph, feeds):
        self.calls.append((graph, sorted(feeds)))
        if graph == "encoder":
            return {"encoded": feeds["x"].sum(axis=1, keepdims=True)}
        if graph == "cross":
            return {"kept": feeds["encoded"] * 10}
        if graph == "prefill":
            total = feeds["ids"].sum(axis=1)
            return {"logits": self._logits(total), "out": total}
        return {"y": feeds["x"] * 2.0, "more": feeds["x"] + 1.0}

    def begin(self, graph, batch_size, first):
        self.calls.append((graph, "begin", batch_size))
        return first.get("in", np.zeros(batch_size, dtype=np.int64))

    def step(self, graph, feeds, states):
        self.calls.append((graph, sorted(feeds)))
        states = states + feeds["ids"].sum(axis=1)
        kept = feeds.get("kept", np.zeros((len(states), 1), dtype=np.int64))[:, 0]
        return {"logits": self._logits(states + kept + self._add)}, states

    def _logits(self, totals):
        fresh = np.eye(VOCABULARY, dtype=np.float32)[totals % VOCABULARY][:, np.newaxis]
        if self._buffer is None:
            self._buffer = fresh
        self._buffer[:] = fresh
        if self._bad is not None:
            self._buffer[0, 0, 0] = self._bad
        return self._buffer


def tensor(name, dtype="int64"):
    return Tensor(name=name, dtype=dtype, shape=("batch", "n"))


DECODE = Graph(
    file="decode.onnx",
    inputs=(tensor("ids"), tensor("in")),
    outputs=(tensor("logits", "float32"), tensor("out")),
    feeds={"ids": "tokens"},
    states=(State(input="in", output="out", first=("batch",)),),
    result="logits",
    result_name="logits",
)
DECODER = Bundle(kind="decoder", graphs={"decode": DECODE}, exporter="by hand", prompt_input="input_ids")
PREFILL = Graph(
    file="prefill.onnx",
    inputs=(tensor("ids"),),
    outputs=(tensor("logits", "float32"), tensor("out")),
    feeds={"ids": "tokens"},
    result="logits",
)


def run(operation):
    marks = []
    return operation.run(marks.append), marks


# Row 1: 1 + 2 = 3, then 3 + 3 = 6, then 6 + 6 = 12 = 5. Row 2: 3 + 4 = 7 = 0, then 0, then 0.
TOKENS = ((3, 6, 5), (0, 0, 0))


def test_prompt_and_tokens_go_through_one_graph():
    runner = Counting()
    output, marks = run(operation_of(DECODER, runner, TEXT, POINT, PROMPT))
    assert output.tokens == TOKENS
    assert marks == ["token"] * 3
    assert runner.calls == [("decode", "begin", 2)] + [("decode", ["ids"])] * 3


def test_prefill_graph_provides_the_first_states():
    states = (replace(DECODE.states[0], first_from="out"),)
    bundle = replace(DECODER, graphs={"prefill": PREFILL, "decode": replace(DECODE, states=states)})
    runner = Counting()
    output, marks = run(operation_of(bundle, runner, TEXT, POINT, PROMPT))
    assert output.tokens == TOKENS
    assert marks == ["token"] * 3
    assert runner.calls == [("prefill", ["ids"]), ("decode", "begin", 2)] + [("decode", ["ids"])] * 2


def test_prefill_logits_outlive_the_runners_buffer():
    operation = operation_of(DECODER, Counting(), TEXT, POINT, PROMPT)
    arrays = operation.arrays(run(operation)[0])
    assert arrays["logits"].argmax(axis=-1).tolist() == [3, 0]
    assert arrays["logits"].dtype == np.float32
    assert arrays["tokens"].tolist() == [list(row) for row in TOKENS]
    assert arrays["tokens"].dtype == np.int64


def test_every_call_begins_with_fresh_states():
    operation = operation_of(DECODER, Counting(), TEXT, POINT, PROMPT)
    assert run(operation)[0].tokens == run(operation)[0].tokens


def test_counts_are_those_of_the_torch_operation():
    operation = operation_of(DECODER, Counting(), TEXT, POINT, PROMPT)
    counts = (operation.items_per_call, operation.tokens_per_call, operation.prompt_tokens_per_call)
    assert counts == (2, 6, 4)
    assert operation.new_tokens == 3


def encoder_decoder(**changes):
    encoder = Graph(file="e", inputs=(tensor("x"),), outputs=(tensor("encoded"),), feeds={"x": "inputs.input_ids"})
    cross = Graph(
        file="c", inputs=(tensor("encoded"),), outputs=(tensor("kept"),), feeds={"encoded": "encoder.encoded"}
    )
    decode = replace(DECODE, inputs=(*DECODE.inputs, tensor("kept")), feeds={"ids": "tokens", "kept": "cross.kept"})
    bundle = Bundle(
        kind="encoder-decoder",
        graphs={"encoder": encoder, "cross": cross, "decode": decode},
        exporter="by hand",
        start_tokens=(2,),
    )
    return replace(bundle, **changes)


def test_the_encoder_runs_once_and_its_output_is_fed_to_every_step():
    runner = Counting()
    output, marks = run(operation_of(encoder_decoder(), runner, TEXT, POINT, PROMPT))
    # Row 1: (1 + 2) x 10 = 30 is kept; 2 + 30 = 32 = 4; 2 + 4 + 30 = 36 = 1; 2 + 4 + 1 + 30 = 37 = 2.
    # Row 2: 70 is 0; 2; 2 + 2 = 4; 2 + 2 + 4 = 8 = 1.
    assert output.tokens == ((4, 1, 2), (2, 4, 1))
    assert marks == ["encode", "token", "token", "token"]
    assert [call[0] for call in runner.calls] == ["encoder", "cross", "decode", "decode", "decode", "decode"]
    assert runner.calls[3:] == [("decode", ["ids", "kept"])] * 3


def test_the_phase_has_the_name_in_the_bundle():
    bundle = encoder_decoder(encode_phase="image_encode")
    assert run(operation_of(bundle, Counting(), TEXT, POINT, PROMPT))[1][0] == "image_encode"


def test_start_tokens_replace_the_prompts_first_columns_in_a_copy():
    bundle = encoder_decoder(start_tokens=(9,), prompt_input="input_ids")
    assert start_tokens_of(bundle, PROMPT, 2).tolist() == [[9, 2], [9, 4]]
    assert PROMPT["input_ids"].tolist() == [[1, 2], [3, 4]]


def test_without_a_prompt_a_decoder_begins_with_the_start_tokens():
    assert start_tokens_of(encoder_decoder(start_tokens=(5, 6)), PROMPT, 2).tolist() == [[5, 6], [5, 6]]


FORWARD = Bundle(
    kind="forward",
    graphs={
        "model": Graph(
            file="model.onnx",
            inputs=(tensor("x", "float16"),),
            outputs=(tensor("y", "float16"), tensor("more", "float16")),
            feeds={"x": "inputs.pixel_values"},
            result="y",
            result_name="logits",
            more_results={"embeds": "more"},
        )
    },
    exporter="by hand",
)
PIXELS = {"pixel_values": np.array([[1.5, 2.0]], dtype=np.float32)}
PICTURE = Point(batch_size=1, axes={"image_size": 1})


def test_forward_call_returns_float32_results_under_the_familys_names():
    operation = operation_of(FORWARD, Counting(), TEXT, PICTURE, PIXELS)
    output, marks = run(operation)
    arrays = operation.arrays(output)
    assert {name: array.tolist() for name, array in arrays.items()} == {"logits": [[3.0, 4.0]], "embeds": [[2.5, 3.0]]}
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    assert marks == []
    assert output["y"].dtype == np.float16
    assert operation.tokens_per_call is None
    assert result_outputs(FORWARD.graphs["model"]) == {"logits": "y", "embeds": "more"}


def test_an_input_that_the_family_does_not_make_is_named():
    with pytest.raises(BenchhouseError, match=r"needs input 'pixel_values', but the family makes input_"):
        operation_of(FORWARD, Counting(), TEXT, POINT, PROMPT)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_found_and_counted(bad):
    operation = operation_of(DECODER, Counting(bad=bad), TEXT, POINT, PROMPT)
    assert operation.problem(run(operation)[0]) == "NaN or Inf in prefill logits: 1 of 14 values"
    pixels = {"pixel_values": np.array([[bad, 2.0]], dtype=np.float32)}
    forward = operation_of(FORWARD, Counting(), TEXT, PICTURE, pixels)
    assert forward.problem(run(forward)[0]) == "NaN or Inf in logits: 1 of 2 values"


def test_missing_tokens_are_a_problem_and_finite_outputs_are_none():
    operation = operation_of(DECODER, Counting(), TEXT, POINT, PROMPT)
    output, _ = run(operation)
    assert operation.problem(output) is None
    short = replace(output, tokens=tuple(row[:-1] for row in output.tokens))
    assert operation.problem(short) == "token count: 2 rows of [2], expected 3 each"


def test_generation_without_new_tokens_is_refused():
    with pytest.raises(UnsupportedError, match="generation needs new tokens"):
        operation_of(DECODER, Counting(), TEXT, replace(POINT, new_tokens=None), PROMPT)


class Halving:
    """A denoiser whose noise is half of the latents plus the time."""

    def place(self, array):
        return array

    fetch = place

    def call(self, graph, feeds):
        return {"noise": feeds["latents"] / 2 + feeds["time"][:, np.newaxis]}


def denoiser(alphas):
    graph = Graph(
        file="model.onnx",
        inputs=(tensor("latents", "float32"), tensor("time", "float32")),
        outputs=(tensor("noise", "float32"),),
        feeds={"latents": "latents", "time": "timestep"},
        result="noise",
    )
    facts = {"latents": "sample", "schedule": {"alphas": alphas, "last": 1.0, "offset": 1}}
    return Bundle(kind="denoiser", graphs={"model": graph}, exporter="by hand", facts=facts)


def test_denoising_goes_from_the_noisiest_step_to_the_image():
    # Four trained steps and two taken: at times 3 and 1. With keep k and add a of each: x -> k x + a (x / 2 + t).
    alphas = [0.9, 0.8, 0.5, 0.2]
    point = Point(batch_size=2, axes={"image_size": 8, "steps": 2})
    operation = operation_of(
        denoiser(alphas), Halving(), replace(TEXT, family="diffusion"), point, {"sample": np.ones((2, 1))}
    )
    output, marks = run(operation)
    first, last = step_between(3, 0.2, 0.8), step_between(1, 0.8, 1.0)
    x = first.keep * 1.0 + first.add * (0.5 + 3)
    x = last.keep * x + last.add * (x / 2 + 1)
    assert operation.arrays(output)["latents"] == pytest.approx(np.full((2, 1), x), rel=1e-5)
    assert marks == ["step", "step"]
    assert output.dtype == np.float32
    assert operation.items_per_call == 2


def test_experts_and_audio_have_readings_without_a_torch_model():
    experts = replace(TEXT, family="mixture-of-experts")
    bundle = replace(DECODER, facts={"active_parameter_count": 123})
    readings = operation_of(bundle, Counting(), experts, POINT, PROMPT).readings(None)
    assert readings.values == {"active_parameter_count": 123}
    assert readings.missing["expert_load_imbalance"].startswith("not_supported: ")
    untold = operation_of(DECODER, Counting(), experts, POINT, PROMPT).readings(None)
    assert untold.missing["active_parameter_count"].startswith("not_supported: ")
    spoken = Point(batch_size=2, new_tokens=1, axes={"audio_seconds": 1.5})
    speech = operation_of(
        encoder_decoder(), Counting(), replace(TEXT, family="speech", config={"model_type": "whisper"}), spoken, PROMPT
    )
    assert speech.readings(None).values["audio_seconds_per_call"] == 3.0
    assert speech.readings(None).missing["prefill_tokens_per_sec"].startswith("not_applicable: ")


def test_flops_are_not_counted_and_the_reason_is_given():
    missing = operation_of(DECODER, Counting(), TEXT, POINT, PROMPT).count().missing
    assert set(missing) == {"flops", "bytes_accessed"}
    assert all(why.startswith("not_supported: ") for why in missing.values())


class Watching(Counting):
    """Keeps the arrays with token counts."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def step(self, graph, feeds, states):
        self.seen.append((feeds["attention_mask"].tolist(), feeds["position_ids"].tolist()))
        return super().step(graph, feeds, states)


def test_mask_and_positions_are_fed_to_graphs_that_need_them():
    feeds = {"ids": "tokens", "attention_mask": "mask", "position_ids": "positions"}
    bundle = replace(DECODER, graphs={"decode": replace(DECODE, feeds=feeds)})
    runner = Watching()
    operation = operation_of(bundle, runner, TEXT, POINT, PROMPT)
    for _ in range(2):  # a second call counts from the beginning
        assert run(operation)[0].tokens == TOKENS
    once = [([[1] * 2] * 2, [[0, 1]] * 2), ([[1] * 3] * 2, [[2]] * 2), ([[1] * 4] * 2, [[3]] * 2)]
    assert runner.seen == once * 2


def test_ones_and_zeros_have_the_requested_shape_and_type():
    graph = replace(
        FORWARD.graphs["model"],
        inputs=(tensor("x", "int64"), tensor("mask", "int32"), tensor("types", "int64")),
        feeds={"x": "inputs.input_ids", "mask": "ones.input_ids", "types": "zeros.input_ids"},
    )
    operation = operation_of(replace(FORWARD, graphs={"model": graph}), Counting(), TEXT, POINT, PROMPT)
    assert operation._feeds["mask"].tolist() == [[1, 1], [1, 1]]
    assert operation._feeds["mask"].dtype == np.int32
    assert operation._feeds["types"].tolist() == [[0, 0], [0, 0]]
