-- The result that stands for each series in comparisons. A series with no valid result is stood for by its latest noisy
-- or throttled one, with its doubts beside it; invalid results (wrong outputs) are never compared. Views are made in the
-- order of their names: those that read this one come after it.
CREATE OR REPLACE VIEW accepted_results AS
SELECT r.* EXCLUDE (series_id), coalesce(alias.canonical_series_id, r.series_id) AS series_id
FROM benchmark_results r
JOIN benchmark_runs run USING (run_id)
LEFT JOIN series_alias alias ON alias.series_id = r.series_id
WHERE r.status = 'ok' AND r.validity <> 'invalid' AND run.task <> 'device-calibration'
QUALIFY row_number() OVER (
    PARTITION BY coalesce(alias.canonical_series_id, r.series_id)
    ORDER BY r.validity = 'valid' DESC, run.started_at DESC, r.result_id DESC
) = 1;

COMMENT ON VIEW accepted_results IS 'The latest valid result of every series, or its latest noisy or throttled one where it has no valid result.';
COMMENT ON COLUMN accepted_results.series_id IS 'The series, followed through series_alias to the one it is read as.';
