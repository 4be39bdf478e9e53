"""Text tables at most 100 columns wide: plain in a file or a pipe, drawn by rich on a terminal.

Columns are chosen first: values that all rows share go above the table, and dispensable columns are dropped. Numbers
are never cut or folded. If the table is still too wide, words and headings are folded; then the table continues below,
with its key columns repeated.

2026-11-22: column widths are computed here and passed to rich, which would shorten all columns equally, even numbers.
Plain text that fits is laid out without rich, which needs 0.1 ms per cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.terminal import PLAIN, TEXT_WIDTH, Page, styled
from benchmarking.core.text import visible

Item = TypeVar("Item")
Overflow = Literal["fold", "ellipsis"]

NOTHING = "-"
"""A cell without a value."""
GAP = "  "
NARROW, LONG_WORD = 12, 24
"""Minimum widths of a text column: the usual one, and the longest word that is not broken."""
FAILED_STATES = (
    "failed", "timed out", "out of memory", "invalid", "regressed", "slower", "unfit", "worse", "broken", "lost",
)  # fmt: skip
OK_STATES = (
    *("ok", "fine", "valid", "equivalent", "faster", "improved", "better", "confirmed", "idle", "measuring", "left"),
    NOTHING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under headings. Cells may contain untrusted text; control characters are escaped."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()
    """Indices of the columns that are right-aligned and never cut or folded."""
    names: tuple[int, ...] = ()
    """Indices of the columns that are never folded since readers copy them."""
    states: tuple[int, ...] = ()
    """Indices of the columns with verdicts or doubts: failures are red, doubts yellow."""
    keys: int = 1
    """Number of columns, from the left, that identify a row."""
    shared: tuple[str, ...] = ()
    """Headings and values of the key columns that are hidden because all rows share their value: "batch 1"."""
    left_out: tuple[str, ...] = ()
    """Headings of the columns dropped for lack of space."""


@dataclass(frozen=True)  # no slots: with them Column[Thing](...) fails in Python 3.11
class Column(Generic[Item]):
    """A column of a table with one row per thing."""

    heading: str
    text: Callable[[Item], str | None]
    """The cell of a thing; None shows as "-"."""
    _: KW_ONLY
    is_number: bool = False
    is_state: bool = False
    is_key: bool = False
    spare: int = 0
    """Priority for dropping the column from a table that is too wide, highest first; 0: never."""


MORE_COLUMNS = "further columns:"
"""Before each part of a table that is too wide for the page, but for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The width of a column."""

    width: int
    least: int
    """Minimum width."""


def table_of(columns: Sequence[Column[Item]], items: Sequence[Item], page: Page = PLAIN) -> Table:
    """A row per thing, with the columns in which any thing has a value.

    If the page has a width, they are chosen for `TEXT_WIDTH`, or a wider terminal. A narrower page gets the same
    columns, and `table_text` splits the table.
    """
    room = math.inf if page.table_width is None else max(TEXT_WIDTH, page.table_width)
    filled = [_Filled(column, tuple(map(column.text, items))) for column in columns]
    visible_columns = [each for each in filled if any(text is not None for text in each.texts)]
    shared: list[_Filled] = []
    if _needed_width(visible_columns, math.inf) > room:  # hide key columns with one value, but never all of them
        keys = [each for each in visible_columns if each.column.is_key]
        same = [key for key in keys if len(key.texts) > 1 and len(set(key.texts)) == 1]
        shared = same if len(same) < len(keys) else same[1:]
    visible_columns = [visible_column for visible_column in visible_columns if visible_column not in shared]
    left_out = []
    while (
        _needed_width(visible_columns) > room
        and (spare := max(visible_columns, key=lambda each: each.column.spare)).column.spare
    ):
        visible_columns.remove(spare)
        left_out.append(spare.column.heading)
    return Table(
        headings=tuple(visible_column.column.heading for visible_column in visible_columns),
        rows=tuple(zip(*(visible_column.cells for visible_column in visible_columns), strict=True)),
        numbers=tuple(place for place, each in enumerate(visible_columns) if each.column.is_number),
        states=tuple(place for place, each in enumerate(visible_columns) if each.column.is_state),
        keys=max(1, sum(visible_column.column.is_key for visible_column in visible_columns)),
        shared=tuple(f"{each.column.heading} {each.cells[0]}" for each in shared),
        left_out=tuple(left_out),
    )


class _Filled(NamedTuple):
    """A column with the texts of all things."""

    column: Column[Any]
    texts: tuple[str | None, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(NOTHING if text is None else text for text in self.texts)


def _needed_width(columns: Sequence[_Filled], longest: float = LONG_WORD) -> float:
    """The width of the columns with the headings of numbers folded, and texts that are longer as well."""
    widths = []
    for column in columns:
        slot = _slot([visible(text) for text in (column.column.heading, *column.cells)], column.column.is_number)
        widths.append(slot.least if column.column.is_number else max(slot.least, min(slot.width, longest)))
    return sum(widths) + len(GAP) * (len(widths) - 1)


def table_text(table: Table, page: Page = PLAIN) -> str:
    """The table as lines: headings, a rule, rows. No trailing newline."""
    room = page.table_width
    cells = [[visible(cell) for cell in line] for line in (table.headings, *table.rows)]
    unfolded = {*table.numbers, *table.names}
    slots = [_slot([line[place] for line in cells], place in unfolded) for place in range(len(table.headings))]
    parts = []
    filled = [place for place in range(len(slots)) if place < table.keys or any(line[place] for line in cells[1:])]
    for places in _parts(slots, filled, table.keys, room):
        widths = narrowed([slots[place] for place in places], room)
        part = [[line[place] for place in places] for line in cells]
        numbers = [index for index, place in enumerate(places) if place in table.numbers]
        states = [index for index, place in enumerate(places) if place in table.states]
        parts.append(drawn(part, widths, page, numbers=numbers, states=states))
    return f"\n\n{MORE_COLUMNS}\n".join(parts)


def narrowed(slots: Sequence[Slot], room: int | None) -> list[int]:
    """The column widths that fit into the room as far as possible; the most flexible column shrinks first."""
    widths = [slot.width for slot in slots]
    while room is not None and (over := total_width(widths) - room) > 0:
        spare, widest = max(
            (width - slot.least, place) for place, (slot, width) in enumerate(zip(slots, widths, strict=True))
        )
        if spare <= 0:
            break
        widths[widest] -= min(spare, over, max(1, spare // 2))
    return widths


def total_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def text_width(text: str) -> int:
    """Width of a text on a terminal: two for a wide character, none for a combining accent."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def drawn(
    cells: Sequence[Sequence[str]],
    widths: Sequence[int],
    page: Page,
    *,
    numbers: Collection[int] = (),
    states: Collection[int] = (),
    overflow: Overflow = "fold",
) -> str:
    """Cells (control characters escaped, headings first) in columns of these widths."""
    has_room = all(text_width(text) <= width for line in cells for text, width in zip(line, widths, strict=True))
    if has_room and not page.has_styles:
        # Rows of padded text, with a rule below the headings.
        lines = []
        for line in cells:
            padded = []
            for place, (text, width) in enumerate(zip(line, widths, strict=True)):
                space = " " * (width - text_width(text))
                padded.append(space + text if place in numbers else text + space)
            lines.append(GAP.join(padded).rstrip())
        return "\n".join([lines[0], page.rule * total_width(widths), *lines[1:]])
    from io import StringIO

    from rich.box import SIMPLE_HEAD, Box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    box = Box("\n".join(["    ", "    ", " -- ", *["    "] * 5, ""]), ascii=True) if page.is_ascii else SIMPLE_HEAD
    table = RichTable(box=box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for place, (heading, width) in enumerate(zip(cells[0], widths, strict=True)):
        justify: Literal["left", "right"] = "right" if place in numbers else "left"
        is_cut = overflow == "ellipsis"
        table.add_column(Text(heading), justify=justify, width=width, overflow=overflow, no_wrap=is_cut, vertical="top")
    for row in cells[1:]:
        table.add_row(*(Text(cell, state_style(cell) if place in states else "") for place, cell in enumerate(row)))
    out = StringIO()
    console = Console(
        file=out,
        # The terminal wraps a table that cannot be narrowed further, without losing digits.
        width=max(page.width or 0, total_width(widths)),
        force_terminal=page.has_styles,
        color_system="standard" if page.has_styles else None,
        no_color=False,  # the page already respects NO_COLOR
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(table)
    return styled("\n".join(line.rstrip() for line in out.getvalue().splitlines()))


def state_style(text: str) -> str:
    """The style of a verdict or of doubts, chosen by the first words."""
    if text.startswith(FAILED_STATES):
        return "red"
    return "" if not text or text.startswith(OK_STATES) else "yellow"


def _slot(cells: Sequence[str], is_number: bool) -> Slot:
    heading, *values = cells
    width = max(map(text_width, cells))
    word = max(map(text_width, heading.split()), default=0)
    if is_number:
        return Slot(width=width, least=max([word, *map(text_width, values)]))
    longest = max((text_width(part) for cell in values for part in cell.split()), default=0)
    return Slot(width=width, least=min(width, max(word, min(longest, LONG_WORD), NARROW)))


def _parts(slots: Sequence[Slot], filled: Sequence[int], keys: int, room: int | None) -> list[list[int]]:
    """The column indices of each part of the table; each part starts with the key columns.

    When the table is split, empty columns are omitted.
    """
    if room is None or not slots or total_width([slot.least for slot in slots]) <= room:
        return [list(range(len(slots)))]
    places = list(filled)
    while keys > 0 and total_width([slot.least for slot in slots[:keys]]) > room // 2:
        keys -= 1
    parts = [places[:keys]]
    for place in places[keys:]:
        wider = [*parts[-1], place]
        if len(parts[-1]) > keys and total_width([slots[one].least for one in wider]) > room:
            parts.append([*places[:keys], place])
        else:
            parts[-1] = wider
    return parts
