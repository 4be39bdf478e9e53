"""Other tools' result files, and the importers that read them: one module a format, each with a `PLUGIN`.

An importer gives the same records as our own measuring, so that imported results are stored, queried and drawn like
all others. It follows four rules.

    Nothing is dropped       a field without a place in a record goes to `kept`, under its name in the file
    Units are converted once in the importer: to ms, s, MB (10^6 bytes) and J
    Nothing is corrected     a number that a tool is known to get wrong is left out with a reason, or has a doubt
    Definitions are named    the metrics' definition, by its name, is part of the series: numbers of two definitions
                             are never one history
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn, Protocol

from benchmarking.core import plugins
from benchmarking.core.errors import FormatError
from benchmarking.core.input_files import check_json, open_regular, parse_json, read_unpacked
from benchmarking.core.records import Run

PACKAGE = "db.importers"
DUCKDB_MAGIC = (8, b"DUCK")
"""Offset and bytes that identify a DuckDB file."""
MAX_SIZE_BYTES = 512 * 1024**2
"""Of a file, decompressed. Far above all samples of a day's serving, below most files of weights."""


@dataclass(frozen=True)
class ForeignFile:
    """A file that another tool wrote."""

    path: Path
    content: bytes
    """The whole content; of a DuckDB file, which is opened by its path, the first block only."""
    sha256: str
    """Hex digest of the whole file."""
    modified_at: datetime
    """Naive UTC: the time of the measurement where the file has none."""

    @cached_property
    def is_duckdb(self) -> bool:
        offset, magic = DUCKDB_MAGIC
        return self.content[offset : offset + len(magic)] == magic

    @cached_property
    def text(self) -> str | None:
        """The content decoded as UTF-8, without a byte order mark; None when it is not UTF-8."""
        try:
            return self.content.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None

    @cached_property
    def json(self) -> Any:
        """The content as JSON; None when it is not JSON (or null). NaN and infinity are read as None."""
        try:
            return parse_json(self.content, str(self.path), constant=lambda _: None)
        except FormatError:
            return None

    @cached_property
    def json_lines(self) -> tuple[Any, ...]:
        """One JSON value a line, without empty lines; empty when a line is not JSON."""
        try:
            check_json(self.content, str(self.path))
            lines = [line for line in (self.text or "").splitlines() if line.strip()]
            return tuple(parse_json(line.encode(), str(self.path), constant=lambda _: None) for line in lines)
        except FormatError:
            return ()

    @cached_property
    def json_problem(self) -> str | None:
        """What is wrong with a file that begins like JSON but is not; None for any other file."""
        if not (self.text or "").lstrip().startswith(("{", "[")) or self.json_lines:
            return None
        try:
            parse_json(self.content, str(self.path), constant=lambda _: None)
        except FormatError as error:
            return str(error).removeprefix(f"{self.path}: ")
        return None

    def refuse(self, problem: str) -> NoReturn:
        """Raise FormatError with the file and the problem."""
        raise FormatError(f"{self.path}: {problem}")


class Importer(Protocol):
    """The contract of a module's `PLUGIN`."""

    name: str
    """The value of `--format`: the module's name."""
    summary: str
    """The tool and its files, in a line."""

    def recognises(self, file: ForeignFile) -> bool:
        """Whether the content is of this format; never raises."""

    def runs(self, file: ForeignFile) -> Iterator[Run]:
        """The runs in the file. Raises FormatError with the place in the file that is not as expected."""


def read_file(path: Path) -> ForeignFile:
    """Read a file, decompressing gzip (which pyperf writes). Raises UnreadableError, and FormatError for a file too
    large to be a result file."""
    with open_regular(path) as opened:
        head = opened.read(4096)
        opened.seek(0)
        content, digest = _head_of_database(opened, head) or _all_of(opened, path)
        modified = datetime.fromtimestamp(os.fstat(opened.fileno()).st_mtime, UTC).replace(tzinfo=None)
    return ForeignFile(path=path, content=content, sha256=digest, modified_at=modified)


def _head_of_database(opened: BufferedReader, head: bytes) -> tuple[bytes, str] | None:
    """The first block of a DuckDB file, which may be of any size, and its digest; None for any other file."""
    offset, magic = DUCKDB_MAGIC
    if head[offset : offset + len(magic)] != magic:
        return None
    return head, hashlib.file_digest(opened, "sha256").hexdigest()


def _all_of(opened: BufferedReader, path: Path) -> tuple[bytes, str]:
    """The content and its digest, which is of the decompressed content: a file and its .gz are imported once."""
    content = read_unpacked(opened, path, MAX_SIZE_BYTES)
    if content is None:
        raise FormatError(f"{path}: unknown format: larger than {MAX_SIZE_BYTES >> 20} MiB")
    return content, hashlib.sha256(content).hexdigest()


def importers() -> tuple[Importer, ...]:
    """All importers, by name."""
    return tuple(plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE))


def recognising(file: ForeignFile) -> tuple[Importer, ...]:
    """The importers that recognise the file by its content."""
    return tuple(importer for importer in importers() if importer.recognises(file))


def importer_for(file: ForeignFile, format_name: str | None = None) -> Importer:
    """The named importer, or the one that recognises the file. Raises FormatError when none or several do, or the
    named one does not; KeyError for an unknown name."""
    if format_name is not None:
        importer: Importer = plugins.load(PACKAGE, format_name)
        if not importer.recognises(file):
            file.refuse(file.json_problem or f"not a file of format {format_name} ({importer.summary})")
        return importer
    found = recognising(file)
    if not found and file.is_duckdb:
        file.refuse(
            "unknown format: a DuckDB file without the four tables of older files; a warehouse of this program is "
            "added with benchhouse merge"
        )
    if not found:
        known = ", ".join(importer.name for importer in importers())
        file.refuse(file.json_problem or f"unknown format, expected one of {known}")
    if len(found) > 1:
        file.refuse(f"could be {' or '.join(importer.name for importer in found)}: choose one with --format")
    return found[0]
