"""SIGTERM and SIGHUP in the middle of a command on the warehouse: what was stored stays, the rest is taken back."""

import os
import signal
import subprocess
import sys

import duckdb
import psutil
import pytest

from db.commands import merge
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.forked import run_code
from tests.helpers.sweeps import wait_for

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")

INGEST = """
import os, sys
from db.setup_benchmark_db import main
from db.warehouse import Warehouse

ingest, left = Warehouse.ingest, [int(sys.argv[2])]
def watched(warehouse, run, **source):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), int(sys.argv[1]))
    return ingest(warehouse, run, **source)
Warehouse.ingest = watched
sys.exit(main(sys.argv[3:]))
"""
MERGE = """
import os, sys
from db.commands.merge import main
from db.upkeep.merging import OtherWarehouse

take = OtherWarehouse.take
def watched(other, aliases):
    take(other, aliases)
    os.kill(os.getpid(), int(sys.argv[1]))
OtherWarehouse.take = watched
sys.exit(main(sys.argv[2:]))
"""
LONG = "SELECT count(*) FROM range(10_000_000) a, range(1_000_000) b WHERE a.range % 7 = b.range % 11"
ENDINGS = [signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def stored(path):
    with Warehouse.open(path, create=False) as warehouse:
        assert verify(warehouse) == []
        return {row["run_id"] for row in warehouse.query("SELECT run_id FROM benchmark_runs").dicts()}


@pytest.mark.parametrize("number", ENDINGS)
def test_an_interrupted_ingest_keeps_stored_runs_and_can_be_continued(tmp_path, spool_run, number):
    Warehouse.open("a.duckdb").close()
    runs = [spool_run(str(count))[1].run_id for count in range(4)]
    command = ["--ingest", "runs", "--db-path", "a.duckdb"]
    done = run_code(INGEST, int(number), 2, *command)
    assert done.returncode == 128 + number
    assert done.stderr == "setup_benchmark_db: interrupted: stored runs are kept: run the command again to continue\n"
    assert stored("a.duckdb") == set(runs[:2])
    assert run_code(INGEST, int(number), 99, *command).returncode == 0
    assert stored("a.duckdb") == set(runs)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.duckdb", "runs"]


def test_an_interrupted_merge_adds_nothing_of_the_file_and_the_same_command_goes_on(tmp_path, spool_run):
    path, first = spool_run("1")
    with Warehouse.open("other.duckdb") as other:
        other.ingest_file(path)
    path, second = spool_run("2")
    with Warehouse.open("a.duckdb") as own:
        own.ingest_file(path)
    done = run_code(MERGE, int(signal.SIGTERM), "other.duckdb", "--db-path", "a.duckdb")
    assert done.returncode == 143
    assert done.stderr == (
        "benchhouse merge: interrupted: warehouses merged so far are kept: run the command again to continue\n"
    )
    assert stored("a.duckdb") == {second.run_id}
    assert merge.main(["other.duckdb", "--db-path", "a.duckdb"]) == 0
    assert stored("a.duckdb") == {first.run_id, second.run_id}


@pytest.mark.parametrize("number", [signal.SIGINT, *ENDINGS])
def test_a_signal_ends_a_long_statement_in_one_line(database, number):
    command = [sys.executable, "-m", "db.commands.query", LONG, "--db-path", str(database), "--timeout", "60"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    asked = psutil.Process(process.pid)
    # Its start takes a quarter of a second of a processor; the rest is the statement's.
    wait_for(
        lambda: any(
            "db.query.questions" in child.cmdline() and child.cpu_times().user > 1.0 for child in asked.children()
        )
    )
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + number, "benchhouse query: interrupted\n")


INTERRUPTED_IMPORT = """
import signal, sys
class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, CtrlC())
from db.connection import confined
try:
    with confined():
        print("not interrupted")
except KeyboardInterrupt:
    package, name = sys.argv[2:]
    print("interrupted", hasattr(sys.modules[package], name))
"""


WITH_PANDAS = pytest.mark.skipif(not duckdb.__version__.startswith("1."), reason="DuckDB 2 does not import pandas")


@pytest.mark.parametrize(
    ("importing", "whole"),
    [("_duckdb", ("duckdb", "connect")), pytest.param("pandas._libs", ("pandas", "NaT"), marks=WITH_PANDAS)],
)
def test_ctrl_c_waits_until_the_driver_has_imported_its_packages(importing, whole):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, importing, *whole], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("interrupted True\n", "")
