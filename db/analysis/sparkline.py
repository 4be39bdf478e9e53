"""A row of numbers as a row of bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-~=+*#"
LEAST_RANGE = 0.1
"""Of the median: what changes less than this looks nearly flat, and not like a mountain range."""


def sparkline(values: Sequence[float], width: int, bars: str = BARS) -> str:
    """One bar a value, or, of more values than `width`, one for the median of each of `width` equal parts."""
    shown = _parts(values, width)
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    missing = LEAST_RANGE * abs(median(shown)) - (high - low)
    if missing > 0:
        low, high = low - missing / 2, high + missing / 2
    span = (high - low) or 1.0
    return "".join(bars[min(len(bars) - 1, int(len(bars) * (value - low) / span))] for value in shown)


def bars_for(encoding: str | None) -> str:
    """The bars that text in the encoding can have."""
    try:
        BARS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII_BARS
    return BARS


def _parts(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    bounds = [math.floor(part * len(values) / width) for part in range(width + 1)]
    return [median(values[start:end]) for start, end in pairwise(bounds)]
