CREATE OR REPLACE VIEW all_measures_of_quality AS
SELECT *, run_id AS measured_by FROM quality_results
UNION ALL
SELECT quality.* REPLACE (speed.run_id AS run_id), quality.run_id AS measured_by
FROM quality_results quality
JOIN benchmark_runs evaluation ON evaluation.run_id = quality.run_id
JOIN benchmark_runs speed ON speed.model_id = evaluation.model_id
    AND coalesce(  -- commits of the model that are known and differ are two models
        speed.model_revision = evaluation.model_revision
        OR length(speed.model_revision) <> 40 OR length(evaluation.model_revision) <> 40, true
    )
    AND speed.precision = evaluation.precision
    AND (quality.how->>'$.evaluation.quantization') IS NOT DISTINCT FROM (speed.runtime_mode->>'quantization')
    AND coalesce(speed.runtime_mode->>'kv_cache_dtype', 'auto') = 'auto'
    AND replace(speed.runtime, '.', '') = replace(evaluation.runtime, '.', '')
WHERE quality.metric = 'task_accuracy' AND quality.value IS NOT NULL AND evaluation.task = 'evaluation'
    AND evaluation.precision <> 'unknown' AND evaluation.runtime NOT IN ('unknown', 'server')
    AND speed.task NOT IN ('evaluation', 'device-calibration') AND speed.weights <> 'random'
QUALIFY row_number() OVER (
    PARTITION BY speed.run_id, quality.metric ORDER BY evaluation.started_at DESC, evaluation.run_id DESC
) = 1;

COMMENT ON VIEW all_measures_of_quality IS 'The measures of quality of each run: its own, and the score of the newest imported evaluation of the same model, precision, quantization and engine.';
COMMENT ON COLUMN all_measures_of_quality.measured_by IS 'The run that measured it: the run itself, or an imported evaluation.';
COMMENT ON COLUMN all_measures_of_quality.metric IS 'The measure: a column of all_quality.';
COMMENT ON COLUMN all_measures_of_quality.unit IS 'Unit of value, low and high; empty for shares, cosines and ratios.';
COMMENT ON COLUMN all_measures_of_quality.missing IS 'Why there is no value; NULL with one.';
