"""The warehouse, or a selection of it, in other tools' formats: one module a target, each with a `PLUGIN`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from benchmarking.core import plugins

if TYPE_CHECKING:
    from db.analysis.selection import Selection
    from db.warehouse import Warehouse

PACKAGE = "db.exporters"
Tables = Literal["results", "all"]
"""How much of what belongs to a selection: its results, or everything down to the raw samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be exported, and where to."""

    selection: Selection
    output: Path | None = None
    """A file or folder that is not there yet; None for stdout."""
    tables: Tables = "results"
    """One of those the exporter has."""
    say: Callable[[str], None]
    """Takes what somebody should know of what was left out, a line each time."""


class Exporter(Protocol):
    """What the `PLUGIN` of a module here is."""

    name: str
    """The format, as `--format` takes it."""
    summary: str
    """What it makes, in a line."""
    tables: tuple[Tables, ...]
    """What `--tables` may be; the first is what it is unless asked."""

    def export(self, warehouse: Warehouse, wanted: Wanted) -> tuple[Path, ...]:
        """Write what is selected; gives the files or folders made, none when it went to stdout.

        They appear when they are complete, and never over others. Raises StorageError; UsageError where nothing that
        the format can hold is selected, or the target needs a folder or a package that is not there.
        """


def exporters() -> tuple[Exporter, ...]:
    """Every exporter there is, by name."""
    found: list[Exporter] = [plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE)]
    return tuple(sorted(found, key=lambda exporter: exporter.name))
