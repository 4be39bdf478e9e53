"""Tables of things: a column says what it shows of each, and is left out where it shows nothing of any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Thing = TypeVar("Thing")

NOTHING = "-"


@dataclass(frozen=True, kw_only=True)  # without slots: Python 3.11 cannot make a generic class with them by its name
class Column(Generic[Thing]):
    """A column of a table."""

    heading: str
    text: Callable[[Thing], str | None]
    """What a thing shows; None shows as "-"."""
    is_number: bool = False
    """Whether it stands to the right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The table, and which of its columns stand to the right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...]


def grid_of(columns: Sequence[Column[Thing]], things: Sequence[Thing]) -> Grid:
    """A row for each thing, of the columns in which any has something."""
    kept = [column for column in columns if any(column.text(thing) is not None for thing in things)]
    return Grid(
        headings=tuple(column.heading for column in kept),
        rows=tuple(tuple(column.text(thing) or NOTHING for column in kept) for thing in things),
        right=tuple(place for place, column in enumerate(kept) if column.is_number),
    )
