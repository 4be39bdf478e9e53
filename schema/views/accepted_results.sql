-- The result of each series that comparisons use: the latest valid one, or else the latest noisy or throttled one with
-- its doubts. Invalid results (wrong outputs) are never compared. Views are created in name order, so views that read
-- this one come after it.
--
-- A condition on model_id filters the few rows of series_heads, and only the results that they point to are read. This
-- keeps queries about one model fast in a warehouse of a million results.
CREATE OR REPLACE VIEW accepted_results AS
SELECT r.* EXCLUDE (series_id), head.model_id, head.series_id
FROM (
    SELECT coalesce(alias.canonical_series_id, h.series_id) AS series_id, h.model_id, h.accepted_result_id
    FROM series_heads h
    LEFT JOIN series_alias alias ON alias.series_id = h.series_id
    WHERE h.accepted_result_id IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY coalesce(alias.canonical_series_id, h.series_id)
        ORDER BY h.accepted_is_valid DESC, h.accepted_started_at DESC, h.accepted_result_id DESC
    ) = 1
) head
JOIN benchmark_results r ON r.result_id = head.accepted_result_id;

COMMENT ON VIEW accepted_results IS 'The latest valid result of every series, or its latest noisy or throttled result if it has no valid one.';
COMMENT ON COLUMN accepted_results.series_id IS 'The series, after applying its alias in series_alias.';
