"""Greedy generation over a bundle's graphs, as the families' torch operations do it.

Greedy tokens are chosen on the host. What is fetched for it is small: decoders are exported so that their logits are
those of the last position alone wherever the model can do that (batch x 1 x vocabulary, 200 kB a sequence for a
vocabulary of 50 000), and the states stay where the runtime keeps them.

What calls of bundles share, whatever is called: counts, readings, and the family's inputs in a graph's types.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarking.core.contracts import TOKEN, GraphRunner, Mark, Operation, Placed
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import NOT_SUPPORTED, Json, Point, Readings
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.workloads.support.generation import Generated

Arrays = Mapping[str, np.ndarray]

"""The inputs of a call by the family's names for them."""


class GraphOperation(Operation):
    """What the calls of every kind of bundle share. Nothing outlives one: each begins with fresh states, whose cost is
    the call's."""

    def __init__(self, bundle: Bundle, runner: GraphRunner, point: Point) -> None:
        self.items_per_call = point.batch_size
        self.tell: Callable[[], Readings] = Readings
        """What else there is to know of a call: how long its inputs take to make, seconds of audio, ..."""
        self._bundle = bundle
        self._runner = runner

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
        return self._runner.verified()

    def _placed(self, graph: Graph, arrays: Arrays) -> dict[str, Placed]:
        """The feeds that the family's inputs settle, in the graph's types and where the runner wants them."""
        made = {name: _made(arrays, source, graph.input(name).dtype) for name, source in graph.feeds.items()}
        return {name: self._runner.place(array) for name, array in made.items() if array is not None}


def non_finite(name: str, array: np.ndarray) -> str | None:
    """None, or how much of an array is NaN or infinite."""
    finite = np.isfinite(array)
    return None if finite.all() else f"NaN or Inf in {name}: {array.size - int(finite.sum())} of {array.size} values"


def as_float32(array: np.ndarray) -> np.ndarray:
    """The array in float32, as outputs are compared."""
    return np.asarray(array, dtype=np.float32)


def as_dtype(arrays: Arrays, name: str, dtype: str) -> np.ndarray:
    """One of the family's inputs in a graph's type. Raises BenchhouseError when it is not there."""
    if name not in arrays:
        raise BenchhouseError(
            f"the bundle takes an input {name!r}, which the family does not make: {', '.join(arrays)}"
        )
    return np.ascontiguousarray(arrays[name], dtype=dtype)


def _made(arrays: Arrays, source: str, dtype: str) -> np.ndarray | None:
    """What the family's inputs make of a feed's source; None where it is something else."""
    kind, _, name = source.partition(".")
    if kind == "inputs":
        return as_dtype(arrays, name, dtype)
    if kind in ("ones", "zeros"):
        shape = as_dtype(arrays, name, dtype).shape
        return np.ones(shape, dtype=dtype) if kind == "ones" else np.zeros(shape, dtype=dtype)
    return None


ENCODER, CROSS, PREFILL, DECODE = "encoder", "cross", "prefill", "decode"

"""The graphs of bundles that generate."""

MASK, POSITIONS = "mask", "positions"

"""Feeds that grow with what was taken in."""


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
        self._growing = {name: source for name, source in self._decode.feeds.items() if source in (MASK, POSITIONS)}
        self._length = 0
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
            logits = self._step(self._runner.place(tokens[:, np.newaxis]), 1)
        return Generated(tokens=tuple(zip(*steps, strict=True)), prefill_logits=prefill_logits, last_logits=logits)

    def problem(self, output: Generated) -> str | None:
        lengths = {len(row) for row in output.tokens}
        if len(output.tokens) != self.items_per_call or lengths != {self._steps}:
            return f"token count: {len(output.tokens)} rows of {sorted(lengths)}, asked {self._steps} each"
        return non_finite("prefill logits", output.prefill_logits) or non_finite("last logits", output.last_logits)

    def arrays(self, output: Generated) -> dict[str, np.ndarray]:
        return {"tokens": np.array(output.tokens, dtype=np.int64), "logits": as_float32(output.prefill_logits)}

    def _begin(self, first: Mapping[str, Placed]) -> None:
        self._length = 0
        self._states = self._runner.begin(DECODE, self._batch_size, first)

    def _step(self, tokens: Placed, count: int) -> np.ndarray:
        """Take in tokens, as many for each sequence; the logits of the last."""
        feeds = {**self._feeds, self._tokens_input: tokens}
        if self._growing:
            feeds |= self._grown(count)
        outputs, self._states = self._runner.step(DECODE, feeds, self._states)
        return self._last_logits(self._decode, outputs)

    def _grown(self, count: int) -> dict[str, Placed]:
        """The feeds that count tokens, for graphs that do not count them along their states."""
        before, self._length = self._length, self._length + count
        positions = np.tile(np.arange(before, self._length, dtype=np.int64), (self._batch_size, 1))
        values = {MASK: np.ones((self._batch_size, self._length), dtype=np.int64), POSITIONS: positions}
        return {name: self._runner.place(values[source]) for name, source in self._growing.items()}

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
        prompt = as_dtype(arrays, bundle.prompt_input or "input_ids", dtype)
        self._prompt, self._prompt_length = runner.place(prompt), prompt.shape[1]

    def encode(self, mark: Mark) -> Mapping[str, Placed]:
        if self._encoder is None:
            return {}
        outputs = self._runner.call(ENCODER, self._encoder_feeds)
        mark(self._bundle.encode_phase)
        return _by_source(ENCODER, outputs)

    def prefill(self, encoded: Mapping[str, Placed]) -> np.ndarray:
        if self._prefill is None:
            self._begin({})
            return self._step(self._prompt, self._prompt_length)
        feeds = {name: encoded[source] for name, source in self._prefill.feeds.items() if source in encoded}
        outputs = self._runner.call(PREFILL, {**feeds, _tokens_input(self._prefill): self._prompt})
        first = {state.input: outputs[state.first_from] for state in self._decode.states if state.first_from}
        self._begin(first)
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
        self._prompt_length = prompt.shape[1]

    def encode(self, mark: Mark) -> Mapping[str, Placed]:
        outputs = self._runner.call(ENCODER, self._encoder_feeds)
        mark(self._bundle.encode_phase)
        return _by_source(ENCODER, outputs)

    def prefill(self, encoded: Mapping[str, Placed]) -> np.ndarray:
        feeds = {name: encoded[source] for name, source in self._cross.feeds.items()}
        seen = {**encoded, **_by_source(CROSS, self._runner.call(CROSS, feeds))}
        self._feeds = {name: seen[source] for name, source in self._decode.feeds.items() if source in seen}
        self._begin({})
        return self._step(self._prompt, self._prompt_length)


def start_of(bundle: Bundle, arrays: Arrays, batch_size: int) -> np.ndarray:
    """What an encoder-decoder's decoder takes in first: batch x tokens, int64."""
    start = np.tile(np.array(bundle.start_tokens, dtype=np.int64), (batch_size, 1))
    if bundle.prompt_input is None:
        return start
    prompt = arrays[bundle.prompt_input].astype(np.int64)  # a copy: the family's array stays as it is
    prompt[:, : start.shape[1]] = start
    return prompt


def _tokens_input(graph: Graph) -> str:
    return next(name for name, source in graph.feeds.items() if source == "tokens")


def _by_source(graph: str, outputs: Mapping[str, Placed]) -> dict[str, Placed]:
    return {f"{graph}.{name}": value for name, value in outputs.items()}
