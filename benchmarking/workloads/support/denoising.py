"""Denoisers: which diffusers models they are, and the loop from noise to a latent image.

Each step of the loop is one pass through the denoiser and DDIM's step without added noise (eta = 0), Song, Meng and
Ermon, "Denoising Diffusion Implicit Models", 2021, formula 12. With the model's noise e at latents x, and a the share
of the image left at a step:

    x_before = sqrt(a_before) * (x - sqrt(1 - a) * e) / sqrt(a) + sqrt(1 - a_before) * e

which is `keep * x + add * e` with two numbers per step. They are computed beforehand, so nothing is looked up on the
device and nothing waits for it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import sqrt
from typing import Any

from benchmarking.core.contracts import FamilyOperation, Mark
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import torch
from benchmarking.core.plugins import how_to_install
from benchmarking.core.records import Json, Point
from benchmarking.workloads.support.generation import host_array, non_finite

UNET = "UNet2DConditionModel"
DIT = "DiTTransformer2DModel"
OLD_TRANSFORMER = "Transformer2DModel"
"""The class in DiT's published configurations. diffusers has since given DiT its own."""

NO_EXTRAS = ("class_embed_type", "num_class_embeds", "encoder_hid_dim_type")
"""UNet settings for unsupported inputs, other than the noise, the step and the prompt."""

PIXELS_PER_LATENT = 8
"""Pixels per latent and side, in the VAEs of Stable Diffusion, SDXL and DiT."""

STEP = "step"

Denoiser = Callable[[Any, Any], Any]
"""Maps latents and the step (one number per image) to the noise in the latents, in their shape."""


def missing() -> str | None:
    """None, or what must be installed and how."""
    if importlib.util.find_spec("diffusers") is not None:
        return None
    return f"diffusion models need diffusers: {how_to_install()}"


def class_name(config: Mapping[str, Json]) -> str:
    """The diffusers class that runs a configuration."""
    name = str(config.get("_class_name"))
    return DIT if name == OLD_TRANSFORMER else name


def unsupported(config: Mapping[str, Json]) -> str | None:
    """None, or why a configuration does not describe a model from noise and a prompt (or class) to a latent image."""
    given, taken, gives = config.get("_class_name"), config.get("in_channels", 4), config.get("out_channels", 4)
    if class_name(config) == DIT:
        if config.get("norm_type", "ada_norm_zero") != "ada_norm_zero":
            return f"a {given} with norm_type {config.get('norm_type')} is not supported, only a DiT"
        return None
    for name in NO_EXTRAS:
        if config.get(name) is not None:
            return f"a {given} with {name} {config[name]} needs unsupported inputs"
    if config.get("addition_embed_type") not in (None, "text_time"):
        return f"a {given} with addition_embed_type {config['addition_embed_type']} needs unsupported inputs"
    if not isinstance(config.get("cross_attention_dim", 1280), int):
        return f"a {given} with cross_attention_dim {config['cross_attention_dim']} needs several prompts"
    if taken != gives:
        return f"a {given} with {taken} input and {gives} output channels is not a plain denoiser (inpainting, ...)"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    timestep: int
    """The denoiser's time, from 0 (image) to 999 (noise)."""
    keep: float
    add: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSchedule:
    """The noise at each training step of a model; the fields are those of diffusers' DDIMScheduler."""

    num_train_timesteps: int = 1000
    beta_start: float
    beta_end: float
    beta_schedule: str
    steps_offset: int
    set_alpha_to_one: bool

    @property
    def max_steps(self) -> int:
        """The maximum number of steps in a call."""
        return self.num_train_timesteps - self.steps_offset

    def steps(self, count: int) -> tuple[Step, ...]:
        return steps_of(*self.alphas(), self.steps_offset, count)

    def alphas(self) -> tuple[list[float], float]:
        """The share of the image left at each training step, and after the last step."""
        from diffusers import DDIMScheduler

        scheduler = DDIMScheduler(**asdict(self), clip_sample=False)
        return scheduler.alphas_cumprod.tolist(), float(scheduler.final_alpha_cumprod)


def steps_of(alphas: Sequence[float], last: float, offset: int, count: int) -> tuple[Step, ...]:
    """The steps of a call, from noise to image, by the share of the image left at each training step and after the last
    one. They are evenly spaced among the training steps and counted from the image ("leading" spacing of DDIM): step k
    of n is at time k * (trained // n) + offset."""
    stride = len(alphas) // count
    times = [index * stride + offset for index in reversed(range(count))]
    return tuple(step_between(time, alphas[time], alphas[time - stride] if time >= stride else last) for time in times)


def step_between(timestep: int, alpha: float, alpha_before: float) -> Step:
    """The step's two numbers, from the image's shares before and after it."""
    keep = sqrt(alpha_before / alpha)
    return Step(timestep=timestep, keep=keep, add=sqrt(1 - alpha_before) - keep * sqrt(1 - alpha))


class DenoisingLoop(FamilyOperation):
    """A call: the whole loop over `steps`, starting from the same noise every time."""

    def __init__(self, denoiser: Denoiser, point: Point, noise: Any, steps: tuple[Step, ...]) -> None:
        self.items_per_call = point.batch_size
        self._denoiser = denoiser
        self._noise = noise
        self._steps = steps
        # One row per step and one number per image, sliced here: slicing a tensor on a device needs no transfer.
        times = torch.tensor([step.timestep for step in steps], device=noise.device)
        self._times = times[:, None].repeat(1, point.batch_size).unbind(0)

    def run(self, mark: Mark) -> Any:
        latents = self._noise
        for step, times in zip(self._steps, self._times, strict=True):
            latents = step.keep * latents + step.add * self._denoiser(latents, times)
            mark(STEP)
        return latents

    def problem(self, output: Any) -> str | None:
        return non_finite("latents", output)

    def arrays(self, output: Any) -> dict[str, Any]:
        """The latent images on the host, float32, batch x channels x height x width."""
        return {"latents": host_array(output)}
