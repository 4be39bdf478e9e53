"""A denoiser as one graph, called once a step: latents and the step in, the noise in them out.

The step's own arithmetic stays outside, as torch's is outside the model; the numbers it takes are in the bundle.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarking.graphs.export.agreement import traced_point
from benchmarking.graphs.export.forward import family_inputs
from benchmarking.graphs.export.tracing import BATCH, Plan, Traced
from benchmarking.graphs.recipes import Recipe
from benchmarking.records import Point, Workload
from benchmarking.workloads.diffusion import denoiser_of, latents_input, schedule_of

LATENTS, TIMESTEP, NOISE = "latents", "timestep", "noise"


class Denoiser(torch.nn.Module):
    """The family's own call of its model for one step."""

    def __init__(self, model: Any, workload: Workload) -> None:
        super().__init__()
        self.model = model
        self._config = workload.config

    def forward(self, latents: torch.Tensor, timestep: torch.Tensor, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {NOISE: denoiser_of(self.model, self._config, dict(inputs))(latents, timestep)}


def plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The graph "model", and the schedule: the share of the image left at each trained step."""
    where = traced_point(workload, point, recipe)
    inputs = family_inputs(model, workload, where)
    name = latents_input(workload.config)
    latents = inputs.pop(name)
    given = {LATENTS: latents, TIMESTEP: torch.full((where.batch_size,), 500, dtype=torch.int64), **inputs}
    traced = Traced(
        module=Denoiser(model, workload),
        inputs=given,
        axes={name: {0: BATCH} for name in given},
        feeds={LATENTS: "latents", TIMESTEP: "timestep", **{name: f"inputs.{name}" for name in inputs}},
        result=NOISE,
        result_name=NOISE,
    )
    schedule = schedule_of(workload.config)
    alphas, last = schedule.alphas()
    facts = {
        "latents": name,
        "schedule": {"alphas": list(alphas), "last": last, "offset": schedule.steps_offset},
    }
    return Plan(graphs={"model": traced}, fields={"facts": facts})
