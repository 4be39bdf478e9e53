"""Mixtures of experts: active parameters, the experts' load, and the library's tokens."""

from __future__ import annotations

import pytest
import torch

from benchmarking.core.doubts import validity
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import Point, Workload, canonical_hash
from benchmarking.measure import doubt_rules
from benchmarking.workloads import mixture_of_experts
from benchmarking.workloads.mixture_of_experts import ENCODER_DECODERS, PLUGIN, LayerLoad, active_parameters, imbalance
from benchmarking.workloads.support import families
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.support.weights import fill, skip_random_initialisation
from tests.helpers.generation import library_tokens

POINT = Point(batch_size=2, sequence_length=9, new_tokens=8)

TOTAL_AND_ACTIVE = {
    "allenai/OLMoE-1B-7B-0924": (6_919_161_856, 8, 1_282_017_280),
    "mistralai/Mixtral-8x7B-v0.1": (46_702_792_704, 2, 12_879_925_248),
    "Qwen/Qwen1.5-MoE-A2.7B": (14_315_784_192, 4, 2_689_173_504),
    "Qwen/Qwen3-30B-A3B": (30_532_122_624, 8, 3_353_032_704),
    # t5-base with 7 experts more in each of 12 layers and their routers: 222 903 552 + 12 x (7 x 4 718 592 + 6 144)
    "google/switch-base-8": (619_339_008, 1, 222_977_280),
    "tiny-mixtral": (303_936, 2, 230_208),
}
"""Parameters, experts a token is sent to, and parameters it passes through: total less, in every layer, the others."""

SMALL = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
LATENT = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "n_group": 1,
    "topk_group": 1,
    "head_dim": 8,
}
SPECIAL = {
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_layer_start_index": 1},
    "gpt_oss": {"layer_types": ["full_attention"] * 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    "qwen2_moe": {"shared_expert_intermediate_size": 32},
}
SWITCH = {
    "vocab_size": 512,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 64,
    "num_layers": 4,
    "num_decoder_layers": 4,
    "num_sparse_encoder_layers": 2,
    "num_sparse_decoder_layers": 2,
    "num_heads": 4,
    "num_experts": 4,
    "decoder_start_token_id": 0,
}


def make(model_type, **changes):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    values = SWITCH if model_type == "switch_transformers" else {**SMALL, **SPECIAL.get(model_type, {})}
    config = CONFIG_MAPPING[model_type](**{**values, **changes}).to_diff_dict() | {"model_type": model_type}
    workload = Workload(
        model_id=model_type,
        family=PLUGIN.name,
        task=PLUGIN.tasks_of(config)[0],
        source="local",
        config=config,
        config_hash=canonical_hash(config),
        weights="random",
        vocab_size=512,
        max_sequence_length=PLUGIN.max_sequence_length(config),
    )
    with skip_random_initialisation():
        model = PLUGIN.build(workload, dtype=torch.float32, attention=PLUGIN.default_attention(config))
    fill(model, seed=1, standard_deviation=0.2)
    return workload, model


def operation_of(workload, model, point=POINT, cache="dynamic"):
    ids = torch.from_numpy(PLUGIN.inputs(workload, point, 0)["input_ids"])
    return ids, PLUGIN.torch_operation(model, workload, point, {"input_ids": ids}, {"cache": cache})


def test_catalog_has_the_published_models():
    entries = [entry for entry in families.catalog_entries() if family_of(entry.config, entry.name) is PLUGIN]
    assert {e.name: e.parameter_count for e in entries} == {name: row[0] for name, row in TOTAL_AND_ACTIVE.items()}


@pytest.mark.parametrize("name", TOTAL_AND_ACTIVE)
def test_active_parameters_are_the_published_ones(name):
    total, chosen, active = TOTAL_AND_ACTIVE[name]
    with torch.device("meta"):
        model = PLUGIN.build(resolve(name, weights="random"), dtype=torch.float32)
    layers = [
        LayerLoad(
            parameters=sum(p.numel() for p in experts.parameters()),
            experts_per_token=chosen,
            tokens=(1,) * experts.num_experts,
        )
        for experts in mixture_of_experts.experts_of(model)
    ]
    assert active_parameters(total, layers) == active


def test_active_parameters_by_hand():
    """100 parameters, two layers of 4 experts of 5 each; a token uses 1, then 3 experts: 15 and 5 are inactive."""
    layers = [
        LayerLoad(parameters=20, experts_per_token=1, tokens=(4, 0, 0, 0)),
        LayerLoad(parameters=20, experts_per_token=3, tokens=(3, 3, 3, 3)),
    ]
    assert active_parameters(100, layers) == 80
    assert active_parameters(100, []) == 100


def test_imbalance_by_hand():
    """Layer by layer 6 / 2 = 3, 2 / 2 = 1, and nothing: their mean is 2."""
    layers = [
        LayerLoad(parameters=4, experts_per_token=1, tokens=(6, 2, 0, 0)),
        LayerLoad(parameters=4, experts_per_token=1, tokens=(2, 2, 2, 2)),
        LayerLoad(parameters=4, experts_per_token=1, tokens=(0, 0, 0, 0)),
    ]
    assert [layer.imbalance for layer in layers] == [3.0, 1.0, None]
    assert imbalance(layers) == 2.0
    assert imbalance(layers[2:]) is None


@pytest.mark.parametrize("model_type", sorted(PLUGIN.model_types))
def test_every_model_type_generates_the_librarys_tokens_with_routing(model_type):
    workload, model = make(model_type)
    ids, operation = operation_of(workload, model)
    with torch.inference_mode():
        output = operation.run(lambda event: None)
        expected = library_tokens(model, ids, 8)
        readings = operation.readings(output)
    assert len({token for row in expected for token in row}) > 5, "a model that repeats itself proves nothing"
    assert output.tokens == expected
    assert readings.missing == {}
    assert 1 <= readings.values["expert_load_imbalance"] <= 4
    assert readings.values["active_parameter_count"] < sum(p.numel() for p in model.parameters())


def test_static_cache_gives_the_same_tokens_and_readings():
    workload, model = make("mixtral")
    with torch.inference_mode():
        outcomes = []
        for cache in ("dynamic", "static"):
            _, operation = operation_of(workload, model, cache=cache)
            output = operation.run(lambda event: None)
            outcomes.append((output.tokens, operation.readings(output), operation.run(lambda event: None).tokens))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == outcomes[0][2], "the readings left something behind"


def test_readings_are_the_routers_choices_over_the_prompt_and_the_new_tokens():
    """Compared with the library's router logits, on the tokens that pass through the layers: all but the last."""
    workload, model = make("mixtral")
    ids, operation = operation_of(workload, model)
    with torch.inference_mode():
        output = operation.run(lambda event: None)
        values = operation.readings(output).values
        whole = torch.cat([ids, torch.tensor(output.tokens)[:, :-1]], dim=1)
        logits = model(whole, output_router_logits=True).router_logits
    ratios = []
    for layer in logits:
        tokens = torch.bincount(layer.topk(2, dim=-1).indices.flatten(), minlength=4)
        assert int(tokens.sum()) == 2 * 2 * (9 + 7)
        ratios.append(float(tokens.max() / tokens.float().mean()))
    assert values["expert_load_imbalance"] == pytest.approx(sum(ratios) / len(ratios))
    expert = 3 * 64 * 64
    assert values["active_parameter_count"] == sum(p.numel() for p in model.parameters()) - 2 * 2 * expert


def test_switch_counts_only_tokens_within_an_experts_capacity():
    """With room for one token an expert and sequence, no expert of the encoder gets more than there are sequences."""
    workload, model = make("switch_transformers", expert_capacity=1)
    _, operation = operation_of(workload, model)
    with torch.inference_mode(), mixture_of_experts._recorded(model) as choices:
        operation.run(lambda event: None)
    encoder = set(mixture_of_experts.experts_of(model.encoder))
    assert len(encoder) == 2
    for module, chosen in choices.items():
        load = mixture_of_experts._load(module, chosen)
        assert load.experts_per_token == 1
        if module in encoder:
            assert 0 < max(load.tokens) <= POINT.batch_size
        else:  # a decode step is a sequence of one token, which always finds room
            assert sum(load.tokens) == POINT.batch_size * POINT.new_tokens


def test_switch_has_no_static_cache():
    workload, model = make("switch_transformers")
    with pytest.raises(UnsupportedError, match="has no static cache"):
        operation_of(workload, model, cache="static")


def test_a_model_without_experts_has_no_readings_with_the_reason():
    model = torch.nn.Linear(2, 2)
    readings = mixture_of_experts.readings(model, lambda: None)
    assert readings.values == {}
    assert set(readings.missing) == {"active_parameter_count", "expert_load_imbalance"}
    assert all(why == "not_applicable: no layer of Linear chooses between experts" for why in readings.missing.values())


def test_hooks_are_gone_after_a_failed_call():
    _, model = make("mixtral")

    def fail() -> None:
        raise RuntimeError("as any call may")

    with pytest.raises(RuntimeError):
        mixture_of_experts.readings(model, fail)
    assert not any(module._forward_pre_hooks for module in mixture_of_experts.experts_of(model))


def test_tasks_follow_the_architecture():
    assert resolve("tiny-mixtral").task == "text-generation"
    switch = resolve("google/switch-base-8", weights="random")
    assert (switch.task, switch.max_sequence_length) == ("text2text-generation", None)
    assert PLUGIN.model_types >= ENCODER_DECODERS


def test_random_weights_add_a_doubt_about_routing():
    found = doubt_rules.about_workload(resolve("tiny-mixtral"))
    assert [(doubt.kind, doubt.severity) for doubt in found] == [("random_routing", "info")]
    assert validity(found) == "valid"
    assert doubt_rules.about_workload(resolve("tiny-gpt2")) == ()


def test_points_beyond_the_positions_and_without_tokens_are_refused():
    workload = resolve("tiny-mixtral")
    assert "takes at most 512" in PLUGIN.check(workload, Point(batch_size=1, sequence_length=510, new_tokens=3))
    assert PLUGIN.check(workload, Point(batch_size=1, sequence_length=509, new_tokens=3)) is None
    assert "number of new tokens" in PLUGIN.check(workload, Point(batch_size=1, sequence_length=8))


def test_how_experts_are_computed_is_reported():
    _, model = make("mixtral")
    assert PLUGIN.verified(model) == {"experts": model.config._experts_implementation or "eager"}
    _, switch = make("switch_transformers")
    assert PLUGIN.verified(switch) == {"experts": "eager"}
