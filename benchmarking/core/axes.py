"""The axes of the grid: flags, keys in lists, records, columns, tables and charts all derive from this table.

A new axis with a column needs one entry here, one migration that adds the column, and a family that has the axis.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import flag_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its values, and its name in each place."""

    name: str
    """The field of `Point` or the key in `Point.axes`, and the column in benchmark_results."""
    key: str
    """The name of a list of values: the field of `Request`, the key in a YAML list, the flag with `-` for `_`."""
    kind: type[int] | type[float] = int
    """int: whole numbers from 1; float: numbers above 0."""
    other_flags: tuple[str, ...] = ()
    is_field: bool = False
    """Whether it is a field of `Point` and `Request` rather than a key of their `axes`."""
    of_every_model: bool = False
    """Whether all workloads have it, not only some families."""
    default: tuple[int, ...] | None = None
    """Values when none are given; None: the family decides."""
    default_words: str | None = None
    """What the family decides, in words."""
    implied: int | None = None
    """The value that labels, tables and commands omit; None for none."""
    work_exponent: int = 1
    """The work of a call grows with this power of the value."""
    letter: str | None = None
    """Abbreviation in a point's label ("b" in "b4"); None for "name=value"."""
    selected_as: str | None = None
    """Its name in selections of results ("batch" in batch=4); None when selections have no name for it."""
    noun: str
    """Name in messages."""
    heading: str
    """Heading of its column in tables."""
    unit: str = ""
    """Unit of the values; empty for counts."""
    value: str
    """Template of a value in charts, for `str.format`; a final plural "s" is dropped for 1."""
    title: str
    """Title of a chart's axis or legend, with the unit."""
    help: str
    """What it is, in the help text of the flag, which adds the default."""

    @property
    def flag(self) -> str:
        """The flag for a list of values: "--batch-sizes"."""
        return flag_of(self.key)

    def in_words(self, value: float) -> str:
        """A value with its name or unit: "sequence 128", "image 224 px", "1 document"."""
        words = self.value.format(value)
        return words.removesuffix("s") if value == 1 else words


DEFAULT_BATCH_SIZES = (1, 2, 4, 8)

AXES: Mapping[str, Axis] = {
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
            help="tokens per sequence",
            default_words="128,512 for text",
        ),
        Axis(
            name="new_tokens",
            key="new_tokens",
            other_flags=("--num-tokens-to-generate",),
            is_field=True,
            letter="n",
            selected_as="new_tokens",
            noun="number of new tokens",
            heading="new tokens",
            value="{:,} new tokens",
            title="Tokens generated per sequence",
            help="tokens to generate per sequence",
            default_words="16",
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
            help="requests in flight",
            default_words="1",
        ),
        Axis(
            name="image_size",
            key="image_sizes",
            work_exponent=2,
            noun="image size",
            heading="image px",
            unit="px",
            value="image {:,} px",
            title="Image size (pixels per side)",
            help="image width and height in pixels",
            default_words="the model's own",
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
            help="seconds of audio per input",
            default_words="10; 30 for Whisper",
        ),
        Axis(
            name="steps",
            key="steps",
            noun="number of steps",
            heading="steps",
            value="{:,} steps",
            title="Denoising steps",
            help="denoising steps per call of a diffusion model",
            default_words="20",
        ),
        Axis(
            name="documents",
            key="documents",
            noun="number of documents",
            heading="documents",
            value="{:,} documents",
            title="Documents in the corpus",
            help="documents in the corpus of retrieval-augmented generation",
            default_words="10000",
        ),
        Axis(
            name="top_k",
            key="top_k",
            noun="top-k",
            heading="top-k",
            value="top-{}",
            title="Documents retrieved (top-k)",
            help="documents retrieved per question",
            default_words="5",
        ),
    )
}
"""By name, in the order of flags, tables and captions."""

POINT_FIELDS: tuple[str, ...] = tuple(name for name, axis in AXES.items() if axis.is_field)
"""Axes that are fields of `Point`."""
FURTHER: Mapping[str, Axis] = {name: axis for name, axis in AXES.items() if not axis.is_field}
"""Axes in `Point.axes` with a column; axes that are not in the table are stored in the column `axes` only."""
POINT_COLUMNS: tuple[str, ...] = (*POINT_FIELDS, "axes")
"""All columns of a point; `axes` is JSON."""
BY_KEY: Mapping[str, Axis] = {axis.key: axis for axis in AXES.values()}


def is_fractional(name: str) -> bool:
    """Whether the axis takes fractions; an axis that is not in the table takes whole numbers."""
    return name in AXES and AXES[name].kind is float
