"""Temporary files and folders are deleted at the end, or by the next command after a kill, unless in use."""

import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarking.core.provenance import uuid7
from benchmarking.core.temporary import leftovers, locked_file, remove_leftovers, temporary_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs locks of folders")

HOLD = """
import sys, time
from pathlib import Path
from benchmarking.core.provenance import uuid7
from benchmarking.core.temporary import locked_file, temporary_folder

place = Path(sys.argv[1])
with temporary_folder(".a.duckdb", place) as folder, locked_file(place / f".benchhouse.{uuid7()}.tmp") as file:
    (folder / "a.duckdb").write_bytes(b"half")
    file.write("half")
    file.flush()
    print(folder, flush=True)
    time.sleep(60)
"""


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def holder(tmp_path):
    """A process that makes a folder and a file in `tmp_path`."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_a_folder_is_deleted_at_the_end_also_after_an_error(tmp_path):
    def fail():
        with temporary_folder("benchhouse-test", tmp_path) as folder:
            (folder / "file").write_text("x")
            assert folder.stat().st_mode & 0o777 == 0o700
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert names(tmp_path) == []


def test_files_of_running_processes_are_kept(tmp_path, holder):
    before = names(tmp_path)
    remove_leftovers(tmp_path)
    assert (len(before), names(tmp_path), leftovers(tmp_path)) == (2, before, [])


def test_leftovers_of_killed_processes_are_listed_and_removed(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert [path.name for path in leftovers(tmp_path)] == names(tmp_path)
    assert len(names(tmp_path)) == 2
    with temporary_folder(".b.duckdb", tmp_path) as folder:
        assert names(tmp_path) == [folder.name]


def test_other_files_are_never_removed(tmp_path):
    """Links, other names and other programs', a file with the name of a folder, and what an older version may be
    writing."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("x")
    place = tmp_path / "place"
    place.mkdir()
    (place / f".a.duckdb.{uuid7()}.new").symlink_to(outside)
    (place / f".benchhouse.{uuid7()}.tmp").symlink_to(outside / "mine")
    (place / f".recent.{uuid7()}.new").write_text("x")
    (place / f"visible.{uuid7()}.new").mkdir()
    (place / ".not-a-uuid.new").mkdir()
    (place / "benchhouse-by-mkdtemp").mkdir()
    (place / f"benchhouse.{uuid7()}.tmp").write_text("x")
    os.mkfifo(place / f".benchhouse.{uuid7()}.tmp")
    for name in (".settings.json.tmp", ".1234.probe", ".a.json.0a1b2c3d.tmp"):  # of another program
        (place / name).write_text("x")
        os.utime(place / name, (0, 0))
    before = names(place)
    remove_leftovers(place)
    assert names(place) == before
    assert names(outside) == ["mine"]


def test_files_of_older_versions_are_leftovers_after_an_hour_unless_in_use(tmp_path):
    import duckdb

    old = time.time() - 2 * 3600
    left, used = (tmp_path / f".{name}.duckdb.{uuid7()}.new" for name in "ab")
    left.write_bytes(b"x")
    code = "import duckdb, sys, time; held = duckdb.connect(sys.argv[1]); print('open', flush=True); time.sleep(60)"
    duckdb.connect(str(used)).close()
    with subprocess.Popen([sys.executable, "-c", code, str(used)], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        for path in (left, used):
            os.utime(path, (old, old))
        remove_leftovers(tmp_path)
        assert names(tmp_path) == [used.name]
        process.kill()


def test_another_users_leftovers_are_not_touched(tmp_path, monkeypatch):
    folder = tmp_path / f"benchhouse-run.{uuid7()}.new"
    folder.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    remove_leftovers(tmp_path)
    assert folder.is_dir()


def test_a_folder_removed_before_it_is_locked_is_created_again(tmp_path, monkeypatch):
    real, removed = os.open, []

    def swept(path, *arguments, **named):
        if not removed:
            removed.append(path)
            remove_leftovers(tmp_path)
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "open", swept)
    with temporary_folder("benchhouse-test", tmp_path) as folder:
        remove_leftovers(tmp_path)
        assert folder.is_dir()
        assert removed == [folder]


def test_a_file_removed_before_it_is_locked_is_created_again(tmp_path, monkeypatch):
    import fcntl

    path, real, swept = tmp_path / f".benchhouse.{uuid7()}.tmp", fcntl.flock, []

    def removed(descriptor, how):
        if not swept:
            swept.append(path.unlink())
        return real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", removed)
    with locked_file(path) as file:
        file.write("x")
    assert path.read_text() == "x"
