"""Asks kinds of devices whether they are there.

A driver can hang or crash the process that asks it, so kinds that load one are asked in a process of their own.
`python -m benchmarking.devices._asking NAME` is that process: it prints the devices as JSON on stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from tempfile import TemporaryFile
from typing import IO

from benchmarking import plugins
from benchmarking.core.child_process import OWN_PYTHON, start
from benchmarking.devices import DeviceKind
from benchmarking.errors import FormatError
from benchmarking.records import Device, from_json, to_json

PACKAGE = "benchmarking.devices"
TIME_LIMIT_S = 20.0
"""Loading a GPU driver for the first time after a boot takes some seconds; one that takes longer hangs."""

ASK = "import sys; from benchmarking.devices._asking import main; main(sys.argv[1:])"
"""What the asking process runs."""


class Probes:
    """Probes under way. Those in processes start at once; leaving the context ends the ones not waited for."""

    def __init__(self, names: Sequence[str], time_limit_s: float = TIME_LIMIT_S) -> None:
        self.names = tuple(names)
        self._plugins: dict[str, DeviceKind] = {name: plugins.load(PACKAGE, name) for name in self.names}
        apart = [name for name, plugin in self._plugins.items() if not plugin.probes_in_process]
        deadline = time.monotonic() + time_limit_s
        self._asked = {name: Asked(name, deadline, time_limit_s) for name in apart}

    def __enter__(self) -> Probes:
        return self

    def __exit__(self, *_: object) -> None:
        for asked in self._asked.values():
            asked.end()

    def answer(self, name: str) -> tuple[Device, ...]:
        """The kind's devices; waits for the answer."""
        return self._asked[name].answer() if name in self._asked else self._plugins[name].probe()


class Asked:
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
        by_hand = f"see more with python -m {PACKAGE}._asking {self._name}"
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


if __name__ == "__main__":
    main(sys.argv[1:])
