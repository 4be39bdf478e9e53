"""Preparing a cell: a process of its own makes what its launches load and are compared with, before they begin."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarking import plugins
from benchmarking.records import Cell, Preparation
from benchmarking.runtimes import Prepares
from benchmarking.sweep.messages import LoadFailed, PreparationJob, Prepared, Preparing
from benchmarking.sweep.plan import CellPlan
from benchmarking.sweep.process import TimeLimitError, WorkerProcess
from benchmarking.sweep.reference import needs_reference


def needs_preparation(cell: Cell) -> bool:
    """Whether something is to be made before the first launch."""
    return isinstance(plugins.load("benchmarking.runtimes", cell.runtime), Prepares) or needs_reference(cell)


def prepare(plan: CellPlan, say: Callable[[str], None]) -> Preparation | LoadFailed:
    """What was made, or why it could not be. The plan's time limit holds for the build and for each reference."""
    job = PreparationJob(cell=plan.cell, points=plan.runnable, rebuild=plan.rebuild)
    with WorkerProcess(job) as process:
        while True:
            deadline_s = None if plan.timeout_s is None else time.monotonic() + plan.timeout_s
            try:
                message = process.receive(deadline_s)
            except TimeLimitError:
                return LoadFailed(error=f"preparing: no end within the time limit of {plan.timeout_s:g} s")
            if isinstance(message, Preparing):
                say(message.what)
            elif isinstance(message, Prepared):
                return message.preparation
            elif isinstance(message, LoadFailed):
                return message
            else:
                return LoadFailed(error=f"preparing: {process.why_it_ended()}")
