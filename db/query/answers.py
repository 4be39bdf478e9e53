"""Answers written out: as a table that fits a terminal, one value a line, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TextIO

from benchmarking.core import text
from benchmarking.core.tables import GAP, Slot, drawn, narrowed, text_width, total_width
from benchmarking.core.terminal import Page, page_of
from benchmarking.core.text import visible
from db.query.questions import Answer, Column, Row
from db.values import exact, plain, readable

NARROW = 12
"""Columns of text that a cell keeps, however many columns there are; a narrower one says too little."""
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
REALS = ("FLOAT", "DOUBLE", "DECIMAL")
DEFAULT_ROWS = 100


Writer = Callable[[Answer, TextIO, Page, int], None]
"""Writes an answer for a page; the number is that of the rows that people are shown."""


def write_table(answer: Answer, out: TextIO, page: Page, limit: int) -> None:
    """One line a row. Where the page is too narrow, text is cut and columns are left out, and it says so."""
    rows, more = _first(answer, limit)
    slots = [_slot(column, [row[place] for row in rows]) for place, column in enumerate(answer.columns)]
    shown = fitting_columns(slots, page.width)
    cells = [[slot.cells[place] for slot, _ in shown] for place in range(len(rows) + 1)]
    numbers = [place for place, (slot, _) in enumerate(shown) if slot.is_number]
    print(drawn(cells, [width for _, width in shown], page, numbers=numbers, overflow="ellipsis"), file=out)
    _remark(out, len(rows), more)
    if (left := len(slots) - len(shown)) > 0:
        print(f"{left} more column{'s' * (left > 1)}: name those you want, or take the format vertical", file=out)


def write_vertical(answer: Answer, out: TextIO, page: Page, limit: int) -> None:
    """One line a value, uncut, with a rule over each row."""
    rows, more = _first(answer, limit)
    names = [visible(column.name) for column in answer.columns]
    width = max(map(text_width, names))
    for number, row in enumerate(rows, start=1):
        print(f"{page.rule * 2} row {number}", file=out)
        for name, value in zip(names, row, strict=True):
            print(f"{name}{' ' * (width - text_width(name))}{GAP}{readable(value)}".rstrip(), file=out)
    _remark(out, len(rows), more)


def write_markdown(answer: Answer, out: TextIO, page: Page, limit: int) -> None:
    """A table in Markdown, with all rows."""
    right = [place for place, column in enumerate(answer.columns) if _is_number(column)]
    rows = [[readable(value) for value in row] for row in answer.rows]
    print(text.markdown_table([column.name for column in answer.columns], rows, right=right), file=out)


def write_csv(answer: Answer, out: TextIO, page: Page, limit: int) -> None:
    """CSV with a line of names: every row, every digit."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in answer.columns])
    writer.writerows([exact(value) for value in row] for row in answer.rows)


def write_json(answer: Answer, out: TextIO, page: Page, limit: int) -> None:
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
    WRITERS[name](answer, stream, page_of(stream), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled(Slot):
    """A column of a table as text."""

    cells: tuple[str, ...]
    """The heading first."""
    is_number: bool
    is_empty: bool
    """Whether no row has anything in it."""


def fitting_columns(slots: Sequence[Filled], room: int | None) -> list[tuple[Filled, int]]:
    """The columns that fit into the room, gaps between them, with their widths.

    Where not all do, those without anything in them go first, then those on the right, all but one; the widest of the
    rest are narrowed.
    """
    if room is None or total_width([slot.width for slot in slots]) <= room:
        return [(slot, slot.width) for slot in slots]
    kept = [slot for slot in slots if not slot.is_empty] or list(slots)
    while total_width([slot.least for slot in kept]) > room and len(kept) > 1:
        kept.pop()
    return list(zip(kept, narrowed(kept, room), strict=True))


def _slot(column: Column, values: Sequence[object]) -> Filled:
    cells = (visible(column.name), *map(readable, values))
    widths = [text_width(cell) for cell in cells]
    is_number = _is_number(column)
    least = max(widths[1:], default=1) if is_number else min(max(widths), NARROW)
    # A number never loses a digit, text keeps 12 columns.
    return Filled(
        cells=cells,
        is_number=is_number,
        is_empty=all(value is None for value in values),
        width=max(widths),
        least=max(least, min(widths[0], NARROW)),
    )


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


def _is_number(column: Column) -> bool:
    return column.type in NUMBERS or column.type.startswith(REALS)


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
