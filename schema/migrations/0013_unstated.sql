-- What an imported file does not state is NULL: its timed calls and those before them were 0, its end was its start.
--
-- Imports that are stored: an end that is the start says nothing, nor do 0 timed calls of what was measured. 0 calls of
-- warm-up remain in the formats that can state them, since the file may have said so.

ALTER TABLE benchmark_results ALTER COLUMN iterations DROP NOT NULL;
ALTER TABLE benchmark_results ALTER COLUMN warmup_iterations DROP NOT NULL;
ALTER TABLE benchmark_runs ALTER COLUMN finished_at DROP NOT NULL;

UPDATE benchmark_results SET iterations = NULL
WHERE iterations = 0 AND status = 'ok' AND run_id IN (
    SELECT run_id FROM benchmark_runs WHERE origin_format IS NOT NULL
);
UPDATE benchmark_results SET warmup_iterations = NULL
WHERE warmup_iterations = 0 AND run_id IN (
    SELECT run_id FROM benchmark_runs
    WHERE origin_format IS NOT NULL AND origin_format NOT IN (
        'benchmark_duckdb', 'benchmark_scenarios', 'mlagility', 'onnxruntime_perf_test', 'openvino_llm_bench',
        'optimum_benchmark', 'pyperf', 'transformers_benchmark_v2', 'trtexec', 'vllm_bench_offline', 'vllm_printed'
    )
);
UPDATE benchmark_runs SET finished_at = NULL WHERE origin_format IS NOT NULL AND finished_at = started_at;

-- A slowdown that is wanted is a triage of its own. A CHECK cannot be changed: the table is made anew.

ALTER TABLE alerts RENAME TO old_alerts;
CREATE TABLE alerts (
    alert_id VARCHAR PRIMARY KEY,
    series_id VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    change_point_id VARCHAR,
    first_commit VARCHAR,
    last_commit VARCHAR,
    group_id VARCHAR,
    triage VARCHAR NOT NULL CHECK (
        triage IN ('new', 'regression', 'improvement', 'intended', 'method', 'hardware', 'noise')
    ),
    relative_change DOUBLE CHECK (isfinite(relative_change)),
    detector VARCHAR NOT NULL,
    detector_version VARCHAR NOT NULL,
    parameters JSON NOT NULL,
    created_at TIMESTAMP NOT NULL,
    updated_at TIMESTAMP NOT NULL,
    result_id VARCHAR,
    confirmed_by VARCHAR,
    note VARCHAR
);
INSERT INTO alerts BY NAME SELECT * FROM old_alerts;
DROP TABLE old_alerts;
COMMENT ON COLUMN alerts.alert_id IS 'UUIDv7 of the alert.';
COMMENT ON COLUMN alerts.series_id IS 'The series: series.series_id.';
COMMENT ON COLUMN alerts.metric IS 'The column of benchmark_results that changed.';
COMMENT ON COLUMN alerts.relative_change IS 'Size of the change as a fraction of the value before.';
COMMENT ON COLUMN alerts.detector IS 'Name of the detector.';
COMMENT ON COLUMN alerts.detector_version IS 'Version of the detector.';
COMMENT ON COLUMN alerts.parameters IS 'Parameters of the detector.';
COMMENT ON COLUMN alerts.created_at IS 'When it was raised, UTC.';
COMMENT ON COLUMN alerts.updated_at IS 'When its triage last changed, UTC.';
COMMENT ON COLUMN alerts.result_id IS 'The result that raised it: benchmark_results.result_id.';
