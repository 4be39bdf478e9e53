"""Places that results are stored in: the values of `--db-path` (a DuckDB file, or a DuckLake with its catalog in a file
or a PostgreSQL database), and checks of what a command would write to, for --dry-run, which create nothing that stays.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from benchmarking.core.errors import FormatError, StorageError, UsageError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.temporary import held_folder, temporary_name
from benchmarking.core.untrusted.input_files import lfs_pointer

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
            catalog = os.path.abspath(os.path.expanduser(catalog))
            default = f"{catalog}.files"
            # A catalog may have been moved together with its data, or refer to other data.
            data = data or (default if os.path.isdir(default) or not os.path.exists(catalog) else "")
        folder = data if not data or "://" in data else os.path.abspath(os.path.expanduser(data))
        return cls(name=text, catalog=catalog, is_postgres=is_postgres, data_path=folder or None)


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


def without_place(database: str) -> str:
    """The name of a database without host and folder: that of the file or of the PostgreSQL database."""
    if not is_lake(database):
        return Path(database).name
    place = LakePlace.parse(database)
    if not place.is_postgres:
        return Path(place.catalog).name
    named = re.search(r"dbname\s*=\s*(\S+)", place.catalog)
    return named[1] if named else "ducklake"


MAGIC, MAGIC_AT = b"DUCK", 8
"""What a DuckDB file contains after its first checksum, and the byte where."""
HEAD_BYTES = MAGIC_AT + len(MAGIC)


def is_duckdb(head: bytes) -> bool:
    """Whether a file that begins with these bytes (at least HEAD_BYTES) is one of DuckDB."""
    return head[MAGIC_AT:HEAD_BYTES] == MAGIC


def no_database(path: str | Path) -> FormatError:
    return FormatError(lfs_pointer(path) or f"{path}: not a DuckDB database: choose another path")


def own_run_files(source: str, database: str, *, is_imported: bool = False) -> list[Path]:
    """The files that a stored run may have been loaded from, as this database has them, the likeliest first; none if it
    is gone.

    A database that was copied or moved with its folder has its files below that, at any depth. Where the run was loaded
    from, the file counts only if no other database of the same name lies above it: that is the one it was copied from.
    While that folder is there, another file may have the bare name. One of another tool counts only there, since any
    folder may have one of its name.
    """
    from benchmarking.core.untrusted.redaction import to_home

    there = Path(to_home(source))
    place = LakePlace.parse(database) if is_lake(database) else None
    catalog = database if place is None else None if place.is_postgres else place.catalog
    beside, is_anothers = list[Path](), False
    if catalog is not None:
        own = Path(catalog).absolute()
        others = [folder / own.name for folder in there.parents]
        is_anothers = own.exists() and any(os.path.isfile(one) and not os.path.samefile(one, own) for one in others)
        parts = there.relative_to(there.anchor).parts
        least = 2 if not is_anothers and os.path.isdir(there.parent) else 1
        beside = [] if is_imported else [own.parent.joinpath(*parts[start:]) for start in range(len(parts) - least + 1)]
    found = [one for one in (*beside, *([] if is_anothers else [there])) if os.path.isfile(one)]
    return list(dict.fromkeys(found))  # isfile is False for what cannot be looked at, too


PROBE_BYTES = 1 << 20
"""What a disk must have room for. With less, a disk passes that cannot take a run file and its rows; more takes time
at each check."""


def check_folder(folder: Path) -> None:
    """Check that files can be created in the folder, which may still be missing, and that its disk is not full. Raises
    StorageError."""
    place = folder.absolute()
    with storage_errors(f"cannot write to {folder}", "choose another path"):
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        with held_folder(place / temporary_name(".benchhouse-check")) as made:
            (made / "probe").write_bytes(os.urandom(PROBE_BYTES))  # random, since some file systems store no zeros


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
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"cannot use {path}: {error.strerror}: choose another path") from error
    if not is_duckdb(head):
        raise no_database(path)
