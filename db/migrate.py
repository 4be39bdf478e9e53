"""Upgrades the schema of a database with numbered SQL files, and refuses a file that contains anything else.

Each migration and its bookkeeping row are one transaction, so a database is never between versions. Migrations are
never edited. Views may be edited; they are replaced after a migration and whenever their SQL has changed.

The catalog of a warehouse's file is checked before anything in it is read. A database can contain its own views,
macros, types and triggers, and DuckDB prefers them to built-in ones with the same name: reading an untrusted file would
run its SQL. A warehouse contains the tables, columns and views of the migrations and nothing else; `db.upkeep.verify`
reports what is missing. The queries of the check name DuckDB's own functions in full, call no others, and filter only
by comparisons.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from benchmarking.core.errors import FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import naive_now
from benchmarking.core.text import visible
from db.connection import Connection, confined, has_triggers, literal, quoted, roll_back

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

Item = tuple[str, ...]
"""A catalog object: its kind, its table if it has one, its name, and the properties that must be equal."""

Views = list[tuple[str, str]]
"""The name and the SQL of each view, as DuckDB lists them."""

TABLES_SHA256 = (
    "7bca9cf119bc43343a826f98d3eab62fdbe038a44f160ae36a5c5c1a0efb9579",  # DuckDB 1.5
    "f7c8b63dd9cd8d57b730646060e255b62c70788b09067c23023bd23913f2b2a7",  # 2.0
)
"""Digests of the SQL of the newest version's tables, as each DuckDB lists it: a short cut, with which columns and
constraints are not listed, a quarter of the time that it takes to open a file."""

ITEMS_SHA256 = "046770d3b58779eaf98c38e3cac0cccb9deab9c3173ceb360395399aebe88c65"
"""Digest of the tables, columns and constraints of the newest version, as every DuckDB lists them. A file with them
needs no further check, which would take 0.4 s."""

VIEWS_SHA256 = (
    "43be627008c4687e3de7a7b68fc97a3db32fda10fe4d70d4dc8e2ab358c68dfa",  # created and read by DuckDB 1.5
    "b5e53340643636dd9222c411b1b2b98b6c7a73d3b4fb2a94b5713fb0177e6435",  # created and read by 2.0
    "e053e6e6b494f95f057486b355d1aba40403bec3bb89390cf31c0f33e9da4087",  # created by 1.5, read by 2.0
    "7f4bc7678e39f54968e9b8520cd729ecda1631e210b05dc84f908444813def14",  # created by 2.0, read by 1.5
    "a30f2385758f9ccfae994b2d4dd2a8e61bb03c39194f613f5bb8c27b9ee458cd",  # that, next written by 2.0, read by 1.5
    "38055a4637813ff854f7b9a852e07894baeaad6c3526dea0e7e6e2b40f4751c9",  # the first, next written by 2.0, read by 1.5
)
"""Digests of the text of our views, which are only a short cut: if a file has any other text, such as that of a later
DuckDB, its views are not used, and each connection creates temporary ones, which takes 40 ms. To parse both texts and
compare the trees takes 70 to 270 ms, and versions of DuckDB parse one text into different trees."""

COLUMNS_SHA256 = "b8bec777bf3f3343b30b250ef54fd4d66a333d0a9f692e52f65e7ab2f2951462"
"""Digest of the names, types and nullability of the tables' columns: all that a lake keeps of them."""

FOREIGN = {
    "schema": """
        SELECT database_name, schema_name FROM system.main.duckdb_schemas() WHERE NOT internal AND schema_name <> 'main'
    """,
    "macro": "SELECT database_name, function_name FROM system.main.duckdb_functions() WHERE NOT internal",
    "type": "SELECT database_name, type_name FROM system.main.duckdb_types() WHERE NOT internal",
    "sequence": "SELECT database_name, sequence_name FROM system.main.duckdb_sequences()",
    "index": "SELECT database_name, index_name FROM system.main.duckdb_indexes()",
    "trigger": "SELECT database_name, trigger_name FROM system.main.duckdb_triggers()",
}
"""Kinds of objects that a warehouse must not contain -> query for (database, name) of each."""

TABLES = """
SELECT table_name, sql FROM system.main.duckdb_tables()
WHERE database_name = ? AND schema_name = 'main' ORDER BY table_name
"""
VIEWS = """
SELECT view_name, sql FROM system.main.duckdb_views() WHERE database_name = ? AND NOT internal ORDER BY view_name
"""
COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable, column_default FROM system.main.duckdb_columns()
WHERE database_name = ? AND schema_name = 'main' AND NOT internal
"""
CONSTRAINTS = """
SELECT table_name, constraint_type, constraint_column_names FROM system.main.duckdb_constraints()
WHERE database_name = ?
"""
EXCLUDED = re.compile(r"EXCLUDE \(([^()]*)\)")
MAX_NAME = 80
CATALOG_PREFIX = "ducklake_"
"""Prefix of the tables of a DuckLake catalog."""


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
    return (_schema() / "comments.sql").read_text(encoding="utf-8")


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
    of an attached one in SQL. `refuse_foreign` has checked the file's objects before.
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


def migrate(
    connection: Connection, name: str, steps: Sequence[Migration] | None = None, *, before: int | None = None
) -> bool:
    """Apply the missing migrations and replace the views; False if nothing had to be done. `before` is the version of
    the database, if it is known.

    Raises FormatError like `version_of`; `steps` is for tests.
    """
    before = version_of(connection, name) if before is None else before
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
    """Drop all tables and views of a file, or none: see `drop_everything`."""
    with without_log(connection), transaction(connection):
        drop_everything(connection)
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
    """Run the step, followed by the `later` ones, and store its row in one transaction.

    Without comments on tables that later steps recreate, and those that `comments` replaces: they took a third of the
    time of a new database.
    """
    gone = {table for other in later for table in RECREATED_TABLE.findall(other.sql)}
    gone |= {target for target, _, _ in COMMENT.findall(comments())}
    with transaction(connection):
        connection.execute(COMMENT.sub(lambda found: found[0] if gone.isdisjoint(found.groups()[:2]) else "", step.sql))
        _note(connection, step)


def _replace_views(connection: Connection) -> None:
    """Create the views; stored ones are dropped first, so that no new view is bound to an old one."""
    with transaction(connection):
        create_views(connection)
        _note(connection, views())


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


def drop_everything(connection: Connection) -> None:
    """Drop all tables and views inside the caller's transaction; `refuse_foreign` has checked that they are ours."""
    drop_views(connection)
    for table in table_list(connection):
        connection.execute(f"DROP TABLE {quoted(table)}")


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


def _schema() -> Traversable:
    """The folder of SQL files: a package, or beside this one where a command runs as a file of a checkout that is not
    the installed one."""
    try:
        return files("db.schema")
    except ModuleNotFoundError:
        return Path(__file__).resolve().parents[1] / "schema"


def _sql_files(folder: str) -> dict[str, str]:
    """Text by name without ".sql", sorted by name."""
    entries = [entry for entry in (_schema() / folder).iterdir() if entry.name.endswith(".sql")]
    return {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in sorted(entries, key=lambda entry: entry.name)
    }


def refuse_foreign(
    connection: Connection,
    path: str,
    database: str | None = None,
    *,
    is_lake: bool = False,
    is_overwritten: bool = False,
) -> Views:
    """Raise FormatError for an object in the file that no version of the schema has, and for the file of a newer
    program unless it is overwritten, so that nothing of it is read. Returns its views.

    `database` is the name of an attached file, or None for the connection's own database, which may be a lake. `path`
    is its name in messages.
    """
    name = current_database(connection) if database is None else database
    listed: list[tuple[str, str]] = connection.execute(TABLES, [name]).fetchall()
    tables = {table for table, _ in listed}
    is_newest = not is_lake and _digest(listed) in TABLES_SHA256
    items = set() if is_newest else _items(connection, name, tables)
    if BOOKKEEPING in tables and not is_overwritten:
        # The column of the versions is only read if it is a plain number: a generated one runs an expression.
        version = next((item[3:] for item in items if item[:3] == ("column", BOOKKEEPING, "version")), None)
        if is_newest or (version is not None and (version[0], version[2]) == ("INTEGER", "None")):
            sql = f"SELECT version FROM {quoted(name)}.main.{quoted(BOOKKEEPING)}"
            refuse_newer(path, max((row[0] for row in connection.execute(sql).fetchall()), default=0))
    _refuse_kinds(connection, path, name)
    if tables and BOOKKEEPING not in tables:
        tables_found = ", ".join(visible(table) for table in sorted(tables)[:3])
        raise FormatError(
            f"{path}: a DuckDB database, but not a benchmark warehouse (it has {tables_found}): choose another path"
        )
    found = stored_views(connection, name)
    for view, _ in found:
        if view not in view_names():
            raise _foreign(path, "view", view)
    if is_newest or not tables or (is_lake and columns_digest(items) == COLUMNS_SHA256):
        return found
    if is_lake or _digest(items) != ITEMS_SHA256:
        # Compare table by table and column by column. A file of a newer program gets its own message.
        unknown = sorted(items - _known_items(), key=lambda item: (item[0] != "table", item))
        bookkeeping = [item for item in unknown if item[1] == BOOKKEEPING]
        if unknown and not bookkeeping:
            version_of(connection, path, name)
        for item in bookkeeping or unknown:
            raise _foreign(path, item[0], ".".join(item[1:3]) if item[0] == "column" else item[1])
    return found


def _refuse_kinds(connection: Connection, path: str, database: str) -> None:
    for kind, sql in FOREIGN.items():
        if kind != "trigger" or has_triggers():
            for owner, name in connection.execute(sql).fetchall():
                if owner == database:
                    raise _foreign(path, kind, name)


def refuse_non_catalog(connection: Connection, path: str) -> None:
    """Raise FormatError for an object in a DuckLake's catalog file that does not belong to such a catalog."""
    name = current_database(connection)
    _refuse_kinds(connection, path, name)
    for view, _ in stored_views(connection, name):
        raise _foreign(path, "view", view)
    for table, _ in connection.execute(TABLES, [name]).fetchall():
        if not table.startswith(CATALOG_PREFIX):
            raise _foreign(path, "table", table)


def columns_digest(items: Iterable[Item]) -> str:
    """Digest of the tables' columns, the same for a file and a lake of one version."""
    return _digest(item[1:] for item in items if item[0] == "column")


def stored_views(connection: Connection, database: str) -> Views:
    """The views of a database."""
    found: Views = connection.execute(VIEWS, [database]).fetchall()
    return found


def are_own_views(views: Views) -> bool:
    """Whether the views of a file are exactly those of this program."""
    texts = []
    for name, sql in views:
        # DuckDB reverses the list of excluded columns each time it stores a view.
        ordered = EXCLUDED.sub(lambda found: f"EXCLUDE ({', '.join(sorted(found[1].split(', ')))})", sql)
        texts.append((name, ordered))
    return _digest(texts) in VIEWS_SHA256


def current_database(connection: Connection) -> str:
    """The name of the connection's own database in SQL."""
    return str(connection.execute("SELECT system.main.current_database()").fetchall()[0][0])


def _items(connection: Connection, database: str, tables: Iterable[str]) -> set[Item]:
    """The tables, their columns (table, name, type, NULL and default of each) and constraints, of the schema main: a
    file with another one is refused, but it may have a table with the name of one of ours."""
    items: set[Item] = {("table", table) for table in tables}
    # The expression of a generated column is listed as its default, and runs when the column is read.
    for table, *column, default in connection.execute(COLUMNS, [database]).fetchall():
        if table in tables:
            items.add(("column", table, *map(str, column), "None" if default == "NULL" else str(default)))
    for table, kind, columns in connection.execute(CONSTRAINTS, [database]).fetchall():
        items.add(("constraint", table, kind, *columns))
    return items


@cache
def _known_items() -> frozenset[Item]:
    """Every item that the tables of some version have."""
    known: set[Item] = set()
    with confined() as connection:
        for step in migrations():
            connection.execute(step.sql)
            known |= _items(connection, current_database(connection), table_list(connection))
    return frozenset(known)


def _digest(items: Iterable[Item]) -> str:
    return hashlib.sha256(json.dumps(sorted(items)).encode()).hexdigest()


def _foreign(path: str, kind: str, name: str) -> FormatError:
    shown = visible(name)
    quoted_name = quoted(shown if len(shown) <= MAX_NAME else f"{shown[:MAX_NAME]}...")
    return FormatError(
        f"{path}: refused before reading, since it contains the {kind} {quoted_name}, which no warehouse has: "
        f"drop it in the DuckDB shell if it is yours, or choose another path"
    )
