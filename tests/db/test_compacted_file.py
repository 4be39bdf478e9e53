"""Compacting: the same contents in a smaller file, at every moment one or the other, and nobody's runs lost."""

import io
import os
import random
import shutil
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

import db.connection
from benchmarking.core.errors import LockedError, StorageError
from db.file_copy import share_as
from db.ingestion import RUN_TABLES, SHARED_TABLES
from db.setup_benchmark_db import main
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.databases import leave_log
from tests.helpers.forked import started

pytestmark = pytest.mark.skipif(os.name != "posix", reason="an open file cannot be replaced on Windows")

COMPACT = "import sys; from db.warehouse import Warehouse; Warehouse.compact(sys.argv[1])"
SAVE_EACH = """
import sys
from pathlib import Path
from db.warehouse import Warehouse

for path in sys.argv[2:]:
    with Warehouse.open(sys.argv[1], lock_timeout_s=120) as warehouse:
        assert warehouse.ingest_file(Path(path))
"""


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory, empty_database, make_run):
    """A database that many runs were stored in, one after the other, and so holds free blocks: to copy."""
    path = Path(shutil.copy2(empty_database, tmp_path_factory.mktemp("filled") / "filled.duckdb"))
    for _ in range(6):
        with Warehouse.open(path) as warehouse:
            warehouse.ingest(make_run(iterations=4000, launches=2))
    return path


@pytest.fixture
def filled(tmp_path, filled_once):
    """Path of such a database."""
    return Path(shutil.copy2(filled_once, tmp_path / "benchmark_db.duckdb"))


def contents(path):
    with Warehouse.open(path, create=False) as warehouse:
        assert verify(warehouse) == []
        return {
            table: warehouse.query(f"SELECT * FROM {table} ORDER BY rowid").dicts()
            for table in (*SHARED_TABLES, *RUN_TABLES)
        }


def test_the_file_is_smaller_and_holds_the_same(filled):
    before, size = contents(filled), filled.stat().st_size
    filled.chmod(0o640)
    Warehouse.compact(filled)
    assert filled.stat().st_size < 0.8 * size
    assert filled.stat().st_mode & 0o777 == 0o640
    assert contents(filled) == before
    assert [entry.name for entry in filled.parent.iterdir()] == [filled.name]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
def test_a_compacted_file_stays_its_owners_and_groups(filled):
    os.chown(filled, 4321, 5432)
    filled.chmod(0o660)
    Warehouse.compact(filled)
    found = filled.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (4321, 5432, 0o660)


@pytest.mark.parametrize(("mode", "of_copy"), [(0o660, 0o600), (0o664, 0o644), (0o444, 0o644)])
def test_a_copy_that_cannot_have_the_files_group_is_open_to_another_as_to_all(
    filled, tmp_path, monkeypatch, mode, of_copy
):
    copy = Path(shutil.copy2(filled, tmp_path / "copy.duckdb"))
    filled.chmod(mode)
    of_file = os.stat(filled)
    found = os.stat_result([*of_file[:5], of_file.st_gid + 1, *of_file[6:]])
    stat = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **more: found if path == filled else stat(path, **more))
    monkeypatch.setattr(os, "chown", Mock(side_effect=PermissionError))
    share_as(filled, copy)
    assert os.stat(copy).st_mode & 0o777 == of_copy


def test_compacting_twice_is_compacting_once(filled):
    Warehouse.compact(filled)
    size = filled.stat().st_size
    Warehouse.compact(filled)
    assert filled.stat().st_size == size


def test_a_link_to_the_file_stays_a_link(filled, tmp_path):
    link = tmp_path / "link.duckdb"
    link.symlink_to(filled)
    size = filled.stat().st_size
    Warehouse.compact(link)
    assert link.is_symlink()
    assert filled.stat().st_size < size


def test_a_file_in_use_is_left_unchanged(filled, holding):
    before = filled.read_bytes()
    with holding(filled), pytest.raises(LockedError):
        Warehouse.compact(filled, lock_timeout_s=0.1)
    assert filled.read_bytes() == before


def test_a_missing_file_is_not_created(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--compact", "--db-path", "gone.duckdb"]) == 1
    assert "no database at gone.duckdb" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_command_reports_the_sizes(filled, capsys):
    assert main(["--compact", "--db-path", str(filled)]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("compacted: ")
    assert " MB -> " in first
    assert last.endswith("runs 6, results 24, hardware 1")


def test_after_a_kill_the_file_is_complete(filled):
    before = contents(filled)
    for moment_s in (0.0, *(random.uniform(0.0, 0.5) for _ in range(4))):
        process = started(COMPACT, filled)
        time.sleep(moment_s)
        process.kill()
        process.join()
        assert contents(filled) == before


def test_concurrent_storing_loses_nothing(database, spool_run):
    spooled = [[spool_run(f"{writer}-{i}", batch_sizes=(1,)) for i in range(6)] for writer in range(2)]
    writers = [started(SAVE_EACH, database, *(file for file, _ in batch)) for batch in spooled]
    while any(writer.is_alive() for writer in writers):
        Warehouse.compact(database, lock_timeout_s=120)
        time.sleep(0.05)  # a loop without a pause leaves the lock to nobody else, for a minute
    assert [writer.exitcode for writer in writers] == [0, 0]
    stored = {row["run_id"] for row in contents(database)["benchmark_runs"]}
    assert {run.run_id for batch in spooled for _, run in batch} == stored


def test_a_file_replaced_before_locking_is_opened_again(database, monkeypatch):
    seen = iter([(1, 1), (1, 2), (1, 2), (1, 2)])
    monkeypatch.setattr(db.connection, "file_id", lambda path: next(seen))
    Warehouse.open(database).close()
    assert list(seen) == []


def test_a_file_replaced_by_another_process_is_not_replaced_again(database, monkeypatch):
    copy_to = Warehouse._copy_to

    def while_it_is_rebuilt(warehouse, part):
        copy_to(warehouse, part)
        shutil.copyfile(database, part.with_name("rebuilt"))
        part.with_name("rebuilt").replace(database)

    monkeypatch.setattr(Warehouse, "_copy_to", while_it_is_rebuilt)
    before = database.stat().st_ino
    with pytest.raises(StorageError, match="was replaced by another process: try again"):
        Warehouse.compact(database)
    assert database.stat().st_ino != before
    monkeypatch.undo()
    Warehouse.compact(database)


def test_a_log_left_by_a_killed_process_stays_with_its_file(database, spool_run, monkeypatch):
    path, run = spool_run()
    leave_log(database, path)
    assert database.with_name(f"{database.name}.wal").exists()
    opened = Warehouse.open

    def without_taking_the_log_in(path, **options):
        return opened(path, **options) if options.get("read_only") else io.StringIO()  # has a close()

    monkeypatch.setattr(Warehouse, "open", without_taking_the_log_in)
    with pytest.raises(StorageError, match="was just killed: try again"):
        Warehouse.compact(database)
    monkeypatch.undo()
    assert [row["run_id"] for row in contents(database)["benchmark_runs"]] == [run.run_id]
