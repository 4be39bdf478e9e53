"""Identifiers that sort by the time they were made."""

from __future__ import annotations

import secrets
import time
import uuid


def uuid7() -> str:
    """A UUID version 7 (RFC 9562): 48 bits of Unix milliseconds, then 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76  # version
    value = value & ~(0x3 << 62) | 0x2 << 62  # variant
    return str(uuid.UUID(int=value))
