"""Brings a database's schema up to what the program knows, one numbered SQL file after the other.

Each migration and its bookkeeping row are one transaction, so that a database is always at a whole version. Migrations
are never edited; views are, and are replaced whenever a migration ran or their SQL changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from benchmarking.errors import FormatError

VIEWS_VERSION = 0
"""The row of schema_migrations that stands for the views."""


class Connection(Protocol):
    """The one method of a DuckDB connection that is needed here."""

    def execute(self, query: str, parameters: object = ...) -> Any:
        """Run the statements and give what can be fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema."""

    version: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """Hex digest of the SQL."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


@cache
def migrations() -> tuple[Migration, ...]:
    """Every migration the program knows, in order."""
    found = [
        Migration(version=int(name.split("_")[0]), name=name, sql=sql) for name, sql in _sql_files("migrations").items()
    ]
    return tuple(sorted(found, key=lambda migration: migration.version))


@cache
def views() -> Migration:
    """The SQL of all views."""
    return Migration(version=VIEWS_VERSION, name="views", sql="\n".join(_sql_files("views").values()))


def latest_version() -> int:
    """The version the program works with."""
    return migrations()[-1].version


def version_of(connection: Connection, name: str) -> int:
    """Version of the database's schema; 0 when it is empty.

    Raises FormatError when it belongs to somebody else or to a newer program. `name` is what to call it.
    """
    tables = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if not tables:
        return 0
    if "schema_migrations" not in tables:
        known = ", ".join(sorted(tables)[:3])
        raise FormatError(f"{name}: a DuckDB database, but not a benchmark warehouse (it holds {known}): name another")
    version = int(connection.execute("SELECT coalesce(max(version), 0) FROM schema_migrations").fetchall()[0][0])
    if version > latest_version():
        raise FormatError(
            f"{name}: schema {version} is newer than this program knows ({latest_version()}): upgrade benchhouse"
        )
    return version


def is_current(connection: Connection, name: str) -> bool:
    """Whether `migrate` would change nothing. Raises FormatError as `version_of` does."""
    return version_of(connection, name) == latest_version() and _views_digest(connection) == views().sha256


def migrate(connection: Connection, name: str, steps: Sequence[Migration] | None = None) -> None:
    """Apply what is missing. Raises FormatError as `version_of` does; `steps` is for tests."""
    before = version_of(connection, name)
    pending = [step for step in (migrations() if steps is None else steps) if step.version > before]
    for step in pending:
        _apply(connection, step)
    if pending or _views_digest(connection) != views().sha256:
        _apply(connection, views())
        connection.execute("CHECKPOINT")


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """All of what is done inside, or nothing. An error at ROLLBACK has the first one as its context."""
    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _apply(connection: Connection, step: Migration) -> None:
    """The step and its row, both or neither."""
    now = datetime.now(UTC).replace(tzinfo=None)
    with transaction(connection):
        connection.execute(step.sql)
        connection.execute(
            "INSERT OR REPLACE INTO schema_migrations (version, name, sha256, applied_at) VALUES (?, ?, ?, ?)",
            [step.version, step.name, step.sha256, now],
        )


def _views_digest(connection: Connection) -> str | None:
    rows = connection.execute("SELECT sha256 FROM schema_migrations WHERE version = ?", [VIEWS_VERSION]).fetchall()
    return rows[0][0] if rows else None


def _sql_files(folder: str) -> dict[str, str]:
    """Text by name without ".sql", sorted by name."""
    found = [entry for entry in (files("db.schema") / folder).iterdir() if entry.name.endswith(".sql")]
    return {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in sorted(found, key=lambda entry: entry.name)
    }
