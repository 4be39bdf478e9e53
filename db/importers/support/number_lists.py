"""Reads long lists of numbers in JSON text into arrays: 8 bytes per number, where Python objects take 32 or more.

The lists are taken out of the text before parsing and put back while it is parsed: a file of raw samples contains
hardly anything else.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

MIN_BYTES = 200
"""Minimum length of a list that is taken out; for a few numbers an array takes as much memory as a list."""
MAX_NUMBERS = 30_000_000
"""Maximum numbers of a file: 240 MB in arrays. Further lists stay in the text, which is then refused for its size."""
PIECE_BYTES = 1 << 20
"""Length of the pieces of a list that are parsed at once, into Python numbers first."""
EXACT = 2**53
"""Whole numbers up to here are exact as floats."""

PLACEHOLDER = "-Infinity"
"""Placeholder of a list in the text: a word that is not JSON, so the parser passes it to `parse_constant`."""
STRING = rb'"(?:[^"\\]++|\\.)*+"'

Numbers: TypeAlias = "array[Any]"
"""Arrays of type "q" (whole numbers) or "d"."""


def extract_lists(content: bytes) -> tuple[bytes, tuple[Numbers, ...]]:
    """The JSON text with a placeholder for each long list of numbers, and the lists in the order of the text.

    Lists that do not fit into an array (numbers beyond its range, not JSON) stay in the text, and so do all lists of a
    text that contains the placeholder itself.
    """
    token = re.compile(rb"%b|-Infinity|\[[-+0-9.eE,\s]{%d,}+\]" % (STRING, MIN_BYTES), re.DOTALL)
    rest, lists, position, count = bytearray(), list[Numbers](), 0, 0
    for match in token.finditer(content):
        if content[match.start()] == ord("-"):
            return content, ()
        values = _values(content, match.start() + 1, match.end() - 1) if content[match.start()] == ord("[") else None
        if values is None or count + len(values) > MAX_NUMBERS:
            continue
        rest += content[position : match.start()] + PLACEHOLDER.encode()
        position = match.end()
        count += len(values)
        lists.append(values)
    return (bytes(rest + content[position:]), tuple(lists)) if lists else (content, ())


def _values(content: bytes, start: int, end: int) -> Numbers | None:
    """The comma-separated numbers between two offsets; None if they do not fit into an array."""
    values: Numbers = array("q")
    try:
        for piece in _pieces(content, start, end):
            numbers = json.loads(b"[%b]" % piece)
            if not numbers:  # nothing between two commas
                return None
            kinds = set(map(type, numbers))
            if values.typecode == "q" and kinds != {int}:
                values = array("d", _exact(values))
            if kinds == {float} and all(map(math.isfinite, numbers)):  # nearly always
                values.extend(array("d", numbers))
            else:
                values.extend(array(values.typecode, numbers if values.typecode == "q" else _exact(numbers)))
    except (ValueError, OverflowError):
        return None
    return values


def _pieces(content: bytes, start: int, end: int) -> Iterator[bytes]:
    while end - start > PIECE_BYTES:
        comma = content.rfind(b",", start, start + PIECE_BYTES)
        if comma < 0:
            raise ValueError("no comma between many numbers")
        yield content[start:comma]
        start = comma + 1
    yield content[start:end]


def _exact(numbers: Sequence[int | float]) -> Iterator[float]:
    """The numbers as floats. Raises ValueError for a number that is not exact as a float, and for infinity (1e999)."""
    for number in numbers:
        if not math.isfinite(number) or (isinstance(number, int) and abs(number) > EXACT):
            raise ValueError(f"{number} is not exact as a float")
        yield float(number)


def floats(values: Numbers) -> array[float]:
    """The numbers as floats; an array of floats is returned itself."""
    return values if values.typecode == "d" else array("d", values)
