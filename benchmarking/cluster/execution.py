"""Executes orders on a worker, each a plan as data, one at a time per device; and the messages that carry them.

A coordinator calls `execute`, which Dask finds by name in this installation. Plans pass the same checks as unfinished
runs, and cannot run anything else.

The messages between a coordinator and its workers are offers, orders and reports, each a JSON text. Dask transports
these texts. It pickles its own messages, which is why a cluster needs TLS. Everything that benchhouse sends is text,
parsed here by the same readers as untrusted files.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from benchmarking import __version__
from benchmarking.core.errors import (
    BenchhouseError,
    FormatError,
    LockedError,
    StorageError,
    UnsupportedError,
    UsageError,
)
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.quality import Quality
from benchmarking.core.records import (
    Device,
    Hardware,
    LaunchLoad,
    Measurement,
    Point,
    Preparation,
    Provenance,
    Readings,
    WeightsChoice,
    Workload,
    dumps,
    from_json,
    to_json,
)
from benchmarking.core.untrusted.redaction import expanded, redacted
from benchmarking.devices.support.host import FREE, TOTAL
from benchmarking.measure.context import Live
from benchmarking.sweep.plan.plan import CellPlan, Machine, check_loaded_plan
from benchmarking.sweep.run import spool
from benchmarking.sweep.run.spool import PartialRun, Record
from benchmarking.sweep.run.supervisor import Observer, Track, run_launch
from benchmarking.workloads.support.given_modules import given_module, has_inputs
from benchmarking.workloads.support.graph_file import choices_of
from benchmarking.workloads.support.resolve import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedDevice:
    """A device offered by a worker, and its machine as described in run files."""

    device: Device
    hardware: Hardware
    free: Readings
    """Its free memory, as needed for planning."""

    @property
    def free_bytes(self) -> float:
        """Its free memory, or all of it; infinite if neither is known."""
        known = self.free.values.get(FREE, self.free.values.get(TOTAL))
        return known if isinstance(known, int) else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    worker: str
    """Its name in the cluster."""
    provenance: Provenance
    """Its program version, host, commit and versions, without a command."""
    environment: Readings
    """The state of its machine."""
    devices: tuple[OfferedDevice, ...]


def software(provenance: Provenance) -> dict[str, str]:
    """The versions of a machine's packages, and its commit."""
    return {**provenance.versions, "commit": provenance.git_commit or "none"}


Identity = tuple[str, dict[str, str]]


def identity(hardware: Hardware, provenance: Provenance) -> Identity:
    """Equal for machines whose launches may be part of the same run: same hardware, same software."""
    return hardware.hardware_id, software(provenance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The work of one attempt: launches of one cell on one device of one worker."""

    plan: CellPlan
    launches: tuple[int, ...]
    finished: tuple[Measurement, ...] = ()
    """The results of the cell that the coordinator already has, without samples."""
    quality: Quality | None = None
    """The cell's quality, if the coordinator has it."""
    saved: tuple[str, ...] = ()
    """Ids of runs that the coordinator has saved, whose copies the worker may delete."""
    device_wait_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A message about an attempt, in the order in which they were sent. The last one is how it ended, unless its worker
    is leaving, or the attempt was cancelled."""

    attempt: str
    kind: Literal["record", "preparing", "launch", "live", "waiting", "done", "failed", "refused", "broken"]
    """refused: nothing was started, so that another worker may be able to; broken: this worker cannot keep what it
    measures, as on a full disk."""
    kept: Preparation | LaunchLoad | Measurement | Quality | None = None
    """Of a record, which goes unchanged to the run file; that is redacted when it is written."""
    text: str = ""
    """What is prepared or waited for, or why it failed or was refused."""
    launch: int = 0
    point: Point | None = None
    live: Live | None = None


Message = TypeVar("Message", Offer, Order, Report)
NAMES = {Offer: "its offer", Order: "the order", Report: "the report of a worker"}


def message_text(message: Offer | Order | Report) -> str:
    """The text of a message. Offers and orders begin with the program's version, and have no names of home folders."""
    if isinstance(message, Report):
        return dumps(message)
    return json.dumps({"benchhouse": __version__, "content": redacted(to_json(message))}, allow_nan=False)


def read_message(kind: type[Message], text: str) -> Message:
    """The message in a text. Raises FormatError, and UnsupportedError for the offer or order of another version of the
    program."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError, TypeError) as error:
        raise FormatError(f"not JSON: {error}") from error
    if kind is Report:
        return from_json(kind, data, NAMES[kind])
    if not isinstance(data, dict) or not isinstance(version := data.get("benchhouse"), str):
        raise FormatError("not a message of a benchhouse cluster")
    if version != __version__:
        here = f"this {'worker' if kind is Order else 'command'} is benchhouse {__version__}"
        raise UnsupportedError(f"{NAMES[kind]} is from benchhouse {version}, {here}: install the same version")
    return from_json(kind, expanded(data.get("content")), NAMES[kind])


FILE_SOURCES = ("hub", "local", "file")
"""Sources of models that a worker must have on its own disk."""
CHECKED_FIELDS = {
    "source": "source",
    "config_hash": "configuration",
    "revision": "revision",
    "weights": "kind of weights",
}
"""Fields of a workload that must be equal on a worker -> their names in messages."""
PROGRESS_INTERVAL_S = 1.0
"""Minimum seconds between two messages about the current point."""


class OrderCancelled(Exception):  # noqa: N818 - not an error: the result is no longer needed
    """The coordinator has cancelled the order, or is gone; or this worker is leaving, which is the empty text."""


class BrokenWorkerError(StorageError):
    """This worker cannot write its run files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """This process as a worker: the attribute `benchhouse` of Dask's."""

    name: str
    devices: tuple[Device, ...]
    folder: Path
    """Folder of the runs in progress."""
    arguments: Mapping[str, object]
    """The arguments of its command, which name the code that plans may run."""
    say: Callable[[str], None]

    def offer(self) -> Offer:
        machine = Machine()
        return Offer(
            worker=self.name,
            provenance=machine.provenance((), {}, None),
            environment=machine.environment,
            devices=tuple(
                OfferedDevice(device=device, hardware=machine.hardware(device), free=machine.free_memory(device))
                for device in self.devices
            ),
        )

    def copies(self, saved: Collection[str]) -> dict[str, PartialRun]:
        """The runs in progress by id, without those that the coordinator has saved, whose files are deleted."""
        found = {}
        for file in spool.unfinished(self.folder):
            with suppress(BenchhouseError):  # an unreadable file is kept for inspection, one in use for its process
                run_id = file.read().plan.run_id
                if run_id not in saved:
                    found[run_id] = file
                elif file.hold():
                    file.remove()
        return found


def offer_text(dask_worker: Any = None) -> str | None:
    """For a coordinator: the offer of this worker as JSON; None in other Dask workers."""
    context: WorkerContext | None = getattr(dask_worker, "benchhouse", None)
    return None if context is None else message_text(context.offer())


def clock_s() -> float:
    """For a coordinator: this machine's time in Unix seconds."""
    return time.time()


def forget(run_ids: Sequence[str], dask_worker: Any = None) -> None:
    """For a coordinator: delete the copies of runs that it has saved."""
    dask_worker.benchhouse.copies(run_ids)


def execute(topic: str, text: str) -> None:
    """For a coordinator: execute an order, and report each record to `topic` once it is on this machine's disk. The
    attempt is the key of the task; its last report says how it ended."""
    from distributed import get_worker

    reporter = Reporter(get_worker(), topic)
    context, outcome = reporter.context, "refused"
    try:
        order = read_message(Order, text)
        workload = order.plan.cell.workload
        if workload.source == "hub":  # it may have to be downloaded, which takes long
            reporter.progress("preparing", text=f"looking for {workload.model_id} in the cache and on the hub")
        plan = adapt_plan(order.plan, context)
        outcome = "failed"
        with closing(WorkerTrack.open(plan, order, reporter)) as track:
            track.begin()
            for launch in order.launches:
                run_launch(track, launch, reporter, order.device_wait_s)
        reporter.report("done")
    except OrderCancelled as by:
        context.say(f"stopped: {order.plan.cell.subject}{by}")
    except BenchhouseError as error:
        reporter.report("broken" if isinstance(error, BrokenWorkerError) else outcome, text=str(error))


def adapt_plan(plan: CellPlan, context: WorkerContext) -> CellPlan:
    """The plan adapted to this machine. Raises UsageError, FormatError or UnsupportedError if it may not or cannot
    run."""
    check_loaded_plan(plan, context.arguments, f"the plan that worker {context.name} was sent")
    cell = plan.cell
    if cell.device not in context.devices:
        has = ", ".join(device.selector for device in context.devices)
        raise UnsupportedError(f"worker {context.name} has no device {cell.device.selector} as planned; it has {has}")
    workload = cell.workload
    if workload.source == "module":
        _check_script(workload, context)
    if workload.source not in FILE_SOURCES:
        return plan
    # The path of the hub's cache differs between machines, but its content must be equal.
    weights: WeightsChoice = "random" if workload.weights == "random" else "pretrained"
    weights = "auto" if workload.source == "file" else weights  # a file has the weights that it has
    name_or_path = workload.model_id if workload.source == "hub" else workload.path or workload.model_id
    try:
        graph = choices_of(workload)
        local = resolve(name_or_path, task=workload.task, weights=weights, seed=workload.seed, graph=graph)
    except BenchhouseError as error:
        where = "in its cache" if workload.source == "hub" else f"at {name_or_path}"
        why = str(error).removeprefix(f"MODEL {name_or_path}: ")
        raise UsageError(f"worker {context.name} needs {workload.model_id} {where}: {why}") from error
    for name, word in CHECKED_FIELDS.items():
        planned, found = getattr(workload, name), getattr(local, name)
        if planned != found:
            raise UsageError(
                f"worker {context.name}: {word} of {workload.model_id}: expected {planned}, found {found}: copy the "
                "same files to both machines"
            )
    local = dataclasses.replace(local, model_id=workload.model_id, weights_reason=workload.weights_reason)
    return dataclasses.replace(plan, cell=dataclasses.replace(cell, workload=local))


def _check_script(workload: Workload, context: WorkerContext) -> None:
    """Run the script of a plan here, unless the inputs of its models are in this machine's cache. Raises UsageError if
    the script is missing or has other models here."""
    from benchmarking.scripts.analysis import ScriptRequest, analyse

    given, path = given_module(workload), Path(workload.path or "")
    if not path.is_file():
        raise UsageError(f"worker {context.name} has no script {path}: copy it to the same path")
    if has_inputs(workload):
        return
    found = analyse(
        ScriptRequest(
            path=str(path), arguments=given.script_arguments, max_depth=given.max_depth, batch_size=given.batch_size
        )
    )
    if found.error is not None:
        raise UsageError(f"worker {context.name}: {path.name}: {found.error}")
    local = {module.number: module for module in found.modules}.get(given.number)
    if local is None or (local.hash, local.identity) != (given.hash, given.identity) or not has_inputs(workload):
        raise UsageError(
            f"worker {context.name}: model {given.number} of {path.name} or its inputs differ there: use fixed seeds, "
            "and the same files and versions on both machines"
        )


class Reporter(Observer):
    """Sends the reports of the current task of a Dask worker, and ends it when its result is no longer needed."""

    def __init__(self, worker: Any, topic: str) -> None:
        self.context: WorkerContext = worker.benchhouse
        self._worker = worker
        self._topic = topic
        self._attempt = worker.get_current_task()
        self._sent_s = 0.0

    def report(self, kind: Any, **content: Any) -> None:
        """Send a report, whose fields are `content`."""
        self._worker.log_event(self._topic, message_text(Report(attempt=self._attempt, kind=kind, **content)))

    def progress(self, kind: Any, **content: Any) -> None:
        """Send a report of progress. Raises OrderCancelled."""
        self._check()
        self._sent_s = time.monotonic()
        self.report(kind, **content)

    def preparing(self, track: Track, what: str) -> None:
        self.progress("preparing", text=what)

    def launch(self, track: Track, launch: int) -> None:
        self.progress("launch", launch=launch)

    def live(self, track: Track, launch: int, point: Point, live: Live | None) -> None:
        self._check()
        if live is None or time.monotonic() - self._sent_s >= PROGRESS_INTERVAL_S:
            self.progress("live", launch=launch, point=point, live=live)

    def measured(self, track: Track, measurement: Measurement) -> None:
        outcome = "" if measurement.status == "ok" else f": {measurement.error}"
        self.context.say(f"{track.plan.cell.subject}  {measurement.point.label}  {measurement.status}{outcome}")
        self._check()

    def waiting(self, message: str) -> None:
        self.progress("waiting", text=message)

    def _check(self) -> None:
        if self._worker.status.name in ("closing", "closed"):
            raise OrderCancelled
        task = self._worker.state.tasks.get(self._attempt)
        if task is None or task.state not in ("executing", "long-running"):
            raise OrderCancelled(" (cancelled by the coordinator)")


class WorkerTrack(Track):
    """A cell on a worker: every record is saved on this machine, then sent to the coordinator."""

    reporter: Reporter

    @classmethod
    def open(cls, plan: CellPlan, order: Order, reporter: Reporter) -> WorkerTrack:
        """The track of an order. Records of an earlier attempt of this worker that the coordinator lacks are sent first
        rather than measured again, unless its device or installation has changed since. Raises StorageError."""
        folder = reporter.context.folder
        file = reporter.context.copies(order.saved).get(plan.run_id)
        track = cls(plan, folder, measurements=order.finished, quality=order.quality)
        track.reporter = reporter
        with suppress(LockedError):
            if file is not None and file.hold():
                progress = file.read()
                now, before = ((one.cell, identity(one.hardware, one.provenance)) for one in (plan, progress.plan))
                if now != before:
                    file.release()
                    return track
                with track._writing():
                    file.take_over(progress)
                track._file, track.quality = file, order.quality or progress.quality
                known = {(one.point.label, one.launch) for one in order.finished}
                lacking = [one for one in progress.measurements if (one.point.label, one.launch) not in known]
                track.measurements += lacking
                for record in (*progress.loads, progress.quality, *lacking):
                    if record is not None:
                        reporter.report("record", kept=record)
        return track

    def begin(self) -> None:
        with self._writing():
            super().begin()

    def keep(self, record: Record) -> None:
        with self._writing():
            super().keep(record)
        self.reporter.report("record", kept=record)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            if isinstance(problem := error.__cause__, OSError):
                why = problem.strerror or problem
                raise BrokenWorkerError(f"cannot write to {self.folder}: {why}") from error
            raise
