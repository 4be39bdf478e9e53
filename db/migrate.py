"""Upgrades the schema of a database by numbered SQL files.

Each migration and its bookkeeping row are one transaction, so a database is always at a whole version. Migrations are
never edited; views are, and are replaced when a migration ran or their SQL changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from benchmarking.core.errors import FormatError

VIEWS_VERSION = 0
"""Version of the views' row in schema_migrations."""

INHERITED_COMMENTS = """
SELECT format('COMMENT ON COLUMN "{}"."{}" IS ''{}''', view_name, column_name, replace(kept.comment, '''', ''''''))
FROM duckdb_columns() shown
JOIN duckdb_views() views ON view_name = shown.table_name AND NOT views.internal
JOIN duckdb_columns() kept USING (column_name)
JOIN (VALUES ('benchmark_results', 1), ('benchmark_runs', 2), ('hardware_info', 3), ('raw_benchmark_data', 4))
    AS place (table_name, number) ON place.table_name = kept.table_name
WHERE shown.comment IS NULL
QUALIFY row_number() OVER (PARTITION BY view_name, column_name ORDER BY place.number) = 1
"""
"""One COMMENT statement for each column of a view; if several tables have the column, the first listed wins."""


class Connection(Protocol):
    """The one method of a DuckDB connection that migrations need."""

    def execute(self, query: str, parameters: object = ...) -> Any:
        """Run the statements; the result can be fetched."""


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
    """Every migration, in order."""
    found = [
        Migration(version=int(name.split("_")[0]), name=name, sql=sql) for name, sql in _sql_files("migrations").items()
    ]
    return tuple(sorted(found, key=lambda migration: migration.version))


@cache
def views() -> Migration:
    """The SQL of all views."""
    return Migration(version=VIEWS_VERSION, name="views", sql="\n".join(_sql_files("views").values()))


def latest_version() -> int:
    """The schema version of this program."""
    return migrations()[-1].version


def version_of(connection: Connection, name: str) -> int:
    """Version of the database's schema; 0 when it is empty.

    Raises FormatError for a database of something else or of a newer program; `name` is its name in messages.
    """
    if not _has_schema(connection, name):
        return 0
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
    """Apply the missing migrations. Raises FormatError as `version_of` does; `steps` is for tests."""
    before = version_of(connection, name)
    pending = [step for step in (migrations() if steps is None else steps) if step.version > before]
    if not pending and _views_digest(connection) == views().sha256:
        return
    with without_log(connection):
        for step in pending:
            _apply(connection, step)
        _apply(connection, views(), _inherit_comments)
        connection.execute("CHECKPOINT")


def clear(connection: Connection, name: str) -> None:
    """Drop all tables and views, or none. Raises FormatError for a database of something else."""
    if not _has_schema(connection, name):
        return
    with without_log(connection), transaction(connection):
        for schema, view in connection.execute(
            "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal"
        ).fetchall():
            connection.execute(f"DROP VIEW {quoted(schema)}.{quoted(view)}")
        for schema, table in connection.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall():
            connection.execute(f"DROP TABLE {quoted(schema)}.{quoted(table)}")
    connection.execute("CHECKPOINT")


@contextmanager
def without_log(connection: Connection) -> Iterator[None]:
    """Commits go into the file at once, not into its log first.

    For changes of the schema: DuckDB 1.5 and 2.0 cannot open a file whose log changes a table with a CHECK, and a
    process killed after such a commit leaves one.
    """
    connection.execute("SET checkpoint_threshold = '0KB'")
    try:
        yield
    finally:
        connection.execute("RESET checkpoint_threshold")


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """A transaction, rolled back if anything raises. An error of ROLLBACK has the first error as its context."""
    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _apply(connection: Connection, step: Migration, finish: Callable[[Connection], None] | None = None) -> None:
    """Run the step and store its row in one transaction."""
    now = datetime.now(UTC).replace(tzinfo=None)
    with transaction(connection):
        connection.execute(step.sql)
        if finish is not None:
            finish(connection)
        connection.execute(
            "INSERT OR REPLACE INTO schema_migrations (version, name, sha256, applied_at) VALUES (?, ?, ?, ?)",
            [step.version, step.name, step.sha256, now],
        )


def _inherit_comments(connection: Connection) -> None:
    """Give columns of views without a comment the comment of the table's column."""
    for (statement,) in connection.execute(INHERITED_COMMENTS).fetchall():
        connection.execute(statement)


def _has_schema(connection: Connection, name: str) -> bool:
    """Whether the schema exists, at any version; False for an empty database."""
    tables = sorted(row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall())
    if tables and "schema_migrations" not in tables:
        holds = ", ".join(tables[:3])
        raise FormatError(
            f"{name}: a DuckDB database, but not a benchmark warehouse (it has {holds}): choose another path"
        )
    return bool(tables)


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
