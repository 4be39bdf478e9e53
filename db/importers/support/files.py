"""Other tools' result files: their text and JSON, and the importer that reads them."""

from __future__ import annotations

import hashlib
import os
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from benchmarking.core import plugins
from benchmarking.core.errors import FormatError
from benchmarking.core.provenance import naive_now
from benchmarking.core.text import first_few
from benchmarking.core.untrusted.input_files import check_json, open_regular, parse_json, read_unpacked
from db.importers.support.json_texts import PLACEHOLDER, Documents, Numbers, extract_lists, find_documents

if TYPE_CHECKING:
    from db.importers.support.building import Format

PACKAGE = "db.importers"
DUCKDB_MAGIC = (8, b"DUCK")
"""Offset and bytes that identify a DuckDB file."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""First bytes of text written by Windows PowerShell."""
SHOWN_KEYS = 8
HEAD_BYTES = 100_000
MAX_SIZE_BYTES = 512 * 1024**2
"""Maximum size of a file, decompressed: far above the samples of a day of serving, below most weight files."""

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

    @cached_property
    def is_duckdb(self) -> bool:
        offset, magic = DUCKDB_MAGIC
        return self.content[offset : offset + len(magic)] == magic

    @cached_property
    def text(self) -> str | None:
        """The content decoded as UTF-8, without a byte order mark; None if it is not UTF-8."""
        try:
            return self.content.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None

    @cached_property
    def head(self) -> str:
        """The beginning of the text, enough to recognize a format without decoding the rest."""
        return self.content[:HEAD_BYTES].decode("utf-8-sig", errors="ignore")

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
        return self._parse(self.content, self._with_lists(constant))

    def _parse(self, content: bytes, constant: Callable[[str], Any]) -> Any:
        """JSON with the last value of a repeated name, which is noted; large JSON, which is costly, is not searched."""
        objects = self._object if len(self.content) <= LARGE_BYTES else None
        return parse_json(content, str(self.path), constant=constant, refuse_values=False, objects=objects)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            for name, value in pairs:
                if value != found[name]:
                    self.leave_out(name[:60], f"{str(value)[:60]!r}: the name is repeated, and the last value is used")
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

    @cached_property
    def _strict_lines(self) -> tuple[Any, ...]:
        """The values if every line is JSON, otherwise empty."""
        if not self.head.lstrip().startswith(("{", "[")):
            return ()
        try:
            check_json(self.content, str(self.path))
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
            LeftOut(f"line {one.line}", f"not JSON, or cut off: {one.text[:60]!r}") for one in self._documents.skipped
        )

    @cached_property
    def json_problem(self) -> str | None:
        """The syntax error of a file that begins like JSON but is not; None for any other file."""
        if self.json is not None or not self.head.lstrip().startswith(("{", "[")) or self.json_lines:
            return None
        try:
            parse_json(self.content, str(self.path), constant=float, refuse_values=False)
        except FormatError as error:
            return str(error).removeprefix(f"{self.path}: ")
        return None

    def lines(self) -> Iterator[str]:
        """The lines of a text without line ends, without copying the whole; empty if it is not UTF-8."""
        try:
            for number, line in enumerate(BytesIO(self.content)):
                yield line.decode("utf-8" if number else "utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            return

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
        coding = "" if self.encoding == "UTF-8" else f"{self.encoding} "
        if self.json is not None:
            return f"{coding}JSON, {_shape(self.json)}"
        if self.json_lines:
            return f"{coding}JSON lines, {len(self.json_lines)} of them, the first {_shape(self.json_lines[0])}"
        first = next(line.strip() for line in text.splitlines() if line.strip())
        return f"{coding}text that begins with {first[:60]!r}"

    def refuse(self, problem: str) -> NoReturn:
        """Raise FormatError with the file and the problem."""
        raise FormatError(f"{self.path}: {problem}")

    def give_way_to(self, other: Path) -> None:
        """Raise NoResultsError if there is such another file, which has all numbers of this one."""
        if other != self.path and other.is_file():
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
        content: bytes | None = sys.stdin.buffer.read(MAX_SIZE_BYTES + 1)
        modified = naive_now().replace(microsecond=0)
    else:
        with open_regular(path) as opened:
            head = opened.read(4096)
            opened.seek(0)
            # Only the first block of a DuckDB file, which may have any size.
            offset, magic = DUCKDB_MAGIC
            if head[offset : offset + len(magic)] == magic:
                content, digest = head, hashlib.file_digest(opened, "sha256").hexdigest()
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


def importers() -> tuple[Format, ...]:
    """All importers, by name."""
    return tuple(plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE))


def recognising(file: ForeignFile) -> tuple[Format, ...]:
    """The importers that recognize the file by its content."""
    return tuple(importer for importer in importers() if importer.recognises(file))


def importers_for(file: ForeignFile, format_name: str | None = None) -> tuple[Format, ...]:
    """The named importer, or those that recognize the file: several for a text with the output of several tools.
    Raises FormatError if none does, several recognize the same JSON, or the named one does not; KeyError for an unknown
    name."""
    if format_name is not None:
        importer: Format = plugins.load(PACKAGE, format_name)
        if not importer.recognises(file):
            file.refuse(file.json_problem or f"not a file of format {format_name} ({importer.summary})")
        return (importer,)
    found = recognising(file)
    if not found and file.is_duckdb:
        file.refuse(
            "unknown format: a DuckDB file without the four tables of older files; to add a warehouse, use "
            "benchhouse merge"
        )
    if not found:
        file.refuse(file.json_problem or f"unknown format: {file.description} (--list-formats lists the known ones)")
    if len(found) > 1 and (file.is_json or file.json_lines):
        file.refuse(f"could be {' or '.join(importer.name for importer in found)}: choose one with --from-format")
    return found
