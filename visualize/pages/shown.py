"""What templates draw: tables of cells with links, charts with the table behind them, sparklines, numbers and times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.doubts import KINDS, sentence
from benchmarking.core.metrics import Metric
from benchmarking.core.records import Point
from benchmarking.core.tables import FAILURES, FINE, NOTHING, Table
from benchmarking.core.text import number, visible
from db.values import heading

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Tone = Literal["", "bad", "warn", "good", "muted"]
"""How a cell is coloured. Its text says the same without the colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A view with its parameters; the site that draws it knows the address."""

    view: str
    parameters: DataclassInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a table."""

    text: str
    link: Link | None = None
    tone: Tone = ""
    hint: str | None = None
    """Shown when the pointer is on it; never the only place of a fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The heading of a column."""

    text: str
    is_number: bool = False
    """Right-aligned, and never folded."""
    link: Link | None = None
    """Sorts by it."""
    sorted: Literal["ascending", "descending"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table."""

    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    """For screen readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Pages to choose from, which a site without forms links to."""

    title: str
    options: tuple[tuple[str, Link, bool], ...]
    """Text, page, and whether it is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart, its words, and the numbers in it."""

    title: str
    """The finding where there is one."""
    caption: str
    spec: Mapping[str, Any]
    """Of Vega-Lite."""
    table: Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """A sparkline: values in the order of time, in a box of WIDTH x HEIGHT."""

    points: str
    """Of an SVG polyline."""
    end: tuple[float, float]
    words: str
    """For screen readers."""


WIDTH, HEIGHT = 120.0, 28.0
EDGE = 2.0
LEAST_RANGE = 0.1
"""Of the middle: smaller variation is drawn nearly flat."""


def spark(values: Sequence[float], unit: str) -> Spark | None:
    """The sparkline; None for fewer than two values."""
    if len(values) < 2:
        return None
    low, high = min(values), max(values)
    middle = (low + high) / 2
    half = max((high - low) / 2, abs(middle) * LEAST_RANGE / 2) or 1.0
    step = (WIDTH - 2 * EDGE) / (len(values) - 1)
    places = [
        (round(EDGE + step * place, 1), round(HEIGHT / 2 - (value - middle) / half * (HEIGHT / 2 - EDGE), 1))
        for place, value in enumerate(values)
    ]
    words = f"{len(values)} runs, from {number(values[0])} to {number(values[-1])} {unit}".rstrip()
    return Spark(points=" ".join(f"{x:g},{y:g}" for x, y in places), end=places[-1], words=words)


def text_cell(value: object, *, link: Link | None = None, tone: Tone = "", hint: str | None = None) -> Cell:
    """A text, with control characters as escapes; "-" for None."""
    return Cell(text=NOTHING if value is None else visible(str(value)), link=link, tone=tone, hint=hint)


def number_cell(value: float | None, *, hint: str | None = None) -> Cell:
    """A number in significant digits; "-" for None."""
    return Cell(text=NOTHING, tone="muted", hint=hint) if value is None else Cell(text=number(value), hint=hint)


def state_cell(word: str, *, hint: str | None = None) -> Cell:
    """A status, verdict or validity in its tone."""
    return Cell(text=visible(word), tone=tone_of(word), hint=hint)


def tone_of(word: str) -> Tone:
    """The tone of a status, verdict or validity."""
    plain = word.replace("_", " ")
    if plain in FAILURES:
        return "bad"
    if plain in ("faster", "improved", "better"):
        return "good"
    return "" if plain in FINE else "muted" if plain in ("skipped", "not judged", "not comparable") else "warn"


PER_SECOND = re.compile(r"_(tokens|samples)_per_sec$")


def metric_words(metric: Metric) -> str:
    """A metric's name with its unit: "latency p99 (ms)"."""
    if metric.title:
        return metric.title
    name = PER_SECOND.sub("", metric.column.removesuffix(f"_{metric.unit.lower()}")).replace("_", " ")
    return f"{name} ({metric.unit})" if metric.unit else name


def point_text(row: Mapping[str, Any]) -> str:
    """The point of a result: "b1 s128"."""
    return Point.from_columns(row).label


def time_text(moment: datetime | None) -> str:
    """UTC, to the minute."""
    return NOTHING if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def grid_of(table: Table, caption: str, links: Sequence[Link] = ()) -> Grid:
    """A table of the commands; `links` are those of the first cell of each row."""
    return Grid(
        headings=tuple(
            Heading(text=visible(name), is_number=place in table.numbers) for place, name in enumerate(table.headings)
        ),
        rows=tuple(
            tuple(
                state_cell(text)
                if place in table.states
                else text_cell(text, link=links[number] if links and place == 0 else None)
                for place, text in enumerate(row)
            )
            for number, row in enumerate(table.rows)
        ),
        caption=caption,
    )


def headings(names: Iterable[str], numbers: Iterable[str] = ()) -> tuple[Heading, ...]:
    """Headings of columns, those in `numbers` right-aligned."""
    right = set(numbers)
    return tuple(Heading(text=heading(name), is_number=name in right) for name in names)


def doubt_sentence(kind: str) -> str:
    """What a doubt means and what to do."""
    return sentence(kind)


def doubt_tone(kind: str) -> Tone:
    """By its severity."""
    severity = KINDS[kind].severity if kind in KINDS else "info"
    return "bad" if severity == "invalid" else "muted" if severity == "info" else "warn"
