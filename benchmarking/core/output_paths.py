"""Checks of the paths that a command would write to, for --dry-run: they create nothing that stays."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from benchmarking.core.database_paths import LakePlace, is_lake
from benchmarking.core.errors import FormatError, StorageError
from benchmarking.core.temporary import held_folder, temporary_name

MAGIC, MAGIC_AT = b"DUCK", 8
"""What a DuckDB file contains, and the byte where."""


def check_folder(folder: Path) -> None:
    """Check that files can be created in the folder, which may still be missing. Raises StorageError."""
    place = folder.absolute()
    try:
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        with held_folder(place / temporary_name(".benchhouse-check")):
            pass
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {error.strerror}: choose another path") from error


def check_database(database: str) -> None:
    """Check that a database is one and can be written, or that it can be created. A PostgreSQL server is not asked.
    Raises StorageError, UsageError."""
    if is_lake(database):
        place = LakePlace.parse(database)
        if place.is_postgres:
            return
        database = place.catalog
    path = Path(database)
    check_folder(path.absolute().parent)
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise StorageError(f"{path} is not a regular file: choose another path")
        if not os.access(path, os.W_OK):
            raise StorageError(f"cannot write to {path}: no permission: choose another path")
        with path.open("rb") as file:
            head = file.read(MAGIC_AT + len(MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"cannot use {path}: {error.strerror}: choose another path") from error
    if head[MAGIC_AT:] != MAGIC:
        raise FormatError(f"{path}: not a DuckDB database: choose another path")
