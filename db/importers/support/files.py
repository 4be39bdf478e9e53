"""Other tools' result files: their text and JSON, and the importer that reads them.

Their JSON is often in a log, and has long lists of numbers. A log has a program's messages among its documents, a line
cut off, a damaged value. Whatever begins like a document is read to its end. A line that prevents it is taken out and
reported, and if the text ends inside a list, the whole elements before the end are read.

Long lists of numbers are read into arrays, which take 8 bytes a number, where Python objects take 32 or more. They are
taken out of the text before parsing and put back while it is parsed: a file of raw samples has hardly anything else.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from io import BytesIO
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from benchmarking.core import plugins
from benchmarking.core.errors import FormatError, StorageError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import naive_now
from benchmarking.core.storage_paths import is_duckdb
from benchmarking.core.text import first_few
from benchmarking.core.untrusted.input_files import (
    IS_POINTER,
    LFS_MARK,
    MAX_DEPTH,
    STRING,
    check_json,
    open_regular,
    parse_json,
    read_unpacked,
    unpacked_digest,
    whole_or_infinity,
    without_surrogates,
)
from benchmarking.core.untrusted.redaction import cut_to
from db.connection import connect

if TYPE_CHECKING:
    from db.importers.support.building import Format


Value = TypeVar("Value")

START = re.compile(r"\s*[\[{]")
BETWEEN = re.compile(r"[\s,]*")
MAX_CHARACTERS = 32_000_000
"""Maximum length of a text that is searched: longer ones are files of raw samples, which no log contains."""
FIRST_LINES = 8
"""Lines that are parsed first as one document; then twice as many, so that joined files take a time like their length.
"""
MAX_REPAIRS = 100
"""Maximum lines that are taken out of documents of a text."""
MAX_WORK = 300_000_000
"""Maximum characters that are parsed for repairs."""
LINE_WORK = 50
"""Characters that take the time of a line, which is joined to the others."""
DEEP_WORK = MAX_WORK // 100
"""Work of a document that is nested too deep to be read: a text of brackets has as many as lines."""


Line = tuple[int, str]
"""Its number, from 1, and its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The documents in a text, in order: objects, and lists of objects."""

    values: tuple[Any, ...] = ()
    skipped: tuple[Line, ...] = ()
    """The lines that are not part of a document, or were taken out of one."""

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
    if len(text) > MAX_CHARACTERS or not re.search(r"^[^\S\n]*[\[{]", text, re.MULTILINE):
        return Documents()
    search = _Search(lines=list(enumerate(text.split("\n"), 1)))
    values: list[Any] = []
    at = column = 0
    while at < len(search.lines):
        number, line = search.lines[at]
        start = START.match(line, column)
        value, following, end = search.document(at, start.end() - 1) if start else (None, at + 1, 0)
        if value is None:
            search.skip((number, line[column:]))
        else:
            values.append(without_surrogates(value))
        at, column = following, end
    return Documents(values=tuple(values), skipped=tuple(sorted(search.skipped, key=itemgetter(0))) if values else ())


class _Search:
    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        self.skipped: list[Line] = []
        self.decoder = json.JSONDecoder(parse_int=whole_or_infinity, parse_constant=float)
        self.repairs, self.work = MAX_REPAIRS, MAX_WORK

    def skip(self, line: Line) -> None:
        if words := line[1].strip():
            self.skipped.append((line[0], words))

    def document(self, at: int, column: int) -> tuple[Any, int, int]:
        """The document that begins there, or None, and the place after it, a line and a column: files that were joined
        have the next document in the same line."""
        text = self.lines[at][1]
        try:
            value, end = self.decoder.raw_decode(text, column)
        except json.JSONDecodeError as error:
            is_open = error.pos >= len(text.rstrip())
            return self._repaired(at, column) if is_open and self.work > 0 else (None, at + 1, 0)
        except RecursionError:
            return None, at + 1, 0
        return (value, at, end) if _is_document(value) else (None, at + 1, 0)

    def _repaired(self, at: int, column: int) -> tuple[Any, int, int]:
        """Like `document`, for one of several lines; lines that are not JSON are taken out."""
        number, first = self.lines[at]
        following = at + FIRST_LINES
        rest, taken = [(number, first[column:]), *self.lines[at + 1 : following]], list[Line]()
        while self.work > 0:
            text = "\n".join(line for _, line in rest)
            self.work -= len(text) + LINE_WORK * len(rest)
            try:
                value, end = self.decoder.raw_decode(text)
            except json.JSONDecodeError as error:
                place = error.lineno - 1
                if error.pos < len(text.rstrip()):
                    if place == 0 or self.repairs <= 0:
                        break
                    self.repairs -= 1
                    taken.append(rest.pop(place))
                elif following < len(self.lines):
                    more = following + following - at
                    rest += self.lines[following:more]
                    following = more
                else:
                    return self._cut_off(at, text, rest, taken)
                continue
            except RecursionError:
                self.work -= DEEP_WORK
                break
            if not _is_document(value):
                break
            used = text.count("\n", 0, end)
            own = [line for line in taken if line[0] < rest[used][0]]
            for line in own:
                self.skip(line)
            return value, at + used + len(own), end - text.rfind("\n", 0, end) - 1
        return None, at + 1, 0

    def _cut_off(self, at: int, text: str, rest: list[Line], taken: list[Line]) -> tuple[Any, int, int]:
        """The whole elements of a list that the text ends in."""
        if not text.startswith("["):
            return None, at + 1, 0
        found: list[Any] = []
        place = 1
        try:
            while True:
                place = BETWEEN.match(text, place).end()  # type: ignore[union-attr]
                value, place = self.decoder.raw_decode(text, place)
                found.append(value)
        except (json.JSONDecodeError, RecursionError):
            if not _is_document(found):
                return None, at + 1, 0
        for line in taken + rest[text.count("\n", 0, place) :]:
            self.skip(line)
        return found, len(self.lines), 0


def _is_document(value: Any) -> bool:
    """Whether it is an object, or a list of objects, and not nested deeper than JSON may be that is read whole; text in
    brackets is part of a log."""
    if not isinstance(value, dict) and not (
        isinstance(value, list) and value and all(isinstance(one, dict) for one in value)
    ):
        return False
    level, depth = [value], 0
    while level and depth < MAX_DEPTH:
        inside = (inner for one in level for inner in (one.values() if isinstance(one, dict) else one))
        level, depth = [one for one in inside if isinstance(one, dict | list)], depth + 1
    return not level


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

Numbers: TypeAlias = "array[Any]"
"""Arrays of type "q" (whole numbers) or "d"."""


def extract_lists(content: bytes) -> tuple[bytes, tuple[Numbers, ...]]:
    """The JSON text with a placeholder for each long list of numbers, and the lists in the order of the text.

    Lists that do not fit into an array (numbers beyond its range, not JSON) stay in the text, and so do all lists of a
    text that contains the placeholder itself.
    """
    token = re.compile(rb"%b|-Infinity|\[[-+0-9.eE,\s]{%d,}+\]" % (STRING.pattern, MIN_BYTES), re.DOTALL)
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


PACKAGE = "db.importers"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""First bytes of text written by Windows PowerShell."""
MOST_DAMAGED = 0.05
"""Maximum share of bytes of a text that are not UTF-8: a console's log in another encoding has one in each row."""
CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
"""A byte that no text has."""
SHOWN_KEYS = 8
HEAD_BYTES = 100_000
MAX_SIZE_BYTES = 512 * 1024**2
"""Maximum size of a file, decompressed: far above the samples of a day of serving, below most weight files."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
OF_CONTAINER = r"[\w.@-]+ +\|(?: |$)"
OF_RUNNER = (
    r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|"
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?)(?: |$)(?:[\w.-]+ [^\s\[:]+\[\d+\]: ?)?"
)
OF_LOG = re.compile(rf"^(?:{OF_CONTAINER}(?:{OF_RUNNER})?|{OF_RUNNER})", re.MULTILINE)
"""What a container's log (its name), a runner (a time) or a journal (a time, the host and the process) puts before each
line."""
LARGE_BYTES = 1_000_000
"""Minimum size of JSON whose long lists of numbers are read into arrays; smaller files are parsed directly."""


class NoResultsError(FormatError):
    """A file of a known format without results of its own: an accuracy log, a description, a duplicate."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A value, row or line of a file that is not stored."""

    place: str
    """Its place as the file names it: a path of fields, a line."""
    problem: str
    is_size: bool = False
    """Whether it is a size, such as a batch, whose default is stored in its place."""

    @property
    def text(self) -> str:
        """Place and problem."""
        return f"{self.place}: {self.problem}" if self.place else self.problem


MAX_LEFT_OUT = 10_000
"""Maximum values of a file that are listed as left out."""
MOST_SHOWN, MOST_SEARCHED = 60, 1000
"""Characters of a text that are shown, and that are searched for secrets before."""


@dataclass(frozen=True)
class ForeignFile:
    """A file that another tool wrote."""

    path: Path
    content: bytes
    """The whole content, with text in UTF-8. Only the first block of a DuckDB file, which is opened by its path. For
    large JSON, what `extract_lists` leaves of it."""
    sha256: str
    """Hex digest of the whole file."""
    modified_at: datetime
    """Naive UTC; used as the time of measurement if the file has none."""
    encoding: str = "UTF-8"
    """Encoding of the text in the file itself."""
    number_lists: tuple[Numbers, ...] = ()
    """The lists of numbers that were taken out of the content."""
    left_out: dict[LeftOut, None] = field(default_factory=dict, compare=False)
    """What is not stored of the file, in the order in which it was found; shared by the file's copies."""

    @property
    def called(self) -> Path:
        """The path without the ending .gz: files that belong together know each other by the names that the tool gave
        them."""
        return _called(self.path)

    @cached_property
    def is_duckdb(self) -> bool:
        return is_duckdb(self.content)

    @cached_property
    def _readable(self) -> bytes:
        """The content, of a text with U+FFFD in the place of the few bytes that are not UTF-8 (what a model wrote, half
        of a character at the end), whose lines are named."""
        content = self.content
        if content.isascii() or len(content) > MAX_CHARACTERS or CONTROL.search(content):
            return content
        text = content.decode(errors="replace")
        damaged = text.count("\ufffd") - content.count("\ufffd".encode())
        if not 0 < damaged <= MOST_DAMAGED * len(content):
            return content
        lines = [at for at, line in enumerate(content.split(b"\n"), 1) if line.decode(errors="ignore").encode() != line]
        more = f", as in {len(lines) - 1} more lines" if len(lines) > 1 else ""
        shown = self.beginning(text.split("\n")[lines[0] - 1].strip())
        self.leave_out(f"line {lines[0]}", f"read with \ufffd for what is not UTF-8{more}: {shown!r}")
        return text.encode()

    @cached_property
    def text(self) -> str | None:
        """The content as it was printed, decoded as UTF-8 without a byte order mark; None if it is not UTF-8."""
        try:
            return self._as_printed(self._readable.decode("utf-8-sig"))
        except UnicodeDecodeError:
            return None

    def _as_printed(self, text: str) -> str:
        """The text without a terminal's colours, and without what a log puts before each line."""
        text = COLOUR.sub("", text)
        return OF_LOG.sub("", text) if self._is_log else text

    @cached_property
    def _is_log(self) -> bool:
        """Whether a log puts something before most lines."""
        lines = [line for line in COLOUR.sub("", self._head).splitlines() if line.strip()]
        return 2 * sum(map(bool, map(OF_LOG.match, lines))) > len(lines)

    @cached_property
    def _head(self) -> str:
        return self.content[:HEAD_BYTES].decode("utf-8-sig", errors="ignore")

    @cached_property
    def head(self) -> str:
        """The beginning of the text, enough to recognize a format without decoding the rest."""
        return self._as_printed(self._head)

    @cached_property
    def json(self) -> Any:
        """The content as JSON; None if it is not JSON (or null). Long lists of numbers in a large file are read as
        arrays. Other lines around the one document are skipped (`noise`)."""
        try:
            return self.parsed(float)
        except FormatError:
            return None if self._strict_lines else self._documents.one

    def parsed(self, constant: Callable[[str], Any]) -> Any:
        """The content as JSON; `constant` gives the value for NaN and infinity. Raises FormatError."""
        return self._parse(self._readable, self._with_lists(constant))

    def _parse(self, content: bytes, constant: Callable[[str], Any]) -> Any:
        """JSON with the last value of a repeated name, which is noted; large JSON, which is costly, is not searched."""
        objects = self._object if len(self.content) <= LARGE_BYTES else None
        return parse_json(content, str(self.path), constant=constant, refuse_values=False, objects=objects)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            for name, value in pairs:
                if value != found[name]:
                    shown = self.beginning(str(value))
                    self.leave_out(name[:60], f"{shown!r}: the name is repeated, and the last value is used")
        return found

    def _with_lists(self, constant: Callable[[str], Any]) -> Callable[[str], Any]:
        """`constant` for a parser that meets the placeholders in the order of the lists."""
        lists = iter(self.number_lists)
        return lambda word: next(lists, None) if self.number_lists and word == PLACEHOLDER else constant(word)

    @cached_property
    def is_json(self) -> bool:
        """Whether the whole content is JSON or JSON lines, without other lines."""
        try:
            self.parsed(float)
        except FormatError:
            return bool(self._strict_lines)
        return True

    @cached_property
    def json_lines(self) -> tuple[Any, ...]:
        """One JSON value per line, without empty lines; other lines between them are skipped (`noise`)."""
        if self.json is not None:
            return () if b"\n" in self.content.strip() and not self.noise else (self.json,)
        return self._strict_lines or self._documents.lines

    @property
    def json_values(self) -> tuple[Any, ...]:
        """The one JSON value, or the JSON lines."""
        return self.json_lines if self.json is None else (self.json,)

    def documents(self) -> Iterator[ForeignFile]:
        """Each of the JSON lines, or of several joined files in JSON, as a file with the same name and digest."""
        for value in self.json_lines:
            content = json.dumps(value, default=list).encode()
            yield replace(self, content=content, number_lists=(), left_out={})

    @property
    def json_lists(self) -> tuple[list[Any], ...]:
        """The list that is the content, or each of several joined ones, which are one in `json`."""
        return self._documents.values or ((self.json,) if isinstance(self.json, list) else ())

    @cached_property
    def _strict_lines(self) -> tuple[Any, ...]:
        """The values if every line is JSON, otherwise empty."""
        if not self.head.lstrip().startswith(("{", "[")):
            return ()
        try:
            check_json(self._readable, str(self.path))
            lines = [line for line in (self.text or "").split("\n") if line.strip()]
            constant = self._with_lists(float)
            return tuple(self._parse(line.encode(), constant) for line in lines)
        except FormatError:
            return ()

    @cached_property
    def _documents(self) -> Documents:
        return Documents() if self.number_lists or self.is_json else find_documents(self.text or "")

    @property
    def noise(self) -> tuple[LeftOut, ...]:
        """The lines of a file in JSON that are not JSON."""
        return tuple(
            LeftOut(f"line {number}", f"not JSON, or cut off: {self.beginning(text)!r}")
            for number, text in self._documents.skipped[:MAX_LEFT_OUT]
        )

    @cached_property
    def json_problem(self) -> str | None:
        """The syntax error of a file that begins like JSON but is not; None for any other file."""
        if self.json is not None or not self.head.lstrip().startswith(("{", "[")) or self.json_lines:
            return None
        try:
            parse_json(self._readable, str(self.path), constant=float, refuse_values=False)
        except FormatError as error:
            return str(error).removeprefix(f"{self.path}: ")
        return None

    def lines(self) -> Iterator[str]:
        """The lines of a text without line ends, without copying the whole; empty if it is not UTF-8."""
        try:
            for number, line in enumerate(BytesIO(self._readable)):
                yield self._as_printed(line.decode("utf-8" if number else "utf-8-sig").rstrip("\r\n"))
        except UnicodeDecodeError:
            return

    def beginning(self, text: str) -> str:
        """The beginning of a text of the file, for what is left out. Secrets in it are found first: a part of one could
        not be recognised."""
        if len(text) <= MOST_SHOWN or len(self.left_out) >= MAX_LEFT_OUT:
            return text[:MOST_SHOWN]
        return cut_to(text[:MOST_SEARCHED], MOST_SHOWN)

    def leave_out(self, place: str, problem: str, *, is_size: bool = False) -> None:
        """Note that a value, row or line is not stored."""
        if len(self.left_out) < MAX_LEFT_OUT:
            self.left_out[LeftOut(place, problem, is_size)] = None

    def leave_out_row(self, error: Exception) -> None:
        """Note that a row is not stored, for the reason in the error."""
        problem = str(error).removeprefix(f"{self.path}: ").split("\n")[0]
        if not isinstance(error, FormatError):
            problem = f"not understood: {type(error).__name__}: {problem}"
        place, separator, rest = problem.partition(": ")
        self.leave_out(place if separator else "", rest if separator else problem)

    @property
    def description(self) -> str:
        """A description of the content: "JSON, an object with the keys a, b", "an empty file"."""
        text = self.text
        if not (self.content if text is None else text).strip():
            return "an empty file"
        if text is None or "\0" in text:
            return f"not text in UTF-8 or UTF-16: it begins with the bytes {self.content[:8].hex(' ')}"
        if self.content.startswith(LFS_MARK):
            return IS_POINTER.removeprefix("is ")
        if self.path.is_symlink():  # in a stranger's folder it may lead to any file, whose text is nobody else's
            return "a file behind a link"
        coding = "" if self.encoding == "UTF-8" else f"{self.encoding} "
        if self.json is not None:
            return f"{coding}JSON, {_shape(self.json)}"
        if self.json_lines:
            return f"{coding}JSON lines, {len(self.json_lines)} of them, the first {_shape(self.json_lines[0])}"
        first = next(line.strip() for line in text.splitlines() if line.strip())
        return f"{coding}text that begins with {self.beginning(first)!r}"

    def refuse(self, problem: str) -> NoReturn:
        """Raise FormatError with the file and the problem."""
        raise FormatError(f"{self.path}: {problem}")

    def is_part_of(self, other: Path, recognises: Callable[[ForeignFile], bool]) -> bool:
        """Whether there is such another file of the format, which has all numbers of this one; a file of the same name
        from another tool, or a damaged one, has not."""
        try:
            found = None if other == self.called else stored_beside(self, other)
            return found is not None and recognises(read_file(found))
        except StorageError:
            return False

    def give_way_to(self, other: Path, recognises: Callable[[ForeignFile], bool]) -> None:
        """Raise NoResultsError if the file is part of another one."""
        if self.is_part_of(other, recognises):
            self.without_results(f"all its numbers are in {other.name}")

    def without_results(self, reason: str) -> NoReturn:
        """Raise NoResultsError with the file and the reason."""
        raise NoResultsError(f"{self.path}: {reason}")


def _shape(value: Any) -> str:
    """A description of a JSON value."""
    if isinstance(value, dict):
        keys = [name[:40] for name in value]
        return f"an object with the keys {first_few(keys, SHOWN_KEYS)}" if keys else "an object without keys"
    if isinstance(value, list | array):
        return f"a list of {len(value)}, the first {_shape(value[0])}" if value else "an empty list"
    return f"a value of type {type(value).__name__}"


STDIN = "stdin"
"""Source of what was read from the standard input, which is the path "-"."""


def read_file(path: Path) -> ForeignFile:
    """Read a file, decompressing gzip (which pyperf writes); "-" is the standard input. Raises UnreadableError, and
    FormatError for a file that is too large to be a result file."""
    digest = None
    if path == Path("-"):
        content = read_unpacked(BytesIO(sys.stdin.buffer.read(MAX_SIZE_BYTES + 1)), path, MAX_SIZE_BYTES)
        modified = naive_now().replace(microsecond=0)
    else:
        with open_regular(path) as opened:
            head = opened.read(4096)
            opened.seek(0)
            # Only the first block of a DuckDB file, which may have any size.
            if is_duckdb(head):
                content, digest = head, unpacked_digest(path)
            else:
                content = read_unpacked(opened, path, MAX_SIZE_BYTES)
            modified = datetime.fromtimestamp(os.fstat(opened.fileno()).st_mtime, UTC).replace(tzinfo=None)
    if content is None or len(content) > MAX_SIZE_BYTES:
        raise FormatError(f"{path}: unknown format: larger than {MAX_SIZE_BYTES >> 20} MiB")
    # The digest of the decompressed content, so that a file and its .gz are imported once.
    digest, encoding = digest or hashlib.sha256(content).hexdigest(), "UTF-8"
    if content.startswith(UTF_16):
        with suppress(UnicodeError):
            content, encoding = content.decode("utf-16").encode(), "UTF-16"
    file = ForeignFile(path=path, content=content, sha256=digest, modified_at=modified, encoding=encoding)
    if len(content) <= LARGE_BYTES or not file.head.lstrip().startswith(("{", "[")):
        return file
    # The long lists of numbers of large JSON are read into arrays.
    rest, lists = extract_lists(content)
    taken = replace(file, content=rest, number_lists=lists)
    return taken if lists and taken.is_json else file


def beside(file: ForeignFile, path: Path, folder: Path | None = None) -> ForeignFile | None:
    """Another file that completes one, from its folder or the `folder` of both; None without it, and for one that
    cannot be read, which is named as left out."""
    found = stored_beside(file, path, folder)
    if found is None:
        return None
    try:
        return read_file(found)
    except StorageError as error:
        file.leave_out(found.name, f"not read: {first_line(error).removeprefix(f'{found}: ')}")
        return None


def each_beside(
    file: ForeignFile, paths: Iterable[Path], read: Callable[[ForeignFile], frozenset[Value]]
) -> set[Value]:
    """All that `read` finds in other files of the folder, each of which is read once for all files that it completes.
    One that cannot be read is named as left out."""
    found = set[Value]()
    for path in paths:
        if (other := stored_beside(file, path)) is None:
            continue
        try:
            state = other.stat()
            found |= _read_once(read, other, state.st_mtime_ns, state.st_size)
        except (OSError, StorageError) as error:
            file.leave_out(other.name, f"not read: {first_line(error).removeprefix(f'{other}: ')}")
    return found


@lru_cache(maxsize=10_000)
def _read_once(read: Callable[[ForeignFile], frozenset[Value]], path: Path, *_state: int) -> frozenset[Value]:
    return read(read_file(path))


def stored_beside(file: ForeignFile, path: Path, folder: Path | None = None) -> Path | None:
    """Where such another file is stored; None without it. The standard input has no folder. What lies outside, by a
    link or by a name in a table, is named and not read: it may be any file of the user, and would be stored."""
    found = None if file.path == Path("-") else stored(path)
    if found is None or found.resolve().is_relative_to((folder or file.path.parent).resolve()):
        return found
    file.leave_out(str(found), "not read, since it is not in the folder of the file")
    return None


PACKED = ".gz"


def _called(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == PACKED else path


def stored(path: Path) -> Path | None:
    """The file that is called so, or else its gzipped one; None without either."""
    return next((one for one in (path, path.with_name(f"{path.name}{PACKED}")) if os.path.isfile(one)), None)


def called_like(file: ForeignFile, *patterns: str, folder: Path | None = None) -> list[Path]:
    """What the files in the file's folder, or in another one, are called, gzipped ones among them, that match one of
    the patterns. The standard input has no folder."""
    if file.path == Path("-"):
        return []
    places = [f"{pattern}{ending}" for pattern in patterns for ending in ("", PACKED)]
    found = (path for place in places for path in (folder or file.path.parent).glob(place))
    return sorted({_called(path) for path in found})


def importers() -> tuple[Format, ...]:
    """All importers, by name."""
    return tuple(plugins.by_name(PACKAGE).values())


def recognising(file: ForeignFile, among: Sequence[Format] | None = None) -> tuple[Format, ...]:
    """The importers that recognize the file by its content, or else the first of the documents that were joined in
    it."""
    formats = importers() if among is None else among
    found = tuple(importer for importer in formats if importer.recognises(file))
    if found or len(file.json_lines) < 2:
        return found
    first = next(file.documents())
    return tuple(importer.of_each_document() for importer in formats if importer.recognises(first))


def importers_for(file: ForeignFile, format_name: str | None = None) -> tuple[Format, ...]:
    """The named importer, or those that recognize the file: several for one with the output of several tools.
    Raises FormatError if none does, several recognize the same JSON, or the named one does not; KeyError for an unknown
    name."""
    if format_name is not None:
        importer: Format = plugins.by_name(PACKAGE)[format_name]
        if not (found := recognising(file, (importer,))):
            file.refuse(file.json_problem or f"not a file of format {format_name} ({importer.summary})")
        return found
    found = recognising(file)
    if not found and file.is_duckdb:
        try:
            connect(str(file.path), {}, read_only=True, lock_timeout_s=0.0).close()
        except StorageError as error:
            file.refuse(f"{error}".removeprefix(f"{file.path}: "))
        file.refuse(
            "unknown format: a DuckDB file without the four tables of older files; to add a warehouse, use "
            "benchhouse merge"
        )
    if not found:
        file.refuse(file.json_problem or f"unknown format: {file.description} (--list-formats lists the known ones)")
    if len(found) > 1 and (file.is_json or file.json_lines) and not all(one.shares_files for one in found):
        file.refuse(f"could be {' or '.join(importer.name for importer in found)}: choose one with --from-format")
    return found
