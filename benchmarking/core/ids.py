"""Identifiers that sort by the time they were made.

Now, as it is written down. Durations are never taken from it: they come from a device's `now_ns`.
"""

from __future__ import annotations

import secrets
import time
import uuid
from datetime import UTC, datetime


def uuid7() -> str:
    """A UUID version 7 (RFC 9562): 48 bits of Unix milliseconds, then 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76  # version
    value = value & ~(0x3 << 62) | 0x2 << 62  # variant
    return str(uuid.UUID(int=value))


def utc_now() -> str:
    """Now, UTC, ISO 8601, to the millisecond: "2026-01-02T03:04:05.678Z"."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
