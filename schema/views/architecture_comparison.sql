CREATE OR REPLACE VIEW architecture_comparison AS
WITH chosen AS (
    SELECT r.*, run.model_id, run.parameter_count, run.architecture_type, run.task, run.weights, run.runtime,
        run.precision, run.hardware_id
    FROM benchmark_results r
    JOIN benchmark_runs run USING (run_id)
    LEFT JOIN series_alias alias ON alias.series_id = r.series_id
    WHERE r.status = 'ok' AND r.validity <> 'invalid'
    QUALIFY row_number() OVER (
        PARTITION BY coalesce(alias.canonical_series_id, r.series_id)
        ORDER BY r.validity = 'valid' DESC, run.started_at DESC, r.result_id DESC
    ) = 1
)
SELECT
    r.architecture_type,
    r.task,
    r.batch_size,
    r.sequence_length,
    r.new_tokens,
    any_value(hardware.device_name) AS device_name,
    r.runtime,
    r.precision,
    r.weights,
    count(DISTINCT r.model_id) AS models_count,
    median(r.latency_median_ms) AS latency_median_ms,
    min(r.latency_median_ms) AS latency_fastest_ms,
    max(r.latency_median_ms) AS latency_slowest_ms,
    median(r.latency_median_ms / (r.parameter_count / 1e6)) AS latency_per_million_parameters_ms,
    median(r.throughput_samples_per_sec) AS throughput_samples_per_sec,
    median(r.throughput_tokens_per_sec) AS throughput_tokens_per_sec,
    median(r.time_to_first_token_ms) AS time_to_first_token_ms,
    median(coalesce(
        r.memory_device_process_peak_mb,
        r.memory_device_reserved_peak_mb,
        r.memory_device_allocated_peak_mb,
        r.memory_peak_rss_infer_mb
    )) AS memory_peak_mb,
    count(*) FILTER (WHERE r.validity <> 'valid') AS doubtful_count,
    list(DISTINCT r.model_id ORDER BY r.model_id) AS models,
    r.concurrency,
    r.axes,
    any_value(hardware.device_type) AS device_type,
    any_value(hardware.simulated) AS simulated,
    r.hardware_id
FROM chosen r
JOIN hardware_info hardware USING (hardware_id)
GROUP BY r.architecture_type, r.task, r.batch_size, r.sequence_length, r.new_tokens, r.concurrency, r.axes,
    r.runtime, r.precision, r.weights, r.hardware_id
ORDER BY r.batch_size, r.sequence_length, r.new_tokens, device_name, r.runtime, r.precision, r.weights,
    r.architecture_type, r.task;

COMMENT ON VIEW architecture_comparison IS 'Each architecture family and task at each point on each hardware, runtime, precision and kind of weights: medians over its models'' latest valid results.';
COMMENT ON COLUMN architecture_comparison.models_count IS 'Models the row speaks of.';
COMMENT ON COLUMN architecture_comparison.models IS 'Their names.';
COMMENT ON COLUMN architecture_comparison.latency_median_ms IS 'Median over the models'' series of their median latency in ms.';
COMMENT ON COLUMN architecture_comparison.latency_fastest_ms IS 'Lowest of these median latencies in ms.';
COMMENT ON COLUMN architecture_comparison.latency_slowest_ms IS 'Highest of these median latencies in ms.';
COMMENT ON COLUMN architecture_comparison.latency_per_million_parameters_ms IS 'Median latency in ms over millions of parameters, median over the series.';
COMMENT ON COLUMN architecture_comparison.memory_peak_mb IS 'Peak memory in MB (10^6 bytes): of the device where it was read, else resident memory of the process.';
COMMENT ON COLUMN architecture_comparison.doubtful_count IS 'Series among them with no valid result, whose latest noisy or throttled one was taken.';
COMMENT ON COLUMN architecture_comparison.throughput_samples_per_sec IS 'Median over the series of the items per second.';
COMMENT ON COLUMN architecture_comparison.throughput_tokens_per_sec IS 'Median over the series of the tokens per second.';
COMMENT ON COLUMN architecture_comparison.time_to_first_token_ms IS 'Median over the series of the time to the first token in ms.';
