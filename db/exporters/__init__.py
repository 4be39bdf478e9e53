"""The warehouse, or a selection of it, in other tools' formats: one module a target, each with a `PLUGIN`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarking import plugins

if TYPE_CHECKING:
    from db.analysis.selection import Selection
    from db.warehouse import Warehouse


class Exporter(Protocol):
    """What the `PLUGIN` of a module here is."""

    name: str
    """The format, as `--format` takes it."""
    summary: str
    """What it makes, in a line."""
    makes_folder: bool
    """Whether it writes several files into a folder, or one file (or stdout)."""

    def export(self, warehouse: Warehouse, selection: Selection, output: Path | None) -> tuple[Path, ...]:
        """Write what is selected; gives the files made, none when `output` is None and it went to stdout.

        Files appear when they are complete, and never over another file. Raises StorageError; UsageError where nothing
        is selected or the target needs a folder or a package that is not there.
        """


def exporters() -> tuple[Exporter, ...]:
    """Every exporter there is, by name."""
    return tuple(plugins.load(__name__, name) for name in plugins.names(__name__))
