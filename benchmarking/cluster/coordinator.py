"""Sweeps a batch on a cluster: assigns each cell to a machine that has its device, and saves the results.

A report is saved to disk here before the next one is read, and every record is saved on the worker before it is sent. A
point is finished when it is on disk here. When a worker is lost, its cell continues on a machine with the same hardware
and software. If there is none, the points without a result become a separate run, since all launches of a run must be
comparable.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

from benchmarking.cluster.execution import (
    Identity,
    Offer,
    OfferedDevice,
    Order,
    Report,
    clock_s,
    execute,
    forget,
    identity,
    message_text,
    offer_text,
    read_message,
    software,
)
from benchmarking.core.command_line import note
from benchmarking.core.errors import BenchhouseError, FormatError, UsageError, WorkersLostError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.live_status import MachineProgress
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import Json, LaunchLoad, Measurement, Readings
from benchmarking.core.text import duration, grouped, listed
from benchmarking.sweep.plan.plan import CLUSTER, CellPlan
from benchmarking.sweep.run.supervisor import Observer, Track, has_failed, without_samples
from benchmarking.sweep.show.progress import cell_name
from benchmarking.workloads.support.footprint import Fit

CLOSED = "closed"
"""The status of a client that has given up on its scheduler, and can send nothing more."""
POLL_S = 1.0
REDRAW_S = 0.2
CLOCK_QUERIES = 5
"""Number of queries of a worker's clock, of which the one with the shortest round trip is used."""
MAX_LOSSES = 3
"""Workers that may be lost on a cell before it is given up, since the cell may be the cause."""
WAIT_FOR_WORKER_S = 600.0
MAX_LISTED_WORKERS, MAX_LISTED_REASONS = 4, 2
"""Maximum number of workers and reasons listed in a message."""


@dataclass(frozen=True, slots=True)
class Membership:
    """A worker has joined, or has left or was lost."""

    address: str
    has_joined: bool


class Cluster:
    """A connected cluster. Dask's threads put events into a queue, which the coordinator reads."""

    def __init__(
        self, client: Any, address: str, *, accepts_workers: bool, failure: Callable[[], str | None] = lambda: None
    ) -> None:
        self.address = address
        self.accepts_workers = accepts_workers
        """Whether more workers may join it."""
        self.failure = failure
        """Returns why none will after all; None while some may."""
        self._client = client
        self._events: queue.Queue[Membership | Report] = queue.Queue()
        self._futures: dict[str, Any] = {}
        # A scheduler deletes a topic's messages when a client of the same name disconnects.
        for topic in ("all", client.id):
            client.subscribe_topic(topic, self._receive)

    def offers(self, addresses: Sequence[str] | None = None) -> dict[str, Offer]:
        """The offers of these workers (None: of all), with their clocks in the environment. Workers of other programs
        or versions, and those that are lost meanwhile, are left out with a note."""
        offers: dict[str, Offer] = {}
        for address, text in self._client.run(offer_text, workers=addresses, on_error="return").items():
            try:
                if isinstance(text, BaseException) or text is None:
                    raise FormatError("not a benchhouse worker, or an older version: start benchhouse worker")
                offer = read_message(Offer, text)
                offers[address] = replace(offer, environment=offer.environment | self._clock(address))
            except (BenchhouseError, OSError) as error:
                note(f"left out: worker at {address}: {error}")
        return dict(sorted(offers.items(), key=lambda item: item[1].worker))

    def _clock(self, address: str) -> Readings:
        """The clock of a worker, as stored in the environment of its runs: the seconds by which it is ahead of this
        machine's (negative if behind), by the query with the shortest round trip, and half of that trip, which is the
        uncertainty. Raises OSError if it does not answer."""
        queries = []
        for _ in range(CLOCK_QUERIES):
            sent_s, began_s = time.time(), time.monotonic()
            worker_s = self._client.run(clock_s, workers=[address])[address]
            half_trip_s = (time.monotonic() - began_s) / 2
            queries.append((half_trip_s, worker_s - sent_s - half_trip_s))
        error_s, offset_s = min(queries)
        return Readings(values={"cluster_clock_offset_s": offset_s, "cluster_clock_error_s": error_s})

    def submit(self, attempt: str, order: Order, address: str, selector: str) -> None:
        """Send an order to a worker, for this device. Its reports follow, of which the last says how it ended, unless
        the worker is lost."""
        future = self._client.submit(
            *(execute, self._client.id, message_text(order)), key=attempt, workers=[address], resources={selector: 1}
        )

        def end(future: Any) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:  # whatever Dask or the worker raised is the cell's failure
                why = f"the task failed: {type(error).__name__}: {error}"
                self._events.put(Report(attempt=attempt, kind="failed", text=why))
            self._futures.pop(attempt, None)

        self._futures[attempt] = future
        future.add_done_callback(end)

    def cancel(self, attempt: str) -> None:
        """Cancel an attempt; its worker stops at its next message."""
        future = self._futures.pop(attempt, None)
        if future is not None and self._client.status != CLOSED:
            future.cancel(force=True)

    def forget(self, addresses: Sequence[str], run_ids: Sequence[str]) -> None:
        """Tell workers to delete their copies of runs that are saved here; a worker that is lost keeps its own."""
        if addresses and run_ids and self._client.status == "running":
            with suppress(OSError, TimeoutError):  # the scheduler is shutting down
                self._client.run(forget, list(run_ids), workers=list(addresses), on_error="ignore")

    def next_event(self, limit_s: float) -> Membership | Report | None:
        """The next event; None after `limit_s`. Raises WorkersLostError if the scheduler is lost."""
        try:
            return self._events.get(timeout=limit_s)
        except queue.Empty:
            if self._client.status != "running":
                raise WorkersLostError(
                    f"lost the scheduler {self.address}: all reported results are saved: continue with --resume"
                ) from None
            return None

    def close(self) -> None:
        """Unsubscribe from events."""
        for topic in ("all", self._client.id) if self._client.status != CLOSED else ():
            self._client.unsubscribe_topic(topic)

    def _receive(self, event: tuple[float, Any]) -> None:
        """Queue a report, or that a worker has joined or left; other events are the scheduler's."""
        message = event[1]
        if isinstance(message, str):
            try:
                self._events.put(read_message(Report, message))
            except FormatError as error:
                note(f"ignored: {error}")
        elif isinstance(message, dict) and (action := message.get("action")) in ("add-worker", "remove-worker"):
            self._events.put(Membership(message["worker"], action == "add-worker"))


def check_same_versions(offers: Mapping[str, Offer]) -> None:
    """Raise UsageError, with the differences, for workers that differ in version or commit."""
    differences = []
    installed = {offer.worker: software(offer.provenance) for offer in offers.values()}
    for name in sorted({name for versions in installed.values() for name in versions}):
        in_order = sorted(installed.items(), key=lambda item: name not in item[1])
        workers = grouped((versions.get(name, "none"), worker) for worker, versions in in_order)
        if len(workers) > 1:
            each = (f"{version} on {listed(where, MAX_LISTED_WORKERS)}" for version, where in workers.items())
            differences.append(f"{name}: {', '.join(each)}")
    if differences:
        raise UsageError(
            f"--require-same-versions: the workers differ: {'; '.join(differences)}: install the same versions"
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """A device of a worker."""

    address: str
    selector: str
    identity: Identity
    offer: Offer
    offered: OfferedDevice
    shown: MachineProgress
    work: Work | None = None
    attempt: str = ""

    def show(self, **changes: Any) -> None:
        self.shown = replace(self.shown, **changes)

    def count(self, measured: Measurement) -> None:
        shown = self.shown
        self.show(done=shown.done + 1, failed=shown.failed + has_failed(measured))


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """A cell, or one launch of it, to be measured."""

    cell: Cell
    launches: tuple[int, ...]
    losses: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Cell:
    """A track on the cluster."""

    track: Track
    selector: str
    identity: Identity | None = None
    """Identity of the machines that may measure it, once one has begun."""
    address: str = ""
    """Address of its current or last worker."""
    open_work: list[Work] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    """Why a worker cannot measure it, by the worker's address."""

    @property
    def name(self) -> str:
        return cell_name(self.track.plan.cell)

    def refuse_unfit(self, slot: Slot) -> None:
        """Refuse a device that does not have the memory that each of its points needs."""
        plan = self.track.plan
        if slot.selector == self.selector:
            fit = Fit.of(replace(plan.cell, device=slot.offered.device), slot.offered.free, is_here=False)
            reasons = (fit.why_not(point) for point in plan.points if point.label not in plan.skipped)
            if (why := next(filter(None, reasons), None)) is not None:
                self.refusals[slot.address] = f"worker {slot.offer.worker}: {why}"


class ClusterSweep:
    """One sweep on a cluster; called as `benchmarking.sweep.run.supervisor.sweep` is."""

    def __init__(
        self, cluster: Cluster, offers: Mapping[str, Offer], *, spread: bool = False, same_versions: bool = False
    ) -> None:
        """Raises UsageError for workers that differ, with `same_versions`."""
        if same_versions:
            check_same_versions(offers)
        self._cluster = cluster
        self._spread = spread
        self._same_versions = same_versions
        self._slots: dict[tuple[str, str], Slot] = {}
        self._cells: list[Cell] = []
        self._open: list[Work] = []
        """Work that no worker has."""
        self._finished: list[str] = []
        """Ids of finished runs whose copies may still be on workers at the end."""
        self._saved_runs: dict[str, list[str]] = {}
        """Address of a worker -> ids of finished runs of which it may still have a copy."""
        self._broken: set[str] = set()
        """Addresses of workers that get nothing more, but still have copies."""
        self._former_machines: list[MachineProgress] = []
        self._software: dict[str, str] | None = None
        """As in the first offer."""
        self._drawn_s = 0.0
        self._waits_since_s: float | None = None
        self._observer = Observer()  # which says nothing of the first workers
        self._device_wait_s: float | None = None
        self._done: Callable[[Track], None] = lambda track: None
        self._add(offers)

    def __call__(
        self,
        tracks: Sequence[Track],
        observer: Observer,
        done: Callable[[Track], None],
        *,
        device_wait_s: float | None = None,
    ) -> None:
        """Measure everything that is left. Raises StorageError, and WorkersLostError if no worker is left that
        could."""
        self._observer, self._done, self._device_wait_s = observer, done, device_wait_s
        for track in tracks:
            self._begin(track)
        try:
            while self._cells:
                self._assign()
                if time.monotonic() - self._drawn_s >= REDRAW_S:
                    self._drawn_s = time.monotonic()
                    self._observer.machines(self.machines)
                event = self._cluster.next_event(POLL_S) if self._cells else None
                if isinstance(event, Report):
                    self._on_report(event)
                elif event is not None and not event.has_joined:
                    self._on_left(event.address)
                elif event is not None and all(event.address != address for address, _ in self._slots):
                    self._add(self._cluster.offers([event.address]))
        finally:
            for slot in self._slots.values():
                if slot.work is not None:
                    self._cluster.cancel(slot.attempt)
            self._observer.machines(self.machines)
            addresses = {slot.address for slot in self._slots.values()} | self._broken
            self._cluster.forget(sorted(addresses), self._finished)

    @property
    def machines(self) -> tuple[MachineProgress, ...]:
        """The state of each device of the cluster, then of lost ones."""
        return (*(slot.shown for slot in self._slots.values()), *self._former_machines)

    def _begin(self, track: Track) -> None:
        """Queue the rest of a track; a track without open points is finished."""
        cell = Cell(track=track, selector=track.plan.cell.device.selector)
        self._cells.append(cell)
        for slot in self._slots.values():
            cell.refuse_unfit(slot)
        launches = tuple(sorted(track.open_launches()))
        if not launches:
            track.begin()
            self._finish(cell)
            return
        if track.measurements:  # from an earlier command, whose plan tells where they were measured
            cell.identity = identity(track.plan.hardware, track.plan.provenance)
        parts = [(launch,) for launch in launches] if self._spread else [launches]
        cell.open_work = [Work(cell=cell, launches=part) for part in parts]
        self._open += cell.open_work

    def _assign(self) -> None:
        """Give the free devices work. Work that no device may do is failed, continued as a separate run, or waits."""
        slots = list(self._slots.values())
        free = {slot.selector for slot in slots if slot.work is None}
        missing = {work.cell.selector for work in self._open} - {slot.selector for slot in slots}
        if not missing:
            self._waits_since_s = None
        for work in list(self._open) if free or missing else ():
            cell = work.cell
            if cell.selector not in free | missing or work not in self._open:  # it has to wait, or its cell was split
                continue
            fitting = [slot for slot in slots if slot.selector == cell.selector]
            willing = [slot for slot in fitting if slot.address not in cell.refusals]
            alike = [slot for slot in willing if cell.identity in (None, slot.identity)]
            if idle := [slot for slot in alike if slot.work is None]:
                # Preferably its previous machine; with --spread another one.
                slot = min(idle, key=lambda slot: (slot.address != cell.address) != self._spread)
                track = cell.track
                if cell.identity is None:
                    track.replan(plan_for_slot(track.plan, slot, self._cluster.address))
                    cell.identity = slot.identity
                cell.address = slot.address
                track.begin()
                slot.work, slot.attempt = work, uuid7()
                slot.show(state="measuring", activity=cell.name)
                self._open.remove(work)
                order = Order(
                    plan=track.plan,
                    launches=work.launches,
                    finished=tuple(  # reduced to what the worker needs: which points are finished, and their status
                        replace(measured, samples=(), window={}, extra={}, doubts=(), metrics={})
                        for measured in track.measurements
                    ),
                    quality=track.quality,
                    saved=tuple(self._saved_runs.pop(slot.address, ())),
                    device_wait_s=self._device_wait_s,
                )
                self._cluster.submit(slot.attempt, order, slot.address, slot.selector)
                if all(slot.work is not None for slot in fitting):
                    free.discard(cell.selector)
            elif fitting and not willing:
                self._open.remove(work)
                reasons = [cell.refusals[slot.address] for slot in fitting]
                self._fail(work, fitting[0], listed(reasons, MAX_LISTED_REASONS, "; "))
            elif willing and not alike:
                self._split(cell)
            elif not alike:
                self._wait(cell)

    def _wait(self, cell: Cell) -> None:
        """Wait for a worker with the device of a cell, within limits while nothing is measured."""
        is_idle = all(slot.work is None for slot in self._slots.values())
        where = self._cluster.address
        if not self._cluster.accepts_workers:
            if is_idle:
                raise WorkersLostError(f"no worker with {cell.selector} is left in {where}: continue with --resume")
            return
        if is_idle and (why := self._cluster.failure()) is not None:
            raise WorkersLostError(f"no worker with {cell.selector} is left in {where}: {why}: continue with --resume")
        now_s, limit = time.monotonic(), duration(WAIT_FOR_WORKER_S)
        if self._waits_since_s is None:
            self._observer.waiting(
                f"{cell.name}: no worker with {cell.selector} is left: waiting up to {limit} for one to join"
            )
        if self._waits_since_s is None or not is_idle:
            self._waits_since_s = now_s
        elif now_s - self._waits_since_s > WAIT_FOR_WORKER_S:
            raise WorkersLostError(
                f"no worker with {cell.selector} joined {where} within {limit}: start one, then continue with --resume"
            )

    def _split(self, cell: Cell) -> None:
        """End a cell without a matching machine; its points without a result become a separate run."""
        for work in cell.open_work:
            self._open.remove(work)
        cell.open_work = []
        track = cell.track
        seen = {measured.point.label for measured in track.measurements}
        rest = tuple(point for point in track.plan.points if point.label not in seen | track.plan.skipped.keys())
        self._observer.waiting(
            f"{cell.name}: no machine with the same hardware and software is left: {len(rest)} of its "
            "points continue as a separate run"
        )
        if rest:
            rest_track = Track(replace(track.plan, run_id=uuid7(), points=rest, skipped={}), track.folder)
            rest_track.begin()  # saved before the other run ends, or these points would be lost with it
            self._observer.added(rest_track)
            self._begin(rest_track)
        keep = tuple(point for point in track.plan.points if point not in rest)
        track.plan = replace(track.plan, points=keep)
        self._finish(cell)

    def _add(self, offers: Mapping[str, Offer]) -> None:
        """Let workers take part, unless their versions differ and this is refused."""
        for address, offer in offers.items():
            versions, worker = software(offer.provenance), offer.worker
            self._software = self._software or versions
            if self._same_versions and self._software != versions:
                self._observer.waiting(f"left out: worker {worker}: its versions differ (--require-same-versions)")
                continue
            for offered in offer.devices:
                selector, host = offered.device.selector, offer.provenance.host
                self._slots[address, selector] = slot = Slot(
                    address=address,
                    selector=selector,
                    identity=identity(offered.hardware, offer.provenance),
                    offer=offer,
                    offered=offered,
                    shown=MachineProgress(worker=worker, host=host, device=selector, state="idle"),
                )
                for cell in self._cells:
                    cell.refuse_unfit(slot)
            has = ", ".join(offered.device.selector for offered in offer.devices)
            self._observer.waiting(f"worker {worker} joined: {has}")

    def _on_left(self, address: str, *, is_broken: bool = False) -> None:
        """Handle a lost worker, or a broken one: its work is open again."""
        (self._broken.add if is_broken else self._broken.discard)(address)
        for slot in [slot for slot in self._slots.values() if slot.address == address]:
            del self._slots[address, slot.selector]
            slot.show(state="left" if slot.work is None else "lost", activity="")
            if (work := slot.work) is not None:
                self._cluster.cancel(slot.attempt)
                work.losses += not is_broken  # which says nothing about the cell
                lost = f"worker {slot.offer.worker} was lost at {work.cell.name}"
                if is_broken:
                    self._reopen(work)
                elif work.losses >= MAX_LOSSES:
                    self._observer.waiting(f"{lost}: giving up after losing {work.losses} workers")
                    self._fail(work, slot, f"{work.losses} workers were lost while measuring this cell")
                else:
                    self._observer.waiting(f"{lost}: finished points are kept, the rest is reassigned")
                    self._reopen(work)
            self._former_machines.append(slot.shown)

    def _reopen(self, work: Work) -> None:
        """Reopen work for another device of the same identity, or for any device if its cell has no results."""
        is_running = any(slot.work in work.cell.open_work for slot in self._slots.values())
        if not work.cell.track.measurements and not is_running:
            work.cell.identity = None
        self._open.insert(0, work)

    def _on_report(self, report: Report) -> None:
        """Save a record, show progress, or end the attempt; reports of attempts that are over are ignored."""
        slot = next((slot for slot in self._slots.values() if slot.attempt == report.attempt), None)
        if slot is None or (work := slot.work) is None:
            return
        cell, track, record = work.cell, work.cell.track, report.kept
        if isinstance(record, Measurement):
            if (record.launch, record.point) not in [(known.launch, known.point) for known in track.measurements]:
                track.keep(record)
                slot.count(record)
                self._observer.measured(track, record)
        elif record is not None:
            if not isinstance(record, LaunchLoad) or record.launch not in {load.launch for load in track.loads}:
                track.keep(record)
        elif report.kind == "broken":
            self._observer.waiting(f"{slot.offer.worker}: {cell.name}: {report.text}: this worker gets nothing more")
            self._on_left(slot.address, is_broken=True)
        elif report.kind in ("done", "failed", "refused"):
            slot.work, slot.attempt = None, ""
            slot.show(state="idle", activity="")
            if report.kind == "done":
                self._close_work(work)
                return
            self._observer.waiting(f"{slot.offer.worker}: {cell.name}: {report.text}")
            if report.kind == "refused":
                cell.refusals[slot.address] = report.text
                self._reopen(work)
            else:
                self._fail(work, slot, report.text)
        elif report.kind == "live" and report.point is not None:
            self._observer.live(track, report.launch, report.point, report.live)
            slot.show(activity=f"{cell.name}  {report.point.label}")
        else:
            slot.show(activity=cell.name)
            if report.kind == "waiting":
                self._observer.waiting(f"{slot.offer.worker}: {report.text}")
            elif report.kind == "preparing":
                self._observer.preparing(track, report.text)
            else:
                self._observer.launch(track, report.launch)

    def _fail(self, work: Work, slot: Slot, why: str) -> None:
        """Record all open points of some work as failed."""
        track = work.cell.track
        for launch in work.launches:
            for point in track.points_left(launch):
                failed = without_samples(point, launch, "failed", why)
                track.keep(failed)
                slot.count(failed)
                self._observer.measured(track, failed)
        self._close_work(work)

    def _close_work(self, work: Work) -> None:
        cell = work.cell
        cell.open_work.remove(work)
        if not cell.open_work:
            self._finish(cell)

    def _finish(self, cell: Cell) -> None:
        self._cells.remove(cell)
        self._done(cell.track)
        self._finished.append(cell.track.plan.run_id)
        self._saved_runs.setdefault(cell.address, []).append(cell.track.plan.run_id)


def plan_for_slot(plan: CellPlan, slot: Slot, cluster: str) -> CellPlan:
    """The plan of a cell for a worker, with its device, machine and versions."""
    known: dict[str, Json] = {CLUSTER: cluster, "cluster_worker": slot.offer.worker}
    if plan.is_anonymous:  # both may contain names of hosts and users
        known = {CLUSTER: cluster.partition(":")[0]}
    return replace(
        plan,
        cell=replace(plan.cell, device=slot.offered.device),
        hardware=slot.offered.hardware,
        environment=slot.offer.environment | Readings(values=known),
        provenance=replace(
            slot.offer.provenance,
            host=slot.offer.provenance.host if plan.provenance.host else "",
            command=plan.provenance.command,
            tags=plan.provenance.tags,
            description=plan.provenance.description,
        ),
    )
