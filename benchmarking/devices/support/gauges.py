"""Gauges: utilization of CPUs, GPUs and NPUs as counted by the kernel or a vendor's library.

They run in a process of their own (`measure.monitor`) and read a device that another process uses. Intel's libraries
need root, but Linux's drivers count the work of each process (Documentation/gpu/drm-usage-stats.rst).
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarking.core import plugins
from benchmarking.core.device_contracts import CONDITION_NAMES, USE_NAMES, Gauge
from benchmarking.core.lazy_modules import psutil
from benchmarking.core.metrics import BYTES_PER_KIB, BYTES_PER_MIB, NS_PER_S, NS_PER_US
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Device, Json, Readings
from benchmarking.devices.support.energy_counters import HostEnergy, host_energy
from benchmarking.devices.support.handles import Monitor, combine_readings, parts
from benchmarking.devices.support.system_values import (
    UnreadableError,
    all_missing,
    gather,
    limits,
    processor_clock_hz,
    processor_temperature_c,
    read_int,
    text_or_empty,
)

PERCENT = 100
UTILIZATION, USED, POWER = USE_NAMES
RESIDENT = "resident_bytes"
PACKAGE_ENERGY = "cpu_pkg"
SIZE_UNITS = {"": 1, "KiB": BYTES_PER_KIB, "MiB": BYTES_PER_MIB}
INTEL_DRIVERS = ("i915", "xe")


class BusyShare:
    """The share of time in which something was busy, from a monotonic counter of its busy time.

    `capacity` is the most busy time per unit of time, such as the number of processors.
    """

    def __init__(
        self, busy_ns: Callable[[], float], capacity: float = 1.0, now_ns: Callable[[], float] = time.monotonic_ns
    ) -> None:
        self._busy_ns = busy_ns
        self._capacity = capacity
        self._now_ns = now_ns
        self._last: tuple[float, float] | None = None

    def percent(self) -> float:
        """Percentage of the time since the last call. Raises UnreadableError at the first call."""
        last, self._last = self._last, (self._now_ns(), self._busy_ns())
        if last is None or self._last[0] <= last[0]:
            raise UnreadableError(f"{NOT_SUPPORTED}: a share of time needs two readings")
        elapsed, busy = self._last[0] - last[0], self._last[1] - last[1]
        # Counter and clock are not read at the same instant, so the share can exceed 100 %.
        return min(PERCENT, max(0.0, PERCENT * busy / (elapsed * self._capacity)))


class MonitorGauge(Gauge):
    """A GPU, by the vendor's library."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def read(self) -> Readings:
        return gather({UTILIZATION: self._monitor.utilization_percent, USED: self._used_bytes, POWER: self._power_w})

    def conditions(self) -> Readings:
        return self._monitor.conditions()

    def close(self) -> None:
        self._monitor.close()

    def _used_bytes(self) -> Json:
        readings = self._monitor.memory_in_use()
        if USED not in readings.values:
            raise UnreadableError(readings.missing.get(USED, NOT_SUPPORTED))
        return readings.values[USED]

    def _power_w(self) -> float:
        power_w = self._monitor.momentary_power_w()
        if power_w is None:
            raise UnreadableError(f"{NOT_SUPPORTED}: the driver does not report instantaneous power")
        return power_w


class SeveralGauge(Gauge):
    """Several devices as one: mean utilization, total memory and power, lowest clock, highest temperature."""

    def __init__(self, gauges: Sequence[Gauge]) -> None:
        self._gauges = gauges

    def read(self) -> Readings:
        return combine_readings([gauge.read() for gauge in self._gauges], {UTILIZATION: fmean, USED: sum, POWER: sum})

    def conditions(self) -> Readings:
        joins = {"temperature_c": max, "clock_hz": min, "memory_clock_hz": min}
        return combine_readings([gauge.conditions() for gauge in self._gauges], joins)

    def close(self) -> None:
        for gauge in self._gauges:
            gauge.close()


def open_gauge(device: Device, process_ids: Sequence[int]) -> Gauge:
    """The gauge of a device, or of several as one. Raises BenchhouseError if a device is no longer available."""
    kind = plugins.device_kind(device.type)
    gauges = [kind.gauge(part, process_ids) for part in parts(device)]
    return gauges[0] if len(gauges) == 1 else SeveralGauge(gauges)


class ProcessTree(Sequence[int]):
    """The ids of a process and its descendants. Each iteration reads them again."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __iter__(self) -> Iterator[int]:
        yield self._pid
        try:
            children = psutil.Process(self._pid).children(recursive=True)
        except psutil.Error:  # the process has ended
            return
        yield from (child.pid for child in children)

    def __getitem__(self, index: Any) -> Any:
        return tuple(iter(self))[index]

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ProcessorGauge(Gauge):
    """CPU use of the processes, as a share of the processors they may run on, and their resident memory."""

    def __init__(self, process_ids: Sequence[int], energy: HostEnergy | None = None, sys: Path = Path("/sys")) -> None:
        self._process_ids = process_ids
        self._cpu_times_ns: dict[int, int] = {}
        self._share = BusyShare(self._cpu_time_ns, capacity=usable_processors(process_ids[0]))
        self._energy = energy
        self._last_energy: tuple[int, float] | None = None
        self._sys = sys
        self._has_begun = False

    def read(self) -> Readings:
        no_memory = all_missing(f"{NOT_APPLICABLE}: a CPU has no memory of its own", (USED,))
        no_power = all_missing(f"{NOT_SUPPORTED}: the CPU reports energy, not power", (POWER,))
        return no_memory | no_power | gather({UTILIZATION: self._share.percent, RESIDENT: self._resident_bytes})

    def conditions(self) -> Readings:
        system = platform.system()
        unread = all_missing(f"{NOT_SUPPORTED}: no interface on {system}", CONDITION_NAMES)
        no_memory = all_missing(f"{NOT_APPLICABLE}: a CPU has no memory of its own", ("memory_clock_hz",))
        sensors = {
            "clock_hz": lambda: processor_clock_hz(self._sys),
            "temperature_c": lambda: processor_temperature_c(self._sys),
        }
        machine = {
            "machine_percent": self._machine_percent,
            "machine_used_bytes": lambda: int(psutil.virtual_memory().used),
            POWER: self._power_w,
        }
        return unread | no_memory | gather(sensors if system == "Linux" else {}) | gather(machine)

    def _machine_percent(self) -> float:
        """Use of all processors by any program since the last call."""
        percent, has_begun, self._has_begun = psutil.cpu_percent(), self._has_begun, True
        if not has_begun:
            raise UnreadableError(f"{NOT_SUPPORTED}: a share of time needs two readings")
        return percent

    def _power_w(self) -> float:
        """Power of the CPU packages, from their energy since the last call."""
        if self._energy is None:
            self._energy = host_energy()
        readings = self._energy.energy_j()
        energy_j = readings.values.get(PACKAGE_ENERGY)
        if not isinstance(energy_j, int | float):
            raise UnreadableError(readings.missing.get(PACKAGE_ENERGY, NOT_SUPPORTED))
        last, self._last_energy = self._last_energy, (time.monotonic_ns(), float(energy_j))
        if last is None or self._last_energy[0] <= last[0]:
            raise UnreadableError(f"{NOT_SUPPORTED}: power needs two readings of the energy")
        return (self._last_energy[1] - last[1]) / (self._last_energy[0] - last[0]) * NS_PER_S

    def _cpu_time_ns(self) -> int:
        """CPU time of all the processes, including those that have ended."""
        self._cpu_times_ns |= {pid: spent for pid in self._process_ids if (spent := cpu_time_ns(pid)) is not None}
        return sum(self._cpu_times_ns.values())

    def _resident_bytes(self) -> int:
        sizes: list[int] = []
        for pid in self._process_ids:
            with suppress(psutil.NoSuchProcess):
                sizes.append(psutil.Process(pid).memory_info().rss)
        if not sizes:
            raise UnreadableError(f"{NOT_SUPPORTED}: the processes have ended")
        return sum(sizes)


def usable_processors(pid: int) -> float:
    """How many processors a process may keep busy: its affinity, or the quota of its control group."""
    process = psutil.Process(pid)
    # macOS has no affinity.
    allowed = len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else psutil.cpu_count() or 1
    quota = limits(Path("/")).values.get("cgroup_cpu_quota_cores") if platform.system() == "Linux" else None
    return min(float(allowed), float(quota)) if isinstance(quota, int | float) else float(allowed)


def cpu_time_ns(pid: int) -> int | None:
    """CPU time of all threads of a process, including ended ones; None once the process is gone.

    On Linux it is the process's CPU clock (clock_getcpuclockid): /proc/PID/stat counts in steps of 10 ms, a tenth of
    the time between two readings.
    """
    if platform.system() == "Linux":
        clock = ctypes.c_int()
        if ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)) != 0:
            return None
        try:
            return time.clock_gettime_ns(clock.value)
        except OSError:  # the process just ended
            return None
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return None
    return round((times.user + times.system) * NS_PER_S)


class DrmGauge(Gauge):
    """An Intel GPU, from the counters of its Linux driver for the processes: utilization of the busiest engine and
    memory on the GPU. In tests, `proc` is a recording."""

    def __init__(
        self, process_ids: Sequence[int], proc: Path = Path("/proc"), now_ns: Callable[[], float] = time.monotonic_ns
    ) -> None:
        self._process_ids = process_ids
        self._proc = proc
        self._now_ns = now_ns
        self._last: Mapping[str, tuple[float, float]] | None = None

    def read(self) -> Readings:
        clients = self._clients()
        power = all_missing(f"{NOT_SUPPORTED}: only root can read the GPU's power", (POWER,))
        return power | gather({UTILIZATION: lambda: self._percent(clients), USED: lambda: _device_bytes(clients)})

    def _clients(self) -> list[dict[str, str]]:
        """The fields of each client of the driver, once if several file descriptors share it."""
        clients: dict[tuple[str, str], dict[str, str]] = {}
        for folder in (self._proc / str(pid) / "fdinfo" for pid in self._process_ids):
            try:
                names = os.listdir(folder)
            except OSError:  # the process ended, or belongs to another user
                continue
            for name in names:
                lines = text_or_empty(folder / name).splitlines()
                fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
                if fields.get("drm-driver") in INTEL_DRIVERS:
                    clients[fields.get("drm-pdev", ""), fields.get("drm-client-id", "")] = fields
        return list(clients.values())

    def _percent(self, clients: Sequence[Mapping[str, str]]) -> float:
        if not clients:
            raise UnreadableError(
                f"{NOT_SUPPORTED}: the process has no open file of the drivers {', '.join(INTEL_DRIVERS)}"
            )
        now_ns, engines = self._now_ns(), dict[str, tuple[float, float]]()
        for fields in clients:  # busy time over all clients and available time; i915 counts ns, xe engine cycles
            for key, value in fields.items():
                kind, _, engine = key.removeprefix("drm-").partition("-")
                if engine.startswith(("capacity-", "cycles-")) or kind not in ("engine", "cycles"):
                    continue
                name = f"{fields.get('drm-pdev')} {engine}"
                capacity = _number(fields.get(f"drm-engine-capacity-{engine}", "1"))
                total = now_ns if kind == "engine" else _number(fields.get(f"drm-total-cycles-{engine}", "0"))
                engines[name] = (engines.get(name, (0.0, 0.0))[0] + _number(value), total * capacity)
        last, self._last = self._last, engines
        shares = [
            (busy - last[engine][0]) / (total - last[engine][1])
            for engine, (busy, total) in self._last.items()
            if last is not None and engine in last and total > last[engine][1]
        ]
        if not shares:
            raise UnreadableError(f"{NOT_SUPPORTED}: a share of time needs two readings")
        return min(PERCENT, max(0.0, PERCENT * max(shares)))


def _device_bytes(clients: Sequence[Mapping[str, str]]) -> int:
    """Memory on the GPU. Raises UnreadableError for a GPU that shares the machine's memory."""
    sizes = [
        round(_number(value))
        for fields in clients
        for key, value in fields.items()
        if re.fullmatch(r"drm-resident-(vram|local)\d*", key)
    ]
    if not sizes:
        raise UnreadableError(f"{NOT_APPLICABLE}: the driver reports no memory on the GPU itself")
    return sum(sizes)


def _number(text: str) -> float:
    """A number with an optional unit: "346249 ns", "23992 KiB"."""
    number, _, unit = text.partition(" ")
    return float(number) * SIZE_UNITS.get(unit, 1)


class NpuGauge(Gauge):
    """Intel's NPU, from its Linux driver: busy time (intel_vpu, Linux 6.11) and memory (Linux 6.14)."""

    def __init__(self, sys: Path = Path("/sys"), now_ns: Callable[[], float] = time.monotonic_ns) -> None:
        self._sys = sys
        self._share = BusyShare(lambda: self._value("npu_busy_time_us") * NS_PER_US, now_ns=now_ns)

    def read(self) -> Readings:
        power = all_missing(f"{NOT_SUPPORTED}: the driver does not report power", (POWER,))
        used = {USED: lambda: self._value("npu_memory_utilization")}
        return power | gather({UTILIZATION: self._share.percent, **used})

    def _value(self, name: str) -> int:
        paths = sorted(self._sys.glob(f"class/accel/accel*/device/{name}"))
        if not paths:
            raise UnreadableError(f"{NOT_SUPPORTED}: no {self._sys}/class/accel/accel*/device/{name}")
        return read_int(paths[0])
