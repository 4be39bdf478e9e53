"""The supervisor: starts a worker for each cell and launch, keeps what it sends, and goes on past whatever happens.

Launches are interleaved over the cells: slow drifts of the machine then fall on all of them alike. It imports no torch
and sleeps while a worker measures.

A cell on its way: its plan, its file in the spool, and what it has so far.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from benchmarking.core.errors import UsageError
from benchmarking.core.provenance import utc_now, uuid7
from benchmarking.core.records import FAILED, LaunchLoad, Measurement, Point, Preparation, Result, Run, Status, Workload
from benchmarking.measure.bench import Live
from benchmarking.measure.peaks import with_peak
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run.lock import device_locks, lock_names
from benchmarking.sweep.run.preparation import needs_preparation, prepare
from benchmarking.sweep.run.process import Job, LoadFailed, Message, PointStarted, TimeLimitError, WorkerProcess
from benchmarking.sweep.run.spool import PartialRun


class Observer(Protocol):
    """Who is told how it goes. Nothing is told inside a timed region."""

    def preparing(self, track: Track, what: str) -> None:
        """Something is being made for the cell before its first launch."""

    def launch(self, track: Track, launch: int) -> None:
        """A worker is being started."""

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        """A point has begun (None) or has come further."""

    def measured(self, track: Track, measurement: Measurement) -> None:
        """A point of a launch is settled and on disk."""

    def waiting(self, message: str) -> None:
        """The device is not free."""


def sweep(tracks: Sequence[Track], observer: Observer, done: Callable[[Track], None] | None = None) -> None:
    """Measure everything that is still to do; `done` is called with each track as soon as its last launch is over.

    Raises StorageError when what was measured cannot be kept.
    """
    launches = max((track.plan.settings.launches for track in tracks), default=0)
    for launch in range(launches):
        for track in tracks:
            if launch < track.plan.settings.launches:
                track.begin()
                _run_launch(track, launch, observer)
            if launch == track.plan.settings.launches - 1 and done is not None:
                done(track)


def sweep_one_launch(tracks: Sequence[Track], observer: Observer, done: Callable[[Track], None]) -> None:
    """Measure the next launch of each track and no more; `done` is called with each that has none left.

    Raises as `sweep` does.
    """
    for track in tracks:
        track.begin()
        if (launch := track.next_launch) is not None:
            _run_launch(track, launch, observer)
        if track.next_launch is None:
            done(track)


def _run_launch(track: Track, launch: int, observer: Observer) -> None:
    """One launch of a cell: one worker, and a fresh one for what is left each time one is lost."""
    cell = track.plan.cell
    locks = lock_names(cell.device)
    if track.next_points(launch) and not track.is_prepared and needs_preparation(cell):
        with device_locks(locks, observer.waiting):
            _prepare(track, launch, observer)
    while points := track.next_points(launch):
        job = Job(
            cell=cell,
            launch=launch,
            points=points,
            settings=track.plan.settings,
            spawned_at_ns=time.monotonic_ns(),
            preparation=track.preparation,
        )
        with device_locks(locks, observer.waiting):
            observer.launch(track, launch)
            WorkerSession(track, job, observer).attend()


def _prepare(track: Track, launch: int, observer: Observer) -> None:
    """Prepare a cell; when that fails, so have all its points."""
    made = prepare(track.plan, lambda what: observer.preparing(track, what))
    if isinstance(made, Preparation):
        track.keep(made)
        return
    for point in track.plan.runnable:
        failed = _without_samples(point, launch, "failed", made.error, made.traceback)
        track.keep(failed)
        observer.measured(track, failed)


class WorkerSession:
    """One worker's life, from its start to the last point it will do. Settles a point, or uses up a second try."""

    def __init__(self, track: Track, job: Job, observer: Observer) -> None:
        self.track = track
        self.job = job
        self.observer = observer
        self.loaded = False
        self.current: Point | None = None
        self.settled = 0
        self.deadline_s: float | None = None

    def attend(self) -> None:
        """Start the worker and take its messages until it is done, lost, or out of time."""
        self.job = _stamped(self.job)
        self.deadline_s = self._next_deadline_s()
        with WorkerProcess(self.job) as worker:
            while self.settled < len(self.job.points):
                try:
                    message = worker.receive(self.deadline_s)
                except TimeLimitError:
                    worker.kill()
                    self._lost("timed_out", f"no end within the time limit of {self.track.plan.timeout_s:g} s")
                    return
                if message is None:
                    self._ended(worker)
                    return
                if not self._take(message):
                    return
            worker.exit_status()

    def _take(self, message: Message) -> bool:
        """Do what a message asks for; False when it is the worker's last."""
        if isinstance(message, LoadFailed):
            self._load_failed(message)
            return False
        if isinstance(message, LaunchLoad):
            self.loaded = True
            self.track.keep(message)
        elif isinstance(message, PointStarted):
            self.current = next(point for point in self.job.points if point.label == message.label)
            self.deadline_s = self._next_deadline_s()
            self.observer.live(self.track, self.job.launch, self.current, None)
        elif isinstance(message, Live):
            if self.current is not None:
                self.observer.live(self.track, self.job.launch, self.current, message)
        elif isinstance(message, Measurement):
            self._settle(message)
            return not message.extra.get("out_of_memory")
        return True

    def _next_deadline_s(self) -> float | None:
        limit_s = self.track.plan.timeout_s
        return None if limit_s is None else time.monotonic() + limit_s

    def _settle(self, measurement: Measurement) -> None:
        """Keep a measurement, unless its point deserves another try in a process of its own."""
        self.current = None
        if measurement.extra.get("out_of_memory") and self._may_try_alone(measurement.point):
            return
        self.settled += 1
        self.track.keep(measurement)
        self.observer.measured(self.track, measurement)

    def _may_try_alone(self, point: Point) -> bool:
        """True for a point that met a used process: what came before it may be what it fell over."""
        return self.settled > 0 and self.track.second_try(point.label, self.job.launch)

    def _ended(self, worker: WorkerProcess) -> None:
        """The worker is gone before its work was done."""
        why = worker.why_it_ended()
        killed = worker.exit_status() < 0
        if killed and self.current is not None and self._may_try_alone(self.current):
            return
        if killed and not self.loaded and self.track.second_try("load", self.job.launch):
            return
        self._lost("failed", why)

    def _lost(self, status: Status, error: str) -> None:
        """Settle the point that was under way, or all of them when the load was."""
        for point in self.job.points if self.current is None and self.settled == 0 else (self.current,):
            if point is not None:
                self._settle(_without_samples(point, self.job.launch, status, error))

    def _load_failed(self, message: LoadFailed) -> None:
        for point in self.job.points:
            self._settle(_without_samples(point, self.job.launch, "failed", message.error, message.traceback))


def _stamped(job: Job) -> Job:
    """The job as of now: waiting for the device is no part of starting the worker."""
    return dataclasses.replace(job, spawned_at_ns=time.monotonic_ns())


def _without_samples(
    point: Point, launch: int, status: Status, error: str, traceback: str | None = None
) -> Measurement:
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
