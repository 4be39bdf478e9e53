"""The file of a warehouse: made, opened, locked, overwritten, backed up, and refused when it is not one."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from benchmarking.core.codec import dumps
from benchmarking.core.errors import FormatError, LockedError, StorageError
from db import connection
from db.file_copy import copy_as_it_is
from db.warehouse import Warehouse

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX system")

NOTHING = {"hardware_info": 0, "benchmark_runs": 0, "benchmark_results": 0, "raw_benchmark_data": 0, "series": 0}
EVERYTHING = (
    *("hardware_info", "benchmark_runs", "benchmark_results", "raw_benchmark_data", "series"),
    *("schema_migrations", "series_alias", "change_points", "alerts", "annotations"),
    *("hardware_comparison", "architecture_comparison", "latest_results", "history", "raw_samples"),
    "device_efficiency",
)
CATALOG = """
SELECT table_name, column_name, data_type, is_nullable, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL
"""


@pytest.fixture
def creation_of_databases():
    """Databases are made by the shipped code, which is what is tested here."""


def test_a_missing_file_is_made_with_its_folders(tmp_path, make_run):
    path = tmp_path / "new" / "deep" / "a.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(make_run())
    with Warehouse.open(path, create=False) as warehouse:
        assert len(warehouse.query("SELECT * FROM benchmark_runs").dicts()) == 1
    assert [entry.name for entry in path.parent.iterdir()] == ["a.duckdb"]


@pytest.mark.parametrize("options", [{"read_only": True}, {"create": False}])
def test_a_missing_file_is_created_only_on_request(tmp_path, options):
    with pytest.raises(StorageError, match=r"no database at .*a\.duckdb: create it with benchhouse setup --db-path"):
        Warehouse.open(tmp_path / "a.duckdb", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x y'z.duckdb", 'a"b.duckdb', "backup.duckdb", "memory", "ünicode.duckdb"])
@posix_only
def test_any_file_name_will_do(tmp_path, make_run, name, row_counts):
    with Warehouse.open(tmp_path / name) as warehouse:
        warehouse.ingest(make_run())
        warehouse.backup(tmp_path / f"copy of {name}")
    with Warehouse.open(tmp_path / f"copy of {name}", create=False) as warehouse:
        assert row_counts(warehouse)["benchmark_results"] == 4


@pytest.mark.parametrize("name", ["notes.txt", "table.csv", "rows.json", "rows.parquet"])
def test_a_file_of_another_format_is_refused_and_left_unchanged(tmp_path, name):
    path = tmp_path / name
    path.write_text("hello\n" * 1000)  # CSV and JSON files would be views of a database in memory
    for opener in (Warehouse.open, Warehouse.overwrite, partial(Warehouse.open, read_only=True)):
        with pytest.raises(FormatError, match=f"{name}: not a DuckDB database"):
            opener(path)
    assert path.read_text() == "hello\n" * 1000


def test_a_pointer_of_git_lfs_in_place_of_a_database_says_what_to_do(tmp_path):
    path = tmp_path / "results.duckdb"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 132735\n")
    with pytest.raises(FormatError, match=r"results.duckdb is a git-lfs pointer to the file: run `git lfs pull`"):
        Warehouse.open(path)


def test_a_folder_is_not_a_database(tmp_path):
    with pytest.raises(StorageError, match="not a regular file: choose another path"):
        Warehouse.open(tmp_path)


@posix_only
def test_a_link_to_nothing_is_named_as_one(tmp_path):
    (tmp_path / "a.duckdb").symlink_to("gone.duckdb")
    for options in ({}, {"read_only": True}):
        with pytest.raises(StorageError, match="is a link that leads to no file: remove it, or choose another path"):
            Warehouse.open(tmp_path / "a.duckdb", **options)


@posix_only
def test_a_colon_in_a_path_names_no_extension(tmp_path, monkeypatch, row_counts):
    monkeypatch.chdir(tmp_path)
    with Warehouse.open("sqlite:a.duckdb") as warehouse:
        assert row_counts(warehouse) == NOTHING
    assert (tmp_path / "sqlite:a.duckdb").stat().st_size > 0


def test_an_impossible_path_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot create the folder"):
        Warehouse.open(tmp_path / "file" / "a.duckdb")


@posix_only
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_clear_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="Permission denied"):
        Warehouse.open(tmp_path / "a.duckdb")


def test_another_programs_database_is_left_unchanged(tmp_path):
    import duckdb

    path = tmp_path / "other.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE customers (a INTEGER)")
    for opener in (Warehouse.open, Warehouse.overwrite):
        with pytest.raises(FormatError, match=r"not a benchmark warehouse \(it has customers\)"):
            opener(path)
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("customers",)]


def test_an_interrupted_creation_of_a_database_is_completed(tmp_path, row_counts):
    import duckdb

    path = tmp_path / "a.duckdb"
    duckdb.connect(str(path)).close()
    with Warehouse.open(path) as warehouse:
        assert row_counts(warehouse) == NOTHING


def test_a_file_can_be_read_by_duckdb_1_5(database):
    import duckdb

    with duckdb.connect(str(database), read_only=True) as connection:
        (tags,) = connection.execute("SELECT tags FROM duckdb_databases() WHERE path IS NOT NULL").fetchall()[0]
    assert tags == {"storage_version": "v1.5.0+"}


def test_reading_only_cannot_write(database, make_run):
    with Warehouse.open(database, read_only=True) as warehouse, pytest.raises(StorageError, match="read-only"):
        warehouse.ingest(make_run())


def test_readers_share_the_file(database):
    with Warehouse.open(database, read_only=True):
        code = f"from db.warehouse import Warehouse; Warehouse.open({str(database)!r}, read_only=True).close()"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_second_process_is_refused_with_the_pid_of_the_first(database, holding):
    with holding(database) as holder, pytest.raises(LockedError) as caught:
        Warehouse.open(database, lock_timeout_s=0.1)
    assert str(caught.value) == (
        f"{database} is in use by PID {holder.pid} (waited 0.1 s). Run files are kept: once the database is free, load "
        f"them with benchhouse setup --ingest FOLDER --db-path {database}"
    )


def test_a_locked_database_is_waited_for(database, make_run, holding):
    with holding(database, seconds=0.7), Warehouse.open(database, lock_timeout_s=60) as warehouse:
        assert warehouse.ingest(make_run())


def test_waiting_is_said_once(database, holding, monkeypatch, capsys):
    monkeypatch.setattr(connection, "SILENT_S", 0.1)
    with holding(database, seconds=0.7) as holder:
        connection.connect(str(database), connection.FILE_FORMAT, read_only=True, lock_timeout_s=60.04).close()
    said = f"{database} is in use by PID {holder.pid}: waiting up to 60 s (--lock-timeout)\n"
    assert capsys.readouterr().err == said


@posix_only
def test_a_forked_child_may_not_write(database, make_run):
    with Warehouse.open(database) as warehouse:
        child = os.fork()
        if child == 0:
            try:
                warehouse.ingest(make_run())
                os._exit(0)
            except StorageError as error:
                os._exit(7 if "after the fork" in str(error) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert warehouse.ingest(make_run())


def test_overwrite_leaves_a_file_with_a_foreign_table_as_it_is(database):
    with Warehouse.open(database) as warehouse:
        warehouse.query("CREATE TABLE mine AS SELECT 1 AS a")
    before = database.read_bytes()
    with pytest.raises(FormatError, match='the table "mine"'):
        Warehouse.overwrite(database)
    assert database.read_bytes() == before


def test_overwrite_leaves_an_empty_warehouse(database, make_run, row_counts):
    with Warehouse.open(database) as warehouse:
        warehouse.ingest(make_run())
    with Warehouse.overwrite(database) as warehouse:
        assert row_counts(warehouse) == NOTHING
        assert warehouse.query("SELECT * FROM duckdb_tables() WHERE table_name = 'mine'").dicts() == []
        assert warehouse.ingest(make_run())


def test_overwrite_takes_a_database_of_a_newer_program(database, row_counts):
    with Warehouse.open(database) as warehouse:
        warehouse.query("INSERT INTO schema_migrations VALUES (99, '0099_later', 'x', now()::TIMESTAMP)")
    with Warehouse.overwrite(database) as warehouse:
        assert row_counts(warehouse) == NOTHING


def test_paths_of_files_may_be_text(database, tmp_path, make_run):
    (tmp_path / "run.json").write_text(dumps(make_run()))
    with Warehouse.open(str(database)) as warehouse:
        assert warehouse.ingest_file(str(tmp_path / "run.json"))
        warehouse.backup(str(tmp_path / "copy.duckdb"))
    assert (tmp_path / "copy.duckdb").exists()


def test_a_backup_is_equal_and_can_be_worked_with(database, tmp_path, make_run):
    copy = tmp_path / "copy.duckdb"
    with Warehouse.open(database) as warehouse:
        warehouse.ingest(make_run(with_failed=True, with_doubtful=True))
        warehouse.backup(copy)
        original = {table: warehouse.query(f"SELECT * FROM {table} ORDER BY ALL").arrow() for table in EVERYTHING}
        catalog = warehouse.query(CATALOG).dicts()
    with Warehouse.open(copy, create=False) as warehouse:
        assert {
            table: warehouse.query(f"SELECT * FROM {table} ORDER BY ALL").arrow() for table in EVERYTHING
        } == original
        assert warehouse.query(CATALOG).dicts() == catalog
        assert warehouse.ingest(make_run())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["benchmark_db.duckdb", "copy.duckdb"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of files")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_backup_is_as_private_as_its_database(database, tmp_path, mode):
    with Warehouse.open(database) as warehouse:
        database.chmod(mode)
        warehouse.backup(tmp_path / "copy.duckdb")
    copy_as_it_is(database, tmp_path / "same.duckdb", lock_timeout_s=5)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*[yme].duckdb")} == {mode | 0o600}


def test_a_backup_goes_to_a_file_system_without_permissions(database, tmp_path, monkeypatch):
    def chmod(self, mode):
        raise PermissionError(1, "Operation not permitted")

    with Warehouse.open(database) as warehouse:
        monkeypatch.setattr(Path, "chmod", chmod)
        warehouse.backup(tmp_path / "copy.duckdb")
    copy_as_it_is(database, tmp_path / "same.duckdb", lock_timeout_s=5)
    assert {path.name for path in tmp_path.iterdir()} >= {"copy.duckdb", "same.duckdb"}


def test_a_backup_is_never_written_over_a_file(database, tmp_path):
    target = tmp_path / "kept"
    target.write_text("kept")
    with Warehouse.open(database) as warehouse, pytest.raises(StorageError, match="already exists"):
        warehouse.backup(target)
    assert target.read_text() == "kept"


def test_a_backup_into_nowhere_is_one_clear_error(database, tmp_path):
    with Warehouse.open(database) as warehouse, pytest.raises(StorageError, match="No such file"):
        warehouse.backup(tmp_path / "nowhere" / "b.duckdb")
