"""Removes stored runs from a warehouse, with everything that refers to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

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


OF_FILES = """
SELECT run_id FROM benchmark_runs WHERE origin_format IS NOT NULL
    AND (source_sha256 IN (SELECT unnest($sha256)) OR source IN (SELECT unnest($sources)))
"""
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
    f"DELETE FROM quality_results WHERE run_id IN {RUNS}",
    f"DELETE FROM benchmark_results WHERE run_id IN {RUNS}",
    "UPDATE hardware_info SET peak_flops = NULL, peak_copy_bytes_per_sec = NULL, calibrated_at = NULL, "
    f"calibration_run_id = NULL WHERE calibration_run_id IN {RUNS}",
    f"DELETE FROM benchmark_runs WHERE run_id IN {RUNS}",
)
"""What refers to a run comes before the run. Series and machines stay: names, aliases and notes belong to them."""
NOTES = f"""
SELECT annotation_id, target_kind, target_id, author, note, created_at FROM annotations
WHERE target_id IN {RUNS} OR target_id IN {RESULTS} OR target_id IN {ALERTS} ORDER BY created_at, annotation_id
"""
CONTENTS = f"""
SELECT run_id, source_sha256, source, result_id, concat_ws(' ', result.status, batch_size, sequence_length, new_tokens,
    concurrency, axes, latency_mean_ms, latency_median_ms, throughput_samples_per_sec,
    throughput_tokens_per_sec) AS content
FROM benchmark_results result JOIN benchmark_runs USING (run_id) WHERE run_id IN {RUNS} ORDER BY run_id, result_id
"""
"""What the runs of a file contain, whatever model, hardware and so on they are labelled with."""
CALIBRATED = f"SELECT hardware_id FROM hardware_info WHERE calibration_run_id IN {RUNS}"


T = TypeVar("T")


def replace(connection: Connection, run_ids: Sequence[str], new: Sequence[FileRuns], store: Callable[[], T]) -> T:
    """Delete the runs like `remove` and call `store`, which stores the new ones, inside the caller's transaction. Notes
    about a deleted run or result are then about the new one with the same content or, if none has it, about the first
    run of the same file. Returns what `store` returns."""
    notes = connection.execute(NOTES, {"runs": list(run_ids)}).fetchall() if run_ids else []
    before = connection.execute(CONTENTS, {"runs": list(run_ids)}).fetchall() if notes else []
    remove(connection, run_ids)
    stored = store()
    if not notes or not any(file.runs for file in new):
        return stored
    known = {file.source_sha256 for file in new}
    of_path = {file.source: file.source_sha256 for file in new if file.source}
    # An edited file has another digest than before at the same path.
    before = [
        (run, sha256 if sha256 in known else of_path.get(path, sha256), path, *rest)
        for run, sha256, path, *rest in before
    ]
    added = {"runs": [run.run_id for file in new for run in file.runs]}
    old, after = _Contents.of(before), _Contents.of(connection.execute(CONTENTS, added).fetchall())
    first = {file.source_sha256: file.runs[0].run_id for file in reversed(new) if file.runs}
    for annotation_id, kind, target, author, note, created_at in notes:
        successor = after.like.get(old.contents.get(target, ()))
        sha256 = old.files.get(target, next(iter(first)))
        row = [annotation_id, kind, successor, author, note, created_at]
        if successor is None:
            row[1:3] = "run", first.get(sha256, next(iter(first.values())))
        connection.execute("INSERT INTO annotations VALUES (?, ?, ?, ?, ?, ?)", row)
    return stored


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    """What runs and their results contain."""

    files: dict[str, str]
    """Id of a run or result -> digest of its file."""
    contents: dict[str, tuple[str, ...]]
    """Id of a run or result -> digest of its file, and its content: of a run, those of all its results."""
    like: dict[tuple[str, ...], str]
    """The same content -> id of the first one that has it."""

    @classmethod
    def of(cls, rows: Sequence[tuple[str, str, str | None, str, str]]) -> _Contents:
        files: dict[str, str] = {}
        of_runs: dict[str, list[str]] = {}
        contents: dict[str, tuple[str, ...]] = {}
        for run_id, sha256, _, result_id, content in rows:
            files[run_id] = files[result_id] = sha256
            contents[result_id] = ("result", sha256, content)
            of_runs.setdefault(run_id, []).append(content)
        contents |= {run_id: ("run", files[run_id], *sorted(own)) for run_id, own in of_runs.items()}
        return cls(files=files, contents=contents, like={one: name for name, one in reversed(contents.items())})


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
