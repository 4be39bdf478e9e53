CREATE OR REPLACE VIEW raw_samples AS
SELECT
    result_id,
    launch,
    phase,
    metric,
    generate_subscripts(samples, 1) - 1 AS sample_index,
    unnest(samples) AS value,
    unit,
    inner_loops,
    started_at
FROM raw_benchmark_data;

COMMENT ON VIEW raw_samples IS 'One row per raw sample. Sort by sample_index to get the samples of a result, launch, phase and metric in order of measurement.';
COMMENT ON COLUMN raw_samples.sample_index IS 'Place among the samples of the same result, launch, phase and metric, from 0.';
COMMENT ON COLUMN raw_samples.value IS 'The sample, in the unit of the row.';
COMMENT ON COLUMN raw_samples.started_at IS 'When the first sample of the same result, launch, phase and metric was taken, UTC.';
