"""A model in an inference engine: the session and the timed call.

An engine has its own generation loop: it takes prompts and returns tokens. To be comparable with other runtimes, a
call does the same work (the same prompt ids, a fixed number of new tokens, greedy, no stop token) and is timed by
benchhouse's clock: a token's time is when it reaches this process. Times from the engine's own clock are stored
separately.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarking.core.contracts import TOKEN, Mark, Operation, Session
from benchmarking.core.errors import OutOfMemoryError, UnsupportedError, UsageError, first_line, is_out_of_memory
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import NS_PER_MS, CustomMetric
from benchmarking.core.records import NOT_SUPPORTED, Cell, Json, Point, Readings
from benchmarking.measure.timing import LATENCY_REQUEST
from benchmarking.runtimes.support.engines.engine_options import EngineSettings
from benchmarking.workloads.support.families import plugin_of

if TYPE_CHECKING:
    import numpy as np

    from benchmarking.workloads.support.processing import Processing


UNKNOWN_TOKEN = -1
"""The id of a token of which the engine returned only the text."""
ENGINE_FIRST, ENGINE_PER_TOKEN = "engine_time_to_first_token", "engine_time_per_output_token"
"""Raw metrics by the engine's own clock; the medians are metrics named NAME_ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """The engine's report of its last call; None or 0 for values it does not report."""

    first_s: float | None = None
    """Time to the first token."""
    per_token_s: float | None = None
    """Time per token after the first."""
    total_s: float | None = None
    prompt_tokens: int = 0
    reused_tokens: int = 0
    """Prompt tokens taken from the prefix cache."""
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    verifications: int | None = None
    """Forward passes that verified proposed tokens; None if the engine does not count them."""


class Arrivals:
    """The tokens of a call as they reach the host. A step is marked once every row has its token.

    Speculative decoding yields several tokens at once. Each is marked, so the times between tokens are as a reader of
    the stream would see them.
    """

    def __init__(self, rows: int, new_tokens: int, mark: Mark) -> None:
        self.tokens: list[list[int]] = [[] for _ in range(rows)]
        self._steps = 0
        self._limit = new_tokens
        self._mark = mark

    def __call__(self, row: int, tokens: Sequence[int]) -> None:
        self.tokens[row] += tokens
        while self._steps < self._limit and all(len(each) > self._steps for each in self.tokens):
            self._steps += 1
            self._mark(TOKEN)


class EngineRequest(ABC):
    """The calls of one point in an engine."""

    has_token_ids: bool = True
    """Whether the engine returns token ids rather than only text."""

    def reset(self) -> None:  # noqa: B027 - an engine without a cache between calls has nothing to do
        """Prepare the cache for a call: empty, or holding the context. Called outside the timed region. With a prefix
        cache, entries of earlier calls stay."""

    @abstractmethod
    def generate(self, arrived: Arrivals) -> None:
        """The timed call: greedy, until every row has its new tokens. Calls `arrived(row, tokens)` as they arrive."""

    @abstractmethod
    def report(self) -> EngineReport:
        """The engine's report of the last call. Called outside the timed region."""

    def next_token_logits(self, text: np.ndarray, scored: int) -> np.ndarray:
        """As `Operation.next_token_logits`, of the text's last `scored` tokens."""
        raise UnsupportedError("the engine returns tokens, not the probabilities of all of them")

    def verified(self) -> Mapping[str, Json]:
        """Facts read back from the engine after the calls."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Release the resources of the point's calls."""


class EngineModel(ABC):
    """A model loaded by an engine."""

    facts: Mapping[str, Json]
    """Facts read back from the engine: `engine_system` (instruction sets, threads, ...), weight and cache types, ...
    `weight_dtypes` is stored in a column."""
    batches_calls: bool = False
    """As in `Session.batches_calls`."""
    weights_bytes: int | None = None
    parameter_count: int | None = None

    @abstractmethod
    def request(self, prompts: np.ndarray, new_tokens: int, context: np.ndarray | None) -> EngineRequest:
        """The calls for these prompts (batch x length, int64) at this context (batch x depth; None at depth 0).

        Raises UnsupportedError with the reason for what the engine cannot do.
        """

    def close(self) -> None:  # noqa: B027
        """Release the model."""


class EngineOperation(Operation):
    """A point's call in an engine."""

    has_runtime_clock = True

    def __init__(self, request: EngineRequest, point: Point, prepared: Any, settings: EngineSettings) -> None:
        """`prepared` are the inputs made by the model's tokenizer."""
        new_tokens = point.new_tokens or 0
        self.items_per_call = point.batch_size
        self.new_tokens = new_tokens
        self.tokens_per_call = point.batch_size * new_tokens
        self.prompt_tokens_per_call = point.batch_size * (point.sequence_length or 0) or None
        self._request = request
        self._prepared = prepared
        self._settings = settings
        self._new_tokens = new_tokens
        self._reports: list[EngineReport] = []

    def reset(self) -> None:
        try:
            self._request.reset()
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise OutOfMemoryError(f"out of memory in the engine: {first_line(error)}") from error
            raise

    def run(self, mark: Mark) -> tuple[tuple[int, ...], ...]:
        arrived = Arrivals(self.items_per_call, self._new_tokens, mark)
        try:
            self._request.generate(arrived)
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise OutOfMemoryError(f"out of memory in the engine: {first_line(error)}") from error
            raise
        return tuple(tuple(row[: self._new_tokens]) for row in arrived.tokens)

    def problem(self, output: tuple[tuple[int, ...], ...]) -> str | None:
        lengths = sorted({len(row) for row in output})
        if len(output) != self.items_per_call or lengths != [self._new_tokens]:
            return f"token count: {len(output)} rows of {lengths}, expected {self._new_tokens} each"
        return None

    def readings(self, output: Any) -> Readings:
        readings: Readings = self._prepared.readings()
        return readings

    def next_token_logits(self, text: np.ndarray) -> np.ndarray:
        return self._request.next_token_logits(text, self._new_tokens)

    def count(self) -> Readings:
        why = f"{NOT_SUPPORTED}: operators are counted in torch models only"
        return Readings(missing=dict.fromkeys(("flops", "bytes_accessed"), why))

    def arrays(self, output: tuple[tuple[int, ...], ...]) -> Mapping[str, Any]:
        """The tokens if they are comparable: the reference has no context, and compares ids."""
        import numpy as np

        if self._settings.context_depth or self._settings.lora or not self._request.has_token_ids:
            return {}
        return {"tokens": np.array(output, dtype=np.int64)}

    def runtime_times_ns(self) -> Mapping[str, int]:
        report = self._request.report()
        self._reports.append(report)
        times = {ENGINE_FIRST: report.first_s, ENGINE_PER_TOKEN: report.per_token_s, LATENCY_REQUEST: report.total_s}
        return {name: round(seconds * 1e9) for name, seconds in times.items() if seconds is not None}

    def metrics(self) -> Sequence[CustomMetric]:
        """The engine's own times, the acceptance of proposed tokens, and the reused share of the prompts."""
        times = (
            CustomMetric(name=f"{name}_ms", value=1e9 / NS_PER_MS * median(values), unit="ms")
            for name, values in (
                (ENGINE_FIRST, [one.first_s for one in self._reports if one.first_s is not None]),
                (ENGINE_PER_TOKEN, [one.per_token_s for one in self._reports if one.per_token_s is not None]),
            )
            if values
        )
        found, drafted = [*times], sum(one.drafted_tokens for one in self._reports)
        if self._settings.is_speculative and drafted:
            accepted = sum(one.accepted_tokens for one in self._reports)
            found.append(CustomMetric(name="draft_acceptance_rate", value=accepted / drafted, better="higher"))
            if passes := sum(one.verifications for one in self._reports if one.verifications is not None):
                length = CustomMetric(name="mean_accepted_length", value=1 + accepted / passes, unit="tokens")
                found.append(replace(length, better="higher"))
        prompts = sum(one.prompt_tokens for one in self._reports)
        if self._settings.has_prefix_cache and prompts:
            share = sum(one.reused_tokens for one in self._reports) / prompts
            found.append(CustomMetric(name="prefix_cache_hit_share", value=share, better="higher"))
        return found

    def verified(self) -> Mapping[str, Json]:
        return self._request.verified()

    def close(self) -> None:
        self._request.close()


class EngineSession(Session):
    """A workload's model in an engine."""

    def __init__(self, cell: Cell, model: EngineModel, processing: Processing) -> None:
        self._cell = cell
        self._model = model
        self._processing = processing
        self._settings = EngineSettings.of(cell)
        self.batches_calls = model.batches_calls
        self.weights_bytes: int | None = model.weights_bytes
        self.parameter_count: int | None = model.parameter_count or cell.workload.parameter_count
        bits: dict[str, Json] = {}
        if self.weights_bytes is not None and self.parameter_count:  # the size of the weights with their scales
            bits["bits_per_weight"] = round(8 * self.weights_bytes / self.parameter_count, 3)
        self.verified: Mapping[str, Json] = {**model.facts, **bits, **processing.verified}

    def operation(self, point: Point) -> Operation:
        workload = self._cell.workload
        family = plugin_of(workload)
        if (problem := family.check(workload, point)) is not None:
            raise UsageError(problem)
        limit, depth = workload.max_sequence_length, self._settings.context_depth
        tokens = depth + (point.sequence_length or 0) + (point.new_tokens or 0)
        if depth and limit is not None and tokens > limit:
            raise UnsupportedError(
                f"--context-depth {depth} and {point.label} need {tokens} tokens: {workload.model_id} supports at most "
                f"{limit}"
            )
        prepared = self._processing.inputs(family, workload, point)
        context: np.ndarray | None = None
        if depth:  # as many tokens as the depth, different from the prompt's
            context = family.inputs(workload, replace(point, sequence_length=depth), workload.seed + 1)["input_ids"]
        request = self._model.request(prepared.arrays["input_ids"], point.new_tokens or 0, context)
        return EngineOperation(request, point, prepared, self._settings)

    def close(self) -> None:
        self._model.close()
