CREATE OR REPLACE VIEW latest_results AS
SELECT
    head.model_id,
    run.model_revision,
    run.architecture_type,
    run.task,
    run.weights,
    hardware.device_type,
    hardware.device_name,
    run.device,
    run.runtime,
    run.runtime_mode,
    run.precision,
    run.num_threads,
    run.cpu_list,
    r.* EXCLUDE (series_id, run_id, result_id),
    run.load_time_s,
    quality.* EXCLUDE (run_id),
    run.parameter_count,
    run.started_at,
    run.git_commit,
    run.versions,
    run.tags,
    run.host,
    run.is_simulated AS simulated,
    run.hardware_id,
    head.series_id,
    r.run_id,
    r.result_id
FROM (
    SELECT coalesce(alias.canonical_series_id, h.series_id) AS series_id, h.model_id, h.latest_result_id
    FROM series_heads h
    LEFT JOIN series_alias alias ON alias.series_id = h.series_id
    QUALIFY row_number() OVER (
        PARTITION BY coalesce(alias.canonical_series_id, h.series_id)
        ORDER BY h.latest_started_at DESC, h.latest_result_id DESC
    ) = 1
) head
JOIN benchmark_results r ON r.result_id = head.latest_result_id
JOIN benchmark_runs run USING (run_id)
JOIN hardware_info hardware USING (hardware_id)
LEFT JOIN all_quality quality USING (run_id)
ORDER BY head.model_id, run.device, run.runtime, run.precision, r.batch_size, r.sequence_length, r.new_tokens, r.image_size,
    r.audio_seconds, r.steps, r.documents, r.top_k, head.series_id;

COMMENT ON VIEW latest_results IS 'The newest result of every series, with any status, and its run.';
COMMENT ON COLUMN latest_results.simulated IS 'True for an emulator, a software adapter or a scripted device, whose numbers are never ranked.';
