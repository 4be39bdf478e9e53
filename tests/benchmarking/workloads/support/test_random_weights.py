"""Random weights: seeded, normal, reproducible, in a model as its constructor makes it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarking.workloads.support import transformers_models, weights
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.support.weights import fill, skip_random_initialisation

TINY = ("tiny-bert", "tiny-gpt2", "tiny-t5")


def make(name="tiny-bert", seed=0, dtype=torch.float32):
    workload = resolve(name, weights="random")
    with skip_random_initialisation():
        model = family_of(workload.config, name).build(workload, dtype=dtype)
    fill(model, seed=seed)
    return model


def call(name, model):
    ids = torch.arange(100, 132).view(2, 16)
    with torch.inference_mode():
        if name == "tiny-t5":
            return model(input_ids=ids, decoder_input_ids=ids[:, :4]).logits
        return model(input_ids=ids)[0]


@pytest.mark.parametrize("name", TINY)
def test_fast_built_model_with_a_state_dict_equals_a_normally_built_one(name):
    """Buffers (positions, masks, relative buckets) come from the constructor and are in no state dict."""
    workload = resolve(name, weights="random")
    normal = transformers_models._classes(workload)[0].from_config(transformers_models.configuration(workload)).eval()
    fast = make(name)
    assert not torch.equal(call(name, fast), call(name, normal))
    fast.load_state_dict(normal.state_dict())
    torch.testing.assert_close(call(name, fast), call(name, normal), rtol=0, atol=0)


@pytest.mark.parametrize("model_type", ["llama", "gptj", "falcon", "mobilebert"])
def test_buffers_are_those_of_a_normally_built_model(model_type):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type](
        vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    from transformers import AutoModel

    with skip_random_initialisation():
        fast = AutoModel.from_config(config)
    normal = AutoModel.from_config(config)
    expected = dict(normal.named_buffers())
    assert dict(fast.named_buffers()).keys() == expected.keys()
    assert expected
    for name, buffer in fast.named_buffers():
        torch.testing.assert_close(buffer, expected[name], rtol=0, atol=0)


def test_random_initialisation_is_skipped_only_inside():
    with skip_random_initialisation():
        torch.nn.init.normal_(untouched := torch.full((3,), 7.0))
        assert torch.nn.init.ones_(torch.zeros(2)).tolist() == [1.0, 1.0]
    assert untouched.tolist() == [7.0, 7.0, 7.0]
    assert torch.nn.init.normal_(torch.full((3,), 7.0)).tolist() != [7.0, 7.0, 7.0]


def test_weights_are_normal_with_the_configurations_deviation():
    weight = make("tiny-gpt2").transformer.wte.weight
    assert weight.numel() == 65536
    assert weight.mean().item() == pytest.approx(0.0, abs=4 * 0.02 / 256)  # four standard errors of the mean
    assert weight.std().item() == pytest.approx(0.02, rel=0.012)  # four standard errors: 4 / sqrt(2 * 65536)
    assert ((weight.abs() < 0.02).float().mean().item()) == pytest.approx(0.6827, abs=0.008)


def test_deviation_is_read_from_init_std_too_and_has_a_default():
    linear = torch.nn.Linear(200, 200)
    fill(linear, seed=0)
    assert linear.weight.std().item() == pytest.approx(0.02, rel=0.03)
    linear.config = type("Config", (), {"init_std": 0.5})()
    fill(linear, seed=0)
    assert linear.weight.std().item() == pytest.approx(0.5, rel=0.03)


def test_only_normalisation_biases_are_zero():
    model = make("tiny-bert")
    for name, parameter in model.named_parameters():
        if "LayerNorm" in name:
            assert parameter.unique().tolist() == [0.0 if name.endswith("bias") else 1.0], name
        else:
            assert (parameter == 0).sum() <= 1, name


def test_same_seed_same_weights_other_seed_other_weights():
    first, again, other = (make(seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    changed = [name for name in first if not torch.equal(first[name], other[name])]
    assert "encoder.layer.0.attention.self.query.weight" in changed


def test_weights_are_reproducible_on_every_platform():
    """The first values of a stream, so that a change of generator, seeding or scaling is noticed."""
    module = torch.nn.Linear(4, 1, bias=False)
    fill(module, seed=0, standard_deviation=1.0)
    expected = [-0.86497706, 1.3450137, 0.067927815, -0.3890752]
    np.testing.assert_allclose(module.weight.detach().numpy()[0], expected, rtol=1e-6)


def test_weights_do_not_depend_on_chunks_or_threads(monkeypatch):
    whole = make().state_dict()
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    alone = make().state_dict()
    assert all(torch.equal(whole[name], alone[name]) for name in whole)


def test_chunks_continue_the_stream(monkeypatch):
    """No values repeat at a chunk boundary inside a tensor."""
    monkeypatch.setattr(weights, "CHUNK_VALUES", 1000)
    weight = make("tiny-gpt2").transformer.wte.weight.detach().view(-1)
    assert not torch.equal(weight[:1000], weight[1000:2000])
    assert len(weight.unique()) > 60000


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_the_rounded_float32_ones(dtype):
    full, half = make("tiny-gpt2").state_dict(), make("tiny-gpt2", dtype=dtype).state_dict()
    assert all(torch.equal(full[name].to(dtype), half[name]) for name in full)


def test_tied_weights_stay_tied():
    model = make("tiny-gpt2")
    assert model.lm_head.weight is model.transformer.wte.weight
    t5 = make("tiny-t5")
    assert t5.lm_head.weight is t5.shared.weight
    assert t5.encoder.embed_tokens.weight is t5.shared.weight


def test_embeddings_published_untied_get_their_own_parameter():
    workload = resolve("google/flan-t5-base", weights="random")
    with torch.device("meta"):
        model = family_of(workload.config, "flan").build(workload, dtype=torch.float32)
    assert model.lm_head.weight is not model.shared.weight
    assert model.lm_head.weight.shape == model.shared.weight.shape


def test_only_the_named_parameters_are_filled():
    linear = torch.nn.Linear(3, 3)
    weight = linear.weight.detach().clone()
    fill(linear, seed=0, only={"bias"})
    assert torch.equal(linear.weight, weight)


def test_truncated_normal_fill_always_ends():
    tensor = torch.full((8,), 1e9)
    with skip_random_initialisation():
        torch.nn.init.trunc_normal_(tensor)
    assert (tensor == 1e9).all()
    torch.nn.init.trunc_normal_(tensor)
    assert tensor.abs().max() <= 2
