"""Numbers, durations and foreign text as people read them.

Sizes and ages in words.

Tables in Markdown as GitHub reads it, with nothing in a cell taken for markup.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

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


SIZE_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def size_text(size_bytes: float) -> str:
    """Bytes with three significant digits or more: "1.23 GB", "45.6 MB", "512 B". The units are powers of ten."""
    for unit, factor in SIZE_UNITS:
        if size_bytes >= factor:
            value = size_bytes / factor
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def time_text(seconds: float) -> str:
    """A time since the epoch as UTC, ISO 8601, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


SPECIAL = re.compile(r"([\\`*_\[\]|~])")

ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def markdown_escaped(text: str) -> str:
    """The text so that it reads as itself, in one line: "a|b" as "a\\|b"."""
    line = " ".join(text.split()) if "\n" in text or "\r" in text else text
    safe = "".join(ENTITIES.get(character, character) for character in visible(line))
    return SPECIAL.sub(r"\\\1", safe)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """The rows as a table, its text escaped; the columns whose places are in `right` stand to the right."""
    rule = ("---:" if place in right else "---" for place in range(len(headings)))
    lines = [[markdown_escaped(heading) for heading in headings], list(rule)]
    lines += [[markdown_escaped(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
