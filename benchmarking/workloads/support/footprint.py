"""Whether a point can fit into memory: a lower bound of the memory it needs, from the configuration only.

weights      parameters x bytes per value at the precision; those of a quantized checkpoint as stored
activations  the largest of these stages of a call, in values x bytes per value:
             - the prompt's last layer: its cache + batch x tokens x (hidden + intermediate), of one token in an engine,
               which computes some at a time; with eager attention
               batch x (tokens x hidden + 2 x heads x tokens^2), the scores before and after softmax, if that is more
             - the last step: the whole cache + logits (batch x vocabulary); for fill-mask, logits of every token
             - a layer of the vision part: batch x patches x (hidden + intermediate)
             plus the inputs: batch x 3 x size^2 for images, or the latents of a diffusion model; batch x samples x
             (1 + channels / stride) for the first convolution over sound
cache        2 x layers x batch x key-value heads x head size x tokens: keys and values; in an engine, at its own type
Every request in flight has its own activations and cache.

A point rejected by the bound cannot run; an accepted one may still run out of memory. Loading needs the weights once:
random ones are filled in place, pretrained ones copied from a mapped file whose pages the system reclaims. Missing keys
of a configuration count as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

from benchmarking.core import plugins
from benchmarking.core.codec import is_whole
from benchmarking.core.errors import StorageError, UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import NOT_SUPPORTED, Cell, Family, Json, Point, Precision, Readings, Scalar, Workload
from benchmarking.devices.support.host import FREE, TOTAL, free_host_bytes, free_memory
from benchmarking.runtimes.support.torch.several_devices import weight_copies
from benchmarking.workloads.support.configuration import LAYERS
from benchmarking.workloads.support.denoising import PIXELS_PER_LATENT
from benchmarking.workloads.support.families import family_named
from benchmarking.workloads.support.quantized_weights import quantization_of
from benchmarking.workloads.support.synthetic_inputs import CHANNELS, SAMPLES_PER_S
from benchmarking.workloads.support.transformers_models import EAGER
from benchmarking.workloads.support.weights import VALUE_BITS, tensor_shapes, value_count, weight_files

VALUE_BYTES: Mapping[Precision, float] = {
    "float32": 4,
    "tf32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3": 1,
    "int8": 1,
    "int4": 0.5,
}
"""Bytes of a weight. Activations of quantized models are at least float16."""

MIN_ACTIVATION_BYTES = 2
CACHE_TYPE = "kv_cache_type"
CACHE_BYTES: Mapping[Scalar, float] = {
    "f32": 4,
    **dict.fromkeys(("u8", "q8_0", "8bit"), 1),
    **dict.fromkeys(("q5_0", "q5_1"), 0.625),
    **dict.fromkeys(("q4_0", "q4_1", "iq4_nl", "4bit"), 0.5),
}
"""Bytes of a value in an engine's cache by `kv_cache_type`, without the scales of blocks; two of any other type."""
BYTES_PER_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The memory that a cell's weights need, and the free memory."""

    cell: Cell
    weights_bytes: int | None
    min_bytes: int
    """A lower bound of the weights' bytes, from the configuration."""
    free: Readings
    """`free_memory_bytes` of the device, or the reason it is missing and `device_memory_bytes`."""
    host_bytes: int | None = None
    """Free memory of the device's host; None if it is not known."""

    @classmethod
    def of(cls, cell: Cell, free: Readings | None = None, *, is_here: bool = True) -> Fit:
        """From the free memory of the device (None: read now, on this machine) and the headers of the weight files.
        `is_here`: whether the device is one of this machine."""
        count = parameter_count(cell.workload)
        weights_bytes = None if count is None else int(count * VALUE_BYTES[cell.precision])
        if count is not None and cell.workload.parameter_count is None and quantization_of(cell.workload) is not None:
            weights_bytes = quantized_bytes(Path(cell.workload.path or ""))
        return cls(
            cell=cell,
            weights_bytes=weights_bytes,
            min_bytes=int(min_parameter_count(cell.workload) * VALUE_BYTES[cell.precision]),
            free=free_memory(cell.device) if free is None else free,
            host_bytes=free_host_bytes() if is_here else None,
        )

    def why_not(self, point: Point) -> str | None:
        """None, or how the point's need exceeds the free memory. None, too, if either is unknown."""
        model_id, host = self.cell.workload.model_id, self.host_bytes
        is_counted = self.cell.workload.parameter_count is not None or (self.weights_bytes or 0) >= self.min_bytes
        if (
            not is_counted and host is not None and self.min_bytes > host
        ):  # it cannot be built, even if its files are smaller
            return (
                f"{model_id} needs at least {_size(self.min_bytes)} for weights at {self.cell.precision} (from its "
                f"configuration), {_size(host)} free on the host: use a smaller model"
            )
        limit = self.free.values.get(FREE, self.free.values.get(TOTAL))
        if self.weights_bytes is None or not isinstance(limit, int):
            return None
        activations = activation_bytes(self.cell, point)
        copies = weight_copies(self.cell)
        if self.weights_bytes * copies + activations > limit:
            place = f"{'free' if FREE in self.free.values else 'in all'} on {self.cell.device.selector}"
            times = f" on each of {copies} devices" if copies > 1 else ""
            return self._refusal(f"{times} + {_size(activations)} for {point.label}", f"{_size(limit)} {place}")
        if self.cell.workload.weights == "random" and host is not None and self.weights_bytes > host:
            return self._refusal(", which are filled in host memory,", f"{_size(host)} free on the host")
        return None

    def unfit_points(self, points: Iterable[Point], *, may_skip: bool | None) -> dict[str, str]:
        """The reasons of points that do not fit, by label. Raises UnsupportedError for the first one unless they may be
        skipped; the flag for that is named if the command has it (not None)."""
        reasons = {point.label: why for point in points if (why := self.why_not(point)) is not None}
        if reasons and not may_skip:
            how = "" if may_skip is None else " or --skip-unsupported"
            raise UnsupportedError(f"{next(iter(reasons.values()))}{how}")
        return reasons

    @property
    def readings(self) -> Readings:
        """For the run's record: `weights_needed_bytes` and `free_memory_bytes`, or why they are unknown."""
        if self.weights_bytes is None:
            unknown = f"{NOT_SUPPORTED}: the number of parameters of {self.cell.workload.model_id} is unknown"
            return self.free | Readings(missing={"weights_needed_bytes": unknown})
        return self.free | Readings(values={"weights_needed_bytes": self.weights_bytes})

    def _refusal(self, detail: str, available: str) -> str:
        options = plugins.runtime(self.cell.runtime).declared_options
        smaller = "a smaller --kv-cache-type, " if any(option.name == CACHE_TYPE for option in options) else ""
        return (
            f"{self.cell.workload.model_id} needs {_size(self.weights_bytes or 0)} for weights{detail} at "
            f"{self.cell.precision}, {available}: use a lower precision, {smaller}a smaller model"
        )


def quantized_bytes(folder: Path) -> int:
    """Bytes of a quantized checkpoint's weights in memory: packed ones, of which a stored value holds several, as they
    are stored, and floating-point ones in half precision at most."""
    bits = {dtype: min(size, 16) if "F" in dtype else size for dtype, size in VALUE_BITS.items()}
    tensors = (tensor for path in weight_files(folder) for tensor in tensor_shapes(path).values())
    return sum(prod(shape) * bits.get(dtype, 0) for dtype, shape in tensors) // 8


def parameter_count(workload: Workload) -> int | None:
    """Number of values from the catalog, or from the headers of the weight files (which include heads that the task
    does not use); None if neither has it."""
    if workload.parameter_count is not None or workload.path is None or workload.weights != "pretrained":
        return workload.parameter_count
    try:
        files = weight_files(Path(workload.path))
        return sum(map(value_count, files)) if files else None
    except (StorageError, UsageError):
        return None  # weights in another library's layout, read by the family's loader


def min_parameter_count(workload: Workload) -> int:
    """A lower bound of the number of parameters from the configuration: embeddings and one feed-forward matrix."""
    config, count = workload.config, 0
    if (text := text_of(config, workload.family)) is not None:
        text_config = _part(config, TEXT_PARTS) or config
        width = min(text.hidden, *(_number(text_config, name) or text.hidden for name in EMBEDDING_WIDTHS))
        count += text.vocabulary * width + text.hidden * text.intermediate
    if (vision := vision_of(config)) is not None:
        count += vision.hidden * vision.intermediate
    return count


def activation_bytes(cell: Cell, point: Point) -> int:
    """The minimum memory of a call at the point, without the weights."""
    config, batch, axes = cell.workload.config, point.batch_size, point.axes
    vision, text = vision_of(config), text_of(config, cell.workload.family)
    size, stages = int(axes.get("image_size", 0)), [0.0]
    value_bytes = max(VALUE_BYTES[cell.precision], MIN_ACTIVATION_BYTES)
    in_parts = plugins.runtime(cell.runtime).prefills_in_parts
    cache_bytes = CACHE_BYTES.get(cell.runtime_mode.get(CACHE_TYPE, ""), 2) if in_parts else value_bytes
    if vision is not None and vision.patch:
        stages.append(value_bytes * batch * (size // vision.patch) ** 2 * (vision.hidden + vision.intermediate))
    if text is not None and point.sequence_length is not None:
        tokens, new = point.sequence_length, point.new_tokens
        layer, last = batch * (1 if in_parts else tokens) * (text.hidden + text.intermediate), 0
        before_last = at_last = 0
        if cell.runtime_mode.get("attention") == EAGER:
            layer = max(layer, batch * (tokens * text.hidden + 2 * text.heads * tokens**2))
        if new is not None:
            # The last token is never an input; an encoder-decoder's first input is its start token.
            inputs = new if text.cross_attends else new - 1
            last, at_last = batch * text.vocabulary, cache_values(text, batch, tokens, inputs)
            before_last = 0 if text.cross_attends else cache_values(text, batch, tokens, 0)
        elif cell.workload.task == "fill-mask":
            last = batch * tokens * text.vocabulary
        stages += [value_bytes * layer + cache_bytes * before_last, value_bytes * last + cache_bytes * at_last]
    given = batch * (pixels(config, size) + sound_values(config, axes.get("audio_seconds", 0)))
    return int((value_bytes * given + max(stages)) * point.concurrency)


def cache_values(text: Text, batch: int, prompt: int, new: int) -> int:
    """Number of cached keys and values after the prompt and `new` tokens."""
    per_token = 2 * text.cached_layers * batch * text.key_value_heads * text.head_size
    if text.cross_attends:
        return per_token * (prompt + new)
    tokens = prompt + new
    return per_token * (tokens if text.window is None else min(tokens, text.window))


def _size(count: float) -> str:
    """Bytes in GB, small ones in MB."""
    if count < BYTES_PER_GB / 10:
        return f"{count / 1e6:.1f} MB"
    return f"{count / BYTES_PER_GB:.1f} GB"


HIDDEN = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim")
DECODER_LAYERS = ("decoder_layers", "num_decoder_layers", *LAYERS)
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
HEAD_SIZE = ("head_dim", "d_kv")
INTERMEDIATE = ("intermediate_size", "encoder_ffn_dim", "ffn_dim", "d_ff", "n_inner", "hidden_dim")
EMBEDDING_WIDTHS = ("embedding_size", "word_embed_proj_dim", "d_embed", "emb_dim")
"""Keys of models whose embeddings are narrower than their layers."""
TEXT_PARTS = ("text_config", "generator")
VISION_PARTS = ("vision_config", "image_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The part of a model that takes token ids."""

    hidden: int
    intermediate: int
    """Width of a feed-forward layer that every token passes; 0 with experts, each of which gets only some tokens."""
    heads: int
    key_value_heads: int
    head_size: int
    cached_layers: int
    """Number of layers that cache keys and values."""
    vocabulary: int
    window: int | None
    """Tokens in attention's window and thus in the cache; None for all."""
    cross_attends: bool
    """Whether it is an encoder-decoder, which caches the prompt once, for the decoder's cross-attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vision:
    """The part of a model that takes images."""

    hidden: int
    intermediate: int
    patch: int
    """Pixels per side of a patch; 0 unless images become one sequence of patches (not for convolutions or stages of
    several widths)."""


def text_of(config: Mapping[str, Json], family: Family | None) -> Text | None:
    """The model's text part; None if it does not take text."""
    text_config = _part(config, TEXT_PARTS) or config
    vocabulary, hidden, heads = (
        _number(text_config, "vocab_size"),
        _number(text_config, *HIDDEN),
        _number(text_config, *HEADS),
    )
    if not vocabulary or not hidden:
        return None
    has_one_for_all = text_config.get("multi_query") is True and text_config.get("new_decoder_architecture") is not True
    grouped = _number(text_config, "num_key_value_heads", "num_kv_heads")
    key_value_heads = 1 if has_one_for_all else grouped or heads  # `multi_query` is of Falcon and BigCode
    # The shortest window is a lower bound even if some layers see all tokens.
    window = _number(text_config, "sliding_window") if text_config.get("use_sliding_window") is not False else 0
    has_experts = any("expert" in key for key in text_config)
    plugin = family_named(family)
    has_cache = heads > 0 and (plugin is None or plugin.has_attention_cache)
    return Text(
        hidden=hidden,
        intermediate=0 if has_experts else _number(text_config, *INTERMEDIATE),
        heads=heads,
        key_value_heads=key_value_heads if has_cache else 0,
        head_size=_number(text_config, *HEAD_SIZE) or (hidden // heads if heads else 0),
        cached_layers=_number(text_config, *DECODER_LAYERS) if has_cache else 0,
        vocabulary=vocabulary,
        window=window or None,
        cross_attends=config.get("is_encoder_decoder") is True,
    )


def vision_of(config: Mapping[str, Json]) -> Vision | None:
    """The model's vision part; None if it does not take images."""
    vision_config = _part(config, VISION_PARTS) or (
        config if "num_channels" in config or "image_size" in config else None
    )
    if vision_config is None:
        return None
    patch = 0 if "depths" in vision_config else _number(vision_config, "patch_size")
    return Vision(
        hidden=_number(vision_config, *HIDDEN), intermediate=_number(vision_config, *INTERMEDIATE), patch=patch
    )


def pixels(config: Mapping[str, Json], size: int) -> int:
    """Number of values of one image as an input: three colours, or the latents of a diffusion model."""
    if "_class_name" in config:
        return _number(config, "in_channels") * (size // PIXELS_PER_LATENT) ** 2
    return CHANNELS * size**2


def sound_values(config: Mapping[str, Json], seconds: float) -> int:
    """Number of values of one sound as an input and after the first convolution (wav2vec2's `conv_dim`,
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
    """The first positive integer under the names, else 0."""
    values = (config.get(name) for name in names)
    return next((v for v in values if is_whole(v) and v > 0), 0)
