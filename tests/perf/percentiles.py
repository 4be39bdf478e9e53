"""Prints the error of 90th percentiles of few calls, pooled over launches, and how often limits on percentiles are met.

    python tests/perf/percentiles.py [RESULTS]

The error of the pooled percentile is against that of the calls of all launches there could be; "interval" is how often
the median's interval, as of a time to the first token, covers the level of all launches.

The second table is of limits as `benchhouse recommend` and `tune` compare them with a result: a median by the upper end
of its interval, a percentile as too low by the same factor. It shows how often one is met of which the calls of all
launches, or for the median the typical launch, are 5 % above the limit, 5 % below and 10 % below.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from benchmarking.core.sample_statistics import PERCENTILES, describe, over_launches
from benchmarking.core.tables import Table, table_text

RESULTS = 400
POPULATION = 200_000
"""Launches with one call each, whose percentile is the true one."""
NOISE: dict[str, Callable[[Any, int], Any]] = {
    "normal, 5 %": lambda rng, n: 1 + 0.05 * rng.standard_normal(n),
    "skewed, 3 %": lambda rng, n: 1 + 0.03 * rng.gamma(1.0, 1.0, n),
    "one call in ten 30 % slower": lambda rng, n: (
        (1 + 0.3 * (rng.random(n) < 0.1)) * (1 + 0.02 * rng.standard_normal(n))
    ),
}
CASES = ((3, 10, 0.01), (5, 10, 0.02), (3, 20, 0.03))
"""Launches, calls of each, standard deviation of the launches' levels."""
LIMITED: dict[str, tuple[Callable[[Any, int], Any], Callable[[Any, int], Any]]] = {
    "normal, 5 %; launches 2 %": (NOISE["normal, 5 %"], lambda rng, n: _levels(rng, n, 0.02)),
    "normal, 5 %; 1 launch in 4 10 % slower": (NOISE["normal, 5 %"], lambda rng, n: 1 + 0.1 * (rng.random(n) < 0.25)),
    "heavy tail (t2), scale 5 %; launches 2 %": (
        lambda rng, n: 1 + 0.05 * abs(rng.standard_t(2, n)),
        lambda rng, n: _levels(rng, n, 0.02),
    ),
    "1 call in 20 50 % slower; launches 2 %": (
        lambda rng, n: (1 + 0.5 * (rng.random(n) < 0.05)) * (1 + 0.02 * rng.standard_normal(n)),
        lambda rng, n: _levels(rng, n, 0.02),
    ),
}
"""Times of calls, and the levels of launches."""
LIMITS = (("median", 8, 40), ("p95", 3, 20), ("p95", 8, 40), ("p99", 8, 40), ("p99", 3, 300))
"""What is limited, launches, and calls of each."""
TRUTHS = (1.05, 0.95, 0.90)
"""The true value over the limit."""
HEADINGS = ("calls", "launches", "calls each", "launch sd", "p90 mean error", "p90 sd", "interval")


def main() -> int:
    """Print the table; the only argument is the number of results behind each row."""
    results = int(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    rows = [_row(name, *case, results) for name in NOISE for case in CASES]
    print(table_text(Table(headings=HEADINGS, rows=tuple(rows), numbers=(1, 2, 3, 4, 5, 6))))
    limited = [_limited(name, *case, results) for name in LIMITED for case in LIMITS]
    headings = ("calls; launches", "limit on", "launches", "calls each", *(f"met at {one - 1:+.0%}" for one in TRUTHS))
    print(table_text(Table(headings=headings, rows=tuple(limited), numbers=(2, 3, 4, 5, 6))))
    return 0


def _limited(name: str, what: str, launches: int, calls: int, results: int) -> tuple[str, ...]:
    import numpy as np

    rng = np.random.default_rng(2)
    noise, levels = LIMITED[name]
    if what == "median":
        true = float(np.median(noise(rng, POPULATION))) * float(np.median(levels(rng, POPULATION)))
    else:
        true = float(np.quantile(noise(rng, POPULATION) * levels(rng, POPULATION), PERCENTILES[what]))
    compared = []
    for _ in range(results):
        samples = [(level * noise(rng, calls)).tolist() for level in levels(rng, launches)]
        found = over_launches(samples, [describe(values) for values in samples])
        compared.append(found.values[what] * found.values["ci_high"] / found.values["median"] / true)
    shares = (f"{np.mean(np.array(compared) * truth <= 1):.0%}" for truth in TRUTHS)
    return name, what, str(launches), str(calls), *shares


def _row(name: str, launches: int, calls: int, launch_sd: float, results: int) -> tuple[str, ...]:
    import numpy as np

    rng = np.random.default_rng(1)
    noise = NOISE[name]
    level = float(np.median(noise(rng, POPULATION)))
    true = float(np.quantile(noise(rng, POPULATION) * _levels(rng, POPULATION, launch_sd), PERCENTILES["p90"]))
    errors, covered = [], 0
    for _ in range(results):
        samples = [(one * noise(rng, calls)).tolist() for one in _levels(rng, launches, launch_sd)]
        found = over_launches(samples, [describe(values) for values in samples])
        errors.append(found.values["p90"] / true - 1)
        covered += found.values["ci_low"] <= level <= found.values["ci_high"]
    share = covered / results
    return (
        *(name, str(launches), str(calls), f"{launch_sd:.0%}", f"{np.mean(errors):+.1%}", f"{np.std(errors):.1%}"),
        f"{share:.2f} +- {math.sqrt(share * (1 - share) / results):.2f}",
    )


def _levels(rng: Any, count: int, launch_sd: float) -> Any:
    """The level of each of so many launches."""
    import numpy as np

    return np.exp(launch_sd * rng.standard_normal(count))


if __name__ == "__main__":
    sys.exit(main())
