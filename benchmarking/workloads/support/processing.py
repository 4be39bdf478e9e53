"""A model's own tokenizer and processors: inputs from real text, images and sound, and the time to make them.

They are used if the model's folder has them (data files only: no code, no pickle). Without them a model runs on its
family's seeded inputs, and `tokenize_ms` is missing with a reason.

2026-11-21: their outputs replace seeded inputs of the same shape; nothing else changes. So a point is the same work
with and without a tokenizer, and placeholders that a family puts among the ids stay in place.
"""

from __future__ import annotations

import bisect
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarking.core.contracts import Stage
from benchmarking.core.errors import BenchhouseError, UsageError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.model_contracts import Modality, WorkloadFamily
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Json, Point, Readings, Workload
from benchmarking.workloads.support import synthetic_inputs
from benchmarking.workloads.support.configuration import library_path, read_json
from benchmarking.workloads.support.families import family_named, plugin_of
from benchmarking.workloads.support.synthetic_inputs import placeholder_ids, vocabulary_size

TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
)
"""Files that hold a vocabulary; one of them is required. All other tokenizer files are optional."""
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")

HUB_FILES = (
    *TOKENIZER_FILES,
    *PROCESSOR_FILES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
)
"""Files that are fetched along with a configuration."""

NAMES: Mapping[Modality, str] = {"text": "tokenizer", "image": "image_processor", "audio": "feature_extractor"}
"""transformers' names of the processors."""
AUTOMATIC: Mapping[Modality, str] = {
    "text": "AutoTokenizer",
    "image": "AutoImageProcessor",
    "audio": "AutoFeatureExtractor",
}
"""transformers' classes that find the class of a folder's processor."""
GENERIC_TOKENIZERS = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""The class, by its names in transformers 4 and 5, of tokenizers that `tokenizer.json` describes completely."""

# Old enough to be in the public domain, and exactly documented.
SOURCE = "Abraham Lincoln, Gettysburg Address, 19 November 1863 (the Bliss copy; public domain)"

TEXT = """\
Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and
dedicated to the proposition that all men are created equal.

Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so dedicated, can
long endure. We are met on a great battle-field of that war. We have come to dedicate a portion of that field, as a
final resting place for those who here gave their lives that that nation might live. It is altogether fitting and proper
that we should do this.

But, in a larger sense, we can not dedicate -- we can not consecrate -- we can not hallow -- this ground. The brave men,
living and dead, who struggled here, have consecrated it, far above our poor power to add or detract. The world will
little note, nor long remember what we say here, but it can never forget what they did here. It is for us the living,
rather, to be dedicated here to the unfinished work which they who fought here have thus far so nobly advanced. It is
rather for us to be here dedicated to the great task remaining before us -- that from these honored dead we take
increased devotion to that cause for which they gave the last full measure of devotion -- that we here highly resolve
that these dead shall not have died in vain -- that this nation, under God, shall have a new birth of freedom -- and
that government of the people, by the people, for the people, shall not perish from the earth.
"""

WORDS = tuple(TEXT.split())
"""The text split at white space, with punctuation attached to words."""

ROW_STRIDE = 101
"""Words between the starts of two rows. It has no common factor with the number of words, so there are as many
different rows as words; being a prime far from 1, it keeps neighbouring rows from being shifted copies."""


def passage(row: int, words: int) -> str:
    """Words of the text for a row of a batch. Each row starts at a different word, and the text wraps around."""
    start = row * ROW_STRIDE
    return " ".join(WORDS[(start + offset) % len(WORDS)] for offset in range(words))


METRIC = "tokenize"
"""Raw metric of the time to make a call's inputs; its median is `tokenize_ms`."""

MIN_REPEATS, MAX_REPEATS = 5, 30
"""Minimum and maximum of timed calls, after one warm-up call. The median of five tolerates two outliers; 29 calls have
a 90th percentile."""
REPEAT_NS = 200_000_000
"""Time after which the minimum number of calls is enough."""

ARRAY_NAMES: Mapping[Modality, tuple[str, ...]] = {
    "text": ("input_ids",),
    "image": ("pixel_values",),
    "audio": ("input_features", "input_values"),
}
"""Names of the models' inputs by kind; for sound, a spectrogram or the waveform."""

SOURCES: Mapping[Modality, str] = {
    "text": SOURCE,
    "image": synthetic_inputs.PHOTO_SOURCE,
    "audio": synthetic_inputs.SOUND_SOURCE,
}

Make = Callable[[], "np.ndarray"]
"""Makes an input from text, images or sound: the timed part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The inputs of a call, and the functions by which the model's own tokenizer or processors make them."""

    arrays: Mapping[str, np.ndarray]
    makers: Mapping[Modality, Make] = field(default_factory=dict)
    why_not: Mapping[Modality, str] = field(default_factory=dict)

    def readings(self) -> Readings:
        """`tokenize`: milliseconds to make the inputs of one call on the host, one sample per repetition.

        Included: tokenizing the texts of the whole batch, truncating them and building the array; the processor's call
        on the whole batch of images or sounds. Excluded: the transfer to the device. With several kinds it is the sum,
        and `tokenize_text_ms`, `tokenize_image_ms` and `tokenize_audio_ms` are the medians of the parts.
        """
        if not self.makers:
            return Readings(missing={METRIC: "; ".join(dict.fromkeys(self.why_not.values()))})
        for make in self.makers.values():
            make()
        parts: dict[Modality, list[float]] = {kind: [] for kind in self.makers}
        spent_ns = repeats = 0
        while repeats < MIN_REPEATS or (repeats < MAX_REPEATS and spent_ns < REPEAT_NS):
            for kind, make in self.makers.items():  # in turns
                start_ns = time.perf_counter_ns()
                make()
                elapsed_ns = time.perf_counter_ns() - start_ns
                parts[kind].append(ns_to_ms(elapsed_ns))
                spent_ns += elapsed_ns
            repeats += 1
        medians: dict[str, Json] = {f"tokenize_{kind}_ms": median(values) for kind, values in parts.items()}
        missing = {f"tokenize_{kind}_ms": why for kind, why in self.why_not.items()}
        totals: list[Json] = [sum(times) for times in zip(*parts.values(), strict=True)]
        return Readings(values={METRIC: totals, **(medians if len(parts) + len(missing) > 1 else {})}, missing=missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Processing:
    """A loaded model's tokenizer and processors, by kind."""

    processors: Mapping[Modality, Any] = field(default_factory=dict)
    why_not: Mapping[Modality, str] = field(default_factory=dict)
    """Why inputs of a kind are seeded."""

    @property
    def verified(self) -> dict[str, Json]:
        """The processors' classes and the sources of their inputs: `tokenizer` and `text_source`, ..."""
        classes: dict[str, Json] = {
            NAMES[kind]: type(processor).__name__ for kind, processor in self.processors.items()
        }
        sources: dict[str, Json] = {f"{kind}_source": SOURCES[kind] for kind in self.processors}
        return {**classes, **sources}

    def checked_inputs(self, workload: Workload, point: Point) -> Prepared:
        """The inputs of a call at a point. Raises UsageError if the model cannot run it, and as `inputs` does."""
        plugin = plugin_of(workload)
        if (why_not := plugin.check(workload, point)) is not None:
            raise UsageError(why_not)
        return self.inputs(plugin, workload, point)

    def inputs(self, plugin: WorkloadFamily, workload: Workload, point: Point) -> Prepared:
        """The inputs of a call. Raises BenchhouseError if the tokenizer belongs to another model."""
        arrays = dict(plugin.inputs(workload, point, workload.seed))
        makers: dict[Modality, Make] = {}
        why_not = dict(self.why_not)
        for kind, processor in self.processors.items():
            name = next((name for name in ARRAY_NAMES[kind] if name in arrays), None)
            if name is None:
                why_not[kind] = f"{NOT_APPLICABLE}: the task takes no {kind}"
                continue
            try:
                make = MAKERS[kind](processor, workload, point, arrays[name])
                array, shape = make(), arrays[name].shape
                if array.shape != shape:
                    raise UnsuitableError(f"the processor makes shape {array.shape}, but the point needs {shape}")
                arrays[name] = array.astype(arrays[name].dtype)
                makers[kind] = make
            except UnsuitableError as error:
                why_not[kind] = f"{NOT_APPLICABLE}: {error}"
        if not makers and not why_not:
            why_not["text"] = f"{NOT_APPLICABLE}: no input is tokenized or processed"
        return Prepared(arrays=arrays, makers=makers, why_not=why_not)


def open_processing(workload: Workload, stage: Stage) -> Processing:
    """The tokenizer and processors in the model's folder; loading them is the stage `tokenizer` of the load.

    Raises BenchhouseError if files fail to load. If a required package is not installed, inputs are seeded.
    """
    processors: dict[Modality, Any] = {}
    why_not: dict[Modality, str] = {}
    plugin = family_named(workload.family)
    for kind in () if plugin is None else plugin.modalities:
        if workload.path is None or not has_processor(Path(workload.path), kind):
            why_not[kind] = (
                f"{NOT_APPLICABLE}: the model's folder has no {'tokenizer' if kind == 'text' else 'processor'}"
            )
            continue
        try:
            with stage("tokenizer"):
                processors[kind] = load(Path(workload.path), kind)
        except ImportError as error:
            why_not[kind] = f"{NOT_SUPPORTED}: {first_line(error)}"
    return Processing(processors=processors, why_not=why_not)


def has_processor(folder: Path, kind: Modality) -> bool:
    """Whether the folder holds a tokenizer or processor of this kind."""
    return any((folder / name).is_file() for name in (TOKENIZER_FILES if kind == "text" else PROCESSOR_FILES))


def has_processors(folder: Path) -> bool:
    """Whether the folder holds a tokenizer or processor of any kind."""
    return any((folder / name).is_file() for name in (*TOKENIZER_FILES, *PROCESSOR_FILES))


def _has_generic_tokenizer(folder: Path) -> bool:
    with suppress(BenchhouseError, OSError):  # of what is broken, the automatic class says why
        config = read_json(folder / "tokenizer_config.json")
        named = config.get("tokenizer_class") if isinstance(config, dict) else None
        return named in GENERIC_TOKENIZERS and (folder / "tokenizer.json").is_file()
    return False


def load(folder: Path, kind: Modality, gguf_file: str | None = None) -> Any:
    """transformers' tokenizer or processor, or the tokenizer in a GGUF file of the folder, whatever is beside it.
    Raises BenchhouseError for broken files, ImportError for a missing package."""
    import transformers

    # The automatic classes import torch, which takes seconds in an engine's process that has no other use for it.
    is_generic = kind == "text" and gguf_file is None and _has_generic_tokenizer(folder)
    automatic = getattr(transformers, "PreTrainedTokenizerFast" if is_generic else AUTOMATIC[kind])
    try:
        path, given = library_path(str(folder)), dict[str, str]()
        place: AbstractContextManager[str] = nullcontext(path)
        if gguf_file is not None:  # in an empty folder, since a tokenizer.json beside the file would be taken instead
            given["gguf_file"] = str(Path(path, gguf_file).absolute())
            place = tempfile.TemporaryDirectory(prefix="benchhouse-")
        with place as source:
            return automatic.from_pretrained(source, local_files_only=True, trust_remote_code=False, **given)
    except ImportError:
        raise
    except Exception as error:  # the tokenizers library raises a bare Exception for a broken file
        if gguf_file is not None:
            raise BenchhouseError(
                f"cannot read the tokenizer in {folder / gguf_file}: {type(error).__name__}: {first_line(error)}"
            ) from error
        raise BenchhouseError(
            f"cannot load the {NAMES[kind].replace('_', ' ')} in {folder}: {type(error).__name__}: "
            f"{first_line(error)}. Fetch its files again, or remove them to use seeded inputs"
        ) from error


def _text(tokenizer: Any, workload: Workload, point: Point, seeded: np.ndarray) -> Make:
    """Ids of real text instead of seeded ones; placeholders of images and sound stay."""
    free = ~np.isin(seeded, placeholder_ids(workload))
    lengths = set(free.sum(axis=-1).ravel().tolist())
    if seeded.ndim != 2 or len(lengths) != 1:
        raise UnsuitableError(f"ids of shape {seeded.shape} are not a batch of texts with equal length")
    batch = text_batch(tokenizer, len(seeded), lengths.pop())
    largest, size = int(batch().max()), vocabulary_size(workload)
    if size is not None and largest >= size:  # an id without an embedding
        raise BenchhouseError(
            f"the {type(tokenizer).__name__} in {workload.path} makes id {largest}, but the model's vocabulary has "
            f"{size} ids: it belongs to another model"
        )

    def make() -> np.ndarray:
        ids = seeded.copy()
        ids[free] = batch().ravel()
        return ids

    return make


def _image(processor: Any, workload: Workload, point: Point, seeded: np.ndarray) -> Make:
    pictures = synthetic_inputs.photos(point.batch_size, workload.seed)
    return lambda: _array(processor(images=pictures, return_tensors="np"), "image")


def _audio(extractor: Any, workload: Workload, point: Point, seeded: np.ndarray) -> Make:
    rate_hz = int(extractor.sampling_rate)
    waves = synthetic_inputs.sounds(point.batch_size, float(point.axes["audio_seconds"]), rate_hz, workload.seed)
    return lambda: _array(extractor(waves, sampling_rate=rate_hz, return_tensors="np"), "audio")


MAKERS: Mapping[Modality, Callable[[Any, Workload, Point, np.ndarray], Make]] = {
    "text": _text,
    "image": _image,
    "audio": _audio,
}


def _array(processed: Mapping[str, Any], kind: Modality) -> np.ndarray:
    """The array made by a processor, under any of its possible names."""
    name = next((name for name in ARRAY_NAMES[kind] if name in processed), None)
    if name is None:
        raise UnsuitableError(
            f"the processor makes {', '.join(processed)}, expected one of {', '.join(ARRAY_NAMES[kind])}"
        )
    return np.asarray(processed[name])


def text_maker(tokenizer: Any, texts: Sequence[str], length: int | None) -> Callable[[], object]:
    """A function that tokenizes these texts, each truncated to `length` tokens (None for no limit)."""
    batch = list(texts)
    return lambda: _ids(tokenizer, batch, length)


def token_count(tokenizer: Any, texts: Sequence[str]) -> int:
    """Number of tokens in the longest text, including special tokens."""
    return max(map(len, _ids(tokenizer, list(texts), None)))


def seconds_to_make(makers: Sequence[Callable[[], object]]) -> float:
    """Seconds to make the inputs of a call once."""
    start_ns = time.perf_counter_ns()
    for make in makers:
        make()
    return (time.perf_counter_ns() - start_ns) / 1e9


MAX_WORDS_PER_TOKEN = 4
"""If a passage with this many words per token still yields too few tokens, the tokenizer cannot read the text."""


class UnsuitableError(Exception):
    """A tokenizer or processor cannot make the inputs of a point. The message gives the reason."""


def text_batch(tokenizer: Any, rows: int, length: int) -> Make:
    """Tokenizes a batch of different rows: int64 ids of shape (rows, length), with special tokens, at most one word
    of a row truncated. Raises UnsuitableError if the special tokens leave no room for text, or if the tokenizer makes
    too few tokens."""
    special = tokenizer.num_special_tokens_to_add()
    if length <= special:
        raise UnsuitableError(f"{length} tokens leave no room for text, as the tokenizer adds {special} special tokens")
    texts = [passage(row, _words_needed(tokenizer, row, length)) for row in range(rows)]
    return lambda: np.array(_ids(tokenizer, texts, length), dtype=np.int64)


def _words_needed(tokenizer: Any, row: int, length: int) -> int:
    """The minimum number of words in a row's text that yield `length` tokens. Longer text would be tokenized only to be
    truncated, which would add to the time."""

    def is_enough(words: int) -> bool:
        (ids,) = _ids(tokenizer, [passage(row, words)], length)
        return len(ids) == length

    limit = next((length * factor for factor in (1, MAX_WORDS_PER_TOKEN) if is_enough(length * factor)), None)
    if limit is None:
        raise UnsuitableError(
            f"the tokenizer makes fewer than {length} tokens from {MAX_WORDS_PER_TOKEN * length} words"
        )
    return bisect.bisect_left(range(limit), True, key=is_enough)


def _ids(tokenizer: Any, texts: list[str], length: int | None) -> list[list[int]]:
    """The ids of each text, at most `length` (None for no limit), including special tokens."""
    options = {"truncation": length is not None, "max_length": length, "padding": False}
    encoded = tokenizer(texts, **options, return_attention_mask=False, verbose=False)
    ids: list[list[int]] = encoded["input_ids"]
    return ids
