"""The answer to a query, as Arrow, pandas or plain dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class Table:
    """The answer to a query: all of it, no cursor behind."""

    def __init__(self, arrow: Any) -> None:
        """Wraps a `pyarrow.Table`."""
        self._arrow = arrow

    def arrow(self) -> Any:
        """As a `pyarrow.Table`."""
        return self._arrow

    def df(self) -> pd.DataFrame:
        """As a `pandas.DataFrame`; maps are dictionaries, JSON is text."""
        frame: pd.DataFrame = self._arrow.to_pandas(maps_as_pydicts="strict")
        return frame

    def dicts(self) -> list[dict[str, Any]]:
        """One dictionary a row; maps are dictionaries, JSON is text."""
        import pyarrow as pa

        rows: list[dict[str, Any]] = self._arrow.to_pylist()
        for name in (field.name for field in self._arrow.schema if pa.types.is_map(field.type)):
            for row in rows:
                row[name] = None if row[name] is None else dict(row[name])
        return rows
