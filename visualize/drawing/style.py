"""The common style of charts: theme, colours, markers, scales, number formats, and reproducible image files.

Importing this module imports neither matplotlib nor seaborn. Settings change only inside `theme()`, so programs that
import charts keep their own; figures are drawn without pyplot's state.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
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


# Okabe and Ito's palette (2008) without its yellow, which is hard to see on white, and four colours chosen to maximize
# the minimum distance between all colours for normal vision, protanopia, deuteranopia and tritanopia (Machado et al.,
# 2009). One colour per architecture family.
# fmt: off
LOOKS: Mapping[ThemeName, Look] = {
    "light": Look(
        background="#FFFFFF", ink="#000000", grey="#666666", grid="#DDDDDD",
        colours=(
            "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#590000", "#0000A6",
            "#A60053", "#9F40FF",
        ),
    ),
    "dark": Look(
        background="#16191D", ink="#F0F0F0", grey="#A8AEB4", grid="#363B41",
        colours=(
            "#5B8DF2", "#FF9500", "#00D990", "#F2A7EC", "#F2F21E", "#B2FFFF", "#8C8888", "#FF0000", "#5252FF",
            "#B83A64", "#8F5AB5",
        ),
    ),
}
# fmt: on
COLOURS = LOOKS["light"].colours
# Shapes that remain visible when hollow. One more than colours, so pairs repeat only after 132 series.
MARKERS = ("o", "s", "^", "D", "v", "<", "p", ">", "h", "P", "*", "d")
GRADIENT = ("#FDE725", "#A0DA39", "#4AC16D", "#1FA187", "#277F8E", "#365C8D", "#46327E", "#440154")
"""Colours of heat maps (viridis, from light to dark), in both themes: darker is faster."""
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
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize"), TEXT_SIZE),
    **dict.fromkeys(("legend.fontsize", "legend.title_fontsize"), TEXT_SIZE),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size", "xtick.major.pad", "ytick.major.pad"), 3.5),
    **dict.fromkeys(("xtick.major.width", "ytick.major.width", "axes.linewidth"), 0.8),
    "text.parse_math": False,  # a "$" in the name of a model or device is literal
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
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


def paint(own: int | str) -> str:
    """A colour of a figure (`visualize.drawing.figure.Colour`) in the chosen theme."""
    if isinstance(own, int):
        return colour(own)
    if own.startswith("on "):
        below = own.removeprefix("on ")
        return legible_on(paint(int(below) if below.isdigit() else below))
    return {"ink": look().ink, "grey": look().grey, "page": look().background}.get(own, own)


def heat(share: float) -> str:
    """The colour of a heat map, from 0 (slowest, light) to 1 (fastest, dark), as #rrggbb."""
    place = min(max(share, 0.0), 1.0) * (len(GRADIENT) - 1)
    at = min(int(place), len(GRADIENT) - 2)
    ends = [[int(one[i : i + 2], 16) for i in (1, 3, 5)] for one in GRADIENT[at : at + 2]]
    mixed = (round(low + (high - low) * (place - at)) for low, high in zip(*ends, strict=True))
    return "#" + "".join(f"{part:02X}" for part in mixed)


def legible_on(fill: str) -> str:
    """Black or white, whichever is legible on a colour #rrggbb."""
    red, green, blue = (int(fill[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "#FFFFFF"


def marker(index: int) -> str:
    """Marker of series `index`, from 0. It changes with the colour, so no reader depends on colour alone."""
    return MARKERS[index % len(MARKERS)]


def dashes(index: int) -> int:
    """Dash pattern of series `index`, from 0: solid, then dashed once colours repeat, and so on."""
    return index // len(COLOURS) % len(DASHES)


DASHES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")


def dash_pattern(index: int) -> Literal["-", "--", ":", "-."]:
    """Matplotlib's name of a dash pattern."""
    return DASHES[index % len(DASHES)]


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
        metadata = dict(_UNDATED[image_format])
        figure.savefig(buffer, format=image_format, dpi=PNG_DPI, facecolor=figure.get_facecolor(), metadata=metadata)
    return buffer.getvalue()
