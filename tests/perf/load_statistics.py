"""Prints how well the statistics of load tests do on queues with a known answer: the tables of docs/load.md.

    python -m tests.perf.load_statistics [find|saturation|window|intervals|slowing ...] [--trials N] [--queue TEXT]

Nothing is sent: simulated requests go to the product's own functions.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush

import numpy as np

from benchmarking.core.load_doubts import over_saturated, queue_of
from benchmarking.core.records import Point, Result
from benchmarking.core.tables import Table, table_text
from benchmarking.load.curve import HIGHEST_RATE, RATE_HIGH, RATE_LOW, search
from benchmarking.load.generator import Level
from benchmarking.load.results import result_of, tails
from benchmarking.load.traffic import Lengths, Traffic
from tests.helpers.queues import (
    CAPACITY_PER_S,
    ENGINES,
    QUEUES,
    REFUSING,
    SERVICE_S,
    Engine,
    Serve,
    arrivals_at,
    requests_of,
)

TRAFFIC = Traffic(lengths_in=Lengths("8"), lengths_out=Lengths("1"))
BURSTS = replace(TRAFFIC, arrivals="gamma", variation=2.0)
FAILING = "failures in bursts, 503"
SEARCHES: Sequence[tuple[str, str, float, Traffic]] = (
    ("M/D/1", "M/D/1", 100, TRAFFIC),
    ("M/M/1", "M/M/1", 300, TRAFFIC),
    ("M/G/1 lognormal 1.0", "M/G/1 lognormal 1.0", 400, TRAFFIC),
    ("M/D/8", "M/D/8", 250, TRAFFIC),
    ("batches of 8", "batches of 8", 500, TRAFFIC),
    ("correlated service", "correlated service", 300, TRAFFIC),
    ("two service times", "two service times", 500, TRAFFIC),
    ("hyperexponential", "hyperexponential", 600, TRAFFIC),
    ("pauses of 0.3 s", "pauses of 0.3 s", 700, TRAFFIC),
    ("last come, first served", "last come, first served", 500, TRAFFIC),
    ("times in steps of 10 ms", "times in steps of 10 ms", 300, TRAFFIC),
    ("gamma arrivals, M/1", "M/M/1", 400, BURSTS),
    ("M/E4/4", "M/E4/4", 300, TRAFFIC),
    ("M/M/8", "M/M/8", 900, TRAFFIC),
    ("batches that wait 50 ms", "batches that wait 50 ms", 450, TRAFFIC),
    ("pauses of 0.5 s in 10 s", "pauses of 0.5 s in 10 s", 700, TRAFFIC),
    ("priorities", "priorities", 500, TRAFFIC),
    ("token bucket, 429", "token bucket, 429", 300, TRAFFIC),
    ("queue of 12, 503", "queue of 12, 503", 400, TRAFFIC),
    (FAILING, FAILING, 400, TRAFFIC),
    ("0.5 % fail", "0.5 % fail", 300, TRAFFIC),
    ("0.8 % fail", "0.8 % fail", 300, TRAFFIC),
    ("two hosts in turns", "two hosts in turns", 600, TRAFFIC),
    ("boost until hot", "boost until hot", 300, TRAFFIC),
    ("M/G/1 Pareto 2.5", "M/G/1 Pareto 2.5", 500, TRAFFIC),
    ("shortest first", "shortest first", 400, TRAFFIC),
    ("second host after 5 s", "second host after 5 s", 400, TRAFFIC),
    ("M/M/1", "M/M/1", 100, TRAFFIC),
)
"""Name, queue, limit of the latency in ms, and arrivals. The last has its answer at 8 % load, where the share of slow
requests hardly depends on the rate."""
SEARCHED_S = 1800.0
"""The longest search: 60 levels of 30 s."""
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
PRINTED = (("p50", 300), *((word, number) for number in (3000, 10_000) for word in ("p50", "p90")), ("p99", 10_000))


def find(trials: int, only: str) -> Table:
    """`--find-rate` at 30 s a level. Least: the least spread and the clusters of `_truth`. Above 5 %: answers that are
    more than 5 % too high."""
    rows = []
    for name, queue, limit_ms, traffic in SEARCHES:
        if only not in name:
            continue
        serve = {**QUEUES, **REFUSING}[queue]
        truth, least, clusters = _truth(serve, limit_ms, traffic)
        found = [_searched(serve, limit_ms, traffic, seed) for seed in range(trials)]
        answers = np.array([one[0] for one in found if one is not None])
        covered = [one[1] <= truth <= one[2] for one in found if one is not None]
        levels = [one[3] for one in found if one is not None]
        errors = answers / truth - 1
        rows.append(
            (
                *(name, f"{limit_ms:g} ms", f"{truth:.1f}/s", f"{np.median(errors):+.1%}", f"{errors.std():.1%}"),
                *(f"{least:.1%}", f"{clusters:.0f}", f"{np.mean(errors > 0.05):.0%}", f"{np.mean(covered):.0%}"),
                *(f"{np.mean(levels):.0f}", f"{sum(one is None for one in found)}"),
            )
        )
    words = (
        *("queue", "limit", "truth", "median error", "spread", "least", "clusters", "above 5 %", "covers"),
        *("levels", "none"),
    )
    return Table(headings=words, rows=tuple(rows), numbers=tuple(range(2, 11)))


def _searched(serve: Serve, limit_ms: float, traffic: Traffic, seed: int) -> tuple[float, float, float, int] | None:
    chance = np.random.default_rng(seed)

    def measured(level: Level) -> Result:
        assert level.rate is not None
        starts = np.array(replace(traffic, seed=seed).starts(level.rate, level.requests))
        requests = requests_of(starts, serve(chance, starts), limit_ms)
        share = sum(one is True for one in requests.meets_limits) / len(requests)
        return Result(
            result_id="0",
            point=Point(batch_size=1, axes={"request_rate": level.rate}),
            status="ok",
            metrics={"goodput_share": share},
            doubts=tuple(over_saturated(requests, level.rate)),
            requests=(requests,),
            extra={"custom_metrics": {}, "launches": []},
        )

    *levels, outcome = search(measured, Level(rate=1.0, duration_s=30.0), 64.0, lambda text: None)
    rate = outcome.metrics.get(HIGHEST_RATE)
    if rate is None:
        return None
    return rate, outcome.metrics[RATE_LOW], outcome.metrics.get(RATE_HIGH, math.inf), len(levels)


def _truth(serve: Serve, limit_ms: float, traffic: Traffic) -> tuple[float, float, float]:
    """The highest rate at which 99 % of the latencies are within the limit, from a long load; the least spread of an
    estimate; and the number of independent requests outside the limit in half an hour, since they come in clusters.

    The least spread is the relative standard error of the rate after half an hour at the true one, if the share outside
    the limit is all that is unknown: that of the share, by batch means, over its true slope."""
    low, high = 0.3, CAPACITY_PER_S
    for _ in range(10):
        middle = math.sqrt(low * high)
        is_within = _outside(serve, limit_ms, traffic, middle, 200_000).mean() <= 0.01
        low, high = (middle, high) if is_within else (low, middle)
    near = math.sqrt(low * high)
    rates = near * np.array([0.93, 1.0, 1.07])
    late = [_outside(serve, limit_ms, traffic, rate, 1_500_000) for rate in rates]
    shares = np.array([one.mean() for one in late])
    slope, at = np.polyfit(np.log(rates), np.log(shares / (1 - shares)), 1)
    truth = math.exp((math.log(0.01 / 0.99) - at) / slope)
    size = round(300 * near)
    batches = late[1][: len(late[1]) // size * size].reshape(-1, size).mean(axis=1)
    error = float(batches.std(ddof=1)) * math.sqrt(300 / SEARCHED_S) / float(shares[1])
    return truth, error / float(slope), 1 / error**2


def _outside(serve: Serve, limit_ms: float, traffic: Traffic, rate: float, number: int) -> np.ndarray:
    """Whether each request of a long load is outside the limit."""
    chance = np.random.default_rng(1)
    shape = 1 / traffic.variation**2
    starts = np.cumsum(chance.gamma(shape, 1 / (shape * rate), number))
    met: np.ndarray = (serve(chance, starts) - starts)[1000:] * 1e3 <= limit_ms
    return ~met


def saturation(trials: int, only: str) -> Table:
    """Share of levels marked over-saturated, and of those too short to tell (in brackets); streamed: of engines that
    stream their replies. Best: `_at_most`."""
    loads = ((0.8, 50), (0.8, 200), *((0.9, number) for number in (50, 200, 1000)), (1.1, 1000), (1.2, 200))
    rows: list[tuple[str, ...]] = []
    whole: dict[str, Serve] = {
        **QUEUES,
        FAILING: REFUSING[FAILING],
        **{name: _whole(of) for name, of in ENGINES.items()},
    }
    for name in (*whole, *(f"{name}, streamed" for name in ENGINES)):
        if only not in name:
            continue
        chance, cells, engine = np.random.default_rng(2), [], name.removesuffix(", streamed")
        for load, number in loads:
            rate, kinds = load * CAPACITY_PER_S, list[str]()
            for _ in range(trials):
                starts = arrivals_at(name)(chance, rate, number)
                firsts, ends = (None, whole[name](chance, starts)) if name in whole else ENGINES[engine](chance, starts)
                kinds += [one.kind for one in over_saturated(requests_of(starts, ends, 1e9, firsts), rate)]
            marked, unknown = (kinds.count(kind) / trials for kind in ("over_saturated", "saturation_unknown"))
            cells.append(f"{marked:.0%} ({unknown:.0%})")
        best = [f"{_at_most(whole[name], *load):.0%}" if name in whole else "" for load in loads[-2:]]
        rows.append((name, *cells, *best))
    words = (
        "queue",
        *(f"{load:g}, {number}" for load, number in loads),
        *(f"best {one:g}" for one, _ in loads[-2:]),
    )
    return Table(headings=words, rows=tuple(rows), numbers=tuple(range(1, len(words))))


def _whole(engine: Engine) -> Serve:
    """The engine, with replies that are sent whole."""
    return lambda chance, starts: engine(chance, starts)[1]


def _at_most(serve: Serve, load: float, number: int, trials: int = 2000) -> float:
    """The share of levels that a test could mark which knows how the server's work varies and sees it busy all the
    time, if it marks at most 5 % of those at load .9: it compares how long the completed requests took together."""
    chance = np.random.default_rng(6)
    completed = round(number / load)
    took = np.array([np.nanmax(serve(chance, np.zeros(completed))) for _ in range(trials)]) * CAPACITY_PER_S / completed
    return float((load * took > 0.9 * np.quantile(took, 0.95)).mean())


def window(trials: int, only: str) -> Table:
    """Throughput and requests in flight over the steady window, over their true values, for 30 s of load."""
    rows = []
    bursts = replace(TRAFFIC, arrivals="burst", burst=16)
    for traffic, reply_s in ((TRAFFIC, 0.5), (TRAFFIC, 3.0), (TRAFFIC, 10.0), (bursts, 0.5), (bursts, 3.0)):
        chance, cells = np.random.default_rng(3), []
        for seed in range(trials):
            starts = np.array(replace(traffic, seed=seed).starts(4.0, 120))
            ends = starts + chance.lognormal(np.log(reply_s) - 0.02, 0.2, len(starts))
            cells.append(_rates(requests_of(starts, ends, 1e9), Level(rate=4.0, duration_s=30.0), 4.0, 4 * reply_s))
        of = "" if traffic is TRAFFIC else " to bursts of 16"
        rows.append((f"open loop, replies of {reply_s:g} s{of}", *_of_rates(cells)))
    chance, cells = np.random.default_rng(4), []
    for _ in range(trials):
        free, starts, ends = np.zeros(16), [], []
        for took in chance.lognormal(0, 0.8, 64):
            place = int(free.argmin())
            starts.append(free[place])
            free[place] += took
            ends.append(free[place])
        requests = requests_of(np.array(starts), np.array(ends), 1e9)
        cells.append(_rates(requests, Level(concurrency=16, number=64), 16 / math.exp(0.32), 16))
    rows.append(("closed loop of 16, 64 requests", *_of_rates(cells)))
    words = ("load", "steady throughput", "5-95 %", "steady in flight", "total throughput")
    return Table(headings=words, rows=tuple(row for row in rows if only in row[0]), numbers=(1, 2, 3, 4))


def _rates(requests: object, level: Level, rate: float, in_flight: float) -> tuple[float, float, float]:
    metrics = result_of(TRAFFIC, level, [requests]).metrics  # type: ignore[list-item]
    names = ("throughput_samples_per_sec", "in_flight_mean", "total_requests_per_sec")
    return tuple(metrics[name] / true for name, true in zip(names, (rate, in_flight, rate), strict=True))  # type: ignore[return-value]


def _of_rates(cells: Sequence[tuple[float, float, float]]) -> tuple[str, str, str, str]:
    steady, in_flight, total = (np.array(one) for one in zip(*cells, strict=True))
    low, high = np.quantile(steady, (0.05, 0.95))
    return f"{steady.mean():.2f}", f"{low:.2f}-{high:.2f}", f"{in_flight.mean():.2f}", f"{total.mean():.2f}"


def intervals(trials: int, only: str) -> Table:
    """Share of the shown intervals that cover the true percentile, and in brackets how many of all are shown."""
    rows: list[tuple[str, ...]] = []
    left_out = ("continuous batching", "two service times", "stalls", "warm-up of 5 s")
    for name, serve in QUEUES.items():
        if name in left_out or only not in name:
            continue
        for load in (0.5, 0.8, 0.9):
            rate, chance = load * CAPACITY_PER_S, np.random.default_rng(5)
            arrive = arrivals_at(name)
            starts = arrive(chance, rate, 300_000)
            latency = _latency(serve, chance, starts)[2000:]
            true = {word: float(np.quantile(latency, share)) for word, share in SHARES.items()}
            cells = []
            for number in (300, 3000, 10_000):
                seen = {word: [0, 0] for word in SHARES}
                for _ in range(trials):
                    starts = arrive(chance, rate, number + 1500)
                    latency_ms = _latency(serve, chance, starts)
                    queue = queue_of(starts[1500:] * 1e3, (starts * 1e3 + latency_ms)[1500:], rate)
                    found, _ = tails("latency", latency_ms[1500:].tolist(), queue.correlation)
                    for word, count in seen.items():
                        ends = [found.get(f"latency_{word}_ci_{end}_ms") for end in ("low", "high")]
                        if None not in ends:
                            count[0] += 1
                            count[1] += ends[0] - 1e-6 <= true[word] <= ends[1] + 1e-6
                cells += [_covered(*seen[word], trials) for word in SHARES if (word, number) in PRINTED]
            rows.append((f"{name}, load {load:g}", *cells))
    rows += [(name, *_of_closed(serve, trials)) for name, serve in CLOSED.items() if only in name]
    words = ("queue", *(f"{word} of {number}" for word, number in PRINTED))
    return Table(headings=words, rows=tuple(rows), numbers=tuple(range(1, len(words))))


def _of_closed(service_s: Service, trials: int) -> list[str]:
    """The cells of a closed loop of 8 requests before 4 slots."""
    long = _latencies(_closed(service_s(np.random.default_rng(5)), 300_000))
    true = {word: float(np.quantile(long, share)) for word, share in SHARES.items()}
    seen = {column: [0, 0] for column in PRINTED}
    for number in sorted({number for _, number in PRINTED}):
        for trial in range(trials):
            found, _ = tails("latency", _latencies(_closed(service_s(np.random.default_rng(100 + trial)), number)))
            for word in (word for word, of in PRINTED if of == number):
                ends = [found.get(f"latency_{word}_ci_{end}_ms") for end in ("low", "high")]
                if None not in ends:
                    seen[word, number][0] += 1
                    seen[word, number][1] += ends[0] <= true[word] <= ends[1]
    return [_covered(*seen[column], trials) for column in PRINTED]


def slowing(trials: int, only: str) -> Table:
    """Share of the levels with the doubt `slowing_down`: of servers that stay as fast as they are, and of such as take
    these times as long at the end. Headings: requests, of which so many are in flight before so many slots."""
    steady = {**STEADY, **{name.removeprefix("closed loop, "): service for name, service in CLOSED.items()}}
    slower = {f"{factor:g} times slower, vary by {spread:.0%}": (factor, spread) for factor, spread in SLOWER}
    rows = []
    for name in (*steady, *slower):
        if only not in name:
            continue
        factor, spread = slower.get(name, (1.0, 0.0))
        cells = []
        for in_flight, slots in LOOPS:
            for number in LEVELS:
                doubted = 0
                for trial in range(trials):
                    chance = np.random.default_rng([9, trial])
                    if name in steady:
                        serve = steady[name](chance)
                    else:
                        services = iter(0.02 * chance.lognormal(0, spread, number) * np.linspace(1, factor, number))
                        serve = partial(_next, services)
                    sent, ends = np.array(_closed(serve, number, in_flight, slots)).T
                    level = Level(concurrency=in_flight, number=number)
                    found = result_of(TRAFFIC, level, [requests_of(sent, ends, 1e6)]).doubts
                    doubted += "slowing_down" in {one.kind for one in found}
                cells.append(f"{doubted / trials:.0%}")
        rows.append((name, *cells))
    words = ("server", *(f"{n}: {in_flight}/{slots}" for in_flight, slots in LOOPS for n in LEVELS))
    return Table(headings=words, rows=tuple(rows), numbers=tuple(range(1, len(words))))


def _next(services: Iterator[float], _: float) -> float:
    return float(next(services))


def _closed(
    serve: Callable[[float], float], number: int, in_flight: int = 8, slots: int = 4
) -> list[tuple[float, float]]:
    """When each request was sent and when it ended, first come, first served."""
    waiting, free = [0.0] * in_flight, [0.0] * slots
    found = []
    for _ in range(number):
        sent = heappop(waiting)
        begins = max(sent, heappop(free))
        ends = begins + serve(begins)
        heappush(free, ends)
        heappush(waiting, ends)
        found.append((sent, ends))
    return found


def _latencies(spans: Sequence[tuple[float, float]]) -> list[float]:
    return [(ends - sent) * 1e3 for sent, ends in spans]


def _exponential(chance: np.random.Generator) -> Callable[[float], float]:
    return lambda _: float(chance.exponential(0.02))


def _correlated(chance: np.random.Generator) -> Callable[[float], float]:
    """Each service resembles the one before it: the logarithms correlate by .9."""
    last = [chance.normal(0, 0.4)]

    def serve(_: float) -> float:
        last[0] = 0.9 * last[0] + chance.normal(0, 0.4 * math.sqrt(1 - 0.9**2))
        return 0.02 * math.exp(last[0])

    return serve


def _episodes(cycle_s: float) -> Service:
    """1.5 times slower in a quarter of the time, in episodes of exponential length."""

    def service_s(chance: np.random.Generator) -> Callable[[float], float]:
        state = {"is_slow": chance.random() < 0.25, "until": 0.0}

        def serve(begins: float) -> float:
            while begins >= state["until"]:
                state["is_slow"] = not state["is_slow"]
                state["until"] += chance.exponential(cycle_s * (0.25 if state["is_slow"] else 0.75))
            return 0.02 * (1.5 if state["is_slow"] else 1.0) * float(chance.lognormal(0, 0.1))

        return serve

    return service_s


Service = Callable[[np.random.Generator], Callable[[float], float]]
"""Makes a server: the seconds of a service by its begin."""
CLOSED: dict[str, Service] = {
    "closed loop, exponential": _exponential,
    "closed loop, AR(.9)": _correlated,
    "closed loop, slow 1/4 of 0.1 s": _episodes(0.1),
    "closed loop, slow 1/4 of 1 s": _episodes(1.0),
    "closed loop, slow 1/4 of 4 s": _episodes(4.0),
    "closed loop, slow 1/4 of 10 s": _episodes(10.0),
}
STEADY: dict[str, Service] = {
    "vary by 2 %": lambda chance: lambda _: 0.02 * float(chance.lognormal(0, 0.02)),
    "lognormal 1.0": lambda chance: lambda _: 0.02 * float(chance.lognormal(0, 1)),
    "Pareto 2.5": lambda chance: lambda _: 0.012 * float(1 + chance.pareto(2.5)),
}
SLOWER = ((1.1, 0.02), (1.5, 0.02), (1.5, 0.3), (10, 0.02), (10, 0.3))
LOOPS, LEVELS = ((1, 1), (8, 4), (16, 16), (32, 1)), (60, 300)
"""Requests in flight and slots; requests of a level."""


def _latency(serve: Serve, chance: np.random.Generator, starts: np.ndarray) -> np.ndarray:
    latency: np.ndarray = np.round((serve(chance, starts) - starts) * 1e3, 6)
    return latency


def _covered(shown: int, covers: int, trials: int) -> str:
    return "-" if not shown else f"{covers / shown:.0%} ({shown / trials:.0%})"


TABLES: dict[str, tuple[Callable[[int, str], Table], int]] = {
    "find": (find, 60),
    "saturation": (saturation, 200),
    "window": (window, 100),
    "intervals": (intervals, 60),
    "slowing": (slowing, 200),
}
"""Name -> table, and its number of trials."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=(*TABLES, []), help="tables to print (default: all)")
    parser.add_argument("--trials", type=int, metavar="N", help="trials behind each figure")
    parser.add_argument("--queue", default="", metavar="TEXT", help="only the queues whose name contains this")
    arguments = parser.parse_args(argv)
    print(f"capacity {CAPACITY_PER_S:g} requests/s, service {SERVICE_S * 1e3:g} ms")
    for name in arguments.tables or TABLES:
        table, usual = TABLES[name]
        trials = arguments.trials or usual
        print(f"\n{name}, {trials} trials: {table.__doc__}")
        print(table_text(table(trials, arguments.queue)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
