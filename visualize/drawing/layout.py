"""Layout of a figure: title above, panels in the middle, legend and caption below, without clipped text.

Text is measured and wrapped first, and the figure is made as tall as necessary; matplotlib's constrained layout then
arranges only the panels.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from visualize.drawing.style import FONT, SMALL_SIZE, SUBTITLE_SIZE, TEXT_SIZE, TITLE_SIZE, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Text

MARGIN_IN = 0.16
GAP_IN = 0.09
LINE_SPACING = 1.3
LEADER = {"arrowstyle": "-", "linewidth": 1.4, "shrinkA": 1, "shrinkB": 4, "relpos": (0, 0.5)}
"""The leader from the end of a line to its label."""
POINTS_PER_INCH = 72
PANEL_SHARE = 0.75
"""Approximate share of the panels in a figure's initial height; the rest is tick and axis labels."""
DRAWN_SHARE = 0.97
"""Share of a width that text may occupy according to font metrics, since text is drawn wider at low resolution."""
LEGEND_MARK_IN = 0.4
"""Minimum width of a legend entry without its label: marker and spacing."""
ORPHAN = 3
"""A last line of at most this many characters takes the previous word with it."""
LONG_WORD = 30
"""Words with more characters may be broken at separators; shorter words stay whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureText:
    """Text around the panels."""

    title: str
    subtitle: str
    """What all results of the picture share: device, runtime, precision, task, point."""
    source: str = ""
    """Source of the data: weights, launches, dates."""
    notes: tuple[str, ...] = ()
    """Sentences of the caption, usually two: how to read the picture, and what is doubtful or missing."""
    legend: tuple[Any, ...] = ()
    """Labelled artists, in reading order."""
    legend_title: str | None = None


@dataclass(slots=True)
class _TextBlock:
    """Texts with their positions from the top, collected before the figure's height is known."""

    texts: list[tuple[Text, float]] = field(default_factory=list)
    height_in: float = MARGIN_IN


def new_figure(
    width_in: float, panels_height_in: float, rows: int = 1, columns: int = 1, **sharing: Any
) -> tuple[Figure, list[Axes]]:
    """A figure without pyplot, and its panels row by row. Panels share both axes by default; `sharing` is passed to
    `Figure.subplots`. `finish` adds the text."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, panels_height_in))
    FigureCanvasAgg(figure)
    options = {"sharex": True, "sharey": True, **sharing}
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def label_edges(panels: Sequence[Axes], used: int, columns: int, x_label: str, y_label: str) -> None:
    """Label the axes of the left and lowest panels of a grid, and remove panels after the first `used`."""
    for index, panel in enumerate(panels):
        if index >= used:
            panel.remove()
            continue
        if index + columns >= used:
            panel.tick_params(labelbottom=True)
            panel.set_xlabel(x_label, visible=True)
        if index % columns == 0:
            panel.set_ylabel(y_label, visible=True)


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write the name of each line, (x, y, name, colour), to the right of its end, with a leader in the line's colour.
    Overlapping names are moved up. Call this after the scales are set."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "the axes are in a figure"
    points_high = figure.get_size_inches()[1] * POINTS_PER_INCH * PANEL_SHARE
    low, high = axes.transData.inverted().transform(axes.transAxes.transform([(0, 0), (0, 1)]))[:, 1]
    to_scale = axes.yaxis.get_transform().transform
    span = float(to_scale(high) - to_scale(low)) or 1.0
    below_pt = -SMALL_SIZE * LINE_SPACING
    for x, y, name, own in sorted(ends, key=lambda end: end[1]):
        at_pt = float(to_scale(y) - to_scale(low)) / span * points_high
        moved_pt = max(at_pt, below_pt + SMALL_SIZE * LINE_SPACING)
        below_pt = moved_pt
        axes.annotate(
            name, (x, y), xytext=(18, moved_pt - at_pt), textcoords="offset points", va="center", fontsize=SMALL_SIZE,
            color=look().ink, annotation_clip=False,
            arrowprops={**LEADER, "color": own},
        )  # fmt: skip


def spaced(axes: Axes, places: Sequence[tuple[float, float]], width_pt: float) -> list[int]:
    """Indices of the positions (x, y) whose labels of this width do not overlap; earlier positions take precedence.
    Call this after the scales are set."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "the axes are in a figure"
    if not places:
        return []
    points = axes.transData.transform(places) * POINTS_PER_INCH / figure.dpi
    named: list[int] = []
    for number, (x, y) in enumerate(points):
        others = [points[other] for other in named]
        if all(abs(x - left) >= width_pt or abs(y - low) >= SMALL_SIZE * LINE_SPACING for left, low in others):
            named.append(number)
    return named


def finish(figure: Figure, words: FigureText) -> None:
    """Write the text around the panels and set the figure's height."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width_in, panels_in = figure.get_size_inches()
    header = _TextBlock()
    _write(figure, header, words.title, TITLE_SIZE, weight="bold")
    _write(figure, header, words.subtitle, SUBTITLE_SIZE, color=look().grey)
    if words.source:
        _write(figure, header, words.source, SMALL_SIZE, color=look().grey)
    legend = _legend(figure, words)
    legend_in = float(legend.get_window_extent(_renderer(figure)).height) / figure.dpi + GAP_IN if legend else 0.0
    footer = _TextBlock(height_in=legend_in + GAP_IN)
    for note in words.notes:
        _write(figure, footer, note, SMALL_SIZE, color=look().grey)
    height_in = header.height_in + panels_in + footer.height_in + MARGIN_IN
    figure.set_size_inches(width_in, height_in)
    panels_bottom_in = footer.height_in + MARGIN_IN
    _place(header, height_in, height_in)
    _place(footer, panels_bottom_in, height_in)
    if legend:
        legend.set_bbox_to_anchor((0.5, (panels_bottom_in - GAP_IN) / height_in), figure.transFigure)
    side = MARGIN_IN / width_in
    rect = (side, panels_bottom_in / height_in, 1 - 2 * side, panels_in / height_in)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=rect, w_pad=0.04, h_pad=0.04, wspace=0.02, hspace=0.04))


def wrap(text: str, size: float, width_in: float, weight: str = "normal") -> str:
    """The text in lines of at most `width_in` inches. Lines break after spaces, in long words after / - _ . , and
    anywhere in a part that is still too wide."""
    if _width_in(text, size, weight) <= width_in:
        return text
    lines, line, taken_in = [], "", 0.0
    for piece in _pieces(text):
        own_in = _width_in(piece.rstrip(" "), size, weight)
        if line and taken_in + own_in > width_in:
            lines.append(line.rstrip(" "))
            line, taken_in = "", 0.0
        while own_in > width_in and len(piece) > 1:
            cut = _longest_that_fits(piece, size, width_in, weight)
            lines.append(piece[:cut])
            piece = piece[cut:]
            own_in = _width_in(piece.rstrip(" "), size, weight)
        line += piece
        taken_in += _width_in(piece, size, weight)
    return "\n".join(_without_orphan([*lines, line.rstrip(" ")]))


def _without_orphan(lines: Sequence[str]) -> list[str]:
    """The lines, with the previous word moved to a last line of only a few characters."""
    *first, above, last = lines
    kept, space, word = above.rpartition(" ")
    if space and len(last) <= ORPHAN:
        return [*first, kept, f"{word} {last}"]
    return list(lines)


def _pieces(text: str) -> list[str]:
    """The text, split where a line may break."""
    words = re.findall(r"[^ ]+(?: ·)? *", text)  # a separator dot may end a line but not begin one
    parts = [re.findall(r"[^/_.-]*[/_.-]+ *|[^/_.-]+", word) if len(word) > LONG_WORD else [word] for word in words]
    return [piece for pieces in parts for piece in pieces]


def _longest_that_fits(text: str, size: float, width_in: float, weight: str) -> int:
    """How many characters of the text fit, at least one."""
    fitting = bisect_right(range(1, len(text)), width_in, key=lambda cut: _width_in(text[:cut], size, weight))
    return max(1, fitting)


@lru_cache(maxsize=4096)
def _width_in(text: str, size: float, weight: str) -> float:
    """Width of a line of text according to font metrics, which do not depend on the output format."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    properties = FontProperties(family=FONT, size=size, weight=weight)
    width_pt, _, _ = text_to_path.get_text_width_height_descent(text, properties, ismath=False)
    return float(width_pt) / POINTS_PER_INCH


def _renderer(figure: Figure) -> Any:
    return figure.canvas.get_renderer()  # type: ignore[attr-defined]  # the Agg canvas has one, the base class does not


def _write(figure: Figure, block: _TextBlock, text: str, size: float, **look: Any) -> None:
    """Append wrapped text to the block."""
    width_in = (figure.get_size_inches()[0] - 2 * MARGIN_IN) * DRAWN_SHARE
    wrapped = wrap(text, size, width_in, look.get("weight", "normal"))
    x = MARGIN_IN / figure.get_size_inches()[0]
    artist = figure.text(x, 0, wrapped, fontsize=size, va="top", ha="left", linespacing=LINE_SPACING, **look)
    artist.set_in_layout(False)
    block.texts.append((artist, block.height_in))
    block.height_in += (wrapped.count("\n") + 1) * size * LINE_SPACING / POINTS_PER_INCH + GAP_IN / 3


def _place(block: _TextBlock, top_in: float, height_in: float) -> None:
    for artist, below_top_in in block.texts:
        artist.set_y((top_in - below_top_in) / height_in)


def _legend(figure: Figure, words: FigureText) -> Legend | None:
    """The legend, with as many columns as fit and wrapped labels."""
    if not words.legend:
        return None
    width_in = figure.get_size_inches()[0] - 2 * MARGIN_IN
    labels = [wrap(str(artist.get_label()), TEXT_SIZE, width_in - 0.6) for artist in words.legend]
    columns = _most_columns(labels, width_in)
    while True:
        legend = figure.legend(
            handles=list(words.legend),
            labels=labels,
            title=words.legend_title,
            loc="upper center",
            ncols=columns,
            borderaxespad=0.0,
        )
        legend.set_in_layout(False)
        if columns == 1 or legend.get_window_extent(_renderer(figure)).width / figure.dpi <= width_in:
            return legend
        legend.remove()
        columns -= 1


def _most_columns(labels: Sequence[str], width_in: float) -> int:
    """Upper bound of the legend's columns, since each attempt to lay out a legend is slow."""
    widths_in = sorted(max(_width_in(line, TEXT_SIZE, "normal") for line in label.split("\n")) for label in labels)
    ends_in = accumulate(width + LEGEND_MARK_IN for width in widths_in)
    return max(1, sum(end <= width_in for end in ends_in))
