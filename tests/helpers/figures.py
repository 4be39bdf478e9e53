"""What a figure shows, read from its artists."""

from __future__ import annotations

from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure


class See:
    """Reads figures by the labels of their artists."""

    @staticmethod
    def artist(axes: Axes, label: str) -> Any:
        """The one artist of the panel that is labelled so."""
        (artist,) = [artist for artist in axes.get_children() if artist.get_label() in (label, f"_{label}")]
        return artist

    @staticmethod
    def labels(axes: Axes) -> list[str]:
        """The labels of everything in the panel that shows data."""
        given = [str(artist.get_label()) for artist in (*axes.lines, *axes.collections)]
        return sorted(label.removeprefix("_") for label in given)

    @classmethod
    def points(cls, axes: Axes, label: str) -> list[tuple[float, float]]:
        """The (x, y) of a line or of marks."""
        artist = cls.artist(axes, label)
        points: Any = artist.get_offsets() if isinstance(artist, PathCollection) else artist.get_xydata()
        return [(round(float(x), 12), round(float(y), 12)) for x, y in points]

    @classmethod
    def face(cls, axes: Axes, label: str) -> str:
        """The colour inside the marks that are labelled so, as #rrggbb."""
        (colour,) = {to_hex(face) for face in cls.artist(axes, label).get_facecolor()}
        return colour

    @classmethod
    def look(cls, axes: Axes, label: str) -> tuple[str, tuple[Any, ...]]:
        """The colour and the outline of the marks that are labelled so."""
        (outline,) = cls.artist(axes, label).get_paths()
        return cls.face(axes, label), tuple(map(tuple, outline.vertices.tolist()))

    @classmethod
    def band(cls, axes: Axes, label: str) -> list[tuple[float, float, float]]:
        """The (x, low, high) of a band."""
        corners = {(float(x), float(y)) for path in cls.artist(axes, label).get_paths() for x, y in path.vertices}
        sizes = sorted({x for x, _ in corners})
        return [(x, min(y for at, y in corners if at == x), max(y for at, y in corners if at == x)) for x in sizes]

    @staticmethod
    def title(axes: Axes, loc: Literal["left", "center", "right"] = "left") -> str:
        """What stands above a panel, unwrapped."""
        return axes.get_title(loc).replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ")

    @classmethod
    def whiskers(cls, axes: Axes, label: str) -> tuple[float, float, float]:
        """The (x, low, high) of a whisker."""
        (x, low), (_, high) = cls.points(axes, label)
        return x, low, high

    @staticmethod
    def texts(figure: Figure) -> list[str]:
        """All text above and below the panels, unwrapped."""
        return [text.get_text().replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ") for text in figure.texts]

    @staticmethod
    def says(figure: Figure, text: str) -> bool:
        """Whether the text is a sentence above or below the panels, or a clause or the beginning of one."""
        wanted = text.removesuffix(".").lower()
        clauses = (place for one in See.texts(figure) for place in (one, f"; {one}"))
        return any(f"; {wanted}" in clause.lower() or clause.lower().startswith(wanted) for clause in clauses)

    @staticmethod
    def legend(figure: Figure) -> list[str]:
        """The legend's entries, row by row."""
        legend: Any
        (legend,) = figure.legends
        texts = [text.get_text() for text in legend.get_texts()]  # column by column
        order = [place for column in range(legend._ncols) for place in range(column, len(texts), legend._ncols)]
        return [text for _, text in sorted(zip(order, texts, strict=True))]
