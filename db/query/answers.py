"""What queries answer, and the data dictionary that explains it.

Answers are written as a table that fits the terminal, one value per line, Markdown, CSV or JSON; the dictionary has
tables, views and columns with their meaning and unit.
"""

from __future__ import annotations

import csv
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TextIO

from benchmarking.core import text
from benchmarking.core.axes import AXES
from benchmarking.core.command_line import choice
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import METRICS
from benchmarking.core.tables import GAP, Slot, Table, drawn, narrowed, table_text, text_width, total_width
from benchmarking.core.terminal import Page, data_stream, page_of
from benchmarking.core.text import counted, numbered, visible
from db.query.questions import Answer, Column, Row
from db.values import exact, plain, readable

if TYPE_CHECKING:
    from db.warehouse import Warehouse


WIDTH = 100
"""Width in characters without a terminal."""
UNITS = {
    "_flops_per_sec": "FLOP/s",
    "_bytes_per_sec": "B/s",
    "_tokens_per_sec": "tokens/s",
    "_samples_per_sec": "items/s",
    "_j_per_call": "J",
    "_bytes": "B",
    "_mb": "MB",
    "_ms": "ms",
    "_s": "s",
    "_w": "W",
    "peak_flops": "FLOP/s",
}
"""Suffix of a column's name -> unit, for columns that are neither metrics nor axes; the first match counts."""
ENTRIES = """
SELECT table_name AS name, 'table' AS kind, coalesce(comment, '') AS meaning FROM duckdb_tables()
WHERE database_name = current_database() AND NOT internal
UNION ALL
SELECT view_name, 'view', coalesce(comment, '') FROM duckdb_views()
WHERE database_name = current_database() AND NOT internal
ORDER BY kind, name
"""
FIELDS = """
SELECT column_name AS name, data_type AS type, coalesce(comment, '') AS meaning
FROM duckdb_columns() WHERE database_name = current_database() AND NOT internal AND table_name = ? ORDER BY column_index
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A table or view."""

    name: str
    kind: str
    """table or view."""
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column of a table or view."""

    name: str
    type: str
    unit: str
    """Empty for none, and if a row states it."""
    meaning: str


def entries(warehouse: Warehouse) -> tuple[Entry, ...]:
    """Every table, then every view, by name."""
    return tuple(Entry(**row) for row in warehouse.query(ENTRIES).dicts())


def entry(warehouse: Warehouse, name: str) -> Entry:
    """The table or view with that name. Raises UsageError, with similar names."""
    known = {known_entry.name: known_entry for known_entry in entries(warehouse)}
    return known[choice(name, tuple(known), "table or view")]


def fields(warehouse: Warehouse, name: str) -> tuple[Field, ...]:
    """The columns of a table or view, in order."""
    rows = warehouse.query(FIELDS, [name]).dicts()
    return tuple(Field(unit=unit_of(row["name"]), **row) for row in rows)


def unit_of(column: str) -> str:
    """The unit of a column, from its name: "ms" for latency_median_ms; empty for none."""
    known = METRICS.get(column) or AXES.get(column)
    return known.unit if known else next((unit for ending, unit in UNITS.items() if column.endswith(ending)), "")


def dictionary_answer(warehouse: Warehouse, name: str | None) -> Answer:
    """The dictionary as an answer: all tables and views, or the columns of one."""
    if name is None:
        rows = [(described.name, described.kind, described.meaning) for described in entries(warehouse)]
        return _answer(("name", "kind", "meaning"), rows)
    return _answer(
        ("name", "type", "unit", "meaning"),
        [
            (field.name, field.type, field.unit, field.meaning)
            for field in fields(warehouse, entry(warehouse, name).name)
        ],
    )


def dictionary_text(warehouse: Warehouse, name: str | None, *, width: int) -> str:
    """The dictionary as text: each name with its whole meaning below it."""
    if name is None:
        return listing(entries(warehouse), width=width)
    described = entry(warehouse, name)
    rows = [
        ("  ".join(filter(None, (field.name, field.type, field.unit))), field.meaning)
        for field in fields(warehouse, described.name)
    ]
    title = textwrap.fill(f"{described.name} ({described.kind}): {described.meaning}", width)
    return "\n".join([title, "", *_paragraphs(rows, width)])


def listing(entries: Sequence[Entry], *, width: int) -> str:
    """The tables and views as text."""
    return "\n".join(_paragraphs([(f"{entry.name}  ({entry.kind})", entry.meaning) for entry in entries], width))


def _paragraphs(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Each heading with its meaning, wrapped and indented, below it."""
    indent = " " * 4
    return [
        line
        for heading, meaning in rows
        for line in (heading, *textwrap.wrap(meaning, width, initial_indent=indent, subsequent_indent=indent))
    ]


def _answer(names: Sequence[str], rows: Sequence[Row]) -> Answer:
    return Answer(columns=tuple(Column(name=name, type="VARCHAR") for name in names), rows=iter(rows))


NARROW = 12
"""Minimum width of a text column, in characters."""
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
REALS = ("FLOAT", "DOUBLE", "DECIMAL")
DEFAULT_ROWS = 100

Writer = Callable[[Answer, TextIO, Page, int], None]
"""Writes an answer for a page; the number is the maximum of rows in formats for people."""


def write_table(answer: Answer, out: TextIO, page: Page, limit: int) -> None:
    """One line per row. On a narrow terminal text is truncated and columns are dropped, with a remark.

    A file or pipe gets everything: long text is wrapped, and the table continues below.
    """
    rows, more = _first(answer, limit)
    if not page.is_terminal:
        table = Table(
            headings=tuple(column.name for column in answer.columns),
            rows=tuple(tuple(map(readable, row)) for row in rows),
            numbers=tuple(index for index, column in enumerate(answer.columns) if is_numeric(column)),
        )
        print(table_text(table, page), file=out)
        _remark(out, len(rows), more)
        return
    slots = [_slot(column, [row[index] for row in rows]) for index, column in enumerate(answer.columns)]
    shown = fitting_columns(slots, page.width)
    cells = [[slot.cells[index] for slot, _ in shown] for index in range(len(rows) + 1)]
    numbers = [index for index, (slot, _) in enumerate(shown) if slot.is_number]
    print(drawn(cells, [width for _, width in shown], page, numbers=numbers, overflow="ellipsis"), file=out)
    _remark(out, len(rows), more)
    if (hidden := len(slots) - len(shown)) > 0:
        print(f"{counted(hidden, 'more column')}: select fewer, or use --format vertical", file=out)


def write_vertical(answer: Answer, out: TextIO, page: Page, limit: int) -> None:
    """One line per value, not truncated, with a rule above each row."""
    rows, more = _first(answer, limit)
    names = [visible(column.name) for column in answer.columns]
    width = max(map(text_width, names))
    for number, row in enumerate(rows, start=1):
        print(f"{page.rule * 2} row {number}", file=out)
        for name, value in zip(names, row, strict=True):
            print(f"{name}{' ' * (width - text_width(name))}{GAP}{readable(value)}".rstrip(), file=out)
    _remark(out, len(rows), more)


def write_markdown(answer: Answer, out: TextIO, page: Page, limit: int) -> None:
    """A Markdown table with all rows."""
    right = [index for index, column in enumerate(answer.columns) if is_numeric(column)]
    rows = [[readable(value) for value in row] for row in answer.rows]
    print(text.markdown_table([column.name for column in answer.columns], rows, right=right), file=out)


class _Echo:
    """Returns what is written to it, so that a csv writer returns its lines."""

    def write(self, line: str) -> str:
        return line


def csv_lines(answer: Answer) -> Iterator[str]:
    """CSV with a header: every row, every digit, and no text that a spreadsheet would execute."""
    line = csv.writer(_Echo(), lineterminator="\n").writerow
    yield str(line([text.spreadsheet_safe(column.name) for column in answer.columns]))
    yield from (str(line([text.spreadsheet_safe(exact(value)) for value in row])) for row in answer.rows)


def json_lines(answer: Answer) -> Iterator[str]:
    """A list of objects, one row per line."""
    names = numbered([column.name for column in answer.columns])
    yield "["
    for number, row in enumerate(answer.rows):
        values = (plain(value, column.type) for value, column in zip(row, answer.columns, strict=True))
        line = json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False)
        yield f"{',' * (number > 0)}\n{line}"
    yield "\n]\n"


WRITERS: dict[str, Writer] = {"table": write_table, "vertical": write_vertical, "markdown": write_markdown}
LINES: dict[str, Callable[[Answer], Iterator[str]]] = {"csv": csv_lines, "json": json_lines}
"""Formats that can be streamed line by line."""
FORMATS = (*WRITERS, *LINES)


HELD_CHARACTERS = 4_000_000
"""An answer of up to so many is printed whole or not at all, as a query may fail after its first rows; of a longer one,
parts of so many are."""


def _write_lines(lines: Iterator[str], out: TextIO) -> None:
    held, size = list[str](), 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size > HELD_CHARACTERS:
            out.writelines(held)
            held, size = [], 0
    out.writelines(held)


def write(answer: Answer, name: str, *, out: TextIO | None = None, rows: int = DEFAULT_ROWS) -> None:
    """Write the answer in the named format, to stdout by default."""
    stream = out if out is not None else data_stream() if name == "csv" else sys.stdout
    if name in LINES:
        _write_lines(LINES[name](answer), stream)
    else:
        WRITERS[name](answer, stream, page_of(stream), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled(Slot):
    """A table column as text."""

    cells: tuple[str, ...]
    """Cells, with the heading first."""
    is_number: bool
    is_empty: bool
    """Whether no row has a value."""


def fitting_columns(slots: Sequence[Filled], room: int | None) -> list[tuple[Filled, int]]:
    """The columns that fit into the available width, with their widths.

    If not all fit, empty columns are dropped first, then columns from the right, but never the first one; the widest of
    the rest are narrowed.
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
    is_number = is_numeric(column)
    least = max(widths[1:], default=1) if is_number else min(max(widths), NARROW)
    # A number keeps all digits, text at least 12 characters.
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
    """Print the remark below the rows."""
    if more:
        print(f"the first {shown} rows; there are more", file=out)
    elif shown == 0:
        print("no rows", file=out)


def is_numeric(column: Column) -> bool:
    """Whether the values of the column are numbers."""
    return column.type in NUMBERS or column.type.startswith(REALS)
