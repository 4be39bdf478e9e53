"""Open devices: what all handles share (the host's clock and energy), several devices of a kind as one, and the
processes on a GPU.

`--device cuda:0,cuda:1` is one `Device` whose facts hold the records of its parts; it opens as a `SeveralHandle`.

A process that only holds a GPU open (a desktop, an idle notebook, a neighbour in another MIG instance) does not disturb
a measurement; a process that computes on the GPU does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from benchmarking.core.command_names import as_typed
from benchmarking.core.device_contracts import (
    ENERGY_DOMAINS,
    IN_USE_NAMES,
    PEAK_NAMES,
    STATE_NAMES,
    ColdCache,
    DeviceHandle,
    DeviceKind,
    DeviceTimer,
)
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import names_with
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Device, Json, Readings, from_json, to_json
from benchmarking.devices.support.energy_counters import HostEnergy, host_energy
from benchmarking.devices.support.system_values import UnreadableError, all_missing

if TYPE_CHECKING:
    from benchmarking.core.contracts import Runtime

HOST_DOMAINS = ("cpu_pkg", "dram")

# Entries of `throttle_reasons`, the same for every vendor. A software power cap alone is not throttling.
GPU_IDLE = "gpu_idle"
CLOCKS_SETTING = "clocks_setting"
CLOCK_BELOW_MAXIMUM = "clock_below_maximum"  # the driver names no reason for it, as with locked clocks
SOFTWARE_POWER_CAP = "software_power_cap"
HARDWARE_SLOWDOWN = "hardware_slowdown"
SYNC_BOOST = "sync_boost"
SOFTWARE_THERMAL = "software_thermal"
HARDWARE_THERMAL = "hardware_thermal"
POWER_BRAKE = "power_brake"
SEPARATOR = ","
FACT = "devices"
"""The fact that holds the record of each device."""
BY_DEVICE = "by_device"
"""The reading that holds the readings of each device, by selector."""
STATE_OF_ALL: Mapping[str, Callable[[list[float]], float]] = {
    "clock_hz": min,
    "clock_default_hz": min,
    "clock_highest_hz": min,
    "memory_clock_hz": min,
    "temperature_c": max,
    "power_w": sum,
    "violation_ns": sum,
    "power_violation_ns": sum,
}
"""How the devices' numbers are combined. A call waits for the device with the slowest clock."""
BUSY_PERCENT = 5
"""Share of time with kernels of another process above which it counts as use; a desktop that redraws stays below."""


class Monitor(Protocol):
    """A monitor of one open device, by a vendor's management library or the kernel."""

    def memory_in_use(self) -> Readings:
        """As `DeviceHandle.memory_in_use`."""

    def state(self) -> Readings:
        """As `DeviceHandle.state`."""

    def conditions(self) -> Readings:
        """Current temperature and clocks (`CONDITION_NAMES`)."""

    def energy_j(self) -> Readings:
        """The energy domains that the device itself counts; the handle adds the host's."""

    def momentary_power_w(self) -> float | None:
        """As `DeviceHandle.momentary_power_w`."""

    def utilization_percent(self) -> Json:
        """Share of the driver's last sampling period in which the device was busy. Raises UnreadableError."""

    def close(self) -> None:
        """Release the library."""


class HostHandle(DeviceHandle):
    """A device whose host counts energy; the base of most handles."""

    def __init__(self, energy: HostEnergy | None = None) -> None:
        self._host_energy = energy or host_energy()

    def energy_j(self) -> Readings:
        """Energy of the CPU and its memory. A host may count its GPU too, but that GPU is idle here."""
        host = self._host_energy.energy_j().only(HOST_DOMAINS)
        return with_method(all_missing(f"{NOT_APPLICABLE}: the device has no such domain", ("gpu", "soc")) | host)


def with_method(energy: Readings) -> Readings:
    """The energy readings with their `method`: "counter" if any domain has a value."""
    if any(domain in energy.values for domain in ENERGY_DOMAINS):
        return energy | Readings(values={"method": "counter"})
    return energy | all_missing(f"{NOT_SUPPORTED}: no energy counter", ("method",))


def selectors(request: str) -> tuple[str, ...]:
    """The devices in a list. Raises UsageError for an empty entry, several kinds, or a kind without support for
    several devices."""
    names = tuple(name.strip() for name in request.split(SEPARATOR))
    kinds = sorted({name.partition(":")[0] for name in names})
    if "" in kinds:
        raise UsageError(f"--device {request}: a list must name each device, such as cuda:0,cuda:1")
    if len(kinds) > 1:
        raise UsageError(
            f"--device {request}: several devices must be of one kind, got {', '.join(kinds)}: "
            f"{as_typed('batch')} measures on each of several kinds"
        )
    supported = names_with(lambda kind: kind.can_be_several)
    if kinds[0] not in supported:
        raise UsageError(
            f"--device {request}: several devices must be {' or '.join(supported)} devices, got {kinds[0]}"
        )
    return names


def combine_devices(devices: Sequence[Device]) -> Device:
    """Several devices of a kind as one record, with their total memory. Raises UsageError for duplicates,
    UnsupportedError for different models."""
    request = SEPARATOR.join(device.selector for device in devices)
    first = devices[0]
    if len({device.selector for device in devices}) < len(devices):
        raise UsageError(f"--device {request}: the same device is named twice")
    if len({device.name for device in devices}) > 1:
        models = ", ".join(f"{device.selector} is {device.name}" for device in devices)
        raise UnsupportedError(
            f"--device {request}: the devices must be of one model, as all wait for the slowest: {models}"
        )
    sizes = [device.memory_bytes for device in devices if device.memory_bytes is not None]
    facts = first.facts.values.items()
    shared = {name: value for name, value in facts if all(d.facts.values.get(name) == value for d in devices)}
    entries: list[Json] = [to_json(device) for device in devices]
    return replace(
        first,
        selector=request,
        name=f"{len(devices)} x {first.name}",
        memory_bytes=sum(sizes) if len(sizes) == len(devices) else None,
        facts=Readings(values={**shared, FACT: entries}),
    )


def parts(device: Device) -> tuple[Device, ...]:
    """The devices combined in a record; a single device is its own part."""
    entries = device.facts.values.get(FACT)
    return tuple(from_json(Device, entry) for entry in entries) if isinstance(entries, list) else (device,)


def by_device(readings: Readings) -> Mapping[str, Any]:
    """The readings of each device, by selector; empty for a single device."""
    readings_by_device = readings.values.get(BY_DEVICE)
    return readings_by_device if isinstance(readings_by_device, dict) else {}


class SeveralTimer(DeviceTimer):
    """A pair of events on each device. The time is the longest of theirs, each by its own clock."""

    def __init__(self, timers: Sequence[DeviceTimer]) -> None:
        self._timers = timers

    def start(self) -> None:
        for timer in self._timers:
            timer.start()

    def stop(self) -> None:
        for timer in self._timers:
            timer.stop()

    def elapsed_ns(self) -> int:
        return max(timer.elapsed_ns() for timer in self._timers)


class SeveralHandle(DeviceHandle):
    """Several open devices, by selector: sums and extremes of their readings, and each device's own in `by_device`. A
    value that one device lacks is missing, with that device's reason."""

    def __init__(self, handles: Mapping[str, DeviceHandle]) -> None:
        self._handles = dict(handles)
        names = [handle.torch_name for handle in handles.values()]
        self.torch_name: str | None = None if None in names else SEPARATOR.join(name for name in names if name)

    def timer(self) -> DeviceTimer | None:
        timers = [timer for handle in self._handles.values() if (timer := handle.timer()) is not None]
        return SeveralTimer(timers) if len(timers) == len(self._handles) else None

    def synchronize(self) -> None:
        for handle in self._handles.values():
            handle.synchronize()

    @property
    def has_queue(self) -> bool:  # type: ignore[override]
        """Whether every device has one."""
        return all(handle.has_queue for handle in self._handles.values())

    @contextmanager
    def cold_cache(self) -> Iterator[ColdCache]:
        with ExitStack() as stack:
            caches = [stack.enter_context(handle.cold_cache()) for handle in self._handles.values()]

            def flush() -> None:
                for cache in caches:
                    cache.flush()

            yield ColdCache(flush=flush, size_bytes=sum(cache.size_bytes for cache in caches))

    def empty_cache(self) -> None:
        for handle in self._handles.values():
            handle.empty_cache()

    def reset_peak_memory(self) -> None:
        for handle in self._handles.values():
            handle.reset_peak_memory()

    def peak_memory(self) -> Readings:
        peaks = {selector: handle.peak_memory() for selector, handle in self._handles.items()}
        return _combined_by_device(peaks, dict.fromkeys(PEAK_NAMES, sum))

    def memory_in_use(self) -> Readings:
        in_use = {selector: handle.memory_in_use() for selector, handle in self._handles.items()}
        return _combined_by_device(in_use, dict.fromkeys(IN_USE_NAMES, sum))

    def state(self) -> Readings:
        states = {selector: handle.state() for selector, handle in self._handles.items()}
        values: dict[str, Json] = {}
        for name in ("throttle_reasons", "foreign_pids"):
            lists = [listed for readings in states.values() if isinstance(listed := readings.values.get(name), list)]
            if len(lists) == len(states):
                values[name] = sorted({entry for listed in lists for entry in listed})
        listed_use = [readings.values.get("foreign_use") for readings in states.values()]
        use: list[Json] = [entry for listed in listed_use if isinstance(listed, list) for entry in listed]
        values |= {"foreign_use": use} if use else {}
        counters = [
            found for readings in states.values() if isinstance(found := readings.values.get("throttle_counters"), dict)
        ]
        if len(counters) == len(states):
            reasons = sorted(set().union(*counters))
            values["throttle_counters"] = {name: sum(counter.get(name, 0) for counter in counters) for name in reasons}
        missing = {name: _why_missing(states, name) for name in STATE_NAMES if name not in values}
        return Readings(missing=missing) | _combined_by_device(states, STATE_OF_ALL) | Readings(values=values)

    def energy_j(self) -> Readings:
        """The sum of the devices' counters; the host's count once."""
        energies = {selector: handle.energy_j() for selector, handle in self._handles.items()}
        host = next(iter(energies.values())).only([name for name in ENERGY_DOMAINS if name != "gpu"])
        device_energies = {selector: one.only(("gpu",)) for selector, one in energies.items()}
        return with_method(host | _combined_by_device(device_energies, {"gpu": sum}))

    def momentary_power_w(self) -> float | None:
        watts = [handle.momentary_power_w() for handle in self._handles.values()]
        known = [value for value in watts if value is not None]
        return sum(known) if len(known) == len(watts) else None

    def close(self) -> None:
        for handle in self._handles.values():
            handle.close()


def open_several(devices: Sequence[Device], open_one: Callable[[Device], DeviceHandle]) -> DeviceHandle:
    """Open the devices as one. If one fails to open, those already open are closed.

    The first is opened last and closed first, which makes it the current GPU of the process.
    """
    handles: dict[str, DeviceHandle] = {}
    try:
        for device in reversed(devices):
            handles = {device.selector: open_one(device), **handles}
    except BenchhouseError:
        for handle in handles.values():
            handle.close()
        raise
    return SeveralHandle(handles)


def open_device(runtime: Runtime, plugin: DeviceKind, device: Device) -> DeviceHandle:
    """Open the device for a runtime: without torch if neither the runtime nor the device needs it."""
    devices = parts(device)

    def open_one(one: Device) -> DeviceHandle:
        return plugin.watch(one, devices) if runtime.needs_no_torch else plugin.open(one)

    return open_several(devices, open_one) if len(devices) > 1 else open_one(device)


def _combined_by_device(
    by_selector: Mapping[str, Readings], joins: Mapping[str, Callable[[list[float]], float]]
) -> Readings:
    """As `combine_readings`, with those of each device, and reasons that name their device."""
    known = combine_readings(list(by_selector.values()), joins).values
    each: Json = {selector: dict(one.values) for selector, one in by_selector.items()}
    missing = {name: _why_missing(by_selector, name) for name in joins if name not in known}
    return Readings(values={BY_DEVICE: each, **known}, missing=missing)


def combine_readings(readings: Sequence[Readings], joins: Mapping[str, Callable[[list[float]], float]]) -> Readings:
    """One value for all devices if each has one, else the reason of a device without one."""
    values: dict[str, Json] = {}
    for name, join in joins.items():
        numbers = [number for reading in readings if isinstance(number := reading.values.get(name), int | float)]
        if len(numbers) == len(readings):
            values[name] = join(list[float](numbers))
    missing = {name: why for reading in readings for name, why in reading.missing.items()}
    return Readings(missing=missing) | Readings(values=values)


def _why_missing(by_selector: Mapping[str, Readings], name: str) -> str:
    """The reason of the first device that lacks the value, with its selector after the reason's keyword."""
    for selector, one in by_selector.items():
        if name not in one.values:
            word, _, detail = one.missing.get(name, NOT_SUPPORTED).partition(":")
            return f"{word}: {selector}{':' if detail else ''}{detail}"
    return NOT_SUPPORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A process on a GPU, as the driver lists it."""

    memory_bytes: int | None = None
    """None if the driver does not report it (Windows)."""
    busy_percent: int | None = None
    """Share of time in which its kernels ran since the last reading; None if the driver does not count it."""
    is_graphics: bool = False
    """Whether it draws; it may also compute ("C+G" in nvidia-smi)."""
    computes: bool = True
    instance: int | None = None
    """Its MIG instance, if the GPU is split."""


Clients = Mapping[int, Client]
"""The processes on a GPU by pid."""


class ProcessOwners:
    """Which process on a device is this one, and which foreign processes use it.

    In a container the driver lists the host's pids, where this process has another number. So the pids from `before`
    this process used the device are remembered: if exactly one pid is new later, it is ours. If none were remembered,
    because this process already used the device, a single pid is ours.
    """

    def __init__(self, before: frozenset[int], own: int | None = None) -> None:
        self._before = before
        self._own = own or os.getpid()
        self._alias: int | None = None
        self._memory: dict[int, int | None] | None = None
        """Bytes by pid at the last reading of `use`; None before the first."""

    @classmethod
    def at_start(cls, clients: Callable[[], Clients], own: int | None, *, is_in_use: bool) -> ProcessOwners:
        """Remembers the processes now on the device, or none if this process already uses it (`is_in_use`)."""
        try:
            return cls(frozenset() if is_in_use else computing(clients()), own)
        except UnreadableError:  # every state() reports the reason
            return cls(frozenset(), own)

    def own_pid(self, pids: frozenset[int]) -> int | None:
        """This process's pid among `pids`; None while it is not listed. Raises UnreadableError if it is ambiguous."""
        if self._own in pids:
            return self._own
        if self._alias in pids:
            return self._alias
        newcomers = pids - self._before
        if len(newcomers) > 1:
            listed = ", ".join(map(str, sorted(newcomers)))
            raise UnreadableError(
                f"{NOT_SUPPORTED}: the driver lists pids of another namespace ({listed}; ours is {self._own})"
            )
        self._alias = next(iter(newcomers), None)
        return self._alias

    def own_bytes(self, clients: Clients) -> int:
        """Memory of this process, from the driver's list by pid. Raises UnreadableError rather than guess."""
        own = self.own_pid(computing(clients))
        if own is None:
            raise UnreadableError(
                f"{NOT_SUPPORTED}: the driver does not list this process (it may not hold any memory yet)"
            )
        used = clients[own].memory_bytes
        if used is None:
            raise UnreadableError(f"{NOT_SUPPORTED}: the driver does not report memory per process")
        return used

    def use(self, clients: Callable[[], Clients]) -> Readings:
        """`foreign_pids`: the other processes that use the device; `foreign_use`: the evidence, one entry for each."""
        try:
            entries = self.foreign(clients())
        except UnreadableError as error:
            return all_missing(str(error), ("foreign_use", "foreign_pids"))
        pids: list[Json] = [entry["pid"] for entry in entries if isinstance(entry, dict)]
        return Readings(values={"foreign_use": entries, "foreign_pids": pids})

    def foreign(self, clients: Clients) -> list[Json]:
        """The other processes that use the device, by pid. Raises UnreadableError.

        Ancestors, descendants and processes in other MIG instances do not count as foreign.
        """
        own = self.own_pid(computing(clients))
        others = {pid: client for pid, client in clients.items() if pid != own}
        own_instance = None if own is None else clients[own].instance
        is_split = any(client.instance is not None for client in clients.values())
        family = frozenset[int]()
        if others and own in (None, self._own):
            import psutil

            with suppress(psutil.Error):
                process = psutil.Process(self._own)
                family = frozenset(one.pid for one in (*process.parents(), *process.children(recursive=True)))
        memory = {pid: client.memory_bytes for pid, client in clients.items()}
        memory_before, self._memory = memory if self._memory is None else self._memory, memory
        return [
            {"pid": pid, "busy_percent": client.busy_percent, "memory_bytes": client.memory_bytes}
            for pid, client in sorted(others.items())
            if pid not in family and not (is_split and client.instance != own_instance)
            if _is_in_use(client, memory_before.get(pid, 0))
        ]


def computing(clients: Clients) -> frozenset[int]:
    """The pids that the driver lists as computing, which includes every process that uses the GPU by CUDA or HIP."""
    return frozenset(pid for pid, client in clients.items() if client.computes)


def _is_in_use(client: Client, memory_before: int | None) -> bool:
    """Whether a process computes, or allocates or frees memory. If the driver does not count computing, only memory
    counts, and not for processes that draw."""
    if client.busy_percent is not None and client.busy_percent >= BUSY_PERCENT:
        return True
    if client.is_graphics:
        return False
    if client.memory_bytes is None or memory_before is None:
        return False
    return client.memory_bytes != memory_before or (client.busy_percent is None and client.memory_bytes > 0)
