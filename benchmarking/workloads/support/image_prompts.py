"""Prompts with pictures, by model: sizes, placeholder tokens and pixels.

A prompt is a token of text, the picture (in Qwen2-VL between its start and end marks), and text up to the requested
length. The picture has as many placeholder tokens as the vision part makes embeddings. FLAVA keeps picture and text
apart, so that its prompts are text alone.
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
"""Tokens before the picture: a prompt starts with a mark, or a speaker's name."""
TEXT_AFTER = 1
"""The fewest tokens after it: a question."""


class ImagePrompt(ABC):
    """The prompts of one model."""

    placeholder: int | None = None
    """The token id in place of the picture's embeddings; None where there is none."""

    def __init__(self, config: Mapping[str, Json]) -> None:
        self.config = config
        self.text = part(config, "text_config") or config

    @property
    @abstractmethod
    def default_size(self) -> int:
        """Default pixels a side of a picture."""

    @abstractmethod
    def wrong_size(self, size: int) -> str | None:
        """None, or the sizes that the model takes, if not this one."""

    @abstractmethod
    def tokens(self, size: int) -> int:
        """Placeholders of a picture in the prompt."""

    @abstractmethod
    def pixels(self, batch_size: int, size: int, generator: Any) -> dict[str, np.ndarray]:
        """Pictures in a processor's form: normal values, by the names of the model's arguments."""

    def marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids right before and right after the placeholders."""
        return (), ()

    def shortest(self, size: int) -> int:
        """The fewest tokens of a prompt with a picture of this size."""
        tokens = self.tokens(size)
        return TEXT_BEFORE + sum(map(len, self.marks())) + tokens + TEXT_AFTER if tokens else 1

    def input_ids(self, workload: Workload, point: Point, seed: int) -> np.ndarray:
        """Random text, int64 of shape (batch_size, sequence_length), with the picture's placeholders in it."""
        vocabulary = self.text.get("vocab_size")
        named = {} if self.placeholder is None else {"image_token_id": self.placeholder}
        inner = replace(
            workload,
            vocab_size=vocabulary if isinstance(vocabulary, int) else None,
            config={**workload.config, **named},  # an id with a meaning is not used in text
        )
        ids = synthetic_inputs.token_ids(inner, point, seed)
        if self.placeholder is not None:
            before, after = self.marks()
            picture = (*before, *[self.placeholder] * self.tokens(int(point.axes["image_size"])), *after)
            ids[:, TEXT_BEFORE : TEXT_BEFORE + len(picture)] = picture
        return ids


class FixedImage(ImagePrompt):
    """A picture of the only size that the vision part has positions for."""

    vision_part: str

    @property
    def vision(self) -> Mapping[str, Json]:
        return part(self.config, self.vision_part)

    @property
    def default_size(self) -> int:
        return integer(self.vision, "image_size", 224)

    def wrong_size(self, size: int) -> str | None:
        return None if size == self.default_size else f"pictures of {self.default_size} pixels a side only"

    def pixels(self, batch_size: int, size: int, generator: Any) -> dict[str, np.ndarray]:
        shape = (batch_size, integer(self.vision, "num_channels", COLOURS), size, size)
        return {"pixel_values": generator.standard_normal(shape, dtype="float32")}


class LlavaPrompt(FixedImage):
    """A placeholder a patch; the vision part's summary token is left out ("default") or kept ("full")."""

    vision_part = "vision_config"
    towers: Mapping[str, int] = {"clip_vision_model": 1, "siglip_vision_model": 0}
    """Supported vision parts, and how many summary tokens they have."""

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
    """A picture apart from the text, which has no placeholders."""

    vision_part = "image_config"

    def tokens(self, size: int) -> int:
        return 0


class Qwen2VLPrompt(ImagePrompt):
    """A picture of any size in whole blocks of patches; each block (2 x 2 patches of 14 pixels) is one placeholder.

    Qwen2.5-VL's too: its different vision part has the same inputs and placeholders.
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
        return None if size % block == 0 else f"pictures of multiples of {block} pixels a side"

    def tokens(self, size: int) -> int:
        return (size // (self.patch * self.merge)) ** 2

    def marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        start, end = (integer(self.config, f"vision_{which}_token_id", 0) for which in ("start", "end"))
        return ((start,), (end,)) if start and end else ((), ())

    def pixels(self, batch_size: int, size: int, generator: Any) -> dict[str, np.ndarray]:
        """The patches of all pictures in sequence, and each picture's number of patches in time, height and width."""
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
"""By model type."""


def prompt_of(config: Mapping[str, Json]) -> ImagePrompt:
    """The prompts of the model with this configuration."""
    return PROMPTS[str(config.get("model_type"))](config)
