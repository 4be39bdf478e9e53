"""The sessions of a series and the variation between them: the error term of sides that are not interleaved.

The newest sessions of a series are used. To keep years of history from slowing down a comparison, the newest sessions
of a cell (model, hardware, runtime and precision) are read first, and older ones only for series that those did not
measure.

A session's value is x(t) = level + e(t) + walk(t): e has the variance s^2, which includes that of the launches, and the
random walk adds a step of variance w^2 from each session to the next, since machines drift. For m consecutive sessions,
the m - 1 differences have a tridiagonal Toeplitz covariance matrix, whose eigenvectors are sines: with u the sine
transform of the differences, u(j) is normal with the variance w^2 + 4 s^2 sin^2(pi j / 2 m). s^2 and w^2 / s^2 are
maximum likelihood estimates, except that the ratio is the largest one whose log-likelihood is at most 1 below the
maximum. This allows for a walk that a short history cannot exclude, which matters for sessions far apart.

The history is cut where its level changed (`history.detector`), since a change is not noise. Otherwise at most one
difference in ten is clipped, to 4 robust standard deviations: a disturbed session, or the change under test. More
outliers are a property of the series; clipping them would report a change for a third of all equal sides.

If the newest sessions vary far more than the others, they alone count: a burst of noise is not over yet. If the
variation of the newest level grows over its sessions, it is taken to go on as it does.

The degrees of freedom, found by simulation (`tests/perf/verdicts.py`), are fewer than the differences, since two values
are estimated and noise is not normal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import pairwise
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarking.core.metrics import Metric
from benchmarking.core.verdicts.judging import MIN_SESSIONS, SD_OF_MEDIAN_ABSOLUTE, SessionScatter
from db.analysis.compare.matching import Measured
from db.analysis.history.detector import change_indices
from db.analysis.selection import judged_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    from db.warehouse import Warehouse

MAX_SESSIONS = 40
"""Machine and program change too much over more sessions."""
CELL = ("model_id", "hardware_id", "runtime", "precision")
SERIES_MEMBERS = """
SELECT s.series_id AS own_id, coalesce(alias.canonical_series_id, s.series_id) AS series_id
FROM series s LEFT JOIN series_alias alias ON alias.series_id = s.series_id
WHERE coalesce(alias.canonical_series_id, s.series_id) IN (SELECT unnest($series))
"""
SERIES_RUNS = f"""
SELECT run_id, session_id, started_at, coalesce(git_commit_time, started_at) AS time, {", ".join(CELL)}
FROM benchmark_runs
WHERE ({", ".join(CELL)}) IN (
        SELECT ({", ".join(CELL)}) FROM series WHERE series_id IN (SELECT unnest($members))
    )
    AND time <= $until AND run_id NOT IN (SELECT unnest($compared))
"""
SESSION_VALUES = """
SELECT series_id AS own_id, run_id, result_id, {value} AS value
FROM {source}
WHERE run_id IN (SELECT unnest($runs)) AND series_id IN (SELECT unnest($members)) AND status = 'ok' AND {value} > 0
    AND validity IS DISTINCT FROM 'invalid'
"""
"""Reads few columns, and only one table if it has the metric, since there are many results."""
WITH_LOADS = "benchmark_results JOIN (SELECT run_id, load_time_s FROM benchmark_runs) USING (run_id)"
RunRow = Mapping[str, Any]
SessionResults = dict[str, list["_Result"]]
"""session_id -> its results of one series."""


@dataclass(frozen=True, slots=True)
class _Result:
    result_id: str
    time: datetime
    started_at: datetime
    value: float


@dataclass(frozen=True, slots=True)
class SessionValue:
    """What a session measured for a series."""

    time: datetime
    """Position of its newest run in the history."""
    session_id: str
    value: float
    """In the metric's unit; the geometric mean if it measured the point several times."""
    started_at: datetime
    result_id: str
    """The newest of its results."""


SeriesSessions = tuple[SessionValue, ...]
"""Oldest first."""


def read_series_sessions(
    warehouse: Warehouse, results: Sequence[Measured], metric: Metric
) -> dict[str, SeriesSessions]:
    """series_id -> its newest sessions, oldest first, without the results' own runs."""
    if not results:
        return {}
    members = warehouse.query(SERIES_MEMBERS, {"series": sorted({result.series_id for result in results})}).dicts()
    canonical = {row["own_id"]: row["series_id"] for row in members}
    parameters = {
        "members": list(canonical),
        "compared": sorted({result.run_id for result in results}),
        "until": max(result.history_time for result in results),
    }
    # The runs of each cell's newest sessions, and the rest. A session is as old as its newest run.
    cells: dict[tuple[str, ...], dict[str, list[RunRow]]] = {}
    for run in warehouse.query(SERIES_RUNS, parameters).dicts():
        sessions = cells.setdefault(tuple(run[name] for name in CELL), {})
        sessions.setdefault(run["session_id"], []).append(run)
    newest, older = [], []
    for sessions in cells.values():
        in_order = sorted(
            sessions.values(), key=lambda session_runs: max((run["time"], run["run_id"]) for run in session_runs)
        )
        newest += [run for session_runs in in_order[-MAX_SESSIONS:] for run in session_runs]
        older += [run for session_runs in in_order[:-MAX_SESSIONS] for run in session_runs]
    by_series: dict[str, SessionResults] = {}
    _add_values(by_series, warehouse, newest, canonical, metric)
    incomplete = {
        member: series for member, series in canonical.items() if len(by_series.get(series, ())) < MAX_SESSIONS
    }
    _add_values(by_series, warehouse, older, incomplete, metric)
    found: dict[str, SeriesSessions] = {}
    for series_id, of_series in by_series.items():
        values = [
            SessionValue(
                last.time,
                session_id,
                session_mean([result.value for result in own]),
                last.started_at,
                last.result_id,
            )
            for session_id, own in of_series.items()
            for last in [max(own, key=lambda one: (one.time, one.result_id))]
        ]
        # A session that is stored twice, with the same start and value, counts once.
        once = {(value.started_at, value.value): value for value in values}
        found[series_id] = tuple(sorted(once.values(), key=lambda one: (one.time, one.session_id))[-MAX_SESSIONS:])
    return found


def _add_values(
    by_series: dict[str, SessionResults],
    warehouse: Warehouse,
    runs: Sequence[RunRow],
    canonical: Mapping[str, str],
    metric: Metric,
) -> None:
    """Add the values of those series in the runs."""
    if not runs or not canonical:
        return
    runs_by_id = {run["run_id"]: run for run in runs}
    source = WITH_LOADS if metric.source == "load_time" else "benchmark_results"
    sql = SESSION_VALUES.format(value=judged_value(metric), source=source)
    parameters = {"runs": list(runs_by_id), "members": list(canonical)}
    for row in warehouse.query(sql, parameters).dicts():
        run = runs_by_id[row["run_id"]]
        sessions = by_series.setdefault(canonical[row["own_id"]], {})
        result = _Result(row["result_id"], run["time"], run["started_at"], row["value"])
        sessions.setdefault(run["session_id"], []).append(result)


def session_mean(values: Sequence[float]) -> float:
    """The geometric mean; 0 without values. Most sessions measure a point once, which needs no mean."""
    if not values:
        return 0.0
    return values[0] if len(values) == 1 else geometric_mean(values)


RATIOS = (0.0, *np.geomspace(0.002, 10.0, 40).tolist())
"""Ratios of w^2 to s^2 to try."""
LIKELIHOOD_DROP = 1.0
DEGREES_A_DIFFERENCE = 0.65
DEGREES_LESS = 0.5
RECENT, TIMES_LATELY = 7, 4.0
"""Newest differences, and the ratio of their variance to that of the earlier ones from which they alone count: a burst
of noise."""
LEAST_TO_GROW, GROWS_ERRORS = 16, 0.5
"""Sessions of a level that show whether its variation grows: if their deviations, by size, follow the time by so many
standard errors. That is little: a quarter of the levels with a steady variation pass, and their variance is then
multiplied by 1.8 (16 sessions) to 1.5 (40) on average, which costs little power (docs/judging.md)."""
CLIP_SD = 4.0
MAX_CLIPPED = 0.1


def session_scatter(
    histories: Sequence[Sequence[float]],
    times: Sequence[datetime] = (),
    launch_variances: Sequence[float] = (),
) -> SessionScatter | None:
    """The variation between sessions, from histories of consecutive sessions, oldest first, with positive values.

    `times` are the starts of the sessions of the first history, and `launch_variances` the variances of the logarithms
    of the launches of some of them. None if the histories have fewer than 4 differences between neighbours in total.
    """
    positive = [[value for value in history if value > 0] for history in histories]
    levels = [[np.log(np.asarray(part)) for part in _levels(history)] for history in positive]
    stretches = [part for parts in levels for part in parts]
    differences = [np.diff(part) for part in stretches if len(part) > 1]
    count = sum(map(len, differences))
    if count < MIN_SESSIONS - 1:
        return None
    ratio, variance = _fit(_clipped(differences))
    variance *= _growth(levels[0][-1])
    degrees = DEGREES_A_DIFFERENCE * count - DEGREES_LESS
    squares = np.diff(levels[0][-1]) ** 2
    lately, earlier = squares[-RECENT:], squares[:-RECENT]
    if len(earlier) >= RECENT and lately.mean() > TIMES_LATELY * earlier.mean():
        variance = max(variance, float(lately.mean()) / 2)
        degrees = DEGREES_A_DIFFERENCE * RECENT - DEGREES_LESS
    offs = [float(off) for part in levels[0] if len(part) for off in part - part.mean()]
    return SessionScatter(
        variance=variance,
        walk=ratio * variance,
        degrees=degrees,
        sessions=count + len(differences),
        stretches=tuple(tuple(map(float, part)) for part in stretches),
        times=tuple(zip(times, offs, strict=True)) if len(times) == len(offs) else (),
        launch_variance=float(np.median(launch_variances)) if len(launch_variances) else None,
    )


def _growth(level: Floats) -> float:
    """The variance of the sessions after a level, over the mean one of its own; 1 unless the variation grows."""
    count = len(level)
    if count < LEAST_TO_GROW:
        return 1.0
    since = np.arange(count) - (count - 1) / 2
    sizes = np.abs(level - np.median(level))
    ranks = np.sign(sizes[:, None] - sizes).sum(axis=1)  # equal sizes share their rank
    squares = np.diff(level) ** 2
    if ranks @ since <= GROWS_ERRORS * math.sqrt((ranks @ ranks) * (since @ since) / (count - 1)) or not squares.any():
        return 1.0
    slope, start = np.polyfit(np.arange(count - 1), squares, 1)
    return max(1.0, float((start + slope * count) / squares.mean()))


def _levels(history: Sequence[float]) -> list[Sequence[float]]:
    """The history, cut where its level changed. The detector runs only if there is a large step."""
    if len(history) < MIN_SESSIONS:
        return [history]
    steps = np.abs(np.diff(np.log(np.asarray(history))))
    if steps.max() <= CLIP_SD * SD_OF_MEDIAN_ABSOLUTE * float(np.median(steps)):
        return [history]
    cuts = [0, *change_indices(history), len(history)]
    return [history[start:end] for start, end in pairwise(cuts)]


def _clipped(differences: Sequence[Floats]) -> list[Floats]:
    """The differences, with a few outliers clipped."""
    sizes = np.abs(np.concatenate(differences))
    limit = CLIP_SD * SD_OF_MEDIAN_ABSOLUTE * float(np.median(sizes))
    outliers = int((sizes > limit).sum())
    if outliers > max(1.0, MAX_CLIPPED * len(sizes)) or limit == 0:
        return list(differences)
    return [np.clip(difference, -limit, limit) for difference in differences]


def _fit(differences: Sequence[Floats]) -> tuple[float, float]:
    """w^2 / s^2 and s^2."""
    squares = np.concatenate([(difference @ _sines(len(difference))) ** 2 for difference in differences])
    waves = np.concatenate([_waves(len(difference)) for difference in differences])
    if not squares.any():
        return 0.0, 0.0
    scales = np.asarray(RATIOS)[:, None] + waves
    variances = (squares / scales).mean(axis=1)
    likelihoods = -0.5 * (len(squares) * np.log(variances) + np.log(scales).sum(axis=1))
    index = int(np.flatnonzero(likelihoods >= likelihoods.max() - LIKELIHOOD_DROP)[-1])
    return RATIOS[index], float(variances[index])


@cache
def _sines(count: int) -> Floats:
    """The eigenvectors, as columns, of the covariance of `count` differences."""
    index = np.arange(1, count + 1)
    vectors: Floats = math.sqrt(2 / (count + 1)) * np.sin(np.pi * np.outer(index, index) / (count + 1))
    return vectors


@cache
def _waves(count: int) -> Floats:
    """4 sin^2(pi j / 2 m): the eigenvalues of the differences of independent values of variance 1."""
    waves: Floats = 4 * np.sin(np.pi * np.arange(1, count + 1) / (2 * (count + 1))) ** 2
    return waves
