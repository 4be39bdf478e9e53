-- Regressions. The levels come from the detector, and `benchhouse regressions` and `benchhouse history --update` store
-- them. There may be a million results, so only those with a changed custom metric are read, for unit and direction.
-- The direction of each metric is repeated here for SQL; a test compares it with the program's metrics.
CREATE OR REPLACE VIEW regressions AS
WITH metrics (metric, unit, better) AS (
    VALUES
        ('latency_median_ms', 'ms', 'lower'),
        ('latency_p90_ms', 'ms', 'lower'),
        ('latency_p95_ms', 'ms', 'lower'),
        ('latency_p99_ms', 'ms', 'lower'),
        ('latency_device_median_ms', 'ms', 'lower'),
        ('time_to_first_token_ms', 'ms', 'lower'),
        ('time_to_first_token_p90_ms', 'ms', 'lower'),
        ('time_to_first_token_p99_ms', 'ms', 'lower'),
        ('time_per_output_token_ms', 'ms', 'lower'),
        ('time_per_output_token_p90_ms', 'ms', 'lower'),
        ('time_per_output_token_p99_ms', 'ms', 'lower'),
        ('inter_token_latency_p50_ms', 'ms', 'lower'),
        ('inter_token_latency_p90_ms', 'ms', 'lower'),
        ('inter_token_latency_p99_ms', 'ms', 'lower'),
        ('tokenize_ms', 'ms', 'lower'),
        ('throughput_samples_per_sec', 'items/s', 'higher'),
        ('throughput_tokens_per_sec', 'tokens/s', 'higher'),
        ('first_call_ms', 'ms', 'lower'),
        ('load_time_s', 's', 'lower'),
        ('compile_s', 's', 'lower'),
        ('memory_peak_rss_infer_mb', 'MB', 'lower'),
        ('memory_device_allocated_peak_mb', 'MB', 'lower'),
        ('memory_device_process_peak_mb', 'MB', 'lower')
), own AS (
    SELECT c.metric, r.extra->'$.custom_metrics'->c.metric AS about
    FROM (SELECT metric, result_id FROM change_points ANTI JOIN metrics USING (metric)) c
    JOIN benchmark_results r USING (result_id)
), known AS (
    SELECT * FROM metrics
    UNION ALL
    SELECT metric, coalesce(min(about->>'unit'), '') AS unit, min(about->>'better') AS better
    FROM own
    WHERE about IS NOT NULL
    GROUP BY metric
    HAVING count(DISTINCT about) = 1 AND min(about->>'better') IN ('lower', 'higher')
), changes AS (
    SELECT
        c.* EXCLUDE (series_id),
        coalesce(alias.canonical_series_id, c.series_id) AS series_id,
        c.series_id AS own_series_id,
        known.unit,
        CASE known.better WHEN 'lower' THEN value_after / value_before ELSE value_before / value_after END AS times_worse,
        coalesce(run.git_commit_time, run.started_at) AS history_time,
        run.* EXCLUDE (run_id, status, error),
        last(value_after) OVER (
            PARTITION BY coalesce(alias.canonical_series_id, c.series_id), metric
            ORDER BY coalesce(run.git_commit_time, run.started_at), run.started_at, c.result_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        ) / value_before - 1 AS relative_change_now
    FROM change_points c
    JOIN known USING (metric)
    JOIN benchmark_runs run USING (run_id)
    LEFT JOIN series_alias alias ON alias.series_id = c.series_id
    WHERE c.state <> 'withdrawn'
)
SELECT
    changes.history_time,
    changes.model_id,
    changes.device,
    changes.runtime,
    changes.precision,
    series.batch_size,
    series.sequence_length,
    series.new_tokens,
    series.concurrency,
    series.axes,
    changes.metric,
    changes.unit,
    changes.value_before,
    changes.value_after,
    changes.relative_change,
    changes.times_worse,
    changes.relative_change_now,
    changes.state,
    changes.p_value,
    good.git_commit AS last_good_commit,
    changes.git_commit AS first_bad_commit,
    coalesce(good.git_commit_time, good.started_at) AS last_good_time,
    changes.started_at,
    hardware.device_name,
    changes.hardware_id,
    changes.git_branch,
    changes.session_id,
    changes.run_id,
    changes.result_id,
    changes.last_good_result_id,
    changes.series_id,
    changes.change_point_id,
    changes.detector,
    changes.detector_version,
    changes.detected_at
FROM changes
JOIN series ON series.series_id = changes.own_series_id
JOIN hardware_info hardware ON hardware.hardware_id = changes.hardware_id
LEFT JOIN benchmark_runs good ON good.run_id = changes.last_good_run_id
WHERE changes.times_worse > 1
ORDER BY changes.times_worse DESC, changes.history_time, changes.result_id;

COMMENT ON VIEW regressions IS 'Change points at which a metric of a series became worse, worst first; use history_time for a period, as in "since January".';
COMMENT ON COLUMN regressions.history_time IS 'Time of the first changed commit, or start of the first changed run without one, UTC.';
COMMENT ON COLUMN regressions.metric IS 'The column of benchmark_results that became worse, or the key in its other_metrics.';
COMMENT ON COLUMN regressions.unit IS 'Unit of value_before and value_after.';
COMMENT ON COLUMN regressions.value_before IS 'Median before the change, in the metric''s unit.';
COMMENT ON COLUMN regressions.value_after IS 'Median after the change, in the metric''s unit.';
COMMENT ON COLUMN regressions.relative_change IS 'value_after / value_before - 1.';
COMMENT ON COLUMN regressions.times_worse IS 'value_after / value_before, or the inverse if higher is better: always above 1.';
COMMENT ON COLUMN regressions.relative_change_now IS 'Level after the newest change of the series / value_before - 1: near 0 once it is fixed.';
COMMENT ON COLUMN regressions.state IS 'suspected until the change survives the next run, then confirmed.';
COMMENT ON COLUMN regressions.p_value IS 'p-value of the detector''s test.';
COMMENT ON COLUMN regressions.last_good_commit IS 'Commit of the last result before the likeliest place of the change; of a small change, the cause may be a few runs off.';
COMMENT ON COLUMN regressions.first_bad_commit IS 'Commit of the first changed result, if that is the place.';
COMMENT ON COLUMN regressions.last_good_time IS 'Time of the last good commit, or start of its run without one, UTC.';
COMMENT ON COLUMN regressions.result_id IS 'First changed result: benchmark_results.result_id.';
COMMENT ON COLUMN regressions.last_good_result_id IS 'Last result before the change: benchmark_results.result_id.';
COMMENT ON COLUMN regressions.series_id IS 'The series, after applying its alias in series_alias.';
COMMENT ON COLUMN regressions.change_point_id IS 'change_points.change_point_id.';
COMMENT ON COLUMN regressions.detector IS 'Name of the detector.';
COMMENT ON COLUMN regressions.detector_version IS 'Version of the detector.';
COMMENT ON COLUMN regressions.detected_at IS 'When it was found, UTC.';
