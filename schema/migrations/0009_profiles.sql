-- Profiles: where the time and memory of a call go, by module and by operator. They are measured under a profiler, which
-- slows calls, and are kept apart from the results for that reason. Like raw samples, modules and operators have no key.

CREATE TABLE profiles (
    profile_id VARCHAR PRIMARY KEY,
    session_id VARCHAR NOT NULL,
    hardware_id VARCHAR NOT NULL,
    series_id VARCHAR NOT NULL,
    model_id VARCHAR NOT NULL,
    model_revision VARCHAR,
    weights VARCHAR NOT NULL CHECK (weights IN ('pretrained', 'random', 'given')),
    architecture_type VARCHAR,
    task VARCHAR NOT NULL,
    device VARCHAR NOT NULL,
    runtime VARCHAR NOT NULL,
    runtime_mode JSON NOT NULL,
    precision VARCHAR NOT NULL,
    num_threads INTEGER CHECK (num_threads >= 1),
    batch_size INTEGER NOT NULL CHECK (batch_size >= 1),
    sequence_length INTEGER CHECK (sequence_length >= 1),
    new_tokens INTEGER CHECK (new_tokens >= 1),
    concurrency INTEGER NOT NULL CHECK (concurrency >= 1),
    axes JSON NOT NULL,
    profiler VARCHAR NOT NULL,
    calls INTEGER NOT NULL CHECK (calls >= 1),
    latency_median_ms DOUBLE NOT NULL CHECK (isfinite(latency_median_ms)),
    profiled_median_ms DOUBLE NOT NULL CHECK (isfinite(profiled_median_ms)),
    profiler_overhead_share DOUBLE CHECK (isfinite(profiler_overhead_share)),
    tokenize_median_ms DOUBLE CHECK (isfinite(tokenize_median_ms)),
    total_median_ms DOUBLE CHECK (isfinite(total_median_ms)),
    latency_samples_ms DOUBLE[] NOT NULL,
    profiled_samples_ms DOUBLE[] NOT NULL,
    tokenize_samples_ms DOUBLE[] NOT NULL,
    host_ms DOUBLE NOT NULL CHECK (isfinite(host_ms)),
    outside_operators_ms DOUBLE CHECK (isfinite(outside_operators_ms)),
    operator_calls DOUBLE CHECK (isfinite(operator_calls)),
    kernel_launches DOUBLE CHECK (isfinite(kernel_launches)),
    device_busy_ms DOUBLE CHECK (isfinite(device_busy_ms)),
    device_idle_ms DOUBLE CHECK (isfinite(device_idle_ms)),
    largest_gap_ms DOUBLE CHECK (isfinite(largest_gap_ms)),
    allocations DOUBLE CHECK (isfinite(allocations)),
    allocated_bytes DOUBLE CHECK (isfinite(allocated_bytes)),
    peak_bytes DOUBLE CHECK (isfinite(peak_bytes)),
    weights_bytes BIGINT CHECK (weights_bytes >= 0),
    flops DOUBLE CHECK (isfinite(flops)),
    bytes_accessed DOUBLE CHECK (isfinite(bytes_accessed)),
    graph_count DOUBLE CHECK (isfinite(graph_count)),
    graph_break_count DOUBLE CHECK (isfinite(graph_break_count)),
    other_metrics MAP(VARCHAR, DOUBLE) NOT NULL,
    peaks MAP(VARCHAR, DOUBLE) NOT NULL,
    missing MAP(VARCHAR, VARCHAR) NOT NULL,
    details JSON NOT NULL,
    started_at TIMESTAMP NOT NULL,
    finished_at TIMESTAMP NOT NULL,
    git_commit VARCHAR,
    git_branch VARCHAR,
    git_dirty BOOLEAN,
    git_commit_time TIMESTAMP,
    versions MAP(VARCHAR, VARCHAR) NOT NULL,
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
COMMENT ON TABLE profiles IS 'Calls of one model at one point under a profiler, on one device and runtime. Never part of latency results: the profiler slows calls.';
COMMENT ON COLUMN profiles.profile_id IS 'UUIDv7 of the profile.';
COMMENT ON COLUMN profiles.session_id IS 'UUIDv7 of the command that made it; profiles of several runtimes share it.';
COMMENT ON COLUMN profiles.hardware_id IS 'The machine and device: hardware_info.hardware_id.';
COMMENT ON COLUMN profiles.series_id IS 'The series that results at this point belong to: series.series_id. Profiles of one series differ in version and time only.';
COMMENT ON COLUMN profiles.model_id IS 'The model as it was asked for: hub name, folder or catalog name.';
COMMENT ON COLUMN profiles.model_revision IS 'Hub commit, or the hash of a local folder''s weight files; NULL in the catalog.';
COMMENT ON COLUMN profiles.weights IS 'pretrained; random: seeded random weights of the same architecture; given: those of a torch module handed over.';
COMMENT ON COLUMN profiles.architecture_type IS 'Architecture family; NULL for a torch module whose configuration names none.';
COMMENT ON COLUMN profiles.task IS 'Task by Hugging Face''s name.';
COMMENT ON COLUMN profiles.device IS 'The device that ran: cpu, cuda:0, openvino:GPU, ...';
COMMENT ON COLUMN profiles.runtime IS 'How the model was run: eager, compiled, onnxruntime, ...';
COMMENT ON COLUMN profiles.runtime_mode IS 'Settings of the runtime that make a different series.';
COMMENT ON COLUMN profiles.precision IS 'Precision of the computation.';
COMMENT ON COLUMN profiles.num_threads IS 'Intra-op threads that were asked for; NULL left the choice to the runtime.';
COMMENT ON COLUMN profiles.batch_size IS 'Items per call.';
COMMENT ON COLUMN profiles.sequence_length IS 'Tokens of the input or prompt; NULL for families without tokens.';
COMMENT ON COLUMN profiles.new_tokens IS 'Tokens generated per sequence; NULL when nothing is generated.';
COMMENT ON COLUMN profiles.concurrency IS 'Requests kept in flight.';
COMMENT ON COLUMN profiles.axes IS 'Further axes of the point: image_size, audio_seconds, steps, ...';
COMMENT ON COLUMN profiles.profiler IS 'The profiler, as the runtime names it. Each has its own names of operators.';
COMMENT ON COLUMN profiles.calls IS 'Profiled calls, which times are means of; as many calls without the profiler were made in turns with them.';
COMMENT ON COLUMN profiles.latency_median_ms IS 'Median of a call without the profiler in ms. For the overhead: latencies are in benchmark_results.';
COMMENT ON COLUMN profiles.profiled_median_ms IS 'Median of a call under the profiler in ms.';
COMMENT ON COLUMN profiles.profiler_overhead_share IS 'What the profiler adds to a call: profiled_median_ms / latency_median_ms - 1.';
COMMENT ON COLUMN profiles.tokenize_median_ms IS 'Median time to make the inputs of a call in ms; NULL without a tokenizer or processor.';
COMMENT ON COLUMN profiles.total_median_ms IS 'Median of making the inputs and of the call without the profiler, together, in ms; NULL where nothing is tokenized.';
COMMENT ON COLUMN profiles.latency_samples_ms IS 'Each call without the profiler in ms, in order.';
COMMENT ON COLUMN profiles.profiled_samples_ms IS 'Each call under the profiler in ms, in order.';
COMMENT ON COLUMN profiles.tokenize_samples_ms IS 'Each making of the inputs in ms, in order.';
COMMENT ON COLUMN profiles.host_ms IS 'Mean profiled call by the profiler''s clock in ms: what the exclusive times of its modules sum to.';
COMMENT ON COLUMN profiles.outside_operators_ms IS 'Of host_ms, what no operator ran in: Python, and the framework between operators.';
COMMENT ON COLUMN profiles.operator_calls IS 'Calls per call of operators that called no other.';
COMMENT ON COLUMN profiles.kernel_launches IS 'Kernels and copies that ran on an accelerator per call; NULL on a processor.';
COMMENT ON COLUMN profiles.device_busy_ms IS 'Time per call in ms in which the accelerator worked; NULL on a processor.';
COMMENT ON COLUMN profiles.device_idle_ms IS 'Time per call in ms in which the accelerator waited for the host; NULL on a processor.';
COMMENT ON COLUMN profiles.largest_gap_ms IS 'Longest time between two kernels in ms; NULL on a processor.';
COMMENT ON COLUMN profiles.allocations IS 'Allocations of memory per call, on the device that computes.';
COMMENT ON COLUMN profiles.allocated_bytes IS 'Bytes allocated per call, also if they were freed again.';
COMMENT ON COLUMN profiles.peak_bytes IS 'Most bytes allocated at a time above what was in use when the call began.';
COMMENT ON COLUMN profiles.weights_bytes IS 'Bytes of the model''s weights in memory.';
COMMENT ON COLUMN profiles.flops IS 'Counted FLOPs per call, two for each multiply-add.';
COMMENT ON COLUMN profiles.bytes_accessed IS 'Bytes that all operators of a call read and write, without any cache between them.';
COMMENT ON COLUMN profiles.graph_count IS 'Graphs that a compiler made of the model; NULL where nothing is compiled.';
COMMENT ON COLUMN profiles.graph_break_count IS 'Places where the compiler had to go back to Python; NULL where nothing is compiled.';
COMMENT ON COLUMN profiles.other_metrics IS 'Further numbers per call by name.';
COMMENT ON COLUMN profiles.peaks IS 'Measured peak rates of the device: FLOP/s by precision, and copy_bytes_per_sec. Empty where it was not calibrated.';
COMMENT ON COLUMN profiles.missing IS 'Number -> why it is not known.';
COMMENT ON COLUMN profiles.details IS 'Phases of the call, reasons of graph breaks, how operators were matched to modules.';
COMMENT ON COLUMN profiles.started_at IS 'Start of the profile, UTC.';
COMMENT ON COLUMN profiles.finished_at IS 'End of the profile, UTC.';
COMMENT ON COLUMN profiles.git_commit IS 'Commit of the working folder''s repository.';
COMMENT ON COLUMN profiles.git_branch IS 'Branch of that repository.';
COMMENT ON COLUMN profiles.git_dirty IS 'Whether it had uncommitted changes.';
COMMENT ON COLUMN profiles.git_commit_time IS 'Time of the commit, UTC.';
COMMENT ON COLUMN profiles.versions IS 'Versions of Python and of packages that can change a time.';
COMMENT ON COLUMN profiles.tags IS 'Labels given with --tag.';
COMMENT ON COLUMN profiles.description IS 'Sentence given with --description.';
COMMENT ON COLUMN profiles.command IS 'The command line, without secrets.';
COMMENT ON COLUMN profiles.host IS 'Name of the machine; empty for an anonymous profile.';
COMMENT ON COLUMN profiles.tool_version IS 'Version of benchhouse.';
COMMENT ON COLUMN profiles.format_version IS 'Version of the format of its file.';
COMMENT ON COLUMN profiles.source IS 'Path of its file.';
COMMENT ON COLUMN profiles.source_sha256 IS 'SHA-256 (hex) of that file.';
COMMENT ON COLUMN profiles.ingested_at IS 'When it was stored, UTC.';

CREATE TABLE profile_modules (
    profile_id VARCHAR NOT NULL,
    ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
    module VARCHAR NOT NULL,
    class_name VARCHAR,
    kind VARCHAR NOT NULL,
    layer VARCHAR,
    calls DOUBLE NOT NULL CHECK (isfinite(calls)),
    inclusive_ms DOUBLE NOT NULL CHECK (isfinite(inclusive_ms)),
    exclusive_ms DOUBLE NOT NULL CHECK (isfinite(exclusive_ms)),
    outside_operators_ms DOUBLE CHECK (isfinite(outside_operators_ms)),
    device_inclusive_ms DOUBLE CHECK (isfinite(device_inclusive_ms)),
    device_exclusive_ms DOUBLE CHECK (isfinite(device_exclusive_ms)),
    inclusive_samples_ms DOUBLE[] NOT NULL,
    allocations DOUBLE CHECK (isfinite(allocations)),
    allocated_bytes DOUBLE CHECK (isfinite(allocated_bytes)),
    peak_bytes DOUBLE CHECK (isfinite(peak_bytes)),
    flops DOUBLE CHECK (isfinite(flops)),
    bytes_accessed DOUBLE CHECK (isfinite(bytes_accessed))
);
COMMENT ON TABLE profile_modules IS 'What each module of a model took of a profiled call; times are means over the profile''s calls, in ms per call. The exclusive times of a profile sum to profiles.host_ms.';
COMMENT ON COLUMN profile_modules.profile_id IS 'The profile: profiles.profile_id.';
COMMENT ON COLUMN profile_modules.ordinal IS 'Place in the order of the model, from 0.';
COMMENT ON COLUMN profile_modules.module IS 'Path of the module in the model; empty for time in no module.';
COMMENT ON COLUMN profile_modules.class_name IS 'Its class; NULL for time in no module.';
COMMENT ON COLUMN profile_modules.kind IS 'What it is for: embedding, attention, feed_forward, normalisation, mixer (of a state-space model), convolution, head or other.';
COMMENT ON COLUMN profile_modules.layer IS 'Path of the layer it is in, up to its first number; NULL outside of layers.';
COMMENT ON COLUMN profile_modules.calls IS 'Its calls per call of the model.';
COMMENT ON COLUMN profile_modules.inclusive_ms IS 'Host time per call in ms with the modules inside it.';
COMMENT ON COLUMN profile_modules.exclusive_ms IS 'Host time per call in ms without the modules inside it.';
COMMENT ON COLUMN profile_modules.outside_operators_ms IS 'Of the exclusive time in ms, what no operator ran in.';
COMMENT ON COLUMN profile_modules.device_inclusive_ms IS 'Time per call in ms of the kernels that it and the modules inside it launched; NULL on a processor.';
COMMENT ON COLUMN profile_modules.device_exclusive_ms IS 'Time per call in ms of the kernels that it launched itself; NULL on a processor.';
COMMENT ON COLUMN profile_modules.inclusive_samples_ms IS 'Inclusive time of each profiled call in ms: on the device where one computes, else on the host.';
COMMENT ON COLUMN profile_modules.allocations IS 'Its own allocations per call.';
COMMENT ON COLUMN profile_modules.allocated_bytes IS 'Bytes of these.';
COMMENT ON COLUMN profile_modules.peak_bytes IS 'Most bytes above what was in use when it began, with the modules inside it.';
COMMENT ON COLUMN profile_modules.flops IS 'Counted FLOPs per call of its own operators.';
COMMENT ON COLUMN profile_modules.bytes_accessed IS 'Bytes per call that its own operators read and write.';

CREATE TABLE profile_ops (
    profile_id VARCHAR NOT NULL,
    ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
    module VARCHAR NOT NULL,
    operator VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    layer VARCHAR,
    placed VARCHAR NOT NULL,
    calls DOUBLE NOT NULL CHECK (isfinite(calls)),
    exclusive_ms DOUBLE NOT NULL CHECK (isfinite(exclusive_ms)),
    inclusive_ms DOUBLE NOT NULL CHECK (isfinite(inclusive_ms)),
    device_ms DOUBLE CHECK (isfinite(device_ms)),
    device_inclusive_ms DOUBLE CHECK (isfinite(device_inclusive_ms)),
    flops DOUBLE CHECK (isfinite(flops)),
    bytes_accessed DOUBLE CHECK (isfinite(bytes_accessed)),
    bound VARCHAR CHECK (bound IN ('compute', 'memory'))
);
COMMENT ON TABLE profile_ops IS 'What each operator took in each module of a profiled call; times are means over the profile''s calls, in ms per call.';
COMMENT ON COLUMN profile_ops.profile_id IS 'The profile: profiles.profile_id.';
COMMENT ON COLUMN profile_ops.ordinal IS 'Place in the order of time, the longest first, from 0.';
COMMENT ON COLUMN profile_ops.module IS 'Path of the module that called it: profile_modules.module.';
COMMENT ON COLUMN profile_ops.operator IS 'The operator as the runtime names it: aten::addmm, FusedMatMul, ...';
COMMENT ON COLUMN profile_ops.kind IS 'Kind of the module.';
COMMENT ON COLUMN profile_ops.layer IS 'Layer of the module; NULL outside of layers.';
COMMENT ON COLUMN profile_ops.placed IS 'Where it ran, as the runtime says: cpu, cuda, CPUExecutionProvider, ...';
COMMENT ON COLUMN profile_ops.calls IS 'Its calls there per call of the model.';
COMMENT ON COLUMN profile_ops.exclusive_ms IS 'Host time per call in ms without the operators inside it.';
COMMENT ON COLUMN profile_ops.inclusive_ms IS 'Host time per call in ms with the operators inside it.';
COMMENT ON COLUMN profile_ops.device_ms IS 'Time per call in ms of the kernels that it launched; NULL on a processor.';
COMMENT ON COLUMN profile_ops.device_inclusive_ms IS 'Time per call in ms of the kernels that it and the operators inside it launched; NULL on a processor.';
COMMENT ON COLUMN profile_ops.flops IS 'Counted FLOPs per call; NULL for an operator without a formula.';
COMMENT ON COLUMN profile_ops.bytes_accessed IS 'Bytes per call that it reads and writes; NULL where they were not counted.';
COMMENT ON COLUMN profile_ops.bound IS 'What limits it at the device''s measured peak rates: compute or memory; NULL where they are not known.';
