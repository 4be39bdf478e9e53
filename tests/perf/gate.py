"""Prints false alarms and detections of `benchhouse check`.

    python tests/perf/gate.py [REPLAYS]

Each rate is shown with its standard error, beside the one that is stated for it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from benchmarking.core.tables import Table, table_text
from tests.helpers import noise
from tests.helpers.gate_replay import POWER, STATED, UNSTATED, Rates, replay

REPLAYS = 20_000
HEADINGS = ("segment of 20 runs, then", "flagged", "stated", "confirmed", "stated")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; the only argument is the number of replays behind each row."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    replays = int(arguments[0]) if arguments else REPLAYS
    rows = [
        _row(f"no change, {name}", replay(kind, replays=replays, seed=1), replays, stated)
        for name, (kind, stated) in STATED.items()
    ]
    rows += [
        _row(f"no change, {name}", replay(kind, replays=replays, seed=1), replays, None)
        for name, kind in UNSTATED.items()
    ]
    rows += [
        _row(f"{step:.0%} worse, normal", replay(noise.normal, replays=replays, seed=2, step=step), replays, stated)
        for step, stated in POWER.items()
    ]
    print(table_text(Table(headings=HEADINGS, rows=tuple(rows), numbers=(1, 2, 3, 4))))
    return 0


def _row(name: str, seen: Rates, replays: int, stated: Rates | None) -> tuple[str, ...]:
    shown = ("-", "-") if stated is None else (f"{stated.flagged:.2%}", f"{stated.confirmed:.2%}")
    return (name, _share(seen.flagged, replays), shown[0], _share(seen.confirmed, replays), shown[1])


def _share(share: float, replays: int) -> str:
    return f"{share:.2%} +- {math.sqrt(share * (1 - share) / replays):.2%}"


if __name__ == "__main__":
    sys.exit(main())
