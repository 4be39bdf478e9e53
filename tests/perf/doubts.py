"""Prints false alarms and detections of each doubt about samples.

    python tests/perf/doubts.py [REPLAYS]

A healthy machine has a little memory from call to call, one call in 200 interrupted, and launches that differ by 0.5 %.
One with two speeds has steady calls of which some are a little slower. A coarse clock reads calls of any kind in steps.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):
    sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from benchmarking.core.tables import Table, table_text
from benchmarking.measure.context import PROFILES, ProfileName, Settings
from tests.helpers.measurement_replay import (
    DISTURBANCES,
    TWO_SPEEDS,
    count_doubts,
    count_marks,
    count_marks_of_passes,
    healthy,
    independent,
    of_heating,
    read_by,
)

if TYPE_CHECKING:
    from tests.helpers.measurement_replay import Calls

REPLAYS = 1000
SPREADS = (0.005, 0.01, 0.02, 0.03, 0.05)
COUNTS = (10, 20, 30, 60, 120, 240, 480, 900)
RESULT_COUNTS = (10, 30, 120)
LAUNCHES = (1, 3, 5)
CLOCKS = (
    (0.005, 1.2, 0.002),
    (0.1, 1.37, 0.02),
    (0.1, 5.0, 0.005),
    (0.1, 12.0, 0.005),
    (1.0, 52.0, 0.005),
    (1.0, 105.0, 0.005),
    (1.0, 150.0, 0.01),
)
"""Step and call in ms, and how much the calls vary."""
CLOCK_COUNTS = (3, 5, 10, 30, 120)
CALLS_MS = (50.0, 300.0, 1200.0, 3500.0)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; the only argument is the number of launches (a third of it: results) behind each row."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    replays = int(arguments[0]) if arguments else REPLAYS
    results = max(replays // 3, 1)
    print("healthy machine: share of launches with a doubt")
    _show(
        ("cv", "samples", "doubts"),
        [
            (f"{cv:.1%}", str(n), _shares(count_doubts(healthy(cv), n, replays=replays, seed=1), replays))
            for cv in SPREADS
            for n in COUNTS
        ],
    )
    print("\nclocks with steps: share of launches with a doubt")
    _show(
        ("step", "call", "cv", "samples", "doubts"),
        [
            (f"{step:g} ms", f"{call:g} ms", f"{cv:.1%}", str(n), _of(read_by(independent(cv), step, call), n, results))
            for step, call, cv in CLOCKS
            for n in CLOCK_COUNTS
        ],
    )
    print("\ntwo speeds: share of launches with a doubt")
    _show(
        ("calls", "samples", "doubts"),
        [(name, str(n), _of(calls, n, results)) for name, calls in TWO_SPEEDS.items() for n in (60, 200, 900)],
    )
    print("\nhealthy machine: share of results that are not valid, and their doubts")
    _show(
        ("cv", "samples", "launches", "doubts"),
        [
            (f"{cv:.1%}", str(n), str(k), _shares(count_marks(healthy(cv), n, k, replays=results, seed=2), results))
            for cv in (SPREADS[0], SPREADS[-1])
            for n in RESULT_COUNTS
            for k in LAUNCHES
        ],
    )
    print("\nhealthy machine, cv 2 %: share of results that are not valid, by profile and length of the call")
    _show(
        ("profile", "call", "doubts"),
        [
            (profile, f"{call_ms:g} ms", _shares(_of_profile(PROFILES[profile], call_ms, results // 3), results // 3))
            for profile in PROFILES
            for call_ms in CALLS_MS
        ],
    )
    print(
        "\nan accelerator that heats up: time measured, distance from the settled level, share of passes with a doubt"
    )
    _show(
        ("calls", "in the end", "profile", "measured", "off", "doubts"),
        [
            _of_heating(cv, rise, time_s, profile, results // 5)
            for rise, time_s in ((0.0, 1.0), (0.08, 15.0), (0.08, 40.0))
            for cv in (0.001, 0.01)
            for profile in PROFILES
        ],
    )
    print("\ndisturbances: share of launches with a doubt")
    _show(
        ("disturbance", "samples", "doubts"),
        [
            (name, str(n), _of(calls, n, results))
            for name, (calls, _) in DISTURBANCES.items()
            for n in (30, 120, 240, 900)
        ],
    )
    return 0


def _of_heating(cv: float, rise: float, time_s: float, profile: ProfileName, replays: int) -> tuple[str, ...]:
    found = of_heating(cv, rise, time_s, PROFILES[profile], replays=replays, seed=6)
    end = f"+{rise:.0%} (time constant {time_s:g} s)" if rise else "+0%"
    return f"{cv:.1%}", end, profile, f"{found.measured_s:.1f} s", f"{found.off:+.1%}", _shares(found.doubts, replays)


def _of(calls: Calls, count: int, replays: int) -> str:
    return _shares(count_doubts(calls, count, replays=replays, seed=3), replays)


def _of_profile(settings: Settings, call_ms: float, results: int) -> Counter[str]:
    return count_marks_of_passes(healthy(0.02), settings, call_ms, replays=results, seed=4)


def _show(headings: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    print(table_text(Table(headings=tuple(headings), rows=tuple(rows))), flush=True)


def _shares(counted: Counter[str], of: int) -> str:
    return ", ".join(f"{kind} {count / of:.1%}" for kind, count in counted.most_common() if count) or "none"


if __name__ == "__main__":
    sys.exit(main())
