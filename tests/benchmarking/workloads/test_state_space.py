"""State-space models: the library's tokens from a recurrent state, and weights that let it remember."""

from __future__ import annotations

import dataclasses
import json
import logging
import math

import pytest
import torch

from benchmarking.core.records import Point, Workload, canonical_hash
from benchmarking.workloads import state_space
from benchmarking.workloads.state_space import ONE_SEQUENCE, PLUGIN
from benchmarking.workloads.support import families
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.support.weights import fill, skip_random_initialisation
from tests.helpers.generation import library_tokens

PUBLISHED = {
    "state-spaces/mamba-130m-hf": 129_135_360,
    "state-spaces/mamba-370m-hf": 371_516_416,
    "AntonV/mamba2-130m-hf": 128_989_632,
    "RWKV/rwkv-4-169m-pile": 169_342_464,
    "tiny-mamba": 124_864,
}
SMALL = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
SPECIAL = {
    "falcon_mamba": {"state_size": 8},
    "mamba": {"state_size": 8},
    "mamba2": {"state_size": 8, "num_heads": 4, "head_dim": 32, "n_groups": 1, "chunk_size": 8},
}
POINT = Point(batch_size=2, sequence_length=9, new_tokens=8)
SINGLE = Point(batch_size=1, sequence_length=9, new_tokens=8)


def make(model_type, dtype=torch.float32, seed=1):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type](**{**SMALL, **SPECIAL.get(model_type, {})}).to_diff_dict()
    config |= {"model_type": model_type}
    config.pop("time_step_limit", None)  # (0, infinity), which JSON does not have
    workload = Workload(
        model_id=model_type,
        family=PLUGIN.name,
        task="text-generation",
        source="local",
        config=config,
        config_hash=canonical_hash(config),
        weights="random",
        vocab_size=512,
    )
    with skip_random_initialisation():
        model = PLUGIN.build(workload, dtype=dtype, attention=PLUGIN.default_attention(config))
    fill(model, seed=seed, standard_deviation=0.2)
    return workload, model


def operation_of(workload, model, point=None):
    point = point or (SINGLE if workload.model_id in ONE_SEQUENCE else POINT)
    ids = torch.from_numpy(PLUGIN.inputs(workload, point, 0)["input_ids"])
    return ids, PLUGIN.torch_operation(model, workload, point, {"input_ids": ids}, {"cache": "recurrent"})


@pytest.fixture(scope="module", params=sorted(PLUGIN.model_types))
def loaded(request):
    return make(request.param)


def test_catalog_has_the_published_models():
    entries = [entry for entry in families.catalog_entries() if family_of(entry.config, entry.name) is PLUGIN]
    assert {entry.name: entry.parameter_count for entry in entries} == PUBLISHED


@torch.inference_mode()
def test_generated_tokens_equal_those_of_transformers_generate(loaded):
    _, model = loaded
    ids, operation = operation_of(*loaded)
    marks: list[str] = []
    tokens = operation.run(marks.append).tokens
    expected = library_tokens(model, ids, 8)
    assert len({token for row in expected for token in row}) > 4, "a model that repeats itself proves nothing"
    assert tokens == expected
    assert marks == ["token"] * 8


@torch.inference_mode()
def test_stepwise_decoding_equals_one_pass(loaded):
    _, model = loaded
    ids, operation = operation_of(*loaded)
    output = operation.run(lambda event: None)
    text = torch.cat([ids, torch.tensor(output.tokens)[:, :-1]], dim=1)
    whole = model(text, use_cache=False).logits
    torch.testing.assert_close(output.prefill_logits, whole[:, 8], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(output.last_logits, whole[:, -1], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_calls_are_independent(loaded):
    _, operation = operation_of(*loaded)
    first, again = operation.run(lambda event: None), operation.run(lambda event: None)
    assert first.tokens == again.tokens
    torch.testing.assert_close(first.last_logits, again.last_logits, rtol=0, atol=0)
    operation.reset()
    assert operation._cache is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_gives_finite_numbers(loaded, dtype):
    workload, model = make(loaded[0].model_id, dtype)
    _, operation = operation_of(workload, model)
    with torch.inference_mode():
        assert operation.problem(operation.run(lambda event: None)) is None


def test_rwkv_is_refused_only_if_the_library_mixes_a_batch():
    """The library's step on two sequences returns two positions for one token."""
    workload, model = make("rwkv")
    ids, _ = operation_of(workload, model, POINT)
    with torch.inference_mode():
        state = model(ids, use_cache=True).state
        assert model(ids[:, :1], state=state, use_cache=True).logits.shape[1] == 2
    assert "mixes the sequences of a batch" in PLUGIN.check(workload, POINT)
    assert PLUGIN.check(workload, SINGLE) is None
    assert PLUGIN.check(workload, dataclasses.replace(POINT, new_tokens=1)) is None
    assert PLUGIN.check(make("mamba")[0], POINT) is None


@pytest.mark.parametrize("longest", ['{"__float__": "Infinity"}', "Infinity"])
def test_a_saved_mamba2_loads_with_its_endless_time_step(tmp_path, longest):
    """As transformers writes it now, and before version 5 in published checkpoints."""
    _, model = make("mamba2")
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["time_step_limit"]
    path.write_text(json.dumps(config)[:-1] + f', "time_step_limit": [0.0, {longest}]}}')
    workload = resolve(str(tmp_path))
    assert workload.config["time_step_limit"] == [0.0, {"__float__": "Infinity"}]
    loaded, missing = PLUGIN.load(workload, dtype=torch.float32)
    assert (list(loaded.config.time_step_limit), missing) == ([0.0, math.inf], ())
    ids, operation = operation_of(workload, loaded, POINT)
    with torch.inference_mode():
        torch.testing.assert_close(operation.run(lambda event: None).prefill_logits, model(ids).logits[:, -1])


def test_recurrence_parameters_keep_their_constructed_values(loaded):
    workload, model = loaded
    kept = {name: p.detach() for name, p in model.named_parameters()}
    if workload.model_id == "rwkv":
        decay = kept["rwkv.blocks.0.attention.time_decay"]
        assert (float(decay[0]), float(decay[-1])) == (-5.0, 3.0)
        assert (decay.diff() > 0).all()
        return
    layer = "backbone.layers.1.mixer"
    rows = kept[f"{layer}.A_log"].reshape(-1, 4 if workload.model_id == "mamba2" else 8)
    expected = torch.arange(1, rows.shape[1] + 1).log().expand_as(rows)
    torch.testing.assert_close(rows, expected)
    assert (kept[f"{layer}.D"] == 1).all()


@pytest.mark.parametrize(("model_type", "name"), [("mamba", "dt_proj.bias"), ("mamba2", "dt_bias")])
def test_time_steps_are_seeded_and_between_their_bounds(model_type, name):
    def biases(seed, torch_seed):
        torch.manual_seed(torch_seed)
        _, model = make(model_type, seed=seed)
        return model.get_parameter(f"backbone.layers.0.mixer.{name}").detach()

    first = biases(seed=1, torch_seed=1)
    torch.testing.assert_close(first, biases(seed=1, torch_seed=2), rtol=0, atol=0)
    assert (first != biases(seed=2, torch_seed=1)).any()
    steps = torch.nn.functional.softplus(first)
    assert 0.001 * 0.999 <= float(steps.min()) < float(steps.max()) <= 0.1 * 1.001


def test_any_length_is_valid_but_both_lengths_are_required():
    for name in PUBLISHED:
        workload = resolve(name, weights="random")
        assert workload.max_sequence_length is None
        assert PLUGIN.check(workload, Point(batch_size=1, sequence_length=100_000, new_tokens=1)) is None
    assert "missing sequence length" in PLUGIN.check(workload, Point(batch_size=1, new_tokens=1))
    assert "missing number of new tokens" in PLUGIN.check(workload, Point(batch_size=1, sequence_length=8))
    odd = Point(batch_size=1, sequence_length=8, new_tokens=1, axes={"image_size": 224})
    assert "has no image size" in PLUGIN.check(workload, odd)


def test_the_mode_has_a_recurrent_cache_and_no_attention():
    from benchmarking.core.records import Device
    from benchmarking.runtimes.eager import PLUGIN as EAGER

    cpu = Device(type="cpu", selector="cpu", found=True, precisions=("float32",))
    assert EAGER.mode(cpu, resolve("tiny-mamba"), {}) == {"cache": "recurrent"}


def test_implementation_is_reported_with_the_reason(monkeypatch):
    _, model = make("mamba")
    monkeypatch.setattr(state_space, "KERNEL_PACKAGES", ("json", "no_such_kernels"))
    assert PLUGIN.verified(model) == {
        "recurrence": "reference",
        "recurrence_kernels": {"json": "in use", "no_such_kernels": "No module named 'no_such_kernels'"},
    }
    monkeypatch.setattr(state_space, "KERNEL_PACKAGES", ("json",))
    assert PLUGIN.verified(model)["recurrence"] == "kernels"
    _, rwkv = make("rwkv")
    assert PLUGIN.verified(rwkv) == {
        "recurrence": "reference",
        "recurrence_kernels": {"rwkv": "runs on CUDA only"},
    }


def test_missing_kernels_are_not_on_stderr_but_other_warnings_are():
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger(state_space.FALLBACK_LOGGER)
    logger.addHandler(handler)
    state_space.quiet_fallback()
    try:
        logger.warning("`f` is falling back to its reference PyTorch implementation because `g` is not installed.")
        logger.warning("something else")
    finally:
        logger.removeHandler(handler)
    assert messages == ["something else"]
