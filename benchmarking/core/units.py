"""Unit conversions for vendor calls and for columns.

Everything in between is in s, B, J, W, Hz, and integer ns from the clock.
"""

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
BYTES_PER_MB = 1_000_000
BYTES_PER_KIB = 1024
BYTES_PER_MIB = 1024**2


def ns_to_ms(duration_ns: float) -> float:
    """Milliseconds of a duration in nanoseconds."""
    return duration_ns / NS_PER_MS


def ns_to_s(duration_ns: float) -> float:
    """Seconds of a duration in nanoseconds."""
    return duration_ns / NS_PER_S


def bytes_to_mb(size_bytes: float) -> float:
    """Megabytes (10^6 bytes) of a size in bytes."""
    return size_bytes / BYTES_PER_MB
