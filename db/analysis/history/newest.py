"""The newest result of each series, with the trend of the series."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import POINT_COLUMNS
from benchmarking.core.metrics import DEFAULT_METRIC, PEAK_MEMORY, Metric
from db.analysis.history.changes import FIT_RESULTS
from db.analysis.selection import Selection, judged_value
from db.analysis.settings import SETTINGS, settings_words

if TYPE_CHECKING:
    from db.warehouse import Warehouse

SUBJECTS = ("model_id", "device_name", "device", "runtime", "precision", "num_threads")
STATE = ("started_at", "run_id", "status", "error", "validity", "doubts")
RATES = ("throughput_tokens_per_sec", "throughput_samples_per_sec")
SETTING_COLUMNS = ("weights", "cpu_list")
"""Further columns that distinguish rows of the same subject."""
TREND_RUNS = 200
"""Maximum runs in a trend, the newest ones."""
NEWEST = """
SELECT arg_max(result_id, (started_at, result_id)) AS result_id, count(*) OVER () AS series_count
FROM all_results WHERE {condition}
GROUP BY series_id ORDER BY max(started_at) DESC, series_id LIMIT ?
"""
RESULTS = """
SELECT series_id, result_id, {columns} FROM all_results WHERE result_id IN (SELECT unnest(?::VARCHAR[]))
ORDER BY started_at DESC, model_id, device, runtime, precision, batch_size, sequence_length, result_id
"""
TRENDS = f"""
WITH newest AS (
    SELECT series_id, history_time, started_at, {{value}} AS value FROM all_results
    WHERE {FIT_RESULTS} AND series_id IN (SELECT unnest(?::VARCHAR[]))
    QUALIFY row_number() OVER (PARTITION BY series_id ORDER BY history_time DESC, started_at DESC) <= {TREND_RUNS}
)
SELECT series_id, list(value ORDER BY history_time, started_at) AS trend FROM newest GROUP BY series_id
"""


def newest_results(
    warehouse: Warehouse, selection: Selection, metric: Metric, *, limit: int
) -> tuple[list[dict[str, Any]], int]:
    """The newest selected result of at most `limit` series, newest first, and the total number of such series.

    In each row, `trend` has the values of the series' valid and noisy results up to the newest selected one, oldest
    first, and `settings` has what distinguishes it from other rows of its model, device, runtime and precision.
    """
    heads = warehouse.query(NEWEST.format(condition=selection.condition), [*selection.values, limit]).dicts()
    named = (*SUBJECTS, "runtime_mode", *SETTING_COLUMNS, *POINT_COLUMNS, *STATE, DEFAULT_METRIC, *RATES, *PEAK_MEMORY)
    columns = [*named, f"{judged_value(metric)} AS {metric.column}" if metric.source == "custom" else metric.column]
    sql = RESULTS.format(columns=", ".join(dict.fromkeys(columns)))
    rows = warehouse.query(sql, [[head["result_id"] for head in heads]]).dicts()
    trends = warehouse.query(TRENDS.format(value=judged_value(metric)), [[row["series_id"] for row in rows]]).dicts()
    values = {row["series_id"]: row["trend"] for row in trends}
    count = heads[0]["series_count"] if heads else 0
    settings = settings_words(rows, SETTING_COLUMNS)
    found = [
        {**row, SETTINGS: words, "trend": values.get(row["series_id"], [])}
        for row, words in zip(rows, settings, strict=True)
    ]
    return found, count
