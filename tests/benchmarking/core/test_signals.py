"""Signals that end a command."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from benchmarking.core.child_process import run_tasks, signals_interrupt

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no such signals")


SIGNALLED = """
import asyncio, gc, os, signal, sys
from benchmarking.core.errors import Interrupted
from benchmarking.core.child_process import run_tasks, signals_interrupt

number, ended = int(sys.argv[1]), []

async def signalled():
    os.kill(os.getpid(), number)
    await asyncio.sleep(60)

async def work():
    tasks = [asyncio.create_task(signalled()) for _ in range(3)]
    try:
        await asyncio.gather(*tasks)
    finally:
        ended.append(True)

with signals_interrupt() as received:
    try:
        run_tasks(work())
    except Interrupted as stopped:
        print(stopped.number == number)
    handler = signal.getsignal(number)
gc.collect()  # asyncio reports errors of tasks that nobody asked for when they are deleted
print(received == [number], ended, callable(handler))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_within_a_task_ends_the_work_without_a_traceback(number):
    """In a process of its own, which a signal that is not handled would end."""
    command = [sys.executable, "-c", SIGNALLED, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["True", "True", "[True]", "True"], "")


TWICE = """
import asyncio, os, signal
from benchmarking.core.child_process import run_tasks

called = asyncio.Handle._run

def interrupted(handle):
    if "lambda" not in repr(handle):  # which only wakes the loop
        asyncio.Handle._run = called
        os.kill(os.getpid(), signal.SIGINT)
    called(handle)

async def work():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        asyncio.Handle._run = interrupted
        await asyncio.sleep(60)
    finally:
        print("ended")

try:
    run_tasks(work())
except KeyboardInterrupt:
    print("interrupted", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_a_second_interrupt_before_the_work_has_ended_loses_nothing_of_its_end():
    """`timeout -s INT` signals its child, and then the group of both. The second one here comes when the loop has taken
    what wakes the work from its queue, but not called it: after an error there, the work would wait for ever."""
    command = [sys.executable, "-c", TWICE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["ended", "interrupted", "True"], "")


FORGOTTEN = """
import os, signal, sys, time
from benchmarking.core import child_process
from benchmarking.core.child_process import signals_interrupt

number = int(sys.argv[1])
child_process.AGAIN_S = 0.5  # a busy machine prints before it comes again

class Deleted:
    def __del__(self):
        os.kill(os.getpid(), number)
        time.sleep(0.001)

with signals_interrupt():
    try:
        Deleted()
        print("goes on")
        time.sleep(60)
        print("slept")
    except KeyboardInterrupt as stopped:
        print(getattr(stopped, "number", signal.SIGINT) == number)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_within_a_finalizer_is_not_forgotten(number):
    command = [sys.executable, "-c", FORGOTTEN, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split("\n"), done.stderr) == (0, ["goes on", "True", ""], "")


def test_work_without_a_signal_returns_its_result_and_leaves_the_handlers():
    async def work():
        await asyncio.sleep(0)
        return 5

    with signals_interrupt():
        before = signal.getsignal(signal.SIGTERM)
        assert run_tasks(work()) == 5
        assert signal.getsignal(signal.SIGTERM) is before
