"""Finds the devices of this machine, and picks the one that `--device` means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches

from benchmarking import plugins
from benchmarking.devices._asking import PACKAGE, TIME_LIMIT_S, Probes
from benchmarking.devices._kinds import kinds, names_with
from benchmarking.devices._several import SEPARATOR, combined, selectors
from benchmarking.errors import UnsupportedError, UsageError
from benchmarking.records import Device

AUTO = "auto"

Supports = Callable[[Device], str | None]
"""None, or why the request cannot run on the device."""
Answers = dict[str, tuple[Device, ...]]
"""What kinds of devices have answered, by kind."""


def probe_all(names: Sequence[str] | None = None, time_limit_s: float = TIME_LIMIT_S) -> dict[str, tuple[Device, ...]]:
    """What is found, or why not, for each kind (all hardware when no names are given), asked at the same time."""
    hardware = names_with(lambda kind: kind.is_hardware)
    with Probes(hardware if names is None else names, time_limit_s) as probes:
        return {name: probes.answer(name) for name in probes.names}


def select(request: str, supports: Supports, answers: Answers | None = None) -> Device:
    """The device a request means: "auto", a kind ("cuda"), or one exactly ("cuda:1", "openvino:GPU"), or several
    of a kind as one ("cuda:0,cuda:1").

    A kind alone is its first device (OpenVINO's in the order GPU, NPU, CPU). Raises UsageError for an unknown kind,
    UnsupportedError with the reason for a device that is absent or that the request cannot run on. There is no
    fallback: only `auto` chooses, and says why when it finds nothing. Kinds in `answers` are not asked again, and what
    is asked goes into it.
    """
    answers = {} if answers is None else answers
    if request == AUTO:
        return _select_auto(supports, answers)
    device = _explicit(request, answers)
    why_not = supports(device)
    if why_not is not None:
        raise UnsupportedError(f"device {device.selector!r} ({device.name}) cannot run this: {why_not}")
    return device


def _select_auto(supports: Supports, answers: Answers) -> Device:
    """The first in the order of ranks that is there, is no emulator, and supports the request."""
    refused: dict[str, str] = {}
    order = _order()
    with Probes([kind for kind in dict.fromkeys(kind for kind, _ in order) if kind not in answers]) as probes:
        for kind, part in order:
            if kind not in answers:
                answers[kind] = probes.answer(kind)
            for device in _candidates(answers[kind], part):
                why_not = supports(device)
                if why_not is None:
                    return device
                refused[device.selector] = why_not
    reasons = "; ".join(f"{selector}: {why}" for selector, why in refused.items())
    raise UnsupportedError(f"--device auto found no device for this request. {reasons}")


def _order() -> list[tuple[str, str]]:
    """What `auto` tries: each kind, with which of its devices."""
    ranked = [(rank, kind.name, part) for kind in kinds() for rank, part in kind.auto_ranks]
    return [(name, part) for _, name, part in sorted(ranked)]


def _candidates(devices: Sequence[Device], part: str) -> list[Device]:
    real = [device for device in devices if device.found and not device.simulated]
    return [device for device in real if not part or _part(device).partition(".")[0] == part]


def _explicit(request: str, answers: Answers) -> Device:
    if SEPARATOR in request:
        return _several(request, answers)
    kind, _, part = request.partition(":")
    known = plugins.names(PACKAGE)
    if kind not in known:
        near = get_close_matches(kind.lower(), (*known, AUTO), n=2, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(f"unknown device {request!r}.{hint} Devices: {AUTO}, {', '.join(known)}")
    if kind not in answers:
        with Probes((kind,)) as probes:
            answers[kind] = probes.answer(kind)
    devices = answers[kind]
    if not devices[0].found:
        raise UnsupportedError(f"device {request!r} is not available: {devices[0].why_not}")
    if ":" not in request:
        return devices[0]
    return _exact(request, part, devices)


def _several(request: str, answers: Answers) -> Device:
    """The devices of a list such as cuda:0,cuda:1 as one."""
    return combined([_explicit(selector, answers) for selector in selectors(request)])


def _exact(request: str, part: str, devices: Sequence[Device]) -> Device:
    """The device with this part of a selector; "GPU" and "GPU.0" are the same."""
    wanted = _canonical(part)
    for device in devices:
        if _part(device) and _canonical(_part(device)) == wanted:
            return device
    found = ", ".join(f"{device.selector} ({device.name})" for device in devices)
    raise UnsupportedError(f"there is no device {request!r}. Found: {found}")


def _part(device: Device) -> str:
    return device.selector.partition(":")[2]


def _canonical(part: str) -> str:
    return part.upper().removesuffix(".0")
