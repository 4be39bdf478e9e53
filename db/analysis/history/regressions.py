"""Regressions from the stored change points, and whether everything in the session moved together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from benchmarking.core.metrics import Metric
from benchmarking.core.records import Point
from db.analysis.environment import CommonShift, Shift, moved_together
from db.analysis.history.changes import FIT_RESULTS
from db.analysis.selection import EVERYTHING, Selection, judged_value
from db.analysis.settings import SETTING_COLUMNS, SETTINGS, settings_words
from db.connection import literal
from db.migrate import view_query

if TYPE_CHECKING:
    from db.warehouse import Warehouse

REGRESSIONS = """
SELECT * FROM {source}
WHERE metric IN (SELECT unnest(?)) AND {dates} AND {selected}
ORDER BY times_worse DESC, history_time, result_id
"""
OUR_METRICS = re.compile(r"(?<=VALUES\n).*?(?=\n\), own AS)", re.DOTALL)
"""The part of the view's query that lists its metrics with unit and direction."""
SELECTED = "result_id IN (SELECT result_id FROM all_results WHERE {condition})"
"""Reads all results, so it is omitted if everything is selected."""
MODES = (
    f"SELECT run_id, runtime_mode, {', '.join(SETTING_COLUMNS)} FROM benchmark_runs WHERE run_id IN (SELECT unnest(?))"
)
BEFORE = 10
"""Number of earlier runs whose median a session's value is compared with."""
SHIFTS = f"""
WITH fit AS (
    SELECT series_id, result_id, session_id, hardware_id, model_id, runtime, precision, {{value}} AS value,
        median({{value}}) OVER (
            PARTITION BY series_id ORDER BY history_time, started_at, result_id
            ROWS BETWEEN {BEFORE} PRECEDING AND 1 PRECEDING
        ) AS before
    FROM all_results
    WHERE {FIT_RESULTS} AND series_id IN (
        SELECT series_id FROM all_results WHERE session_id IN (SELECT unnest($sessions))
    )
)
SELECT fit.*, change_point_id IS NOT NULL AS is_finding
FROM fit
LEFT JOIN (
    SELECT result_id, change_point_id FROM change_points WHERE metric = $metric AND state <> 'withdrawn'
) USING (result_id)
WHERE session_id IN (SELECT unnest($sessions)) AND before IS NOT NULL
ORDER BY series_id, result_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A row of the view regressions, whose comments describe the fields."""

    metric: Metric
    point: Point
    result_id: str
    last_good_result_id: str | None
    session_id: str
    run_id: str
    series_id: str
    hardware_id: str
    change_point_id: str
    history_time: datetime
    last_good_time: datetime | None
    model_id: str
    device: str
    device_name: str | None
    runtime: str
    precision: str
    state: str
    value_before: float
    value_after: float
    relative_change: float
    times_worse: float
    relative_change_now: float
    p_value: float
    last_good_commit: str | None
    first_bad_commit: str | None
    detector: str
    detector_version: str
    settings: str | None = None
    """The settings that distinguish it from others of its subject; None without any."""
    together: CommonShift | None = None
    """The common change in the session of the first changed result, which suggests the environment; or None."""


def regressions(
    warehouse: Warehouse, metrics: Sequence[Metric], *, dates: Selection = EVERYTHING, selection: Selection = EVERYTHING
) -> tuple[Regression, ...]:
    """The regressions whose first changed result is selected and within the dates (since, until), worst first."""
    by_name = {metric.column: metric for metric in metrics}
    chosen = "TRUE" if selection == EVERYTHING else SELECTED.format(condition=selection.condition)
    source = f"({_with_own(metrics)})" if any(metric.source == "custom" for metric in metrics) else "regressions"
    sql = REGRESSIONS.format(source=source, dates=dates.condition, selected=chosen)
    asked = [list(by_name), *dates.values, *selection.values]
    rows = warehouse.query(sql, asked).dicts()
    together = common_shifts(warehouse, ((by_name[row["metric"]], row["session_id"]) for row in rows))
    named = _with_settings(warehouse, rows)
    return tuple(_regression(row, by_name[row["metric"]], together) for row in named)


def _with_settings(warehouse: Warehouse, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the settings that distinguish them."""
    runs = sorted({row["run_id"] for row in rows})
    modes = {row["run_id"]: row for row in warehouse.query(MODES, [runs]).dicts()} if runs else {}
    words = settings_words([{**row, **modes[row["run_id"]]} for row in rows])
    return [{**row, SETTINGS: one} for row, one in zip(rows, words, strict=True)]


def _with_own(metrics: Sequence[Metric]) -> str:
    """The query of the view `regressions` for these metrics; the view itself does not know custom ones."""
    rows = (f"({', '.join(literal(text) for text in (one.column, one.unit, str(one.better)))})" for one in metrics)
    return OUR_METRICS.sub(lambda _: ", ".join(rows), view_query("regressions"))


Sessions = Mapping[tuple[str, str, str], CommonShift]
"""(metric, machine, session) -> the common change of its series, if there is one."""


def common_shifts(warehouse: Warehouse, places: Iterable[tuple[Metric, str]]) -> Sessions:
    """The common changes of each metric and session. A series' change is relative to the median of its 10 earlier
    runs."""
    sessions: dict[Metric, set[str]] = {}
    for metric, session in places:
        sessions.setdefault(metric, set()).add(session)
    found: dict[tuple[str, str, str], CommonShift] = {}
    for metric, ids in sessions.items():
        asked = {"sessions": sorted(ids), "metric": metric.column}
        rows = warehouse.query(SHIFTS.format(value=judged_value(metric)), asked).dicts()
        for place, shifts in _by_session(rows, metric).items():
            together = moved_together(shifts)
            if together is not None:
                found[(metric.column, *place)] = together
    return found


def _by_session(rows: Iterable[Mapping[str, Any]], metric: Metric) -> dict[tuple[str, str], list[Shift]]:
    groups: dict[tuple[str, str], list[Shift]] = {}
    for row in rows:
        ratio = row["value"] / row["before"]
        shift = Shift(
            group=f"{row['model_id']}\n{row['runtime']}\n{row['precision']}",
            ratio=ratio if metric.better == "lower" else 1 / ratio,
            is_finding=row["is_finding"],
        )
        groups.setdefault((row["hardware_id"], row["session_id"]), []).append(shift)
    return groups


def _regression(row: Mapping[str, Any], metric: Metric, together: Sessions) -> Regression:
    computed: dict[str, Any] = {
        "metric": metric,
        "point": Point.from_columns(row),
        "together": together.get((row["metric"], row["hardware_id"], row["session_id"])),
    }
    names = [each.name for each in fields(Regression) if each.name not in computed]
    return Regression(**{name: row[name] for name in names}, **computed)
