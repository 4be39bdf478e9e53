"""Checks a warehouse for faults: schema, damage, references, counts, checksums. Nothing is changed.

The whole file is read, since DuckDB verifies a block only when it reads it. Each check of the content is a query that
returns a `subject` and a `problem` for every faulty row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import get_args

from benchmarking.core import plugins
from benchmarking.core.axes import FURTHER
from benchmarking.core.errors import FormatError, StorageError, UnreadableError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Precision, canonical_hash
from benchmarking.core.run_file import ROUNDING
from benchmarking.core.storage_paths import is_lake, own_run_files
from benchmarking.core.temporary import leftovers, temporary_folder
from benchmarking.core.text import visible
from benchmarking.core.untrusted.input_files import MAX_DEPTH, unpacked_digest
from db import ingestion, migrate
from db.conflicts import CONTENTS
from db.connection import (
    FILE_FORMAT,
    MEMORY,
    DamagedError,
    connect,
    copy_database,
    database_files,
    has_unread_log,
    problem_of,
    quoted,
)
from db.rows import MOST_SHOWN, NOT_OURS, NUMBERS_IN, OBJECTS, is_command_line, json_problem
from db.warehouse import OutdatedError, Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault."""

    kind: str
    """damage, schema, orphan, duplicate, point, raw_count, raw_statistics, contradiction, time, missing_value, series,
    change_point, axes, calibration, profile, heads, name, hash, checksum, json, value."""
    subject: str
    """The faulty table or row."""
    problem: str


PRIMARY_KEYS = """
SELECT table_name AS name, constraint_column_names AS columns FROM duckdb_constraints()
WHERE constraint_type = 'PRIMARY KEY' AND database_name = current_database() ORDER BY table_name
"""
SCHEMA = {
    "column": """
        SELECT table_name || '.' || column_name AS name,
            data_type || CASE WHEN is_nullable THEN '' ELSE ' NOT NULL' END || ' -- ' || coalesce(comment, '') AS value
        FROM duckdb_columns() WHERE NOT internal AND database_name = current_database()
    """,
    "table": """
        SELECT table_name AS name, coalesce(comment, '') AS value
        FROM duckdb_tables() WHERE NOT internal AND database_name = current_database()
    """,
    "view": """
        SELECT view_name AS name, coalesce(comment, '') AS value
        FROM duckdb_views() WHERE NOT internal AND database_name = current_database()
    """,
    "constraint": """
        SELECT table_name || ' ' || constraint_type || ' ' || constraint_column_names::VARCHAR AS name,
            count(*)::VARCHAR AS value
        FROM duckdb_constraints() WHERE database_name = current_database() GROUP BY ALL
    """,
}
"""The schema as names and values. The SQL of views and checks is left out, since each version of DuckDB formats it
differently; their digest in schema_migrations is checked instead."""


def verify(warehouse: Warehouse) -> list[Finding]:
    """All faults. Raises StorageError if the file cannot be read."""
    damaged = [Finding(kind="damage", subject=table, problem=problem) for table, problem in damage(warehouse)]
    findings = list(damaged)
    # Differences from a new warehouse.
    (expected, _), actual = _expected_schema(), _schema_of(warehouse)
    if warehouse.is_lake:  # it has no constraints, and no comments and columns of views: see `db.lake`
        absent = ("constraint ", *(f"column {view}." for view in migrate.view_names()))
        expected, actual = (
            {
                name: "" if name.startswith("view ") else value
                for name, value in schema.items()
                if not name.startswith(absent)
            }
            for schema in (expected, actual)
        )
    for name in sorted(expected.keys() | actual.keys()):
        problem = None
        if name not in actual:
            problem = f"{name} is missing"
        elif name not in expected:
            problem = f"{name} is not part of the schema"
        elif expected[name] != actual[name]:
            problem = f"{name} is {actual[name]!r}, expected {expected[name]!r}"
        if problem is not None:
            findings.append(Finding(kind="schema", subject=name, problem=problem))
    if not damaged:
        sql = "SELECT version, sha256 FROM schema_migrations"
        applied = {row["version"]: row["sha256"] for row in warehouse.query(sql).dicts()}
        for step in (migrate.views(), *migrate.migrations()):
            if applied.get(step.version) != step.sha256:
                how = "was applied with other SQL" if step.version in applied else "was never applied"
                findings.append(Finding(kind="schema", subject=step.name, problem=f"migration {step.name} {how}"))
        findings += _unreadable(warehouse)
        findings += _other_json(warehouse)
    if findings:  # the other checks need a readable file with the right schema
        return findings
    return list(_contents(warehouse))


def _unreadable(warehouse: Warehouse) -> Iterator[Finding]:
    """Values that DuckDB accepts and that end every command that reads them."""
    suspect = {
        "JSON": "len(regexp_replace(?::VARCHAR, '[^\\[{]', '', 'g')) > $depth OR regexp_matches(?::VARCHAR, $pattern)",
        "TIMESTAMP": "? NOT BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31 23:59:59.999999'",
        "VARCHAR[]": "list_count(?) < len(?)",
        "command": "regexp_matches(?, '[\\''\"]')",
    }
    is_sound = {"JSON": lambda text: not json_problem(text), "command": is_command_line}
    for table in (row["name"] for row in warehouse.query(TABLES).dicts()):
        columns = warehouse.query(f"DESCRIBE {quoted(table)}").dicts()
        for column in columns:
            name = column["column_name"]
            kind = "command" if name == "command" else column["column_type"]
            if kind not in suspect:
                continue
            sql = f"""
                SELECT {quoted(columns[0]["column_name"])}::VARCHAR AS subject, {quoted(name)}::VARCHAR AS value
                FROM {quoted(table)} WHERE {suspect[kind].replace("?", quoted(name))} ORDER BY ALL
            """
            values = {"pattern": NOT_OURS, "depth": MAX_DEPTH} if kind == "JSON" else None
            for row in warehouse.query(sql, values).dicts():
                if kind not in is_sound or not is_sound[kind](row["value"]):
                    problem = f"{table}: {name} of {row['subject']} is {visible(row['value'][:MOST_SHOWN])}"
                    yield Finding(kind="value", subject=row["subject"], problem=problem)


def _other_json(warehouse: Warehouse) -> Iterator[Finding]:
    """Columns of JSON with what this program never writes."""
    for row in warehouse.query(
        "SELECT run_id FROM benchmark_runs WHERE json_type(loads) <> 'ARRAY' ORDER BY 1"
    ).dicts():
        problem = f"benchmark_runs: loads of {row['run_id']} is not JSON of this program"
        yield Finding(kind="json", subject=row["run_id"], problem=problem)
    for table, (key, *columns) in OBJECTS.items():
        for column in columns:
            wrong = [f"json_type({column}) <> 'OBJECT'", *FURTHER_JSON.get(column, ())]
            wrong += [
                f"NOT list_contains({NUMBERS}, json_type({column}, '$.{name}'))" for name in NUMBERS_IN.get(column, ())
            ]
            which = " OR ".join(wrong)
            sql = f"SELECT DISTINCT {key} AS subject FROM {table} WHERE {which}"
            for row in warehouse.query(sql).dicts():
                problem = f"{table}: {column} of {row['subject']} is not JSON of this program"
                yield Finding(kind="json", subject=row["subject"], problem=problem)


NUMBERS = ["BIGINT", "UBIGINT", "HUGEINT", "DOUBLE"]
FURTHER_JSON = {
    "axes": (f"NOT list_has_all({[*NUMBERS, 'VARCHAR', 'BOOLEAN']}, json_type(axes, '$.*'))",),
    "extra": ("json_type(extra, '$.doubts') IS DISTINCT FROM 'ARRAY'",),
}
"""Column -> what else is wrong in it."""


def repair(warehouse: Warehouse) -> int:
    """Put quantiles in order that only rounding had disordered; returns how many launches and metrics were changed."""
    return warehouse.change(lambda connection: int(connection.execute(REPAIR).fetchall()[0][0]))


@cache
def _expected_schema() -> tuple[dict[str, str], dict[str, list[str]]]:
    """The schema of a new warehouse, and the primary key of each table."""
    with Warehouse.open(MEMORY) as warehouse:
        keys = {row["name"]: row["columns"] for row in warehouse.query(PRIMARY_KEYS).dicts()}
        return _schema_of(warehouse), keys


def _schema_of(warehouse: Warehouse) -> dict[str, str]:
    return {
        f"{kind} {row['name']}": row["value"] for kind, sql in SCHEMA.items() for row in warehouse.query(sql).dicts()
    }


def _contents(warehouse: Warehouse) -> Iterator[Finding]:
    """Faults of the rows, whatever the schema."""
    checks = list(CHECKS)
    if warehouse.is_lake:  # rows with the same primary key, which a file would refuse
        _, keys = _expected_schema()
        checked = {(table, key) for table, key, _ in KEYS}
        for table, columns in keys.items():
            if (table, ", ".join(columns)) not in checked:
                checks.append(("duplicate", _duplicates(quoted(table), ", ".join(map(quoted, columns)), "TRUE")))
    for kind, sql in checks:
        for row in warehouse.query(sql).dicts():
            yield Finding(kind=kind, subject=row["subject"], problem=row["problem"])
    # Families, runtimes and devices without a plugin in this program, and unknown precisions. Runtimes and devices of
    # other tools may have any name, and so may servers under load.
    for column, names, condition in (
        ("architecture_type", plugins.family_names(), "TRUE"),
        ("precision", get_args(Precision), "TRUE"),
        ("runtime", plugins.names(plugins.RUNTIMES), MEASURED_HERE),
        ("device_type", plugins.names(plugins.DEVICES), MEASURED_HERE),
    ):
        for row in warehouse.query(NAMES.format(column=column, which=condition), [list(names)]).dicts():
            problem = f"{column} {row['name']!r} of {row['runs']} runs is unknown: expected one of {', '.join(names)}"
            yield Finding(kind="name", subject=row["name"], problem=problem)
    # Ids that are not the hash of their row's keys.
    for table, column in (("hardware_info", "hardware_id"), ("series", "series_id")):
        for row in warehouse.query(f"SELECT {column} AS id, hashed_keys FROM {table} ORDER BY 1").dicts():
            expected = canonical_hash(json.loads(row["hashed_keys"]))[: len(row["id"])]
            if row["id"] != expected:
                problem = f"{table}: {column} {row['id']} is not the hash of its hashed_keys ({expected})"
                yield Finding(kind="hash", subject=row["id"], problem=problem)
    # Run files that were changed after loading. A missing file is not a fault: its runs are stored.
    for row in warehouse.query(SOURCES).dicts():
        files = own_run_files(row["source"], warehouse.path, is_imported=row["is_imported"])
        problems = list[str]()
        for file in files:
            problem = f"its file {file} was changed after loading"
            try:
                if unpacked_digest(file) == row["source_sha256"]:
                    break
            except UnreadableError as error:
                problem = str(error)
            except FormatError:  # a gzip file, which was intact when it was loaded
                pass
            problems.append(problem)
        else:
            for problem in problems[:1]:
                yield Finding(kind="checksum", subject=row["run_id"], problem=f"run {row['run_id']}: {problem}")


SOURCES = """
SELECT run_id, source, source_sha256, origin_format IS NOT NULL AS is_imported FROM benchmark_runs
WHERE source_sha256 IS NOT NULL AND source IS NOT NULL ORDER BY source
"""
MOST_UNACCOUNTED = 0.03
"""Fraction of a profiled call that the exclusive times of its modules may leave unaccounted."""

REFERENCES = (
    # table, its key, column, table it refers to, column there
    ("benchmark_runs", "run_id", "hardware_id", "hardware_info", "hardware_id"),
    ("benchmark_results", "result_id", "run_id", "benchmark_runs", "run_id"),
    ("benchmark_results", "result_id", "series_id", "series", "series_id"),
    ("raw_benchmark_data", "result_id", "result_id", "benchmark_results", "result_id"),
    ("requests", "result_id", "result_id", "benchmark_results", "result_id"),
    ("quality_results", "run_id", "run_id", "benchmark_runs", "run_id"),
    ("series", "series_id", "hardware_id", "hardware_info", "hardware_id"),
    ("series_alias", "series_id", "canonical_series_id", "series", "series_id"),
    ("change_points", "change_point_id", "series_id", "series", "series_id"),
    ("change_points", "change_point_id", "result_id", "benchmark_results", "result_id"),
    ("change_points", "change_point_id", "last_good_result_id", "benchmark_results", "result_id"),
    ("hardware_info", "hardware_id", "calibration_run_id", "benchmark_runs", "run_id"),
    ("alerts", "alert_id", "series_id", "series", "series_id"),
    ("alerts", "alert_id", "change_point_id", "change_points", "change_point_id"),
    ("alerts", "alert_id", "result_id", "benchmark_results", "result_id"),
    ("alerts", "alert_id", "confirmed_by", "benchmark_results", "result_id"),
    ("profiles", "profile_id", "hardware_id", "hardware_info", "hardware_id"),
    ("profiles", "profile_id", "series_id", "series", "series_id"),
    ("profile_modules", "profile_id", "profile_id", "profiles", "profile_id"),
    ("profile_ops", "profile_id", "profile_id", "profiles", "profile_id"),
)

KEYS = (
    *((table, ", ".join(content.key), "TRUE") for table, content in CONTENTS.items()),
    ("series_heads", "series_id", "TRUE"),
    ("benchmark_runs", "source_sha256", "origin_format IS NULL"),  # another tool's file may hold many runs
    ("profiles", "source_sha256", "TRUE"),
)
"""(table, unique columns, condition); checked by reading all rows, since an index may be damaged."""

ANNOTATION_TARGETS = (
    ("run", "benchmark_runs", "run_id"),
    ("result", "benchmark_results", "result_id"),
    ("series", "series", "series_id"),
    ("hardware", "hardware_info", "hardware_id"),
    ("alert", "alerts", "alert_id"),
)

RAW_COUNTS = """
WITH counted AS (
    SELECT result_id, sum(CASE WHEN compacted_at IS NULL THEN len(samples) ELSE sample_count END) AS samples,
        count(DISTINCT launch) AS launches
    FROM raw_benchmark_data WHERE phase = 'measure' AND metric = 'latency_wall' GROUP BY result_id
)
SELECT result_id AS subject, format(
    'result {}: {} iterations in {} launches, but {} raw samples in {}',
    result_id, coalesce(r.iterations::VARCHAR, 'not stated'), r.launches, coalesce(counted.samples, 0)::BIGINT,
    coalesce(counted.launches, 0)
) AS problem
FROM benchmark_results r JOIN benchmark_runs run USING (run_id) LEFT JOIN counted USING (result_id)
WHERE (run.origin_format IS NULL OR counted.samples IS NOT NULL)  -- other tools often keep no samples
    AND (r.iterations IS DISTINCT FROM coalesce(counted.samples, 0)
        OR (r.status = 'ok' AND r.launches <> coalesce(counted.launches, 0)))
ORDER BY result_id
"""

NEARLY_IN_ORDER = """
list_max(list_transform(range(1, len(sketch) + 1), lambda i: abs(sketch[i] - list_sort(sketch)[i])))
    <= 1e-9 * greatest(abs(list_max(sketch)), abs(list_min(sketch)))
"""
"""Whether quantiles are in order but for rounding, as earlier versions of this program wrote those of equal samples."""
REPAIR = (
    f"UPDATE raw_benchmark_data SET sketch = list_sort(sketch) WHERE sketch <> list_sort(sketch) AND {NEARLY_IN_ORDER}"
)

RAW_STATISTICS = f"""
WITH seen AS (
    SELECT result_id, launch, phase, metric, compacted_at IS NOT NULL AS is_compacted, samples, sketch, sample_count,
        mean, median, p99,
        CASE WHEN is_compacted THEN sample_count ELSE len(samples) END AS seen_count,
        CASE WHEN is_compacted THEN mean ELSE list_avg(samples) END AS seen_mean,
        CASE WHEN is_compacted THEN sketch[len(sketch) // 2 + 1] ELSE list_median(samples) END AS seen_median,
        CASE WHEN is_compacted THEN p99 ELSE list_aggregate(samples, 'quantile_cont', 0.99) END AS seen_p99
    FROM raw_benchmark_data
)
SELECT result_id AS subject,
    format('raw samples of result {{}}, launch {{}}, {{}} {{}} ', result_id, launch, phase, metric) || list_filter([
        CASE WHEN is_compacted AND len(samples) > 0 THEN 'were compacted, but are stored' END,
        CASE WHEN NOT is_compacted AND sketch IS NOT NULL THEN 'have quantiles, but were not compacted' END,
        CASE WHEN is_compacted AND coalesce(len(sketch), 0) < 2 THEN 'were compacted, but have no quantiles' END,
        CASE WHEN NOT isfinite(list_sum(sketch)) THEN 'have quantiles that are not finite' END,
        CASE WHEN sketch <> list_sort(sketch) THEN 'have quantiles that are not in order'
            || CASE WHEN {NEARLY_IN_ORDER} THEN ', by rounding: run benchhouse setup --repair' ELSE '' END END,
        CASE WHEN sketch[1] > mean + 1e-9 * abs(mean) OR sketch[-1] < mean - 1e-9 * abs(mean)
                OR sketch[1] > p99 + 1e-9 * abs(p99) OR sketch[-1] < p99 - 1e-9 * abs(p99)
            THEN 'have a mean or p99 beyond their least or greatest' END,
        CASE WHEN sample_count IS DISTINCT FROM seen_count
            THEN format('are {{}}, but sample_count is {{}}', seen_count, coalesce(sample_count::VARCHAR, 'none')) END,
        CASE WHEN abs(mean - seen_mean) > 1e-9 * abs(mean) OR (mean IS NULL) <> (seen_mean IS NULL)
            THEN 'have another mean' END,
        CASE WHEN abs(median - seen_median) > 1e-9 * abs(median) OR (median IS NULL) <> (seen_median IS NULL)
            THEN 'have another median' END,
        CASE WHEN abs(p99 - seen_p99) > 1e-9 * abs(p99) THEN 'have another p99' END
    ], lambda text: text IS NOT NULL)[1] AS problem
FROM seen
WHERE problem IS NOT NULL
ORDER BY ALL
"""

MEASURED_HERE = "origin_format IS NULL AND (runtime_mode->>'loop') IS NULL"

MEDIANS = f"""
WITH launches AS (
    SELECT result_id, min(median) AS low, max(median) AS high FROM raw_benchmark_data
    WHERE phase = 'measure' AND metric = 'latency_wall' GROUP BY result_id
)
SELECT result_id AS subject, format(
    'result {{}}: latency_median_ms is {{:.6g}}, but the medians of its samples are {{:.6g}} to {{:.6g}}',
    result_id, latency_median_ms, low, high
) AS problem
FROM benchmark_results JOIN benchmark_runs USING (run_id) JOIN launches USING (result_id)
WHERE {MEASURED_HERE} AND latency_median_ms NOT BETWEEN low * (1 - {ROUNDING}) AND high * (1 + {ROUNDING})
ORDER BY ALL
"""

CONTRADICTIONS = """
SELECT result_id AS subject, 'result ' || result_id || ': ' || unnest(list_filter([
    CASE WHEN doubts IS DISTINCT FROM json_extract_string(extra, '$.doubts[*].kind')
        THEN 'has other doubts than those with their evidence in extra' END,
    CASE WHEN latency_ci_low_ms > latency_ci_high_ms
        THEN 'its latency_ci_low_ms is greater than its latency_ci_high_ms' END
], lambda text: text IS NOT NULL)) AS problem
FROM benchmark_results
ORDER BY ALL
"""

POINTS = f"""
SELECT run_id AS subject, format('run {{}} has {{}} results of the series {{}}', run_id, count(*), series_id) AS problem
FROM benchmark_results r JOIN benchmark_runs USING (run_id)
WHERE {MEASURED_HERE} AND r.status = 'ok' GROUP BY run_id, series_id HAVING count(*) > 1 ORDER BY ALL
"""

TIMES = """
SELECT run_id AS subject,
    format('run {} ended at {}, before its start at {}', run_id, finished_at, started_at) AS problem
FROM benchmark_runs
WHERE origin_format IS NULL AND finished_at < started_at - INTERVAL 1 DAY  -- clocks are set back during runs
    AND run_id NOT IN (SELECT run_id FROM benchmark_results WHERE list_contains(doubts, 'clock_set_back'))
ORDER BY ALL
"""

MISSING_VALUES = """
SELECT result_id AS subject, 'result ' || result_id || ': ' || unnest(list_filter([
    CASE WHEN is_own AND (warmup_iterations IS NULL OR finished_at IS NULL)
        THEN 'was measured here, but has no warm-up calls or no end of its run' END,
    CASE WHEN status = 'ok' AND validity IS NULL THEN 'is ok but has no validity' END,
    CASE WHEN status = 'ok' AND launches = 0 THEN 'is ok but no launch measured it' END,
    CASE WHEN status = 'ok' AND latency_median_ms IS NULL AND missing['latency_median_ms'] IS NULL
        THEN 'is ok but has neither a median latency nor a reason for it' END,
    CASE WHEN status <> 'ok' AND error IS NULL THEN 'is ' || status || ' but has no error' END,
    CASE WHEN status <> 'ok' AND validity IS NOT NULL THEN 'is ' || status || ' but has a validity' END
], lambda text: text IS NOT NULL)) AS problem
FROM (
    SELECT r.*, run.finished_at, run.run_id IS NOT NULL AND run.origin_format IS NULL AS is_own
    FROM benchmark_results r LEFT JOIN benchmark_runs run ON run.run_id = r.run_id
)
ORDER BY ALL
"""

SERIES = """
SELECT result_id AS subject, 'result ' || result_id || ' does not belong to its series ' || series_id AS problem
FROM benchmark_results r
JOIN benchmark_runs run USING (run_id)
JOIN series s USING (series_id)
WHERE (r.batch_size, r.sequence_length, r.new_tokens, r.concurrency, r.axes, run.model_id, run.model_revision,
        run.weights, run.config_hash, run.task, run.architecture_type, run.runtime, run.runtime_mode, run.precision,
        run.num_threads, run.cpu_list, run.origin_definition, run.hardware_id)
    IS DISTINCT FROM (s.batch_size, s.sequence_length, s.new_tokens, s.concurrency, s.axes, s.model_id,
        s.model_revision, s.weights, s.config_hash, s.task, s.architecture_type, s.runtime, s.runtime_mode,
        s.precision, s.num_threads, s.cpu_list, s.definition, s.hardware_id)
ORDER BY result_id
"""

AXIS_COLUMNS = f"""
SELECT result_id AS subject,
    'result ' || result_id || ': its axes are ' || axes || ', but its columns differ' AS problem
FROM benchmark_results
WHERE ({", ".join(FURTHER)}) IS DISTINCT FROM ({", ".join(f"TRY_CAST(axes->>'{name}' AS DOUBLE)" for name in FURTHER)})
ORDER BY result_id
"""

CALIBRATION = f"""
SELECT hardware_id AS subject,
    'hardware_info: ' || hardware_id || ' differs from its calibration runs' AS problem
FROM hardware_info h LEFT JOIN ({ingestion.NEWEST_CALIBRATION}) n USING (hardware_id)
WHERE (h.peak_flops, h.peak_copy_bytes_per_sec, h.calibrated_at, h.calibration_run_id)
    IS DISTINCT FROM (n.peak_flops, n.peak_copy_bytes_per_sec, n.calibrated_at, n.calibration_run_id)
ORDER BY hardware_id
"""

CHANGE_POINTS = """
SELECT change_point_id AS subject,
    'change_points: ' || change_point_id || ' has other runs or another series than its results' AS problem
FROM change_points c
JOIN benchmark_results r USING (result_id)
LEFT JOIN benchmark_results good ON good.result_id = c.last_good_result_id
WHERE c.series_id <> r.series_id OR c.run_id <> r.run_id OR c.last_good_run_id <> good.run_id
ORDER BY change_point_id
"""

PROFILES = f"""
WITH parts AS (SELECT profile_id, sum(exclusive_ms) AS exclusive_ms FROM profile_modules GROUP BY profile_id)
SELECT profile_id AS subject, 'profile ' || profile_id || ': ' || unnest(list_filter([
    CASE WHEN abs(coalesce(parts.exclusive_ms, 0) - host_ms) > {MOST_UNACCOUNTED} * host_ms THEN format(
        'the exclusive times of its modules sum to {{:.3g}} ms, but a call took {{:.3g}} ms',
        coalesce(parts.exclusive_ms, 0), host_ms) END,
    CASE WHEN len(profiled_samples_ms) <> calls OR len(latency_samples_ms) <> calls
        THEN format('{{}} calls, but {{}} samples of calls under the profiler and {{}} without', calls,
            len(profiled_samples_ms), len(latency_samples_ms)) END
], lambda text: text IS NOT NULL)) AS problem
FROM profiles LEFT JOIN parts USING (profile_id)
ORDER BY ALL
"""

ALIASES = """
SELECT a.series_id AS subject, 'series ' || a.series_id || ' is an alias of an alias' AS problem
FROM series_alias a JOIN series_alias b ON b.series_id = a.canonical_series_id
ORDER BY a.series_id
"""


NAMES = """
SELECT {column} AS name, count(*) AS runs FROM benchmark_runs JOIN hardware_info USING (hardware_id)
WHERE {which} AND {column} NOT IN (SELECT unnest(?)) GROUP BY ALL ORDER BY ALL
"""


def _duplicates(table: str, key: str, which: str) -> str:
    return f"""
        SELECT concat_ws(' ', {key}) AS subject,
            format('{table}: {{}} rows have {key} {{}}', count(*), concat_ws(' ', {key})) AS problem
        FROM {table} WHERE {key.split(",")[0]} IS NOT NULL AND {which} GROUP BY {key} HAVING count(*) > 1 ORDER BY ALL
    """


LATEST_COLUMNS = """series_id, model_id, latest_result_id, latest_started_at, accepted_result_id, accepted_started_at,
        accepted_is_valid"""

LATEST_RESULTS = f"""
SELECT DISTINCT series_id AS subject,
    'series_heads: the latest results of ' || series_id || ' are outdated' AS problem
FROM (
    (SELECT {LATEST_COLUMNS} FROM ({ingestion.LATEST_RESULTS}) EXCEPT SELECT {LATEST_COLUMNS} FROM series_heads)
    UNION
    (SELECT {LATEST_COLUMNS} FROM series_heads EXCEPT SELECT {LATEST_COLUMNS} FROM ({ingestion.LATEST_RESULTS}))
)
ORDER BY ALL
"""

CHECKS: tuple[tuple[str, str], ...] = (
    *(
        (
            "orphan",
            f"""
            SELECT DISTINCT {key} AS subject, '{table}: ' || {key} || ' refers to {column} ' || {column}
                || ', which is not in {other}' AS problem
            FROM {table} WHERE {column} IS NOT NULL AND {column} NOT IN (SELECT {other_column} FROM {other})
            ORDER BY ALL
            """,
        )
        for table, key, column, other, other_column in REFERENCES
    ),
    *(
        (
            "orphan",
            f"""
            SELECT annotation_id AS subject, 'annotations: ' || annotation_id || ' is about {kind} ' || target_id
                || ', which does not exist' AS problem
            FROM annotations WHERE target_kind = '{kind}' AND target_id NOT IN (SELECT {key} FROM {table}) ORDER BY ALL
            """,
        )
        for kind, table, key in ANNOTATION_TARGETS
    ),
    *(("duplicate", _duplicates(*key)) for key in KEYS),
    ("raw_count", RAW_COUNTS),
    ("raw_statistics", RAW_STATISTICS),
    ("raw_statistics", MEDIANS),
    ("contradiction", CONTRADICTIONS),
    ("point", POINTS),
    ("time", TIMES),
    ("missing_value", MISSING_VALUES),
    ("series", SERIES),
    ("series", ALIASES),
    ("change_point", CHANGE_POINTS),
    ("axes", AXIS_COLUMNS),
    ("calibration", CALIBRATION),
    ("profile", PROFILES),
    ("heads", LATEST_RESULTS),
)
"""(kind of finding, query)."""

TABLES = """
SELECT table_name AS name FROM duckdb_tables() WHERE NOT internal AND database_name = current_database() ORDER BY 1
"""

BATCH = 1000
"""Keys looked up at once: DuckDB uses the index only for fewer than 2048 rows."""


def damage(warehouse: Warehouse) -> Iterator[tuple[str, str]]:
    """Each table with unreadable content, and the problem."""
    damaged = []
    for table in (row["name"] for row in warehouse.query(TABLES).dicts()):
        try:
            _read(warehouse, table, "COLUMNS(*)")
        except StorageError as error:
            damaged.append(table)
            unreadable = []
            for column in (row["column_name"] for row in warehouse.query(f"DESCRIBE {quoted(table)}").dicts()):
                try:
                    _read(warehouse, table, quoted(column))
                except StorageError:
                    unreadable.append(column)
            yield table, f"{table}: {', '.join(unreadable) or 'some rows'} cannot be read: {problem_of(error)}"
    for row in warehouse.query(PRIMARY_KEYS).dicts():
        table, (key, *further) = row["name"], row["columns"]
        problem = None if further or table in damaged else _index_problem(warehouse, table, key)
        if problem is not None:
            yield table, f"{table}: the index of {key} {problem}"


def _read(warehouse: Warehouse, table: str, columns: str) -> None:
    warehouse.query(f"SELECT bit_xor(hash({columns})) FROM {quoted(table)}")


def _index_problem(warehouse: Warehouse, table: str, key: str) -> str | None:
    """The problem of a primary key's index: unreadable, or missing rows. None without a problem."""
    keys = warehouse.query(f"SELECT {quoted(key)} AS key FROM {quoted(table)}").arrow()["key"].to_pylist()
    count = 0
    try:
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            marks = ", ".join("?" * len(batch))
            sql = f"SELECT count(*) AS n FROM {quoted(table)} WHERE {quoted(key)} IN ({marks})"
            count += warehouse.query(sql, batch).dicts()[0]["n"]
    except StorageError as error:
        return f"cannot be read: {problem_of(error)}"
    return None if count == len(keys) else f"finds {count} of {len(keys)} rows"


RUN_FOLDERS = "SELECT DISTINCT source FROM benchmark_runs WHERE source IS NOT NULL"


@contextmanager
def inspected(path: str | Path, *, lock_timeout_s: float) -> Iterator[Warehouse]:
    """The warehouse in a file, read-only; a warehouse of an older version as an upgraded copy. Raises StorageError."""
    try:
        warehouse = Warehouse.open(path, read_only=True, lock_timeout_s=lock_timeout_s)
        with ExitStack() as if_refused:
            if_refused.callback(warehouse.close)
            with warehouse.cursor() as connection:
                if not migrate.is_current(connection, str(path)):  # the views of another release: readers need none
                    raise OutdatedError(str(path), migrate.latest_version())
            if_refused.pop_all()
    except (OutdatedError, DamagedError) as error:
        if is_lake(path):
            raise
        with _copied(Path(path), lock_timeout_s) as copy:
            try:
                warehouse = Warehouse.open(copy, keeps_old=False)
            except StorageError:
                raise error from None  # the error names the file, not its copy
            warehouse.file_version = error.version if isinstance(error, OutdatedError) else None
            warehouse.path = str(path)  # whose run files are beside it
            with warehouse:
                yield warehouse
        return
    with warehouse:
        yield warehouse


def leftovers_near(warehouse: Warehouse, path: str | Path) -> list[Path]:
    """Leftovers of killed processes next to the file, in the folders of its run files, and among temporary files."""
    own_folder = [] if is_lake(path) else [Path(path).resolve().parent]
    with suppress(StorageError):
        files = [own_run_files(row["source"], str(path)) for row in warehouse.query(RUN_FOLDERS).dicts()]
        folders = dict.fromkeys([*own_folder, *(file.parent for found in files for file in found)])
        return [leftover for folder in folders for leftover in leftovers(folder)]
    return [leftover for folder in own_folder for leftover in leftovers(folder)]


def unread_log(path: Path, *, lock_timeout_s: float) -> list[Finding]:
    """A log that DuckDB silently ignores, which shows only when the log is to be written into the file.

    Call this before the file is opened for writing.
    """
    log = Path(database_files(path)[".wal"]) if path.is_symlink() else path.with_name(f"{path.name}.wal")
    size = log.stat().st_size if log.is_file() else 0
    if not size:
        return []
    with _copied(path, lock_timeout_s) as copy:
        try:
            if not has_unread_log(str(copy), lock_timeout_s=0.0):
                return []
        except DamagedError:
            return []  # opening the file reports this as an error, so it is not a finding
    problem = f"the log {log} ({size} bytes) was not read: it is damaged, or belongs to another file"
    return [Finding(kind="damage", subject=str(log), problem=problem)]


@contextmanager
def _copied(path: Path, lock_timeout_s: float) -> Iterator[Path]:
    """A temporary copy of the file and its log, made under the file's lock."""
    with temporary_folder("benchhouse-inspection") as folder:
        copy = folder / path.name
        with suppress(DamagedError):  # a log that cannot be read; the lock was free
            connect(str(path), FILE_FORMAT, read_only=True, lock_timeout_s=lock_timeout_s).close()
        copy_database(path, copy)
        yield copy
