"""The statistics of load levels: the part in which a server is in its steady state, and the highest rate that meets the
limits, from looks at several rates, each of which is noisy.

The rates of a whole level include the time in which it fills up and, after the last request was sent, drains: with
replies of 10 s and 30 s of load, a quarter of the time. The steady window of an open loop begins after the first wave
of completions and ends with the last scheduled start. In a closed loop of C places it lies within the time in which the
full number is in flight, and is the mean of C windows: the k-th begins with the k-th start on a place that was freed,
and ends with the k-th of the last C starts. So it does not matter where in a wave the last start was: replies that
come together (static batches, fixed lengths) are a whole wave too many or too few in a window between two of them.

The share of requests outside the limits rises with the rate: its logit is nearly linear in the rate, for queues of one
and of several servers, with regular, exponential, lognormal and correlated service times, from about 70 % to 140 % of
the answer (exactly so for the latency of M/M/1). Some requests may be outside at any rate, since they alone take longer
than the limit: a floor, above which the logit of the other requests' share is nearly linear. The three parameters, the
answer (where the share is that of the limit), the slope and the floor, get a posterior distribution on a grid. Requests
outside the limits come in clusters, the busy periods of a queue, so each look counts for as many independent requests
as batch means of the requests show (a quasi-likelihood); those of the floor are independent. Requests that failed are
counted apart, so where as many fail at all rates, each alone, the posterior is of the others, with the rest of the
share. Looks far from the answer weigh less, since the line is not straight over long distances. Of a look with more
than `MOST_ODDS` outside, only that counts: beyond, a queue has no steady state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from benchmarking.core.doubts import doubt
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import Floats, np
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Doubt, Requests
from benchmarking.core.sample_statistics import quantile
from benchmarking.load.generator import Level

LEAST_ALLOWED = 0.001
"""Share of the requests that may be outside the limits for a rate to be found in reasonable time."""
BATCHES = (5, 10)
RATES, SLOPES = 600, 24
"""Points of the grid."""
BEYOND = 0.7
"""How far the answer may lie outside the searched rates, in units of the natural logarithm."""
SLOPE, SLOPE_SPREAD = 7.0, 0.6
"""Prior of the slope, by which the logit changes when the rate doubles: median and scale of its logarithm, which has
Student's t distribution with 3 degrees of freedom. Queues near 70 % load have 5 to 15, nearly idle ones 0.4."""
LEAST_SLOPE, MOST_SLOPE = 0.2, 64.0
FLOORS = (0.0, 0.25, 0.5, 0.75)
"""Requests that are outside the limits at any rate, as a share of those that may be: equally likely before any look."""
MOST_FAILED, BY_CHANCE = 0.95, 2.5
"""The share of requests that failed, of those that may be outside, below which they are a floor of a known height; and
the standard errors by which the scatter of their numbers over rates and times may exceed that of chance."""
NEAR, NEAR_RATE = 1.5, 0.35
"""Distance of a look from the answer at which it has half its weight, in units of the logit and relative to the answer.
The smaller one counts: an unknown slope might be too steep."""
CLUSTER, PRIOR = 20.0, 10.0
"""Prior of the number of requests outside the limits that come together, as if seen in so many requests."""
MOST_ODDS = 11.0
"""Odds of a request outside the limits, relative to those that may be, above which a look shows only that it is above:
10 % of the requests where 1 % may be outside."""
MOST_DEVIANCE = 15.0
MODEL_ERROR = 0.02
"""Standard deviation of the answer's logarithm that no look removes, since the logit is only nearly linear."""
PASSES = 5
"""The weights depend on the answer, which is found by this many repetitions."""
FIRST_WAVE = 0.9
"""Share of the requests whose latency is at most as long as the first wave of completions."""
FEWEST_COMPLETIONS = 3
FEW_REPLIES = 3.0
"""Median replies that a window should last."""
LITTLE = 0.1
"""Relative difference from Little's law above which the server was not in a steady state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The requests of a level, as far as the search needs them."""

    rate: float
    """The rate at which they were scheduled, per second."""
    requests: int
    outside: int
    """Requests that failed or did not meet the limits."""
    spread: tuple[float, ...]
    """Variance of the number outside the limits in a batch, times the number of batches, for each of `BATCHES`: it is
    `outside` for independent requests."""
    failed: int = 0
    failed_spread: tuple[float, ...] = ()
    """The same of the requests that failed."""
    slow_spread: tuple[float, ...] = ()
    """And of those outside that did not."""


def most_outside(allowed: float) -> float:
    """The share of the requests outside the limits above which a look shows only that it is above."""
    odds = MOST_ODDS * allowed / (1 - allowed)
    return round(odds / (1 + odds), 9)


def look_of(launches: Sequence[Requests], rate: float, allowed: float, *, is_unstable: bool) -> Look:
    """The look at a level of which this share of the requests may be outside the limits. A level whose queue kept
    growing does not meet them, however many requests did."""
    outside = [met is not True for launch in launches for met in launch.meets_limits]
    count = sum(outside)
    if is_unstable:
        count = max(count, math.ceil(most_outside(allowed) * len(outside) - 1e-9))
    failed = [error is not None for launch in launches for error in launch.error]
    slow = [is_outside and not error for is_outside, error in zip(outside, failed, strict=True)]
    return Look(
        rate=realised(launches, rate),
        requests=len(outside),
        outside=count,
        spread=_spread(outside),
        failed=sum(failed),
        failed_spread=_spread(failed),
        slow_spread=_spread(slow),
    )


def _spread(outside: Sequence[bool]) -> tuple[float, ...]:
    spread = []
    for batches in BATCHES:
        edges = [round(place * len(outside) / batches) for place in range(batches + 1)]
        sums = [sum(outside[start:end]) for start, end in pairwise(edges)]
        mean = sum(sums) / batches
        spread.append(sum((one - mean) ** 2 for one in sums) * batches / (batches - 1))
    return tuple(spread)


def _without_failures(looks: Sequence[Look], allowed: float) -> tuple[Sequence[Look], float, float]:
    """The looks at the requests that did not fail, the share of them that may be outside the limits, and the standard
    error of its logit: where as many fail at all rates and times, by chance, and fewer than may. Else the given. A look
    that shows only that it is above remains as it is: there, a server may refuse what is too much."""
    most = most_outside(allowed)
    near = [look for look in looks if look.outside <= most * look.requests]
    failed, total = sum(look.failed for look in near), sum(look.requests for look in near)
    share, freedom = failed / max(total, 1), len(near) - 1
    if not freedom or not 0 < share < MOST_FAILED * allowed:
        return looks, allowed, 0.0
    scatter = sum((look.failed - look.requests * share) ** 2 / (look.requests * share) for look in near)
    if scatter > freedom + BY_CHANCE * math.sqrt(2 * freedom):
        return looks, allowed, 0.0
    for batches, spread in zip(BATCHES, zip(*(look.failed_spread for look in near), strict=True), strict=False):
        if sum(spread) > failed * (1 + BY_CHANCE * math.sqrt(2 / (len(near) * (batches - 1)))):
            return looks, allowed, 0.0  # they come in bursts
    answered = [
        replace(look, requests=look.requests - look.failed, outside=look.outside - look.failed, spread=look.slow_spread)
        if look.outside <= most * look.requests
        else look
        for look in looks
    ]
    return answered, (allowed - share) / (1 - share), math.sqrt(failed) / total / (allowed - share)


def realised(launches: Sequence[Requests], rate: float) -> float:
    """The mean rate of the schedules, which differs from the requested one by chance; the requested one for fewer than
    two starts. Of conversations, only the first requests have a schedule. The last start, or burst, ends
    the time of the others."""
    firsts = [
        [at for at, turn in zip(launch.intended_ms, launch.turn, strict=True) if not turn]
        for launch in launches
        if len(launch)
    ]
    spans_s = [(max(starts) - min(starts)) / 1e3 for starts in firsts]
    gaps = sum(len(starts) - starts.count(max(starts)) for starts in firsts)
    return gaps / sum(spans_s) if gaps and sum(spans_s) > 0 else rate


class Posterior:
    """The distribution of the answer, given all looks (at least one)."""

    slope: float
    """Derivative of the logit of the share outside the limits with respect to the rate's logarithm, at the answer."""
    clusters: float
    """Independent requests outside the limits in the looks, each by its weight."""

    def __init__(self, looks: Sequence[Look], lowest: float, highest: float, allowed: float) -> None:
        looks, allowed, error = _without_failures(looks, allowed)
        self._logs = np.linspace(math.log(lowest) - BEYOND, math.log(highest) + BEYOND, RATES)
        slopes = np.geomspace(LEAST_SLOPE, MOST_SLOPE, SLOPES)
        prior = -2 * np.log1p((np.log(slopes / SLOPE) / SLOPE_SPREAD) ** 2 / 3)
        at_answer = np.log((1 - np.array(FLOORS))[:, None] * slopes)  # the slope of the share, floor included
        rates = np.array([look.rate for look in looks])
        n, outside = (
            np.array(one, float) for one in zip(*((look.requests, look.outside) for look in looks), strict=True)
        )
        spread = np.array([look.spread for look in looks])
        grid = np.exp(self._logs), slopes, allowed
        lines = [_deviance(*look, *grid) for look in zip(rates, n, outside, strict=True)]
        alone = np.minimum(allowed * np.array(FLOORS)[:, None] * n, outside)  # floors x looks: outside at any rate
        weight = np.ones(len(looks))
        for _ in range(PASSES):
            seen = weight * (outside <= most_outside(allowed) * n)
            waiting = (seen * (outside - alone)).sum(axis=1)
            clusters = (seen[:, None] * spread).sum(axis=0).max() - (seen * alone).sum(axis=1)
            dispersion = np.maximum(1.0, (np.maximum(clusters, 0.0) + PRIOR * CLUSTER) / (waiting + PRIOR))
            # Weights below 1 lose less information than a likelihood that is multiplied by them.
            kept = float((weight * outside).sum() + 1) / float((weight**2 * outside).sum() + 1)
            evidence, dependent = prior[:, None], dispersion[:, None, None] - 1  # floors x slopes x answers
            for share, (deviance, in_queue) in zip(weight * kept, lines, strict=True):
                evidence = evidence - np.minimum(share * deviance / (1 + dependent * in_queue), MOST_DEVIANCE)
            mass = np.exp(evidence - evidence.max())
            mass /= mass.sum()
            self.clusters = float(mass.sum(axis=(1, 2)) @ (waiting / dispersion))
            self.slope = math.exp(float((mass.sum(axis=2) * at_answer).sum()))
            # The weights of the model's error, and of the failures', on the grid of answers.
            step, scale = self._logs[1] - self._logs[0], math.hypot(MODEL_ERROR, error / self.slope)
            reach = min(math.ceil(3 * scale / step), RATES // 2 - 1)
            weights = np.exp(-((np.arange(-reach, reach + 1) * step / scale) ** 2) / 2)
            model_error: Floats = weights / weights.sum()
            self._below = np.cumsum(np.convolve(mass.sum(axis=(0, 1)), model_error, "same"))
            far = np.abs(rates / self.quantile(0.5) - 1)
            weight = 1 / (1 + np.minimum(far * self.slope / NEAR, far / NEAR_RATE) ** 2)

    def quantile(self, share: float) -> float:
        """The rate below which the answer lies with this probability."""
        return math.exp(float(np.interp(share, self._below, self._logs)))

    def above(self, rate: float) -> float:
        """The probability that the answer lies above a rate."""
        return 1 - float(np.interp(math.log(rate), self._logs, self._below))


def _deviance(
    at: float,
    n: float,
    outside: float,
    answers: Floats,
    slopes: Floats,
    allowed: float,
) -> tuple[Floats, Floats]:
    """Half the deviance of a look from each line, and of the requests outside that the line lets expect the share that
    waited in the queue: floors x slopes x answers."""
    most, floors = most_outside(allowed), allowed * np.array(FLOORS)[:, None, None]
    rest = (allowed - floors) / (1 - floors)
    line = np.log(rest / (1 - rest)) + slopes[:, None] * (at / answers - 1)
    share = np.minimum(floors + (1 - floors) / (1 + np.exp(-line)), most)
    outside = min(outside, most * n)
    seen = min(max(outside / n, 1e-9), 1 - 1e-9)
    best = outside * np.log(seen) + (n - outside) * np.log1p(-seen)
    found: Floats = best - (outside * np.log(share) + (n - outside) * np.log1p(-share))
    return found, 1 - floors / share


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The steady state of a level."""

    seconds: float
    rates: Mapping[str, float | None]
    """The metrics of `rates_of`, of the requests that ended in the window."""
    little: float | None
    """In flight over (rate of ends x mean time from sending to the end): 1 in a steady state (Little's law). Of
    conversations, like `reply_s`, where requests are their turns."""
    reply_s: float
    """Median time from sending to the end."""


def window_of(requests: Requests, level: Level) -> Window | None:
    """The steady window; None if the requests start all at once, or if it has hardly any completions."""
    bounds = _bounds(requests, level)
    if bounds is None:
        return None
    begins, ends = (np.array(one) for one in bounds)
    knots = np.concatenate((begins, ends))
    order = np.argsort(knots, kind="stable")
    share = np.repeat((1.0, -1.0), len(begins))[order].cumsum() / len(begins)  # of the windows, after each
    passed_ms = np.concatenate(([0.0], np.cumsum(share[:-1] * np.diff(knots[order]))))
    if (window_ms := float(passed_ms[-1])) <= 0:
        return None

    def weights(at_ms: Sequence[float]) -> list[float]:
        """The share of the windows in which each of these times lies."""
        found = np.searchsorted(begins, at_ms) - np.searchsorted(ends, at_ms)
        return [float(one) for one in found / len(begins)]

    def in_flight(pairs: Sequence[tuple[float, float]]) -> float:
        inside = np.diff(np.interp(np.array(pairs).reshape(-1, 2), knots[order], passed_ms))
        return float(inside.sum() / window_ms)

    times = [
        (place, sent, at)
        for place, (sent, at) in enumerate(zip(requests.sent_ms, requests.end_ms, strict=True))
        if sent is not None and at is not None
    ]
    inside = zip(times, weights([at for *_, at in times]), strict=True)
    done = {place: weight for (place, *_), weight in inside if weight and requests.error[place] is None}
    if len(done) < FEWEST_COMPLETIONS:
        return None
    # A conversation loads the server until it ends, so the law is that of conversations.
    spans = _spans(requests)
    replies = [
        (at - sent, weight)
        for (sent, at), weight in zip(spans, weights([at for _, at in spans]), strict=True)
        if weight
    ]
    expected = math.fsum(took * weight for took, weight in replies) / window_ms  # throughput x mean time
    return Window(
        seconds=window_ms / MS_PER_S,
        rates=rates_of(requests, done, window_ms / MS_PER_S, in_flight([(sent, at) for _, sent, at in times])),
        little=in_flight(spans) / expected if expected > 0 else None,
        reply_s=median([took for took, _ in replies] or [at - sent for sent, at in spans]) / MS_PER_S,
    )


def _spans(requests: Requests, starts: Sequence[float | None] | None = None) -> list[tuple[float, float]]:
    """Start and end of each conversation in ms, of these starts of its requests, by default when they were sent; a
    request without one is its own."""
    spans: dict[object, tuple[float, float]] = {}
    rows = zip(requests.conversation, starts or requests.sent_ms, requests.end_ms, strict=True)
    for place, (conversation, start, end) in enumerate(rows):
        if start is not None and end is not None:
            key = ("alone", place) if conversation is None else conversation
            first, last = spans.get(key, (start, end))
            spans[key] = min(start, first), max(end, last)
    return [*spans.values()]


def rates_of(
    requests: Requests, done: Mapping[int, float], seconds: float, in_flight: float
) -> dict[str, float | None]:
    """The rates at which successful requests ended, by their metrics, with the mean number in flight; `done` are their
    places, and how much each counts. Those of tokens are None if the server did not report all, goodput if it is
    unknown of a request whether it met the limits.
    """

    def per_s(counts: Sequence[int | None], places: Mapping[int, float]) -> float | None:
        known = [weight * count for place, weight in places.items() if (count := counts[place]) is not None]
        return math.fsum(known) / seconds if len(known) == len(places) else None

    is_judged = None not in requests.meets_limits
    good = {place: weight for place, weight in done.items() if requests.meets_limits[place]}
    return {
        "requests_per_sec": math.fsum(done.values()) / seconds,
        "goodput_requests_per_sec": math.fsum(good.values()) / seconds if is_judged else None,
        "output_tokens_per_sec": per_s(requests.tokens_out, done),
        "input_tokens_per_sec": per_s(requests.tokens_in, done),
        "goodput_tokens_per_sec": per_s(requests.tokens_out, good) if is_judged else None,
        "in_flight_mean": in_flight,
    }


def about_window(window: Window | None, level: Level, *, is_growing: bool, is_varying: bool) -> Sequence[Doubt]:
    """The doubts about a level's steady window. A queue that grows, and a rate that varies, have doubts of their own
    and no steady state."""
    if window is None:
        return (doubt("no_steady_window"),)
    found = []
    if window.seconds < FEW_REPLIES * window.reply_s:
        needed_s = level.duration_s + FEW_REPLIES * window.reply_s - window.seconds
        found.append(doubt("short_window", window_s=window.seconds, reply_s=window.reply_s, needed_duration_s=needed_s))
        return found
    law, allowed = window.little, LITTLE + window.reply_s / window.seconds
    is_judged = level.is_open and not is_growing and not is_varying
    if is_judged and law is not None and abs(law - 1) > allowed:
        found.append(doubt("unsteady", in_flight_over_littles_law=law))
    return found


def _bounds(requests: Requests, level: Level) -> tuple[Sequence[float], Sequence[float]] | None:
    """The starts and the ends of the windows in ms, both in order; None if there are none. All are starts, since what
    comes in bursts would be counted a period too long or too short between other times."""
    if all(end is None for end in requests.end_ms):
        return None
    if not level.is_open:
        full = level.concurrency or 1
        talks = [start for start, _ in _spans(requests)]
        # Turns, where few conversations have ended. Of a number of conversations, places stand empty after the last
        # has begun; a duration ends before.
        until = math.inf if level.number is None else max(talks, default=0.0)
        for starts in (talks, [at for at in requests.sent_ms if at is not None and at <= until]):
            freed = sorted(starts)[full:]
            if len(freed) > full:
                return freed[:full], freed[-full:]
        return None
    first_turns = [at for at, turn in zip(requests.intended_ms, requests.turn, strict=True) if not turn]
    start, last = min(first_turns), max(first_turns)
    lengths, first_end = [], math.inf
    for begun, end in _spans(requests, requests.intended_ms):
        lengths.append(end - begun)
        first_end = min(end, first_end)
    wave = start + min(quantile(lengths, FIRST_WAVE), max(first_end - start, (last - start) / 2))
    begin = min(at for at in first_turns if at >= min(wave, last))
    return (begin,), (last,)
