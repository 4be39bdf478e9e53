"""Upgrades the schema of a database with numbered SQL files.

Each migration and its bookkeeping row are one transaction, so a database is never between versions. Migrations are
never edited. Views may be edited; they are replaced after a migration and whenever their SQL has changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from benchmarking.core.errors import FormatError
from benchmarking.core.provenance import naive_now
from db.connection import Connection, literal, quoted, roll_back

BOOKKEEPING = "schema_migrations"
"""The table of applied migrations."""

VIEWS_VERSION = 0
"""Version of the views' row in that table."""

COMMENTS = """
SELECT table_name, column_name, comment FROM system.main.duckdb_columns()
WHERE NOT internal AND database_name = system.main.current_database() AND schema_name = 'main'
ORDER BY table_name, column_index
"""

RECREATED_TABLE = re.compile(r"^DROP TABLE old_(\w+);$", re.MULTILINE)
"""A table that a step recreates, with its comments."""

COMMENT = re.compile(r"^COMMENT ON ((?:TABLE|COLUMN) (\w+)(?:\.\w+)?) IS '((?:[^']|'')*)';\n", re.MULTILINE)
"""A comment: its target, the table of that, and its text."""

COMMENT_SOURCES = (
    *("benchmark_results", "benchmark_runs", "hardware_info", "raw_benchmark_data", "all_quality", "quality_results"),
)
"""Tables and a view whose column comments the views inherit; the first that has the column wins."""


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
    steps = [
        Migration(version=int(name.split("_")[0]), name=name, sql=sql) for name, sql in _sql_files("migrations").items()
    ]
    return tuple(sorted(steps, key=lambda migration: migration.version))


@cache
def views() -> Migration:
    """The SQL of all views, and of the comments on tables."""
    return Migration(version=VIEWS_VERSION, name="views", sql="\n".join((*_sql_files("views").values(), comments())))


@cache
def comments() -> str:
    """SQL of comments on tables and columns that are newer than those of the migrations."""
    return (files("db.schema") / "comments.sql").read_text(encoding="utf-8")


@cache
def temporary_views() -> str:
    """The SQL of all views, for a connection that must not use those in its file."""
    return view_definitions().replace("CREATE OR REPLACE VIEW", "CREATE OR REPLACE TEMP VIEW")


@cache
def view_query(name: str) -> str:
    """The SELECT of a view."""
    return _sql_files("views")[name].partition("\nCOMMENT ON")[0].partition(" AS\n")[2].rstrip().removesuffix(";")


def view_definitions() -> str:
    """The SQL that creates all views, without their comments."""
    return "\n".join(sql.partition("\nCOMMENT ON")[0] for sql in _sql_files("views").values())


@cache
def view_names() -> frozenset[str]:
    """The name of every view."""
    return frozenset(_sql_files("views"))


def latest_version() -> int:
    """The schema version of this program."""
    return migrations()[-1].version


def version_of(connection: Connection, name: str, database: str | None = None) -> int:
    """Schema version of the database; 0 if it is empty.

    Raises FormatError for a version of a newer program. `name` is the database's name in messages, `database` the name
    of an attached one in SQL. `db.catalog` has checked the file's objects before.
    """
    if database is None and BOOKKEEPING not in table_list(connection):
        return 0
    relation = BOOKKEEPING if database is None else f"{quoted(database)}.main.{BOOKKEEPING}"
    version = int(connection.execute(f"SELECT coalesce(max(version), 0) FROM {relation}").fetchall()[0][0])
    refuse_newer(name, version)
    return version


def refuse_newer(name: str, version: int) -> None:
    """Raise FormatError for the schema version of a newer program."""
    if version > latest_version():
        raise FormatError(
            f"{name}: schema {version} is newer than this benchhouse knows ({latest_version()}): upgrade it with "
            "pip install --upgrade benchhouse"
        )


def is_current(connection: Connection, name: str) -> bool:
    """Whether `migrate` would change nothing. Raises FormatError like `version_of`."""
    return version_of(connection, name) == latest_version() and _views_digest(connection) == views().sha256


def migrate(connection: Connection, name: str, steps: Sequence[Migration] | None = None) -> bool:
    """Apply the missing migrations and replace the views; False if nothing had to be done.

    Raises FormatError like `version_of`; `steps` is for tests.
    """
    before = version_of(connection, name)
    pending = [step for step in (migrations() if steps is None else steps) if step.version > before]
    if not pending and _views_digest(connection) == views().sha256:
        return False
    with without_log(connection):
        for number, step in enumerate(pending):
            _apply(connection, step, pending[number + 1 :])
        _replace_views(connection)
        connection.execute("CHECKPOINT")
    return True


def clear(connection: Connection) -> None:
    """Drop all tables and views, or none; `db.catalog` has checked that they are ours."""
    with without_log(connection), transaction(connection):
        drop_views(connection)
        for table in table_list(connection):
            connection.execute(f"DROP TABLE {quoted(table)}")
    connection.execute("CHECKPOINT")


@contextmanager
def without_log(connection: Connection) -> Iterator[None]:
    """Write commits directly into the file instead of its log.

    For schema changes: DuckDB 1.5 and 2.0 cannot open a file whose log changes a table with a CHECK, and a process
    killed after such a commit leaves one.
    """
    connection.execute("SET checkpoint_threshold = '0KB'")
    try:
        yield
    finally:
        connection.execute("RESET checkpoint_threshold")


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """A transaction, rolled back if anything raises."""
    try:
        connection.execute("BEGIN")
        yield
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def _apply(connection: Connection, step: Migration, later: Sequence[Migration] = ()) -> None:
    """Run the step, followed by the `later` ones, and store its row in one transaction."""
    with transaction(connection):
        connection.execute(_without_lost_comments(step.sql, later))
        _note(connection, step)


def _replace_views(connection: Connection) -> None:
    """Create the views; stored ones are dropped first, so that no new view is bound to an old one."""
    with transaction(connection):
        create_views(connection)
        _note(connection, views())


def _without_lost_comments(sql: str, later: Sequence[Migration]) -> str:
    """The SQL without comments on tables that later steps recreate, and without those that `comments` replaces: they
    took a third of the time of a new database."""
    recreated = {table for step in later for table in RECREATED_TABLE.findall(step.sql)}
    replaced = {target for target, _, _ in COMMENT.findall(comments())}
    return COMMENT.sub(lambda found: "" if found[2] in recreated or found[1] in replaced else found[0], sql)


def create_views(connection: Connection) -> None:
    """Create the views in the current database, with all comments, inside the caller's transaction."""
    drop_views(connection)
    connection.execute(views().sql)
    _inherit_comments(connection)


def _note(connection: Connection, step: Migration) -> None:
    """Store the step's row."""
    now = naive_now()
    connection.execute(
        f"INSERT OR REPLACE INTO {BOOKKEEPING} (version, name, sha256, applied_at) VALUES (?, ?, ?, ?)",
        [step.version, step.name, step.sha256, now],
    )


def drop_views(connection: Connection) -> None:
    for view in sorted(view_names()):
        connection.execute(f"DROP VIEW IF EXISTS {quoted(view)}")


def _inherit_comments(connection: Connection) -> None:
    """Copy the comments of table columns to view columns without a comment."""
    comments_by_column = {
        (table, column): comment for table, column, comment in connection.execute(COMMENTS).fetchall()
    }
    statements = []
    for (view, column), comment in comments_by_column.items():
        inherited = next(filter(None, (comments_by_column.get((table, column)) for table in COMMENT_SOURCES)), None)
        if view in view_names() and comment is None and inherited is not None:
            statements.append(f"COMMENT ON COLUMN {quoted(view)}.{quoted(column)} IS {literal(inherited)}")
    if statements:  # one call takes a third less time than many
        connection.execute(";\n".join(statements))


def table_list(connection: Connection) -> list[str]:
    sql = "SELECT table_name FROM system.main.duckdb_tables() WHERE database_name = system.main.current_database()"
    return sorted(row[0] for row in connection.execute(sql).fetchall())


def _views_digest(connection: Connection) -> str | None:
    rows = connection.execute(f"SELECT sha256 FROM {BOOKKEEPING} WHERE version = ?", [VIEWS_VERSION]).fetchall()
    return rows[0][0] if rows else None


def _sql_files(folder: str) -> dict[str, str]:
    """Text by name without ".sql", sorted by name."""
    entries = [entry for entry in (files("db.schema") / folder).iterdir() if entry.name.endswith(".sql")]
    return {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in sorted(entries, key=lambda entry: entry.name)
    }
