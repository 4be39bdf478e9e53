"""Many processes at one database, and processes that die: nothing that was acknowledged is lost, nothing is half."""

import os
import random
import time
from pathlib import Path

import pytest

from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.forked import started
from tests.helpers.sweeps import wait_for

SAVE_EACH = """
import sys
from pathlib import Path
from db.warehouse import Warehouse

for path in sys.argv[2:]:
    with Warehouse.open(sys.argv[1], lock_timeout_s=120) as warehouse:
        assert warehouse.ingest_file(Path(path))
"""

SAVE_ALL = """
import sys
from pathlib import Path
from db.warehouse import Warehouse

with Warehouse.open(sys.argv[1], lock_timeout_s=120) as warehouse:
    print("open", flush=True)
    for path in sys.argv[2:]:
        warehouse.ingest_file(Path(path))
        print(Path(path).stem, flush=True)
"""


def run_ids(warehouse):
    return {row["run_id"] for row in warehouse.query("SELECT run_id FROM benchmark_runs").dicts()}


@pytest.mark.slow
def test_three_processes_saving_at_once_lose_nothing(tmp_path, spool_run):
    path = tmp_path / "new.duckdb"  # not there yet: they also meet at its making
    spooled = [[spool_run(f"{writer}-{i}", batch_sizes=(1,)) for i in range(4)] for writer in range(3)]
    writers = [started(SAVE_EACH, path, *(file for file, _ in batch)) for batch in spooled]
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 3
    with Warehouse.open(path, create=False) as warehouse:
        assert run_ids(warehouse) == {run.run_id for batch in spooled for _, run in batch}
        assert verify(warehouse) == []
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "runs"] == ["new.duckdb"]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_process_leaves_a_complete_run_or_nothing(tmp_path, spool_run):
    path = tmp_path / "a.duckdb"
    spooled = {f"{i}": spool_run(f"{i}", iterations=1000) for i in range(8)}
    ids = {name: run.run_id for name, (_, run) in spooled.items()}
    files = [str(file) for file, _ in spooled.values()]
    acknowledged = set()
    for number, moment_s in enumerate((0.0, random.uniform(0.0, 0.4), random.uniform(0.0, 0.4))):
        (tmp_path / f"said-{number}").mkdir()
        said = tmp_path / f"said-{number}" / "out"
        writer = started(SAVE_ALL, path, *files, folder=str(said.parent))
        wait_for(lambda said=said: said.exists() and said.read_text())
        time.sleep(moment_s)
        writer.kill()
        writer.join()
        acknowledged |= {ids[line] for line in said.read_text().split("\n")[1:-1]}
        with Warehouse.open(path, create=False) as warehouse:
            assert acknowledged <= run_ids(warehouse)
            assert verify(warehouse) == []
    with Warehouse.open(path) as warehouse:
        for file in files:
            warehouse.ingest_file(Path(file))
        assert run_ids(warehouse) == set(ids.values())
