"""A worker process as the supervisor sees it: messages with a time limit, and an end that always comes.

What a supervisor and its worker say to each other: one JSON line each, the job down, the messages up.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from benchmarking.core.child_process import module_command, start
from benchmarking.core.errors import FormatError
from benchmarking.core.records import Cell, Json, LaunchLoad, Measurement, Point, Preparation, Rebuild, dumps, from_json
from benchmarking.measure.bench import Live
from benchmarking.measure.settings import Settings

STDERR_TAIL_BYTES = 4000

END_TIMEOUT_S = 10.0

"""A worker that has said its last word and does not end in this time is killed."""


class TimeLimitError(Exception):
    """No message came in time."""


class WorkerProcess:
    """A worker at its job; a context manager that leaves no process behind.

    A thread that sleeps in `read` brings the messages, so that the supervisor's own wait can have a limit everywhere.
    """

    def __init__(self, job: Job | PreparationJob) -> None:
        module, launch = ("worker", job.launch) if isinstance(job, Job) else ("preparation_worker", 0)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._messages: queue.Queue[str | None] = queue.Queue()
        self._process = start(
            module_command(f"benchmarking.sweep.run.{module}"),
            stdin=subprocess.PIPE,
            stderr=self._stderr,
            further={"BENCHHOUSE_LAUNCH": str(launch)},
        )
        self.pid = self._process.pid
        threading.Thread(target=self._listen, daemon=True).start()
        self._say(dumps(job) + "\n")

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._stderr.close()

    def receive(self, deadline_s: float | None) -> Message | None:
        """The next message; None when the worker has ended. Raises TimeLimitError at `deadline_s` (monotonic clock)."""
        try:
            wait_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            line = self._messages.get(timeout=wait_s)
        except queue.Empty:
            raise TimeLimitError from None
        return None if line is None else decode(line)

    def kill(self) -> None:
        """End the process, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what was still unsaid has no reader any more
                    pipe.close()

    def exit_status(self) -> int:
        """How it ended: the exit code, negative for a signal."""
        try:
            return self._process.wait(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def why_it_ended(self) -> str:
        """The end in words, with the last line it left on stderr."""
        status = self.exit_status()
        how = f"killed by {_signal_name(-status)}" if status < 0 else f"ended with exit code {status}"
        if status == -signal.SIGTERM or status == -getattr(signal, "SIGKILL", 9):
            how += " (by the system, for lack of memory, or by a user)"
        lines = self.stderr_tail().strip().splitlines()
        return f"the worker was {how}" + (f": {lines[-1].strip()}" if lines else "")

    def stderr_tail(self) -> str:
        """The end of what it wrote to stderr."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - STDERR_TAIL_BYTES))
        return self._stderr.read().decode(errors="replace")

    def _say(self, line: str) -> None:
        """Send the job; stdin stays open, since its end tells the worker that the supervisor is gone."""
        assert self._process.stdin is not None
        # One that died at once breaks the pipe: `receive` then gives None, and `why_it_ended` the reason.
        with suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._messages.put(line)
        self._messages.put(None)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one worker is to do."""

    cell: Cell
    launch: int
    points: tuple[Point, ...]
    settings: Settings
    spawned_at_ns: int
    """`time.monotonic_ns()` just before the process was started: the clock is the machine's, not the process's."""
    preparation: Preparation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationJob:
    """What a preparing process is to do."""

    cell: Cell
    points: tuple[Point, ...]
    rebuild: Rebuild


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """The preparing process turns to a part of its work."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What the runtime loads is there."""

    build: Mapping[str, Json]
    """As `Preparation.build` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Referenced:
    """What a point's output is compared with is there, or cannot be had. One of the two is None."""

    label: str
    digest: str | None = None
    """Of the build with the reference's outputs."""
    why_not: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The preparing process is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointStarted:
    """The worker turns to a point."""

    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailed:
    """The model could not be loaded; no point can be measured."""

    error: str
    traceback: str | None = None
    """Of a bug; None for trouble that was foreseen."""


OfPreparation = Preparing | Built | Referenced | Prepared

Message = OfPreparation | PointStarted | Live | LoadFailed | LaunchLoad | Measurement

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Preparing, Built, Referenced, Prepared),
        *(PointStarted, Live, LoadFailed, LaunchLoad, Measurement),
    )
}


def encode(message: Message) -> str:
    """The message as one line."""
    return f'{{"{type(message).__name__}":{dumps(message)}}}\n'


def decode(line: str) -> Message:
    """The message of a line. Raises FormatError for a line that is none."""
    try:
        ((name, data),) = json.loads(line).items()
        kind = _KINDS[name]
    except (ValueError, KeyError, AttributeError) as error:
        raise FormatError(f"not a worker's message: {line[:80]!r}") from error
    message: Message = from_json(kind, data)
    return message
