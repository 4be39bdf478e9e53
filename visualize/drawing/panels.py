"""Panels that several charts share: heat maps, in which darker is faster, and trade-offs of two quantities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarking.core.metrics import Direction
from visualize.drawing.figure import Block, Element, Entry, Line, Mark, Note, Panel, spaced
from visualize.drawing.scales import Axis, name_axis, number, spans_decade, value_axis
from visualize.drawing.style import heat, legible_on

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
    values = [one.value for one in cells.values() if one.value is not None and not one.is_invalid]
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
    x = name_axis(columns, x_title)
    labels = tuple((float(place), name) for place, name in enumerate(rows))
    y = Axis(
        title=y_title, low=-0.5, high=len(rows) - 0.5, ticks=labels, from_top=True, names=tuple(rows), has_grid=False
    )
    height = row_in or min(max(MOST_GRID_IN / len(rows), LEAST_CELL_IN), CELL_IN)
    return Panel(x=x, y=y, elements=tuple(blocks), title=title, height_in=max(2.2, 1.1 + height * len(rows)))


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
