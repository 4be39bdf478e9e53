"""Prints false alarms and detections of `benchhouse check`, and of a slow leak.

    python tests/perf/gate.py [HISTORIES [TEXT]]

A history is 60 nights of 40 series, judged from night 20 on. All rates come from fixed seeds. With TEXT, it prints only
the rows of the first table whose name contains it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from tests.helpers.gate_replay import OTHERS, PROMISED, found, known, leak, normal, replay, variation_known

HISTORIES = 20
HEAVY = (
    *("Pareto (2.5)", "Pareto (1.5)", "heavy tail (t3), 2 %", "1 session in 10 5 to 30 % slower"),
    "1 week in 5 six times as noisy",
)
"""Noises in which a single night proves little."""
CHANGING = (
    *("normal, 2 %", "AR(.9), 2 %", "1 session in 10 5 to 30 % slower", "1 week in 5 six times as noisy"),
    *("heavy tail (t3), 2 %", "0.3 % slower a night until a reboot", "two levels 4 % apart that return"),
)
"""Noises with change points or without. Of the last two, they are true."""
EARLY = (
    *("normal, 2 %", "1 night in 5 4 % slower", "heavy tail (t3), 2 %", "AR(.9), 2 %", "clock in steps of 3 %"),
    *("1 session in 10 5 to 30 % slower", "log-normal, 1 session in 20 8 % slower"),
)
"""Noises of which the first nights that are judged have a table."""
HEADINGS = ("40 series, no change", "nights with an alarm", "confirmed", "+10 % same night", "+5 % in 3 nights")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; the arguments are the number of histories behind each row, and a part of the rows' names."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    histories = int(arguments[0]) if arguments else HISTORIES
    print("| " + " | ".join(HEADINGS) + " |\n|---|---|---|---|---|")
    part = arguments[1] if len(arguments) > 1 else ""
    for name, noise in {**PROMISED, **OTHERS}.items():
        if part not in name:
            continue
        rates = replay(noise, histories=histories, seed=1)
        ten = found(noise, change=0.10, nights=1, histories=5 * histories, seed=2)
        five = found(noise, change=0.05, nights=3, histories=5 * histories, seed=3)
        print(f"| {name} | {rates.alarms:.1%} | {rates.confirmed:.1%} | {ten:.0%} | {five:.0%} |", flush=True)
    if part:
        return 0
    _early(histories)
    _known()
    _changes(histories)
    _power(histories)
    _leaks(histories)
    return 0


def _early(histories: int) -> None:
    """The alarms where a series has ten to nineteen runs, by the number of series."""
    print("\n| ten to nineteen runs, no change | 1 series | 8 series | 40 series | confirmed |\n|---|---|---|---|---|")
    for name in EARLY:
        case = {"histories": 20 * histories, "seed": 9, "first": 10, "nights": 20}
        rates = [replay({**PROMISED, **OTHERS}[name], series=series, **case) for series in (1, 8, 40)]
        alarms = " | ".join(f"{one.alarms:.1%}" for one in rates)
        print(f"| {name} | {alarms} | {max(one.confirmed for one in rates):.1%} |", flush=True)


def _known() -> None:
    print("\n| 40 series, the noise known exactly | +10 % same night |\n|---|---|")
    for name in ("normal, 2 %", *HEAVY):
        print(f"| {name} | {known(PROMISED[name], change=0.10, seed=7):.0%} |", flush=True)


def _changes(histories: int) -> None:
    """The alarms where each confirmed change of a series begins a level, which takes a hundred times as long."""
    print("\n| 20 series, no change | nights with an alarm | confirmed | with one level |\n|---|---|---|---|")
    for name in CHANGING:
        case = {"histories": max(1, 2 * histories // 5), "series": 20, "seed": 5}
        one, other = (replay({**PROMISED, **OTHERS}[name], **case, with_changes=has) for has in (True, False))
        print(f"| {name} | {one.alarms:.1%} | {one.confirmed:.1%} | {other.alarms:.1%} |", flush=True)


def _power(histories: int) -> None:
    headings = (
        *("series of a check, sd 2 %", "nights before", "+10 % same night", "+5 % in 3 nights", "sd known"),
        "sd known, +10 % in 95 %",
    )
    print("\n| " + " | ".join(headings) + " |\n|---|---|---|---|---|---|")
    for series in (1, 5, 40):
        for at in (20, 40, 60):
            case = {"histories": 10 * histories, "series": series, "at": at}
            ten = found(normal(0.02), change=0.10, nights=1, seed=4, **case)
            five = found(normal(0.02), change=0.05, nights=3, seed=5, **case)
            same, best = variation_known(seed=8, series=series, at=at)
            print(f"| {series} | {at} | {ten:.0%} | {five:.0%} | {same:.0%} | {best:.0%} |", flush=True)
    same, best = variation_known(seed=8, series=40, at=math.inf)
    print(f"| 40 | level known | | | {same:.0%} | {best:.0%} |", flush=True)


def _leaks(histories: int) -> None:
    print("\n| leak of 0.2 % a night, sd | nights before | trend in 30 nights | ever worse | confirmed |")
    print("|---|---|---|---|---|")
    for sd in (0.005, 0.01, 0.015):
        for flat in (0, 20, 40):
            seen = leak(sd=sd, per_night=0.002, flat=flat, nights=30, histories=2 * histories, seed=6)
            print(f"| {sd:.1%} | {flat} | {seen.trend:.0%} | {seen.worse:.0%} | {seen.confirmed:.0%} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
