"""An upgrade that is killed leaves the file at a whole version, and run again gives what an upgrade in peace gives."""

import os
import random
import signal
import time

import pytest

from db import migrate
from db.ingestion import RUN_TABLES, SHARED_TABLES
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.forked import run_code, started

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")

OLDER = [step.version for step in migrate.migrations()[:-1]]
KILLED = OLDER if os.environ.get("BENCHHOUSE_TEST_ALL") else [OLDER[0], OLDER[-1]]
"""Versions whose upgrade is killed."""
STEP = 1 if os.environ.get("BENCHHOUSE_TEST_ALL") else 3
"""Of so many migrations, counted from the newest, one is where an upgrade is killed."""
TABLES = (*SHARED_TABLES, *RUN_TABLES, "series_heads")
UPGRADE = "import sys; from db.warehouse import Warehouse; Warehouse.open(sys.argv[1]).close()"
KILL_AT = """
import os, signal, sys
from db import migrate
from db.warehouse import Warehouse

version, moment = int(sys.argv[2]), sys.argv[3]
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
note, apply, replace_views = migrate._note, migrate._apply, migrate._replace_views

def in_transaction(connection, step):
    note(connection, step)
    if step.version == version and moment == "inside":
        die()

def applied(connection, step, later):
    apply(connection, step, later)
    if step.version == version and moment == "after":
        die()

def replaced(connection):
    replace_views(connection)
    if version == migrate.VIEWS_VERSION and moment == "after":
        die()

migrate._note, migrate._apply, migrate._replace_views = in_transaction, applied, replaced
Warehouse.open(sys.argv[1])
"""


def contents(path):
    with Warehouse.open(path, create=False) as warehouse:
        assert verify(warehouse) == []
        return {table: warehouse.query(f"SELECT * FROM {table} ORDER BY ALL").dicts() for table in TABLES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("versions")


@pytest.fixture
def old(folder, file_of_version, make_run):
    """A function that gives the bytes of a filled file of a version, and what it holds once it is upgraded in peace."""
    made = {}

    def give(version, path):
        source = folder / f"{version}.duckdb"
        if not source.exists():
            file_of_version(version, source, make_run(with_failed=True, with_doubtful=True), make_run(model_id="gpt2"))
            (folder / f"{version}.bytes").write_bytes(source.read_bytes())
        if version not in made:
            made[version] = contents(source)
        path.write_bytes((folder / f"{version}.bytes").read_bytes())
        return made[version]

    return give


def version_of(path):
    import duckdb

    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute("SELECT max(version) FROM schema_migrations").fetchall()[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("version", KILLED)
def test_an_upgrade_killed_at_any_step_is_resumed(tmp_path, old, version):
    path = tmp_path / "a.duckdb"
    expected = old(version, path)
    newest = migrate.latest_version()
    for step in [*reversed(range(newest, version, -STEP)), migrate.VIEWS_VERSION]:
        for moment in ("inside", "after"):
            assert run_code(KILL_AT, path, step, moment).returncode == -signal.SIGKILL
            before = newest if step == migrate.VIEWS_VERSION else step - 1
            assert version_of(path) == (step if moment == "after" and step != migrate.VIEWS_VERSION else before)
    assert contents(path) == expected


@pytest.mark.parametrize("version", KILLED)
def test_an_upgrade_killed_at_any_time_is_completed_by_the_next_process(tmp_path, old, version):
    path = tmp_path / "a.duckdb"
    for moment_s in (0.0, *(random.uniform(0.0, 0.6) for _ in range(2))):
        expected = old(version, path)
        process = started(UPGRADE, path)
        time.sleep(moment_s)
        process.kill()
        process.join()
        assert version_of(path) in range(version, migrate.latest_version() + 1)
        assert contents(path) == expected
        path.with_name("a.duckdb.wal").unlink(missing_ok=True)


def test_a_log_with_a_changed_table_left_by_an_older_program_is_applied(tmp_path, file_of_version, make_run):
    """DuckDB 1.5 and 2.0 cannot open such a file by themselves, though nothing in it is damaged."""
    path = file_of_version(1, tmp_path / "a.duckdb", make_run())
    code = (
        "import duckdb, os, sys; from db import migrate; connection = duckdb.connect(sys.argv[1])\n"
        "migrate._apply(connection, migrate.migrations()[1]); os._exit(0)"
    )
    assert run_code(code, path).returncode == 0
    assert path.with_name("a.duckdb.wal").exists()
    assert len(contents(path)["benchmark_results"]) == 4
    assert not path.with_name("a.duckdb.wal").exists()
