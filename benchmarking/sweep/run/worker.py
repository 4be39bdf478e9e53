"""The measuring process: loads one cell once, measures its points, sends a line for each.

It never outlives its supervisor.

The check of a point's output in the worker: against the reference that was prepared for it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any
from zipfile import BadZipFile

from benchmarking.builds.store import BuildStore
from benchmarking.core import plugins
from benchmarking.core.contracts import DeviceHandle, Runtime, Session
from benchmarking.core.doubts import doubt
from benchmarking.core.errors import BenchhouseError, OutOfMemoryError
from benchmarking.core.ids import utc_now
from benchmarking.core.records import (
    FAILED,
    NOT_APPLICABLE,
    NOT_RUN,
    NOT_SUPPORTED,
    Cell,
    Family,
    Json,
    LaunchLoad,
    Measurement,
    Point,
    Precision,
    Readings,
    from_json,
)
from benchmarking.devices.support.binding import bind, in_force, memory_in_force
from benchmarking.measure.correctness import about_difference, compare
from benchmarking.measure.memory import PassResult
from benchmarking.measure.point import Checked
from benchmarking.runtimes.support.devices import open_device
from benchmarking.sweep.run.process import Job, LoadFailed, Message, PointStarted, encode
from benchmarking.sweep.run.reference import is_reference, load_reference, needs_reference, reference_flops

PR_SET_PDEATHSIG = 1

MAX_ERROR_CHARACTERS = 500


Send = Callable[[Message], None]


def main() -> int:
    """Do the job that comes on stdin. Messages go to what was stdout; stdout itself is joined with stderr."""
    home = claim_stdout()
    line = sys.stdin.readline()
    started_ns = time.monotonic_ns()
    end_with_supervisor()
    job = from_json(Job, json.loads(line), "job")
    work(job, home, spawn_s=(started_ns - job.spawned_at_ns) / 1e9)
    return 0


def work(job: Job, home: IO[str], spawn_s: float) -> None:
    """Load, then measure point after point until done or out of memory."""

    def send(message: Message) -> None:
        home.write(encode(message))
        home.flush()

    try:
        stages = Stages(spawn_s)
        session, handle = load(job, stages, send)
    except Exception as error:  # noqa: BLE001 - whatever a model's code raises must become a stored reason
        send(LoadFailed(error=error_text(error), traceback=error_traceback(error)))
        return
    for index, point in enumerate(job.points):
        send(PointStarted(label=point.label))
        measurement = measure(
            job, session, handle, point, send, since_spawn_ns=job.spawned_at_ns if index == 0 else None
        )
        send(measurement)
        if measurement.extra.get("out_of_memory"):
            return  # what is left in memory would spoil the next points: they get a fresh process
        gc.collect()
        handle.empty_cache()
    session.close()
    handle.close()


class Stages:
    """The seconds of each stage of the load, the device synced at the end of each."""

    def __init__(self, spawn_s: float) -> None:
        self.seconds: dict[str, float] = {"spawn": spawn_s}
        self.handle: DeviceHandle | None = None

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start_ns = self._now_ns()
        yield
        if self.handle is not None:
            self.handle.synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + (self._now_ns() - start_ns) / 1e9

    def _now_ns(self) -> int:
        return time.perf_counter_ns() if self.handle is None else self.handle.now_ns()


def load(job: Job, stages: Stages, send: Send) -> tuple[Session, DeviceHandle]:
    """The loaded model and its device; sends what it took."""
    from benchmarking.measure import memory

    cell = job.cell
    if cell.cpu_list is not None:
        bind(cell.cpu_list)  # before the imports: libraries count the processors while they are imported
    runtime: Runtime = plugins.load("benchmarking.runtimes", cell.runtime)
    device = plugins.load("benchmarking.devices", cell.device.type)
    with stages("import"):
        runtime.import_libraries()
    taken = memory.reset_peak_rss() | _renamed(memory.rss_bytes(), "rss_base_bytes")
    with stages("device_init"):
        handle = open_device(runtime, device, cell.device)
        handle.synchronize()
    stages.handle = handle
    session = runtime.open(cell, handle, stages, job.points)
    taken |= _load_peak(session)
    taken |= _sizes(job, session)
    verified = {**session.verified, **_processors(cell), "parameter_count": session.parameter_count}
    memory_bytes = {name: value for name, value in taken.values.items() if isinstance(value, int)}
    send(
        LaunchLoad(
            launch=job.launch,
            stages_s=stages.seconds,
            memory_bytes=memory_bytes,
            verified=verified,
            missing=taken.missing,
        )
    )
    return session, handle


def _load_peak(session: Session) -> Readings:
    """`peak_rss_load_bytes` of the process that holds the model, when it is this one."""
    from benchmarking.measure import memory

    if session.resident_bytes() is not None:
        why = f"{NOT_SUPPORTED}: the model is in other processes, which started with its load"
        return Readings(missing={"peak_rss_load_bytes": why})
    return _renamed(memory.peak_rss_bytes(), "peak_rss_load_bytes")


def _sizes(job: Job, session: Session) -> Readings:
    """`weights_bytes` as they lie in memory; `model_size_bytes`: of what was loaded, else the build's, else these."""
    of_build = None if job.preparation is None else job.preparation.build.get("size_bytes")
    size = session.verified.get("model_size_bytes", of_build)
    known = {
        "weights_bytes": session.weights_bytes,
        "model_size_bytes": session.weights_bytes if size is None else size,
    }
    values = {name: value for name, value in known.items() if value is not None}
    why = f"{NOT_SUPPORTED}: runtime {job.cell.runtime} does not tell"
    return Readings(values=values, missing={name: why for name in known if name not in values})


def _processors(cell: Cell) -> Mapping[str, Json]:
    """What the loaded process may use of the host; where it was bound, also on which nodes its memory came to lie."""
    memory = memory_in_force() if cell.cpu_list is not None else Readings()
    return (in_force() | memory).values


def measure(
    job: Job, session: Session, handle: DeviceHandle, point: Point, send: Send, since_spawn_ns: int | None
) -> Measurement:
    """The point's measurement, or its failure with the reason."""
    from benchmarking.measure.point import measure_point
    from benchmarking.runtimes.support.devices import always_after

    started_at = utc_now()
    try:
        check = Check.of(job, point)
        operation = session.operation(point)
        ready_s = None if since_spawn_ns is None else (time.monotonic_ns() - since_spawn_ns) / 1e9
        with always_after(operation.close):
            measurement = measure_point(
                operation,
                handle,
                point,
                job.launch,
                job.settings,
                report=send,
                compile_count=None if session.compiles() is None else session.compiles,
                check=check,
            )
    except Exception as error:  # noqa: BLE001 - a point that raises costs that point and is stored with its reason
        return _failure(job, point, started_at, error)
    return _with_time_to_ready(check.with_work(measurement), ready_s)


def _failure(job: Job, point: Point, started_at: str, error: Exception) -> Measurement:
    return Measurement(
        point=point,
        launch=job.launch,
        status="failed",
        error=error_text(error),
        started_at=started_at,
        finished_at=utc_now(),
        missing={"latency_median_ms": FAILED},
        extra={"out_of_memory": isinstance(error, OutOfMemoryError | MemoryError), "traceback": error_traceback(error)},
    )


def _with_time_to_ready(measurement: Measurement, ready_s: float | None) -> Measurement:
    """Spawn to the end of the first call, which only the first point of a process has."""
    if ready_s is None or measurement.first_call_ms is None:
        return measurement
    metrics = {**measurement.metrics, "time_to_ready_s": ready_s + measurement.first_call_ms / 1e3}
    return dataclasses.replace(measurement, metrics=metrics)


def _renamed(readings: Readings, name: str) -> Readings:
    """A single reading, or the reason why there is none, under another name."""
    for value in readings.values.values():
        return Readings(values={name: value})
    return Readings(missing=dict.fromkeys([name], *readings.missing.values()))


def error_traceback(error: Exception) -> str | None:
    """Where a bug is; None for trouble that was foreseen."""
    return None if isinstance(error, BenchhouseError) else "".join(traceback.format_exception(error))


def error_text(error: Exception) -> str:
    text = " ".join(str(error).split())
    text = text if isinstance(error, BenchhouseError) and text else f"{type(error).__name__}: {text}"
    return text if len(text) <= MAX_ERROR_CHARACTERS else text[: MAX_ERROR_CHARACTERS - 3] + "..."


def claim_stdout() -> IO[str]:
    """The pipe home, out of reach of libraries that print: file descriptor 1 becomes a second stderr."""
    private = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(private, "w", encoding="utf-8")


def end_with_supervisor() -> None:
    """End this process when the supervisor's end of stdin closes, which it does however the supervisor ends.

    Ctrl-C is the supervisor's business. On Linux the kernel is asked too, since a call that holds the interpreter's
    lock would keep the watching thread waiting.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_exit_at_end_of_stdin, daemon=True).start()


def _exit_at_end_of_stdin() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


COLUMNS = ("output_error", "output_max_abs_error", "output_cosine_similarity", "output_equal_token_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Compares outputs at one point; called with the output's arrays."""

    precision: Precision
    family: Family | None
    digest: str | None
    """Of the reference; None without one."""
    why_not: str | None
    """Why there is none."""
    is_wanted: bool
    """False where there cannot be one, so that its absence is no doubt."""

    @classmethod
    def of(cls, job: Job, point: Point) -> Check:
        """The check of a job's point."""
        digest = None if job.preparation is None else job.preparation.references.get(point.label)
        return cls(
            precision=job.cell.precision,
            family=job.cell.workload.family,
            digest=digest,
            why_not=None if digest is not None else _why_not(job, point),
            is_wanted=needs_reference(job.cell),
        )

    def __call__(self, arrays: Mapping[str, Any]) -> Checked:
        if self.digest is None:
            return self._without(self.why_not or NOT_RUN)
        if not arrays:
            return self._without(f"{NOT_SUPPORTED}: the call gives nothing that could be compared")
        try:
            reference = load_reference(BuildStore(), self.digest)
        except OSError as error:
            return self._without(f"{FAILED}: the reference is gone from the cache ({error.strerror or error})")
        except (ValueError, BadZipFile) as error:
            return self._without(f"{FAILED}: the reference in the cache is damaged ({error})")
        comparison = compare(arrays, reference)
        readings = comparison.readings()
        metrics = {name: float(value) for name, value in readings.values.items() if isinstance(value, int | float)}
        by_array = {name: dict(errors) for name, errors in comparison.by_array.items()}
        return Checked(
            result=PassResult(
                metrics=metrics,
                missing=dict(readings.missing),
                extra={"output_errors": by_array} if len(by_array) > 1 else {},
            ),
            doubts=about_difference(comparison, self.precision, self.family),
        )

    def with_work(self, measurement: Measurement) -> Measurement:
        """The measurement with the `flops` of the reference, where its runtime was asked for its own and has none. A
        call computes them for each of its requests."""
        if self.digest is None or "flops" not in measurement.missing:
            return measurement
        flops = reference_flops(BuildStore(), self.digest)
        if flops is None:
            return measurement
        return dataclasses.replace(
            measurement,
            metrics={**measurement.metrics, "flops": flops * measurement.point.concurrency},
            missing={name: why for name, why in measurement.missing.items() if name != "flops"},
            extra={**measurement.extra, "flops_source": "reference"},
        )

    def _without(self, why: str) -> Checked:
        return Checked(
            result=PassResult(missing=dict.fromkeys(COLUMNS, why)),
            doubts=(doubt("not_compared", why=why),) if self.is_wanted else (),
        )


def _why_not(job: Job, point: Point) -> str:
    if job.preparation is not None and point.label in job.preparation.missing:
        return job.preparation.missing[point.label]
    if needs_reference(job.cell):
        return NOT_RUN
    if is_reference(job.cell):
        return f"{NOT_APPLICABLE}: it is the reference"
    return f"{NOT_APPLICABLE}: runtime {job.cell.runtime} has no reference"


if __name__ == "__main__":
    sys.exit(main())
