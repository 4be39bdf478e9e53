"""Reads the history of each selected series: one point a run, in the order of the commits, with its change points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import POINT_COLUMNS
from benchmarking.records import Point
from db.analysis.changes import FIT_RESULTS
from db.analysis.detector import DEFAULT, Change, Parameters, detect
from db.analysis.metrics import Metric
from db.analysis.selection import Selection

if TYPE_CHECKING:
    from db.warehouse import Warehouse

SUBJECTS = ("model_id", "device", "runtime", "precision", "device_name")
SERIES = f"""
SELECT
    series_id,
    count(*) AS results,
    count(*) FILTER (WHERE {FIT_RESULTS}) AS fit,
    {{newest}}
FROM all_results WHERE {{condition}}
GROUP BY series_id HAVING fit > 0
ORDER BY model_id, device, runtime, precision, sequence_length, batch_size, series_id
"""
NEWEST = (*SUBJECTS, *POINT_COLUMNS)
POINTS = f"""
SELECT
    series_id, result_id, run_id, session_id, history_time, git_commit, {{metric}} AS value,
    coalesce(({{condition}}), FALSE) AS is_selected
FROM all_results
WHERE {FIT_RESULTS} AND series_id IN (SELECT unnest(?))
QUALIFY row_number() OVER (PARTITION BY series_id, run_id ORDER BY result_id DESC) = 1
ORDER BY series_id, history_time, started_at, result_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """What a run says of a series."""

    result_id: str
    run_id: str
    session_id: str
    history_time: datetime
    """Of the commit, else of the run's start, UTC."""
    git_commit: str | None
    value: float
    """In the metric's unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A change with the results it lies between."""

    change: Change
    last_good: HistoryPoint
    first_changed: HistoryPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A series over time. What selects results shortens what is shown, never what changes are looked for in."""

    series_id: str
    subject: Mapping[str, str | None]
    """Columns for people: model_id, device, runtime, precision, device_name, as of its newest run."""
    point: Point
    points: tuple[HistoryPoint, ...]
    """Oldest first; those that were selected."""
    change_points: tuple[ChangePoint, ...]
    """Oldest first; those whose first changed result was selected."""
    left_out: int
    """Selected results without a number to judge: failed, invalid, throttled or very noisy."""


def histories(
    warehouse: Warehouse,
    selection: Selection,
    metric: Metric,
    *,
    limit: int | None = None,
    parameters: Parameters = DEFAULT,
) -> tuple[tuple[History, ...], int]:
    """The histories of the series that have selected results, by model, at most `limit`; and how many there are."""
    newest = ", ".join(f"max_by({name}, (started_at, result_id)) AS {name}" for name in NEWEST)
    sql = SERIES.format(metric=metric.column, condition=selection.condition, newest=newest)
    series = warehouse.query(sql, selection.values).dicts()
    shown = series[:limit]
    points = _points(warehouse, [row["series_id"] for row in shown], selection, metric)
    return tuple(_history(row, points[row["series_id"]], parameters) for row in shown), len(series)


def _points(
    warehouse: Warehouse, series: Sequence[str], selection: Selection, metric: Metric
) -> dict[str, list[dict[str, Any]]]:
    sql = POINTS.format(metric=metric.column, condition=selection.condition)
    rows = warehouse.query(sql, [*selection.values, list(series)]).dicts() if series else []
    return {name: list(members) for name, members in groupby(rows, key=lambda row: str(row["series_id"]))}


def _history(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], parameters: Parameters) -> History:
    selected = [each["is_selected"] for each in rows]
    points = [_point(each) for each in rows]
    changes = detect([point.value for point in points], parameters)
    return History(
        series_id=row["series_id"],
        subject={name: row[name] for name in SUBJECTS},
        point=Point.from_columns(row),
        points=tuple(point for point, is_selected in zip(points, selected, strict=True) if is_selected),
        change_points=tuple(
            ChangePoint(change=change, last_good=points[change.index - 1], first_changed=points[change.index])
            for change in changes
            if selected[change.index]
        ),
        left_out=row["results"] - row["fit"],
    )


def _point(row: Mapping[str, Any]) -> HistoryPoint:
    names = ("result_id", "run_id", "session_id", "history_time", "git_commit", "value")
    return HistoryPoint(**{name: row[name] for name in names})
