"""The timed region: reset, sync, clock, call, sync, clock. Nothing else happens between the two clock readings."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from benchmarking.core.contracts import TOKEN, DeviceHandle, DeviceTimer, Operation
from benchmarking.core.units import NS_PER_MS

BLOCK_NS = NS_PER_MS
"""Calls shorter than this are timed in blocks at least this long: below it the clock's own cost starts to show."""
MAX_INNER_LOOPS = 10_000
"""A block of calls that do nothing ends all the same."""
LATENCY_WALL = "latency_wall"
LATENCY_REQUEST = "latency_request"
"""Raw metric: a request's latency by the runtime's own clock, where it has one."""
MIN_CALLS = 3
"""Taken whatever the time limit says: fewer have neither a middle nor a spread."""


@contextmanager
def quiet_gc() -> Iterator[None]:
    """No garbage collection inside: collected before, what lives is frozen, and all is put back after."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def inner_loops_for(call_ns: float) -> int:
    """Calls per block so that a block of calls of `call_ns` lasts at least a millisecond; 1 for longer calls."""
    if call_ns >= BLOCK_NS:
        return 1
    return MAX_INNER_LOOPS if call_ns <= BLOCK_NS / MAX_INNER_LOOPS else math.ceil(BLOCK_NS / call_ns)


class Stopwatch:
    """Times calls of one operation and keeps every reading, in order."""

    def __init__(self, operation: Operation, handle: DeviceHandle, inner_loops: int = 1) -> None:
        self.inner_loops = inner_loops
        self.started_ns: list[int] = []
        """Clock at the start of each block (of one call, unless `inner_loops` is more)."""
        self.block_ns: list[int] = []
        """Wall time of each block; of a call that times itself, what it says."""
        self.device_ns: list[int] = []
        """The device's own time for each block; empty where the device has no events."""
        self.marks: list[tuple[str, int]] = []
        """What the calls marked, with the clock's reading; those of block i end at `mark_ends[i]`."""
        self.mark_ends: list[int] = []
        self.own_ns: dict[str, list[int]] = {}
        """What calls that time themselves, or whose runtime has a clock, say beside their wall time, by raw metric."""
        self.spent_ns = 0
        """By the clock, whatever calls say of themselves."""
        self._operation = operation
        self._handle = handle
        self._own_times = operation.own_times_ns if operation.times_itself else None
        self._own_marks = operation.own_marks_ns if operation.marks_itself else None
        self._runtime_times = operation.runtime_times_ns if operation.has_runtime_clock else None
        self._timers = () if operation.times_itself else _timers(handle, inner_loops)

    def __len__(self) -> int:
        return len(self.block_ns)

    @property
    def calls_ms(self) -> list[float]:
        """Wall milliseconds of each sample: of a call, or the mean call of a block."""
        return [block / self.inner_loops / NS_PER_MS for block in self.block_ns]

    @property
    def device_ms(self) -> list[float]:
        """Device milliseconds of each sample; empty where the device has no events."""
        return [block / self.inner_loops / NS_PER_MS for block in self.device_ns]

    def call_marks(self) -> Iterator[tuple[int, Sequence[tuple[str, int]]]]:
        """Start of each block on the clock (ns), and what was marked in it."""
        first = 0
        for started, end in zip(self.started_ns, self.mark_ends, strict=True):
            yield started, self.marks[first:end]
            first = end

    def run(self, count: int, limit_ns: float = math.inf) -> object:
        """Time `count` more blocks; fewer once all together took `limit_ns` and there are 3. Gives the last output.

        Names are local and methods bound before the loop: an attribute look-up costs as much as the clock does. Each
        call of a block is synced, so that calls never overlap on the device and a block is that many latencies.
        """
        reset, run, sync = self._operation.reset, self._operation.run, self._handle.synchronize
        now, note, mark_ends = self._handle.now_ns, self.marks.append, self.mark_ends
        timers = self._timers or (None,) * self.inner_loops

        def mark(name: str) -> None:
            if name != TOKEN:  # a token is on the host when it is marked; a phase's end may still be in the queue
                sync()
            note((name, now()))

        output: object = None
        for _ in range(count):
            output = None
            reset()
            sync()
            started = now()
            for timer in timers:
                if timer is None:
                    output = run(mark)
                else:
                    timer.start()
                    output = run(mark)
                    timer.stop()
                sync()
            stopped = now()
            self._keep(started, stopped - started)
            mark_ends.append(len(self.marks))
            if self.spent_ns >= limit_ns and len(self.block_ns) >= MIN_CALLS:
                break
        return output

    def _keep(self, started_ns: int, elapsed_ns: int) -> None:
        own: Mapping[str, int] = {} if self._own_times is None else self._own_times()
        self.started_ns.append(started_ns)
        self.block_ns.append(own.get(LATENCY_WALL, elapsed_ns))
        self.spent_ns += elapsed_ns
        if self._own_marks is not None:
            self.marks.extend((name, started_ns + after_ns) for name, after_ns in self._own_marks())
        by_runtime: Mapping[str, int] = {} if self._runtime_times is None else self._runtime_times()
        for name, value in {**own, **by_runtime}.items():
            if name != LATENCY_WALL:
                self.own_ns.setdefault(name, []).append(value)
        if self._timers:
            self.device_ns.append(sum(timer.elapsed_ns() for timer in self._timers))


def _timers(handle: DeviceHandle, count: int) -> tuple[DeviceTimer, ...]:
    """An event pair for each call of a block; empty where the device has none."""
    first = handle.timer()
    if first is None:
        return ()
    rest = (handle.timer() for _ in range(count - 1))
    return (first, *(timer for timer in rest if timer is not None))
