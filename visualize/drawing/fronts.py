"""Trade-offs of two quantities: each option as a mark, and the Pareto front as a stepped line."""

from __future__ import annotations

from collections.abc import Sequence

from visualize.drawing.figure import Element, Line, Mark, Note, Panel, spaced
from visualize.drawing.scales import value_axis

HEIGHT_IN = 4.2
NAME_WIDTH, NAME_HEIGHT = 0.16, 0.05
"""Room of a name, as shares of the panel."""


def front_panel(
    lines: Sequence[Line], front: Sequence[tuple[float, float, str]], x_title: str, y_title: str, *, is_cost: bool
) -> Panel:
    """Marks at (x, y), and the front through (x, y, name). `is_cost`: lower x is better; else higher is."""
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
    return Panel(x=x, y=y, elements=tuple(elements), height_in=HEIGHT_IN)
