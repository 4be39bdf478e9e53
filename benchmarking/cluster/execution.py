"""Executes orders on a worker, each a plan as data, one at a time per device.

A coordinator calls `execute`, which Dask finds by name in this installation. Plans pass the same checks as unfinished
runs, and cannot run anything else.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarking.cluster.messages import (
    OFFER,
    Done,
    Kept,
    News,
    Offer,
    OfferedDevice,
    Order,
    Report,
    packed,
    read_order,
    report_text,
)
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.provenance import Owner
from benchmarking.core.records import (
    Device,
    LaunchLoad,
    Measurement,
    Point,
    Preparation,
    WeightsChoice,
    Workload,
    dumps,
)
from benchmarking.devices.support.kinds import free_memory
from benchmarking.measure.bench import Live
from benchmarking.sweep.plan.foreign_code import check_read_plan
from benchmarking.sweep.plan.plan import CellPlan, Machine
from benchmarking.sweep.run import spool
from benchmarking.sweep.run.spool import PartialRun
from benchmarking.sweep.run.supervisor import Observer, Track, run_launch
from benchmarking.workloads.support.resolve import resolve

OF_FILES = ("hub", "local", "file")
"""Sources of models that a worker must have on its own disk."""
SAME = {"source": "source", "config_hash": "configuration", "revision": "revision", "weights": "kind of weights"}
"""Fields of a workload that must be equal on a worker -> their names in messages."""
NEWS_S = 1.0
"""Minimum seconds between two messages about the current point."""


class OrderEnded(Exception):  # noqa: N818 - not an error: the result is no longer needed
    """The coordinator has cancelled the order, or is gone."""


@dataclass(slots=True, kw_only=True)
class Site:
    """This process as a worker."""

    name: str
    devices: tuple[Device, ...]
    folder: Path
    """Folder of the runs in progress."""
    named: Mapping[str, object]
    """The arguments of its command, which name the code that plans may run."""
    say: Callable[[str], None]
    is_leaving: bool = False
    """Whether the process is shutting down; orders then stop at their next message."""

    def offer(self) -> Offer:
        """The current offer of this worker."""
        machine = Machine()
        return Offer(
            worker=self.name,
            provenance=machine.provenance((), {}, None),
            environment=machine.environment,
            devices=tuple(
                OfferedDevice(device=one, hardware=machine.hardware(one), free=free_memory(one)) for one in self.devices
            ),
        )


_site: Site | None = None
_folder_lock = threading.Lock()


def set_up(site: Site) -> None:
    """Make this process a worker."""
    global _site
    _site = site


def offer_text() -> str | None:
    """For a coordinator: the offer of this worker as JSON; None in other Dask workers."""
    return None if _site is None else packed(OFFER, _site.offer())


def clock_s() -> float:
    """For a coordinator: this machine's time in Unix seconds."""
    return time.time()


def forget(run_ids: Sequence[str]) -> None:
    """For a coordinator: delete the copies of runs that it has saved, except files in use by another process."""
    if _site is None:
        return
    with _folder_lock:
        for file in spool.unfinished(_site.folder):
            with suppress(BenchhouseError):  # an unreadable file is kept for inspection
                progress = file.read()
                if progress.plan.run_id in run_ids and not _is_in_use(progress.owner):
                    file.remove()


def execute(text: str) -> str:
    """For a coordinator: execute an order, and report each record once it is on this machine's disk.

    Errors are part of the result. An order that this worker refuses is not started.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state in ("executing", "long-running")

    try:
        order = read_order(text)
        site = _site
        if site is None:
            raise UsageError("this process is not a benchhouse worker: start one with benchhouse worker")
        reports = Reports(order, lambda line: worker.log_event(order.topic, line))
        observer = Reporter(site, reports, is_wanted)
        observer.looking_for(order.plan.cell.workload)
        plan = accepted(order.plan, site)
    except OrderEnded:
        return dumps(Done(records=0, is_withdrawn=True))
    except BenchhouseError as error:
        return dumps(Done(records=0, error=str(error), is_refused=True))
    return dumps(_carried_out(plan, order, site, reports, observer))


def _carried_out(plan: CellPlan, order: Order, site: Site, reports: Reports, observer: Reporter) -> Done:
    """Measure the order's launches."""
    try:
        track = WorkerTrack.opened(plan, order, site.folder, reports)
        track.begin()
        for launch in order.launches:
            run_launch(track, launch, observer, order.device_wait_s)
    except OrderEnded:
        site.say(f"stopped: {order.plan.cell.subject}{'' if site.is_leaving else ' (cancelled by the coordinator)'}")
        return Done(records=reports.records, is_withdrawn=True)
    except BenchhouseError as error:
        return Done(records=reports.records, error=str(error))
    return Done(records=reports.records)


def accepted(plan: CellPlan, site: Site) -> CellPlan:
    """The plan adapted to this machine. Raises UsageError, FormatError or UnsupportedError if it may not or cannot
    run."""
    check_read_plan(plan, site.named, f"the plan that worker {site.name} was sent")
    cell = plan.cell
    if cell.device not in site.devices:
        has = ", ".join(device.selector for device in site.devices)
        raise UnsupportedError(f"worker {site.name} has no device {cell.device.selector} as planned; it has {has}")
    workload = cell.workload
    if workload.source == "module":
        _check_script(workload, site)
    if workload.source not in OF_FILES:
        return plan
    # The path of the hub's cache differs between machines, but its content must be equal.
    weights: WeightsChoice = "random" if workload.weights == "random" else "pretrained"
    place = workload.model_id if workload.source == "hub" else workload.path or workload.model_id
    try:
        here = resolve(place, task=workload.task, weights=weights, seed=workload.seed)
    except BenchhouseError as error:
        where = "in its cache" if workload.source == "hub" else f"at {place}"
        why = str(error).removeprefix(f"--model-id {place}: ")
        raise UsageError(f"worker {site.name} needs {workload.model_id} {where}: {why}") from error
    for name, word in SAME.items():
        planned, found = getattr(workload, name), getattr(here, name)
        if planned != found:
            raise UsageError(
                f"worker {site.name}: {word} of {workload.model_id}: expected {planned}, found {found}: copy the same "
                "files to both machines"
            )
    here = dataclasses.replace(here, model_id=workload.model_id, weights_reason=workload.weights_reason)
    return dataclasses.replace(plan, cell=dataclasses.replace(cell, workload=here))


def _check_script(workload: Workload, site: Site) -> None:
    """Run the script of a plan here, unless the inputs of its models are in this machine's cache. Raises UsageError if
    the script is missing or has other models here."""
    from benchmarking.scripts.analysis import ScriptRequest, analyse
    from benchmarking.workloads.support.given_modules import given_module, has_inputs

    about, path = given_module(workload), Path(workload.path or "")
    if not path.is_file():
        raise UsageError(f"worker {site.name} has no script {path}: copy it to the same path")
    if has_inputs(workload):
        return
    found = analyse(ScriptRequest(path=str(path), arguments=about.script_arguments, max_depth=about.max_depth))
    if found.error is not None:
        raise UsageError(f"worker {site.name}: {path.name}: {found.error}")
    here = {module.number: module for module in found.modules}.get(about.number)
    if here is None or (here.hash, here.identity) != (about.hash, about.identity) or not has_inputs(workload):
        raise UsageError(
            f"worker {site.name}: model {about.number} of {path.name} or its inputs differ there: use fixed seeds, and "
            "the same files and versions on both machines"
        )


class Reports:
    """Sends the reports of an attempt."""

    def __init__(self, order: Order, send: Callable[[str], None]) -> None:
        self.records = 0
        self._attempt = order.attempt
        self._send = send

    def keep(self, record: Kept) -> None:
        """Send a record that is saved here."""
        self._send(report_text(Report(attempt=self._attempt, number=self.records, kept=record)))
        self.records += 1

    def send_news(self, news: News) -> None:
        """Send a progress message."""
        self._send(report_text(Report(attempt=self._attempt, number=self.records, news=news)))


class WorkerTrack(Track):
    """A cell on a worker: every record is saved on this machine, then sent to the coordinator."""

    reports: Reports

    @classmethod
    def opened(cls, plan: CellPlan, order: Order, folder: Path, reports: Reports) -> WorkerTrack:
        """The track of an order. Records of an earlier attempt of this worker that the coordinator lacks are sent first
        rather than measured again. Raises StorageError."""
        with _folder_lock:
            files = {file.read().plan.run_id: file for file in spool.unfinished(folder)}
            for run_id in order.kept:
                if (file := files.pop(run_id, None)) is not None:
                    file.remove()
        known = {(one.point.label, one.launch) for one in order.settled}
        track = cls(plan, folder, measurements=order.settled)
        track.reports = reports
        if (file := files.get(plan.run_id)) is not None:
            track.take_over(file, known)
        return track

    def take_over(self, file: PartialRun, known: set[tuple[str, int]]) -> None:
        """Continue in the file of an earlier attempt."""
        progress = file.read()
        if _is_in_use(progress.owner) or _place(progress.plan) != _place(self.plan):
            return  # the device or installation has changed, so its points are measured again in a new file
        file.mend()
        file.take()
        self._file = file
        for load in progress.loads:
            self.reports.keep(load)
        for one in progress.measurements:
            if (one.point.label, one.launch) not in known:
                self.measurements.append(one)
                self.reports.keep(one)

    def keep(self, record: Preparation | LaunchLoad | Measurement) -> None:
        super().keep(record)
        self.reports.keep(record)


def _is_in_use(owner: Owner | None) -> bool:
    """Whether another process writes a file."""
    return owner is not None and owner.pid != os.getpid() and owner.is_alive()


def _place(plan: CellPlan) -> tuple[object, ...]:
    """The fields that must be equal for launches of the same run."""
    about = plan.provenance
    return plan.cell, plan.hardware.hardware_id, dict(about.versions), about.git_commit


class Reporter(Observer):
    """Sends the progress of an order, and ends the order when its result is no longer needed."""

    def __init__(self, site: Site, reports: Reports, is_wanted: Callable[[], bool]) -> None:
        self._site = site
        self._reports = reports
        self._is_wanted = is_wanted
        self._told_s = 0.0

    def looking_for(self, workload: Workload) -> None:
        """Report that a model of the hub may have to be downloaded, which takes long."""
        if workload.source == "hub":
            self._send_news(News(kind="preparing", text=f"looking for {workload.model_id} in the cache and on the hub"))

    def preparing(self, track: Track, what: str) -> None:
        self._send_news(News(kind="preparing", text=what))

    def launch(self, track: Track, launch: int) -> None:
        self._send_news(News(kind="launch", launch=launch))

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        self._check()
        if live is None or time.monotonic() - self._told_s >= NEWS_S:
            self._send_news(News(kind="live", launch=launch, point=point, live=live))

    def measured(self, track: Track, measurement: Measurement) -> None:
        outcome = "" if measurement.status == "ok" else f": {measurement.error}"
        self._site.say(f"{track.plan.cell.subject}  {measurement.point.label}  {measurement.status}{outcome}")
        self._check()

    def waiting(self, message: str) -> None:
        self._send_news(News(kind="waiting", text=message))

    def _send_news(self, news: News) -> None:
        self._check()
        self._told_s = time.monotonic()
        self._reports.send_news(news)

    def _check(self) -> None:
        if self._site.is_leaving or not self._is_wanted():
            raise OrderEnded
