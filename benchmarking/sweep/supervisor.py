"""The supervisor: starts a worker for each cell and launch, keeps what it sends, and goes on past whatever happens.

Launches are interleaved over the cells: slow drifts of the machine then fall on all of them alike. It imports no torch
and sleeps while a worker measures.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from benchmarking.clock import utc_now
from benchmarking.measure.live import Live
from benchmarking.records import FAILED, LaunchLoad, Measurement, Point, Preparation, Status
from benchmarking.sweep.lock import device_locks, lock_names
from benchmarking.sweep.messages import Job, LoadFailed, Message, PointStarted
from benchmarking.sweep.preparing import needs_preparation, prepare
from benchmarking.sweep.process import TimeLimitError, WorkerProcess
from benchmarking.sweep.track import Track


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
            Attendance(track, job, observer).attend()


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


class Attendance:
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
