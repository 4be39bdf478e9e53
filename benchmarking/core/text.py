"""Numbers, durations and foreign text as people read them."""

from __future__ import annotations

import math
import unicodedata

TINY, HUGE = 1e-9, 1e15
"""Numbers beyond these are shown with an exponent: their zeros would be longer than a column."""


def number(value: float, digits: int = 4) -> str:
    """A number in significant digits, whole ones kept whole: "0.00001234", "12346"."""
    size = abs(value)
    if value == 0 or not math.isfinite(value) or not TINY <= size < HUGE:
        return f"{value:.{digits}g}"
    if size >= 10 ** (digits - 1):
        return f"{value:.0f}"
    if size >= 1e-4:
        return f"{value:.{digits}g}"
    return f"{value:.{digits - 1 - math.floor(math.log10(size))}f}".rstrip("0")


def relative_error(value: float) -> str:
    """A relative error in two digits: "0.0054", "3.2e-07"."""
    return f"{value:.2g}" if value == 0 or value >= 1e-4 else f"{value:.1e}"


def duration(seconds: float) -> str:
    """A duration in the unit that people would take: "12 s", "5 min", "1.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def visible(text: str) -> str:
    """The text with control characters (which could steer a terminal, or break a line) as escapes: "\\n", "\\x1b"."""
    if text.isprintable():
        return text
    return "".join(_escape(character) for character in text)


def visible_lines(text: str) -> str:
    """The text with everything but its line ends visible."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _escape(character: str) -> str:
    # Cc: control, Cf: turns the direction of what follows, Cs: half a character; Zl, Zp: line ends.
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character.encode("unicode_escape").decode()
    return character
