"""The same results in a folder of run files, for comparison of times, and the queries for every such peer.

Four questions, answered the way the peer's interface has them answered: the newest result of every point and place of a
model; the results of one series since a date, oldest first; which series regressed since, by a rule of thumb, since a
peer knows no better one; and one run against another, point by point, its launches and the series' own unrest at hand.
An answer is the number of results, of series or of points in it.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev
from typing import Any

from scipy.stats import ttest_ind

from benchmarking.core.records import Run, dumps

CELL = ("model_id", "hardware_id", "runtime")
POINT = ("batch_size", "sequence_length")
METRIC = "latency_median_ms"
SPREADS = 2
"""So many spreads of a series' history is a difference worth a word."""

Place = tuple[str, ...]
Questions = dict[str, Callable[[], int]]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the questions are about."""

    cell: Mapping[str, str]
    """CELL, with values."""
    point: Mapping[str, str]
    """POINT, with values; one series with the cell."""
    since: str
    """A date."""
    before: str
    """Id of a run of the cell."""
    after: str


def regressed(results: Iterable[tuple[Place, str, float]]) -> int:
    """How many series' last result is 5 % above their median; from place, time and value of each result."""
    series: dict[Place, list[tuple[str, float]]] = defaultdict(list)
    for place, time, value in results:
        series[place].append((time, value))
    return sum(max(own)[1] > 1.05 * median(value for _, value in own) for own in series.values())


def judged(
    history: Mapping[Place, Sequence[float]],
    before: Mapping[Place, Sequence[float]],
    after: Mapping[Place, Sequence[float]],
) -> int:
    """The number of judged points: medians of launches of both runs by a t test, and the spread of the history."""
    verdicts = {}
    for place in before.keys() & after.keys():
        sides = [[math.log(value) for value in side[place]] for side in (before, after)]
        change = median(sides[1]) - median(sides[0])
        is_sure = ttest_ind(*sides, equal_var=False).pvalue <= 0.01
        verdicts[place] = is_sure and abs(change) > SPREADS * stdev(map(math.log, history[place]))
    return len(verdicts)


def folder_peer(folder: Path, runs: Iterable[Run], wanted: Wanted) -> Questions:
    """Writes the runs as files; a query reads them all."""
    files = folder / "peer_files"
    files.mkdir()
    for run in runs:
        (files / f"{run.run_id}.json").write_text(dumps(run), encoding="utf-8")
    model_id = wanted.cell["model_id"]

    def results(model_id: str | None = None) -> Iterator[tuple[str, str, Place, Any]]:
        for path in files.iterdir():
            run = json.loads(path.read_text(encoding="utf-8"))
            cell = (run["cell"]["workload"]["model_id"], run["hardware"]["hardware_id"], run["cell"]["runtime"])
            for result in run["results"] if model_id in (None, cell[0]) else ():
                point = (str(result["point"][name]) for name in POINT)
                yield run["run_id"], run["started_at"], (*cell, *point), result

    def newest() -> int:
        found: dict[Place, tuple[str, Any]] = {}
        for _, started_at, place, result in results(model_id):
            found[place] = max(found.get(place, ("", None)), (started_at, result), key=lambda one: one[0])
        return len(found)

    def series() -> int:
        own = (*wanted.cell.values(), *wanted.point.values())
        times = (started_at for _, started_at, place, _ in results(model_id) if place == own)
        return len(sorted(started_at for started_at in times if started_at >= wanted.since))

    def worse() -> int:
        return regressed(
            (place, started_at, result["metrics"][METRIC])
            for _, started_at, place, result in results()
            if started_at >= wanted.since
        )

    def compared() -> int:
        history: dict[Place, list[float]] = defaultdict(list)
        sides: dict[str, dict[Place, list[float]]] = {wanted.before: {}, wanted.after: {}}
        for run_id, _, place, result in results(model_id):
            history[place].append(result["metrics"][METRIC])
            if run_id in sides:
                sides[run_id][place] = [median(one["values"]) for one in result["samples"]]
        return judged(history, sides[wanted.before], sides[wanted.after])

    return {"newest": newest, "series": series, "regressed": worse, "compared": compared}
