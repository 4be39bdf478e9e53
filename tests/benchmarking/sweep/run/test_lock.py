"""Device locks: one worker at a time across users, without overwriting files."""

from __future__ import annotations

import calendar
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from benchmarking import api, batch_benchmark, run_hardware_benchmark
from benchmarking.core.errors import LockedError, StorageError
from benchmarking.core.plugins import processor
from benchmarking.devices.null import PLUGIN as NULL
from benchmarking.sweep.run import lock
from benchmarking.sweep.run.lock import device_lock, device_locks

HOLD = """
import os, sys, time
import fcntl, platformdirs.unix, psutil  # before the user changes, who may not read this Python's folder
from benchmarking.sweep.run.lock import device_lock
time.sleep(float(os.environ.get("HOLD_AFTER_S", 0)))
if len(sys.argv) > 2:
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
with device_lock(sys.argv[1], print, float(os.environ.get("LIMIT_S", 0))) as doubt:
    print(*(["held"] if doubt is None else ["held with a doubt:", doubt.kind]), flush=True)
    sys.stdin.read()
"""
NOBODY = 65534

pytestmark = pytest.mark.skipif(os.name != "posix", reason="on Windows filelock holds the locks")


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    """The folder of the locks: as a machine's, but of this test; other users may come to it, unlike tmp_path."""
    base = Path(tempfile.mkdtemp(prefix="benchhouse-test-"))
    base.chmod(0o755)
    monkeypatch.delenv("BENCHHOUSE_LOCK_DIR")
    monkeypatch.setattr(lock, "BASE", base)
    path = base / "benchhouse-locks"
    yield path
    shutil.rmtree(base)


@pytest.fixture(autouse=True)
def own_locks(folder, monkeypatch):
    """The folder for the locks of this user only, in the data folder of this test."""
    data = folder.parent / "data"
    data.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    monkeypatch.setattr(lock, "_given_up", set())
    return data / "benchhouse" / "locks"


@pytest.fixture
def start(folder):
    """A function that starts a process which holds a lock, as this or another user."""
    code = (
        f"from benchmarking.sweep.run import lock; import pathlib; lock.BASE = pathlib.Path({str(folder.parent)!r})\n"
    )
    started = []

    def hold(name, *user):
        process = subprocess.Popen(
            [sys.executable, "-c", code + HOLD, name, *map(str, user)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield hold
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def holder(start):
    """A function that starts a process and waits until it holds the lock."""

    def hold(name, *user):
        process = start(name, *user)
        assert process.stdout.readline() == "held\n", process.stderr.read()
        return process

    return hold


def test_the_second_process_waits_and_names_holder_and_limit(holder, monkeypatch):
    monkeypatch.setenv("HOLD_AFTER_S", "3")
    process = holder("cpu")
    started_s, held_s = psutil.Process(process.pid).create_time(), time.time()
    messages, waiting, entered = [], threading.Event(), threading.Event()

    def say(text):
        messages.append(text)
        waiting.set()

    def take():
        with device_lock("cpu", say):
            entered.set()

    thread = threading.Thread(target=take)
    thread.start()
    assert waiting.wait(60)
    assert not entered.wait(0.5)
    (message,) = messages
    user, command, since, seconds = re.fullmatch(
        rf"cpu is in use by PID {process.pid} \((\w+), ([\w.]+)\) since (\S+), for (\d+) s: "
        r"waiting up to 60 min \(--lock-timeout\)",
        message,
    ).groups()
    assert command.startswith("python")
    assert user == Path.home().owner()
    since_s = calendar.timegm(time.strptime(since, "%Y-%m-%dT%H:%M:%SZ"))
    assert started_s + 2 < since_s < held_s
    assert int(seconds) <= time.time() - since_s
    process.communicate()
    assert entered.wait(60)
    thread.join()


def test_waiting_ends_at_its_limit_with_the_holder_named(holder, monkeypatch):
    process = holder("cpu")
    messages = []
    started_s = time.monotonic()
    late = rf"in use by PID {process.pid} .*not released within 0 s"
    with pytest.raises(LockedError, match=late), device_lock("cpu", messages.append, 0.3):
        pass
    assert 0.3 <= time.monotonic() - started_s < 60  # not the hour that is its default
    assert len(messages) == 1
    monkeypatch.setattr(lock, "OLDEST_START_S", time.time())  # as if it were locked from the beginning of the file
    with pytest.raises(LockedError, match=rf"in use by PID {process.pid} \([^)]*\): "), device_lock("cpu", print, 0.0):
        pass


def test_a_killed_holder_leaves_no_lock(holder):
    process = holder("cpu")
    process.kill()
    process.communicate()
    messages = []
    with device_lock("cpu", messages.append):
        assert messages == []


def test_different_names_are_independent():
    messages, held = [], []
    with device_lock("c", messages.append), device_lock("d", messages.append):
        held.append("two")
    assert (held, messages) == (["two"], [])


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_locks_exclude_other_users_in_either_order(holder, start, umask):
    before = os.umask(umask)
    try:
        with device_lock("cpu", print):
            other = start("cpu", NOBODY)
            _, err = other.communicate()
            assert f"in use by PID {os.getpid()}" in err
        process = holder("cpu", NOBODY)
        with (
            pytest.raises(LockedError, match=rf"in use by PID {process.pid} \(nobody, python"),
            device_lock("cpu", print, 0.0),
        ):
            pass
        process.communicate()
        assert holder("gpu", NOBODY)  # a file that the other user makes
        with pytest.raises(LockedError), device_lock("gpu", print, 0.0):
            pass
    finally:
        os.umask(before)


def test_the_lock_of_an_older_version_excludes_too(folder):
    folder.mkdir()
    older = "import sys; from filelock import FileLock\nwith FileLock(sys.argv[1]): print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", older, str(folder / "cpu.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        with (
            pytest.raises(LockedError, match=r"another process \(unknown PID\)"),
            device_lock("cpu", print, 0.0),
        ):
            pass
        process.communicate("\n")


@pytest.mark.parametrize("make", [os.symlink, os.link])
@pytest.mark.parametrize("name", ["cpu.lock", "cpu.pid"])
def test_a_folder_prepared_by_another_user_cannot_make_a_lock_overwrite_files(folder, tmp_path, make, name):
    folder.mkdir(mode=0o777)
    victim = folder.parent / "victim"
    victim.write_text("precious")
    make(victim, folder / name)
    with device_lock("cpu", print, 0.0) as doubt:
        assert (doubt is not None) == (name == "cpu.lock")
    assert victim.read_text() == "precious"


def test_pipes_and_dangling_links_are_not_opened(folder, own_locks):
    folder.mkdir()
    os.mkfifo(folder / "cpu.lock")
    (folder / "gpu.lock").symlink_to(folder.parent / "made")
    for name in ("cpu", "gpu"):
        with device_lock(name, print, 0.0) as doubt:
            assert f"{name}.lock" in doubt.evidence["reason"]
    assert not (folder.parent / "made").exists()
    assert {path.name for path in own_locks.iterdir()} == {"cpu.lock", "gpu.lock"}


def test_a_link_instead_of_the_lock_folder_is_not_followed(folder):
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    with device_lock("cpu", print, 0.0) as doubt:
        assert "not a folder" in doubt.evidence["reason"]
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give a folder to another user")
def test_folders_of_other_users_without_sticky_bit_are_not_used(folder):
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o777)
    with device_lock("cpu", print, 0.0) as doubt:
        assert f"{folder} (of nobody), the folder of the device locks" in doubt.evidence["reason"]
        assert "no sticky bit" in doubt.evidence["reason"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("unusable", ["folder 755", "folder 700", "file 000", "file 200"])
def test_another_users_unusable_lock_delays_a_command_and_leaves_a_doubt(
    folder, start, own_locks, monkeypatch, unusable
):
    mode = int(unusable.split()[1], 8)
    folder.mkdir()
    if unusable.startswith("file"):
        folder.chmod(0o1777)
        (folder / "cpu.lock").touch()
        (folder / "cpu.lock").chmod(mode)
    else:
        folder.chmod(mode)
    os.chown(own_locks.parent.parent, NOBODY, NOBODY)
    monkeypatch.setenv("LIMIT_S", "0.4")
    started_s = time.monotonic()
    process = start("cpu", NOBODY)
    waiting, going_on, held = (process.stdout.readline() for _ in range(3))
    assert time.monotonic() - started_s >= 0.4
    assert f"cannot open the lock {folder / 'cpu.lock'} (of root): Permission denied: waiting" in waiting
    assert "which excludes only other commands of this user: have the lock removed, or choose another" in going_on
    assert held == "held with a doubt: unshared_lock\n"
    second = start("cpu", NOBODY)
    assert f"in use by PID {process.pid}" in second.communicate()[1]


def test_every_result_has_the_doubt_about_an_unshared_lock(folder, own_locks, monkeypatch, capsys):
    folder.mkdir()
    os.mkfifo(folder / "null.lock")
    monkeypatch.setattr(type(NULL), "lock_name", lambda self, device: "null")
    command = ["--model-id", "tiny-bert", *ONE, "--launches", "2", "--json", "--quiet"]
    assert run_hardware_benchmark.main(command) == 0
    (run,) = json.loads(capsys.readouterr().out)
    (result,) = run["results"]
    (found,) = [one for one in result["doubts"] if one["kind"] == "unshared_lock"]
    assert found["severity"] == "info"
    assert "null.lock" in str(found["evidence"])


def test_a_named_folder_that_cannot_be_used_is_refused(folder, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("BENCHHOUSE_LOCK_DIR", str(tmp_path / "file" / "locks"))
    with pytest.raises(StorageError, match="choose another folder with BENCHHOUSE_LOCK_DIR"), device_lock("cpu", print):
        pass


def test_a_folder_that_cannot_be_used_is_refused_where_users_have_no_entries(folder, monkeypatch, tmp_path):
    """As on Windows, which has no module pwd."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(lock.FOLDER_VARIABLE, str(tmp_path / "file" / "locks"))
    monkeypatch.setitem(sys.modules, "pwd", None)
    with pytest.raises(StorageError, match="choose another folder with BENCHHOUSE_LOCK_DIR"), device_lock("a", print):
        pass


def test_the_folder_is_for_all_users_and_does_not_depend_on_tmpdir(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with device_lock("cpu", print):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
        assert stat.S_IMODE((folder / "cpu.lock").stat().st_mode) == 0o644
        assert (folder / "cpu.lock").read_bytes() == b""
    assert [path.name for path in folder.iterdir()] == ["cpu.lock"]


def test_another_folder_can_be_named(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHHOUSE_LOCK_DIR", str(tmp_path / "locks"))
    with device_lock("../cpu", print):  # the name may come from a file
        assert [path.name for path in (tmp_path / "locks").iterdir()] == ["..-cpu.lock"]
    assert not folder.exists()


def test_a_lock_removed_while_waiting_is_created_again(folder, holder):
    process = holder("cpu")
    (folder / "cpu.lock").unlink()
    with device_lock("cpu", print, 0.0):  # nobody holds the file that has the name now
        assert (folder / "cpu.lock").exists()
    process.communicate()


ONE = (
    "--device",
    "null",
    "--batch-sizes",
    "1",
    "--sequence-lengths",
    "32",
    "--profile",
    "quick",
    "--lock-timeout",
    "0",
)
SIDE = "run_hardware_benchmark --model-id tiny-bert --device null --batch-sizes 1 --sequence-lengths 32 --quiet"


@pytest.fixture
def locked_null(holder, monkeypatch, tmp_path):
    """The null device with a lock as other devices have, which another process holds; an empty working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(NULL), "lock_name", lambda self, device: "null")
    return holder("null")


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (run_hardware_benchmark.main, ("--model-id", "tiny-bert", *ONE)),
        (run_hardware_benchmark.main, ("--model-id", "tiny-bert", "--turn", "turn", *ONE)),
        (batch_benchmark.main, ("--models", "tiny-bert", "--devices", *ONE[1:])),
    ],
)
def test_a_run_a_turn_and_a_batch_end_at_the_limit_with_exit_code_1(locked_null, capsys, main, arguments):
    assert main(arguments) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"error: null is in use by PID {locked_null.pid} " in last
    assert "not released within 0 s" in last


def test_both_sides_of_a_comparison_get_the_limit(monkeypatch):
    from benchmarking.commands import ab

    seen = {}
    monkeypatch.setattr(
        ab, "measure_in_turns", lambda arms, rounds, folder, further, say, seed: seen.update(further) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        ab.main([SIDE, SIDE, "--lock-timeout", "7"])
    assert [words[words.index("--lock-timeout") + 1] for words in seen.values()] == ["7", "7"]


def test_in_python_the_limit_is_an_hour(monkeypatch):
    limits = []
    monkeypatch.setattr(
        "benchmarking.sweep.run.supervisor.device_locks",
        lambda device, waiting, limit_s: limits.append(limit_s) or 1 / 0,
    )
    with pytest.raises(ZeroDivisionError):
        api.benchmark_model("tiny-bert", device="null", batch_sizes=(1,), sequence_lengths=(32,))
    monkeypatch.setattr(
        "benchmarking.sweep.run.lock.device_lock",
        lambda name, waiting, limit_s: limits.append(limit_s) or nullcontext(),
    )
    (cpu,) = processor().probe()
    with device_locks(cpu, print, limits[0]):
        pass
    assert limits == [None, 3600.0]
