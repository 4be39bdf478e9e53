"""Resident memory of this process, now and at its peak.

Linux: `VmHWM` after writing 5 to `/proc/self/clear_refs` (proc(5)); never ru_maxrss, which a child inherits. macOS: the
physical footprint, sampled. Windows: the peak working set, which counts the process's whole life.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarking.devices._reading import UnreadableError, gather, read_text
from benchmarking.measure.sampling import PeakSampler
from benchmarking.records import NO_PERMISSION, NOT_RUN, NOT_SUPPORTED, Json, Readings
from benchmarking.units import BYTES_PER_KIB

PEAK = "peak_rss_bytes"
RESET_PEAK = "5"
FOOTPRINT_INTERVAL_S = 0.010

RUSAGE_INFO_V0 = 0
RUSAGE_INFO_V0_BYTES = 96
FOOTPRINT_OFFSET = 16 + 7 * 8
"""Of ri_phys_footprint in struct rusage_info_v0 (sys/resource.h): a UUID and seven 64-bit counters come before it."""


class LinuxPeak:
    """The kernel's high-water mark of resident memory, started anew at will."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._proc = proc
        self._why_not: str | None = f"{NOT_RUN}: the peak was not reset"

    def reset(self) -> None:
        """Start a new period. Where that is refused, `read` tells so: the mark would be of something else."""
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
        return status_bytes(read_text(self._proc / "status"), "VmHWM")


class SampledPeak:
    """The largest of the values read every 10 ms, from reset to read; for systems that keep no mark of their own."""

    def __init__(self, read_bytes: Callable[[], int]) -> None:
        self._read_bytes = read_bytes
        self._sampler: PeakSampler | None = None
        self._why_not = f"{NOT_RUN}: the peak was not reset"

    def reset(self) -> None:
        """Start a new period. Where the value cannot be read, `read` tells so."""
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None
        try:
            self._sampler = PeakSampler(lambda: {PEAK: self._read_bytes()}, FOOTPRINT_INTERVAL_S)
        except UnreadableError as error:
            self._why_not = str(error)

    def read(self) -> int:
        """Bytes at the peak; ends the period, so that no sampler runs beside timed calls. Raises UnreadableError."""
        if self._sampler is None:
            raise UnreadableError(self._why_not)
        sampler, self._sampler = self._sampler, None
        return int(sampler.stop()[PEAK])


class LifetimePeak:
    """Windows' PeakWorkingSetSize: cannot be reset, so a peak of an earlier step stays."""

    def reset(self) -> None:
        """Nothing to do: the system has no such call."""

    def read(self) -> int:
        """Bytes at the peak of the process's life."""
        import psutil

        information: Any = psutil.Process().memory_info()  # the field exists on Windows only
        return int(information.peak_wset)


def rss_bytes() -> Readings:
    """`rss_bytes` now; on macOS the physical footprint, which its peak is of too."""
    return gather({"rss_bytes": phys_footprint_bytes if sys.platform == "darwin" else _resident_bytes})


def reset_peak_rss(elsewhere: SampledPeak | None = None) -> Readings:
    """Start a new period of the peak, of this process or of others. Gives `peak_rss_method`: high_water_mark,
    sampled_10ms or process_lifetime."""
    peak = elsewhere or _PEAK
    peak.reset()
    return Readings(values={"peak_rss_method": _METHODS[type(peak)]})


def peak_rss_bytes(elsewhere: SampledPeak | None = None) -> Readings:
    """`peak_rss_bytes` since the last reset, or why there is none."""
    return gather({PEAK: (elsewhere or _PEAK).read})


def status_bytes(status: str, name: str) -> int:
    """A size in /proc/<pid>/status, which gives them in KiB. Raises UnreadableError."""
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    if found is None:
        raise UnreadableError(f"{NOT_SUPPORTED}: no {name} in /proc/self/status")
    return int(found[1]) * BYTES_PER_KIB


def phys_footprint_bytes(system: ctypes.CDLL | None = None) -> int:
    """macOS: what this process costs in memory, as Activity Monitor shows it. Raises UnreadableError.

    `int proc_pid_rusage(int pid, int flavor, rusage_info_t *buffer)` of libproc.h, part of libSystem.
    """
    system = system or ctypes.CDLL("/usr/lib/libSystem.dylib", use_errno=True)
    buffer = ctypes.create_string_buffer(RUSAGE_INFO_V0_BYTES)
    if system.proc_pid_rusage(os.getpid(), RUSAGE_INFO_V0, buffer) != 0:
        raise UnreadableError(f"{NOT_SUPPORTED}: proc_pid_rusage: {os.strerror(ctypes.get_errno())}")
    (footprint,) = struct.unpack_from("<Q", buffer.raw, FOOTPRINT_OFFSET)
    return int(footprint)


def _resident_bytes() -> Json:
    import psutil

    return int(psutil.Process().memory_info().rss)


def _peak_of(platform: str) -> LinuxPeak | SampledPeak | LifetimePeak:
    if platform == "darwin":
        return SampledPeak(phys_footprint_bytes)
    return LifetimePeak() if platform == "win32" else LinuxPeak()


_METHODS = {LinuxPeak: "high_water_mark", SampledPeak: "sampled_10ms", LifetimePeak: "process_lifetime"}
_PEAK = _peak_of(sys.platform)
"""One a process, since the system keeps one mark a process."""
