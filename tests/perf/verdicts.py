"""Prints false changes and detected changes, for alternating launches and with a history.

    python tests/perf/verdicts.py [PAIRS]

Each row is a kind of noise; nothing of it is known to the judge. The columns: the share of equal sides that are called
changed, and equivalent; of sides that differ by 3, 5 and 10 %, the share that is found; the rounds that it takes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from benchmarking.core.tables import Table, table_text
from tests.helpers.verdict_replay import (
    HISTORY_CASES,
    MORE_HISTORY_CASES,
    MORE_TURN_CASES,
    TIMED_CASES,
    TURN_CASES,
    UNPROMISED_CASES,
    HistoryCase,
    Rates,
    normal,
    replay_history,
    replay_points,
    replay_sides,
    replay_sittings,
    replay_timed,
    replay_turns,
)

PAIRS = 2000
CHANGES = (0.03, 0.05, 0.10)
LAUNCH_SDS = (0.005, 0.01, 0.02, 0.03)
ROUNDS = (3, 5, 10, 20)
HISTORIES = (5, 10, 20, 40)
SIDES = ((10, 1), (10, 5), (10, 10), (5, 5))
FOUND = tuple(f"+{change:.0%}" for change in CHANGES)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; the only argument is the number of pairs behind each rate."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    pairs = int(arguments[0]) if arguments else PAIRS
    _show("in turns, as benchhouse ab measures", ("rounds", "at +5%"), _in_turns(pairs))
    _show("in turns, so many rounds and one look", (), _power(pairs))
    _show("3 and 5 rounds and one look: 3 v 3 and 5 v 5 launches of one command", (), _few_rounds(pairs))
    _show("sessions with times, 20 others of the series", (), _timed(pairs))
    _show(
        "one session each, 20 others of the series, 5 launches",
        (),
        _with_history({**HISTORY_CASES, **MORE_HISTORY_CASES}, pairs),
    )
    _show("the same where whole sessions are far off: not promised", (), _with_history(UNPROMISED_CASES, pairs))
    print("\nshare of comparisons of 40 equal points that call any of them changed")
    for name, case in {**HISTORY_CASES, **MORE_HISTORY_CASES, **UNPROMISED_CASES}.items():
        print(f"{replay_points(case, points=40, comparisons=max(1, pairs // 10), seed=4):6.1%}  {name}", flush=True)
    _show("sessions and launches of 1 %, by the length of the history", (), _by_history(pairs))
    _show("one session against the other 12 and 30 of its series", (), _against_all(pairs))
    _show("sides of several sessions, no others of the series", (), _of_sides(pairs))
    _show("several sessions of one day against those of another", (), _of_sittings(pairs))
    _show("sessions 25 apart, 30 others of the series", (), _far_apart(pairs))
    return 0


def _show(title: str, more: Sequence[str], rows: Iterator[tuple[str, ...]]) -> None:
    headings = ("noise", "changed", "equivalent", *FOUND, *more)
    print(f"\n{title}")
    print(table_text(Table(headings=headings, rows=tuple(rows), numbers=tuple(range(1, len(headings))))), flush=True)


def _in_turns(pairs: int) -> Iterator[tuple[str, ...]]:
    for name, effects in {**TURN_CASES, **MORE_TURN_CASES}.items():
        equal = replay_turns(effects, pairs=pairs, seed=1)
        found = [replay_turns(effects, pairs=pairs // 4, seed=2, change=change) for change in CHANGES]
        yield (*_row(name, equal, found, pairs), f"{equal.rounds:.1f}", f"{found[1].rounds:.1f}")


def _power(pairs: int) -> Iterator[tuple[str, ...]]:
    for sd in LAUNCH_SDS:
        for rounds in ROUNDS:
            equal = replay_turns(normal(sd), pairs=pairs, seed=3, looks=(rounds,))
            found = [
                replay_turns(normal(sd), pairs=pairs // 4, seed=4, looks=(rounds,), change=change) for change in CHANGES
            ]
            yield _row(f"launch sd {sd:.1%}, {rounds} rounds", equal, found, pairs)


def _with_history(cases: Mapping[str, HistoryCase], pairs: int) -> Iterator[tuple[str, ...]]:
    for name, case in cases.items():
        yield _of_case(name, case, pairs)


def _few_rounds(pairs: int) -> Iterator[tuple[str, ...]]:
    for name in ("two levels, 1 in 4 10 % slower", "sine of 4 launches, 5 %", "launch sd 1 %"):
        for rounds in (3, 5):
            case = {"looks": (rounds,)}
            equal = replay_turns(TURN_CASES[name], pairs=pairs, seed=3, **case)
            found = [replay_turns(TURN_CASES[name], pairs=pairs // 4, seed=4, change=one, **case) for one in CHANGES]
            yield _row(f"{name}, {rounds} rounds", equal, found, pairs)


def _timed(pairs: int) -> Iterator[tuple[str, ...]]:
    for name in TIMED_CASES:
        equal = replay_timed(name, pairs=pairs, seed=5)
        found = [replay_timed(name, pairs=pairs // 4, seed=6, change=change) for change in CHANGES]
        yield _row(name, equal, found, pairs)


def _by_history(pairs: int) -> Iterator[tuple[str, ...]]:
    for sessions in HISTORIES:
        yield _of_case(f"{sessions} others", HISTORY_CASES["sessions 1 %"], pairs, history=sessions)


def _against_all(pairs: int) -> Iterator[tuple[str, ...]]:
    cases = {**HISTORY_CASES, **UNPROMISED_CASES}
    for sessions in (12, 30):
        for name in ("sessions 1 %", "sessions 2 %", *UNPROMISED_CASES):
            case = {"history": sessions - 1, "is_of_side": True}
            equal = replay_history(cases[name], pairs=pairs, seed=5, **case)
            found = [replay_history(cases[name], pairs=pairs // 4, seed=6, change=change, **case) for change in CHANGES]
            yield _row(f"{name}, {sessions} others", equal, found, pairs)


def _of_sides(pairs: int) -> Iterator[tuple[str, ...]]:
    for name, case in {**HISTORY_CASES, **MORE_HISTORY_CASES, **UNPROMISED_CASES}.items():
        for before, after in SIDES:
            sides = {"before": before, "after": after}
            equal = replay_sides(case, pairs=pairs, seed=5, **sides)
            found = [replay_sides(case, pairs=pairs // 4, seed=6, change=change, **sides) for change in CHANGES]
            yield _row(f"{name}, {before} against {after}", equal, found, pairs)


def _of_sittings(pairs: int) -> Iterator[tuple[str, ...]]:
    for days, sessions in ((2, 10), (6, 5), (10, 5), (22, 5)):
        for day_sd, session_sd in ((0.02, 0.002), (0.01, 0.01)):
            case = {"day_sd": day_sd, "session_sd": session_sd}
            equal = replay_sittings(days, sessions, pairs=pairs, seed=5, **case)
            found = [
                replay_sittings(days, sessions, pairs=pairs // 4, seed=6, change=change, **case) for change in CHANGES
            ]
            name = f"days {day_sd:.1%}, their sessions {session_sd:.1%}"
            yield _row(f"{name}: {days} days of {sessions} sessions", equal, found, pairs)


def _far_apart(pairs: int) -> Iterator[tuple[str, ...]]:
    for name in ("sessions 1 %", "walk of 0.5 % a session"):
        yield _of_case(name, HISTORY_CASES[name], pairs, history=30, apart=25)


def _of_case(name: str, case: HistoryCase, pairs: int, history: int = 20, apart: int = 1) -> tuple[str, ...]:
    equal = replay_history(case, pairs=pairs, seed=5, history=history, apart=apart)
    found = [
        replay_history(case, pairs=pairs // 4, seed=6, change=change, history=history, apart=apart)
        for change in CHANGES
    ]
    return _row(name, equal, found, pairs)


def _row(name: str, equal: Rates, found: Sequence[Rates], pairs: int) -> tuple[str, ...]:
    error = math.sqrt(equal.changed * (1 - equal.changed) / pairs)
    shares = (f"{one.changed:.0%}" for one in found)
    return (name, f"{equal.changed:.2%} +- {error:.2%}", f"{equal.equivalent:.0%}", *shares)


if __name__ == "__main__":
    sys.exit(main())
