"""Calls made from a bundle's graphs, on any graph runtime: the same work, marks, counts and array names as the
families' torch operations, without torch.

The runner chooses greedy tokens, on the host or where the logits are. Little data is fetched for it: decoders are
exported with logits of only the last position if the model supports that (batch x 1 x vocabulary, 200 kB per sequence
for a vocabulary of 50 000), and states stay in the runtime's memory.

The steps of a denoising call come from the schedule in the bundle's facts:

facts["schedule"] = {"alphas": share of the image left after each training step, "last": after the very last,
                     "offset": added to the time of every step}
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarking.core.contracts import TOKEN, Mark, Operation, wrong_token_count
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.model_contracts import GraphRunner, Placed
from benchmarking.core.profiles import CallProfiler
from benchmarking.core.records import Json, Point, Readings, Workload
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.workloads.support.denoising import Step, steps_of
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.generation import Generated

Arrays = Mapping[str, np.ndarray]
"""The inputs of a call, by the family's names."""

MODEL, ENCODER, CROSS, PREFILL, DECODE = "model", "encoder", "cross", "prefill", "decode"
"""Names of graphs. The first is the only graph in bundles that do not generate."""
MASK, POSITIONS = "mask", "positions"
"""Feeds that grow with the processed tokens."""


def operation_of(
    bundle: Bundle,
    runner: GraphRunner,
    workload: Workload,
    point: Point,
    arrays: Arrays,
    preparation: Callable[[], Readings] = Readings,
) -> GraphOperation:
    """The call at a point on these inputs. `preparation` holds the readings of making them."""
    operation: GraphOperation
    if bundle.kind == "forward":
        operation = ForwardCall(bundle, runner, point, arrays)
    elif bundle.kind == "denoiser":
        operation = DenoisingCall(bundle, runner, point, arrays, denoising_steps(bundle, point))
    elif bundle.kind == "decoder":
        operation = DecoderGeneration(bundle, runner, point, arrays)
    else:
        operation = EncoderDecoderGeneration(bundle, runner, point, arrays)
    family = plugin_of(workload)
    operation.more_readings = lambda: preparation() | family.graph_readings(workload, point, bundle.facts)
    return operation


class GraphOperation(Operation):
    """Base of the calls of all kinds of bundles. Each call starts with fresh states and includes their cost."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point) -> None:
        self.items_per_call = point.batch_size
        self.more_readings: Callable[[], Readings] = Readings
        """Readings other than times: the time to make the inputs, seconds of audio, ..."""
        self.make_profiler: Callable[[Path], CallProfiler] | None = None
        """Creates the profiler of the call, with its files in a folder; None for a runtime without a profiler."""
        self._bundle = bundle
        self._runner = runner

    @abstractmethod
    def arrays(self, output: Any) -> dict[str, np.ndarray]:
        """The output on the host, with the names of the family's torch operation: float32, tokens int64."""

    def problem(self, output: Any) -> str | None:
        """None, or how much of an output is NaN or infinite."""
        problems = (non_finite(name, array) for name, array in self.arrays(output).items())
        return next((problem for problem in problems if problem is not None), None)

    def readings(self, output: Any) -> Readings:
        return self.more_readings()

    def profiler(self, folder: Path, synchronize: Callable[[], None]) -> CallProfiler | None:
        return None if self.make_profiler is None else self.make_profiler(folder)

    def verified(self) -> Mapping[str, Json]:
        """What the runner verified about its calls."""
        return self._runner.verified()

    def _place_inputs(self, graph: Graph, arrays: Arrays) -> dict[str, Placed]:
        """The feeds made from the family's inputs, in the graph's types, placed by the runner."""
        placed: dict[str, Placed] = {}
        for name, source in graph.feeds.items():
            kind, _, input_name = source.partition(".")
            if kind in ("inputs", "ones", "zeros"):  # all other sources are made during the call
                array = as_dtype(arrays, input_name, graph.input(name).dtype)
                if kind != "inputs":
                    array = np.full_like(array, 1 if kind == "ones" else 0)
                placed[name] = self._runner.place(array)
        return placed


class ForwardCall(GraphOperation):
    """One call of the graph "model"."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point, arrays: Arrays) -> None:
        super().__init__(bundle, runner, point)
        self.tokens_per_call = point.batch_size * (point.sequence_length or 0) or None
        self._graph = bundle.graphs[MODEL]
        self._feeds = self._place_inputs(self._graph, arrays)

    def run(self, mark: Mark) -> Mapping[str, Placed]:
        return self._runner.call(MODEL, self._feeds)

    def arrays(self, output: Mapping[str, Placed]) -> dict[str, np.ndarray]:
        return {
            name: as_float32(self._runner.fetch(output[source])) for name, source in result_outputs(self._graph).items()
        }


class DenoisingCall(GraphOperation):
    """The whole denoising loop: one call of the graph "model" per step, with the step's arithmetic on the host."""

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
        self._feeds = self._place_inputs(self._graph, arrays)
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


class Generation(GraphOperation):
    """Greedy generation: the loop shared by decoders and encoder-decoders."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point, arrays: Arrays) -> None:
        super().__init__(bundle, runner, point)
        if point.new_tokens is None:
            raise UnsupportedError(f"point {point.label}: generation needs new tokens")
        self.new_tokens = self._steps = point.new_tokens
        self.tokens_per_call = point.batch_size * point.new_tokens
        self.prompt_tokens_per_call = point.batch_size * (point.sequence_length or 0) or None
        self._batch_size = point.batch_size
        self._decode = bundle.graphs[DECODE]
        self._tokens_input = _tokens_input(self._decode)
        self._encoder = bundle.graphs.get(ENCODER)
        self._encoder_feeds = {} if self._encoder is None else self._place_inputs(self._encoder, arrays)
        self._feeds: dict[str, Placed] = {}
        """Other feeds of the decode graph than the tokens, constant over the steps of a call."""
        self._growing = {name: source for name, source in self._decode.feeds.items() if source in (MASK, POSITIONS)}
        self._length = 0
        self._states: Any = None

    def encode(self, mark: Mark) -> Mapping[str, Placed]:
        """Run the encoder, if there is one, and mark its end. Returns its outputs by source."""
        if self._encoder is None:
            return {}
        outputs = self._runner.call(ENCODER, self._encoder_feeds)
        mark(self._bundle.encode_phase)
        return _by_source(ENCODER, outputs)

    @abstractmethod
    def prefill(self, encoded: Mapping[str, Placed]) -> Placed:
        """Run the prompt. Returns logits of at least the last position, batch x positions x vocabulary."""

    def run(self, mark: Mark) -> Generated:
        """The output's logits stay in the runner's memory, batch x positions x vocabulary."""
        logits = self.prefill(self.encode(mark))
        prefill_logits = self._runner.keep(logits)
        steps: list[list[int]] = []
        while True:
            tokens = self._runner.next_tokens(logits)
            steps.append(self._runner.fetch(tokens)[:, 0].tolist())
            mark(TOKEN)
            if len(steps) == self._steps:
                break
            logits = self._step(tokens, 1)
        return Generated(tokens=tuple(zip(*steps, strict=True)), prefill_logits=prefill_logits, last_logits=logits)

    def problem(self, output: Generated) -> str | None:
        return (
            wrong_token_count(output.tokens, self.items_per_call, self._steps)
            or non_finite("prefill logits", self._last_position(output.prefill_logits))
            or non_finite("last logits", self._last_position(output.last_logits))
        )

    def arrays(self, output: Generated) -> dict[str, np.ndarray]:
        logits = as_float32(self._last_position(output.prefill_logits))
        return {"tokens": np.array(output.tokens, dtype=np.int64), "logits": logits}

    def _last_position(self, logits: Placed) -> np.ndarray:
        """The logits of the last position on the host, batch x vocabulary."""
        return self._runner.fetch(logits)[:, -1]

    def _begin(self, first: Mapping[str, Placed]) -> None:
        self._length = 0
        self._states = self._runner.begin(DECODE, self._batch_size, first)

    def _step(self, tokens: Placed, count: int) -> Placed:
        """Run `count` tokens of each sequence. Returns logits of at least the last token."""
        feeds = {**self._feeds, self._tokens_input: tokens}
        if self._growing:
            start, self._length = self._length, self._length + count
            positions = np.tile(np.arange(start, self._length, dtype=np.int64), (self._batch_size, 1))
            values = {MASK: np.ones((self._batch_size, self._length), dtype=np.int64), POSITIONS: positions}
            feeds |= {name: self._runner.place(values[source]) for name, source in self._growing.items()}
        outputs, self._states = self._runner.step(DECODE, feeds, self._states)
        return outputs[self._decode.result or ""]


class DecoderGeneration(Generation):
    """A decoder, with prompt and tokens through one graph, or the prompt through a graph "prefill"."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point, arrays: Arrays) -> None:
        super().__init__(bundle, runner, point, arrays)
        self._prefill = bundle.graphs.get(PREFILL)
        first = self._decode if self._prefill is None else self._prefill
        dtype = first.input(_tokens_input(first)).dtype
        prompt = as_dtype(arrays, bundle.prompt_input or "input_ids", dtype)
        self._prompt, self._prompt_length = runner.place(prompt), prompt.shape[1]

    def next_token_logits(self, text: np.ndarray) -> np.ndarray:
        if self._encoder is not None:
            raise UnsupportedError("the model does not continue a text alone")
        first = self._decode if self._prefill is None else self._prefill
        prompt = np.ascontiguousarray(text[None, : -self._steps], dtype=first.input(_tokens_input(first)).dtype)
        self._prompt, self._prompt_length = self._runner.place(prompt), prompt.shape[1]
        rows = [as_float32(self._last_position(self.prefill({}))).copy()]  # a copy, since runners reuse their buffers
        dtype = self._decode.input(self._tokens_input).dtype
        for token in text[-self._steps : -1]:
            logits = self._step(self._runner.place(np.full((1, 1), token, dtype=dtype)), 1)
            rows.append(as_float32(self._last_position(logits)).copy())
        return np.concatenate(rows)

    def prefill(self, encoded: Mapping[str, Placed]) -> Placed:
        if self._prefill is None:
            self._begin({})
            return self._step(self._prompt, self._prompt_length)
        feeds = {name: encoded[source] for name, source in self._prefill.feeds.items() if source in encoded}
        outputs = self._runner.call(PREFILL, {**feeds, _tokens_input(self._prefill): self._prompt})
        first = {state.input: outputs[state.first_from] for state in self._decode.states if state.first_from}
        self._begin(first)
        return outputs[self._prefill.result or ""]


class EncoderDecoderGeneration(Generation):
    """An encoder and a decoder: the phase encode, then as prefill the decoder's keys and values for the encoder's
    output and its first step, then one step per token."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point, arrays: Arrays) -> None:
        super().__init__(bundle, runner, point, arrays)
        self._cross = bundle.graphs[CROSS]
        prompt = start_tokens_of(bundle, arrays, point.batch_size)
        self._prompt = runner.place(prompt.astype(self._decode.input(self._tokens_input).dtype))
        self._prompt_length = prompt.shape[1]

    def prefill(self, encoded: Mapping[str, Placed]) -> Placed:
        feeds = {name: encoded[source] for name, source in self._cross.feeds.items()}
        sources = {**encoded, **_by_source(CROSS, self._runner.call(CROSS, feeds))}
        self._feeds = {name: sources[source] for name, source in self._decode.feeds.items() if source in sources}
        self._begin({})
        return self._step(self._prompt, self._prompt_length)


def start_tokens_of(bundle: Bundle, arrays: Arrays, batch_size: int) -> np.ndarray:
    """The first tokens of a decoder with an encoder: batch x tokens, int64."""
    start = np.tile(np.array(bundle.start_tokens, dtype=np.int64), (batch_size, 1))
    if bundle.prompt_input is None:
        return start
    prompt = arrays[bundle.prompt_input].astype(np.int64)  # a copy, so the family's array stays unchanged
    prompt[:, : start.shape[1]] = start
    return prompt


def _tokens_input(graph: Graph) -> str:
    return next(name for name, source in graph.feeds.items() if source == "tokens")


def _by_source(graph: str, outputs: Mapping[str, Placed]) -> dict[str, Placed]:
    return {f"{graph}.{name}": value for name, value in outputs.items()}


def result_outputs(graph: Graph) -> dict[str, str]:
    """The result outputs of a graph, by their names in the family's torch operation."""
    main = {} if graph.result is None else {graph.result_name or graph.result: graph.result}
    return {**main, **graph.more_results}


def denoising_steps(bundle: Bundle, point: Point) -> tuple[Step, ...]:
    """The steps of a call by the bundle's schedule."""
    schedule: Any = bundle.facts["schedule"]
    return steps_of(schedule["alphas"], schedule["last"], schedule["offset"], int(point.axes["steps"]))


def non_finite(name: str, array: np.ndarray) -> str | None:
    """None, or how much of an array is NaN or infinite."""
    finite = np.isfinite(array)
    return None if finite.all() else f"NaN or Inf in {name}: {array.size - int(finite.sum())} of {array.size} values"


def as_float32(array: np.ndarray) -> np.ndarray:
    """The array in float32, in which outputs are compared."""
    return np.asarray(array, dtype=np.float32)


def as_dtype(arrays: Arrays, name: str, dtype: str) -> np.ndarray:
    """One of the family's inputs in a graph's type. Raises BenchhouseError if the family does not make it."""
    if name not in arrays:
        raise BenchhouseError(f"the bundle needs input {name!r}, but the family makes {', '.join(arrays)}")
    return np.ascontiguousarray(arrays[name], dtype=dtype)
