"""Now, as it is written down. Durations are never taken from it: they come from a device's `now_ns`."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """Now, UTC, ISO 8601, to the millisecond: "2026-01-02T03:04:05.678Z"."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
