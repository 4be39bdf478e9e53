"""Writes runs and profiles into the tables, inside the caller's transaction, and removes runs with everything that
refers to them. Whole run files are loaded; a bad one is refused with a reason.

Two things are updated with each stored run: the latest results of each series, and the calibration of each device. The
table series_heads has the newest result of each series, and the newest one that comparisons accept: every comparison
needs them, and computing them with a window over a million results takes seconds.

hardware_info has the values that calibration runs measured on a device. They are recomputed from all stored
calibrations of the device each time, so it does not matter in which order, or how often, run files are loaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from benchmarking.core import plugins
from benchmarking.core.axes import FURTHER
from benchmarking.core.errors import FormatError, StorageError, UnreadableError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import naive_now
from benchmarking.core.records import Precision, Run
from benchmarking.core.run_file import ProfileFile, RunFile, large_samples, read_file
from benchmarking.core.untrusted.redaction import readable, redacted
from db import run_records
from db.conflicts import conflicts, conflicts_text
from db.connection import ARROW_ROWS, Connection, literal
from db.rows import Row, arrow_table, run_rows

if TYPE_CHECKING:
    from db.connection import DuckDB
    from db.warehouse import Warehouse


SHARED_TABLES = {"hardware_info": "hardware_id", "series": "series_id"}
"""Tables with rows that several runs share -> their keys."""
RUN_TABLES = ("benchmark_runs", "benchmark_results", "raw_benchmark_data", "requests", "quality_results")
"""Tables in which each row belongs to one run."""
UNFINISHED = ".partial.jsonl"
"""Suffix of an unfinished run's file."""
SUMMARY = "benchmark_summary.json"
"""The summary that `batch_benchmark` writes into its folder of runs."""
OTHER_FILES = ("trace_", "onnx_comparison_")
"""Prefix of the files that `benchhouse profile` writes next to its profiles."""
RUNS = "(SELECT unnest($runs))"
RESULTS = f"(SELECT result_id FROM benchmark_results WHERE run_id IN {RUNS})"
SERIES = f"(SELECT series_id FROM benchmark_results WHERE run_id IN {RUNS})"
CHANGES = (
    f"(SELECT change_point_id FROM change_points WHERE result_id IN {RESULTS} OR last_good_result_id IN {RESULTS})"
)
ALERTS = f"""(
    SELECT alert_id FROM alerts LEFT JOIN change_points change USING (change_point_id)
    WHERE coalesce(alerts.result_id, change.result_id) IN {RESULTS}
)"""
CALIBRATION = "device-calibration"
"""The task of a run that measures a device instead of a model; the views exclude it by this name."""
CALIBRATED = f"SELECT DISTINCT hardware_id FROM benchmark_runs WHERE run_id IN {RUNS} AND task = {literal(CALIBRATION)}"
STATEMENTS = (
    f"DELETE FROM annotations WHERE target_id IN {RUNS} OR target_id IN {RESULTS} OR target_id IN {ALERTS}",
    f"DELETE FROM alerts WHERE alert_id IN {ALERTS}",
    f"UPDATE alerts SET confirmed_by = NULL WHERE confirmed_by IN {RESULTS}",
    # An alert stays as long as its own result does, even if the change begins elsewhere now.
    "UPDATE alerts SET change_point_id = NULL, result_id = coalesce(result_id, "
    "(SELECT change.result_id FROM change_points change WHERE change.change_point_id = alerts.change_point_id)) "
    f"WHERE change_point_id IN {CHANGES}",
    f"DELETE FROM history_scans WHERE series_id IN {SERIES} OR series_id IN "
    f"(SELECT canonical_series_id FROM series_alias WHERE series_id IN {SERIES})",
    f"DELETE FROM change_points WHERE change_point_id IN {CHANGES}",
    f"DELETE FROM raw_benchmark_data WHERE result_id IN {RESULTS}",
    f"DELETE FROM requests WHERE result_id IN {RESULTS}",
    f"DELETE FROM quality_results WHERE run_id IN {RUNS}",
    f"DELETE FROM benchmark_results WHERE run_id IN {RUNS}",
    "UPDATE hardware_info SET peak_flops = NULL, peak_copy_bytes_per_sec = NULL, calibrated_at = NULL, "
    f"calibration_run_id = NULL WHERE hardware_id IN ({CALIBRATED})",
    f"DELETE FROM benchmark_runs WHERE run_id IN {RUNS}",
)
"""What refers to a run comes before the run. Series and machines stay: names, aliases and notes belong to them."""
NOTES = f"""
SELECT annotation_id, target_kind, target_id, author, note, created_at FROM annotations
WHERE target_id IN {RUNS} OR target_id IN {RESULTS} OR target_id IN {ALERTS} ORDER BY created_at, annotation_id
"""
DELETED_ALERTS = f"SELECT * FROM alerts WHERE alert_id IN {ALERTS} ORDER BY created_at, alert_id"
NAMING_RESULTS = f"""
SELECT alert.* REPLACE (
        result.result_id AS result_id,
        CASE WHEN change_point_id NOT IN {CHANGES} THEN change_point_id END AS change_point_id
    ), session_id, alert.parameters->>'$.last_good' AS last_good
FROM alerts alert LEFT JOIN change_points change USING (change_point_id)
JOIN benchmark_results result ON result.result_id = coalesce(alert.result_id, change.result_id)
JOIN benchmark_runs run ON run.run_id = result.run_id
WHERE list_has_any(
    coalesce(CAST(alert.parameters->'$.results' AS VARCHAR[]), []) || [last_good, alert.confirmed_by, result.result_id],
    (SELECT list(result_id) FROM benchmark_results WHERE run_id IN {RUNS}))
ORDER BY alert.created_at, alert.alert_id
"""
"""The alerts that name a result of the runs, without change points that go with these, and their result's session."""
PLACE = """
SELECT coalesce(canonical_series_id, result.series_id), session_id
FROM benchmark_results result JOIN benchmark_runs USING (run_id) LEFT JOIN series_alias USING (series_id)
WHERE result_id = ?
"""
"""The series and the session of a result, as alerts name them."""
CONTENTS = f"""
SELECT run_id, source_sha256, source, result_id, concat_ws(' ', result.status, batch_size, sequence_length, new_tokens,
    concurrency, axes, latency_mean_ms, latency_median_ms, throughput_samples_per_sec,
    throughput_tokens_per_sec) AS content
FROM benchmark_results result JOIN benchmark_runs USING (run_id) WHERE run_id IN {RUNS} ORDER BY run_id, result_id
"""
"""What the runs of a file contain, whatever model, hardware and so on they are labelled with."""
LATEST_RESULTS = f"""
WITH candidates AS (
    SELECT r.series_id, run.model_id, r.result_id, run.started_at, r.validity = 'valid' AS is_valid,
        r.status = 'ok' AND r.validity <> 'invalid' AS is_accepted
    FROM benchmark_results r JOIN benchmark_runs run USING (run_id)
    WHERE run.task <> {literal(CALIBRATION)}
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
NEWEST_CALIBRATION = f"""
WITH measured AS (
    SELECT run.hardware_id, run.precision, run.started_at, run.run_id,
        r.validity = 'valid' AS is_valid, r.other_metrics['peak_flops_per_sec'] AS peak,
        r.other_metrics['peak_copy_bytes_per_sec'] AS peak_copy
    FROM benchmark_results r
    JOIN benchmark_runs run USING (run_id)
    WHERE run.task = {literal(CALIBRATION)} AND r.status = 'ok' AND r.validity <> 'invalid'
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRuns:
    """The runs of a file, to be stored together."""

    runs: Sequence[Run]
    source: str | None = None
    """The file's path."""
    source_sha256: str | None = None
    """Hex digest of the file."""


def ingest_files(connection: DuckDB, files: Sequence[FileRuns], *, releases_samples: bool) -> list[int]:
    """Store the runs of files; returns how many of each file were new. A stored run without a quality gets that of its
    file.

    With `releases_samples`, the values of `LargeSamples` are released, which frees memory for the commit; a change that
    may be repeated needs them again. Raises FormatError for a run with the id of a different one, and for a result that
    another run has.
    """
    for run in (run for file in files for run in file.runs):
        plugins.check_family(run.cell.workload.family, f"run {run.run_id}")
        if run.cell.precision not in get_args(Precision):
            known = ", ".join(get_args(Precision))
            raise FormatError(f"run {run.run_id}: expected one of {known}, found {run.cell.precision!r}")
    # The stored runs among these and in these files, with the digests of the files they came from.
    sql = """
        SELECT run_id, source_sha256 FROM benchmark_runs
        WHERE run_id IN (SELECT unnest($ids)) OR source_sha256 IN (SELECT unnest($files))
    """
    ids = [run.run_id for file in files for run in file.runs]
    names = {"ids": ids, "files": [file.source_sha256 for file in files]}
    stored = dict(connection.execute(sql, names).fetchall())
    result_columns = column_types(connection, "benchmark_results").items()
    metrics = {name for name, kind in result_columns if kind == "DOUBLE" and name not in FURTHER}
    now = naive_now()
    new: dict[str, tuple[Run, dict[str, list[Row]]]] = {}
    later: dict[str, list[Row]] = {}  # the quality of stored runs, which they may lack
    counts = []
    for file in files:
        before, sha256 = len(new), file.source_sha256
        for run in file.runs:
            # A file of another tool may contain many runs.
            sources = stored.values() if run.origin is None else (stored.get(run.run_id),)
            if run.run_id in new or (sha256 is not None and sha256 in sources):
                continue
            rows = run_rows(run, metric_columns=metrics, source=file.source, source_sha256=sha256, ingested_at=now)
            if run.run_id in stored:
                check_same_content(connection, run.run_id, rows)
                later[run.run_id] = rows["quality_results"]
            else:
                new[run.run_id] = run, rows
        counts.append(len(new) - before)

    # A result belongs to one run.
    sql = "SELECT result_id, run_id FROM benchmark_results WHERE result_id IN (SELECT unnest($ids)) LIMIT 1"
    owners = {result.result_id: run.run_id for run, _ in new.values() for result in run.results}
    for result_id, run_id in connection.execute(sql, {"ids": list(owners)}).fetchall():
        raise FormatError(f"run {owners[result_id]}: its result {result_id} is already stored as part of run {run_id}")

    for table, key in SHARED_TABLES.items():
        by_key = {row[key]: row for _, rows in new.values() for row in rows[table]}
        _insert_missing(connection, table, key, list(by_key.values()))
    for table in RUN_TABLES:
        _insert(connection, table, [row for _, rows in new.values() for row in rows[table]])
    if quality_rows := [row for rows in later.values() for row in rows]:
        _insert_missing(connection, "quality_results", "run_id", quality_rows)
    for _, rows in new.values():
        rows["raw_benchmark_data"] = rows["requests"] = []
    if releases_samples:
        for values in large_samples(run for run, _ in new.values()):
            values.release()
    _update_latest(connection, [rows for _, rows in new.values()])
    for run, _ in new.values():
        if run.cell.workload.task == CALIBRATION:
            connection.execute(UPDATE_CALIBRATION, [run.hardware.hardware_id])
    return counts


def insert_profiles(connection: DuckDB, rows: Mapping[str, Sequence[Row]]) -> None:
    """Store rows of profiles, by table, with those of their machines and series that are not stored yet."""
    for table, key in SHARED_TABLES.items():
        _insert_missing(connection, table, key, rows[table])
    for table in run_records.TABLES:
        _insert(connection, table, rows[table])


def check_same_content(connection: DuckDB, run_id: str, rows: Mapping[str, Sequence[Row]]) -> None:
    """Raise FormatError, with the differences, if the rows differ from those of the stored run of this id."""
    names = {table: f"again_{table}" for table in RUN_TABLES}
    for table, name in names.items():
        connection.register(name, arrow_table(rows[table], column_types(connection, table)))
    differences = conflicts(connection, str, names.__getitem__, RUN_TABLES)
    for name in names.values():
        connection.unregister(name)
    if differences:
        raise FormatError(f"run {run_id} is already stored with different content: {conflicts_text(differences)}")


def _update_latest(connection: DuckDB, stored: Sequence[Mapping[str, Sequence[Row]]]) -> None:
    """Update the rows of the runs' series in series_heads; `stored` are the rows of each run."""
    names = {"ids": sorted({row["series_id"] for rows in stored for row in rows["series"]})}
    condition = "FROM series_heads WHERE series_id IN (SELECT unnest($ids))"
    known = connection.execute(f"SELECT * {condition}", names).to_arrow_table(ARROW_ROWS).to_pylist()
    heads: dict[str, Row] = {row["series_id"]: row for row in known}
    for rows in stored:
        (run,), results = rows["benchmark_runs"], rows["benchmark_results"]
        known_heads = [heads[row["series_id"]] for row in rows["series"] if row["series_id"] in heads]
        heads |= {head["series_id"]: head for head in latest_rows(run, results, known_heads)}
    connection.execute(f"DELETE {condition}", names)
    _insert(connection, "series_heads", list(heads.values()))


def column_types(connection: DuckDB, table: str) -> dict[str, str]:
    """The columns of a table in their order, with their types."""
    found = connection.table(table)
    return dict(zip(found.columns, map(str, found.types), strict=True))


def _insert_missing(connection: DuckDB, table: str, key: str, rows: Sequence[Row]) -> None:
    """Insert the rows whose key is not in the table."""
    sql = f"SELECT {key} FROM {table} WHERE {key} IN (SELECT unnest($keys))"
    known = {row[0] for row in connection.execute(sql, {"keys": [row[key] for row in rows]}).fetchall()}
    _insert(connection, table, [row for row in rows if row[key] not in known])


def _insert(connection: DuckDB, table: str, rows: Sequence[Row]) -> None:
    if rows:
        # The columns are in the order of the table. A registered Arrow table would be kept until the commit.
        connection.from_arrow(arrow_table(rows, column_types(connection, table))).insert_into(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Files by outcome."""

    loaded: tuple[Path, ...] = ()
    present: tuple[Path, ...] = ()
    """Already stored, from this file or another."""
    refused: tuple[tuple[Path, str], ...] = ()
    """Path and reason."""
    compacted: tuple[Path, ...] = ()
    """The loaded files with more samples than a warehouse stores, of which only quantiles were stored."""


def store(warehouse: Warehouse, file: RunFile | ProfileFile) -> bool:
    """Store the run or profile of a file; False if it is stored already. Raises like `Warehouse.ingest`."""
    source = readable(str(file.path.resolve()))
    if isinstance(file, RunFile) and not file.run.provenance.host:  # anonymous: its place names the user
        source = redacted(source, anonymous=True)
    if isinstance(file, ProfileFile):
        return warehouse.ingest_profile(file.profile, source=source, source_sha256=file.sha256)
    return warehouse.ingest(file.run, source=source, source_sha256=file.sha256)


def run_files(places: Sequence[Path]) -> tuple[Path, ...]:
    """The given run files, and the run files in given folders at any depth, each once. Raises StorageError."""
    files = (path for place in places for path in (_files_with_suffix(place, ".json") if place.is_dir() else [place]))
    return tuple(
        dict.fromkeys(path for path in files if path.name != SUMMARY and not path.name.startswith(OTHER_FILES))
    )


def unfinished_files(places: Sequence[Path]) -> tuple[Path, ...]:
    """Files of unfinished runs in the folders, at any depth. Raises StorageError."""
    return tuple(
        dict.fromkeys(path for place in places if place.is_dir() for path in _files_with_suffix(place, UNFINISHED))
    )


def load_files(warehouse: Warehouse, paths: Sequence[Path]) -> Loaded:
    """Store the runs of all readable files. Raises StorageError if the warehouse cannot store them."""
    loaded: list[Path] = []
    present: list[Path] = []
    refused: list[tuple[Path, str]] = []
    compacted: list[Path] = []
    for path in paths:
        try:
            file = read_file(path)
            is_new = store(warehouse, file)
        except (FormatError, UnreadableError) as error:
            refused.append((path, str(error)))
            continue
        (loaded if is_new else present).append(path)
        if is_new and isinstance(file, RunFile) and file.is_compacted:
            compacted.append(path)
        del file  # the next one may be large too
    return Loaded(loaded=tuple(loaded), present=tuple(present), refused=tuple(refused), compacted=tuple(compacted))


def _files_with_suffix(folder: Path, ending: str) -> list[Path]:
    """Files with that suffix; the files of a folder come before those of its subfolders. Hidden folders are skipped,
    and so are links to folders, which may form cycles."""

    def refuse(error: OSError) -> NoReturn:
        raise StorageError(f"cannot read the folder {error.filename}: {error.strerror}") from error

    files: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += sorted(Path(parent) / name for name in names if name.endswith(ending))
    return files


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """The outcome of `replace_runs`."""

    counts: list[int]
    """How many runs of each file were new."""
    lost_alerts: tuple[Row, ...] = ()
    """The alerts that were deleted, since no new result has the content of theirs."""


def replace_runs(
    connection: DuckDB,
    run_ids: Sequence[str],
    new: Sequence[FileRuns],
    *,
    releases_samples: bool,
) -> Replaced:
    """Delete the runs like `remove_runs` and store the new ones like `ingest_files`, inside the caller's transaction.
    Alerts about a deleted result are then about the new one with the same content. So are notes about a deleted run or
    result or, if none has it, about the first run of the same file."""
    runs = {"runs": list(run_ids)}
    notes = connection.execute(NOTES, runs).fetchall() if run_ids else []
    alerts = connection.execute(NAMING_RESULTS, runs).to_arrow_table(ARROW_ROWS).to_pylist() if run_ids else []
    before = connection.execute(CONTENTS, runs).fetchall() if notes or alerts else []
    remove_runs(connection, run_ids)
    stored = ingest_files(connection, new, releases_samples=releases_samples)
    known = {file.source_sha256 for file in new}
    of_path = {file.source: file.source_sha256 for file in new if file.source}
    # An edited file has another digest than before at the same path.
    before = [
        (run, sha256 if sha256 in known else of_path.get(path, sha256), path, *rest)
        for run, sha256, path, *rest in before
    ]
    added = {"runs": [run.run_id for file in new for run in file.runs]}
    files, contents = _contents(before)
    _, after = _contents(connection.execute(CONTENTS, added).fetchall() if before else [])
    like = {content: name for name, content in reversed(after.items())}  # the first one that has it
    successors = {name: name if after.get(name) == content else like.get(content) for name, content in contents.items()}
    lost = _move_alerts(connection, alerts, successors)
    moved = {alert["alert_id"]: alert["result_id"] for alert in alerts}
    first = {file.source_sha256: file.runs[0].run_id for file in reversed(new) if file.runs}
    for annotation_id, kind, target, author, note, created_at in notes if first else ():
        is_kept = target in moved and all(target != alert["alert_id"] for alert in lost)
        successor = target if is_kept else successors.get(target)
        sha256 = files.get(moved.get(target, target), next(iter(first)))
        row = [annotation_id, kind, successor, author, note, created_at]
        if successor is None:
            row[1:3] = "run", first.get(sha256, next(iter(first.values())))
        connection.execute("INSERT INTO annotations VALUES (?, ?, ?, ?, ?, ?)", row)
    return Replaced(counts=stored, lost_alerts=tuple(lost))


def _move_alerts(connection: DuckDB, alerts: Sequence[Row], successors: Mapping[str, str | None]) -> list[Row]:
    """Store the alerts with the new results in place of those that they name; returns those whose own result has no
    successor, which are deleted."""
    moved: list[Row] = []
    lost: list[Row] = []
    for alert in alerts:
        own = alert["result_id"]
        result, last, confirmed_by = (
            successors.get(name, name) for name in (own, alert.pop("last_good"), alert["confirmed_by"])
        )
        if result is None:
            lost.append(alert)
            continue
        session, parameters = alert.pop("session_id"), json.loads(alert["parameters"])
        if "results" in parameters:
            named = [successors.get(name, name) for name in parameters["results"]]
            parameters |= {"last_good": last, "results": [name for name in named if name is not None]}
        row = {**alert, "parameters": json.dumps(parameters), "result_id": result, "confirmed_by": confirmed_by}
        if own in successors:
            ((row["series_id"], new_session),) = connection.execute(PLACE, [result]).fetchall()
            row["group_id"] = new_session if alert["group_id"] == session else alert["group_id"]
        moved.append(row)
    if alerts:
        ids = {"ids": [alert["alert_id"] for alert in alerts]}
        connection.execute("DELETE FROM alerts WHERE alert_id IN (SELECT unnest($ids))", ids)
    _insert(connection, "alerts", moved)
    return lost


def _contents(
    rows: Iterable[tuple[str, str, str | None, str, str]],
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """By id of a run or result: the digest of its file; and that with its content (of a run: of all its results)."""
    files: dict[str, str] = {}
    of_runs: dict[str, list[str]] = {}
    contents: dict[str, tuple[str, ...]] = {}
    for run_id, sha256, _, result_id, content in rows:
        files[run_id] = files[result_id] = sha256
        contents[result_id] = ("result", sha256, content)
        of_runs.setdefault(run_id, []).append(content)
    return files, contents | {run_id: ("run", files[run_id], *sorted(own)) for run_id, own in of_runs.items()}


def remove_runs(connection: Connection, run_ids: Sequence[str]) -> None:
    """Delete the runs with their results, samples, requests, notes, and what was computed from them, inside the
    caller's transaction."""
    if not run_ids:
        return
    runs = {"runs": list(run_ids)}
    calibrated = [row[0] for row in connection.execute(CALIBRATED, runs).fetchall()]
    for sql in STATEMENTS:
        connection.execute(sql, runs)
    for hardware_id in calibrated:
        connection.execute(UPDATE_CALIBRATION, [hardware_id])
    compute_latest(connection)


def compute_latest(connection: Connection) -> None:
    """Rebuild the table series_heads from the results, inside the caller's transaction."""
    connection.execute("DELETE FROM series_heads")
    connection.execute(f"INSERT INTO series_heads BY NAME {LATEST_RESULTS}")


def latest_rows(run: Row, results: Sequence[Row], known: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of series_heads for the series of a run after storing it and its results, of which these are the rows;
    `known` are the rows so far.

    A valid result is preferred to a noisy or throttled one, then a newer to an older one. An invalid result is never
    accepted.
    """
    if run["task"] == CALIBRATION:
        return []
    latest: dict[str, Row] = {entry_row["series_id"]: dict(entry_row) for entry_row in known}
    for result in results:
        series_id = result["series_id"]
        entry = latest.setdefault(series_id, {"series_id": series_id, "model_id": run["model_id"]})
        key = (run["started_at"], result["result_id"])
        if "latest_result_id" not in entry or key > (entry["latest_started_at"], entry["latest_result_id"]):
            entry["latest_started_at"], entry["latest_result_id"] = key
        if result["status"] == "ok" and result["validity"] != "invalid":
            accepted = (result["validity"] == "valid", *key)
            names = ("accepted_is_valid", "accepted_started_at", "accepted_result_id")
            if entry.get("accepted_result_id") is None or accepted > tuple(entry[name] for name in names):
                entry.update(zip(names, accepted, strict=True))
    return list(latest.values())
