"""One worker at a time on a device."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from benchmarking.sweep.run.lock import device_lock

HOLD = """
import sys
from benchmarking.sweep.run.lock import device_lock
with device_lock(sys.argv[1], print):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(name):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_waits_and_names_the_process_that_holds_the_device():
    name = f"test-{os.getpid()}-a"
    process = holder(name)
    said, entered = [], threading.Event()

    def take():
        with device_lock(name, said.append):
            entered.set()

    thread = threading.Thread(target=take)
    thread.start()
    assert not entered.wait(0.5)
    assert said == [f"{name} is in use by another benchmark (PID {process.pid}): waiting for it"]
    process.communicate()
    assert entered.wait(5)
    thread.join()


def test_a_killed_holder_leaves_no_lock():
    name = f"test-{os.getpid()}-b"
    process = holder(name)
    process.kill()
    process.communicate()
    said = []
    with device_lock(name, said.append):
        assert said == []


def test_no_name_needs_no_lock_and_two_names_do_not_meet():
    said, held = [], []
    with device_lock(None, said.append), device_lock(None, said.append):
        held.append("none")
    one, other = (f"test-{os.getpid()}-{letter}" for letter in "cd")
    with device_lock(one, said.append), device_lock(other, said.append):
        held.append("two")
    assert (held, said) == (["none", "two"], [])
