"""What calibration runs say of a device: kept in hardware_info, and always what the runs that are stored say.

It is worked out from all stored calibrations of the device each time one comes in, so that neither the order in which
run files are loaded nor loading them again makes a difference.
"""

from __future__ import annotations

from benchmarking.records import Run
from db.migrate import Connection

TASK = "device-calibration"
"""The task of a calibration run, which is of a device and not of a model; the views leave it out by this name."""

NEWEST = f"""
WITH measured AS (
    SELECT run.hardware_id, run.precision, run.started_at, run.run_id,
        r.validity = 'valid' AS is_valid, r.other_metrics['peak_flops_per_sec'] AS peak,
        r.other_metrics['peak_copy_bytes_per_sec'] AS peak_copy
    FROM benchmark_results r
    JOIN benchmark_runs run USING (run_id)
    WHERE run.task = '{TASK}' AND r.status = 'ok' AND r.validity <> 'invalid'
        AND coalesce(peak, peak_copy) IS NOT NULL
),
by_precision AS (
    SELECT hardware_id, precision, last(peak ORDER BY is_valid, started_at, run_id) AS peak
    FROM measured WHERE peak IS NOT NULL GROUP BY hardware_id, precision
),
peaks AS (
    SELECT hardware_id, map(list(precision ORDER BY precision), list(peak ORDER BY precision)) AS peak_flops
    FROM by_precision GROUP BY hardware_id
),
rest AS (
    SELECT hardware_id,
        last(peak_copy ORDER BY is_valid, started_at, run_id) FILTER (WHERE peak_copy IS NOT NULL)
            AS peak_copy_bytes_per_sec,
        last(started_at ORDER BY is_valid, started_at, run_id) AS calibrated_at,
        last(run_id ORDER BY is_valid, started_at, run_id) AS calibration_run_id
    FROM measured GROUP BY hardware_id
)
SELECT hardware_id, peaks.peak_flops, rest.* EXCLUDE (hardware_id) FROM rest LEFT JOIN peaks USING (hardware_id)
"""
"""For each calibrated device what hardware_info must hold: of each precision, and of the copy, the newest valid
reading, or the newest noisy one where none is valid: a loaded machine reads low, and a low peak makes every share of it
high."""

UPDATE = f"""
UPDATE hardware_info SET
    peak_flops = newest.peak_flops,
    peak_copy_bytes_per_sec = newest.peak_copy_bytes_per_sec,
    calibrated_at = newest.calibrated_at,
    calibration_run_id = newest.calibration_run_id
FROM ({NEWEST}) newest
WHERE hardware_info.hardware_id = newest.hardware_id AND hardware_info.hardware_id = ?
"""


def take_in(connection: Connection, run: Run) -> None:
    """Bring the device's row up to date with a run whose rows are in already; nothing to do unless it calibrates."""
    if run.cell.workload.task == TASK:
        connection.execute(UPDATE, [run.hardware.hardware_id])
