"""Reads the history of each selected series: one point a run, in the order of the commits, with its change points.

Which series there are, and which of them are read as another one: after a rename, or when a parameter came in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import POINT_COLUMNS
from benchmarking.core.errors import UsageError
from benchmarking.core.metrics import Metric
from benchmarking.core.records import Json, Point
from db.analysis.compare.matching import ALWAYS, differences, keys_of
from db.analysis.history.changes import FIT_RESULTS
from db.analysis.history.detector import DEFAULT, Change, Parameters, detect
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


LEAST_LETTERS = 4
"""Of a series' id: fewer would mean several ones before long."""
LISTED = """
SELECT
    s.series_id, a.canonical_series_id AS read_as, a.reason, s.model_id, s.runtime, s.precision, s.batch_size,
    s.sequence_length, s.new_tokens, s.concurrency, s.axes, s.num_threads, s.runtime_mode, s.hashed_keys,
    h.device_type, h.device_name, found.runs, found.first_at, found.newest_at
FROM series s
JOIN (
    SELECT r.series_id, count(DISTINCT r.run_id) AS runs, min(shown.history_time) AS first_at,
        max(shown.history_time) AS newest_at
    FROM (SELECT result_id, history_time FROM all_results WHERE {condition}) shown
    JOIN benchmark_results r USING (result_id)
    GROUP BY r.series_id
) found USING (series_id)
LEFT JOIN hardware_info h USING (hardware_id)
LEFT JOIN series_alias a USING (series_id)
ORDER BY s.model_id, h.device_name, s.runtime, s.precision, s.sequence_length, s.batch_size, s.series_id
"""
NAMED = "SELECT series_id, hashed_keys FROM series WHERE starts_with(series_id, ?) ORDER BY series_id LIMIT 3"
READ_AS = "SELECT canonical_series_id FROM series_alias WHERE series_id = ?"
REPOINT = "UPDATE series_alias SET canonical_series_id = ? WHERE canonical_series_id = ?"
ALIAS = "INSERT INTO series_alias (series_id, canonical_series_id, reason, created_at) VALUES (?, ?, ?, ?)"
UNALIAS = "DELETE FROM series_alias WHERE series_id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedSeries:
    """What was joined, or taken apart again."""

    series_id: str
    read_as: str
    differs: Mapping[str, tuple[Json, Json]]
    """Key -> its value in the one series, and in the other."""
    repointed: int = 0
    """Series that were read as this one, and are now read as the other, too."""


def list_series(warehouse: Warehouse, selection: Selection) -> list[dict[str, Any]]:
    """The series that have selected results: their ids, what they are of, runs, first and newest time, alias."""
    return warehouse.query(LISTED.format(condition=selection.condition), selection.values).dicts()


def join_series(warehouse: Warehouse, old: str, new: str, reason: str) -> JoinedSeries:
    """Have one series read as another one from now on; each by its id, or how that begins.

    What was read as the old one is read as the new one too, and a new one that is itself read as another one stands
    for that: no chains. Raises UsageError for series that are not there, that are joined otherwise already, or whose
    numbers are not of one kind.
    """
    (old_id, old_keys), (new_id, new_keys) = _series(warehouse, old), _series(warehouse, new)
    target = _read_as(warehouse, new_id) or new_id
    if target == old_id:
        what = "are one series" if old_id == new_id else f"are joined already: {new_id} is read as {old_id}"
        raise UsageError(f"{old_id} and {new_id} {what}")
    known = _read_as(warehouse, old_id)
    if known is not None:
        raise UsageError(f"{old_id} is read as {known} already: first say benchhouse series unalias {old_id}")
    differs = differences(old_keys, new_keys)
    if unlike := [name for name in ALWAYS if name in differs]:
        raise UsageError(f"{old_id} and {new_id} differ in {', '.join(unlike)}: their numbers do not mean the same")
    repointed = len(warehouse.query("SELECT 1 FROM series_alias WHERE canonical_series_id = ?", [old_id]).dicts())
    with warehouse.transaction() as connection:
        connection.execute(REPOINT, [target, old_id])
        connection.execute(ALIAS, [old_id, target, reason, datetime.now(UTC).replace(tzinfo=None)])
    return JoinedSeries(series_id=old_id, read_as=target, differs=differs, repointed=repointed)


def part_series(warehouse: Warehouse, old: str) -> JoinedSeries:
    """Have a series read as itself again. Raises UsageError for one that is not there, or that is no alias."""
    old_id, old_keys = _series(warehouse, old)
    known = _read_as(warehouse, old_id)
    if known is None:
        raise UsageError(f"{old_id} is read as itself: benchhouse series list shows what is read as another one")
    with warehouse.transaction() as connection:
        connection.execute(UNALIAS, [old_id])
    return JoinedSeries(series_id=old_id, read_as=known, differs=differences(old_keys, _series(warehouse, known)[1]))


def _series(warehouse: Warehouse, text: str) -> tuple[str, dict[str, Json]]:
    """Id and keys of the series that is meant."""
    if len(text) < LEAST_LETTERS:
        raise UsageError(f"{text!r} is too short for a series' id: give {LEAST_LETTERS} letters or more")
    rows = warehouse.query(NAMED, [text]).dicts()
    if not rows:
        raise UsageError(f"no series has an id that begins with {text!r}: benchhouse series list shows them")
    if len(rows) > 1:
        named = ", ".join(row["series_id"] for row in rows)
        raise UsageError(f"{text!r} begins the id of several series ({named}): give more letters")
    keys: dict[str, Json] = json.loads(rows[0]["hashed_keys"])
    hardware = {"id": keys.get("hardware_id")}
    return rows[0]["series_id"], keys_of(keys, hardware, is_simulated=False)


def _read_as(warehouse: Warehouse, series_id: str) -> str | None:
    rows = warehouse.query(READ_AS, [series_id]).dicts()
    return rows[0]["canonical_series_id"] if rows else None
