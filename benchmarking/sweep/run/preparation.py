"""Preparing a cell: a process of its own makes what its launches load and are compared with, before they begin.

Without its build a cell cannot be measured; without a reference it can, and its results say why they were not compared.
So a process that ends early, whoever ended it, costs what was not made yet, and no more than that.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from benchmarking.core import plugins
from benchmarking.core.contracts import Runtime
from benchmarking.core.records import FAILED, Cell, Point, Preparation
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run.process import (
    Built,
    LoadFailed,
    PreparationJob,
    Prepared,
    Preparing,
    Referenced,
    TimeLimitError,
    WorkerProcess,
)
from benchmarking.sweep.run.reference import needs_reference


def needs_preparation(cell: Cell) -> bool:
    """Whether something is to be made before the first launch."""
    return has_build(cell) or needs_reference(cell)


def has_build(cell: Cell) -> bool:
    """Whether its launches load something that is made beforehand."""
    runtime: Runtime = plugins.load("benchmarking.runtimes", cell.runtime)
    return runtime.has_build(cell)


def prepare(plan: CellPlan, say: Callable[[str], None]) -> Preparation | LoadFailed:
    """What was made, or why the build could not be. The plan's time limit holds for the build and each reference."""
    job = PreparationJob(cell=plan.cell, points=plan.runnable, rebuild=plan.rebuild)
    made: Preparation | None = None
    with WorkerProcess(job) as process:
        while True:
            try:
                message = process.receive(None if plan.timeout_s is None else time.monotonic() + plan.timeout_s)
            except TimeLimitError:
                return _ended(made, job.points, f"no end within the time limit of {plan.timeout_s:g} s")
            if isinstance(message, Preparing):
                say(message.what)
            elif isinstance(message, Built):
                made = Preparation(build=message.build)
            elif isinstance(message, Referenced) and made is not None:
                made = _with_reference(made, message)
            elif isinstance(message, Prepared) and made is not None:
                return made
            elif isinstance(message, LoadFailed):
                return message if made is None else _ended(made, job.points, message.error)
            else:
                return _ended(made, job.points, process.why_it_ended())


def _with_reference(made: Preparation, message: Referenced) -> Preparation:
    if message.digest is not None:
        return dataclasses.replace(made, references={**made.references, message.label: message.digest})
    return dataclasses.replace(made, missing={**made.missing, message.label: message.why_not or FAILED})


def _ended(made: Preparation | None, points: tuple[Point, ...], why: str) -> Preparation | LoadFailed:
    """What there is of a preparation that ended early: a failure without the build, else one with fewer references."""
    if made is None:
        return LoadFailed(error=f"preparing: {why}")
    left = [point.label for point in points if point.label not in {*made.references, *made.missing}]
    lost = dict.fromkeys(left, f"{FAILED}: preparing the reference: {why}")
    return dataclasses.replace(made, missing={**made.missing, **lost})
