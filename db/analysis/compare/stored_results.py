"""Reads the results of a comparison from a warehouse: each result, and the metric's value of each launch.

Launches are compared, since samples inside a launch are not independent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarking.core.metrics import BYTES_PER_MB, LOAD_RATES, Metric
from benchmarking.core.records import canonical_hash
from db.analysis.compare.matching import Keys, Measured, keys_of
from db.analysis.compare.series_sessions import SeriesSessions, read_series_sessions
from db.analysis.selection import POOLED, Selection, judged_value
from db.values import SETTINGS, precision_words, settings_words

if TYPE_CHECKING:
    from db.warehouse import Warehouse

SHOWN_COLUMNS = (
    "model_id",
    "device",
    "runtime",
    "precision",
    "num_threads",
    "host",
    "git_commit",
    "tool_version",
    "driver",
)
SETTING_COLUMNS = ("weights", "cpu_list")
"""Columns that, with the runtime's settings, distinguish points of the same subject."""
RUNS = "SELECT run_id FROM benchmark_runs WHERE {condition}"
RUNS_OF_RESULTS = "SELECT DISTINCT run_id FROM all_results WHERE {condition}"
RESULTS = """
SELECT result_id, run_id, series_id, status, error, validity, doubts, {value} AS value
FROM all_results WHERE run_id IN ({runs}) AND {condition}
ORDER BY started_at, run_id, batch_size, sequence_length, new_tokens, concurrency, result_id
"""
"""Restricted to the ids of the runs, which are looked up first, so that results of other runs are not read. What all
results of a run share is read once per run."""
EVIDENCE = """
SELECT result_id, extra->'doubts' AS doubts, missing['{metric}'] AS why_missing,
    list_contains(pooled_quantiles, '{metric}') AS is_pooled
FROM benchmark_results
WHERE run_id IN ({runs}) AND result_id IN (SELECT unnest(?))
"""
"""The wide columns, the slowest to read, only for results that have values in them."""
RUN_ROWS = f"""
SELECT
    run_id, session_id, hardware_id, started_at, finished_at, coalesce(git_commit_time, started_at) AS history_time,
    {", ".join((*SHOWN_COLUMNS, "runtime_mode", *SETTING_COLUMNS))}, coalesce(is_simulated, FALSE) AS simulated,
    versions, tags['ab'] AS ab
FROM benchmark_runs WHERE run_id IN (SELECT unnest($runs))
"""
KEYS = "SELECT {column} AS id, hashed_keys FROM {table} WHERE {column} IN (SELECT unnest($ids))"
STARTS = """
SELECT result_id, launch, min(started_at) AS started_at
FROM raw_benchmark_data
WHERE result_id IN (SELECT unnest($ids)) AND phase = 'measure'
GROUP BY result_id, launch
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The wide columns of one result."""

    doubts: Sequence[Mapping[str, Any]] = ()
    why_missing: str | None = None


NO_EVIDENCE = Evidence()
TYPICAL_SESSIONS = 10
"""Newest sessions that show how much launches vary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What is read for compared results only, by result_id."""

    values: Mapping[str, Mapping[int, float]]
    """Each launch's own value."""
    starts: Mapping[str, Mapping[int, datetime]]
    """Start of measurement of each launch."""
    other_sessions: Mapping[str, SeriesSessions]
    """By series_id, the values of sessions that are not compared."""
    history_values: Mapping[str, Mapping[int, float]]
    """Each launch's own value, of the newest of these sessions."""


def read_results(warehouse: Warehouse, selections: Sequence[Selection], metric: Metric) -> list[list[Measured]]:
    """The results of each selection, oldest first."""
    with ThreadPoolExecutor() as pool:  # DuckDB plans on one core, and planning takes longer than running
        sides = list(pool.map(lambda selection: _selected(warehouse, selection, metric), selections))
        rows = [row for side in sides for row in side]
        evidence_future = pool.submit(_evidence, warehouse, rows, metric)
        series_future = pool.submit(_keys, warehouse, "series", "series_id", rows)
        # What the results of a run share, by run_id; "columns" has the columns to show.
        parameters = {"runs": sorted({row["run_id"] for row in rows})}
        runs = {
            row["run_id"]: {
                **row,
                "columns": {
                    **{name: None if row[name] is None else str(row[name]) for name in SHOWN_COLUMNS},
                    "precision": precision_words(row["precision"], row["runtime_mode"]),  # --by compares these
                },
            }
            for row in warehouse.query(RUN_ROWS, parameters).dicts()
        }
        hardware_future = pool.submit(_keys, warehouse, "hardware_info", "hardware_id", runs.values())
    evidence, series, hardware = evidence_future.result(), series_future.result(), hardware_future.result()

    @cache  # a series has many results, which share their keys
    def keys(series_id: str, hardware_id: str, *, is_simulated: bool) -> tuple[Keys, str]:
        named = keys_of(series[series_id], hardware[hardware_id], is_simulated=is_simulated)
        return named, canonical_hash(named)

    def one(row: Mapping[str, Any], run: Mapping[str, Any]) -> Measured:
        own_keys, keys_hash = keys(row["series_id"], run["hardware_id"], is_simulated=run["simulated"])
        wide = evidence.get(row["result_id"], NO_EVIDENCE)
        unfit: str | None = None  # why it may not be compared
        if row["status"] != "ok":
            unfit = f"{row['status'].replace('_', ' ')}: {row['error']}"
        elif row["validity"] == "invalid":
            kinds = [doubt["kind"] for doubt in wide.doubts if doubt["severity"] == "invalid"]
            unfit = f"invalid ({', '.join(kinds) or 'no doubt stored'})"
        elif row["value"] is None:
            unfit = f"no {metric.column}: {wide.why_missing or 'not measured'}"
        return Measured(
            result_id=row["result_id"],
            run_id=row["run_id"],
            series_id=row["series_id"],
            session_id=run["session_id"],
            ab=run["ab"],
            started_at=run["started_at"],
            finished_at=run["finished_at"],
            history_time=run["history_time"],
            keys=own_keys,
            keys_hash=keys_hash,
            value=row["value"],
            validity=row["validity"],
            unfit=unfit,
            doubts=tuple(doubt["kind"] for doubt in wide.doubts if doubt["severity"] != "info"),
            columns=run["columns"],
            versions=run["versions"],
        )

    found = []
    for side in sides:
        # The runs of the side, with the settings that distinguish them from others of their subject.
        side_runs = [runs[run_id] for run_id in dict.fromkeys(row["run_id"] for row in side)]
        words = settings_words(side_runs, SETTING_COLUMNS)
        own = {
            run["run_id"]: {**run, "columns": {**run["columns"], SETTINGS: settings}}
            for run, settings in zip(side_runs, words, strict=True)
        }
        found.append([one(row, own[row["run_id"]]) for row in side])
    return found


def _selected(warehouse: Warehouse, selection: Selection, metric: Metric) -> list[dict[str, Any]]:
    if selection.run_condition is None:
        sql, values = RUNS_OF_RESULTS.format(condition=selection.condition), selection.values
    else:
        sql, values = RUNS.format(condition=selection.run_condition), selection.run_values
    runs = [row["run_id"] for row in warehouse.query(sql, values).dicts()]
    if not runs:
        return []
    condition, values = ("TRUE", ()) if selection.is_whole_runs else (selection.condition, selection.values)
    sql = RESULTS.format(value=judged_value(metric), runs=_marks(runs), condition=condition)
    return warehouse.query(sql, [*runs, *values]).dicts()


def _evidence(warehouse: Warehouse, rows: Sequence[Mapping[str, Any]], metric: Metric) -> dict[str, Evidence]:
    """By result_id, for results with doubts or without a value."""
    doubtful = [row for row in rows if row["doubts"] or row["value"] is None]
    if not doubtful:
        return {}
    runs = sorted({row["run_id"] for row in doubtful})
    sql = EVIDENCE.format(metric=metric.column, runs=_marks(runs))
    rows_read = warehouse.query(sql, [*runs, [row["result_id"] for row in doubtful]]).dicts()
    return {
        row["result_id"]: Evidence(
            doubts=json.loads(row["doubts"] or "[]"), why_missing=POOLED if row["is_pooled"] else row["why_missing"]
        )
        for row in rows_read
    }


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" for _ in values)


def read_details(
    warehouse: Warehouse, results: Sequence[Measured], simultaneous: Sequence[Measured], metric: Metric
) -> Details:
    """Launch values and other sessions of compared results; launch starts only for results that ran `at_once`."""
    with ThreadPoolExecutor() as pool:
        launches = pool.submit(launch_values, warehouse, sorted({result.result_id for result in results}), metric)
        starts = pool.submit(_starts, warehouse, simultaneous)
        other_sessions = pool.submit(read_series_sessions, warehouse, results, metric)
    single = {side.result_id: {0: side.value} for side in results if side.value is not None}
    history = other_sessions.result()
    newest = {session.result_id for sessions in history.values() for session in sessions[-TYPICAL_SESSIONS:]}
    return Details(
        values={**single, **launches.result()},
        starts=starts.result(),
        other_sessions=history,
        history_values=launch_values(warehouse, sorted(newest), metric) if newest else {},
    )


def _starts(warehouse: Warehouse, results: Sequence[Measured]) -> dict[str, dict[int, datetime]]:
    """Start of measurement of each launch of the results."""
    if not results:
        return {}
    starts: dict[str, dict[int, datetime]] = {}
    ids = {"ids": sorted({result.result_id for result in results})}
    for row in warehouse.query(STARTS, ids).dicts():
        starts.setdefault(row["result_id"], {})[row["launch"]] = row["started_at"]
    return starts


def _keys(warehouse: Warehouse, table: str, column: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, Keys]:
    """The hashed keys of each id in the rows."""
    ids = sorted({row[column] for row in rows})
    rows_read = warehouse.query(KEYS.format(table=table, column=column), {"ids": ids}).dicts()
    return {row["id"]: json.loads(row["hashed_keys"]) for row in rows_read}


STATISTICS = """
SELECT result_id, launch, {value} AS value
FROM raw_benchmark_data
WHERE result_id IN (SELECT unnest($results)) AND phase = 'measure' AND metric = $metric AND {value} IS NOT NULL
ORDER BY result_id, launch
"""
RATES = """
SELECT result_id, launch, r.{column} / mean / median(1 / mean) OVER (PARTITION BY result_id) AS value
FROM raw_benchmark_data
JOIN benchmark_results r USING (result_id)
WHERE result_id IN (SELECT unnest($results)) AND phase = 'measure' AND metric = $metric AND mean > 0
    AND r.{column} IS NOT NULL AND result_id NOT IN (SELECT result_id FROM requests)
ORDER BY result_id, launch
"""
"""The rate of a launch, scaled so that the median over launches is the rate of the result; this way the work of a call
need not be known. Requests of a load test overlap, so its launches have their own rates (`LOAD_RATES`)."""
READINGS = """
SELECT result_id, launch, value
FROM (
    SELECT result_id, CAST(fact->>'$.launch' AS INTEGER) AS launch, CAST(fact->>$path AS DOUBLE) AS value
    FROM (
        SELECT result_id, unnest(CAST(extra->'$.launches' AS JSON[])) AS fact
        FROM benchmark_results
        WHERE result_id IN (SELECT unnest($results))
    )
)
WHERE launch IS NOT NULL AND value IS NOT NULL
ORDER BY result_id, launch
"""
LOADS = """
SELECT
    result_id, CAST(load->>'$.launch' AS INTEGER) AS launch,
    list_sum(map_values(CAST(load->'$.stages_s' AS MAP(VARCHAR, DOUBLE)))) AS value
FROM (
    SELECT r.result_id, unnest(CAST(run.loads AS JSON[])) AS load
    FROM benchmark_results r
    JOIN benchmark_runs run USING (run_id)
    WHERE r.result_id IN (SELECT unnest($results))
)
WHERE value IS NOT NULL
ORDER BY result_id, launch
"""
LAUNCH_STATISTICS = {
    "median": "median",
    "p90": """CASE WHEN sample_count >= 29 AND inner_loops = 1
        THEN coalesce(sketch[19], list_aggregate(samples, 'quantile_cont', 0.9)) END""",
    "p95": """CASE WHEN sample_count >= 59 AND inner_loops = 1
        THEN coalesce(sketch[20], list_aggregate(samples, 'quantile_cont', 0.95)) END""",
    "p99": "p99",
}
"""SQL of a launch's statistic; the minimum numbers of samples are those of `sample_statistics.TAIL_MIN_SAMPLES`. A
sketch has the quantiles 0, 0.05, ..., 1."""
PATHS = {"first_call": "$.{name}", "reading": "$.metrics.{name}", "custom": "$.metrics.{name}"}
"""Source of a metric -> path of the reading in a launch's JSON."""


def launch_values(warehouse: Warehouse, result_ids: Iterable[str], metric: Metric) -> dict[str, dict[int, float]]:
    """result_id -> launch -> value of the launch, in the metric's unit, for results that have such values.

    A percentile needs 29 (p90), 59 (p95) or 299 (p99) samples in a launch.
    """
    parameters: dict[str, object] = {"results": list(result_ids)}
    if metric.source == "load_time":
        sql = LOADS
    elif metric.source in PATHS:
        sql, parameters["path"] = READINGS, PATHS[metric.source].format(name=metric.of)
    else:
        is_rate = metric.statistic == "rate"
        sql = (
            RATES.format(column=metric.column)
            if is_rate
            else STATISTICS.format(value=LAUNCH_STATISTICS[metric.statistic])
        )
        parameters["metric"] = metric.of
    divisor = BYTES_PER_MB if metric.is_in_bytes else 1
    values: dict[str, dict[int, float]] = {}
    rows = warehouse.query(sql, parameters).dicts()
    if metric.column in LOAD_RATES:
        path = PATHS["reading"].format(name=LOAD_RATES[metric.column])
        rows += warehouse.query(READINGS, {"results": parameters["results"], "path": path}).dicts()
    for row in rows:
        values.setdefault(row["result_id"], {})[row["launch"]] = row["value"] / divisor
    return values
