"""`benchhouse top`: a single snapshot, lines in a pipe, and a display refreshed on a terminal until Ctrl-C."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time

import pytest

from benchmarking.commands.top import main
from benchmarking.core.live_status import FOLDER_VARIABLE, CellProgress, CurrentPoint, MachineProgress, PointResult
from benchmarking.core.provenance import this_process
from tests.helpers.sweeps import write_status

ESCAPE = "\x1b[2J"
COMMAND = [sys.executable, "-m", "benchmarking", "top", "--interval", "0.2"]
COLUMNS = 50
GONE = dataclasses.replace(this_process(), created_s=1.0, since_boot_s=1.0)
"""A process that has ended."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "live"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    return tmp_path


def write_busy(**changes):
    """A sweep of two runs, one point of which failed with an error that holds escape sequences."""
    now_s = time.time()
    cells = [CellProgress(name=f"gpt2 on cpu ({name}, float32)", total=4, done=2, failed=0) for name in ("eager", "x")]
    result = PointResult(cell="a", point="b1 s128", launch=1, status="ok", at_s=now_s - 3, calls=40, median_ms=12.5)
    return write_status(
        words=f"gpt2 on cpu: 2 runs, 8 points, profile quick{ESCAPE}",
        left_s=125.0,
        failed=1,
        activity="measuring",
        current=CurrentPoint(
            cell="gpt2 on cpu (eager, float32)", point="b2 s128", launch=1, launches=3, phase="measure", calls=17,
            median_ms=12.3456, low_ms=12.1, high_ms=12.6,
        ),
        cells=tuple(cells),
        results=(dataclasses.replace(result, status="failed", median_ms=None, error=f"no memory{ESCAPE}"), result),
        **changes,
    )  # fmt: skip


def test_once_prints_a_plain_snapshot_that_fits(folder, capsys):
    write_busy()
    assert main(["--once"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    for part in (
        "gpt2 on cpu: 2 runs, 8 points, profile quick\\x1b[2J",
        "3 of 8 points, 1 failed, about 2 min left",
        "b2 s128  launch 1 of 3  measure, 17 calls  median 12.35 ms",
        "interval 12.1 to 12.6 ms",
        "failed: no memory\\x1b[2J",
    ):
        assert part in text
    assert re.search(r"gpt2 on cpu \(eager, float32\)\s+2/4", text)


def test_cluster_machines_have_rows_and_the_resume_command_names_the_cluster(folder, capsys):
    lost = MachineProgress(worker="lab-1", host="h\x1b[2J", device="cuda:0", state="lost", done=2, failed=1)
    busy = MachineProgress(worker="lab-2", host="i", device="cuda:0", state="measuring", activity="gpt2  b1", done=3)
    command = ("batch_benchmark", "--cluster", "ssh:my hosts")
    write_busy(machines=(lost, busy), owner=GONE, command=command, folder="/runs")
    write_busy(machines=(lost, busy), command=command, folder="/runs")
    assert main(["--once"]) == 0
    text = capsys.readouterr().out
    assert "benchhouse batch --cluster 'ssh:my hosts' --resume" in " ".join(text.split())
    assert re.search(r"lab-1 +h\\x1b\[2J +cuda:0 +lost +2 +1", text)
    assert re.search(r"lab-2 +i +cuda:0 +measuring +3 +0 +gpt2  b1", text)


def test_json_contains_everything(folder, capsys):
    write_busy(owner=GONE)
    assert main(["--json"]) == 3
    data = json.loads(capsys.readouterr().out)
    (one,) = data["ended"]
    assert (one["state"], data["running"]) == ("crashed", [])
    assert one["status"]["current"]["calls"] == 17


def test_without_running_sweeps_it_shows_how_to_start_and_crashes(folder, capsys):
    assert main(["--once"]) == 3
    assert "benchhouse run bert-base-uncased --save" in capsys.readouterr().out
    write_status(owner=GONE, folder="results")
    assert main(["--once"]) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "3 of 8 points, crashed" in text
    assert "has died; benchhouse run --resume --output-dir results" in text


def test_folders_writable_by_others_are_one_line_errors(folder, capsys):
    (folder / "live").mkdir(mode=0o700)
    (folder / "live").chmod(0o777)
    assert main(["--once"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals are a POSIX thing")
def test_on_a_terminal_the_display_refreshes_until_ctrl_c(folder):
    import fcntl
    import termios

    file = write_busy()
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color"}
    with subprocess.Popen(COMMAND, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        text = read_until(leader, "3 of 8 points")
        content = json.loads(file.path.read_text())
        content["status"]["done"] = 7
        file.path.write_text(json.dumps(content))
        text = read_until(leader, "7 of 8 points")
        process.send_signal(signal.SIGINT)
        text += read_until(leader, None)
    os.close(leader)
    assert process.returncode == 0
    assert text.rindex("\x1b[?25h") > text.rfind("\x1b[?25l")
    assert "Traceback" not in text
    bare = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert max(map(len, bare.replace("\r", "\n").splitlines())) <= COLUMNS


@pytest.mark.parametrize("no_color", ["", "1"])
def test_no_color_is_no_color_on_a_terminal(folder, monkeypatch, no_color):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def interrupt(seconds):
        raise KeyboardInterrupt

    write_busy(owner=GONE)
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr("benchmarking.commands.top.time.sleep", interrupt)
    assert main([]) == 0
    assert "3 of 8 points" in terminal.getvalue()
    assert ("\x1b[31m" in terminal.getvalue()) == (not no_color)


def read_until(leader, wanted):
    """What is written up to a text; to the end for None."""
    found = b""
    deadline_s = time.monotonic() + 30
    while wanted is None or wanted.encode() not in found:
        assert time.monotonic() < deadline_s, found
        try:
            part = os.read(leader, 65536)
        except OSError:  # reading fails once the other side is closed
            break
        if not part:
            break
        found += part
    return found.decode()


def test_pipes_get_one_line_per_change(folder):
    file = write_busy()
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        content = json.loads(file.path.read_text())
        content["status"] |= {"done": 8, "state": "finished"}
        file.path.write_text(json.dumps(content))
        second = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    assert first.endswith("3 of 8 points, 1 failed, about 2 min left\n")
    assert second.endswith("8 of 8 points, 1 failed, finished\n")
    assert "\x1b" not in first + second
