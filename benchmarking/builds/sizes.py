"""Sizes and ages in words."""

from __future__ import annotations

from datetime import UTC, datetime

UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def size_text(size_bytes: float) -> str:
    """Bytes with three significant digits or more: "1.23 GB", "45.6 MB", "512 B". The units are powers of ten."""
    for unit, factor in UNITS:
        if size_bytes >= factor:
            value = size_bytes / factor
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def time_text(seconds: float) -> str:
    """A time since the epoch as UTC, ISO 8601, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
