-- Percentiles and intervals of the token times, percentiles pooled over launches, mean memory, and the use of the device.
-- The table is made anew, since DuckDB cannot add a column with a CHECK. Numbers that importers stored under
-- the names of new columns move there; no older program pooled samples.

ALTER TABLE benchmark_results RENAME TO old_benchmark_results;
CREATE TABLE benchmark_results (
    result_id VARCHAR PRIMARY KEY USING COMPRESSION uncompressed,
    run_id VARCHAR NOT NULL,
    series_id VARCHAR NOT NULL USING COMPRESSION uncompressed,
    batch_size INTEGER NOT NULL CHECK (batch_size >= 1),
    sequence_length INTEGER CHECK (sequence_length >= 1),
    new_tokens INTEGER CHECK (new_tokens >= 1),
    concurrency INTEGER NOT NULL CHECK (concurrency >= 1),
    axes JSON NOT NULL,
    status VARCHAR NOT NULL CHECK (status IN ('ok', 'failed', 'skipped', 'timed_out')),
    error VARCHAR,
    validity VARCHAR CHECK (validity IN ('valid', 'noisy', 'throttled', 'invalid')),
    doubts VARCHAR[] NOT NULL,
    launches INTEGER NOT NULL CHECK (launches >= 0),
    iterations BIGINT NOT NULL CHECK (iterations >= 0),
    warmup_iterations BIGINT NOT NULL CHECK (warmup_iterations >= 0),
    stop_reason VARCHAR,
    ci_scope VARCHAR CHECK (ci_scope IN ('between', 'within')),
    pooled_quantiles VARCHAR[] NOT NULL,
    latency_mean_ms DOUBLE CHECK (isfinite(latency_mean_ms)),
    latency_median_ms DOUBLE CHECK (isfinite(latency_median_ms)),
    latency_std_ms DOUBLE CHECK (isfinite(latency_std_ms)),
    latency_mad_ms DOUBLE CHECK (isfinite(latency_mad_ms)),
    latency_min_ms DOUBLE CHECK (isfinite(latency_min_ms)),
    latency_p25_ms DOUBLE CHECK (isfinite(latency_p25_ms)),
    latency_p75_ms DOUBLE CHECK (isfinite(latency_p75_ms)),
    latency_p90_ms DOUBLE CHECK (isfinite(latency_p90_ms)),
    latency_p95_ms DOUBLE CHECK (isfinite(latency_p95_ms)),
    latency_p99_ms DOUBLE CHECK (isfinite(latency_p99_ms)),
    latency_max_ms DOUBLE CHECK (isfinite(latency_max_ms)),
    latency_ci_low_ms DOUBLE CHECK (isfinite(latency_ci_low_ms)),
    latency_ci_high_ms DOUBLE CHECK (isfinite(latency_ci_high_ms)),
    latency_device_median_ms DOUBLE CHECK (isfinite(latency_device_median_ms)),
    host_gap_ms DOUBLE CHECK (isfinite(host_gap_ms)),
    throughput_samples_per_sec DOUBLE CHECK (isfinite(throughput_samples_per_sec)),
    throughput_tokens_per_sec DOUBLE CHECK (isfinite(throughput_tokens_per_sec)),
    throughput_pipelined DOUBLE CHECK (isfinite(throughput_pipelined)),
    time_to_first_token_ms DOUBLE CHECK (isfinite(time_to_first_token_ms)),
    time_to_first_token_p90_ms DOUBLE CHECK (isfinite(time_to_first_token_p90_ms)),
    time_to_first_token_p99_ms DOUBLE CHECK (isfinite(time_to_first_token_p99_ms)),
    time_to_first_token_ci_low_ms DOUBLE CHECK (isfinite(time_to_first_token_ci_low_ms)),
    time_to_first_token_ci_high_ms DOUBLE CHECK (isfinite(time_to_first_token_ci_high_ms)),
    time_per_output_token_ms DOUBLE CHECK (isfinite(time_per_output_token_ms)),
    time_per_output_token_p90_ms DOUBLE CHECK (isfinite(time_per_output_token_p90_ms)),
    time_per_output_token_p99_ms DOUBLE CHECK (isfinite(time_per_output_token_p99_ms)),
    time_per_output_token_ci_low_ms DOUBLE CHECK (isfinite(time_per_output_token_ci_low_ms)),
    time_per_output_token_ci_high_ms DOUBLE CHECK (isfinite(time_per_output_token_ci_high_ms)),
    inter_token_latency_p50_ms DOUBLE CHECK (isfinite(inter_token_latency_p50_ms)),
    inter_token_latency_p90_ms DOUBLE CHECK (isfinite(inter_token_latency_p90_ms)),
    inter_token_latency_p99_ms DOUBLE CHECK (isfinite(inter_token_latency_p99_ms)),
    inter_token_latency_ci_low_ms DOUBLE CHECK (isfinite(inter_token_latency_ci_low_ms)),
    inter_token_latency_ci_high_ms DOUBLE CHECK (isfinite(inter_token_latency_ci_high_ms)),
    prefill_tokens_per_sec DOUBLE CHECK (isfinite(prefill_tokens_per_sec)),
    decode_tokens_per_sec DOUBLE CHECK (isfinite(decode_tokens_per_sec)),
    first_call_ms DOUBLE CHECK (isfinite(first_call_ms)),
    time_to_ready_s DOUBLE CHECK (isfinite(time_to_ready_s)),
    compile_s DOUBLE CHECK (isfinite(compile_s)),
    tokenize_ms DOUBLE CHECK (isfinite(tokenize_ms)),
    total_ms DOUBLE CHECK (isfinite(total_ms)),
    memory_weights_mb DOUBLE CHECK (isfinite(memory_weights_mb)),
    memory_rss_base_mb DOUBLE CHECK (isfinite(memory_rss_base_mb)),
    memory_peak_rss_load_mb DOUBLE CHECK (isfinite(memory_peak_rss_load_mb)),
    memory_peak_rss_infer_mb DOUBLE CHECK (isfinite(memory_peak_rss_infer_mb)),
    memory_rss_mean_mb DOUBLE CHECK (isfinite(memory_rss_mean_mb)),
    memory_device_allocated_peak_mb DOUBLE CHECK (isfinite(memory_device_allocated_peak_mb)),
    memory_device_reserved_peak_mb DOUBLE CHECK (isfinite(memory_device_reserved_peak_mb)),
    memory_device_process_peak_mb DOUBLE CHECK (isfinite(memory_device_process_peak_mb)),
    memory_device_used_mean_mb DOUBLE CHECK (isfinite(memory_device_used_mean_mb)),
    memory_device_global_delta_mb DOUBLE CHECK (isfinite(memory_device_global_delta_mb)),
    energy_gpu_j_per_call DOUBLE CHECK (isfinite(energy_gpu_j_per_call)),
    energy_cpu_pkg_j_per_call DOUBLE CHECK (isfinite(energy_cpu_pkg_j_per_call)),
    energy_dram_j_per_call DOUBLE CHECK (isfinite(energy_dram_j_per_call)),
    energy_soc_j_per_call DOUBLE CHECK (isfinite(energy_soc_j_per_call)),
    energy_idle_w DOUBLE CHECK (isfinite(energy_idle_w)),
    power_mean_w DOUBLE CHECK (isfinite(power_mean_w)),
    power_peak_w DOUBLE CHECK (isfinite(power_peak_w)),
    utilization_mean_percent DOUBLE CHECK (isfinite(utilization_mean_percent)),
    utilization_max_percent DOUBLE CHECK (isfinite(utilization_max_percent)),
    flops DOUBLE CHECK (isfinite(flops)),
    output_error DOUBLE CHECK (isfinite(output_error)),
    image_size INTEGER,
    audio_seconds DOUBLE CHECK (isfinite(audio_seconds)),
    steps INTEGER,
    documents INTEGER,
    top_k INTEGER,
    retrieve_ms DOUBLE CHECK (isfinite(retrieve_ms)),
    image_encode_ms DOUBLE CHECK (isfinite(image_encode_ms)),
    encode_ms DOUBLE CHECK (isfinite(encode_ms)),
    prefill_ms DOUBLE CHECK (isfinite(prefill_ms)),
    decode_ms DOUBLE CHECK (isfinite(decode_ms)),
    step_ms DOUBLE CHECK (isfinite(step_ms)),
    real_time_factor DOUBLE CHECK (isfinite(real_time_factor)),
    audio_seconds_per_call DOUBLE CHECK (isfinite(audio_seconds_per_call)),
    active_parameter_count DOUBLE CHECK (isfinite(active_parameter_count)),
    expert_load_imbalance DOUBLE CHECK (isfinite(expert_load_imbalance)),
    bytes_accessed DOUBLE CHECK (isfinite(bytes_accessed)),
    achieved_flops_per_sec DOUBLE CHECK (isfinite(achieved_flops_per_sec)),
    output_max_abs_error DOUBLE CHECK (isfinite(output_max_abs_error)),
    output_cosine_similarity DOUBLE CHECK (isfinite(output_cosine_similarity)),
    output_equal_token_share DOUBLE CHECK (isfinite(output_equal_token_share)),
    compile_cold_s DOUBLE CHECK (isfinite(compile_cold_s)),
    compile_warm_s DOUBLE CHECK (isfinite(compile_warm_s)),
    graph_count DOUBLE CHECK (isfinite(graph_count)),
    graph_break_count DOUBLE CHECK (isfinite(graph_break_count)),
    recompile_count DOUBLE CHECK (isfinite(recompile_count)),
    nodes DOUBLE CHECK (isfinite(nodes)),
    nodes_on_cpu_unasked DOUBLE CHECK (isfinite(nodes_on_cpu_unasked)),
    model_size_mb DOUBLE CHECK (isfinite(model_size_mb)),
    other_metrics MAP(VARCHAR, DOUBLE) NOT NULL CHECK (isfinite(list_sum(map_values(other_metrics)))),
    missing MAP(VARCHAR, VARCHAR) NOT NULL,
    extra JSON NOT NULL USING COMPRESSION zstd
);
INSERT INTO benchmark_results BY NAME SELECT
    * REPLACE (map_from_entries(list_filter(map_entries(other_metrics), lambda entry: entry.key NOT IN (
        'throughput_pipelined', 'time_to_first_token_p90_ms', 'time_to_first_token_p99_ms',
        'time_to_first_token_ci_low_ms', 'time_to_first_token_ci_high_ms', 'time_per_output_token_p90_ms',
        'time_per_output_token_p99_ms', 'time_per_output_token_ci_low_ms', 'time_per_output_token_ci_high_ms',
        'inter_token_latency_p90_ms', 'inter_token_latency_ci_low_ms', 'inter_token_latency_ci_high_ms',
        'total_ms', 'memory_rss_mean_mb', 'memory_device_used_mean_mb', 'power_mean_w', 'power_peak_w',
        'utilization_mean_percent', 'utilization_max_percent'
    ))) AS other_metrics),
    [] AS pooled_quantiles,
    other_metrics['throughput_pipelined'] AS throughput_pipelined,
    other_metrics['time_to_first_token_p90_ms'] AS time_to_first_token_p90_ms,
    other_metrics['time_to_first_token_p99_ms'] AS time_to_first_token_p99_ms,
    other_metrics['time_to_first_token_ci_low_ms'] AS time_to_first_token_ci_low_ms,
    other_metrics['time_to_first_token_ci_high_ms'] AS time_to_first_token_ci_high_ms,
    other_metrics['time_per_output_token_p90_ms'] AS time_per_output_token_p90_ms,
    other_metrics['time_per_output_token_p99_ms'] AS time_per_output_token_p99_ms,
    other_metrics['time_per_output_token_ci_low_ms'] AS time_per_output_token_ci_low_ms,
    other_metrics['time_per_output_token_ci_high_ms'] AS time_per_output_token_ci_high_ms,
    other_metrics['inter_token_latency_p90_ms'] AS inter_token_latency_p90_ms,
    other_metrics['inter_token_latency_ci_low_ms'] AS inter_token_latency_ci_low_ms,
    other_metrics['inter_token_latency_ci_high_ms'] AS inter_token_latency_ci_high_ms,
    other_metrics['total_ms'] AS total_ms,
    other_metrics['memory_rss_mean_mb'] AS memory_rss_mean_mb,
    other_metrics['memory_device_used_mean_mb'] AS memory_device_used_mean_mb,
    other_metrics['power_mean_w'] AS power_mean_w,
    other_metrics['power_peak_w'] AS power_peak_w,
    other_metrics['utilization_mean_percent'] AS utilization_mean_percent,
    other_metrics['utilization_max_percent'] AS utilization_max_percent
FROM old_benchmark_results;
DROP TABLE old_benchmark_results;
COMMENT ON TABLE benchmark_results IS 'One point of a run''s grid over all its launches; failed and skipped points are rows too.';
COMMENT ON COLUMN benchmark_results.result_id IS 'UUIDv7 of the result.';
COMMENT ON COLUMN benchmark_results.run_id IS 'The run: benchmark_runs.run_id.';
COMMENT ON COLUMN benchmark_results.series_id IS 'What is measured over and over: series.series_id.';
COMMENT ON COLUMN benchmark_results.batch_size IS 'Items per call.';
COMMENT ON COLUMN benchmark_results.sequence_length IS 'Tokens of the input or prompt; NULL for families without tokens.';
COMMENT ON COLUMN benchmark_results.new_tokens IS 'Tokens generated per sequence; NULL when nothing is generated.';
COMMENT ON COLUMN benchmark_results.concurrency IS 'Requests kept in flight: latency is that of one request, throughput that of all of them.';
COMMENT ON COLUMN benchmark_results.axes IS 'Further axes of the grid: image_size, audio_seconds, steps, ...';
COMMENT ON COLUMN benchmark_results.status IS 'ok, failed, skipped or timed_out.';
COMMENT ON COLUMN benchmark_results.error IS 'Why the point is not ok.';
COMMENT ON COLUMN benchmark_results.validity IS 'How far the numbers can be trusted: valid, noisy, throttled or invalid; NULL unless status is ok.';
COMMENT ON COLUMN benchmark_results.doubts IS 'Kinds of the reasons not to take the numbers at their face; the evidence is in extra.';
COMMENT ON COLUMN benchmark_results.launches IS 'Fresh processes that measured the point.';
COMMENT ON COLUMN benchmark_results.iterations IS 'Timed samples of all launches.';
COMMENT ON COLUMN benchmark_results.warmup_iterations IS 'Calls before the timed ones, all launches.';
COMMENT ON COLUMN benchmark_results.stop_reason IS 'Why sampling ended: target, max_samples, max_time, plateau, fixed or mixed.';
COMMENT ON COLUMN benchmark_results.ci_scope IS 'What the confidence interval speaks of: between launches (3 or more), or within: the calls of these processes only.';
COMMENT ON COLUMN benchmark_results.pooled_quantiles IS 'Columns whose percentile is that of the samples of all launches together, since one launch has too few; the other percentiles are medians over launches.';
COMMENT ON COLUMN benchmark_results.latency_mean_ms IS 'Latency of a call in ms: mean inside a launch, median over launches.';
COMMENT ON COLUMN benchmark_results.latency_median_ms IS 'Latency of a call in ms: median inside a launch (of the blocks'' means where calls are timed in blocks), median over launches.';
COMMENT ON COLUMN benchmark_results.latency_std_ms IS 'Sample standard deviation of latency inside a launch in ms, median over launches; NULL when calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_mad_ms IS 'Median absolute deviation of latency inside a launch in ms, median over launches; NULL when calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_min_ms IS 'Lowest latency of all launches in ms; NULL when calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_p25_ms IS '25th percentile of latency inside a launch in ms, median over launches; NULL when calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_p75_ms IS '75th percentile of latency inside a launch in ms, median over launches; NULL when calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_p90_ms IS '90th percentile of latency in ms: inside a launch, median over launches; of the samples of all launches where the column is in pooled_quantiles; NULL when there are too few samples, or calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_p95_ms IS '95th percentile of latency in ms: inside a launch, median over launches; of the samples of all launches where the column is in pooled_quantiles; NULL when there are too few samples, or calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_p99_ms IS '99th percentile of latency in ms: inside a launch, median over launches; of the samples of all launches where the column is in pooled_quantiles; NULL when there are too few samples, or calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_max_ms IS 'Highest latency of all launches in ms; NULL when calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_ci_low_ms IS 'Lower end of the 95 % confidence interval of latency_median_ms in ms; see ci_scope.';
COMMENT ON COLUMN benchmark_results.latency_ci_high_ms IS 'Upper end of the 95 % confidence interval of latency_median_ms in ms; see ci_scope.';
COMMENT ON COLUMN benchmark_results.latency_device_median_ms IS 'Median latency by the device''s own clock in ms.';
COMMENT ON COLUMN benchmark_results.host_gap_ms IS 'Host time per call in ms during which the device idles: the wall time of a call less the sum of its kernels'' times in a pass with a profiler; NULL where none tells.';
COMMENT ON COLUMN benchmark_results.throughput_samples_per_sec IS 'Items (sequences, images, ...) per second of wall time: from the mean time of a call, not the median; median over launches.';
COMMENT ON COLUMN benchmark_results.throughput_tokens_per_sec IS 'Tokens per second of wall time, from the mean time of a call: batch x sequence in a forward pass, batch x new tokens in generation; median over launches.';
COMMENT ON COLUMN benchmark_results.throughput_pipelined IS 'Items per second when calls are queued without waiting for each, with one synchronization at the end: a pass of its own, median over launches.';
COMMENT ON COLUMN benchmark_results.time_to_first_token_ms IS 'From the start of a call to its first token on the host in ms: median inside a launch, median over launches.';
COMMENT ON COLUMN benchmark_results.time_to_first_token_p90_ms IS '90th percentile of the time to the first token in ms: inside a launch, median over launches; of the samples of all launches where the column is in pooled_quantiles; NULL when there are too few samples.';
COMMENT ON COLUMN benchmark_results.time_to_first_token_p99_ms IS '99th percentile of the time to the first token in ms: inside a launch, median over launches; of the samples of all launches where the column is in pooled_quantiles; NULL when there are too few samples.';
COMMENT ON COLUMN benchmark_results.time_to_first_token_ci_low_ms IS 'Lower end of the 95 % confidence interval of time_to_first_token_ms in ms; see ci_scope.';
COMMENT ON COLUMN benchmark_results.time_to_first_token_ci_high_ms IS 'Upper end of the 95 % confidence interval of time_to_first_token_ms in ms; see ci_scope.';
COMMENT ON COLUMN benchmark_results.time_per_output_token_ms IS 'Mean time per token of a call after its first in ms: median inside a launch, median over launches.';
COMMENT ON COLUMN benchmark_results.time_per_output_token_p90_ms IS '90th percentile of the mean time per token after the first of a call in ms: inside a launch, median over launches; of the samples of all launches where the column is in pooled_quantiles; NULL when there are too few samples.';
COMMENT ON COLUMN benchmark_results.time_per_output_token_p99_ms IS '99th percentile of the mean time per token after the first of a call in ms: inside a launch, median over launches; of the samples of all launches where the column is in pooled_quantiles; NULL when there are too few samples.';
COMMENT ON COLUMN benchmark_results.time_per_output_token_ci_low_ms IS 'Lower end of the 95 % confidence interval of time_per_output_token_ms in ms; see ci_scope.';
COMMENT ON COLUMN benchmark_results.time_per_output_token_ci_high_ms IS 'Upper end of the 95 % confidence interval of time_per_output_token_ms in ms; see ci_scope.';
COMMENT ON COLUMN benchmark_results.inter_token_latency_p50_ms IS 'Gap between successive tokens in ms: median inside a launch, median over launches.';
COMMENT ON COLUMN benchmark_results.inter_token_latency_p90_ms IS '90th percentile of the gap between successive tokens in ms: inside a launch, median over launches; of the samples of all launches where the column is in pooled_quantiles; NULL when there are too few samples.';
COMMENT ON COLUMN benchmark_results.inter_token_latency_p99_ms IS '99th percentile of the gap between successive tokens in ms: inside a launch, median over launches; of the samples of all launches where the column is in pooled_quantiles; NULL when there are too few samples.';
COMMENT ON COLUMN benchmark_results.inter_token_latency_ci_low_ms IS 'Lower end of the 95 % confidence interval of inter_token_latency_p50_ms in ms; see ci_scope.';
COMMENT ON COLUMN benchmark_results.inter_token_latency_ci_high_ms IS 'Upper end of the 95 % confidence interval of inter_token_latency_p50_ms in ms; see ci_scope.';
COMMENT ON COLUMN benchmark_results.prefill_tokens_per_sec IS 'Prompt tokens per second up to the first token.';
COMMENT ON COLUMN benchmark_results.decode_tokens_per_sec IS 'New tokens per second after the first.';
COMMENT ON COLUMN benchmark_results.first_call_ms IS 'Latency of the very first call of a launch in ms.';
COMMENT ON COLUMN benchmark_results.time_to_ready_s IS 'From the start of a fresh process to the end of its first call in s.';
COMMENT ON COLUMN benchmark_results.compile_s IS 'Seconds spent compiling in a launch, or an upper bound of them (extra: compile_method): median over launches.';
COMMENT ON COLUMN benchmark_results.tokenize_ms IS 'Time to tokenize the inputs of a call in ms: median inside a launch, median over launches; not part of latency.';
COMMENT ON COLUMN benchmark_results.total_ms IS 'tokenize_ms + latency_median_ms in ms; NULL where nothing is tokenized.';
COMMENT ON COLUMN benchmark_results.memory_weights_mb IS 'Exact size of parameters and buffers in MB (10^6 bytes).';
COMMENT ON COLUMN benchmark_results.memory_rss_base_mb IS 'Resident memory of the process before the model was loaded in MB.';
COMMENT ON COLUMN benchmark_results.memory_peak_rss_load_mb IS 'Peak resident memory of the process while loading in MB.';
COMMENT ON COLUMN benchmark_results.memory_peak_rss_infer_mb IS 'Peak resident memory of the process over the inference calls in MB.';
COMMENT ON COLUMN benchmark_results.memory_rss_mean_mb IS 'Mean resident memory of the process over the inference calls of the memory pass in MB.';
COMMENT ON COLUMN benchmark_results.memory_device_allocated_peak_mb IS 'Peak of device memory in use by tensors in MB.';
COMMENT ON COLUMN benchmark_results.memory_device_reserved_peak_mb IS 'Peak of device memory held by the framework''s allocator in MB.';
COMMENT ON COLUMN benchmark_results.memory_device_process_peak_mb IS 'Peak of device memory held by the process as the driver counts it in MB.';
COMMENT ON COLUMN benchmark_results.memory_device_used_mean_mb IS 'Mean of device memory in use over the inference calls of a pass of its own in MB.';
COMMENT ON COLUMN benchmark_results.memory_device_global_delta_mb IS 'Rise of device memory in use by all processes in MB.';
COMMENT ON COLUMN benchmark_results.energy_gpu_j_per_call IS 'Energy of the GPU per call in J, idle power included.';
COMMENT ON COLUMN benchmark_results.energy_cpu_pkg_j_per_call IS 'Energy of the CPU packages per call in J, idle power included.';
COMMENT ON COLUMN benchmark_results.energy_dram_j_per_call IS 'Energy of the memory modules per call in J, idle power included.';
COMMENT ON COLUMN benchmark_results.energy_soc_j_per_call IS 'Energy of the whole chip per call in J, idle power included.';
COMMENT ON COLUMN benchmark_results.energy_idle_w IS 'Idle power just before measuring in W.';
COMMENT ON COLUMN benchmark_results.power_mean_w IS 'Mean power of the device over the inference calls in W, idle power included.';
COMMENT ON COLUMN benchmark_results.power_peak_w IS 'Highest power of the device over the inference calls in W, as far as its sensor is read.';
COMMENT ON COLUMN benchmark_results.utilization_mean_percent IS 'Mean utilization of the device over the inference calls of a pass of its own in percent; of a CPU, of the processors that the process may use.';
COMMENT ON COLUMN benchmark_results.utilization_max_percent IS 'Highest utilization of the device in a sample of that pass in percent.';
COMMENT ON COLUMN benchmark_results.flops IS 'Floating-point operations of a call.';
COMMENT ON COLUMN benchmark_results.output_error IS 'Relative L2 error of the first call''s output, ||y - x|| / ||x||, x being the output of the eager float32 model on the same weights and inputs; of several arrays the worst.';
COMMENT ON COLUMN benchmark_results.image_size IS 'Pixels a side of the input image, or of the one made; NULL for families without images.';
COMMENT ON COLUMN benchmark_results.audio_seconds IS 'Seconds of audio in each item; NULL for families without audio.';
COMMENT ON COLUMN benchmark_results.steps IS 'Denoising steps of a call; NULL for families other than diffusion.';
COMMENT ON COLUMN benchmark_results.documents IS 'Documents in the corpus that is searched; NULL where nothing is retrieved.';
COMMENT ON COLUMN benchmark_results.top_k IS 'Documents retrieved for each item; NULL where nothing is retrieved.';
COMMENT ON COLUMN benchmark_results.retrieve_ms IS 'Median time of a call to embed its queries and find their documents in ms.';
COMMENT ON COLUMN benchmark_results.image_encode_ms IS 'Median time of a call in its image encoder in ms.';
COMMENT ON COLUMN benchmark_results.encode_ms IS 'Median time of a call in its encoder (of text or audio) in ms.';
COMMENT ON COLUMN benchmark_results.prefill_ms IS 'Median time of a call from the end of the phase before, or its start, to its first token in ms.';
COMMENT ON COLUMN benchmark_results.decode_ms IS 'Median time of a call from its first token to its last in ms.';
COMMENT ON COLUMN benchmark_results.step_ms IS 'Median time of one denoising step, over all steps of all calls, in ms.';
COMMENT ON COLUMN benchmark_results.real_time_factor IS 'Median latency over the seconds of audio in a call: below 1 is faster than it was spoken.';
COMMENT ON COLUMN benchmark_results.audio_seconds_per_call IS 'Seconds of audio in a call, all items together.';
COMMENT ON COLUMN benchmark_results.active_parameter_count IS 'Parameters that take part in the work on one token; of a mixture of experts fewer than parameter_count.';
COMMENT ON COLUMN benchmark_results.expert_load_imbalance IS 'Tokens of the busiest expert over the mean of all experts: 1 is an even load.';
COMMENT ON COLUMN benchmark_results.bytes_accessed IS 'Bytes a call reads and writes, as counted from its operations'' inputs and outputs.';
COMMENT ON COLUMN benchmark_results.achieved_flops_per_sec IS 'Floating-point operations of a call over its median latency, per second.';
COMMENT ON COLUMN benchmark_results.output_max_abs_error IS 'Largest absolute difference of a value of the output from the eager float32 model''s; of several arrays the worst.';
COMMENT ON COLUMN benchmark_results.output_cosine_similarity IS 'Cosine of the angle between the output and the eager float32 model''s: 1 is the same direction; of several arrays the worst.';
COMMENT ON COLUMN benchmark_results.output_equal_token_share IS 'Share of the generated tokens that are the eager float32 model''s, place by place.';
COMMENT ON COLUMN benchmark_results.compile_cold_s IS 'Seconds spent compiling with an empty compilation cache: median over the launches that had one.';
COMMENT ON COLUMN benchmark_results.compile_warm_s IS 'Seconds spent compiling with the cache that an earlier launch left: median over the launches that had one.';
COMMENT ON COLUMN benchmark_results.graph_count IS 'Graphs that the compiler made of the model: most of any launch.';
COMMENT ON COLUMN benchmark_results.graph_break_count IS 'Places where the compiler had to leave the model to Python: most of any launch.';
COMMENT ON COLUMN benchmark_results.recompile_count IS 'Graphs compiled anew because a guard failed, over a whole launch: most of any launch.';
COMMENT ON COLUMN benchmark_results.nodes IS 'Nodes of the graphs as the runtime ran them, its own fusions done: most of any launch.';
COMMENT ON COLUMN benchmark_results.nodes_on_cpu_unasked IS 'Nodes among them that ran on the CPU although another device was asked for: most of any launch.';
COMMENT ON COLUMN benchmark_results.model_size_mb IS 'Size of the model as its runtime takes it, in MB (10^6 bytes): the files of its build, graphs and weights, where it loads one, else its parameters and buffers.';
COMMENT ON COLUMN benchmark_results.other_metrics IS 'Numbers of the point that have no column of their own, by name; the unit is in the name.';
COMMENT ON COLUMN benchmark_results.missing IS 'Metric -> reason, for each number that could not be had.';
COMMENT ON COLUMN benchmark_results.extra IS 'Evidence and details: doubts with severity and evidence, the launches'' windows, statistics and errors.';

-- The names of precisions are those of the program too, and no longer a list in two CHECKs, which cannot be dropped: the
-- two tables are made anew. `setup_benchmark_db --verify` knows the names.

ALTER TABLE benchmark_runs RENAME TO old_benchmark_runs;
CREATE TABLE benchmark_runs (
    run_id VARCHAR PRIMARY KEY,
    session_id VARCHAR NOT NULL,
    hardware_id VARCHAR NOT NULL,
    model_id VARCHAR NOT NULL,
    model_source VARCHAR NOT NULL,
    model_revision VARCHAR,
    model_path VARCHAR,
    weights VARCHAR NOT NULL CHECK (weights IN ('pretrained', 'random', 'given')),
    weights_reason VARCHAR,
    weights_seed BIGINT NOT NULL,
    architecture_type VARCHAR,
    task VARCHAR NOT NULL,
    parameter_count BIGINT CHECK (parameter_count >= 0),
    max_sequence_length BIGINT CHECK (max_sequence_length >= 1),
    vocab_size BIGINT CHECK (vocab_size >= 1),
    config_hash VARCHAR NOT NULL,
    config JSON NOT NULL,
    requested_device VARCHAR NOT NULL,
    device VARCHAR NOT NULL,
    driver VARCHAR,
    runtime VARCHAR NOT NULL,
    runtime_mode JSON NOT NULL,
    precision VARCHAR NOT NULL,
    num_threads INTEGER CHECK (num_threads >= 1),
    status VARCHAR NOT NULL CHECK (status IN ('ok', 'failed', 'skipped', 'timed_out')),
    error VARCHAR,
    started_at TIMESTAMP NOT NULL,
    finished_at TIMESTAMP NOT NULL,
    load_time_s DOUBLE CHECK (isfinite(load_time_s)),
    load_spawn_s DOUBLE CHECK (isfinite(load_spawn_s)),
    load_import_s DOUBLE CHECK (isfinite(load_import_s)),
    load_device_init_s DOUBLE CHECK (isfinite(load_device_init_s)),
    load_weights_read_s DOUBLE CHECK (isfinite(load_weights_read_s)),
    load_to_device_s DOUBLE CHECK (isfinite(load_to_device_s)),
    loads JSON NOT NULL,
    git_commit VARCHAR,
    git_branch VARCHAR,
    git_dirty BOOLEAN,
    git_commit_time TIMESTAMP,
    versions MAP(VARCHAR, VARCHAR) NOT NULL,
    environment JSON NOT NULL,
    device_details JSON NOT NULL,
    host_details JSON NOT NULL,
    settings JSON NOT NULL,
    tags MAP(VARCHAR, VARCHAR) NOT NULL,
    description VARCHAR,
    command VARCHAR NOT NULL,
    host VARCHAR NOT NULL,
    tool_version VARCHAR NOT NULL,
    format_version INTEGER NOT NULL,
    source VARCHAR,
    source_sha256 VARCHAR,
    ingested_at TIMESTAMP NOT NULL,
    cpu_list VARCHAR,
    is_simulated BOOLEAN,
    weight_dtypes JSON,
    exporter VARCHAR,
    build_kind VARCHAR,
    build_digest VARCHAR,
    build_s DOUBLE,
    build_is_new BOOLEAN,
    preparation JSON,
    origin_format VARCHAR,
    origin_definition VARCHAR,
    origin JSON
);
INSERT INTO benchmark_runs BY NAME SELECT * FROM old_benchmark_runs;
DROP TABLE old_benchmark_runs;
COMMENT ON TABLE benchmark_runs IS 'One model on one device, runtime and precision, swept over a grid of points: the content of one run file.';
COMMENT ON COLUMN benchmark_runs.run_id IS 'UUIDv7 of the run.';
COMMENT ON COLUMN benchmark_runs.session_id IS 'UUIDv7 of the command that made the run; the runs of a batch share it.';
COMMENT ON COLUMN benchmark_runs.hardware_id IS 'The machine and device: hardware_info.hardware_id.';
COMMENT ON COLUMN benchmark_runs.model_id IS 'The model as it was asked for: hub name, folder or catalog name.';
COMMENT ON COLUMN benchmark_runs.model_source IS 'Where the model came from: catalog, local, hub, module (a torch module handed over), bench (a benchmark somebody wrote), import (another tool''s file).';
COMMENT ON COLUMN benchmark_runs.model_revision IS 'Hub commit, or the hash of a local folder''s weight files; NULL in the catalog.';
COMMENT ON COLUMN benchmark_runs.model_path IS 'Folder with the configuration and weights, for the sources local and hub.';
COMMENT ON COLUMN benchmark_runs.weights IS 'pretrained; random: seeded random weights of the same architecture; given: those of a torch module handed over, or what another tool was given.';
COMMENT ON COLUMN benchmark_runs.weights_reason IS 'Why the weights are random although they were not asked to be.';
COMMENT ON COLUMN benchmark_runs.weights_seed IS 'Seed of random weights.';
COMMENT ON COLUMN benchmark_runs.architecture_type IS 'Architecture family, from the model''s configuration; NULL for a torch module whose configuration names none.';
COMMENT ON COLUMN benchmark_runs.task IS 'Task by Hugging Face''s name: feature-extraction, text-generation, ...';
COMMENT ON COLUMN benchmark_runs.parameter_count IS 'Parameters of the model, shared ones counted once.';
COMMENT ON COLUMN benchmark_runs.max_sequence_length IS 'Longest sequence the model takes, in tokens; NULL without a limit.';
COMMENT ON COLUMN benchmark_runs.vocab_size IS 'Tokens in the model''s vocabulary.';
COMMENT ON COLUMN benchmark_runs.config_hash IS 'SHA-256 (hex) of the model''s configuration.';
COMMENT ON COLUMN benchmark_runs.config IS 'The model''s configuration.';
COMMENT ON COLUMN benchmark_runs.requested_device IS 'What --device said: auto, cuda, ...';
COMMENT ON COLUMN benchmark_runs.device IS 'The device that ran: cpu, cuda:0, openvino:GPU, ...';
COMMENT ON COLUMN benchmark_runs.driver IS 'Version of the device''s driver at this run.';
COMMENT ON COLUMN benchmark_runs.runtime IS 'How the model was run: eager, compiled, onnxruntime, ...';
COMMENT ON COLUMN benchmark_runs.runtime_mode IS 'Settings of the runtime that make a different series: attention, cache, compile mode, ...';
COMMENT ON COLUMN benchmark_runs.precision IS 'Precision of the computation; of another tool''s numbers also other (a precision without a name here: runtime_mode tells it) and unknown (the tool does not say).';
COMMENT ON COLUMN benchmark_runs.num_threads IS 'Intra-op threads that were asked for; NULL left the choice to the runtime (see loads).';
COMMENT ON COLUMN benchmark_runs.status IS 'ok when every point is; else failed, skipped or timed_out.';
COMMENT ON COLUMN benchmark_runs.error IS 'What went wrong with the run as a whole.';
COMMENT ON COLUMN benchmark_runs.started_at IS 'Start of the run, UTC.';
COMMENT ON COLUMN benchmark_runs.finished_at IS 'End of the run, UTC.';
COMMENT ON COLUMN benchmark_runs.load_time_s IS 'Seconds from a fresh process to a loaded model: median over launches of the sum of all stages.';
COMMENT ON COLUMN benchmark_runs.load_spawn_s IS 'Seconds to start the process, median over launches.';
COMMENT ON COLUMN benchmark_runs.load_import_s IS 'Seconds to import the framework, median over launches.';
COMMENT ON COLUMN benchmark_runs.load_device_init_s IS 'Seconds to take hold of the device, median over launches.';
COMMENT ON COLUMN benchmark_runs.load_weights_read_s IS 'Seconds to read or make the weights, median over launches.';
COMMENT ON COLUMN benchmark_runs.load_to_device_s IS 'Seconds to bring the weights to the device, median over launches.';
COMMENT ON COLUMN benchmark_runs.loads IS 'Every launch''s load: stages in seconds, memory in bytes, what was read back about what really runs.';
COMMENT ON COLUMN benchmark_runs.git_commit IS 'Commit of the repository the command was run in.';
COMMENT ON COLUMN benchmark_runs.git_branch IS 'Its branch.';
COMMENT ON COLUMN benchmark_runs.git_dirty IS 'Whether it had uncommitted changes.';
COMMENT ON COLUMN benchmark_runs.git_commit_time IS 'When the commit was made, UTC; the history is ordered by it.';
COMMENT ON COLUMN benchmark_runs.versions IS 'Software versions: python, torch, transformers, ...';
COMMENT ON COLUMN benchmark_runs.environment IS 'State of the machine at the start (values), and the reason for what could not be read (missing).';
COMMENT ON COLUMN benchmark_runs.device_details IS 'The device as this run found it, with the facts that change: driver, power cap, ...';
COMMENT ON COLUMN benchmark_runs.host_details IS 'The host as this run found it: NUMA, SMT, quota, operating system.';
COMMENT ON COLUMN benchmark_runs.settings IS 'What governed the measuring: profile, iterations, launches, limits, seed.';
COMMENT ON COLUMN benchmark_runs.tags IS 'The user''s own labels (--tag key=value).';
COMMENT ON COLUMN benchmark_runs.description IS 'The user''s own words about the run.';
COMMENT ON COLUMN benchmark_runs.command IS 'The command as typed, quoted for a POSIX shell.';
COMMENT ON COLUMN benchmark_runs.host IS 'Name of the machine.';
COMMENT ON COLUMN benchmark_runs.tool_version IS 'Version of the program that measured.';
COMMENT ON COLUMN benchmark_runs.format_version IS 'Version of the run file''s format as it was stored.';
COMMENT ON COLUMN benchmark_runs.source IS 'The run file this was read from; NULL when it was stored without one.';
COMMENT ON COLUMN benchmark_runs.source_sha256 IS 'SHA-256 (hex) of that file: loading it again changes nothing.';
COMMENT ON COLUMN benchmark_runs.ingested_at IS 'When the run was stored here, UTC.';
COMMENT ON COLUMN benchmark_runs.cpu_list IS 'Logical processors the measuring process was bound to, as Linux lists them ("0-3,8"); NULL for no binding.';
COMMENT ON COLUMN benchmark_runs.is_simulated IS 'True when what ran was an emulator, a software adapter or a script in the device''s place: never ranked as the device.';
COMMENT ON COLUMN benchmark_runs.weight_dtypes IS 'dtype -> how many values of the weights were of it, read back from what the first launch loaded; null where only the dtype is known.';
COMMENT ON COLUMN benchmark_runs.exporter IS 'What made the graphs that were loaded; NULL for a runtime that loads the model itself.';
COMMENT ON COLUMN benchmark_runs.build_kind IS 'Kind of the build that was loaded: onnx, openvino, ...; NULL for a runtime that loads the model itself.';
COMMENT ON COLUMN benchmark_runs.build_digest IS 'Digest of that build: its folder in the build cache.';
COMMENT ON COLUMN benchmark_runs.build_s IS 'Seconds that making that build took, whenever it was made.';
COMMENT ON COLUMN benchmark_runs.build_is_new IS 'Whether it was made for this very run, and not found in the build cache.';
COMMENT ON COLUMN benchmark_runs.preparation IS 'What was done before the first launch: the build, the reference of each point, and why a point has none; NULL for a run that needed nothing.';
COMMENT ON COLUMN benchmark_runs.origin_format IS 'Format of another tool''s file that the run was imported from; NULL for what was measured here.';
COMMENT ON COLUMN benchmark_runs.origin_definition IS 'Whose definitions the metrics follow, by name; only numbers of one definition are compared. NULL for our own.';
COMMENT ON COLUMN benchmark_runs.origin IS 'What the imported file says: the tool and its version, the definition of each metric in words, and every field that has no column.';

ALTER TABLE series RENAME TO old_series;
CREATE TABLE series (
    series_id VARCHAR PRIMARY KEY,
    hardware_id VARCHAR NOT NULL,
    model_id VARCHAR NOT NULL,
    model_revision VARCHAR,
    weights VARCHAR NOT NULL CHECK (weights IN ('pretrained', 'random', 'given')),
    config_hash VARCHAR NOT NULL,
    architecture_type VARCHAR,
    task VARCHAR NOT NULL,
    batch_size INTEGER NOT NULL CHECK (batch_size >= 1),
    sequence_length INTEGER CHECK (sequence_length >= 1),
    new_tokens INTEGER CHECK (new_tokens >= 1),
    concurrency INTEGER NOT NULL CHECK (concurrency >= 1),
    axes JSON NOT NULL,
    runtime VARCHAR NOT NULL,
    runtime_mode JSON NOT NULL,
    precision VARCHAR NOT NULL,
    num_threads INTEGER CHECK (num_threads >= 1),
    metric_definition INTEGER NOT NULL,
    hashed_keys JSON NOT NULL,
    hash_version INTEGER NOT NULL,
    first_seen_at TIMESTAMP NOT NULL,
    cpu_list VARCHAR,
    definition VARCHAR
);
INSERT INTO series BY NAME SELECT * FROM old_series;
DROP TABLE old_series;
COMMENT ON TABLE series IS 'What is measured over and over: one model, point, runtime, precision and hardware. Software versions are no part of it: they are what is tracked.';
COMMENT ON COLUMN series.series_id IS 'First 16 hex digits of the SHA-256 of hashed_keys.';
COMMENT ON COLUMN series.hardware_id IS 'The machine and device: hardware_info.hardware_id.';
COMMENT ON COLUMN series.model_id IS 'The model as it was asked for.';
COMMENT ON COLUMN series.model_revision IS 'Revision of its weights; NULL in the catalog.';
COMMENT ON COLUMN series.weights IS 'pretrained or random.';
COMMENT ON COLUMN series.config_hash IS 'SHA-256 (hex) of the model''s configuration.';
COMMENT ON COLUMN series.architecture_type IS 'Architecture family.';
COMMENT ON COLUMN series.task IS 'Task by Hugging Face''s name.';
COMMENT ON COLUMN series.batch_size IS 'Items per call.';
COMMENT ON COLUMN series.sequence_length IS 'Tokens of the input or prompt; NULL for families without tokens.';
COMMENT ON COLUMN series.new_tokens IS 'Tokens generated per sequence; NULL when nothing is generated.';
COMMENT ON COLUMN series.concurrency IS 'Requests in flight.';
COMMENT ON COLUMN series.axes IS 'Further axes of the grid: image_size, audio_seconds, steps, ...';
COMMENT ON COLUMN series.runtime IS 'How the model is run.';
COMMENT ON COLUMN series.runtime_mode IS 'Settings of the runtime that make a different series.';
COMMENT ON COLUMN series.precision IS 'Precision of the computation.';
COMMENT ON COLUMN series.num_threads IS 'Threads that were asked for; NULL left the choice to the runtime.';
COMMENT ON COLUMN series.metric_definition IS 'Version of the metrics'' definitions; another version is another series.';
COMMENT ON COLUMN series.hashed_keys IS 'The key/value set that series_id is the hash of: says why two series differ.';
COMMENT ON COLUMN series.hash_version IS 'Version of the rule that picks hashed_keys.';
COMMENT ON COLUMN series.first_seen_at IS 'Start of the first stored run of it, UTC.';
COMMENT ON COLUMN series.cpu_list IS 'Logical processors the measuring is bound to; NULL, and then no part of hashed_keys, for no binding.';
COMMENT ON COLUMN series.definition IS 'Whose definitions the metrics follow; NULL, and then no part of hashed_keys, for our own.';
