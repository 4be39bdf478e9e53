"""Prompts with images, by model: sizes, placeholder tokens and pixels.

A prompt is a token of text, the image (in Qwen2-VL between start and end marks), and text up to the requested length.
The image has one placeholder token per embedding that the vision part makes. FLAVA separates image and text, so its
prompts are text only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarking.core.records import Json, Point, Workload
from benchmarking.workloads.support import synthetic_inputs
from benchmarking.workloads.support.configuration import integer, part

if TYPE_CHECKING:
    import numpy as np

COLOURS = 3
TEXT_BEFORE = 1
"""Tokens before the image: a prompt starts with a mark or a speaker's name."""
TEXT_AFTER = 1
"""Minimum number of tokens after it: a question."""


class ImagePrompt(ABC):
    """The prompts of one model."""

    placeholder: int | None = None
    """The placeholder's token id; None if there is none."""

    def __init__(self, config: Mapping[str, Json]) -> None:
        self.config = config
        self.text = part(config, "text_config") or config

    @property
    @abstractmethod
    def default_size(self) -> int:
        """Default pixels per side of an image."""

    @abstractmethod
    def wrong_size(self, size: int) -> str | None:
        """None, or the sizes that the model takes if this one is not among them."""

    @abstractmethod
    def tokens(self, size: int) -> int:
        """Number of placeholders for an image in the prompt."""

    @abstractmethod
    def pixels(self, batch_size: int, size: int, generator: Any) -> dict[str, np.ndarray]:
        """Images as made by a processor: normal values, by the names of the model's arguments."""

    def marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids right before and right after the placeholders."""
        return (), ()

    def shortest(self, size: int) -> int:
        """Minimum number of tokens in a prompt with an image of this size."""
        tokens = self.tokens(size)
        return TEXT_BEFORE + sum(map(len, self.marks())) + tokens + TEXT_AFTER if tokens else 1

    def input_ids(self, workload: Workload, point: Point, seed: int) -> np.ndarray:
        """Random text, int64 of shape (batch_size, sequence_length), including the image's placeholders."""
        vocabulary = self.text.get("vocab_size")
        named = {} if self.placeholder is None else {"image_token_id": self.placeholder}
        inner = replace(
            workload,
            vocab_size=vocabulary if isinstance(vocabulary, int) else None,
            config={**workload.config, **named},  # ids with a meaning are not used in text
        )
        ids = synthetic_inputs.token_ids(inner, point, seed)
        if self.placeholder is not None:
            before, after = self.marks()
            picture = (*before, *[self.placeholder] * self.tokens(int(point.axes["image_size"])), *after)
            ids[:, TEXT_BEFORE : TEXT_BEFORE + len(picture)] = picture
        return ids


class FixedImage(ImagePrompt):
    """An image of the only size for which the vision part has positions."""

    vision_part: str

    @property
    def vision(self) -> Mapping[str, Json]:
        return part(self.config, self.vision_part)

    @property
    def default_size(self) -> int:
        return integer(self.vision, "image_size", 224)

    def wrong_size(self, size: int) -> str | None:
        return None if size == self.default_size else f"only images of {self.default_size} x {self.default_size} pixels"

    def pixels(self, batch_size: int, size: int, generator: Any) -> dict[str, np.ndarray]:
        shape = (batch_size, integer(self.vision, "num_channels", COLOURS), size, size)
        return {"pixel_values": generator.standard_normal(shape, dtype="float32")}


class LlavaPrompt(FixedImage):
    """One placeholder per patch; the vision part's summary token is dropped ("default") or kept ("full")."""

    vision_part = "vision_config"
    towers: Mapping[str, int] = {"clip_vision_model": 1, "siglip_vision_model": 0}
    """Supported vision parts, with their numbers of summary tokens."""

    def __init__(self, config: Mapping[str, Json]) -> None:
        super().__init__(config)
        self.placeholder = integer(config, "image_token_index", integer(config, "image_token_id", 32000))

    @property
    def tower(self) -> str:
        return str(self.vision.get("model_type", "clip_vision_model"))

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
        self.vision = part(config, "vision_config")
        self.patch = integer(self.vision, "patch_size", 14)
        self.merge = integer(self.vision, "spatial_merge_size", 2)

    @property
    def default_size(self) -> int:
        return self.blocks_by_default * self.patch * self.merge

    def wrong_size(self, size: int) -> str | None:
        block = self.patch * self.merge
        return None if size % block == 0 else f"images whose sides are multiples of {block} pixels"

    def tokens(self, size: int) -> int:
        return (size // (self.patch * self.merge)) ** 2

    def marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        start, end = (integer(self.config, f"vision_{which}_token_id", 0) for which in ("start", "end"))
        return ((start,), (end,)) if start and end else ((), ())

    def pixels(self, batch_size: int, size: int, generator: Any) -> dict[str, np.ndarray]:
        """The patches of all images in sequence, and each image's number of patches in time, height and width."""
        import numpy as np

        side = size // self.patch
        channels = integer(self.vision, "in_channels", integer(self.vision, "in_chans", COLOURS))
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
"""Prompts by model type."""


def prompt_of(config: Mapping[str, Json]) -> ImagePrompt:
    """The prompts for a model with this configuration."""
    return PROMPTS[str(config.get("model_type"))](config)
