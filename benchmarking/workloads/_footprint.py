"""Whether a point can fit into memory: a lower bound of what it needs, from the configuration alone.

weights      parameters x bytes of a value at the precision
activations  the largest of these moments of a call, in values x bytes of a value:
             - the prompt's last layer: its cache + batch x tokens x (hidden + intermediate); with eager attention
               batch x (tokens x hidden + 2 x heads x tokens^2), the scores before and after softmax, where that is more
             - the last step: the whole cache + logits (batch x vocabulary); of fill-mask logits for every token
             - a layer of the vision part: batch x patches x (hidden + intermediate)
             with the inputs beside them: batch x 3 x size^2 of pictures, or the latents of a diffusion model; batch x
             samples x (1 + channels / stride) of the first convolution over sound
cache        2 x layers x batch x key-value heads x head size x tokens: keys and values
Activations and cache are there once for every request in flight.

It is a bound from below: what it refuses cannot run, what it lets through may still run out of memory. Loading is taken
to need the weights once, as it does: random ones are filled in place, pretrained ones copied out of a mapped file whose
pages the system takes back. What a configuration does not tell counts as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarking.devices._free_memory import FREE, TOTAL, free_host_bytes, free_memory
from benchmarking.errors import StorageError, UnsupportedError, UsageError
from benchmarking.records import NOT_SUPPORTED, Cell, Point, Precision, Readings, Workload
from benchmarking.runtimes._placement import copies
from benchmarking.workloads._dimensions import Text, pixels, sound_values, text_of, vision_of
from benchmarking.workloads._weight_files import value_count, weight_files

VALUE_BYTES: Mapping[Precision, float] = {
    "float32": 4,
    "tf32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int8": 1,
    "int4": 0.5,
}
"""Of a weight. Activations of quantized models are at least float16."""
MIN_ACTIVATION_BYTES = 2
BYTES_PER_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a cell's weights need, and what there is for them."""

    cell: Cell
    weights_bytes: int | None
    free: Readings
    """`free_memory_bytes` of the device, or the reason and `device_memory_bytes`."""

    @classmethod
    def of(cls, cell: Cell) -> Fit:
        """Looks at the memory that is free now, and at the headers of the weight files."""
        count = parameter_count(cell.workload)
        weights_bytes = None if count is None else int(count * VALUE_BYTES[cell.precision])
        return cls(cell=cell, weights_bytes=weights_bytes, free=free_memory(cell.device))

    def why_not(self, point: Point) -> str | None:
        """None, or how much more the point needs than there is. None too when one of both is not known."""
        limit = self.free.values.get(FREE, self.free.values.get(TOTAL))
        if self.weights_bytes is None or not isinstance(limit, int):
            return None
        activations = activation_bytes(self.cell, point)
        if self.weights_bytes * copies(self.cell) + activations > limit:
            where = f"{'free' if FREE in self.free.values else 'in all'} on {self.cell.device.selector}"
            times = f" on each of {copies(self.cell)} devices" if copies(self.cell) > 1 else ""
            return self._refusal(f"{times} + {_size(activations)} for {point.label}", f"{_size(limit)} {where}")
        host = free_host_bytes()
        if self.cell.workload.weights == "random" and self.weights_bytes > host:
            return self._refusal(", which are made in host memory,", f"{_size(host)} free on the host")
        return None

    def refused(self, points: Iterable[Point], *, may_skip: bool) -> dict[str, str]:
        """Reasons by label for the points that do not fit. Raises UnsupportedError for the first, unless they may be
        skipped."""
        reasons = {point.label: why for point in points if (why := self.why_not(point)) is not None}
        if reasons and not may_skip:
            raise UnsupportedError(next(iter(reasons.values())))
        return reasons

    @property
    def readings(self) -> Readings:
        """For the run's record: `weights_needed_bytes` and `free_memory_bytes`, or why there was nothing to check."""
        if self.weights_bytes is None:
            unknown = f"{NOT_SUPPORTED}: the parameters of {self.cell.workload.model_id} have not been counted"
            return self.free | Readings(missing={"weights_needed_bytes": unknown})
        return self.free | Readings(values={"weights_needed_bytes": self.weights_bytes})

    def _refusal(self, what_else: str, what_is_there: str) -> str:
        return (
            f"{self.cell.workload.model_id} needs {_size(self.weights_bytes or 0)} for weights{what_else} at "
            f"{self.cell.precision}, {what_is_there}: take a lower precision, a smaller model or --skip-unsupported"
        )


def parameter_count(workload: Workload) -> int | None:
    """Parameters as the catalog has them, or as the headers of the weight files count them (a head that the task leaves
    out is then among them); None when neither tells."""
    if workload.parameter_count is not None or workload.path is None or workload.weights != "pretrained":
        return workload.parameter_count
    try:
        return sum(value_count(path) for path in weight_files(Path(workload.path)))
    except (StorageError, UsageError):
        return None  # weights in a layout of another library, which the family's own loader knows


def activation_bytes(cell: Cell, point: Point) -> int:
    """The least that a call at the point holds beside the weights."""
    config, batch, axes = cell.workload.config, point.batch_size, point.axes
    vision, text = vision_of(config), text_of(config, cell.workload.family)
    size, moments = int(axes.get("image_size", 0)), [0]
    if vision is not None and vision.patch:
        moments.append(batch * (size // vision.patch) ** 2 * (vision.hidden + vision.intermediate))
    if text is not None and point.sequence_length is not None:
        has_scores = cell.runtime_mode.get("attention") == "eager"
        moments.append(_text_values(text, cell.workload.task, point, has_scores=has_scores))
    inputs = batch * (pixels(config, size) + sound_values(config, axes.get("audio_seconds", 0)))
    values = (inputs + max(moments)) * point.concurrency
    return int(values * max(VALUE_BYTES[cell.precision], MIN_ACTIVATION_BYTES))


def cache_values(text: Text, batch: int, prompt: int, new: int) -> int:
    """Keys and values that the cache holds once `new` tokens have been taken in after the prompt."""
    per_token = 2 * text.cached_layers * batch * text.key_value_heads * text.head_size
    if text.cross_attends:
        return per_token * (prompt + new)
    tokens = prompt + new
    return per_token * (tokens if text.window is None else min(tokens, text.window))


def _text_values(text: Text, task: str, point: Point, *, has_scores: bool) -> int:
    batch, tokens, new = point.batch_size, point.sequence_length or 0, point.new_tokens
    layer = batch * tokens * (text.hidden + text.intermediate)
    scores = batch * (tokens * text.hidden + 2 * text.heads * tokens**2) if has_scores else 0
    if new is None:
        logits = batch * tokens * text.vocabulary if task == "fill-mask" else 0
        return max(layer, scores, logits)
    prompt_cache = 0 if text.cross_attends else cache_values(text, batch, tokens, 0)
    # The last token is not taken in any more; an encoder-decoder's first one is its start token.
    taken_in = new if text.cross_attends else new - 1
    last_step = cache_values(text, batch, tokens, taken_in) + batch * text.vocabulary
    return max(prompt_cache + max(layer, scores), last_step)


def _size(count: float) -> str:
    """Bytes for people: in GB, small ones in MB."""
    if count < BYTES_PER_GB / 10:
        return f"{count / 1e6:.1f} MB"
    return f"{count / BYTES_PER_GB:.1f} GB"
