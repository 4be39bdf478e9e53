CREATE OR REPLACE VIEW all_results AS
SELECT
    r.result_id,
    r.run_id,
    member.series_id,
    run.session_id,
    run.hardware_id,
    coalesce(run.git_commit_time, run.started_at) AS history_time,
    run.started_at,
    run.finished_at,
    run.model_id,
    run.model_revision,
    run.architecture_type,
    run.task,
    run.weights,
    run.config_hash,
    run.parameter_count,
    hardware.device_type,
    hardware.device_name,
    hardware.cpu_model,
    run.device,
    run.driver,
    run.runtime,
    run.runtime_mode,
    run.precision,
    run.num_threads,
    run.cpu_list,
    r.* EXCLUDE (series_id, run_id, result_id),
    run.load_time_s,
    quality.* EXCLUDE (run_id),
    run.git_commit,
    run.git_branch,
    run.git_dirty,
    run.git_commit_time,
    run.versions,
    run.tags,
    run.description,
    run.host,
    run.command,
    run.tool_version,
    run.is_simulated AS simulated,
    run.origin_format,
    run.origin_definition,
    run.source
FROM (
    SELECT series_id AS own_id, series_id FROM series ANTI JOIN series_alias USING (series_id)
    UNION ALL
    SELECT series_id AS own_id, canonical_series_id AS series_id FROM series_alias
) member  -- not coalesce(): this way a condition on series_id reaches the tables, and the optimizer expects few rows
JOIN benchmark_results r ON r.series_id = member.own_id
JOIN benchmark_runs run USING (run_id)
JOIN hardware_info hardware USING (hardware_id)
LEFT JOIN all_quality quality USING (run_id)
WHERE run.task <> 'device-calibration';

COMMENT ON VIEW all_results IS 'Every result, with any status, with its run and hardware; selections are conditions on this view.';
COMMENT ON COLUMN all_results.series_id IS 'The series, after applying its alias in series_alias.';
COMMENT ON COLUMN all_results.history_time IS 'Time of the commit, or start of the run without one, UTC: the order of the history.';
COMMENT ON COLUMN all_results.simulated IS 'True for an emulator, a software adapter or a scripted device, whose numbers are never ranked.';
