"""Progress and tables of a run: a bar and fitting tables on a terminal, plain lines in a pipe."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarking.core.provenance import uuid7
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.sweep.run.supervisor import Track, sweep
from benchmarking.sweep.show.progress import Progress

pytestmark = pytest.mark.forked_children

BATCHES = (1, 2, 4, 8)
COMMAND = [
    *(sys.executable, "-m", "benchmarking.run_hardware_benchmark", "--model-id", "tiny-bert", "--device", "null"),
    *("--runtime", "null", "--batch-sizes", "1,2", "--sequence-lengths", "32", "--launches", "2", "--iterations", "30"),
]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(columns, **environment):
    """What the command writes to a pseudo-terminal of so many columns that is its stdout and stderr."""
    import fcntl
    import pty
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    known |= {"TERM": "xterm-256color", **environment}
    with subprocess.Popen(COMMAND, stdin=follower, stdout=follower, stderr=follower, env=known) as process:
        os.close(follower)
        text = b""
        try:
            while part := os.read(leader, 65536):
                text += part
        except OSError:  # reading fails once the other side is closed
            pass
    os.close(leader)
    assert process.returncode == 0, text
    return text.decode().replace("\r\n", "\n")


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals are a POSIX thing")
def test_terminals_show_a_bar_with_the_time_left_and_a_fitting_table():
    text = on_a_terminal(60)
    assert re.search("━+.*0/4 points", text)
    assert re.search(r"4/4 points", text)
    assert re.search(r"\d/4 points  about \d+ s left", ESCAPE.sub("", text))
    assert "tiny-bert on null (null, float32)  b1 s32  launch 1/2" in text
    bare = ESCAPE.sub("", text)
    table = bare[bare.rindex("tiny-bert (feature-extraction)") : bare.rindex("weights: random")]
    assert max(map(len, table.splitlines())) <= 60
    for number in ("0.32", "0.64", "3125", "100000"):
        assert number in table
    assert "\x1b[1m" in text


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals are a POSIX thing")
def test_no_color_is_no_color_on_a_terminal():
    text = on_a_terminal(80, NO_COLOR="1")
    assert "4/4 points" in text
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", text)


def test_pipes_get_one_plain_line_per_finished_point():
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if re.match(r"\d of 4 done", line)]
    assert [line.split("  ")[:4] for line in lines] == [
        [f"{done} of 4 done", "tiny-bert", label, f"launch {launch}/2"]
        for done, label, launch in ((1, "b1 s32", 1), (2, "b2 s32", 1), (3, "b1 s32", 2), (4, "b2 s32", 2))
    ]
    assert lines[0].split("  ")[4:6] == ["30 calls", "median 0.32 ms"]
    assert lines[-1].split("  ")[4:] == ["30 calls", "median 0.64 ms"]
    assert "\x1b" not in done.stderr + done.stdout
    assert max(map(len, done.stdout.splitlines())) > 80


@pytest.mark.forked_children(False)  # its launch takes the part of the budget that a start takes
def test_a_slow_machine_measures_every_point_with_fewer_calls(tmp_path, null_script):
    """Calls of 0.15, 0.3, 0.6 and 1.2 s: four of each point take 9 s, and the budget is 8."""
    null_script(real_time=True, latency_ms={f"b{batch} s32": [150.0 * batch] for batch in BATCHES})
    request = Request(
        model_id="tiny-bert",
        device="null",
        weights="random",
        batch_sizes=BATCHES,
        sequence_lengths=(32,),
        settings=replace(settings("quick"), budget_s=8.0),
    )
    track, stream = Track(plan_cell(request, uuid7()), tmp_path), io.StringIO()
    shown = Progress([track], stream)
    sweep([track], shown)
    shown.close()

    first, *others = track.measurements
    assert [one.status for one in (first, *others)] == ["ok"] * 4
    for one in others:
        (timed,) = [samples.values for samples in one.samples]
        assert len(timed) == one.extra["budget"]["min_calls"] == 1
        assert one.extra["budget"]["budget_s"] == 8.0
    lines = stream.getvalue().splitlines()
    assert sum(line.startswith("slow: what ") and "are left of the time budget of 8 s" in line for line in lines) == 1
    assert re.fullmatch(r"4 points in \d+ s, \d+% of it timed calls", lines[-1])
