"""Defines which columns of a row are its content, and compares the contents of rows with the same id.

A run is one unit with its results and raw samples, identified by its id. Where a row came from and when it was stored
is not content, nor are columns that repeat others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import first_few
from db.connection import Connection, quoted

RELATIVE_TOLERANCE = 1e-9
"""Relative difference within which two programs' means of the same samples count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What must be equal in two rows of a table with the same key."""

    key: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    """Columns that may differ."""
    only: tuple[str, ...] | None = None
    """The columns that must be equal, if most may differ; None for all but `ignored`."""
    filled: tuple[str, ...] = ()
    """Columns that an upgrade fills or empties, but not in all older runs: they differ only if both have a value."""


CONTENTS = {
    # The rest comes from the first run on the device, which two warehouses need not share.
    "hardware_info": Content(key=("hardware_id",), only=("hashed_keys", "hash_version")),
    "series": Content(key=("series_id",), ignored=("first_seen_at",)),
    "benchmark_runs": Content(
        key=("run_id",),
        ignored=(
            *("source", "source_sha256", "ingested_at"),
            *("is_simulated", "weight_dtypes"),  # also in device_details and loads
            *("exporter", "build_kind", "build_digest", "build_s", "build_is_new"),  # also in preparation
        ),
        filled=("finished_at",),  # of an import: NULL, or what version 12 took for it
    ),
    "benchmark_results": Content(key=("result_id",), filled=("model_size_mb", "iterations", "warmup_iterations")),
    "raw_benchmark_data": Content(key=("result_id", "launch", "phase", "metric"), ignored=("compacted_at",)),
    "requests": Content(key=("result_id", "launch", "phase", "ordinal")),
    "quality_results": Content(key=("run_id", "metric"), ignored=("how",)),
    "change_points": Content(key=("change_point_id",), only=("series_id", "metric", "result_id")),
    "alerts": Content(key=("alert_id",), only=("series_id", "metric")),
    "annotations": Content(key=("annotation_id",)),
    "profiles": Content(key=("profile_id",), ignored=("source", "source_sha256", "ingested_at")),
    "profile_modules": Content(key=("profile_id", "module")),
    "profile_ops": Content(key=("profile_id", "module", "operator", "placed")),
}
RAW_DIFFERS = {
    "samples": "mine.compacted_at IS NULL AND theirs.compacted_at IS NULL AND mine.samples <> theirs.samples",
    "sketch": "len(mine.sketch) = len(theirs.sketch) AND mine.sketch <> theirs.sketch",
    **{
        name: f"abs(mine.{name} - theirs.{name}) > {RELATIVE_TOLERANCE} * abs(mine.{name})"
        for name in ("sample_count", "mean", "median", "p99")
    },
}
"""Column -> condition of a conflict. Raw samples and their quantiles agree if their statistics do."""
TOKEN_TIMES_DIFFER = {
    "token_ms": "len(mine.token_ms) > 0 AND len(theirs.token_ms) > 0 AND mine.token_ms <> theirs.token_ms",
    "last_token_ms": "coalesce(mine.last_token_ms, mine.token_ms[-1]) <> "
    "coalesce(theirs.last_token_ms, theirs.token_ms[-1])",
}
"""The same for requests: token times are empty if there were too many, or if they were dropped later, when the last
one is kept."""
CHECKSUMMED = {
    **CONTENTS,
    "raw_benchmark_data": Content(
        key=CONTENTS["raw_benchmark_data"].key, only=("unit", "started_at", "inner_loops", "sample_count", "samples")
    ),
    "series_alias": Content(key=("series_id",), only=("canonical_series_id",)),
}
"""What a checksum covers."""
PARTS_OF = (
    ("benchmark_runs", "run_id", "benchmark_results"),
    ("benchmark_results", "result_id", "requests"),
)
"""Table, its key, and the table with its parts. One side may lack the quality of a run, which may be measured later,
and raw samples, which run files of compacted runs leave out."""

RUNS_OF_ONE_FILE = """
SELECT theirs.run_id, mine.run_id FROM {theirs} theirs JOIN {mine} mine USING (source_sha256)
WHERE theirs.run_id <> mine.run_id AND theirs.origin_format IS NULL AND mine.origin_format IS NULL ORDER BY ALL
"""

ROW_WORDS = {
    "hardware_info": "hardware",
    "series": "series",
    "series_alias": "series",
    "benchmark_runs": "run",
    "benchmark_results": "result",
    "raw_benchmark_data": "raw samples",
    "requests": "request",
    "quality_results": "quality",
    "change_points": "change point",
    "alerts": "alert",
    "annotations": "annotation",
    "profiles": "profile",
    "profile_modules": "module of profile",
    "profile_ops": "operator of profile",
}
"""Table -> word for one of its rows."""

COLUMNS = """
SELECT table_name, column_name, data_type FROM duckdb_columns()
WHERE database_name = current_database() AND NOT internal ORDER BY table_name, column_index
"""

Relation = Callable[[str], str]
"""Table -> its name after FROM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Two rows with the same key and different content."""

    table: str
    subject: str
    """Its key."""
    columns: tuple[str, ...] = ()
    """The columns that differ."""
    problem: str | None = None
    """The problem, if it is not a difference in columns."""
    part: str | None = None
    """The table with its parts, if those differ."""

    def __str__(self) -> str:
        what = self.problem or f"differs in {', '.join(self.columns)}"
        return f"{ROW_WORDS[self.table]} {self.subject} {what}"


def conflicts(
    connection: Connection, mine: Relation, theirs: Relation, tables: Sequence[str] = tuple(CONTENTS)
) -> list[Conflict]:
    """All conflicts, in table order; a run with missing parts is one too."""
    conflicts_found: list[Conflict] = []
    types = all_column_types(connection)
    for table in tables:
        rows = connection.execute(_differing(table, types[table], mine(table), theirs(table))).fetchall()
        for subject, columns, texts in rows:
            differing = tuple(name for name in columns if not _are_equal(texts.get(name)))
            conflicts_found += [Conflict(table=table, subject=subject, columns=differing)] if differing else []
    for whole, key, part in PARTS_OF:
        if part in tables:
            part_key = ", ".join(dict.fromkeys((key, *CONTENTS[part].key)))
            shared = f"SELECT {key} FROM {mine(whole)} SEMI JOIN {theirs(whole)} USING ({key})"
            my_parts, their_parts = (
                f"(SELECT {part_key} FROM {relation(part)} WHERE {key} IN ({shared}))" for relation in (mine, theirs)
            )
            rows = connection.execute(f"""
                SELECT {key}, count(*) FILTER (side = 1), count(*) FILTER (side = 2) FROM (
                    SELECT *, 1 AS side FROM ({my_parts} EXCEPT {their_parts})
                    UNION ALL SELECT *, 2 FROM ({their_parts} EXCEPT {my_parts})
                ) GROUP BY {key} ORDER BY {key}
            """).fetchall()
            for subject, here, there in rows:
                counts = [f"{n} of its {part} only {side}" for n, side in ((here, "here"), (there, "there")) if n]
                problem = f"has {' and '.join(counts)}"
                conflicts_found.append(Conflict(table=whole, subject=subject, problem=problem, part=part))
    if "benchmark_runs" in tables:
        sql = RUNS_OF_ONE_FILE.format(mine=mine("benchmark_runs"), theirs=theirs("benchmark_runs"))
        conflicts_found += [
            Conflict(table="benchmark_runs", subject=run, problem=f"comes from the same run file as run {other}")
            for run, other in connection.execute(sql).fetchall()
        ]
    return conflicts_found


def conflicts_text(found: Sequence[Conflict]) -> str:
    """One line with the first conflicts and the number of the rest."""
    return first_few(list(map(str, found)), 3, "; ")


def checksum(table: str, names: Sequence[str], relation: str) -> str:
    """SQL for the number of rows and the sum of their contents' hashes, independent of row order.

    For raw samples it covers the samples, not their statistics.
    """
    content = CHECKSUMMED[table]
    compared = [quoted(name) for name in _compared(content, names) if name not in content.filled]
    columns = ", ".join([*content.key, *compared])
    return f"SELECT count(*) AS rows, coalesce(sum(hash({columns})::HUGEINT), 0)::VARCHAR AS sum FROM {relation}"


def _compared(content: Content, names: Sequence[str]) -> list[str]:
    """The columns that are compared, without the key."""
    return [
        name
        for name in names
        if name not in (*content.key, *content.ignored) and (content.only is None or name in content.only)
    ]


def all_column_types(connection: Connection) -> dict[str, dict[str, str]]:
    """Table -> column -> type, in the connection's own database."""
    types: dict[str, dict[str, str]] = {}
    for table, column, kind in connection.execute(COLUMNS).fetchall():
        types.setdefault(table, {})[column] = kind
    return types


def _differing(table: str, types: Mapping[str, str], mine: str, theirs: str) -> str:
    """SQL for the key, the columns that differ, and both texts of JSON columns."""
    content = CONTENTS[table]
    special: Mapping[str, str] = {"raw_benchmark_data": RAW_DIFFERS, "requests": TOKEN_TIMES_DIFFER}.get(table, {})
    names = _compared(content, list(types))
    unlike = {name: "<>" if name in content.filled else "IS DISTINCT FROM" for name in names}
    plain = {name: f"mine.{quoted(name)} {operator} theirs.{quoted(name)}" for name, operator in unlike.items()}
    tests = [f"CASE WHEN {special.get(name, plain[name])} THEN '{name}' END" for name in names]
    json_columns = [name for name in names if types[name] == "JSON"]
    texts = [f"[mine.{name}::VARCHAR, theirs.{name}::VARCHAR]" for name in json_columns]
    return f"""
        SELECT concat_ws(' ', {", ".join(f"mine.{name}" for name in content.key)}) AS subject,
            list_filter([{", ".join(tests)}], lambda name: name IS NOT NULL) AS differ,
            map({json_columns}::VARCHAR[], [{", ".join(texts)}]::VARCHAR[][]) AS texts
        FROM {mine} mine JOIN {theirs} theirs USING ({", ".join(content.key)})
        WHERE len(differ) > 0 ORDER BY subject
    """


def _are_equal(texts: Sequence[str | None] | None) -> bool:
    """Whether two JSON texts differ only in empty fields, since later versions of the program write more fields. False
    for None, which means a column that is not JSON."""
    if texts is None:
        return False
    mine, theirs = (_without_empty(json.loads(text or "null")) for text in texts)
    return bool(mine == theirs)


def _without_empty(value: Any) -> Any:
    """The JSON value without fields that are null, false or empty."""
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _without_empty(item) for name, item in value.items()}
    return {
        name: item
        for name, item in fields.items()
        if item is not None and item is not False and item not in ("", [], {})
    }
