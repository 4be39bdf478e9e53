"""Prints how well the statistics of load tests do on queues with a known answer: the tables of docs/load.md.

    python -m tests.perf.load_statistics [find|saturation|window|intervals ...] [--trials N]

Nothing is sent: simulated requests go to the product's own functions.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from benchmarking.core.load_doubts import over_saturated
from benchmarking.core.queue_growth import queue_of
from benchmarking.core.records import Point, Result
from benchmarking.core.tables import Table, table_text
from benchmarking.load.curve import HIGHEST_RATE, RATE_HIGH, RATE_LOW, search
from benchmarking.load.generator import Level
from benchmarking.load.results import result_of, tails
from benchmarking.load.traffic import Lengths, Traffic
from tests.helpers.queues import CAPACITY_PER_S, QUEUES, SERVICE_S, Serve, poisson, requests_of

TRAFFIC = Traffic(lengths_in=Lengths("8"), lengths_out=Lengths("1"))
SEARCHES: Sequence[tuple[str, float]] = (
    ("M/D/1", 100),
    ("M/M/1", 300),
    ("M/G/1 lognormal 1.0", 400),
    ("M/D/8", 250),
    ("batches of 8", 500),
    ("correlated service", 300),
    ("two service times", 500),
    ("M/M/1", 100),
)
"""Queue and limit of the latency in ms. The last has its answer at 8 % load, where the share of slow requests hardly
depends on the rate."""
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
PRINTED = (("p50", 300), *((word, number) for number in (3000, 10_000) for word in ("p50", "p90")), ("p99", 10_000))


def find(trials: int) -> Table:
    """`--find-rate` at 30 s a level."""
    rows = []
    for name, limit_ms in SEARCHES:
        truth = _highest(QUEUES[name], limit_ms)
        found = [_searched(QUEUES[name], limit_ms, seed) for seed in range(trials)]
        answers = np.array([one[0] for one in found if one is not None])
        covered = [one[1] <= truth <= one[2] for one in found if one is not None]
        levels = [one[3] for one in found if one is not None]
        errors = answers / truth - 1
        rows.append(
            (
                *(name, f"{limit_ms:g} ms", f"{truth:.1f}/s", f"{np.median(errors):+.1%}", f"{errors.std():.1%}"),
                *(f"{np.mean(errors > 0.05):.0%}", f"{np.mean(covered):.0%}"),
                *(f"{np.mean(levels):.0f}", f"{sum(one is None for one in found)}"),
            )
        )
    words = ("queue", "limit", "truth", "median error", "spread", "above by >5 %", "interval covers", "levels", "none")
    return Table(headings=words, rows=tuple(rows), numbers=tuple(range(2, 9)))


def _searched(serve: Serve, limit_ms: float, seed: int) -> tuple[float, float, float, int] | None:
    chance = np.random.default_rng(seed)

    def measured(level: Level) -> Result:
        assert level.rate is not None
        starts = np.array(replace(TRAFFIC, seed=seed).starts(level.rate, level.requests))
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


def _highest(serve: Serve, limit_ms: float, number: int = 300_000) -> float:
    """The true highest rate at which 99 % of the latencies are within the limit."""
    low, high = 0.3, CAPACITY_PER_S
    for _ in range(14):
        middle = math.sqrt(low * high)
        chance = np.random.default_rng(1)
        starts = poisson(chance, middle, number)
        late = float(((serve(chance, starts) - starts)[1000:] * 1e3 > limit_ms).mean())
        low, high = (middle, high) if late <= 0.01 else (low, middle)
    return math.sqrt(low * high)


def saturation(trials: int) -> Table:
    """Share of levels marked over-saturated, and of those too short to tell (in brackets)."""
    numbers = (50, 200, 1000)
    loads = ((0.5, 200), *((load, number) for load in (0.8, 0.9) for number in numbers), (1.1, 1000), (1.2, 200))
    rows = []
    for name, serve in QUEUES.items():
        chance, cells = np.random.default_rng(2), []
        for load, number in loads:
            rate, kinds = load * CAPACITY_PER_S, list[str]()
            for _ in range(trials):
                starts = poisson(chance, rate, number)
                kinds += [one.kind for one in over_saturated(requests_of(starts, serve(chance, starts), 1e9), rate)]
            marked, unknown = (kinds.count(kind) / trials for kind in ("over_saturated", "saturation_unknown"))
            cells.append(f"{marked:.0%} ({unknown:.0%})")
        rows.append((name, *cells))
    words = ("queue", *(f"{load:g}, {number}" for load, number in loads))
    return Table(headings=words, rows=tuple(rows), numbers=tuple(range(1, len(words))))


def window(trials: int) -> Table:
    """Throughput and requests in flight over the steady window, over their true values, for 30 s of load."""
    rows = []
    for reply_s in (0.5, 3.0, 10.0):
        chance, cells = np.random.default_rng(3), []
        for seed in range(trials):
            starts = np.array(replace(TRAFFIC, seed=seed).starts(4.0, 120))
            ends = starts + chance.lognormal(np.log(reply_s) - 0.02, 0.2, len(starts))
            cells.append(_rates(requests_of(starts, ends, 1e9), Level(rate=4.0, duration_s=30.0), 4.0, 4 * reply_s))
        rows.append((f"open loop, replies of {reply_s:g} s", *_of_rates(cells)))
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
    return Table(headings=words, rows=tuple(rows), numbers=(1, 2, 3, 4))


def _rates(requests: object, level: Level, rate: float, in_flight: float) -> tuple[float, float, float]:
    metrics = result_of(TRAFFIC, level, [requests]).metrics  # type: ignore[list-item]
    names = ("throughput_samples_per_sec", "in_flight_mean", "total_requests_per_sec")
    return tuple(metrics[name] / true for name, true in zip(names, (rate, in_flight, rate), strict=True))  # type: ignore[return-value]


def _of_rates(cells: Sequence[tuple[float, float, float]]) -> tuple[str, str, str, str]:
    steady, in_flight, total = (np.array(one) for one in zip(*cells, strict=True))
    low, high = np.quantile(steady, (0.05, 0.95))
    return f"{steady.mean():.2f}", f"{low:.2f}-{high:.2f}", f"{in_flight.mean():.2f}", f"{total.mean():.2f}"


def intervals(trials: int) -> Table:
    """Share of the shown intervals that cover the true percentile, and in brackets how many of all are shown."""
    rows = []
    for name in ("M/D/1", "M/M/1", "M/G/1 lognormal 1.0", "M/D/8", "batches of 8", "correlated service"):
        serve = QUEUES[name]
        for load in (0.5, 0.8, 0.9):
            rate, chance = load * CAPACITY_PER_S, np.random.default_rng(5)
            starts = poisson(chance, rate, 300_000)
            latency = _latency(serve, chance, starts)[2000:]
            true = {word: float(np.quantile(latency, share)) for word, share in SHARES.items()}
            cells = []
            for number in (300, 3000, 10_000):
                seen = {word: [0, 0] for word in SHARES}
                for _ in range(trials):
                    starts = poisson(chance, rate, number + 1500)
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
    words = ("queue", *(f"{word} of {number}" for word, number in PRINTED))
    return Table(headings=words, rows=tuple(rows), numbers=tuple(range(1, len(words))))


def _latency(serve: Serve, chance: np.random.Generator, starts: np.ndarray) -> np.ndarray:
    latency: np.ndarray = np.round((serve(chance, starts) - starts) * 1e3, 6)
    return latency


def _covered(shown: int, covers: int, trials: int) -> str:
    return "-" if not shown else f"{covers / shown:.0%} ({shown / trials:.0%})"


TABLES: dict[str, tuple[Callable[[int], Table], int]] = {
    "find": (find, 60),
    "saturation": (saturation, 200),
    "window": (window, 100),
    "intervals": (intervals, 60),
}
"""Name -> table, and its number of trials."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=(*TABLES, []), help="tables to print (default: all)")
    parser.add_argument("--trials", type=int, metavar="N", help="trials behind each figure")
    arguments = parser.parse_args(argv)
    print(f"capacity {CAPACITY_PER_S:g} requests/s, service {SERVICE_S * 1e3:g} ms")
    for name in arguments.tables or TABLES:
        table, usual = TABLES[name]
        trials = arguments.trials or usual
        print(f"\n{name}, {trials} trials: {table.__doc__}")
        print(table_text(table(trials)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
