"""An export: what is requested, the exporters (one module a target, each with a `PLUGIN`), and their output.

An output is stdout, a new file or a new folder. It appears under its name when it is complete, and never over another.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

from benchmarking.core import plugins
from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.terminal import data_stream
from db.files import publish, temporary_sibling

if TYPE_CHECKING:
    from db.analysis.selection import Selection
    from db.warehouse import Warehouse

PACKAGE = "db.exporters"
Tables = Literal["results", "all"]
"""The selected results alone, or everything down to their raw samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What to export, and where to."""

    selection: Selection
    output: Path | None = None
    """A new file or folder; None for stdout."""
    tables: Tables = "results"
    """One of the exporter's own."""
    anonymous: bool = False
    """Whether the names of hosts and users are left out; only formats with `can_be_anonymous`."""
    notify: Callable[[str], None]
    """Takes a line about what was left out."""

    @property
    def made(self) -> tuple[Path, ...]:
        """The output's path; empty for stdout."""
        return () if self.output is None else (self.output,)


class Exporter(Protocol):
    """The contract of a module's `PLUGIN`."""

    name: str
    """The value of `--format`."""
    summary: str
    """What it writes, in a line."""
    tables: tuple[Tables, ...]
    """The values of `--tables`, the default first."""

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        """Write the selection; gives the files or folders made, none for stdout.

        Raises StorageError; UsageError where the selection has nothing that the format can hold, or the target needs a
        folder or a package that is missing.
        """


def exporters() -> tuple[Exporter, ...]:
    """All exporters, by name."""
    found: list[Exporter] = [plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE)]
    return tuple(sorted(found, key=lambda exporter: exporter.name))


@contextmanager
def text_output(output: Path | None) -> Iterator[TextIO]:
    """A stream for text: stdout, or a new file. Raises UsageError and StorageError."""
    if output is None:
        yield data_stream()
        return
    _check_free(output)
    if output.is_dir():
        raise UsageError(f"{output} is a folder, and the format writes one file: choose the path of a file")
    with temporary_sibling(output) as part:
        with _storage_errors(output), part.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        if not publish(part, output):
            raise StorageError(f"{output} already exists: choose another path")


@contextmanager
def folder_output(output: Path | None) -> Iterator[Path]:
    """A folder to write files into, which gets its name at the end. Raises UsageError and StorageError."""
    if output is None:
        raise UsageError("the format writes several files: give a folder for them with --output")
    _check_free(output)
    with temporary_sibling(output) as part, _storage_errors(output):
        part.mkdir()
        try:
            yield part
            if output.is_dir():
                output.rmdir()  # empty; on Windows a folder cannot replace another
            part.rename(output)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _check_free(output: Path) -> None:
    """Raise UsageError unless the path can be created: it does not exist, or is an empty folder."""
    if output.is_dir() and not any(output.iterdir()):
        return
    if output.exists() or output.is_symlink():
        raise UsageError(f"{output} already exists, and an export overwrites nothing: choose another path")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{output}: no folder {output.absolute().parent}: create it, or choose another path")


@contextmanager
def _storage_errors(output: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write {output}: {error.strerror or error}") from error
