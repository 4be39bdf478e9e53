"""Values of `--db-path`: a DuckDB file, or a DuckLake with its catalog in a file or a PostgreSQL database."""

from __future__ import annotations

import os
import re
from pathlib import Path

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass

LAKE = "ducklake:"
POSTGRES = "postgres:"
DATA_PATH = "?data_path="
FILE_ENDING = ".ducklake"
FORMS = f"{LAKE}FILE{FILE_ENDING} or {LAKE}{POSTGRES}dbname=NAME host=HOST, where needed with {DATA_PATH}FOLDER"
SECRET = re.compile(r"(?:^|[\s'])(?:ssl)?password\s*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePlace:
    """The location of a DuckLake. Its name contains no secret."""

    name: str
    """As given by the user, for messages."""
    catalog: str
    """A PostgreSQL connection string, or the absolute path of a file."""
    is_postgres: bool
    data_path: str | None
    """Absolute folder, or URL of an object store; None for the one that the catalog names."""

    @classmethod
    def parse(cls, text: str) -> LakePlace:
        """The place of a name that `is_lake`. Raises UsageError, which never shows a password."""
        catalog, _, data = text.removeprefix(LAKE).partition(DATA_PATH)
        if SECRET.search(text) or "://" in catalog:
            raise UsageError(
                "--db-path: expected key=value pairs without a password for a DuckLake's PostgreSQL database, since "
                "other users can read command lines: use PGPASSWORD, ~/.pgpass or a service file"
            )
        if "://" in data and re.search(r"[?@]", data):
            raise UsageError(
                "--db-path: expected a URL without credentials and parameters for a DuckLake's data, since other users "
                "can read command lines: use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a persistent DuckDB "
                "secret"
            )
        is_postgres = catalog.startswith(POSTGRES)
        catalog = catalog.removeprefix(POSTGRES).strip()
        if (is_postgres and "=" not in catalog) or (not is_postgres and not catalog.endswith(FILE_ENDING)):
            raise UsageError(f"--db-path: expected {FORMS}, found {text!r}")
        if not is_postgres:
            catalog = os.path.abspath(catalog)
            default = f"{catalog}.files"
            # A catalog may have been moved together with its data, or refer to other data.
            data = data or (default if os.path.isdir(default) or not os.path.exists(catalog) else "")
        return cls(name=text, catalog=catalog, is_postgres=is_postgres, data_path=_absolute_folder(data))

    @property
    def is_remote(self) -> bool:
        """Whether the data are in an object store."""
        return self.data_path is not None and "://" in self.data_path


def is_lake(database: str | os.PathLike[str]) -> bool:
    """Whether a value of `--db-path` is the name of a DuckLake."""
    return os.fspath(database).startswith(LAKE)


def database_exists(database: str) -> bool:
    """Whether the file exists; a PostgreSQL database is assumed to exist. Raises UsageError."""
    if not is_lake(database):
        return os.path.exists(database)
    place = LakePlace.parse(database)
    return place.is_postgres or os.path.exists(place.catalog)


def absolute_database(database: str) -> str:
    """The name for use by a process in another working folder. Raises UsageError."""
    if not is_lake(database):
        return os.path.abspath(database)
    place = LakePlace.parse(database)
    data = "" if place.data_path is None else f"{DATA_PATH}{place.data_path}"
    return f"{LAKE}{POSTGRES if place.is_postgres else ''}{place.catalog}{data}"


def _absolute_folder(text: str) -> str | None:
    if not text:
        return None
    return text if "://" in text else os.path.abspath(text)


def without_place(database: str) -> str:
    """The name of a database without host and folder: that of the file or of the PostgreSQL database."""
    if not is_lake(database):
        return Path(database).name
    place = LakePlace.parse(database)
    if not place.is_postgres:
        return Path(place.catalog).name
    named = re.search(r"dbname\s*=\s*(\S+)", place.catalog)
    return named[1] if named else "ducklake"
