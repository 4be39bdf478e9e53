"""The timed region, and the series of times that follow from it.

A sample is: reset, flush of the caches where they are to be cold, sync, clock, call, sync, clock; nothing else happens
between the two clock readings. Marks inside a call give the time to the first token, per output token and between
tokens, and the time of named phases.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

from benchmarking.core.contracts import TOKEN, Operation
from benchmarking.core.device_contracts import DeviceHandle, DeviceTimer
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.metrics import METRICS, NS_PER_MS, ns_to_ms
from benchmarking.core.records import NOT_APPLICABLE
from benchmarking.measure.settings import MIN_CALLS

BLOCK_NS = NS_PER_MS
"""Shorter calls are timed in blocks of at least this length: below it the clock's own cost shows."""
MAX_INNER_LOOPS = 10_000
"""Bounds a block of calls that do nothing."""
LATENCY_WALL = "latency_wall"
LATENCY_REQUEST = "latency_request"
"""Raw metric: a request's latency by the runtime's own clock, if it has one."""
TIME_TO_FIRST_TOKEN = "time_to_first_token"  # noqa: S105 - the name of a metric
TIME_PER_OUTPUT_TOKEN = "time_per_output_token"  # noqa: S105 - the name of a metric
INTER_TOKEN_LATENCY = "inter_token_latency"  # noqa: S105 - the name of a metric
TOKENIZE = "tokenize"
"""Raw metric: making the inputs of a call on the host, before it."""
WALL_OF_REQUESTS = "requests_wall_ms"
"""Key of a launch's facts: wall time of its timed requests, when several are in flight."""
PREFILL = "phase_prefill"
DECODE = "phase_decode"
PHASES = tuple(metric.of for metric in METRICS.values() if metric.of.startswith("phase_"))
"""The phases with a column; others that a family marks are stored as raw samples only."""

Series = Mapping[str, tuple[float, ...]]
"""Values of a launch by raw metric, in milliseconds."""


@contextmanager
def quiet_gc() -> Iterator[None]:
    """No garbage collection inside: it runs once before, live objects are frozen, and all is restored afterwards.

    A process that has frozen its libraries keeps them frozen, and nothing else: unfreezing cannot tell them apart.
    """
    was_enabled, has_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.collect()
    if not has_frozen:
        gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not has_frozen:
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

    def __init__(
        self,
        operation: Operation,
        handle: DeviceHandle,
        inner_loops: int = 1,
        flush: Callable[[], None] | None = None,
    ) -> None:
        """`flush` empties the caches before each block, of which it then needs one per call."""
        self.inner_loops = inner_loops
        self.started_ns: list[int] = []
        """Clock at the start of each block (of one call, unless `inner_loops` is more)."""
        self.block_ns: list[int] = []
        """Wall time of each block; for a call that times itself, its own measurement."""
        self.device_ns: list[int] = []
        """Device time of each block; empty when the device has no events."""
        self.marks: list[tuple[str, int]] = []
        """The calls' marks with their clock readings; those of block i end at `mark_ends[i]`."""
        self.mark_ends: list[int] = []
        self.own_ns: dict[str, list[int]] = {}
        """Further times, by raw metric, of calls that time themselves or whose runtime has a clock."""
        self.spent_ns = 0
        """Total by the clock, also for calls that time themselves; with the flushes between them, which take time and
        heat the device too."""
        self._operation = operation
        self._handle = handle
        self._flush = flush
        self._own_times = operation.own_times_ns if operation.times_itself else None
        self._own_marks = operation.own_marks_ns if operation.marks_itself else None
        self._runtime_times = operation.runtime_times_ns if operation.has_runtime_clock else None
        self._timers = () if operation.times_itself else _timers(handle, inner_loops)

    def __len__(self) -> int:
        return len(self.block_ns)

    @property
    def calls_ms(self) -> list[float]:
        """Wall milliseconds of each sample: a call, or the mean call of a block."""
        return [block / self.inner_loops / NS_PER_MS for block in self.block_ns]

    @property
    def device_ms(self) -> list[float]:
        """Device milliseconds of each sample; empty when the device has no events."""
        return [block / self.inner_loops / NS_PER_MS for block in self.device_ns]

    def call_marks(self) -> Iterator[tuple[int, Sequence[tuple[str, int]]]]:
        """Start of each block on the clock (ns), and its marks."""
        first = 0
        for started, end in zip(self.started_ns, self.mark_ends, strict=True):
            yield started, self.marks[first:end]
            first = end

    def run(self, count: int, limit_ns: float = math.inf, least: int = MIN_CALLS) -> object:
        """Time `count` more blocks and return the last output; stops early once `limit_ns` is spent and there are
        `least`.

        Names are local and methods bound before the loop: an attribute look-up costs as much as the clock does. Each
        call of a block is synced, so calls never overlap on the device and a block is a sum of latencies.
        """
        reset, run, sync = self._operation.reset, self._operation.run, self._handle.synchronize
        now, note, mark_ends = self._handle.now_ns, self.marks.append, self.mark_ends
        timers, flush = self._timers or (None,) * self.inner_loops, self._flush

        def mark(name: str) -> None:
            if name != TOKEN:  # a token is marked once it is on the host; the end of a phase may still be in the queue
                sync()
            note((name, now()))

        output: object = None
        for _ in range(count):
            output = None
            reset()
            if flush is not None:
                self.spent_ns += _timed_ns(flush, sync, now)
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
            if self.spent_ns >= limit_ns and len(self.block_ns) >= least:
                break
        return output

    def split(self, count: int, spent_ns: int) -> Stopwatch:
        """The blocks from `count` on, moved to a stopwatch of their own; `spent_ns` was the total before them."""
        rest = Stopwatch(self._operation, self._handle, self.inner_loops, self._flush)
        marks = self.mark_ends[count - 1] if count else 0
        rest.spent_ns, self.spent_ns = self.spent_ns - spent_ns, spent_ns
        self.marks, rest.marks = self.marks[:marks], self.marks[marks:]
        self.mark_ends, rest.mark_ends = self.mark_ends[:count], [end - marks for end in self.mark_ends[count:]]
        self.started_ns, rest.started_ns = self.started_ns[:count], self.started_ns[count:]
        self.block_ns, rest.block_ns = self.block_ns[:count], self.block_ns[count:]
        self.device_ns, rest.device_ns = self.device_ns[:count], self.device_ns[count:]
        rest.own_ns = {name: values[count:] for name, values in self.own_ns.items()}
        self.own_ns = {name: values[:count] for name, values in self.own_ns.items()}
        return rest

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


def _timed_ns(flush: Callable[[], None], sync: Callable[[], None], now: Callable[[], int]) -> int:
    """Nanoseconds of a flush, which is done when this returns."""
    started = now()
    flush()
    sync()
    return now() - started


def _timers(handle: DeviceHandle, count: int) -> tuple[DeviceTimer, ...]:
    """An event pair for each call of a block; empty when the device has none."""
    first = handle.timer()
    if first is None:
        return ()
    rest = (handle.timer() for _ in range(count - 1))
    return (first, *(timer for timer in rest if timer is not None))


def check_tokens(watch: Stopwatch, new_tokens: int | None, *, streams: bool = True) -> None:
    """Raise BenchhouseError for a call that did not mark its new tokens, or the first and the last one of a call that
    does not stream: it did other work."""
    if new_tokens is None:
        return
    marks_each = new_tokens if streams else min(new_tokens, 2)
    for index, (_, marks) in enumerate(watch.call_marks()):
        count = sum(name == TOKEN for name, _ in marks)
        if count != marks_each:
            raise BenchhouseError(
                f"call {index} generated {count} tokens where {marks_each} were asked: the sample is invalid"
            )


def token_series(watch: Stopwatch, new_tokens: int | None, *, streams: bool = True) -> Series:
    """Token times by raw metric: one value per call for ttft and tpot, all gaps of all calls in order for itl.

    tpot = (end to end - ttft) / (N - 1) per call. Empty without generation; for one token there is only ttft, and no
    itl for a call that does not stream.
    """
    if new_tokens is None or not len(watch):
        return {}
    first: list[float] = []
    per_token: list[float] = []
    gaps: list[float] = []
    for (started_ns, marks), wall_ns in zip(watch.call_marks(), watch.block_ns, strict=True):
        arrivals = [at_ns for name, at_ns in marks if name == TOKEN]
        ttft_ns = arrivals[0] - started_ns
        first.append(ns_to_ms(ttft_ns))
        if new_tokens > 1:
            per_token.append(ns_to_ms(wall_ns - ttft_ns) / (new_tokens - 1))
            gaps.extend(ns_to_ms(later - earlier) for earlier, later in pairwise(arrivals))
    series = {
        TIME_TO_FIRST_TOKEN: first,
        TIME_PER_OUTPUT_TOKEN: per_token,
        INTER_TOKEN_LATENCY: gaps if streams else [],
    }
    return {name: tuple(values) for name, values in series.items() if values}


def token_reasons(new_tokens: int | None, *, streams: bool = True) -> dict[str, str]:
    """Why token metrics are absent, by raw metric."""
    if new_tokens is None:
        why = f"{NOT_APPLICABLE}: nothing is generated"
        return dict.fromkeys((TIME_TO_FIRST_TOKEN, TIME_PER_OUTPUT_TOKEN, INTER_TOKEN_LATENCY), why)
    if new_tokens == 1:
        why = f"{NOT_APPLICABLE}: a single token has none after it"
        return dict.fromkeys((TIME_PER_OUTPUT_TOKEN, INTER_TOKEN_LATENCY), why)
    if not streams:
        return {INTER_TOKEN_LATENCY: f"{NOT_APPLICABLE}: the tokens after the first reach the host together"}
    return {}


def phase_series(watch: Stopwatch) -> Series:
    """Times by `phase_<name>`: each phase lasts from the previous mark, or the start of the call, to its own mark.

    Tokens give the phases prefill (up to the first one) and decode (from there to the last one). A mark that occurs
    several times in a call ("step") gives that many values.
    """
    phases: dict[str, list[float]] = {}
    for started_ns, marks in watch.call_marks():
        since_ns, first_ns, last_ns = started_ns, 0, 0
        for name, at_ns in marks:
            if name != TOKEN:
                phases.setdefault(f"phase_{name}", []).append(ns_to_ms(at_ns - since_ns))
            elif not first_ns:
                phases.setdefault(PREFILL, []).append(ns_to_ms(at_ns - since_ns))
                first_ns = at_ns
            else:
                last_ns = at_ns
            since_ns = at_ns
        if last_ns:
            phases.setdefault(DECODE, []).append(ns_to_ms(last_ns - first_ns))
    return {name: tuple(values) for name, values in phases.items()}


def phase_reasons(found: Collection[str]) -> dict[str, str]:
    """Why phases are absent, by raw metric."""
    return {name: f"{NOT_APPLICABLE}: the call has no such phase" for name in PHASES if name not in found}


def own_series(watch: Stopwatch) -> Series:
    """The further times of calls that time themselves or whose runtime has a clock, by raw metric."""
    return {name: tuple(map(ns_to_ms, values)) for name, values in watch.own_ns.items()}


def own_reasons(watch: Stopwatch) -> dict[str, str]:
    """Why finer times are absent for calls that time themselves, by raw metric."""
    why = f"{NOT_APPLICABLE}: the call times itself and does not say"
    finer = ("latency_device", TIME_TO_FIRST_TOKEN, TIME_PER_OUTPUT_TOKEN, INTER_TOKEN_LATENCY)
    return {name: why for name in finer if name not in watch.own_ns}
