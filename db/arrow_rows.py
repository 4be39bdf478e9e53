"""Arrow tables from rows, typed as the warehouse's columns are: one insert of many rows is one pass over memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarking.errors import FormatError


def arrow_table(rows: Sequence[Mapping[str, Any]], column_types: Mapping[str, str]) -> Any:
    """A `pyarrow.Table` of the rows.

    `column_types` are DuckDB's names of the column types. A column that a row does not have is NULL; a value for a
    column that is not there is a bug and raises KeyError, so that nothing is dropped unseen. Raises FormatError for a
    number too large for its column and for text that is not Unicode.
    """
    import pyarrow as pa

    unknown = {name for row in rows for name in row} - column_types.keys()
    if unknown:
        raise KeyError(f"no such column: {', '.join(sorted(unknown))}")
    types = _arrow_types()
    schema = pa.schema([(name, types[kind]) for name, kind in column_types.items()])
    try:
        return pa.Table.from_pylist(list(rows), schema=schema)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError) as error:
        raise FormatError(f"a value cannot be stored: {error}") from error


def _arrow_types() -> dict[str, Any]:
    import pyarrow as pa

    return {
        "VARCHAR": pa.string(),
        "JSON": pa.string(),
        "BOOLEAN": pa.bool_(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "TIMESTAMP": pa.timestamp("us"),
        "VARCHAR[]": pa.list_(pa.string()),
        "DOUBLE[]": pa.list_(pa.float64()),
        "MAP(VARCHAR, VARCHAR)": pa.map_(pa.string(), pa.string()),
        "MAP(VARCHAR, DOUBLE)": pa.map_(pa.string(), pa.float64()),
    }
