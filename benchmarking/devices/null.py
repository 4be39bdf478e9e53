"""The null device: scripted readings and a scripted clock, without hardware.

Tests use it to check the whole program against exact numbers, including faults. `$BENCHHOUSE_NULL_SCRIPT` is the path
of a JSON file with the fields of `Script`; the defaults apply without it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import field, fields
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
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import NOT_SUPPORTED, PRECISIONS, Device, Json, Readings, from_json

SCRIPT_VARIABLE = "BENCHHOUSE_NULL_SCRIPT"
ABOUT = (
    "computes nothing, to try commands: its times are those of the JSON file "
    f'${SCRIPT_VARIABLE}, such as {{"latency_ms": {{"*": [5.0, 5.1]}}}}, or about 0.01 ms per token'
)
Fault = Literal["raise", "oom", "lost", "hang", "exit", "kill", "nan", "tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the null device and the null runtime simulate."""

    latency_ms: Mapping[str, list[float]] = field(default_factory=dict)
    """Durations of successive calls by point label, repeated in a cycle; a precision before the label ("int8 b1 s32")
    is for that precision only; "*" matches any other point. Without an entry a call takes about 0.01 ms per token, with
    a spread of a few percent."""
    launch_factors: list[float] = field(default_factory=list)
    """Factors of all durations in successive launches, repeated in a cycle; empty for none."""
    faults: Mapping[str, Fault] = field(default_factory=dict)
    """The fault at a point, by label. "load" is the load, "prepare" the preparation, "reference" plus a label the
    reference call at a point. "tokens" generates one token too few; after "lost" every later call in the process
    fails, as after a device-side assert."""
    fault_launches: list[int] = field(default_factory=list)
    """Launches in which the faults happen; empty means all. Preparation comes before any launch."""
    load_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds per stage of the load."""
    state: Mapping[str, Json] = field(default_factory=dict)
    """The values of `state()`: clock_hz, throttle_reasons, foreign_pids, ..."""
    outputs: Mapping[str, Mapping[str, list[Json]]] = field(default_factory=dict)
    """Outputs of calls by precision, as named arrays ("tokens" holds integers). They are compared with the float32
    outputs, the reference; a precision without an entry uses those of float32."""
    build: Mapping[str, Json] = field(default_factory=dict)
    """Facts of the runtime's build, which is stored in the build cache; empty for a runtime without builds."""
    verified: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """What calls verify, by point label; "*" matches any other point, "load" is the load."""
    compiles: list[int] = field(default_factory=list)
    """Compilations in successive calls of a process, then 0; empty for a runtime that never compiles."""
    modules: Mapping[str, float] = field(default_factory=lambda: {"layers.0.attention": 0.3, "layers.1.attention": 0.5})
    """Shares of a profiled call by module path; the rest belongs to no module."""
    profiler_overhead: float = 0.0
    """Profiler overhead, as a share of the call."""
    tokenize_ms: list[float] = field(default_factory=list)
    """Successive times to tokenize a call's inputs; empty if nothing is tokenized."""
    flops: float | None = None
    """Floating-point operations of a reference call; other calls do not count them."""
    peak_memory_bytes: int | None = None
    power_w: float | None = None
    """Whether the device has an energy counter, which grows with its clock."""
    real_time: bool = False
    """Whether calls sleep for their durations on the real clock: for tests of kills, time limits and progress."""


def read_script() -> Script:
    """The script at `$BENCHHOUSE_NULL_SCRIPT`, or the defaults. Raises StorageError or FormatError."""
    path = os.environ.get(SCRIPT_VARIABLE)
    if not path:
        return Script()
    try:
        data = json.loads(Path(path).read_text())
    except OSError as error:
        raise StorageError(f"{SCRIPT_VARIABLE}: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(f"{SCRIPT_VARIABLE}: {path} is not JSON: {error}") from error
    known = sorted(field.name for field in fields(Script))
    if isinstance(data, dict) and (unknown := sorted(data.keys() - known)):
        raise FormatError(f"{SCRIPT_VARIABLE}: {path}: unknown key {unknown[0]!r}; known: {', '.join(known)}")
    return from_json(Script, data, f"{SCRIPT_VARIABLE}: {path}")


class NullHandle(DeviceHandle):
    """An open null device: a clock and the script's readings."""

    has_scripted_clock = True

    def __init__(self, script: Script) -> None:
        self.script = script
        self.compiles = 0
        """Compilations of all calls so far."""
        self.is_lost = False
        """Whether the process has lost the device."""
        self._now_ns = 0
        self._compiles = iter(script.compiles)

    def now_ns(self) -> int:
        return time.perf_counter_ns() if self.script.real_time else self._now_ns

    def spend(self, duration_ns: int) -> None:
        """Advance the clock by the duration of a call."""
        if self.script.real_time:
            time.sleep(duration_ns / 1e9)
        self._now_ns += duration_ns

    def compile(self) -> None:
        """Count the script's compilations of the next call."""
        self.compiles += next(self._compiles, 0)

    def synchronize(self) -> None:
        if self.is_lost:
            raise RuntimeError("scripted: CUDA error: device-side assert triggered")

    def sleep(self, duration_s: float) -> None:
        self.spend(round(duration_s * 1e9))

    def peak_memory(self) -> Readings:
        if (peak := self.script.peak_memory_bytes) is None:
            return Readings(missing=dict.fromkeys(PEAK_NAMES, NOT_SUPPORTED))
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
    """Always available; never picked by `auto`."""

    name = "null"
    is_hardware = False
    about = ABOUT
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
