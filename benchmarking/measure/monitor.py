"""Monitors: device utilization, memory and power over time, sampled by a separate process.

`DeviceMonitor` monitors a device while anything runs on it; `GPUMonitor` and `CPUMonitor` choose the device themselves.
`usage_pass` runs one during some calls of a point after the timed calls: utilization, device memory and power over
those calls.

The sampling process runs this module's `main`. It reads one JSON line from stdin, writes one to stdout for each sample,
and ends when its stdin closes, so it never outlives the process that it monitors.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cache
from statistics import fmean
from typing import IO, Any, Self

from benchmarking.core.child_process import at_end_of_stdin, module_command, start
from benchmarking.core.device_contracts import CONDITION_NAMES, MACHINE_NAMES, USE_NAMES
from benchmarking.core.errors import BenchhouseError, UsageError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import NS_PER_MS, NS_PER_S, LaunchFacts, bytes_to_mb, ns_to_s
from benchmarking.core.plugins import has, kinds, names_with, processor
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import (
    FAILED,
    NOT_APPLICABLE,
    NOT_RUN,
    NOT_SUPPORTED,
    TOO_FEW_SAMPLES,
    Device,
    Json,
    Readings,
    Samples,
    from_json,
    to_json,
)
from benchmarking.devices.support.gauges import ProcessTree, open_gauge
from benchmarking.measure.context import MeasureContext
from benchmarking.measure.memory import PassResult, memory_pass
from benchmarking.measure.timing import calls_for

MODULE = "benchmarking.measure.monitor"
INTERVAL_S = 0.1
"""Sampling interval. Drivers update a GPU's utilization every 0.17 to 1 s and its power every 0.03 to 0.1 s."""
START_LIMIT_S = 30.0
"""Time limit of the start: without persistence mode, opening a vendor's library takes many seconds."""
STOP_LIMIT_S = 5.0
LEAD_S = 1.0
"""Time of calls on an accelerator before samples count: drivers average utilization over up to a second."""
FIRST_GPU = "gpu"
"""Selects the machine's first GPU."""
MIN_SAMPLES = 3
"""With fewer samples, neither the course over time nor the maximum is meaningful."""

UTILIZATION, USED, POWER = USE_NAMES
RESIDENT = "resident_bytes"
SERIES = {
    UTILIZATION: ("utilization", "percent"),
    USED: ("memory_device_used", "MB"),
    POWER: ("power", "W"),
    RESIDENT: ("memory_resident", "MB"),
}
"""Readings, and the raw metric and unit under which each is stored."""
TIMES = "monitor_time"
"""The raw metric with the times of those samples, in ms since the first."""
USAGE_METRICS = {
    "utilization_mean_percent": UTILIZATION,
    "utilization_max_percent": UTILIZATION,
    "device_used_mean_bytes": USED,
}
"""The metrics of a usage pass, and the reading that each summarises."""
READINGS = (*SERIES, *CONDITION_NAMES, *MACHINE_NAMES)
"""The readings that a sample may hold."""


class MonitorError(BenchhouseError):
    """A monitor could not start, or its process ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_ns: int
    """Time by `time.monotonic_ns`, whose clock all processes of a machine share."""
    values: Mapping[str, float]
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why a reading is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A device's use over a period of time."""

    samples: tuple[Sample, ...]

    def series(self, name: str) -> tuple[float, ...]:
        """The values of a reading (`READINGS`) in order; empty if the device does not report it."""
        return tuple(sample.values[name] for sample in self.samples if name in sample.values)

    @property
    def times_s(self) -> tuple[float, ...]:
        """Time of each sample, in seconds since the first."""
        return tuple(ns_to_s(sample.at_ns - self.samples[0].at_ns) for sample in self.samples)

    def summary(self) -> dict[str, float]:
        """Mean and maximum of each reading that the device reports: utilization_mean_percent, power_max_w, ..."""
        found: dict[str, float] = {}
        for name in READINGS:
            if values := self.series(name):
                head, _, unit = name.rpartition("_")
                found[f"{head}_mean_{unit}"] = fmean(values)
                found[f"{head}_max_{unit}"] = max(values)
        return found

    def why_missing(self, name: str) -> str:
        """Why a reading has no value in any sample."""
        reasons = [sample.missing[name] for sample in self.samples if name in sample.missing]
        return reasons[-1] if reasons else TOO_FEW_SAMPLES


class Sampler(ABC):
    """Samples in a separate process, from `start` to `stop` or inside `with`.

    The process runs the `main` of a module, which reads the question (`question`) from stdin and passes what it reads
    to `sample_until_the_end`. `sample_interval` is in seconds. `keep` limits the samples to the newest ones (default:
    all).

    `start` raises MonitorError if nothing can be read.
    """

    module = MODULE

    def __init__(self, *, sample_interval: float = INTERVAL_S, keep: int | None = None) -> None:
        if sample_interval <= 0:
            raise UsageError(f"sample_interval takes seconds above 0: got {sample_interval!r}")
        self.sample_interval = sample_interval
        self._keep = keep
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._samples: list[Sample] = []

    @property
    @abstractmethod
    def subject(self) -> str:
        """What is monitored, in errors."""

    @abstractmethod
    def question(self) -> Mapping[str, Json]:
        """What to sample, besides the interval. Raises UsageError."""

    def start(self) -> Self:
        """Start sampling; returns once the first sample has arrived. Raises MonitorError, UsageError."""
        question = {**self.question(), "interval_s": self.sample_interval}
        self._end()
        self._samples = []
        process = self._process = start(module_command(self.module), stdin=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        first: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(process.stdout, first), daemon=True, name="monitor")
        self._reader.start()
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = first.get(timeout=START_LIMIT_S)
        except queue.Empty:
            line = ""
        except BrokenPipeError:
            line = first.get()
        if not line:
            why_not = self._end()
            raise MonitorError(f"cannot monitor {self.subject}: {why_not}")
        return self

    def stop(self) -> Usage:
        """Stop sampling and return all samples. Raises MonitorError if the process had already ended."""
        self.check()
        self._end()
        return self.usage

    def check(self) -> None:
        """Raise MonitorError if the sampling process has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise MonitorError(f"the monitor of {self.subject} ended early: {self._end()}")

    @property
    def usage(self) -> Usage:
        """All samples so far."""
        return Usage(samples=tuple(self._samples))

    def between(self, begin_ns: int, end_ns: int) -> Usage:
        """The samples of a period, by `time.monotonic_ns`. Utilization covers the time since the previous sample, so
        the first sample inside the period is left out."""
        inside = [sample for sample in self._samples if begin_ns <= sample.at_ns <= end_ns]
        return Usage(samples=tuple(inside[1:]))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self._end()

    def _read(self, stdout: IO[str], first: queue.SimpleQueue[str]) -> None:
        """Collect the samples, on a thread that sleeps between them. `start` gets the first line, or an empty one at
        the end of stdout."""
        has_begun = False
        for line in stdout:
            data: dict[str, Any] = json.loads(line)
            self._samples.append(Sample(at_ns=data["at_ns"], values=data["values"], missing=data["missing"]))
            if self._keep is not None and len(self._samples) > self._keep:
                del self._samples[0]
            if not has_begun:
                has_begun = True
                first.put(line)
        first.put("")

    def _end(self) -> str:
        """End the process and return its last words on stderr."""
        process, self._process = self._process, None
        if process is None or process.stdin is None or process.stderr is None:
            return ""
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(timeout=STOP_LIMIT_S)
            why_not = process.stderr.read().strip().splitlines()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            why_not = [f"no sample within {START_LIMIT_S:g} s"]
        if self._reader is not None:
            self._reader.join(timeout=STOP_LIMIT_S)
        process.stderr.close()
        return why_not[-1] if why_not else f"the sampling process ended with exit code {process.returncode}"


class DeviceMonitor(Sampler):
    """Samples a device's use.

    `device` is a selector such as "cuda:0", or the record of a found device. If it is the CPU, `process_ids` are the
    processes to monitor (default: this one); `with_children` adds the descendants of the first. `with_conditions` adds
    temperature and clocks, and for the CPU its power and the use by all programs.
    """

    def __init__(
        self,
        device: Device | str,
        *,
        sample_interval: float = INTERVAL_S,
        process_ids: Sequence[int] | None = None,
        with_children: bool = False,
        with_conditions: bool = True,
        keep: int | None = None,
    ) -> None:
        super().__init__(sample_interval=sample_interval, keep=keep)
        self._requested = device
        self._process_ids = tuple(process_ids or (os.getpid(),))
        self._with_children = with_children
        self._with_conditions = with_conditions

    def device(self) -> Device:
        """The monitored device. Raises UsageError if it does not exist."""
        requested = self._requested  # read once: another thread may replace it by the device that it found
        if isinstance(requested, str):
            from benchmarking.devices.support.select import select

            self._requested = requested = select(requested, lambda device: None)
        return requested

    @property
    def subject(self) -> str:
        return self.device().selector

    def question(self) -> Mapping[str, Json]:
        return {
            "device": to_json(self.device()),
            "process_ids": list(self._process_ids),
            "with_children": self._with_children,
            "with_conditions": self._with_conditions,
        }


class GPUMonitor(DeviceMonitor):
    """Samples a GPU: utilization, memory and power, temperature and clocks. The default device is the machine's first
    GPU; `start` raises MonitorError if there is none."""

    def __init__(
        self, device: Device | str | None = None, *, sample_interval: float = INTERVAL_S, keep: int | None = None
    ) -> None:
        super().__init__(device or FIRST_GPU, sample_interval=sample_interval, keep=keep)

    def device(self) -> Device:
        if self._requested == FIRST_GPU:
            if not (gpus := found_gpus()):
                probed = _probed_gpus()
                reasons = "; ".join(f"{name}: {devices[0].why_not or 'no GPU'}" for name, devices in probed.items())
                raise MonitorError(f"no GPU to monitor: {reasons}")
            self._requested = gpus[0]
        return super().device()


class CPUMonitor(DeviceMonitor):
    """Samples the CPU: its use by this process or others, their resident memory, clock, temperature, power if the
    machine counts energy, and the use of CPU and memory by all programs."""

    def __init__(
        self,
        *,
        sample_interval: float = INTERVAL_S,
        process_ids: Sequence[int] | None = None,
        with_children: bool = False,
        keep: int | None = None,
    ) -> None:
        super().__init__(
            processor().name,
            sample_interval=sample_interval,
            process_ids=process_ids,
            with_children=with_children,
            keep=keep,
        )


def found_gpus() -> tuple[Device, ...]:
    """The GPUs of this machine whose use can be read. A GPU that several kinds can use is one of the first of them."""
    found, probed = dict[str | None, list[Device]](), _probed_gpus()
    for kind in kinds():
        if gpus := [one for one in probed.get(kind.name, ()) if one.found and kind.is_gpu(one)]:
            found.setdefault(kind.gpu_vendor, gpus)
    return tuple(device for gpus in found.values() for device in gpus)


@cache
def _probed_gpus() -> Mapping[str, Sequence[Device]]:
    from benchmarking.devices.support.select import probe_all

    return probe_all(names_with(lambda kind: kind.has_gauge and kind.gpu_vendor is not None))


def memory_and_usage(
    context: MeasureContext, device: Device | None, launch: int, timed_ns: float
) -> tuple[PassResult, PassResult]:
    """The memory pass and the usage pass. On a CPU they share their calls, since reading high-water marks and sizes
    takes no visible share of it. `timed_ns` is the duration of the timed calls.

    On accelerators each pass has its own calls: sampling memory on a thread would slow the host down in feeding them.
    """
    if context.handle.is_accelerator:
        return memory_pass(context), usage_pass(context, device, launch, timed_ns)
    watched: list[PassResult] = []

    def run() -> int:
        duration_s = context.settings.monitor_s
        watched.append(memory_pass(context, lambda least: calls_for(context, duration_s, max(1, least))))
        return watched[0].extra["memory_calls"]

    usage = usage_pass(context, device, launch, timed_ns, run)
    return watched[0] if watched else memory_pass(context), usage


def usage_pass(
    context: MeasureContext, device: Device | None, launch: int, timed_ns: float, run: Callable[[], int] | None = None
) -> PassResult:
    """Utilization, device memory and power over `settings.monitor_s` seconds of calls. `timed_ns` is the duration of
    the timed calls. If `run` is given, it runs the calls and returns their number."""
    why_not = _missing_reason(context, device, timed_ns)
    if why_not is not None or device is None:
        return _without(why_not or NOT_RUN)
    context.live("monitor")
    process_ids = (os.getpid(), *context.operation.process_ids())
    monitor = DeviceMonitor(device, process_ids=process_ids, with_conditions=False)
    try:
        with monitor:
            if context.handle.is_accelerator:
                calls_for(context, LEAD_S)
            started_at, begin_ns = utc_now(), time.monotonic_ns()
            calls = calls_for(context, context.settings.monitor_s) if run is None else run()
            end_ns = time.monotonic_ns()
            monitor.stop()
    except MonitorError as error:
        return _without(f"{FAILED}: {error}")
    usage = monitor.between(begin_ns, end_ns)
    if len(usage.samples) < MIN_SAMPLES:
        return _without(TOO_FEW_SAMPLES)
    summary = usage.summary()
    extra: LaunchFacts = {
        "monitored_calls": calls,
        "monitored_s": ns_to_s(end_ns - begin_ns),
        "monitor_interval_s": INTERVAL_S,
        "usage": dict(summary),
    }
    # The raw series. Each has one value per time, so they can be joined by position.
    complete = [name for name in SERIES if len(usage.series(name)) == len(usage.samples)]
    series = {TIMES: ("ms", tuple(seconds * NS_PER_S / NS_PER_MS for seconds in usage.times_s))}
    for name in complete:
        metric, unit = SERIES[name]
        values = usage.series(name)
        series[metric] = (unit, tuple(map(bytes_to_mb, values)) if unit == "MB" else values)
    return PassResult(
        metrics={name: summary[name] for name in USAGE_METRICS if name in summary},
        missing={name: usage.why_missing(of) for name, of in USAGE_METRICS.items() if name not in summary},
        extra=extra,
        samples=tuple(
            Samples(launch=launch, phase="measure", metric=metric, unit=unit, started_at=started_at, values=values)
            for metric, (unit, values) in series.items()
        ),
    )


def _missing_reason(context: MeasureContext, device: Device | None, timed_ns: float) -> str | None:
    settings = context.settings
    if context.handle.has_scripted_clock:
        return f"{NOT_APPLICABLE}: the device is scripted"
    if device is None or not has(device.type, lambda kind: kind.has_gauge):
        return f"{NOT_SUPPORTED}: the use of {'this device' if device is None else device.selector} cannot be read"
    if settings.cold_cache:
        return f"{NOT_APPLICABLE}: with a cold cache the device also works on the flush between calls"
    if settings.monitor_s <= 0:
        return f"{NOT_RUN}: no monitored calls were requested"
    if settings.fixed_iterations is not None and timed_ns < settings.monitor_s * NS_PER_S:
        requested = f"the {settings.fixed_iterations} requested calls"
        return f"{NOT_RUN}: {requested} take less than the {settings.monitor_s:g} s needed for samples"
    return None


def _without(why: str) -> PassResult:
    return PassResult(missing=dict.fromkeys(USAGE_METRICS, why))


def sample_until_the_end(interval_s: float, read: Callable[[], Readings]) -> None:
    """Print a sample (JSON line) at each interval until stdin ends, which contained the question before."""
    ended = threading.Event()
    at_end_of_stdin(ended.set)
    interval_ns = round(interval_s * NS_PER_S)
    next_ns = time.monotonic_ns()
    while not ended.wait(max(0, next_ns - time.monotonic_ns()) / NS_PER_S):
        reading = read()
        now_ns = time.monotonic_ns()
        values = {name: value for name, value in reading.values.items() if isinstance(value, int | float)}
        print(json.dumps({"at_ns": now_ns, "values": values, "missing": dict(reading.missing)}), flush=True)
        next_ns = max(next_ns + interval_ns, now_ns)


def main() -> int:
    """Sample the device named on stdin until stdin ends."""
    question = json.loads(sys.stdin.readline())
    try:
        process_ids = question["process_ids"]
        watched = ProcessTree(process_ids[0]) if question["with_children"] else process_ids
        gauge = open_gauge(from_json(Device, question["device"]), watched)
    except BenchhouseError as error:
        print(first_line(error), file=sys.stderr)
        return 1
    has_conditions = question["with_conditions"]
    sample_until_the_end(
        question["interval_s"], lambda: gauge.read() | gauge.conditions() if has_conditions else gauge.read()
    )
    gauge.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
