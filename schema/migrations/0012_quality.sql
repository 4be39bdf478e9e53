-- Quality of the models of runs: how far their outputs are from those of the eager float32 model, and how well they
-- predict a text. One row per run and metric; it belongs to the loaded model, so all results of the run share it.

CREATE TABLE quality_results (
    run_id VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    value DOUBLE CHECK (isfinite(value)),
    low DOUBLE CHECK (isfinite(low)),
    high DOUBLE CHECK (isfinite(high)),
    unit VARCHAR NOT NULL,
    windows INTEGER CHECK (windows > 0),
    by_window DOUBLE[] NOT NULL,
    inputs VARCHAR NOT NULL,
    how JSON NOT NULL,
    missing VARCHAR,
    CHECK ((value IS NULL) = (missing IS NOT NULL))
);
COMMENT ON TABLE quality_results IS 'Quality of the models of runs, measured outside the timed calls: one row per run and metric.';
COMMENT ON COLUMN quality_results.run_id IS 'The run: benchmark_runs.run_id.';
COMMENT ON COLUMN quality_results.metric IS 'perplexity, perplexity_increase, kl_divergence, kl_divergence_p99, top1_agreement, embedding_cosine, embedding_rank_correlation, confidence_error, token_error_rate or latent_error.';
COMMENT ON COLUMN quality_results.value IS 'The value, in unit; NULL with the reason in missing.';
COMMENT ON COLUMN quality_results.low IS 'Lower end of the 95 % interval over windows; NULL with fewer than 5 windows.';
COMMENT ON COLUMN quality_results.high IS 'Upper end of the 95 % interval over windows; NULL with fewer than 5 windows.';
COMMENT ON COLUMN quality_results.unit IS 'Unit of value, low and high; empty for shares, cosines and ratios.';
COMMENT ON COLUMN quality_results.windows IS 'Windows of the text, or inputs, that were scored; NULL if nothing was.';
COMMENT ON COLUMN quality_results.by_window IS 'The value of each window, in order; empty for a metric without one.';
COMMENT ON COLUMN quality_results.inputs IS 'Digest of what was scored: equal for runs whose windows can be compared one by one; empty if nothing was.';
COMMENT ON COLUMN quality_results.how IS 'What was measured: source of the inputs, windows, context and scored tokens, stride, reference, seconds.';
COMMENT ON COLUMN quality_results.missing IS 'Why there is no value; NULL with one.';
