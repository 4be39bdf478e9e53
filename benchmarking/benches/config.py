"""What one measurement of somebody's benchmark is of, and every combination of such things."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarking.cli_support import choice
from benchmarking.errors import UsageError
from benchmarking.records import PRECISIONS, Point, Precision, Scalar

COUNTS = ("batch_size", "sequence_length", "new_tokens", "iterations")
"""Fields that are whole numbers from 1, or None where that is their default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkConfig:
    """One thing to measure. Raises UsageError for a value that cannot be."""

    name: str
    """What the results are found by: their model_id."""
    variant: str | None = None
    """Which way of doing it ("compiled", "static cache"): variants are different series of results."""
    batch_size: int = 1
    """Items a call, which throughput counts."""
    sequence_length: int | None = None
    """Tokens of each item's input."""
    new_tokens: int | None = None
    """Tokens generated for each item."""
    axes: Mapping[str, int | float] = field(default_factory=dict)
    """Further places on the grid by name, such as image_size."""
    device: str = "auto"
    """As `--device` takes it."""
    precision: Precision = "float32"
    iterations: int | None = None
    """Exactly this many timed calls a launch; None: until the interval is narrow enough, as the profile says."""
    warmup_iterations: int | None = None
    """Exactly this many calls before them; None: until steady."""
    options: Mapping[str, Scalar] = field(default_factory=dict)
    """Whatever else the benchmark wants to know; other options make another series of results."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Labels of the run."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise UsageError(f"a benchmark's name is a text: got {self.name!r}")
        choice(self.precision, PRECISIONS, f"precision of {self.name}")
        for count in COUNTS:
            _check_count(self, count, least=1)
        _check_count(self, "warmup_iterations", least=0)
        for mapping, kinds in (("axes", (int, float)), ("options", (bool, int, float, str)), ("tags", (str,))):
            _check_mapping(self, mapping, kinds)

    @property
    def point(self) -> Point:
        """The place on the grid."""
        return Point(
            batch_size=self.batch_size,
            sequence_length=self.sequence_length,
            new_tokens=self.new_tokens,
            axes=dict(self.axes),
        )


def create_config_variants(base: BenchmarkConfig, values: Mapping[str, Sequence[Any]]) -> tuple[BenchmarkConfig, ...]:
    """Every combination of the values by field, all else as in `base`; the last field varies fastest.

    Raises UsageError for a field that there is not, with near names, and for values that are no list.
    """
    known = tuple(f.name for f in dataclasses.fields(BenchmarkConfig))
    for name, listed in values.items():
        choice(name, known, "field of BenchmarkConfig")
        if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Sequence) or not listed:
            raise UsageError(f"create_config_variants: {name} takes a list of values: got {listed!r}")
    combinations = itertools.product(*values.values())
    return tuple(dataclasses.replace(base, **dict(zip(values, each, strict=True))) for each in combinations)


def _check_count(config: BenchmarkConfig, name: str, *, least: int) -> None:
    value = getattr(config, name)
    if value is None and name != "batch_size":
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name} of {config.name} takes a whole number from {least}: got {value!r}")


def _check_mapping(config: BenchmarkConfig, name: str, kinds: tuple[type, ...]) -> None:
    mapping = getattr(config, name)
    if not isinstance(mapping, Mapping):
        raise UsageError(f"{name} of {config.name} takes a mapping: got {mapping!r}")
    for key, value in mapping.items():
        if not isinstance(key, str) or not isinstance(value, kinds):
            what = " or ".join(kind.__name__ for kind in kinds)
            raise UsageError(f"{name} of {config.name} maps names to {what}: got {key!r}: {value!r}")
