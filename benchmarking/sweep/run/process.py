"""Worker processes as the supervisor sees them, and the messages between the two.

Each message is one line of JSON: the supervisor sends the job, the worker sends the rest.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any, TypeVar, get_args

from benchmarking.core.child_process import ENDING_SIGNALS, ending, kill_tree, module_command, start
from benchmarking.core.errors import BenchhouseError, FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.profiles import CallProfile, ProfileSettings
from benchmarking.core.quality import Quality, QualitySettings
from benchmarking.core.records import (
    Cell,
    Json,
    LaunchLoad,
    Measurement,
    Point,
    Preparation,
    Rebuild,
    Requests,
    StandIn,
    Status,
    dumps,
    from_json,
)
from benchmarking.core.text import visible
from benchmarking.core.untrusted.redaction import end_of_log, without_secrets
from benchmarking.measure.context import Live, Settings
from benchmarking.measure.request_loop import LoopSettings, ScenarioSettings

LOG = logging.getLogger(__name__)

LAST_LINE_LENGTH = 500
"""Maximum characters of its last line that are shown."""

MAX_LOGGED_BYTES = 1_000_000
"""Maximum bytes logged of a process's output between two messages."""

END_TIMEOUT_S = 10.0
"""A worker that does not exit within this time after its last message is killed."""

OWN_SIGNAL_S = 0.2
"""A signal to the whole process group ends the sweep rather than the point, and reaches this process within this
time."""


OUT_OF_TIME = "not finished in the time left"
"""Why a worker was ended at the time that ends everything its cell does."""


class WorkerLostError(Exception):
    """A worker could not load its model, ended, or exceeded its time limit and was killed, before its work was done;
    the text says how."""

    def __init__(
        self, why: str, status: Status = "failed", *, was_killed: bool = False, load: LoadFailed | None = None
    ) -> None:
        super().__init__(why)
        self.status = status
        """timed_out or failed."""
        self.was_killed = was_killed
        """Whether a signal ended it: it ran out of memory, or a user killed it."""
        self.load = load
        """What the worker said of a model that it could not load or build; None if it was lost."""


class WorkerProcess:
    """A worker and its job; a context manager that cleans up all its processes.

    A thread reads the messages, so that waiting for one can have a time limit on every platform.
    """

    def __init__(self, job: Job | PreparationJob) -> None:
        module, launch = ("preparation", 0) if isinstance(job, PreparationJob) else ("worker", job.launch)
        if isinstance(job, Job):
            job = dataclasses.replace(job, spawned_at_ns=time.monotonic_ns())
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._logged_bytes = 0
        self._messages: queue.Queue[str | None] = queue.Queue()
        self._process = start(
            module_command(f"benchmarking.sweep.run.{module}"),
            stdin=subprocess.PIPE,
            stderr=self._stderr,
            variables={"BENCHHOUSE_LAUNCH": str(launch)},
        )
        self.pid = self._process.pid
        threading.Thread(target=self._listen, daemon=True).start()
        assert self._process.stdin is not None
        # stdin stays open: the worker exits when it closes. The pipe breaks if the worker has died already; `messages`
        # then tells why.
        with suppress(BrokenPipeError):
            self._process.stdin.write(encode(job))
            self._process.stdin.flush()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log_printed(is_over=True)
        self._stderr.close()

    def messages(
        self,
        limit_s: float | None,
        renewed_by: type[object] | tuple[type[object], ...] = object,
        ends_s: float = math.inf,
    ) -> Iterator[Message]:
        """Its messages. Each arrives within the time limit, counted from the last one of a kind of `renewed_by`, at
        first from now, and before the time `ends_s`. Raises WorkerLostError, also when the worker says that it cannot
        load its model."""
        since_s = time.monotonic()
        while True:
            until_s = min(ends_s, math.inf if limit_s is None else since_s + limit_s)
            try:
                wait_s = None if until_s == math.inf else max(0.0, until_s - time.monotonic())
                line = self._messages.get(timeout=wait_s)
            except queue.Empty:
                self.kill()
                why = OUT_OF_TIME if until_s == ends_s else f"not finished within the time limit of {limit_s:g} s"
                raise WorkerLostError(why, "timed_out") from None
            self._log_printed(is_over=line is None)
            if line is None:
                raise self.lost()
            message = decode(line)
            if isinstance(message, LoadFailed):
                raise WorkerLostError(message.error, load=message)
            if isinstance(message, renewed_by):
                since_s = time.monotonic()
            yield message

    def lost(self) -> WorkerLostError:
        """The error of a worker that ended, or sent an unexpected message: how it ended, with its last line on
        stderr."""
        status = self.exit_status()
        how = f"was killed by {ending(status)}" if status < 0 else f"ended with {ending(status)}"
        if -status in (getattr(signal, name, None) for name in ENDING_SIGNALS):
            time.sleep(OWN_SIGNAL_S)
        if status == -signal.SIGTERM or status == -getattr(signal, "SIGKILL", 9):
            how += " (out of memory, or killed by a user)"
        lines = end_of_log(self._stderr).strip().splitlines()
        last = visible(lines[-1].strip())[:LAST_LINE_LENGTH] if lines else ""
        why = f"the worker {how}" + (f": {last}" if last else "")
        return WorkerLostError(why, was_killed=status < 0)

    def _log_printed(self, *, is_over: bool) -> None:
        """Log the lines printed by the process since the last message; an incomplete line only once it `is_over`."""
        if not LOG.isEnabledFor(logging.DEBUG) or not hasattr(
            os, "pread"
        ):  # a seek would move the process's own file offset
            return
        text = os.pread(self._stderr.fileno(), MAX_LOGGED_BYTES, self._logged_bytes)
        whole = len(text) if is_over or len(text) == MAX_LOGGED_BYTES else text.rfind(b"\n") + 1
        self._logged_bytes += whole
        for line in without_secrets(text[:whole].decode(errors="replace")).splitlines():
            LOG.debug("process %d: %s", self.pid, line)

    def kill(self) -> None:
        """Kill the process and those it started."""
        if self._process.poll() is None:
            kill_tree(self.pid)
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # the unsent rest has no reader
                    pipe.close()

    def exit_status(self) -> int:
        """The exit code, negative for a signal; kills a worker that does not exit."""
        try:
            return self._process.wait(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._messages.put(line)
        self._messages.put(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job of a worker: to measure points."""

    cell: Cell
    launch: int
    points: tuple[Point, ...]
    settings: Settings
    spawned_at_ns: int = 0
    """`time.monotonic_ns()` just before the process was started; all processes share that clock."""
    preparation: Preparation | None = None
    with_quality: bool = False
    """Whether to measure the quality after the points."""
    only_quality: bool = False
    """Whether the points are only what the model is loaded for, and nothing but the quality is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileJob(Job):
    """To profile the single point instead."""

    profile: ProfileSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioJob(Job):
    """To let loadgen test the single point instead."""

    scenario: ScenarioSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopJob(Job):
    """To run an open or closed loop over the points instead."""

    loop: LoopSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationJob:
    cell: Cell
    points: tuple[Point, ...]
    rebuild: Rebuild
    build: Mapping[str, Json] | None = None
    """The build of an earlier process of the same preparation; None if it is still to be made."""
    with_references: bool = True
    """Whether to make reference outputs too."""
    timeout_s: float | None = None
    """Time limit of each reference."""
    reference_s: float | None = None
    """Time beyond which a smaller point's reference stands for a point's own; None: as the time limit says."""
    quality: QualitySettings | None = None
    """What to make the reference of the quality for; None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """The preparing process starts a step."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The build that the runtime loads is complete."""

    build: Mapping[str, Json]
    """As in `Preparation.build`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Referenced:
    """The reference output of a point is complete, or cannot be made: exactly one of `digest` and `why_not` is None."""

    label: str
    digest: str | None = None
    """Digest of the build with the reference output."""
    stand_in: StandIn | None = None
    """The smaller point that the reference is of; None if it is the point's own."""
    why_not: str | None = None
    ends_process: bool = False
    """Whether the process makes no further references: it ran out of memory or lost its device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReferenced:
    """The reference of the quality is complete, or cannot be made: exactly one of the two is None."""

    digest: str | None = None
    why_not: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The preparing process is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointStarted:
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityStarted:
    """The worker has measured its points and begins with the quality."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailed:
    """The model could not be loaded; no point can be measured."""

    error: str
    traceback: str | None = None
    """Of a bug; None for an expected error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """The profile of the job's point, or the error. One of the two is None."""

    call: CallProfile | None = None
    error: str | None = None
    traceback: str | None = None
    """Of a bug; None for an expected error."""


SLOTS = "slots"
"""The number of calls that a loop ran at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """The requests of a load test, or the error. One of `requests` and `error` is None."""

    requests: Requests | None = None
    figures: Mapping[str, Json] = field(default_factory=dict)
    """loadgen's figures, by the keys of its detailed log; of a loop `SLOTS`."""
    window: Mapping[str, Json] = field(default_factory=dict)
    """The activity of the machine and the device during the test: see `measure.machine_state.Window`."""
    error: str | None = None
    traceback: str | None = None
    """Of a bug; None for an expected error."""


Answer = TypeVar("Answer", Profiled, Tested)
"""What a worker that does not measure answers."""
Message = (
    (Preparing | Built | Referenced | QualityReferenced | Prepared)
    | (PointStarted | Live | LaunchLoad | Measurement | QualityStarted | Quality)
    | (LoadFailed | Profiled | Tested)
)
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Job, ProfileJob, ScenarioJob, LoopJob, PreparationJob, *get_args(Message))
}


def ends_worker(measurement: Measurement) -> bool:
    """Whether a process stops after this failure: it ran out of memory or lost its device."""
    return measurement.extra.get("out_of_memory", False) or measurement.extra.get("device_lost", False)


def encode(message: Job | PreparationJob | Message) -> str:
    return f'{{"{type(message).__name__}":{dumps(message)}}}\n'


def decode(line: str) -> Any:
    """The job or message in a line. Raises FormatError for any other line."""
    try:
        ((name, data),) = json.loads(line).items()
        kind = _KINDS[name]
    except (ValueError, KeyError, AttributeError) as error:
        raise FormatError(f"not a message of a worker: {line[:80]!r}") from error
    return from_json(kind, data)


def attended(job: Job, kind: type[Answer], timeout_s: float | None) -> tuple[LaunchLoad, Answer]:
    """The load and the single answer of a worker, each within the time limit. Raises BenchhouseError otherwise."""
    load: LaunchLoad | None = None
    try:
        with WorkerProcess(job) as worker:
            for message in worker.messages(timeout_s):
                if isinstance(message, LaunchLoad):
                    load = message
                elif isinstance(message, kind) and load is not None:
                    return load, message
                else:
                    break
            raise worker.lost()
    except WorkerLostError as lost:
        if lost.status != "timed_out":
            raise BenchhouseError(str(lost)) from lost
        what = "loaded" if load is None else "profiled" if kind is Profiled else "tested"
        raise BenchhouseError(f"{job.cell.subject} was not {what} within {timeout_s:g} s: raise --timeout") from None
