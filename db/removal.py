"""Removes stored runs from a warehouse, with everything that refers to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarking.core.records import Run
from db import latest_results
from db.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRuns:
    """The runs of a file, to be stored together."""

    runs: Sequence[Run]
    source: str | None = None
    """The file's path."""
    source_sha256: str | None = None
    """Hex digest of the file."""


OF_FILES = "SELECT run_id FROM benchmark_runs WHERE source_sha256 IN (SELECT unnest(?)) AND origin_format IS NOT NULL"
RUNS = "(SELECT unnest($runs))"
RESULTS = f"(SELECT result_id FROM benchmark_results WHERE run_id IN {RUNS})"
SERIES = f"(SELECT series_id FROM benchmark_results WHERE run_id IN {RUNS})"
CHANGES = (
    f"(SELECT change_point_id FROM change_points WHERE result_id IN {RESULTS} OR last_good_result_id IN {RESULTS})"
)
ALERTS = f"(SELECT alert_id FROM alerts WHERE result_id IN {RESULTS} OR change_point_id IN {CHANGES})"
STATEMENTS = (
    f"DELETE FROM annotations WHERE target_id IN {RUNS} OR target_id IN {RESULTS} OR target_id IN {ALERTS}",
    f"DELETE FROM alerts WHERE alert_id IN {ALERTS}",
    f"UPDATE alerts SET confirmed_by = NULL WHERE confirmed_by IN {RESULTS}",
    f"DELETE FROM history_scans WHERE series_id IN {SERIES} OR series_id IN "
    f"(SELECT canonical_series_id FROM series_alias WHERE series_id IN {SERIES})",
    f"DELETE FROM change_points WHERE change_point_id IN {CHANGES}",
    f"DELETE FROM raw_benchmark_data WHERE result_id IN {RESULTS}",
    f"DELETE FROM requests WHERE result_id IN {RESULTS}",
    f"DELETE FROM benchmark_results WHERE run_id IN {RUNS}",
    "UPDATE hardware_info SET peak_flops = NULL, peak_copy_bytes_per_sec = NULL, calibrated_at = NULL, "
    f"calibration_run_id = NULL WHERE calibration_run_id IN {RUNS}",
    f"DELETE FROM benchmark_runs WHERE run_id IN {RUNS}",
)
"""What refers to a run comes before the run. Series and machines stay: names, aliases and notes belong to them."""
CALIBRATED = f"SELECT hardware_id FROM hardware_info WHERE calibration_run_id IN {RUNS}"


def remove(connection: Connection, run_ids: Sequence[str]) -> None:
    """Delete the runs with their results, samples, requests, notes, and what was computed from them, inside the
    caller's transaction."""
    if not run_ids:
        return
    runs = {"runs": list(run_ids)}
    calibrated = [row[0] for row in connection.execute(CALIBRATED, runs).fetchall()]
    for sql in STATEMENTS:
        connection.execute(sql, runs)
    for hardware_id in calibrated:
        connection.execute(latest_results.UPDATE_CALIBRATION, [hardware_id])
    latest_results.compute(connection)
