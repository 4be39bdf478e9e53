"""A file that holds what no warehouse has is refused before anything in it is read, on every way into the program."""

from __future__ import annotations

import shutil

import duckdb
import pytest

from benchmarking.core.errors import FormatError, StorageError
from db import migrate, service, setup_benchmark_db
from db.commands import compare, export_results, query, sql
from db.commands import merge as merge_command
from db.connection import has_triggers, quoted
from db.upkeep.merging import merge, rebuild
from db.warehouse import MEMORY, Warehouse
from visualize import visualize_benchmarks

SECRET = "the victim's secret"
TRIGGER = "CREATE TRIGGER more AFTER INSERT ON series FOR EACH STATEMENT DELETE FROM alerts"
DIGEST = "UPDATE schema_migrations SET sha256 = 'changed' WHERE version = 0;"


@pytest.fixture
def plant(database):
    """A function that runs SQL in a warehouse, as a stranger would, and gives its path."""

    def run(sql):
        with duckdb.connect(str(database)) as connection:
            connection.execute(sql)
        return database

    return run


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path


WAYS = {
    "open": (setup_benchmark_db.main, ()),
    "verify": (setup_benchmark_db.main, ("--verify",)),
    "ingest": (setup_benchmark_db.main, ("--ingest", "runs")),
    "overwrite": (setup_benchmark_db.main, ("--overwrite", "--yes")),
    "compact": (setup_benchmark_db.main, ("--compact",)),
    "backup": (setup_benchmark_db.main, ("--backup", "backup.duckdb")),
    "save": (service.main, ("store", "DATABASE", "runs/run.json")),
    "merge": (merge_command.main, ("DATABASE", "--db-path", "own.duckdb")),
    "merge --dry-run": (merge_command.main, ("DATABASE", "--dry-run", "--db-path", "own.duckdb")),
    "query": (query.main, ("SELECT 1",)),
    "sql": (sql.main, ()),
    "compare": (compare.main, ("model=a", "model=b")),
    "export": (export_results.main, ("--format", "parquet", "--output", "out")),
    "visualize": (visualize_benchmarks.main, ("--output-dir", "out")),
}
"""Every way into the program that reads a warehouse: the command and its arguments."""


@pytest.mark.parametrize("way", list(WAYS))
def test_a_views_name_is_not_run_as_sql_on_any_way_in(way, plant, tmp_path, spool_run, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "written.csv"
    spool_run()
    Warehouse.open("own.duckdb").close()
    name = f'series"."series_id" IS NULL; COPY (SELECT 1) TO \'{target}\'; --'
    path = plant(f"{DIGEST} CREATE VIEW {quoted(name)} AS SELECT series_id FROM series")
    before = path.read_bytes()
    main, arguments = WAYS[way]
    own = () if "DATABASE" in arguments else ("--db-path", str(path))
    code = main([str(path) if word == "DATABASE" else word for word in (*arguments, *own)])
    assert code == 1
    assert not target.exists()
    assert path.read_bytes() == before
    printed = capfd.readouterr()  # what stores runs gives its reason to the command that started it
    (line,) = (printed.out if way == "save" else printed.err).splitlines()
    assert "refused before reading, since it contains the view" in line


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        ("CREATE VIEW more AS SELECT 1", 'the view "more"'),
        ("CREATE MACRO max(a) AS 5", 'the macro "max"'),
        ("CREATE MACRO duckdb_tables() AS TABLE SELECT 'x' AS table_name", 'the macro "duckdb_tables"'),
        ("CREATE MACRO current_database() AS 'temp'", 'the macro "current_database"'),
        ("CREATE TYPE kind AS ENUM ('a')", 'the type "kind"'),
        ("CREATE SEQUENCE numbers", 'the sequence "numbers"'),
        ("CREATE SCHEMA further", 'the schema "further"'),
        ("CREATE TABLE more (a INTEGER)", 'the table "more"'),
        ("CREATE INDEX more ON series (model_id)", 'the index "more"'),
        ("ALTER TABLE alerts ADD COLUMN more INTEGER", 'the column "alerts.more"'),
        ("ALTER TABLE alerts ALTER COLUMN metric SET DEFAULT 'a'", 'the column "alerts.metric"'),
        ("ALTER TABLE schema_migrations ADD COLUMN more INTEGER", 'the column "schema_migrations.more"'),
        (
            "DROP TABLE annotations; CREATE TABLE annotations (annotation_id VARCHAR, note VARCHAR AS ('made up'))",
            'the column "annotations.',
        ),
        ("DROP TABLE annotations; CREATE VIEW annotations AS SELECT 1", 'the view "annotations"'),
        (
            "ALTER TABLE schema_migrations RENAME TO old; CREATE VIEW schema_migrations AS SELECT * FROM old",
            "not a benchmark warehouse",
        ),
        ('CREATE VIEW "a\x1b[31m\nb" AS SELECT 1', 'the view "a\\x1b[31m\\nb"'),
    ],
)
def test_foreign_database_objects_are_refused_by_name(statements, what, plant):
    path = plant(statements)
    for options in ({}, {"read_only": True}, {"for_questions": True}):
        with pytest.raises(FormatError, match=r"benchmark warehouse|refused before reading") as caught:
            Warehouse.open(path, **options)
        assert what in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_table_of_another_schema_does_not_vouch_for_the_column_of_the_versions(plant):
    """A generated column runs an expression when it is read: here, one that gives the version of a newer program."""
    path = plant(
        "DROP TABLE schema_migrations; CREATE SCHEMA further; "
        "CREATE TABLE further.schema_migrations (version INTEGER); "
        'CREATE TABLE "Schema_Migrations" (a INTEGER, version INTEGER AS (99 + a)); '
        'INSERT INTO main."Schema_Migrations" (a) VALUES (1)'
    )
    with pytest.raises(FormatError, match='the schema "further"'):
        Warehouse.open(path)


@pytest.mark.skipif(not has_triggers(), reason="this DuckDB has no triggers")
def test_a_file_with_a_trigger_is_refused_by_its_name(database, tmp_path):
    path = tmp_path / "newer.duckdb"
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{database}' AS ours (READ_ONLY)")
        connection.execute(f"ATTACH '{path}' AS theirs (STORAGE_VERSION 'v2.0.0')")
        connection.execute("COPY FROM DATABASE ours TO theirs; USE theirs")
        connection.execute(TRIGGER)
    with pytest.raises(FormatError, match='the trigger "more"'):
        Warehouse.open(path)


def test_runs_behind_a_view_are_not_merged(plant, secret, tmp_path):
    columns = f"* REPLACE ((SELECT content FROM read_text('{secret}')) AS description)"
    path = plant(f"ALTER TABLE benchmark_runs RENAME TO kept; CREATE VIEW benchmark_runs AS SELECT {columns} FROM kept")
    own = tmp_path / "own.duckdb"
    for keep_own in (False, True):
        with Warehouse.open(own) as warehouse, pytest.raises(FormatError, match='the view "benchmark_runs"'):
            merge(warehouse, path, keep_own=keep_own)
    assert SECRET.encode() not in own.read_bytes()


def test_a_rebuild_refuses_a_foreign_file_and_leaves_it(plant, spool_run):
    path = plant("CREATE MACRO max(a) AS 5")
    before = path.read_bytes()
    with pytest.raises(FormatError, match='the macro "max"'):
        rebuild(path, [spool_run()[0]])
    assert path.read_bytes() == before


def test_a_modified_view_is_not_used(plant, spool_run, secret):
    path = plant(f"CREATE OR REPLACE VIEW all_results AS SELECT * FROM read_text('{secret}')")
    for options in ({}, {"read_only": True}, {"for_questions": True}):
        with Warehouse.open(path, **options) as warehouse:
            assert "result_id" in warehouse.query("FROM all_results").arrow().column_names
            assert warehouse.query("SELECT count(*) AS n FROM latest_results").dicts() == [{"n": 0}]


def test_views_of_another_version_are_replaced_before_they_are_bound(plant, secret):
    path = plant(f"{DIGEST} CREATE OR REPLACE VIEW accepted_results AS SELECT * FROM read_text('{secret}')")
    with Warehouse.open(path) as warehouse:
        assert warehouse.query("FROM accepted_results").dicts() == []
    with duckdb.connect(str(path), read_only=True) as connection:
        ((text,),) = connection.execute(
            "SELECT sql FROM duckdb_views() WHERE view_name = 'accepted_results'"
        ).fetchall()
    assert "read_text" not in text


def test_readers_need_no_upgrade_if_only_the_views_have_changed(plant):
    path = plant(f"{DIGEST} CREATE OR REPLACE VIEW all_results AS SELECT 1 AS one; DROP VIEW latest_results")
    before = path.read_bytes()
    for options in ({"read_only": True}, {"for_questions": True}):
        with Warehouse.open(path, **options) as warehouse:
            assert "result_id" in warehouse.query("FROM all_results").arrow().column_names
            assert warehouse.query("SELECT count(*) AS n FROM latest_results").dicts() == [{"n": 0}]
    assert path.read_bytes() == before


OUTSIDE = (
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "FROM read_text('{folder}/secret.txt')",
    "ATTACH '{folder}/another.duckdb'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET TimeZone = 'America/New_York'",
    "SET autoload_known_extensions = true",
    "EXPORT DATABASE '{folder}/out'",
)


@pytest.mark.parametrize("options", [{}, {"read_only": True}, {"for_questions": True}])
def test_every_connection_reaches_only_its_own_file(options, database, secret, tmp_path):
    with Warehouse.open(database, **options) as warehouse:
        for statement in OUTSIDE:
            with pytest.raises(StorageError, match=r"disabled|locked|read-only"), warehouse.cursor() as cursor:
                cursor.execute(statement.format(folder=tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["benchmark_db.duckdb", "secret.txt"]


@pytest.mark.parametrize("options", [{}, {"read_only": True}, {"for_questions": True}])
def test_now_is_utc_in_every_connection(options, database, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    with Warehouse.open(database, **options) as warehouse:
        assert warehouse.query("SELECT current_setting('TimeZone') AS zone").dicts() == [{"zone": "UTC"}]
        asked = "SELECT round(epoch(now()::TIMESTAMP) - epoch(now())) AS seconds"
        assert warehouse.query(asked).dicts() == [{"seconds": 0.0}]


@pytest.mark.parametrize("rewritten", [0, 1, 2])
def test_the_tables_and_views_of_this_version_are_recognised_at_once(rewritten, plant, database):
    """After a change of the schema the digests are those shown here: run this with DuckDB 1.5 and with 2.0."""
    for number in range(rewritten):
        plant(f"UPDATE schema_migrations SET applied_at = '2026-01-0{number + 1}'; CHECKPOINT")
    with duckdb.connect(str(database), read_only=True) as connection:
        name = migrate.current_database(connection)
        listed = connection.execute(migrate.TABLES, [name]).fetchall()
        assert migrate._digest(listed) in migrate.TABLES_SHA256
        assert migrate._digest(migrate._items(connection, name, dict(listed))) == migrate.ITEMS_SHA256
        assert migrate.are_own_views(migrate.stored_views(connection, name))


def test_comments_are_written_only_for_views_of_the_schema():
    class Recorded:
        """A connection whose catalog has a column with a foreign name."""

        def __init__(self):
            self.statements = []

        def execute(self, query, parameters=None):
            self.statements.append(query)
            return self

        def fetchall(self):
            return [("benchmark_results", "batch_size", "it's"), ('x"; DROP', "batch_size", None)]

    recorded = Recorded()
    migrate._inherit_comments(recorded)
    assert recorded.statements == [migrate.COMMENTS]


def test_a_database_in_memory_is_a_warehouse():
    with Warehouse.open(MEMORY) as warehouse:
        assert warehouse.has_own_views


def test_merging_leaves_no_folder_behind(database, tmp_path):
    other = tmp_path / "other.duckdb"
    shutil.copy(database, other)
    with Warehouse.open(database) as warehouse:
        merge(warehouse, other)
        warehouse.backup(tmp_path / "backup.duckdb")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "backup.duckdb",
        "benchmark_db.duckdb",
        "other.duckdb",
    ]
