"""The checks on what is stored: each a query that gives a `subject` and a `problem` for every row that is at fault."""

from __future__ import annotations

from benchmarking.core.axes import FURTHER
from db import calibration, heads

REFERENCES = (
    # table, its key, column, table it refers to, column there
    ("benchmark_runs", "run_id", "hardware_id", "hardware_info", "hardware_id"),
    ("benchmark_results", "result_id", "run_id", "benchmark_runs", "run_id"),
    ("benchmark_results", "result_id", "series_id", "series", "series_id"),
    ("raw_benchmark_data", "result_id", "result_id", "benchmark_results", "result_id"),
    ("series", "series_id", "hardware_id", "hardware_info", "hardware_id"),
    ("series_alias", "series_id", "canonical_series_id", "series", "series_id"),
    ("change_points", "change_point_id", "series_id", "series", "series_id"),
    ("change_points", "change_point_id", "result_id", "benchmark_results", "result_id"),
    ("change_points", "change_point_id", "last_good_result_id", "benchmark_results", "result_id"),
    ("hardware_info", "hardware_id", "calibration_run_id", "benchmark_runs", "run_id"),
    ("alerts", "alert_id", "series_id", "series", "series_id"),
    ("alerts", "alert_id", "change_point_id", "change_points", "change_point_id"),
    ("alerts", "alert_id", "result_id", "benchmark_results", "result_id"),
    ("alerts", "alert_id", "confirmed_by", "benchmark_results", "result_id"),
)

KEYS = (
    ("hardware_info", "hardware_id", "TRUE"),
    ("benchmark_runs", "run_id", "TRUE"),
    ("benchmark_runs", "source_sha256", "origin_format IS NULL"),  # another tool's file may hold many runs
    ("benchmark_results", "result_id", "TRUE"),
    ("raw_benchmark_data", "result_id, launch, phase, metric", "TRUE"),
    ("series", "series_id", "TRUE"),
)
"""Columns that name a row, and of which rows; checked by reading all of them, since an index may be what is broken."""

ANNOTATED = (
    ("run", "benchmark_runs", "run_id"),
    ("result", "benchmark_results", "result_id"),
    ("series", "series", "series_id"),
    ("hardware", "hardware_info", "hardware_id"),
    ("alert", "alerts", "alert_id"),
)

RAW_COUNTS = """
WITH counted AS (
    SELECT result_id, sum(CASE WHEN compacted_at IS NULL THEN len(samples) ELSE sample_count END) AS samples,
        count(DISTINCT launch) AS launches
    FROM raw_benchmark_data WHERE phase = 'measure' AND metric = 'latency_wall' GROUP BY result_id
)
SELECT result_id AS subject, format(
    'result {}: {} iterations in {} launches, but {} raw samples in {}',
    result_id, r.iterations, r.launches, coalesce(counted.samples, 0)::BIGINT, coalesce(counted.launches, 0)
) AS problem
FROM benchmark_results r JOIN benchmark_runs run USING (run_id) LEFT JOIN counted USING (result_id)
WHERE (run.origin_format IS NULL OR counted.samples IS NOT NULL)  -- other tools often keep no samples
    AND (r.iterations <> coalesce(counted.samples, 0)
        OR (r.status = 'ok' AND r.launches <> coalesce(counted.launches, 0)))
ORDER BY result_id
"""

RAW_STATISTICS = """
WITH seen AS (
    SELECT result_id, launch, phase, metric, compacted_at IS NOT NULL AS is_compacted, samples, sketch, sample_count,
        mean, median, p99,
        CASE WHEN is_compacted THEN sample_count ELSE len(samples) END AS seen_count,
        CASE WHEN is_compacted THEN mean ELSE list_avg(samples) END AS seen_mean,
        CASE WHEN is_compacted THEN sketch[len(sketch) // 2 + 1] ELSE list_median(samples) END AS seen_median,
        CASE WHEN is_compacted THEN p99 ELSE list_aggregate(samples, 'quantile_cont', 0.99) END AS seen_p99
    FROM raw_benchmark_data
)
SELECT result_id AS subject,
    format('raw samples of result {}, launch {}, {} {} ', result_id, launch, phase, metric) || list_filter([
        CASE WHEN is_compacted AND len(samples) > 0 THEN 'were compacted, but are there' END,
        CASE WHEN NOT is_compacted AND sketch IS NOT NULL THEN 'have quantiles, but were not compacted' END,
        CASE WHEN is_compacted AND coalesce(len(sketch), 0) < 2 THEN 'were compacted, but have no quantiles' END,
        CASE WHEN NOT isfinite(list_sum(sketch)) OR sketch <> list_sort(sketch)
            THEN 'have quantiles that are not in order' END,
        CASE WHEN sketch[1] > mean OR sketch[-1] < mean OR sketch[1] > p99 OR sketch[-1] < p99
            THEN 'have a mean or p99 beyond their least or greatest' END,
        CASE WHEN sample_count IS DISTINCT FROM seen_count
            THEN format('are {}, but {} are told', seen_count, coalesce(sample_count::VARCHAR, 'none')) END,
        CASE WHEN abs(mean - seen_mean) > 1e-9 * abs(mean) OR (mean IS NULL) <> (seen_mean IS NULL)
            THEN 'do not come to their mean' END,
        CASE WHEN abs(median - seen_median) > 1e-9 * abs(median) OR (median IS NULL) <> (seen_median IS NULL)
            THEN 'do not come to their median' END,
        CASE WHEN abs(p99 - seen_p99) > 1e-9 * abs(p99) THEN 'do not come to their p99' END
    ], lambda text: text IS NOT NULL)[1] AS problem
FROM seen
WHERE problem IS NOT NULL
ORDER BY ALL
"""

MISSING_VALUES = """
SELECT result_id AS subject, 'result ' || result_id || ': ' || unnest(list_filter([
    CASE WHEN status = 'ok' AND validity IS NULL THEN 'is ok but has no validity' END,
    CASE WHEN status = 'ok' AND launches = 0 THEN 'is ok but no launch measured it' END,
    CASE WHEN status = 'ok' AND latency_median_ms IS NULL AND missing['latency_median_ms'] IS NULL
        THEN 'is ok but has neither a median latency nor a reason for it' END,
    CASE WHEN status <> 'ok' AND error IS NULL THEN 'is ' || status || ' but does not say why' END,
    CASE WHEN status <> 'ok' AND validity IS NOT NULL THEN 'is ' || status || ' but has a validity' END
], lambda text: text IS NOT NULL)) AS problem
FROM benchmark_results
ORDER BY ALL
"""

SERIES = """
SELECT result_id AS subject, 'result ' || result_id || ' is not what its series ' || series_id || ' is of' AS problem
FROM benchmark_results r
JOIN benchmark_runs run USING (run_id)
JOIN series s USING (series_id)
WHERE (r.batch_size, r.sequence_length, r.new_tokens, r.concurrency, r.axes, run.model_id, run.model_revision,
        run.weights, run.config_hash, run.task, run.architecture_type, run.runtime, run.runtime_mode, run.precision,
        run.num_threads, run.cpu_list, run.origin_definition, run.hardware_id)
    IS DISTINCT FROM (s.batch_size, s.sequence_length, s.new_tokens, s.concurrency, s.axes, s.model_id,
        s.model_revision, s.weights, s.config_hash, s.task, s.architecture_type, s.runtime, s.runtime_mode,
        s.precision, s.num_threads, s.cpu_list, s.definition, s.hardware_id)
ORDER BY result_id
"""

AXIS_COLUMNS = f"""
SELECT result_id AS subject,
    'result ' || result_id || ': its axes are ' || axes || ', but its columns say otherwise' AS problem
FROM benchmark_results
WHERE ({", ".join(FURTHER)}) IS DISTINCT FROM ({", ".join(f"TRY_CAST(axes->>'{name}' AS DOUBLE)" for name in FURTHER)})
ORDER BY result_id
"""

CALIBRATION = f"""
SELECT hardware_id AS subject,
    'hardware_info: ' || hardware_id || ' is not as its calibration runs measured it' AS problem
FROM hardware_info h LEFT JOIN ({calibration.NEWEST}) n USING (hardware_id)
WHERE (h.peak_flops, h.peak_copy_bytes_per_sec, h.calibrated_at, h.calibration_run_id)
    IS DISTINCT FROM (n.peak_flops, n.peak_copy_bytes_per_sec, n.calibrated_at, n.calibration_run_id)
ORDER BY hardware_id
"""

CHANGE_POINTS = """
SELECT change_point_id AS subject,
    'change_points: ' || change_point_id || ' is not of the runs and series of its results' AS problem
FROM change_points c
JOIN benchmark_results r USING (result_id)
LEFT JOIN benchmark_results good ON good.result_id = c.last_good_result_id
WHERE c.series_id <> r.series_id OR c.run_id <> r.run_id OR c.last_good_run_id <> good.run_id
ORDER BY change_point_id
"""

ALIASES = """
SELECT a.series_id AS subject, 'series ' || a.series_id || ' is read as one that is an alias itself' AS problem
FROM series_alias a JOIN series_alias b ON b.series_id = a.canonical_series_id
ORDER BY a.series_id
"""


def _orphans(table: str, key: str, column: str, other: str, other_column: str) -> str:
    return f"""
        SELECT DISTINCT {key} AS subject, '{table}: ' || {key} || ' refers to {column} ' || {column}
            || ', which is not in {other}' AS problem
        FROM {table} WHERE {column} IS NOT NULL AND {column} NOT IN (SELECT {other_column} FROM {other}) ORDER BY ALL
    """


def _duplicates(table: str, key: str, which: str) -> str:
    return f"""
        SELECT concat_ws(' ', {key}) AS subject,
            format('{table}: {{}} rows have {key} {{}}', count(*), concat_ws(' ', {key})) AS problem
        FROM {table} WHERE {key.split(",")[0]} IS NOT NULL AND {which} GROUP BY {key} HAVING count(*) > 1 ORDER BY ALL
    """


def _annotations(kind: str, table: str, key: str) -> str:
    return f"""
        SELECT annotation_id AS subject,
            'annotations: ' || annotation_id || ' is about {kind} ' || target_id || ', which is not there' AS problem
        FROM annotations WHERE target_kind = '{kind}' AND target_id NOT IN (SELECT {key} FROM {table}) ORDER BY ALL
    """


HEAD_COLUMNS = """series_id, model_id, latest_result_id, latest_started_at, accepted_result_id, accepted_started_at,
        accepted_is_valid"""
HEADS = f"""
SELECT DISTINCT series_id AS subject,
    'series_heads: the results that stand for ' || series_id || ' are not those that its results make' AS problem
FROM (
    (SELECT {HEAD_COLUMNS} FROM ({heads.COMPUTED}) EXCEPT SELECT {HEAD_COLUMNS} FROM series_heads)
    UNION
    (SELECT {HEAD_COLUMNS} FROM series_heads EXCEPT SELECT {HEAD_COLUMNS} FROM ({heads.COMPUTED}))
)
ORDER BY ALL
"""

CHECKS: tuple[tuple[str, str], ...] = (
    *(("orphan", _orphans(*reference)) for reference in REFERENCES),
    *(("orphan", _annotations(*annotated)) for annotated in ANNOTATED),
    *(("duplicate", _duplicates(*key)) for key in KEYS),
    ("raw_count", RAW_COUNTS),
    ("raw_statistics", RAW_STATISTICS),
    ("missing_value", MISSING_VALUES),
    ("series", SERIES),
    ("series", ALIASES),
    ("change_point", CHANGE_POINTS),
    ("axes", AXIS_COLUMNS),
    ("calibration", CALIBRATION),
    ("heads", HEADS),
)
"""(kind of finding, query)."""
