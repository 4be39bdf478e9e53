"""Reads from a warehouse what comparing results takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from db.analysis.fingerprint import Keys, keys_of
from db.analysis.judging import RunScatter, run_scatter
from db.analysis.launches import launch_values
from db.analysis.matching import Measured
from db.analysis.metrics import Metric
from db.analysis.selection import Selection

if TYPE_CHECKING:
    from db.warehouse import Warehouse

ABOUT = ("model_id", "device", "runtime", "precision", "num_threads", "host", "git_commit", "tool_version", "driver")
UNFIT_DOUBT = "very_noisy"
UNFIT_SHARE = 0.5
"""Of the launches: where so many are very noisy, the middle one is. Fewer are what launches are repeated for. It is
said of the calls' times, so that it does not touch memory, or what a load takes."""
MAX_HISTORY_RUNS = 40
"""Older ones tell about a machine and a program that are no more."""

RESULTS = """
SELECT
    result_id, run_id, series_id, hardware_id, started_at, history_time, model_id, device, runtime, precision,
    num_threads, host, git_commit, tool_version, driver, versions, status, error, validity, doubts,
    coalesce(simulated, FALSE) AS simulated, {metric} AS value, missing['{metric}'] AS why_missing, launches,
    CASE WHEN validity = 'invalid' OR list_contains(doubts, '{unfit}') THEN extra->'doubts' END AS evidence
FROM (SELECT * FROM all_results WHERE run_id IN ({runs}) AND result_id IN (SELECT unnest($results)))
JOIN (SELECT run_id, driver FROM benchmark_runs) USING (run_id)
ORDER BY started_at, run_id, batch_size, sequence_length, new_tokens, concurrency, result_id
"""
SELECTED = "SELECT result_id, run_id FROM all_results WHERE {condition}"
"""Asked first, and alone: of a million results the few columns of a condition are read in no time, all of them not."""
KEYS = "SELECT {column} AS id, hashed_keys FROM {table} WHERE {column} IN (SELECT unnest($ids))"
STARTS = """
SELECT result_id, min(started_at) AS started_at
FROM raw_benchmark_data
WHERE result_id IN (SELECT unnest($ids)) AND phase = 'measure'
GROUP BY result_id, launch
"""
DOUBTS = """
SELECT result_id, extra->'doubts' AS doubts
FROM benchmark_results
WHERE result_id IN (SELECT unnest($ids)) AND len(doubts) > 0
"""
HISTORY = """
SELECT member.series_id, session_id, max(coalesce(git_commit_time, started_at)) AS time,
    exp(avg(ln({metric}))) AS value
FROM (
    SELECT s.series_id AS own_id, coalesce(alias.canonical_series_id, s.series_id) AS series_id
    FROM series s LEFT JOIN series_alias alias ON alias.series_id = s.series_id
) member
JOIN benchmark_results r ON r.series_id = member.own_id
JOIN benchmark_runs run USING (run_id)
WHERE member.series_id IN (SELECT unnest($series)) AND r.status = 'ok' AND {metric} > 0
    AND coalesce(git_commit_time, started_at) <= $until
    AND validity IS DISTINCT FROM 'invalid' AND NOT list_contains(doubts, $unfit)
    AND result_id NOT IN (SELECT unnest($compared))
GROUP BY member.series_id, session_id
QUALIFY row_number() OVER (PARTITION BY member.series_id ORDER BY time DESC, session_id DESC) <= $most
ORDER BY member.series_id, time, session_id
"""
"""Not of the view all_results, whose other columns would be read too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What is only read of the results that are compared, by result_id."""

    values: Mapping[str, tuple[float, ...]]
    """Each launch's own value."""
    starts: Mapping[str, tuple[datetime, ...]]
    """When each launch began to measure."""
    doubts: Mapping[str, tuple[str, ...]]
    """Kinds, those that are only good to know left out."""
    scatter: Mapping[str, RunScatter]
    """By series_id; of series with history enough."""


def measured(warehouse: Warehouse, selection: Selection, metric: Metric) -> list[Measured]:
    """The results selected, oldest first."""
    rows = _selected(warehouse, selection, metric)
    series = _keys(warehouse, "series", "series_id", rows)
    hardware = _keys(warehouse, "hardware_info", "hardware_id", rows)
    return [
        _measured(
            row,
            keys_of(series[row["series_id"]], hardware[row["hardware_id"]], is_simulated=row["simulated"]),
            metric,
        )
        for row in rows
    ]


def _selected(warehouse: Warehouse, selection: Selection, metric: Metric) -> list[dict[str, Any]]:
    found = warehouse.query(SELECTED.format(condition=selection.condition), selection.values).dicts()
    if not found:
        return []
    # Values rather than a list: a comparison with values reaches the runs as well as their results.
    runs = {f"run_{i}": run_id for i, run_id in enumerate(sorted({row["run_id"] for row in found}))}
    marks = ", ".join(f"${name}" for name in runs)
    sql = RESULTS.format(metric=metric.column, runs=marks, unfit=UNFIT_DOUBT)
    return warehouse.query(sql, {**runs, "results": [row["result_id"] for row in found]}).dicts()


def details(warehouse: Warehouse, results: Sequence[Measured], metric: Metric) -> Details:
    """The rest about results that are compared."""
    ids = sorted({result.result_id for result in results})
    values = {key: tuple(own.values()) for key, own in launch_values(warehouse, ids, metric).items()}
    single = {one.result_id: (one.value,) for one in results if one.value is not None}
    return Details(
        values={**single, **values},
        starts=_grouped(warehouse.query(STARTS, {"ids": ids}).dicts(), "result_id", "started_at"),
        doubts={row["result_id"]: _kinds(row["doubts"]) for row in warehouse.query(DOUBTS, {"ids": ids}).dicts()},
        scatter=_scatter(warehouse, results, metric),
    )


def _keys(warehouse: Warehouse, table: str, column: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, Keys]:
    """The hashed keys of each id in the rows."""
    ids = sorted({row[column] for row in rows})
    found = warehouse.query(KEYS.format(table=table, column=column), {"ids": ids}).dicts()
    return {row["id"]: json.loads(row["hashed_keys"]) for row in found}


def _measured(row: Mapping[str, Any], keys: Keys, metric: Metric) -> Measured:
    return Measured(
        result_id=row["result_id"],
        run_id=row["run_id"],
        series_id=row["series_id"],
        started_at=row["started_at"],
        history_time=row["history_time"],
        keys=keys,
        value=row["value"],
        validity=row["validity"],
        unfit=_unfit(row, metric),
        about={name: None if row[name] is None else str(row[name]) for name in ABOUT},
        versions=row["versions"],
    )


def _unfit(row: Mapping[str, Any], metric: Metric) -> str | None:
    """Why a result may not be compared, or None."""
    if row["status"] != "ok":
        return f"{row['status'].replace('_', ' ')}: {row['error']}"
    if row["validity"] == "invalid":
        kinds = [doubt["kind"] for doubt in json.loads(row["evidence"] or "[]") if doubt["severity"] == "invalid"]
        return f"invalid ({', '.join(kinds) or 'nobody says why'})"
    noisy, launches = _very_noisy_launches(row["evidence"], row["launches"]), row["launches"]
    if metric.samples is not None and noisy and noisy >= UNFIT_SHARE * launches:
        return f"very noisy in {noisy} of {launches} launch{'es' * (launches != 1)}"
    if row["value"] is None:
        return f"no {metric.column}: {row['why_missing'] or 'not measured'}"
    return None


def _very_noisy_launches(doubts: str | None, launches: int) -> int:
    """In how many launches the samples scattered too far; in all, where the doubt does not say in which."""
    told = [doubt["evidence"] for doubt in json.loads(doubts or "[]") if doubt["kind"] == UNFIT_DOUBT]
    return max((len(evidence.get("launches", range(launches))) for evidence in told), default=0)


def _grouped(rows: Iterable[Mapping[str, Any]], key: str, value: str) -> dict[str, tuple[Any, ...]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row[value])
    return {name: tuple(values) for name, values in found.items()}


def _kinds(doubts: str | None) -> tuple[str, ...]:
    return tuple(doubt["kind"] for doubt in json.loads(doubts or "[]") if doubt["severity"] != "info")


def _scatter(warehouse: Warehouse, results: Sequence[Measured], metric: Metric) -> dict[str, RunScatter]:
    """How much the runs of each series differ, from one value a session, those that are compared left out."""
    if not results:
        return {}
    parameters = {
        "series": sorted({result.series_id for result in results}),
        "compared": sorted({result.result_id for result in results}),
        "until": max(result.history_time for result in results),
        "unfit": UNFIT_DOUBT,
        "most": MAX_HISTORY_RUNS,
    }
    rows = warehouse.query(HISTORY.format(metric=metric.column), parameters).dicts()
    values = _grouped(rows, "series_id", "value")
    found = {series_id: run_scatter(own) for series_id, own in values.items()}
    return {series_id: scatter for series_id, scatter in found.items() if scatter is not None}
