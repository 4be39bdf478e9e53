"""Whether a run that is stored already says what is stored of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarking.errors import FormatError
from db.arrow_rows import arrow_table
from db.contents import conflicts, told

if TYPE_CHECKING:
    from db.connection import DuckDB
    from db.rows import Row

OWN = ("benchmark_runs", "benchmark_results", "raw_benchmark_data")
"""The tables in which each row belongs to one run."""


def refuse_another(
    connection: DuckDB, run_id: str, rows: Mapping[str, Sequence[Row]], column_types: Callable[[str], Mapping[str, str]]
) -> None:
    """Raise FormatError, with what differs, where the rows of a stored run's id are not those that are stored."""
    names = {table: f"again_{table}" for table in OWN}
    for table, name in names.items():
        connection.register(name, arrow_table(rows[table], column_types(table)))
    found = conflicts(connection, str, names.__getitem__, OWN)
    for name in names.values():
        connection.unregister(name)
    if found:
        raise FormatError(f"run {run_id} is stored already, and this says otherwise: {told(found)}")
