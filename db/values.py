"""Formats values as JSON, as CSV and for people; words and notations that reports share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from benchmarking.core.doubts import KINDS, SEVERITIES
from benchmarking.core.tables import NOTHING
from benchmarking.core.text import listed, number, visible

DIGITS = 6
"""Significant digits of numbers for people."""
HEADINGS = {"model_id": "model", "device_name": "hardware", "num_threads": "threads"}
"""Column -> heading, where they differ."""
MAX_KINDS = 2
"""Maximum kinds of doubt that are listed; the rest are counted."""


def plain(value: Any, kind: str = "") -> Any:
    """The value as JSON; `kind` is its column's type.

    Maps become objects, JSON stays itself, times are ISO 8601 (UTC in the warehouse), bytes are hexadecimal. Numbers
    that JSON does not have become text: NaN, the infinities, and decimals that no 64-bit float equals.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return json.loads(value) if kind == "JSON" else value
    if isinstance(value, float):
        return value if math.isfinite(value) else NOT_FINITE.get(value, "NaN")
    if isinstance(value, Decimal):
        if not value.is_finite():
            return str(value)
        if value == value.to_integral_value():
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def exact(value: Any) -> str:
    """The value as a CSV cell: floats in the fewest digits that give the same float, NULL as an empty cell."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    simple = plain(value)
    if isinstance(simple, str):
        return simple
    return "" if simple is None else json.dumps(simple, ensure_ascii=False, separators=(",", ":"))


def readable(value: Any) -> str:
    """The value for people: numbers with six digits, NULL as "-", control characters made visible."""
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return number(value, DIGITS)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return visible(exact(value))


def heading(column: str) -> str:
    """The heading of a column, and its name in a sentence."""
    return HEADINGS.get(column, column)


def percent_change(change: float) -> str:
    """A relative change: "+10.2%"."""
    return f"{change:+.1%}"


def optional_number(value: float | None) -> str | None:
    """A number in significant digits; None without one."""
    return None if value is None else number(value)


def doubt_word(kinds: Sequence[str]) -> str:
    """The worst severity among kinds of doubt; empty without a kind, "see below" for kinds that only importers
    have."""
    severities = [KINDS[kind].severity for kind in kinds if kind in KINDS]
    return max(severities, key=SEVERITIES.index) if severities else "see below" if kinds else ""


def listed_doubts(kinds: Sequence[str]) -> str:
    """The first kinds of doubt, and the number of the rest."""
    return listed(kinds, MAX_KINDS)
