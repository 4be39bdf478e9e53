"""The widths and depths of a model, under whichever names its configuration gives them. What is not there is 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarking.records import Family, Json
from benchmarking.workloads._families import family_named

HIDDEN = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
DECODER_LAYERS = ("decoder_layers", "num_decoder_layers", *LAYERS)
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
HEAD_SIZE = ("head_dim", "d_kv")
INTERMEDIATE = ("intermediate_size", "encoder_ffn_dim", "ffn_dim", "d_ff", "n_inner", "hidden_dim")
TEXT_PARTS = ("text_config", "generator")
VISION_PARTS = ("vision_config", "image_config")

SAMPLES_PER_S = 16_000
"""The rate that the speech models of transformers hear at."""
COLOURS = 3
LATENT_PIXELS = 8
"""Pixels a side for a value of a latent: the autoencoders of Stable Diffusion and DiT halve a picture three times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The part of a model that takes token ids."""

    hidden: int
    intermediate: int
    """Of a feed-forward layer that every token goes through; 0 with experts, which share the tokens out."""
    heads: int
    key_value_heads: int
    head_size: int
    cached_layers: int
    """Layers that keep keys and values."""
    vocabulary: int
    window: int | None
    """Tokens that attention looks back at, and the cache keeps; None for all."""
    cross_attends: bool
    """An encoder-decoder: the prompt is cached once, for the decoder's cross-attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vision:
    """The part of a model that takes pictures."""

    hidden: int
    intermediate: int
    patch: int
    """Pixels a side; 0 where pictures are not one sequence of patches (convolutions, stages of several widths)."""


def text_of(config: Mapping[str, Json], family: Family | None) -> Text | None:
    """The model's text part; None for one that takes no text."""
    own = _part(config, TEXT_PARTS) or config
    vocabulary, hidden, heads = _number(own, "vocab_size"), _number(own, *HIDDEN), _number(own, *HEADS)
    if not vocabulary or not hidden:
        return None
    has_experts = any("expert" in key for key in own)
    plugin = family_named(family)
    has_cache = heads > 0 and (plugin is None or plugin.has_attention_cache)
    return Text(
        hidden=hidden,
        intermediate=0 if has_experts else _number(own, *INTERMEDIATE),
        heads=heads,
        key_value_heads=_key_value_heads(own, heads) if has_cache else 0,
        head_size=_number(own, *HEAD_SIZE) or (hidden // heads if heads else 0),
        cached_layers=_number(own, *DECODER_LAYERS) if has_cache else 0,
        vocabulary=vocabulary,
        window=_window(own),
        cross_attends=config.get("is_encoder_decoder") is True,
    )


def vision_of(config: Mapping[str, Json]) -> Vision | None:
    """The model's vision part; None for one that takes no pictures."""
    own = _part(config, VISION_PARTS) or (config if "num_channels" in config or "image_size" in config else None)
    if own is None:
        return None
    patch = 0 if "depths" in own else _number(own, "patch_size")
    return Vision(hidden=_number(own, *HIDDEN), intermediate=_number(own, *INTERMEDIATE), patch=patch)


def pixels(config: Mapping[str, Json], size: int) -> int:
    """Values of one picture as it goes in: three colours, or the latents of a diffusion model."""
    if "_class_name" in config:
        return _number(config, "in_channels") * (size // LATENT_PIXELS) ** 2
    return COLOURS * size**2


def sound_values(config: Mapping[str, Json], seconds: float) -> int:
    """Values of one sound as it goes in and comes out of the first convolution (wav2vec2's `conv_dim`,
    `conv_stride`)."""
    samples = int(seconds * SAMPLES_PER_S)
    channels, strides = config.get("conv_dim"), config.get("conv_stride")
    if isinstance(channels, list) and isinstance(strides, list) and channels and strides:
        channel, stride = channels[0], strides[0]
        if isinstance(channel, int) and isinstance(stride, int) and stride > 0:
            return samples + channel * (samples // stride)
    return samples


def _part(config: Mapping[str, Json], names: tuple[str, ...]) -> Mapping[str, Json] | None:
    return next((part for name in names if isinstance(part := config.get(name), dict) and part), None)


def _number(config: Mapping[str, Json], *names: str) -> int:
    """The first of the names that has a whole number above 0, else 0."""
    values = (config.get(name) for name in names)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), 0)


def _key_value_heads(config: Mapping[str, Json], heads: int) -> int:
    """Grouped queries share heads; with `multi_query` (Falcon, BigCode) all of them share one."""
    if config.get("multi_query") is True and config.get("new_decoder_architecture") is not True:
        return 1
    return _number(config, "num_key_value_heads", "num_kv_heads") or heads


def _window(config: Mapping[str, Json]) -> int | None:
    """The shortest window: where some layers see everything, it bounds them from below all the same."""
    window = _number(config, "sliding_window")
    return window if window and config.get("use_sliding_window") is not False else None
