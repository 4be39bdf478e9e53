-- Compares each runtime of a model on one device with eager at float32: speedup, and difference of the outputs.
--
-- One device is one hardware_id, except for a CPU, which is the same device under torch, ONNX Runtime and OpenVINO:
-- there it is the machine, unless a file of another tool says what is known of it. Numbers of other definitions are
-- never compared, nor load tests with calls. If a point has several eager float32 series (attention, cache), valid ones are preferred,
-- then the default attention and cache of most models, then the newest.
--
-- Invalid and simulated results are shown but have no speedup, since they are never ranked. The interval of a ratio of
-- medians follows from their intervals: on a log scale, each half-width is the square root of the sum of squares of the
-- two half-widths that point the same way (Zou and Donner 2008, "MOVER").
CREATE OR REPLACE VIEW runtime_comparison AS
WITH shown AS (
    SELECT result_id FROM accepted_results
    UNION ALL
    SELECT result_id FROM latest_results
    WHERE series_id NOT IN (SELECT series_id FROM accepted_results) AND status = 'ok'
), placed AS (
    SELECT
        r.*, run.* EXCLUDE (run_id, status, error), hardware.device_type, hardware.device_name,
        CASE WHEN (hardware.device_type = 'cpu' OR run.device = 'openvino:CPU')
            AND (hardware.hashed_keys->>'imported') IS NULL THEN concat_ws(
            ' ', 'cpu', hardware.cpu_model, hardware.cpu_cores, hardware.cpu_threads,
            hardware.hashed_keys->>'numa_nodes', hardware.hashed_keys->>'memory_class_bytes'
        ) ELSE run.hardware_id END AS place,
        r.validity <> 'invalid' AND NOT run.is_simulated AS is_ranked
    FROM benchmark_results r
    JOIN benchmark_runs run USING (run_id)
    JOIN hardware_info hardware USING (hardware_id)
    WHERE r.result_id IN (SELECT result_id FROM shown) AND (run.runtime_mode->>'loop') IS NULL
), baseline AS (
    SELECT *
    FROM placed
    WHERE runtime = 'eager' AND precision = 'float32' AND is_ranked
    QUALIFY row_number() OVER (
        PARTITION BY model_id, model_revision, config_hash, weights, task, origin_definition, place, num_threads, cpu_list,
            batch_size, sequence_length, new_tokens, concurrency, axes
        ORDER BY validity = 'valid' DESC, coalesce(runtime_mode->>'attention', 'sdpa') = 'sdpa' DESC,
            coalesce(runtime_mode->>'cache', 'dynamic') = 'dynamic' DESC, started_at DESC, result_id DESC
    ) = 1
), compared AS (
    SELECT
        p.*, b.latency_median_ms AS baseline_latency_ms, b.validity AS baseline_validity,
        b.runtime_mode AS baseline_mode, b.result_id AS baseline_result_id,
        CASE WHEN p.is_ranked THEN b.latency_median_ms / nullif(p.latency_median_ms, 0) END AS speedup,
        ln(nullif(b.latency_median_ms, 0) / nullif(b.latency_ci_low_ms, 0)) AS baseline_down,
        ln(nullif(b.latency_ci_high_ms, 0) / nullif(b.latency_median_ms, 0)) AS baseline_up,
        ln(nullif(p.latency_median_ms, 0) / nullif(p.latency_ci_low_ms, 0)) AS own_down,
        ln(nullif(p.latency_ci_high_ms, 0) / nullif(p.latency_median_ms, 0)) AS own_up
    FROM placed p
    LEFT JOIN baseline b ON (p.model_id, p.model_revision, p.config_hash, p.weights, p.task, p.origin_definition,
            p.place, p.num_threads, p.cpu_list, p.batch_size, p.sequence_length, p.new_tokens, p.concurrency, p.axes)
        IS NOT DISTINCT FROM (b.model_id, b.model_revision, b.config_hash, b.weights, b.task, b.origin_definition,
            b.place, b.num_threads, b.cpu_list, b.batch_size, b.sequence_length, b.new_tokens, b.concurrency, b.axes)
)
SELECT
    model_id,
    batch_size,
    sequence_length,
    new_tokens,
    image_size,
    audio_seconds,
    steps,
    documents,
    top_k,
    device_name,
    runtime,
    runtime_mode,
    precision,
    latency_median_ms,
    latency_ci_low_ms,
    latency_ci_high_ms,
    speedup,
    CASE WHEN result_id = baseline_result_id THEN NULL
        ELSE speedup * exp(-sqrt(baseline_down ** 2 + own_up ** 2)) END AS speedup_ci_low,
    CASE WHEN result_id = baseline_result_id THEN NULL
        ELSE speedup * exp(sqrt(baseline_up ** 2 + own_down ** 2)) END AS speedup_ci_high,
    output_error,
    output_max_abs_error,
    output_cosine_similarity,
    output_equal_token_share,
    coalesce(
        nullif(memory_device_process_peak_mb, 0), nullif(memory_device_reserved_peak_mb, 0),
        nullif(memory_device_allocated_peak_mb, 0), nullif(memory_peak_rss_infer_mb, 0)
    ) AS memory_peak_mb,
    model_size_mb,
    weight_dtypes,
    compile_s,
    compile_cold_s,
    compile_warm_s,
    build_s,
    load_time_s,
    first_call_ms,
    throughput_samples_per_sec,
    throughput_tokens_per_sec,
    time_to_first_token_ms,
    time_per_output_token_ms,
    graph_break_count,
    recompile_count,
    nodes,
    nodes_on_cpu_unasked,
    validity,
    doubts,
    is_ranked,
    is_simulated AS simulated,
    baseline_latency_ms,
    baseline_validity,
    baseline_mode,
    baseline_result_id,
    ci_scope,
    launches,
    concurrency,
    axes,
    architecture_type,
    task,
    weights,
    model_revision,
    config_hash,
    parameter_count,
    num_threads,
    cpu_list,
    exporter,
    device,
    device_type,
    started_at,
    hardware_id,
    place,
    series_id,
    run_id,
    result_id
FROM compared
ORDER BY model_id, batch_size, sequence_length, new_tokens, image_size, audio_seconds, steps, documents, top_k, place,
    num_threads, cpu_list, is_ranked DESC, speedup DESC NULLS LAST, latency_median_ms, result_id;

COMMENT ON VIEW runtime_comparison IS 'Each model and point on each device: one row per runtime, settings and precision, compared with eager at float32; fastest first, invalid and simulated results last. Without load tests, which are in load_curve.';
COMMENT ON COLUMN runtime_comparison.speedup IS 'Median latency of eager at float32 divided by that of this row, for the same model, point, device, threads and processors: 2 is twice as fast. NULL without such a result, and for rows that are not ranked.';
COMMENT ON COLUMN runtime_comparison.speedup_ci_low IS 'Lower end of the 95 % confidence interval of speedup, from the intervals of the two medians; NULL for the baseline itself. See ci_scope. It describes and is no verdict: benchhouse compare judges.';
COMMENT ON COLUMN runtime_comparison.speedup_ci_high IS 'Upper end of that interval; NULL for the baseline itself.';
COMMENT ON COLUMN runtime_comparison.memory_peak_mb IS 'Peak memory in MB (10^6 bytes): of the device if measured, else resident memory of the process; a 0 was not measured.';
COMMENT ON COLUMN runtime_comparison.is_ranked IS 'Whether the row can be ranked: valid, noisy or throttled, and not simulated.';
COMMENT ON COLUMN runtime_comparison.simulated IS 'True for an emulator, a software adapter or a scripted device, whose numbers are never ranked.';
COMMENT ON COLUMN runtime_comparison.baseline_latency_ms IS 'Median latency in ms of the eager float32 result that the row is compared with.';
COMMENT ON COLUMN runtime_comparison.baseline_validity IS 'Validity of that result: valid, noisy or throttled.';
COMMENT ON COLUMN runtime_comparison.baseline_mode IS 'Runtime settings of that result.';
COMMENT ON COLUMN runtime_comparison.baseline_result_id IS 'That result: benchmark_results.result_id.';
COMMENT ON COLUMN runtime_comparison.place IS 'Equal for rows that are compared: the machine for everything that runs on its CPU, otherwise hardware_id.';
