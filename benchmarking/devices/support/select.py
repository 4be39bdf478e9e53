"""Finds this machine's devices and selects the one that `--device` requests.

A driver can hang or crash the process that loads it, so kinds with a driver are probed in child processes. A child
runs `python -m benchmarking.devices.support.select NAME`, which prints the devices as JSON on stdout.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from tempfile import TemporaryFile
from typing import IO

from benchmarking.core import plugins
from benchmarking.core.child_process import OWN_PYTHON, ending, start
from benchmarking.core.device_contracts import DeviceKind
from benchmarking.core.errors import FormatError, UnsupportedError, UsageError
from benchmarking.core.plugins import kinds, names_with
from benchmarking.core.records import Device, from_json, to_json
from benchmarking.core.suggestions import meant_by
from benchmarking.devices.support.handles import SEPARATOR, combine_devices, selectors

AUTO = "auto"
TIME_LIMIT_S = 60.0
"""Time limit of a probe. Without persistence mode NVIDIA's driver initializes GPUs one after the other, in 1 to 3 s
each: 16 GPUs take up to 48 s."""
MODULE = "benchmarking.devices.support.select"
CHILD_CODE = f"import sys; from {MODULE} import main; main(sys.argv[1:])"

NUMBERED = re.compile(r"(?:([A-Za-z]+)[.:_-]?)?(\d|1\d)")
"""A kind with a number, as in CUDA0 and gpu:0, or the number of a GPU."""

Supports = Callable[[Device], str | None]
"""Returns None, or why the request cannot run on the device."""
Probed = dict[str, tuple[Device, ...]]
"""The devices of each kind probed so far."""


def probe_all(names: Sequence[str] | None = None) -> Probed:
    """The devices of each kind, or why there are none. Probes concurrently; without names, all hardware kinds."""
    hardware = names_with(lambda kind: kind.is_hardware)
    with Probes(hardware if names is None else names) as probes:
        return {name: probes.devices(name) for name in probes.names}


def select(request: str, supports: Supports, probed: Probed | None = None) -> Device:
    """The requested device: "auto", a kind ("cuda"), one device ("cuda:1", "openvino:GPU"), or several of a kind as
    one ("cuda:0,cuda:1").

    A kind alone selects its first device (for OpenVINO in the order GPU, NPU, CPU). Raises UsageError for an unknown
    kind, and UnsupportedError with the reason if the device is missing or cannot run the request. There is no
    fallback: only `auto` chooses. Kinds in `probed` are not probed again; newly probed kinds are added to it.
    """
    probed = {} if probed is None else probed
    if request == AUTO:
        # The first device by rank that was found, supports the request and is not an emulator.
        refused: dict[str, str] = {}
        order = sorted((rank, kind.name, part) for kind in kinds() for rank, part in kind.auto_ranks)
        with Probes([name for name in dict.fromkeys(name for _, name, _ in order) if name not in probed]) as probes:
            for _, name, part in order:
                if name not in probed:
                    probed[name] = probes.devices(name)
                for device in probed[name]:
                    if not device.found or device.simulated or (part and device.own_name.partition(".")[0] != part):
                        continue
                    if (why_not := supports(device)) is None:
                        return device
                    refused[device.selector] = why_not
        reasons = "; ".join(f"{selector}: {why}" for selector, why in refused.items())
        raise UnsupportedError(f"--device auto: no device supports this request. {reasons}")
    device = _select_named(request, probed)
    if (why_not := supports(device)) is not None:
        raise UnsupportedError(f"device {device.selector!r} ({device.name}) cannot run this: {why_not}")
    return device


def _select_named(request: str, probed: Probed) -> Device:
    if SEPARATOR in request:
        return combine_devices([_select_named(selector, probed) for selector in selectors(request)])
    check_known(request)
    name, _, part = request.partition(":")
    if name not in probed:
        with Probes((name,)) as probes:
            probed[name] = probes.devices(name)
    devices = probed[name]
    if not devices[0].found:
        raise UnsupportedError(f"device {request!r} is not available: {devices[0].why_not}")
    if ":" not in request:
        return devices[0]
    for device in devices:  # "GPU" and "GPU.0" are equivalent
        if (own := device.own_name.upper().removesuffix(".0")) and own == part.upper().removesuffix(".0"):
            return device
    available = ", ".join(f"{device.selector} ({device.name})" for device in devices)
    raise UnsupportedError(f"there is no device {request!r}. Found: {available}")


def check_known(request: str) -> None:
    """Raise UsageError if the selector does not begin with the name of a device kind."""
    kinds_known = plugins.names(plugins.DEVICES)
    name = request.partition(":")[0]
    if name in kinds_known:
        return
    if name in plugins.names(plugins.RUNTIMES):
        raise UsageError(f"unknown device {request!r}: it is a runtime: --runtime {name}")
    if name.lower() == plugins.GROQ:
        raise UsageError(f"device {request!r}: {plugins.NO_GROQ}: choose another device")
    numbered = NUMBERED.fullmatch(request)
    word, number = (numbered[1] or "gpu", f":{numbered[2]}") if numbered else (name, "")
    with_numbers = names_with(lambda kind: f"{kind.name}:0" in kind.typical)
    near = [f"{one}{number if one in with_numbers else ''}" for one in meant_by(word, (*kinds_known, AUTO))]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    hint = " Several are measured by benchhouse batch --devices A,B." if request in ("all", "*", "both") else hint
    raise UsageError(
        f"unknown device {request!r}.{hint} Devices: {AUTO}, {', '.join(kinds_known)}; benchhouse run --list-devices "
        "tells which are here"
    )


class Probes:
    """Probes of several kinds. All child processes start at once; leaving the context ends those still running."""

    def __init__(self, names: Sequence[str], time_limit_s: float = TIME_LIMIT_S) -> None:
        self.names = tuple(names)
        self._kinds: dict[str, DeviceKind] = {name: plugins.device_kind(name) for name in self.names}
        deadline = time.monotonic() + time_limit_s
        in_children = [name for name, kind in self._kinds.items() if not kind.probes_in_process]
        self._children = {name: ChildProbe(name, deadline, time_limit_s) for name in in_children}

    def __enter__(self) -> Probes:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.end()

    def devices(self, name: str) -> tuple[Device, ...]:
        """The kind's devices. Waits for its child process."""
        return self._children[name].devices() if name in self._children else self._kinds[name].probe()


class ChildProbe:
    """The probe of one kind in a child process."""

    def __init__(self, name: str, deadline: float, time_limit_s: float) -> None:
        self._name = name
        self._deadline = deadline
        self._time_limit_s = time_limit_s
        # Files instead of pipes: a verbose driver would fill an unread pipe and seem to hang.
        self._stdout: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed in end()
        self._stderr: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed in end()
        self._process = start((*OWN_PYTHON, "-c", CHILD_CODE, name), stdout=self._stdout, stderr=self._stderr)

    def devices(self) -> tuple[Device, ...]:
        """The devices that the process printed, or why it failed."""
        try:
            code = self._process.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return (self._failure(f"did not answer within {self._time_limit_s:g} s"),)
        if code != 0:
            return (self._failure(f"ended with {ending(code)}"),)
        try:
            return parse_devices(_text(self._stdout))
        except FormatError as error:
            return (self._failure(f"printed invalid output ({error})"),)

    def end(self) -> None:
        """Stop the process if it still runs, and close its files."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._stdout.close()
        self._stderr.close()

    def _failure(self, what: str) -> Device:
        last = (_text(self._stderr).strip().splitlines() or ["nothing on stderr"])[-1].strip()
        why = f"its probe {what}: {last}; for details run python -m {MODULE} {self._name}"
        return Device(type=self._name, selector=self._name, found=False, why_not=why)


def parse_devices(text: str) -> tuple[Device, ...]:
    """Parse the devices that a probe printed. Raises FormatError."""
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


def main(argv: Sequence[str]) -> None:
    """Print the devices of kind `argv[0]`. The driver's own output on stdout is redirected to stderr."""
    real_stdout = os.dup(1)
    os.dup2(2, 1)
    kind = plugins.device_kind(argv[0])
    devices = to_json(kind.probe())
    with open(real_stdout, "w", encoding="utf-8") as stdout:
        json.dump(devices, stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
