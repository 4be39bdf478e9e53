"""The common style of charts: theme, colours, markers, scales, number formats, and reproducible image files.

Importing this module imports neither matplotlib nor seaborn. Settings change only inside `theme()`, so programs that
import charts keep their own; figures are drawn without pyplot's state.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ImageFormat = Literal["png", "svg", "pdf"]
FORMATS: tuple[ImageFormat, ...] = ("png", "svg", "pdf")
DEFAULT_FORMATS: tuple[ImageFormat, ...] = ("png", "svg")
PNG_DPI = 200
"""Dots per inch."""
ThemeName = Literal["light", "dark"]
THEMES: tuple[ThemeName, ...] = ("light", "dark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Colours of a theme."""

    background: str
    ink: str
    """For text and for markers without a series colour."""
    grey: str
    """For captions, reference lines and simulated devices."""
    grid: str
    colours: tuple[str, ...]
    """Series colours. Adjacent colours differ most, and both themes have similar hues in the same order."""
    gradient: str
    """Matplotlib colour map of heat maps."""


# Okabe and Ito's palette (2008) without its yellow, which is hard to see on white, and four colours chosen to maximize
# the minimum distance between all colours for normal vision, protanopia, deuteranopia and tritanopia (Machado et al.,
# 2009). One colour per architecture family.
# fmt: off
LOOKS: Mapping[ThemeName, Look] = {
    "light": Look(
        background="#FFFFFF", ink="#000000", grey="#666666", grid="#DDDDDD", gradient="viridis_r",
        colours=(
            "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#590000", "#0000A6",
            "#A60053", "#9F40FF",
        ),
    ),
    "dark": Look(
        background="#16191D", ink="#F0F0F0", grey="#A8AEB4", grid="#363B41", gradient="viridis",
        colours=(
            "#5B8DF2", "#FF9500", "#00D990", "#F2A7EC", "#F2F21E", "#B2FFFF", "#8C8888", "#FF0000", "#4040FF",
            "#A63258", "#804BA6",
        ),
    ),
}
# fmt: on
COLOURS = LOOKS["light"].colours
# Shapes that remain visible when hollow. One more than colours, so pairs repeat only after 132 series.
MARKERS = ("o", "s", "^", "D", "v", "<", "p", ">", "h", "P", "*", "d")
BAND_ALPHA = 0.18
MARKER_SIZE, MARKER_EDGE = 6.0, 1.4
"""Widths of a marker and its edge, in points."""

TITLE_SIZE, SUBTITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 12.0, 9.0, 9.0, 7.5
"""Font sizes in points."""

FONT = "DejaVu Sans"
"""Comes with matplotlib, so pictures look the same on every machine."""
FALLBACK_FONTS = ("Bitstream Vera Sans", "Verdana")
"""Fonts as wide as FONT, for viewers of SVG files without it."""

_SETTINGS: dict[str, Any] = {
    "font.size": TEXT_SIZE,
    "text.parse_math": False,  # a "$" in the name of a model or device is literal
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.titlesize": TEXT_SIZE,
    "axes.labelsize": TEXT_SIZE,
    "axes.linewidth": 0.8,
    "xtick.labelsize": TEXT_SIZE,
    "xtick.major.size": 3.5,
    "xtick.major.width": 0.8,
    "xtick.major.pad": 3.5,
    "ytick.major.size": 3.5,
    "ytick.major.width": 0.8,
    "ytick.major.pad": 3.5,
    "ytick.labelsize": TEXT_SIZE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": TEXT_SIZE,
    "legend.title_fontsize": TEXT_SIZE,
    "font.sans-serif": [FONT, *FALLBACK_FONTS],
    "svg.fonttype": "none",  # text stays text: searchable, selectable and accessible
    "pdf.fonttype": 42,  # TrueType fonts, for the same reason
    "svg.hashsalt": "benchhouse",
}
"""Differences from seaborn's theme."""


_CHOSEN: ContextVar[ThemeName] = ContextVar("_CHOSEN", default="light")


@contextmanager
def chosen(name: ThemeName) -> Iterator[None]:
    """Use this theme inside the block; the default is light."""
    token = _CHOSEN.set(name)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def look() -> Look:
    """Colours of the chosen theme."""
    return LOOKS[_CHOSEN.get()]


@contextmanager
def theme() -> Iterator[None]:
    """Apply seaborn's theme with benchhouse's palette, font and settings inside the block."""
    import matplotlib as mpl
    import seaborn

    own = look()
    names = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    colours = {**dict.fromkeys(names, own.ink), "grid.color": own.grid, "hatch.color": own.grey}
    backgrounds = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), own.background)
    settings = {**_SETTINGS, **colours, **backgrounds}
    with mpl.rc_context():
        mpl.rcdefaults()
        # color_codes would permanently redefine "b" and "g" in the importing program.
        seaborn.set_theme(
            context="paper", style="ticks", palette=own.colours, font="sans-serif", color_codes=False, rc=settings
        )
        yield


def colour(index: int) -> str:
    """Colour of series `index`, from 0."""
    return look().colours[index % len(COLOURS)]


def text_on(fill: Sequence[float]) -> str:
    """Black or white, whichever is legible on a fill colour (red, green, blue, alpha; 0 to 1)."""
    red, green, blue = fill[:3]
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "#FFFFFF"


def marker(index: int) -> str:
    """Marker of series `index`, from 0. It changes with the colour, so no reader depends on colour alone."""
    return MARKERS[index % len(MARKERS)]


def line_style(index: int) -> Literal["-", "--", ":", "-."]:
    """Dash pattern of series `index`, from 0: solid, then dashed once colours repeat, and so on."""
    styles: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
    return styles[index // len(COLOURS) % len(styles)]


_UNDATED: Mapping[ImageFormat, Mapping[str, str | None]] = {
    "png": {},
    "svg": {"Date": None, "Creator": "benchhouse"},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": "benchhouse"},
}
"""Metadata of each format, without dates."""


def image(figure: Figure, image_format: ImageFormat) -> bytes:
    """The figure as an image file. The same figure gives the same bytes, without dates and random ids."""
    buffer = io.BytesIO()
    with theme():
        figure.savefig(
            buffer,
            format=image_format,
            dpi=PNG_DPI,
            facecolor=figure.get_facecolor(),
            metadata=dict(_UNDATED[image_format]),
        )
    return buffer.getvalue()


def number(value: float) -> str:
    """A number for an axis or label: 0.25, 4.6, 37, 1,200."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.1f}".removesuffix(".0")


def spans_decade(values: Sequence[float]) -> bool:
    """Whether positive values span a factor of ten or more, which needs a log scale."""
    positive = [value for value in values if value > 0]
    return len(positive) == len(values) > 0 and max(positive) >= 10 * min(positive)


def grows_by_factors(sizes: Sequence[int]) -> bool:
    """Whether sizes (sorted, distinct) grow by factors (1, 2, 4) rather than by steps (8, 9, 10).

    Always true if they span a factor of 8, since small sizes would overlap on a linear axis.
    """
    if len(sizes) < 2:
        return False
    return sizes[-1] >= 8 * sizes[0] or all(after >= 1.5 * before for before, after in pairwise(sizes))


def scale_batch_axis(axes: Axes, sizes: Sequence[int], most_ticks: int = 8) -> None:
    """Ticks at the sizes (sorted, distinct) unless there are too many; a log2 scale if they grow by factors."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = sizes[0], sizes[-1]
    by_factors = grows_by_factors(sizes)
    if by_factors:
        axes.set_xscale("log", base=2)
        axes.set_xlim(low / 2**0.35, high * 2**0.35)
    else:
        margin = 0.06 * (high - low) or 0.5
        axes.set_xlim(low - margin, high + margin)
    many = LogLocator(2, numticks=most_ticks) if by_factors else MaxNLocator(most_ticks, integer=True)
    axes.xaxis.set_major_locator(FixedLocator(list(sizes)) if len(sizes) <= most_ticks else many)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:,.0f}"))


def scale_value_axis(axes: Axes, values: Sequence[float], direction: Literal["x", "y"] = "y") -> None:
    """A log scale if the values span a factor of ten, else linear from 0."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis = axes.yaxis if direction == "y" else axes.xaxis
    set_limits = axes.set_ylim if direction == "y" else axes.set_xlim
    low, high = min(values), max(values)
    if spans_decade(values):
        (axes.set_yscale if direction == "y" else axes.set_xscale)("log")
        set_limits(low / (high / low) ** 0.06, high * (high / low) ** 0.06)
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low and direction == "y" else (1,)))
        axis.set_minor_locator(NullLocator())
    else:
        set_limits(0, high * 1.08 or 1)
        axes.locator_params(axis=direction, steps=[1, 2, 5, 10])  # a tick at 1.25 would be labelled 1.2
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
