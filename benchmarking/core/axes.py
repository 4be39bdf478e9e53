"""The axes of the grid: every place that names, reads, stores, prints or draws one takes it from this table.

An axis with a column costs one entry here, one migration that adds the column, and the family that has the axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: what its values are, and what it is called in each place."""

    name: str
    """Its field of `Point` or its key in `Point.axes`, and its column in benchmark_results."""
    key: str
    """A list of its values: the field of `Request`, the key in a YAML list, the flag with `-` for `_`."""
    kind: type[int] | type[float] = int
    """int for whole numbers from 1, float for numbers above 0."""
    is_field: bool = False
    """Whether it is a field of `Point` and `Request`, and not a key of their `axes`."""
    of_every_model: bool = False
    """Whether every workload has it, and not only some families."""
    default: tuple[int, ...] | None = None
    """Values of a grid that names none; None leaves them to the workload's family."""
    implied: int | None = None
    """The value that labels, tables and commands leave out; None for none."""
    work_exponent: int = 1
    """Power of the value that the work of a call grows with."""
    letter: str | None = None
    """What a point's label abbreviates it by ("b" in "b4"); None for "name=value"."""
    selected_as: str | None = None
    """Its name in a selection of results ("batch" in batch=4); None where selections do not name it."""
    noun: str
    """Its name in messages."""
    heading: str
    """Of its column in tables."""
    unit: str = ""
    """Of its values; empty for counts."""
    value: str
    """A value in a chart's words, for `str.format`; of 1 without the plural s at its end."""
    title: str
    """What a chart's axis or legend is headed by, with the unit."""
    help: str
    """Of its flag."""

    @property
    def flag(self) -> str:
        """The flag that takes a list of its values: "--batch-sizes"."""
        return f"--{self.key.replace('_', '-')}"

    def in_words(self, value: float) -> str:
        """A value in words: "sequence 128", "image 224 px", "1 document"."""
        words = self.value.format(value)
        return words.removesuffix("s") if value == 1 else words


DEFAULT_BATCH_SIZES = (1, 2, 4, 8)

AXES: Mapping[str, Axis] = MappingProxyType(
    {
        axis.name: axis
        for axis in (
            Axis(
                name="batch_size",
                key="batch_sizes",
                is_field=True,
                of_every_model=True,
                default=DEFAULT_BATCH_SIZES,
                letter="b",
                selected_as="batch",
                noun="batch size",
                heading="batch",
                value="batch {}",
                title="Batch size (inputs per call)",
                help="sequences, images, ... per call",
            ),
            Axis(
                name="sequence_length",
                key="sequence_lengths",
                is_field=True,
                letter="s",
                selected_as="sequence",
                noun="sequence length",
                heading="sequence",
                value="sequence {:,}",
                title="Sequence length (tokens)",
                help="tokens per sequence; default 128,512 for text",
            ),
            Axis(
                name="new_tokens",
                key="new_tokens",
                is_field=True,
                letter="n",
                selected_as="new_tokens",
                noun="number of new tokens",
                heading="new tokens",
                value="{} new tokens",
                title="Tokens generated per sequence",
                help="tokens to generate per sequence, where the task generates; default 16",
            ),
            Axis(
                name="concurrency",
                key="concurrency",
                is_field=True,
                of_every_model=True,
                implied=1,
                letter="c",
                selected_as="concurrency",
                noun="number of requests in flight",
                heading="in flight",
                value="{} requests in flight",
                title="Requests in flight",
                help="requests in flight; more than 1 with openvino's --hint throughput",
            ),
            Axis(
                name="image_size",
                key="image_sizes",
                work_exponent=2,
                noun="image size",
                heading="image px",
                unit="px",
                value="image {:,} px",
                title="Image size (pixels a side)",
                help="pixels a side, where images go in or come out; default the model's own",
            ),
            Axis(
                name="audio_seconds",
                key="audio_seconds",
                kind=float,
                noun="length of audio",
                heading="audio s",
                unit="s",
                value="{:g} s of audio",
                title="Audio in each input (s)",
                help="seconds of speech per sequence",
            ),
            Axis(
                name="steps",
                key="steps",
                noun="number of steps",
                heading="steps",
                value="{:,} steps",
                title="Denoising steps",
                help="denoising steps per call of a diffusion model",
            ),
            Axis(
                name="documents",
                key="documents",
                noun="number of documents",
                heading="documents",
                value="{:,} documents",
                title="Documents in the corpus",
                help="documents of the corpus of retrieval-augmented generation",
            ),
            Axis(
                name="top_k",
                key="top_k",
                noun="top-k",
                heading="top-k",
                value="top-{}",
                title="Documents retrieved (top-k)",
                help="documents retrieved per question",
            ),
        )
    }
)
"""By name, in the order of flags, tables and captions."""

POINT_FIELDS: tuple[str, ...] = tuple(name for name, axis in AXES.items() if axis.is_field)
"""The axes that are fields of `Point`."""
FURTHER: Mapping[str, Axis] = MappingProxyType({name: axis for name, axis in AXES.items() if not axis.is_field})
"""The axes of `Point.axes` that have a column of their own; others are kept in the column `axes` alone."""
POINT_COLUMNS: tuple[str, ...] = (*POINT_FIELDS, "axes")
"""The columns that hold a whole point; `axes` is JSON."""
BY_KEY: Mapping[str, Axis] = MappingProxyType({axis.key: axis for axis in AXES.values()})


def is_fractional(name: str) -> bool:
    """Whether values on the axis need not be whole; those on an axis that is not in the table must be."""
    return name in AXES and AXES[name].kind is float
