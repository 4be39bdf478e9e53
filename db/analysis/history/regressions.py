"""Regressions from the stored change points, and whether everything in the session moved together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING

from benchmarking.core.metrics import Metric
from benchmarking.core.records import Point
from db.analysis.gate.gate import CommonShift, Shift, common_shift
from db.analysis.history.changes import FIT_RESULTS
from db.analysis.selection import EVERYTHING, Selection, judged_value
from db.connection import literal
from db.migrate import view_query
from db.values import SETTING_COLUMNS, SETTINGS, precision_words, settings_words

if TYPE_CHECKING:
    from db.warehouse import Warehouse

REGRESSIONS = """
SELECT * FROM {source}
WHERE metric IN (SELECT unnest(?)) AND {dates} AND {selected}
ORDER BY times_worse DESC, history_time, result_id
"""
METRIC_LIST = re.compile(r"(?<=VALUES\n).*?(?=\n\), own AS)", re.DOTALL)
"""The part of the view's query that lists its metrics with unit and direction."""
SELECTED = "result_id IN (SELECT result_id FROM all_results WHERE {condition})"
"""Reads all results, so it is omitted if everything is selected."""
MODES = (
    f"SELECT run_id, runtime_mode, {', '.join(SETTING_COLUMNS)} FROM benchmark_runs WHERE run_id IN (SELECT unnest(?))"
)
BASELINE_RUNS = 10
"""Number of earlier runs whose median a session's value is compared with."""
SHIFTS = f"""
WITH fit AS (
    SELECT series_id, result_id, session_id, hardware_id, model_id, runtime, precision, {{value}} AS value,
        median({{value}}) OVER (
            PARTITION BY series_id ORDER BY history_time, started_at, result_id
            ROWS BETWEEN {BASELINE_RUNS} PRECEDING AND 1 PRECEDING
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
    """The quantization if that is what the weights have instead."""
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
    common_shift: CommonShift | None = None
    """The common change in the session of the first changed result, which suggests the environment; or None."""


def regressions(
    warehouse: Warehouse, metrics: Sequence[Metric], *, dates: Selection = EVERYTHING, selection: Selection = EVERYTHING
) -> tuple[Regression, ...]:
    """The regressions whose first changed result is selected and within the dates (since, until), worst first."""
    by_name = {metric.column: metric for metric in metrics}
    condition = "TRUE" if selection == EVERYTHING else SELECTED.format(condition=selection.condition)
    source = "regressions"
    if any(metric.source == "custom" for metric in metrics):  # which the view itself does not know
        listed = (", ".join(map(literal, (metric.column, metric.unit, str(metric.better)))) for metric in metrics)
        metric_list = ", ".join(f"({words})" for words in listed)
        source = f"({METRIC_LIST.sub(lambda _: metric_list, view_query('regressions'))})"
    sql = REGRESSIONS.format(source=source, dates=dates.condition, selected=condition)
    values = [list(by_name), *dates.values, *selection.values]
    rows = warehouse.query(sql, values).dicts()
    shifts = common_shifts(warehouse, ((by_name[row["metric"]], row["session_id"]) for row in rows))
    # The rows with the settings that distinguish them.
    runs = sorted({row["run_id"] for row in rows})
    modes = {row["run_id"]: row for row in warehouse.query(MODES, [runs]).dicts()} if runs else {}
    rows = [{**row, **modes[row["run_id"]]} for row in rows]
    with_settings = [
        {**row, SETTINGS: settings, "precision": precision_words(row["precision"], row["runtime_mode"])}
        for row, settings in zip(rows, settings_words(rows), strict=True)
    ]
    names = [field.name for field in fields(Regression) if field.name not in ("metric", "point", "common_shift")]
    return tuple(
        Regression(
            **{name: row[name] for name in names},
            metric=by_name[row["metric"]],
            point=Point.from_columns(row),
            common_shift=shifts.get((row["metric"], row["hardware_id"], row["session_id"])),
        )
        for row in with_settings
    )


CommonShifts = Mapping[tuple[str, str, str], CommonShift]
"""(metric, machine, session) -> the common change of its series, if there is one."""


def common_shifts(warehouse: Warehouse, sessions_of_metrics: Iterable[tuple[Metric, str]]) -> CommonShifts:
    """The common changes of each metric and session. A series' change is relative to the median of its 10 earlier
    runs."""
    sessions: dict[Metric, set[str]] = {}
    for metric, session in sessions_of_metrics:
        sessions.setdefault(metric, set()).add(session)
    common: dict[tuple[str, str, str], CommonShift] = {}
    for metric, ids in sessions.items():
        values = {"sessions": sorted(ids), "metric": metric.column}
        rows = warehouse.query(SHIFTS.format(value=judged_value(metric)), values).dicts()
        groups: dict[tuple[str, str], list[Shift]] = {}
        for row in rows:
            ratio = row["value"] / row["before"]
            shift = Shift(
                group=f"{row['model_id']}\n{row['runtime']}\n{row['precision']}",
                ratio=ratio if metric.better == "lower" else 1 / ratio,
                is_finding=row["is_finding"],
            )
            groups.setdefault((row["hardware_id"], row["session_id"]), []).append(shift)
        for machine_session, shifts in groups.items():
            shared = common_shift(shifts)
            if shared is not None:
                common[(metric.column, *machine_session)] = shared
    return common
