"""One launch at a time of a run that is measured in turns with another: each turn is a process of its own.

So each side may have an interpreter, an environment and a version of this program of its own; what a side has so far
is in its folder, as with any unfinished run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarking.errors import EXIT_FAILED, EXIT_OK
from benchmarking.sweep import spool
from benchmarking.sweep.finishing import Finished, finish
from benchmarking.sweep.plan import CellPlan
from benchmarking.sweep.progress import Progress, Silence
from benchmarking.sweep.supervisor import Observer, sweep_one_launch
from benchmarking.sweep.track import Track

TURN = "--turn"
"""The flag of a turn, with the folder behind it."""


def as_typed(argv: Sequence[str]) -> tuple[str, ...]:
    """The arguments without the turn's own, whose folder is gone when somebody repeats the command."""
    places = {place for place, word in enumerate(argv) if word == TURN}
    dropped = places | {place + 1 for place in places}
    return tuple(word for place, word in enumerate(argv) if place not in dropped and not word.startswith(f"{TURN}="))


def take_turn(folder: Path, plans: Callable[[], Sequence[CellPlan]], *, quiet: bool) -> int:
    """Measure the next launch of the runs in the folder, whose plans are made where nothing is in it yet.

    Runs without a launch left are finished: their files are then in the folder. Returns the exit code; what is over
    already is fine. Raises UsageError for plans that cannot be, StorageError when nothing can be kept.
    """
    spool.prepare(folder)
    has_begun = any(folder.glob("*.json*"))
    unfinished = [Track.resume(file) for file in spool.unfinished(folder)]
    tracks = unfinished if has_begun else [Track.start(folder, plan) for plan in plans()]
    observer: Observer = Silence() if quiet else Progress(tracks)
    finished: list[Finished] = []
    try:
        sweep_one_launch(tracks, observer, lambda track: finished.append(finish(track)))
    finally:
        if isinstance(observer, Progress):
            observer.close()
    return EXIT_FAILED if any(one.has_failures for one in finished) else EXIT_OK
