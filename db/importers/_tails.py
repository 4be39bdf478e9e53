"""Percentiles that a tool states although it has too few values for them."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarking.estimates import TAIL_MIN_SAMPLES
from benchmarking.records import TOO_FEW_SAMPLES

COLUMNS = {f"latency_p{round(100 * q)}_ms": least for q, least in TAIL_MIN_SAMPLES.items()}
"""Column -> the least number of values behind it."""


def supported(metrics: Mapping[str, float], values: float | None) -> tuple[dict[str, float], dict[str, str]]:
    """The metrics, their tails of too few values under stated_COLUMN instead, and the reasons for the columns.

    `values` is how many there were, None where the file does not say: then the tails stay.
    """
    few = {column for column, least in COLUMNS.items() if column in metrics and values is not None and values < least}
    kept = {f"stated_{name}" if name in few else name: value for name, value in metrics.items()}
    return kept, dict.fromkeys(few, TOO_FEW_SAMPLES)
