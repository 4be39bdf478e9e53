-- A database may have the samples of one launch and only the quantiles of another: this view shows both alike.
CREATE OR REPLACE VIEW raw_quantiles AS
SELECT
    result_id,
    launch,
    phase,
    metric,
    (generate_subscripts(quantiles, 1) - 1) / (len(quantiles) - 1) AS quantile,
    unnest(quantiles) AS value,
    unit,
    inner_loops,
    sample_count,
    compacted_at
FROM (
    SELECT *, coalesce(sketch, list_aggregate(samples, 'quantile_cont', [
        0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1
    ])) AS quantiles
    FROM raw_benchmark_data
);

COMMENT ON VIEW raw_quantiles IS 'The distribution of every launch''s samples, one row per 5 % quantile: computed from the samples or, if they were compacted, taken from the stored quantiles.';
COMMENT ON COLUMN raw_quantiles.quantile IS 'Share of samples not above the value: 0 for the minimum, 0.5 for the median, 1 for the maximum.';
COMMENT ON COLUMN raw_quantiles.value IS 'The quantile by linear interpolation, in the unit of the row.';
COMMENT ON COLUMN raw_quantiles.compacted_at IS 'When the samples were replaced with quantiles, UTC; NULL while they are stored.';
