"""From rows of the warehouse to lines and marks of a figure: states, intervals, colours, and what is thinned out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from visualize.drawing import words
from visualize.drawing.figure import (
    Colour,
    Entry,
    Figure,
    Line,
    Mark,
    NotDrawn,
    Panel,
    State,
    doubtful_entries,
    entries,
)
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    MODEL_COLUMNS,
    ChartPlugin,
    Row,
    axis_values,
    details,
    trust,
)
from visualize.drawing.style import COLOURS, DASHES, dashes

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Rows that are one line, with its look in every panel."""

    label: str
    rows: tuple[Row, ...]
    style: int
    """Index of its marker and, without `place`, of its colour."""
    is_simulated: bool = False
    """Whether it is drawn in grey, unlike real devices."""
    place: int | None = None
    """Index of its device; the line then has the device's colour."""
    twin: int = 0
    """Index among the lines of its device."""

    @property
    def colour(self) -> Colour:
        """Colour of the line, its markers and its band."""
        if self.is_simulated:
            return "grey"
        return (self.style if self.place is None else self.place) % len(COLOURS)

    @property
    def dashes(self) -> int:
        """Dash pattern, which distinguishes lines of the same colour."""
        return dashes(self.style) if self.place is None else self.twin % len(DASHES)

    def line(self, marks: Iterable[Mark], **look: Any) -> Line:
        """A line of the series."""
        own = {"label": self.label, "colour": self.colour, "shape": self.style, "dashes": self.dashes}
        return Line(**{**own, "marks": tuple(marks), **look})

    @property
    def entry(self) -> Entry:
        """Its entry in the legend."""
        return entries([self.line(())])[0]


def configuration_series(labels: Sequence[str], groups: Sequence[tuple[Row, Sequence[Row]]]) -> list[Series]:
    """One series per configuration (label, key and rows). If there are several devices, each keeps its colour of every
    chart, and its lines differ in marker and dashes; on a single device, each line has its own colour."""
    places = [rows[0]["device_place"] for _, rows in groups]
    several = len(set(places)) > 1
    return [
        Series(
            label=label,
            rows=tuple(rows),
            style=style,
            is_simulated=bool(key["simulated"]),
            place=places[style] if several else None,
            twin=places[:style].count(places[style]),
        )
        for style, (label, (key, rows)) in enumerate(zip(labels, groups, strict=True))
    ]


def mark(
    row: Row,
    x: float,
    y: float,
    *,
    low: float | None = None,
    high: float | None = None,
    named: Callable[[Row], str] = words.point,
) -> Mark:
    """The mark of a result."""
    return Mark(x=float(x), y=float(y), low=low, high=high, state=trust(row), words=named(row))


def marks_of(
    rows: Iterable[Row], x: str | Callable[[Row], float], y: str = "value", named: Callable[[Row], str] = words.point
) -> tuple[Mark, ...]:
    """Marks of the rows that have a value, by rising x, with the interval `low` to `high` of the column "value"."""
    at = x if callable(x) else (lambda row: row[x])
    found = [
        mark(
            row, at(row), row[y], low=row.get("low") if y == "value" else None,
            high=row.get("high") if y == "value" else None, named=named,
        )
        for row in rows
        if row[y] is not None and at(row) is not None
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: one.x))


def legend(series: Sequence[Series], rows: Iterable[Row]) -> tuple[Entry, ...]:
    """One entry per series, and explanations of hollow and crossed marks if there are any."""
    return (*(one.entry for one in series), *states_legend(rows))


def states_legend(rows: Iterable[Row], *, are_blocks: bool = False) -> tuple[Entry, ...]:
    """Explanations of hollow and crossed marks, if any row has one."""
    states: set[State] = {trust(row) for row in rows}
    return doubtful_entries(states, are_blocks=are_blocks)


def ends(rows: Iterable[Row], *columns: str) -> list[float]:
    """All values of the columns, by default of the value and its interval."""
    return [row[name] for row in rows for name in columns or ("value", "low", "high") if row[name] is not None]


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most `most` (two or more) items, evenly spread from first to last."""
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def figure(
    chart: ChartPlugin,
    key: Row,
    drawn: Iterable[Row],
    panels: Iterable[Panel],
    finding: str | None = None,
    *,
    of_cell: bool = False,
    about: Sequence[str] | None = None,
    place: Sequence[str] = (),
    names: Sequence[str] = (),
    **parts: Any,
) -> Figure:
    """The figure of a model or, with `of_cell`, of one of its cells.

    The title is the finding after the model's name, or else the chart's title; the subtitle has `about`, by default the
    task, and `place`. `names` ends the file name, and `parts` are further fields.
    """
    title = f"{key['model_id']}: {finding}" if finding else f"{chart.title}: {key['model_id']}"
    cell = [words.cell(key)] if of_cell else []
    own: dict[str, Any] = {
        "title": title,
        "subtitle": words.subtitle(title, chart.title, *cell, *(about or [str(key["task"])]), *place),
        "source": words.provenance(list(drawn)),
        "panels": tuple(panels),
        "name_parts": (*(str(key[column]) for column in (CELL_COLUMNS if of_cell else ("model_id",))), *names),
    }
    if "details" not in parts:  # a profile does not have all of these columns
        own["details"] = details(key, CELL_DETAIL_COLUMNS if of_cell else MODEL_COLUMNS)
    return Figure(**{**own, **parts})


def not_drawn(chart: ChartPlugin, key: Row, why: str, *, of_cell: bool = False) -> NotDrawn:
    """The missing figure of a model or cell, and why it is missing."""
    cell = f" on {words.cell(key)}" if of_cell else ""
    return NotDrawn(what=f"{chart.title}: {key['model_id']}{cell}", why=why)


def held(key: Row, **others: object) -> str:
    """What all results of a figure share, besides the batch size, in words."""
    return words.unbroken(words.point({**key, "batch_size": 1, **others}, with_batch=False))


def held_names(key: Row, concurrency: int | None = None) -> tuple[str, ...]:
    """The same as parts of a file name."""
    return words.point_names(key["new_tokens"], concurrency or key["concurrency"], axis_values(key))
