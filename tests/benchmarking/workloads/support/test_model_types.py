"""Every model type of a family runs, with a small configuration and random weights."""

from __future__ import annotations

import pytest
import torch

from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import Point, Workload, canonical_hash
from benchmarking.workloads.decoder_only import PLUGIN as DECODER_ONLY
from benchmarking.workloads.encoder_decoder import PLUGIN as ENCODER_DECODER
from benchmarking.workloads.encoder_decoder import RELATIVE_POSITIONS
from benchmarking.workloads.encoder_only import PLUGIN as ENCODER_ONLY
from benchmarking.workloads.support.weights import fill, skip_random_initialisation
from tests.helpers.generation import library_tokens

SMALL = {
    "vocab_size": 128,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
HALVES = {
    f"{half}_{what}": value
    for half in ("encoder", "decoder")
    for what, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 64))
}
SPECIAL = {
    "codegen": {"num_attention_heads": 4, "rotary_dim": 8},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 8},
}
SPECIAL |= {name: {"d_kv": 16, "d_ff": 64, "num_decoder_layers": 2} for name in RELATIVE_POSITIONS}
SPECIAL |= {
    name: HALVES | {"decoder_start_token_id": 2, "d_model": 32} for name in ENCODER_DECODER.model_types - set(SPECIAL)
}

WITHOUT_STATIC_CACHE = {"gpt_neo", "longt5", "mpt", "mvp", "plbart"}


def make(plugin, model_type, task):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type](**{**SMALL, **SPECIAL.get(model_type, {})}).to_diff_dict()
    config["model_type"] = model_type
    workload = Workload(
        model_id=model_type,
        family=plugin.name,
        task=task,
        source="local",
        config=config,
        config_hash=canonical_hash(config),
        weights="random",
        vocab_size=128,
        max_sequence_length=plugin.max_sequence_length(config),
    )
    with skip_random_initialisation():
        model = plugin.build(workload, dtype=torch.float32, attention=plugin.default_attention(config))
    fill(model, seed=1, standard_deviation=0.2)
    return workload, model


def operation_of(plugin, workload, model, point, **mode):
    ids = torch.from_numpy(plugin.inputs(workload, point, 0)["input_ids"])
    return ids, plugin.torch_operation(model, workload, point, {"input_ids": ids}, mode)


@pytest.mark.parametrize("model_type", sorted(ENCODER_ONLY.model_types))
def test_encoder_runs_at_its_longest_sequence(model_type):
    workload, model = make(ENCODER_ONLY, model_type, "feature-extraction")
    point = Point(batch_size=2, sequence_length=workload.max_sequence_length)
    _, operation = operation_of(ENCODER_ONLY, workload, model, point)
    with torch.inference_mode():
        output = operation.run(lambda event: None)
    assert operation.problem(output) is None
    assert output.last_hidden_state.shape[:2] == (2, workload.max_sequence_length)


@pytest.mark.parametrize(
    ("plugin", "model_type"),
    [(plugin, name) for plugin in (DECODER_ONLY, ENCODER_DECODER) for name in sorted(plugin.model_types)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_generation_gives_the_librarys_tokens_with_either_cache(plugin, model_type):
    workload, model = make(plugin, model_type, plugin.tasks[0])
    point = Point(batch_size=2, sequence_length=9, new_tokens=6)
    ids, operation = operation_of(plugin, workload, model, point, cache="dynamic")
    with torch.inference_mode():
        tokens = operation.run(lambda event: None).tokens
        assert tokens == tokens_of_library(model, ids)
        if model_type in WITHOUT_STATIC_CACHE:
            with pytest.raises(UnsupportedError, match="has no static cache"):
                operation_of(plugin, workload, model, point, cache="static")
            return
        _, static = operation_of(plugin, workload, model, point, cache="static")
        assert static.run(lambda event: None).tokens == tokens


def tokens_of_library(model, ids):
    config = model.generation_config
    config.forced_bos_token_id = config.forced_eos_token_id = config.bad_words_ids = None
    return library_tokens(model, ids, 6, num_beams=1)
