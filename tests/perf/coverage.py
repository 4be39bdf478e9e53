"""Prints the coverage of the median intervals by kind of noise and profile.

    python tests/perf/coverage.py [RESULTS]

Of one launch: how often its own level lies inside ("this process only"), and the level of all launches, which such an
interval does not promise. Of several launches: the level of all launches (their median). "marked": results that a
doubt makes noisy. A machine that heats up has the level of the end, in which its calls settle.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from benchmarking.core.tables import Table, table_text
from benchmarking.measure.settings import PROFILES, Settings
from tests.helpers.measurement_replay import MACHINES, Coverage, Machine, coverage

RESULTS = 300
CASES = (("quick", 1), ("quick", 5), ("standard", 3), ("standard", 5))
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
    return 0


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
