"""A dry run checks where it would write, and leaves nothing there."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path

import pytest

from benchmarking import batch_benchmark, run_hardware_benchmark
from benchmarking.core.errors import BenchhouseError, StorageError
from benchmarking.core.storage_paths import PROBE_BYTES, check_database, check_folder
from benchmarking.sweep.run import spool
from db.commands import import_results, merge

RUN = ("tiny-bert", "--device", "null", "--batch-sizes", "1", "--dry-run", "--save")
RUN_SAVED = (*RUN[:-2], "--save")
BATCH = ("--models", "tiny-bert", "--devices", "null", "--batch-sizes", "1", "--dry-run")


@pytest.fixture
def unusable(tmp_path, monkeypatch):
    """A file in the place of a folder and of a database, and a link to no folder, in the working folder."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file"
    file.write_text("no database")
    (tmp_path / "link").symlink_to(tmp_path / "none")
    return file


@pytest.mark.parametrize(
    ("main", "arguments", "code"),
    [
        (run_hardware_benchmark.main, (*RUN, "--output-dir", "link/runs"), 1),
        (run_hardware_benchmark.main, (*RUN, "--cache-dir", "link/cache"), 1),
        (run_hardware_benchmark.main, (*RUN, "--db-path", "file"), 1),
        (run_hardware_benchmark.main, (*RUN, "--db-path", "file/new.duckdb"), 2),
        (batch_benchmark.main, (*BATCH, "--output-dir", "link/runs"), 1),
        (batch_benchmark.main, (*BATCH, "--db-path", "file"), 1),
        (batch_benchmark.main, (*BATCH, "--report", "file/report.html"), 2),
        (import_results.main, (".", "--dry-run", "--db-path", "file"), 1),
        (import_results.main, (".", "--dry-run", "--db-path", "file/new.duckdb"), 2),
        (merge.main, ("file", "--dry-run", "--db-path", "file/new.duckdb"), 2),
    ],
)
def test_a_dry_run_refuses_a_path_that_the_command_could_not_write(unusable, capsys, main, arguments, code):
    """2 is a place where no file can be, 1 one that holds something else."""
    assert main(list(arguments)) == code
    printed = capsys.readouterr().err
    assert "file" in printed or "link" in printed
    assert ("file is a file" if code == 2 else "choose another path") in printed
    assert {path.name for path in unusable.parent.iterdir()} == {"file", "link"}


def test_usable_paths_pass_and_nothing_is_created(tmp_path, empty_database):
    check_folder(tmp_path / "new" / "runs")
    check_database(str(tmp_path / "new" / "new.duckdb"))
    check_database(f"ducklake:{tmp_path / 'new.ducklake'}")
    check_database("ducklake:postgres:dbname=none host=127.0.0.1")
    check_database(str(empty_database))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def full_disk():
    """No file of this process may be longer than half of what is probed."""
    resource = pytest.importorskip("resource", reason="needs limits of a process")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PROBE_BYTES // 2, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_without_room_for_a_run_is_refused_before_measuring(tmp_path, full_disk):
    for check in (check_folder, spool.prepare):
        with pytest.raises(StorageError, match=r"cannot write to .*: .*: choose another path"):
            check(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs a folder that takes no files")
def test_a_database_in_a_folder_that_cannot_be_written_is_refused_before_measuring(
    empty_database, tmp_path, capfd, monkeypatch
):
    """The file itself can be written, as one of a container's volume can."""
    monkeypatch.chdir(tmp_path)
    with Path(shutil.copy2(empty_database, tmp_path / "a.duckdb")).open("r+b") as file:
        place = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        assert run_hardware_benchmark.main([*RUN_SAVED, "--db-path", place]) == 1
    printed = capfd.readouterr()
    assert printed.err.splitlines()[-1].endswith(": choose another path")
    assert "cannot write to /proc/" in printed.err
    assert not list(tmp_path.glob("benchmark_results/*.json"))


def test_a_pipe_is_no_database(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BenchhouseError, match="not a regular file"):
        check_database(str(tmp_path / "pipe"))


def test_a_dry_run_does_not_wait_for_a_database_that_does_not_answer(tmp_path, monkeypatch, capsys):
    """A server that accepts connections and never answers."""
    pytest.importorskip("duckdb_extension_postgres_scanner", reason="needs the extension for PostgreSQL")
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        place = f"ducklake:postgres:dbname=x host=127.0.0.1 port={port}?data_path=data"
        began_s = time.monotonic()
        assert batch_benchmark.main([*BATCH, "--db-path", place]) == 0
    assert time.monotonic() - began_s < 9  # the limit of readers alone is 10 s
    assert "the estimate does not use earlier runs: " in capsys.readouterr().err
