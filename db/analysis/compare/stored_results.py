"""Reads the results of a comparison from a warehouse: each result, the metric's value of each launch, and the sessions
of its series with the variation between them.

Launches are compared, since samples inside a launch are not independent. The variation between sessions is the error
term of sides that are not interleaved.

The newest sessions of a series are used. To keep years of history from slowing down a comparison, the newest sessions
of a cell (model, hardware, runtime and precision) are read first, and older ones only for series that those did not
measure.

A session's value is x(t) = level + e(t) + walk(t): e has the variance s^2, which includes that of the launches, and the
random walk adds a step of variance w^2 from each session to the next, since machines drift. So sessions are in the
order in which they were measured, whatever the order of their commits. For m consecutive sessions, the m - 1
differences have a tridiagonal Toeplitz covariance matrix, whose eigenvectors are sines: with u the sine transform of
the differences, u(j) is normal with the variance w^2 + 4 s^2 sin^2(pi j / 2 m). s^2 and w^2 / s^2 are maximum
likelihood estimates, except that the ratio is the largest one whose log-likelihood is at most 1 below the maximum. This
allows for a walk that a short history cannot exclude, which matters for sessions far apart.

The history is cut where its level changed (`history.detector`), since a change is not noise. Otherwise at most one
difference in ten is clipped, to 4 robust standard deviations: a disturbed session, or the change under test. More
outliers are a property of the series; clipping them would report a change for a third of all equal sides.

If the newest sessions vary far more than the others, they alone count: a burst of noise is not over yet. If the
variation of the newest level grows over its sessions, it is taken to go on as it does.

The degrees of freedom, found by simulation (`tests/perf/verdicts.py`), are fewer than the differences, since two values
are estimated and noise is not normal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import cache
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from benchmarking.core.doubts import FIT
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import BYTES_PER_MB, LOAD_RATES, Metric
from benchmarking.core.records import NUMBER_RANGE, bench_settings, canonical_hash
from benchmarking.core.sample_statistics import SIGMA_PER_MAD
from benchmarking.core.verdicts.judging import clock_step
from benchmarking.core.verdicts.sessions import MIN_SESSIONS, SessionScatter, session_mean
from db.analysis.compare.matching import Keys, Measured, keys_of
from db.analysis.history.detector import change_indices
from db.analysis.selection import POOLED, Selection, judged_value
from db.connection import json_pointer, literal
from db.values import (
    FURTHER_SETTINGS,
    HARDWARE,
    SETTINGS,
    precision_words,
    reason_words,
    settings_words,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from db.warehouse import Warehouse

    Floats = NDArray[np.float64]

SHOWN_COLUMNS = (
    *("model_id", "device", "runtime", "precision", "num_threads", "host", "git_commit", "tool_version", "driver"),
)
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
SELECT result_id, extra->'doubts' AS doubts, missing[{metric}] AS why_missing,
    list_contains(pooled_quantiles, {metric}) AS is_pooled
FROM benchmark_results
WHERE run_id IN ({runs}) AND result_id IN (SELECT unnest(?))
"""
"""The wide columns, the slowest to read, only for results that have values in them."""
RUN_ROWS = f"""
SELECT
    run_id, session_id, hardware_id, started_at, finished_at,
    {", ".join((*SHOWN_COLUMNS, "runtime_mode", *FURTHER_SETTINGS))}, coalesce(is_simulated, FALSE) AS simulated,
    versions, tags['ab'] AS ab, if(model_source = 'bench', config, NULL) AS bench_config
FROM benchmark_runs WHERE run_id IN (SELECT unnest($runs))
"""
KEYS = "SELECT {column} AS id, hashed_keys FROM {table} WHERE {column} IN (SELECT unnest($ids))"
STARTS = """
SELECT result_id, launch, min(started_at) AS started_at
FROM raw_benchmark_data
WHERE result_id IN (SELECT unnest($ids)) AND phase = 'measure'
GROUP BY result_id, launch
"""
COARSE = """
SELECT result_id, extra->'doubts' AS doubts FROM benchmark_results
WHERE result_id IN (SELECT unnest($ids)) AND list_contains(doubts, 'coarse_clock')
"""
TYPICAL_SESSIONS = 10
"""Newest sessions that show how much launches vary."""

STATISTICS = """
SELECT result_id, launch, {value} AS value
FROM raw_benchmark_data
WHERE result_id IN (SELECT unnest($results)) AND phase = 'measure' AND metric = $metric AND {value} IS NOT NULL
ORDER BY result_id, launch
"""
RATES = """
WITH walls AS (
    SELECT result_id, TRY_CAST(fact->>'$.launch' AS INTEGER) AS launch,
        TRY_CAST(fact->>'$.requests_wall_ms' AS DOUBLE) AS wall_ms
    FROM (
        SELECT result_id, unnest(TRY_CAST(extra->'$.launches' AS JSON[])) AS fact
        FROM benchmark_results
        WHERE result_id IN (SELECT unnest($results)) AND concurrency > 1
    )
    WHERE wall_ms > 0
)
SELECT result_id, launch, coalesce(sample_count / wall_ms, concurrency / mean) AS rate,
    r.{column} * rate / median(rate) OVER (PARTITION BY result_id) AS value
FROM raw_benchmark_data
JOIN benchmark_results r USING (result_id)
LEFT JOIN walls USING (result_id, launch)
WHERE result_id IN (SELECT unnest($results)) AND phase = 'measure' AND metric = $metric AND mean > 0
    AND r.{column} IS NOT NULL AND result_id NOT IN (SELECT result_id FROM requests)
ORDER BY result_id, launch
"""
"""The rate of a launch, scaled so that the median over launches is the rate of the result; this way the work of a call
need not be known. With requests in flight it is that of completed requests, since a place may be empty at the ends.
Requests of a load test overlap too, and its launches have their own rates (`LOAD_RATES`)."""
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
PLACES = {"first_call": (), "reading": ("metrics",), "custom": ("metrics",)}
"""Source of a metric -> keys of the object in a launch's JSON that has the reading by its name."""

MAX_SESSIONS = 40
"""Machine and program change too much over more sessions."""
CELL = ("model_id", "hardware_id", "runtime", "precision")
SERIES_MEMBERS = """
SELECT s.series_id AS own_id, coalesce(alias.canonical_series_id, s.series_id) AS series_id
FROM series s LEFT JOIN series_alias alias ON alias.series_id = s.series_id
WHERE coalesce(alias.canonical_series_id, s.series_id) IN (SELECT unnest($series))
"""
SERIES_RUNS = f"""
SELECT run_id, session_id, started_at, {", ".join(CELL)}
FROM benchmark_runs
WHERE ({", ".join(CELL)}) IN (
        SELECT ({", ".join(CELL)}) FROM series WHERE series_id IN (SELECT unnest($members))
    )
    AND started_at <= $until AND run_id NOT IN (SELECT unnest($compared))
"""
SESSION_VALUES = f"""
SELECT series_id AS own_id, run_id, result_id, {{value}} AS value
FROM {{source}}
WHERE run_id IN (SELECT unnest($runs)) AND series_id IN (SELECT unnest($members)) AND status = 'ok' AND {{value}} > 0
    AND validity IN {FIT}
"""
"""Reads few columns, and only one table if it has the metric, since there are many results."""
WITH_LOADS = "benchmark_results JOIN (SELECT run_id, load_time_s FROM benchmark_runs) USING (run_id)"
RunRow = Mapping[str, Any]
SessionResults = dict[str, list["SessionValue"]]
"""session_id -> its results of one series, each as if it were all."""

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


Evidence = tuple[Sequence[Mapping[str, Any]], str | None]
"""The wide columns of one result: its doubts, and why the metric is missing."""


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

    configs = {
        run["config_hash"]: json.loads(run["bench_config"]) for run in runs.values() if run["bench_config"] is not None
    }

    @cache  # a series has many results, which share their keys
    def keys(series_id: str, hardware_id: str, *, is_simulated: bool) -> tuple[Keys, str]:
        config = configs.get(series[series_id].get("config_hash"))
        named = keys_of(series[series_id], hardware[hardware_id], is_simulated=is_simulated, bench_config=config)
        return named, canonical_hash(named)

    def one(row: Mapping[str, Any], run: Mapping[str, Any]) -> Measured:
        own_keys, keys_hash = keys(row["series_id"], run["hardware_id"], is_simulated=run["simulated"])
        doubts, why_missing = evidence.get(row["result_id"], ((), None))
        unfit: str | None = None  # why it may not be compared
        disturbed: str | None = None
        if row["status"] != "ok":
            unfit = f"{row['status'].replace('_', ' ')}: {row['error']}"
        elif row["validity"] == "invalid":
            kinds = [doubt["kind"] for doubt in doubts if doubt["severity"] == "invalid"]
            unfit = f"invalid ({', '.join(kinds) or 'no doubt stored'})"
        elif row["value"] is None:
            unfit = f"no {metric.noun}: {reason_words(why_missing or 'not measured')}"
        elif row["validity"] not in FIT:
            kinds = [doubt["kind"] for doubt in doubts if doubt["severity"] == row["validity"]]
            disturbed = f"{row['validity']} ({', '.join(kinds) or 'no doubt stored'})"
        return Measured(
            **{name: row[name] for name in ("result_id", "run_id", "series_id", "value", "validity")},
            **{name: run[name] for name in ("session_id", "ab", "started_at", "finished_at")},
            **{name: run[name] for name in ("columns", "versions")},
            keys=own_keys,
            keys_hash=keys_hash,
            unfit=unfit,
            disturbed=disturbed,
            doubts=tuple(doubt["kind"] for doubt in doubts if doubt["severity"] != "info"),
            clock_step=clock_step(doubt["evidence"] for doubt in doubts),
        )

    # The runs of each side, with the settings that distinguish them from others of their subject on either side.
    placed = [
        (place, run_id) for place, side in enumerate(sides) for run_id in dict.fromkeys(row["run_id"] for row in side)
    ]
    sides_of_runs = [place for place, _ in placed]
    further = {
        run_id: bench_settings(configs[run["config_hash"]])
        for run_id, run in runs.items()
        if run["bench_config"] is not None
    }
    named = [
        {**runs[run_id], "device_name": hardware[runs[run_id][HARDWARE]].get("device_name")} for _, run_id in placed
    ]
    columns = (*FURTHER_SETTINGS, HARDWARE)
    words = settings_words(named, columns, sides_of_runs, further, is_hardware_shown=False)
    own = {
        (place, run_id): {**runs[run_id], "columns": {**runs[run_id]["columns"], SETTINGS: settings}}
        for (place, run_id), settings in zip(placed, words, strict=True)
    }
    return [[one(row, own[place, row["run_id"]]) for row in side] for place, side in enumerate(sides)]


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
    sql = EVIDENCE.format(metric=literal(metric.column), runs=_marks(runs))
    rows_read = warehouse.query(sql, [*runs, [row["result_id"] for row in doubtful]]).dicts()
    return {
        row["result_id"]: (json.loads(row["doubts"] or "[]"), POOLED if row["is_pooled"] else row["why_missing"])
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
        starts = pool.submit(launch_starts, warehouse, [result.result_id for result in simultaneous])
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


def launch_starts(warehouse: Warehouse, result_ids: Sequence[str]) -> dict[str, dict[int, datetime]]:
    """Result id -> start of measurement of each launch."""
    if not result_ids:
        return {}
    starts: dict[str, dict[int, datetime]] = {}
    for row in warehouse.query(STARTS, {"ids": sorted({*result_ids})}).dicts():
        starts.setdefault(row["result_id"], {})[row["launch"]] = row["started_at"]
    return starts


def clock_steps(warehouse: Warehouse, result_ids: Sequence[str]) -> dict[str, float]:
    """Result id -> step of its clock over its calls, of results with a coarse one."""
    rows = warehouse.query(COARSE, {"ids": sorted({*result_ids})}).dicts() if result_ids else ()
    return {row["result_id"]: clock_step(doubt["evidence"] for doubt in json.loads(row["doubts"])) for row in rows}


def _keys(warehouse: Warehouse, table: str, column: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, Keys]:
    """The hashed keys of each id in the rows."""
    ids = sorted({row[column] for row in rows})
    rows_read = warehouse.query(KEYS.format(table=table, column=column), {"ids": ids}).dicts()
    return {row["id"]: json.loads(row["hashed_keys"]) for row in rows_read}


def launch_values(warehouse: Warehouse, result_ids: Iterable[str], metric: Metric) -> dict[str, dict[int, float]]:
    """result_id -> launch -> value of the launch, in the metric's unit, for results that have such values.

    A percentile needs 29 (p90), 59 (p95) or 299 (p99) samples in a launch.
    """
    parameters: dict[str, object] = {"results": list(result_ids)}
    if metric.source == "load_time":
        sql = LOADS
    elif metric.source in PLACES:
        sql, parameters["path"] = READINGS, json_pointer(*PLACES[metric.source], metric.of)
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
    tables = [warehouse.query(sql, parameters).arrow()]
    if metric.column in LOAD_RATES:
        path = json_pointer(*PLACES["reading"], LOAD_RATES[metric.column])
        tables.append(warehouse.query(READINGS, {"results": parameters["results"], "path": path}).arrow())
    for table in tables:  # of a year: tens of thousands of rows
        for result_id, launch, value in zip(
            *table.select(["result_id", "launch", "value"]).to_pydict().values(), strict=True
        ):
            if value is not None and NUMBER_RANGE.holds(value):  # others are of another program
                values.setdefault(result_id, {})[launch] = value / divisor
    return values


@dataclass(frozen=True, slots=True)
class SessionValue:
    """What a session measured for a series."""

    started_at: datetime
    """Of its newest run."""
    session_id: str
    value: float
    """In the metric's unit; the geometric mean if it measured the point several times."""
    result_id: str
    """The newest of its results."""


AnySession = TypeVar("AnySession")
SeriesSessions = tuple[SessionValue, ...]
"""Oldest first."""


def read_series_sessions(
    warehouse: Warehouse, results: Sequence[Measured], metric: Metric
) -> dict[str, SeriesSessions]:
    """series_id -> some of its sessions (`_spread`), oldest first, without the results' own runs."""
    if not results:
        return {}
    members = warehouse.query(SERIES_MEMBERS, {"series": sorted({result.series_id for result in results})}).dicts()
    canonical = {row["own_id"]: row["series_id"] for row in members}
    since = min(result.started_at for result in results)
    parameters = {
        "members": list(canonical),
        "compared": sorted({result.run_id for result in results}),
        "until": max(result.started_at for result in results),
    }
    # The runs of some sessions of each cell, and the rest. A session is as old as its newest run.
    cells: dict[tuple[str, ...], dict[str, list[RunRow]]] = {}
    for run in warehouse.query(SERIES_RUNS, parameters).dicts():
        sessions = cells.setdefault(tuple(run[name] for name in CELL), {})
        sessions.setdefault(run["session_id"], []).append(run)
    chosen, rest = [], []
    for sessions in cells.values():
        newest = {
            session_id: max((run["started_at"], run["run_id"]) for run in sessions[session_id])
            for session_id in sessions
        }
        in_order = sorted(sessions, key=newest.__getitem__)
        taken = set(_spread(in_order, [newest[session_id][0] for session_id in in_order], since))
        chosen += [run for session_id in taken for run in sessions[session_id]]
        rest += [run for session_id in sessions.keys() - taken for run in sessions[session_id]]
    by_series: dict[str, SessionResults] = {}
    _add_values(by_series, warehouse, chosen, canonical, metric)
    incomplete = {
        member: series for member, series in canonical.items() if len(by_series.get(series, ())) < MAX_SESSIONS
    }
    _add_values(by_series, warehouse, rest, incomplete, metric)
    found: dict[str, SeriesSessions] = {}
    for series_id, of_series in by_series.items():
        values = [
            replace(max(own, key=attrgetter("started_at", "result_id")), value=session_mean([one.value for one in own]))
            for own in of_series.values()
        ]
        # A session that is stored twice, with the same start and value, counts once.
        once = {(value.started_at, value.value): value for value in values}
        kept = sorted(once.values(), key=attrgetter("started_at", "session_id"))
        found[series_id] = tuple(_spread(kept, [value.started_at for value in kept], since))
    return found


def _spread(sessions: Sequence[AnySession], starts: Sequence[datetime], since: datetime) -> Sequence[AnySession]:
    """At most `MAX_SESSIONS` of the sessions, which are in order of their starts: the newest, or, where more of them
    are since the older side of a comparison, of these one in so many. The newest alone would not show how far the
    machine wanders between the sides."""
    between = [session for session, start in zip(sessions, starts, strict=True) if start >= since]
    if len(between) <= MAX_SESSIONS:
        return sessions[-MAX_SESSIONS:]
    return [between[round(place * (len(between) - 1) / (MAX_SESSIONS - 1))] for place in range(MAX_SESSIONS)]


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
        result = SessionValue(run["started_at"], run["session_id"], row["value"], row["result_id"])
        sessions.setdefault(run["session_id"], []).append(result)


def session_scatter(
    histories: Sequence[Sequence[float]], times: Sequence[datetime] = (), launch_variances: Sequence[float] = ()
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
    ratio, variance = _fit(differences)
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
    if steps.max() <= CLIP_SD * SIGMA_PER_MAD * float(np.median(steps)):
        return [history]
    cuts = [0, *change_indices(history), len(history)]
    return [history[start:end] for start, end in pairwise(cuts)]


def _fit(differences: Sequence[Floats]) -> tuple[float, float]:
    """w^2 / s^2 and s^2, from differences of which a few outliers are clipped."""
    sizes = np.abs(np.concatenate(differences))
    limit = CLIP_SD * SIGMA_PER_MAD * float(np.median(sizes))
    if limit > 0 and int((sizes > limit).sum()) <= max(1.0, MAX_CLIPPED * len(sizes)):
        differences = [np.clip(difference, -limit, limit) for difference in differences]
    squares = np.concatenate([(difference @ _modes(len(difference))[0]) ** 2 for difference in differences])
    waves = np.concatenate([_modes(len(difference))[1] for difference in differences])
    if not squares.any():
        return 0.0, 0.0
    scales = np.asarray(RATIOS)[:, None] + waves
    variances = (squares / scales).mean(axis=1)
    likelihoods = -0.5 * (len(squares) * np.log(variances) + np.log(scales).sum(axis=1))
    index = int(np.flatnonzero(likelihoods >= likelihoods.max() - LIKELIHOOD_DROP)[-1])
    return RATIOS[index], float(variances[index])


@cache
def _modes(count: int) -> tuple[Floats, Floats]:
    """The eigenvectors, as columns, of the covariance of `count` differences, and for each 4 sin^2(pi j / 2 m): the
    eigenvalues of the differences of independent values of variance 1."""
    index = np.arange(1, count + 1)
    vectors: Floats = math.sqrt(2 / (count + 1)) * np.sin(np.pi * np.outer(index, index) / (count + 1))
    return vectors, 4 * np.sin(np.pi * index / (2 * (count + 1))) ** 2
