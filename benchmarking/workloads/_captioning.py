"""Captions, token by token: an image tower, then a decoder that looks at what the tower saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.records import Point
from benchmarking.runtimes import Mark
from benchmarking.workloads import _images
from benchmarking.workloads._generation import GreedyGeneration, takes


class CaptionGeneration(GreedyGeneration):
    """BLIP's: the phase image_encode, the beginning of the caption as prefill, then a step a token.

    The decoder is called as BLIP's own `generate` calls it, but without masks: nothing is padded.
    """

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any], own_size: int) -> None:
        super().__init__(point)
        self._tower, self._decoder = model.vision_model, model.text_decoder
        self._pixels = inputs["pixel_values"]
        self._interpolation = _images.interpolation(self._tower, point, own_size)
        self._prompt = inputs["input_ids"].clone()
        self._prompt[:, 0] = model.config.text_config.bos_token_id  # what every caption begins with
        self._last_only = {"logits_to_keep": 1} if takes(self._decoder, "logits_to_keep") else {}
        self._seen: Any = None

    def reset(self) -> None:
        super().reset()
        self._seen = None

    def encode(self, mark: Mark) -> None:
        self._seen = self._tower(pixel_values=self._pixels, **self._interpolation).last_hidden_state
        mark("image_encode")

    def prefill(self) -> Any:
        from transformers import DynamicCache, EncoderDecoderCache

        config = self._decoder.config
        self._cache = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
        return self.decode(self._prompt)

    def decode(self, tokens: Any) -> Any:
        output = self._decoder(
            input_ids=tokens,
            encoder_hidden_states=self._seen,
            past_key_values=self._cache,
            use_cache=True,
            **self._last_only,
        )
        return output.logits[:, -1]
