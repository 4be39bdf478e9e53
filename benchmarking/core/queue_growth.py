"""Whether the queue of a server under an open loop keeps growing, stays bounded, or was observed for too short a time.

Successive requests share a queue, so neither their latencies nor the numbers in flight are independent, and a trend
test on them takes a long busy period for a trend. This test estimates the capacity instead: while n requests are in
flight, they complete at the rate min(n, c) m, with c and m fitted by maximum likelihood to the times between events.
The capacity c m is compared with the offered rate. Its standard error is that of batch means: completions are counted
in ten stretches of equal expected number, which needs no assumption about the service times.

2026-11-26: on M/D/1, M/M/1, M/G/1 (lognormal), M/D/8 and further queues this marks at most 5 % of levels at load .9;
a regression of the number in flight marked 41 % (tests/perf/load_statistics.py, tables in docs/load.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Growth = Literal["growing", "bounded", "unknown"]
BATCHES = 10
FEWEST_COMPLETIONS = 5
MOST_SLOTS = 40
"""Numbers c that are tried, evenly spaced in their logarithm."""
GROWING_ERRORS = 0.3
"""Standard errors by which the rate must exceed the capacity."""
LOAD_ERRORS, HIGH_LOAD = 1.5, 0.9
"""Standard errors by which the load must exceed this load: its false alarms are limited to 5 %. The estimate is a ratio
of skewed numbers, so short levels need more (`_errors`)."""
BOUNDED_ERRORS = 1.3
LEAST_DISPERSION = 0.02
LIKELIHOOD_UNITS = 2.0
"""Difference of the log-likelihood, in units of the dispersion, within which numbers of slots are equally plausible."""
SLOTS_SEEN = 0.75
"""The queue is visible only if the plausible numbers of slots are below this share of the most requests in flight."""
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
    busy = np.minimum(np.arange(top + 1), slots[:, None])
    exposure = (busy * time_at).sum(axis=1)
    if completed < FEWEST_COMPLETIONS - 1 or not exposure.min() > 0:
        return Queue(growth="unknown", load=None, load_error=None, needed_s=_needed(offered_s, len(ends)))
    per_slot = completed / exposure
    likelihood = np.where(ends_at > 0, ends_at * np.log(np.maximum(busy * per_slot[:, None], 1e-300)), 0.0).sum(axis=1)
    best = int(likelihood.argmax())
    expected = np.concatenate(([0.0], np.cumsum(np.minimum(level, slots[best]) * lasted * seen)))
    dispersion = _dispersion(np.interp(times[is_end], times, expected), expected[-1])
    plausible = likelihood >= likelihood[best] - LIKELIHOOD_UNITS * max(dispersion, 0.5)
    variance = dispersion / completed
    if rate_per_s is None:
        rate_per_s = (len(starts) - 1) / offered_s
        variance += _dispersion(starts - starts[0], offered_s) / len(starts)
    load = math.log(rate_per_s / float(slots[best] * per_slot[best]))
    error = math.sqrt(variance)
    is_visible = int(slots[plausible].max()) < SLOTS_SEEN * top
    least = max(GROWING_ERRORS * error, _errors(completed) * error + math.log(HIGH_LOAD), 0.0)
    if is_visible and load > least:
        growth: Growth = "growing"
    elif load < -BOUNDED_ERRORS * error or _is_flat(times, in_flight.astype(float), float(ends[0]), len(starts)):
        growth = "bounded"
    else:
        growth = "unknown"
    far = max(abs(load), 0.05)
    needed_s = 0.0 if growth != "unknown" else max(2.0, (2 * BOUNDED_ERRORS * error / far) ** 2) * offered_s
    return Queue(growth=growth, load=math.exp(load), load_error=error, needed_s=needed_s)


def _errors(completed: int) -> float:
    return LOAD_ERRORS + 10 / completed


def _needed(offered_s: float, completions: int) -> float:
    """The time for a few dozen completions, from the few that there were."""
    return offered_s * 10 * FEWEST_COMPLETIONS / max(completions, 1)


def _dispersion(at: Floats, end: float) -> float:
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
