"""Draws results against the batch size: one line a group, its interval as a band, doubtful points hollow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from visualize import words
from visualize.charts import Drawing, NotDrawn, Row
from visualize.charts._rows import CELL, CELL_DETAILS, POINT, details, grouped, is_doubtful, is_ok
from visualize.layout import Words, finish, new_figure
from visualize.style import BAND_ALPHA, GREY, colour, line_style, look, marker, scale_batch_axis, scale_value_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BATCH_LABEL = "Batch size (inputs per call)"
ALIKE = tuple(column for column in POINT if column != "sequence_length")
"""What is the same all over a picture of one cell."""
WIDTH_IN, PANEL_HEIGHT_IN = 6.4, 3.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one line joins. Each row has `batch_size`, `value`, and an interval `low` to `high` or None."""

    label: str
    rows: tuple[Row, ...]
    style: int
    """Number of its colour and marker; the same group has the same one in every panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPicture:
    """What one of the charts against the batch size has of its own."""

    title: str
    value_label: Callable[[Row], str]
    """The name and unit of what is drawn, for rows like this one."""
    notes: Callable[[Sequence[Row]], Sequence[str]]
    """What the caption must say about the interval."""
    reference: Callable[[Sequence[Row]], tuple[str, float] | None] = lambda rows: None
    """A horizontal line to compare with: (label, value)."""


def draw_cells(picture: BatchPicture, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
    """A picture for each cell (and number of new tokens, and so on), a line for each sequence length."""
    for key, members in grouped(rows, (*CELL, *CELL_DETAILS, *ALIKE)):
        drawn = [row for row in members if is_ok(row) and row["value"] is not None]
        if drawn:
            yield _drawing(picture, key, members, drawn)
        else:
            what = f"{picture.title}: {key['model_id']} on {words.cell(key)}"
            yield NotDrawn(what=what, why=words.nothing_to_draw(members))


def draw_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw the lines with their bands or, where there is nothing to join, whiskers. Scales are left to the caller.

    What is drawn is labelled "_line 128", "_band 128" and so on; matplotlib keeps such labels out of legends.
    """
    for line in lines:
        rows = sorted(line.rows, key=lambda row: row["batch_size"])
        sizes, values = [row["batch_size"] for row in rows], [row["value"] for row in rows]
        axes.plot(
            sizes, values, line_style(line.style), color=colour(line.style), zorder=3, label=f"_line {line.label}"
        )
        _draw_interval(axes, line, rows)
        for doubtful in (False, True):
            chosen = [row for row in rows if is_doubtful(row) is doubtful]
            if chosen:
                axes.plot(
                    [row["batch_size"] for row in chosen],
                    [row["value"] for row in chosen],
                    linestyle="none",
                    color=colour(line.style),
                    marker=marker(line.style),
                    markerfacecolor="white" if doubtful else colour(line.style),
                    label=f"_{'doubtful' if doubtful else 'valid'} {line.label}",
                    zorder=5 if doubtful else 4,
                )


def scale(panels: Sequence[Axes], rows: Sequence[Row], also: Sequence[float] = (), most_ticks: int = 8) -> None:
    """Scales for panels that share their axes, from all that is drawn in them."""
    sizes = sorted({int(row["batch_size"]) for row in rows})
    ends = [row[column] for row in rows for column in ("value", "low", "high") if row[column] is not None]
    for axes in panels:
        scale_batch_axis(axes, sizes, most_ticks)
        scale_value_axis(axes, [*ends, *also])


def legend_entries(lines: Sequence[Line], rows: Sequence[Row]) -> tuple[Any, ...]:
    """An artist for each line's legend entry, and one that explains hollow marks where there are any."""
    from matplotlib.lines import Line2D

    entries = [
        Line2D(
            [],
            [],
            color=colour(line.style),
            linestyle=line_style(line.style),
            marker=marker(line.style),
            label=line.label,
        )
        for line in lines
    ]
    if any(is_doubtful(row) for row in rows):
        entries.append(doubtful_entry())
    return tuple(entries)


def doubtful_entry() -> Any:
    """The legend entry that explains hollow marks."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="none", label="hollow: doubtful")


def _drawing(picture: BatchPicture, key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Drawing:
    lines = [
        Line(label=words.count(group["sequence_length"]), rows=tuple(rows), style=style)
        for style, (group, rows) in enumerate(grouped(drawn, ("sequence_length",)))
    ]
    with look():
        figure, (axes,) = new_figure(WIDTH_IN, PANEL_HEIGHT_IN)
        draw_lines(axes, lines)
        reference = picture.reference(drawn)
        scale([axes], drawn, [reference[1]] if reference else [])
        axes.set(xlabel=BATCH_LABEL, ylabel=picture.value_label(key))
        has_tokens = any(row["sequence_length"] is not None for row in drawn)
        entries = legend_entries(lines if has_tokens else (), drawn)
        if reference:
            entries += (axes.axhline(reference[1], color=GREY, linestyle="--", label=reference[0]),)
        finish(figure, _words(picture, key, members, drawn, entries, has_tokens))
    return Drawing(
        figure=figure,
        named_by=(*(str(key[column]) for column in CELL), *words.point_names(key)),
        told_apart_by=details(key, CELL_DETAILS),
    )


def _words(
    picture: BatchPicture,
    key: Row,
    members: Sequence[Row],
    drawn: Sequence[Row],
    entries: tuple[Any, ...],
    has_tokens: bool,
) -> Words:
    fixed = (
        words.cell(key),
        str(key["task"]),
        _unbroken(words.point({**key, "sequence_length": None}, with_batch=False)),
    )
    return Words(
        title=f"{picture.title}: {key['model_id']}",
        subtitle=words.SEPARATOR.join(part for part in fixed if part),
        notes=words.caption(members, drawn, *picture.notes(drawn)),
        legend=entries,
        legend_title="Sequence length (tokens)" if has_tokens else None,
    )


def _unbroken(text: str) -> str:
    """The text with no-break spaces, so that a line does not end inside it."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _draw_interval(axes: Axes, line: Line, rows: Sequence[Row]) -> None:
    """A band over neighbours that have an interval, a whisker for one whose neighbours have none."""
    sizes = [row["batch_size"] for row in rows]
    low, high = ([math.nan if row[end] is None else row[end] for row in rows] for end in ("low", "high"))
    known = [False, *(not math.isnan(end) for end in low), False]
    alone = [
        row for row, *there in zip(rows, known, known[1:], known[2:], strict=False) if there == [False, True, False]
    ]
    if sum(known) > len(alone):
        band = axes.fill_between(sizes, low, high, color=colour(line.style), alpha=BAND_ALPHA, linewidth=0, zorder=2)
        band.set_label(f"_band {line.label}")
    for row in alone:
        ends, label = [row["low"], row["high"]], f"_whisker {line.label}"
        axes.plot([row["batch_size"]] * 2, ends, color=colour(line.style), marker="_", markersize=9, label=label)
