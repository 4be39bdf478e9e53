"""The timed region, the latency pass around it, and the series of times derived from it.

A sample consists of: reset, cache flush if the caches must be cold, sync, clock, call, sync, clock. Nothing else
happens between the two clock readings. Marks inside a call give the time to first token, the time per output token, the
latency between tokens, and the times of named phases.

With several requests in flight, a request starts whenever one ends. Its latency is the time from its submission to its
completion. Throughput is completed requests over wall time. The device is empty at each check of the stopping rule, so
the wall time includes filling it and draining it. A check comes after a multiple of the requests in flight, at least
ten times their number, so the ends cost at most about 5 % of the throughput at the first check and less at later ones.

The latency pass times calls until the stopping rule ends it: at the target precision, at a limit, or when more calls no
longer help. The rule controls cost, never significance.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cache
from itertools import pairwise
from statistics import median

from benchmarking.core.contracts import TOKEN, Operation
from benchmarking.core.device_contracts import DeviceHandle, DeviceTimer
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import (
    LATENCY_REQUEST,
    LATENCY_WALL,
    METRICS,
    NS_PER_MS,
    NS_PER_S,
    TIME_TO_FIRST_TOKEN,
    ns_to_ms,
    ns_to_s,
)
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import NOT_APPLICABLE, Json, Point
from benchmarking.core.sample_statistics import drift, relative_half_width
from benchmarking.measure import machine_state
from benchmarking.measure.context import MIN_CALLS, MeasureContext, Settings

BLOCK_NS = NS_PER_MS
"""Shorter calls are timed in blocks of at least this length; below it the cost of the clock is visible."""
MAX_INNER_LOOPS = 10_000
"""Limits a block of calls that do almost nothing."""
NEVER = 1 << 30
"""Collections of the young objects after which all are looked through."""
TIME_PER_OUTPUT_TOKEN = "time_per_output_token"  # noqa: S105 - the name of a metric
INTER_TOKEN_LATENCY = "inter_token_latency"  # noqa: S105 - the name of a metric
TOKENIZE = "tokenize"
"""Raw metric: time to make a call's inputs on the host, before the call."""
PREFILL = "phase_prefill"
DECODE = "phase_decode"
PHASES = tuple(metric.of for metric in METRICS.values() if metric.of.startswith("phase_"))
"""Phases with a column; other phases that a family marks are stored as raw samples only."""

Series = Mapping[str, tuple[float, ...]]
"""Values of a launch by raw metric, in milliseconds."""


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Disable garbage collection inside: collect once before, freeze live objects, and restore the state afterwards.

    If the process had already frozen its libraries, nothing more is frozen, since unfreezing releases all objects.
    """
    was_enabled, has_frozen = gc.isenabled(), _has_frozen_libraries()
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


@contextmanager
def short_gc() -> Iterator[None]:
    """The same for the minutes of a load, which may make more garbage than memory holds: only young objects are looked
    through inside. A search through all, such as the prompts of a level, would hold up a hundred requests."""
    usual = gc.get_threshold()
    gc.collect()
    gc.set_threshold(*usual[:2], NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@cache
def _has_frozen_libraries() -> bool:
    """Whether objects are frozen at the first measurement. Counting them takes as long as a search for garbage."""
    return gc.get_freeze_count() > 0


def inner_loops_for(call_ns: float) -> int:
    """Number of calls of `call_ns` that make a block last at least a millisecond; 1 for longer calls."""
    if call_ns >= BLOCK_NS:
        return 1
    return MAX_INNER_LOOPS if call_ns <= BLOCK_NS / MAX_INNER_LOOPS else math.ceil(BLOCK_NS / call_ns)


class Stopwatch:
    """Times calls of one operation and keeps all readings in order."""

    def __init__(
        self, operation: Operation, handle: DeviceHandle, inner_loops: int = 1, flush: Callable[[], None] | None = None
    ) -> None:
        """`flush` empties the caches before each block, which must then hold a single call."""
        self.inner_loops = inner_loops
        self.started_ns: list[int] = []
        """Clock at the start of each block. A block holds `inner_loops` calls, usually one."""
        self.block_ns: list[int] = []
        """Wall time of each block, or the call's own measurement if it times itself."""
        self.device_ns: list[int] = []
        """Device time of each block; empty if the device has no events."""
        self.marks: list[tuple[str, int]] = []
        """The calls' marks with their clock readings; those of block i end at `mark_ends[i]`."""
        self.mark_ends: list[int] = []
        self.own_ns: dict[str, list[int]] = {}
        """Other times by raw metric, from calls that time themselves or a runtime's own clock."""
        self.spent_ns = 0
        """Total by the clock, including calls that time themselves and the flushes between calls, which take time and
        heat the device too."""
        self.left_s: Callable[[], float] = lambda: math.inf
        """Seconds after which no further calls may start; checked between blocks."""
        self._operation = operation
        self._handle = handle
        self._flush = flush
        self._own_times = operation.own_times_ns if operation.times_itself else None
        self._own_marks = operation.own_marks_ns if operation.marks_itself else None
        self._runtime_times = operation.runtime_times_ns if operation.has_runtime_clock else None
        self._timers: tuple[DeviceTimer, ...] = ()
        """A pair of events for each call of a block; empty if the device has no events."""
        if not operation.times_itself and (first := handle.timer()) is not None:
            rest = (handle.timer() for _ in range(inner_loops - 1))
            self._timers = (first, *(timer for timer in rest if timer is not None))

    def __len__(self) -> int:
        return len(self.block_ns)

    @property
    def calls_ms(self) -> list[float]:
        """Wall milliseconds of each sample: a call, or the mean of the calls in a block."""
        return [block / self.inner_loops / NS_PER_MS for block in self.block_ns]

    @property
    def device_ms(self) -> list[float]:
        """Device milliseconds of each sample; empty if the device has no events."""
        return [block / self.inner_loops / NS_PER_MS for block in self.device_ns]

    def call_marks(self) -> Iterator[tuple[int, Sequence[tuple[str, int]]]]:
        """Start time (ns) and marks of each block."""
        first = 0
        for started, end in zip(self.started_ns, self.mark_ends, strict=True):
            yield started, self.marks[first:end]
            first = end

    def run(self, count: int, limit_ns: float = math.inf, least: int = MIN_CALLS) -> object:
        """Time `count` more blocks and return the last output. Stops early once `limit_ns` is spent and there are
        `least`. Raises BenchhouseError if the clock stands still or goes back.

        Names are local and methods bound before the loop, since an attribute look-up costs as much as reading the
        clock. Each call of a block is synchronized, so calls never overlap on the device and a block is a sum of
        latencies.
        """
        reset, run, sync = self._operation.reset, self._operation.run, self._handle.synchronize
        now, note, mark_ends = self._handle.now_ns, self.marks.append, self.mark_ends
        timers, flush = self._timers or (None,) * self.inner_loops, self._flush

        def mark(name: str) -> None:
            if name != TOKEN:  # a token is marked once it is on the host; a phase's end may still be queued
                sync()
            note((name, now()))

        output: object = None
        for _ in range(count):
            output = None
            reset()
            if flush is not None:
                started = now()
                flush()
                sync()
                self.spent_ns += now() - started
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
            if (self.spent_ns >= limit_ns and len(self.block_ns) >= least) or self.left_s() <= 0:
                break
        has_times = self.spent_ns > 0 or any(self.block_ns)  # those of a call that times itself need no clock here
        if not has_times and len(self.block_ns) >= MIN_CALLS:  # limits of time would never end the calls
            raise BenchhouseError(f"the clock did not advance during {len(self.block_ns)} calls: nothing can be timed")
        return output

    def split(self, count: int, spent_ns: int) -> Stopwatch:
        """Move the blocks from `count` on to a new stopwatch. `spent_ns` was the total before them."""
        rest = Stopwatch(self._operation, self._handle, self.inner_loops, self._flush)
        rest.left_s = self.left_s
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
        times_ns: Mapping[str, int] = {} if self._own_times is None else self._own_times()
        block_ns = times_ns.get(LATENCY_WALL, elapsed_ns)
        if (shortest_ns := min(elapsed_ns, block_ns)) < 0:
            raise BenchhouseError(f"a call took {ns_to_ms(shortest_ns):g} ms: the clock went back")
        self.started_ns.append(started_ns)
        self.block_ns.append(block_ns)
        self.spent_ns += elapsed_ns
        if self._own_marks is not None:
            self.marks.extend((name, started_ns + after_ns) for name, after_ns in self._own_marks())
        by_runtime: Mapping[str, int] = {} if self._runtime_times is None else self._runtime_times()
        for name, value in {**times_ns, **by_runtime}.items():
            if name != LATENCY_WALL:
                self.own_ns.setdefault(name, []).append(value)
        if self._timers:
            self.device_ns.append(sum(timer.elapsed_ns() for timer in self._timers))


def check_tokens(watch: Stopwatch, new_tokens: int | None, *, streams: bool = True) -> None:
    """Raise BenchhouseError if a call did not mark all of its new tokens, or the first and last token if it does not
    stream: it did different work."""
    if new_tokens is None:
        return
    marks_each = new_tokens if streams else min(new_tokens, 2)
    for index, (_, marks) in enumerate(watch.call_marks()):
        count = sum(name == TOKEN for name, _ in marks)
        if count != marks_each:
            raise BenchhouseError(
                f"call {index} generated {count} tokens, expected {marks_each}: the sample is invalid"
            )


def token_series(watch: Stopwatch, new_tokens: int | None, *, streams: bool = True) -> Series:
    """Token times by raw metric: one value per call for ttft and tpot; for itl, all gaps of all calls in order.

    tpot = (end to end - ttft) / (N - 1) per call. Empty without generation. A single token has only ttft, and calls
    that do not stream have no itl.
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
        why = f"{NOT_APPLICABLE}: only one token is generated"
        return dict.fromkeys((TIME_PER_OUTPUT_TOKEN, INTER_TOKEN_LATENCY), why)
    if not streams:
        return {INTER_TOKEN_LATENCY: f"{NOT_APPLICABLE}: all tokens after the first reach the host together"}
    return {}


def phase_series(watch: Stopwatch) -> Series:
    """Times by `phase_<name>`. A phase lasts from the previous mark, or the start of the call, to its own mark.

    Tokens give the phases prefill (up to the first token) and decode (from there to the last one). A mark that occurs
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
    return {name: f"{NOT_APPLICABLE}: the call does not have this phase" for name in PHASES if name not in found}


def self_timed_reasons(watch: Stopwatch) -> dict[str, str]:
    """Why more detailed times are absent for calls that time themselves, by raw metric."""
    why = f"{NOT_APPLICABLE}: the call times itself and does not report it"
    finer = ("latency_device", TIME_TO_FIRST_TOKEN, TIME_PER_OUTPUT_TOKEN, INTER_TOKEN_LATENCY)
    return {name: why for name in finer if name not in watch.own_ns}


ROUNDS = 10
"""Requests per check of the stopping rule over the number in flight. With fewer, the ends would weigh more than 5 %."""


class ConcurrentStopwatch(Stopwatch):
    """Times requests of an operation with several in flight. Samples are requests in order of completion."""

    def run(self, count: int, limit_ns: float = math.inf, least: int = MIN_CALLS) -> object:
        """Complete `count` more requests. Once `limit_ns` is spent and there are `least`, or no time is left, no
        further one starts and those in flight complete."""
        now = self._handle.now_ns
        remaining_ns, left_ns = limit_ns - self.spent_ns, self.left_s() * NS_PER_S
        in_flight = self._operation.requests_in_flight
        at_least = in_flight if left_ns < remaining_ns else max(in_flight, least - len(self))
        started = now()
        done = self._operation.keep_in_flight(count, now, started + min(remaining_ns, left_ns), at_least)
        self._handle.synchronize()
        self.spent_ns += now() - started
        for completion in done:
            self.started_ns.append(completion.submitted_ns)
            self.block_ns.append(completion.completed_ns - completion.submitted_ns)
            self.marks.extend(completion.marks)
            self.mark_ends.append(len(self.marks))
            if completion.runtime_ns is not None:
                self.own_ns.setdefault(LATENCY_REQUEST, []).append(completion.runtime_ns)
        return None


def stopwatch(context: MeasureContext, inner_loops: int = 1) -> Stopwatch:
    """The stopwatch for an operation's calls, which run one after another or with several in flight."""
    several = context.operation.requests_in_flight > 1
    watch = (ConcurrentStopwatch if several else Stopwatch)(
        context.operation, context.handle, inner_loops, context.flush
    )
    watch.left_s = lambda: context.settings.left_s
    return watch


def run_untimed(context: MeasureContext, count: int) -> int:
    """Run at least `count` untimed calls, with as many in flight as when timed, and fewer if no time is left. Returns
    their number."""
    operation, now, in_flight = context.operation, context.handle.now_ns, context.operation.requests_in_flight
    if in_flight > 1:
        until_ns = now() + context.settings.left_s * NS_PER_S
        return len(operation.keep_in_flight(max(count, 2 * in_flight), now, until_ns, in_flight))
    for _ in range(count):
        operation.reset()
        operation.run(no_mark)
    return count


def no_mark(name: str) -> None:
    """Ignores marks; for passes that time nothing."""


def calls_for(context: MeasureContext, duration_s: float, least: int = 1) -> int:
    """Run untimed calls until the time is over, and at least as many as given; none if that is 0. Returns their
    number."""
    end_s, done = time.monotonic() + duration_s, 0
    while done < least or (least and time.monotonic() < end_s):
        done += run_untimed(context, max(1, least - done))
        context.handle.synchronize()
    return done


def settings_in_flight(settings: Settings, requests: int) -> Settings:
    """The settings with the number of samples that several requests in flight need; unchanged for one."""
    if requests == 1:
        return settings

    def rounded(samples: int) -> int:
        return max(ROUNDS * requests, math.ceil(samples / requests) * requests)

    return replace(
        settings,
        min_samples=rounded(settings.min_samples),
        max_samples=rounded(settings.max_samples),
        warmup_max_calls=settings.warmup_max_calls * requests,
        counts_steady_warmup=False,  # warm-up windows begin and end with an empty device
    )


def check_requests(operation: Operation, point: Point, settings: Settings) -> None:
    """Raise BenchhouseError if the number of requests in flight differs from the point's concurrency, or if fewer
    requests are to be timed than are in flight."""
    if operation.requests_in_flight != point.concurrency:
        raise BenchhouseError(
            f"point {point.label}: concurrency {point.concurrency} was requested, but the runtime keeps "
            f"{operation.requests_in_flight} in flight"
        )
    if settings.cold_cache and point.concurrency > 1:
        raise BenchhouseError(f"point {point.label}: --cold-cache needs one request at a time")
    fixed = settings.fixed_iterations
    if fixed is not None and fixed < point.concurrency:
        raise BenchhouseError(
            f"point {point.label}: {fixed} timed requests cannot keep {point.concurrency} in flight: use --iterations "
            f"{point.concurrency * ROUNDS} or more"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPass:
    """A launch's timed calls at a point, and the machine's counters around them."""

    started_at: str
    watch: Stopwatch
    stop_reason: str
    relative_half_width: float | None
    window: Mapping[str, Json] = field(default_factory=dict)
    """As in `machine_state.Window`, plus `compiles`, the number of compilations during the pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassStart:
    """The start of a latency pass: already timed calls, and the counters from before them."""

    started_at: str
    watch: Stopwatch
    window: machine_state.Window
    compiles: int
    """Compilations before the calls."""

    @classmethod
    def now(cls, context: MeasureContext, watch: Stopwatch) -> PassStart:
        """The start of a pass with the next call of a stopwatch."""
        return cls(
            compiles=context.compiles(),
            started_at=utc_now(),
            watch=watch,
            window=machine_state.Window(context.handle, processes=context.operation.process_ids()),
        )


def latency_pass(context: MeasureContext, inner_loops: int, pass_start: PassStart | None = None) -> LatencyPass:
    """Time calls until the stopping rule ends the pass, including those of `pass_start`.

    Raises BenchhouseError for a call with the wrong number of tokens, and if at least half of the calls took no time by
    the clock: a median of 0 is no latency.
    """
    context.live("measure")
    rule = StoppingRule(context.settings, is_accelerator=context.handle.is_accelerator)
    pass_start = pass_start or PassStart.now(context, stopwatch(context, inner_loops))
    watch, window = pass_start.watch, pass_start.window
    reason = rule.look(watch.calls_ms, ns_to_s(watch.spent_ns)) if len(watch) else None
    while reason is None:
        watch.run(rule.next_count(len(watch)) - len(watch), rule.limit_s * NS_PER_S, context.settings.min_calls)
        window.sample()
        reason = rule.look(watch.calls_ms, ns_to_s(watch.spent_ns))
        context.live("measure", watch.calls_ms)
    check_tokens(watch, context.operation.new_tokens, streams=context.operation.streams)
    if median(watch.block_ns) <= 0:
        count = watch.block_ns.count(0)
        raise BenchhouseError(f"the clock is too coarse: {count} of {len(watch)} timed calls took 0 ns by it")
    return LatencyPass(
        started_at=pass_start.started_at,
        watch=watch,
        stop_reason=reason,
        relative_half_width=rule.relative_half_width,
        window={**window.close(), "compiles": context.compiles() - pass_start.compiles},
    )


PLATEAU_LOOKS = 3
PLATEAU_SHRINKAGE = 0.9
"""Over two doublings, independent noise halves the interval; if it keeps 90 % of its width, the target is far away. A
higher limit would hardly ever stop, a lower one would stop on noise in the estimate."""
SETTLED_CHANGE = 0.01
SETTLED_Z = 2.0
"""An accelerator is still heating up if its last third differs from the first by more than both. Heat that builds up
over longer than the pass changes less: the doubt `drift` tells of it."""


class StoppingRule:
    """Decides only at geometrically growing counts of samples (30, 60, 120, ...): checking every few samples until the
    interval happens to be narrow would make it cover far less than 95 %.

    Accelerators heat up for many seconds and then lower their clocks. They are kept busy for a longer minimum time,
    whatever the number of samples, and until their calls no longer become slower or faster by 1 % within the pass.
    """

    def __init__(self, settings: Settings, *, is_accelerator: bool = False) -> None:
        self._settings = settings
        self._is_accelerator = is_accelerator
        self._min_time_s = settings.accelerator_min_time_s if is_accelerator else settings.min_time_s
        self._half_widths: list[float] = []
        self.relative_half_width: float | None = None
        """Relative half width of the median's interval at the last check; None with fewer than 6 samples."""

    @property
    def limit_s(self) -> float:
        """Measured time after which calls stop, once there are `min_calls`; infinite for a fixed number of calls."""
        return float("inf") if self._settings.fixed_iterations is not None else self._settings.max_time_s

    def next_count(self, count: int) -> int:
        """The number of samples at the next check, given `count` now."""
        fixed = self._settings.fixed_iterations
        last = self._settings.max_samples if fixed is None else fixed
        doubled = max(self._settings.min_samples, 2 * count)
        return doubled if fixed is None and self._is_accelerator and count >= last else min(last, doubled)

    def look(self, values: Sequence[float], measured_s: float) -> str | None:
        """The reason to stop now, or None to continue. `measured_s` is the time spent inside timed regions.

        Meeting the target takes precedence over a limit reached at the same check; the maximum count takes precedence
        over the minimum time, except on accelerators.
        """
        settings = self._settings
        width = self.relative_half_width = relative_half_width(values)
        self._half_widths += [] if width is None else [width]
        if settings.fixed_iterations is not None:
            return "fixed" if len(values) >= settings.fixed_iterations else None
        if settings.is_over and len(values):
            return "budget"
        on_target = width is not None and width <= settings.target_relative_half_width
        change = drift(values) if self._is_accelerator else None
        is_settled = change is None or abs(change.relative_change) <= SETTLED_CHANGE or abs(change.z) <= SETTLED_Z
        may_end = measured_s >= self._min_time_s and is_settled
        at_limit = "max_time" if measured_s >= settings.max_time_s else None
        if len(values) >= settings.max_samples and (may_end or not self._is_accelerator):
            at_limit = "max_samples"
        if on_target and (at_limit is not None or may_end):
            return "target"
        recent = self._half_widths[-PLATEAU_LOOKS:]
        is_plateau = len(recent) == PLATEAU_LOOKS and recent[-1] >= PLATEAU_SHRINKAGE * recent[0]
        return "plateau" if at_limit is None and may_end and is_plateau else at_limit
