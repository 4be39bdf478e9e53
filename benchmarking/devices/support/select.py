"""Finds the devices of this machine, and picks the one that `--device` means.

Asks kinds of devices whether they are there.

A driver can hang or crash the process that asks it, so kinds that load one are asked in a process of their own.
`python -m benchmarking.devices.support.select NAME` is that process: it prints the devices as JSON on stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from tempfile import TemporaryFile
from typing import IO

from benchmarking.core import plugins
from benchmarking.core.child_process import OWN_PYTHON, start
from benchmarking.core.device_contracts import DeviceKind
from benchmarking.core.errors import FormatError, UnsupportedError, UsageError
from benchmarking.core.records import Device, from_json, to_json
from benchmarking.devices.support.handles import SEPARATOR, combined, selectors
from benchmarking.devices.support.kinds import kinds, names_with

PACKAGE = "benchmarking.devices"

TIME_LIMIT_S = 20.0
"""Loading a GPU driver for the first time after a boot takes some seconds; one that takes longer hangs."""

ASK = "import sys; from benchmarking.devices.support.select import main; main(sys.argv[1:])"
"""What the asking process runs."""


class Probes:
    """Probes under way. Those in processes start at once; leaving the context ends the ones not waited for."""

    def __init__(self, names: Sequence[str], time_limit_s: float = TIME_LIMIT_S) -> None:
        self.names = tuple(names)
        self._plugins: dict[str, DeviceKind] = {name: plugins.load(PACKAGE, name) for name in self.names}
        apart = [name for name, plugin in self._plugins.items() if not plugin.probes_in_process]
        deadline = time.monotonic() + time_limit_s
        self._asked = {name: ChildProbe(name, deadline, time_limit_s) for name in apart}

    def __enter__(self) -> Probes:
        return self

    def __exit__(self, *_: object) -> None:
        for asked in self._asked.values():
            asked.end()

    def answer(self, name: str) -> tuple[Device, ...]:
        """The kind's devices; waits for the answer."""
        return self._asked[name].answer() if name in self._asked else self._plugins[name].probe()


class ChildProbe:
    """One kind asked in a process of its own."""

    def __init__(self, name: str, deadline: float, time_limit_s: float) -> None:
        self._name = name
        self._deadline = deadline
        self._time_limit_s = time_limit_s
        # Files, not pipes: a driver that chatters would fill a pipe nobody reads, and look as if it hung.
        self._stdout: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed in end()
        self._stderr: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed in end()
        self._process = start((*OWN_PYTHON, "-c", ASK, name), stdout=self._stdout, stderr=self._stderr)

    def answer(self) -> tuple[Device, ...]:
        """What the process printed, or the reason why it did not."""
        try:
            code = self._process.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return (self._failed(f"did not answer within {self._time_limit_s:g} s"),)
        if code != 0:
            return (self._failed(f"ended with {_exit_text(code)}"),)
        try:
            return read_answer(_text(self._stdout))
        except FormatError as error:
            return (self._failed(f"gave no valid answer ({error})"),)

    def end(self) -> None:
        """Stop the process if it still runs, and let the files go."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._stdout.close()
        self._stderr.close()

    def _failed(self, what: str) -> Device:
        last = (_text(self._stderr).strip().splitlines() or ["nothing on stderr"])[-1].strip()
        by_hand = f"see more with python -m {PACKAGE}.support.select {self._name}"
        why = f"its probe {what}: {last}; {by_hand}"
        return Device(type=self._name, selector=self._name, found=False, why_not=why)


def read_answer(text: str) -> tuple[Device, ...]:
    """The devices a probing process printed. Raises FormatError."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise FormatError(f"not JSON: {text.strip()[:60]!r}") from error
    if not isinstance(data, list) or not data:
        raise FormatError("not a list of devices")
    return tuple(from_json(Device, entry) for entry in data)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _exit_text(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def main(argv: Sequence[str]) -> None:
    """Print the devices of kind `argv[0]`. Whatever a driver prints on stdout meanwhile goes to stderr."""
    answer = os.dup(1)
    os.dup2(2, 1)
    plugin: DeviceKind = plugins.load(PACKAGE, argv[0])
    devices = to_json(plugin.probe())
    with open(answer, "w", encoding="utf-8") as stdout:
        json.dump(devices, stdout)


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


if __name__ == "__main__":
    main(sys.argv[1:])
