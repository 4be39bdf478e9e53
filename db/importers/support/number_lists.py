"""Long lists of numbers of a JSON text as arrays: 8 bytes a number, where Python's objects take 32 or more.

They are taken out of the text before it is parsed, and put back in as it is: a file of raw samples hardly has anything
else.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

MIN_BYTES = 200
"""Text of a list that is taken out; an array of a few numbers takes as much memory as a list of them."""
MAX_NUMBERS = 30_000_000
"""Of a file: 240 MB in arrays. Lists beyond it stay in the text, which is then refused for its size."""
PIECE_BYTES = 1 << 20
"""Of a list that is parsed at once, to Python's numbers first."""
EXACT = 2**53
"""Whole numbers up to here are the same as floats."""

PLACEHOLDER = "-Infinity"
"""Stands for a list in the text: as a word that JSON does not have, it goes to the parser's `parse_constant`."""
STRING = rb'"(?:[^"\\]++|\\.)*+"'

Numbers: TypeAlias = "array[Any]"
"""Of type "q" (whole numbers) or "d"."""


def take_out(content: bytes) -> tuple[bytes, tuple[Numbers, ...]]:
    """The JSON text with a placeholder for each long list of numbers, and the lists in the order of the text.

    Lists that an array cannot hold (numbers beyond its range, not JSON) stay in the text, as do all lists of a text
    that has the placeholder itself.
    """
    token = re.compile(rb"%b|-Infinity|\[[-+0-9.eE,\s]{%d,}+\]" % (STRING, MIN_BYTES), re.DOTALL)
    rest, lists, taken, count = bytearray(), list[Numbers](), 0, 0
    for found in token.finditer(content):
        if content[found.start()] == ord("-"):
            return content, ()
        values = _values(content, found.start() + 1, found.end() - 1) if content[found.start()] == ord("[") else None
        if values is None or count + len(values) > MAX_NUMBERS:
            continue
        rest += content[taken : found.start()] + PLACEHOLDER.encode()
        taken = found.end()
        count += len(values)
        lists.append(values)
    return (bytes(rest + content[taken:]), tuple(lists)) if lists else (content, ())


def _values(content: bytes, start: int, end: int) -> Numbers | None:
    """The numbers between two places, separated by commas; None where an array cannot hold them."""
    values: Numbers = array("q")
    try:
        for piece in _pieces(content, start, end):
            found = json.loads(b"[%b]" % piece)
            if not found:  # nothing between two commas
                return None
            kinds = set(map(type, found))
            if values.typecode == "q" and kinds != {int}:
                values = array("d", _exact(values))
            if kinds == {float} and all(map(math.isfinite, found)):  # nearly always
                values.extend(array("d", found))
            else:
                values.extend(array(values.typecode, found if values.typecode == "q" else _exact(found)))
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
    """The numbers as floats. Raises ValueError for one that is no float, and for infinity (1e999)."""
    for number in numbers:
        if not math.isfinite(number) or (isinstance(number, int) and abs(number) > EXACT):
            raise ValueError(f"{number} is not exact as a float")
        yield float(number)


def floats(values: Numbers) -> array[float]:
    """The numbers as floats; those that are stay the same object."""
    return values if values.typecode == "d" else array("d", values)
