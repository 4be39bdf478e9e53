"""The measuring process: loads a cell, measures its points, and sends a line for each.

It ends with its supervisor.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from benchmarking.core import plugins
from benchmarking.core.axes import AXES
from benchmarking.core.child_process import at_end_of_stdin, claimed_stdout
from benchmarking.core.command_line import shows_tracebacks
from benchmarking.core.contracts import Operation, Session
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, always_after, is_device_lost, is_out_of_memory
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import FAILED, NOT_RUN, NOT_SUPPORTED, LaunchLoad, Measurement, Point, Readings
from benchmarking.core.text import cut_off
from benchmarking.devices.support.binding import affinity, bind, memory_by_node
from benchmarking.devices.support.handles import open_device
from benchmarking.devices.support.system_values import last_xid
from benchmarking.measure.request_loop import run_loop, run_scenario
from benchmarking.sweep.run.process import (
    SLOTS,
    Job,
    LoadFailed,
    LoopJob,
    Message,
    PointStarted,
    Profiled,
    ProfileJob,
    QualityStarted,
    ScenarioJob,
    Tested,
    decode,
    encode,
    ends_worker,
)

PR_SET_PDEATHSIG = 1

MAX_ERROR_CHARACTERS = 500


Send = Callable[[Message], None]


def main() -> int:
    """Do the job read from stdin. Messages go to the original stdout, all other output to stderr."""
    send, line = connect()
    started_ns = time.monotonic_ns()
    job: Job = decode(line)
    work(job, send, spawn_s=(started_ns - job.spawned_at_ns) / 1e9)
    gc.freeze()  # skips the final garbage collection, which takes a second with torch
    return 0


def work(job: Job, send: Send, spawn_s: float) -> None:
    """Load, then measure the points in order, until done, out of memory, or the device is lost; or profile or test
    them."""
    try:
        stages = Stages(spawn_s)
        session, handle = load(job, stages, send)
    except Exception as error:  # noqa: BLE001 - whatever a model's code raises must become a stored reason
        send(LoadFailed(error=error_text(error), traceback=error_traceback(error)))
        return
    if isinstance(job, ProfileJob | ScenarioJob | LoopJob):
        send(answered(job, session, handle))
        session.close()
        handle.close()
        return
    from benchmarking.sweep.run.budget import Budget

    gc.collect()
    gc.freeze()  # excludes loaded objects from the collections at every point, which would take half a second
    spawned_ns = job.spawned_at_ns + stages.waited_ns
    budget = Budget(job.settings, job.points, spawned_ns)
    for index, point in enumerate(() if job.only_quality else job.points):
        send(PointStarted(label=point.label))
        if (why := budget.why_skipped()) is not None:
            send(skipped(job, budget.skip(), why))
            continue
        now = dataclasses.replace(job, settings=budget.next_settings())
        since_spawn_ns = spawned_ns if index == 0 else None
        measurement = budget.record(measure(now, session, handle, point, send, since_spawn_ns), now.settings)
        send(measurement)
        if ends_worker(measurement):
            return  # leftovers in memory or on the device would affect the next points, which get a fresh process
        gc.collect()
        handle.empty_cache()
    if job.with_quality and (settings := job.settings.quality) is not None:
        from benchmarking.sweep.run.quality_pass import left_out, measured_quality, quality_points, size_step

        send(QualityStarted())
        workload, preparation = job.cell.workload, job.preparation
        reference = None if preparation is None else preparation.quality_reference
        why_not = None if preparation is None else preparation.why_no_quality_reference
        why_not = None if reference else why_not or f"{NOT_RUN}: no reference was made"
        runtime = plugins.runtime(job.cell.runtime)
        try:
            if runtime.opens_for_points:
                points = quality_points(job.cell, settings)
                session.close()
                session = runtime.open(job.cell, handle, lambda name: nullcontext(), points)
        except Exception as error:  # noqa: BLE001 - whatever a runtime raises costs the quality, not the measured points
            send(left_out(workload, error))
        else:
            send(measured_quality(session, workload, settings, reference, why_not, size_step(job.cell)))
    session.close()
    handle.close()


def skipped(job: Job, point: Point, why: str) -> Measurement:
    """A point for which the budget has no time, with the command that measures it."""
    cell, workload = job.cell, job.cell.workload
    if workload.source == "bench":  # its file has the points
        name = shlex.quote(str(workload.config["bench"]))
        how = f"to measure all its points: benchhouse benches --include {name} --iterations 1"
    elif workload.source == "module":
        how = "to measure it: --iterations 1 in benchhouse script, or iterations=1 in benchmark_model"
    else:
        from benchmarking.workloads.support.graph_file import DIMENSIONS, FILE, VALUES, is_graph_file

        chosen: Mapping[str, Any] = workload.config if is_graph_file(workload) else {}
        declared = plugins.runtime(cell.runtime).declared_options
        options = {option.name: option.flag for option in declared if option.has_flag}
        flags: list[tuple[str, object]] = [
            *(("--model-id", workload.model_id), ("--device", cell.requested_device), ("--runtime", cell.runtime)),
            *(("--precision", cell.precision), ("--task", workload.task)),
            ("--weights", None if workload.weights == "given" else workload.weights),
            *(("--num-threads", cell.num_threads), ("--cpu-list", cell.cpu_list)),
            *((options[name], value) for name, value in cell.runtime_mode.items() if name in options),
            *(("--dim", f"{name}={size}") for name, size in chosen.get(DIMENSIONS, {}).items()),
            *(("--input", f"{name}={value}") for name, value in chosen.get(VALUES, {}).items()),
            *((AXES[name].flag, value) for name, value in {**point.stated, **point.axes}.items()),
            ("--iterations", 1),
        ]
        words = [word for flag, value in flags if value is not None for word in (flag, str(value))]
        words += ["--cold-cache"] if job.settings.cold_cache else []
        how = f"to measure it: benchhouse run {shlex.join(words)} --save"
        how += ", with the same --inputs" if FILE in chosen else ""
    now = utc_now()
    return Measurement(
        point=point,
        launch=job.launch,
        status="skipped",
        error=f"{why}; {how}",
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
        if name == "import":
            # Scanning the permanent objects that imports create takes an eighth of the import time of torch and
            # transformers: objects alive at the end are exempt from garbage collection.
            gc.disable()
        try:
            yield
        finally:
            if name == "import":
                gc.freeze()
                gc.enable()
        if self.handle is not None:
            self.handle.synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + (self._now_ns() - start_ns) / 1e9

    def _now_ns(self) -> int:
        return time.perf_counter_ns() if self.handle is None else self.handle.now_ns()


def load(job: Job, stages: Stages, send: Send) -> tuple[Session, DeviceHandle]:
    """Load the model and open its device; sends the times and memory of the load."""
    from benchmarking.measure import memory

    cell = job.cell
    if cell.cpu_list is not None:
        bind(cell.cpu_list)  # before the imports, since libraries count processors at import
    runtime = plugins.runtime(cell.runtime)
    device = plugins.device_kind(cell.device.type)
    with stages("import"):
        runtime.import_libraries()
    readings, base = memory.reset_peak_rss(), memory.rss_bytes()
    with stages("device_init"):
        handle = open_device(runtime, device, cell.device)
        handle.synchronize()
    stages.handle = handle
    idle_w = None
    if job.launch == 0:  # before the model is loaded; the wait for it does not count as load time
        from benchmarking.measure.energy import idle_power_w

        started_ns = time.monotonic_ns()
        idle_w = idle_power_w(handle, job.settings)
        stages.waited_ns = time.monotonic_ns() - started_ns
    session = runtime.open(cell, handle, stages, job.points)
    if session.resident_bytes() is None:
        readings |= _renamed(base, "rss_base_bytes") | _renamed(memory.peak_rss_bytes(), "peak_rss_load_bytes")
    else:
        why = f"{NOT_SUPPORTED}: the model is in other processes, which were started during its load"
        readings |= Readings(missing=dict.fromkeys(("rss_base_bytes", "peak_rss_load_bytes"), why))
    # The size of the loaded files, else of the build, else of the weights in memory.
    of_build = None if job.preparation is None else job.preparation.build.get("size_bytes")
    size = session.verified.get("model_size_bytes", of_build)
    sizes = {
        "weights_bytes": session.weights_bytes,
        "model_size_bytes": session.weights_bytes if size is None else size,
    }
    readings |= Readings.known(sizes, f"{NOT_SUPPORTED}: runtime {cell.runtime} does not report it")
    processors = affinity() | (memory_by_node() if cell.cpu_list is not None else Readings())
    verified = {
        **session.verified,
        **processors.values,
        **({"idle_power_before_load_w": idle_w} if idle_w else {}),
        "parameter_count": session.parameter_count,
    }
    memory_bytes = {name: value for name, value in readings.values.items() if isinstance(value, int)}
    send(
        LaunchLoad(
            launch=job.launch,
            stages_s=stages.seconds,
            memory_bytes=memory_bytes,
            verified=verified,
            missing=readings.missing,
        )
    )
    return session, handle


def measure(
    job: Job, session: Session, handle: DeviceHandle, point: Point, send: Send, since_spawn_ns: int | None
) -> Measurement:
    """The measurement of a point, or its failure with the reason."""
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
        is_lost = is_device_lost(error) or not handle.answers()
        xid = last_xid(job.cell.device.facts.values.get("pci_address")) if is_lost else None
        return Measurement(
            point=point,
            launch=job.launch,
            status="failed",
            error=error_text(error) if xid is None else f"{error_text(error)} ({xid})",
            started_at=started_at,
            finished_at=utc_now(),
            missing={"latency_median_ms": FAILED},
            extra={
                "out_of_memory": is_out_of_memory(error),
                "device_lost": is_lost,
                "traceback": error_traceback(error),
            },
        )
    measurement = check.with_work(check.at_stand_in(measurement, session))
    if ready_s is None or measurement.first_call_ms is None:
        return measurement
    ready_s += measurement.first_call_ms / 1e3  # from the start of the process to the end of its first call
    return dataclasses.replace(measurement, metrics={**measurement.metrics, "time_to_ready_s": ready_s})


def answered(job: ProfileJob | ScenarioJob | LoopJob, session: Session, handle: DeviceHandle) -> Profiled | Tested:
    """The profile of the job's point, or the load test of its points by loadgen or a loop; or its failure with the
    reason."""
    from benchmarking.measure.machine_state import Window

    try:
        if isinstance(job, ProfileJob):
            from benchmarking.sweep.run.profile_launch import profile_in_worker

            return Profiled(call=profile_in_worker(job, session, handle))
        with ExitStack() as opened:

            def operation_at(point: Point) -> Operation:
                operation = session.operation(point)
                opened.enter_context(always_after(operation.close))
                return operation

            if isinstance(job, LoopJob):
                batch_size = job.points[0].batch_size
                slots = batch_size if session.batches_calls else 1
                batch_size //= slots
                points = [dataclasses.replace(point, batch_size=batch_size) for point in job.points]
                operations = [[operation_at(point) for point in points] for _ in range(slots)]
                window = Window(handle)
                requests = run_loop(operations, handle.synchronize, batch_size, job.loop, job.launch)
                return Tested(requests=requests, figures={SLOTS: slots}, window=window.close())
            (point,) = job.points
            operation, window = operation_at(point), Window(handle)
            requests, figures = run_scenario(operation, handle.synchronize, point, job.scenario, job.launch)
            return Tested(requests=requests, figures=figures, window=window.close())
    except Exception as error:  # noqa: BLE001 - whatever a model or profiler raises is the answer
        kind = Profiled if isinstance(job, ProfileJob) else Tested
        return kind(error=error_text(error), traceback=error_traceback(error))


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
    return cut_off(text, MAX_ERROR_CHARACTERS)


def connect() -> tuple[Send, str]:
    """The function that sends messages to the supervisor, and the line with the job, once it has come. This process
    then ends when stdin closes, which happens no matter how the supervisor ends.

    Ctrl-C is left to the supervisor. On Linux the kernel also kills the process, since a call that holds the GIL would
    block the watching thread.
    """
    home = claimed_stdout()

    def send(message: Message) -> None:
        home.write(encode(message))
        home.flush()

    line = sys.stdin.readline()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    at_end_of_stdin(lambda: os._exit(1))
    return send, line


if __name__ == "__main__":
    sys.exit(main())
