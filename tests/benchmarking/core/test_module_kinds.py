"""Kinds of modules by type, name and structure, for models of every family."""

from __future__ import annotations

import pytest

from benchmarking.core.profiles import ModuleTraits, classify_modules, in_layer


def kinds(**modules):
    """The kinds of modules by path, given as path_with__for_dots="Class" or (Class, traits)."""
    found = {}
    for path, described in modules.items():
        name, *traits = described.split()
        found[path.replace("__", ".")] = ModuleTraits(class_name=name, **dict.fromkeys(traits, True))
    return {path: place.kind for path, place in classify_modules(found).items()}


def test_rotary_tables_belong_to_attention_and_are_no_embeddings():
    found = kinds(
        embed_tokens="Embedding is_lookup has_weights", rotary_emb="LlamaRotaryEmbedding", layers__0__rope="Table"
    )
    assert found == {"embed_tokens": "embedding", "rotary_emb": "attention", "layers.0.rope": "attention"}


@pytest.mark.parametrize(
    ("path", "layer"),
    [
        ("encoder.layer.0.attention.self", "encoder.layer.0"),
        ("layers.11", "layers.11"),
        ("down_blocks.0.resnets.1.conv1", "down_blocks.0"),
        ("embeddings.word_embeddings", None),
        ("", None),
    ],
)
def test_a_layer_is_the_path_up_to_the_first_number(path, layer):
    assert in_layer(path) == layer


def test_the_innermost_module_with_a_known_kind_decides():
    found = kinds(
        embeddings="BertEmbeddings",
        embeddings__word_embeddings="Embedding is_lookup has_weights",
        embeddings__LayerNorm="LayerNorm",
        encoder__layer__0="BertLayer has_weights",
        encoder__layer__0__attention="BertAttention has_weights",
        encoder__layer__0__attention__self__query="Linear has_weights",
        encoder__layer__0__attention__output="BertSelfOutput has_weights",
        encoder__layer__0__attention__output__LayerNorm="LayerNorm",
        pooler="BertPooler has_weights",
        pooler__dense="Linear has_weights",
    )
    assert found["embeddings"] == found["embeddings.word_embeddings"] == "embedding"
    assert found["embeddings.LayerNorm"] == found["encoder.layer.0.attention.output.LayerNorm"] == "normalisation"
    assert found["encoder.layer.0.attention.self.query"] == found["encoder.layer.0.attention.output"] == "attention"
    assert found["encoder.layer.0"] == "other"
    assert found["pooler"] == found["pooler.dense"] == "head"


def test_weights_of_a_layer_outside_its_attention_are_the_feed_forward_network():
    found = kinds(
        encoder__layer__0="BertLayer has_weights",
        encoder__layer__0__attention="BertAttention has_weights",
        encoder__layer__0__intermediate="BertIntermediate has_weights",
        encoder__layer__0__intermediate__dense="Linear has_weights",
        encoder__layer__0__intermediate__act="GELUActivation is_activation",
        encoder__layer__0__output="BertOutput has_weights",
        encoder__layer__0__output__dropout="Dropout",
        layers__1="OPTDecoderLayer has_weights",
        layers__1__self_attn="OPTAttention has_weights",
        layers__1__activation_fn="ReLU is_activation",
        layers__1__fc1="Linear has_weights",
        layers__1__final_layer_norm="LayerNorm",
    )
    assert {path for path, kind in found.items() if kind == "feed_forward"} == {
        *(f"encoder.layer.0.intermediate{part}" for part in ("", ".dense", ".act")),
        *("encoder.layer.0.output", "encoder.layer.0.output.dropout", "layers.1.activation_fn", "layers.1.fc1"),
    }
    assert found["layers.1.final_layer_norm"] == "normalisation"


def test_block_around_attention_is_other_and_its_position_embedding_is_attention():
    found = kinds(
        block__0="T5Block has_weights",
        block__0__layer__0="T5LayerSelfAttention has_weights",
        block__0__layer__0__SelfAttention__relative_attention_bias="Embedding is_lookup has_weights",
        block__0__layer__0__layer_norm="T5LayerNorm",
        block__0__layer__1="T5LayerFF has_weights",
        block__0__layer__1__DenseReluDense__wi="Linear has_weights",
        down_blocks__0="CrossAttnDownBlock2D has_weights",
        down_blocks__0__attentions="ModuleList has_weights",
        down_blocks__0__attentions__0__attn1="Attention has_weights",
        down_blocks__0__resnets__0__conv1="Conv2d is_convolution",
        layers__0__mixer="MambaMixer has_weights",
        layers__0__mixer__in_proj="Linear has_weights",
        lm_head="Linear has_weights",
    )
    assert found["block.0.layer.0.SelfAttention.relative_attention_bias"] == "attention"
    assert found["block.0.layer.0.layer_norm"] == "normalisation"
    assert found["block.0.layer.1.DenseReluDense.wi"] == "feed_forward"
    assert found["down_blocks.0"] == found["down_blocks.0.attentions"] == "other"
    assert found["down_blocks.0.resnets.0.conv1"] == "convolution"
    assert found["layers.0.mixer.in_proj"] == "mixer"
    assert found["lm_head"] == "head"


def test_modules_without_a_known_type_name_or_place_are_other():
    assert kinds(projector="Projector has_weights", layers__0="Layer", layers__0__drop="Dropout") == {
        "projector": "other",
        "layers.0": "other",
        "layers.0.drop": "other",
    }
