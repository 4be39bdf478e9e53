-- Tables of the warehouse, each column with its meaning and unit.
--
-- Times are naive UTC. Closed sets are VARCHAR with a CHECK. Only small tables have keys: on raw rows one would
-- make the insert ten times slower. There are no foreign keys, since a referenced row could then not be updated: the
-- writer keeps references whole and `setup_benchmark_db --verify` checks them.
-- list_sum is finite exactly when every sample is; of an empty list it is NULL, which a CHECK lets pass.

CREATE TABLE schema_migrations (
    version INTEGER PRIMARY KEY,
    name VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,
    applied_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE schema_migrations IS 'What was done to the schema of this file.';
COMMENT ON COLUMN schema_migrations.version IS 'Number of the migration; 0 stands for the views, which are replaced whenever their SQL changes.';
COMMENT ON COLUMN schema_migrations.name IS 'File name of the migration without its ending; "views" for version 0.';
COMMENT ON COLUMN schema_migrations.sha256 IS 'SHA-256 (hex) of the SQL that was applied.';
COMMENT ON COLUMN schema_migrations.applied_at IS 'When it was applied, UTC.';

CREATE TABLE hardware_info (
    hardware_id VARCHAR PRIMARY KEY,
    device_type VARCHAR NOT NULL,
    device_name VARCHAR,
    vendor VARCHAR,
    device_count INTEGER NOT NULL CHECK (device_count >= 1),
    memory_bytes BIGINT CHECK (memory_bytes >= 0),
    cpu_model VARCHAR,
    cpu_cores INTEGER CHECK (cpu_cores >= 1),
    cpu_threads INTEGER CHECK (cpu_threads >= 1),
    system_memory_bytes BIGINT CHECK (system_memory_bytes >= 0),
    simulated BOOLEAN NOT NULL,
    details JSON NOT NULL,
    hashed_keys JSON NOT NULL,
    hash_version INTEGER NOT NULL,
    first_seen_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE hardware_info IS 'Machines and devices that runs belong to: the same hardware_id means comparable numbers. Facts that change (driver, clocks, temperatures) are in benchmark_runs.';
COMMENT ON COLUMN hardware_info.hardware_id IS 'First 16 hex digits of the SHA-256 of hashed_keys.';
COMMENT ON COLUMN hardware_info.device_type IS 'Kind of device: cpu, cuda, rocm, mps, openvino, qnn, null.';
COMMENT ON COLUMN hardware_info.device_name IS 'Model of the device, as its vendor names it.';
COMMENT ON COLUMN hardware_info.vendor IS 'Maker of the device.';
COMMENT ON COLUMN hardware_info.device_count IS 'Devices of this model in the machine.';
COMMENT ON COLUMN hardware_info.memory_bytes IS 'Memory of the device in bytes; for a CPU and for unified memory, the machine''s.';
COMMENT ON COLUMN hardware_info.cpu_model IS 'Model of the host''s CPU.';
COMMENT ON COLUMN hardware_info.cpu_cores IS 'Physical cores of the host.';
COMMENT ON COLUMN hardware_info.cpu_threads IS 'Logical processors of the host.';
COMMENT ON COLUMN hardware_info.system_memory_bytes IS 'Memory of the host in bytes.';
COMMENT ON COLUMN hardware_info.simulated IS 'True for an emulator or scripted device, whose numbers are never ranked as a device''s.';
COMMENT ON COLUMN hardware_info.details IS 'The device as it was found by the first run on it: facts, precisions, and the reason for each fact that is missing.';
COMMENT ON COLUMN hardware_info.hashed_keys IS 'The key/value set that hardware_id is the hash of: says why two machines differ.';
COMMENT ON COLUMN hardware_info.hash_version IS 'Version of the rule that picks hashed_keys.';
COMMENT ON COLUMN hardware_info.first_seen_at IS 'Start of the first stored run on it, UTC.';

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
    architecture_type VARCHAR CHECK (architecture_type IN ('encoder-only', 'decoder-only', 'encoder-decoder', 'vision', 'vision-text', 'speech', 'multimodal', 'diffusion', 'mixture-of-experts', 'state-space', 'rag')),
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
    precision VARCHAR NOT NULL CHECK (precision IN ('float32', 'tf32', 'bfloat16', 'float16', 'int8', 'int4')),
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
    ingested_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE benchmark_runs IS 'One model on one device, runtime and precision, swept over a grid of points: the content of one run file.';
COMMENT ON COLUMN benchmark_runs.run_id IS 'UUIDv7 of the run.';
COMMENT ON COLUMN benchmark_runs.session_id IS 'UUIDv7 of the command that made the run; the runs of a batch share it.';
COMMENT ON COLUMN benchmark_runs.hardware_id IS 'The machine and device: hardware_info.hardware_id.';
COMMENT ON COLUMN benchmark_runs.model_id IS 'The model as it was asked for: hub name, folder or catalog name.';
COMMENT ON COLUMN benchmark_runs.model_source IS 'Where the model''s configuration came from: catalog, local, hub or module.';
COMMENT ON COLUMN benchmark_runs.model_revision IS 'Hub commit, or the hash of a local folder''s weight files; NULL in the catalog.';
COMMENT ON COLUMN benchmark_runs.model_path IS 'Folder with the configuration and weights, for the sources local and hub.';
COMMENT ON COLUMN benchmark_runs.weights IS 'pretrained; random: seeded random weights of the same architecture; given: those of a torch module handed over.';
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
COMMENT ON COLUMN benchmark_runs.precision IS 'Precision of the computation.';
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

CREATE TABLE benchmark_results (
    result_id VARCHAR PRIMARY KEY,
    run_id VARCHAR NOT NULL,
    series_id VARCHAR NOT NULL,
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
    time_to_first_token_ms DOUBLE CHECK (isfinite(time_to_first_token_ms)),
    time_per_output_token_ms DOUBLE CHECK (isfinite(time_per_output_token_ms)),
    inter_token_latency_p50_ms DOUBLE CHECK (isfinite(inter_token_latency_p50_ms)),
    inter_token_latency_p99_ms DOUBLE CHECK (isfinite(inter_token_latency_p99_ms)),
    prefill_tokens_per_sec DOUBLE CHECK (isfinite(prefill_tokens_per_sec)),
    decode_tokens_per_sec DOUBLE CHECK (isfinite(decode_tokens_per_sec)),
    first_call_ms DOUBLE CHECK (isfinite(first_call_ms)),
    time_to_ready_s DOUBLE CHECK (isfinite(time_to_ready_s)),
    compile_s DOUBLE CHECK (isfinite(compile_s)),
    tokenize_ms DOUBLE CHECK (isfinite(tokenize_ms)),
    memory_weights_mb DOUBLE CHECK (isfinite(memory_weights_mb)),
    memory_rss_base_mb DOUBLE CHECK (isfinite(memory_rss_base_mb)),
    memory_peak_rss_load_mb DOUBLE CHECK (isfinite(memory_peak_rss_load_mb)),
    memory_peak_rss_infer_mb DOUBLE CHECK (isfinite(memory_peak_rss_infer_mb)),
    memory_device_allocated_peak_mb DOUBLE CHECK (isfinite(memory_device_allocated_peak_mb)),
    memory_device_reserved_peak_mb DOUBLE CHECK (isfinite(memory_device_reserved_peak_mb)),
    memory_device_process_peak_mb DOUBLE CHECK (isfinite(memory_device_process_peak_mb)),
    memory_device_global_delta_mb DOUBLE CHECK (isfinite(memory_device_global_delta_mb)),
    energy_gpu_j_per_call DOUBLE CHECK (isfinite(energy_gpu_j_per_call)),
    energy_cpu_pkg_j_per_call DOUBLE CHECK (isfinite(energy_cpu_pkg_j_per_call)),
    energy_dram_j_per_call DOUBLE CHECK (isfinite(energy_dram_j_per_call)),
    energy_soc_j_per_call DOUBLE CHECK (isfinite(energy_soc_j_per_call)),
    energy_idle_w DOUBLE CHECK (isfinite(energy_idle_w)),
    flops DOUBLE CHECK (isfinite(flops)),
    output_error DOUBLE CHECK (isfinite(output_error)),
    other_metrics MAP(VARCHAR, DOUBLE) NOT NULL CHECK (isfinite(list_sum(map_values(other_metrics)))),
    missing MAP(VARCHAR, VARCHAR) NOT NULL,
    extra JSON NOT NULL
);
COMMENT ON TABLE benchmark_results IS 'One point of a run''s grid over all its launches; failed and skipped points are rows too.';
COMMENT ON COLUMN benchmark_results.result_id IS 'UUIDv7 of the result.';
COMMENT ON COLUMN benchmark_results.run_id IS 'The run: benchmark_runs.run_id.';
COMMENT ON COLUMN benchmark_results.series_id IS 'What is measured over and over: series.series_id.';
COMMENT ON COLUMN benchmark_results.batch_size IS 'Items per call.';
COMMENT ON COLUMN benchmark_results.sequence_length IS 'Tokens of the input or prompt; NULL for families without tokens.';
COMMENT ON COLUMN benchmark_results.new_tokens IS 'Tokens generated per sequence; NULL when nothing is generated.';
COMMENT ON COLUMN benchmark_results.concurrency IS 'Requests in flight.';
COMMENT ON COLUMN benchmark_results.axes IS 'Further axes of the grid: image_size, audio_seconds, steps, ...';
COMMENT ON COLUMN benchmark_results.status IS 'ok, failed, skipped or timed_out.';
COMMENT ON COLUMN benchmark_results.error IS 'Why the point is not ok.';
COMMENT ON COLUMN benchmark_results.validity IS 'How far the numbers can be trusted: valid, noisy, throttled or invalid; NULL unless status is ok.';
COMMENT ON COLUMN benchmark_results.doubts IS 'Kinds of the reasons not to take the numbers at their face; the evidence is in extra.';
COMMENT ON COLUMN benchmark_results.launches IS 'Fresh processes that measured the point.';
COMMENT ON COLUMN benchmark_results.iterations IS 'Timed samples of all launches.';
COMMENT ON COLUMN benchmark_results.warmup_iterations IS 'Calls before the timed ones, all launches.';
COMMENT ON COLUMN benchmark_results.stop_reason IS 'Why sampling ended: target, max_samples, max_time, plateau, fixed or mixed.';
COMMENT ON COLUMN benchmark_results.ci_scope IS 'What the confidence interval speaks of: between launches (3 or more), or only within them.';
COMMENT ON COLUMN benchmark_results.latency_mean_ms IS 'Latency of a call in ms: mean inside a launch, median over launches.';
COMMENT ON COLUMN benchmark_results.latency_median_ms IS 'Latency of a call in ms: median inside a launch, median over launches.';
COMMENT ON COLUMN benchmark_results.latency_std_ms IS 'Sample standard deviation of latency inside a launch in ms, median over launches.';
COMMENT ON COLUMN benchmark_results.latency_mad_ms IS 'Median absolute deviation of latency inside a launch in ms, median over launches.';
COMMENT ON COLUMN benchmark_results.latency_min_ms IS 'Lowest latency of all launches in ms.';
COMMENT ON COLUMN benchmark_results.latency_p25_ms IS '25th percentile of latency inside a launch in ms, median over launches.';
COMMENT ON COLUMN benchmark_results.latency_p75_ms IS '75th percentile of latency inside a launch in ms, median over launches.';
COMMENT ON COLUMN benchmark_results.latency_p90_ms IS '90th percentile of latency inside a launch in ms, median over launches; NULL when there are too few samples.';
COMMENT ON COLUMN benchmark_results.latency_p95_ms IS '95th percentile of latency inside a launch in ms, median over launches; NULL when there are too few samples.';
COMMENT ON COLUMN benchmark_results.latency_p99_ms IS '99th percentile of latency inside a launch in ms, median over launches; NULL when there are too few samples.';
COMMENT ON COLUMN benchmark_results.latency_max_ms IS 'Highest latency of all launches in ms.';
COMMENT ON COLUMN benchmark_results.latency_ci_low_ms IS 'Lower end of the 95 % confidence interval of latency_median_ms in ms; see ci_scope.';
COMMENT ON COLUMN benchmark_results.latency_ci_high_ms IS 'Upper end of the 95 % confidence interval of latency_median_ms in ms; see ci_scope.';
COMMENT ON COLUMN benchmark_results.latency_device_median_ms IS 'Median latency by the device''s own clock in ms.';
COMMENT ON COLUMN benchmark_results.host_gap_ms IS 'Wall latency less device latency in ms: time the device waits for the host.';
COMMENT ON COLUMN benchmark_results.throughput_samples_per_sec IS 'Items (sequences, images, ...) per second at the median latency.';
COMMENT ON COLUMN benchmark_results.throughput_tokens_per_sec IS 'Tokens per second: batch x sequence in a forward pass, batch x new tokens in generation.';
COMMENT ON COLUMN benchmark_results.time_to_first_token_ms IS 'From the start of a call to its first token on the host in ms.';
COMMENT ON COLUMN benchmark_results.time_per_output_token_ms IS 'Mean time per token after the first in ms.';
COMMENT ON COLUMN benchmark_results.inter_token_latency_p50_ms IS 'Median gap between successive tokens in ms.';
COMMENT ON COLUMN benchmark_results.inter_token_latency_p99_ms IS '99th percentile of the gap between successive tokens in ms.';
COMMENT ON COLUMN benchmark_results.prefill_tokens_per_sec IS 'Prompt tokens per second up to the first token.';
COMMENT ON COLUMN benchmark_results.decode_tokens_per_sec IS 'New tokens per second after the first.';
COMMENT ON COLUMN benchmark_results.first_call_ms IS 'Latency of the very first call of a launch in ms.';
COMMENT ON COLUMN benchmark_results.time_to_ready_s IS 'From the start of a fresh process to the end of its first call in s.';
COMMENT ON COLUMN benchmark_results.compile_s IS 'Time spent compiling in s.';
COMMENT ON COLUMN benchmark_results.tokenize_ms IS 'Time to tokenize the inputs of a call in ms; not part of latency.';
COMMENT ON COLUMN benchmark_results.memory_weights_mb IS 'Exact size of parameters and buffers in MB (10^6 bytes).';
COMMENT ON COLUMN benchmark_results.memory_rss_base_mb IS 'Resident memory of the process before the model was loaded in MB.';
COMMENT ON COLUMN benchmark_results.memory_peak_rss_load_mb IS 'Peak resident memory of the process while loading in MB.';
COMMENT ON COLUMN benchmark_results.memory_peak_rss_infer_mb IS 'Peak resident memory of the process over the inference calls in MB.';
COMMENT ON COLUMN benchmark_results.memory_device_allocated_peak_mb IS 'Peak of device memory in use by tensors in MB.';
COMMENT ON COLUMN benchmark_results.memory_device_reserved_peak_mb IS 'Peak of device memory held by the framework''s allocator in MB.';
COMMENT ON COLUMN benchmark_results.memory_device_process_peak_mb IS 'Peak of device memory held by the process as the driver counts it in MB.';
COMMENT ON COLUMN benchmark_results.memory_device_global_delta_mb IS 'Rise of device memory in use by all processes in MB.';
COMMENT ON COLUMN benchmark_results.energy_gpu_j_per_call IS 'Energy of the GPU per call in J, idle power included.';
COMMENT ON COLUMN benchmark_results.energy_cpu_pkg_j_per_call IS 'Energy of the CPU packages per call in J, idle power included.';
COMMENT ON COLUMN benchmark_results.energy_dram_j_per_call IS 'Energy of the memory modules per call in J, idle power included.';
COMMENT ON COLUMN benchmark_results.energy_soc_j_per_call IS 'Energy of the whole chip per call in J, idle power included.';
COMMENT ON COLUMN benchmark_results.energy_idle_w IS 'Idle power just before measuring in W.';
COMMENT ON COLUMN benchmark_results.flops IS 'Floating-point operations of a call.';
COMMENT ON COLUMN benchmark_results.output_error IS 'Largest relative difference of the outputs from the reference run''s.';
COMMENT ON COLUMN benchmark_results.other_metrics IS 'Numbers of the point that have no column of their own, by name; the unit is in the name.';
COMMENT ON COLUMN benchmark_results.missing IS 'Metric -> reason, for each number that could not be had.';
COMMENT ON COLUMN benchmark_results.extra IS 'Evidence and details: doubts with severity and evidence, the launches'' windows, statistics and errors.';

CREATE TABLE raw_benchmark_data (
    result_id VARCHAR NOT NULL,
    launch INTEGER NOT NULL CHECK (launch >= 0),
    phase VARCHAR NOT NULL CHECK (phase IN ('warmup', 'measure')),
    metric VARCHAR NOT NULL,
    unit VARCHAR NOT NULL,
    started_at TIMESTAMP NOT NULL,
    inner_loops INTEGER NOT NULL CHECK (inner_loops >= 1),
    samples DOUBLE[] NOT NULL CHECK (isfinite(list_sum(samples)))
);
COMMENT ON TABLE raw_benchmark_data IS 'Raw samples: one row a result, launch, phase and metric. The view raw_samples has one row a sample.';
COMMENT ON COLUMN raw_benchmark_data.result_id IS 'The result: benchmark_results.result_id.';
COMMENT ON COLUMN raw_benchmark_data.launch IS 'Number of the fresh process, from 0.';
COMMENT ON COLUMN raw_benchmark_data.phase IS 'warmup or measure.';
COMMENT ON COLUMN raw_benchmark_data.metric IS 'latency_wall, latency_device, time_to_first_token, inter_token_latency, ...';
COMMENT ON COLUMN raw_benchmark_data.unit IS 'Unit of the samples; ms for every time.';
COMMENT ON COLUMN raw_benchmark_data.started_at IS 'When the first sample was taken, UTC.';
COMMENT ON COLUMN raw_benchmark_data.inner_loops IS 'Calls per sample: above 1 each sample is the mean of a block of calls.';
COMMENT ON COLUMN raw_benchmark_data.samples IS 'The values in the order they were taken, in the unit of the row.';

CREATE TABLE series (
    series_id VARCHAR PRIMARY KEY,
    hardware_id VARCHAR NOT NULL,
    model_id VARCHAR NOT NULL,
    model_revision VARCHAR,
    weights VARCHAR NOT NULL CHECK (weights IN ('pretrained', 'random', 'given')),
    config_hash VARCHAR NOT NULL,
    architecture_type VARCHAR CHECK (architecture_type IN ('encoder-only', 'decoder-only', 'encoder-decoder', 'vision', 'vision-text', 'speech', 'multimodal', 'diffusion', 'mixture-of-experts', 'state-space', 'rag')),
    task VARCHAR NOT NULL,
    batch_size INTEGER NOT NULL CHECK (batch_size >= 1),
    sequence_length INTEGER CHECK (sequence_length >= 1),
    new_tokens INTEGER CHECK (new_tokens >= 1),
    concurrency INTEGER NOT NULL CHECK (concurrency >= 1),
    axes JSON NOT NULL,
    runtime VARCHAR NOT NULL,
    runtime_mode JSON NOT NULL,
    precision VARCHAR NOT NULL CHECK (precision IN ('float32', 'tf32', 'bfloat16', 'float16', 'int8', 'int4')),
    num_threads INTEGER CHECK (num_threads >= 1),
    metric_definition INTEGER NOT NULL,
    hashed_keys JSON NOT NULL,
    hash_version INTEGER NOT NULL,
    first_seen_at TIMESTAMP NOT NULL
);
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

CREATE TABLE series_alias (
    series_id VARCHAR PRIMARY KEY,
    canonical_series_id VARCHAR NOT NULL CHECK (canonical_series_id <> series_id),
    reason VARCHAR NOT NULL,
    created_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE series_alias IS 'Series that continue another one after a rename or an added parameter.';
COMMENT ON COLUMN series_alias.series_id IS 'The series that is to be read as another one.';
COMMENT ON COLUMN series_alias.canonical_series_id IS 'The series it is read as; never itself an alias.';
COMMENT ON COLUMN series_alias.reason IS 'Why they are the same.';
COMMENT ON COLUMN series_alias.created_at IS 'When this was decided, UTC.';

CREATE TABLE change_points (
    change_point_id VARCHAR PRIMARY KEY,
    series_id VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    result_id VARCHAR NOT NULL,
    value_before DOUBLE CHECK (isfinite(value_before)),
    value_after DOUBLE CHECK (isfinite(value_after)),
    relative_change DOUBLE CHECK (isfinite(relative_change)),
    p_value DOUBLE CHECK (isfinite(p_value)),
    state VARCHAR NOT NULL CHECK (state IN ('suspected', 'confirmed', 'withdrawn')),
    detector VARCHAR NOT NULL,
    detector_version VARCHAR NOT NULL,
    parameters JSON NOT NULL,
    detected_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE change_points IS 'Places in a series where its level changed.';
COMMENT ON COLUMN change_points.change_point_id IS 'UUIDv7 of the change point.';
COMMENT ON COLUMN change_points.series_id IS 'The series: series.series_id.';
COMMENT ON COLUMN change_points.metric IS 'The column of benchmark_results that changed.';
COMMENT ON COLUMN change_points.result_id IS 'First result after the change: benchmark_results.result_id.';
COMMENT ON COLUMN change_points.value_before IS 'Median before the change, in the metric''s unit.';
COMMENT ON COLUMN change_points.value_after IS 'Median after the change, in the metric''s unit.';
COMMENT ON COLUMN change_points.relative_change IS 'value_after / value_before - 1.';
COMMENT ON COLUMN change_points.p_value IS 'Of the detector''s test.';
COMMENT ON COLUMN change_points.state IS 'suspected until the change survives the next run.';
COMMENT ON COLUMN change_points.detector IS 'Name of the detector.';
COMMENT ON COLUMN change_points.detector_version IS 'Version of the detector.';
COMMENT ON COLUMN change_points.parameters IS 'Parameters of the detector.';
COMMENT ON COLUMN change_points.detected_at IS 'When it was found, UTC.';

CREATE TABLE alerts (
    alert_id VARCHAR PRIMARY KEY,
    series_id VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    change_point_id VARCHAR,
    first_commit VARCHAR,
    last_commit VARCHAR,
    group_id VARCHAR,
    triage VARCHAR NOT NULL CHECK (triage IN ('new', 'regression', 'improvement', 'method', 'hardware', 'noise')),
    relative_change DOUBLE CHECK (isfinite(relative_change)),
    detector VARCHAR NOT NULL,
    detector_version VARCHAR NOT NULL,
    parameters JSON NOT NULL,
    created_at TIMESTAMP NOT NULL,
    updated_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE alerts IS 'Changes somebody should look at, one a series and range of commits.';
COMMENT ON COLUMN alerts.alert_id IS 'UUIDv7 of the alert.';
COMMENT ON COLUMN alerts.series_id IS 'The series: series.series_id.';
COMMENT ON COLUMN alerts.metric IS 'The column of benchmark_results that changed.';
COMMENT ON COLUMN alerts.change_point_id IS 'The change point behind it: change_points.change_point_id; NULL for a gate''s finding.';
COMMENT ON COLUMN alerts.first_commit IS 'Last commit known good.';
COMMENT ON COLUMN alerts.last_commit IS 'First commit known changed.';
COMMENT ON COLUMN alerts.group_id IS 'Shared by the alerts that one cause explains.';
COMMENT ON COLUMN alerts.triage IS 'What it turned out to be; new until somebody looked.';
COMMENT ON COLUMN alerts.relative_change IS 'Size of the change as a fraction of the value before.';
COMMENT ON COLUMN alerts.detector IS 'Name of the detector.';
COMMENT ON COLUMN alerts.detector_version IS 'Version of the detector.';
COMMENT ON COLUMN alerts.parameters IS 'Parameters of the detector.';
COMMENT ON COLUMN alerts.created_at IS 'When it was raised, UTC.';
COMMENT ON COLUMN alerts.updated_at IS 'When its triage last changed, UTC.';

CREATE TABLE annotations (
    annotation_id VARCHAR PRIMARY KEY,
    target_kind VARCHAR NOT NULL CHECK (target_kind IN ('run', 'result', 'series', 'hardware', 'alert')),
    target_id VARCHAR NOT NULL,
    author VARCHAR,
    note VARCHAR NOT NULL,
    created_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE annotations IS 'People''s notes about runs, results, series, hardware and alerts.';
COMMENT ON COLUMN annotations.annotation_id IS 'UUIDv7 of the note.';
COMMENT ON COLUMN annotations.target_kind IS 'What the note is about.';
COMMENT ON COLUMN annotations.target_id IS 'Id of what the note is about.';
COMMENT ON COLUMN annotations.author IS 'Who wrote it.';
COMMENT ON COLUMN annotations.note IS 'The note.';
COMMENT ON COLUMN annotations.created_at IS 'When it was written, UTC.';
