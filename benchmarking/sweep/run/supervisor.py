"""The supervisor: starts a worker for each cell and launch, saves its results, and continues after any failure.

Launches of different cells are interleaved, so that slow drifts of the machine affect all of them alike. The supervisor
imports no torch and sleeps while a worker measures.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Protocol, Self

from benchmarking.core.command_line import shows_tracebacks
from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.live_status import MachineProgress
from benchmarking.core.provenance import utc_now, uuid7
from benchmarking.core.quality import Quality, without_quality
from benchmarking.core.records import (
    FAILED,
    NOT_RUN,
    Doubt,
    LaunchLoad,
    Measurement,
    Point,
    Preparation,
    Result,
    Run,
    Status,
    to_json,
)
from benchmarking.core.text import grouped
from benchmarking.core.untrusted.redaction import redacted_record
from benchmarking.core.verdicts.launches import random_order
from benchmarking.measure import doubt_rules
from benchmarking.measure.aggregate import summarise, with_peak
from benchmarking.measure.context import Live, Settings
from benchmarking.sweep.plan.plan import CellPlan, check_loaded_plan, work
from benchmarking.sweep.run.lock import device_locks
from benchmarking.sweep.run.preparation import NotBuiltError, needs_preparation, prepare, quality_of
from benchmarking.sweep.run.process import (
    Job,
    PointStarted,
    QualityStarted,
    WorkerLostError,
    WorkerProcess,
    ends_worker,
)
from benchmarking.sweep.run.quality_pass import why_not_quality
from benchmarking.sweep.run.spool import PartialRun, Record


class Observer:
    """Receives the progress of a sweep, never inside a timed region. The base class ignores everything."""

    def preparing(self, track: Track, what: str) -> None:
        """Something is being built for a cell before its first launch."""

    def launch(self, track: Track, launch: int) -> None:
        """A worker is being started."""

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        """A point has started (None), or has an update."""

    def measured(self, track: Track, measurement: Measurement) -> None:
        """A point of a launch is finished and on disk."""

    def added(self, track: Track) -> None:
        """A new track continues some points of another one as a separate run."""

    def waiting(self, message: str) -> None:
        """The device is in use, or something else happened that the user should know."""

    def machines(self, machines: Sequence[MachineProgress]) -> None:
        """The state of a cluster's machines has changed."""

    def close(self) -> None:
        """The sweep is over, or other output follows."""


def sweep(
    tracks: Sequence[Track],
    observer: Observer,
    done: Callable[[Track], None] | None = None,
    *,
    device_wait_s: float | None = None,
) -> None:
    """Measure everything that is left; `done` is called with each track right after its last launch.

    The cells run in random order in each launch, drawn by their session, so that no disturbance follows one of them.

    Raises StorageError if results cannot be written, LockedError for a device that stays in use for
    `device_wait_s` (None: an hour).
    """
    launches = max((track.plan.settings.launches for track in tracks), default=0)
    for launch in range(launches):
        for track in random_order(tracks[0].plan.session_id, launch, tracks):
            if launch < track.plan.settings.launches:
                track.begin()
                run_launch(track, launch, observer, device_wait_s)
            if launch == track.plan.settings.launches - 1 and done is not None:
                done(track)


class Sweep(Protocol):
    """A function that measures tracks: `sweep`, or its equivalent on other machines."""

    def __call__(
        self,
        tracks: Sequence[Track],
        observer: Observer,
        done: Callable[[Track], None],
        *,
        device_wait_s: float | None = None,
    ) -> None: ...


def sweep_one_launch(
    tracks: Sequence[Track], observer: Observer, done: Callable[[Track], None], *, device_wait_s: float | None = None
) -> None:
    """Measure the next launch of each track; `done` is called with each track that has no launches left.

    Raises as `sweep` does.
    """
    for track in tracks:
        track.begin()
        if launches := track.open_launches():
            run_launch(track, min(launches), observer, device_wait_s)
        if not track.open_launches():
            done(track)


def run_launch(track: Track, launch: int, observer: Observer, device_wait_s: float | None) -> None:
    """One launch of a started cell: a worker, and a new one for the remaining points whenever it dies. If the cell
    cannot be prepared, all remaining points fail.

    Raises as `sweep` does.
    """
    cell = track.plan.cell
    if track.next_points(launch) and not track.is_prepared and needs_preparation(cell, track.plan.settings.quality):
        asked_s = time.monotonic()
        try:
            with device_locks(cell.device, observer.waiting, device_wait_s):
                track.waited(asked_s, time.monotonic())
                preparation = prepare(
                    track.plan,
                    lambda what: observer.preparing(track, what),
                    reference_s=track.reference_s,
                    ends_s=track.ends_s,
                )
        except NotBuiltError as error:
            for point in track.points_left(launch):  # not what an earlier process measured
                failed = without_samples(point, launch, "failed", str(error), error.traceback)
                track.keep(failed)
                observer.measured(track, failed)
        else:
            track.keep(preparation)
    while points := track.next_points(launch):
        job = Job(
            cell=cell,
            launch=launch,
            points=points,
            settings=track.settings_of(points, launch),
            preparation=track.preparation if track.is_prepared else None,  # never one from a file
            with_quality=track.needs_quality,
        )
        asked_s = time.monotonic()
        with device_locks(cell.device, observer.waiting, device_wait_s) as doubts:
            started_s = time.monotonic()
            track.waited(asked_s, started_s)
            observer.launch(track, launch)
            WorkerSession(track, job, observer, doubts).run()
            track.spent_s[launch] = track.spent_s.get(launch, 0.0) + time.monotonic() - started_s


def measure_quality(track: Track, observer: Observer, device_wait_s: float | None = None) -> Quality:
    """The quality of a started cell whose points are only what the model is loaded for, in a process of its own.
    What fails becomes the reason of missing values. Raises as `sweep` does."""
    cell = track.plan.cell
    with device_locks(cell.device, observer.waiting, device_wait_s) as doubts:
        try:
            preparation = prepare(track.plan, lambda what: observer.preparing(track, what))
        except NotBuiltError as error:
            return without_quality(f"{FAILED}: {error}")
        job = Job(
            cell=cell,
            launch=0,
            points=track.plan.points,
            settings=track.plan.settings,
            preparation=preparation,
            with_quality=True,
            only_quality=True,
        )
        WorkerSession(track, job, observer, doubts).run()
    if track.quality is not None:
        return track.quality
    errors = [measured.error for measured in track.measurements]
    return without_quality(f"{FAILED}: {errors[0] if errors else 'the process ended early'}")


class WorkerSession:
    """A worker from its start to its last point. Every point gets a result, or a retry in another worker."""

    def __init__(self, track: Track, job: Job, observer: Observer, doubts: tuple[Doubt, ...]) -> None:
        """`doubts` are added to each measurement."""
        self.track = track
        self.job = job
        self.observer = observer
        self.doubts = doubts
        self.loaded = False
        self.current: Point | None = None
        self.settled = 0

    def run(self) -> None:
        """Start the worker and handle its messages until it finishes, dies, or exceeds the time limit, which applies to
        the load and to each point."""
        launch = self.job.launch
        try:
            with WorkerProcess(self.job) as worker:
                renewed_by = (PointStarted, QualityStarted)
                for message in worker.messages(self.track.plan.timeout_s, renewed_by, self.track.ends_s):
                    if isinstance(message, LaunchLoad):
                        self.loaded = True
                        self.track.keep(message)
                    elif isinstance(message, PointStarted):
                        self.current = next(point for point in self.job.points if point.label == message.label)
                        self.observer.live(self.track, launch, self.current, None)
                    elif isinstance(message, Live) and self.current is not None:
                        self.observer.live(self.track, launch, self.current, message)
                    elif isinstance(message, Measurement):
                        self._settle(message)
                        if ends_worker(message):
                            return
                        if self.settled == len(self.job.points) and not self.job.with_quality:
                            worker.exit_status()
                            return
                    elif isinstance(message, QualityStarted):
                        self.observer.preparing(self.track, "the quality")
                    elif isinstance(message, Quality):
                        self.track.keep(message)
                        worker.exit_status()
                        return
        except WorkerLostError as lost:
            # The current point is lost, or all points if the model was still loading, unless they get a retry.
            if lost.was_killed and self.current is not None and self._may_try_alone(self.current):
                return
            if self.settled == len(self.job.points):  # everything but the quality was measured
                self.track.keep(without_quality(f"{FAILED}: {lost}"))
                return
            if lost.was_killed and not self.loaded and self.track.grant_retry("load", self.job.launch):
                return
            traceback = None if lost.load is None else lost.load.traceback
            for point in self.job.points if self.current is None and self.settled == 0 else (self.current,):
                if point is not None:
                    self._settle(without_samples(point, self.job.launch, lost.status, str(lost), traceback))

    def _settle(self, measurement: Measurement) -> None:
        """Save a measurement, unless its point gets a retry in a fresh process."""
        self.current = None
        if ends_worker(measurement) and self._may_try_alone(measurement.point):
            return
        self.settled += 1
        measurement = dataclasses.replace(measurement, doubts=(*measurement.doubts, *self.doubts))
        self.track.keep(measurement)
        self.observer.measured(self.track, measurement)
        if shows_tracebacks() and (traceback := measurement.extra.get("traceback")):
            print(traceback, file=sys.stderr, end="")

    def _may_try_alone(self, point: Point) -> bool:
        """Whether a point may be retried in a fresh process, since earlier points of this one may have caused the
        failure."""
        return self.settled > 0 and self.track.grant_retry(point.label, self.job.launch)


def without_samples(point: Point, launch: int, status: Status, error: str, traceback: str | None = None) -> Measurement:
    """A measurement that failed before its first call."""
    now = utc_now()
    return Measurement(
        point=point,
        launch=launch,
        status=status,
        error=error,
        started_at=now,
        finished_at=now,
        missing={"latency_median_ms": FAILED},
        extra={} if traceback is None else {"traceback": traceback},
    )


class Track:
    """One cell during a sweep: its plan, its file in the spool, and its results so far."""

    reference_s: float | None = None
    """As in `PreparationJob`."""
    ends_s: float = math.inf
    """The time (`time.monotonic`) that ends its processes, whatever they do."""

    def __init__(
        self,
        plan: CellPlan,
        folder: Path,
        file: PartialRun | None = None,
        loads: Iterable[LaunchLoad] = (),
        measurements: Iterable[Measurement] = (),
        preparation: Preparation | None = None,
        quality: Quality | None = None,
    ) -> None:
        """Without a file, a new track, whose file will be in `folder`."""
        self.plan = plan
        self.folder = folder
        self._file = file
        self.loads = list(loads)
        self.measurements = list(measurements)
        self.preparation = preparation
        """None before it is made, and for a cell that needs none."""
        self.quality = quality
        """None before it is measured, and if it is not requested."""
        self.is_prepared = False
        """Whether this process prepared the cell. Builds of an earlier process may have been deleted from the cache."""
        self.spent_s: dict[int, float] = {}
        """Total seconds of the workers so far, by launch."""
        self._retried: set[tuple[str, int]] = set()
        self._open: tuple[tuple[int, Point], ...] | None = None

    @classmethod
    def resume(
        cls, file: PartialRun, arguments: Mapping[str, object] | None = None, *, on_cluster: bool = False
    ) -> Self:
        """The track of an unfinished file, which is locked until `close`. Raises LockedError if another process
        continues it, StorageError if one has finished it, and UsageError if it runs code that is not among the
        command's arguments (`arguments`; see `check_loaded_plan`), and if a cluster started it unless `on_cluster`."""
        if not file.hold():
            raise StorageError(f"{file.path} was finished by another process in the meantime")
        progress = file.read()
        check_loaded_plan(progress.plan, arguments or {}, str(file.path))
        check_location(progress.plan, str(file.path), on_cluster=on_cluster)
        file.take_over(progress)
        return cls(progress.plan, file.path.parent, file, *progress.records)

    def begin(self) -> None:
        """Start the run, and create its file if there is none. Raises StorageError."""
        if self._file is None:
            self.plan = dataclasses.replace(self.plan, started_at=utc_now())
            self._file = PartialRun.create(self.folder, self.plan)

    def waited(self, asked_s: float, began_s: float) -> None:
        """It waited for its device from the one time (`time.monotonic`) to the other."""

    def replan(self, plan: CellPlan) -> None:
        """Restart with another plan of the same run, of which nothing was measured yet. Raises StorageError."""
        self.plan = dataclasses.replace(plan, started_at=self.plan.started_at)
        self.loads, self.preparation, self._open = [], None, None
        if self._file is not None:
            self._file.replan(self.plan)

    @property
    def file(self) -> PartialRun:
        assert self._file is not None
        return self._file

    def keep(self, record: Record) -> None:
        """Keep a record in memory, then on disk, so that it is in memory if the write is interrupted."""
        if isinstance(record, Preparation):
            self.preparation, self.is_prepared = record, True
        elif isinstance(record, LaunchLoad):
            self.loads.append(record)
        elif isinstance(record, Quality):
            self.quality = record
        else:
            self.measurements.append(record)
            self._open = None
        self.file.append(record)

    def release(self) -> None:
        """Drop the raw samples of a finished run from memory, since a batch has many runs."""
        self.measurements = [dataclasses.replace(measurement, samples=()) for measurement in self.measurements]

    def close(self) -> None:
        """End the lock on its file, so that another command can continue it."""
        if self._file is not None:
            self._file.release()

    @property
    def needs_quality(self) -> bool:
        """Whether the quality is still to be measured."""
        return self.quality is None and quality_of(self.plan.cell, self.plan.settings.quality) is not None

    def next_points(self, launch: int) -> tuple[Point, ...]:
        """The points for the next worker of a launch; empty if the launch is done."""
        points = self.points_left(launch)
        alone = self.plan.settings.point_per_process or (points and (points[0].label, launch) in self._retried)
        return points[:1] if alone else points

    def points_left(self, launch: int) -> tuple[Point, ...]:
        return tuple(point for of_launch, point in self._open_items() if of_launch == launch)

    def settings_of(self, points: Sequence[Point], launch: int) -> Settings:
        """The plan's settings for a worker with these points: its budget is proportional to their work."""
        settings = self.plan.settings
        if settings.budget_s is None:
            return settings
        left_s = settings.budget_s - self.spent_s.get(launch, 0.0)
        share = sum(map(work, points)) / sum(work(point) for of, point in self._open_items() if of == launch)
        return dataclasses.replace(settings, budget_s=left_s * share)

    def grant_retry(self, what: str, launch: int) -> bool:
        """Grant one retry in a fresh process to a point (by label) or to the load; False if it already had one."""
        key = (what, launch)
        if key in self._retried:
            return False
        self._retried.add(key)
        return True

    def open_points(self) -> list[Point]:
        """The remaining points, once per launch."""
        return [point for _, point in self._open_items()]

    @property
    def launches_left(self) -> int:
        """Workers still to be started, if none dies."""
        if self.plan.settings.point_per_process:
            return len(self._open_items())
        return len(self.open_launches() - {measurement.launch for measurement in self.measurements})

    def open_launches(self) -> set[int]:
        """The launches with remaining points."""
        return {launch for launch, _ in self._open_items()}

    @property
    def points_finished(self) -> int:
        """Number of points finished or given up, over all launches."""
        return self.points_total - len(self.open_points())

    @property
    def points_total(self) -> int:
        """Number of points to measure, over all launches."""
        return self.plan.settings.launches * len(self.plan.runnable)

    def run(self, finished_at: str) -> Run:
        """The run's record, from the results so far."""
        return finished_run(self.plan, self.loads, self.measurements, finished_at, self.preparation, self.quality)

    def _open_items(self) -> tuple[tuple[int, Point], ...]:
        """(launch, point) for everything that is left. A point that failed and never succeeded is not tried in later
        launches. Cached until the next measurement, since the progress display calls it often."""
        if self._open is None:
            tried = {(measured.point.label, measured.launch) for measured in self.measurements}
            worked = {measured.point.label for measured in self.measurements if measured.status == "ok"}
            given_up = {label for label, _ in tried} - worked
            todo = [(point, label) for point in self.plan.runnable if (label := point.label) not in given_up]
            launches = range(self.plan.settings.launches)
            self._open = tuple((launch, p) for launch in launches for p, label in todo if (label, launch) not in tried)
        return self._open


def check_location(plan: CellPlan, where: str, *, on_cluster: bool) -> None:
    """Raise UsageError if a plan of a cluster is to be continued on this machine, or vice versa, since all launches of
    a run belong to one machine."""
    if (plan.cluster is not None) != on_cluster:
        location = "this machine: continue without --cluster, --backend and --use-slurm"
        if plan.cluster is not None:
            location = f"the cluster {plan.cluster}: continue with --resume and the flags that name it"
        raise UsageError(f"{where}: measured on {location}")


def has_failed(measurement: Measurement) -> bool:
    """Whether a measurement failed. That of a point that the time budget left out did not."""
    return measurement.status not in ("ok", "skipped")


def finished_run(
    plan: CellPlan,
    loads: Sequence[LaunchLoad],
    measurements: Sequence[Measurement],
    finished_at: str,
    preparation: Preparation | None = None,
    quality: Quality | None = None,
) -> Run:
    """The record of a run, with the results of its launches and without secrets."""
    if plan.settings.quality is not None and quality is None:
        quality = without_quality(why_not_quality(plan.cell.workload) or f"{NOT_RUN}: no process got that far")
    cell, by_point = plan.cell, list[Result]()
    times = [(measured.started_at, measured.finished_at) for measured in measurements]
    # One after the other, but for the launches of a cluster, which may run on several machines at a time.
    in_turn = grouped((one.launch if plan.cluster else None, one) for one in measurements).values()
    between = ((one.finished_at, other.started_at) for group in in_turn for one, other in pairwise(group))
    about_all = (
        *doubt_rules.about_environment(plan.environment, cell.device),
        *doubt_rules.about_workload(cell.workload),
        *doubt_rules.about_end((plan.started_at, finished_at), *times, *between),
    )
    for point in plan.points:
        if point.label in plan.skipped:
            why = plan.skipped[point.label]
            by_point.append(Result(result_id=uuid7(), point=point, status="skipped", error=why))
            continue
        of_point = tuple(measured for measured in measurements if measured.point.label == point.label)
        by_point.append(summarise(uuid7(), point, of_point, tuple(loads), context=about_all))
    results = with_peak(cell.workload, tuple(by_point))
    failed = [result for result in results if result.status in ("failed", "timed_out")]
    error = None
    if failed:
        error = f"{len(failed)} of {len(results)} points failed; {failed[0].point.label}: {failed[0].error}"
    counts = (load.verified.get("parameter_count") for load in loads)
    parameter_count = next((count for count in counts if isinstance(count, int)), cell.workload.parameter_count)
    workload = dataclasses.replace(cell.workload, parameter_count=parameter_count)
    measured = any(result.status == "ok" for result in results)
    run = Run(
        run_id=plan.run_id,
        session_id=plan.session_id,
        status="ok" if measured else failed[0].status if failed else "skipped",
        error=error,
        started_at=plan.started_at,
        finished_at=finished_at,
        cell=dataclasses.replace(cell, workload=workload),
        hardware=plan.hardware,
        provenance=plan.provenance,
        settings={**to_json(plan.settings), "timeout_s": plan.timeout_s},
        environment=plan.environment,
        preparation=preparation,
        loads=tuple(loads),
        results=results,
        quality=quality,
    )
    return redacted_record(run, anonymous=plan.is_anonymous)
