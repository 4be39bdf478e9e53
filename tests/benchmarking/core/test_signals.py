"""Signals that end a command."""

from __future__ import annotations

import asyncio
import gc
import os
import signal

import pytest

from benchmarking.core.errors import Interrupted
from benchmarking.core.signals import run_tasks, signals_interrupt

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no such signals")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_within_a_task_ends_the_work_without_a_traceback(caplog, number):
    ended = []

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
        with pytest.raises(Interrupted) as stopped:
            run_tasks(work())
        handler = signal.getsignal(number)
    gc.collect()  # asyncio reports errors of tasks that nobody asked for when they are deleted
    assert (stopped.value.number, received, ended) == (number, [number], [True])
    assert callable(handler)
    assert caplog.records == []


def test_work_without_a_signal_returns_its_result_and_leaves_the_handlers():
    async def work():
        await asyncio.sleep(0)
        return 5

    with signals_interrupt():
        before = signal.getsignal(signal.SIGTERM)
        assert run_tasks(work()) == 5
        assert signal.getsignal(signal.SIGTERM) is before
