"""What `--db-path` may name: a DuckDB file, or a DuckLake, whose catalog is a file or a PostgreSQL database."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core.errors import UsageError

LAKE = "ducklake:"
POSTGRES = "postgres:"
DATA_PATH = "?data_path="
FILE_ENDING = ".ducklake"
FORMS = f"{LAKE}FILE{FILE_ENDING} or {LAKE}{POSTGRES}dbname=NAME host=HOST, where needed with {DATA_PATH}FOLDER"
SECRET = re.compile(r"(?:^|[\s'])(?:ssl)?password\s*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePlace:
    """Where a DuckLake is. Its name holds no secret."""

    name: str
    """As it was given: in messages."""
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
                "--db-path: a DuckLake's PostgreSQL is named by key=value words without a password, which others could "
                "read in the list of processes: use PGPASSWORD, ~/.pgpass or a service file"
            )
        if "://" in data and re.search(r"[?@]", data):
            raise UsageError(
                "--db-path: the data of a DuckLake are named by a URL without credentials and parameters, which others "
                "could read in the list of processes: use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a secret "
                "that DuckDB has stored"
            )
        is_postgres = catalog.startswith(POSTGRES)
        catalog = catalog.removeprefix(POSTGRES).strip()
        if (is_postgres and "=" not in catalog) or (not is_postgres and not catalog.endswith(FILE_ENDING)):
            raise UsageError(f"--db-path: expected {FORMS}, found {text!r}")
        if not is_postgres:
            catalog = os.path.abspath(catalog)
            beside = f"{catalog}.files"
            # A catalog may have been moved with them, or name others.
            data = data or (beside if os.path.isdir(beside) or not os.path.exists(catalog) else "")
        return cls(name=text, catalog=catalog, is_postgres=is_postgres, data_path=_absolute_folder(data))

    @property
    def is_remote(self) -> bool:
        """Whether the data are in an object store."""
        return self.data_path is not None and "://" in self.data_path


def is_lake(database: str | os.PathLike[str]) -> bool:
    """Whether a name of `--db-path` is that of a DuckLake."""
    return os.fspath(database).startswith(LAKE)


def database_exists(database: str) -> bool:
    """Whether there is a file; a PostgreSQL database is taken to be there. Raises UsageError."""
    if not is_lake(database):
        return os.path.exists(database)
    place = LakePlace.parse(database)
    return place.is_postgres or os.path.exists(place.catalog)


def absolute_database(database: str) -> str:
    """The name for a process in another working folder. Raises UsageError."""
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
    """What a database is called where hosts and folders are left out: the name of a file, or a lake's in PostgreSQL."""
    if not is_lake(database):
        return Path(database).name
    place = LakePlace.parse(database)
    if not place.is_postgres:
        return Path(place.catalog).name
    named = re.search(r"dbname\s*=\s*(\S+)", place.catalog)
    return named[1] if named else "ducklake"
