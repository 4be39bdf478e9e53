"""JSON in the texts of other tools: documents among other lines, and long lists of numbers.

A log has a program's messages among its documents, a line cut off, a damaged value. Whatever begins like a document is
read to its end. A line that prevents it is taken out and reported, and if the text ends inside a list, the whole
elements before the end are read.

Long lists of numbers are read into arrays, which take 8 bytes a number, where Python objects take 32 or more. They are
taken out of the text before parsing and put back while it is parsed: a file of raw samples has hardly anything else.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmarking.core.untrusted.input_files import whole_or_infinity, without_surrogates

START = re.compile(r"\s*[\[{]")
BETWEEN = re.compile(r"[\s,]*")
MAX_CHARACTERS = 32_000_000
"""Maximum length of a text that is searched: longer ones are files of raw samples, which no log contains."""
MAX_REPAIRS = 100
"""Maximum lines that are taken out of documents of a text."""
MAX_WORK = 300_000_000
"""Maximum characters that are parsed for repairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A line that is not part of a document, or was taken out of one."""

    line: int
    """From 1."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The documents in a text, in order: objects, and lists of objects."""

    values: tuple[Any, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def one(self) -> Any:
        """The only document, or the joined elements of several lists; None otherwise."""
        if all(isinstance(value, list) for value in self.values):
            return [one for value in self.values for one in value] or None
        return self.values[0] if len(self.values) == 1 else None

    @property
    def lines(self) -> tuple[Any, ...]:
        """The objects, as if each were on a line of its own; the elements of lists among them."""
        return tuple(one for value in self.values for one in (value if isinstance(value, list) else [value]))


def find_documents(text: str) -> Documents:
    """The documents in a text; none if it has no line that begins like one, or is too long."""
    if len(text) > MAX_CHARACTERS or not re.search(r"^\s*[\[{]", text, re.MULTILINE):
        return Documents()
    search = _Search(lines=list(enumerate(text.split("\n"), 1)))
    values = tuple(search.values())
    return Documents(values=values, skipped=tuple(sorted(search.skipped, key=lambda one: one.line)) if values else ())


class _Search:
    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self.lines = lines
        self.skipped: list[Skipped] = []
        self.decoder = json.JSONDecoder(parse_int=whole_or_infinity, parse_constant=float)
        self.repairs, self.work = MAX_REPAIRS, MAX_WORK

    def values(self) -> Iterator[Any]:
        at = 0
        while at < len(self.lines):
            value, following = self._document(at) if START.match(self.lines[at][1]) else (None, at + 1)
            if value is None:
                self._skip(self.lines[at])
            else:
                yield without_surrogates(value)
            at = following

    def _skip(self, line: tuple[int, str], text: str | None = None) -> None:
        words = line[1] if text is None else text
        if words.strip():
            self.skipped.append(Skipped(line=line[0], text=words.strip()))

    def _document(self, at: int) -> tuple[Any, int]:
        """The document that begins at the line, or None, and the place of the line after it."""
        text = self.lines[at][1].lstrip()
        try:
            value, end = self.decoder.raw_decode(text)
        except json.JSONDecodeError as error:
            is_open = error.pos >= len(text.rstrip())
            return self._repaired(at) if is_open else (None, at + 1)
        except RecursionError:
            return None, at + 1
        if not _is_document(value):
            return None, at + 1
        self._skip(self.lines[at], text[end:])
        return value, at + 1

    def _repaired(self, at: int) -> tuple[Any, int]:
        """Like `_document`, for one of several lines; lines that are not JSON are taken out."""
        rest, taken = self.lines[at:], list[tuple[int, str]]()
        while self.work > 0:
            text = "\n".join(line for _, line in rest)
            self.work -= len(text)
            begin = len(text) - len(text.lstrip())
            try:
                value, end = self.decoder.raw_decode(text, begin)
            except json.JSONDecodeError as error:
                place = error.lineno - 1
                if place == 0 or self.repairs <= 0:
                    break
                if error.pos >= len(text.rstrip()):
                    return self._cut_off(at, text[begin:])
                self.repairs -= 1
                taken.append(rest.pop(place))
                continue
            except RecursionError:
                break
            if not _is_document(value):
                break
            used = text.count("\n", 0, end)
            own = [line for line in taken if line[0] < rest[used][0]]
            for line in own:
                self._skip(line)
            self._skip(rest[used], text[end : text.find("\n", end) if "\n" in text[end:] else len(text)])
            return value, at + used + 1 + len(own)
        return None, at + 1

    def _cut_off(self, at: int, text: str) -> tuple[Any, int]:
        """The whole elements of a list that the text ends in."""
        if not text.startswith("["):
            return None, at + 1
        found: list[Any] = []
        place = 1
        try:
            while True:
                place = BETWEEN.match(text, place).end()  # type: ignore[union-attr]
                value, place = self.decoder.raw_decode(text, place)
                found.append(value)
        except (json.JSONDecodeError, RecursionError):
            if not _is_document(found):
                return None, at + 1
        for line in self.lines[at + text.count("\n", 0, place) :]:
            self._skip(line)
        return found, len(self.lines)


def _is_document(value: Any) -> bool:
    """Whether it is an object, or a list of objects; text in brackets is part of a log."""
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)
    )


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
