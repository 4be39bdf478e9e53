"""Calls made of a bundle's graphs, on any runtime on graphs: the same work, marks, counts and array names as the torch
operations of the families have, without torch.

The steps of a denoising call from what a bundle holds of the schedule: plain numbers, no diffusers.

facts["schedule"] = {"alphas": share of the image left after each trained step, "last": after the very last,
                     "offset": what is added to every step's time}

What a family tells of a call besides its times, where no torch model can be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarking.core.contracts import GraphRunner, Mark, Placed
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Point, Readings, Workload
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.graphs.generation import (
    Arrays,
    DecoderGeneration,
    EncoderDecoderGeneration,
    Generation,
    GraphOperation,
    as_dtype,
    as_float32,
    start_of,
)
from benchmarking.workloads.support.denoising import Step, step_between

__all__ = [
    "DecoderGeneration",
    "DenoisingCall",
    "EncoderDecoderGeneration",
    "ForwardCall",
    "Generation",
    "GraphOperation",
    "operation_of",
    "results",
    "start_of",
]


MODEL = "model"

"""The one graph of the other bundles."""


class ForwardCall(GraphOperation):
    """One call of the graph "model"."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point, arrays: Arrays) -> None:
        super().__init__(bundle, runner, point)
        self.tokens_per_call = point.batch_size * (point.sequence_length or 0) or None
        self._graph = bundle.graphs[MODEL]
        self._feeds = self._placed(self._graph, arrays)

    def run(self, mark: Mark) -> Mapping[str, Placed]:
        return self._runner.call(MODEL, self._feeds)

    def arrays(self, output: Mapping[str, Placed]) -> dict[str, np.ndarray]:
        return {name: as_float32(self._runner.fetch(output[source])) for name, source in results(self._graph).items()}


class DenoisingCall(GraphOperation):
    """The whole denoising loop: one call of the graph "model" a step, the step's arithmetic on the host."""

    def __init__(
        self, bundle: Bundle, runner: GraphRunner, point: Point, arrays: Arrays, steps: tuple[Step, ...]
    ) -> None:
        super().__init__(bundle, runner, point)
        self._graph = bundle.graphs[MODEL]
        by_source = {source: name for name, source in self._graph.feeds.items()}
        self._latents, times = by_source["latents"], by_source["timestep"]
        dtype = self._graph.input(times).dtype
        self._noise = as_dtype(arrays, str(bundle.facts["latents"]), self._graph.input(self._latents).dtype)
        self._steps = steps
        self._feeds = self._placed(self._graph, arrays)
        self._times = [
            {times: runner.place(np.full(point.batch_size, step.timestep, dtype=dtype))} for step in self._steps
        ]

    def run(self, mark: Mark) -> np.ndarray:
        latents = self._noise
        for step, times in zip(self._steps, self._times, strict=True):
            feeds = {**self._feeds, **times, self._latents: self._runner.place(latents)}
            noise = self._runner.fetch(self._runner.call(MODEL, feeds)[self._graph.result or ""])
            latents = latents * latents.dtype.type(step.keep) + noise * latents.dtype.type(step.add)
            mark("step")
        return latents

    def arrays(self, output: np.ndarray) -> dict[str, np.ndarray]:
        return {"latents": as_float32(output)}


def operation_of(
    bundle: Bundle,
    runner: GraphRunner,
    workload: Workload,
    point: Point,
    arrays: Arrays,
    preparation: Callable[[], Readings] = Readings,
) -> GraphOperation:
    """The call at a point, on inputs that are made. `preparation` tells what making them took."""

    operation: GraphOperation
    if bundle.kind == "denoiser":
        operation = DenoisingCall(bundle, runner, point, arrays, steps_of(bundle, point))
    elif bundle.kind == "encoder-decoder":
        operation = EncoderDecoderGeneration(bundle, runner, point, arrays)
    elif bundle.kind == "decoder":
        operation = DecoderGeneration(bundle, runner, point, arrays)
    else:
        operation = ForwardCall(bundle, runner, point, arrays)
    operation.tell = lambda: preparation() | family_readings(workload, point, bundle)
    return operation


def results(graph: Graph) -> dict[str, str]:
    """The outputs that a call is about, by what the family's torch operation calls them."""
    main = {} if graph.result is None else {graph.result_name or graph.result: graph.result}
    return {**main, **graph.more_results}


def steps_of(bundle: Bundle, point: Point) -> tuple[Step, ...]:
    """The steps of a call, from noise to image: evenly spaced in the trained ones, counted from the image ("leading"
    spacing of DDIM), so that step k of n is at time k * (trained // n) + offset."""
    schedule: Any = bundle.facts["schedule"]
    alphas, last, offset = schedule["alphas"], schedule["last"], schedule["offset"]
    count = int(point.axes["steps"])
    stride = len(alphas) // count
    times = [index * stride + offset for index in reversed(range(count))]
    return tuple(step_between(time, alphas[time], alphas[time - stride] if time >= stride else last) for time in times)


def family_readings(workload: Workload, point: Point, bundle: Bundle) -> Readings:
    """Seconds of audio, active parameters, ...: as the family's torch operation reads them, or why not."""
    if workload.family == "speech":
        return _speech(point, bundle)
    if workload.family == "mixture-of-experts":
        return _experts(bundle)
    return Readings()


def _speech(point: Point, bundle: Bundle) -> Readings:
    from benchmarking.workloads.support import synthetic_inputs

    why = f"{NOT_APPLICABLE}: what is taken in is sound, not tokens"
    missing = {"prefill_tokens_per_sec": why} if bundle.kind == "encoder-decoder" else {}
    return synthetic_inputs.audio_per_call(point) | Readings(missing=missing)


def _experts(bundle: Bundle) -> Readings:
    """The number of active parameters is the configuration's; what the router chose stays inside the graph."""
    missing = {"expert_load_imbalance": f"{NOT_SUPPORTED}: the router's choices are no output of the graph"}
    active = bundle.facts.get("active_parameter_count")
    if active is None:
        missing["active_parameter_count"] = f"{NOT_SUPPORTED}: the bundle does not say"
        return Readings(missing=missing)
    return Readings(values={"active_parameter_count": active}, missing=missing)
