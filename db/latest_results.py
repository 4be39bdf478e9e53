"""Data that is updated with each stored run: the latest results of each series, and the calibration of each device.

The table series_heads has the newest result of each series, and the newest one that comparisons accept: every
comparison needs them, and computing them with a window over a million results takes seconds.

hardware_info has the values that calibration runs measured on a device. They are recomputed from all stored
calibrations of the device each time, so it does not matter in which order, or how often, run files are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.core.records import Run
from db import rows
from db.connection import Connection

if TYPE_CHECKING:
    from db.rows import Row


CALIBRATION = "device-calibration"
"""The task of a run that measures a device instead of a model; the views exclude it by this name."""

LATEST_RESULTS = f"""
WITH candidates AS (
    SELECT r.series_id, run.model_id, r.result_id, run.started_at, r.validity = 'valid' AS is_valid,
        r.status = 'ok' AND r.validity <> 'invalid' AS is_accepted
    FROM benchmark_results r JOIN benchmark_runs run USING (run_id)
    WHERE run.task <> '{CALIBRATION}'
), latest AS (
    SELECT series_id, model_id, result_id AS latest_result_id, started_at AS latest_started_at
    FROM candidates
    QUALIFY row_number() OVER (PARTITION BY series_id ORDER BY started_at DESC, result_id DESC) = 1
), accepted AS (
    SELECT series_id, result_id AS accepted_result_id, started_at AS accepted_started_at,
        is_valid AS accepted_is_valid
    FROM candidates
    WHERE is_accepted
    QUALIFY row_number() OVER (PARTITION BY series_id ORDER BY is_valid DESC, started_at DESC, result_id DESC) = 1
)
SELECT * FROM latest LEFT JOIN accepted USING (series_id)
"""
"""The table series_heads, computed from the results."""


def compute(connection: Connection) -> None:
    """Rebuild the table series_heads from the results, inside the caller's transaction."""
    connection.execute("DELETE FROM series_heads")
    connection.execute(f"INSERT INTO series_heads BY NAME {LATEST_RESULTS}")


def latest_rows(run: Run, row: Row, known: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of series_heads for the run's series after storing it; `row` is the run's row, `known` the rows so far.

    A valid result is preferred to a noisy or throttled one, then a newer to an older one. An invalid result is never
    accepted.
    """
    if run.cell.workload.task == CALIBRATION:
        return []
    latest: dict[str, Row] = {entry_row["series_id"]: dict(entry_row) for entry_row in known}
    for result in run.results:
        series_id = rows.series_id(rows.series_keys(run, result.point))
        entry = latest.setdefault(series_id, {"series_id": series_id, "model_id": row["model_id"]})
        key = (row["started_at"], result.result_id)
        if "latest_result_id" not in entry or key > (entry["latest_started_at"], entry["latest_result_id"]):
            entry["latest_started_at"], entry["latest_result_id"] = key
        if result.status == "ok" and result.validity != "invalid":
            accepted = (result.validity == "valid", row["started_at"], result.result_id)
            names = ("accepted_is_valid", "accepted_started_at", "accepted_result_id")
            if entry.get("accepted_result_id") is None or accepted > tuple(entry[name] for name in names):
                entry.update(zip(names, accepted, strict=True))
    return list(latest.values())


NEWEST_CALIBRATION = f"""
WITH measured AS (
    SELECT run.hardware_id, run.precision, run.started_at, run.run_id,
        r.validity = 'valid' AS is_valid, r.other_metrics['peak_flops_per_sec'] AS peak,
        r.other_metrics['peak_copy_bytes_per_sec'] AS peak_copy
    FROM benchmark_results r
    JOIN benchmark_runs run USING (run_id)
    WHERE run.task = '{CALIBRATION}' AND r.status = 'ok' AND r.validity <> 'invalid'
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
"""Values of hardware_info for each calibrated device: per precision, and for the copy, the newest valid reading, or the
newest noisy one if none is valid. A busy machine gives low readings, and a low peak makes every utilization high."""

UPDATE_CALIBRATION = f"""
UPDATE hardware_info SET
    peak_flops = newest.peak_flops,
    peak_copy_bytes_per_sec = newest.peak_copy_bytes_per_sec,
    calibrated_at = newest.calibrated_at,
    calibration_run_id = newest.calibration_run_id
FROM ({NEWEST_CALIBRATION}) newest
WHERE hardware_info.hardware_id = newest.hardware_id AND hardware_info.hardware_id = ?
"""


def apply_calibration(connection: Connection, run: Run) -> None:
    """Update the device's row after storing a calibration run; does nothing for any other run."""
    if run.cell.workload.task == CALIBRATION:
        connection.execute(UPDATE_CALIBRATION, [run.hardware.hardware_id])
