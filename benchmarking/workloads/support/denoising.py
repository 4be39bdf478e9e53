"""The denoising loop: from noise to a latent image in a number of steps, each one pass through the denoiser.

A step is that of DDIM without noise of its own (eta = 0), Song, Meng and Ermon, "Denoising Diffusion Implicit Models",
2021, formula 12. With the model's noise e at latents x, and a the share of the image left at a step:

    x_before = sqrt(a_before) * (x - sqrt(1 - a) * e) / sqrt(a) + sqrt(1 - a_before) * e

which is `keep * x + add * e` with two numbers a step. They are computed beforehand, so that nothing is looked up on the
device and nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

from benchmarking.core.contracts import FamilyOperation, Mark
from benchmarking.core.records import Point
from benchmarking.workloads.support.generation import host_array, non_finite

STEP = "step"

Denoiser = Callable[[Any, Any], Any]
"""From latents and the step (one number for each image) to the noise in them, shaped like the latents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of DDIM."""

    timestep: int
    """The denoiser's idea of time: 0 for an image, 999 for noise."""
    keep: float
    add: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSchedule:
    """How much noise there is at each of the steps that a model was trained on; fields of diffusers' DDIMScheduler."""

    num_train_timesteps: int = 1000
    beta_start: float
    beta_end: float
    beta_schedule: str
    steps_offset: int
    set_alpha_to_one: bool

    @property
    def max_steps(self) -> int:
        """The most steps a call can take."""
        return self.num_train_timesteps - self.steps_offset

    def steps(self, count: int) -> tuple[Step, ...]:
        """The steps of a call, from noise to image, evenly spaced in the trained ones."""
        scheduler = self._scheduler()
        scheduler.set_timesteps(count)
        alphas, last = scheduler.alphas_cumprod.tolist(), float(scheduler.final_alpha_cumprod)
        stride = self.num_train_timesteps // count
        return tuple(
            step_between(timestep, alphas[timestep], alphas[timestep - stride] if timestep >= stride else last)
            for timestep in scheduler.timesteps.tolist()
        )

    def alphas(self) -> tuple[tuple[float, ...], float]:
        """The share of the image left at each trained step, and after the last one to the image."""
        scheduler = self._scheduler()
        return tuple(scheduler.alphas_cumprod.tolist()), float(scheduler.final_alpha_cumprod)

    def _scheduler(self) -> Any:
        from diffusers import DDIMScheduler

        return DDIMScheduler(
            num_train_timesteps=self.num_train_timesteps,
            beta_start=self.beta_start,
            beta_end=self.beta_end,
            beta_schedule=self.beta_schedule,
            steps_offset=self.steps_offset,
            set_alpha_to_one=self.set_alpha_to_one,
            clip_sample=False,
        )


def step_between(timestep: int, alpha: float, alpha_before: float) -> Step:
    """The step's two numbers, from the image's share now and after it."""
    keep = sqrt(alpha_before / alpha)
    return Step(timestep=timestep, keep=keep, add=sqrt(1 - alpha_before) - keep * sqrt(1 - alpha))


class DenoisingLoop(FamilyOperation):
    """A call: the whole loop over `steps`, on latents that are the same noise every time."""

    def __init__(self, denoiser: Denoiser, point: Point, noise: Any, steps: tuple[Step, ...]) -> None:
        import torch

        self.items_per_call = point.batch_size
        self._denoiser = denoiser
        self._noise = noise
        self._steps = steps
        # One row a step and one number an image, sliced here: a slice of a tensor on a device costs no transfer.
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
