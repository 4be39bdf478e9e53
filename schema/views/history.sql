-- The three columns of evidence are left out: a series measured over a year has rows in every part of the table, and
-- reading these columns for all of them takes longer than everything else. They are in benchmark_results, by result_id.
CREATE OR REPLACE VIEW history AS
SELECT
    member.series_id,
    row_number() OVER (
        PARTITION BY member.series_id
        ORDER BY coalesce(run.git_commit_time, run.started_at), run.started_at, r.result_id
    ) AS position,
    coalesce(run.git_commit_time, run.started_at) AS history_time,
    run.git_commit,
    run.git_branch,
    run.git_dirty,
    run.model_id,
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
    r.* EXCLUDE (series_id, run_id, result_id, extra, missing, other_metrics),
    run.load_time_s,
    run.parameter_count,
    run.started_at,
    run.versions,
    run.tags,
    run.host,
    run.is_simulated AS simulated,
    run.hardware_id,
    run.session_id,
    r.run_id,
    r.result_id
FROM (
    SELECT series_id AS own_id, series_id FROM series ANTI JOIN series_alias USING (series_id)
    UNION ALL
    SELECT series_id AS own_id, canonical_series_id AS series_id FROM series_alias
) member  -- not coalesce(): this way a condition on series_id reaches the tables, and the optimizer expects few rows
JOIN benchmark_results r ON r.series_id = member.own_id
JOIN benchmark_runs run USING (run_id)
JOIN hardware_info hardware USING (hardware_id)
WHERE r.status = 'ok'
ORDER BY member.series_id, position;

COMMENT ON VIEW history IS 'Every measured result of every series, in commit order (in run order without commits).';
COMMENT ON COLUMN history.position IS 'Place in the series, from 1.';
COMMENT ON COLUMN history.history_time IS 'Time of the commit, or start of the run without one, UTC: the order of the history.';
COMMENT ON COLUMN history.simulated IS 'True for an emulator, a software adapter or a scripted device, whose numbers are never ranked.';
