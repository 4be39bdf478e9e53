"""From rows of the warehouse to lines, marks and panels of a figure: states, intervals, colours, what is thinned out,
heat maps (darker is faster), and trade-offs of two quantities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import Direction
from visualize.drawing import words
from visualize.drawing.figure import (
    Block,
    Colour,
    Element,
    Entry,
    Figure,
    Line,
    Mark,
    NotDrawn,
    Note,
    Panel,
    doubtful_entries,
    entries,
    spaced,
)
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    MODEL_COLUMNS,
    ChartPlugin,
    Row,
    axis_values,
    detail,
    file_details,
    trust,
)
from visualize.drawing.scales import name_axis, number, spans_decade, value_axis
from visualize.drawing.style import COLOURS, DASHES, dashes, heat, legible_on

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
    return (*entries(one.line(()) for one in series), *states_legend(rows))


def states_legend(rows: Iterable[Row], *, are_blocks: bool = False) -> tuple[Entry, ...]:
    """Explanations of hollow and crossed marks, if any row has one."""
    return doubtful_entries(map(trust, rows), are_blocks=are_blocks)


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
    about: Sequence[str] | None = None,
    place: Sequence[str] = (),
    names: Sequence[str] = (),
    **parts: Any,
) -> Figure:
    """The figure of a model or one of its cells.

    The title is the finding after the model's name, or else the chart's title; the subtitle has `about`, by default the
    task, the threads and processors if all results are bound to the same, and `place`. `names` ends the file name, and
    `parts` are further fields.
    """
    title = f"{key['model_id']}: {finding}" if finding else f"{chart.title}: {key['model_id']}"
    cell = [words.cell(key)] if chart.of_cell else []
    bound = [detail(column, key[column]) for column in ("num_threads", "cpu_list") if key.get(column) is not None]
    own: dict[str, Any] = {
        "title": title,
        "subtitle": words.subtitle(title, chart.title, *cell, *(about or [str(key["task"])]), *bound, *place),
        "source": words.provenance(list(drawn)),
        "panels": tuple(panels),
        "name_parts": (*(str(key[column]) for column in (CELL_COLUMNS if chart.of_cell else ("model_id",))), *names),
    }
    if "details" not in parts:  # a profile does not have all of these columns
        own["details"] = file_details(key, CELL_DETAIL_COLUMNS if chart.of_cell else MODEL_COLUMNS)
    return Figure(**{**own, **parts})


def not_drawn(chart: ChartPlugin, key: Row, why: str) -> NotDrawn:
    """The missing figure of a model or cell, and why it is missing."""
    cell = f" on {words.cell(key)}" if chart.of_cell else ""
    return NotDrawn(what=f"{chart.title}: {key['model_id']}{cell}", why=why)


def held(key: Row, **others: object) -> str:
    """What all results of a figure share, besides the batch size, in words."""
    return words.unbroken(words.point({**key, **others}, with_batch=False))


def held_names(key: Row, concurrency: int | None = None) -> tuple[str, ...]:
    """The same as parts of a file name."""
    return words.point_names(key["new_tokens"], concurrency or key["concurrency"], axis_values(key))


CELL_IN, LEAST_CELL_IN, MOST_GRID_IN = 0.42, 0.22, 6.5
FRONT_HEIGHT_IN = 4.2
NAME_WIDTH, NAME_HEIGHT = 0.16, 0.05
"""Room of a name, as shares of the panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a heat map."""

    value: float | None
    """None for a point that was not measured."""
    text: str
    is_invalid: bool = False
    """Whether the result is crossed out, and does not affect the colours."""
    words: str = ""
    """For tooltips."""


def heat_panel(
    cells: Mapping[tuple[int, int], Cell],
    columns: Sequence[str],
    rows: Sequence[str],
    *,
    better: Direction,
    title: str = "",
    x_title: str = "",
    y_title: str = "",
    row_in: float | None = None,
) -> Panel:
    """A heat map of cells by (column, row), rows from top to bottom."""
    values = [cell.value for cell in cells.values() if cell.value is not None and not cell.is_invalid]
    scale = math.log if spans_decade(values) else float
    low, high = (scale(end(values)) if values else 0.0 for end in (min, max))
    blocks = []
    for (column, row), one in sorted(cells.items()):
        share = None  # from 0 (slowest) to 1 (fastest), on a log scale if the values span a decade
        if one.value is not None and not one.is_invalid:
            share = (scale(one.value) - low) / (high - low) if high > low else 0.5
            share = share if better == "higher" else 1 - share
        fill = "page" if share is None else heat(share)
        blocks.append(
            Block(
                left=column - 0.48, right=column + 0.48, bottom=row - 0.46, top=row + 0.46, role=f"cell {column} {row}",
                fill=fill, state="invalid" if one.is_invalid else "valid", text=one.text,
                ink="grey" if one.value is None else "ink" if share is None else legible_on(fill), words=one.words,
            )
        )  # fmt: skip
    height = row_in or min(max(MOST_GRID_IN / len(rows), LEAST_CELL_IN), CELL_IN)
    return Panel(
        x=name_axis(columns, x_title), y=name_axis(rows, y_title, from_top=True), elements=tuple(blocks), title=title,
        height_in=max(2.2, 1.1 + height * len(rows)),
    )  # fmt: skip


def heat_key(values: Sequence[float], unit: str, *, better: Direction) -> tuple[Entry, ...]:
    """Legend entries of the slowest and the fastest colour."""
    if len(set(values)) < 2:
        return ()
    slow, fast = (min(values), max(values)) if better == "higher" else (max(values), min(values))
    return (
        Entry(label=f"light: slowest, {number(slow)} {unit}", colour=heat(0.0)),
        Entry(label=f"dark: fastest, {number(fast)} {unit}", colour=heat(1.0)),
    )


def front_panel(
    lines: Sequence[Line], front: Sequence[tuple[float, float, str]], x_title: str, y_title: str, *, is_cost: bool
) -> Panel:
    """A trade-off: marks at (x, y), and the Pareto front as a stepped line through (x, y, name).

    `is_cost`: lower x is better; else higher is.
    """
    values = [(one.x, one.y) for line in lines for one in line.marks]
    x = value_axis(x_title, [x for x, _ in values], room=1.2)
    y = value_axis(y_title, [y for _, y in values], room=1.15)
    places = [(x, y) for x, y, _ in front]
    step = Line(
        label="", role="front", colour="ink", shape=None, step="after" if is_cost else "before", width=1.2,
        marks=tuple(Mark(x=x, y=y) for x, y in places), in_table=False,
    )  # fmt: skip
    elements: list[Element] = [*lines, *([step] if front else [])]
    for at in spaced(places, x, y, NAME_WIDTH, NAME_HEIGHT):
        across, up, name = front[at]
        is_left = is_cost and x.share(across) > NAME_WIDTH
        elements.append(
            Note(x=across, y=up, text=name, dx=-6 if is_left else 6, dy=8, align="right" if is_left else "left")
        )
    return Panel(x=x, y=y, elements=tuple(elements), height_in=FRONT_HEIGHT_IN)
