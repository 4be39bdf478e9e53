"""Merge, rebuild and backup killed after any change on disk, or on a full disk: nothing is lost or doubled, and what
is left behind goes with the next command.

Killed upgrades: test_upgrade_kills.py; loading: test_processes.py; compacting: test_compacted_file.py and
upkeep/test_compact.py; measuring: tests/benchmarking/test_robustness.py and batch/test_batch_kills.py.
"""

import os
import resource
import shutil
import signal

import pytest

from benchmarking.core.temporary import leftovers
from db.ingestion import RUN_TABLES, SHARED_TABLES
from db.setup_benchmark_db import main
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.forked import run_code

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")

KILLED_AT = """
import os, shutil, signal, sys
from pathlib import Path
from db.upkeep.merging import OtherWarehouse
from db.warehouse import Warehouse

left = int(sys.argv[1])

def watch(place, name):
    real = getattr(place, name)
    def watched(*arguments, **named):
        global left
        done = real(*arguments, **named)
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(place, name, watched)

for place, name in ((os, "link"), (Path, "replace"), (shutil, "rmtree"), (Warehouse, "_copy_to"),
                    (OtherWarehouse, "take")):
    watch(place, name)
if sys.argv[2] == "merge":
    from db.commands.merge import main
else:
    from db.setup_benchmark_db import main
sys.exit(main(sys.argv[3:]))
"""
COMMANDS = {
    "merge": ("merge", "other.duckdb"),
    "rebuild": ("setup", "--rebuild-from", "runs"),
    "backup": ("setup", "--backup", "copy.duckdb"),
}
STEP = {"rebuild": 1 if os.environ.get("BENCHHOUSE_TEST_ALL") else 5}
"""Of so many changes on disk one is the last: a rebuild makes dozens."""
FULL = {**COMMANDS, "compact": ("setup", "--compact"), "new database": ("setup", "--db-path", "new.duckdb")}


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch, spool_run):
    """A database of two runs, one of them with its run file, and another database of a third."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCHMARK_DB_PATH", "own.duckdb")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    (tmp_path / "gone").mkdir()
    for database, count in (("own.duckdb", 2), ("other.duckdb", 1)):
        with Warehouse.open(database) as warehouse:
            for number in range(count):
                path, _ = spool_run(f"{database}-{number}", iterations=4000)
                warehouse.ingest_file(path)
                shutil.move(path, tmp_path / "gone") if number or count == 1 else None


def contents(path):
    """Every row without the place and time of storing; of a sound file."""
    with Warehouse.open(path, create=False) as warehouse:
        assert verify(warehouse) == []
        tables = {
            table: warehouse.query(f"SELECT * FROM {table} ORDER BY ALL").dicts()
            for table in (*SHARED_TABLES, *RUN_TABLES)
        }
    for row in tables["benchmark_runs"]:
        del row["ingested_at"], row["source"]
    return tables


def run_ids(path):
    with Warehouse.open(path, create=False) as warehouse:
        return {row["run_id"] for row in warehouse.query("SELECT run_id FROM benchmark_runs").dicts()}


def small_files():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit then fails as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


def left_behind(tmp_path):
    return [*leftovers(tmp_path), *leftovers(tmp_path / "scratch")]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_kill_after_any_change_on_disk_loses_and_duplicates_nothing(tmp_path, name):
    before = contents("own.duckdb")
    merged = {row["run_id"] for path in ("own.duckdb", "other.duckdb") for row in contents(path)["benchmark_runs"]}
    saw_leftover = False
    for moment in range(0, 60, STEP.get(name, 1)):
        done = run_code(KILLED_AT, moment, *COMMANDS[name])
        if done.returncode == 0:
            break
        assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
        saw_leftover = saw_leftover or bool(left_behind(tmp_path))
        if name == "backup" and os.path.exists("copy.duckdb"):
            assert contents("copy.duckdb") == before
            os.remove("copy.duckdb")
        # Verifying takes a second: after a change in four, and at the end.
        found = (
            run_ids("own.duckdb") if moment % 4 else {row["run_id"] for row in contents("own.duckdb")["benchmark_runs"]}
        )
        assert found in ({row["run_id"] for row in before["benchmark_runs"]}, merged)
    assert done.returncode == 0
    assert moment >= 1
    after = contents("own.duckdb")
    if name == "merge":
        assert {row["run_id"] for row in after["benchmark_runs"]} == merged
    else:
        assert after == before
        assert saw_leftover
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("name", FULL)
def test_on_a_full_disk_it_is_one_line_changes_nothing_and_works_afterwards(tmp_path, name):
    before = contents("own.duckdb")
    done = run_code(KILLED_AT, 10**9, *FULL[name], first=small_files)
    assert (done.returncode, done.stderr.count("\n"), "error: " in done.stderr or "refused" in done.stderr) == (
        1,
        1,
        True,
    )
    assert contents("own.duckdb") == before
    assert left_behind(tmp_path) == []
    assert not os.path.exists("copy.duckdb")
    assert not os.path.exists("new.duckdb")
    assert run_code(KILLED_AT, 10**9, *FULL[name]).returncode == 0


def test_verify_names_leftovers_of_a_kill_and_the_next_command_that_stores_removes_them(tmp_path, capsys):
    assert run_code(KILLED_AT, 0, *COMMANDS["backup"]).returncode == -signal.SIGKILL
    (left,) = left_behind(tmp_path)
    assert main(["--verify"]) == 0
    assert f"left by a killed process: {left} " in capsys.readouterr().out
    assert left.exists()
    assert main(["--quiet"]) == 0
    assert not left.exists()
