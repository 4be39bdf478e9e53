"""The measuring process: loads a cell, measures its points, and sends a line for each.

It ends with its supervisor.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import io
import json
import os
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import IO

from benchmarking.core import plugins
from benchmarking.core.command_line import shows_tracebacks
from benchmarking.core.contracts import Operation, Runtime, Session
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, OutOfMemoryError, is_device_lost
from benchmarking.core.profiles import ProfileSettings
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import (
    FAILED,
    NOT_RUN,
    NOT_SUPPORTED,
    Cell,
    Json,
    LaunchLoad,
    Measurement,
    Point,
    Readings,
    from_json,
)
from benchmarking.devices.support.binding import affinity, bind, memory_by_node
from benchmarking.runtimes.support.lookup import open_device
from benchmarking.sweep.run.process import (
    SLOTS,
    Job,
    LoadFailed,
    Message,
    PointStarted,
    Profiled,
    Tested,
    encode,
    ends_worker,
)

PR_SET_PDEATHSIG = 1

MAX_ERROR_CHARACTERS = 500


Send = Callable[[Message], None]


def main() -> int:
    """Do the job read from stdin. Messages go to the original stdout, all other output to stderr."""
    home = claim_stdout()
    line = sys.stdin.readline()
    started_ns = time.monotonic_ns()
    end_with_supervisor()
    job = from_json(Job, json.loads(line), "job")
    work(job, home, spawn_s=(started_ns - job.spawned_at_ns) / 1e9)
    gc.freeze()  # skips the final garbage collection, which takes a second with torch
    return 0


def work(job: Job, home: IO[str], spawn_s: float) -> None:
    """Load, then measure the points in order, until done, out of memory, or the device is lost."""

    def send(message: Message) -> None:
        home.write(encode(message))
        home.flush()

    try:
        stages = Stages(spawn_s)
        session, handle = load(job, stages, send)
    except Exception as error:  # noqa: BLE001 - whatever a model's code raises must become a stored reason
        send(LoadFailed(error=error_text(error), traceback=error_traceback(error)))
        return
    if job.profile is not None or job.scenario is not None or job.loop is not None:
        send(profiled(job, session, handle, job.profile) if job.profile is not None else tested(job, session, handle))
        session.close()
        handle.close()
        return
    from benchmarking.sweep.run.budget import Budget

    gc.collect()
    gc.freeze()  # excludes loaded objects from the collections at every point, which would take half a second
    spawned_ns = job.spawned_at_ns + stages.waited_ns
    budget = Budget(job.settings, job.points, spawned_ns)
    for index, point in enumerate(job.points):
        send(PointStarted(label=point.label))
        if (why := budget.why_skipped()) is not None:
            send(_skipped(job, budget.skip(), why))
            continue
        now = dataclasses.replace(job, settings=budget.next_settings())
        since_spawn_ns = spawned_ns if index == 0 else None
        measurement = budget.record(measure(now, session, handle, point, send, since_spawn_ns), now.settings)
        send(measurement)
        if ends_worker(measurement):
            return  # leftovers in memory or on the device would affect the next points, which get a fresh process
        gc.collect()
        handle.empty_cache()
    session.close()
    handle.close()


def _skipped(job: Job, point: Point, why: str) -> Measurement:
    """A point for which the budget has no time, with the command that measures it."""
    workload = job.cell.workload
    flags: dict[str, object] = {
        "--model-id": workload.model_id,
        "--device": job.cell.requested_device,
        "--runtime": job.cell.runtime,
        "--precision": job.cell.precision,
        "--batch-sizes": point.batch_size,
        "--sequence-lengths": point.sequence_length,
        "--new-tokens": point.new_tokens,
        "--iterations": 1,
    }
    command = " ".join(f"{name} {shlex.quote(str(value))}" for name, value in flags.items() if value is not None)
    error = f"{why}; to measure it: run_hardware_benchmark {command} --save"
    now = utc_now()
    return Measurement(
        point=point,
        launch=job.launch,
        status="skipped",
        error=error,
        started_at=now,
        finished_at=now,
        missing={"latency_median_ms": f"{NOT_RUN}: {why}"},
    )


class Stages:
    """Seconds of each stage of the load; the device is synchronized at the end of each."""

    def __init__(self, spawn_s: float) -> None:
        self.seconds: dict[str, float] = {"spawn": spawn_s}
        self.handle: DeviceHandle | None = None
        self.waited_ns = 0
        """Time during the load that was spent on something else."""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start_ns = self._now_ns()
        with without_gc() if name == "import" else nullcontext():
            yield
        if self.handle is not None:
            self.handle.synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + (self._now_ns() - start_ns) / 1e9

    def _now_ns(self) -> int:
        return time.perf_counter_ns() if self.handle is None else self.handle.now_ns()


@contextmanager
def without_gc() -> Iterator[None]:
    """Inside, garbage collection is off, and objects alive at the end are exempt from it: scanning the permanent
    objects that imports create takes an eighth of the import time of torch and transformers."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def load(job: Job, stages: Stages, send: Send) -> tuple[Session, DeviceHandle]:
    """Load the model and open its device; sends the times and memory of the load."""
    from benchmarking.measure import memory

    cell = job.cell
    if cell.cpu_list is not None:
        bind(cell.cpu_list)  # before the imports, since libraries count processors at import
    runtime: Runtime = plugins.load("benchmarking.runtimes", cell.runtime)
    device = plugins.load("benchmarking.devices", cell.device.type)
    with stages("import"):
        runtime.import_libraries()
    taken = memory.reset_peak_rss() | _renamed(memory.rss_bytes(), "rss_base_bytes")
    with stages("device_init"):
        handle = open_device(runtime, device, cell.device)
        handle.synchronize()
    stages.handle = handle
    idle_w = _idle_power_w(job, handle, stages)
    session = runtime.open(cell, handle, stages, job.points)
    taken |= _load_peak(session)
    taken |= _sizes(job, session)
    verified = {**session.verified, **_processors(cell), **idle_w, "parameter_count": session.parameter_count}
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


def _idle_power_w(job: Job, handle: DeviceHandle, stages: Stages) -> dict[str, Json]:
    """For `verified`: the device's idle power before the model is loaded, in the first launch. The wait for it does not
    count as load time."""
    from benchmarking.measure.energy import idle_power_w

    if job.launch > 0:
        return {}
    started_ns = time.monotonic_ns()
    found = idle_power_w(handle, job.settings)
    stages.waited_ns = time.monotonic_ns() - started_ns
    return {"idle_power_before_load_w": found} if found else {}


def _load_peak(session: Session) -> Readings:
    """`peak_rss_load_bytes` of this process, if it holds the model."""
    from benchmarking.measure import memory

    if session.resident_bytes() is not None:
        why = f"{NOT_SUPPORTED}: the model is in other processes, which were started during its load"
        return Readings(missing={"peak_rss_load_bytes": why})
    return _renamed(memory.peak_rss_bytes(), "peak_rss_load_bytes")


def _sizes(job: Job, session: Session) -> Readings:
    """`weights_bytes` in memory; and `model_size_bytes` of the loaded files, else of the build, else
    `weights_bytes`."""
    of_build = None if job.preparation is None else job.preparation.build.get("size_bytes")
    size = session.verified.get("model_size_bytes", of_build)
    known = {
        "weights_bytes": session.weights_bytes,
        "model_size_bytes": session.weights_bytes if size is None else size,
    }
    values = {name: value for name, value in known.items() if value is not None}
    why = f"{NOT_SUPPORTED}: runtime {job.cell.runtime} does not report it"
    return Readings(values=values, missing={name: why for name in known if name not in values})


def _processors(cell: Cell) -> Mapping[str, Json]:
    """The processors that the process may use; if it was bound, also the NUMA nodes of its memory."""
    memory = memory_by_node() if cell.cpu_list is not None else Readings()
    return (affinity() | memory).values


def measure(
    job: Job, session: Session, handle: DeviceHandle, point: Point, send: Send, since_spawn_ns: int | None
) -> Measurement:
    """The measurement of a point, or its failure with the reason."""
    from benchmarking.core.errors import always_after
    from benchmarking.measure.point import measure_point
    from benchmarking.sweep.run.output_check import Check

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
                device=job.cell.device,
                report=send,
                compile_count=None if session.compiles() is None else session.compiles,
                check=check,
            )
    except Exception as error:  # noqa: BLE001 - a point that raises costs that point and is stored with its reason
        return _failure(job, point, started_at, error, is_device_lost(error) or not handle.answers())
    return _with_time_to_ready(check.with_work(measurement), ready_s)


def profiled(job: Job, session: Session, handle: DeviceHandle, settings: ProfileSettings) -> Profiled:
    """The profile of the job's point, or its failure with the reason."""
    from benchmarking.sweep.run.profiling import profile_in_worker

    try:
        return Profiled(call=profile_in_worker(job, session, handle, settings))
    except Exception as error:  # noqa: BLE001 - whatever a model or profiler raises must become the command's error
        return Profiled(error=error_text(error), traceback=error_traceback(error))


def tested(job: Job, session: Session, handle: DeviceHandle) -> Tested:
    """The load test of the job's points by loadgen or a loop, or its failure with the reason."""
    from benchmarking.core.errors import always_after
    from benchmarking.measure.loadgen import run_scenario
    from benchmarking.measure.request_loop import run_loop

    batch_size = job.points[0].batch_size
    slots = batch_size if session.batches_calls else 1
    try:
        with ExitStack() as opened:

            def operation_at(point: Point) -> Operation:
                operation = session.operation(point)
                opened.enter_context(always_after(operation.close))
                return operation

            if job.loop is not None:
                batch_size //= slots
                points = [dataclasses.replace(point, batch_size=batch_size) for point in job.points]
                operations = [[operation_at(point) for point in points] for _ in range(slots)]
                requests = run_loop(operations, handle.synchronize, batch_size, job.loop, job.launch)
                return Tested(requests=requests, figures={SLOTS: slots})
            assert job.scenario is not None
            (point,) = job.points
            requests, figures = run_scenario(operation_at(point), handle.synchronize, point, job.scenario, job.launch)
            return Tested(requests=requests, figures=figures)
    except Exception as error:  # noqa: BLE001 - whatever a model raises costs this repetition and is stored
        return Tested(error=error_text(error), traceback=error_traceback(error))


def _failure(job: Job, point: Point, started_at: str, error: Exception, lost: bool) -> Measurement:
    is_out_of_memory = isinstance(error, OutOfMemoryError | MemoryError)
    return Measurement(
        point=point,
        launch=job.launch,
        status="failed",
        error=error_text(error),
        started_at=started_at,
        finished_at=utc_now(),
        missing={"latency_median_ms": FAILED},
        extra={"out_of_memory": is_out_of_memory, "device_lost": lost, "traceback": error_traceback(error)},
    )


def _with_time_to_ready(measurement: Measurement, ready_s: float | None) -> Measurement:
    """Add the time from process start to the end of the first call, for the first point of a process."""
    if ready_s is None or measurement.first_call_ms is None:
        return measurement
    metrics = {**measurement.metrics, "time_to_ready_s": ready_s + measurement.first_call_ms / 1e3}
    return dataclasses.replace(measurement, metrics=metrics)


def _renamed(readings: Readings, name: str) -> Readings:
    """A single reading, or the reason why it is missing, under another name."""
    for value in readings.values.values():
        return Readings(values={name: value})
    return Readings(missing=dict.fromkeys([name], *readings.missing.values()))


def error_traceback(error: Exception) -> str | None:
    """The traceback of a bug; None for an expected error, unless BENCHHOUSE_TRACEBACK=1 asks for it."""
    is_expected = isinstance(error, BenchhouseError) and not shows_tracebacks()
    return None if is_expected else "".join(traceback.format_exception(error))


def error_text(error: Exception) -> str:
    text = " ".join(str(error).split())
    text = text if isinstance(error, BenchhouseError) and text else f"{type(error).__name__}: {text}"
    return text if len(text) <= MAX_ERROR_CHARACTERS else text[: MAX_ERROR_CHARACTERS - 3] + "..."


def claim_stdout() -> IO[str]:
    """The pipe to the supervisor, protected from printing libraries: file descriptor 1 becomes a second stderr."""
    private = os.dup(1)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # output appears immediately with --log-level debug
    return os.fdopen(private, "w", encoding="utf-8")


def end_with_supervisor() -> None:
    """End this process when stdin closes, which happens no matter how the supervisor ends.

    Ctrl-C is left to the supervisor. On Linux the kernel also kills the process, since a call that holds the GIL would
    block the watching thread.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_exit_at_end_of_stdin, daemon=True).start()


def _exit_at_end_of_stdin() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
