"""Each launch's own value of a metric: what is compared, since samples inside one launch are not independent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from benchmarking.units import BYTES_PER_MB
from db.analysis.metrics import Metric

if TYPE_CHECKING:
    from db.warehouse import Warehouse

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
    AND r.{column} IS NOT NULL
ORDER BY result_id, launch
"""
"""A result's rate is the median of its launches', so that what is done in a call need not be known."""
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

PATHS = {"first_call": "$.{name}", "reading": "$.metrics.{name}"}
"""Where a launch's single reading is in what is kept of the launch, by the metric's source."""


def launch_values(warehouse: Warehouse, result_ids: Iterable[str], metric: Metric) -> dict[str, dict[int, float]]:
    """result_id -> launch -> the launch's value, in the metric's unit; a result without such values is not there.

    A p99 is there only for launches with samples enough for one (299).
    """
    parameters: dict[str, object] = {"results": list(result_ids)}
    if metric.source == "load_time":
        sql = LOADS
    elif metric.source in PATHS:
        sql, parameters["path"] = READINGS, PATHS[metric.source].format(name=metric.of)
    else:
        is_rate = metric.statistic == "rate"
        sql = RATES.format(column=metric.column) if is_rate else STATISTICS.format(value=metric.statistic)
        parameters["metric"] = metric.of
    divisor = BYTES_PER_MB if metric.is_in_bytes else 1
    found: dict[str, dict[int, float]] = {}
    for row in warehouse.query(sql, parameters).dicts():
        found.setdefault(row["result_id"], {})[row["launch"]] = row["value"] / divisor
    return found
