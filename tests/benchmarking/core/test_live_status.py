"""Live statuses: permissions, reading a folder, and retention of ended commands."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from pathlib import Path

import pytest

from benchmarking.core.errors import StorageError
from benchmarking.core.live_status import KEPT_ENDED, MAX_BYTES, SUFFIX, StatusFile, snapshot, usable_folder
from benchmarking.core.provenance import this_process
from tests.helpers.sweeps import statuses, write_status

needs_posix = pytest.mark.skipif(os.name != "posix", reason="owners and links of POSIX")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    place = tmp_path / "live"
    monkeypatch.setenv("BENCHHOUSE_LIVE_DIR", str(place))
    return place


def gone():
    """A process that has ended."""
    return dataclasses.replace(this_process(), created_s=1.0, since_boot_s=1.0)


def test_statuses_are_read_back_and_private_to_the_user(folder):
    assert statuses() == []
    file = write_status(done=5, words="a")
    (found,) = statuses()
    assert (found.done, found.words, found.state_now()) == (5, "a", "running")
    assert os.listdir(folder) == [file.path.name]
    if os.name == "posix":
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_a_status_of_a_dead_process_is_crashed(folder):
    write_status(owner=gone())
    write_status(owner=gone(), state="finished")
    assert {status.state: status.state_now() for status in statuses()} == {
        "running": "crashed",
        "finished": "finished",
    }


def test_commands_on_other_machines_are_not_shown(folder):
    write_status(owner=dataclasses.replace(this_process(), host="f" * 16))
    assert not statuses()
    assert not snapshot().ignored


def test_running_and_the_newest_ended_statuses_are_kept(folder):
    running = write_status().path
    os.utime(running, (1e9, 1e9))
    ended = [write_status(owner=gone()).path for _ in range(KEPT_ENDED + 3)]
    StatusFile()
    assert running.exists()
    assert sum(path.exists() for path in ended) == KEPT_ENDED


@needs_posix
def test_folders_writable_by_others_are_not_used(folder):
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(
        StorageError, match="is writable by other users: choose another folder with BENCHHOUSE_LIVE_DIR"
    ):
        usable_folder(create=True)
    folder.rmdir()
    folder.symlink_to(folder.parent)
    with pytest.raises(StorageError, match="is not a folder"):
        snapshot()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_folders_and_files_of_other_users_are_not_read(folder):
    file = write_status().path
    os.chown(file, 65534, 65534)
    assert statuses() == []
    assert snapshot().ignored == (f"{file.name}: it belongs to another user",)
    os.chown(folder, 65534, 65534)
    with pytest.raises(StorageError, match="belongs to another user"):
        snapshot()


BAD = {
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "no JSON": lambda path: path.write_text("\x1b[31mhello"),
    "too large": lambda path: path.write_text(" " * (MAX_BYTES + 1)),
    "too deep": lambda path: path.write_text("[" * 10_000),
    "another format": lambda path: path.write_text('{"format": "x"}'),
    "a newer version": lambda path: path.write_text('{"format": "benchhouse-live", "version": 2}'),
    "no status": lambda path: path.write_text('{"format": "benchhouse-live", "version": 1, "status": [1]}'),
    "not our fields": lambda path: path.write_text(json.dumps(changed(path, done="many"))),
    "an infinite number": lambda path: path.write_text(json.dumps(changed(path, left_s=1)).replace("1}", "1e999}")),
    "a negative number": lambda path: path.write_text(json.dumps(changed(path, done=-1))),
}


def changed(path: Path, **changes):
    """The content of a status with other values; `left_s` at the end."""
    file = write_status()
    content = json.loads(file.path.read_text())
    file.path.unlink()
    for name in changes:
        content["status"].pop(name)
    content["status"] |= changes
    return {name: content[name] for name in ("format", "version", "status")}


@needs_posix
@pytest.mark.parametrize("kind", BAD)
def test_invalid_status_files_are_reported_and_skipped(folder, kind):
    write_status(words="good")
    BAD[kind](folder / f"x{SUFFIX}")
    assert [status.words for status in statuses()] == ["good"]
    (line,) = snapshot().ignored
    assert line.isprintable()
    assert f"x{SUFFIX}" in line


def test_a_full_disk_is_an_error_that_names_the_folder(folder, monkeypatch):
    file = write_status()
    monkeypatch.setattr(file, "path", folder / "missing" / "x")
    with pytest.raises(StorageError, match=r"cannot write .*: choose another folder"):
        file.write({})
