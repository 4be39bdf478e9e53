"""An export: the request, the exporters (one module per target, each with a `PLUGIN`), and their output.

The output is stdout, a new file or a new folder. It appears under its name when complete, and never replaces anything.
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
from db.file_copy import publish, temporary_sibling

if TYPE_CHECKING:
    from db.analysis.selection import Selection
    from db.warehouse import Warehouse

PACKAGE = "db.exporters"
Tables = Literal["results", "all"]
"""Only the selected results, or everything down to their raw samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What to export, and where."""

    selection: Selection
    output: Path | None = None
    """A new file or folder; None for stdout."""
    is_folder: bool = False
    """Whether `output` was given as a folder, which a format of one file refuses."""
    tables: Tables = "results"
    """One of the exporter's `tables`."""
    anonymous: bool = False
    """Whether to omit host and user names; only for formats with `can_be_anonymous`."""
    notify: Callable[[str], None]
    """Receives a line about what was left out."""

    @property
    def file(self) -> Path | None:
        """The output of a format that writes one file. Raises UsageError if a folder was given."""
        if self.is_folder:
            raise UsageError(f"--output-dir {self.output}: the format writes one file: give it with --output FILE")
        return self.output

    @property
    def output_paths(self) -> tuple[Path, ...]:
        """The path of the output; empty for stdout."""
        return () if self.output is None else (self.output,)


class Exporter(Protocol):
    """The contract of a module's `PLUGIN`."""

    name: str
    """The value of `--format`."""
    summary: str
    """What it writes, in one line."""
    tables: tuple[Tables, ...]
    """The values of `--tables`, the default first."""

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        """Write the selection; returns the files or folders created, none for stdout.

        Raises StorageError. Raises UsageError if the format can represent nothing in the selection, or if a required
        folder or package is missing.
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
        raise UsageError(f"{output} is a folder, but the format writes one file: give the path of a file")
    with temporary_sibling(output) as part:
        with _storage_errors(output), part.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        if not publish(part, output):
            raise StorageError(f"{output} already exists: choose another path")


@contextmanager
def folder_output(output: Path | None) -> Iterator[Path]:
    """A folder to write files into, renamed to `output` at the end. Raises UsageError and StorageError."""
    if output is None:
        raise UsageError("the format writes several files: give a folder with --output-dir")
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
        raise UsageError(f"{output} already exists: choose another path")
    if not output.absolute().parent.is_dir():
        raise UsageError(
            f"{output}: the folder {output.absolute().parent} does not exist: create it, or choose another path"
        )


@contextmanager
def _storage_errors(output: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write {output}: {error.strerror or error}") from error
