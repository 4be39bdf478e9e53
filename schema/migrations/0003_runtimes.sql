-- Columns for every runtime: how far its outputs are from the reference's, what it compiled, built and loaded, what of
-- its graph ran where, which processors it was bound to, and whether what ran was the device itself.
--
-- DuckDB adds no column with a CHECK: the writer refuses NaN and infinity, and `setup_benchmark_db --verify` looks for
-- them. A series' processors are part of its id only where it is bound to some, so that older ids stay what they are.

ALTER TABLE benchmark_results ADD COLUMN output_max_abs_error DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN output_cosine_similarity DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN output_equal_token_share DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN compile_cold_s DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN compile_warm_s DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN graph_count DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN graph_break_count DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN recompile_count DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN nodes DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN nodes_on_cpu_unasked DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN model_size_mb DOUBLE;
COMMENT ON COLUMN benchmark_results.output_error IS 'Relative L2 error of the first call''s output, ||y - x|| / ||x||, x being the output of the eager float32 model on the same weights and inputs; of several arrays the worst.';
COMMENT ON COLUMN benchmark_results.output_max_abs_error IS 'Largest absolute difference of a value of the output from the eager float32 model''s; of several arrays the worst.';
COMMENT ON COLUMN benchmark_results.output_cosine_similarity IS 'Cosine of the angle between the output and the eager float32 model''s: 1 is the same direction; of several arrays the worst.';
COMMENT ON COLUMN benchmark_results.output_equal_token_share IS 'Share of the generated tokens that are the eager float32 model''s, place by place.';
COMMENT ON COLUMN benchmark_results.compile_s IS 'Seconds spent compiling in a launch, or an upper bound of them (extra: compile_method): median over launches.';
COMMENT ON COLUMN benchmark_results.compile_cold_s IS 'Seconds spent compiling with an empty compilation cache: median over the launches that had one.';
COMMENT ON COLUMN benchmark_results.compile_warm_s IS 'Seconds spent compiling with the cache that an earlier launch left: median over the launches that had one.';
COMMENT ON COLUMN benchmark_results.graph_count IS 'Graphs that the compiler made of the model: most of any launch.';
COMMENT ON COLUMN benchmark_results.graph_break_count IS 'Places where the compiler had to leave the model to Python: most of any launch.';
COMMENT ON COLUMN benchmark_results.recompile_count IS 'Graphs compiled anew because a guard failed, over a whole launch: most of any launch.';
COMMENT ON COLUMN benchmark_results.nodes IS 'Nodes of the graphs as the runtime ran them, its own fusions done: most of any launch.';
COMMENT ON COLUMN benchmark_results.nodes_on_cpu_unasked IS 'Nodes among them that ran on the CPU although another device was asked for: most of any launch.';
COMMENT ON COLUMN benchmark_results.model_size_mb IS 'Size of the model as its runtime takes it, in MB (10^6 bytes): the files of its build, graphs and weights, where it loads one, else its parameters and buffers.';

ALTER TABLE benchmark_runs ADD COLUMN cpu_list VARCHAR;
ALTER TABLE benchmark_runs ADD COLUMN is_simulated BOOLEAN;
ALTER TABLE benchmark_runs ADD COLUMN weight_dtypes JSON;
ALTER TABLE benchmark_runs ADD COLUMN exporter VARCHAR;
ALTER TABLE benchmark_runs ADD COLUMN build_kind VARCHAR;
ALTER TABLE benchmark_runs ADD COLUMN build_digest VARCHAR;
ALTER TABLE benchmark_runs ADD COLUMN build_s DOUBLE;
ALTER TABLE benchmark_runs ADD COLUMN build_is_new BOOLEAN;
ALTER TABLE benchmark_runs ADD COLUMN preparation JSON;
COMMENT ON COLUMN benchmark_runs.cpu_list IS 'Logical processors the measuring process was bound to, as Linux lists them ("0-3,8"); NULL for no binding.';
COMMENT ON COLUMN benchmark_runs.is_simulated IS 'True when what ran was an emulator, a software adapter or a script in the device''s place: never ranked as the device.';
COMMENT ON COLUMN benchmark_runs.weight_dtypes IS 'dtype -> how many values of the weights were of it, read back from what the first launch loaded; null where only the dtype is known.';
COMMENT ON COLUMN benchmark_runs.exporter IS 'What made the graphs that were loaded; NULL for a runtime that loads the model itself.';
COMMENT ON COLUMN benchmark_runs.build_kind IS 'Kind of the build that was loaded: onnx, openvino, ...; NULL for a runtime that loads the model itself.';
COMMENT ON COLUMN benchmark_runs.build_digest IS 'Digest of that build: its folder in the build cache.';
COMMENT ON COLUMN benchmark_runs.build_s IS 'Seconds that making that build took, whenever it was made.';
COMMENT ON COLUMN benchmark_runs.build_is_new IS 'Whether it was made for this very run, and not found in the build cache.';
COMMENT ON COLUMN benchmark_runs.preparation IS 'What was done before the first launch: the build, the reference of each point, and why a point has none; NULL for a run that needed nothing.';

ALTER TABLE series ADD COLUMN cpu_list VARCHAR;
COMMENT ON COLUMN series.cpu_list IS 'Logical processors the measuring is bound to; NULL, and then no part of hashed_keys, for no binding.';

-- Last, since DuckDB commits no change of rows that a change of their table follows.
UPDATE benchmark_results SET
    output_max_abs_error = other_metrics['output_max_abs_error'],
    output_cosine_similarity = other_metrics['output_cosine_similarity'],
    output_equal_token_share = other_metrics['output_equal_token_share'],
    compile_cold_s = other_metrics['compile_cold_s'],
    compile_warm_s = other_metrics['compile_warm_s'],
    graph_count = other_metrics['graph_count'],
    graph_break_count = other_metrics['graph_break_count'],
    recompile_count = other_metrics['recompile_count'],
    nodes = other_metrics['nodes'],
    nodes_on_cpu_unasked = other_metrics['nodes_on_cpu_unasked'],
    model_size_mb = coalesce(other_metrics['model_size_mb'], memory_weights_mb),
    other_metrics = map_from_entries(list_filter(map_entries(other_metrics), lambda entry: entry.key NOT IN (
        'output_max_abs_error', 'output_cosine_similarity', 'output_equal_token_share', 'compile_cold_s',
        'compile_warm_s', 'graph_count', 'graph_break_count', 'recompile_count', 'nodes', 'nodes_on_cpu_unasked',
        'model_size_mb'
    )));
UPDATE benchmark_runs SET
    is_simulated = TRY_CAST(device_details->>'simulated' AS BOOLEAN),
    weight_dtypes = coalesce(
        json_extract(loads, '$[0].verified.weight_dtypes'), json_extract(loads, '$[0].verified.parameters_by_dtype')
    );
