"""The preparing process: makes what a cell's launches load and are compared with, tells each part, and ends.

It is a process of its own, so that an exporter's or a reference model's memory, threads and imports are not in the
process that is measured. Each part is told as soon as it is there, so that it counts whatever becomes of the next.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from benchmarking.builds.store import BuildStore
from benchmarking.core import plugins
from benchmarking.core.contracts import Runtime
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import FAILED, Json, Point, from_json
from benchmarking.sweep.run.preparation import has_build
from benchmarking.sweep.run.process import (
    Built,
    LoadFailed,
    Message,
    PreparationJob,
    Prepared,
    Preparing,
    Referenced,
    encode,
)
from benchmarking.sweep.run.reference import ReferenceMaker, needs_reference
from benchmarking.sweep.run.worker import Send, claim_stdout, end_with_supervisor, error_text, error_traceback


def main() -> int:
    """Do the preparation that comes on stdin."""
    home = claim_stdout()
    line = sys.stdin.readline()
    end_with_supervisor()
    job = from_json(PreparationJob, json.loads(line), "job")

    def send(message: Message) -> None:
        home.write(encode(message))
        home.flush()

    try:
        prepare(job, send)
    except Exception as error:  # noqa: BLE001 - whatever an exporter raises must become a stored reason
        send(LoadFailed(error=error_text(error), traceback=_traceback(error)))
    else:
        send(Prepared())
    return 0


def prepare(job: PreparationJob, send: Send) -> None:
    """The build that the runtime loads, then the reference of each point or why it cannot be made."""
    store = BuildStore()
    send(Built(build=_build(job, store, send)))
    if not needs_reference(job.cell):
        return
    maker = ReferenceMaker(job.cell, store, job.rebuild)
    for point in job.points:
        send(Preparing(what=f"the reference's output at {point.label}"))
        send(_reference(maker, point))
    maker.close()


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
        return Referenced(label=point.label, why_not=f"{FAILED}: {error_text(error)}")


def _traceback(error: Exception) -> str | None:
    """Where a bug is, be it behind an error that says whose it is; None for trouble that was foreseen."""
    cause = error.__cause__
    return error_traceback(cause if isinstance(cause, Exception) else error)


if __name__ == "__main__":
    sys.exit(main())
