"""Draws a figure with matplotlib, in seaborn's style: its panels, and the title, legend and caption around them."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from benchmarking.core.text import visible
from visualize.drawing.figure import Block, Entry, Figure, Line, Panel, Rule, with_texts
from visualize.drawing.scales import Axis
from visualize.drawing.style import (
    BAND_ALPHA,
    FONT,
    MARKER_EDGE,
    MARKER_SIZE,
    SMALL_SIZE,
    SUBTITLE_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    dash_pattern,
    look,
    marker,
    paint,
    theme,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from matplotlib.legend import Legend
    from matplotlib.text import Text

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
WIDER = {"P": 1.3, "*": 1.8}
"""Markers with narrow arms, which are drawn larger: their edges would fill them, so that hollow ones look filled."""
NUMBER = r"\d(?:[\d.,]*\d)?"
WORD = re.compile(rf"(?:{NUMBER} )?[^ ]+(?: {NUMBER}(?:[,;:).]+(?= |$)|$))?(?: ·)? *")
"""A word with the number that it is the unit of ("8 threads"), or the name of at the end of a phrase ("sequence 128,").
A separator dot may end a line but not begin one."""
MOST_MARKS = 2
LONG_WORD = 30
"""Words with more characters may be broken at separators; shorter words stay whole."""


def finish(figure: Drawing, words: Figure, legend_of: Sequence[Any] = ()) -> None:
    """Write the text around the panels, with a legend of labelled artists, and set the figure's height."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width_in, panels_in = figure.get_size_inches()
    room_in = width_in - 2 * MARGIN_IN
    texts: list[tuple[Text, float]] = []  # each with its distance from the top of the header or the footer

    def write(text: str, size: float, below_in: float, **style: Any) -> float:
        """Add wrapped text; returns where it ends."""
        wrapped = wrap(text, size, room_in * DRAWN_SHARE, style.get("weight", "normal"))
        x = MARGIN_IN / width_in
        artist = figure.text(x, 0, wrapped, fontsize=size, va="top", ha="left", linespacing=LINE_SPACING, **style)
        artist.set_in_layout(False)
        texts.append((artist, below_in))
        return below_in + (wrapped.count("\n") + 1) * size * LINE_SPACING / POINTS_PER_INCH + GAP_IN / 3

    header_in = write(words.title, TITLE_SIZE, MARGIN_IN, weight="bold")
    header_in = write(words.subtitle, SUBTITLE_SIZE, header_in, color=look().grey)
    if words.source:
        header_in = write(words.source, SMALL_SIZE, header_in, color=look().grey)
    in_header = len(texts)
    legend: Legend | None = None
    legend_in = 0.0
    if legend_of:  # with as many columns as fit, and wrapped labels
        labels = [wrap(str(artist.get_label()), TEXT_SIZE, room_in - 0.6) for artist in legend_of]
        # Upper bound of the legend's columns, since each attempt to lay out a legend is slow.
        widths_in = sorted(max(_width_in(line, TEXT_SIZE, "normal") for line in label.split("\n")) for label in labels)
        ends_in = accumulate(width + LEGEND_MARK_IN for width in widths_in)
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]  # the Agg canvas has one, its base not
        for columns in range(max(1, sum(end <= room_in for end in ends_in)), 0, -1):
            rows = -(-len(labels) // columns)  # as full as each other, and read row by row, as on pages
            columns = -(-len(labels) // rows)
            order = [place for column in range(columns) for place in range(column, len(labels), columns)]
            legend = figure.legend(
                handles=[legend_of[place] for place in order],
                labels=[labels[place] for place in order], title=words.legend_title, loc="upper center", ncols=columns,
                borderaxespad=0.0,
            )  # fmt: skip
            legend.set_in_layout(False)
            extent = legend.get_window_extent(renderer)
            if columns == 1 or extent.width / figure.dpi <= room_in:
                break
            legend.remove()
        legend_in = float(extent.height) / figure.dpi + GAP_IN
    footer_in = legend_in + GAP_IN
    for note in words.caption:
        footer_in = write(note, SMALL_SIZE, footer_in, color=look().grey)
    height_in, panels_bottom_in = header_in + panels_in + footer_in + MARGIN_IN, footer_in + MARGIN_IN
    figure.set_size_inches(width_in, height_in)
    for place, (artist, below_in) in enumerate(texts):
        artist.set_y(((height_in if place < in_header else panels_bottom_in) - below_in) / height_in)
    if legend:
        legend.set_bbox_to_anchor((0.5, (panels_bottom_in - GAP_IN) / height_in), figure.transFigure)
    side = MARGIN_IN / width_in
    rect = (side, panels_bottom_in / height_in, 1 - 2 * side, panels_in / height_in)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=rect, w_pad=0.04, h_pad=0.04, wspace=0.02, hspace=0.04))


def wrap(text: str, size: float, width_in: float, weight: str = "normal") -> str:
    """The text in lines of at most `width_in` inches. Lines break after spaces, but not between a number and its unit
    or name, in long words after / - _ . , and anywhere in a part that is still too wide."""
    if _width_in(text, size, weight) <= width_in:
        return text
    lines, line, taken_in = [], "", 0.0
    words = WORD.findall(text)
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


def _drawable(text: str) -> str:
    """The text with escaped control characters, except line ends, and with at most MOST_MARKS marks above and below a
    letter, of those that the font has: others are boxes, and a pile of them covers other lines."""
    text = visible(text, kept="\n")
    if text.isascii():
        return text
    found, marks = [], 0
    for one in unicodedata.normalize("NFC", text):
        marks = marks + 1 if unicodedata.category(one) in ("Mn", "Me") else 0
        if not marks or (marks <= MOST_MARKS and ord(one) in _letters()):
            found.append(one)
    return "".join(found)


@lru_cache(maxsize=1)
def _letters() -> Collection[int]:
    """The characters that the font has."""
    from matplotlib.font_manager import findfont, get_font

    return get_font(findfont(FONT)).get_charmap().keys()


@lru_cache(maxsize=4096)
def _width_in(text: str, size: float, weight: str) -> float:
    """Width of a line of text according to font metrics, which do not depend on the output format."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    properties = FontProperties(family=FONT, size=size, weight=weight)
    width_pt, _, _ = text_to_path.get_text_width_height_descent(text, properties, ismath=False)
    return float(width_pt) / POINTS_PER_INCH


LABEL_IN = 2.9
"""Maximum width of a name beside a row."""
LINE_IN = 0.165
"""Height of a line of a name."""
LETTER_IN = 0.078
"""Width of a letter of small text."""
AROUND_IN, MARGINS_IN = 1.3, 0.5
"""Width beside a panel's axis, and of that what is left where names of rows are beside it."""
FIRST_LETTERS, LAST_LETTERS = 70, 40
"""What is shown of a name that is longer than both, which would make its row, and so all others, several times as
high."""


def picture(figure: Figure) -> Drawing:
    """The figure, drawn. Artists are labelled by role and series: "_line 128", "_valid 128", "_band 128"."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing

    figure = with_texts(figure, _drawable)
    columns = min(figure.columns, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    heights, room_in = [0.0] * rows, figure.width_in / columns - AROUND_IN
    if any(panel.y.names for panel in figure.panels):
        lines = [line for panel in figure.panels for name in _names(panel.y, LABEL_IN) for line in name.split("\n")]
        room_in = (figure.width_in - max(_width_in(line, TEXT_SIZE, "normal") for line in lines)) / columns - MARGINS_IN
    for place, panel in enumerate(figure.panels):
        height_in = panel.height_in
        if panel.y.names:  # rows with names are as high as the longest name requires
            lines_of_row = max(name.count("\n") + 1 for name in _names(panel.y, LABEL_IN))
            is_last = place + columns >= len(figure.panels)
            around = (0.35 if panel.title else 0.1) + (0.85 if is_last or panel.x.names else 0.2)
            row_in = LINE_IN * lines_of_row + max(0.06, 0.04 * lines_of_row**2)
            height_in = max(height_in, len(panel.y.names) * row_in + around)
        heights[place // columns] = max(heights[place // columns], height_in)
    ratios: dict[str, Any] = {"height_ratios": heights, "width_ratios": figure.widths or [1.0] * columns}
    with theme():
        drawn = Drawing(figsize=(figure.width_in, sum(heights)))  # without pyplot
        FigureCanvasAgg(drawn)
        all_axes: list[Axes] = list(drawn.subplots(rows, columns, squeeze=False, **ratios).flat)
        for place, (axes, panel) in enumerate(zip(all_axes, figure.panels, strict=False)):
            _draw_panel(axes, panel, figure.width_in / columns, room_in)
            below = place + columns
            if below < len(figure.panels) and figure.panels[below].x == panel.x:
                axes.tick_params(labelbottom=False)
                axes.set_xlabel("")
            if place % columns and figure.panels[place - 1].y == panel.y:
                axes.tick_params(labelleft=False)
                axes.set_ylabel("")
        for axes in all_axes[len(figure.panels) :]:
            axes.remove()
        finish(drawn, figure, [_handle(entry) for entry in figure.legend])
    return drawn


def _draw_panel(axes: Axes, panel: Panel, width_in: float, room_in: float) -> None:
    """A panel that is `width_in` wide, `room_in` without what is beside it."""
    _scale(axes, panel.x, "x", width_in, room_in)
    _scale(axes, panel.y, "y", width_in, room_in)
    for element in panel.elements:
        if isinstance(element, Block):
            _draw_block(axes, element, panel, width_in)
        elif isinstance(element, Rule):
            draw = axes.axvline if element.along == "x" else axes.axhline
            draw(
                element.at, color=paint(element.colour), linestyle=dash_pattern(element.dashes),
                linewidth=1.0, zorder=1, label=f"_{element.role} {element.label}".rstrip(),
            )  # fmt: skip
        elif isinstance(element, Line):
            _draw_line(axes, element, panel)
        else:
            axes.annotate(
                element.text, (element.x, element.y), ha=element.align, va="center", fontsize=SMALL_SIZE,
                xycoords=("data", "axes fraction") if element.in_share else "data", xytext=(element.dx, element.dy),
                textcoords="offset points", color=paint(element.colour), annotation_clip=False, zorder=6,
                bbox={"facecolor": look().background, "edgecolor": "none", "pad": 0.6, "alpha": 0.75},
            )  # fmt: skip
    if panel.title:
        axes.set_title(wrap(panel.title, TEXT_SIZE, width_in - 1.3), loc="left", x=0)
    axes.set_xlim(panel.x.low, panel.x.high)
    bottom, top = (panel.y.high, panel.y.low) if panel.y.from_top else (panel.y.low, panel.y.high)
    axes.set_ylim(bottom, top)


def _scale(axes: Axes, axis: Axis, direction: str, width_in: float, room_in: float) -> None:
    """The scale, ticks and title of an axis."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    its = axes.xaxis if direction == "x" else axes.yaxis
    if axis.is_log:
        (axes.set_xscale if direction == "x" else axes.set_yscale)("log")
    name_in = LABEL_IN if direction == "y" else max(0.7, width_in / max(len(axis.names), 1) - 0.15)
    ticks = axis.ticks
    if direction == "x" and axis.is_log and axis.is_value and _needed_in(ticks) > width_in - AROUND_IN:
        # Only powers of ten: more labels would overlap.
        ticks = tuple((at, text) for at, text in ticks if text.strip("0,.") == "1" or text.startswith("1e"))
    while direction == "x" and axis.is_value and len(ticks) > 2 and _needed_in(ticks) > room_in:
        ticks = ticks[::2]
    its.set_major_locator(FixedLocator([at for at, _ in ticks]))
    its.set_minor_locator(NullLocator())
    its.set_major_formatter(FixedFormatter(_names(axis, name_in) if axis.names else [text for _, text in ticks]))
    if not axis.has_grid:
        axes.grid(axis="x" if direction == "x" else "y", visible=False)
    if not axis.ticks:
        axes.tick_params(axis="x" if direction == "x" else "y", length=0)
    (axes.set_xlabel if direction == "x" else axes.set_ylabel)(axis.title)


def _needed_in(ticks: Sequence[tuple[float, str]]) -> float:
    """The width of the labels of ticks, about."""
    return sum(len(text) + 1 for _, text in ticks) * LETTER_IN


def _names(axis: Axis, width_in: float) -> list[str]:
    """The names of an axis in lines that fit; their own line breaks stay. Long ones are without their middle, unless
    that tells them apart."""
    most = FIRST_LETTERS + LAST_LETTERS
    cut = [one if len(one) <= most else f"{one[:FIRST_LETTERS]}…{one[-LAST_LETTERS:]}" for one in axis.names]
    names = cut if len(set(cut)) == len(set(axis.names)) else axis.names
    return ["\n".join(wrap(part, TEXT_SIZE, width_in) for part in name.split("\n")) for name in names]


def _draw_line(axes: Axes, line: Line, panel: Panel) -> None:
    """The line through sound marks, intervals, and marks: filled if valid, hollow if doubtful, hollow and crossed out
    if invalid."""
    own, named = paint(line.colour), line.label
    if line.dashes is not None and line.joined:
        steps = {"after": "steps-post", "before": "steps-pre", None: "default"}
        axes.plot(
            [mark.x for mark in line.joined], [mark.y for mark in line.joined], color=own,
            linestyle=dash_pattern(line.dashes), linewidth=line.width, alpha=line.opacity,
            zorder=3 if line.role == "line" else 2, label=f"_{line.role} {named}".rstrip(),
            drawstyle=steps[line.step],
        )  # fmt: skip
    bands, whiskers = line.intervals()
    for band in bands:
        low, high = ([getattr(mark, end) for mark in band] for end in ("low", "high"))
        area = axes.fill_between(
            [mark.x for mark in band], low, high, color=own, alpha=BAND_ALPHA, linewidth=0, zorder=2
        )
        area.set_label(f"_band {named}")
    for whisker in whiskers:
        ends = (
            ([whisker.low, whisker.high], [whisker.y] * 2)
            if line.is_across
            else ([whisker.x] * 2, [whisker.low, whisker.high])
        )
        axes.plot(
            *ends, color=own, marker="|" if line.is_across else "_", markersize=min(9.0, 1.5 * line.size),
            markeredgewidth=MARKER_EDGE, linewidth=1.2, zorder=2,
            label=f"_{'interval' if line.is_across else 'whisker'} {named}",
        )  # fmt: skip
    for state in ("valid", "doubtful", "invalid"):
        chosen = [mark for mark in line.marks if mark.state == state and panel.shows(mark)]
        if line.shape is None or not chosen:
            continue
        x, y = [mark.x for mark in chosen], [mark.y for mark in chosen]
        is_hollow = state != "valid"
        axes.scatter(
            x, y, color=look().background if is_hollow else own, edgecolor=own,
            s=(line.size * WIDER.get(marker(line.shape), 1.0)) ** 2,
            linewidth=MARKER_EDGE if line.size >= MARKER_SIZE / 2 else 0.6, marker=marker(line.shape),
            zorder=5 if is_hollow else 4, label=f"_{state} {named}".rstrip(), clip_on=False,
        )  # fmt: skip
        if state == "invalid":
            axes.scatter(
                x, y, marker="x", s=(1.7 * line.size) ** 2, color=look().ink, linewidth=1.2, zorder=6,
                label=f"_crossed {named}".rstrip(), clip_on=False,
            )  # fmt: skip


def _draw_block(axes: Axes, block: Block, panel: Panel, width_in: float) -> None:
    from matplotlib.patches import Rectangle

    is_filled = block.state == "valid"
    size = (block.right - block.left, block.top - block.bottom)
    edge = paint(block.fill if is_filled or block.state == "doubtful" else "grey")
    if is_filled and not panel.is_dense:  # an end of a gradient would fade into the page
        edge = look().grey if str(block.fill).startswith("#") else look().background
    patch = Rectangle(
        (block.left, block.bottom), *size, facecolor=paint(block.fill) if is_filled else look().background,
        edgecolor=edge, linewidth=0.6 if is_filled else 1.2, alpha=block.opacity, zorder=2,
        label=f"_{block.role}",
    )  # fmt: skip
    axes.add_patch(patch)
    if block.state == "invalid":
        axes.plot(
            [block.left, block.right], [block.bottom, block.top], color=look().ink, linewidth=1, zorder=3,
            label=f"_crossed {block.role}",
        )  # fmt: skip
    room = int(size[0] / (panel.x.high - panel.x.low) * (width_in - 1.0) / LETTER_IN)
    longest = max(map(len, block.text.split("\n")))
    text = block.text if longest <= room or panel.y.names else f"{block.text[: room - 1]}…" if room > 4 else ""
    if text:
        middle = (block.bottom + block.top) / 2
        inset = 0.003 * (panel.x.high - panel.x.low)
        x = block.left + inset if block.align == "left" else (block.left + block.right) / 2
        axes.text(
            x, middle, text, ha=block.align, va="center", fontsize=SMALL_SIZE, color=paint(block.ink), clip_on=True,
            zorder=4, linespacing=1.35, label=f"_{block.role}",
        )  # fmt: skip


def _handle(entry: Entry) -> Any:
    """The artist of a legend entry."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    own = paint(entry.colour)
    if entry.shape is None and entry.dashes is None:
        face = own if entry.state == "valid" else look().background
        edge = look().grey if str(entry.colour).startswith("#") else own  # the ends of a gradient fade into a page
        return Patch(
            facecolor=face, edgecolor=edge, hatch="///" if entry.state == "invalid" else None, label=entry.label
        )
    usual: dict[str, Any] = {"color": own, "label": entry.label, "markeredgewidth": MARKER_EDGE}
    shape = "none" if entry.shape is None else "x" if entry.state == "invalid" else marker(entry.shape)
    face = look().background if entry.state == "doubtful" else own
    style = "none" if entry.dashes is None else dash_pattern(entry.dashes)
    return Line2D([], [], linestyle=style, marker=shape, markersize=MARKER_SIZE, markerfacecolor=face, **usual)
