-- If a model has several series at a point (revisions, attention, threads), one of them counts: valid ones are preferred,
-- then the default attention and cache of most models, then the newest.
CREATE OR REPLACE VIEW architecture_comparison AS
WITH chosen AS (
    SELECT r.*, run.model_id, run.parameter_count, run.architecture_type, run.task, run.weights, run.runtime,
        run.precision, run.hardware_id, run.origin_definition, run.is_simulated, run.runtime_mode->>'scenario' AS scenario,
        coalesce(r.active_parameter_count, run.parameter_count) AS working_parameters
    FROM accepted_results r
    JOIN benchmark_runs run USING (run_id)
    WHERE (run.runtime_mode->>'loop') IS NULL
    QUALIFY row_number() OVER (
        PARTITION BY run.model_id, run.config_hash, run.architecture_type, run.task, run.weights, run.runtime, run.precision,
            run.hardware_id, run.origin_definition, run.is_simulated, scenario, r.batch_size, r.sequence_length,
            r.new_tokens, r.concurrency, r.axes
        ORDER BY r.validity = 'valid' DESC, coalesce(run.runtime_mode->>'attention', 'sdpa') = 'sdpa' DESC,
            coalesce(run.runtime_mode->>'cache', 'dynamic') = 'dynamic' DESC, run.started_at DESC, r.result_id DESC
    ) = 1
)
SELECT
    r.architecture_type,
    r.task,
    r.batch_size,
    r.sequence_length,
    r.new_tokens,
    r.image_size,
    r.audio_seconds,
    r.steps,
    r.documents,
    r.top_k,
    any_value(hardware.device_name) AS device_name,
    r.runtime,
    r.precision,
    r.weights,
    count(DISTINCT r.model_id) AS models_count,
    median(r.latency_median_ms) AS latency_median_ms,
    min(r.latency_median_ms) AS latency_fastest_ms,
    max(r.latency_median_ms) AS latency_slowest_ms,
    median(r.latency_median_ms / (r.working_parameters / 1e6)) AS latency_per_million_parameters_ms,
    median(r.throughput_samples_per_sec) AS throughput_samples_per_sec,
    median(r.throughput_tokens_per_sec) AS throughput_tokens_per_sec,
    median(r.time_to_first_token_ms) AS time_to_first_token_ms,
    median(r.time_per_output_token_ms) AS time_per_output_token_ms,
    median(r.retrieve_ms) AS retrieve_ms,
    median(r.image_encode_ms) AS image_encode_ms,
    median(r.encode_ms) AS encode_ms,
    median(r.prefill_ms) AS prefill_ms,
    median(r.decode_ms) AS decode_ms,
    median(r.step_ms) AS step_ms,
    median(r.real_time_factor) AS real_time_factor,
    median(r.achieved_flops_per_sec) AS achieved_flops_per_sec,
    median(coalesce(
        nullif(r.memory_device_process_peak_mb, 0),
        nullif(r.memory_device_reserved_peak_mb, 0),
        nullif(r.memory_device_allocated_peak_mb, 0),
        nullif(r.memory_peak_rss_infer_mb, 0)
    )) AS memory_peak_mb,
    count(*) FILTER (WHERE r.validity <> 'valid') AS doubtful_count,
    list(DISTINCT r.model_id ORDER BY r.model_id) AS models,
    r.concurrency,
    r.axes,
    any_value(hardware.device_type) AS device_type,
    r.is_simulated AS simulated,
    r.hardware_id,
    r.origin_definition,
    r.scenario
FROM chosen r
JOIN hardware_info hardware USING (hardware_id)
GROUP BY r.architecture_type, r.task, r.batch_size, r.sequence_length, r.new_tokens, r.image_size, r.audio_seconds,
    r.steps, r.documents, r.top_k, r.concurrency, r.axes, r.runtime, r.precision, r.weights, r.hardware_id,
    r.origin_definition, r.is_simulated, r.scenario
ORDER BY r.batch_size, r.sequence_length, r.new_tokens, r.image_size, r.audio_seconds, r.steps, r.documents, r.top_k,
    r.is_simulated, device_name, r.runtime, r.precision, r.weights, r.architecture_type, r.task, r.origin_definition, r.scenario;

COMMENT ON VIEW architecture_comparison IS 'Each architecture family and task at each point on each hardware, runtime, precision, kind of weights and definition of the metrics: medians over the latest valid results of its models, one a model and configuration, without load tests. Items and calls differ between families: compare only rows of one task, since latency covers different work across tasks.';
COMMENT ON COLUMN architecture_comparison.models_count IS 'Number of models in the row.';
COMMENT ON COLUMN architecture_comparison.models IS 'Names of these models.';
COMMENT ON COLUMN architecture_comparison.latency_median_ms IS 'Median of the models'' median latencies in ms.';
COMMENT ON COLUMN architecture_comparison.latency_fastest_ms IS 'Lowest of these median latencies in ms.';
COMMENT ON COLUMN architecture_comparison.latency_slowest_ms IS 'Highest of these median latencies in ms.';
COMMENT ON COLUMN architecture_comparison.latency_per_million_parameters_ms IS 'Median latency in ms per million parameters used for a token (for a mixture of experts, the active ones), median over the models.';
COMMENT ON COLUMN architecture_comparison.memory_peak_mb IS 'Peak memory in MB (10^6 bytes): of the device if measured, else resident memory of the process; a 0 was not measured.';
COMMENT ON COLUMN architecture_comparison.doubtful_count IS 'Number of models without a valid result, whose latest noisy or throttled result was used.';
COMMENT ON COLUMN architecture_comparison.throughput_samples_per_sec IS 'Median over the models of items per second: images for vision and diffusion, clips for speech, otherwise sequences.';
COMMENT ON COLUMN architecture_comparison.throughput_tokens_per_sec IS 'Median over the models of tokens per second.';
COMMENT ON COLUMN architecture_comparison.time_to_first_token_ms IS 'Median over the models of the time to first token in ms.';
COMMENT ON COLUMN architecture_comparison.time_per_output_token_ms IS 'Median over the models of the mean time per token after the first in ms.';
COMMENT ON COLUMN architecture_comparison.retrieve_ms IS 'Median over the models of the retrieval time in ms.';
COMMENT ON COLUMN architecture_comparison.image_encode_ms IS 'Median over the models of the time in the image encoder in ms.';
COMMENT ON COLUMN architecture_comparison.encode_ms IS 'Median over the models of the time in the encoder in ms.';
COMMENT ON COLUMN architecture_comparison.prefill_ms IS 'Median over the models of the prefill time in ms.';
COMMENT ON COLUMN architecture_comparison.decode_ms IS 'Median over the models of the time from the first token to the last in ms.';
COMMENT ON COLUMN architecture_comparison.step_ms IS 'Median over the models of the time of a denoising step in ms.';
COMMENT ON COLUMN architecture_comparison.real_time_factor IS 'Median over the models of latency per second of audio: below 1 is faster than real time.';
COMMENT ON COLUMN architecture_comparison.achieved_flops_per_sec IS 'Median over the models of floating-point operations per second.';
COMMENT ON COLUMN architecture_comparison.scenario IS 'MLPerf''s scenario, whose tests measure different things; NULL for other results.';
COMMENT ON COLUMN architecture_comparison.simulated IS 'True for an emulator, a software adapter or a scripted device, whose numbers are never ranked.';
