"""The data dictionary: tables, views and columns with their meaning and unit."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarking.core.axes import AXES
from benchmarking.core.command_line import choice
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import METRICS
from db.query.questions import Answer, Column, Row

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


def text(warehouse: Warehouse, name: str | None, *, width: int) -> str:
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
