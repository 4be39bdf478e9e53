"""The importer of a file that one tool wrote."""

from __future__ import annotations

from db.importers.support.building import Format
from db.importers.support.files import ForeignFile, importers_for


def importer_for(file: ForeignFile, format_name: str | None = None) -> Format:
    """The only importer that recognises the file, or the named one."""
    (importer,) = importers_for(file, format_name)
    return importer
