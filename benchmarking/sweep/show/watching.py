"""Watching the sweeps of this machine: their live statuses, and the use of their devices.

The watcher samples devices in its own processes, and only while it is being used.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.live_status import (
    READINGS,
    DeviceReadings,
    LiveSnapshot,
    LiveStatus,
    ReadingHistory,
    WatchedCommand,
    read_all,
)
from benchmarking.core.metrics import ns_to_s
from benchmarking.core.records import NOT_APPLICABLE, Device
from benchmarking.devices.support.kinds import kind_of, processor
from benchmarking.measure.monitor import DeviceMonitor, Usage


class Watch:
    """Watches the sweeps of this user on this machine, and samples the devices of running ones.

    Thread-safe; close it at the end. Sampling ends after `idle_s` seconds without a call of `snapshot`.
    """

    def __init__(self, *, sample_interval: float = 1.0, keep: int = 300, idle_s: float = 15.0) -> None:
        self._sample_interval = sample_interval
        self._keep = keep
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._meters: dict[tuple[str, str], DeviceMeter] = {}
        self._idle: threading.Timer | None = None

    def snapshot(self) -> LiveSnapshot:
        """The current state. Raises StorageError if the folder of the statuses cannot be used."""
        found = read_all()
        states = [(status, status.state_now()) for status in found.statuses]
        running = [status for status, state in states if state == "running"]
        with self._lock:
            self._meter(running)
            readings = [
                WatchedCommand(status=status, state=state, meters=self._meters_of(status) if state == "running" else ())
                for status, state in states
            ]
            self._end_when_idle()
        return LiveSnapshot(
            at_s=time.time(),
            running=tuple(one for one in readings if one.state == "running"),
            ended=tuple(one for one in readings if one.state != "running"),
            ignored=found.ignored,
        )

    def close(self) -> None:
        """End sampling."""
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            self._idle = None
            meters, self._meters = list(self._meters.values()), {}
        for meter in meters:
            meter.end()

    def _meter(self, running: Sequence[LiveStatus]) -> None:
        """Sample the devices of these sweeps, and no others."""
        active = {
            (status.key, device.selector if device else ""): (status, device)
            for status in running
            for device in (None, *_measured_devices(status))
        }
        for key in set(self._meters) - set(active):
            self._meters.pop(key).end()
        for key in active:
            if key not in self._meters:
                status, device = active[key]
                self._meters[key] = DeviceMeter(status, device, self._sample_interval, self._keep)

    def _meters_of(self, status: LiveStatus) -> tuple[DeviceReadings, ...]:
        return tuple(meter.readings() for (key, _), meter in self._meters.items() if key == status.key)

    def _end_when_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = threading.Timer(self._idle_s, self.close)
        self._idle.daemon = True
        self._idle.start()


def _measured_devices(status: LiveStatus) -> list[Device]:
    """The devices of a sweep other than the CPU, for which every sweep has a meter."""
    found = []
    for device in status.devices:
        kind = kind_of(device.type)
        if kind is not None and kind.has_gauge and (kind.is_gpu(device) or kind.is_npu(device)):
            found.append(device)
    return found


class DeviceMeter:
    """Monitors one device of a sweep, or the CPU use of its processes, from now on."""

    def __init__(self, status: LiveStatus, device: Device | None, sample_interval: float, keep: int) -> None:
        pids = (status.owner.pid,)
        self._monitor = DeviceMonitor(
            processor().name if device is None else device,
            sample_interval=sample_interval,
            process_ids=pids,
            with_children=True,
            keep=keep,
        )
        self._trouble: str | None = None
        self._stopping = threading.Event()
        # In a thread, since opening a vendor's library may take seconds.
        threading.Thread(target=self._run, daemon=True, name="metering").start()

    def readings(self) -> DeviceReadings:
        """All samples so far."""
        usage, device = self._monitor.usage, self._monitor.device()
        histories = tuple(history for name in READINGS if (history := _history(usage, name)) is not None)
        last = usage.samples[-1].missing if usage.samples else {}
        reported = {history.name for history in histories}
        return DeviceReadings(
            selector=device.selector,
            name=device.name or device.type,
            histories=histories,
            missing={
                name: last[name]
                for name in READINGS
                if name in last and name not in reported and not last[name].startswith(NOT_APPLICABLE)
            },
            trouble=self._trouble,
        )

    def end(self) -> None:
        """End sampling."""
        self._stopping.set()

    def _run(self) -> None:
        try:
            with self._monitor:
                while not self._stopping.wait(self._monitor.sample_interval):
                    self._monitor.check()
        except BenchhouseError as error:
            self._trouble = str(error)


def _history(usage: Usage, name: str) -> ReadingHistory | None:
    now_ns = time.monotonic_ns()
    pairs = [(one.values[name], ns_to_s(now_ns - one.at_ns)) for one in usage.samples if name in one.values]
    if not pairs:
        return None
    factor = READINGS[name].factor
    return ReadingHistory(
        name=name, values=tuple(value * factor for value, _ in pairs), ages_s=tuple(age for _, age in pairs)
    )
