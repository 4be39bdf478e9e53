"""Calls made of a bundle's graphs, on any runtime on graphs: the same work, marks, counts and array names as the torch
operations of the families have, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.graphs.calls import Arrays, GraphOperation, as_dtype, as_float32
from benchmarking.graphs.generation import DecoderGeneration, EncoderDecoderGeneration, Generation, start_of
from benchmarking.graphs.runner import GraphRunner, Placed
from benchmarking.records import Point, Readings, Workload
from benchmarking.runtimes import Mark

if TYPE_CHECKING:
    from benchmarking.workloads._denoising import Step

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
    from benchmarking.graphs.telling import family_readings

    operation: GraphOperation
    if bundle.kind == "denoiser":
        from benchmarking.graphs.schedule import steps_of

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
