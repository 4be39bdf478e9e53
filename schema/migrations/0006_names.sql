-- The names of architecture families are those of the plugins that a program has, and no longer a list in two CHECKs: a
-- program with one family more stores its runs in the same tables. `setup_benchmark_db --verify` asks the plugins.
--
-- A CHECK cannot be dropped: the two tables that have one are made anew.

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
    precision VARCHAR NOT NULL CHECK (precision IN ('float32', 'tf32', 'bfloat16', 'float16', 'int8', 'int4', 'other', 'unknown')),
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
    precision VARCHAR NOT NULL CHECK (precision IN ('float32', 'tf32', 'bfloat16', 'float16', 'int8', 'int4', 'other', 'unknown')),
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

COMMENT ON COLUMN hardware_info.device_type IS 'Kind of device, by the name of its plugin: cpu, cuda, openvino, ...';
