"""Answers written out: as a table that fits a terminal, one value a line, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TextIO

from db import markdown
from db.plain import exact, plain, readable, visible
from db.questions import Answer, Column, Row

GAP = "  "
RULE = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
CUT = "\N{HORIZONTAL ELLIPSIS}"
NARROW = 12
"""Columns of text that a cell keeps, however many columns there are; a narrower one says too little."""
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
REALS = ("FLOAT", "DOUBLE", "DECIMAL")
DEFAULT_ROWS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Where people read an answer."""

    width: int | None = None
    """Columns of text there are; None for no limit: a file, a pipe."""
    rows: int = DEFAULT_ROWS
    """Rows that are shown."""


Writer = Callable[[Answer, TextIO, Page], None]


def page(out: TextIO, rows: int = DEFAULT_ROWS) -> Page:
    """The page that `out` is: a terminal's width, or no limit."""
    return Page(width=shutil.get_terminal_size().columns if out.isatty() else None, rows=rows)


def write_table(answer: Answer, out: TextIO, page: Page) -> None:
    """One line a row. Where the page is too narrow, text is cut and columns are left out, and it says so."""
    rows, more = _first(answer, page.rows)
    slots = [_slot(column, [row[place] for row in rows]) for place, column in enumerate(answer.columns)]
    shown = fitted(slots, page.width)
    first, *lines = [
        GAP.join(_cell(slot.cells[place], width, right=slot.is_number) for slot, width in shown).rstrip()
        for place in range(len(rows) + 1)
    ]
    rule = RULE * (sum(width for _, width in shown) + len(GAP) * (len(shown) - 1))
    print(first, rule, *lines, sep="\n", file=out)
    _remark(out, len(rows), more)
    if (left := len(slots) - len(shown)) > 0:
        print(f"{left} more column{'s' * (left > 1)}: name those you want, or take the format vertical", file=out)


def write_vertical(answer: Answer, out: TextIO, page: Page) -> None:
    """One line a value, uncut, with a rule over each row."""
    rows, more = _first(answer, page.rows)
    names = [visible(column.name) for column in answer.columns]
    width = max(map(_width, names))
    for number, row in enumerate(rows, start=1):
        print(f"{RULE * 2} row {number}", file=out)
        for name, value in zip(names, row, strict=True):
            print(f"{_padded(name, width)}{GAP}{readable(value)}".rstrip(), file=out)
    _remark(out, len(rows), more)


def write_markdown(answer: Answer, out: TextIO, page: Page) -> None:
    """A table in Markdown, with all rows."""
    right = [place for place, column in enumerate(answer.columns) if _is_number(column)]
    rows = [[readable(value) for value in row] for row in answer.rows]
    print(markdown.table([column.name for column in answer.columns], rows, right=right), file=out)


def write_csv(answer: Answer, out: TextIO, page: Page) -> None:
    """CSV with a line of names: every row, every digit."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in answer.columns])
    writer.writerows([exact(value) for value in row] for row in answer.rows)


def write_json(answer: Answer, out: TextIO, page: Page) -> None:
    """A list of one object a row, each in a line of its own."""
    names = _unlike([column.name for column in answer.columns])
    out.write("[")
    for number, row in enumerate(answer.rows):
        values = (plain(value, column.type) for value, column in zip(row, answer.columns, strict=True))
        line = json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False)
        out.write(f"{',' * (number > 0)}\n{line}")
    out.write("\n]\n")


WRITERS: dict[str, Writer] = {
    "table": write_table,
    "vertical": write_vertical,
    "markdown": write_markdown,
    "csv": write_csv,
    "json": write_json,
}
FORMATS = tuple(WRITERS)


def write(answer: Answer, name: str, *, out: TextIO | None = None, rows: int = DEFAULT_ROWS) -> None:
    """Write the answer in the format of that name; to stdout, unless told where."""
    stream = sys.stdout if out is None else out
    WRITERS[name](answer, stream, page(stream, rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A column of a table as text."""

    cells: tuple[str, ...]
    """The heading first."""
    is_number: bool
    is_empty: bool
    """Whether no row has anything in it."""
    width: int
    least: int
    """What it can be narrowed to: a number never loses a digit, text keeps 12 columns."""


def fitted(slots: Sequence[Slot], room: int | None) -> list[tuple[Slot, int]]:
    """The columns that fit into the room, gaps between them, with their widths.

    Where not all do, those without anything in them go first, then those on the right, all but one; the widest of the
    rest are narrowed.
    """
    if room is None or _total([slot.width for slot in slots]) <= room:
        return [(slot, slot.width) for slot in slots]
    kept = [slot for slot in slots if not slot.is_empty] or list(slots)
    while _total([slot.least for slot in kept]) > room and len(kept) > 1:
        kept.pop()
    widths = [slot.width for slot in kept]
    while (over := _total(widths) - room) > 0:
        spare, widest = max(
            (width - slot.least, place) for place, (slot, width) in enumerate(zip(kept, widths, strict=True))
        )
        if spare == 0:
            break
        widths[widest] -= min(spare, over, max(1, spare // 2))
    return list(zip(kept, widths, strict=True))


def _slot(column: Column, values: Sequence[object]) -> Slot:
    cells = (visible(column.name), *map(readable, values))
    widths = [_width(cell) for cell in cells]
    is_number = _is_number(column)
    least = max(widths[1:], default=1) if is_number else min(max(widths), NARROW)
    return Slot(
        cells=cells,
        is_number=is_number,
        is_empty=all(value is None for value in values),
        width=max(widths),
        least=max(least, min(widths[0], NARROW)),
    )


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _first(answer: Answer, count: int) -> tuple[list[Row], bool]:
    """The first rows, and whether there are more."""
    rows = list(islice(answer.rows, count + 1))
    return rows[:count], len(rows) > count


def _remark(out: TextIO, shown: int, more: bool) -> None:
    """What is to be said below the rows."""
    if more:
        print(f"the first {shown} rows; there are more", file=out)
    elif shown == 0:
        print("no rows", file=out)


def _cell(text: str, width: int, *, right: bool) -> str:
    return _padded(_cut(text, width), width, right=right)


def _is_number(column: Column) -> bool:
    return column.type in NUMBERS or column.type.startswith(REALS)


def _width(text: str) -> int:
    """Columns of text it takes: two for a wide character, none for an accent on another one."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _padded(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + CUT


def _unlike(names: Iterable[str]) -> list[str]:
    """The names, with a number behind those that were there before: x, x_1."""
    found: dict[str, int] = {}
    for name in names:
        free, number = name, 0
        while free in found:
            number += 1
            free = f"{name}_{number}"
        found[free] = number
    return list(found)
