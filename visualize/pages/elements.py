"""Elements of pages: tables of cells with links, charts with tables behind them, sparklines, numbers and times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.doubts import KINDS, sentence
from benchmarking.core.records import Point
from benchmarking.core.tables import FAILED_STATES, NOTHING, OK_STATES, Table
from benchmarking.core.text import duration, number, visible
from db.values import heading

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Tone = Literal["", "bad", "warn", "good", "muted"]
"""The colour of a cell. Its text states the same without the colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A view with its parameters; the site knows the address."""

    view: str
    parameters: DataclassInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a table."""

    text: str
    link: Link | None = None
    tone: Tone = ""
    hint: str | None = None
    """A tooltip; never the only place of a fact."""


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
    """Pages to choose from, as links in a site without forms."""

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
"""Share of the middle value; smaller variation is drawn nearly flat."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A reading over the last minutes, in a box of STRIP_WIDTH x STRIP_HEIGHT, with its numbers."""

    title: str
    now: str
    """The newest value with its unit."""
    low: str
    """Of the box."""
    high: str
    begin: str
    """When the box begins: "2 min ago"."""
    points: str
    """Of an SVG polyline; empty for a single value."""
    area: str
    """Of an SVG path: what is below the line."""
    words: str
    """For screen readers."""
    table: Grid


STRIP_WIDTH, STRIP_HEIGHT = 300.0, 60.0
LEAST_SPAN_S = 30.0
"""Of the time axis: a first few samples do not fill the box."""


def strip(
    title: str,
    unit: str,
    ages_s: Sequence[float],
    values: Sequence[float],
    *,
    scale: tuple[float, float] | None,
    table: Grid,
) -> Strip | None:
    """A reading over time from its values and their ages in seconds; None without values."""
    if not values:
        return None
    span_s = max(ages_s[0], LEAST_SPAN_S)
    low, high = scale or _around(min(values), max(values))
    places = [
        (
            round(STRIP_WIDTH * (1 - age / span_s), 1),
            round(STRIP_HEIGHT * (1 - (min(max(value, low), high) - low) / (high - low)), 1),
        )
        for age, value in zip(ages_s, values, strict=True)
    ]
    line = " ".join(f"{x:g},{y:g}" for x, y in places)
    first, last = places[0][0], places[-1][0]
    now = f"{number(values[-1], 3)} {unit}"
    begin = f"{duration(span_s)} ago"
    least, most = number(min(values), 3), number(max(values), 3)
    return Strip(
        title=title,
        now=now,
        low=number(low, 3),
        high=f"{number(high, 3)} {unit}",
        begin=begin,
        points=line,
        area=f"M{first:g},{STRIP_HEIGHT:g} L{line.replace(' ', ' L')} L{last:g},{STRIP_HEIGHT:g} Z",
        words=f"{title}: {now}; from {least} to {most} {unit} since {begin}; its numbers are in the table below it",
        table=table,
    )


def _around(low: float, high: float) -> tuple[float, float]:
    """A padded scale in which small variation is drawn nearly flat."""
    middle, half = (low + high) / 2, (high - low) / 2
    half = max(half * 1.1, abs(middle) * LEAST_RANGE / 2) or 1.0
    return max(0.0, middle - half) if low >= 0 else middle - half, middle + half


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
    if plain in FAILED_STATES:
        return "bad"
    if plain in ("faster", "improved", "better"):
        return "good"
    return "" if plain in OK_STATES else "muted" if plain in ("skipped", "not judged", "not comparable") else "warn"


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
    """What a doubt means and what to do about it."""
    return sentence(kind)


def doubt_tone(kind: str) -> Tone:
    """By its severity."""
    severity = KINDS[kind].severity if kind in KINDS else "info"
    return "bad" if severity == "invalid" else "muted" if severity == "info" else "warn"
