"""Migrations: from empty, from each older version, twice; all or nothing; never back."""

import re

import pytest

from benchmarking.core.errors import FormatError
from benchmarking.core.metrics import METRICS
from db import migrate
from db.warehouse import MEMORY, Warehouse

CATALOG = """
SELECT table_name, column_name, data_type, is_nullable, comment FROM duckdb_columns() WHERE NOT internal
UNION ALL SELECT table_name, NULL, NULL, NULL, comment FROM duckdb_tables() ORDER BY ALL
"""
NEXT = migrate.latest_version() + 1
COLUMN = migrate.Migration(
    version=NEXT, name="column", sql="ALTER TABLE benchmark_runs ADD COLUMN weather VARCHAR; SELECT 1"
)
BROKEN = migrate.Migration(version=NEXT + 1, name="broken", sql="CREATE TABLE half (a INTEGER); SELECT * FROM nowhere")


@pytest.fixture
def creation_of_databases():
    """Databases are made by the shipped code, which is what is tested here."""


@pytest.fixture
def connection():
    import duckdb

    with duckdb.connect() as opened:
        yield opened


def make_version(connection, version):
    """Bring an empty database to a version, as the program of that time did but for its views."""
    for step in migrate.migrations()[:version]:
        migrate._apply(connection, step)


def tables(connection):
    return {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}


def applied(connection):
    return connection.execute("SELECT version, name FROM schema_migrations ORDER BY version").fetchall()


def test_the_migrations_are_numbered_without_a_gap():
    steps = migrate.migrations()
    assert [step.version for step in steps] == list(range(1, len(steps) + 1))
    assert all(re.fullmatch(r"\d{4}_[a-z_]+", step.name) for step in steps)


def test_an_empty_database_gets_everything(connection):
    assert migrate.version_of(connection, "x") == 0
    migrate.migrate(connection, "x")
    assert migrate.version_of(connection, "x") == migrate.latest_version()
    assert applied(connection) == [(0, "views"), *((step.version, step.name) for step in migrate.migrations())]
    assert migrate.is_current(connection, "x")


def test_migrating_twice_changes_nothing(connection):
    migrate.migrate(connection, "x")
    before = connection.execute("SELECT * FROM schema_migrations ORDER BY version").fetchall()
    migrate.migrate(connection, "x")
    assert connection.execute("SELECT * FROM schema_migrations ORDER BY version").fetchall() == before


@pytest.mark.parametrize("version", [1, migrate.latest_version()])
def test_an_older_version_is_upgraded_to_the_schema_of_a_new_database(connection, version):
    """The first, and the newest without its views; those between are verified in test_upgrade.py."""
    make_version(connection, version)
    migrate.migrate(connection, "x")
    with Warehouse.open(MEMORY) as fresh:
        expected = [tuple(row.values()) for row in fresh.query(CATALOG).dicts()]
    assert connection.execute(CATALOG).fetchall() == expected


def test_a_later_migration_keeps_the_rows_and_reaches_the_views(tmp_path, make_run):
    import duckdb

    path = tmp_path / "a.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(make_run())
    with duckdb.connect(str(path)) as connection:
        migrate.migrate(connection, "x", [*migrate.migrations(), COLUMN])
        assert connection.execute("SELECT count(*), count(weather) FROM benchmark_runs").fetchall() == [(1, 0)]
        assert connection.execute("SELECT count(*) FROM history").fetchall() == [(4,)]
        assert applied(connection)[-1] == (NEXT, "column")


def test_a_failed_migration_leaves_no_trace(connection):
    with pytest.raises(Exception, match="nowhere"):
        migrate.migrate(connection, "x", [*migrate.migrations(), COLUMN, BROKEN])
    assert "half" not in tables(connection)
    assert [version for version, _ in applied(connection)] == list(range(1, NEXT + 1))


def test_a_database_of_a_newer_program_is_refused_and_left_unchanged(tmp_path):
    path = tmp_path / "a.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.query("INSERT INTO schema_migrations VALUES (99, '0099_later', 'x', now()::TIMESTAMP)")
    for read_only in (False, True):
        with pytest.raises(
            FormatError,
            match=rf"a\.duckdb: schema 99 is newer than .* knows \({migrate.latest_version()}\): upgrade it",
        ):
            Warehouse.open(path, read_only=read_only)


def test_views_of_another_version_are_replaced(tmp_path):
    path = tmp_path / "a.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.query("CREATE OR REPLACE VIEW history AS SELECT 1 AS old")
        warehouse.query("UPDATE schema_migrations SET sha256 = 'old' WHERE version = 0")
    for read_only, is_replaced in ((True, False), (False, True), (True, True)):
        with Warehouse.open(path, read_only=read_only) as warehouse:
            assert "position" in warehouse.query("SELECT * FROM history").arrow().column_names
            assert warehouse.has_own_views == is_replaced


def test_every_table_view_and_column_has_a_comment(warehouse):
    silent = warehouse.query(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND coalesce(length(comment), 0) < 4 "
        "UNION ALL SELECT table_name, NULL FROM duckdb_tables() WHERE comment IS NULL "
        "UNION ALL SELECT view_name, NULL FROM duckdb_views() WHERE NOT internal AND comment IS NULL"
    )
    assert silent.dicts() == []


def test_newer_comments_replace_migration_comments(connection):
    make_version(connection, migrate.latest_version())
    assert migrate.migrate(connection, "a")
    tables = "SELECT 'TABLE ' || table_name, comment FROM duckdb_tables()"
    columns = "SELECT concat('COLUMN ', table_name, '.', column_name), comment FROM duckdb_columns()"
    stored = dict(connection.execute(f"{tables} UNION ALL {columns}").fetchall())
    newer = {target: text.replace("''", "'") for target, _, text in migrate.COMMENT.findall(migrate.comments())}
    assert len(newer) == migrate.comments().count("COMMENT ON ") > 100
    assert {target: stored.get(target) for target in newer} == newer


@pytest.mark.parametrize(
    ("ending", "unit"), [("_ms", " ms"), ("_s", "econds|in s|Time"), ("_mb", " MB"), ("_j_per_call", " J")]
)
def test_columns_with_a_unit_in_their_name_explain_it(warehouse, ending, unit):
    sql = (
        "SELECT column_name, comment FROM duckdb_columns() WHERE table_name IN ('benchmark_runs', 'benchmark_results')"
    )
    found = [row for row in warehouse.query(sql).dicts() if row["column_name"].endswith(ending)]
    assert found
    assert [row["column_name"] for row in found if not re.search(unit, row["comment"])] == []


def test_every_common_metric_has_a_column(warehouse):
    sql = "SELECT column_name FROM duckdb_columns() WHERE table_name = 'benchmark_results' AND data_type = 'DOUBLE'"
    columns = {row["column_name"] for row in warehouse.query(sql).dicts()}
    latency = {
        f"latency_{name}_ms"
        for name in (
            "mean",
            "median",
            "std",
            "mad",
            "min",
            "p25",
            "p75",
            "p90",
            "p95",
            "p99",
            "max",
            "ci_low",
            "ci_high",
        )
    }
    assert latency <= columns
    assert {
        "throughput_samples_per_sec",
        "time_to_first_token_ms",
        "memory_weights_mb",
        "energy_gpu_j_per_call",
    } <= columns


def test_every_measured_number_has_its_own_column(warehouse):
    sql = "SELECT column_name FROM duckdb_columns() WHERE table_name = 'benchmark_results' AND data_type = 'DOUBLE'"
    assert set(METRICS) - {row["column_name"] for row in warehouse.query(sql).dicts()} == set()


def test_no_foreign_key_no_second_index_and_no_key_on_raw_rows(warehouse):
    sql = "SELECT table_name FROM duckdb_constraints() WHERE constraint_type IN ('FOREIGN KEY', 'UNIQUE')"
    assert warehouse.query(sql).dicts() == []
    assert warehouse.query("SELECT index_name FROM duckdb_indexes()").dicts() == []
    keys = "SELECT table_name FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY'"
    assert "raw_benchmark_data" not in {row["table_name"] for row in warehouse.query(keys).dicts()}
