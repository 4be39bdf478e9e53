"""Images and text: two towers that compare them, and captions equal to the library's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarking.core.errors import UsageError
from benchmarking.core.records import Device, Point
from benchmarking.runtimes.eager import PLUGIN as EAGER
from benchmarking.workloads.support import families
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.vision_text import CAPTIONING, COMPARISON, DEFAULTS, PLUGIN

PUBLISHED = {
    "openai/clip-vit-base-patch32": 151_277_313,
    "google/siglip-base-patch16-224": 203_155_970,
    # the hub's 247 414 076 counts the 30 524 x 768 word embeddings once more, for the output they are shared with
    "Salesforce/blip-image-captioning-base": 247_414_076 - 30_524 * 768,
    "tiny-clip": 219_393,
}
CPU = Device(type="cpu", selector="cpu", found=True, precisions=("float32",))

LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TEXT = LAYERS | {"vocab_size": 128, "max_position_embeddings": 24, "projection_dim": 16}
IMAGE = LAYERS | {"image_size": 32, "patch_size": 8, "projection_dim": 16}
EFFICIENT = {
    "image_size": 64,
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "kernel_sizes": [3, 3],
    "in_channels": [32, 8],
    "out_channels": [8, 16],
    "strides": [1, 2],
    "num_block_repeats": [1, 1],
    "expand_ratios": [1, 2],
    "hidden_dim": 64,
}
BLIP_TEXT = TEXT | {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "bos_token_id": 120,
    "sep_token_id": 121,
    "pad_token_id": 0,
    "encoder_hidden_size": 32,
}
CONFIGS = {
    name: {"model_type": name, "projection_dim": 16, "text_config": TEXT, "vision_config": IMAGE}
    for name in PLUGIN.model_types
}
CONFIGS["align"] |= {"vision_config": EFFICIENT}
CONFIGS["blip"] |= {"text_config": BLIP_TEXT, "architectures": ["BlipForConditionalGeneration"]}


def pair(batch_size=3, length=12, size=32, new_tokens=None):
    return Point(batch_size=batch_size, sequence_length=length, new_tokens=new_tokens, axes={"image_size": size})


def test_catalog_has_the_published_models_and_a_tiny_one():
    entries = [entry for entry in families.catalog_entries() if family_of(entry.config, entry.name) is PLUGIN]
    assert {entry.name: entry.parameter_count for entry in entries} == PUBLISHED


@pytest.mark.parametrize(
    ("name", "task", "axes", "longest"),
    [
        ("openai/clip-vit-base-patch32", COMPARISON, {"sequence_length": (77,), "image_size": (224,)}, 77),
        ("google/siglip-base-patch16-224", COMPARISON, {"sequence_length": (64,), "image_size": (224,)}, 64),
        (
            "Salesforce/blip-image-captioning-base",
            CAPTIONING,
            {"sequence_length": (4,), "image_size": (384,), "new_tokens": (16,)},
            512,
        ),
    ],
)
def test_grid_is_the_towers_own(name, task, axes, longest):
    workload = resolve(name, weights="random")
    assert (workload.task, PLUGIN.axes(workload), workload.max_sequence_length) == (task, axes, longest)


@pytest.mark.parametrize("model_type", sorted(DEFAULTS))
def test_defaults_are_the_librarys(model_type):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config, defaults = CONFIG_MAPPING[model_type](), DEFAULTS[model_type]
    text, image = config.text_config, config.vision_config
    assert (text.max_position_embeddings, text.vocab_size) == (defaults.positions, defaults.vocab_size)
    assert (image.image_size, getattr(image, "patch_size", None)) == (defaults.image_size, defaults.patch_size)


@pytest.mark.parametrize("model_type", sorted(set(CONFIGS) - {"blip"}))
def test_two_towers_compare_every_image_with_every_text(small_model, model_type):
    small = small_model(PLUGIN, CONFIGS[model_type])
    own = PLUGIN.axes(small.workload)["image_size"][0]
    for size in (own, own + 8):
        point = pair(size=size)
        operation = small.operation(point)
        output = small.run(operation)
        assert operation.problem(output) is None
        arrays = operation.arrays(output)
        assert arrays["logits_per_image"].shape == (3, 3)
        assert arrays["image_embeds"].shape == arrays["text_embeds"].shape
        assert (operation.items_per_call, operation.tokens_per_call, operation.new_tokens) == (3, 36, None)
    with torch.inference_mode():
        plain = small.model(**small.inputs(pair(size=own)))
    own_output = small.run(small.operation(pair(size=own)))
    torch.testing.assert_close(own_output.logits_per_image, plain.logits_per_image, rtol=0, atol=0)


@pytest.mark.parametrize(("end", "expected"), [(2, 127), (None, 127), (99, 99)])
def test_texts_for_clip_end_with_its_last_token(small_model, end, expected):
    text = TEXT | ({} if end is None else {"eos_token_id": end})
    small = small_model(PLUGIN, CONFIGS["clip"] | {"text_config": text})
    ids = small.inputs(pair())["input_ids"]
    assert ids[:, -1].tolist() == [expected] * 3
    assert expected not in ids[:, :-1]
    assert ids.shape == (3, 12)


def test_nan_in_either_tower_is_a_problem(small_model):
    small = small_model(PLUGIN, CONFIGS["clip"])
    small.model.text_projection.weight.data[0] = float("nan")
    operation = small.operation(pair())
    assert operation.problem(small.run(operation)) == "NaN or Inf in logits_per_image: 9 of 9 values"


@pytest.mark.parametrize("size", [32, 48])
def test_captions_equal_those_of_transformers_generate(small_model, size):
    small = small_model(PLUGIN, CONFIGS["blip"], deviation=0.6)
    point = pair(size=size, length=4, new_tokens=9)
    operation, inputs, marks = small.operation(point), small.inputs(point), []
    output = small.run(operation, marks)
    prompt = torch.nn.functional.pad(inputs["input_ids"], (0, 1), value=121)  # the end that `generate` takes off
    expected = small.model.generate(
        input_ids=prompt,
        pixel_values=inputs["pixel_values"],
        interpolate_pos_encoding=size != 32,
        do_sample=False,
        min_new_tokens=9,
        max_new_tokens=9,
        suppress_tokens=None,
    )
    tokens = np.array(output.tokens)
    assert expected[:, 0].tolist() == [120] * 3
    assert len(np.unique(tokens)) > 5, "a model that repeats itself proves nothing"
    assert tokens.tolist() == expected[:, 4:].tolist()
    assert marks == ["image_encode"] + ["token"] * 9
    assert operation.problem(output) is None


def test_caption_work_is_counted_and_calls_are_independent(small_model):
    small = small_model(PLUGIN, CONFIGS["blip"])
    operation = small.operation(pair(length=4, new_tokens=5))
    assert (operation.items_per_call, operation.prompt_tokens_per_call) == (3, 12)
    assert (operation.tokens_per_call, operation.new_tokens) == (15, 5)
    first, second = small.run(operation), small.run(operation)
    assert first.tokens == second.tokens
    torch.testing.assert_close(first.last_logits, second.last_logits, rtol=0, atol=0)


def test_captions_have_one_kind_of_cache_and_of_attention():
    workload = resolve("Salesforce/blip-image-captioning-base", weights="random")
    assert EAGER.mode(CPU, workload, {}) == {"attention": "eager", "cache": "dynamic"}
    with pytest.raises(UsageError, match="cache 'static'"):
        EAGER.mode(CPU, workload, {"cache": "static"})
    assert EAGER.mode(CPU, resolve("tiny-clip", weights="random"), {}) == {"attention": "sdpa"}


@pytest.mark.parametrize(
    ("name", "point", "why"),
    [
        ("openai/clip-vit-base-patch32", pair(length=77, size=224), None),
        ("openai/clip-vit-base-patch32", pair(length=78, size=224), "sequence length 78: "),
        (
            "openai/clip-vit-base-patch32",
            pair(length=77, size=100),
            "a multiple of its patch size 32, such as 96 or 128",
        ),
        ("google/siglip-base-patch16-224", pair(length=65, size=224), "sequence length 65: "),
        ("Salesforce/blip-image-captioning-base", pair(length=496, size=384, new_tokens=16), None),
        (
            "Salesforce/blip-image-captioning-base",
            pair(length=500, size=384, new_tokens=16),
            "sequence length 500 and 16 new tokens are 516 tokens: ",
        ),
        ("Salesforce/blip-image-captioning-base", pair(length=4, size=384), "missing number of new tokens"),
        ("openai/clip-vit-base-patch32", pair(length=8, size=224, new_tokens=4), "does not generate"),
    ],
)
def test_points_accepted_by_published_models(name, point, why):
    found = PLUGIN.check(resolve(name, weights="random"), point)
    assert found is None if why is None else why in found


def test_convolutional_image_tower_has_a_smallest_size(small_model):
    workload = small_model(PLUGIN, CONFIGS["align"]).workload
    assert PLUGIN.check(workload, pair(size=33)) is None
    assert PLUGIN.check(workload, pair(size=31)) == "image size 31: align takes images of at least 32 x 32 pixels"


@pytest.mark.parametrize("model_type", ["clip", "blip"])
def test_images_follow_the_models_dtype(small_model, model_type):
    small = small_model(PLUGIN, CONFIGS[model_type], dtype="bfloat16")
    operation = small.operation(pair(length=4, new_tokens=2 if model_type == "blip" else None))
    assert operation.problem(small.run(operation)) is None
