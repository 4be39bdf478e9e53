"""Models of images and text: two towers that compare them (CLIP, SigLIP), and BLIP, whose decoder generates
captions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarking.core.contracts import FamilyOperation, Mark
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.model_contracts import Modality, QualityKind, Recipe
from benchmarking.core.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads.support import synthetic_inputs
from benchmarking.workloads.support.configuration import integer, part
from benchmarking.workloads.support.families import too_long, wrong_axes
from benchmarking.workloads.support.generation import (
    ForwardPass,
    GreedyGeneration,
    dynamic_caches,
    floats_as,
    last_logits_only,
)
from benchmarking.workloads.support.transformers_models import TransformersFamily

COMPARISON, CAPTIONING = "zero-shot-image-classification", "image-to-text"
TEXT, IMAGE = "text_config", "vision_config"

DEFAULT_PROMPT_TOKENS = 4
"""The first token of every caption and "a picture of", the start that BLIP was trained with."""

DEFAULT_NEW_TOKENS = 16

CLIPS_OLD_END_ID = 2
"""CLIP's first configurations wrongly give this id as the end of a text; the end is the vocabulary's last id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """transformers' defaults for absent keys: SigLIP's published configuration has almost none."""

    positions: int
    vocab_size: int
    image_size: int
    patch_size: int | None = None
    """Patch size; None for a convolutional image tower."""
    least_size: int = 1
    """Minimum pixels per side for all stages of a convolutional image tower."""


DEFAULTS: Mapping[str, Defaults] = {
    "align": Defaults(positions=512, vocab_size=30522, image_size=600, least_size=32),
    "blip": Defaults(positions=512, vocab_size=30524, image_size=384, patch_size=16),
    "chinese_clip": Defaults(positions=512, vocab_size=30522, image_size=224, patch_size=32),
    "clip": Defaults(positions=77, vocab_size=49408, image_size=224, patch_size=32),
    "siglip": Defaults(positions=64, vocab_size=32000, image_size=224, patch_size=16),
}


class VisionText(TransformersFamily):
    """CLIP, SigLIP, Chinese CLIP, ALIGN; BLIP."""

    name: Family = "vision-text"
    rank = 4
    modalities: tuple[Modality, ...] = ("text", "image")
    without_sdpa = frozenset({"align", "blip"})
    sdpa_since = {"chinese_clip": (5, 17)}  # noqa: RUF012 - TransformersFamily's annotation covers it
    model_types = frozenset(DEFAULTS)
    quality: Mapping[str, QualityKind] = {COMPARISON: "labels", CAPTIONING: "tokens"}
    can_split_batch = False
    """No: two towers score every image against every text of the batch."""
    caches: tuple[str, ...] = ("dynamic",)
    """The only attention that BLIP supports."""

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        """Two towers compare; BLIP's image tower and decoder generate captions."""
        return (CAPTIONING,) if config.get("model_type") == "blip" else (COMPARISON,)

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        size = {synthetic_inputs.IMAGE_AXIS: (own_size(workload.config),)}
        if workload.task == CAPTIONING:
            return {"sequence_length": (DEFAULT_PROMPT_TOKENS,), **size, "new_tokens": (DEFAULT_NEW_TOKENS,)}
        return {"sequence_length": (self.max_sequence_length(workload.config),), **size}

    def max_sequence_length(self, config: Mapping[str, Json]) -> int:
        return integer(part(config, TEXT), "max_position_embeddings", _defaults(config).positions)

    def check(self, workload: Workload, point: Point) -> str | None:
        if (problem := wrong_axes(workload, point, tuple(self.axes(workload)))) is not None:
            return problem
        length, new_tokens = point.sequence_length or 0, point.new_tokens or 0
        if (problem := too_long(workload, length, new_tokens, shared_positions=True)) is not None:
            return problem
        size, defaults = point.axes[synthetic_inputs.IMAGE_AXIS], _defaults(workload.config)
        if defaults.patch_size is None:
            return synthetic_inputs.too_small(workload.model_id, size, defaults.least_size)
        patch_size = integer(part(workload.config, IMAGE), "patch_size", defaults.patch_size)
        return synthetic_inputs.cut_up(workload.model_id, size, patch_size)

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """One text and one image per row. A text for CLIP ends with the token whose state is the text's embedding."""
        text = dict(part(workload.config, TEXT))
        vocab_size = integer(text, "vocab_size", _defaults(workload.config).vocab_size)
        ids = synthetic_inputs.token_ids(replace(workload, config=text, vocab_size=vocab_size), point, seed)
        if workload.config.get("model_type") == "clip":
            end = integer(text, "eos_token_id", CLIPS_OLD_END_ID)
            ids[:, -1] = vocab_size - 1 if end == CLIPS_OLD_END_ID else end
        pixels = synthetic_inputs.pixel_values(part(workload.config, IMAGE), point, seed)
        return {"input_ids": ids, "pixel_values": pixels}

    def recipe(self, workload: Workload) -> Recipe | str:
        return Recipe(
            plan="caption" if workload.task == CAPTIONING else "forward", fixed_axes=(synthetic_inputs.IMAGE_AXIS,)
        )

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        kind = CaptionGeneration if workload.task == CAPTIONING else TwoTowers
        return kind(model, point, floats_as(model, inputs), own_size(workload.config))


class TwoTowers(ForwardPass):
    """Both towers once, over as many images as texts, and the similarity of each image to each text: batch x batch."""

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any], own_size: int) -> None:
        super().__init__(model, point, {**inputs, **synthetic_inputs.interpolation(model, point, own_size)})

    def tensors(self, output: Any) -> Mapping[str, Any]:
        """Similarities and both towers' embeddings."""
        return {name: getattr(output, name) for name in ("logits_per_image", "image_embeds", "text_embeds")}


def own_size(config: Mapping[str, Json]) -> int:
    """Pixels per side of the images that the model was trained on."""
    return synthetic_inputs.own_size(part(config, IMAGE), _defaults(config).image_size)


def _defaults(config: Mapping[str, Json]) -> Defaults:
    model_type = str(config.get("model_type"))
    if model_type not in DEFAULTS:
        raise UnsupportedError(f"{model_type} does not belong to family vision-text")
    return DEFAULTS[model_type]


class CaptionGeneration(GreedyGeneration):
    """BLIP's captions: the phase image_encode, the start of the caption as prefill, then one step per token.

    The decoder is called as in BLIP's `generate`, but without masks: nothing is padded.
    """

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any], own_size: int) -> None:
        super().__init__(point)
        self._tower, self._decoder = model.vision_model, model.text_decoder
        self._pixels = inputs["pixel_values"]
        self._interpolation = synthetic_inputs.interpolation(self._tower, point, own_size)
        self._prompt = inputs["input_ids"].clone()
        self._prompt[:, 0] = model.config.text_config.bos_token_id  # the first token of every caption
        self._last_only = last_logits_only(self._decoder)

    def encode(self, mark: Mark) -> None:
        self._encoded = self._tower(pixel_values=self._pixels, **self._interpolation).last_hidden_state
        mark("image_encode")

    def prefill(self) -> Any:
        self._cache = dynamic_caches(self._decoder.config)
        return self.decode(self._prompt)

    def decode(self, tokens: Any) -> Any:
        output = self._decoder(
            input_ids=tokens,
            encoder_hidden_states=self._encoded,
            past_key_values=self._cache,
            use_cache=True,
            **self._last_only,
        )
        return output.logits[:, -1]


PLUGIN = VisionText()
