"""Elements of pages: tables with links, charts with tables of their values, sparklines, numbers and times."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import REQUEST_RATE, Point
from benchmarking.core.tables import FAILED_STATES, NOTHING, OK_STATES, Table
from benchmarking.core.text import first_few, number, size_text, visible
from db.values import heading
from visualize.drawing.loads import is_search
from visualize.drawing.rows import settings
from visualize.drawing.words import axis as axis_words
from visualize.drawing.words import short_point

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LARGE = re.compile(r"(-?[0-9]{4,})(\.[0-9]+)?")
WITH_UNIT = re.compile(r"(?<![\w.,-])[0-9]{4,}(?=(?: (?:tokens|items|requests?))?/s\b| (?:ms|MB|J)\b)")
"""A whole number in a sentence that is no part of a name."""
KIND = re.compile(r"^[a-z]+(?:_[a-z0-9]+)+(?= \()")
"""A kind of doubt at the beginning of a command's note, before its places."""
FLAG = re.compile(r"--[a-z][a-z-]*[a-z]")
MOST_OF_HALF = 14
"""Most letters of a value and its heading in half the width of a phone."""
Tone = Literal["", "bad", "warn", "good", "muted"]
"""Colour of a cell, whose text carries the same information."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A view with its parameters; the site provides the URL."""

    view: str
    parameters: DataclassInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a table."""

    text: str
    link: Link | None = None
    tone: Tone = ""
    hint: str | None = None
    """A tooltip, never the only source of a fact."""
    is_long: bool = False
    """A text that is cut off where the table does not fit its screen."""
    tick: str | None = None
    """Value of a box to tick, in sites with forms."""
    is_ticked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The heading of a column."""

    text: str
    is_number: bool = False
    """Right-aligned and never wrapped."""
    is_unseen: bool = False
    """For screen readers only."""
    link: Link | None = None
    """Sorts by the column."""
    sorted: Literal["ascending", "descending"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table."""

    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    """For screen readers."""
    note: str = ""
    """What the table lacks, above it."""

    def broad(self, row: Sequence[Cell]) -> set[int]:
        """The places of cells that take the whole width of the row's card on a phone: the first, long ones, and those
        that would be alone in their line."""
        found, half = {0}, set[int]()
        for place, one in enumerate(row[1:], 1):
            if one.text in (NOTHING, ""):
                continue  # not in the card
            if len(one.text) + len(self.headings[place].text) > MOST_OF_HALF:
                found |= {place, *half}
                half = set()
            else:
                half = set() if half else {place}
        return found | half


def alternatives(
    title: str, view: str, options: Iterable[tuple[str, DataclassInstance]], current: DataclassInstance | None
) -> SimpleNamespace:
    """Alternative pages of a view, shown as links in sites without forms, from (text, parameters): (text, page, whether
    it is the current page)."""
    links = ((text, Link(view=view, parameters=one), one == current) for text, one in options)
    return SimpleNamespace(title=title, options=tuple(links))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart with its text and a table of its values; `vega.chart` makes it from a figure."""

    title: str
    """A finding, if there is one."""
    subtitle: str
    caption: str
    source: str
    specs: tuple[Mapping[str, Any], ...]
    """Vega-Lite specification of each panel."""
    columns: int
    legend: tuple[SimpleNamespace, ...]
    legend_title: str | None
    table: Grid


WIDTH, HEIGHT = 120.0, 28.0
EDGE = 2.0
MOST_IN_HINT = 20
"""Most texts of a tooltip, which no browser can scroll."""
LEAST_RANGE = 0.1
"""Minimum range as a share of the middle value, so small variation looks flat."""


def spark(values: Sequence[float], unit: str) -> SimpleNamespace | None:
    """A sparkline over time in a box of WIDTH x HEIGHT: the points of an SVG polyline, its end, and words for screen
    readers; None for fewer than two values."""
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
    return SimpleNamespace(points=" ".join(f"{x:g},{y:g}" for x, y in places), end=places[-1], words=words)


def text_cell(value: object, *, link: Link | None = None, tone: Tone = "", hint: str | None = None) -> Cell:
    """A text, with control characters as escapes; "-" for None."""
    return Cell(text=NOTHING if value is None else visible(str(value)), link=link, tone=tone, hint=hint)


def further(texts: Sequence[str], separator: str = ", ") -> str | None:
    """The tooltip of a cell that names only the first of many: the next ones; None without any."""
    return first_few(texts, MOST_IN_HINT, separator) or None


def number_cell(value: float | None, *, hint: str | None = None) -> Cell:
    """A number with significant digits; "-" for None."""
    return Cell(text=NOTHING, tone="muted", hint=hint) if value is None else Cell(text=number_text(value), hint=hint)


def number_text(value: float) -> str:
    """A number with significant digits: "0.25", "12,346"."""
    return separated(number(value))


def separated(text: str) -> str:
    """A text, with thousands separators if it is a number of four whole digits or more, as in charts."""
    found = LARGE.fullmatch(text)
    return text if found is None else f"{int(found[1]):,}{found[2] or ''}"


def on_pages(sentence: str) -> str:
    """A sentence of a command as pages write it: numbers with a unit have thousands separators as in their tables, and
    kinds of doubt are words."""
    sentence = KIND.sub(lambda found: found[0].replace("_", " "), sentence)
    return WITH_UNIT.sub(lambda found: separated(found[0]), sentence).replace("<=", "≤").replace(">=", "≥")


def state_cell(word: str, *, hint: str | None = None) -> Cell:
    """A status, verdict or validity in its colour: "timed out"."""
    plain = word.replace("_", " ")
    tone: Tone = "" if plain in OK_STATES else "muted" if plain in ("skipped", "not judged") else "warn"
    if plain.startswith(FAILED_STATES):
        tone = "bad"
    elif plain in ("faster", "improved", "better"):
        tone = "good"
    return Cell(text=visible(plain), tone=tone, hint=hint)


def point_text(row: Mapping[str, Any]) -> str:
    """A result's point: "b1 s128 n16"; of a load, the rate and its requests: "4 requests/s, n16", or of a search for a
    rate, what it found: "highest rate, s128 n64"."""
    point = Point.from_columns(row)
    rate = point.axes.get(REQUEST_RATE)
    is_searched = bool(row.get("extra")) and is_search(row)
    if rate is None and not is_searched:
        return short_point(point)
    sizes = short_point(replace(point, axes={name: one for name, one in point.axes.items() if name != REQUEST_RATE}))
    if point.batch_size == 1:  # of every load
        sizes = sizes.removeprefix("b1").lstrip(", ")
    return ", ".join(filter(None, ("highest rate" if is_searched else axis_words(REQUEST_RATE, rate), sizes)))


def time_text(moment: datetime | None) -> str:
    """UTC, to the minute."""
    return NOTHING if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def started_text(moment: datetime | None, doubts: Collection[str]) -> str:
    """When a run started, in UTC; only the day of the file if another tool's file states no date."""
    return f"file of {moment:%Y-%m-%d}" if moment is not None and "undated" in doubts else time_text(moment)


def grid_of(table: Table, caption: str, links: Sequence[Link] = ()) -> Grid:
    """A grid from a table of a command; `links` apply to the first cell of each row."""
    return Grid(
        headings=tuple(
            Heading(text=visible(name), is_number=place in table.numbers) for place, name in enumerate(table.headings)
        ),
        rows=tuple(
            tuple(
                state_cell(text)
                if place in table.states
                else text_cell(
                    separated(text) if place in table.numbers else text,
                    link=links[number] if links and place == 0 else None,
                )
                for place, text in enumerate(row)
            )
            for number, row in enumerate(table.rows)
        ),
        caption=caption,
    )


def grid(
    columns: Mapping[str, Callable[[Any], Cell]], rows: Iterable[Any], caption: str, numbers: Iterable[str] = ()
) -> Grid:
    """A table with a column for each heading, whose function gives the cell of a row; `numbers` are right-aligned."""
    right = set(numbers)
    return Grid(
        headings=tuple(Heading(text=heading(name), is_number=name in right) for name in columns),
        rows=tuple(tuple(cell(row) for cell in columns.values()) for row in rows),
        caption=caption,
    )


def filled(columns: Mapping[str, Callable[[Any], Cell]], rows: Sequence[Any]) -> dict[str, Callable[[Any], Cell]]:
    """The columns in which some row has a value."""
    return {name: cell for name, cell in columns.items() if any(cell(row).text != NOTHING for row in rows)}


def column(name: str) -> Callable[[Any], Cell]:
    """The cells of a column of the warehouse, as text."""
    return lambda row: text_cell(row[name])


def size_column(name: str) -> Callable[[Any], Cell]:
    """The cells of a column of the warehouse with sizes in bytes."""
    return lambda row: text_cell(None if row[name] is None else size_text(row[name]))


def facts(given: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Names and values of those that are known, for a list of facts."""
    return tuple((name, visible(str(value))) for name, value in given.items() if value not in (None, ""))


def commit_text(row: Mapping[str, Any]) -> str | None:
    """The first letters of a run's commit, and whether its files had changes."""
    commit: str | None = row["git_commit"]
    return None if not commit else commit[:10] + (" with changes" if row["git_dirty"] else "")


def settings_text(text: str) -> str:
    """Runtime settings stored as JSON, in parentheses: " (attention=sdpa, cache=static)"; empty without settings."""
    known = settings(text)
    return f" ({known})" if known else ""
