"""The four tables of an older DuckDB file as rows of JSON values, whatever columns they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from benchmarking.errors import StorageError
from db.connection import Config, connect, told
from db.importers import ForeignFile
from db.importers._reading import Fields

if TYPE_CHECKING:
    from db.connection import DuckDB

REQUIRED = ("benchmark_runs", "benchmark_results")
OPTIONAL = ("hardware_info", "raw_benchmark_data")
BOOKKEEPING = "schema_migrations"
"""A warehouse of this program has it: such a file is merged, not imported."""
SETTINGS: Config = {"enable_external_access": False, "threads": 1}
"""Nothing in the file may make DuckDB read another one."""
LOCK_TIMEOUT_S = 5.0
TABLES = "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND schema_name = 'main'"


@dataclass(frozen=True, kw_only=True)
class Tables:
    """All rows of the tables, each as fields named by its table and number."""

    runs: Sequence[Fields]
    results: Sequence[Fields]
    hardware: Sequence[Fields]
    raw: Sequence[Fields]


def has_tables(file: ForeignFile) -> bool:
    """Whether the file is a DuckDB database with the tables, and no warehouse of this program."""
    if not file.is_duckdb:
        return False
    try:
        with told(str(file.path)), _opened(file, lock_timeout_s=0.0) as connection:
            names = _names(connection)
    except StorageError:  # locked, damaged or of a newer DuckDB: then nothing is known of it
        return False
    return names.issuperset(REQUIRED) and BOOKKEEPING not in names


def read_tables(file: ForeignFile) -> Tables:
    """The tables' rows. Raises FormatError for a file without them, StorageError for one that cannot be read."""
    with told(str(file.path)), _opened(file, lock_timeout_s=LOCK_TIMEOUT_S) as connection:
        names = _names(connection)
        absent = [name for name in REQUIRED if name not in names]
        if absent:
            file.refuse(f"no table {' and no table '.join(absent)}")
        rows = {name: _rows(file, connection, name) if name in names else [] for name in (*REQUIRED, *OPTIONAL)}
    return Tables(
        runs=rows["benchmark_runs"],
        results=rows["benchmark_results"],
        hardware=rows["hardware_info"],
        raw=rows["raw_benchmark_data"],
    )


def _opened(file: ForeignFile, *, lock_timeout_s: float) -> DuckDB:
    return connect(str(file.path), SETTINGS, read_only=True, lock_timeout_s=lock_timeout_s)


def _names(connection: DuckDB) -> set[str]:
    return {name for (name,) in connection.execute(TABLES).fetchall()}


def _rows(file: ForeignFile, connection: DuckDB, table: str) -> list[Fields]:
    """The rows in the order they were written in, without what is NULL; `table` is one of ours, never the file's."""
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
    columns = [column[0].lower() for column in cursor.description or ()]
    found = []
    for number, row in enumerate(cursor.fetchall(), start=1):
        values = {name: _plain(value) for name, value in zip(columns, row, strict=True) if value is not None}
        found.append(Fields(file, values, f"{table} row {number}", numbers_are_text=True))
    return found


def _plain(value: Any) -> Any:
    """The value as JSON has it; times in ISO 8601, numbers of fixed digits as floats, all else as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return str(value)
