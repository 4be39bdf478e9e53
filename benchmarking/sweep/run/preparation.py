"""Preparation of a cell: before its launches, a separate process makes their build and reference outputs.

This keeps the memory, threads and imports of exporters and reference models out of the measured process. The process
reports each part as soon as it exists, so if it ends early, only missing parts are lost. After running out of memory or
losing its device it makes no further references; a fresh process makes the rest. A cell cannot be measured without its
build. Without a reference it can, and its results state why they were not compared.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
import time
from collections.abc import Callable, Mapping

from benchmarking.builds.store import BuildStore
from benchmarking.core import plugins
from benchmarking.core.contracts import Runtime
from benchmarking.core.errors import BenchhouseError, OutOfMemoryError
from benchmarking.core.records import FAILED, Cell, Json, Point, Preparation, from_json
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run.process import (
    Built,
    LoadFailed,
    Message,
    PreparationJob,
    Prepared,
    Preparing,
    Referenced,
    TimeLimitError,
    WorkerProcess,
    encode,
)
from benchmarking.sweep.run.reference import ReferenceMaker, needs_reference
from benchmarking.sweep.run.worker import Send, claim_stdout, end_with_supervisor, error_text, error_traceback


def needs_preparation(cell: Cell) -> bool:
    """Whether something must be built before the first launch."""
    return has_build(cell) or needs_reference(cell)


def has_build(cell: Cell) -> bool:
    """Whether its launches load a build."""
    runtime: Runtime = plugins.load("benchmarking.runtimes", cell.runtime)
    return runtime.has_build(cell)


def prepare(plan: CellPlan, say: Callable[[str], None], *, with_references: bool = True) -> Preparation | LoadFailed:
    """The preparation, or why the build failed. The plan's time limit applies to the build and to each reference."""
    result: Preparation | LoadFailed | None = None
    remaining = plan.runnable
    while result is None or (isinstance(result, Preparation) and remaining):
        build = None if result is None else result.build
        job = PreparationJob(
            cell=plan.cell, points=remaining, rebuild=plan.rebuild, build=build, with_references=with_references
        )
        result, is_done = _run_process(job, result, plan.timeout_s, say)
        if is_done or isinstance(result, LoadFailed):
            return result
        remaining = tuple(point for point in remaining if point.label not in {*result.references, *result.missing})
    return result


def prepare_here(plan: CellPlan) -> Preparation:
    """The preparation made in this process, for a model in this process. Raises what the build raises."""
    messages: list[Message] = []
    make_all(PreparationJob(cell=plan.cell, points=plan.runnable, rebuild=plan.rebuild), messages.append)
    result = Preparation(build=next(one.build for one in messages if isinstance(one, Built)))
    for one in messages:
        result = _with_reference(result, one) if isinstance(one, Referenced) else result
    return result


def _run_process(
    job: PreparationJob, result: Preparation | None, timeout_s: float | None, say: Callable[[str], None]
) -> tuple[Preparation | LoadFailed, bool]:
    """The result so far with that of one process; and whether it is complete, or a fresh process must make the rest."""
    with WorkerProcess(job) as process:
        while True:
            try:
                message = process.receive(None if timeout_s is None else time.monotonic() + timeout_s)
            except TimeLimitError:
                return _ended_early(result, job.points, f"not finished within the time limit of {timeout_s:g} s"), True
            if isinstance(message, Preparing):
                say(message.what)
            elif isinstance(message, Built):
                result = Preparation(build=message.build)
            elif isinstance(message, Referenced) and result is not None:
                result = _with_reference(result, message)
                if message.ends_process:
                    return result, False
            elif isinstance(message, Prepared) and result is not None:
                return result, True
            elif isinstance(message, LoadFailed):
                return (message if result is None else _ended_early(result, job.points, message.error)), True
            else:
                return _ended_early(result, job.points, process.why_it_ended()), True


def _with_reference(result: Preparation, message: Referenced) -> Preparation:
    if message.digest is not None:
        return dataclasses.replace(result, references={**result.references, message.label: message.digest})
    return dataclasses.replace(result, missing={**result.missing, message.label: message.why_not or FAILED})


def _ended_early(result: Preparation | None, points: tuple[Point, ...], why: str) -> Preparation | LoadFailed:
    """The result of a preparation that ended early: a failure without the build, else one with fewer references."""
    if result is None:
        return LoadFailed(error=f"preparation failed: {why}")
    remaining = [point.label for point in points if point.label not in {*result.references, *result.missing}]
    lost = dict.fromkeys(remaining, f"{FAILED}: preparing the reference: {why}")
    return dataclasses.replace(result, missing={**result.missing, **lost})


def main() -> int:
    """The process: does the job that is read from stdin."""
    gc.set_threshold(100_000, 50, 100)  # collecting imported and traced objects takes a tenth of an export's time
    stdout = claim_stdout()
    line = sys.stdin.readline()
    end_with_supervisor()
    job = from_json(PreparationJob, json.loads(line), "job")

    def send(message: Message) -> None:
        stdout.write(encode(message))
        stdout.flush()

    try:
        is_done = make_all(job, send)
    except Exception as error:  # noqa: BLE001 - whatever an exporter raises must become a stored reason
        send(LoadFailed(error=error_text(error), traceback=_traceback(error)))
    else:
        if is_done:
            send(Prepared())
    return 0


def make_all(job: PreparationJob, send: Send) -> bool:
    """Send the build that the runtime loads, then the reference of each point or the reason for its absence. False if
    the process cannot make any more of them."""
    store = BuildStore()
    if job.build is None:
        send(Built(build=_build(job, store, send)))
    if not (job.with_references and needs_reference(job.cell)):
        return True
    maker = ReferenceMaker(job.cell, store, job.rebuild)
    for point in job.points:
        send(Preparing(what=f"the reference output at {point.label}"))
        result = _reference(maker, point)
        send(result)
        if result.ends_process:
            return False
    maker.close()
    return True


def _build(job: PreparationJob, store: BuildStore, send: Send) -> Mapping[str, Json]:
    if not has_build(job.cell):
        return {}
    send(Preparing(what=f"the {job.cell.runtime} build"))
    runtime: Runtime = plugins.load("benchmarking.runtimes", job.cell.runtime)
    try:
        return runtime.prepare(job.cell, job.points, store, job.rebuild)
    except BenchhouseError:
        raise
    except Exception as error:
        raise BenchhouseError(
            f"{job.cell.runtime} cannot build {job.cell.workload.model_id}: {error_text(error)}"
        ) from error


def _reference(maker: ReferenceMaker, point: Point) -> Referenced:
    try:
        return Referenced(label=point.label, digest=maker.digest(point))
    except Exception as error:  # noqa: BLE001 - a point without a reference is measured, and says why it has none
        is_lost = isinstance(error, OutOfMemoryError | MemoryError) or maker.has_lost_device(error)
        return Referenced(label=point.label, why_not=f"{FAILED}: {error_text(error)}", ends_process=is_lost)


def _traceback(error: Exception) -> str | None:
    """The traceback of a bug, or of the bug that an error wraps; None for an expected error."""
    cause = error.__cause__
    return error_traceback(cause if isinstance(cause, Exception) else error)


if __name__ == "__main__":
    sys.exit(main())
