"""Words and notations that the reports of comparisons, histories, the gate and recommendations share."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarking.core.text import number

HEADINGS = {"model_id": "model", "device_name": "hardware", "num_threads": "threads"}
"""Column -> heading, where they differ."""
MAX_KINDS = 2
"""Kinds of doubt that are listed; the others are counted."""


def heading(column: str) -> str:
    """The heading of a column, and its name in a sentence."""
    return HEADINGS.get(column, column)


def percent_change(change: float) -> str:
    """A relative change: "+10.2%"."""
    return f"{change:+.1%}"


def optional_number(value: float | None) -> str | None:
    """A number in significant digits; None without one."""
    return None if value is None else number(value)


def listed(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first names, and how many more there are: "drift, steal +2"."""
    more = f" +{len(names) - most}" if len(names) > most else ""
    return separator.join(names[:most]) + more


def listed_doubts(kinds: Sequence[str]) -> str:
    """The first kinds of doubt, and how many more there are."""
    return listed(kinds, MAX_KINDS)
