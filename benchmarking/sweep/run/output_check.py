"""Compares the output of a point with its reference, in the worker.

Where the reference is too slow or too large at the point itself, an extra call at a smaller point of the same model is
compared in its place, after everything was measured.

Whether a model is ill-conditioned is found by `main`, in a process of its own: the measuring process need not have
torch, and its memory is measured.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.core import plugins
from benchmarking.core.child_process import run_module_json
from benchmarking.core.contracts import Session
from benchmarking.core.doubts import doubt
from benchmarking.core.errors import BenchhouseError, StorageError, always_after
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import (
    FAILED,
    NOT_APPLICABLE,
    NOT_RUN,
    NOT_SUPPORTED,
    Family,
    Json,
    Measurement,
    Point,
    Precision,
    StandIn,
    Workload,
    dumps,
    from_json,
    to_json,
)
from benchmarking.graphs.export.agreement import explains, float64_error
from benchmarking.measure.memory import PassResult
from benchmarking.measure.point import CheckedOutput
from benchmarking.measure.quality_measures import about_difference, compare, tolerance_of
from benchmarking.runtimes.support.torch.model_loading import load_model
from benchmarking.sweep.run.process import Job
from benchmarking.sweep.run.reference import KIND as REFERENCE
from benchmarking.sweep.run.reference import has_reference, is_reference, load_reference, needs_reference
from benchmarking.workloads.support.exported_folder import is_export, torch_workload
from benchmarking.workloads.support.families import is_given, plugin_of
from benchmarking.workloads.support.graph_file import format_of
from benchmarking.workloads.support.quantized_weights import quantization_of

COLUMNS = ("output_error", "output_max_abs_error", "output_cosine_similarity", "output_equal_token_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Compares the output of one point; called with the arrays of the output."""

    precision: Precision
    family: Family | None
    digest: str | None
    """Digest of the reference; None without one."""
    why_not: str | None
    """Why there is no reference."""
    is_wanted: bool
    """False if no reference is possible, so that its absence raises no doubt."""
    point: Point
    torch_workload: Workload | None
    """The model of the reference, as another process can load it; None without one."""
    stand_in: StandIn | None = None
    """The smaller point that the reference is of; None if it is the point's own."""
    changing_work: str | None = None
    """A flag of the cell by which its calls have other work than the reference's; None without one."""

    @classmethod
    def of(cls, job: Job, point: Point) -> Check:
        workload = job.cell.workload
        is_of_this_process = is_given(workload) and workload.path is None  # so that no other one can load it
        digest = None if job.preparation is None else job.preparation.references.get(point.label)
        stand_in = None if job.preparation is None else job.preparation.stand_ins.get(point.label)
        options, mode = plugins.runtime(job.cell.runtime).declared_options, job.cell.runtime_mode
        return cls(
            precision=job.cell.precision,
            family=workload.family,
            digest=digest,
            why_not=None if digest is not None else _why_not(job, point),
            is_wanted=needs_reference(job.cell) or not has_reference(job.cell),
            point=dataclasses.replace(point, concurrency=1),
            torch_workload=None if is_of_this_process else torch_workload(workload),
            stand_in=stand_in,
            changing_work=next((one.flag for one in options if one.changes_work and one.name in mode), None),
        )

    def __call__(self, arrays: Mapping[str, Any]) -> CheckedOutput:
        if self.digest is None:
            return self._without(self.why_not or NOT_RUN)
        if self.stand_in is not None:
            return CheckedOutput(result=PassResult(missing=dict.fromkeys(COLUMNS, NOT_RUN)))  # `at_stand_in` follows
        if not arrays:
            return self._without(f"{NOT_SUPPORTED}: the call has no comparable output")
        try:
            reference = load_reference(BuildStore(), self.digest)
        except OSError as error:
            return self._without(f"{FAILED}: the reference was deleted from the cache ({error.strerror or error})")
        except (ValueError, BadZipFile) as error:
            return self._without(f"{FAILED}: the reference in the cache is damaged ({error})")
        comparison = compare(arrays, reference)
        doubts = about_difference(comparison, self.precision, self.family)
        if doubts and self.torch_workload is not None:  # the error of an ill-conditioned model is not the runtime's
            float64_error = float64_error_of(self.torch_workload, self.point, self.digest)
            if float64_error is not None and explains(float64_error, comparison):
                evidence: dict[str, Json] = {"float64_error": float64_error, "relative_l2": comparison.relative_l2}
                doubts = (doubt("ill_conditioned", **evidence, precision=self.precision),)
        tolerance = tolerance_of(self.precision, self.family)
        if comparison.problem is None and not comparison.by_array and tolerance.equal_tokens is None and self.is_wanted:
            why = (
                f"{NOT_APPLICABLE}: at {self.precision} nearly equal tokens may swap, and the call returns only tokens"
            )
            doubts = (doubt("not_compared", why=why),)
        readings = comparison.readings()
        metrics = {name: float(value) for name, value in readings.values.items() if isinstance(value, int | float)}
        by_array = {name: dict(errors) for name, errors in comparison.by_array.items()}
        return CheckedOutput(
            result=PassResult(
                metrics=metrics,
                missing=dict(readings.missing),
                extra={"output_errors": by_array} if len(by_array) > 1 else {},
            ),
            doubts=doubts,
        )

    def at_stand_in(self, measurement: Measurement, session: Session) -> Measurement:
        """The measurement with the comparison at the smaller point, whose call is run now; unchanged without one."""
        if self.stand_in is None:
            return measurement
        small = self.stand_in.point
        try:
            operation = session.operation(small)
            with always_after(operation.close):
                operation.reset()
                arrays = operation.arrays(operation.run(lambda name: None))
        except Exception as error:  # noqa: BLE001 - whatever a runtime raises costs the comparison only
            checked = self._without(f"{FAILED}: no call at the smaller {small.label}: {error}")
        else:
            checked = dataclasses.replace(self, stand_in=None, point=small)(arrays)
            about = doubt("compared_at_smaller_shape", shape=small.label, why=self.stand_in.why)
            if checked.result.metrics:
                checked = dataclasses.replace(checked, doubts=(*checked.doubts, about))
        found = checked.result
        missing = {name: why for name, why in measurement.missing.items() if name not in found.metrics}
        return dataclasses.replace(
            measurement,
            metrics={**measurement.metrics, **found.metrics},
            missing={**missing, **found.missing},
            doubts=(*measurement.doubts, *checked.doubts),
            extra={**measurement.extra, **found.extra},
        )

    def with_work(self, measurement: Measurement) -> Measurement:
        """The measurement with the `flops` of the reference, if its own are missing and it is of the same work."""
        if self.digest is None or self.stand_in is not None or "flops" not in measurement.missing:
            return measurement
        if self.changing_work is not None:
            why = f"{NOT_APPLICABLE}: with {self.changing_work}, a call has other operations than its reference"
            return dataclasses.replace(measurement, missing={**measurement.missing, "flops": why})
        try:
            build = BuildStore().find_digest(REFERENCE, self.digest)  # None if it was deleted
        except StorageError:  # its record is damaged, or cannot be read
            build = None
        flops = None if build is None else build.facts.get("flops")
        if not isinstance(flops, int | float):
            return measurement
        return dataclasses.replace(
            measurement,
            metrics={**measurement.metrics, "flops": float(flops)},
            missing={name: why for name, why in measurement.missing.items() if name != "flops"},
            extra={**measurement.extra, "flops_source": "reference"},
        )

    def _without(self, why: str) -> CheckedOutput:
        return CheckedOutput(
            result=PassResult(missing=dict.fromkeys(COLUMNS, why)),
            doubts=(doubt("not_compared", why=why),) if self.is_wanted else (),
        )


def _why_not(job: Job, point: Point) -> str:
    """Why a point has no reference."""
    if job.preparation is not None and point.label in job.preparation.missing:
        return job.preparation.missing[point.label]
    if needs_reference(job.cell):
        return NOT_RUN
    if not has_reference(job.cell):
        workload = job.cell.workload
        why = "an export has no torch weights to compare with; it was compared during its export"
        if (stored := quantization_of(workload)) is not None:
            why = f"the checkpoint has only weights of {stored.setting}, not the ones that they were made of"
        elif workload.family is None:
            why = "a graph in a file has no torch model to compare with"
        elif not is_export(workload):
            why = f"a model in an engine's own format ({format_of(workload)}) has no torch weights to compare with"
        elif workload.weights == "random":
            why = "an export of seeded weights is only compared at the seed that it was exported with"
        return f"{NOT_SUPPORTED}: {why}"
    if is_reference(job.cell):
        return f"{NOT_APPLICABLE}: it is the reference"
    return f"{NOT_APPLICABLE}: runtime {job.cell.runtime} has no reference"


MODULE = "benchmarking.sweep.run.output_check"
LIMIT_S = 300.0
KIND = "conditioning"
ERROR = "float64_error"


def float64_error_of(workload: Workload, point: Point, reference: str) -> float | None:
    """The relative L2 difference between the float32 outputs, stored as the reference with this digest, and the float64
    outputs of the model. It is computed once and kept in the build cache; None if that fails."""

    def make(folder: Path) -> Mapping[str, Json]:
        request = json.dumps({"workload": to_json(workload), "point": to_json(point)})
        return {ERROR: run_module_json(MODULE, input_text=request, limit_s=LIMIT_S)}

    try:
        build, _ = BuildStore().get(BuildKey(kind=KIND, parts={"reference": reference}), make)
    except BenchhouseError:  # of the child, or of a cache that cannot be written
        return None
    error = build.facts.get(ERROR)
    return float(error) if isinstance(error, int | float) else None


def main() -> int:
    """Answer the request on stdin."""
    request = json.load(sys.stdin)
    workload: Workload = from_json(Workload, request["workload"], "workload")
    point: Point = from_json(Point, request["point"], "point")
    plugin = plugin_of(workload)
    model, _ = load_model(workload, "float32", plugin.default_attention(workload.config))
    error = float64_error(model, workload, point, plugin.inputs(workload, point, workload.seed))
    print(dumps(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
