"""Reads the other sessions of a series: two sessions are judged by the variation between them.

The newest sessions of each series are used. To keep years of history from slowing down a comparison, the newest
sessions of its cell (model, hardware, runtime and precision) are read first, and older ones only for series that those
did not measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from benchmarking.core.metrics import Metric
from db.analysis.compare.matching import Measured
from db.analysis.selection import judged_value

if TYPE_CHECKING:
    from db.warehouse import Warehouse

MAX_SESSIONS = 40
"""Machine and program change too much over more sessions."""
CELL = ("model_id", "hardware_id", "runtime", "precision")
MEMBERS = """
SELECT s.series_id AS own_id, coalesce(alias.canonical_series_id, s.series_id) AS series_id
FROM series s LEFT JOIN series_alias alias ON alias.series_id = s.series_id
WHERE coalesce(alias.canonical_series_id, s.series_id) IN (SELECT unnest($series))
"""
RUNS = f"""
SELECT run_id, session_id, coalesce(git_commit_time, started_at) AS time, {", ".join(CELL)}
FROM benchmark_runs
WHERE ({", ".join(CELL)}) IN (
        SELECT ({", ".join(CELL)}) FROM series WHERE series_id IN (SELECT unnest($members))
    )
    AND time <= $until AND run_id NOT IN (SELECT unnest($compared))
"""
VALUES = """
SELECT series_id AS own_id, run_id, {value} AS value
FROM {source}
WHERE run_id IN (SELECT unnest($runs)) AND series_id IN (SELECT unnest($members)) AND status = 'ok' AND {value} > 0
    AND validity IS DISTINCT FROM 'invalid'
"""
"""Reads few columns, and only one table if it has the metric, since there are many results."""
WITH_LOADS = "benchmark_results JOIN (SELECT run_id, load_time_s FROM benchmark_runs) USING (run_id)"
Run = Mapping[str, Any]
Found = dict[str, list[tuple[datetime, float]]]
"""session_id -> time and value of each of its results of one series."""


@dataclass(frozen=True, slots=True)
class SessionValue:
    """What a session measured for a series."""

    time: datetime
    """Position of its newest run in the history."""
    session_id: str
    value: float
    """In the metric's unit; the geometric mean if it measured the point several times."""


SeriesSessions = tuple[SessionValue, ...]
"""Oldest first."""


def sessions_of(warehouse: Warehouse, results: Sequence[Measured], metric: Metric) -> dict[str, SeriesSessions]:
    """series_id -> its newest sessions without the results' own runs."""
    if not results:
        return {}
    members = warehouse.query(MEMBERS, {"series": sorted({result.series_id for result in results})}).dicts()
    canonical = {row["own_id"]: row["series_id"] for row in members}
    parameters = {
        "members": list(canonical),
        "compared": sorted({result.run_id for result in results}),
        "until": max(result.history_time for result in results),
    }
    newest, older = _by_age(warehouse.query(RUNS, parameters).dicts())
    found: dict[str, Found] = {}
    _add(found, warehouse, newest, canonical, metric)
    lacking = {own: series for own, series in canonical.items() if len(found.get(series, ())) < MAX_SESSIONS}
    _add(found, warehouse, older, lacking, metric)
    return {series_id: _in_order(sessions) for series_id, sessions in found.items()}


def _by_age(runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
    """The runs of each cell's newest sessions, and the rest. A session is as old as its newest run."""
    cells: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    for run in runs:
        sessions = cells.setdefault(tuple(run[name] for name in CELL), {})
        sessions.setdefault(run["session_id"], []).append(run)
    newest, older = [], []
    for sessions in cells.values():
        in_order = sorted(sessions.values(), key=lambda own: max((run["time"], run["run_id"]) for run in own))
        newest += [run for own in in_order[-MAX_SESSIONS:] for run in own]
        older += [run for own in in_order[:-MAX_SESSIONS] for run in own]
    return newest, older


def _add(
    found: dict[str, Found],
    warehouse: Warehouse,
    runs: Sequence[Run],
    canonical: Mapping[str, str],
    metric: Metric,
) -> None:
    """Add the values of those series in the runs."""
    if not runs or not canonical:
        return
    known = {run["run_id"]: run for run in runs}
    source = WITH_LOADS if metric.source == "load_time" else "benchmark_results"
    sql = VALUES.format(value=judged_value(metric), source=source)
    parameters = {"runs": list(known), "members": list(canonical)}
    for row in warehouse.query(sql, parameters).dicts():
        run = known[row["run_id"]]
        sessions = found.setdefault(canonical[row["own_id"]], {})
        sessions.setdefault(run["session_id"], []).append((run["time"], row["value"]))


def _in_order(sessions: Found) -> SeriesSessions:
    """The newest sessions, oldest first."""
    each = [
        SessionValue(max(time for time, _ in own), session_id, _mean([value for _, value in own]))
        for session_id, own in sessions.items()
    ]
    return tuple(sorted(each, key=lambda one: (one.time, one.session_id))[-MAX_SESSIONS:])


def _mean(values: Sequence[float]) -> float:
    """The geometric mean; most sessions measure a point once."""
    return values[0] if len(values) == 1 else geometric_mean(values)
