"""Profiling under the supervisor: a fresh worker loads the cell and profiles its single point instead of measuring it.

Locks, preparation, time limits and the worker are those of a sweep. The record is a different one, so that profiled
calls cannot become latency results. Calls with and without the profiler alternate, which reveals the profiler's
overhead and spreads any drift of the machine over both.

With the device's measured peak rates, each operator is bound by arithmetic or by memory: the longer of the time for its
FLOPs at the arithmetic peak and the time for its bytes at the copy peak (the roofline model of Williams, Waterman and
Patterson, 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from benchmarking.core import plugins
from benchmarking.core.contracts import Operation, Session
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, UnsupportedError, always_after
from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.profiles import (
    COMPUTE,
    MEMORY,
    Bound,
    Breakdown,
    CallProfile,
    CallProfiler,
    Profile,
    ProfileSettings,
)
from benchmarking.core.provenance import utc_now, uuid7
from benchmarking.core.records import NOT_SUPPORTED
from benchmarking.measure.doubt_rules import about_profiler, about_samples, about_window
from benchmarking.measure.machine_state import Window
from benchmarking.measure.timing import Stopwatch, quiet_gc
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run.lock import device_locks
from benchmarking.sweep.run.preparation import prepared
from benchmarking.sweep.run.process import Profiled, ProfileJob, attended
from benchmarking.sweep.run.supervisor import finished_run
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.processing import open_processing, seconds_to_make, text_maker

WARM_UP_CALLS = 3
PAUSE_S = 0.005
"""Pause before each call: a runtime's threads spin for a while after a call and would compete with those of the other
side."""
COPY_RATE = "copy_bytes_per_sec"
"""Key of the measured copy rate among the peaks; the other keys are precisions, with FLOP/s."""
NOT_CALIBRATED = f"{NOT_SUPPORTED}: the device's peak rates were not measured: benchhouse run --calibrate-device"

Tokenize = Callable[[], float]
"""Makes the inputs of one call and returns the milliseconds it took."""


def profile_point(
    operation: Operation, handle: DeviceHandle, profiler: CallProfiler, num_runs: int, tokenize: Tokenize | None = None
) -> CallProfile:
    """Rounds of one call without and one with the profiler, in alternating order, after a warm-up of both."""
    watch = Stopwatch(operation, handle)
    watch.run(WARM_UP_CALLS)
    profiler.run(is_kept=False)
    plain, profiled_ns, tokenized = Stopwatch(operation, handle), list[int](), list[float]()
    noise = Window(handle, processes=operation.process_ids())
    with quiet_gc():
        for number in range(num_runs):
            tokenized += [] if tokenize is None else [tokenize()]
            for is_profiled in (bool(number % 2), not number % 2):
                handle.sleep(PAUSE_S)
                if is_profiled:
                    profiled_ns.append(profiler.run())
                else:
                    plain.run(1)
            noise.sample()
    window, profiled_ms = noise.close(), tuple(map(ns_to_ms, profiled_ns))
    return CallProfile(
        breakdown=profiler.breakdown(),
        latency_ms=tuple(plain.calls_ms),
        profiled_ms=profiled_ms,
        tokenize_ms=tuple(tokenized),
        window=window,
        doubts=(
            *about_samples(plain.calls_ms),
            *about_window(window, is_accelerator=handle.is_accelerator),
            *about_profiler(plain.calls_ms, profiled_ms),
        ),
    )


def with_bounds(
    breakdown: Breakdown, peaks: Mapping[str, float], precision: str, why_unknown: str = NOT_CALIBRATED
) -> Breakdown:
    """The operators with their bounds as far as the device's peaks are known, else the reason."""
    flops_per_sec, bytes_per_sec = peaks.get(precision), peaks.get(COPY_RATE)
    if not flops_per_sec or not bytes_per_sec:
        return replace(breakdown, missing={**breakdown.missing, "bound": why_unknown})
    operators = []
    for operator in breakdown.operators:
        bound: Bound | None = None  # of one whose bytes were not counted
        if operator.bytes_accessed is not None:  # operators without a FLOP formula do few FLOPs per byte
            of_flops, of_bytes = (operator.flops or 0.0) / flops_per_sec, operator.bytes_accessed / bytes_per_sec
            bound = COMPUTE if of_flops > of_bytes else MEMORY
        operators.append(replace(operator, bound=bound))
    return replace(breakdown, operators=tuple(operators))


def profiler_of(runtime: str) -> str:
    """The name of a runtime's profiler. Raises UnsupportedError, with the runtimes that have one, if it has none."""
    plugin = plugins.runtime(runtime)
    if plugin.profiler is not None:
        return plugin.profiler
    able = [
        name
        for name in plugins.names(plugins.RUNTIMES)
        if (other := plugins.runtime(name)).profiler is not None and other.runs_models
    ]
    raise UnsupportedError(f"runtime {runtime} has no profiler: use one of {', '.join(able)}")


def profile_cell(
    plan: CellPlan,
    settings: ProfileSettings,
    peaks: Mapping[str, float],
    say: Callable[[str], None],
    *,
    why_no_peaks: str = NOT_CALIBRATED,
    device_wait_s: float | None = None,
) -> Profile:
    """Profile the single point of a plan in a worker; traces go to the folder of the settings. `peaks` are the device's
    measured peak rates; without them the profile has the reason.

    Raises UnsupportedError for a runtime without a profiler, BenchhouseError when the worker or a call fails, and
    LockedError for a device that stays in use.
    """
    profiler_of(plan.cell.runtime)
    if plan.skipped or len(plan.points) != 1:
        raise BenchhouseError(
            next(iter(plan.skipped.values()), f"expected a single point to profile, got {len(plan.points)}")
        )
    (point,) = plan.points
    plan = replace(plan, started_at=utc_now())
    with device_locks(plan.cell.device, say, device_wait_s):
        preparation = prepared(plan, say)
        say(f"profiling {plan.cell.subject} at {point.label}")
        job = ProfileJob(
            cell=plan.cell, launch=0, points=(point,), settings=plan.settings, preparation=preparation, profile=settings
        )
        load, answer = attended(job, Profiled, plan.timeout_s)
    call = answer.call
    if call is None:
        raise BenchhouseError(answer.error or "the profile failed")
    run = finished_run(plan, [load], [], utc_now(), preparation)
    breakdown = with_bounds(call.breakdown, peaks, plan.cell.precision, why_no_peaks)
    return Profile(
        profile_id=uuid7(),
        run=replace(run, status="ok", error=None, results=()),
        point=point,
        call=replace(call, breakdown=breakdown),
        peaks=dict(peaks),
    )


def profile_in_worker(job: ProfileJob, session: Session, handle: DeviceHandle) -> CallProfile:
    """In the worker: the profile of the job's point. Exceptions of the model pass through."""
    (point,), settings = job.points, job.profile
    operation = session.operation(point)
    with always_after(operation.close):
        profiler = operation.profiler(Path(settings.folder), handle.synchronize)
        if profiler is None:
            raise UnsupportedError(
                f"runtime {job.cell.runtime} has no profiler for {job.cell.subject} at {point.label}"
            )
        # What tokenizes the given or built-in texts of a call; or why there is none.
        workload, missing = job.cell.workload, dict[str, str]()
        processing = open_processing(workload, lambda name: nullcontext())
        if settings.texts and "text" in processing.processors:
            length = point.sequence_length or workload.max_sequence_length
            makers = [text_maker(processing.processors["text"], settings.texts, length)]
        else:
            inputs = processing.inputs(plugin_of(workload), workload, point)
            makers = list(inputs.makers.values())
            if not makers:
                missing["tokenize"] = "; ".join(dict.fromkeys(inputs.why_not.values()))
        tokenize = (lambda: 1e3 * seconds_to_make(makers)) if makers else None
        call = profile_point(operation, handle, profiler, settings.num_runs, tokenize)
        return replace(call, missing=missing, profiler=profiler_of(job.cell.runtime))
