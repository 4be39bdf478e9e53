"""A device and an operation with a scripted clock, for exact measurements."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarking.core.contracts import Mark, Operation
from benchmarking.core.device_contracts import DeviceHandle, DeviceTimer
from benchmarking.core.records import Readings
from benchmarking.measure.context import MeasureContext, Settings

MS = 1_000_000


class FakeTimer(DeviceTimer):
    """Events that say the device took half of the wall time between them."""

    def __init__(self, handle: FakeHandle) -> None:
        self.handle = handle
        self.begin = self.end = 0

    def start(self) -> None:
        self.begin = self.handle.clock_ns

    def stop(self) -> None:
        self.end = self.handle.clock_ns

    def elapsed_ns(self) -> int:
        return (self.end - self.begin) // 2


class FakeHandle(DeviceHandle):
    """`events` logs what was called; `states` and `in_use` are played in order, the last one for ever."""

    has_scripted_clock = True

    def __init__(
        self,
        *,
        torch_name: str = "cpu",
        has_events: bool = False,
        states: Sequence[Readings] = (),
        in_use: Sequence[Readings] = (),
        peaks: Readings | None = None,
        power_w: float | None = None,
    ) -> None:
        self.torch_name = torch_name
        self.is_accelerator = torch_name != "cpu"
        self.has_events = has_events
        self.clock_ns = 0
        self.events: list[str] = []
        self.states = list(states) or [Readings()]
        self.in_use = list(in_use) or [Readings()]
        self.peaks = peaks or Readings()
        self.power_w = power_w
        self.stranded_j: float | None = None
        self.slept_s: list[float] = []

    def now_ns(self) -> int:
        self.events.append("now")
        return self.clock_ns

    def sleep(self, duration_s: float) -> None:
        self.slept_s.append(duration_s)
        self.clock_ns += round(duration_s * 1e9)

    def timer(self) -> FakeTimer | None:
        return FakeTimer(self) if self.has_events else None

    def synchronize(self) -> None:
        self.events.append("sync")

    def empty_cache(self) -> None:
        self.events.append("empty_cache")

    def reset_peak_memory(self) -> None:
        self.events.append("reset_peak_memory")

    def peak_memory(self) -> Readings:
        return self.peaks

    def memory_in_use(self) -> Readings:
        return self.in_use.pop(0) if len(self.in_use) > 1 else self.in_use[0]

    def state(self) -> Readings:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def energy_j(self) -> Readings:
        if self.power_w is None:
            return Readings(missing=dict.fromkeys(("gpu", "cpu_pkg", "dram", "soc"), "not_supported"))
        joules = self.stranded_j if self.stranded_j is not None else self.power_w * self.clock_ns / 1e9
        return Readings(values={"gpu": joules, "method": "counter"}, missing={"cpu_pkg": "no_permission: rapl"})

    def close(self) -> None:
        return None


class FakeOperation(Operation):
    """Calls that take the scripted milliseconds, over and over; a list inside is the gaps before each mark's name."""

    def __init__(
        self,
        handle: FakeHandle,
        durations_ms: Iterable[Any],
        *,
        new_tokens: int | None = None,
        items: int = 1,
        prompt_tokens: int | None = None,
        problem: str | None = None,
        known: Readings | None = None,
    ) -> None:
        self.handle = handle
        self.script = itertools.cycle(durations_ms)
        self.items_per_call = items
        self.new_tokens = new_tokens
        self.tokens_per_call = None if new_tokens is None else items * new_tokens
        self.prompt_tokens_per_call = prompt_tokens
        self.what_is_wrong = problem
        self.known = known or Readings()
        self.calls = self.counted = 0

    def reset(self) -> None:
        self.handle.events.append("reset")

    def run(self, mark: Mark) -> int:
        self.handle.events.append("run")
        self.calls += 1
        step = next(self.script)
        for part in step if isinstance(step, (list, tuple)) else [step]:
            name, duration_ms = part if isinstance(part, tuple) else (None, part)
            self.handle.clock_ns += round(duration_ms * MS)
            if name is not None:
                mark(name)
        return self.calls

    def problem(self, output: Any) -> str | None:
        return self.what_is_wrong

    def readings(self, output: Any) -> Readings:
        return self.known

    def count(self) -> Readings:
        self.counted += 1
        return Readings(values={"flops": 2_000_000.0}, missing={"bytes_accessed": "not_supported"})


@pytest.fixture(scope="module", autouse=True)
def frozen_libraries() -> None:
    """No measurement looks for garbage in what the tests before have imported."""
    gc.freeze()


@pytest.fixture
def fake() -> SimpleNamespace:
    """Makes handles, operations and benches: `fake.context(durations_ms, settings...)`."""

    def context(
        durations_ms: Iterable[Any],
        *,
        handle: FakeHandle | None = None,
        compile_count: Any = None,
        operation: FakeOperation | None = None,
        **settings: Any,
    ) -> MeasureContext:
        handle = handle or FakeHandle()
        operation = operation or FakeOperation(handle, durations_ms)
        return MeasureContext(
            operation=operation, handle=handle, settings=Settings(**settings), compile_count=compile_count
        )

    return SimpleNamespace(handle=FakeHandle, operation=FakeOperation, context=context)
