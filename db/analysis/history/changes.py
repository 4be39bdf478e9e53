"""Change points and regressions: finds the change points of all series in a warehouse, updates the table change_points,
and reads the regressions among them, with whether everything in the session moved together.

Change points depend on the results alone: a repeated search changes nothing, and warehouses with the same runs have the
same rows. A row is the first changed result in one metric. If later runs move the change or do not confirm it, the row
is withdrawn but kept. Only series with new results are searched; the table history_scans has the state of the last
search.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, fields
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarking.core.doubts import FIT
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import Metric
from benchmarking.core.provenance import naive_now
from benchmarking.core.records import Point, canonical_hash
from benchmarking.core.text import counted
from db.analysis.gate.candidates import UnstoredChanges
from db.analysis.gate.gate import CommonShift, Shift, common_shift, times_worse
from db.analysis.history.detector import NAME, PARAMETERS, VERSION, detect
from db.analysis.selection import EVERYTHING, Selection, judged_value
from db.connection import literal
from db.migrate import view_query
from db.values import SETTING_COLUMNS, SIMULATED, with_words
from db.warehouse import OutdatedError, Warehouse

if TYPE_CHECKING:
    from db.connection import Connection

Row = dict[str, Any]
BATCH = 1000
"""Series per transaction, so that a killed search keeps the finished batches."""
CHANGE_COLUMNS = (
    *("value_before", "value_after", "relative_change", "p_value", "state"),
    *("run_id", "last_good_result_id", "last_good_run_id"),
)
DETECTOR_COLUMNS = ("detector", "detector_version", "parameters")
FIT_RESULTS = f"""
status = 'ok' AND validity IN {FIT} AND {{value}} {{above}} 0
"""
"""The results in a history: those that count in the gate's segments, with a value that may be (`of_metric`)."""
DIGESTS = f"""
WITH points AS (
    SELECT series_id, count(*) AS points, bit_xor(hash(result_id, history_time, started_at, {{value}})) AS content
    FROM all_results WHERE {FIT_RESULTS} GROUP BY series_id
), stored AS (
    SELECT coalesce(canonical_series_id, c.series_id) AS series_id, bit_xor(hash(change_point_id, state)) AS changes
    FROM change_points c LEFT JOIN series_alias USING (series_id) WHERE metric = $metric GROUP BY ALL
)
SELECT series_id, concat_ws(' ', points, content, changes, $detector) AS digest
FROM points FULL JOIN stored USING (series_id)
"""
STALE = f"""
SELECT series_id FROM ({DIGESTS})
WHERE (series_id, digest) NOT IN (SELECT (series_id, digest) FROM history_scans WHERE metric = $metric)
ORDER BY series_id
"""
POINTS = f"""
SELECT series_id, result_id, run_id, started_at, {{value}} AS value FROM all_results
WHERE {FIT_RESULTS} AND list_contains($series::VARCHAR[], series_id)
QUALIFY row_number() OVER (PARTITION BY series_id, run_id ORDER BY result_id DESC) = 1
ORDER BY series_id, history_time, started_at, result_id
"""
"""DuckDB filters by a bound list while it scans; `IN (SELECT unnest($series))` joins every result of the warehouse
first."""
STORED = """
SELECT c.* FROM change_points c LEFT JOIN series_alias USING (series_id)
WHERE metric = $metric AND coalesce(canonical_series_id, c.series_id) IN (SELECT unnest($series))
"""
COLUMNS = ("change_point_id", "metric", "result_id", *CHANGE_COLUMNS, *DETECTOR_COLUMNS, "detected_at")
NEW_ROWS = f"(SELECT {', '.join(f'unnest(${name}) AS {name}' for name in COLUMNS)})"
INSERT = f"""
INSERT INTO change_points BY NAME
SELECT n.*, r.series_id FROM {NEW_ROWS} n JOIN benchmark_results r USING (result_id)
"""
UPDATE = f"""
UPDATE change_points SET {", ".join(f"{name} = n.{name}" for name in (*CHANGE_COLUMNS, *DETECTOR_COLUMNS))}
FROM {NEW_ROWS} n WHERE change_points.change_point_id = n.change_point_id
"""
DELETE_SCANS = "DELETE FROM history_scans WHERE metric = $metric AND series_id IN (SELECT unnest($series))"
INSERT_SCANS = f"""
INSERT INTO history_scans BY NAME
SELECT series_id, $metric AS metric, digest, $now AS scanned_at FROM ({DIGESTS})
WHERE series_id IN (SELECT unnest($series))
"""
REGRESSIONS = """
SELECT * FROM (
    SELECT * REPLACE (
        CASE WHEN first_bad_commit = last_good_commit THEN started_at ELSE history_time END AS history_time
    ) FROM {source}
)
WHERE metric IN (SELECT unnest(?)) AND {dates} AND {selected}
ORDER BY times_worse DESC, history_time, result_id
"""
METRIC_LIST = re.compile(r"(?<=VALUES\n).*?(?=\n\), own AS)", re.DOTALL)
"""The part of the view's query that lists its metrics with unit and direction."""
SELECTED = "result_id IN (SELECT result_id FROM all_results WHERE {condition})"
"""Reads all results, so it is omitted if everything is selected."""
MODES = f"""
SELECT run_id, runtime_mode, {", ".join(SETTING_COLUMNS)}, is_simulated AS {SIMULATED} FROM benchmark_runs
WHERE run_id IN (SELECT unnest(?))
"""
STARTS = """
SELECT result_id, started_at AS last_good_started_at FROM benchmark_results JOIN benchmark_runs USING (run_id)
WHERE result_id IN (SELECT unnest(?))
"""
BASELINE_RUNS = 10
"""Number of earlier runs whose median a session's value is compared with."""
SERIES_OF_SESSIONS = "SELECT DISTINCT series_id FROM all_results WHERE list_contains($sessions::VARCHAR[], session_id)"
SHIFTS = f"""
WITH fit AS (
    SELECT series_id, result_id, session_id, hardware_id, model_id, runtime, precision, {{value}} AS value,
        median({{value}}) OVER (
            PARTITION BY series_id ORDER BY history_time, started_at, result_id
            ROWS BETWEEN {BASELINE_RUNS} PRECEDING AND 1 PRECEDING
        ) AS before
    FROM all_results
    WHERE {FIT_RESULTS} AND list_contains($series::VARCHAR[], series_id)
)
SELECT fit.*, change_point_id IS NOT NULL AS is_finding
FROM fit
LEFT JOIN (
    SELECT result_id, change_point_id FROM change_points WHERE metric = $metric AND state <> 'withdrawn'
) USING (result_id)
WHERE session_id IN (SELECT unnest($sessions)) AND before > 0
ORDER BY series_id, result_id
"""
CommonShifts = Mapping[tuple[str, str, str], CommonShift]
"""(metric, machine, session) -> the common change of its series, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCounts:
    """Counts of series and change points in a search."""

    series: int = 0
    """Series with new results."""
    found: int = 0
    confirmed: int = 0
    """New and known change points that were confirmed by this search."""
    withdrawn: int = 0

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"searched {self.series} series with new results: {counted(self.found, 'new change point')}, "
            f"{self.confirmed} confirmed, {self.withdrawn} withdrawn"
        )

    def __add__(self, other: SearchCounts) -> SearchCounts:
        return SearchCounts(**{name: value + getattr(other, name) for name, value in asdict(self).items()})


def of_metric(metric: Metric) -> dict[str, str]:
    """The fields of the SQL for a metric. Of a rate of which more is better, 0 is a value: nothing is left. A time or a
    size of 0 was not measured."""
    return {"value": judged_value(metric), "above": ">=" if metric.better == "higher" else ">"}


def stale_series(warehouse: Warehouse, metric: Metric) -> list[str]:
    """The series whose results, or whose detector version, changed since their last search."""
    values = {"metric": metric.column, "detector": _detector()}
    return [row["series_id"] for row in warehouse.query(STALE.format(**of_metric(metric)), values).dicts()]


def unstored_changes(warehouse: Warehouse, metric: Metric) -> UnstoredChanges:
    """The confirmed changes of the series with new results, for who does not store them."""
    stale = stale_series(warehouse, metric)
    rows = _change_rows(warehouse, stale, metric, naive_now()) if stale else ()
    return stale, {row["result_id"]: row["relative_change"] for row in rows if row["state"] == "confirmed"}


def update_changes(warehouse: Warehouse, metric: Metric, *, series: Sequence[str] | None = None) -> SearchCounts:
    """Update the stored change points of one metric, for these series or for all with new results."""
    stale = warehouse.repeated(lambda: stale_series(warehouse, metric)) if series is None else series
    total = SearchCounts()
    for start in range(0, len(stale), BATCH):
        search = partial(_search_and_store, warehouse, stale[start : start + BATCH], metric)
        total += warehouse.change(search)
    return total


def change_point_id(metric: str, result_id: str) -> str:
    """The id of a change point, the same in all warehouses."""
    return canonical_hash({"metric": metric, "result_id": result_id})[:32]


def _search_and_store(
    warehouse: Warehouse, series: Sequence[str], metric: Metric, connection: Connection
) -> SearchCounts:
    """Search and store in one transaction, so that no other machine changes a lake's results in between."""
    now = naive_now()
    values = {"series": list(series), "metric": metric.column}
    stored = {row["change_point_id"]: row for row in warehouse.query(STORED, values).dicts()}
    current = {row["change_point_id"]: row for row in _change_rows(warehouse, series, metric, now)}
    new = [row for key, row in current.items() if key not in stored]
    changed = [
        row
        for key, row in current.items()
        if key in stored and any(row[name] != stored[key][name] for name in (*CHANGE_COLUMNS, *DETECTOR_COLUMNS))
    ]
    withdrawn = [
        {**row, "state": "withdrawn"}
        for key, row in stored.items()
        if key not in current and row["state"] != "withdrawn"
    ]
    _write(connection, INSERT, new)
    _write(connection, UPDATE, changed + withdrawn)
    connection.execute(DELETE_SCANS, values)
    connection.execute(INSERT_SCANS.format(**of_metric(metric)), {**values, "detector": _detector(), "now": now})
    confirmed = [
        row
        for key, row in current.items()
        if row["state"] == "confirmed" and stored.get(key, {}).get("state") != "confirmed"
    ]
    return SearchCounts(series=len(series), found=len(new), confirmed=len(confirmed), withdrawn=len(withdrawn))


def _change_rows(warehouse: Warehouse, series: Sequence[str], metric: Metric, now: datetime) -> Iterator[Row]:
    """The rows of the series' current change points."""
    points = warehouse.query(POINTS.format(**of_metric(metric)), {"series": list(series)}).arrow()
    values, times = points.column("value").to_numpy(), points.column("started_at").to_numpy()
    common = {
        "metric": metric.column,
        "detector": NAME,
        "detector_version": VERSION,
        "parameters": json.dumps(asdict(PARAMETERS)),
        "detected_at": now,
    }
    names = points.column("series_id").to_numpy(zero_copy_only=False)
    bounds = [0, *(1 + np.flatnonzero(names[1:] != names[:-1])), len(names)] if len(names) else []
    for start, end in pairwise(map(int, bounds)):  # each stretch of one series
        for change in detect(values[start:end], times[start:end]):
            columns = ("value_before", "value_after", "relative_change", "p_value", "state")
            numbers = {name: getattr(change, name) for name in columns}
            if not change.value_before:  # from nothing: there is no ratio to store
                numbers["relative_change"] = None
            # The results and runs around a change at the index.
            index, last = start + change.index, start + change.last_before
            result_ids, run_ids = points.column("result_id"), points.column("run_id")
            neighbours = {
                "result_id": result_ids[index].as_py(),
                "run_id": run_ids[index].as_py(),
                "last_good_result_id": result_ids[last].as_py(),
                "last_good_run_id": run_ids[last].as_py(),
            }
            row = {**common, **numbers, **neighbours}
            yield {"change_point_id": change_point_id(metric.column, row["result_id"]), **row}


def _write(connection: Connection, statement: str, rows: Sequence[Row]) -> None:
    """Execute a statement with all rows at once."""
    if rows:
        connection.execute(statement, {name: [row[name] for row in rows] for name in COLUMNS})


def _detector() -> str:
    """The detector and its parameters, for a digest."""
    return f"{NAME} {VERSION} {canonical_hash(asdict(PARAMETERS))[:16]}"


def open_refreshed(path: str, metrics: Sequence[Metric], *, lock_timeout_s: float) -> tuple[Warehouse, SearchCounts]:
    """The warehouse, open to read, after its stored change points were updated. Raises as `Warehouse.open` does.

    It is opened for writing only if there is something to store, so others can keep reading it otherwise.
    """
    stale: dict[Metric, list[str] | None] = dict.fromkeys(metrics)
    with ExitStack() as stack, suppress(OutdatedError):  # opening it for writing upgrades it
        warehouse = stack.enter_context(Warehouse.open(path, read_only=True, lock_timeout_s=lock_timeout_s))
        stale = {metric: found for metric in metrics if (found := stale_series(warehouse, metric))}
        if not stale:
            stack.pop_all()
            return warehouse, SearchCounts()
    counts = SearchCounts()
    with Warehouse.open(path, lock_timeout_s=lock_timeout_s, create=False) as warehouse:
        for metric, series in stale.items():
            counts += update_changes(warehouse, metric, series=series)
    return Warehouse.open(path, read_only=True, lock_timeout_s=lock_timeout_s), counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A row of the view regressions, whose comments describe the fields; if no commit changed, the time of the change
    is the start of the run."""

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
    started_at: datetime
    """Start of the first changed run, UTC."""
    last_good_started_at: datetime | None
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

    @property
    def is_within_commit(self) -> bool:
        """Whether the runs around the change have the same commit, or none, so that no commit is to blame."""
        return self.last_good_commit == self.first_bad_commit


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
    runs = sorted({row["run_id"] for row in rows})
    modes = {row["run_id"]: row for row in warehouse.query(MODES, [runs]).dicts()} if runs else {}
    good = [row["last_good_result_id"] for row in rows]
    starts = {row["result_id"]: row for row in warehouse.query(STARTS, [good]).dicts()} if rows else {}
    unknown = {"last_good_started_at": None}
    names = [field.name for field in fields(Regression) if field.name not in ("metric", "point", "common_shift")]
    return tuple(
        Regression(
            **{name: row[name] for name in names},
            metric=by_name[row["metric"]],
            point=Point.from_columns(row),
            common_shift=shifts.get((row["metric"], row["hardware_id"], row["session_id"])),
        )
        for row in with_words(
            [{**modes[row["run_id"]], **starts.get(row["last_good_result_id"], unknown), **row} for row in rows],
            warehouse,
        )
    )


def common_shifts(warehouse: Warehouse, sessions_of_metrics: Iterable[tuple[Metric, str]]) -> CommonShifts:
    """The common changes of each metric and session. A series' change is relative to the median of its 10 earlier
    runs."""
    sessions: dict[Metric, set[str]] = {}
    for metric, session in sessions_of_metrics:
        sessions.setdefault(metric, set()).add(session)
    common: dict[tuple[str, str, str], CommonShift] = {}
    for metric, ids in sessions.items():
        sessions_only = {"sessions": sorted(ids)}
        series = [row["series_id"] for row in warehouse.query(SERIES_OF_SESSIONS, sessions_only).dicts()]
        values = {**sessions_only, "series": series, "metric": metric.column}
        rows = warehouse.query(SHIFTS.format(**of_metric(metric)), values).dicts()
        groups: dict[tuple[str, str], list[Shift]] = {}
        for row in rows:
            shift = Shift(
                group=f"{row['model_id']}\n{row['runtime']}\n{row['precision']}",
                ratio=times_worse(row["value"] / row["before"] - 1, metric),
                is_finding=row["is_finding"],
            )
            groups.setdefault((row["hardware_id"], row["session_id"]), []).append(shift)
        for machine_session, shifts in groups.items():
            shared = common_shift(shifts)
            if shared is not None:
                common[(metric.column, *machine_session)] = shared
    return common
