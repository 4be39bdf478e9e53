"""Chooses which of the memory metrics a picture can show: the accelerator's own where there is one, else the host's."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarking.core.metrics import PEAK_MEMORY
from visualize.charts import Row
from visualize.charts._rows import is_ok

COLUMNS = ", ".join(f"r.{column}" for column in PEAK_MEMORY)


def chosen(rows: Sequence[Row]) -> str | None:
    """The first column that any measured row has a value in; None when there is no memory reading at all."""
    measured = [row for row in rows if is_ok(row)]
    return next((column for column in PEAK_MEMORY if any(row[column] is not None for row in measured)), None)
