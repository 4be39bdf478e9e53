"""The memory pass: peaks of resident and device memory over separate calls after a reset, and mean resident memory.

Resident memory. Linux: `VmHWM` after writing 5 to `/proc/self/clear_refs` (proc(5)); never ru_maxrss, which a child
inherits. macOS: the physical footprint, sampled. Windows: the peak working set over the process's lifetime.

Mean resident memory and device memory in use are sampled on threads of this process. That is acceptable because this
pass times nothing and runtimes release the GIL while they compute; and in a container only the device handle knows this
process's id as the driver sees it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path
from typing import Any

from benchmarking.core.device_contracts import IN_USE_NAMES, PEAK_NAMES
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import psutil
from benchmarking.core.metrics import BYTES_PER_KIB, LaunchFacts
from benchmarking.core.records import NO_PERMISSION, NOT_APPLICABLE, NOT_RUN, NOT_SUPPORTED, Readings, Samples
from benchmarking.devices.support.handles import by_device
from benchmarking.devices.support.system_values import UnreadableError, gather, matched
from benchmarking.measure.context import MeasureContext
from benchmarking.measure.timing import calls_for

PEAK = "peak_rss_bytes"
RESET_PEAK = "5"
FOOTPRINT_INTERVAL_S = 0.010
RESIDENT_INTERVAL_S = 0.005
MEAN_TIME_S = 0.025
"""Calls are repeated for this time: with one short call, the mean would hold only the readings before and after it."""
DEVICE_INTERVAL_S = 0.020
GLOBAL_DELTA = "device_global_delta_bytes"
NO_ALLOCATIONS = f"{NOT_SUPPORTED}: a replayed CUDA graph allocates nothing; the reserved peak includes its memory"
"""torch's allocator counts the memory of a graph's intermediate results while it records the graph, not in replays."""

RUSAGE_INFO_V0 = 0
RUSAGE_INFO_V0_BYTES = 96
FOOTPRINT_OFFSET = 16 + 7 * 8
"""Offset of ri_phys_footprint in struct rusage_info_v0 (sys/resource.h): after a UUID and seven 64-bit counters."""

Reading = Mapping[str, float]


class LinuxPeak:
    """The kernel's high-water mark of resident memory, which can be reset."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._proc = proc
        self._why_not: str | None = f"{NOT_RUN}: the peak was not reset"

    def reset(self) -> None:
        """Start a new period. If the kernel refuses, `read` raises the reason, as the mark would be from an earlier
        period."""
        path = self._proc / "clear_refs"
        try:
            path.write_text(RESET_PEAK)
            self._why_not = None
        except PermissionError:
            self._why_not = f"{NO_PERMISSION}: {path}"
        except OSError as error:
            self._why_not = f"{NOT_SUPPORTED}: {path}: {error.strerror}"

    def read(self) -> int:
        """Bytes at the peak since the reset. Raises UnreadableError."""
        if self._why_not is not None:
            raise UnreadableError(self._why_not)
        return int(matched(self._proc / "status", r"^VmHWM:\s+(\d+) kB", "no VmHWM")) * BYTES_PER_KIB


class SampledPeak:
    """The largest value sampled every 10 ms between reset and read, for systems without a high-water mark."""

    def __init__(self, read_bytes: Callable[[], int]) -> None:
        self.mean_bytes: float | None = None
        """The mean over the last period; None before its end."""
        self._read_bytes = read_bytes
        self._sampler: PeakSampler | None = None
        self._why_not = f"{NOT_RUN}: the peak was not reset"

    def reset(self) -> None:
        """Start a new period. If the value cannot be read, `read` raises the reason."""
        self.end()
        try:
            self._sampler = PeakSampler(lambda: {PEAK: self._read_bytes()}, FOOTPRINT_INTERVAL_S)
        except UnreadableError as error:
            self._why_not = str(error)

    def end(self) -> None:
        """End a period whose peak nobody reads."""
        if self._sampler is not None:
            self._sampler.end()
            self._sampler = None

    def read(self) -> int:
        """Bytes at the peak. Ends the period, so no sampler runs during timed calls. Raises UnreadableError."""
        if self._sampler is None:
            raise UnreadableError(self._why_not)
        sampler, self._sampler = self._sampler, None
        peak = int(sampler.stop()[PEAK])
        self.mean_bytes = sampler.means[PEAK]
        return peak


class LifetimePeak:
    """Windows' PeakWorkingSetSize. It cannot be reset, so earlier peaks remain."""

    def reset(self) -> None:
        """Does nothing: Windows cannot reset the peak."""

    def read(self) -> int:
        """Bytes at the peak of the process's lifetime."""
        information: Any = psutil.Process().memory_info()  # the field exists on Windows only
        return int(information.peak_wset)


def flush_memory() -> None:
    """Free Python's garbage and the accelerator memory cached by torch's allocator, and reset that allocator's peaks.
    Does not touch torch or an accelerator that this process has not used."""
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.accelerator.is_available():
        return
    backend = getattr(torch, torch.accelerator.current_accelerator().type)
    if not getattr(backend, "is_initialized", lambda: True)():
        return
    backend.synchronize()
    backend.empty_cache()
    if hasattr(backend, "reset_peak_memory_stats"):
        backend.reset_peak_memory_stats()


def rss_bytes() -> Readings:
    """Current `rss_bytes`; on macOS the physical footprint, as for the peak."""
    is_footprint = sys.platform == "darwin"
    return gather(
        {"rss_bytes": phys_footprint_bytes if is_footprint else lambda: int(psutil.Process().memory_info().rss)}
    )


def reset_peak_rss(elsewhere: SampledPeak | None = None) -> Readings:
    """Start a new period of the peak, for this process or for the processes elsewhere that hold the model.

    Returns `peak_rss_method`: high_water_mark, sampled_10ms or process_lifetime.
    """
    peak = elsewhere or _PEAK
    peak.reset()
    return Readings(values={"peak_rss_method": _METHODS[type(peak)]})


def peak_rss_bytes(elsewhere: SampledPeak | None = None) -> Readings:
    """`peak_rss_bytes` since the last reset, or why it is missing."""
    return gather({PEAK: (elsewhere or _PEAK).read})


def phys_footprint_bytes(system: ctypes.CDLL | None = None) -> int:
    """macOS: this process's memory as shown in Activity Monitor. Raises UnreadableError.

    `int proc_pid_rusage(int pid, int flavor, rusage_info_t *buffer)` of libproc.h, part of libSystem.
    """
    system = system or ctypes.CDLL("/usr/lib/libSystem.dylib", use_errno=True)
    buffer = ctypes.create_string_buffer(RUSAGE_INFO_V0_BYTES)
    if system.proc_pid_rusage(os.getpid(), RUSAGE_INFO_V0, buffer) != 0:
        raise UnreadableError(f"{NOT_SUPPORTED}: proc_pid_rusage: {os.strerror(ctypes.get_errno())}")
    (footprint,) = struct.unpack_from("<Q", buffer.raw, FOOTPRINT_OFFSET)
    return int(footprint)


def _peak_of(platform: str) -> LinuxPeak | SampledPeak | LifetimePeak:
    if platform == "darwin":
        return SampledPeak(phys_footprint_bytes)
    return LifetimePeak() if platform == "win32" else LinuxPeak()


_METHODS = {LinuxPeak: "high_water_mark", SampledPeak: "sampled_10ms", LifetimePeak: "process_lifetime"}

_PEAK = _peak_of(sys.platform)
"""One object per process, since the system keeps one mark per process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """What a pass adds to a measurement."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    extra: LaunchFacts = field(default_factory=LaunchFacts)
    samples: tuple[Samples, ...] = ()
    """The raw series of its readings."""


def memory_pass(context: MeasureContext, run: Callable[[int], int] | None = None) -> PassResult:
    """Peaks of resident memory, of the device's allocator and of device memory in use, and mean resident memory, over
    `settings.memory_calls` calls.

    If no peak is sampled, one call is enough, or as many as fit into 25 ms: earlier passes have run the same call, and
    a high-water mark has no gaps. If `run` is given, it runs at least that many calls and returns their number.
    """
    context.live("memory")
    handle, operation = context.handle, context.operation
    handle.synchronize()
    at_rest = handle.memory_in_use()
    handle.reset_peak_memory()
    elsewhere = None
    if operation.resident_bytes() is not None:
        elsewhere = SampledPeak(lambda: operation.resident_bytes() or 0)

    def in_use() -> Reading:
        values = handle.memory_in_use().values
        return {name: value for name in IN_USE_NAMES if isinstance(value := values.get(name), int)}

    method = reset_peak_rss(elsewhere)
    peak = elsewhere or _PEAK
    process = psutil.Process()  # looked up once, as that takes ten times as long as a reading
    present = sampler = None
    with ExitStack() as threads:  # a call that fails must not leave one that disturbs the points after it
        if isinstance(peak, SampledPeak):
            threads.callback(peak.end)
        else:
            present = PeakSampler(lambda: {PEAK: process.memory_info().rss}, RESIDENT_INTERVAL_S)
            threads.callback(present.end)
        if any(name in at_rest.values for name in IN_USE_NAMES):
            sampler = PeakSampler(in_use, DEVICE_INTERVAL_S)
            threads.callback(sampler.end)
        is_sampled = sampler is not None or "sampled" in str(method.values["peak_rss_method"])
        least = context.settings.memory_calls if is_sampled else min(1, context.settings.memory_calls)
        mean_time_s = 0.0 if handle.has_scripted_clock else MEAN_TIME_S
        calls = calls_for(context, mean_time_s, least) if run is None else run(least)
        resident = peak_rss_bytes(elsewhere)
        mean_bytes = peak.mean_bytes if isinstance(peak, SampledPeak) else None  # that of the same samples
        if present is not None:
            present.stop()
            mean_bytes = present.means[PEAK]
        used = sampler.stop() if sampler else {}
    peaks = handle.peak_memory()
    if operation.is_replayed and PEAK_NAMES[0] in peaks.values:
        others = {name: value for name, value in peaks.values.items() if name != PEAK_NAMES[0]}
        peaks = Readings(values=others, missing={**peaks.missing, PEAK_NAMES[0]: NO_ALLOCATIONS})
    why_not = resident.missing.get(PEAK, NOT_SUPPORTED)
    together = (
        Readings.known({"peak_rss_infer_bytes": resident.values.get(PEAK), "rss_mean_bytes": mean_bytes}, why_not)
        | Readings(missing=dict.fromkeys(PEAK_NAMES, NOT_SUPPORTED))
        | peaks.only(PEAK_NAMES)
        | _sampled(at_rest, used, handle.state())
    )
    extra: LaunchFacts = {"memory_calls": calls, "peak_rss_method": str(method.values["peak_rss_method"])}
    if of_each := by_device(peaks):
        extra["device_memory_peaks_by_device"] = dict(of_each)
    if sampler is not None:
        extra["device_memory_interval_s"] = DEVICE_INTERVAL_S
        extra["device_memory_readings"] = sampler.readings
    metrics = {name: float(value) for name, value in together.values.items() if isinstance(value, int | float)}
    return PassResult(metrics=metrics, missing=dict(together.missing), extra=extra)


def _sampled(at_rest: Readings, peaks: Reading, state: Readings) -> Readings:
    """`device_process_peak_bytes`, and `device_global_delta_bytes`: peak total use minus the use of other processes.

    The latter is read before the calls, so the difference is missing if another process is active on the device.
    """
    process_bytes, used = (peaks.get(name) for name in IN_USE_NAMES)
    why_not = at_rest.missing.get(IN_USE_NAMES[0], NOT_SUPPORTED)
    process = Readings.known({"device_process_peak_bytes": process_bytes}, why_not)
    if state.values.get("foreign_pids"):
        return process | Readings(missing={GLOBAL_DELTA: f"{NOT_APPLICABLE}: another process uses the device"})
    resting_own, resting_used = (at_rest.values.get(name) for name in IN_USE_NAMES)
    if used is None or not isinstance(resting_own, int) or not isinstance(resting_used, int):
        why = next((at_rest.missing[name] for name in IN_USE_NAMES if name in at_rest.missing), NOT_SUPPORTED)
        return process | Readings(missing={GLOBAL_DELTA: why})
    return process | Readings(values={GLOBAL_DELTA: used - (resting_used - resting_own)})


class PeakSampler:
    """Reads values at an interval on a thread, including one at the start and one at the end: their maximum and
    mean."""

    def __init__(self, read: Callable[[], Reading], interval_s: float) -> None:
        self.readings = 0
        self._read = read
        self._interval_s = interval_s
        self._peaks: dict[str, float] = {}
        self._totals: dict[str, tuple[float, int]] = {}
        self._trouble: Exception | None = None
        self._stopping = threading.Event()
        self._sample()
        self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True, name="peak-sampler")
        self._thread.start()

    def end(self) -> None:
        self._stopping.set()
        self._thread.join()

    def stop(self) -> Reading:
        """The largest value by name. Raises the exception of a failed reading."""
        self.end()
        if self._trouble is not None:
            raise self._trouble
        self._sample()
        return self._peaks

    @property
    def means(self) -> Reading:
        """The mean of the values so far, by name."""
        return {name: total / count for name, (total, count) in self._totals.items()}

    def _sample_until_stopped(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._sample()
            except Exception as error:  # noqa: BLE001 - raised again in the thread that calls stop
                self._trouble = error
                return

    def _sample(self) -> None:
        for name, value in self._read().items():
            self._peaks[name] = max(value, self._peaks.get(name, value))
            total, count = self._totals.get(name, (0.0, 0))
            self._totals[name] = total + value, count + 1
        self.readings += 1
