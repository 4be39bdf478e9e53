"""What a worker executes: orders, each a plan as data, one at a time on each device.

`execute` is the one function that a coordinator names; Dask finds it by its name in this installation. The plan goes
through the reader of unfinished runs, and runs only what that reader lets run.
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
"""Fields of a workload that must be equal on a worker, and their words."""
NEWS_S = 1.0
"""Between two messages about a point that is being measured."""


class OrderEnded(Exception):  # noqa: N818 - no error: nobody waits for the result
    """The coordinator has withdrawn the order, or is gone."""


@dataclass(slots=True, kw_only=True)
class Site:
    """This process as a worker."""

    name: str
    devices: tuple[Device, ...]
    folder: Path
    """Of the runs in progress."""
    named: Mapping[str, object]
    """The arguments of its command: the code that plans may run."""
    say: Callable[[str], None]
    is_leaving: bool = False
    """Whether the process is about to end: orders stop at their next message."""

    def offer(self) -> Offer:
        """What it has, as of now."""
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
    """For a coordinator: what this worker has, as JSON; None in a Dask worker that is not one of benchhouse."""
    return None if _site is None else packed(OFFER, _site.offer())


def clock_s() -> float:
    """For a coordinator: this machine's time in Unix seconds."""
    return time.time()


def forget(run_ids: Sequence[str]) -> None:
    """For a coordinator: delete the copies of runs that it has on disk. One that another process writes is left."""
    if _site is None:
        return
    with _folder_lock:
        for file in spool.unfinished(_site.folder):
            with suppress(BenchhouseError):  # a file that cannot be read is for a person to look at
                progress = file.read()
                if progress.plan.run_id in run_ids and not _is_in_use(progress.owner):
                    file.remove()


def execute(text: str) -> str:
    """For a coordinator: carry out an order, and report each record as soon as it is on this machine's disk.

    What goes wrong is in the result: an order that this worker refuses never runs.
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
            raise UsageError("this process is no worker of benchhouse: start one with benchhouse worker")
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
        site.say(f"stopped: {order.plan.cell.subject}{'' if site.is_leaving else ' is no longer wanted'}")
        return Done(records=reports.records, is_withdrawn=True)
    except BenchhouseError as error:
        return Done(records=reports.records, error=str(error))
    return Done(records=reports.records)


def accepted(plan: CellPlan, site: Site) -> CellPlan:
    """The plan as it runs here. Raises UsageError, FormatError or UnsupportedError for one that may not or cannot."""
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
    # The hub's cache is elsewhere on each machine; what is in it must be the same.
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
                f"worker {site.name}: {workload.model_id} has another {word} there, {found} instead of {planned}: "
                "give both machines the same files"
            )
    here = dataclasses.replace(here, model_id=workload.model_id, weights_reason=workload.weights_reason)
    return dataclasses.replace(plan, cell=dataclasses.replace(cell, workload=here))


def _check_script(workload: Workload, site: Site) -> None:
    """Run the script of a plan here, where the inputs of its models are not in this machine's cache. Raises UsageError
    for a script that is not here, or that has other models here."""
    from benchmarking.scripts.analysis import ScriptRequest, analyse
    from benchmarking.workloads.support.given_modules import given_module, has_inputs

    about, path = given_module(workload), Path(workload.path or "")
    if not path.is_file():
        raise UsageError(f"worker {site.name} has no script {path}: copy it to the same place")
    if has_inputs(workload):
        return
    found = analyse(ScriptRequest(path=str(path), arguments=about.script_arguments, max_depth=about.max_depth))
    if found.error is not None:
        raise UsageError(f"worker {site.name}: {path.name}: {found.error}")
    here = {module.number: module for module in found.modules}.get(about.number)
    if here is None or (here.hash, here.identity) != (about.hash, about.identity) or not has_inputs(workload):
        raise UsageError(
            f"worker {site.name}: {path.name} makes another model {about.number} there, or calls it with other values: "
            "give it fixed seeds, and both machines the same files and versions"
        )


class Reports:
    """Sends the reports of an attempt."""

    def __init__(self, order: Order, send: Callable[[str], None]) -> None:
        self.records = 0
        self._attempt = order.attempt
        self._send = send

    def keep(self, record: Kept) -> None:
        """Send a record that is on disk here."""
        self._send(report_text(Report(attempt=self._attempt, number=self.records, kept=record)))
        self.records += 1

    def tell(self, news: News) -> None:
        """Send news."""
        self._send(report_text(Report(attempt=self._attempt, number=self.records, news=news)))


class WorkerTrack(Track):
    """A cell on a worker: every record goes to this machine's disk, then to the coordinator."""

    reports: Reports

    @classmethod
    def opened(cls, plan: CellPlan, order: Order, folder: Path, reports: Reports) -> WorkerTrack:
        """The track of an order. What an earlier attempt of this worker has on disk and the coordinator has not is
        sent first, and not measured again. Raises StorageError."""
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
        """Go on in the file of an earlier attempt."""
        progress = file.read()
        if _is_in_use(progress.owner) or _place(progress.plan) != _place(self.plan):
            return  # another device or installation by now: its points are measured again in a new file
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
    """What is equal for plans whose launches may stand in one run."""
    about = plan.provenance
    return plan.cell, plan.hardware.hardware_id, dict(about.versions), about.git_commit


class Reporter(Observer):
    """Sends the progress of an order, and ends it when nobody waits for its result."""

    def __init__(self, site: Site, reports: Reports, is_wanted: Callable[[], bool]) -> None:
        self._site = site
        self._reports = reports
        self._is_wanted = is_wanted
        self._told_s = 0.0

    def looking_for(self, workload: Workload) -> None:
        """A model of the hub may have to be fetched, which takes long."""
        if workload.source == "hub":
            self._tell(News(kind="preparing", text=f"looking for {workload.model_id} in the cache and on the hub"))

    def preparing(self, track: Track, what: str) -> None:
        self._tell(News(kind="preparing", text=what))

    def launch(self, track: Track, launch: int) -> None:
        self._tell(News(kind="launch", launch=launch))

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        self._check()
        if live is None or time.monotonic() - self._told_s >= NEWS_S:
            self._tell(News(kind="live", launch=launch, point=point, live=live))

    def measured(self, track: Track, measurement: Measurement) -> None:
        outcome = "" if measurement.status == "ok" else f": {measurement.error}"
        self._site.say(f"{track.plan.cell.subject}  {measurement.point.label}  {measurement.status}{outcome}")
        self._check()

    def waiting(self, message: str) -> None:
        self._tell(News(kind="waiting", text=message))

    def _tell(self, news: News) -> None:
        self._check()
        self._told_s = time.monotonic()
        self._reports.tell(news)

    def _check(self) -> None:
        if self._site.is_leaving or not self._is_wanted():
            raise OrderEnded
