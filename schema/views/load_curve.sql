-- All levels of one server and one kind of load share a curve_id: only the level differs.
CREATE OR REPLACE VIEW load_curve AS
SELECT
    md5(json_array(run.hardware_id, run.model_id, run.model_revision, run.weights, run.config_hash, run.task,
        run.origin_definition, run.runtime, run.runtime_mode, run.precision, run.num_threads, run.cpu_list, r.batch_size,
        r.sequence_length, r.new_tokens, json_merge_patch(r.axes, '{"request_rate": null}'))::VARCHAR)[:16] AS curve_id,
    run.model_id,
    hardware.device_name,
    run.device,
    run.runtime,
    run.precision,
    run.runtime_mode->>'loop' AS loop,
    run.runtime_mode->>'arrivals' AS arrivals,
    CASE WHEN (run.runtime_mode->>'loop') = 'closed' THEN r.concurrency END AS concurrency,
    TRY_CAST(r.axes->>'request_rate' AS DOUBLE) AS request_rate,
    r.status,
    r.validity,
    r.doubts,
    r.throughput_samples_per_sec AS requests_per_sec,
    r.throughput_tokens_per_sec AS output_tokens_per_sec,
    r.other_metrics['input_tokens_per_sec'] AS input_tokens_per_sec,
    run.runtime_mode->>'slo' AS slo,
    r.other_metrics['goodput_requests_per_sec'] AS goodput_requests_per_sec,
    r.other_metrics['goodput_tokens_per_sec'] AS goodput_tokens_per_sec,
    r.other_metrics['goodput_share'] AS goodput_share,
    r.time_to_first_token_ms AS time_to_first_token_p50_ms,
    r.time_to_first_token_p90_ms,
    r.other_metrics['time_to_first_token_p95_ms'] AS time_to_first_token_p95_ms,
    r.time_to_first_token_p99_ms,
    r.time_per_output_token_ms AS time_per_output_token_p50_ms,
    r.time_per_output_token_p90_ms,
    r.other_metrics['time_per_output_token_p95_ms'] AS time_per_output_token_p95_ms,
    r.time_per_output_token_p99_ms,
    1000 / nullif(r.time_per_output_token_ms, 0) AS tokens_per_sec_per_user,
    r.inter_token_latency_p50_ms,
    r.inter_token_latency_p99_ms,
    r.latency_median_ms AS latency_p50_ms,
    r.latency_p90_ms,
    r.latency_p95_ms,
    r.latency_p99_ms,
    r.other_metrics['latency_p999_ms'] AS latency_p999_ms,
    r.other_metrics['service_time_p50_ms'] AS service_time_p50_ms,
    r.other_metrics['service_time_p99_ms'] AS service_time_p99_ms,
    r.other_metrics['lateness_p95_ms'] AS lateness_p95_ms,
    r.other_metrics['in_flight_mean'] AS in_flight_mean,
    r.other_metrics['requests_sent'] AS requests_sent,
    r.other_metrics['requests_failed'] AS requests_failed,
    coalesce((r.extra->>'$.load.is_knee') = 'true', FALSE) AS is_knee,
    r.batch_size,
    r.sequence_length,
    r.new_tokens,
    run.runtime_mode,
    run.tags,
    run.host,
    run.started_at,
    run.session_id,
    run.hardware_id,
    r.series_id,
    r.run_id,
    r.result_id
FROM benchmark_results r
JOIN benchmark_runs run USING (run_id)
JOIN hardware_info hardware USING (hardware_id)
WHERE (run.runtime_mode->>'loop') IS NOT NULL
    AND (r.extra->'$.load.searched_per_s') IS NULL  -- what a search for a rate found is no level
ORDER BY run.started_at, r.run_id, concurrency, request_rate, r.result_id;

COMMENT ON VIEW load_curve IS 'One row per level of a load test: latency, throughput and goodput against offered load. A run is a curve.';
COMMENT ON COLUMN load_curve.curve_id IS 'Equal for loads that differ only in their level: one server, model, kind of load and of request. Runs on different days share it.';
COMMENT ON COLUMN load_curve.loop IS 'open: requests start on a schedule; closed: a fixed number is in flight. The two are never comparable.';
COMMENT ON COLUMN load_curve.arrivals IS 'Arrival process of an open loop: constant, poisson, gamma, burst, ramp, trace; NULL in a closed loop.';
COMMENT ON COLUMN load_curve.concurrency IS 'Requests in flight of a closed loop; NULL for an open one.';
COMMENT ON COLUMN load_curve.request_rate IS 'Offered requests per second of an open loop; NULL for a closed one.';
COMMENT ON COLUMN load_curve.requests_per_sec IS 'Successful requests per second: over the steady window, or over the whole level if there is none (doubt no_steady_window).';
COMMENT ON COLUMN load_curve.output_tokens_per_sec IS 'Output tokens of successful requests per second, over the same time as requests_per_sec.';
COMMENT ON COLUMN load_curve.input_tokens_per_sec IS 'Prompt tokens of successful requests per second, over the same time as requests_per_sec.';
COMMENT ON COLUMN load_curve.slo IS 'Limits for goodput: ttft:500ms,tpot:50ms; NULL without any.';
COMMENT ON COLUMN load_curve.goodput_requests_per_sec IS 'Requests per second that met every limit, over the same time as requests_per_sec; NULL if that is unknown for some.';
COMMENT ON COLUMN load_curve.goodput_tokens_per_sec IS 'Output tokens per second of requests that met every limit.';
COMMENT ON COLUMN load_curve.goodput_share IS 'Share of all requests that met every limit, from 0 to 1; NULL if that is unknown for some.';
COMMENT ON COLUMN load_curve.time_to_first_token_p50_ms IS 'From the intended start to the first output: median in ms.';
COMMENT ON COLUMN load_curve.time_to_first_token_p95_ms IS 'From the intended start to the first output: 95th percentile in ms, from 59 requests or more; NULL with fewer, or where an imported file does not state it.';
COMMENT ON COLUMN load_curve.time_per_output_token_p50_ms IS 'Time per output token after the first: median over the requests in ms.';
COMMENT ON COLUMN load_curve.time_per_output_token_p95_ms IS 'Time per output token after the first: 95th percentile in ms, from 59 requests or more; NULL with fewer, or where an imported file does not state it.';
COMMENT ON COLUMN load_curve.tokens_per_sec_per_user IS 'Interactivity: 1000 / median time per output token.';
COMMENT ON COLUMN load_curve.latency_p50_ms IS 'From the intended start to the end: median in ms.';
COMMENT ON COLUMN load_curve.latency_p999_ms IS 'From the intended start to the end: 99.9th percentile in ms, from 1000 requests or more.';
COMMENT ON COLUMN load_curve.service_time_p50_ms IS 'From sending to the end: median in ms.';
COMMENT ON COLUMN load_curve.service_time_p99_ms IS 'From sending to the end: 99th percentile in ms.';
COMMENT ON COLUMN load_curve.lateness_p95_ms IS 'Delay of sending after the intended start: 95th percentile in ms.';
COMMENT ON COLUMN load_curve.in_flight_mean IS 'Requests in flight, mean over the same time as requests_per_sec.';
COMMENT ON COLUMN load_curve.requests_sent IS 'Number of requests in the measured part.';
COMMENT ON COLUMN load_curve.requests_failed IS 'Number of failed requests in the measured part.';
COMMENT ON COLUMN load_curve.batch_size IS 'Maximum requests per call of a model on this machine; 1 for a server, which batches by itself.';
COMMENT ON COLUMN load_curve.is_knee IS 'Whether this level is the knee of its run''s curve.';
