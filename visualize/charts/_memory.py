"""Chooses which of the memory metrics a picture can show: the accelerator's own where there is one, else the host's."""

from __future__ import annotations

from collections.abc import Sequence

from visualize.charts import Row
from visualize.charts._rows import is_ok

LABELS = {
    "memory_device_process_peak_mb": "Peak device memory of the process (MB)",
    "memory_device_reserved_peak_mb": "Peak device memory reserved (MB)",
    "memory_device_allocated_peak_mb": "Peak device memory allocated (MB)",
    "memory_peak_rss_infer_mb": "Peak resident memory of the process (MB)",
}
"""Column -> axis label, in the order of preference that the views have too."""
COLUMNS = ", ".join(f"r.{column}" for column in LABELS)


def chosen(rows: Sequence[Row]) -> str | None:
    """The first column that any measured row has a value in; None when there is no memory reading at all."""
    measured = [row for row in rows if is_ok(row)]
    return next((column for column in LABELS if any(row[column] is not None for row in measured)), None)
