"""Several devices of one kind as one: `--device cuda:0,cuda:1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarking.core.device_contracts import IN_USE_NAMES, PEAK_NAMES, STATE_NAMES, DeviceHandle, DeviceTimer
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.records import Device, Json, Readings, from_json, to_json
from benchmarking.devices.support.handle import with_method
from benchmarking.devices.support.kinds import names_with

SEPARATOR = ","
FACT = "devices"
"""The fact that holds each device's own record."""
BY_DEVICE = "by_device"
"""The reading that holds each device's own readings, by selector."""

STATE_OF_ALL: Mapping[str, Callable[[list[float]], float]] = {
    "clock_hz": min,
    "clock_default_hz": min,
    "memory_clock_hz": min,
    "temperature_c": max,
    "power_w": sum,
    "violation_ns": sum,
    "power_violation_ns": sum,
}
"""What one number says of all: the slowest clock is what a call waits for."""


def selectors(request: str) -> tuple[str, ...]:
    """The devices that a list names. Raises UsageError for an empty entry, several kinds, or a kind of which only one
    device is used."""
    named = tuple(part.strip() for part in request.split(SEPARATOR))
    kinds = sorted({name.partition(":")[0] for name in named})
    if "" in kinds:
        raise UsageError(f"--device {request}: a list names its devices one by one, such as cuda:0,cuda:1")
    if len(kinds) > 1:
        raise UsageError(f"--device {request}: several devices must be of one kind; these are {', '.join(kinds)}")
    able = names_with(lambda kind: kind.can_be_several)
    if kinds[0] not in able:
        raise UsageError(f"--device {request}: several devices are taken of {' or '.join(able)}, not of {kinds[0]}")
    return named


def combined(devices: Sequence[Device]) -> Device:
    """Several devices of a kind as one record, whose memory is that of all. Raises UsageError for the same one twice,
    UnsupportedError for unlike models."""
    request = SEPARATOR.join(device.selector for device in devices)
    first = devices[0]
    if len({device.selector for device in devices}) < len(devices):
        raise UsageError(f"--device {request}: the same device is named twice")
    if len({device.name for device in devices}) > 1:
        models = ", ".join(f"{device.selector} is {device.name}" for device in devices)
        raise UnsupportedError(f"--device {request}: unlike models wait for the slowest: {models}")
    sizes = [device.memory_bytes for device in devices if device.memory_bytes is not None]
    return Device(
        type=first.type,
        selector=request,
        found=True,
        name=f"{len(devices)} x {first.name}",
        vendor=first.vendor,
        driver=first.driver,
        count=first.count,
        memory_bytes=sum(sizes) if len(sizes) == len(devices) else None,
        facts=_shared_facts(devices),
        precisions=first.precisions,
    )


def parts(device: Device) -> tuple[Device, ...]:
    """The devices of a record that stands for several; the device itself otherwise."""
    told = device.facts.values.get(FACT)
    return tuple(from_json(Device, entry) for entry in told) if isinstance(told, list) else (device,)


def by_device(readings: Readings) -> Mapping[str, Any]:
    """Each device's own readings, by selector; empty of a single device."""
    told = readings.values.get(BY_DEVICE)
    return told if isinstance(told, dict) else {}


def _shared_facts(devices: Sequence[Device]) -> Readings:
    """The facts that all have alike, and the devices themselves."""
    first = devices[0].facts.values
    alike = {name: value for name, value in first.items() if all(d.facts.values.get(name) == value for d in devices)}
    entries: list[Json] = [to_json(device) for device in devices]
    return Readings(values={**alike, FACT: entries})


class SeveralTimer(DeviceTimer):
    """An event pair on each device; what it tells is the longest of them, each on its own clock."""

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
    """Several open devices, by selector. Sums and extremes of all, with each one's own readings in `by_device`; a value
    that one device does not tell is missing for all, with the reason."""

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

    def empty_cache(self) -> None:
        for handle in self._handles.values():
            handle.empty_cache()

    def reset_peak_memory(self) -> None:
        for handle in self._handles.values():
            handle.reset_peak_memory()

    def peak_memory(self) -> Readings:
        return self._of_all(lambda handle: handle.peak_memory(), dict.fromkeys(PEAK_NAMES, sum))

    def memory_in_use(self) -> Readings:
        return self._of_all(lambda handle: handle.memory_in_use(), dict.fromkeys(IN_USE_NAMES, sum))

    def state(self) -> Readings:
        told = {selector: handle.state() for selector, handle in self._handles.items()}
        united: dict[str, Json] = {}
        for name in ("throttle_reasons", "foreign_pids"):
            lists = [listed for one in told.values() if isinstance(listed := one.values.get(name), list)]
            if len(lists) == len(told):
                united[name] = sorted({entry for listed in lists for entry in listed})
        missing = {name: _why_missing(told, name) for name in STATE_NAMES if name not in united}
        return Readings(missing=missing) | _joined(told, STATE_OF_ALL) | Readings(values=united)

    def energy_j(self) -> Readings:
        """The sum of the devices' counters; the host's are counted once."""
        told = {selector: handle.energy_j() for selector, handle in self._handles.items()}
        host = next(iter(told.values()))
        own = {selector: _only(one, "gpu") for selector, one in told.items()}
        shared = Readings(
            values={name: value for name, value in host.values.items() if name not in ("gpu", "method")},
            missing={name: why for name, why in host.missing.items() if name not in ("gpu", "method")},
        )
        return with_method(shared | _joined(own, {"gpu": sum}))

    def close(self) -> None:
        for handle in self._handles.values():
            handle.close()

    def _of_all(
        self, read: Callable[[DeviceHandle], Readings], together: Mapping[str, Callable[[list[float]], float]]
    ) -> Readings:
        return _joined({selector: read(handle) for selector, handle in self._handles.items()}, together)


def open_several(devices: Sequence[Device], open_one: Callable[[Device], DeviceHandle]) -> DeviceHandle:
    """The devices, open, as one; those already open are let go when one cannot be had."""
    handles: dict[str, DeviceHandle] = {}
    try:
        for device in devices:
            handles[device.selector] = open_one(device)
    except BenchhouseError:
        for handle in handles.values():
            handle.close()
        raise
    return SeveralHandle(handles)


def _joined(told: Mapping[str, Readings], together: Mapping[str, Callable[[list[float]], float]]) -> Readings:
    values: dict[str, Json] = {BY_DEVICE: {selector: dict(one.values) for selector, one in told.items()}}
    missing: dict[str, str] = {}
    for name, join in together.items():
        numbers = [value for one in told.values() if isinstance(value := one.values.get(name), int | float)]
        if len(numbers) == len(told):
            values[name] = join(list[float](numbers))
        else:
            missing[name] = _why_missing(told, name)
    return Readings(values=values, missing=missing)


def _why_missing(told: Mapping[str, Readings], name: str) -> str:
    """The first device's reason for not telling, with its name behind the reason's word."""
    for selector, one in told.items():
        if name not in one.values:
            word, _, detail = one.missing.get(name, "not_supported").partition(":")
            return f"{word}: {selector}{':' if detail else ''}{detail}"
    return "not_supported"


def _only(readings: Readings, name: str) -> Readings:
    return Readings(
        values={key: value for key, value in readings.values.items() if key == name},
        missing={key: why for key, why in readings.missing.items() if key == name},
    )
