"""Timing of several requests in flight, and the number of requests that a measurement needs.

A request starts whenever one ends. Its latency is the time from its submission to its completion. Throughput is
completed requests over wall time. The device is empty at each check of the stopping rule, so the wall time includes
filling it and draining it. A check comes after a multiple of the requests in flight, at least ten times their number,
so the ends cost at most about 5 % of the throughput at the first check and less at later ones.
"""

from __future__ import annotations

import math
from dataclasses import replace

from benchmarking.core.contracts import Operation
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.metrics import NS_PER_S
from benchmarking.core.records import Point
from benchmarking.measure.context import MeasureContext
from benchmarking.measure.settings import MIN_CALLS, Settings
from benchmarking.measure.timing import LATENCY_REQUEST, Stopwatch

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
        for one in done:
            self.started_ns.append(one.submitted_ns)
            self.block_ns.append(one.completed_ns - one.submitted_ns)
            self.marks.extend(one.marks)
            self.mark_ends.append(len(self.marks))
            if one.runtime_ns is not None:
                self.own_ns.setdefault(LATENCY_REQUEST, []).append(one.runtime_ns)
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
        operation.run(lambda name: None)
    return count


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


def check_requests(operation: Operation, point: Point, settings: Settings | None = None) -> None:
    """Raise BenchhouseError if the number of requests in flight differs from the point's concurrency, or if fewer
    requests are to be timed than are in flight."""
    if operation.requests_in_flight != point.concurrency:
        raise BenchhouseError(
            f"point {point.label}: concurrency {point.concurrency} was requested, but the runtime keeps "
            f"{operation.requests_in_flight} in flight"
        )
    if settings is not None and settings.cold_cache and point.concurrency > 1:
        raise BenchhouseError(f"point {point.label}: --cold-cache needs one request at a time")
    fixed = None if settings is None else settings.fixed_iterations
    if fixed is not None and fixed < point.concurrency:
        raise BenchhouseError(
            f"point {point.label}: {fixed} timed requests cannot keep {point.concurrency} in flight: use --iterations "
            f"{point.concurrency * ROUNDS} or more"
        )
