"""The greedy loops generate the library's tokens and mark each one."""

from __future__ import annotations

import pytest
import torch

from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import Point
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.generation import Generated, start_token
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.support.weights import fill, skip_random_initialisation

POINT = Point(batch_size=3, sequence_length=12, new_tokens=9)


class Loaded:
    """A tiny model with weights large enough that it does not repeat one token forever."""

    def __init__(self, name):
        self.workload = resolve(name, weights="random")
        self.plugin = family_of(self.workload.config, name)
        with skip_random_initialisation():
            self.model = self.plugin.build(self.workload, dtype=torch.float32, attention="sdpa")
        fill(self.model, seed=3, standard_deviation=0.3)

    def operation(self, point=POINT, **mode):
        arrays = self.plugin.inputs(self.workload, point, 0)
        self.ids = torch.from_numpy(arrays["input_ids"])
        return self.plugin.torch_operation(self.model, self.workload, point, {"input_ids": self.ids}, mode)


@pytest.fixture(scope="module", params=["tiny-gpt2", "tiny-t5"])
def loaded(request):
    return Loaded(request.param)


@torch.inference_mode()
def run(operation, marks=None):
    operation.reset()
    return operation.run((marks if marks is not None else []).append)


@torch.inference_mode()
def library_tokens(loaded, point, **options):
    count = point.new_tokens
    output = loaded.model.generate(
        loaded.ids,
        attention_mask=torch.ones_like(loaded.ids),
        do_sample=False,
        min_new_tokens=count,
        max_new_tokens=count,
        pad_token_id=0,
        eos_token_id=loaded.model.config.vocab_size + 1,  # a token never generated: no stop, none suppressed
        **options,
    )
    return tuple(tuple(row) for row in output[:, -count:].tolist())


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generated_tokens_equal_those_of_transformers_generate(loaded, cache):
    output = run(loaded.operation(cache=cache))
    expected = library_tokens(loaded, POINT)
    assert len({token for row in expected for token in row}) > 5, "a model that repeats itself proves nothing"
    assert output.tokens == expected


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_calls_are_independent(loaded, cache):
    operation = loaded.operation(cache=cache)
    first, second = run(operation), run(operation)
    assert first.tokens == second.tokens
    torch.testing.assert_close(first.last_logits, second.last_logits, rtol=0, atol=0)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("new_tokens", [1, 2, 5])
def test_every_token_is_marked_and_counted(loaded, cache, new_tokens):
    point = Point(batch_size=2, sequence_length=7, new_tokens=new_tokens)
    operation, marks = loaded.operation(point, cache=cache), []
    output = run(operation, marks)
    encode = ["encode"] if loaded.workload.family == "encoder-decoder" else []
    assert marks == encode + ["token"] * new_tokens
    assert [len(row) for row in output.tokens] == [new_tokens] * 2
    assert operation.problem(output) is None
    assert (operation.items_per_call, operation.tokens_per_call, operation.prompt_tokens_per_call) == (
        2,
        2 * new_tokens,
        14,
    )


def test_a_stop_token_does_not_end_a_call(loaded):
    tokens = run(loaded.operation()).tokens
    loaded.model.generation_config.eos_token_id = tokens[0][0]
    assert run(loaded.operation()).tokens == tokens


def test_prefill_logits_are_those_of_a_plain_forward_pass(loaded):
    output = run(loaded.operation())
    with torch.inference_mode():
        if loaded.workload.family == "decoder-only":
            expected = loaded.model(loaded.ids, use_cache=False).logits[:, -1]
        else:
            start = torch.full((3, 1), 0)
            expected = loaded.model(loaded.ids, decoder_input_ids=start, use_cache=False).logits[:, -1]
    torch.testing.assert_close(output.prefill_logits, expected, rtol=1e-4, atol=1e-4)


def test_arrays_are_comparable(loaded):
    operation = loaded.operation()
    arrays = operation.arrays(run(operation))
    assert arrays["tokens"].shape == (3, 9)
    assert arrays["tokens"].dtype == "int64"
    assert arrays["logits"].shape == (3, 1024)
    assert arrays["logits"].dtype == "float32"


def test_nan_weights_are_a_problem(loaded):
    broken = Loaded(loaded.workload.model_id)
    next(p for name, p in broken.model.named_parameters() if name.endswith(("c_fc.weight", "wi.weight"))).data[0] = (
        float("nan")
    )
    operation = broken.operation()
    assert "NaN or Inf in prefill logits" in operation.problem(run(operation))


def test_nan_in_a_later_step_and_missing_tokens_are_problems(loaded):
    operation = loaded.operation()
    good = run(operation)
    late = Generated(
        tokens=good.tokens, prefill_logits=good.prefill_logits, last_logits=torch.tensor([[1.0, float("inf")]])
    )
    assert operation.problem(late) == "NaN or Inf in last logits: 1 of 2 values"
    short = Generated(
        tokens=tuple(row[:-1] for row in good.tokens),
        prefill_logits=good.prefill_logits,
        last_logits=good.last_logits,
    )
    assert operation.problem(short) == "token count: 3 rows of [8], expected 9 each"


def test_a_static_cache_allocates_its_memory_once(loaded):
    operation = loaded.operation(cache="static")
    own = getattr(operation._static, "self_attention_cache", operation._static)
    run(operation)
    first = [layer.keys.data_ptr() for layer in own.layers]
    length = 9 if loaded.workload.family == "encoder-decoder" else 12 + 9
    assert [tuple(layer.keys.shape) for layer in own.layers] == [(3, 4, length, 16)] * 2
    run(operation)
    assert [layer.keys.data_ptr() for layer in own.layers] == first


def test_a_model_without_a_static_cache_is_refused(loaded, monkeypatch):
    monkeypatch.setattr(type(loaded.model), "_can_compile_fullgraph", False)
    with pytest.raises(UnsupportedError, match="has no static cache"):
        loaded.operation(cache="static")


def test_a_decoder_for_features_makes_one_pass():
    workload = resolve("tiny-gpt2", weights="random", task="feature-extraction")
    plugin = family_of(workload.config, "tiny-gpt2")
    with skip_random_initialisation():
        model = plugin.build(workload, dtype=torch.float32)
    fill(model, seed=0)
    point = Point(batch_size=2, sequence_length=8)
    inputs = {"input_ids": torch.from_numpy(plugin.inputs(workload, point, 0)["input_ids"])}
    operation = plugin.torch_operation(model, workload, point, inputs, {})
    marks = []
    output = run(operation, marks)
    assert marks == []
    assert operation.arrays(output)["last_hidden_state"].shape == (2, 8, 64)
    assert (operation.tokens_per_call, operation.new_tokens) == (16, None)


def test_the_start_token_is_the_models_and_required():
    class Config:
        decoder_start_token_id = None
        bos_token_id = 2

    class Model:
        config = Config()
        generation_config = Config()

    assert start_token(Model()) == 2
    Config.bos_token_id = None
    with pytest.raises(UnsupportedError, match="neither decoder_start_token_id nor bos_token_id"):
        start_token(Model())
