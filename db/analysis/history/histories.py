"""Reads histories: the runs of each selected series in commit order, with change points.

Also lists series, and makes one series an alias of another, after a rename or for a new parameter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import POINT_COLUMNS
from benchmarking.core.doubts import FIT
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.load_doubts import HIGHEST_RATE
from benchmarking.core.metrics import DEFAULT_METRIC, METRICS, PEAK_MEMORY, THROUGHPUT_AT_MEDIAN, Metric
from benchmarking.core.provenance import naive_now
from benchmarking.core.records import Json, Point
from db.analysis.annotations import MAX_LENGTH, stored_words
from db.analysis.compare.matching import ALWAYS_EQUAL, differences, keys_of
from db.analysis.compare.stored_results import launch_values
from db.analysis.history.changes import FIT_RESULTS, of_metric
from db.analysis.history.detector import PARAMETERS, Change, Trend, detect, find_trend
from db.analysis.selection import EVERYTHING, Selection, judged_value
from db.connection import quoted
from db.values import (
    FURTHER_SETTINGS,
    HARDWARE,
    SETTING_COLUMNS,
    SETTINGS,
    SIMULATED,
    bench_settings_of,
    settings_words,
    with_words,
)

if TYPE_CHECKING:
    from db.connection import Connection
    from db.warehouse import Warehouse

SUBJECTS = ("model_id", "device", "runtime", "precision", "device_name")
SHOWN = (*SUBJECTS, SETTINGS)
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
UNFIT_SERIES = f"""
SELECT coalesce(sum(results), 0) AS results FROM (
    SELECT count(*) AS results FROM all_results WHERE {{condition}}
    GROUP BY series_id HAVING count(*) FILTER (WHERE {FIT_RESULTS}) = 0
)
"""
LEAST_RUNS = 2 * PARAMETERS.points_beside
"""Runs without which there is no change of level."""
SHORT_SERIES = f"""
SELECT count(*) FILTER (WHERE fit < {LEAST_RUNS}) AS short, count(*) AS series FROM (
    SELECT count(*) FILTER (WHERE {FIT_RESULTS}) AS fit
    FROM all_results WHERE series_id IN (SELECT series_id FROM all_results WHERE {{condition}})
    GROUP BY series_id
)
"""
NOT_JUDGED = f"""
SELECT count(*) AS results FROM all_results
WHERE status = 'ok' AND validity IN {FIT} AND {{value}} IS NOT NULL AND NOT {{value}} {{above}} 0 AND ({{condition}})
"""
NEWEST_COLUMNS = (*SUBJECTS, "run_id", "runtime_mode", *SETTING_COLUMNS, HARDWARE, SIMULATED, *POINT_COLUMNS)
POINTS = f"""
SELECT
    series_id, result_id, run_id, session_id, history_time, started_at, git_commit, {{value}} AS value,
    coalesce(({{condition}}), FALSE) AS is_selected
FROM all_results
WHERE {FIT_RESULTS} AND list_contains(?::VARCHAR[], series_id)
QUALIFY row_number() OVER (PARTITION BY series_id, run_id ORDER BY result_id DESC) = 1
ORDER BY series_id, history_time, started_at, result_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """A run of a series."""

    result_id: str
    run_id: str
    session_id: str
    history_time: datetime
    """Time of the commit, or start of the run without one, UTC."""
    started_at: datetime
    """Start of the run, UTC."""
    git_commit: str | None
    value: float
    """In the metric's unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A change with the results around it."""

    change: Change
    last_good: HistoryPoint
    first_changed: HistoryPoint

    @property
    def since(self) -> datetime:
        """The time of the first changed commit, or of the run if no commit changed."""
        return _start(self.first_changed, self.last_good)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A series over time. A selection limits the points; changes are always detected in the whole series."""

    series_id: str
    subject: Mapping[str, str | None]
    """Columns to show, from its newest run: model_id, device, runtime, precision (the quantization in place of
    "other"), device_name, and the settings that distinguish it from other histories with the same columns."""
    point: Point
    points: tuple[HistoryPoint, ...]
    """The selected points, oldest first."""
    runs: int
    """Number of points of the whole series."""
    change_points: tuple[ChangePoint, ...]
    """The changes whose first changed result is selected, oldest first."""
    trend: Trend | None
    """The slow movement of the newest runs, if there is one."""
    left_out: int
    """Number of selected results that failed, are invalid or throttled, or have no value."""


def histories(
    warehouse: Warehouse, selection: Selection, metric: Metric, *, limit: int | None = None
) -> tuple[tuple[History, ...], int]:
    """The histories of at most `limit` series with selected results, by model, and the total number of such series."""
    series, total = _series_with_runs(warehouse, selection, metric, limit)
    found: list[History] = []
    for row, runs in series:
        selected = [run["is_selected"] for run in runs]
        points = [_point(run) for run in runs]
        values = [point.value for point in points]
        changes = detect(values, [point.started_at for point in points])
        found.append(
            History(
                series_id=row["series_id"],
                subject={name: row[name] for name in SHOWN},
                point=Point.from_columns(row),
                points=tuple(point for point, is_selected in zip(points, selected, strict=True) if is_selected),
                runs=len(points),
                change_points=tuple(
                    ChangePoint(change=change, last_good=points[change.last_before], first_changed=points[change.index])
                    for change in changes
                    if selected[change.index]
                ),
                trend=find_trend(values) if selected and selected[-1] else None,
                left_out=row["results"] - row["fit"],
            )
        )
    return tuple(found), total


@dataclass(frozen=True, slots=True, kw_only=True)
class WorseTrend:
    """A series that becomes worse slowly and steadily, so that no run or commit is to blame."""

    metric: Metric
    trend: Trend
    series_id: str
    subject: Mapping[str, str | None]
    """As of a `History`."""
    point: Point
    first: HistoryPoint
    """The first and the newest run of the trend."""
    newest: HistoryPoint

    @property
    def since(self) -> datetime:
        """The time of its first commit, or of its first run if no commit changed."""
        return _start(self.first, self.newest)


def _start(first: HistoryPoint, other: HistoryPoint) -> datetime:
    """The time of the first point's commit; of its run if it has none, or the other's."""
    return first.started_at if first.git_commit == other.git_commit else first.history_time


def worse_trends(
    warehouse: Warehouse, metrics: Sequence[Metric], selection: Selection, dates: Selection = EVERYTHING
) -> tuple[WorseTrend, ...]:
    """The trends to the worse of the selected series whose newest run is within the dates, worst first."""
    within = selection.within(dates)
    found: list[WorseTrend] = []
    for metric in metrics:
        for row, runs in _series_with_runs(warehouse, within, metric)[0]:
            trend = find_trend([run["value"] for run in runs]) if runs[-1]["is_selected"] else None
            if trend is None or not metric.is_worse(trend.change):
                continue
            found.append(
                WorseTrend(
                    metric=metric,
                    trend=trend,
                    series_id=row["series_id"],
                    subject={name: row[name] for name in SHOWN},
                    point=Point.from_columns(row),
                    first=_point(runs[-trend.runs]),
                    newest=_point(runs[-1]),
                )
            )
    return tuple(sorted(found, key=lambda one: -abs(math.log1p(one.trend.change))))


def results_without_history(warehouse: Warehouse, selection: Selection, metric: Metric) -> int:
    """The number of selected results in series that have no history, because none of their results counts."""
    sql = UNFIT_SERIES.format(**of_metric(metric), condition=selection.condition)
    (row,) = warehouse.query(sql, selection.values).dicts()
    return int(row["results"])


def series_with_history(warehouse: Warehouse, metric: Metric) -> int:
    """The number of series with a history of the metric."""
    sql = f"SELECT count(DISTINCT series_id) AS series FROM all_results WHERE {FIT_RESULTS}"
    (row,) = warehouse.query(sql.format(**of_metric(metric))).dicts()
    return int(row["series"])


def results_not_judged(warehouse: Warehouse, selection: Selection, metric: Metric) -> int:
    """The number of selected results whose value is too small for a history: 0, of which there is no share, or less."""
    sql = NOT_JUDGED.format(**of_metric(metric), condition=selection.condition)
    (row,) = warehouse.query(sql, selection.values).dicts()
    return int(row["results"])


def series_too_short(warehouse: Warehouse, selection: Selection, metric: Metric) -> tuple[int, int]:
    """The number of selected series whose runs cannot show a change, and of all selected series. Runs that failed, are
    doubtful or have no value show nothing."""
    sql = SHORT_SERIES.format(**of_metric(metric), condition=selection.condition)
    (row,) = warehouse.query(sql, selection.values).dicts()
    return int(row["short"]), int(row["series"])


def too_short_text(short: int, series: int) -> str:
    """What `series_too_short` found, after the words that nothing has changed; empty if all series can show it."""
    return f"{short} of {series} series cannot show one: fewer than {LEAST_RUNS} of their runs count" if short else ""


def _series_with_runs(
    warehouse: Warehouse, selection: Selection, metric: Metric, limit: int | None = None
) -> tuple[list[tuple[dict[str, Any], list[dict[str, Any]]]], int]:
    """At most `limit` series with selected results, by model, each with all of its runs, and the number of all such
    series."""
    newest = ", ".join(f"max_by({name}, (started_at, result_id)) AS {name}" for name in NEWEST_COLUMNS)
    sql = SERIES.format(**of_metric(metric), condition=selection.condition, newest=newest)
    series = warehouse.query(sql, selection.values).dicts()
    shown = with_words(series[:limit], warehouse)
    sql = POINTS.format(**of_metric(metric), condition=selection.condition)
    values = [*selection.values, [row["series_id"] for row in shown]]
    rows = warehouse.query(sql, values).dicts() if shown else []
    runs = {name: list(members) for name, members in groupby(rows, key=lambda row: str(row["series_id"]))}
    return [(row, runs[row["series_id"]]) for row in shown], len(series)


def _point(row: Mapping[str, Any]) -> HistoryPoint:
    names = ("result_id", "run_id", "session_id", "history_time", "started_at", "git_commit", "value")
    return HistoryPoint(**{name: row[name] for name in names})


MIN_PREFIX = 4
"""Minimum characters of a series id prefix."""
LIST_SERIES = """
SELECT
    s.series_id, a.canonical_series_id AS read_as, a.reason, s.model_id, s.runtime, s.precision, s.batch_size,
    s.sequence_length, s.new_tokens, s.concurrency, s.axes, s.num_threads, s.runtime_mode, s.hashed_keys,
    run.task, s.weights, s.model_revision, s.config_hash, s.cpu_list, s.hardware_id, run.device,
    run.is_simulated AS simulated, h.device_type, h.device_name, found.runs, run_id, found.first_at, found.newest_at
FROM series s
JOIN (
    SELECT r.series_id, count(DISTINCT r.run_id) AS runs, max(r.run_id) AS run_id,
        min(shown.started_at) AS first_at, max(shown.started_at) AS newest_at
    FROM (SELECT result_id, started_at FROM all_results WHERE {condition}) shown
    JOIN benchmark_results r USING (result_id)
    GROUP BY r.series_id
) found USING (series_id)
JOIN benchmark_runs run USING (run_id)
LEFT JOIN hardware_info h ON h.hardware_id = s.hardware_id
LEFT JOIN series_alias a USING (series_id)
ORDER BY s.model_id, h.device_name, s.runtime, s.precision, s.sequence_length, s.batch_size, s.series_id
"""
FIND_SERIES = "SELECT series_id, hashed_keys FROM series WHERE starts_with(series_id, ?) ORDER BY series_id LIMIT 3"
CANONICAL_ID = "SELECT canonical_series_id FROM series_alias WHERE series_id = ?"
REPOINT = "UPDATE series_alias SET canonical_series_id = ? WHERE canonical_series_id = ?"
ALIAS = "INSERT INTO series_alias (series_id, canonical_series_id, reason, created_at) VALUES (?, ?, ?, ?)"
UNALIAS = "DELETE FROM series_alias WHERE series_id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesAlias:
    """An alias that was created or removed."""

    series_id: str
    read_as: str
    differs: Mapping[str, tuple[Json, Json]]
    """Key -> its values in the old and the new series."""
    repointed: int = 0
    """Earlier aliases of this series, now aliases of the other one."""


def list_series(warehouse: Warehouse, selection: Selection) -> list[dict[str, Any]]:
    """The series with selected results: id, subject, the settings that tell it from others of its subject, number of
    runs and one of them, first and newest start of a run, alias."""
    rows = warehouse.query(LIST_SERIES.format(condition=selection.condition), selection.values).dicts()
    words = settings_words(rows, further=bench_settings_of(warehouse, rows))
    return [{**row, SETTINGS: settings} for row, settings in zip(rows, words, strict=True)]


def alias_series(warehouse: Warehouse, old: str, new: str, reason: str) -> SeriesAlias:
    """Make one series an alias of another, each given by its id or a unique prefix.

    Aliases of the old series become aliases of the new one, and a new series that is itself an alias is replaced by its
    target, so there are no chains. Secrets in the reason are redacted. Raises UsageError for unknown series, for an old
    series that is already an alias, for series whose numbers are not comparable, and for an empty or too long reason.
    """
    stored_reason = stored_words(reason, "a reason", MAX_LENGTH)
    (old_id, old_keys), (new_id, new_keys) = _series(warehouse, old), _series(warehouse, new)
    differs = differences(old_keys, new_keys)
    tried: list[SeriesAlias] = []

    def add_alias(connection: Connection) -> SeriesAlias:
        target, canonical = _canonical_id(warehouse, new_id) or new_id, _canonical_id(warehouse, old_id)
        if tried and tried[-1].read_as == canonical:  # committed, but the answer was lost
            return tried[-1]
        if target == old_id:
            what = "are the same series" if old_id == new_id else f"are already one: {new_id} is an alias of {old_id}"
            raise UsageError(f"{old_id} and {new_id} {what}")
        if canonical is not None:
            advice = f"run benchhouse series unalias {old_id} first"
            raise UsageError(f"{old_id} is already an alias of {canonical}: {advice}")
        if incomparable := ", ".join(name for name in ALWAYS_EQUAL if name in differs):
            raise UsageError(f"{old_id} and {new_id} differ in {incomparable}: their numbers are not comparable")
        repointed = len(warehouse.query("SELECT 1 FROM series_alias WHERE canonical_series_id = ?", [old_id]).dicts())
        tried.append(SeriesAlias(series_id=old_id, read_as=target, differs=differs, repointed=repointed))
        connection.execute(REPOINT, [target, old_id])
        connection.execute(ALIAS, [old_id, target, stored_reason, naive_now()])
        return tried[-1]

    return warehouse.change(add_alias)


def unalias_series(warehouse: Warehouse, old: str) -> SeriesAlias:
    """Remove the alias of a series. Raises UsageError for an unknown series, or one that is not an alias."""
    old_id, old_keys = _series(warehouse, old)
    canonical = _canonical_id(warehouse, old_id)
    if canonical is None:
        raise UsageError(f"{old_id} is not an alias: see benchhouse series list")
    warehouse.change(lambda connection: connection.execute(UNALIAS, [old_id]))
    return SeriesAlias(
        series_id=old_id, read_as=canonical, differs=differences(old_keys, _series(warehouse, canonical)[1])
    )


def _series(warehouse: Warehouse, text: str) -> tuple[str, dict[str, Json]]:
    """Id and keys of the series with this id or id prefix."""
    if len(text) < MIN_PREFIX:
        raise UsageError(f"{text!r} is too short: expected a series id or at least its first {MIN_PREFIX} characters")
    rows = warehouse.query(FIND_SERIES, [text]).dicts()
    if not rows:
        raise UsageError(f"no series has an id that begins with {text!r}: see benchhouse series list")
    if len(rows) > 1:
        names = ", ".join(row["series_id"] for row in rows)
        raise UsageError(f"several series have an id that begins with {text!r} ({names}): give a longer prefix")
    keys: dict[str, Json] = json.loads(rows[0]["hashed_keys"])
    hardware = {"id": keys.get("hardware_id")}
    return rows[0]["series_id"], keys_of(keys, hardware, is_simulated=False)


def _canonical_id(warehouse: Warehouse, series_id: str) -> str | None:
    rows = warehouse.query(CANONICAL_ID, [series_id]).dicts()
    return rows[0]["canonical_series_id"] if rows else None


NEWEST_SUBJECTS = ("model_id", "device_name", "device", "runtime", "precision", "num_threads")
STATE_COLUMNS = ("started_at", "run_id", "status", "error", "validity", "doubts")
INTERVAL_COLUMNS = ("latency_ci_low_ms", "latency_ci_high_ms", "ci_scope")
RATES = ("throughput_tokens_per_sec", "throughput_samples_per_sec")
TREND_RUNS = 200
"""Maximum runs in a trend, the newest ones."""
NEWEST_OF_SERIES = """
SELECT arg_max(result_id, (started_at, result_id)) AS result_id, count(*) OVER () AS series_count
FROM all_results WHERE {condition}
GROUP BY series_id ORDER BY max(started_at) DESC, series_id LIMIT ?
"""
NEWEST_RESULTS = """
SELECT series_id, result_id, (extra->'$.load.searched_per_s') IS NOT NULL AS is_search, {columns}
FROM all_results WHERE result_id IN (SELECT unnest(?::VARCHAR[]))
ORDER BY started_at DESC, model_id, device, runtime, precision, batch_size, sequence_length, result_id
"""
TRENDS = f"""
WITH shown AS (
    SELECT unnest($series::VARCHAR[]) AS series_id, unnest($times::TIMESTAMP[]) AS shown_at
), newest AS (
    SELECT series_id, history_time, started_at, {{value}} AS value FROM all_results JOIN shown USING (series_id)
    WHERE {FIT_RESULTS} AND list_contains($series::VARCHAR[], series_id) AND started_at <= shown_at
    QUALIFY row_number() OVER (PARTITION BY series_id ORDER BY history_time DESC, started_at DESC) <= {TREND_RUNS}
)
SELECT series_id, list(value ORDER BY history_time, started_at) AS trend FROM newest GROUP BY series_id
"""


def newest_results(
    warehouse: Warehouse, selection: Selection, metric: Metric, *, limit: int
) -> tuple[list[dict[str, Any]], int]:
    """The newest selected result of at most `limit` series, newest first, and the total number of such series.

    In each row, `trend` has the values of the series' valid and noisy results up to the shown one, oldest first,
    `launch_values` the metric's value in each launch of the result, and `settings` what distinguishes the row from
    others of its model, device, runtime and precision.
    """
    newest = warehouse.query(NEWEST_OF_SERIES.format(condition=selection.condition), [*selection.values, limit]).dicts()
    names = (
        *(
            "run_id",
            *NEWEST_SUBJECTS,
            "runtime_mode",
            *FURTHER_SETTINGS,
            HARDWARE,
            SIMULATED,
            *POINT_COLUMNS,
            *STATE_COLUMNS,
        ),
        f"{judged_value(METRICS[DEFAULT_METRIC])} AS {DEFAULT_METRIC}",
        *(*INTERVAL_COLUMNS, *RATES, *PEAK_MEMORY),
        f"other_metrics['{THROUGHPUT_AT_MEDIAN}'] AS {THROUGHPUT_AT_MEDIAN}",
        f"other_metrics['{HIGHEST_RATE}'] AS {HIGHEST_RATE}",
    )
    own = f"{judged_value(metric)} AS {quoted(metric.column)}" if metric.source == "custom" else metric.column
    columns = [*names, *([own] if metric.column != DEFAULT_METRIC else [])]
    sql = NEWEST_RESULTS.format(columns=", ".join(dict.fromkeys(columns)))
    rows = warehouse.query(sql, [[head["result_id"] for head in newest]]).dicts()
    shown = {"series": [row["series_id"] for row in rows], "times": [row["started_at"] for row in rows]}
    trends = warehouse.query(TRENDS.format(**of_metric(metric)), shown).dicts()
    values = {row["series_id"]: row["trend"] for row in trends}
    launches = launch_values(warehouse, [row["result_id"] for row in rows], metric)
    count = newest[0]["series_count"] if newest else 0
    settings = settings_words(
        rows, (*FURTHER_SETTINGS, HARDWARE, SIMULATED), further=bench_settings_of(warehouse, rows)
    )
    with_trends = [
        {
            **row,
            SETTINGS: words,
            "trend": values.get(row["series_id"], []),
            "launch_values": list(launches.get(row["result_id"], {}).values()),
        }
        for row, words in zip(rows, settings, strict=True)
    ]
    return with_trends, count
