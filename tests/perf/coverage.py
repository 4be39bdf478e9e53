"""Prints the coverage of the median intervals by kind of noise and profile.

    python tests/perf/coverage.py [RESULTS]

Of one launch: how often its own level lies inside ("this process only"), and the level of all launches, which such an
interval does not promise. Of several launches: the level of all launches (their median). "marked": results that a
doubt makes noisy. A machine that heats up has the level of the end, in which its calls settle.

The second table: how often the interval of the next launch covers it, by the noise of launches.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

if __package__ in (None, ""):
    sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from benchmarking.core.tables import Table, table_text
from benchmarking.core.verdicts.launches import next_launch, two_levels
from benchmarking.measure.context import PROFILES, Settings
from tests.helpers.measurement_replay import MACHINES, Coverage, Machine, coverage

RESULTS = 300
CASES = (("quick", 1), ("quick", 5), ("standard", 3), ("standard", 5))
LAUNCHES = (5, 10, 20)
LAUNCH_NOISES: Mapping[str, Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]] = {
    "normal, 2 %": lambda rng, shape: 0.02 * rng.standard_normal(shape),
    "heavy tail (t3)": lambda rng, shape: 0.02 * rng.standard_t(3, shape),
    "skewed (exponential)": lambda rng, shape: 0.02 * rng.exponential(1, shape),
    "even": lambda rng, shape: 0.02 * rng.random(shape),
    "two levels 4 % apart, 30 %": lambda rng, shape: (
        0.04 * (rng.random(shape) < 0.3) + 0.005 * rng.standard_normal(shape)
    ),
    "two levels 10 % apart, 25 %": lambda rng, shape: (
        0.10 * (rng.random(shape) < 0.25) + 0.01 * rng.standard_normal(shape)
    ),
    "1 in 10 20 % slower": lambda rng, shape: 0.20 * (rng.random(shape) < 0.1) + 0.01 * rng.standard_normal(shape),
}
HEADINGS = ("noise", "profile", "launches", "samples", "own level", "all launches", "half-width", "marked", "stops")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; the only argument is the number of results behind each row."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    results = int(arguments[0]) if arguments else RESULTS
    rows = []
    for name, machine in MACHINES.items():
        for profile, launches in CASES:
            settings = replace(PROFILES[profile], launches=launches)
            rows.append(_row(name, machine, settings, results))
    print(table_text(Table(headings=HEADINGS, rows=tuple(rows), numbers=(2, 3, 4, 5, 6, 7))))
    print()
    print(next_launches(10 * results))
    return 0


def next_launches(results: int) -> str:
    """How often the interval of the next launch covers it, and how often two levels are named."""
    rows = []
    for name, noise in LAUNCH_NOISES.items():
        cells = []
        for launches in LAUNCHES:
            values = np.exp(noise(np.random.default_rng([1, launches]), (results, launches + 1)))
            ends = [next_launch(row[:-1].tolist()) or (0.0, math.inf) for row in values]
            covered = sum(low <= row[-1] <= high for (low, high), row in zip(ends, values, strict=True))
            named = sum(two_levels(row[:-1].tolist()) is not None for row in values)
            cells.append(f"{covered / results:.1%} ({named / results:.0%})")
        rows.append((name, *cells))
    headings = ("noise of launches", *(f"{launches} launches" for launches in LAUNCHES))
    return table_text(Table(headings=headings, rows=tuple(rows), numbers=(1, 2, 3)))


def _row(name: str, machine: Machine, settings: Settings, results: int) -> tuple[str, ...]:
    seen: Coverage = coverage(machine, settings, results=results, seed=1)
    own = "" if settings.launches > 1 else _share(seen.own, results)
    return (
        *(name, settings.profile, str(settings.launches), str(seen.samples), own, _share(seen.all_launches, results)),
        f"{seen.half_width:.1%}",
        f"{seen.marked:.0%}",
        _stops(seen.stops),
    )


def _share(share: float, results: int) -> str:
    return f"{share:.2f} +- {math.sqrt(share * (1 - share) / results):.2f}"


def _stops(stops: Counter[str]) -> str:
    return ", ".join(f"{reason} {count / stops.total():.0%}" for reason, count in stops.most_common())


if __name__ == "__main__":
    sys.exit(main())
