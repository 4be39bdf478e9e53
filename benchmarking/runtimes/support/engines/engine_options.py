"""The options of inference engines, declared once. An engine declares those it has, and why it lacks the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarking.core.contracts import Option
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Cell, Precision, Scalar

OFF, ON = "off", "on"

CONTEXT_DEPTH = Option(
    name="context_depth",
    help="tokens in the engine's key-value cache before a call begins",
    default="0",
    is_filled_in=False,
)
"""Processed outside the timed region. The prompt of a call follows them, so that time to first token is that of
sequence-length tokens at this depth."""
KV_CACHE_TYPE = Option(name="kv_cache_type", help="data type of the engine's key-value cache", is_filled_in=False)
"""An engine replaces `values`, its default first."""
FLASH_ATTENTION = Option(
    name="flash_attention",
    help="flash attention in the engine",
    values=("auto", ON, OFF),
    is_filled_in=False,
)
BATCH_THREADS = Option(
    name="batch_threads",
    help="threads for the engine's prefill",
    default="same as --num-threads",
    is_filled_in=False,
)
DRAFT_MODEL = Option(
    name="draft_model",
    help="draft model for speculative decoding: a name from the catalog, a folder or an engine's file",
    default="none",
    is_filled_in=False,
)
NGRAM_LOOKUP = Option(
    name="ngram_lookup",
    help="length of n-grams looked up in the text so far to draft tokens for speculative decoding; 0: off",
    default="0",
    is_filled_in=False,
)
DRAFT_TOKENS = Option(
    name="draft_tokens",
    help="maximum number of tokens drafted at once in speculative decoding",
    default="the engine's own",
    is_filled_in=False,
)
PREFIX_CACHE = Option(
    name="prefix_cache",
    help="reuse of cached keys and values from an earlier call's prompt",
    values=(OFF, ON),
    is_filled_in=False,
)
LORA = Option(
    name="lora",
    help="LoRA adapter in the engine's format, applied to every token",
    default="none",
    is_filled_in=False,
)

GPU_LAYERS = Option(
    name="gpu_layers",
    help="number of layers that the engine computes on the GPU, the output counted as one; the others stay on the CPU",
    default="all on a GPU",
    is_filled_in=False,
)
SPLIT_MODE = Option(
    name="split_mode",
    help="how an engine splits a model over several GPUs: by layers or by rows of the weights",
    values=("layer", "row"),
    is_filled_in=False,
)
TENSOR_SPLIT = Option(
    name="tensor_split",
    help="shares of a model on each of several GPUs, such as 3,1; the first GPU of --device is the main one",
    default="by free memory",
    is_filled_in=False,
)

COMMON = (
    CONTEXT_DEPTH,
    KV_CACHE_TYPE,
    FLASH_ATTENTION,
    BATCH_THREADS,
    DRAFT_MODEL,
    NGRAM_LOOKUP,
    DRAFT_TOKENS,
    PREFIX_CACHE,
    LORA,
)
"""All options: an engine declares those it has, and gives a reason for each of the others."""
NUMBERS = {CONTEXT_DEPTH.name: 0, BATCH_THREADS.name: 1, NGRAM_LOOKUP.name: 0, DRAFT_TOKENS.name: 1, GPU_LAYERS.name: 0}
"""Integer options with their minimum."""
FILES = (LORA.name,)
"""Options that name a file or folder."""

QUANTIZATION = Option(
    name="quantization",
    help="quantization method",
    default="the engine's default for the precision",
    is_filled_in=False,
)
"""An engine replaces `values` by the names of its quantized types."""


def with_values(option: Option, values: Iterable[str]) -> Option:
    """An option as one engine has it, the default first."""
    return replace(option, values=tuple(values))


def quantization(types: Mapping[str, Precision]) -> Option:
    """The option of an engine's quantized types; its first of a precision is that precision's default."""
    return with_values(QUANTIZATION, types)


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
    lora: str | None = None
    quantization: str | None = None
    """The name of the quantized type; None for floating point."""
    gpu_layers: int | None = None
    """None for the engine's default: all on a GPU."""
    split_mode: str = SPLIT_MODE.values[0]
    tensor_split: tuple[float, ...] = ()

    @classmethod
    def of(cls, cell: Cell) -> EngineSettings:
        """The settings of a cell."""
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
            lora=text(LORA),
            quantization=text(QUANTIZATION),
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


def checked_settings(runtime: str, options: tuple[Option, ...], mode: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The settings with numbers parsed and defaults removed, so that naming a default does not start another series.
    Raises UsageError for invalid values and for settings that exclude each other."""
    settings: dict[str, Scalar] = {}
    defaults = {option.name: option.values[0] for option in options if option.values and not option.is_filled_in}
    for name, value in mode.items():
        chosen = _number(name, value) if name in NUMBERS else value
        is_off = name in (CONTEXT_DEPTH.name, NGRAM_LOOKUP.name) and chosen == 0
        if not is_off and (name == QUANTIZATION.name or defaults.get(name) != chosen):
            settings[name] = chosen
    shares(str(settings.get(TENSOR_SPLIT.name) or ""))
    for name in FILES:
        if name in settings and not Path(str(settings[name])).expanduser().exists():
            raise UsageError(f"{_flag(name)} {settings[name]}: no such file or folder")
    if DRAFT_MODEL.name in settings and NGRAM_LOOKUP.name in settings:
        raise UsageError("--draft-model and --ngram-lookup exclude each other: give only one of them")
    if DRAFT_TOKENS.name in settings and not {DRAFT_MODEL.name, NGRAM_LOOKUP.name} & set(settings):
        raise UsageError("--draft-tokens needs --draft-model or --ngram-lookup: add one of them")
    return settings


def quantized_mode(
    runtime: str, types: Mapping[str, Precision], precision: Precision, mode: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """The settings of a precision: with the quantized type's name where it has some, the first by default. Raises
    UsageError for a type that belongs to another precision."""
    at_precision = [name for name, belongs_to in types.items() if belongs_to == precision]
    requested = mode.get(QUANTIZATION.name)
    if requested is None:
        return {**mode, QUANTIZATION.name: at_precision[0]} if at_precision else dict(mode)
    if requested in at_precision:
        return dict(mode)
    other_precision = types.get(str(requested))
    available = f"it has {', '.join(at_precision)}" if at_precision else f"{precision} is not quantized"
    hint = "" if other_precision is None else f"; {requested} is --precision {other_precision}"
    raise UsageError(
        f"--quantization {requested}: runtime {runtime} has no such type at {precision}: {available}{hint}"
    )


def _number(name: str, value: Scalar) -> int:
    """A whole number, at least the option's least. Raises UsageError."""
    minimum = NUMBERS[name]
    try:
        number = int(str(value))
    except ValueError as error:
        raise UsageError(f"{_flag(name)} takes a whole number: got {value!r}") from error
    if number < minimum:
        raise UsageError(f"{_flag(name)} takes a whole number from {minimum}: got {value}")
    return number


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
