"""Queues whose truth is known, as loads that a server could have had: start and end of each request in s.

All serve 50 requests/s at most. Single queues follow Lindley's recursion, vectorised.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from benchmarking.core.records import Requests

CAPACITY_PER_S = 50.0
SERVICE_S = 1 / CAPACITY_PER_S
SLOTS = 8
Floats = npt.NDArray[np.float64]
Serve = Callable[[np.random.Generator, Floats], Floats]
"""Random numbers and starts -> ends; NaN for a request that is refused at once."""
Engine = Callable[[np.random.Generator, Floats], tuple[Floats, Floats]]
"""Random numbers and starts -> first tokens and ends."""


def in_turn(starts: Floats, services: Floats) -> Floats:
    """The ends of requests that are served one after another."""
    total = np.cumsum(services)
    ends: Floats = total + np.maximum.accumulate(starts - np.concatenate(([0.0], total[:-1])))
    return ends


def deterministic(chance: np.random.Generator, starts: Floats) -> Floats:
    return in_turn(starts, np.full(len(starts), SERVICE_S))


def exponential(chance: np.random.Generator, starts: Floats) -> Floats:
    return in_turn(starts, chance.exponential(SERVICE_S, len(starts)))


def lognormal(chance: np.random.Generator, starts: Floats) -> Floats:
    return in_turn(starts, chance.lognormal(np.log(SERVICE_S) - 0.5, 1.0, len(starts)))


def hyperexponential(chance: np.random.Generator, starts: Floats) -> Floats:
    """Two kinds of exponential service times, of which one in nine is long: the squared coefficient of variation is 4,
    and each kind makes half of the load."""
    share = (1 - 0.6**0.5) / 2
    kinds = np.where(chance.random(len(starts)) < share, 0.5 / share, 0.5 / (1 - share))
    return in_turn(starts, SERVICE_S * kinds * chance.exponential(1, len(starts)))


def two_level(chance: np.random.Generator, starts: Floats) -> Floats:
    """Every tenth request takes eleven times as long as the others."""
    return in_turn(starts, np.where(chance.random(len(starts)) < 0.1, 5.5, 0.5) * SERVICE_S)


def correlated(chance: np.random.Generator, starts: Floats) -> Floats:
    """The logarithm of the service time is a first-order process with a correlation of .9 between neighbours."""
    noise = chance.normal(0, 0.19**0.5, len(starts)).tolist()
    walk = np.array(list(accumulate(noise[1:], lambda last, one: 0.9 * last + one, initial=chance.normal())))
    return in_turn(starts, SERVICE_S * np.exp(0.4 * walk - 0.08))


def in_slots(starts: Floats, services: Floats, slots: int) -> Floats:
    """The ends of requests that are served in turn by so many slots."""
    free, ends = [0.0] * slots, []
    for at, service in zip(starts.tolist(), services.tolist(), strict=True):
        end = max(at, heapq.heappop(free)) + service
        heapq.heappush(free, end)
        ends.append(end)
    return np.array(ends)


def eight_slots(chance: np.random.Generator, starts: Floats) -> Floats:
    return in_slots(starts, np.full(len(starts), SLOTS * SERVICE_S), SLOTS)


def eight_connections(chance: np.random.Generator, starts: Floats) -> Floats:
    """Exponential service times; the server accepts eight connections at a time, the others wait."""
    return in_slots(starts, chance.exponential(SLOTS * SERVICE_S, len(starts)), SLOTS)


def erlang(chance: np.random.Generator, starts: Floats) -> Floats:
    """Four slots, and service times of four exponential stages."""
    return in_slots(starts, SERVICE_S * chance.gamma(4, 1, len(starts)), 4)


def in_batches(chance: np.random.Generator, starts: Floats) -> Floats:
    """A call takes up to eight waiting requests."""
    at, ends, done, now = starts.tolist(), [], 0, 0.0
    while done < len(at):
        now, first = max(now, at[done]), done
        while done < len(at) and done - first < SLOTS and at[done] <= now:
            done += 1
        now += SLOTS * SERVICE_S
        ends += [now] * (done - first)
    return np.array(ends)


def waiting_batches(chance: np.random.Generator, starts: Floats) -> Floats:
    """A call takes eight requests; it waits for them, but no longer than 50 ms after the first."""
    at, ends, first, now = starts.tolist(), [], 0, 0.0
    while first < len(at):
        full = at[first + SLOTS - 1] if first + SLOTS <= len(at) else math.inf
        now = max(now, min(full, at[first] + 0.05))
        count = bisect.bisect_right(at, now, first, min(first + SLOTS, len(at))) - first
        now += SLOTS * SERVICE_S
        ends += [now] * count
        first += count
    return np.array(ends)


def continuous_batching(chance: np.random.Generator, starts: Floats) -> Floats:
    """Up to eight requests share the server, which is faster the more there are: by the square root of their number."""
    work, at, ends = chance.exponential(1, len(starts)).tolist(), starts.tolist(), np.zeros(len(starts))
    running: dict[int, float] = {}
    waiting, now, place = deque[int](), 0.0, 0
    while place < len(at) or running:
        each_per_s = CAPACITY_PER_S * (len(running) / SLOTS) ** 0.5 / max(len(running), 1)
        first = min(running, key=lambda one: running[one]) if running else -1
        end = now + running[first] / each_per_s if running else math.inf
        is_arrival = place < len(at) and at[place] < end
        until = at[place] if is_arrival else end
        running = {one: left - (until - now) * each_per_s for one, left in running.items()}
        now = until
        if is_arrival:
            waiting.append(place)
            place += 1
        else:
            ends[first] = now
            del running[first]
        while waiting and len(running) < SLOTS:
            one = waiting.popleft()
            running[one] = work[one]
    return ends


def in_steps(slots: int, half_speed: float, deviation: float) -> Engine:
    """An engine: each step takes as long for `half_speed` requests as besides them, and up to `slots` run. Requests
    take 16 steps on average, with this deviation of the logarithm."""

    def serve(chance: np.random.Generator, starts: Floats) -> tuple[Floats, Floats]:
        steps = chance.lognormal(np.log(16) - deviation**2 / 2, deviation, len(starts))
        left, at = np.maximum(1, np.round(steps)).astype(int).tolist(), starts.tolist()
        firsts, ends = np.zeros(len(starts)), np.zeros(len(starts))
        each_s = slots / (16 * CAPACITY_PER_S * (half_speed + slots))
        running, now, place = list[int](), 0.0, 0
        while place < len(at) or running:
            now, begun = now if running else max(now, at[place]), place
            while place < len(at) and at[place] <= now and len(running) < slots:
                running.append(place)
                place += 1
            now += each_s * (half_speed + len(running))
            firsts[begun:place] = now
            for one in running:
                left[one] -= 1
            ends[[one for one in running if not left[one]]] = now
            running = [one for one in running if left[one]]
        return firsts, ends

    return serve


def stalling(chance: np.random.Generator, starts: Floats) -> Floats:
    """Stands still for 2 s in every 10 s, and is a quarter faster in between."""
    return _with_stops(chance, starts, np.full(len(starts), 0.8 * SERVICE_S), 2.0)


def regularly_collecting(chance: np.random.Generator, starts: Floats) -> Floats:
    """Exponential service times, and a pause of 0.5 s in every 10 s."""
    return _with_stops(chance, starts, chance.exponential(0.95 * SERVICE_S, len(starts)), 0.5)


def _with_stops(chance: np.random.Generator, starts: Floats, services: Floats, stop_s: float) -> Floats:
    """The ends of requests that are served one after another by a server that stands still for so long in every 10 s,
    from any time on."""
    shifted, work_s = starts + chance.uniform(0, 10), 10 - stop_s
    worked = np.floor(shifted / 10) * work_s + np.maximum(shifted % 10 - stop_s, 0)
    ends = in_turn(worked, services)
    rounds = np.ceil(ends / work_s) - 1
    back: Floats = rounds * 10 + stop_s + ends - rounds * work_s - (shifted[0] - starts[0])
    return back


def warming_up(chance: np.random.Generator, starts: Floats) -> Floats:
    """Exponential service times, twice as long in the first 5 s."""
    since = starts - starts[0]
    ends = in_turn(np.where(since < 5, since / 2, since - 2.5), chance.exponential(SERVICE_S, len(starts)))
    back: Floats = starts[0] + np.where(ends < 2.5, 2 * ends, ends + 2.5)
    return back


def prioritised(chance: np.random.Generator, starts: Floats) -> Floats:
    """Exponential service times; three in ten requests go before all others that wait."""
    services, at, ends = chance.exponential(SERVICE_S, len(starts)).tolist(), starts.tolist(), np.zeros(len(starts))
    is_first = (chance.random(len(starts)) < 0.3).tolist()
    waiting, now, place = (deque[int](), deque[int]()), 0.0, 0
    while place < len(at) or any(waiting):
        if not any(waiting):
            now = max(now, at[place])
        while place < len(at) and at[place] <= now:
            waiting[not is_first[place]].append(place)
            place += 1
        one = (waiting[0] or waiting[1]).popleft()
        now += services[one]
        ends[one] = now
    return ends


def collecting(chance: np.random.Generator, starts: Floats) -> Floats:
    """Exponential service times, and pauses of 0.3 s at random, after 2.7 s of work on average: collected garbage."""
    pause_s, work_s = 0.3, 2.7
    until = 2 * max(float(starts[-1]), len(starts) * SERVICE_S) + 60
    pauses = np.cumsum(chance.exponential(work_s, int(until / work_s)))  # in the time that was worked
    begins = np.concatenate(([-math.inf], pauses + pause_s * np.arange(len(pauses))))
    before = np.searchsorted(begins, starts) - 1
    worked = np.maximum(starts - pause_s * before, begins[before] - pause_s * (before - 1))
    ends = in_turn(worked, chance.exponential(0.9 * SERVICE_S, len(starts)))
    back: Floats = ends + pause_s * np.searchsorted(pauses, ends)
    return back


def last_first(chance: np.random.Generator, starts: Floats) -> Floats:
    """Exponential service times; of those that wait, the newest is served first."""
    services, at, ends = chance.exponential(SERVICE_S, len(starts)).tolist(), starts.tolist(), np.zeros(len(starts))
    waiting, now, place = list[int](), 0.0, 0
    while place < len(at) or waiting:
        if not waiting:
            now = max(now, at[place])
        while place < len(at) and at[place] <= now:
            waiting.append(place)
            place += 1
        one = waiting.pop()
        now += services[one]
        ends[one] = now
    return ends


def coarse(chance: np.random.Generator, starts: Floats) -> Floats:
    """Exponential service times; latencies are known in steps of 10 ms."""
    ends: Floats = starts + np.ceil((exponential(chance, starts) - starts) * 100) / 100
    return ends


def token_bucket(chance: np.random.Generator, starts: Floats) -> Floats:
    """10 ms each; above 40 requests/s, with ten to spare, the others are refused (429)."""
    is_refused, tokens, last = [], 10.0, float(starts[0])
    for at in starts.tolist():
        tokens, last = min(10.0, tokens + 40 * (at - last)), at
        is_refused.append(tokens < 1)
        tokens -= tokens >= 1
    refused = np.array(is_refused)
    ends = np.full(len(starts), np.nan)
    ends[~refused] = in_turn(starts[~refused], np.full(int((~refused).sum()), SERVICE_S / 2))
    return ends


def short_queue(chance: np.random.Generator, starts: Floats) -> Floats:
    """Exponential service times; a request that finds twelve others is refused (503)."""
    inside, ends, last = deque[float](), [], 0.0
    for at, service in zip(starts.tolist(), chance.exponential(SERVICE_S, len(starts)).tolist(), strict=True):
        while inside and inside[0] <= at:
            inside.popleft()
        if len(inside) >= 12:
            ends.append(math.nan)
            continue
        last = max(at, last) + service
        inside.append(last)
        ends.append(last)
    return np.array(ends)


def failing_in_bursts(chance: np.random.Generator, starts: Floats) -> Floats:
    """Exponential service times; every 20 s on average, all requests of 0.1 s are refused (503)."""
    until = float(starts[-1])
    begins = np.cumsum(chance.exponential(20.0, int(until / 10) + 50))
    place = np.searchsorted(begins, starts) - 1
    is_refused = (place >= 0) & (starts - begins[np.maximum(place, 0)] < 0.1)
    ends = np.full(len(starts), np.nan)
    taken = starts[~is_refused]
    ends[~is_refused] = in_turn(taken, chance.exponential(SERVICE_S, len(taken)))
    return ends


def two_hosts(chance: np.random.Generator, starts: Floats) -> Floats:
    """Two hosts get the requests in turns; each serves one at a time, the second a quarter faster."""
    ends = np.empty(len(starts))
    for host, service_s in enumerate((2 * SERVICE_S, 1.6 * SERVICE_S)):
        own = starts[host::2]
        ends[host::2] = in_turn(own, chance.exponential(service_s, len(own)))
    return ends


def heating(chance: np.random.Generator, starts: Floats) -> Floats:
    """Exponential service times, a fifth shorter while the clocks boost: until the server was busy for 60 % of the
    last 10 s or so."""
    ends, last, heat, at_s = [], float(starts[0]), 0.0, float(starts[0])
    for at, work in zip(starts.tolist(), chance.exponential(SERVICE_S, len(starts)).tolist(), strict=True):
        begin = max(at, last)
        heat *= math.exp((at_s - begin) / 10)  # it cools while it is idle
        took = work if heat > 0.6 else 0.8 * work
        heat, last = 1 + (heat - 1) * math.exp(-took / 10), begin + took
        at_s = last
        ends.append(last)
    return np.array(ends)


def pareto(chance: np.random.Generator, starts: Floats) -> Floats:
    """Pareto service times with index 2.5: their variance is finite, hardly."""
    return in_turn(starts, SERVICE_S * 0.6 * (1 + chance.pareto(2.5, len(starts))))


def shortest_first(chance: np.random.Generator, starts: Floats) -> Floats:
    """Exponential service times; of those that wait, the shortest is served first."""
    services, at, ends = chance.exponential(SERVICE_S, len(starts)).tolist(), starts.tolist(), np.zeros(len(starts))
    waiting, now, place = list[tuple[float, int]](), 0.0, 0
    while place < len(at) or waiting:
        if not waiting:
            now = max(now, at[place])
        while place < len(at) and at[place] <= now:
            heapq.heappush(waiting, (services[place], place))
            place += 1
        service, one = heapq.heappop(waiting)
        now += service
        ends[one] = now
    return ends


def joining(chance: np.random.Generator, starts: Floats) -> Floats:
    """Two hosts, each with exponential service times of 40 ms; the second joins 5 s after the first request, as one
    that is started when it is needed."""
    free, ends = [float(starts[0]), float(starts[0]) + 5], []
    for at, service in zip(starts.tolist(), chance.exponential(2 * SERVICE_S, len(starts)).tolist(), strict=True):
        host = 0 if free[0] <= max(at, free[1]) else 1
        free[host] = max(at, free[host]) + service
        ends.append(free[host])
    return np.array(ends)


def failing(share: float) -> Serve:
    """An exponential server of which this share of the requests fails, at any rate and each alone."""

    def serve(chance: np.random.Generator, starts: Floats) -> Floats:
        ends = exponential(chance, starts)
        return np.where(chance.random(len(starts)) < share, np.nan, ends)

    return serve


REFUSING: Mapping[str, Serve] = {
    "token bucket, 429": token_bucket,
    "queue of 12, 503": short_queue,
    "failures in bursts, 503": failing_in_bursts,
    "0.5 % fail": failing(0.005),
    "0.8 % fail": failing(0.008),
}
ENGINES: Mapping[str, Engine] = {
    "engine of 8": in_steps(8, 4, 0.8),
    "engine of 32": in_steps(32, 5, 0),
    "engine of 32, lognormal 0.8": in_steps(32, 5, 0.8),
    "engine of 64, lognormal 0.8": in_steps(64, 64, 0.8),
    "engine of 128, lognormal 0.8": in_steps(128, 10, 0.8),
    "engine without a limit": in_steps(100_000, 10, 0.8),
}
QUEUES: Mapping[str, Serve] = {
    "M/D/1": deterministic,
    "M/M/1": exponential,
    "M/G/1 lognormal 1.0": lognormal,
    "M/D/8": eight_slots,
    "batches of 8": in_batches,
    "continuous batching": continuous_batching,
    "correlated service": correlated,
    "two service times": two_level,
    "stalls": stalling,
    "hyperexponential": hyperexponential,
    "pauses of 0.3 s": collecting,
    "last come, first served": last_first,
    "times in steps of 10 ms": coarse,
    "on/off arrivals, M/1": exponential,
    "bursty arrivals, M/1": exponential,
    "M/E4/4": erlang,
    "M/M/8": eight_connections,
    "batches that wait 50 ms": waiting_batches,
    "pauses of 0.5 s in 10 s": regularly_collecting,
    "warm-up of 5 s": warming_up,
    "priorities": prioritised,
    "two hosts in turns": two_hosts,
    "boost until hot": heating,
    "M/G/1 Pareto 2.5": pareto,
    "shortest first": shortest_first,
    "second host after 5 s": joining,
}


def on_off(chance: np.random.Generator, rate: float, number: int) -> Floats:
    """Twice the rate for a second on average, then nothing for a second on average."""
    sources = np.cumsum(chance.exponential(1 / (2 * rate), number))  # in the time that was on
    on, off = np.cumsum(chance.exponential(1, (2, int(sources[-1] * 1.5) + 50)), axis=1)
    starts: Floats = sources + np.concatenate(([0.0], off))[np.searchsorted(on, sources)]
    return starts


def hyperexponential_gaps(chance: np.random.Generator, rate: float, number: int) -> Floats:
    """Gaps of two kinds, of which one in nine is long: the squared coefficient of variation is 4."""
    share = (1 - 0.6**0.5) / 2
    kinds = np.where(chance.random(number) < share, 0.5 / share, 0.5 / (1 - share))
    return np.cumsum(kinds * chance.exponential(1 / rate, number))


def arrivals_at(name: str) -> Callable[[np.random.Generator, float, int], Floats]:
    """The arrivals at a queue: random numbers, rate and number -> starts."""
    kinds = {"on/off arrivals": on_off, "bursty arrivals": hyperexponential_gaps}
    return kinds.get(name.partition(",")[0], poisson)


def poisson(chance: np.random.Generator, rate: float, number: int) -> Floats:
    return np.cumsum(chance.exponential(1 / rate, number))


def requests_of(starts: Floats, ends: Floats, limit_ms: float, firsts: Floats | None = None) -> Requests:
    """The record of a load of one-token replies, with a limit on the latency; a refusal takes 1 ms. `firsts`: first
    tokens before the end."""
    refused = np.isnan(ends).tolist()
    ends = np.where(refused, starts + 1e-3, ends)
    times = (starts, ends, ends if firsts is None else firsts)
    at, end, first = (np.round((one - starts[0]) * 1e3, 3).tolist() for one in times)
    n, none = len(at), (None,) * len(at)
    return Requests(
        launch=0,
        phase="measure",
        started_at="2026-01-02T03:04:06.000000Z",
        intended_ms=tuple(at),
        sent_ms=tuple(at),
        first_token_ms=tuple(None if no else one for no, one in zip(refused, first, strict=True)),
        token_ms=tuple(() if no else (one,) for no, one in zip(refused, end, strict=True)),
        end_ms=tuple(end),
        tokens_in=(8,) * n,
        tokens_out=tuple(None if no else 1 for no in refused),
        cached_tokens=none,
        error=tuple("http_429" if no else None for no in refused),
        detail=none,
        meets_limits=tuple(not no and b - a <= limit_ms for no, a, b in zip(refused, at, end, strict=True)),
        conversation=none,
        turn=none,
    )
