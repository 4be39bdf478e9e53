-- Comments on tables and columns that are newer than those of the migrations, which are never edited. They are written
-- with the views, whenever the SQL of either has changed.
COMMENT ON TABLE alerts IS 'Regressions for a person to triage, one per series and range of commits.';
COMMENT ON COLUMN alerts.change_point_id IS 'The change point: change_points.change_point_id; NULL for a regression that only the gate found.';
COMMENT ON COLUMN alerts.first_commit IS 'Last commit known to be good.';
COMMENT ON COLUMN alerts.last_commit IS 'First commit known to be changed.';
COMMENT ON COLUMN alerts.group_id IS 'Shared by alerts with one cause.';
COMMENT ON COLUMN alerts.triage IS 'new, regression, improvement, intended (a change that is wanted), method (the measurement changed), hardware (the machine changed) or noise.';
COMMENT ON COLUMN alerts.confirmed_by IS 'Result of a fresh session that confirmed it: benchmark_results.result_id; NULL without one.';
COMMENT ON COLUMN alerts.note IS 'Reason given for the triage.';

COMMENT ON TABLE annotations IS 'Notes about runs, results, series, hardware and alerts.';
COMMENT ON COLUMN annotations.target_kind IS 'Kind of the note''s subject: run, result, series, hardware or alert.';
COMMENT ON COLUMN annotations.target_id IS 'Id of the note''s subject.';
COMMENT ON COLUMN annotations.author IS 'Author of the note; NULL if not given.';

COMMENT ON COLUMN quality_results.metric IS 'perplexity, perplexity_increase, kl_divergence, kl_divergence_p99, top1_agreement, embedding_cosine, embedding_rank_correlation, confidence_error, token_error_rate, latent_error, exact_match or choice_accuracy (of a user''s questions), or task_accuracy (of an imported evaluation).';
COMMENT ON COLUMN quality_results.low IS 'Lower end of the 95 % interval: over windows (NULL with fewer than 5), or by the stated standard errors of an evaluation''s tasks.';
COMMENT ON COLUMN quality_results.high IS 'Upper end of that interval.';
COMMENT ON COLUMN quality_results.windows IS 'Windows of the text, inputs, prompts, or tasks of an evaluation, that were scored; NULL if nothing was.';

COMMENT ON COLUMN benchmark_results.series_id IS 'The series: series.series_id.';
COMMENT ON COLUMN benchmark_results.concurrency IS 'Requests in flight. Latency is that of one request, throughput that of all of them.';
COMMENT ON COLUMN benchmark_results.warmup_iterations IS 'Calls before the timed ones, of all launches; NULL in an import whose file does not state them, 0 in some that an earlier version stored.';
COMMENT ON COLUMN benchmark_results.validity IS 'valid, noisy, throttled or invalid; NULL unless status is ok.';
COMMENT ON COLUMN benchmark_results.doubts IS 'Kinds of doubt about the numbers; the evidence is in extra.';
COMMENT ON COLUMN benchmark_results.ci_scope IS 'What the 95 % intervals cover: between = the typical launch (3 or more launches); within = the calls of the measured launches, not other launches.';
COMMENT ON COLUMN benchmark_results.pooled_quantiles IS 'Columns with a percentile over the samples of all launches together, because one launch has too few; other percentiles are medians over launches.';
COMMENT ON COLUMN benchmark_results.host_gap_ms IS 'Host time per call in ms during which the device idles: wall time of a call minus the kernel times of a profiled call; NULL if no profiler reports them.';
COMMENT ON COLUMN benchmark_results.memory_device_process_peak_mb IS 'Peak of device memory held by the process, according to the driver, in MB.';
COMMENT ON COLUMN benchmark_results.power_peak_w IS 'Highest power of the device over the inference calls in W, at the rate of its sensor.';
COMMENT ON COLUMN benchmark_results.documents IS 'Documents in the searched corpus; NULL without retrieval.';
COMMENT ON COLUMN benchmark_results.top_k IS 'Documents retrieved per item; NULL without retrieval.';
COMMENT ON COLUMN benchmark_results.prefill_ms IS 'Median time of a call from the end of the previous phase, or its start, to its first token in ms.';
COMMENT ON COLUMN benchmark_results.real_time_factor IS 'Median latency per second of audio: below 1 is faster than real time.';
COMMENT ON COLUMN benchmark_results.active_parameter_count IS 'Parameters used for one token; fewer than parameter_count in a mixture of experts.';
COMMENT ON COLUMN benchmark_results.expert_load_imbalance IS 'Tokens of the busiest expert relative to the mean of all experts: 1 is an even load.';
COMMENT ON COLUMN benchmark_results.bytes_accessed IS 'Bytes that a call reads and writes, counted from the inputs and outputs of its operations.';
COMMENT ON COLUMN benchmark_results.achieved_flops_per_sec IS 'Floating-point operations of a call per second of its median latency; with requests in flight, times completed requests per second.';
COMMENT ON COLUMN benchmark_results.output_max_abs_error IS 'Largest absolute difference between an output value and that of the eager float32 model; the worst of several arrays.';
COMMENT ON COLUMN benchmark_results.output_cosine_similarity IS 'Cosine of the angle between the output and that of the eager float32 model: 1 is the same direction; the worst of several arrays.';
COMMENT ON COLUMN benchmark_results.output_equal_token_share IS 'Share of generated tokens that equal those of the eager float32 model at the same position.';
COMMENT ON COLUMN benchmark_results.compile_warm_s IS 'Seconds spent compiling with the cache of an earlier launch: median over the launches that had one.';
COMMENT ON COLUMN benchmark_results.graph_count IS 'Graphs that the compiler made of the model: maximum over launches.';
COMMENT ON COLUMN benchmark_results.graph_break_count IS 'Places where the compiler had to fall back to Python: maximum over launches.';
COMMENT ON COLUMN benchmark_results.recompile_count IS 'Graphs recompiled because a guard failed, over a whole launch: maximum over launches.';
COMMENT ON COLUMN benchmark_results.nodes IS 'Nodes of the graphs as executed, after the runtime''s fusions: maximum over launches.';
COMMENT ON COLUMN benchmark_results.nodes_on_cpu_unasked IS 'Nodes that ran on the CPU although another device was requested: maximum over launches.';
COMMENT ON COLUMN benchmark_results.model_size_mb IS 'Size of the model as loaded by its runtime, in MB (10^6 bytes): the files of its build, graphs and weights if it loads one, otherwise its parameters and buffers.';
COMMENT ON COLUMN benchmark_results.other_metrics IS 'Metrics of the point without their own column, by name; the name contains the unit.';
COMMENT ON COLUMN benchmark_results.missing IS 'Metric -> reason, for each number that could not be measured.';

COMMENT ON COLUMN benchmark_runs.model_id IS 'The requested model: hub name, folder or catalog name.';
COMMENT ON COLUMN benchmark_runs.weights IS 'pretrained; random: seeded random weights of the same architecture; given: those of a torch module passed in, or of another tool.';
COMMENT ON COLUMN benchmark_runs.weights_reason IS 'Why the weights are random although pretrained ones were requested.';
COMMENT ON COLUMN benchmark_runs.max_sequence_length IS 'Longest sequence that the model accepts, in tokens; NULL without a limit.';
COMMENT ON COLUMN benchmark_runs.finished_at IS 'End of the run, UTC; NULL in an import whose file states none.';
COMMENT ON COLUMN benchmark_runs.requested_device IS 'Value of --device: auto, cuda, ...';
COMMENT ON COLUMN benchmark_runs.runtime IS 'The runtime: eager, compiled, onnxruntime, ...; for a load test, that of the server: vllm, llama.cpp, ...';
COMMENT ON COLUMN benchmark_runs.runtime_mode IS 'Settings of the runtime that distinguish series: attention, cache, compile mode, ...; for a load test also loop, arrivals, lengths and limits.';
COMMENT ON COLUMN benchmark_runs.precision IS 'Precision of the computation. Imported numbers may also have other (no name for it here, see runtime_mode) and unknown (not stated).';
COMMENT ON COLUMN benchmark_runs.num_threads IS 'Requested intra-op threads; NULL if the runtime chose (see loads).';
COMMENT ON COLUMN benchmark_runs.status IS 'ok if every point is ok; otherwise failed, skipped or timed_out.';
COMMENT ON COLUMN benchmark_runs.error IS 'Error of the run as a whole.';
COMMENT ON COLUMN benchmark_runs.load_device_init_s IS 'Seconds to initialize the device, median over launches.';
COMMENT ON COLUMN benchmark_runs.load_weights_read_s IS 'Seconds to read or generate the weights, median over launches.';
COMMENT ON COLUMN benchmark_runs.load_to_device_s IS 'Seconds to copy the weights to the device, median over launches.';
COMMENT ON COLUMN benchmark_runs.loads IS 'The load of every launch: stages in seconds, memory in bytes, and properties read back from the loaded model.';
COMMENT ON COLUMN benchmark_runs.environment IS 'State of the machine at the start (values), and the reason for each value that could not be read (missing).';
COMMENT ON COLUMN benchmark_runs.settings IS 'Settings of the measurement: profile, iterations, launches, limits, seed.';
COMMENT ON COLUMN benchmark_runs.tags IS 'Labels from --tag key=value.';
COMMENT ON COLUMN benchmark_runs.description IS 'Text from --description.';
COMMENT ON COLUMN benchmark_runs.source IS 'The run file that the run was loaded from; NULL if it was stored without one.';
COMMENT ON COLUMN benchmark_runs.is_simulated IS 'True for an emulator, a software adapter or a scripted device, whose numbers are never ranked.';
COMMENT ON COLUMN benchmark_runs.weight_dtypes IS 'dtype -> number of weight values with it, read back from the first launch; null if only the dtype is known.';
COMMENT ON COLUMN benchmark_runs.exporter IS 'The exporter of the loaded graphs; NULL for a runtime that loads the model itself.';
COMMENT ON COLUMN benchmark_runs.build_kind IS 'Kind of the loaded build: onnx, openvino, ...; NULL for a runtime that loads the model itself.';
COMMENT ON COLUMN benchmark_runs.build_s IS 'Seconds that the build took when it was made.';
COMMENT ON COLUMN benchmark_runs.build_is_new IS 'Whether the build was made for this run instead of taken from the build cache.';
COMMENT ON COLUMN benchmark_runs.preparation IS 'Work before the first launch: the build, the reference of each point, and why a point has none; NULL without any.';
COMMENT ON COLUMN benchmark_runs.origin_format IS 'Format of the file that the run was imported from; NULL for our own measurements.';
COMMENT ON COLUMN benchmark_runs.origin_definition IS 'Name of the metrics'' definitions; only numbers with the same definitions are compared. NULL for our own.';
COMMENT ON COLUMN benchmark_runs.origin IS 'Content of the imported file: the tool and its version, the definition of each metric in words, and every field without a column.';

COMMENT ON TABLE change_points IS 'Points in a series at which its level changed.';
COMMENT ON COLUMN change_points.change_point_id IS 'First 32 hex digits of the SHA-256 of metric and result_id, so that all warehouses have the same id.';
COMMENT ON COLUMN change_points.p_value IS 'p-value of the detector''s test.';
COMMENT ON COLUMN change_points.state IS 'suspected until the change survives the next run, then confirmed; withdrawn if later runs contradict it.';
COMMENT ON COLUMN change_points.run_id IS 'The run of result_id.';

COMMENT ON COLUMN hardware_info.device_name IS 'Model of the device, by its vendor''s name.';
COMMENT ON COLUMN hardware_info.simulated IS 'True for an emulator or a scripted device, whose numbers are never ranked.';
COMMENT ON COLUMN hardware_info.details IS 'The device as the first run on it found it: facts, precisions, and the reason for each missing fact.';
COMMENT ON COLUMN hardware_info.hashed_keys IS 'The keys and values that hardware_id is the hash of: they show why two machines differ.';
COMMENT ON COLUMN hardware_info.peak_flops IS 'Precision -> floating-point operations per second of a large matrix product on the device, from the newest valid calibration of each precision (or the newest noisy one without a valid one); NULL before the first.';
COMMENT ON COLUMN hardware_info.peak_copy_bytes_per_sec IS 'Bytes read and written per second by a large copy in device memory, from the newest valid calibration (or the newest noisy one without a valid one).';

COMMENT ON TABLE history_scans IS 'State of the last search for change points, so that only series with new results are searched again. May be emptied at any time.';
COMMENT ON COLUMN history_scans.series_id IS 'The series, after applying its alias. Not a key, since DuckDB cannot delete and insert one key in a transaction.';
COMMENT ON COLUMN history_scans.digest IS 'Digest of the results, the change points and the detector at that time.';

COMMENT ON TABLE profile_modules IS 'Time and memory of each module in a profiled call; times are means over the profile''s calls, in ms per call. The exclusive times of a profile sum to profiles.host_ms.';
COMMENT ON COLUMN profile_modules.module IS 'Path of the module in the model; empty for time outside of modules.';
COMMENT ON COLUMN profile_modules.class_name IS 'Its class; NULL for time outside of modules.';
COMMENT ON COLUMN profile_modules.kind IS 'Purpose of the module: embedding, attention, feed_forward, normalisation, mixer (of a state-space model), convolution, head or other.';
COMMENT ON COLUMN profile_modules.outside_operators_ms IS 'Part of the exclusive time in ms that was spent outside of operators.';
COMMENT ON COLUMN profile_modules.inclusive_samples_ms IS 'Inclusive time of each profiled call in ms: on the device if it is an accelerator, otherwise on the host.';
COMMENT ON COLUMN profile_modules.allocated_bytes IS 'Bytes of its own allocations per call.';
COMMENT ON COLUMN profile_modules.peak_bytes IS 'Peak of bytes above those in use when it began, including the modules inside it.';

COMMENT ON TABLE profile_ops IS 'Time of each operator in each module of a profiled call; times are means over the profile''s calls, in ms per call.';
COMMENT ON COLUMN profile_ops.ordinal IS 'Place in the order of time, longest first, from 0.';
COMMENT ON COLUMN profile_ops.placed IS 'Where it ran, according to the runtime: cpu, cuda, CPUExecutionProvider, ...';
COMMENT ON COLUMN profile_ops.bytes_accessed IS 'Bytes per call that it reads and writes; NULL if not counted.';
COMMENT ON COLUMN profile_ops.bound IS 'The limiting factor at the device''s measured peak rates: compute or memory; NULL without peak rates.';

COMMENT ON TABLE profiles IS 'Profiled calls of one model at one point, on one device and runtime. Never part of latency results, since the profiler slows down calls.';
COMMENT ON COLUMN profiles.series_id IS 'The series of results at this point: series.series_id. Profiles of one series differ only in versions and time.';
COMMENT ON COLUMN profiles.model_id IS 'The requested model: hub name, folder or catalog name.';
COMMENT ON COLUMN profiles.weights IS 'pretrained; random: seeded random weights of the same architecture; given: those of a torch module passed in.';
COMMENT ON COLUMN profiles.runtime IS 'The runtime: eager, compiled, onnxruntime, ...';
COMMENT ON COLUMN profiles.runtime_mode IS 'Settings of the runtime that distinguish series.';
COMMENT ON COLUMN profiles.num_threads IS 'Requested intra-op threads; NULL if the runtime chose.';
COMMENT ON COLUMN profiles.profiler IS 'Name of the profiler. Each has its own names of operators.';
COMMENT ON COLUMN profiles.calls IS 'Number of profiled calls, over which times are averaged; as many calls without the profiler alternated with them.';
COMMENT ON COLUMN profiles.latency_median_ms IS 'Median of a call without the profiler in ms, for the overhead; latencies are in benchmark_results.';
COMMENT ON COLUMN profiles.profiler_overhead_share IS 'Overhead of the profiler: profiled_median_ms / latency_median_ms - 1.';
COMMENT ON COLUMN profiles.tokenize_median_ms IS 'Median time to prepare the inputs of a call in ms; NULL without a tokenizer or processor.';
COMMENT ON COLUMN profiles.total_median_ms IS 'Median of preparing the inputs plus a call without the profiler in ms; NULL if nothing is tokenized.';
COMMENT ON COLUMN profiles.tokenize_samples_ms IS 'Time of each preparation of the inputs in ms, in order.';
COMMENT ON COLUMN profiles.host_ms IS 'Mean profiled call by the profiler''s clock in ms; the exclusive times of its modules sum to it.';
COMMENT ON COLUMN profiles.outside_operators_ms IS 'Part of host_ms spent outside of operators: in Python, and in the framework between operators.';
COMMENT ON COLUMN profiles.allocations IS 'Memory allocations per call, on the device that computes.';
COMMENT ON COLUMN profiles.allocated_bytes IS 'Bytes allocated per call, including those freed again.';
COMMENT ON COLUMN profiles.peak_bytes IS 'Peak of allocated bytes above those in use when the call began.';
COMMENT ON COLUMN profiles.graph_count IS 'Graphs that a compiler made of the model; NULL without a compiler.';
COMMENT ON COLUMN profiles.graph_break_count IS 'Places where the compiler had to fall back to Python; NULL without a compiler.';
COMMENT ON COLUMN profiles.peaks IS 'Measured peak rates of the device: FLOP/s by precision, and copy_bytes_per_sec. Empty if it was never calibrated.';
COMMENT ON COLUMN profiles.missing IS 'Metric -> reason, for each number that could not be measured.';

COMMENT ON TABLE raw_benchmark_data IS 'Raw samples: one row per result, launch, phase and metric. The view raw_samples has one row per sample.';
COMMENT ON COLUMN raw_benchmark_data.samples IS 'The values in order of measurement, in the unit of the row; empty once they are compacted to a sketch.';
COMMENT ON COLUMN raw_benchmark_data.sample_count IS 'Number of samples taken, even if they were compacted since.';
COMMENT ON COLUMN raw_benchmark_data.median IS 'Their median: the value of the launch in comparisons.';
COMMENT ON COLUMN raw_benchmark_data.p99 IS 'Their 99th percentile by linear interpolation; NULL for fewer than 299 samples, which are too few, and for blocks of calls, which hide it.';
COMMENT ON COLUMN raw_benchmark_data.sketch IS 'Quantiles of compacted samples, at equal steps from 0 to 1, by linear interpolation; NULL while the samples are stored.';
COMMENT ON COLUMN raw_benchmark_data.compacted_at IS 'When the samples were replaced with the sketch, UTC.';

COMMENT ON TABLE requests IS 'Requests of a load test. Times are in ms from started_at, by the generator''s clock; NULL for events that did not happen. The view request_times has the latencies.';
COMMENT ON COLUMN requests.started_at IS 'Time 0 of the repetition, UTC.';
COMMENT ON COLUMN requests.intended_ms IS 'Intended start of the request, in ms: by the schedule of an open loop; in a closed loop, when a slot became free.';
COMMENT ON COLUMN requests.token_ms IS 'Arrival of each chunk with output, in ms. A chunk is not always one token. Empty if there were too many to keep, or if they were compacted.';
COMMENT ON COLUMN requests.end_ms IS 'End of the response ([DONE], or the reason for finishing) or of the attempt, in ms. Up to schema version 10: end of the body.';
COMMENT ON COLUMN requests.last_token_ms IS 'Arrival of the last output, in ms; NULL if unknown.';
COMMENT ON COLUMN requests.closed_ms IS 'End of the body of the response, in ms, which a server may hold open; NULL if unknown.';
COMMENT ON COLUMN requests.tokens_out IS 'Tokens of the output; see tokens_counted_by.';
COMMENT ON COLUMN requests.tokens_counted_by IS 'What counted tokens_out: tokenizer (--tokenizer), chunks (at most the number of tokens), or hidden (a server that did not stream all of them, as of reasoning); NULL for the count of the server, runtime or imported tool.';
COMMENT ON COLUMN requests.cached_tokens IS 'Prompt tokens that the server took from its prefix cache; NULL if it does not report them.';
COMMENT ON COLUMN requests.error IS 'Kind of error: refused, http_429, truncated, ...; NULL for a successful request.';
COMMENT ON COLUMN requests.detail IS 'Text of the error.';
COMMENT ON COLUMN requests.conversation IS 'Number of the conversation that the request belongs to; NULL for a single request.';

COMMENT ON TABLE schema_migrations IS 'Migrations that were applied to this file.';
COMMENT ON COLUMN schema_migrations.version IS 'Number of the migration; 0 for the views and comments, which are replaced whenever their SQL changes.';

COMMENT ON TABLE series IS 'What is measured repeatedly: one model, point, runtime, precision and hardware. Software versions are not part of it, since they are what it tracks.';
COMMENT ON COLUMN series.model_id IS 'The requested model.';
COMMENT ON COLUMN series.runtime IS 'The runtime: eager, compiled, onnxruntime, ...';
COMMENT ON COLUMN series.runtime_mode IS 'Settings of the runtime that distinguish series.';
COMMENT ON COLUMN series.num_threads IS 'Requested threads; NULL if the runtime chose.';
COMMENT ON COLUMN series.metric_definition IS 'Version of the metric definitions; another version makes another series.';
COMMENT ON COLUMN series.hashed_keys IS 'The keys and values that series_id is the hash of: they show why two series differ.';
COMMENT ON COLUMN series.cpu_list IS 'Logical processors that the measuring process is bound to; NULL without binding, and then not part of hashed_keys.';
COMMENT ON COLUMN series.definition IS 'Name of the metrics'' definitions; NULL for our own, and then not part of hashed_keys.';

COMMENT ON COLUMN series_alias.series_id IS 'The series that is read as another one.';
COMMENT ON COLUMN series_alias.reason IS 'Why the two are one history.';
COMMENT ON COLUMN series_alias.created_at IS 'When the alias was created, UTC.';

COMMENT ON TABLE series_heads IS 'The latest results of each series, updated with each stored run; the views latest_results and accepted_results read them.';
COMMENT ON COLUMN series_heads.series_id IS 'The series: series.series_id. Not a key, since DuckDB cannot delete and insert one key in a transaction.';
COMMENT ON COLUMN series_heads.model_id IS 'The requested model of these results.';
COMMENT ON COLUMN series_heads.latest_result_id IS 'Its newest result, with any status.';
COMMENT ON COLUMN series_heads.accepted_result_id IS 'Its newest valid result, or else its newest noisy or throttled one; NULL without any.';
