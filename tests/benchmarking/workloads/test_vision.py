"""Vision: published models, accepted image sizes, and synthetic images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import Point
from benchmarking.workloads.support import families, synthetic_inputs
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.vision import CONVOLUTIONAL, PLUGIN, WINDOWED, least_size

PUBLISHED = {
    "google/vit-base-patch16-224": 86_567_656,
    "facebook/deit-small-patch16-224": 22_050_664,
    "microsoft/resnet-50": 25_557_032,
    "facebook/convnext-tiny-224": 28_589_128,
    "microsoft/swin-tiny-patch4-window7-224": 28_288_354,
    "tiny-vit": 81_226,
}

PATCHES = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
STAGES = {"depths": [1, 2], "num_labels": 3}
SMALL = {name: PATCHES | {"intermediate_size": 64, "num_labels": 3} for name in PLUGIN.model_types}
SMALL |= {name: STAGES | {"hidden_sizes": [16, 32], "embedding_size": 8} for name in CONVOLUTIONAL}
SMALL["regnet"] |= {"groups_width": 8}
SMALL |= {
    name: STAGES | {"image_size": 64, "patch_size": 4, "embed_dim": 16, "num_heads": [2, 2], "window_size": 4}
    for name in WINDOWED
}
for name in ("convnext", "convnextv2"):
    SMALL[name] |= {"num_stages": 2, "patch_size": 4}
CONFIGS = {name: {"model_type": name, **config} for name, config in SMALL.items()}


def images(batch_size, size):
    return Point(batch_size=batch_size, axes={"image_size": size})


@pytest.fixture(params=sorted(PLUGIN.model_types))
def config(request):
    return CONFIGS[request.param]


def test_catalog_has_the_published_models_and_a_tiny_one():
    entries = [entry for entry in families.catalog_entries() if family_of(entry.config, entry.name) is PLUGIN]
    assert {entry.name: entry.parameter_count for entry in entries} == PUBLISHED


@pytest.mark.parametrize("name", PUBLISHED)
def test_grid_is_the_models_own_image_size_at_every_batch_size(name):
    workload = resolve(name, weights="random")
    assert PLUGIN.axes(workload) == {"image_size": (32,) if name == "tiny-vit" else (224,)}
    assert workload.max_sequence_length is None


@pytest.mark.parametrize("task", PLUGIN.tasks)
def test_every_model_type_runs_at_its_own_size_and_others(small_model, config, task):
    small = small_model(PLUGIN, config, task)
    own = PLUGIN.axes(small.workload)["image_size"][0]
    for size in (own, own + 16):
        operation = small.operation(images(2, size))
        output = small.run(operation)
        assert operation.problem(output) is None
        array = operation.arrays(output)["logits" if task == "image-classification" else "last_hidden_state"]
        assert array.shape[:2] == (2, 3) if task == "image-classification" else array.shape[0] == 2
        assert (operation.items_per_call, operation.tokens_per_call, operation.new_tokens) == (2, None, None)


@pytest.mark.parametrize("name", sorted(CONVOLUTIONAL | WINDOWED))
def test_smallest_size_runs(small_model, name):
    small = small_model(PLUGIN, CONFIGS[name])
    operation = small.operation(images(1, least_size(CONFIGS[name])))
    assert operation.problem(small.run(operation)) is None


@pytest.mark.parametrize("name", ["convnext", "convnextv2", "swin"])
def test_refused_small_images_fail_in_the_library_too(small_model, name):
    small = small_model(PLUGIN, CONFIGS[name])
    size = least_size(CONFIGS[name]) - 1
    assert f"at least {size + 1} x {size + 1} pixels" in PLUGIN.check(small.workload, images(1, size))
    with torch.inference_mode(), pytest.raises(RuntimeError):
        small.model(torch.zeros(1, 3, size, size))


@pytest.mark.parametrize(
    ("name", "size", "why"),
    [
        ("google/vit-base-patch16-224", 224, None),
        ("google/vit-base-patch16-224", 384, None),
        ("google/vit-base-patch16-224", 100, "needs a multiple of its patch size 16, such as 96 or 112"),
        ("google/vit-base-patch16-224", 8, "needs a multiple of its patch size 16, such as 16"),
        ("microsoft/resnet-50", 32, None),
        ("microsoft/resnet-50", 31, "takes images of at least 32 x 32 pixels"),
        ("facebook/convnext-tiny-224", 33, None),
        ("facebook/convnext-tiny-224", 31, "takes images of at least 32 x 32 pixels"),
        # the last stage halves 4-pixel patches three times: 193 pixels are 6.03 of its 32, and so fill windows of 7
        ("microsoft/swin-tiny-patch4-window7-224", 193, None),
        ("microsoft/swin-tiny-patch4-window7-224", 192, "takes images of at least 193 x 193 pixels"),
    ],
)
def test_image_sizes_accepted_by_published_models(name, size, why):
    found = PLUGIN.check(resolve(name, weights="random"), images(1, size))
    assert found == (None if why is None else f"image size {size}: {name} {why}")


def test_axes_of_other_families_are_refused():
    workload = resolve("tiny-vit", weights="random")
    assert PLUGIN.check(workload, Point(batch_size=1)) == ("task image-classification of tiny-vit: missing image size")
    with_text = Point(batch_size=1, sequence_length=8, axes={"image_size": 32})
    assert "has no sequence length; its grid is batch size, image size" in PLUGIN.check(workload, with_text)
    with_tokens = Point(batch_size=1, new_tokens=8, axes={"image_size": 32})
    assert "does not generate" in PLUGIN.check(workload, with_tokens)


def test_positions_are_interpolated_for_other_sizes_only(small_model):
    small = small_model(PLUGIN, CONFIGS["vit"])
    own, other = small.operation(images(1, 32)), small.operation(images(1, 48))
    assert list(own._inputs) == ["pixel_values"]
    with torch.inference_mode():
        expected = small.model(**small.inputs(images(1, 48)), interpolate_pos_encoding=True).logits
    torch.testing.assert_close(small.run(other).logits, expected, rtol=0, atol=0)


def test_smaller_image_before_does_not_affect_swin(small_model):
    """Its layers keep the windows and shifts of the smallest image so far, unless they are restored."""
    large, smallest = images(2, 64), images(2, 32)
    fresh = small_model(PLUGIN, CONFIGS["swin"])
    expected = fresh.run(fresh.operation(large)).logits
    used = small_model(PLUGIN, CONFIGS["swin"])
    operations = used.operation(smallest), used.operation(large)
    used.run(operations[0])
    torch.testing.assert_close(used.run(operations[1]).logits, expected, rtol=0, atol=0)
    used.run(operations[0])
    with torch.inference_mode():
        assert not torch.equal(operations[1].run(lambda name: None).logits, expected), "the library mends itself"


def test_pixels_are_standard_normal_and_have_the_configurations_channels():
    pixels = synthetic_inputs.pixel_values({"num_channels": 1}, images(2, 200), seed=3)
    assert (pixels.shape, pixels.dtype) == ((2, 1, 200, 200), np.float32)
    assert pixels.mean() == pytest.approx(0, abs=4 / 80_000**0.5)  # four standard errors
    assert pixels.std() == pytest.approx(1, abs=4 / 160_000**0.5)
    assert synthetic_inputs.pixel_values({}, images(1, 8), seed=3).shape == (1, 3, 8, 8)


@pytest.mark.parametrize("name", ["vit", "dinov2", "resnet", "swin"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_images_follow_the_models_dtype(small_model, name, dtype):
    small = small_model(PLUGIN, CONFIGS[name], dtype=dtype)
    output = small.run(small.operation(images(1, 80)))
    assert output.logits.dtype == getattr(torch, dtype)
    assert output.logits.isfinite().all()


def test_size_is_read_from_one_number_or_two_equal_ones():
    assert synthetic_inputs.own_size({"image_size": 384}, 224) == 384
    assert synthetic_inputs.own_size({"image_size": [384, 384]}, 224) == 384
    assert synthetic_inputs.own_size({}, 224) == 224
    with pytest.raises(UnsupportedError, match="only square images"):
        synthetic_inputs.own_size({"image_size": [224, 448]}, 224)


@pytest.mark.parametrize(
    ("architecture", "task", "model_class"),
    [
        (None, "image-classification", "DeiTForImageClassification"),
        ("DeiTForImageClassificationWithTeacher", "image-classification", "DeiTForImageClassificationWithTeacher"),
        ("DeiTModel", "feature-extraction", "DeiTModel"),
        ("DeiTForMaskedImageModeling", "feature-extraction", "DeiTModel"),
    ],
)
def test_default_task_is_what_the_model_was_published_for(small_model, architecture, task, model_class):
    config = CONFIGS["deit"] | ({} if architecture is None else {"architectures": [architecture]})
    assert PLUGIN.tasks_of(config)[0] == task
    small = small_model(PLUGIN, config)
    assert type(small.model).__name__ == PLUGIN.model_class(small.workload).__name__ == model_class


def test_attention_is_an_option_only_if_there_is_a_choice(monkeypatch):
    assert PLUGIN.default_attention(CONFIGS["resnet"]) is None
    assert PLUGIN.default_attention(CONFIGS["swinv2"]) == "eager"
    assert PLUGIN.default_attention(CONFIGS["vit"]) == "sdpa"
    monkeypatch.setattr("benchmarking.workloads.support.transformers_models._transformers_version", lambda: (5, 0))
    assert PLUGIN.default_attention(CONFIGS["swin"]) == "eager"
