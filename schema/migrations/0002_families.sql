-- Columns for every architecture family: the further axes of a point, the phases and readings of families other than
-- text, the work of a call, and what a device was measured to be capable of.
--
-- DuckDB adds no column with a CHECK: the writer refuses NaN and infinity, and `setup_benchmark_db --verify` looks for
-- them. The axes are in the column `axes` too, which is what a series' id is made of; verify compares the two.

ALTER TABLE benchmark_results ADD COLUMN image_size INTEGER;
ALTER TABLE benchmark_results ADD COLUMN audio_seconds DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN steps INTEGER;
ALTER TABLE benchmark_results ADD COLUMN documents INTEGER;
ALTER TABLE benchmark_results ADD COLUMN top_k INTEGER;
COMMENT ON COLUMN benchmark_results.image_size IS 'Pixels a side of the input image, or of the one made; NULL for families without images.';
COMMENT ON COLUMN benchmark_results.audio_seconds IS 'Seconds of audio in each item; NULL for families without audio.';
COMMENT ON COLUMN benchmark_results.steps IS 'Denoising steps of a call; NULL for families other than diffusion.';
COMMENT ON COLUMN benchmark_results.documents IS 'Documents in the corpus that is searched; NULL where nothing is retrieved.';
COMMENT ON COLUMN benchmark_results.top_k IS 'Documents retrieved for each item; NULL where nothing is retrieved.';

ALTER TABLE benchmark_results ADD COLUMN retrieve_ms DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN image_encode_ms DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN encode_ms DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN prefill_ms DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN decode_ms DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN step_ms DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN real_time_factor DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN audio_seconds_per_call DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN active_parameter_count DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN expert_load_imbalance DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN bytes_accessed DOUBLE;
ALTER TABLE benchmark_results ADD COLUMN achieved_flops_per_sec DOUBLE;
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

ALTER TABLE hardware_info ADD COLUMN peak_flops MAP(VARCHAR, DOUBLE);
ALTER TABLE hardware_info ADD COLUMN peak_copy_bytes_per_sec DOUBLE;
ALTER TABLE hardware_info ADD COLUMN calibrated_at TIMESTAMP;
ALTER TABLE hardware_info ADD COLUMN calibration_run_id VARCHAR;
COMMENT ON COLUMN hardware_info.peak_flops IS 'Precision -> floating-point operations per second that a large matrix product reached on the device, by the newest valid calibration of each precision (the newest noisy one where none is valid); NULL before the first.';
COMMENT ON COLUMN hardware_info.peak_copy_bytes_per_sec IS 'Bytes per second, read and written ones together, that a large copy in the device''s memory reached, by the newest valid calibration (the newest noisy one where none is valid).';
COMMENT ON COLUMN hardware_info.calibrated_at IS 'Start of the newest of these calibration runs, UTC.';
COMMENT ON COLUMN hardware_info.calibration_run_id IS 'The newest of these calibration runs: benchmark_runs.run_id.';

COMMENT ON COLUMN benchmark_runs.model_source IS 'Where the model came from: catalog, local, hub, module (a torch module handed over), bench (a benchmark somebody wrote).';

-- Last, since DuckDB commits no change of rows that a change of their table follows.
UPDATE benchmark_results SET
    image_size = TRY_CAST(axes->>'image_size' AS INTEGER),
    audio_seconds = TRY_CAST(axes->>'audio_seconds' AS DOUBLE),
    steps = TRY_CAST(axes->>'steps' AS INTEGER),
    documents = TRY_CAST(axes->>'documents' AS INTEGER),
    top_k = TRY_CAST(axes->>'top_k' AS INTEGER),
    retrieve_ms = other_metrics['retrieve_ms'],
    image_encode_ms = other_metrics['image_encode_ms'],
    encode_ms = other_metrics['encode_ms'],
    prefill_ms = other_metrics['prefill_ms'],
    decode_ms = other_metrics['decode_ms'],
    step_ms = other_metrics['step_ms'],
    real_time_factor = other_metrics['real_time_factor'],
    audio_seconds_per_call = other_metrics['audio_seconds_per_call'],
    active_parameter_count = other_metrics['active_parameter_count'],
    expert_load_imbalance = other_metrics['expert_load_imbalance'],
    bytes_accessed = other_metrics['bytes_accessed'],
    achieved_flops_per_sec = other_metrics['achieved_flops_per_sec'],
    other_metrics = map_from_entries(list_filter(map_entries(other_metrics), lambda entry: entry.key NOT IN (
        'retrieve_ms', 'image_encode_ms', 'encode_ms', 'prefill_ms', 'decode_ms', 'step_ms',
        'real_time_factor', 'audio_seconds_per_call', 'active_parameter_count', 'expert_load_imbalance',
        'bytes_accessed', 'achieved_flops_per_sec'
    )));
