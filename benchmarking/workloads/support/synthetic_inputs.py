"""Seeded inputs: token ids, images, sound, waveforms, spectrograms and pixel values, and the sizes that models take;
and prompts with images.

All rows have the requested length; nothing is padded. The same seed and point give the same values.

Prompts with images differ by model in sizes, placeholder tokens and pixels. A prompt is a token of text, the image (in
Qwen2-VL between start and end marks), and text up to the requested length. The image has one placeholder token per
embedding that the vision part makes. FLAVA separates image and text, so its prompts are text only.
"""

from __future__ import annotations

import functools
import hashlib
import math
import wave
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

from benchmarking.core.codec import is_whole
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_modules import np
from benchmarking.core.records import Json, Point, Readings, Workload
from benchmarking.workloads.support.configuration import integer, part
from benchmarking.workloads.support.generation import takes

VOCABULARY_MARGIN = 20
"""The first and last twentieth of the vocabulary are not used: they hold special, unused and single-byte tokens (BERT's
first 999, T5's last 128), few of which are listed in a configuration."""

NOT_TEXT = frozenset({"audio", "image", "video", "vision"})
"""Words in the configuration keys of placeholder ids."""


def token_ids(workload: Workload, point: Point, seed: int) -> np.ndarray:
    """Random token ids, int64 of shape (batch_size, sequence_length)."""
    if point.sequence_length is None:
        raise UsageError(f"{workload.model_id} takes text: the point needs a sequence length")
    if workload.vocab_size is None:
        raise UsageError(f"the configuration of {workload.model_id} has no vocab_size")
    margin = workload.vocab_size // VOCABULARY_MARGIN
    ordinary = np.arange(margin, workload.vocab_size - margin)
    ordinary = ordinary[~np.isin(ordinary, special_ids(workload))]
    generator = np.random.default_rng([seed, point.batch_size, point.sequence_length])
    return generator.choice(ordinary, size=(point.batch_size, point.sequence_length)).astype(np.int64)


def special_ids(workload: Workload) -> list[int]:
    """The ids with a special meaning in the configuration (`pad_token_id`, `eos_token_id`, ...), sorted."""
    named = (value for key, value in workload.config.items() if key.endswith("_token_id"))
    return sorted({number for value in named for number in _numbers(value)})


def placeholder_ids(workload: Workload) -> list[int]:
    """The placeholder ids of images, video or sound in a prompt (`image_token_id`, `image_token_index`, ...)."""
    named = {key: value for key, value in workload.config.items() if key.endswith(("_token_id", "_token_index"))}
    return sorted({n for key, value in named.items() if NOT_TEXT & set(key.split("_")) for n in _numbers(value)})


def vocabulary_size(workload: Workload) -> int | None:
    """The number of ids for which the model, or the text model inside it, has embeddings."""
    inner = workload.config.get("text_config")
    nested = inner.get("vocab_size") if isinstance(inner, dict) else None
    size = workload.vocab_size if workload.vocab_size is not None else nested
    return size if isinstance(size, int) else None


def _numbers(value: Json) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [number for number in values if is_whole(number)]


PHOTO_SIZE = (640, 480)
"""Width and height in pixels: the median of COCO, a common training set."""

PHOTO_SOURCE = f"seeded photo-like pictures of {PHOTO_SIZE[0]} x {PHOTO_SIZE[1]} pixels"
SOUND_SOURCE = "the beginning of Lincoln's Gettysburg Address (1863; public domain), spoken by espeak-ng"
SPEECH = "speech.wav"
"""Half a minute of it: 8 bits, 8 kHz."""
PATCH_PIXELS = 32
GRAIN = 8.0
SYLLABLES_PER_S = 4.0
GOLDEN = (math.sqrt(5) - 1) / 2
"""Multiples of it, modulo 1, are as far from each other as possible, however many there are."""


def photos(count: int, seed: int) -> list[np.ndarray]:
    """Images as uint8 arrays of height x width x 3: soft patches of colour under fine grain, all different."""
    generator = np.random.default_rng([seed, count])
    width, height = PHOTO_SIZE
    pictures = []
    for _ in range(count):
        coarse = generator.uniform(0, 255, (height // PATCH_PIXELS + 1, width // PATCH_PIXELS + 1, 3))
        grain = generator.normal(0, GRAIN, (height, width, 3))
        # The coarse image is enlarged to full size by bilinear interpolation.
        rows = np.linspace(0, coarse.shape[0] - 1.001, height)
        columns = np.linspace(0, coarse.shape[1] - 1.001, width)
        top, left = rows.astype(int), columns.astype(int)
        down, right = (rows - top)[:, None, None], (columns - left)[None, :, None]
        upper = coarse[top][:, left] * (1 - right) + coarse[top][:, left + 1] * right
        lower = coarse[top + 1][:, left] * (1 - right) + coarse[top + 1][:, left + 1] * right
        blended: np.ndarray = upper * (1 - down) + lower * down
        pictures.append(np.clip(blended + grain, 0, 255).astype(np.uint8))
    return pictures


def sounds(count: int, seconds: float, rate_hz: int, seed: int) -> list[np.ndarray]:
    """Mono speech as float32 arrays between -1 and 1: each begins at another place of the recording, which goes round.
    A model that transcribes would answer noise with a word or two, and then with its token for the end of a text."""
    with resources.files(__package__).joinpath(SPEECH).open("rb") as file, wave.open(file) as recording:
        recorded_hz = recording.getframerate()
        levels = np.frombuffer(recording.readframes(recording.getnframes()), dtype=np.uint8)
    samples = (levels.astype(np.float32) - 128) / 128
    time_s = np.arange(round(seconds * rate_hz)) / rate_hz
    starts = [GOLDEN * (seed + row) % 1 * len(samples) for row in range(count)]
    places = np.arange(len(samples))
    return [
        np.interp(start + time_s * recorded_hz, places, samples, period=len(samples)).astype(np.float32)
        for start in starts
    ]


@functools.cache
def speech_digest() -> str:
    """The SHA-256 of the recording, by which inputs of sound are known to be the same."""
    return hashlib.sha256(resources.files(__package__).joinpath(SPEECH).read_bytes()).hexdigest()


AUDIO_AXIS = "audio_seconds"

SAMPLES_PER_S = 16_000
"""The sampling rate at which every supported speech model was trained."""

FRAMES_PER_S = 100
"""Columns per second of a log-mel spectrogram, whose windows are 10 ms apart."""

LOUDEST, SILENCE = 1.4, -0.6
"""Range of log-mel values on Whisper's scale: (log10 of the power + 4) / 4, clipped 8 decades below the loudest."""


def waveforms(point: Point, seed: int) -> np.ndarray:
    """Noise that swells and fades in syllables, float32 of shape (batch size, samples), with mean 0 and variance 1 in
    each row, as made by processors."""
    samples = sample_count(point)
    generator = np.random.default_rng([seed, point.batch_size, samples])
    waves = generator.standard_normal((point.batch_size, samples), dtype=np.float32)
    phases = 2 * np.pi * generator.random((point.batch_size, 1))
    waves *= 1.1 + np.sin(phases + 2 * np.pi * SYLLABLES_PER_S / SAMPLES_PER_S * np.arange(samples))
    waves -= waves.mean(axis=1, keepdims=True)
    waves /= waves.std(axis=1, keepdims=True)
    return waves


def log_mel(point: Point, seed: int, *, bins: int, frames: int) -> np.ndarray:
    """Spectrograms on Whisper's scale, float32 of shape (batch size, bins, frames), padded with silence after the
    point's audio."""
    heard = frame_count(point)
    generator = np.random.default_rng([seed, point.batch_size, heard])
    values = np.full((point.batch_size, bins, frames), SILENCE, dtype=np.float32)
    values[:, :, :heard] = generator.normal(0.0, 0.4, (point.batch_size, bins, heard)).clip(SILENCE, LOUDEST)
    return values


def sample_count(point: Point) -> int:
    """Samples of each row's audio."""
    return round(point.axes[AUDIO_AXIS] * SAMPLES_PER_S)


def frame_count(point: Point) -> int:
    """Spectrogram columns of each row's audio."""
    return round(point.axes[AUDIO_AXIS] * FRAMES_PER_S)


def receptive_field(kernels: Sequence[int], strides: Sequence[int]) -> int:
    """Samples that a stack of unpadded convolutions needs for one value: 1 + the sum of (kernel - 1) times the strides
    before it."""
    field, jump = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        field += (kernel - 1) * jump
        jump *= stride
    return field


def audio_per_call(point: Point) -> Readings:
    """Total seconds of audio in a call over all rows, for the real-time factor."""
    return Readings(values={"audio_seconds_per_call": point.batch_size * point.axes[AUDIO_AXIS]})


IMAGE_AXIS = "image_size"

CHANNELS = 3
"""Red, green and blue, unless the configuration gives another number."""


def pixel_values(config: Mapping[str, Json], point: Point, seed: int) -> np.ndarray:
    """Standard normal values, float32 of shape (batch size, channels, image size, image size), to which processors
    standardise photos."""
    channels, size = integer(config, "num_channels", CHANNELS), int(point.axes[IMAGE_AXIS])
    generator = np.random.default_rng([seed, point.batch_size, size])
    return generator.standard_normal((point.batch_size, channels, size, size), dtype=np.float32)


def own_size(config: Mapping[str, Json], default: int) -> int:
    """Pixels per side of the configuration's images, or `default`. Raises UnsupportedError if images are not square."""
    value = config.get(IMAGE_AXIS, default)
    sides = value if isinstance(value, list) else [value]
    if not sides or not isinstance(side := sides[0], int) or any(other != side for other in sides):
        raise UnsupportedError(f"the configuration's {IMAGE_AXIS} is {value}: only square images are supported")
    return side


def interpolation(model: Any, point: Point, own_size: int) -> dict[str, bool]:
    """The argument that makes a model with a position table accept images of another size. It then interpolates the
    table in every call, which is part of the work."""
    other = point.axes[IMAGE_AXIS] != own_size and takes(model, "interpolate_pos_encoding")
    return {"interpolate_pos_encoding": True} if other else {}


def cut_up(model_id: str, size: float, patch_size: int) -> str | None:
    """None, or the nearest sizes with a whole number of patches, as the remaining pixels would be ignored."""
    if size % patch_size == 0:
        return None
    below = int(size // patch_size) * patch_size
    near = " or ".join(str(each) for each in (below, below + patch_size) if each)
    return f"image size {size}: {model_id} needs a multiple of its patch size {patch_size}, such as {near}"


def too_small(model_id: str, size: float, least: int) -> str | None:
    """None, or the smallest size that every stage of the model can use."""
    return None if size >= least else f"image size {size}: {model_id} takes images of at least {least} x {least} pixels"


TEXT_BEFORE = 1
"""Tokens before the image: a prompt starts with a mark or a speaker's name."""
TEXT_AFTER = 1
"""Minimum number of tokens after it: a question."""


class ImagePrompt(ABC):
    vision_part = "vision_config"
    placeholder: int | None = None
    """The placeholder's token id; None if there is none."""
    marks: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """Ids right before and right after the placeholders."""
    default_size: int
    """Default pixels per side of an image."""

    def __init__(self, config: Mapping[str, Json]) -> None:
        self.config = config
        self.text = part(config, "text_config") or config
        self.vision = part(config, self.vision_part)

    @abstractmethod
    def wrong_size(self, size: int) -> str | None:
        """None, or the sizes that the model takes if this one is not among them."""

    @abstractmethod
    def tokens(self, size: int) -> int:
        """Number of placeholders for an image in the prompt."""

    @abstractmethod
    def pixels(self, batch_size: int, size: int, generator: Any) -> dict[str, np.ndarray]:
        """Images as made by a processor: normal values, by the names of the model's arguments."""

    def shortest(self, size: int) -> int:
        """Minimum number of tokens in a prompt with an image of this size."""
        tokens = self.tokens(size)
        return TEXT_BEFORE + sum(map(len, self.marks)) + tokens + TEXT_AFTER if tokens else 1

    def input_ids(self, workload: Workload, point: Point, seed: int) -> np.ndarray:
        """Random text, int64 of shape (batch_size, sequence_length), including the image's placeholders."""
        vocabulary = self.text.get("vocab_size")
        named = {} if self.placeholder is None else {"image_token_id": self.placeholder}
        inner = replace(
            workload,
            vocab_size=vocabulary if isinstance(vocabulary, int) else None,
            config={**workload.config, **named},  # ids with a meaning are not used in text
        )
        ids = token_ids(inner, point, seed)
        if self.placeholder is not None:
            before, after = self.marks
            picture = (*before, *[self.placeholder] * self.tokens(int(point.axes["image_size"])), *after)
            ids[:, TEXT_BEFORE : TEXT_BEFORE + len(picture)] = picture
        return ids


class FixedImage(ImagePrompt):
    """An image of the only size for which the vision part has positions."""

    def __init__(self, config: Mapping[str, Json]) -> None:
        super().__init__(config)
        self.default_size = integer(self.vision, "image_size", 224)

    def wrong_size(self, size: int) -> str | None:
        return None if size == self.default_size else f"only images of {self.default_size} x {self.default_size} pixels"

    def pixels(self, batch_size: int, size: int, generator: Any) -> dict[str, np.ndarray]:
        shape = (batch_size, integer(self.vision, "num_channels", CHANNELS), size, size)
        return {"pixel_values": generator.standard_normal(shape, dtype="float32")}


class LlavaPrompt(FixedImage):
    """One placeholder per patch; the vision part's summary token is dropped ("default") or kept ("full")."""

    towers: Mapping[str, int] = {"clip_vision_model": 1, "siglip_vision_model": 0}
    """Supported vision parts, with their numbers of summary tokens."""

    def __init__(self, config: Mapping[str, Json]) -> None:
        super().__init__(config)
        self.placeholder = integer(config, "image_token_index", integer(config, "image_token_id", 32000))
        self.tower = str(self.vision.get("model_type", "clip_vision_model"))

    def tokens(self, size: int) -> int:
        patches = (size // integer(self.vision, "patch_size", 14)) ** 2
        left_out = 1 if self.config.get("vision_feature_select_strategy", "default") == "default" else 0
        return patches + self.towers.get(self.tower, 0) - left_out


class FlavaPrompt(FixedImage):
    """An image separate from the text, which has no placeholders."""

    vision_part = "image_config"

    def tokens(self, size: int) -> int:
        return 0


class Qwen2VLPrompt(ImagePrompt):
    """An image of any size in whole blocks of patches; each block (2 x 2 patches of 14 pixels) is one placeholder.

    It also serves Qwen2.5-VL, whose different vision part has the same inputs and placeholders.
    """

    blocks_by_default = 16

    def __init__(self, config: Mapping[str, Json]) -> None:
        super().__init__(config)
        self.placeholder = integer(config, "image_token_id", 151655)
        self.patch = integer(self.vision, "patch_size", 14)
        self.block = self.patch * integer(self.vision, "spatial_merge_size", 2)
        self.default_size = self.blocks_by_default * self.block
        start, end = (integer(config, f"vision_{which}_token_id", 0) for which in ("start", "end"))
        self.marks = ((start,), (end,)) if start and end else ((), ())

    def wrong_size(self, size: int) -> str | None:
        return None if size % self.block == 0 else f"images whose sides are multiples of {self.block} pixels"

    def tokens(self, size: int) -> int:
        return (size // self.block) ** 2

    def pixels(self, batch_size: int, size: int, generator: Any) -> dict[str, np.ndarray]:
        """The patches of all images in sequence, and each image's number of patches in time, height and width."""
        side = size // self.patch
        channels = integer(self.vision, "in_channels", integer(self.vision, "in_chans", CHANNELS))
        values = channels * integer(self.vision, "temporal_patch_size", 2) * self.patch**2
        return {
            "pixel_values": generator.standard_normal((batch_size * side**2, values), dtype="float32"),
            "image_grid_thw": np.tile(np.array([1, side, side], dtype=np.int64), (batch_size, 1)),
        }


PROMPTS: Mapping[str, type[ImagePrompt]] = {
    "flava": FlavaPrompt,
    "llava": LlavaPrompt,
    "qwen2_5_vl": Qwen2VLPrompt,
    "qwen2_vl": Qwen2VLPrompt,
}


def prompt_of(config: Mapping[str, Json]) -> ImagePrompt:
    return PROMPTS[str(config.get("model_type"))](config)
