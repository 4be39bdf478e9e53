"""Sweeps a batch on a cluster: assigns each cell to a machine that has its device, and saves the results.

A report is saved to disk here before the next one is read, and every record is saved on the worker before it is sent. A
point is finished when it is on disk here. When a worker is lost, its cell continues on a machine with the same hardware
and software. If there is none, the points without a result become a separate run, since all launches of a run must be
comparable.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from benchmarking.cluster.cluster_connection import Cluster
from benchmarking.cluster.execution import Identity, Offer, OfferedDevice, Order, Report, identity, software
from benchmarking.core.errors import UsageError, WorkersLostError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.live_status import DeviceState, MachineProgress
from benchmarking.core.plugins import kinds
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import Device, Hardware, Json, LaunchLoad, Measurement, Readings
from benchmarking.core.text import duration, listed
from benchmarking.sweep.plan.plan import CLUSTER, CellPlan, Machine
from benchmarking.sweep.run.supervisor import Observer, Track, without_samples
from benchmarking.sweep.show.progress import cell_name

POLL_S = 1.0
REDRAW_S = 0.2
MAX_LOSSES = 3
"""Workers that may be lost on a cell before it is given up, since the cell may be the cause."""
WAIT_FOR_WORKER_S = 600.0
MAX_LISTED_WORKERS, MAX_LISTED_REASONS = 4, 2
"""Maximum number of workers and reasons listed in a message."""


class ClusterMachine(Machine):
    """The machine for planning a batch, based on the offers of a cluster."""

    def __init__(self, offers: Mapping[str, Offer], name: str) -> None:
        super().__init__()
        self._name = name
        self._offered = {device.device.selector: device for offer in offers.values() for device in offer.devices}
        for kind in kinds():
            offered = tuple(device.device for device in self._offered.values() if device.device.type == kind.name)
            self.devices[kind.name] = offered or (
                Device(
                    type=kind.name,
                    selector=kind.name,
                    found=False,
                    why_not=f"no worker of {name} has one; the cluster offers {offered_text(offers)}",
                ),
            )

    @property
    def environment(self) -> Readings:
        """The environment of this machine, until a worker takes the cell."""
        return super().environment | Readings(values={CLUSTER: self._name})

    def hardware(self, device: Device) -> Hardware:
        found = self._offered.get(device.selector)
        return super().hardware(device) if found is None else found.hardware

    def free_memory(self, device: Device) -> Readings:
        found = self._offered.get(device.selector)
        return super().free_memory(device) if found is None else found.free


def offered_text(offers: Mapping[str, Offer]) -> str:
    """The devices offered by a cluster: "2 x cpu, cuda:0"."""
    counts = Counter(offered.device.selector for offer in offers.values() for offered in offer.devices)
    parts = [f"{count} x {selector}" if count > 1 else selector for selector, count in sorted(counts.items())]
    return ", ".join(parts) or "nothing: it has no workers"


def check_same_versions(offers: Mapping[str, Offer]) -> None:
    """Raise UsageError, with the differences, for workers that differ in version or commit."""
    differences = []
    installed = {offer.worker: software(offer.provenance) for offer in offers.values()}
    for name in sorted({name for versions in installed.values() for name in versions}):
        workers: dict[str, list[str]] = {}
        for worker, versions in sorted(installed.items(), key=lambda item: name not in item[1]):
            workers.setdefault(versions.get(name, "none"), []).append(worker)
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
    offer: Offer
    clock: Mapping[str, float]
    """How far its clock is from this one, as in `Cluster.clocks`."""
    offered: OfferedDevice
    work: Work | None = None
    attempt: str = ""
    activity: str = ""
    done: int = 0
    failed: int = 0
    """As in `MachineProgress`."""

    @property
    def selector(self) -> str:
        return self.offered.device.selector

    @property
    def identity(self) -> Identity:
        return identity(self.offered.hardware, self.offer.provenance)

    def progress(self, state: DeviceState) -> MachineProgress:
        return MachineProgress(
            worker=self.offer.worker,
            host=self.offer.provenance.host,
            device=self.selector,
            state=state,
            activity=self.activity if state == "measuring" else "",
            done=self.done,
            failed=self.failed,
        )


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
    """Unfinished work."""
    refusals: dict[str, str] = field(default_factory=dict)
    """Why a worker cannot measure it, by the worker's address."""


class ClusterSweep:
    """One sweep on a cluster; called as `benchmarking.sweep.run.supervisor.sweep` is."""

    def __init__(
        self, cluster: Cluster, offers: Mapping[str, Offer], *, spread: bool = False, same_versions: bool = False
    ) -> None:
        self._cluster = cluster
        self._spread = spread
        self._same_versions = same_versions
        self._slots: dict[tuple[str, str], Slot] = {}
        self._cells: list[Cell] = []
        self._open: list[Work] = []
        self._finished: list[str] = []
        """Ids of finished runs whose copies may still be on workers at the end."""
        self._saved_runs: dict[str, list[str]] = {}
        """Address of a worker -> ids of finished runs of which it may still have a copy."""
        self._former_machines: list[MachineProgress] = []
        self._software: dict[str, str] | None = None
        self._drawn_s = 0.0
        self._waits_since_s: float | None = None
        self._observer = Observer()
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
                elif event is not None and event.has_joined:
                    self._on_joined(event.address)
                elif event is not None:
                    self._on_left(event.address)
        finally:
            for slot in self._slots.values():
                if slot.work is not None:
                    self._cluster.cancel(slot.attempt)
            self._observer.machines(self.machines)
            self._cluster.forget(sorted({slot.address for slot in self._slots.values()}), self._finished)

    @property
    def machines(self) -> tuple[MachineProgress, ...]:
        """The state of each device of the cluster, then of lost ones."""
        current = (slot.progress("idle" if slot.work is None else "measuring") for slot in self._slots.values())
        return (*current, *self._former_machines)

    def _begin(self, track: Track) -> None:
        """Queue the rest of a track; a track without open points is finished."""
        cell = Cell(track=track, selector=track.plan.cell.device.selector)
        self._cells.append(cell)
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

    # Assignment.

    def _assign(self) -> None:
        free = {slot.selector for slot in self._slots.values() if slot.work is None}
        missing = {work.cell.selector for work in self._open} - {slot.selector for slot in self._slots.values()}
        if not free and not missing:
            return
        for work in list(self._open):
            cell = work.cell
            if work not in self._open or cell.selector not in free | missing:  # its cell was split, or has to wait
                continue
            slots = [slot for slot in self._slots.values() if slot.selector == cell.selector]
            willing = [slot for slot in slots if slot.address not in cell.refusals]
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
                slot.work, slot.attempt, slot.activity = work, uuid7(), cell_name(track.plan.cell)
                self._open.remove(work)
                order = Order(
                    plan=track.plan,
                    launches=work.launches,
                    finished=tuple(  # reduced to what the worker needs: which points are finished, and their status
                        dataclasses.replace(measured, samples=(), window={}, extra={}, doubts=(), metrics={})
                        for measured in track.measurements
                    ),
                    kept=tuple(self._saved_runs.pop(slot.address, ())),
                    device_wait_s=self._device_wait_s,
                )
                self._cluster.submit(slot.attempt, order, slot.address, slot.selector)
                if all(slot.work is not None for slot in slots):
                    free.discard(cell.selector)
            elif slots and not willing:
                self._open.remove(work)
                reasons = [cell.refusals[slot.address] for slot in slots]
                self._fail(work, slots[0], listed(reasons, MAX_LISTED_REASONS, "; "))
            elif willing and not alike:
                self._split(cell)
            elif not alike:
                self._wait(cell)
        if not missing or any(slot.work is not None for slot in self._slots.values()):
            self._waits_since_s = None

    def _wait(self, cell: Cell) -> None:
        """Wait for a worker with the device of a cell, within limits."""
        now_s, is_idle = time.monotonic(), all(slot.work is None for slot in self._slots.values())
        if not self._cluster.accepts_workers:
            if is_idle:
                raise WorkersLostError(
                    f"no worker with {cell.selector} is left in {self._cluster.address}: continue with --resume"
                )
            return
        if self._waits_since_s is None:
            self._waits_since_s = now_s
            self._observer.waiting(
                f"{cell_name(cell.track.plan.cell)}: no worker with {cell.selector} is left: waiting up to "
                f"{duration(WAIT_FOR_WORKER_S)} for one to join"
            )
        if now_s - self._waits_since_s > WAIT_FOR_WORKER_S and is_idle:
            raise WorkersLostError(
                f"no worker with {cell.selector} joined {self._cluster.address} within {duration(WAIT_FOR_WORKER_S)}: "
                "start one, then continue with --resume"
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
            f"{cell_name(track.plan.cell)}: no machine with the same hardware and software is left: {len(rest)} of its "
            "points continue as a separate run"
        )
        if rest:
            rest_track = Track(dataclasses.replace(track.plan, run_id=uuid7(), points=rest, skipped={}), track.folder)
            rest_track.begin()  # saved before the other run ends, or these points would be lost with it
            self._observer.added(rest_track)
            self._begin(rest_track)
        keep = tuple(point for point in track.plan.points if point not in rest)
        track.plan = dataclasses.replace(track.plan, points=keep)
        self._finish(cell)

    # Events.

    def _on_joined(self, address: str) -> None:
        """Handle a new worker: it takes part, unless its versions differ and this is refused."""
        offers = {} if any(known == address for known, _ in self._slots) else self._cluster.offers([address])
        for offer in offers.values():
            if self._same_versions and self._software not in (None, software(offer.provenance)):
                self._observer.waiting(
                    f"left out: worker {offer.worker}: its versions differ (--require-same-versions)"
                )
                return
            has = ", ".join(offered.device.selector for offered in offer.devices)
            self._observer.waiting(f"worker {offer.worker} joined: {has}")
        self._add(offers)

    def _add(self, offers: Mapping[str, Offer]) -> None:
        clocks = self._cluster.clocks(list(offers))
        for address, offer in offers.items():
            self._software = self._software or software(offer.provenance)
            for offered in offer.devices:
                slot = Slot(address=address, offer=offer, clock=clocks[address], offered=offered)
                self._slots[address, slot.selector] = slot

    def _on_left(self, address: str) -> None:
        """Handle a lost worker: its work is open again."""
        for key, slot in list(self._slots.items()):
            if slot.address != address:
                continue
            del self._slots[key]
            self._former_machines.append(slot.progress("left" if slot.work is None else "lost"))
            if slot.work is not None:
                self._cluster.cancel(slot.attempt)
                work = slot.work
                work.losses += 1
                name = f"worker {slot.offer.worker} was lost at {cell_name(work.cell.track.plan.cell)}"
                if work.losses >= MAX_LOSSES:
                    self._observer.waiting(f"{name}: giving up after losing {work.losses} workers")
                    self._fail(work, slot, f"{work.losses} workers were lost while measuring this cell")
                else:
                    self._observer.waiting(f"{name}: finished points are kept, the rest is reassigned")
                    self._reopen(work)

    def _reopen(self, work: Work) -> None:
        """Reopen work for another device of the same identity, or for any device if its cell has no results."""
        if not work.cell.track.measurements and not any(
            slot.work in work.cell.open_work for slot in self._slots.values()
        ):
            work.cell.identity = None
        self._open.insert(0, work)

    def _on_report(self, report: Report) -> None:
        """Save a record, show progress, or end the attempt; reports of attempts that are over are ignored."""
        slot = next((slot for slot in self._slots.values() if slot.attempt == report.attempt), None)
        if slot is None or (work := slot.work) is None:
            return
        track, record = work.cell.track, report.kept
        name = cell_name(track.plan.cell)
        if isinstance(record, Measurement):
            if (record.launch, record.point) not in [(known.launch, known.point) for known in track.measurements]:
                track.keep(record)
                slot.done += 1
                slot.failed += record.status != "ok"
                self._observer.measured(track, record)
        elif record is not None:
            if not isinstance(record, LaunchLoad) or record.launch not in {load.launch for load in track.loads}:
                track.keep(record)
        elif report.kind in ("done", "failed", "refused"):
            slot.work, slot.attempt = None, ""
            if report.kind == "done":
                self._close_work(work)
                return
            self._observer.waiting(f"{slot.offer.worker}: {name}: {report.text}")
            if report.kind == "refused":
                work.cell.refusals[slot.address] = report.text
                self._reopen(work)
            else:
                self._fail(work, slot, report.text)
        else:
            if report.kind == "waiting":
                self._observer.waiting(f"{slot.offer.worker}: {report.text}")
            elif report.kind == "preparing":
                self._observer.preparing(track, report.text)
            elif report.kind == "launch":
                self._observer.launch(track, report.launch)
            elif report.point is not None:
                self._observer.live(track, report.launch, report.point, report.live)
                name = f"{name}  {report.point.label}"
            slot.activity = name

    def _fail(self, work: Work, slot: Slot, why: str) -> None:
        """Record all open points of some work as failed."""
        for launch in work.launches:
            for point in work.cell.track.points_left(launch):
                failed = without_samples(point, launch, "failed", why)
                work.cell.track.keep(failed)
                slot.failed += 1
                self._observer.measured(work.cell.track, failed)
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
    """The plan of a cell for a worker, with its device, machine, versions and clock."""
    cluster_facts: dict[str, Json] = {CLUSTER: cluster, "cluster_worker": slot.offer.worker, **slot.clock}
    if plan.is_anonymous:  # both may contain names of hosts and users
        cluster_facts = {CLUSTER: cluster.partition(":")[0], **slot.clock}
    return dataclasses.replace(
        plan,
        cell=dataclasses.replace(plan.cell, device=slot.offered.device),
        hardware=slot.offered.hardware,
        environment=slot.offer.environment | Readings(values=cluster_facts),
        provenance=dataclasses.replace(
            slot.offer.provenance,
            host=slot.offer.provenance.host if plan.provenance.host else "",
            command=plan.provenance.command,
            tags=plan.provenance.tags,
            description=plan.provenance.description,
        ),
    )
