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

    from visualize.drawing.figure import Figure as Words

MARGIN_IN = 0.16
GAP_IN = 0.09
LINE_SPACING = 1.3
POINTS_PER_INCH = 72
DRAWN_SHARE = 0.97
"""Share of a width that text may occupy according to font metrics, since text is drawn wider at low resolution."""
LEGEND_MARK_IN = 0.4
"""Minimum width of a legend entry without its label: marker and spacing."""
ORPHAN = 3
"""A last line of at most this many characters takes the previous word with it."""
LONG_WORD = 30
"""Words with more characters may be broken at separators; shorter words stay whole."""


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


def finish(figure: Figure, words: Words, legend_of: Sequence[Any] = ()) -> None:
    """Write the text around the panels, with a legend of labelled artists, and set the figure's height."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width_in, panels_in = figure.get_size_inches()
    header = _TextBlock()
    _write(figure, header, words.title, TITLE_SIZE, weight="bold")
    _write(figure, header, words.subtitle, SUBTITLE_SIZE, color=look().grey)
    if words.source:
        _write(figure, header, words.source, SMALL_SIZE, color=look().grey)
    legend: Legend | None = None
    if legend_of:  # with as many columns as fit, and wrapped labels
        room_in = width_in - 2 * MARGIN_IN
        labels = [wrap(str(artist.get_label()), TEXT_SIZE, room_in - 0.6) for artist in legend_of]
        # Upper bound of the legend's columns, since each attempt to lay out a legend is slow.
        widths_in = sorted(max(_width_in(line, TEXT_SIZE, "normal") for line in label.split("\n")) for label in labels)
        ends_in = accumulate(width + LEGEND_MARK_IN for width in widths_in)
        for columns in range(max(1, sum(end <= room_in for end in ends_in)), 0, -1):
            legend = figure.legend(
                handles=list(legend_of), labels=labels, title=words.legend_title, loc="upper center", ncols=columns,
                borderaxespad=0.0,
            )  # fmt: skip
            legend.set_in_layout(False)
            if columns == 1 or legend.get_window_extent(_renderer(figure)).width / figure.dpi <= room_in:
                break
            legend.remove()
    legend_in = float(legend.get_window_extent(_renderer(figure)).height) / figure.dpi + GAP_IN if legend else 0.0
    footer = _TextBlock(height_in=legend_in + GAP_IN)
    for note in words.caption:
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
    words = re.findall(r"[^ ]+(?: ·)? *", text)  # a separator dot may end a line but not begin one
    parts = [re.findall(r"[^/_.-]*[/_.-]+ *|[^/_.-]+", word) if len(word) > LONG_WORD else [word] for word in words]
    for piece in [piece for pieces in parts for piece in pieces]:
        own_in = _width_in(piece.rstrip(" "), size, weight)
        if line and taken_in + own_in > width_in:
            lines.append(line.rstrip(" "))
            line, taken_in = "", 0.0
        while own_in > width_in and len(piece) > 1:
            fitting = bisect_right(range(1, len(piece)), width_in, key=lambda cut: _width_in(piece[:cut], size, weight))
            cut = max(1, fitting)
            lines.append(piece[:cut])
            piece = piece[cut:]
            own_in = _width_in(piece.rstrip(" "), size, weight)
        line += piece
        taken_in += _width_in(piece, size, weight)
    lines.append(line.rstrip(" "))
    kept, space, word = lines[-2].rpartition(" ") if len(lines) > 1 else ("", "", "")
    if space and len(lines[-1]) <= ORPHAN:
        lines[-2:] = [kept, f"{word} {lines[-1]}"]
    return "\n".join(lines)


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
