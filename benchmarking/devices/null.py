"""The null device: no hardware. It returns what a script says, on a clock that only the script moves.

The whole program can so be run to exact numbers, faults and all. `$BENCHHOUSE_NULL_SCRIPT` names a JSON file; without
one the device answers with plain defaults. The keys are the fields of `Script`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from benchmarking.core.device_contracts import (
    ENERGY_DOMAINS,
    IN_USE_NAMES,
    PEAK_NAMES,
    STATE_NAMES,
    DeviceHandle,
    DeviceKind,
)
from benchmarking.core.errors import FormatError, StorageError
from benchmarking.core.records import NOT_SUPPORTED, PRECISIONS, Device, Json, Readings

SCRIPT_VARIABLE = "BENCHHOUSE_NULL_SCRIPT"
Fault = Literal["raise", "oom", "hang", "exit", "kill", "nan", "tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the null device and the null runtime do."""

    latency_ms: Mapping[str, list[float]] = field(default_factory=dict)
    """Durations of successive calls by point label, repeated from the start when they run out; "*" is any other point.
    Without an entry a call takes about 0.01 ms a token, with a spread of a few percent."""
    faults: Mapping[str, Fault] = field(default_factory=dict)
    """What goes wrong at a point, by label; "load" is the load, "prepare" the making of the build, "reference" and
    a label the reference's call at a point. "tokens" yields one token too few."""
    fault_launches: list[int] = field(default_factory=list)
    """Launches in which the faults happen; empty for all. A preparation is before every launch."""
    load_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage of the load."""
    state: Mapping[str, Json] = field(default_factory=dict)
    """What `state()` reads: clock_hz, throttle_reasons, foreign_pids, ..."""
    outputs: Mapping[str, Mapping[str, list[Json]]] = field(default_factory=dict)
    """The outputs of calls by precision, as arrays by name ("tokens" are whole numbers). With them outputs are compared
    with those at float32, which are the reference; a precision that is not here has those of float32."""
    build: Mapping[str, Json] = field(default_factory=dict)
    """What the runtime says of its build; empty for a runtime that needs none. It is a real one in the build cache."""
    verified: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """What calls read back, by point label; "*" is any other point, "load" the load."""
    compiles: list[int] = field(default_factory=list)
    """How often the successive calls of a process compile, and 0 times from then on; empty for a runtime that never
    does."""
    flops: float | None = None
    """Floating-point operations of a call of the reference, which alone can count them."""
    peak_memory_bytes: int | None = None
    power_w: float | None = None
    """With it the device has an energy counter that grows with its clock."""
    real_time: bool = False
    """Sleep for the scripted durations, on the real clock: for tests of kills, limits and progress."""


def read_script() -> Script:
    """The script `$BENCHHOUSE_NULL_SCRIPT` names, or the defaults. Raises StorageError or FormatError."""
    path = os.environ.get(SCRIPT_VARIABLE)
    if not path:
        return Script()
    try:
        data = json.loads(Path(path).read_text())
    except OSError as error:
        raise StorageError(f"{SCRIPT_VARIABLE}: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(f"{SCRIPT_VARIABLE}: {path} is not JSON: {error}") from error
    known = {f.name for f in fields(Script)}
    unknown = sorted(set(data) - known)
    if unknown:
        raise FormatError(f"{SCRIPT_VARIABLE}: {path}: unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}")
    return Script(**data)


class NullHandle(DeviceHandle):
    """An open null device: a clock, and what the script says of the rest."""

    has_scripted_clock = True

    def __init__(self, script: Script) -> None:
        self.script = script
        self.compiles = 0
        """Compilations of all calls so far."""
        self._now_ns = 0
        self._compiles = iter(script.compiles)

    def now_ns(self) -> int:
        return time.perf_counter_ns() if self.script.real_time else self._now_ns

    def spend(self, duration_ns: int) -> None:
        """Let time pass: what a call on this device takes."""
        if self.script.real_time:
            time.sleep(duration_ns / 1e9)
        self._now_ns += duration_ns

    def compile(self) -> None:
        """Compile as often as the script says that the next call does."""
        self.compiles += next(self._compiles, 0)

    def sleep(self, duration_s: float) -> None:
        self.spend(round(duration_s * 1e9))

    def peak_memory(self) -> Readings:
        if self.script.peak_memory_bytes is None:
            why = dict.fromkeys(PEAK_NAMES, NOT_SUPPORTED)
            return Readings(missing=why)
        peak = self.script.peak_memory_bytes
        return Readings(values=dict.fromkeys(PEAK_NAMES, peak))

    def memory_in_use(self) -> Readings:
        return Readings(missing=dict.fromkeys(IN_USE_NAMES, NOT_SUPPORTED))

    def state(self) -> Readings:
        values = dict(self.script.state)
        return Readings(values=values, missing={name: NOT_SUPPORTED for name in STATE_NAMES if name not in values})

    def energy_j(self) -> Readings:
        if self.script.power_w is None:
            return Readings(missing=dict.fromkeys(ENERGY_DOMAINS, NOT_SUPPORTED))
        joules = self.script.power_w * self.now_ns() / 1e9
        return Readings(values={"gpu": joules, "method": "counter"})


class NullDevice(DeviceKind):
    """Always there, never picked by `auto`."""

    name = "null"
    is_hardware = False
    implied_runtime: str | None = "null"
    probes_in_process = True

    def probe(self) -> tuple[Device, ...]:
        device = Device(
            type="null",
            selector="null",
            found=True,
            name="null device",
            vendor="benchhouse",
            simulated=True,
            precisions=PRECISIONS,
        )
        return (device,)

    def open(self, device: Device) -> DeviceHandle:
        return NullHandle(read_script())

    def lock_name(self, device: Device) -> str | None:
        return None


PLUGIN = NullDevice()
