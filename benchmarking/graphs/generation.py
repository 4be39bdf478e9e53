"""Greedy generation over a bundle's graphs, as the families' torch operations do it.

Greedy tokens are chosen on the host. What is fetched for it is small: decoders are exported so that their logits are
those of the last position alone wherever the model can do that (batch x 1 x vocabulary, 200 kB a sequence for a
vocabulary of 50 000), and the states stay where the runtime keeps them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarking.errors import UnsupportedError
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.graphs.calls import Arrays, GraphOperation, as_dtype, as_float32, non_finite
from benchmarking.graphs.runner import GraphRunner, Placed
from benchmarking.records import Point
from benchmarking.runtimes import TOKEN, Mark
from benchmarking.workloads._generation import Generated

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
