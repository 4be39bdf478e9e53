"""Other tools' result files: one module a format, each with a `PLUGIN` that knows its files and reads runs in them.

An importer gives the same records that our own measuring does, so that what it reads is stored, queried and drawn like
everything else. It keeps to four rules.

    Nothing is dropped      a field without a place in a record goes to `kept`, under the name it has in the file
    Units change once       here, to ms, s, MB (10^6 bytes) and J
    Nothing is mended       what a tool is known to get wrong is left out with a reason, or stored with a doubt
    Definitions are named   the metrics' meaning, in words and by one name, is part of the series: numbers of two
                            definitions are never one history
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn, Protocol

from benchmarking.core import plugins
from benchmarking.core.errors import FormatError, StorageError
from benchmarking.core.records import Run

PACKAGE = "db.importers"
DUCKDB_MAGIC = (8, b"DUCK")
"""Offset and bytes that every DuckDB file has."""
GZIP_MAGIC = b"\x1f\x8b"
MAX_SIZE_BYTES = 512 * 1024**2
"""Of a file that is read at once, unpacked. Every sample of a day's serving fits many times; weights in a folder do
not."""


@dataclass(frozen=True)
class ForeignFile:
    """A file that another tool wrote."""

    path: Path
    content: bytes
    """All of it; of a DuckDB file, which is opened by its path instead, the first block only."""
    sha256: str
    """Hex digest of the whole file."""
    modified_at: datetime
    """Naive UTC: what stands for the time of the measurement where the file says none."""

    @cached_property
    def is_duckdb(self) -> bool:
        offset, magic = DUCKDB_MAGIC
        return self.content[offset : offset + len(magic)] == magic

    @cached_property
    def text(self) -> str | None:
        """The content as UTF-8 without a byte order mark; None when it is not that."""
        try:
            return self.content.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None

    @cached_property
    def json(self) -> Any:
        """The content as JSON; None when it is not JSON (or null). NaN and infinity are read as None."""
        try:
            return json.loads(self.text or "", parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            return None

    @cached_property
    def json_lines(self) -> tuple[Any, ...]:
        """One JSON value a line, empty lines left out; empty when a line is not JSON."""
        try:
            lines = [line for line in (self.text or "").splitlines() if line.strip()]
            return tuple(json.loads(line, parse_constant=lambda _: None) for line in lines)
        except (ValueError, RecursionError):
            return ()

    @cached_property
    def json_problem(self) -> str | None:
        """Where what begins like JSON is none, as where it was cut off; None for JSON, and for anything else."""
        if not (self.text or "").lstrip().startswith(("{", "[")) or self.json_lines:
            return None
        try:
            json.loads(self.text or "")
        except RecursionError:
            return "JSON with too many lists and objects inside each other"
        except ValueError as error:
            return f"not JSON, or cut off: {error}"
        return None

    def refuse(self, problem: str) -> NoReturn:
        """Raise FormatError: the file, where in it, what is wrong."""
        raise FormatError(f"{self.path}: {problem}")


class Importer(Protocol):
    """What the `PLUGIN` of a module here is."""

    name: str
    """The format, as `--format` takes it: the module's name."""
    summary: str
    """The tool and its files, in a line."""

    def recognises(self, file: ForeignFile) -> bool:
        """Whether the file is of this format, from what is in it; never raises."""

    def runs(self, file: ForeignFile) -> Iterator[Run]:
        """The runs in the file. Raises FormatError that says where something is not as the format has it."""


def read_file(path: Path) -> ForeignFile:
    """The file, read; one packed by gzip, as pyperf writes, as what is in it. Raises StorageError, and FormatError for
    one too large to be a result file."""
    try:
        with path.open("rb") as opened:
            head = opened.read(4096)
            opened.seek(0)
            content, digest = _head_of_database(opened, head) or _all_of(opened, head, path)
        modified = datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(tzinfo=None)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    return ForeignFile(path=path, content=content, sha256=digest, modified_at=modified)


def _head_of_database(opened: BufferedReader, head: bytes) -> tuple[bytes, str] | None:
    """The first block of a DuckDB file, which may be of any size, and its digest; None for any other file."""
    offset, magic = DUCKDB_MAGIC
    if head[offset : offset + len(magic)] != magic:
        return None
    return head, hashlib.file_digest(opened, "sha256").hexdigest()


def _all_of(opened: BufferedReader, head: bytes, path: Path) -> tuple[bytes, str]:
    """The content and its digest, which is the same whether or not it is packed: it is imported once."""
    too_large = FormatError(f"{path}: no known format: larger than {MAX_SIZE_BYTES >> 20} MiB")
    if path.stat().st_size > MAX_SIZE_BYTES:
        raise too_large
    try:
        with gzip.open(opened) if head.startswith(GZIP_MAGIC) else nullcontext(opened) as unpacked:
            content = unpacked.read(MAX_SIZE_BYTES + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FormatError(f"{path}: packed by gzip, but broken or cut off: {error}") from error
    if len(content) > MAX_SIZE_BYTES:
        raise too_large
    return content, hashlib.sha256(content).hexdigest()


def importers() -> tuple[Importer, ...]:
    """Every importer there is, by name."""
    return tuple(plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE))


def recognising(file: ForeignFile) -> tuple[Importer, ...]:
    """The importers that know the file, from what is in it."""
    return tuple(importer for importer in importers() if importer.recognises(file))


def importer_for(file: ForeignFile, format_name: str | None = None) -> Importer:
    """The importer that is named, or the one that recognises the file. Raises FormatError when none or several do, and
    when the one that is named does not; KeyError for a name that no importer has."""
    if format_name is not None:
        importer: Importer = plugins.load(PACKAGE, format_name)
        if not importer.recognises(file):
            file.refuse(file.json_problem or f"no file of format {format_name} ({importer.summary})")
        return importer
    found = recognising(file)
    if not found and file.is_duckdb:
        file.refuse(
            "no older DuckDB file of the four tables: bring in a warehouse of this program with benchhouse merge"
        )
    if not found:
        known = ", ".join(importer.name for importer in importers())
        file.refuse(file.json_problem or f"no known format: known are {known}")
    if len(found) > 1:
        file.refuse(f"could be {' or '.join(importer.name for importer in found)}: say which with --format")
    return found[0]
