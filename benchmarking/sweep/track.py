"""A cell on its way: its plan, its file in the spool, and what it has so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarking.calibration.peaks import with_peak
from benchmarking.clock import utc_now
from benchmarking.errors import UsageError
from benchmarking.ids import uuid7
from benchmarking.records import LaunchLoad, Measurement, Point, Preparation, Result, Run, Workload
from benchmarking.sweep.plan import CellPlan
from benchmarking.sweep.spool import PartialRun


class Track:
    """What the supervisor keeps of one cell. Everything is in the file before it is here."""

    def __init__(
        self,
        plan: CellPlan,
        folder: Path,
        file: PartialRun | None = None,
        loads: Iterable[LaunchLoad] = (),
        measurements: Iterable[Measurement] = (),
        preparation: Preparation | None = None,
    ) -> None:
        self.plan = plan
        self.folder = folder
        self._file = file
        self.loads = list(loads)
        self.measurements = list(measurements)
        self.preparation = preparation
        """None until it was made, and for a cell that needs none."""
        self.is_prepared = False
        """Whether this very process has seen to it: what an earlier one made may be gone from the cache."""
        self._second_tries: set[tuple[str, int]] = set()
        self._open: tuple[tuple[int, Point], ...] | None = None

    @classmethod
    def start(cls, folder: Path, plan: CellPlan) -> Track:
        """A new track, whose file will be in `folder`."""
        return cls(plan, folder)

    @classmethod
    def resume(cls, file: PartialRun) -> Track:
        """The track an unfinished file holds, from where it stopped. Raises UsageError while a process is at it."""
        progress = file.read()
        if progress.owner is not None and progress.owner.is_alive():
            raise UsageError(f"{file.path}: PID {progress.owner.pid} is still at it: wait for it, or end it")
        file.mend()
        file.take()
        return cls(progress.plan, file.path.parent, file, progress.loads, progress.measurements, progress.preparation)

    def begin(self) -> None:
        """Make the file of a run that has none yet: it begins now. Raises StorageError."""
        if self._file is None:
            self.plan = dataclasses.replace(self.plan, started_at=utc_now())
            self._file = PartialRun.create(self.folder, self.plan)

    @property
    def file(self) -> PartialRun:
        """The file of a run that has begun."""
        assert self._file is not None
        return self._file

    def keep(self, record: Preparation | LaunchLoad | Measurement) -> None:
        """Remember what was made, loaded or measured and put it on disk.

        In this order: writing takes milliseconds, and an interruption that falls into them finds it.
        """
        if isinstance(record, Preparation):
            self.preparation, self.is_prepared = record, True
        elif isinstance(record, LaunchLoad):
            self.loads.append(record)
        else:
            self.measurements.append(record)
            self._open = None
        self.file.append(record)

    def release(self) -> None:
        """Let the raw samples go, once the run is finished: a batch has many runs, and they are all on disk."""
        self.measurements = [dataclasses.replace(one, samples=()) for one in self.measurements]

    def next_points(self, launch: int) -> tuple[Point, ...]:
        """The points the next worker of a launch is to do; empty when the launch is done."""
        points = tuple(point for of_launch, point in self._still_open() if of_launch == launch)
        alone = self.plan.settings.point_per_process or (points and (points[0].label, launch) in self._second_tries)
        return points[:1] if alone else points

    def second_try(self, what: str, launch: int) -> bool:
        """Give a point (its label: in a process of its own) or the load one more try; False when it has had it."""
        key = (what, launch)
        if key in self._second_tries:
            return False
        self._second_tries.add(key)
        return True

    def open_points(self) -> list[Point]:
        """The points that are still to be done, once for each launch they are to be done in."""
        return [point for _, point in self._still_open()]

    @property
    def next_launch(self) -> int | None:
        """The first launch in which something is still to be done; None when the run is over."""
        return next((launch for launch, _ in self._still_open()), None)

    @property
    def points_settled(self) -> int:
        """Points that no worker will be started for any more, over all launches."""
        return self.points_total - len(self.open_points())

    @property
    def points_total(self) -> int:
        """Points to measure, over all launches."""
        return self.plan.settings.launches * len(self.plan.runnable)

    @property
    def has_failures(self) -> bool:
        """True when anything that was tried did not work."""
        return any(measurement.status != "ok" for measurement in self.measurements)

    def run(self, finished_at: str) -> Run:
        """The run's record, from what there is."""
        return finished_run(self.plan, self.loads, self.measurements, finished_at, self.preparation)

    def _still_open(self) -> tuple[tuple[int, Point], ...]:
        """(launch, point) for all that is to be done. A point that only ever failed is not tried in later launches.

        Kept until a measurement comes, since the progress asks for it while a worker measures.
        """
        if self._open is None:
            tried = {(one.point.label, one.launch) for one in self.measurements}
            worked = {one.point.label for one in self.measurements if one.status == "ok"}
            given_up = {label for label, _ in tried} - worked
            todo = [(point, label) for point in self.plan.runnable if (label := point.label) not in given_up]
            launches = range(self.plan.settings.launches)
            self._open = tuple((launch, p) for launch in launches for p, label in todo if (label, launch) not in tried)
        return self._open


def finished_run(
    plan: CellPlan,
    loads: Sequence[LaunchLoad],
    measurements: Sequence[Measurement],
    finished_at: str,
    preparation: Preparation | None = None,
) -> Run:
    """The record of a run: what was planned, and what the launches measured of it."""
    results = with_peak(plan.cell.workload, tuple(_result(plan, point, loads, measurements) for point in plan.points))
    failed = [result for result in results if result.status in ("failed", "timed_out")]
    measured = any(result.status == "ok" for result in results)
    return Run(
        run_id=plan.run_id,
        session_id=plan.session_id,
        status="ok" if measured else failed[0].status if failed else "skipped",
        error=_error(failed, len(results)),
        started_at=plan.started_at,
        finished_at=finished_at,
        cell=dataclasses.replace(plan.cell, workload=_counted(plan.cell.workload, loads)),
        hardware=plan.hardware,
        provenance=plan.provenance,
        settings=plan.settings_json(),
        environment=plan.environment,
        preparation=preparation,
        loads=tuple(loads),
        results=results,
    )


def _result(plan: CellPlan, point: Point, loads: Sequence[LaunchLoad], measurements: Sequence[Measurement]) -> Result:
    from benchmarking.measure import doubts
    from benchmarking.measure.aggregate import summarise

    if point.label in plan.skipped:
        return Result(result_id=uuid7(), point=point, status="skipped", error=plan.skipped[point.label])
    own = tuple(one for one in measurements if one.point.label == point.label)
    machine = doubts.about_environment(plan.environment, plan.cell.device)
    context = (*machine, *doubts.about_workload(plan.cell.workload))
    return summarise(uuid7(), point, own, tuple(loads), context=context)


def _counted(workload: Workload, loads: Sequence[LaunchLoad]) -> Workload:
    """The workload with the parameter count that the first load found."""
    counts = [load.verified.get("parameter_count") for load in loads]
    count = next((count for count in counts if isinstance(count, int)), workload.parameter_count)
    return dataclasses.replace(workload, parameter_count=count)


def _error(failed: list[Result], total: int) -> str | None:
    """One line about the points that failed; None when none did."""
    if not failed:
        return None
    first = failed[0]
    return f"{len(failed)} of {total} points failed; {first.point.label}: {first.error}"
