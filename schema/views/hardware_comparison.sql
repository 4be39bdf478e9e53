CREATE OR REPLACE VIEW hardware_comparison AS
SELECT
    r.model_id,
    r.batch_size,
    r.sequence_length,
    r.new_tokens,
    r.image_size,
    r.audio_seconds,
    r.steps,
    r.documents,
    r.top_k,
    hardware.device_name,
    run.runtime,
    run.precision,
    r.latency_median_ms,
    r.latency_ci_low_ms,
    r.latency_ci_high_ms,
    r.throughput_samples_per_sec,
    r.throughput_tokens_per_sec,
    r.time_to_first_token_ms,
    coalesce(
        nullif(r.memory_device_process_peak_mb, 0),
        nullif(r.memory_device_reserved_peak_mb, 0),
        nullif(r.memory_device_allocated_peak_mb, 0),
        nullif(r.memory_peak_rss_infer_mb, 0)
    ) AS memory_peak_mb,
    CASE WHEN NOT run.is_simulated THEN
        r.latency_median_ms / min(r.latency_median_ms) FILTER (WHERE NOT run.is_simulated) OVER (
            PARTITION BY r.model_id, run.model_revision, run.config_hash, run.weights, run.task, run.origin_definition,
                r.batch_size, r.sequence_length, r.new_tokens, r.concurrency, r.axes, run.runtime_mode->>'scenario'
        )
    END AS times_fastest,
    r.validity,
    r.doubts,
    r.ci_scope,
    r.launches,
    r.iterations,
    r.latency_p90_ms,
    r.time_per_output_token_ms,
    r.retrieve_ms,
    r.image_encode_ms,
    r.encode_ms,
    r.prefill_ms,
    r.decode_ms,
    r.step_ms,
    r.real_time_factor,
    r.flops,
    r.bytes_accessed,
    r.achieved_flops_per_sec,
    r.active_parameter_count,
    r.expert_load_imbalance,
    r.output_error,
    r.output_equal_token_share,
    quality.perplexity,
    quality.perplexity_increase,
    quality.kl_divergence,
    quality.kl_divergence_p99,
    quality.top1_agreement,
    quality.embedding_cosine,
    quality.embedding_rank_correlation,
    quality.confidence_error,
    quality.token_error_rate,
    quality.latent_error,
    quality.exact_match,
    quality.choice_accuracy,
    quality.task_accuracy,
    r.model_size_mb,
    r.compile_s,
    r.first_call_ms,
    r.tokenize_ms,
    r.total_ms,
    run.load_time_s,
    r.concurrency,
    r.axes,
    run.architecture_type,
    run.task,
    run.weights,
    run.model_revision,
    run.parameter_count,
    run.runtime_mode,
    run.num_threads,
    run.cpu_list,
    run.weight_dtypes,
    run.device,
    hardware.device_type,
    hardware.cpu_model,
    run.is_simulated AS simulated,
    run.started_at,
    run.hardware_id,
    r.series_id,
    run.run_id,
    r.result_id
FROM accepted_results r
JOIN benchmark_runs run USING (run_id)
JOIN hardware_info hardware USING (hardware_id)
LEFT JOIN all_quality quality USING (run_id)
WHERE (run.runtime_mode->>'loop') IS NULL
ORDER BY r.model_id, r.batch_size, r.sequence_length, r.new_tokens, r.image_size, r.audio_seconds, r.steps, r.documents,
    r.top_k, run.is_simulated, r.latency_median_ms, r.result_id;

COMMENT ON VIEW hardware_comparison IS 'Each model and point on each hardware, runtime and precision: the latest valid result of every series of calls, fastest first, simulators last. Load tests are in load_curve.';
COMMENT ON COLUMN hardware_comparison.memory_peak_mb IS 'Peak memory in MB (10^6 bytes): of the device if measured, else resident memory of the process; a 0 was not measured.';
COMMENT ON COLUMN hardware_comparison.throughput_samples_per_sec IS 'Items per second of wall time, averaged over the timed calls: images for vision and diffusion, clips for speech, otherwise sequences.';
COMMENT ON COLUMN hardware_comparison.times_fastest IS 'Median latency relative to the lowest one of the same model, revision and point (of MLPerf also scenario) on real hardware: 1 is the fastest; NULL for a simulator, which is never ranked.';
COMMENT ON COLUMN hardware_comparison.simulated IS 'True for an emulator, a software adapter or a scripted device, whose numbers are never ranked.';
