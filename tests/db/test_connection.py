"""DuckDB's messages, as each platform words them."""

import os

import duckdb
import pytest

from benchmarking.core.errors import FormatError, LockedError, StorageError, UsageError
from benchmarking.workloads.support.resolve import resolve
from db.analysis.selection import Selection
from db.connection import (
    DamagedError,
    InvalidatedError,
    TransientError,
    confined,
    is_locked,
    missing_database,
    roll_back,
    storage_error,
    translate_errors,
)
from db.warehouse import Warehouse

POSIX = (
    'IO Error: Could not set lock on file "/tmp/a.duckdb": Conflicting lock is held in /usr/bin/python3.11 (PID 5229). '
    "See also https://duckdb.org/docs/stable/connect/concurrency\n"
)
WINDOWS = (
    'IO Error: Cannot open file "c:\\a.duckdb": The process cannot access the file because it is being used by another '
    "process.\r\n\nFile is already open in \nC:\\Python311\\python.exe (PID 8124)\n"
)
NAMELESS = 'IO Error: Could not set lock on file "/net/a.duckdb": No locks available'


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        (POSIX, "PID 5229"),
        (WINDOWS, "PID 8124"),
        (NAMELESS, "another process"),
    ],
)
def test_a_locked_file_error_names_the_process(text, holder):
    error = storage_error(text, "a.duckdb", 2.5)
    assert is_locked(text)
    assert isinstance(error, LockedError)
    assert str(error).startswith(f"a.duckdb is in use by {holder} (waited 2.5 s).")
    assert "benchhouse setup --ingest FOLDER --db-path a.duckdb" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        storage_error(POSIX, "a b.duckdb"),
        missing_database("a b.duckdb"),
        DamagedError("a b.duckdb", "it is truncated at byte 1"),
    ],
)
def test_commands_in_messages_are_quoted_for_a_shell(error):
    assert str(error).count("--db-path 'a b.duckdb'") == str(error).count("--db-path") > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: Selection.parse("a b.duckdb"), "select in it with --db-path 'a b.duckdb'"),
        (lambda: Selection.parse("a b.json"), "store it with benchhouse import 'a b.json'"),
        (lambda: resolve("a b.py"), "benchhouse script 'a b.py' measures the models"),
        (lambda: resolve("a b.txt"), "benchhouse batch --model-list 'a b.txt' measures them"),
    ],
)
def test_commands_for_a_misplaced_file_are_quoted_for_a_shell(given, said):
    with pytest.raises(UsageError) as found:
        given()
    assert said in str(found.value)


@pytest.mark.skipif(os.name == "nt", reason="Windows allows no such name")
def test_a_database_is_not_written_at_a_path_with_a_question_mark(tmp_path):
    folder = tmp_path / "what?"
    folder.mkdir()
    with pytest.raises(UsageError, match=r"DuckDB cannot write a file with \? in its path: choose another path"):
        Warehouse.open(folder / "a.duckdb")
    assert list(folder.iterdir()) == []


def test_a_file_of_a_newer_duckdb_is_an_error_with_the_upgrade():
    text = (
        "IO Error: Trying to read a database file with version number 999, but we can only read versions between 64 "
        "and 68.\nThe database file was created with an newer version of DuckDB.\n\nNewer DuckDB version might ..."
    )
    error = storage_error(text, "a.duckdb")
    assert isinstance(error, FormatError)
    assert str(error) == "a.duckdb: written by a newer DuckDB: upgrade with pip install -U duckdb"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "TransactionContext Error: Failed to commit: Failed to commit DuckLake transaction. Failed to commit: "
            'Could not write file "/m/b.ducklake.wal": No space left on device',
            "a: No space left on device: free some there",
        ),
        (
            "FATAL Error: Transaction COMMIT succeeded and is durable, but the autocheckpoint failed. Reopen the "
            "database instance to recover. Failed to create checkpoint because of error: Could not write file "
            '"/m/.b.duckdb.01.new/b.duckdb": Disk quota exceeded',
            "a: Disk quota exceeded: free some there",
        ),
        (
            "TransactionContext Error: Failed to commit DuckLake transaction. Cannot open file "
            '"/m/main/x.parquet": Permission denied',
            "a cannot be opened: Permission denied",
        ),
    ],
)
def test_what_the_system_refuses_is_said_at_once_and_in_its_words(text, said):
    error = storage_error(text, "a")
    assert not isinstance(error, TransientError)
    assert str(error).startswith(said)


def test_other_errors_keep_their_text_without_hints():
    text = 'Binder Error: no column "x"\nCandidates: "y"\n\nLINE 1: select x\n               ^'
    error = storage_error(text, "a.duckdb")
    assert type(error) is StorageError
    assert not is_locked(text)
    assert str(error) == 'a.duckdb: Binder Error: no column "x" Candidates: "y"'


def test_an_invalidated_connection_is_not_closed(tmp_path):
    connection = duckdb.connect(str(tmp_path / "own.duckdb"))
    assert roll_back(connection)  # without a transaction
    connection.execute("SET debug_checkpoint_abort = 'before_header'; CREATE TABLE x AS SELECT 1 AS y")
    with pytest.raises(duckdb.FatalException):
        connection.execute("CHECKPOINT")
    assert not roll_back(connection)
    with pytest.raises(duckdb.FatalException) as caught:
        connection.execute("SELECT 1")
    assert isinstance(storage_error(str(caught.value), "own.duckdb"), InvalidatedError)


def test_a_database_in_a_folder_whose_name_is_not_utf8_is_named(tmp_path, monkeypatch):
    folder = tmp_path / os.fsdecode(b"m\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=r"m\\xff/a.duckdb: its path has bytes that are not UTF-8"):
        Warehouse.open("a.duckdb")


@pytest.mark.parametrize(("sql", "parameters"), [("SELECT ?", ["\udcff"]), ("SELECT $x", {"x\udcff": 1, "x": 1})])
def test_bound_text_must_be_unicode(sql, parameters):
    with (
        pytest.raises(UsageError, match="an argument contains bytes that are not UTF-8"),
        translate_errors("a.duckdb"),
        confined() as connection,
    ):
        connection.execute(sql, parameters)
