"""Reads a whole warehouse, to find what cannot be read: DuckDB checks a block of the file only when it needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarking.errors import StorageError
from db.migrate import quoted
from db.trouble import why

if TYPE_CHECKING:
    from db.warehouse import Warehouse

TABLES = "SELECT table_name AS name FROM duckdb_tables() WHERE NOT internal ORDER BY 1"
KEYS = """
SELECT table_name AS name, constraint_column_names[1] AS key FROM duckdb_constraints()
WHERE constraint_type = 'PRIMARY KEY' AND len(constraint_column_names) = 1 ORDER BY 1
"""
BATCH = 1000
"""Keys looked for at once: DuckDB asks the index only for fewer than 2048 rows, and the table itself for more."""


def damage(warehouse: Warehouse) -> Iterator[tuple[str, str]]:
    """Each table of which something cannot be read, and what; empty when all can."""
    damaged = []
    for row in warehouse.query(TABLES).dicts():
        try:
            _read(warehouse, row["name"], "COLUMNS(*)")
        except StorageError as error:
            damaged.append(row["name"])
            yield row["name"], f"{row['name']}: {_unreadable(warehouse, row['name'])} cannot be read: {why(error)}"
    for row in warehouse.query(KEYS).dicts():
        problem = None if row["name"] in damaged else _index_problem(warehouse, row["name"], row["key"])
        if problem is not None:
            yield row["name"], f"{row['name']}: the index of {row['key']} {problem}"


def _unreadable(warehouse: Warehouse, table: str) -> str:
    names = [row["column_name"] for row in warehouse.query(f"DESCRIBE {quoted(table)}").dicts()]
    return ", ".join(name for name in names if not _is_readable(warehouse, table, name)) or "some rows"


def _is_readable(warehouse: Warehouse, table: str, column: str) -> bool:
    try:
        _read(warehouse, table, quoted(column))
    except StorageError:
        return False
    return True


def _read(warehouse: Warehouse, table: str, columns: str) -> None:
    warehouse.query(f"SELECT bit_xor(hash({columns})) FROM {quoted(table)}")


def _index_problem(warehouse: Warehouse, table: str, key: str) -> str | None:
    """What is wrong with a primary key's index: it cannot be read, or does not lead to every row."""
    keys = warehouse.query(f"SELECT {quoted(key)} AS key FROM {quoted(table)}").arrow()["key"].to_pylist()
    found = 0
    try:
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            marks = ", ".join("?" * len(batch))
            sql = f"SELECT count(*) AS n FROM {quoted(table)} WHERE {quoted(key)} IN ({marks})"
            found += warehouse.query(sql, batch).dicts()[0]["n"]
    except StorageError as error:
        return f"cannot be read: {why(error)}"
    return None if found == len(keys) else f"leads to {found} of {len(keys)} rows"
