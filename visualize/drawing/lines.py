"""Line charts: markers by validity, intervals as bands, legends, and the shared charts against batch size."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from benchmarking.core.axes import AXES
from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, label_ends, new_figure
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    Drawing,
    NotDrawn,
    Row,
    axis_values,
    details,
    grouped,
    is_ok,
    measured_apart,
    trust,
    varying,
)
from visualize.drawing.style import (
    BAND_ALPHA,
    COLOURS,
    MARKER_EDGE,
    MARKER_SIZE,
    colour,
    line_style,
    look,
    marker,
    scale_batch_axis,
    scale_value_axis,
    theme,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

T = TypeVar("T")
BATCH_LABEL = AXES["batch_size"].title
ALIKE = ("new_tokens", "concurrency")
"""The axes that all results of a picture share; the other axes make lines."""
MOST_LINES = 10
"""Maximum lines of a picture. With more, the axes with the fewest values make separate pictures; a single axis with
more values is thinned out."""
WIDTH_IN, PANEL_HEIGHT_IN = 6.4, 3.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line; its rows have `batch_size`, `value`, and the interval `low` to `high` or None."""

    label: str
    rows: tuple[Row, ...]
    style: int
    """Index of its colour and marker, the same in every panel."""
    is_simulated: bool = False
    """Whether it is drawn in grey, unlike real devices."""
    place: int | None = None
    """Index of its device; the line then has the device's colour."""
    dashes: int = 0
    """Index among the lines of its device."""

    @property
    def colour(self) -> str:
        """Colour of the line, its markers and its band."""
        if self.is_simulated:
            return look().grey
        return colour(self.style if self.place is None else self.place)

    @property
    def line_style(self) -> Literal["-", "--", ":", "-."]:
        """Dash pattern, which distinguishes lines of the same colour."""
        return line_style(self.style if self.place is None else self.dashes * len(COLOURS))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPicture:
    """The settings of one chart against batch size."""

    title: str
    value_label: Callable[[Row], str]
    """Name and unit of the values of a row."""
    notes: Callable[[Sequence[Row]], Sequence[str]]
    """Caption sentences about the interval."""
    also_by_sequence: bool = False
    """Whether a second panel shows the results against sequence length."""
    quantity: str | None = None
    """Name of the quantity in titles: "peak memory"."""
    has_interval: bool = True
    """Whether the quantity has an interval; if not, titles state plain ratios of readings."""
    reference: Callable[[Sequence[Row]], tuple[str, float] | None] = lambda rows: None
    """A horizontal reference line: (label, value)."""


def draw_cells(picture: BatchPicture, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
    """One picture per cell, number of new tokens and concurrency; one line per sequence length, image size etc."""
    for key, members in grouped(rows, (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS, *ALIKE)):
        if not any(map(_is_drawn, members)):
            what = f"{picture.title}: {key['model_id']} on {words.cell(key)}"
            yield NotDrawn(what=what, why=words.nothing_to_draw(members))
            continue
        for fixed, part in _parts(members):
            drawn = [row for row in part if _is_drawn(row)]
            if drawn:
                yield _drawing(picture, {**members[0], **key}, fixed, part, drawn)


def draw_lines(axes: Axes, lines: Sequence[Line], x: str = "batch_size") -> None:
    """Draw lines against column `x`, with markers and with bands, or whiskers for points without neighbours.

    Artists are labelled "_line 128", "_valid 128", "_band 128" and so on; matplotlib keeps such labels out of legends.
    The caller sets the scales.
    """
    for line in lines:
        rows = sorted(line.rows, key=lambda row: row[x])
        sound = [row for row in rows if trust(row) != "invalid"]
        axes.plot(
            [row[x] for row in sound], [row["value"] for row in sound], color=line.colour,
            linestyle=line.line_style, zorder=3, label=f"_line {line.label}",
        )  # fmt: skip
        _draw_interval(axes, line, sound, x)
        draw_trusted(axes, [(row[x], row["value"], row) for row in rows], line.colour, line.style, line.label)


def configuration_lines(labels: Sequence[str], groups: Sequence[tuple[Row, Sequence[Row]]]) -> list[Line]:
    """One line per configuration (label, key and rows). If there are several devices, each keeps its colour of every
    chart, and its lines differ in marker and dashes; on a single device, each line has its own colour."""
    places = [rows[0]["device_place"] for _, rows in groups]
    several = len(set(places)) > 1
    return [
        Line(
            label=label,
            rows=tuple(rows),
            style=style,
            is_simulated=bool(key["simulated"]),
            place=places[style] if several else None,
            dashes=places[:style].count(places[style]),
        )
        for style, (label, (key, rows)) in enumerate(zip(labels, groups, strict=True))
    ]


def draw_trusted(
    axes: Axes, points: Sequence[tuple[float, float, Row]], own: str, style: int, label: str, size: float = MARKER_SIZE
) -> None:
    """Draw a marker at each (x, y): filled if its row is valid, hollow if doubtful, hollow and crossed out if invalid.
    Artists are labelled "_valid 128", "_doubtful 128", "_invalid 128" and "_crossed 128"."""
    for state in ("valid", "doubtful", "invalid"):
        chosen = [(x, y) for x, y, row in points if trust(row) == state]
        hollow = state != "valid"
        draw_marks(axes, chosen, own, style, hollow=hollow, label=f"_{state} {label}", size=size)
        if state == "invalid" and chosen:
            x, y = zip(*chosen, strict=True)
            axes.scatter(
                x, y, marker="x", s=(1.7 * size) ** 2, color=look().ink, linewidth=1.2, zorder=6,
                label=f"_crossed {label}",
            )  # fmt: skip


def draw_marks(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    own: str,
    style: int,
    *,
    hollow: bool,
    label: str,
    size: float = MARKER_SIZE,
) -> None:
    """Draw markers of colour `own` and marker index `style` above lines."""
    if not points:
        return
    x, y = zip(*points, strict=True)
    axes.scatter(
        x, y, color=look().background if hollow else own, edgecolor=own, linewidth=MARKER_EDGE, s=size**2,
        marker=marker(style), zorder=5 if hollow else 4, label=label,
    )  # fmt: skip


def scale(panels: Sequence[Axes], rows: Sequence[Row], also: Sequence[float] = (), most_ticks: int = 8) -> None:
    """Set the scales of panels that share their axes, from all rows drawn in them."""
    sizes = sorted({int(row["batch_size"]) for row in rows})
    ends = [row[column] for row in rows for column in ("value", "low", "high") if row[column] is not None]
    for axes in panels:
        scale_batch_axis(axes, sizes, most_ticks)
        scale_value_axis(axes, [*ends, *also])


def legend_entries(lines: Sequence[Line], rows: Sequence[Row]) -> tuple[Line2D, ...]:
    """One legend entry per line, and explanations of hollow and crossed markers if there are any."""
    entries = [legend_entry(line.label, line.colour, line.style, linestyle=line.line_style) for line in lines]
    return (*entries, *doubtful_entries(rows))


def doubtful_entries(rows: Sequence[Row]) -> tuple[Line2D, ...]:
    """Legend entries that explain hollow and crossed markers, if any row has one."""
    states = set(map(trust, rows))
    entries = []
    if "doubtful" in states:
        entries.append(legend_entry("hollow: doubtful", look().grey, 0, markerfacecolor=look().background))
    if "invalid" in states:
        entries.append(legend_entry("crossed: invalid, not ranked", look().ink, 0, marker="x"))
    return tuple(entries)


def legend_entry(label: str, own: str, style: int, **options: Any) -> Line2D:
    """A legend entry of colour `own` and marker index `style`, without a line unless `options` has a line style."""
    from matplotlib.lines import Line2D

    usual: dict[str, Any] = {
        "linestyle": "none", "marker": marker(style), "markersize": MARKER_SIZE, "markeredgewidth": MARKER_EDGE
    }  # fmt: skip
    return Line2D([], [], color=own, label=label, **{**usual, **options})


def _is_drawn(row: Row) -> bool:
    return is_ok(row) and row["value"] is not None


def _parts(members: Sequence[Row]) -> list[tuple[dict[str, float | None], list[Row]]]:
    """Rows of each picture, with its values on the axes that distinguish pictures.

    All rows go into one picture unless that has too many lines. Failed points follow drawn points.
    """
    drawn = [row for row in members if _is_drawn(row)]
    lines, apart = list(varying(drawn)), list[str]()
    while len(lines) > 1 and len({_at(row, lines) for row in drawn}) > MOST_LINES:
        fewest = min(lines, key=lambda name: len({_at(row, [name]) for row in drawn}))
        lines.remove(fewest)
        apart.append(fewest)
    return [(dict(zip(apart, place, strict=True)), rows) for place, rows in _by_axes(members, apart)]


def _by_axes(rows: Sequence[Row], names: Sequence[str]) -> list[tuple[tuple[float | None, ...], list[Row]]]:
    """Rows grouped and sorted by their values on the axes."""
    groups = grouped([{**row, **dict(zip(names, _at(row, names), strict=True))} for row in rows], names)
    return [(tuple(key.values()), members) for key, members in groups]


def _at(row: Row, names: Sequence[str]) -> tuple[float | None, ...]:
    return tuple(axis_values(row).get(name) for name in names)


def _line_axes(drawn: Sequence[Row]) -> tuple[str, ...]:
    """The axes that distinguish lines; sequence length, if present, when no axis varies."""
    alone = ("sequence_length",) if drawn[0]["sequence_length"] is not None else ()
    return varying(drawn) or alone


def _lines_of(drawn: Sequence[Row], names: Sequence[str]) -> list[Line]:
    """One line per combination of values on the axes, sorted."""
    return [
        Line(label=_line_label(place, names), rows=tuple(rows), style=style)
        for style, (place, rows) in enumerate(_by_axes(drawn, names))
    ]


def _line_label(place: Sequence[float | None], names: Sequence[str]) -> str:
    if len(names) < 2:
        return words.count(place[0] if place else None)
    return ", ".join(words.axis(name, value) for name, value in zip(names, place, strict=True))


def _drawing(
    picture: BatchPicture, key: Row, fixed: dict[str, float | None], members: Sequence[Row], drawn: Sequence[Row]
) -> Drawing:
    names = _line_axes(drawn)
    every_line = _lines_of(drawn, names)
    lines = [replace(line, style=style) for style, line in enumerate(spread(every_line, MOST_LINES))]
    with theme():
        second = picture.also_by_sequence and names == ("sequence_length",) and len(lines) > 1
        columns = 2 if second else 1
        figure, (axes, *others) = new_figure(WIDTH_IN * (1 + second / 2), PANEL_HEIGHT_IN, 1, columns, sharex=False)
        draw_lines(axes, lines)
        if others:
            _draw_by_sequence(others[0], drawn, len(lines))
        reference = picture.reference(drawn)
        scale([axes], drawn, [reference[1]] if reference else [])
        axes.set(xlabel=BATCH_LABEL, ylabel=picture.value_label(key))
        entries = legend_entries(lines if names else (), drawn)
        if reference:
            entries += (axes.axhline(reference[1], color=look().grey, linestyle="--", label=reference[0]),)
        left_out = words.left_out(len(every_line) - len(lines), len(every_line), "lines")
        finish(figure, _figure_text(picture, key, members, drawn, entries, names, left_out))
    return Drawing(
        figure=figure,
        name_parts=(
            *(str(key[column]) for column in CELL_COLUMNS),
            *words.point_names(key["new_tokens"], key["concurrency"], fixed),
        ),
        details=details(key, CELL_DETAIL_COLUMNS),
    )


def _draw_by_sequence(axes: Axes, drawn: Sequence[Row], first_style: int) -> None:
    """The results against sequence length: one line per batch size, labelled at its end."""
    groups = grouped(drawn, ("batch_size",))
    lines = [
        Line(label=words.axis("batch_size", key["batch_size"]), rows=tuple(rows), style=first_style + number)
        for number, (key, rows) in enumerate(groups)
    ]
    draw_lines(axes, lines, "sequence_length")
    scale_batch_axis(axes, sorted({row["sequence_length"] for row in drawn}), 6)
    scale_value_axis(axes, [row[end] for row in drawn for end in ("value", "low", "high") if row[end] is not None])
    axes.set_xlabel(words.axis_title("sequence_length"))
    lasts = [max(line.rows, key=lambda row: row["sequence_length"]) for line in lines]
    label_ends(
        axes,
        [
            (last["sequence_length"], last["value"], line.label, line.colour)
            for line, last in zip(lines, lasts, strict=True)
        ],
    )


def _figure_text(
    picture: BatchPicture,
    key: Row,
    members: Sequence[Row],
    drawn: Sequence[Row],
    entries: tuple[Any, ...],
    names: Sequence[str],
    left_out: str | None,
) -> FigureText:
    same = {name: value for name, value in axis_values(drawn[0]).items() if name not in names}
    held = {**key, "sequence_length": same.pop("sequence_length", None), "axes": json.dumps(same)}
    fixed = (words.cell(key), str(key["task"]), words.unbroken(words.point(held, with_batch=False)))
    title = _title(picture, key, drawn, names)
    return FigureText(
        title=title,
        subtitle=words.subtitle(title, picture.title, *fixed),
        source=words.provenance(drawn),
        notes=words.caption(members, drawn, *picture.notes(drawn), lacking=[left_out]),
        legend=entries,
        legend_title=_legend_title(names),
    )


def _title(picture: BatchPicture, key: Row, drawn: Sequence[Row], names: Sequence[str]) -> str:
    """The ratio of the quantity at the largest and smallest batch size (a range over several lines), if valid results
    of one command support it."""
    sizes = sorted({row["batch_size"] for row in drawn})
    ends = [_ends(rows, sizes, has_interval=picture.has_interval) for _, rows in _by_axes(drawn, names)]
    if picture.quantity is None or len(sizes) < 2 or None in ends or measured_apart(drawn) or key["simulated"]:
        return f"{picture.title}: {key['model_id']}"
    ratios = [last["value"] / first["value"] for first, last in filter(None, ends)]
    least, most = (f"{ratio:.2g}" for ratio in (min(ratios), max(ratios)))
    times = "about" if least == most == "1" else f"{least if least == most else f'{least} to {most}'} times"
    same = "the same as" if times == "about" else "that"
    return f"{key['model_id']}: {picture.quantity} at batch {sizes[-1]} is {times} {same} at batch {sizes[0]}"


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most `most` (two or more) items, evenly spread from first to last."""
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def _ends(rows: Sequence[Row], sizes: Sequence[int], *, has_interval: bool) -> tuple[Row, Row] | None:
    """The results at the smallest and largest batch size, if both are valid and their intervals do not overlap."""
    at = {row["batch_size"]: row for row in rows}
    first, last = at.get(sizes[0]), at.get(sizes[-1])
    if first is None or last is None or not first["value"] or {trust(first), trust(last)} != {"valid"}:
        return None
    if not has_interval:
        return first, last
    if None in (first["low"], first["high"], last["low"], last["high"]):
        return None
    return (first, last) if first["high"] < last["low"] or last["high"] < first["low"] else None


def _legend_title(names: Sequence[str]) -> str | None:
    """The axis with its unit; None for several axes, which each entry names."""
    return words.axis_title(names[0]) if len(names) == 1 else None


def _draw_interval(axes: Axes, line: Line, rows: Sequence[Row], x: str) -> None:
    """A band over neighbours with intervals, and a whisker at a point whose neighbours have none."""
    sizes = [row[x] for row in rows]
    low, high = ([math.nan if row[end] is None else row[end] for row in rows] for end in ("low", "high"))
    known = [False, *(not math.isnan(end) for end in low), False]
    alone = [
        row for row, *there in zip(rows, known, known[1:], known[2:], strict=False) if there == [False, True, False]
    ]
    if sum(known) > len(alone):
        band = axes.fill_between(sizes, low, high, color=line.colour, alpha=BAND_ALPHA, linewidth=0, zorder=2)
        band.set_label(f"_band {line.label}")
    for row in alone:
        ends, label = [row["low"], row["high"]], f"_whisker {line.label}"
        axes.plot(
            [row[x]] * 2,
            ends,
            color=line.colour,
            marker="_",
            markersize=9,
            markeredgewidth=MARKER_EDGE,
            label=label,
        )
