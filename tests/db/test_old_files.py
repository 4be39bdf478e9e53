"""An upgrade can be undone until it is verified, a newer file is named as such, and writers wait for their turn."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import pytest

from benchmarking.core.errors import FormatError, UsageError
from db import file_copy, setup_benchmark_db
from db.connection import FILE_FORMAT, connect
from db.file_copy import turn
from db.migrate import latest_version
from db.query.questions import answering
from db.warehouse import Warehouse

HOLD = """
import sys
from db.file_copy import turn
with turn(sys.argv[1], 5.0):
    print("held", flush=True)
    sys.stdin.read()
"""


def version_of(path):
    with connect(str(path), FILE_FORMAT, read_only=True, lock_timeout_s=0.0) as connection:
        return connection.execute("SELECT max(version) FROM schema_migrations").fetchall()[0][0]


def setup(path, *arguments, code=0):
    assert setup_benchmark_db.main(["--db-path", str(path), *arguments]) == code


def test_an_upgrade_keeps_the_old_file_until_it_is_verified(tmp_path, file_of_version, make_run, capsys):
    path = file_of_version(9, tmp_path / "a.duckdb", make_run())
    kept = tmp_path / "a.duckdb.schema-9.backup"
    setup(path, "--backup", str(tmp_path / "b.duckdb"))
    assert (version_of(path), version_of(tmp_path / "b.duckdb"), kept.exists()) == (9, 9, False)
    setup(path, "--verify")
    assert f"schema 9 (upgraded to {latest_version()} when it is next written), runs 1" in capsys.readouterr().out
    setup(path)
    assert (version_of(path), version_of(kept)) == (latest_version(), 9)
    assert f"the old file is kept as {kept} until --verify finds no fault" in capsys.readouterr().err
    with Warehouse.open(path) as warehouse:
        warehouse.query("DELETE FROM benchmark_results")
    setup(path, "--verify", code=1)
    assert kept.exists()
    kept.rename(path)
    setup(path)
    setup(path, "--verify")
    assert not kept.exists()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.duckdb", "b.duckdb"]


def test_a_file_that_has_the_name_of_the_kept_one_is_no_copy_of_it_and_stays(
    tmp_path, file_of_version, make_run, capsys
):
    path = file_of_version(9, tmp_path / "a.duckdb", make_run())
    notes, kept = tmp_path / "a.duckdb.schema-9.backup", tmp_path / "a.duckdb.schema-9.1.backup"
    notes.write_text("mine")
    setup(path)
    assert f"the old file is kept as {kept} until --verify finds no fault" in capsys.readouterr().err
    shutil.copy2(kept, path)
    setup(path)  # as after an interrupted upgrade: its copy is there already
    assert (version_of(path), version_of(kept)) == (latest_version(), 9)
    assert sorted(tmp_path.iterdir()) == sorted([path, notes, kept])
    setup(path, "--verify")
    assert sorted(tmp_path.iterdir()) == [path, notes]
    assert notes.read_text() == "mine"


@pytest.mark.parametrize("addition", ["CREATE VIEW later AS SELECT 1", "CREATE MACRO max(x) AS 0", "CREATE SCHEMA x"])
def test_a_newer_file_is_named_as_such_whatever_it_contains(tmp_path, addition):
    path = tmp_path / "a.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.query("INSERT INTO schema_migrations VALUES (99, '0099_later', 'x', now()::TIMESTAMP)")
        warehouse.query(addition)
    for read_only in (True, False):
        with pytest.raises(FormatError, match=r"schema 99 is newer than this benchhouse knows \(\d+\): upgrade it"):
            Warehouse.open(path, read_only=read_only)


def test_versions_that_are_computed_are_not_read(tmp_path):
    path = tmp_path / "a.duckdb"
    with connect(str(path), FILE_FORMAT, read_only=False, lock_timeout_s=0.0) as connection:
        connection.execute("CREATE TABLE schema_migrations (name VARCHAR, version INTEGER AS (length(name) + 99))")
        connection.execute("INSERT INTO schema_migrations VALUES ('was read')")
    with pytest.raises(FormatError, match="which no warehouse has"):
        Warehouse.open(path, read_only=True)


def test_a_turn_excludes_other_processes_and_ends_with_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(file_copy, "SILENT_S", 0.1)
    path = tmp_path / "a.duckdb"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        began_s = time.monotonic()
        with turn(path, 0.4) as left_s:  # goes on without: DuckDB's lock decides
            assert (left_s, time.monotonic() - began_s >= 0.4) == (0.0, True)
        assert "is being written by another process: waiting up to 0.4 s (--lock-timeout)" in capsys.readouterr().err
        holder.kill()
    with turn(path, 10.0) as left_s, turn(path, 10.0):
        assert left_s > 0


def test_concurrent_compactions_wait_for_each_other(tmp_path, make_run):
    path = tmp_path / "a.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(make_run())
    command = [sys.executable, "-m", "db.setup_benchmark_db", "--db-path", str(path), "--compact", "--quiet"]
    started = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(timeout=120) for process in started] == [0] * 3
    with Warehouse.open(path, read_only=True) as warehouse:
        assert len(warehouse.query("FROM benchmark_runs").dicts()) == 1


def test_temporary_files_have_a_quota_and_do_not_outlast_a_killed_process(tmp_path, monkeypatch):
    path = tmp_path / "a.duckdb"
    setting = "SELECT current_setting('max_temp_directory_size') AS quota, current_setting('temp_directory') AS folder"
    with Warehouse.open(path) as warehouse:
        assert warehouse.query(setting).dicts()[0]["quota"] == "1.8 GiB"
    left = tmp_path / "a.duckdb.tmp"
    left.mkdir()
    (left / "duckdb_temp_storage_DEFAULT-0.tmp").write_bytes(b"x" * 1000)
    with Warehouse.open(path):
        assert not left.exists()
    monkeypatch.setenv("BENCHHOUSE_TEMP_LIMIT", "20MB")
    with answering(path, setting) as answer:
        ((quota, folder),) = answer.rows
        assert (quota, "benchhouse-query" in folder, os.path.isdir(folder)) == ("19.0 MiB", True, True)
    assert not os.path.exists(folder)
    monkeypatch.setenv("BENCHHOUSE_TEMP_LIMIT", "much")
    with pytest.raises(UsageError, match="BENCHHOUSE_TEMP_LIMIT: expected a size such as 500MB or 20GB, found 'much'"):
        Warehouse.open(path)
