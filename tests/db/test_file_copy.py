"""Who reads never waits for a writer: what is read meanwhile is a copy, consistent whatever the writer does."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from benchmarking.core.errors import FormatError, StorageError
from benchmarking.core.records import dumps
from benchmarking.core.storage_paths import MAGIC, MAGIC_AT
from db import file_copy
from db.connection import FILE_FORMAT, WRITER, connect
from db.upkeep.merging import merge
from db.upkeep.verify import verify
from db.warehouse import READER_WAIT_S, OutdatedError, Warehouse
from tests.helpers.databases import file_of_version, holding, leave_log
from tests.helpers.records import make_run

WRITE = """
import sys
from pathlib import Path
from db.warehouse import Warehouse
from tests.helpers.records import make_run

with Warehouse.open(sys.argv[1]) as warehouse:
    print("open", flush=True)
    while not Path(sys.argv[2]).exists():
        warehouse.ingest_all([make_run() for _ in range(3)])
        if sys.argv[3] == "checkpoints":
            warehouse.query("CHECKPOINT")
"""
"""Stores three runs at a time until a file appears."""
COUNTS = """
SELECT (SELECT count(*) FROM benchmark_runs) AS runs, (SELECT count(*) FROM benchmark_results) AS results,
    (SELECT count(*) FROM raw_benchmark_data) AS samples
"""


def counts(warehouse: Warehouse) -> dict[str, int]:
    (row,) = warehouse.query(COUNTS).dicts()
    return row


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(make_run())
    return path


def test_who_reads_a_file_that_is_being_written_gets_it_at_once_and_leaves_nothing_behind(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with holding(path):
        begin = time.monotonic()
        with Warehouse.open(path, read_only=True, lock_timeout_s=60) as warehouse:
            waited_s = time.monotonic() - begin
            assert counts(warehouse)["runs"] == 1
            assert (warehouse.path, warehouse.file != str(path)) == (str(path), True)
            with pytest.raises(StorageError, match=r"a\.duckdb: .*read-only"):
                warehouse.query("DELETE FROM benchmark_runs")
    assert READER_WAIT_S <= waited_s < 30  # not the time limit
    assert list((tmp_path / "temporary").iterdir()) == []


def test_who_reads_a_copy_does_not_make_a_writer_wait(path: Path) -> None:
    with Warehouse.open_copy(path) as copy:
        with holding(path):
            pass
        assert counts(copy)["runs"] == 1


@pytest.mark.parametrize("how", ["appends", "checkpoints"])
def test_copies_of_a_busy_file_are_consistent(path: Path, tmp_path: Path, how: str) -> None:
    (one,) = [counts(warehouse) for warehouse in [Warehouse.open(path, read_only=True)]]
    done = tmp_path / "done"
    command = [sys.executable, "-c", WRITE, str(path), str(done), how]
    seen = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        try:
            deadline = time.monotonic() + 60
            while (len(seen) < 8 or len({row["runs"] for row in seen}) < 3) and time.monotonic() < deadline:
                with Warehouse.open_copy(path) as copy:
                    seen.append(counts(copy))
        finally:
            done.touch()
    assert writer.returncode == 0
    assert len({row["runs"] for row in seen}) > 2
    for row in seen:
        assert row["runs"] % 3 == 1
        assert row == {name: count * row["runs"] for name, count in one.items()}
    with Warehouse.open(path) as warehouse:
        assert verify(warehouse) == []
        assert counts(warehouse)["runs"] >= seen[-1]["runs"]


def test_a_copy_has_what_threads_committed_during_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    connection = duckdb.connect(str(path), config=WRITER)
    connection.execute("CREATE TABLE added (number BIGINT)")
    connection.execute("CREATE TABLE large AS SELECT range AS number, md5(range::TEXT) AS text FROM range(200000)")
    ended = threading.Event()

    def checkpoints() -> None:
        with connection.cursor() as cursor:
            while not ended.is_set():
                with suppress(duckdb.TransactionException):  # the other thread commits just now
                    cursor.execute("UPDATE large SET number = number + 1 WHERE number % 50 = 0")
                    cursor.execute("CHECKPOINT")

    thread = threading.Thread(target=checkpoints)
    thread.start()
    second_log, found = Path(f"{path}.wal.checkpoint"), 0
    try:
        deadline = time.monotonic() + 60
        for number in itertools.count(1):
            connection.execute("INSERT INTO added VALUES (?)", [number])
            if second_log.exists():
                folder = tmp_path / f"copy{number}"
                folder.mkdir()
                copy = file_copy.copy_unlocked(path, folder)
                with connect(str(copy), FILE_FORMAT, read_only=True, lock_timeout_s=0) as copied:
                    assert copied.execute("SELECT max(number), count(*) FROM added").fetchall() == [(number, number)]
                found += 1
            if found == 3 or time.monotonic() > deadline:
                break
    finally:
        ended.set()
        thread.join()
        connection.close()
    assert found == 3


def test_the_log_of_a_file_behind_a_link_is_next_to_the_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "b.duckdb"
    link.symlink_to(path)
    (tmp_path / "run.json").write_text(dumps(make_run()))
    leave_log(path, tmp_path / "run.json")
    assert Path(f"{path}.wal").stat().st_size > 0
    with Warehouse.open_copy(link) as copy:
        assert counts(copy)["runs"] == 2
    with Warehouse.open(tmp_path / "other.duckdb") as other:
        merge(other, link)
        assert counts(other)["runs"] == 2


HEADER = bytes(MAGIC_AT) + MAGIC
"""Start of a DuckDB file."""


def test_a_copy_is_repeated_if_a_checkpoint_changed_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, folder = tmp_path / "a.ducklake", tmp_path / "copies"
    catalog.write_bytes(HEADER + b"before")
    folder.mkdir()
    copyfile = file_copy.shutil.copyfile

    def copied(source: Path, target: Path) -> None:
        copyfile(source, target)
        catalog.write_bytes(HEADER + b"changed meanwhile")

    monkeypatch.setattr(file_copy.shutil, "copyfile", copied)
    copy = file_copy.copy_unlocked(catalog, folder, ".ducklake")
    assert (copy.suffix, copy.read_bytes()) == (".ducklake", HEADER + b"changed meanwhile")
    assert list(folder.iterdir()) == [copy]


def test_torn_blocks_are_read_again(tmp_path: Path) -> None:
    size = 3 * file_copy.CHUNK_BYTES + 5
    path, copy = tmp_path / "a.duckdb", tmp_path / "copy.duckdb"
    path.write_bytes(bytes(size) + b"appended later")
    copy.write_bytes(bytes(2 * file_copy.CHUNK_BYTES) + b"torn" + bytes(size - 4 - 2 * file_copy.CHUNK_BYTES))
    assert file_copy._settle(path, copy)
    assert copy.read_bytes() == bytes(size)


def test_a_constantly_changing_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, numbers = tmp_path / "a.duckdb", iter(range(1000))
    path.touch()
    monkeypatch.setattr(file_copy, "_state", lambda path: (0, next(numbers), b""))
    monkeypatch.setattr(file_copy, "PAUSE_S", 0.0)
    with pytest.raises(StorageError, match=r"a\.duckdb was written all the time: .* try again"):
        file_copy.copy_unlocked(path, tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_error_with_what_to_do(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(file_copy.shutil, "copyfile", full)
    with pytest.raises(StorageError, match=r"No space left on device: free some space there, or .* TMPDIR$"):
        Warehouse.open_copy(path)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_errors_of_a_copy_keep_their_kind_and_name_the_original(tmp_path: Path) -> None:
    (tmp_path / "text.duckdb").write_text("This is no database.\n" * 1000)
    old = file_of_version(5, tmp_path / "old.duckdb", make_run())
    missing = tmp_path / "none.duckdb"
    for path, kind, words in (
        (tmp_path / "text.duckdb", FormatError, f"{tmp_path / 'text.duckdb'}: not a DuckDB database"),
        (old, OutdatedError, f"{old} was written by another version of this program"),
        (missing, StorageError, f"no database at {missing}: create it"),
    ):
        with pytest.raises(kind) as caught:
            Warehouse.open_copy(path)
        assert str(caught.value).startswith(words)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX")
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="not a regular file: choose another path"):
        file_copy.copy_unlocked(tmp_path / "pipe", tmp_path)


def test_a_published_file_has_its_name_and_nothing_is_left(tmp_path):
    target = tmp_path / "a"
    with file_copy.temporary_sibling(target) as part:
        part.write_text("whole")
        assert file_copy.publish(part, target) is True
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a", "whole")]


def test_an_existing_file_is_not_replaced(tmp_path):
    target = tmp_path / "a"
    target.write_text("first")
    with file_copy.temporary_sibling(target) as part:
        part.write_text("second")
        assert file_copy.publish(part, target) is False
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a", "first")]


def test_an_unpublished_file_is_deleted_with_its_log(tmp_path):
    with file_copy.temporary_sibling(tmp_path / "a") as part:
        part.write_text("half")
        part.with_name(part.name + ".wal").write_text("log")
    assert list(tmp_path.iterdir()) == []


def test_without_hard_links_an_existing_file_is_still_not_replaced(tmp_path, monkeypatch):
    def no_links(source, target):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "a"
    for content, is_first in (("first", True), ("second", False)):
        with file_copy.temporary_sibling(target) as part:
            part.write_text(content)
            assert file_copy.publish(part, target) is is_first
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a", "first")]


def test_an_unwritable_path_is_one_clear_error(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(os, "rename", full)
    with file_copy.temporary_sibling(tmp_path / "a") as part:
        part.write_text("whole")
        with pytest.raises(StorageError, match=r"cannot create .*a: No space left on device: choose another path"):
            file_copy.publish(part, tmp_path / "a")
