"""Child processes: what they may import, what they answer, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from benchmarking.core import child_process

HANDING_OVER = """
import sys
from benchmarking.core.child_process import hand_over
child = (sys.executable, "-c", sys.argv[1])
print("ended with", hand_over(child, is_terminal=sys.argv[2] == "terminal"), flush=True)
"""
TAKING_INTERRUPTS = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no process groups")
@pytest.mark.parametrize(("where", "last", "code"), [("terminal", "ended with 7\n", 0), ("script", "", -signal.SIGINT)])
def test_in_a_terminal_an_interrupt_is_the_other_program_s(where, last, code):
    with subprocess.Popen(
        [sys.executable, "-c", HANDING_OVER, TAKING_INTERRUPTS, where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=child_process.environment(),
    ) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == (last, code)


def test_a_program_is_killed_at_its_time_limit():
    assert (
        child_process.hand_over((sys.executable, "-c", "import time; time.sleep(60)"), limit_s=0.2, is_terminal=False)
        is None
    )


def test_the_module_path_has_our_packages_first_and_never_the_working_folder(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/elsewhere", ""]))
    found = child_process.environment({"A_VARIABLE": "1"})
    assert found["PYTHONPATH"] == os.pathsep.join([str(child_process.ROOT), "/elsewhere"])
    assert found["A_VARIABLE"] == "1"
