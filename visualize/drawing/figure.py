"""What a chart shows, said once: panels of lines, blocks and rules with their axes, and the text around them.

`picture.py` draws a figure as an image file with matplotlib, `visualize.pages.vega` as a chart of a page or report.
Both take the words, order, colours and crosses from here, and add none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import groupby
from typing import Any, Literal, TypeVar, cast

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import first_few
from visualize.drawing.scales import Axis

T = TypeVar("T")
LEAST_ROW_IN = 0.16
"""Lowest row with gaps between its blocks."""
SAME_PLACE = 0.008
"""Distance of two marks that are one to the eye, as a share of the panel."""
MOST_COMPARED, MOST_HIDDEN = 64, 3
"""Most marks of a line that is compared with others, and most groups of such lines, and lines of a group, that a
caption names."""
State = Literal["valid", "doubtful", "invalid"]
Colour = int | str
"""Index of a series colour, "ink", "grey", "page" (the background), or "#rrggbb"; "on 3" or "on grey" is black or
white, whichever is legible on that colour in the theme."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A measured value at (x, y)."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    """95 % interval of y, or of x in lines with `is_across`."""
    state: State = "valid"
    """Filled if valid, hollow if doubtful, hollow and crossed out if invalid."""
    words: str = ""
    """What the mark is, for tooltips and tables: "batch 4, sequence 128"."""

    @property
    def has_interval(self) -> bool:
        """Whether both ends are known."""
        return self.low is not None and self.high is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A series: marks, joined by a line or not."""

    label: str
    marks: tuple[Mark, ...]
    role: str = "line"
    """What the line stands for, if it is not a measured series: "limit", "front", "offered"."""
    colour: Colour = 0
    shape: int | None = None
    """Index of the marker; None for a line without markers."""
    dashes: int | None = 0
    """Index of the dash pattern: solid, dashed, dotted, dash-dotted; None for markers without a line."""
    step: Literal["before", "after"] | None = None
    width: float = 1.6
    """In points."""
    size: float = 6.0
    """Of a marker, in points."""
    opacity: float = 1.0
    has_bands: bool = True
    """Whether neighbouring intervals are a band; if not, each is a whisker."""
    is_across: bool = False
    """Whether intervals are those of x."""
    in_table: bool = True

    @property
    def joined(self) -> tuple[Mark, ...]:
        """The marks that the line connects: all but invalid ones."""
        return () if self.dashes is None else tuple(mark for mark in self.marks if mark.state != "invalid")

    def intervals(self) -> tuple[list[list[Mark]], list[Mark]]:
        """Neighbours with intervals, drawn as bands, and marks without such neighbours, drawn as whiskers."""
        sound = [mark for mark in self.marks if mark.state != "invalid"]
        runs = [list(run) for known, run in groupby(sound, lambda one: one.has_interval) if known]
        if not self.has_bands:
            return [], [mark for run in runs for mark in run]
        return [run for run in runs if len(run) > 1], [run[0] for run in runs if len(run) == 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A line across the whole panel, at a value of one axis."""

    at: float
    along: Literal["x", "y"]
    """The axis that has the value: "x" for a vertical line."""
    role: str
    label: str = ""
    colour: Colour = "grey"
    dashes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A rectangle: a bar, a cell of a heat map, a part of a flame graph, a request."""

    left: float
    right: float
    bottom: float
    top: float
    role: str
    fill: Colour = 0
    """Hollow in this colour if doubtful; without a fill and crossed out if invalid."""
    state: State = "valid"
    text: str = ""
    """Text inside, cut off if the block is too narrow."""
    ink: Colour = "ink"
    align: Literal["left", "center"] = "center"
    words: str = ""
    """For tooltips."""
    opacity: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A text in a panel, shifted by (dx, dy) points to the right and up."""

    x: float
    y: float
    text: str
    dx: float = 0.0
    dy: float = 0.0
    align: Literal["left", "center", "right"] = "left"
    colour: Colour = "ink"
    in_share: bool = False
    """Whether `y` is a share of the panel's height instead of a value."""


Element = Line | Rule | Block | Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Elements on two axes."""

    x: Axis
    y: Axis
    elements: tuple[Element, ...]
    title: str = ""
    height_in: float = 3.5

    @property
    def lines(self) -> list[Line]:
        return [element for element in self.elements if isinstance(element, Line)]

    @property
    def rules(self) -> list[Rule]:
        return [element for element in self.elements if isinstance(element, Rule)]

    @property
    def blocks(self) -> list[Block]:
        return [element for element in self.elements if isinstance(element, Block)]

    def shows(self, mark: Mark) -> bool:
        """Whether a mark lies within both axes. It is then drawn whole, also at the end of one."""
        return self.x.low <= mark.x <= self.x.high and self.y.low <= mark.y <= self.y.high

    @property
    def hidden(self) -> list[tuple[str, ...]]:
        """Names of the lines of each group in which a later line covers an earlier one: each mark of the one lies
        beneath a mark of the other."""
        lines = [line for line in self.lines if line.label and line.in_table and line.shape is not None]
        drawn = [
            (line.label, [(self.x.share(mark.x), self.y.share(mark.y)) for mark in line.marks])
            for line in lines
            if 0 < len(line.marks) <= MOST_COMPARED
        ]

        groups: list[set[str]] = []
        for place, (name, marks) in enumerate(drawn):
            for other, others in drawn[place + 1 :]:
                is_beneath = all(
                    any(max(abs(x - left), abs(y - up)) < SAME_PLACE for left, up in others) for x, y in marks
                )
                if name != other and is_beneath:
                    met = [group for group in groups if group & {name, other}]
                    groups = [*(group for group in groups if group not in met), {name, other}.union(*met)]
        return [tuple(name for name in dict(drawn) if name in group) for group in groups]

    @property
    def is_dense(self) -> bool:
        """Whether its rows are too low for a gap between blocks, which then have an outline in their own colour: a
        short request among hundreds would be thinner than the gap."""
        return not self.y.names and self.height_in < LEAST_ROW_IN * abs(self.y.high - self.y.low)

    @property
    def notes(self) -> list[Note]:
        return [element for element in self.elements if isinstance(element, Note)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the legend."""

    label: str
    colour: Colour
    shape: int | None = None
    """Index of the marker; None for a patch, or for a bare line with `dashes`."""
    dashes: int | None = None
    state: State = "valid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with its text."""

    title: str
    """The finding, if valid results support one."""
    subtitle: str = ""
    """What all numbers share."""
    source: str = ""
    """Weights, launches and dates."""
    notes: tuple[str, ...] = ()
    """How to read the chart; what is left out, doubtful or missing."""
    panels: tuple[Panel, ...]
    columns: int = 1
    widths: tuple[float, ...] = ()
    """Relative widths of the columns; empty for equal ones."""
    width_in: float = 6.4
    legend: tuple[Entry, ...] = ()
    legend_title: str | None = None
    columns_of_table: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    """The values behind the chart, by named column; empty for those of the marks."""
    name_parts: tuple[str, ...] = ()
    """Parts of the file name after the chart's name: model, device, runtime, precision."""
    details: tuple[str, ...] = ()
    """Further facts, in the same order for every figure of a chart. Facts that differ are added to the file names of
    figures with equal names."""

    @property
    def caption(self) -> tuple[str, ...]:
        """The notes, and sentences about lines that hide others, and axes that do not start at zero."""
        axes = [axis for panel in self.panels for axis in (panel.x, panel.y) if axis.is_value or axis.is_log]
        logarithmic = list(dict.fromkeys(one_line(axis.title) for axis in axes if axis.is_log))
        has_linear = any(not axis.is_log for axis in axes)
        cut = any(not axis.is_log and axis.low > 0 for axis in axes)
        several = len(self.panels) > 1
        hidden = list(dict.fromkeys(lines for panel in self.panels for lines in panel.hidden))
        where = " in a panel" if several else ""
        separator = "; " if any("," in name for lines in hidden for name in lines) else ", "
        each = [
            " and ".join(lines) if len(lines) == 2 else first_few(lines, MOST_HIDDEN, separator) for lines in hidden
        ]
        is_of_legend = {name for lines in hidden for name in lines} <= {entry.label for entry in self.legend}
        title = self.legend_title if is_of_legend else None
        named = " ".join(filter(None, [title, first_few(each, MOST_HIDDEN, "; ")]))
        cells = [(panel.blocks, len(panel.x.names) * len(panel.y.names)) for panel in self.panels]
        covers = "one hides the other" if all(len(lines) == 2 for lines in hidden) else "they hide one another"
        said = [f"Nearly equal{where}, so that {covers}: {named}."] if hidden else []
        said += ["Empty cells were not measured."] if any(0 < len(blocks) < places for blocks, places in cells) else []
        if logarithmic:
            which = f": {', '.join(filter(None, logarithmic))}" if has_linear and any(logarithmic) else ""
            said.append(f"Logarithmic {'axes' if len(logarithmic) > 1 or (several and not which) else 'axis'}{which}.")
        said += ["Not all axes start at 0." if several else "The axis does not start at 0."] if cut else []
        return (*self.notes, *said)

    def table(self) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        """The column names and values behind the chart: those stated, or one row for each mark."""
        if self.columns_of_table:
            return self.columns_of_table, list(self.rows)
        lines = [line for panel in self.panels for line in panel.lines if line.in_table]
        has_interval = any(mark.has_interval for line in lines for mark in line.marks)
        named = len({panel.title for panel in self.panels}) > 1
        x_titles = list(dict.fromkeys(one_line(panel.x.title) for panel in self.panels if panel.x.title))
        head = ("panel",) * named + ("series", "point", x_titles[0] if len(x_titles) == 1 else "x")
        y_titles = list(dict.fromkeys(one_line(panel.y.title) for panel in self.panels if panel.y.title))
        single = len(y_titles) == 1
        head += (y_titles[0],) if single else ("of", "value")
        head += ("low", "high") * has_interval + ("state",)
        rows: list[tuple[object, ...]] = []
        for panel in self.panels:
            for line in panel.lines:
                for one in line.marks if line.in_table else ():
                    row: tuple[object, ...] = ((panel.title,) if named else ()) + (line.label, one.words)
                    row += (panel.x.text(one.x),)
                    row += () if single else (one_line(panel.y.title),)
                    row += (panel.y.text(one.y) if panel.y.names else one.y,)
                    row += (one.low, one.high) if has_interval else ()
                    rows.append((*row, one.state))
        if not rows:  # a heat map
            head = ("panel", "row", "column", "value")
            rows = [
                (
                    panel.title,
                    panel.y.text((block.bottom + block.top) / 2),
                    panel.x.text((block.left + block.right) / 2),
                    block.text,
                )
                for panel in self.panels
                for block in panel.blocks
            ]
        keep = [at for at, name in enumerate(head) if any(row[at] not in (None, "") for row in rows)]
        return tuple(head[at] for at in keep), [tuple(row[at] for at in keep) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDrawn:
    """An expected figure that is missing, and why."""

    what: str
    why: str
    alone: Figure | None = None
    """The figure, if it has one point or setup: drawn where a named chart has no other, or no chart has any."""


def one_line(text: str) -> str:
    """A title of several lines as one: "Time to first token (ms), lower is better"."""
    return re.sub(r"\s(lower|higher) is better$", r", \1 is better", text.replace("\n", " "))


def with_texts(part: T, changed_text: Callable[[str], str]) -> T:
    """A figure, or a part of one, with its texts changed."""
    changed: Any = part
    if isinstance(part, str):
        changed = changed_text(part)
    elif isinstance(part, tuple):
        if any(not isinstance(one, int | float) for one in part):
            changed = tuple(with_texts(one, changed_text) for one in part)
    elif is_dataclass(part) and not isinstance(part, type):
        values = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
        new = {name: text for name, value in values.items() if (text := with_texts(value, changed_text)) != value}
        changed = replace(part, **new) if new else part
    return cast(T, changed)


def entries(lines: Iterable[Line]) -> tuple[Entry, ...]:
    """Legend entries of the lines, in order."""
    return tuple(
        Entry(label=line.label, colour=line.colour, shape=line.shape, dashes=line.dashes)
        for line in lines
        if line.label
    )


def doubtful_entries(
    states: Iterable[State], crossed: str = "invalid, not ranked", *, are_blocks: bool = False
) -> tuple[Entry, ...]:
    """Legend entries that explain hollow and crossed marks, if there are any."""
    shape, found = None if are_blocks else 0, set(states)
    every = (
        Entry(label="hollow: doubtful", colour="grey", shape=shape, state="doubtful"),
        Entry(label=f"crossed: {crossed}", colour="ink", shape=shape, state="invalid"),
    )
    return tuple(one for one in every if one.state in found)


def end_notes(axis: Axis, ends: Sequence[tuple[float, float, str]], height_in: float) -> tuple[Note, ...]:
    """The names of lines to the right of their ends (x, y, name); overlapping names are moved up, as far as the panel
    goes, and then down."""
    ordered, line = sorted(ends, key=lambda end: end[1]), 0.14 / height_in
    shares: list[float] = []
    for _, y, _ in ordered:
        shares.append(max(axis.share(y), shares[-1] + line if shares else 0.0))
    for place in range(len(shares)):
        shares[-1 - place] = min(shares[-1 - place], 1.0 - line * place)
    return tuple(
        Note(x=x, y=share, text=name, dx=7, in_share=True) for share, (x, _, name) in zip(shares, ordered, strict=True)
    )


def spaced(places: Sequence[tuple[float, float]], x: Axis, y: Axis, width: float, height: float) -> list[int]:
    """Indices of places whose labels do not overlap; earlier places take precedence. `width` and `height` of a label
    are shares of the panel."""
    kept: list[int] = []
    shares = [(x.share(across), y.share(up)) for across, up in places]
    for at, (across, up) in enumerate(shares):
        if all(abs(across - shares[other][0]) >= width or abs(up - shares[other][1]) >= height for other in kept):
            kept.append(at)
    return kept


def pareto(items: Sequence[T], key: Callable[[T], tuple[float, float]]) -> list[T]:
    """Of items with (cost, gain), those that no other item beats on both, by rising cost."""
    best: list[T] = []
    for one in sorted(items, key=lambda item: (key(item)[0], -key(item)[1])):
        if not best or key(one)[1] > key(best[-1])[1]:
            best.append(one)
    return best
