"""A model in an inference engine: its options, the session and the timed call.

An engine has its own generation loop: it takes prompts and returns tokens. To be comparable with other runtimes, a
call does the same work (the same prompt ids, a fixed number of new tokens, greedy, no stop token) and is timed by
benchhouse's clock: a token's time is when it reaches this process. Times from the engine's own clock are stored
separately.

The options are declared once, for all engines. An engine declares those it has, and why it lacks the others.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarking.core.contracts import TOKEN, Mark, Operation, Option, Session, wrong_token_count
from benchmarking.core.errors import (
    OutOfMemoryError,
    UnsupportedError,
    UsageError,
    first_line,
    is_out_of_memory,
    memory_errors,
)
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.metrics import LATENCY_REQUEST, MS_PER_S, NS_PER_S, CustomMetric
from benchmarking.core.records import Cell, Json, Point, Precision, Readings, Scalar
from benchmarking.core.text import flag_of
from benchmarking.runtimes.support.engines.computed import why_not_length
from benchmarking.workloads.support.families import plugin_of

if TYPE_CHECKING:
    from benchmarking.workloads.support.processing import Prepared, Processing


OFF, ON = "off", "on"
_unwritten = partial(Option, is_filled_in=False)
"""An option whose default is not among the settings, so that older series go on."""

CONTEXT_DEPTH = _unwritten(
    "context_depth", "tokens in the engine's key-value cache before a call begins", default="0", changes_work=True
)
"""Processed outside the timed region. The prompt of a call follows them, so that time to first token is that of
sequence-length tokens at this depth."""
KV_CACHE_TYPE = _unwritten("kv_cache_type", "data type of the engine's key-value cache")
"""An engine replaces `values`, its default first."""
FLASH_ATTENTION = _unwritten("flash_attention", "flash attention in the engine", values=("auto", ON, OFF))
BATCH_THREADS = _unwritten("batch_threads", "threads for the engine's prefill", default="same as --num-threads")
DRAFT_MODEL = _unwritten(
    "draft_model",
    "draft model for speculative decoding: a name from the catalog, a folder or an engine's file",
    default="none",
    changes_work=True,
)
NGRAM_LOOKUP = _unwritten(
    "ngram_lookup",
    "length of n-grams looked up in the text so far to draft tokens for speculative decoding; 0: off",
    default="0",
    changes_work=True,
)
DRAFT_TOKENS = _unwritten(
    "draft_tokens", "maximum number of tokens drafted at once in speculative decoding", default="the engine's own"
)
PREFIX_CACHE = _unwritten(
    "prefix_cache", "reuse of cached keys and values from an earlier call's prompt", values=(OFF, ON), changes_work=True
)
LORA = _unwritten(
    "lora", "LoRA adapter in the engine's format, applied to every token", default="none", changes_work=True
)

GPU_LAYERS = _unwritten(
    "gpu_layers",
    "number of layers that the engine computes on the GPU, the output counted as one; the others stay on the CPU",
    default="all on a GPU",
)
SPLIT_MODE = _unwritten(
    "split_mode",
    "how an engine splits a model over several GPUs: by layers or by rows of the weights",
    values=("layer", "row"),
)
TENSOR_SPLIT = _unwritten(
    "tensor_split",
    "shares of a model on each of several GPUs, such as 3,1; the first GPU of --device is the main one",
    default="by free memory",
)

COMMON = (
    *(CONTEXT_DEPTH, KV_CACHE_TYPE, FLASH_ATTENTION, BATCH_THREADS, DRAFT_MODEL),
    *(NGRAM_LOOKUP, DRAFT_TOKENS, PREFIX_CACHE, LORA),
)
"""All options: an engine declares those it has, and gives a reason for each of the others."""
NUMBERS = {CONTEXT_DEPTH.name: 0, BATCH_THREADS.name: 1, NGRAM_LOOKUP.name: 0, DRAFT_TOKENS.name: 1, GPU_LAYERS.name: 0}
"""Integer options with their minimum."""
QUANTIZATION = _unwritten("quantization", "quantization method", default="the engine's default for the precision")
"""An engine replaces `values` by the names of its quantized types."""
ACTIVATIONS = "activations"
"""A setting without a flag, where it is known: the type to which an engine quantizes the activations of products with
quantized weights."""


def quantization(types: Mapping[str, Precision]) -> Option:
    """The option of an engine's quantized types; its first of a precision is that precision's default."""
    return replace(QUANTIZATION, values=tuple(types))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The settings of a cell on an engine, as values."""

    context_depth: int = 0
    kv_cache_type: str | None = None
    """None for the engine's default."""
    flash_attention: str = FLASH_ATTENTION.values[0]
    threads: int | None = None
    """None leaves the choice to the engine."""
    batch_threads: int | None = None
    draft_model: str | None = None
    ngram_lookup: int = 0
    draft_tokens: int | None = None
    has_prefix_cache: bool = False
    lora: Path | None = None
    quantization: str | None = None
    """The name of the quantized type; None for floating point."""
    activations: str | None = None
    """`ACTIVATIONS`; None if they stay in floating point, or the engine does not say."""
    gpu_layers: int | None = None
    """None for the engine's default: all on a GPU."""
    split_mode: str = SPLIT_MODE.values[0]
    tensor_split: tuple[float, ...] = ()

    @classmethod
    def of(cls, cell: Cell) -> EngineSettings:
        mode = cell.runtime_mode

        def text(option: Option) -> str | None:
            return None if (value := mode.get(option.name)) is None else str(value)

        def number(option: Option) -> int | None:
            return None if (value := mode.get(option.name)) is None else int(value)

        return cls(
            context_depth=number(CONTEXT_DEPTH) or 0,
            kv_cache_type=text(KV_CACHE_TYPE),
            flash_attention=text(FLASH_ATTENTION) or FLASH_ATTENTION.values[0],
            threads=cell.num_threads,
            batch_threads=number(BATCH_THREADS) or cell.num_threads,
            draft_model=text(DRAFT_MODEL),
            ngram_lookup=number(NGRAM_LOOKUP) or 0,
            draft_tokens=number(DRAFT_TOKENS),
            has_prefix_cache=text(PREFIX_CACHE) == ON,
            lora=None if (lora := text(LORA)) is None else Path(os.path.expanduser(lora)),
            quantization=text(QUANTIZATION),
            activations=None if (activations := mode.get(ACTIVATIONS)) is None else str(activations),
            gpu_layers=number(GPU_LAYERS),
            split_mode=text(SPLIT_MODE) or SPLIT_MODE.values[0],
            tensor_split=shares(text(TENSOR_SPLIT) or ""),
        )

    @property
    def is_speculative(self) -> bool:
        """Whether tokens are proposed and then verified."""
        return self.draft_model is not None or self.ngram_lookup > 0


def shares(given: str) -> tuple[float, ...]:
    """The numbers in a value of --tensor-split. Raises UsageError."""
    try:
        found = tuple(float(word) for word in given.split(",")) if given else ()
    except ValueError:
        found = (-1.0,)
    if any(not 0 <= share < float("inf") for share in found) or (found and not sum(found)):
        raise UsageError(f"--tensor-split {given}: expected one share for each GPU, such as 3,1")
    return found


def checked_settings(options: tuple[Option, ...], mode: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The settings with numbers parsed and defaults removed, so that naming a default does not start another series.
    Raises UsageError for invalid values and for settings that exclude each other."""
    settings: dict[str, Scalar] = {}
    defaults = {option.name: option.values[0] for option in options if option.values and not option.is_filled_in}
    for name, value in mode.items():
        chosen = value
        if name in NUMBERS:
            flag = flag_of(name)
            try:
                chosen = int(str(value))
            except ValueError as error:
                raise UsageError(f"{flag} takes a whole number: got {value!r}") from error
            if chosen < NUMBERS[name]:
                raise UsageError(f"{flag} takes a whole number from {NUMBERS[name]}: got {value}")
        is_off = name in (CONTEXT_DEPTH.name, NGRAM_LOOKUP.name) and chosen == 0
        if not is_off and (name == QUANTIZATION.name or defaults.get(name) != chosen):
            settings[name] = chosen
    shares(str(settings.get(TENSOR_SPLIT.name) or ""))
    if (lora := settings.get(LORA.name)) is not None and not Path(os.path.expanduser(str(lora))).exists():
        raise UsageError(f"{LORA.flag} {lora}: no such file or folder")
    if DRAFT_MODEL.name in settings and NGRAM_LOOKUP.name in settings:
        raise UsageError("--draft-model and --ngram-lookup exclude each other: give only one of them")
    if DRAFT_TOKENS.name in settings and not {DRAFT_MODEL.name, NGRAM_LOOKUP.name} & set(settings):
        raise UsageError("--draft-tokens needs --draft-model or --ngram-lookup: add one of them")
    return settings


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
        while self._steps < self._limit and all(len(token) > self._steps for token in self.tokens):
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

    def __init__(self, request: EngineRequest, point: Point, prepared: Prepared, settings: EngineSettings) -> None:
        """`prepared` are the inputs made by the model's tokenizer."""
        new_tokens = point.new_tokens or 0
        self.items_per_call = point.batch_size
        self.new_tokens: int = new_tokens
        self.tokens_per_call = point.batch_size * new_tokens
        self.prompt_tokens_per_call = point.batch_size * (point.sequence_length or 0) or None
        self._request = request
        self._prepared = prepared
        self._settings = settings
        self._reports: list[EngineReport] = []

    def reset(self) -> None:
        with memory_errors("the engine prepares a call"):
            self._request.reset()

    def run(self, mark: Mark) -> tuple[tuple[int, ...], ...]:
        arrived = Arrivals(self.items_per_call, self.new_tokens, mark)
        try:
            self._request.generate(arrived)
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise OutOfMemoryError(f"out of memory in the engine: {first_line(error)}") from error
            raise
        return tuple(tuple(row[: self.new_tokens]) for row in arrived.tokens)

    def problem(self, output: tuple[tuple[int, ...], ...]) -> str | None:
        return wrong_token_count(output, self.items_per_call, self.new_tokens)

    def readings(self, output: Any) -> Readings:
        return self._prepared.readings()

    def next_token_logits(self, text: np.ndarray) -> np.ndarray:
        return self._request.next_token_logits(text, self.new_tokens)

    def arrays(self, output: tuple[tuple[int, ...], ...]) -> Mapping[str, Any]:
        """The tokens if they are comparable: the reference has no context, and compares ids."""
        if self._settings.context_depth or self._settings.lora or not self._request.has_token_ids:
            return {}
        return {"tokens": np.array(output, dtype=np.int64)}

    def runtime_times_ns(self) -> Mapping[str, int]:
        report = self._request.report()
        if self.new_tokens < 2:  # engines report 0, -1 or the time of something else where no token follows the first
            report = replace(report, per_token_s=None)
        self._reports.append(report)
        times = {ENGINE_FIRST: report.first_s, ENGINE_PER_TOKEN: report.per_token_s, LATENCY_REQUEST: report.total_s}
        return {name: round(seconds * NS_PER_S) for name, seconds in times.items() if seconds is not None}

    def metrics(self) -> Sequence[CustomMetric]:
        """The engine's own times, the acceptance of proposed tokens, and the reused share of the prompts."""
        found = [
            CustomMetric(name=f"{name}_ms", value=MS_PER_S * median(values), unit="ms")
            for name, values in (
                (ENGINE_FIRST, [report.first_s for report in self._reports if report.first_s is not None]),
                (ENGINE_PER_TOKEN, [report.per_token_s for report in self._reports if report.per_token_s is not None]),
            )
            if values
        ]
        drafted = sum(report.drafted_tokens for report in self._reports)
        if self._settings.is_speculative and drafted:
            accepted = sum(report.accepted_tokens for report in self._reports)
            found.append(CustomMetric(name="draft_acceptance_rate", value=accepted / drafted, better="higher"))
            if passes := sum(report.verifications for report in self._reports if report.verifications is not None):
                length = 1 + accepted / passes
                found.append(CustomMetric(name="mean_accepted_length", value=length, unit="tokens", better="higher"))
        shares = [report.reused_tokens / report.prompt_tokens for report in self._reports if report.prompt_tokens]
        if self._settings.has_prefix_cache and shares:  # the median is not lowered by the first call, which fills it
            found.append(CustomMetric(name="prefix_cache_hit_share", value=median(shares), better="higher"))
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
        prepared = self._processing.checked_inputs(workload, point)
        limit, depth = workload.max_sequence_length, self._settings.context_depth
        tokens = depth + (point.sequence_length or 0) + (point.new_tokens or 0)
        if depth and limit is not None and tokens > limit:
            raise UnsupportedError(
                f"--context-depth {depth} and {point.label} need {tokens} tokens: {workload.model_id} supports at most "
                f"{limit}"
            )
        if (why_not := why_not_length(self._cell.runtime, workload, tokens)) is not None:
            raise UnsupportedError(why_not)
        context: np.ndarray | None = None
        if depth:  # as many tokens as the depth, different from the prompt's
            before = plugin_of(workload).inputs(workload, replace(point, sequence_length=depth), workload.seed + 1)
            context = before["input_ids"]
        request = self._model.request(prepared.arrays["input_ids"], point.new_tokens or 0, context)
        return EngineOperation(request, point, prepared, self._settings)

    def close(self) -> None:
        self._model.close()
