"""What raises doubts about a level of an open-loop load: a growing queue of the server, what makes the level invalid,
and the highest rate within limits. For our own loads and imported ones.

`queue_of` tells whether the queue keeps growing, stays bounded, or was observed for too short a time.

Successive requests share a queue, so neither their latencies nor the numbers in flight are independent, and a trend
test on them takes a long busy period for a trend. This test estimates the capacity instead: while n requests are in
flight, they complete at the rate m (min(n, c) / c)^a, where a is 1, or 1/2 for servers that gain less and less from
more requests. For each c and a, m has its maximum likelihood, from the times between events; these m are averaged by
their posterior probability, with a prior for few slots, since the likelihood of many slots of which few were busy is
hardly lower. The capacity m is compared with the offered rate. Its error has two parts: how the m of different c and a
differ, and the work between completions, which would be the service times of one server: its variance at the finest
scale that agrees with all coarser ones, and no less than the correlation of neighbours makes it.

A server that batches gains from each further request, and the first to complete were served while few were in flight:
as it fills, it looks like one that cannot keep up. So a queue only grows if that is no explanation: if the same holds
with the numbers in flight while the completed requests were served, and hardly any shape is as likely by which more
requests would get more done. A server that was slow at first had a queue before. Where replies are streamed, a request
in the queue has no token yet, and one in a batch has: so more of them have to wait for their first token, or more be in
flight than a batch that fills explains.

2026-11-26: tests/perf/load_statistics.py measures the false alarms and the levels that are found; the tables are in
docs/load.md. A regression of the number in flight marked 41 % of the levels of M/M/1 at load .9.

Imported files contain less than our own records: some have no request times, most have no schedule. A rule is applied
only where its data exist. Sources: MLPerf's inference rules, GuideLLM (lateness), inference-perf (achieved rate).

`HighestRate` is the answer of a search (`benchhouse load --find-rate`), from its stored result: the same for the
command, `benchhouse recommend` and whoever else names it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from benchmarking.core.doubts import doubt
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import Floats, np
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Doubt, Requests
from benchmarking.core.sample_statistics import binomial_tail, neighbour_inflation
from benchmarking.core.text import counted, number

Growth = Literal["growing", "bounded", "unknown"]
BATCHES = 10
FEWEST_COMPLETIONS = 5
SCALES = (10, 20, 40, 80, 160)
"""Numbers of stretches into which the completions are divided, besides single ones."""
FEWEST_STRETCHES = 8
MOST_SLOTS = 40
"""Numbers c that are tried, evenly spaced in their logarithm."""
EXPONENTS = (1.0, 0.5)
FEWER_SLOTS = 1.5
"""The prior probability of c slots falls as c to this power."""
LOAD_ERRORS, HIGH_LOAD = 1.6, 0.9
"""Standard errors by which the load must exceed this load: its false alarms are limited to 5 %. The estimate is a ratio
of skewed numbers, so short levels need more (15 over the number of independent completions)."""
BOUNDED_ERRORS = 1.3
LEAST_DISPERSION = 0.02
OF_BATCHES = 0.7
"""Share of the variance of ten stretches that is the least dispersion: ten are too few to know it better."""
LEAST_UNIT = 0.5
"""Least dispersion by which differences of the log-likelihood are divided."""
SLOTS_SEEN, MOST_UNSEEN = 0.75, 0.3
"""The queue is visible only if the probability of more slots than this share of the most requests in flight is below
that."""
HALF_SPEEDS, STILL_GAINS = (0.16, 0.4, 1.0), 25.0
"""Servers that gain from each further request, as those that batch: numbers in flight at which they do half of what
they could, as shares of the most seen; and how much more probable each is than that there are so many slots."""
IN_QUEUE, RISE_ERRORS = 0.25, 3.0
"""Share of the rise of the number in flight that waits for its first token, from which a queue grows rather than a
batch; and standard errors of the rise over the second half of a level, above which both do."""
MOST_CORRELATION = 0.95
TOO_LOW = 1.1
"""The load of a server with regular service times is estimated up to 10 % too low: they look like more slots."""
WARM_UP, SLOWER_ERRORS = 0.25, 3.0
"""A server is warming up if it completed fewer requests in this share of its work than in the rest, by so many standard
errors: only what came after counts."""
FLAT_GROWTH = 0.05
"""Requests that stay in flight, as a share of those that arrive, below which a queue is bounded: also if the load seems
to be above 1 by less, as of constant arrivals at a server that answers each after the same time."""


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
    judged_from_s: float | None = None
    """Start of what was judged, in s after the first request, of a server that was slower before; None if it was all
    of the level."""


def queue_of(
    starts_ms: Sequence[float],
    ends_ms: Sequence[float],
    rate_per_s: float | None = None,
    *,
    firsts_ms: Sequence[float] = (),
    warmed_up_s: float | None = None,
) -> Queue:
    """The queue of requests with these starts and ends (unsorted, in ms) at an offered rate; None: the rate at which
    they started, whose own error then adds to that of the load. `firsts_ms`: first tokens, where replies are streamed.
    The capacity is that of all completions, or of those since the server has warmed up."""
    starts, ends = np.sort(np.asarray(starts_ms, float)) / 1e3, np.sort(np.asarray(ends_ms, float)) / 1e3
    offered_s = float(starts[-1] - starts[0]) if len(starts) > 1 else 0.0
    ends = ends[ends <= starts[-1]] if len(starts) else ends
    if len(ends) < FEWEST_COMPLETIONS or offered_s <= 0:
        return Queue(growth="unknown", load=None, load_error=None, needed_s=_needed(offered_s, len(ends)))
    times, steps = _events(starts, ends)
    in_flight, since_s = np.cumsum(steps).astype(int), float(ends[0]) if warmed_up_s is None else warmed_up_s
    lasted, level, seen = np.diff(times), np.maximum(in_flight[:-1], 0), times[:-1] >= since_s
    is_end = (steps < 0) & (times > since_s)
    top = max(int(in_flight.max()), 1)
    time_at = np.bincount(level[seen], weights=lasted[seen], minlength=top + 1)
    ends_at = np.bincount(np.clip(in_flight - steps.astype(int), 0, top)[is_end], minlength=top + 1)
    completed = int(ends_at.sum())
    if completed < FEWEST_COMPLETIONS - 1 or not time_at[1:].sum() > 0:
        return Queue(growth="unknown", load=None, load_error=None, needed_s=_needed(offered_s, len(ends)))

    def work(busy: Floats) -> Floats:
        """The work done at each event, if a server completes requests at these speeds."""
        return np.concatenate(([0.0], np.cumsum(busy[level] * lasted * seen)))

    number, busy = _shapes(top)
    capacity_per_s, likelihood = _fits(busy, time_at, ends_at)
    done = work(busy[likelihood[: number.size // len(EXPONENTS)].argmax()])
    unit, _ = _dispersion(done[is_end], float(done[-1]))
    weight = np.exp((likelihood - likelihood.max()) / max(unit, LEAST_UNIT)) / number**FEWER_SLOTS
    weight /= weight.sum()
    done = work((weight * capacity_per_s) @ busy)
    dispersion, independent = _dispersion(done[is_end], float(done[-1]))
    if warmed_up_s is None:
        at, until = done[is_end], WARM_UP * float(done[-1])
        later = at[at > until] - until
        usual, _ = _dispersion(later, float(done[-1]) - until) if len(later) else (1.0, 0.0)
        spread = math.sqrt(usual * completed * WARM_UP * (1 - WARM_UP))
        if completed - len(later) < WARM_UP * completed - SLOWER_ERRORS * spread:
            until_s = float(np.interp(until, done, times))
            later_queue = queue_of(starts_ms, ends_ms, rate_per_s, firsts_ms=firsts_ms, warmed_up_s=until_s)
            return replace(later_queue, judged_from_s=until_s - float(starts[0]))
    if rate_per_s is None:
        rate_per_s = (len(starts) - 1) / offered_s
        of_rate = _of_batches(starts - starts[0], offered_s) / len(starts)
    else:
        of_rate = 0.0
    loads = np.log(rate_per_s / capacity_per_s)
    load = float(weight @ loads)
    error = math.sqrt(dispersion / completed + float(weight @ (loads - load) ** 2) + of_rate)
    least = max((LOAD_ERRORS + 15 / independent) * error + math.log(HIGH_LOAD), 0.0)
    rise, spread = _rise(times, steps, since_s)
    arrivals = len(starts) * 4 / 6 * (times[-1] - since_s) / max(times[-1] - times[0], 1e-9)
    is_flat = rise + 2 * spread < FLAT_GROWTH * arrivals
    least = max(least, FLAT_GROWTH if is_flat else 0.0)
    is_visible = weight[number >= SLOTS_SEEN * top].sum() < MOST_UNSEEN
    is_full = warmed_up_s is not None or _load_if_filling(times, level, seen, is_end, unit, rate_per_s) > least
    if firsts_ms:
        is_full = is_full and _is_queue(starts, ends, firsts_ms)
    if is_visible and load > least and is_full:
        growth: Growth = "growing"
    elif load < -BOUNDED_ERRORS * error or is_flat:
        growth = "bounded"
    else:
        growth = "unknown"
    gaps = np.diff(starts)
    variation = dispersion + float(gaps.var() / gaps.mean() ** 2)
    free = 1 - TOO_LOW * math.exp(load)
    correlation = variation / free**2 if free > 0 else math.inf
    far = max(abs(load), 0.05)
    needed_s = 0.0 if growth != "unknown" else max(2.0, (2 * BOUNDED_ERRORS * error / far) ** 2) * offered_s
    return Queue(growth=growth, load=math.exp(load), load_error=error, needed_s=needed_s, correlation=correlation)


def _needed(offered_s: float, completions: int) -> float:
    """The time for a few dozen completions, from the few that there were."""
    return offered_s * 10 * FEWEST_COMPLETIONS / max(completions, 1)


def _shapes(top: int) -> tuple[np.ndarray, Floats]:
    """Numbers of slots, once for each exponent, and for each the speed with 0, 1, ... `top` requests in flight as a
    share of the capacity."""
    slots = np.unique(np.round(np.geomspace(1, top, MOST_SLOTS)).astype(int))
    number, exponent = np.tile(slots, len(EXPONENTS)), np.repeat(EXPONENTS, len(slots))
    return number, (np.minimum(np.arange(top + 1), number[:, None]) / number[:, None]) ** exponent[:, None]


def _fits(busy: Floats, time_at: np.ndarray, ends_at: np.ndarray) -> tuple[Floats, Floats]:
    """The capacity and the log-likelihood of each of these speeds. `time_at` and `ends_at` are the time and the
    completions with 0, 1, 2, ... requests in flight."""
    capacity = ends_at.sum() / (busy * time_at).sum(axis=1)
    rate = np.maximum(busy * capacity[:, None], 1e-300)
    return capacity, np.where(ends_at > 0, ends_at * np.log(rate), 0.0).sum(axis=1)


def _load_if_filling(
    times: Floats, level: np.ndarray, seen: np.ndarray, is_end: np.ndarray, unit: float, rate_per_s: float
) -> float:
    """The logarithm of the load if the level may show how a server fills rather than how a queue grows; -inf if it may
    do more with more requests in flight than were seen. `level` is the number in flight between the events at `times`.

    A completion shows the speed at which its request was served, mostly while fewer were in flight. So each time counts
    by the mean number over a reply before it."""
    lasted, top = np.diff(times), max(int(level.max()), 1)
    area = np.concatenate(([0.0], np.cumsum(level * lasted)))
    until = times[:-1] + lasted / 2
    since = np.maximum(until - area[-1] / max(is_end.sum(), 1), times[0])
    mean = (np.interp(until, times, area) - np.interp(since, times, area)) / np.maximum(until - since, 1e-9)
    served_with = np.where(level > 0, np.clip(np.rint(mean).astype(int), 1, top), 0)
    number, busy = _shapes(top)
    of_gain = np.arange(top + 1) / (np.arange(top + 1) + top * np.array(HALF_SPEEDS)[:, None])
    capacity_per_s, likelihood = _fits(
        np.concatenate((busy, of_gain)),
        np.bincount(served_with[seen], weights=lasted[seen], minlength=top + 1),
        np.bincount(served_with[is_end[1:]], minlength=top + 1),
    )
    prior = np.concatenate((1.0 / number**FEWER_SLOTS, np.full(len(of_gain), STILL_GAINS * top**-FEWER_SLOTS)))
    weight = prior * np.exp((likelihood - likelihood.max()) / max(unit, LEAST_UNIT))
    weight /= weight.sum()
    unseen = weight[len(number) :].sum() + weight[: len(number)][number >= SLOTS_SEEN * top].sum()
    return float(weight @ np.log(rate_per_s / capacity_per_s)) if unseen < MOST_UNSEEN else -math.inf


def _dispersion(at: Floats, end: float) -> tuple[float, float]:
    """Variance of the work of n completions over n times the squared mean work, for large n: 1 for exponential service
    times, 0 for regular completions; and how many of them are independent. `at` is the work done at each completion,
    `end` at the end.

    It is the variance of single completions, or of as many together as it takes until all longer stretches agree within
    their standard errors. It is no less than the correlation of neighbours makes it, as of a first-order process (less
    one standard error, so that independent ones hardly count as correlated), or than most of that of ten stretches of
    equal work, since stalls are rare."""
    works = np.diff(np.concatenate(([0.0], at)))
    count, mean = len(works), max(float(works.mean()), 1e-300)
    found = list[tuple[float, int]]()
    for size in sorted({1, *(max(1, count // scale) for scale in SCALES)}):
        stretches = count // size
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
    dispersion, together = max(dispersion, OF_BATCHES * of_batches, LEAST_DISPERSION), 1.0
    if found:
        together = neighbour_inflation(works - mean, error=1 / math.sqrt(count), most=MOST_CORRELATION)
        dispersion = max(dispersion, found[0][0] * together) if together > 1 else dispersion
    return dispersion, count / together


def _of_batches(at: Floats, end: float) -> float:
    """Variance over mean of the numbers of events in ten equal stretches: 1 for a Poisson process, 0 for regular
    events. `at` are their positions from 0 to `end`."""
    counts = np.histogram(at, bins=np.linspace(0, end, BATCHES + 1))[0]
    return max(float(counts.var(ddof=1) / counts.mean()), LEAST_DISPERSION) if counts.any() else 1.0


def _events(starts: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """The times at which the number in flight changes, in order, and by how much."""
    times = np.concatenate((starts, ends))
    order = np.argsort(times, kind="stable")
    return times[order], np.concatenate((np.ones(len(starts)), -np.ones(len(ends))))[order]


def _rise(times: Floats, steps: Floats, since_s: float) -> tuple[float, float]:
    """How much the mean number in flight rises from the first third to the last, and its spread over six parts."""
    area = np.concatenate(([0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(times))))
    edges = np.linspace(since_s, times[-1], 7)
    means = np.diff(np.interp(edges, times, area)) / np.diff(edges)
    return float(means[4:].mean() - means[:2].mean()), float(np.abs(np.diff(means)).max())


def _is_queue(starts: Floats, ends: Floats, firsts_ms: Sequence[float]) -> bool:
    """Whether what grows is a queue, rather than only a batch: of the requests that add to those in flight, enough wait
    for their first token, or more are added in the second half than chance and a batch that fills would."""
    firsts = np.sort(np.asarray(firsts_ms, float)) / 1e3
    waiting, in_flight = (_rise(*_events(starts, left[left <= starts[-1]]), starts[0])[0] for left in (firsts, ends))
    middle = (starts[0] + starts[-1]) / 2
    later = (starts > middle).sum() - (ends > middle).sum()
    return bool(waiting > IN_QUEUE * in_flight or later > RISE_ERRORS * math.sqrt(len(starts)))


LATE = "late_generator"
SHARE_IN_TIME = "goodput_share_in_time"
"""Fact about a level with this doubt and limits: the greatest share of the requests that would have met the limits if
none had been sent late."""
MAX_LATENESS_SHARE = 0.01
"""Maximum p95 of the lateness, as a share of the median time to first token."""
MIN_ACHIEVED_SHARE = 0.98
MAX_CACHED_SHARE = 0.01
SIGNIFICANT_T = 3.09
"""One-sided p = 0.001, since successive requests are not independent and a curve has many levels."""
MIN_REQUESTS_FOR_TREND = 10


def late_generator(lateness_p95_ms: float, first_token_ms: float) -> Sequence[Doubt]:
    """The doubt about requests that were sent late, by p95 of their lateness and the median time to first token (or to
    the end, where nothing is streamed)."""
    if lateness_p95_ms <= MAX_LATENESS_SHARE * first_token_ms:
        return ()
    return (doubt("late_generator", lateness_p95_ms=lateness_p95_ms, time_to_first_token_ms=first_token_ms),)


def rate_not_achieved(requested_per_s: float, achieved_share: float, *, by_chance: float = 0.0) -> Sequence[Doubt]:
    """The doubt about requests that were sent at a share of the rate; `by_chance` as in `drawn_shortfall`."""
    if achieved_share >= MIN_ACHIEVED_SHARE - by_chance:
        return ()
    return (doubt("rate_not_achieved", requested_per_s=requested_per_s, achieved_share=achieved_share),)


def drawn_shortfall(requests: int, variation: float = 1.0) -> float:
    """The relative shortfall of the mean rate of this many random arrivals that can occur by chance (one-sided
    p = 0.001). `variation` is the coefficient of variation of the gaps: 1 for Poisson arrivals, 0 for constant ones."""
    return SIGNIFICANT_T * variation / math.sqrt(max(requests, 1))


def prefix_cache_hit(cached_tokens: float, prompt_tokens: float) -> Sequence[Doubt]:
    """The doubt about prompts without a common prefix that the server took from its prefix cache."""
    share = cached_tokens / prompt_tokens if prompt_tokens else 0.0
    return (doubt("prefix_cache_hit", cached_share=share),) if share >= MAX_CACHED_SHARE else ()


def over_saturated(requests: Requests, rate_per_s: float | None = None) -> Sequence[Doubt]:
    """The doubt about a server whose queue kept growing at this rate (None: the rate of the schedule), or the
    information that the level was too short to tell, with the duration that would be enough; and from when on it was
    judged, if the server was slower before."""
    queue = _queue(requests, rate_per_s)
    found = [] if queue.judged_from_s is None else [doubt("warming_up", judged_from_s=queue.judged_from_s)]
    if queue.growth == "growing":
        found.append(doubt("over_saturated", load=queue.load, relative_error=queue.load_error))
    elif queue.growth == "unknown":
        found.append(doubt("saturation_unknown", needed_duration_s=queue.needed_s))
    return found


def correlation(requests: Requests, rate_per_s: float | None = None) -> float | None:
    """The number of successive requests that are worth one independent request; None if no queue is seen."""
    found = _queue(requests, rate_per_s).correlation
    return None if found is None else found * len(requests) / max(sum(not turn for turn in requests.turn), 1)


def _queue(requests: Requests, rate_per_s: float | None) -> Queue:
    """The queue of the requests, or of the conversations: only their first turns have a schedule, and a server that
    falls behind delays the others."""
    if requests.conversation.count(None) == len(requests):
        times = [*zip(requests.first_token_ms, requests.end_ms, strict=True)]
        ended = [end for _, end in times if end is not None]
        begun = [at for first, end in times if (at := end if first is None else first) is not None]
        return queue_of(requests.intended_ms, ended, rate_per_s, firsts_ms=begun)
    starts: dict[object, float] = {}
    ends: dict[object, float] = {}
    rows = zip(requests.conversation, requests.intended_ms, requests.end_ms, strict=True)
    for place, (conversation, start, end) in enumerate(rows):
        key = ("alone", place) if conversation is None else conversation
        starts[key] = min(start, starts.get(key, start))
        if end is not None:
            ends[key] = max(end, ends.get(key, end))
    return queue_of(list(starts.values()), list(ends.values()), rate_per_s)


def over_saturated_by_statistics(
    requests: float,
    offered_per_s: float,
    completed_per_s: float,
    *,
    peak: float | None = None,
    latency_ms: float | None = None,
    first_token_ms: float | None = None,
    variation: float = 1.0,
) -> Sequence[Doubt]:
    """The doubt about a server whose queue kept growing, for a load of which only statistics are known: medians, and
    the highest number of requests in flight.

    Requests complete at less than the offered rate also because the last ones take their time after sending has ended.
    So a low rate alone is no doubt: besides, nearly all requests were in flight at once, or requests took as long as
    the whole load was sent, or waited for their first token for a large part of the time after the last was sent.
    """
    if requests < MIN_REQUESTS_FOR_TREND or offered_per_s <= 0 or completed_per_s <= 0:
        return ()
    share = completed_per_s / offered_per_s
    if share >= MIN_COMPLETED_SHARE - drawn_shortfall(round(requests), variation):
        return ()
    sending_s = requests / offered_per_s
    rest_s = requests / completed_per_s - sending_s
    signs = {
        "in_flight_share": None if peak is None else peak / requests,
        "latency_share_of_sending": None if latency_ms is None else latency_ms / MS_PER_S / sending_s,
        "first_token_share_of_rest": None if first_token_ms is None else first_token_ms / MS_PER_S / rest_s,
    }
    found = {name: value for name, value in signs.items() if value is not None and value >= MIN_SIGN[name]}
    if not found:
        return ()
    return (doubt("over_saturated", offered_per_s=offered_per_s, completed_share=share, **found),)


MIN_COMPLETED_SHARE = 0.9
MIN_SIGN = {"in_flight_share": 0.8, "latency_share_of_sending": 0.5, "first_token_share_of_rest": 0.25}
"""Minimum of each sign. Of a queue that grows at a constant pace, the median wait is half of the last one."""


def lateness(requests: Requests) -> list[float]:
    """The delay of each request behind its schedule, in ms."""
    return [sent - at for at, sent in zip(requests.intended_ms, requests.sent_ms, strict=True) if sent is not None]


def achieved_share(requests: Requests) -> float | None:
    """The achieved rate as a share of the scheduled rate; None for fewer than 2 distinct times."""
    sent = [value for value in requests.sent_ms if value is not None]
    scheduled_ms = max(requests.intended_ms) - min(requests.intended_ms)
    if len(sent) < 2 or scheduled_ms <= 0:
        return None
    took = max(sent) - min(sent)
    return len(sent) / len(requests) * scheduled_ms / took if took > 0 else None


def sent_per_s(requests: Requests) -> float | None:
    """The mean rate at which requests were sent; None for fewer than 2 distinct times."""
    sent = [value for value in requests.sent_ms if value is not None]
    took_s = (max(sent) - min(sent)) / MS_PER_S if sent else 0.0
    return (len(sent) - 1) / took_s if took_s > 0 else None


HIGHEST_RATE = "highest_request_rate_per_sec"
"""The metric of a search."""
RATE_LOW, RATE_HIGH = "highest_request_rate_ci_low_per_sec", "highest_request_rate_ci_high_per_sec"
"""Its 95 % interval."""
SEARCHED, INVALID, AT_TOP = "searched_per_s", "invalid_levels", "holds_at_upper_bound"
"""Facts of a search: the rates that it searched between, the invalid levels with their doubts, by rate, and whether the
highest of the rates held."""
LEAST_GOOD = 0.99
"""Share of requests within the limits that a rate needs to meet them, as in MLPerf's server scenario, unless
`load --share` asks for another."""
LIMIT_WORDS = {"ttft": "time to first token", "tpot": "time per output token", "e2e": "latency"}
"""Name of a limit of load tests -> the time that it limits."""
REQUIRED = "required_share"
"""Fact about a level or search whose limits another share of the requests must meet: which."""
SLO_SHARE = "slo_share"
"""The same in the mode of the run."""
COUNTED = frozenset({"failed_requests"})
"""Doubts that make a level invalid, but not what it shows of the limits: failed requests are outside them."""
NOT_MET = frozenset({"over_saturated", "mlperf_invalid", "early_stopping_unmet"})
"""Doubts with which a rate does not meet the limits, no matter how many requests were within them."""


BY_CHANCE = 0.025
"""Probability that a share of pooled levels is due to chance, as of the lower end of a search's answer."""
POOLED = "pooled: with the requests of higher rates that did better, since the share can only fall with the rate"
"""What is said where a level holds by `pooled_shares`."""


def least_to_tell(share: float) -> int:
    """The least number of requests that tell whether this share of them meets a limit: one of them may then miss it.
    The 99th percentile of ten requests is unknown. No number tells all; it takes as many as the highest percentile."""
    return LEAST_FOR_ALL if share >= 1 else math.ceil(1 / (1 - share) - 1e-9)


LEAST_FOR_ALL = 1000
"""p99.9 takes as many. Fewer would make the strictest share the easiest to tell."""
LEAST_TO_TELL = least_to_tell(LEAST_GOOD)


def required_share(facts: Mapping[str, Any]) -> float:
    """The share of the requests that must meet the limits, by the facts about a load; the usual one where they state
    none that is a share."""
    share = facts.get(REQUIRED)
    return float(share) if isinstance(share, int | float) and 0 < share <= 1 else LEAST_GOOD


def disturbing(invalid: Iterable[str], facts: Mapping[str, Any], *, is_met: bool) -> set[str]:
    """Of the doubts that make a level invalid, those with which it shows nothing of the limits although the server may
    have kept up. A late generator does not where they were met all the same, or would have been missed anyway:
    latencies count from the schedule."""
    kinds, in_time = set(invalid) - NOT_MET - COUNTED, facts.get(SHARE_IN_TIME)
    is_missed_anyway = isinstance(in_time, float) and in_time < required_share(facts)
    return kinds - {LATE} if is_met or is_missed_anyway else kinds


def share_holds(met: float, unknown: int, count: int, share: float) -> bool | None:
    """Whether this share of the requests met the limits; None if that depends on the unknown ones among them, or on
    those that are lacking to tell it."""
    lacking = max(0, least_to_tell(share) - count)
    if (met + unknown + lacking) / (count + lacking) < share:
        return False
    return None if lacking or met / count < share else True


def pooled_shares(levels: Sequence[tuple[float, float, int]], share: float) -> list[float | None]:
    """What a disturbance hides: of levels (rate, requests within the limits, requests) that miss this share, the share
    of their requests and those of the higher levels together. None if a level holds by itself, or misses it all the
    same.

    The share within the limits can only fall with the rate. So neighbours of which the higher did better are one noisy
    curve, and are pooled until none is left (isotonic regression). Their share counts if requests that miss the limits
    just too often would show it with a probability of at most `BY_CHANCE`: a rate that is too high hardly passes.
    """
    blocks: list[tuple[float, int, list[int]]] = []
    for place in sorted(range(len(levels)), key=lambda at: (levels[at][0], levels[at][1] / levels[at][2])):
        met, count, places = levels[place][1], levels[place][2], [place]
        while blocks and blocks[-1][0] / blocks[-1][1] < met / count:
            lower_met, lower_count, lower = blocks.pop()
            met, count, places = met + lower_met, count + lower_count, lower + places
        blocks.append((met, count, places))
    found: list[float | None] = [None] * len(levels)
    for met, count, places in blocks:
        missing = [place for place in places if levels[place][1] / levels[place][2] < share < 1]
        if missing and met / count >= share and binomial_tail(count - round(count - met), count, share) <= BY_CHANCE:
            for place in missing:
                found[place] = met / count
    return found


def invalid_levels_words(invalid: int, levels: int, searches: Iterable[Mapping[str, Any]]) -> str:
    """What is said beside the answer of searches, by their facts: "3 of its 5 levels are invalid, 1 of them left out of
    the answer: see the doubts below". A level with late requests mostly counts: see `disturbing`."""
    kept = [facts[INVALID] if isinstance(facts.get(INVALID), Mapping) else None for facts in searches]
    left_out = sum(len(one) for one in kept if one is not None)
    are = "is" if invalid == 1 else "are"
    if not kept or None in kept:
        used = ""  # the results of another program, or of an older version
    elif left_out < invalid:
        used = f", {left_out or 'none'} of them left out of the answer"
    else:
        used = " and left out of the answer"
    return f"{invalid} of its {counted(levels, 'level')} {are} invalid{used}: see the doubts below"


@dataclass(frozen=True, slots=True, kw_only=True)
class HighestRate:
    """The highest rate at which the required share of requests meets the limits, in requests per second."""

    rate: float
    low: float
    """The lower end of the 95 % interval."""
    high: float | None
    """Its upper end; None if the search saw no rate that is too high."""
    why_open: str | None
    """Why there is no upper end."""

    @classmethod
    def of(cls, metrics: Mapping[str, Any], facts: Mapping[str, Any]) -> HighestRate | None:
        """The answer in the metrics of a search's result and its facts about the load; None if it found none, or if the
        file of another program has a rate that is not above 0."""
        rate, low = metrics.get(HIGHEST_RATE), metrics.get(RATE_LOW)
        high, invalid = metrics.get(RATE_HIGH), facts.get(INVALID)
        if rate is None or low is None or min(rate, low, rate if high is None else high) <= 0:
            return None
        why = None
        if high is None and isinstance(invalid, Mapping) and invalid and not facts.get(AT_TOP):
            why = f"higher levels were invalid: {', '.join(sorted(set(map(str, invalid.values()))))}"
        elif high is None:
            why = "it holds at the upper bound of the search; raise it to find the highest rate"
        return cls(rate=float(rate), low=float(low), high=None if high is None else float(high), why_open=why)

    @property
    def advice(self) -> str:
        """ "the highest rate within the limits is 17.46 requests/s (95 % interval 16.9 to 18.11); deploy for up to 16.9
        requests/s, the lower end: at the rate itself, chance decides" """
        by_chance = "the lower end: at the rate itself, chance decides"
        deploy = f"deploy for up to {number(self.low)} requests/s, {by_chance}"
        return f"the highest rate within the limits is {self.text}; {deploy}"

    def compared(self, other: HighestRate) -> str:
        """Which of two servers, A and B, serves more requests within the limits, and how much more, by the intervals of
        the searches: "B serves 1.2 to 1.7 times as many"."""
        for name, more, fewer in (("B", other, self), ("A", self, other)):
            if fewer.high is None or more.low <= fewer.high:
                continue
            if more.high is None:
                return f"{name} serves at least {number(more.low / fewer.high)} times as many"
            # The answers are independent, and their logarithms have symmetric intervals.
            middle = math.log(more.low * more.high / (fewer.low * fewer.high)) / 2
            reach = math.hypot(math.log(more.high / more.low), math.log(fewer.high / fewer.low)) / 2
            least, most = math.exp(middle - reach), math.exp(middle + reach)
            return f"{name} serves {number(least)} to {number(most)} times as many"
        return "which of them serves more is not known, since the intervals overlap"

    @property
    def text(self) -> str:
        """ "17.46 requests/s (95 % interval 16.9 to 18.11)" """
        if self.high is not None:
            return f"{number(self.rate)} requests/s (95 % interval {number(self.low)} to {number(self.high)})"
        sure = f"({number(self.low)} or more with 97.5 % confidence, which more requests raise)"
        return f"at least {number(self.rate)} requests/s as measured {sure}: {self.why_open}"
