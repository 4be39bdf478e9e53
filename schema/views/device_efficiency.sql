-- The share of a device's measured peak that a result reached. The peak is that of the result's precision; it is NULL
-- until `run_hardware_benchmark --calibrate-device` has run on the device.
CREATE OR REPLACE VIEW device_efficiency AS
SELECT
    run.model_id,
    r.batch_size,
    r.sequence_length,
    r.new_tokens,
    r.image_size,
    r.audio_seconds,
    r.steps,
    r.documents,
    r.top_k,
    hardware.device_name,
    run.runtime,
    run.precision,
    r.latency_median_ms,
    r.flops,
    r.achieved_flops_per_sec,
    hardware.peak_flops[run.precision] AS peak_flops_per_sec,
    CASE WHEN NOT run.is_simulated THEN
        r.achieved_flops_per_sec / hardware.peak_flops[run.precision]
    END AS share_of_peak,
    r.flops / nullif(r.bytes_accessed, 0) AS arithmetic_intensity,
    hardware.peak_flops[run.precision] / hardware.peak_copy_bytes_per_sec AS balance_intensity,
    r.bytes_accessed,
    r.bytes_accessed / nullif(r.latency_median_ms / 1e3, 0) AS achieved_bytes_per_sec,
    hardware.peak_copy_bytes_per_sec,
    r.validity,
    r.doubts,
    r.concurrency,
    r.axes,
    run.architecture_type,
    run.task,
    run.weights,
    run.runtime_mode,
    run.device,
    hardware.device_type,
    run.is_simulated AS simulated,
    hardware.calibrated_at,
    hardware.calibration_run_id,
    run.started_at,
    run.hardware_id,
    r.series_id,
    run.run_id,
    r.result_id
FROM accepted_results r
JOIN benchmark_runs run USING (run_id)
JOIN hardware_info hardware USING (hardware_id)
WHERE r.flops IS NOT NULL
ORDER BY run.model_id, r.batch_size, r.sequence_length, r.new_tokens, r.image_size, r.audio_seconds, r.steps,
    r.documents, r.top_k, r.latency_median_ms, r.result_id;

COMMENT ON VIEW device_efficiency IS 'The latest valid result of every series with counted operations, with the calibrated peaks of its device.';
COMMENT ON COLUMN device_efficiency.peak_flops_per_sec IS 'Floating-point operations per second of a large matrix product at this precision on the device; NULL if not calibrated.';
COMMENT ON COLUMN device_efficiency.share_of_peak IS 'achieved_flops_per_sec / peak_flops_per_sec: 1 is as fast as a large matrix product; above 1, the peak was measured too low, on a busy machine; NULL if not calibrated, and for a simulator.';
COMMENT ON COLUMN device_efficiency.arithmetic_intensity IS 'Floating-point operations per byte read or written by the call.';
COMMENT ON COLUMN device_efficiency.balance_intensity IS 'Operations per byte at which arithmetic and memory of the device take equally long: below it a call is memory-bound; NULL if not calibrated.';
COMMENT ON COLUMN device_efficiency.achieved_bytes_per_sec IS 'Bytes of a call per second of its median latency; exceeds the memory bandwidth if caches serve some of them.';
COMMENT ON COLUMN device_efficiency.simulated IS 'True for an emulator, a software adapter or a scripted device, whose numbers are never ranked.';
