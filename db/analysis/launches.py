"""Each launch's own value of a metric: what is compared, since samples inside one launch are not independent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from db.analysis.metrics import Metric

if TYPE_CHECKING:
    from db.warehouse import Warehouse

SQL = """
SELECT result_id, launch, {value} AS value
FROM raw_benchmark_data
WHERE result_id IN (SELECT unnest($results)) AND phase = 'measure' AND metric = $metric AND {value} IS NOT NULL
ORDER BY result_id, launch
"""


def launch_values(warehouse: Warehouse, result_ids: Iterable[str], metric: Metric) -> dict[str, dict[int, float]]:
    """result_id -> launch -> the launch's value, in the metric's unit; a result without raw samples of it is not there.

    A p99 is there only for launches with samples enough for one (299). Empty for a metric with one value a result.
    """
    if metric.samples is None:
        return {}
    rows = warehouse.query(
        SQL.format(value=metric.statistic), {"results": list(result_ids), "metric": metric.samples}
    ).dicts()
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        found.setdefault(row["result_id"], {})[row["launch"]] = row["value"]
    return found
