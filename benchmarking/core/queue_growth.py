"""Whether the queue of a server under an open loop keeps growing, stays bounded, or was observed for too short a time.

Successive requests share a queue, so neither their latencies nor the numbers in flight are independent, and a trend
test on them takes a long busy period for a trend. This test estimates the capacity instead: while n requests are in
flight, they complete at the rate m (min(n, c) / c)^a, with m, c and a (1, or 1/2 for servers that gain less and less
from more requests) fitted by maximum likelihood to the times between events. The capacity m is compared with the
offered rate. The error of m follows from the work between completions, which would be the service times of one server:
its variance at the finest scale that agrees with all coarser ones, so that correlated service times count as fewer.

2026-11-26: tests/perf/load_statistics.py measures the false alarms and the levels that are found; the tables are in
docs/load.md. A regression of the number in flight marked 41 % of the levels of M/M/1 at load .9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Growth = Literal["growing", "bounded", "unknown"]
BATCHES = 10
FEWEST_COMPLETIONS = 5
SCALES = (10, 20, 40, 80, 160)
"""Numbers of stretches into which the completions are divided, besides single ones."""
FEWEST_STRETCHES = 8
MOST_SLOTS = 40
"""Numbers c that are tried, evenly spaced in their logarithm."""
EXPONENTS = (1.0, 0.5)
LOAD_ERRORS, HIGH_LOAD = 1.4, 0.9
"""Standard errors by which the load must exceed this load: its false alarms are limited to 5 %. The estimate is a ratio
of skewed numbers, so short levels need more (15 over the number of completed requests)."""
BOUNDED_ERRORS = 1.3
LEAST_DISPERSION = 0.02
LIKELIHOOD_UNITS = 2.0
"""Difference of the log-likelihood, in units of the dispersion, within which numbers of slots are equally plausible."""
SLOTS_SEEN = 0.75
"""The queue is visible only if the plausible numbers of slots are below this share of the most requests in flight."""
TOO_LOW = 1.1
"""The load of a server with regular service times is estimated up to 10 % too low: they look like more slots."""
FLAT_GROWTH = 0.05
"""Requests that stay in flight, as a share of those that arrive, below which a queue is bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What is known about the queue of a level."""

    growth: Growth
    load: float | None
    """Offered rate over estimated capacity; None if there were too few completions."""
    load_error: float | None
    """Standard error of the logarithm of the load."""
    needed_s: float
    """Duration that would be long enough to tell, in s; at least 0."""
    correlation: float | None = None
    """Number of successive requests that are worth one independent request: in heavy traffic (c_a^2 + c_s^2) /
    (1 - load)^2, from the variation of arrivals and services; infinite if the load could be 1 or more."""


def queue_of(starts_ms: Sequence[float], ends_ms: Sequence[float], rate_per_s: float | None = None) -> Queue:
    """The queue of requests with these starts and ends (unsorted, in ms) at an offered rate; None: the rate at which
    they started, whose own error then adds to that of the load."""
    import numpy as np

    starts, ends = np.sort(np.asarray(starts_ms, float)) / 1e3, np.sort(np.asarray(ends_ms, float)) / 1e3
    offered_s = float(starts[-1] - starts[0]) if len(starts) > 1 else 0.0
    ends = ends[ends <= starts[-1]] if len(starts) else ends
    if len(ends) < FEWEST_COMPLETIONS or offered_s <= 0:
        return Queue(growth="unknown", load=None, load_error=None, needed_s=_needed(offered_s, len(ends)))
    times = np.concatenate((starts, ends))
    steps = np.concatenate((np.ones(len(starts)), -np.ones(len(ends))))
    order = np.argsort(times, kind="stable")
    times, steps = times[order], steps[order]
    in_flight = np.cumsum(steps).astype(int)
    lasted, level, seen = np.diff(times), np.maximum(in_flight[:-1], 0), times[:-1] >= ends[0]
    is_end = (steps < 0) & (times > ends[0])
    top = max(int(in_flight.max()), 1)
    time_at = np.bincount(level[seen], weights=lasted[seen], minlength=top + 1)
    ends_at = np.bincount(np.clip(in_flight - steps.astype(int), 0, top)[is_end], minlength=top + 1)
    completed = int(ends_at.sum())
    slots = np.unique(np.round(np.geomspace(1, top, MOST_SLOTS)).astype(int))
    if completed < FEWEST_COMPLETIONS - 1 or not time_at[1:].sum() > 0:
        return Queue(growth="unknown", load=None, load_error=None, needed_s=_needed(offered_s, len(ends)))

    def work(busy: Floats) -> tuple[Floats, float]:
        """The work done at each completion and at the end, if a server completes requests at these speeds."""
        done = np.concatenate(([0.0], np.cumsum(busy[level] * lasted * seen)))
        return np.interp(times[is_end], times, done), float(done[-1])

    linear, concave = (_fit(slots, exponent, time_at, ends_at) for exponent in EXPONENTS)
    unit = max(_dispersion(*work(linear.busy)), 0.5)
    best = concave if concave.likelihood.max() > linear.likelihood.max() else linear
    dispersion = _dispersion(*work(best.busy))
    plausible = linear.likelihood >= linear.likelihood.max() - LIKELIHOOD_UNITS * unit
    variance = dispersion / completed
    if rate_per_s is None:
        rate_per_s = (len(starts) - 1) / offered_s
        variance += _of_batches(starts - starts[0], offered_s) / len(starts)
    load = math.log(rate_per_s / best.capacity_per_s)
    error = math.sqrt(variance)
    is_visible = int(slots[plausible].max()) < SLOTS_SEEN * top
    least = max((LOAD_ERRORS + 15 / completed) * error + math.log(HIGH_LOAD), 0.0)
    if is_visible and load > least:
        growth: Growth = "growing"
    elif load < -BOUNDED_ERRORS * error or _is_flat(times, in_flight.astype(float), float(ends[0]), len(starts)):
        growth = "bounded"
    else:
        growth = "unknown"
    gaps = np.diff(starts)
    variation = dispersion + float(gaps.var() / gaps.mean() ** 2)
    free = 1 - TOO_LOW * math.exp(load)
    correlation = variation / free**2 if free > 0 else math.inf
    far = max(abs(load), 0.05)
    needed_s = 0.0 if growth != "unknown" else max(2.0, (2 * BOUNDED_ERRORS * error / far) ** 2) * offered_s
    return Queue(
        growth=growth,
        load=math.exp(load),
        load_error=error,
        needed_s=needed_s,
        correlation=correlation,
    )


def _needed(offered_s: float, completions: int) -> float:
    """The time for a few dozen completions, from the few that there were."""
    return offered_s * 10 * FEWEST_COMPLETIONS / max(completions, 1)


@dataclass(frozen=True, slots=True)
class _Fit:
    """How completions depend on the number in flight, for one exponent."""

    likelihood: Floats
    """The log-likelihood of each number of slots."""
    busy: Floats
    """For the most likely one, the speed with each number in flight, as a share of the capacity."""
    capacity_per_s: float


def _fit(slots: npt.NDArray[Any], exponent: float, time_at: npt.NDArray[Any], ends_at: npt.NDArray[Any]) -> _Fit:
    """`time_at` and `ends_at` are the time and the completions with 0, 1, 2, ... requests in flight."""
    import numpy as np

    busy = (np.minimum(np.arange(len(time_at)), slots[:, None]) / slots[:, None]) ** exponent
    capacity = ends_at.sum() / (busy * time_at).sum(axis=1)
    rate = np.maximum(busy * capacity[:, None], 1e-300)
    likelihood = np.where(ends_at > 0, ends_at * np.log(rate), 0.0).sum(axis=1)
    best = int(likelihood.argmax())
    return _Fit(likelihood, busy[best], float(capacity[best]))


def _dispersion(at: Floats, end: float) -> float:
    """Variance of the work of n completions over n times the squared mean work, for large n: 1 for exponential service
    times, 0 for regular completions. `at` is the work done at each completion, `end` at the end.

    It is the variance of single completions, or of as many together as it takes until all longer stretches agree within
    their standard errors, but no less than that of ten stretches of equal work, since stalls are rare."""
    import numpy as np

    works = np.diff(np.concatenate(([0.0], at)))
    mean, found = max(float(works.mean()), 1e-300), list[tuple[float, int]]()
    for size in sorted({1, *(max(1, len(works) // number) for number in SCALES)}):
        stretches = len(works) // size
        if stretches >= FEWEST_STRETCHES:
            sums = works[: stretches * size].reshape(stretches, size).sum(axis=1)
            found.append((float(sums.var(ddof=1)) / (size * mean**2), stretches))
    of_batches = _of_batches(at, end)
    dispersion = next(
        (
            fine
            for place, (fine, _) in enumerate(found)
            if all(abs(coarse / fine - 1) <= math.sqrt(2 / (n - 1)) for coarse, n in found[place + 1 :] if fine > 0)
        ),
        of_batches,
    )
    return max(dispersion, of_batches)


def _of_batches(at: Floats, end: float) -> float:
    """Variance over mean of the numbers of events in ten equal stretches: 1 for a Poisson process, 0 for regular
    events. `at` are their positions from 0 to `end`."""
    import numpy as np

    counts = np.histogram(at, bins=np.linspace(0, end, BATCHES + 1))[0]
    return max(float(counts.var(ddof=1) / counts.mean()), LEAST_DISPERSION) if counts.any() else 1.0


def _is_flat(times: Floats, in_flight: Floats, since_s: float, requests: int) -> bool:
    """Whether the mean number in flight hardly rises from the first third to the last, by its spread over six parts."""
    import numpy as np

    at, level = times, in_flight
    area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(at))))
    edges = np.linspace(since_s, at[-1], 7)
    means = np.diff(np.interp(edges, at, area)) / np.diff(edges)
    arrivals = requests * 4 / 6 * (at[-1] - since_s) / max(at[-1] - at[0], 1e-9)
    rise, spread = means[4:].mean() - means[:2].mean(), np.abs(np.diff(means)).max()
    return bool(rise + 2 * spread < FLAT_GROWTH * arrivals)
