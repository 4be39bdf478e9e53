"""Models that read images: the catalog, the image's position in the prompt, and impossible points."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarking.core.errors import UsageError
from benchmarking.core.records import Point
from benchmarking.measure.context import Settings
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.workloads.multimodal import PLUGIN
from benchmarking.workloads.support import families
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.support.synthetic_inputs import prompt_of

PUBLISHED = {
    "llava-hf/llava-1.5-7b-hf": 7_063_427_072,
    "Qwen/Qwen2-VL-2B-Instruct": 2_208_985_600,
    "facebook/flava-full": 241_356_289,  # FlavaModel, "241M"; its codebook belongs to the training
}


def test_catalog_holds_the_published_models_and_the_tiny_one():
    entries = [entry for entry in families.catalog_entries() if family_of(entry.config, entry.name) is PLUGIN]
    assert {entry.name: entry.parameter_count for entry in entries} == PUBLISHED | {"tiny-llava": 247_616}


def test_placeholders_follow_the_first_token():
    workload = resolve("tiny-llava", weights="random")
    point = Point(batch_size=2, sequence_length=24, new_tokens=4, axes={"image_size": 28})
    ids = PLUGIN.inputs(workload, point, 0)["input_ids"]
    assert ids.shape == (2, 24)
    assert ((ids == 1000) == [[False, *[True] * 4, *[False] * 19]] * 2).all()
    assert not np.isin(ids, [1, 2, 1001]).any()


def test_qwens_image_is_between_its_markers():
    workload = resolve("Qwen/Qwen2-VL-2B-Instruct", weights="random")
    point = Point(batch_size=2, sequence_length=24, new_tokens=4, axes={"image_size": 84})
    inputs = PLUGIN.inputs(workload, point, 0)
    assert inputs["input_ids"][0, 1:12].tolist() == [151652, *[151655] * 9, 151653]  # 3 x 3 blocks
    assert inputs["pixel_values"].shape == (2 * 36, 3 * 2 * 14 * 14)
    assert inputs["image_grid_thw"].tolist() == [[1, 6, 6], [1, 6, 6]]


@pytest.mark.parametrize(
    ("name", "size", "tokens", "shortest"),
    [
        ("llava-hf/llava-1.5-7b-hf", 336, 576, 578),  # 24 x 24 patches of 14
        ("Qwen/Qwen2-VL-2B-Instruct", 448, 256, 260),  # 16 x 16 blocks of 28, and two marks
        ("facebook/flava-full", 224, 0, 1),
    ],
)
def test_default_pictures_and_their_tokens(name, size, tokens, shortest):
    workload = resolve(name, weights="random")
    prompt = prompt_of(workload.config)
    assert (prompt.default_size, prompt.tokens(size), prompt.shortest(size)) == (size, tokens, shortest)
    axes = PLUGIN.axes(workload)
    assert (axes["image_size"], axes["sequence_length"]) == ((size,), (tokens + 128, tokens + 512))
    assert ("new_tokens" in axes) == (name != "facebook/flava-full")


def test_placeholder_count_matches_the_vision_part():
    full = {**resolve("tiny-llava").config, "vision_feature_select_strategy": "full"}
    assert prompt_of(full).tokens(28) == 5  # its summary token is kept
    siglip = {**full, "vision_config": {**full["vision_config"], "model_type": "siglip_vision_model"}}
    assert prompt_of(siglip).tokens(28) == 4  # it has none


@pytest.mark.parametrize(
    ("name", "length", "size", "new_tokens", "why"),
    [
        ("tiny-llava", 6, 28, 4, None),
        ("tiny-llava", 5, 28, 4, "length 5: an image of 28 x 28 pixels takes 4 tokens of .* must have 6 or more"),
        ("tiny-llava", 64, 100, 4, "image size 100: tiny-llava takes only images of 28 x 28 pixels"),
        ("tiny-llava", 1020, 28, 4, None),
        ("tiny-llava", 1021, 28, 4, "are 1025 tokens: tiny-llava takes at most 1024"),
        ("Qwen/Qwen2-VL-2B-Instruct", 260, 448, 4, None),
        ("Qwen/Qwen2-VL-2B-Instruct", 259, 448, 4, "takes 256 tokens of .* must have 260 or more"),
        ("Qwen/Qwen2-VL-2B-Instruct", 260, 450, 4, "takes images whose sides are multiples of 28 pixels"),
        ("facebook/flava-full", 512, 224, None, None),
        ("facebook/flava-full", 513, 224, None, "takes at most 512"),
        ("facebook/flava-full", 512, 224, 4, "does not generate"),
        ("tiny-llava", 64, 28, None, "missing number of new tokens"),
    ],
)
def test_impossible_points_are_refused_with_the_reason(name, length, size, new_tokens, why):
    point = Point(batch_size=1, sequence_length=length, new_tokens=new_tokens, axes={"image_size": size})
    said = PLUGIN.check(resolve(name, weights="random"), point)
    assert said is None if why is None else re.search(why, said)


def test_unknown_vision_part_is_refused():
    workload = resolve("tiny-llava")
    config = {**workload.config, "vision_config": {"model_type": "pixtral"}}
    point = Point(batch_size=1, sequence_length=64, new_tokens=4, axes={"image_size": 28})
    assert "has a pixtral, which is not supported" in PLUGIN.check(replace(workload, config=config), point)


def test_pictures_too_large_for_the_default_lengths_are_refused_with_the_numbers():
    model_id, axes = "Qwen/Qwen2-VL-2B-Instruct", {"image_size": (1120,)}
    request = Request(model_id=model_id, device="cpu", weights="random", axes=axes, settings=Settings())
    with pytest.raises(UsageError, match=r"takes 1600 tokens of .* must have 1604 or more"):
        plan_cell(request, "session")


def test_tasks_are_the_models_own():
    assert PLUGIN.tasks_of({"model_type": "flava"}) == ("feature-extraction",)
    assert PLUGIN.tasks_of({"model_type": "qwen2_vl"}) == ("image-text-to-text",)
    with pytest.raises(UsageError, match="facebook/flava-full is of family multimodal, and supports feature-ext"):
        resolve("facebook/flava-full", weights="random", task="image-text-to-text")
