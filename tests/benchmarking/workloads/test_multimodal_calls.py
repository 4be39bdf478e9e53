"""Calls of models that read images: the library's tokens, positions and embeddings, and the phases."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarking.core.records import Point, Workload, canonical_hash
from benchmarking.workloads.multimodal import PLUGIN, grid_positions
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.support.weights import fill, skip_random_initialisation

QWEN = {
    "model_type": "qwen2_vl",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "vision_start_token_id": 1001,
    "vision_end_token_id": 1002,
    "image_token_id": 1003,
    "video_token_id": 1004,
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "in_chans": 3, "num_heads": 2, "patch_size": 14},
    "vocab_size": 1024,
}
QWEN_2_5 = {
    **QWEN,
    "model_type": "qwen2_5_vl",
    "vision_config": {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "out_hidden_size": 64,
        "in_chans": 3,
        "num_heads": 2,
        "patch_size": 14,
        "window_size": 56,
        "fullatt_block_indexes": [1],
    },
}
ENCODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
FLAVA = {
    "model_type": "flava",
    "hidden_size": 32,
    "projection_dim": 32,
    "text_config": {**ENCODER, "vocab_size": 512, "max_position_embeddings": 40},
    "image_config": {**ENCODER, "image_size": 32, "patch_size": 16},
    "multimodal_config": ENCODER,
    "image_codebook_config": {},
}

FLAVA_POINT = Point(batch_size=2, sequence_length=9, axes={"image_size": 32})


class Loaded:
    """A small model with weights large enough that its text depends on the image."""

    def __init__(self, workload, standard_deviation=0.3):
        self.workload = workload
        attention = PLUGIN.default_attention(workload.config)
        with skip_random_initialisation():
            self.model = PLUGIN.build(workload, dtype=torch.float32, attention=attention)
        fill(self.model, seed=3, standard_deviation=standard_deviation)

    def operation(self, point, **mode):
        arrays = PLUGIN.inputs(self.workload, point, 0)
        self.inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return PLUGIN.torch_operation(self.model, self.workload, point, self.inputs, mode)


def workload_of(config):
    return Workload(
        model_id=f"small {config['model_type']}",
        family="multimodal",
        task=PLUGIN.tasks_of(config)[0],
        source="local",
        config=config,
        config_hash=canonical_hash(config),
        weights="random",
        max_sequence_length=PLUGIN.max_sequence_length(config),
    )


@pytest.fixture(scope="module")
def llava():
    return Loaded(resolve("tiny-llava", weights="random"))


@pytest.fixture(scope="module")
def qwen():
    return Loaded(workload_of(QWEN))


@pytest.fixture(scope="module")
def qwen_2_5():
    return Loaded(workload_of(QWEN_2_5))


@pytest.fixture(scope="module")
def flava():
    return Loaded(workload_of(FLAVA))


@pytest.fixture
def loaded(request):
    return request.getfixturevalue(request.param)


GENERATING = pytest.mark.parametrize("loaded", ["llava", "qwen", "qwen_2_5"], indirect=True)
SIZES = {"tiny-llava": 28}  # 2 x 2 patches
BLOCKS_SIZE = 84
"""Of the others: 3 x 3 blocks of 2 x 2 patches."""


def point_of(loaded, new_tokens=8, batch_size=2):
    size = SIZES.get(loaded.workload.model_id, BLOCKS_SIZE)
    return Point(batch_size=batch_size, sequence_length=24, new_tokens=new_tokens, axes={"image_size": size})


@torch.inference_mode()
def run(operation, marks=None):
    operation.reset()
    return operation.run((marks if marks is not None else []).append)


def own_arguments(loaded):
    """Further arguments of the library: the places of the image's tokens, to compute their positions."""
    if loaded.workload.config["model_type"] == "llava":
        return {}
    return {"mm_token_type_ids": (loaded.inputs["input_ids"] == 1003).int()}


@torch.inference_mode()
def library_tokens(loaded, count):
    ids = loaded.inputs["input_ids"]
    output = loaded.model.generate(
        **loaded.inputs,
        **own_arguments(loaded),
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        min_new_tokens=count,
        max_new_tokens=count,
        pad_token_id=0,
        eos_token_id=1025,  # a token never generated: no stop, none suppressed
    )
    return tuple(tuple(row) for row in output[:, -count:].tolist())


@GENERATING
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generated_tokens_equal_those_of_transformers_generate(loaded, cache):
    point = point_of(loaded)
    output = run(loaded.operation(point, cache=cache))
    expected = library_tokens(loaded, 8)
    assert len({token for row in expected for token in row}) > 4, "a model that repeats itself proves nothing"
    assert output.tokens == expected


@GENERATING
def test_prefill_sees_the_picture_as_a_plain_forward_pass_does(loaded):
    output = run(loaded.operation(point_of(loaded)))
    with torch.inference_mode():
        plain = loaded.model(**loaded.inputs, **own_arguments(loaded), use_cache=False).logits[:, -1]
        other = {**loaded.inputs, "pixel_values": -loaded.inputs["pixel_values"]}
        unlike = loaded.model(**other, **own_arguments(loaded), use_cache=False).logits[:, -1]
    torch.testing.assert_close(output.prefill_logits, plain, rtol=1e-4, atol=1e-4)
    assert (plain - unlike).abs().max() > 0.01, "a picture that changes nothing proves nothing"


@GENERATING
@pytest.mark.parametrize("new_tokens", [1, 3])
def test_image_encoding_is_a_phase_before_the_tokens(loaded, new_tokens):
    operation, marks = loaded.operation(point_of(loaded, new_tokens)), []
    output = run(operation, marks)
    assert marks == ["image_encode", *["token"] * new_tokens]
    assert operation.problem(output) is None
    counts = (operation.items_per_call, operation.tokens_per_call, operation.prompt_tokens_per_call)
    assert counts == (2, 2 * new_tokens, 48)


@GENERATING
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_calls_are_independent(loaded, cache):
    operation = loaded.operation(point_of(loaded), cache=cache)
    first, second = run(operation), run(operation)
    assert first.tokens == second.tokens
    torch.testing.assert_close(first.last_logits, second.last_logits, rtol=0, atol=0)


@GENERATING
def test_pixels_follow_the_models_precision(loaded):
    model, point = loaded.model, point_of(loaded)
    with skip_random_initialisation():
        half = PLUGIN.build(loaded.workload, dtype=torch.bfloat16, attention="sdpa")
    fill(half, seed=3)
    try:
        loaded.model = half
        operation = loaded.operation(point)
    finally:
        loaded.model = model
    output = run(operation)
    assert output.prefill_logits.dtype == torch.bfloat16
    assert operation.problem(output) is None


def test_image_positions_form_a_square_followed_by_text():
    # one token of text, 2 x 2 of picture, two of text, and one that is generated
    assert grid_positions([False, True, True, True, True, False, False], 1) == [
        [0, 1, 1, 1, 1, 3, 4, 5],
        [0, 1, 1, 2, 2, 3, 4, 5],
        [0, 1, 2, 1, 2, 3, 4, 5],
    ]
    assert grid_positions([False, True, False], 0) == [[0, 1, 2]] * 3  # a picture of one token is as text


def test_positions_are_those_of_the_library(qwen):
    qwen.operation(point_of(qwen))
    ids, grid = qwen.inputs["input_ids"], qwen.inputs["image_grid_thw"]
    expected, _ = qwen.model.model.get_rope_index(ids, (ids == 1003).int(), image_grid_thw=grid)
    ours = torch.tensor([grid_positions(row, 0) for row in (ids == 1003).tolist()]).transpose(0, 1)
    assert torch.equal(ours, expected)


def test_flava_returns_joint_embeddings_of_image_and_text(flava):
    operation, marks = flava.operation(FLAVA_POINT), []
    arrays = operation.arrays(run(operation, marks))
    with torch.inference_mode():
        expected = flava.model(**flava.inputs).multimodal_embeddings
    assert marks == []
    assert arrays["multimodal_embeddings"].shape == (2, 1 + 1 + 4 + 9, 32)  # two summaries, patches, text
    np.testing.assert_array_equal(arrays["multimodal_embeddings"], expected.numpy())
    assert (operation.items_per_call, operation.tokens_per_call, operation.new_tokens) == (2, 18, None)


@pytest.mark.parametrize(
    ("loaded", "what"), [("llava", "prefill logits"), ("flava", "multimodal emb")], indirect=["loaded"]
)
def test_nan_in_the_vision_part_is_a_problem(loaded, what):
    broken = Loaded(loaded.workload)
    next(p for name, p in broken.model.named_parameters() if "patch_embedding" in name).data.fill_(float("nan"))
    generates = loaded.workload.model_id == "tiny-llava"
    point = point_of(loaded) if generates else FLAVA_POINT
    operation = broken.operation(point)
    assert f"NaN or Inf in {what}" in operation.problem(run(operation))


def test_weights_of_a_folder_are_the_models(tmp_path, save_tiny):
    from transformers import LlavaForConditionalGeneration

    folder = save_tiny(tmp_path / "m", "tiny-llava")
    workload = resolve(str(folder))
    model, missing = PLUGIN.load(workload, dtype=torch.float32, attention="sdpa")
    reference = LlavaForConditionalGeneration.from_pretrained(folder)
    assert (workload.family, workload.task, workload.weights) == ("multimodal", "image-text-to-text", "pretrained")
    assert missing == ()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), reference.parameters(), strict=True))
