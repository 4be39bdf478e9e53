"""The preparing process: makes what a cell's launches load and are compared with, then says so and ends.

It is a process of its own, so that an exporter's or a reference model's memory, threads and imports are not in the
process that is measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from benchmarking import plugins
from benchmarking.builds.store import BuildStore
from benchmarking.errors import BenchhouseError
from benchmarking.records import FAILED, Json, Preparation, from_json
from benchmarking.runtimes import Prepares
from benchmarking.sweep.messages import LoadFailed, Message, PreparationJob, Prepared, Preparing, encode
from benchmarking.sweep.reference import ReferenceMaker, needs_reference
from benchmarking.sweep.worker import Send, claim_stdout, die_with_the_supervisor, error_text, error_traceback


def main() -> int:
    """Do the preparation that comes on stdin."""
    home = claim_stdout()
    line = sys.stdin.readline()
    die_with_the_supervisor()
    job = from_json(PreparationJob, json.loads(line), "job")

    def send(message: Message) -> None:
        home.write(encode(message))
        home.flush()

    try:
        send(Prepared(preparation=prepare(job, send)))
    except Exception as error:  # noqa: BLE001 - whatever an exporter raises must become a stored reason
        send(LoadFailed(error=error_text(error), traceback=error_traceback(error)))
    return 0


def prepare(job: PreparationJob, send: Send) -> Preparation:
    """The builds that the runtime loads, then the references of the points; why one cannot be made is in `missing`."""
    store = BuildStore()
    build = _build(job, store, send)
    if not needs_reference(job.cell):
        return Preparation(build=build)
    references: dict[str, str] = {}
    missing: dict[str, str] = {}
    maker = ReferenceMaker(job.cell, store)
    for point in job.points:
        send(Preparing(what=f"the reference's output at {point.label}"))
        try:
            references[point.label] = maker.digest(point)
        except Exception as error:  # noqa: BLE001 - a point without a reference is measured, and says why it has none
            missing[point.label] = f"{FAILED}: {error_text(error)}"
    maker.close()
    return Preparation(build=build, references=references, missing=missing)


def _build(job: PreparationJob, store: BuildStore, send: Send) -> Mapping[str, Json]:
    runtime = plugins.load("benchmarking.runtimes", job.cell.runtime)
    if not isinstance(runtime, Prepares):
        return {}
    send(Preparing(what=f"the {job.cell.runtime} build"))
    try:
        return runtime.prepare(job.cell, job.points, store, job.rebuild)
    except BenchhouseError:
        raise
    except Exception as error:
        raise BenchhouseError(
            f"{job.cell.runtime} cannot build {job.cell.workload.model_id}: {error_text(error)}"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
