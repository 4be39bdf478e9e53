"""Diffusion: models and accepted sizes, the arithmetic of a step, and the loop compared with diffusers."""

from __future__ import annotations

import re
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Point, Workload, canonical_hash
from benchmarking.workloads.diffusion import DIT, PLUGIN, STABLE_DIFFUSION
from benchmarking.workloads.support import denoising, families
from benchmarking.workloads.support.denoising import step_between
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.support.weights import fill, skip_random_initialisation

PUBLISHED = {
    "stable-diffusion-v1-5/stable-diffusion-v1-5": 859_520_964,
    "stabilityai/stable-diffusion-xl-base-1.0": 2_567_463_684,
    "facebook/DiT-XL-2-256": 749_826_464,
}
TINY_UNET = {**families.catalog_entry("tiny-unet").config}
TINY_XL = {
    **TINY_UNET,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 6 * 8 + 16,
}
TINY_DIT = {
    "_class_name": "Transformer2DModel",
    "attention_head_dim": 8,
    "in_channels": 4,
    "norm_type": "ada_norm_zero",
    "num_attention_heads": 4,
    "num_embeds_ada_norm": 10,
    "num_layers": 2,
    "out_channels": 8,
    "patch_size": 2,
    "sample_size": 8,
}
MODELS = {"unet": TINY_UNET, "xl": TINY_XL, "dit": TINY_DIT}
SCHEDULES = {"unet": STABLE_DIFFUSION, "xl": STABLE_DIFFUSION, "dit": DIT}


def workload_of(config):
    return Workload(
        model_id="small",
        family="diffusion",
        task=PLUGIN.tasks_of(config)[0],
        source="local",
        config=config,
        config_hash=canonical_hash(config),
        weights="random",
    )


def point_of(steps=3, batch_size=2, size=64):
    return Point(batch_size=batch_size, axes={"image_size": size, "steps": steps})


class Loaded:
    def __init__(self, config, dtype=torch.float32):
        self.workload = workload_of(config)
        with skip_random_initialisation():
            self.model = PLUGIN.build(self.workload, dtype=dtype)
        fill(self.model, seed=3, standard_deviation=0.1)

    def operation(self, point):
        arrays = PLUGIN.inputs(self.workload, point, 0)
        self.inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return PLUGIN.torch_operation(self.model, self.workload, point, self.inputs, {})


@torch.inference_mode()
def run(operation, marks=None):
    operation.reset()
    return operation.run((marks if marks is not None else []).append)


@torch.inference_mode()
def library_loop(loaded, schedule, steps):
    """The loop of diffusers' pipelines, with its scheduler."""
    import diffusers

    fields = ("num_train_timesteps", "beta_start", "beta_end", "beta_schedule", "steps_offset", "set_alpha_to_one")
    scheduler = diffusers.DDIMScheduler(**{name: getattr(schedule, name) for name in fields}, clip_sample=False)
    scheduler.set_timesteps(steps)
    inputs = dict(loaded.inputs)
    is_dit = "hidden_states" in inputs
    latents = inputs.pop("hidden_states" if is_dit else "sample")
    if "time_ids" in inputs:
        inputs["added_cond_kwargs"] = {name: inputs.pop(name) for name in ("text_embeds", "time_ids")}
    for time in scheduler.timesteps:
        noise = loaded.model(latents, time.expand(len(latents)), **inputs).sample
        latents = scheduler.step(noise[:, :4], time, latents).prev_sample
    return latents


def test_catalog_holds_the_published_models_and_the_tiny_one():
    entries = [entry for entry in families.catalog_entries() if family_of(entry.config, entry.name) is PLUGIN]
    assert {entry.name: entry.parameter_count for entry in entries} == PUBLISHED | {"tiny-unet": 792_964}


def test_dit_has_the_published_675_million_parameters_and_copies_of_a_part_of_them():
    """DiT was published with 675 129 632, a fixed table of 256 positions among them; diffusers makes that a buffer, and
    keeps the embeddings of time and class, which are one in the original, once in each of the 28 blocks."""
    width = 1152
    embeddings = (256 * width + width) + (width * width + width) + 1001 * width
    assert PUBLISHED["facebook/DiT-XL-2-256"] - 27 * embeddings + 256 * width == 675_129_632


@pytest.mark.parametrize(
    ("name", "task", "size"),
    [
        ("stable-diffusion-v1-5/stable-diffusion-v1-5", "text-to-image", 512),
        ("stabilityai/stable-diffusion-xl-base-1.0", "text-to-image", 1024),
        ("facebook/DiT-XL-2-256", "unconditional-image-generation", 256),
    ],
)
def test_task_and_default_axes_are_the_models(name, task, size):
    workload = resolve(name, weights="random")
    assert (workload.task, PLUGIN.axes(workload)) == (task, {"image_size": (size,), "steps": (20,)})


def test_a_model_has_no_other_task():
    with pytest.raises(UsageError, match="tiny-unet is of family diffusion, and supports text-to-image"):
        resolve("tiny-unet", task="unconditional-image-generation")


def test_a_step_by_hand():
    step = step_between(500, 0.25, 0.64)
    assert step.timestep == 500
    assert step.keep == pytest.approx(1.6)  # sqrt(0.64 / 0.25)
    assert step.add == pytest.approx(0.6 - 1.6 * sqrt(0.75))  # sqrt(1 - 0.64) less what is kept of sqrt(1 - 0.25)
    nowhere = step_between(500, 0.25, 0.25)
    assert (nowhere.keep, nowhere.add) == (1.0, 0.0)


def test_steps_are_evenly_spaced_and_end_at_the_image():
    assert [step.timestep for step in STABLE_DIFFUSION.steps(4)] == [751, 501, 251, 1]
    assert [step.timestep for step in DIT.steps(4)] == [750, 500, 250, 0]
    last = DIT.steps(4)[-1]
    assert last.keep == pytest.approx(1 / sqrt(0.9999))  # all noise is taken out: (x - sqrt(0.0001) e) / sqrt(0.9999)
    assert last.add == pytest.approx(-sqrt(0.0001) / sqrt(0.9999), rel=1e-3)  # the library keeps a in float32


@pytest.mark.parametrize("steps", [1, 4, 7])
@pytest.mark.parametrize("name", MODELS)
def test_loop_is_that_of_diffusers(name, steps):
    loaded = Loaded(MODELS[name])
    latents = run(loaded.operation(point_of(steps)))
    expected = library_loop(loaded, SCHEDULES[name], steps)
    assert expected.std() > 0.1
    assert (expected - loaded.inputs["hidden_states" if name == "dit" else "sample"]).abs().max() > 0.01
    torch.testing.assert_close(latents, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_every_step_is_marked_and_calls_are_independent(name):
    loaded, marks = Loaded(MODELS[name]), []
    operation = loaded.operation(point_of(steps=3))
    first = run(operation, marks)
    assert marks == ["step"] * 3
    assert torch.equal(first, run(operation))
    assert (operation.items_per_call, operation.tokens_per_call, operation.new_tokens) == (2, None, None)
    assert operation.problem(first) is None
    assert operation.arrays(first)["latents"].shape == (2, 4, 8, 8)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_loop_runs_in_the_models_precision(name, dtype):
    loaded = Loaded(MODELS[name], dtype)
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {dtype}
    operation = loaded.operation(point_of(steps=2))
    output = run(operation)
    assert output.dtype == dtype
    assert operation.problem(output) is None


def test_the_denoisers_conditions_change_the_image():
    for config, name in ((TINY_UNET, "encoder_hidden_states"), (TINY_XL, "text_embeds"), (TINY_XL, "time_ids")):
        loaded = Loaded(config)
        one = run(loaded.operation(point_of()))
        other = {**loaded.inputs, name: loaded.inputs[name] * 2}
        assert not torch.equal(one, run(PLUGIN.torch_operation(loaded.model, loaded.workload, point_of(), other, {})))


def test_inputs_of_sdxl_are_the_published_sizes():
    workload = resolve("stabilityai/stable-diffusion-xl-base-1.0", weights="random")
    inputs = PLUGIN.inputs(workload, point_of(size=512), 0)
    assert {name: array.shape for name, array in inputs.items()} == {
        "sample": (2, 4, 64, 64),
        "encoder_hidden_states": (2, 77, 2048),
        "text_embeds": (2, 1280),
        "time_ids": (2, 6),
    }
    assert inputs["time_ids"].tolist() == [[512, 512, 0, 0, 512, 512]] * 2


def test_inputs_of_dit_are_noise_and_known_classes():
    inputs = PLUGIN.inputs(resolve("facebook/DiT-XL-2-256", weights="random"), point_of(batch_size=64, size=256), 0)
    assert inputs["hidden_states"].shape == (64, 4, 32, 32)
    assert inputs["class_labels"].dtype == np.int64
    assert 0 <= inputs["class_labels"].min() < inputs["class_labels"].max() < 1000


def test_nan_is_a_problem():
    loaded = Loaded(TINY_UNET)
    next(loaded.model.parameters()).data.fill_(float("nan"))
    operation = loaded.operation(point_of())
    assert "NaN or Inf in latents" in operation.problem(run(operation))


@pytest.mark.parametrize(
    ("config", "axes", "why"),
    [
        (TINY_UNET, {"image_size": 8, "steps": 1}, None),
        (TINY_UNET, {"image_size": 100, "steps": 2}, "image size 100: small needs a multiple of 8 pixels, such as 96"),
        (TINY_UNET, {"image_size": 4, "steps": 2}, "such as 8"),
        (TINY_UNET, {"image_size": 64, "steps": 999}, None),
        (TINY_UNET, {"image_size": 64, "steps": 1000}, "1000 steps: small takes at most 999"),
        (TINY_DIT, {"image_size": 64, "steps": 1000}, None),
        (TINY_DIT, {"image_size": 72, "steps": 2}, "a multiple of 16 pixels"),
        (TINY_DIT, {"image_size": 64}, "missing number of steps"),
        (TINY_DIT, {"image_size": 64, "steps": 2, "top_k": 3}, "has no top-k"),
    ],
)
def test_impossible_points_are_refused_with_the_reason(config, axes, why):
    said = PLUGIN.check(workload_of(config), Point(batch_size=1, axes=axes))
    assert said is None if why is None else re.search(why, said)


@pytest.mark.parametrize("steps", [1, 3, 500, 600, 999])
def test_any_allowed_number_of_steps_has_a_schedule(steps):
    for schedule in (STABLE_DIFFUSION, DIT):
        assert len(schedule.steps(min(steps, schedule.max_steps))) == steps


@pytest.mark.parametrize("size", [8, 24, 64, 88])
def test_a_unet_takes_any_multiple_of_eight(size):
    operation = Loaded(TINY_UNET).operation(point_of(steps=1, size=size))
    assert run(operation).shape == (2, 4, size // 8, size // 8)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"in_channels": 9}, "with 9 input and 4 output channels is not a plain denoiser"),
        ({"class_embed_type": "timestep"}, "class_embed_type timestep needs unsupported inputs"),
        ({"addition_embed_type": "image"}, "addition_embed_type image needs unsupported inputs"),
        ({"cross_attention_dim": [32, 64]}, "needs several prompts"),
        (
            {"_class_name": "Transformer2DModel", "norm_type": "layer_norm"},
            "norm_type layer_norm is not supported, only a DiT",
        ),
    ],
)
def test_models_that_need_other_inputs_are_refused_before_they_are_loaded(change, why):
    workload = replace(workload_of(TINY_UNET), config={**TINY_UNET, **change})
    assert why in PLUGIN.check(workload, point_of())
    with pytest.raises(UnsupportedError, match=why):
        PLUGIN.model_class(workload)


def test_missing_diffusers_is_an_error_with_advice(monkeypatch):
    monkeypatch.setattr(denoising.importlib.util, "find_spec", lambda name: None)
    workload = workload_of(TINY_UNET)
    assert PLUGIN.check(workload, point_of()).endswith('need diffusers: pip install "benchhouse[measure]"')
    with pytest.raises(UnsupportedError, match="need diffusers: pip install"):
        PLUGIN.model_class(workload)
