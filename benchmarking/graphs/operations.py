"""Calls made of a bundle's graphs, on any runtime on graphs: the same work, marks, counts and array names as the torch
operations of the families have, without torch.

Greedy tokens are chosen on the host. What is fetched for it is small: decoders are exported so that their logits are
those of the last position alone wherever the model can do that (batch x 1 x vocabulary, 200 kB a sequence for a
vocabulary of 50 000), and the states stay where the runtime keeps them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarking.errors import BenchhouseError, UnsupportedError
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.graphs.runner import GraphRunner, Placed
from benchmarking.records import NOT_SUPPORTED, Json, Point, Readings, Workload
from benchmarking.runtimes import TOKEN, Mark, Verifies
from benchmarking.workloads._generation import Generated

if TYPE_CHECKING:
    from benchmarking.workloads._denoising import Step

Arrays = Mapping[str, np.ndarray]
"""The inputs of a call by the family's names for them."""

MODEL, ENCODER, CROSS, PREFILL, DECODE = "model", "encoder", "cross", "prefill", "decode"
"""The graphs of bundles."""


class GraphOperation(ABC):
    """What the calls of every kind of bundle share."""

    tokens_per_call: int | None = None
    prompt_tokens_per_call: int | None = None
    new_tokens: int | None = None

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point) -> None:
        self.items_per_call = point.batch_size
        self.tell: Callable[[], Readings] = Readings
        """What else there is to know of a call: how long its inputs take to make, seconds of audio, ..."""
        self._bundle = bundle
        self._runner = runner

    def reset(self) -> None:  # noqa: B027 - there is nothing to do for any kind of bundle
        """Nothing outlives a call: each begins with fresh states, whose cost is the call's."""

    @abstractmethod
    def run(self, mark: Mark) -> Any:
        """The timed call."""

    @abstractmethod
    def arrays(self, output: Any) -> dict[str, np.ndarray]:
        """The output on the host by name, as the family's torch operation names it: float32, tokens int64."""

    def problem(self, output: Any) -> str | None:
        """None, or how much of an output is NaN or infinite."""
        found = (non_finite(name, array) for name, array in self.arrays(output).items())
        return next((problem for problem in found if problem is not None), None)

    def readings(self, output: Any) -> Readings:
        return self.tell()

    def count(self) -> Readings:
        why = f"{NOT_SUPPORTED}: operators are counted in torch's models, not in graphs"
        return Readings(missing=dict.fromkeys(("flops", "bytes_accessed"), why))

    def verified(self) -> Mapping[str, Json]:
        """What the runner read back of its calls."""
        return self._runner.verified() if isinstance(self._runner, Verifies) else {}

    def _placed(self, graph: Graph, arrays: Arrays) -> dict[str, Placed]:
        """The feeds of a graph that are inputs of the family, in the graph's types and where the runner wants them."""
        feeds = {name: source.removeprefix("inputs.") for name, source in graph.feeds.items() if "inputs." in source}
        return {
            name: self._runner.place(_as(arrays, source, graph.input(name).dtype)) for name, source in feeds.items()
        }


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


class Generation(GraphOperation):
    """Greedy generation: the loop that decoders and encoder-decoders share."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point) -> None:
        super().__init__(bundle, runner, point)
        if point.new_tokens is None:
            raise UnsupportedError(f"point {point.label}: generation needs new tokens")
        self.new_tokens = self._steps = point.new_tokens
        self.tokens_per_call = point.batch_size * point.new_tokens
        self.prompt_tokens_per_call = point.batch_size * (point.sequence_length or 0) or None
        self._batch_size = point.batch_size
        self._decode = bundle.graphs[DECODE]
        self._tokens_input = _tokens_input(self._decode)
        self._feeds: dict[str, Placed] = {}
        """What the decode graph is fed with besides the tokens, the same in every step of a call."""
        self._states: Any = None

    @abstractmethod
    def encode(self, mark: Mark) -> Mapping[str, Placed]:
        """What comes before the prompt, each phase of it marked at its end: the feeds that come of it by source."""

    @abstractmethod
    def prefill(self, encoded: Mapping[str, Placed]) -> np.ndarray:
        """Take in the prompt; the logits of its last position, batch x vocabulary."""

    def run(self, mark: Mark) -> Generated:
        logits = self.prefill(self.encode(mark))
        prefill_logits = logits.copy()  # a runner may hand out its buffer, which the next step writes to
        steps: list[list[int]] = []
        while True:
            tokens = logits.argmax(axis=-1)
            steps.append(tokens.tolist())
            mark(TOKEN)
            if len(steps) == self._steps:
                break
            logits = self._step(self._runner.place(tokens[:, np.newaxis]))
        return Generated(tokens=tuple(zip(*steps, strict=True)), prefill_logits=prefill_logits, last_logits=logits)

    def problem(self, output: Generated) -> str | None:
        lengths = {len(row) for row in output.tokens}
        if len(output.tokens) != self.items_per_call or lengths != {self._steps}:
            return f"token count: {len(output.tokens)} rows of {sorted(lengths)}, asked {self._steps} each"
        return non_finite("prefill logits", output.prefill_logits) or non_finite("last logits", output.last_logits)

    def arrays(self, output: Generated) -> dict[str, np.ndarray]:
        return {"tokens": np.array(output.tokens, dtype=np.int64), "logits": as_float32(output.prefill_logits)}

    def _step(self, tokens: Placed) -> np.ndarray:
        """Take in tokens; the logits of the last."""
        feeds = {**self._feeds, self._tokens_input: tokens}
        outputs, self._states = self._runner.step(DECODE, feeds, self._states)
        return self._last_logits(self._decode, outputs)

    def _last_logits(self, graph: Graph, outputs: Mapping[str, Placed]) -> np.ndarray:
        return self._runner.fetch(outputs[graph.result or ""])[:, -1]


class DecoderGeneration(Generation):
    """A decoder-only model's: prompt and tokens through one graph, or the prompt through one of its own."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point, arrays: Arrays) -> None:
        super().__init__(bundle, runner, point)
        self._encoder = bundle.graphs.get(ENCODER)
        self._encoder_feeds = {} if self._encoder is None else self._placed(self._encoder, arrays)
        self._prefill = bundle.graphs.get(PREFILL)
        first = self._decode if self._prefill is None else self._prefill
        dtype = first.input(_tokens_input(first)).dtype
        self._prompt = runner.place(_as(arrays, bundle.prompt_input or "input_ids", dtype))

    def encode(self, mark: Mark) -> Mapping[str, Placed]:
        if self._encoder is None:
            return {}
        outputs = self._runner.call(ENCODER, self._encoder_feeds)
        mark(self._bundle.encode_phase)
        return _by_source(ENCODER, outputs)

    def prefill(self, encoded: Mapping[str, Placed]) -> np.ndarray:
        if self._prefill is None:
            self._states = self._runner.begin(DECODE, self._batch_size, {})
            return self._step(self._prompt)
        feeds = {name: encoded[source] for name, source in self._prefill.feeds.items() if source in encoded}
        outputs = self._runner.call(PREFILL, {**feeds, _tokens_input(self._prefill): self._prompt})
        first = {state.input: outputs[state.first_from] for state in self._decode.states if state.first_from}
        self._states = self._runner.begin(DECODE, self._batch_size, first)
        return self._last_logits(self._prefill, outputs)


class EncoderDecoderGeneration(Generation):
    """An encoder-decoder model's: the phase encode, then as prefill what the decoder keeps of the encoder's output and
    its first step, then a step a token."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point, arrays: Arrays) -> None:
        super().__init__(bundle, runner, point)
        self._encoder, self._cross = bundle.graphs[ENCODER], bundle.graphs[CROSS]
        self._encoder_feeds = self._placed(self._encoder, arrays)
        prompt = start_of(bundle, arrays, point.batch_size)
        self._prompt = runner.place(prompt.astype(self._decode.input(self._tokens_input).dtype))

    def encode(self, mark: Mark) -> Mapping[str, Placed]:
        outputs = self._runner.call(ENCODER, self._encoder_feeds)
        mark(self._bundle.encode_phase)
        return _by_source(ENCODER, outputs)

    def prefill(self, encoded: Mapping[str, Placed]) -> np.ndarray:
        feeds = {name: encoded[source] for name, source in self._cross.feeds.items()}
        seen = {**encoded, **_by_source(CROSS, self._runner.call(CROSS, feeds))}
        self._feeds = {name: seen[source] for name, source in self._decode.feeds.items() if source in seen}
        self._states = self._runner.begin(DECODE, self._batch_size, {})
        return self._step(self._prompt)


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
        self._noise = _as(arrays, str(bundle.facts["latents"]), self._graph.input(self._latents).dtype)
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


def start_of(bundle: Bundle, arrays: Arrays, batch_size: int) -> np.ndarray:
    """What an encoder-decoder's decoder takes in first: batch x tokens, int64."""
    start = np.tile(np.array(bundle.start_tokens, dtype=np.int64), (batch_size, 1))
    if bundle.prompt_input is None:
        return start
    prompt = arrays[bundle.prompt_input].astype(np.int64)  # a copy: the family's array stays as it is
    prompt[:, : start.shape[1]] = start
    return prompt


def non_finite(name: str, array: np.ndarray) -> str | None:
    """None, or how much of an array is NaN or infinite."""
    finite = np.isfinite(array)
    return None if finite.all() else f"NaN or Inf in {name}: {array.size - int(finite.sum())} of {array.size} values"


def as_float32(array: np.ndarray) -> np.ndarray:
    """The array in float32, as outputs are compared."""
    return np.asarray(array, dtype=np.float32)


def _as(arrays: Arrays, name: str, dtype: str) -> np.ndarray:
    if name not in arrays:
        raise BenchhouseError(
            f"the bundle takes an input {name!r}, which the family does not make: {', '.join(arrays)}"
        )
    return np.ascontiguousarray(arrays[name], dtype=dtype)


def _tokens_input(graph: Graph) -> str:
    return next(name for name, source in graph.feeds.items() if source == "tokens")


def _by_source(graph: str, outputs: Mapping[str, Placed]) -> dict[str, Placed]:
    return {f"{graph}.{name}": value for name, value in outputs.items()}
