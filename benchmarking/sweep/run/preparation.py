"""Preparation of a cell: before its launches, a separate process makes their build and reference outputs.

This keeps the memory, threads and imports of exporters and reference models out of the measured process. The process
reports each part as soon as it exists, so if it ends early, only missing parts are lost. After running out of memory or
losing its device it makes no further references; a fresh process makes the rest. A cell cannot be measured without its
build. Without a reference it can, and its results state why they were not compared.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from benchmarking.builds.store import BuildStore
from benchmarking.core import plugins
from benchmarking.core.errors import BenchhouseError, UnsupportedError, is_out_of_memory
from benchmarking.core.quality import QualitySettings
from benchmarking.core.records import FAILED, NOT_SUPPORTED, Cell, Json, Point, Preparation
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run.process import (
    Built,
    LoadFailed,
    Message,
    PreparationJob,
    Prepared,
    Preparing,
    QualityReferenced,
    Referenced,
    WorkerLostError,
    WorkerProcess,
    decode,
)
from benchmarking.sweep.run.quality_pass import quality_points, why_not_quality
from benchmarking.sweep.run.reference import ReferenceMaker, has_reference, needs_reference
from benchmarking.sweep.run.worker import Send, connect, error_text, error_traceback


def needs_preparation(cell: Cell, quality: QualitySettings | None = None) -> bool:
    """Whether something must be built before the first launch, with this measure of quality."""
    return has_build(cell) or needs_reference(cell) or quality_of(cell, quality) is not None


def quality_of(cell: Cell, quality: QualitySettings | None) -> QualitySettings | None:
    """What the quality of a cell is measured on; None if it is not requested, or has none."""
    return quality if quality is None or why_not_quality(cell.workload) is None else None


def has_build(cell: Cell) -> bool:
    """Whether its launches load a build."""
    return plugins.runtime(cell.runtime).has_build(cell)


class NotBuiltError(BenchhouseError):
    """The build of a cell failed."""

    def __init__(self, message: str, traceback: str | None = None) -> None:
        super().__init__(message)
        self.traceback = traceback
        """Of a bug; None for an expected error."""


def prepare(
    plan: CellPlan,
    say: Callable[[str], None],
    *,
    with_references: bool = True,
    reference_s: float | None = None,
    ends_s: float = math.inf,
) -> Preparation:
    """The preparation. The plan's time limit applies to the build and to each reference; `ends_s` is the time
    (`time.monotonic`) that ends all of them, and `reference_s` is as in `PreparationJob`. One that ended early after
    the build has fewer references; raises NotBuiltError without a build.
    """
    result: Preparation | None = None
    remaining = plan.runnable
    quality = quality_of(plan.cell, plan.settings.quality) if with_references else None
    while result is None or remaining or quality is not None:
        job = PreparationJob(
            cell=plan.cell,
            points=remaining,
            rebuild=plan.rebuild,
            build=None if result is None else result.build,
            with_references=with_references,
            timeout_s=plan.timeout_s,
            reference_s=reference_s,
            quality=quality,
        )
        try:
            with WorkerProcess(job) as process:
                for message in process.messages(plan.timeout_s, ends_s=ends_s):
                    if isinstance(message, Preparing):
                        say(message.what)
                    elif isinstance(message, Built):
                        result = Preparation(build=message.build)
                    elif isinstance(message, Referenced | QualityReferenced) and result is not None:
                        result = _with_reference(result, message)
                        if isinstance(message, Referenced) and message.ends_process:
                            break  # a fresh process makes the rest
                    elif isinstance(message, Prepared) and result is not None:
                        return result
                    else:
                        raise process.lost()
        except WorkerLostError as lost:
            if result is None and lost.load is not None:
                raise NotBuiltError(lost.load.error, lost.load.traceback) from None
            if result is None:
                raise NotBuiltError(f"preparation failed: {lost}") from None
            why = f"{FAILED}: preparing the reference: {lost}"
            missing = {**dict.fromkeys((point.label for point in _unmade(plan, result)), why), **result.missing}
            return _with_reference(dataclasses.replace(result, missing=missing), QualityReferenced(why_not=why))
        remaining = plan.runnable if result is None else _unmade(plan, result)
    return result


def _unmade(plan: CellPlan, result: Preparation) -> tuple[Point, ...]:
    """The points whose references are still to be made."""
    made = {*result.references, *result.missing}
    return tuple(point for point in plan.runnable if point.label not in made)


def prepared(plan: CellPlan, say: Callable[[str], None]) -> Preparation | None:
    """The build that the worker loads. Raises NotBuiltError."""
    if not has_build(plan.cell):
        return None
    return prepare(plan, lambda what: say(f"building {what}"), with_references=False)


def prepare_here(plan: CellPlan) -> Preparation:
    """The preparation made in this process, for a model in this process. Raises what the build raises."""
    messages: list[Message] = []
    job = PreparationJob(cell=plan.cell, points=plan.runnable, rebuild=plan.rebuild, timeout_s=plan.timeout_s)
    make_all(job, messages.append)
    result = Preparation(build=next(message.build for message in messages if isinstance(message, Built)))
    for message in messages:
        result = _with_reference(result, message) if isinstance(message, Referenced) else result
    return result


def _with_reference(result: Preparation, message: Referenced | QualityReferenced) -> Preparation:
    if isinstance(message, QualityReferenced):
        of_quality, why_not = message.digest, message.why_not
        return dataclasses.replace(result, quality_reference=of_quality, why_no_quality_reference=why_not)
    if message.digest is not None:
        stand_in = {} if message.stand_in is None else {message.label: message.stand_in}
        return dataclasses.replace(
            result,
            references={**result.references, message.label: message.digest},
            stand_ins={**result.stand_ins, **stand_in},
        )
    return dataclasses.replace(result, missing={**result.missing, message.label: message.why_not or FAILED})


def main() -> int:
    """The process: does the job that is read from stdin."""
    gc.set_threshold(100_000, 50, 100)  # collecting imported and traced objects takes a tenth of an export's time
    send, line = connect()
    job: PreparationJob = decode(line)
    try:
        is_done = make_all(job, send)
    except Exception as error:  # noqa: BLE001 - whatever an exporter raises must become a stored reason
        bug = error.__cause__ if isinstance(error.__cause__, Exception) else error
        send(LoadFailed(error=error_text(error), traceback=error_traceback(bug)))
    else:
        if is_done:
            send(Prepared())
    return 0


def make_all(job: PreparationJob, send: Send) -> bool:
    """Send the build that the runtime loads, then the reference of each point or the reason for its absence. False if
    the process cannot make any more of them."""
    store = BuildStore(say=lambda what: send(Preparing(what=what)))
    if job.build is None:
        send(Built(build=_build(job, store, send)))
    if not (job.with_references and (needs_reference(job.cell) or job.quality is not None)):
        return True
    maker = ReferenceMaker(job.cell, store, job.rebuild, job.timeout_s, job.reference_s)
    for point in job.points if needs_reference(job.cell) else ():
        send(Preparing(what=f"the reference output at {point.label}"))
        try:
            stand_in = maker.stand_in(point)
            digest = maker.digest(point if stand_in is None else stand_in.point)
            result = Referenced(label=point.label, digest=digest, stand_in=stand_in)
        except Exception as error:  # noqa: BLE001 - a point without a reference is measured, and says why it has none
            is_lost = is_out_of_memory(error) or maker.has_lost_device(error)
            why_not = f"{FAILED}: {error_text(error)}"
            result = Referenced(label=point.label, why_not=why_not, ends_process=is_lost)
        send(result)
        if result.ends_process:
            return False
    if job.quality is not None and not has_reference(job.cell):
        why_not = f"{NOT_SUPPORTED}: a model in a file has no torch weights to compare with"
        send(QualityReferenced(why_not=why_not))
    elif job.quality is not None:
        send(Preparing(what="the reference of the quality"))
        try:
            of_quality = QualityReferenced(digest=maker.quality_digest(job.quality))
        except UnsupportedError as error:
            of_quality = QualityReferenced(why_not=f"{NOT_SUPPORTED}: {error}")
        except Exception as error:  # noqa: BLE001 - without a reference, fewer measures of quality are left
            of_quality = QualityReferenced(why_not=f"{FAILED}: {error_text(error)}")
        send(of_quality)
    maker.close()
    return True


def _build(job: PreparationJob, store: BuildStore, send: Send) -> Mapping[str, Json]:
    if not has_build(job.cell):
        return {}
    send(Preparing(what=f"the {job.cell.runtime} build"))
    runtime = plugins.runtime(job.cell.runtime)
    points = job.points
    if job.quality is not None:
        with suppress(BenchhouseError):  # the quality then has this reason
            points = (*points, *quality_points(job.cell, job.quality))
    try:
        return runtime.prepare(job.cell, points, store, job.rebuild)
    except BenchhouseError:
        raise
    except Exception as error:
        raise BenchhouseError(
            f"{job.cell.runtime} cannot build {job.cell.workload.model_id}: {error_text(error)}"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
