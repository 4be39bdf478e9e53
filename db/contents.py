"""Whether two rows of the same id say the same: what of a row is its content, and the questions that compare it.

A run is one unit with its results and raw samples: its id stands for all of it. What a row says of its own storing
(from which file, when) is no content, nor is what other columns of it say already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.migrate import Connection, quoted

CLOSE = 1e-9
"""Relative difference within which two programs' means of the same samples agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What of a table's rows has to be the same in two rows of the same key."""

    key: tuple[str, ...]
    apart: tuple[str, ...] = ()
    """Columns that may differ."""
    only: tuple[str, ...] | None = None
    """The columns that may not, where most may."""
    filled: tuple[str, ...] = ()
    """Columns that an upgrade fills and a run of that time leaves empty: they differ only where both have a value."""


CONTENTS = {
    # What else of a device is told by the first run on it, and two warehouses need not have the same first run.
    "hardware_info": Content(key=("hardware_id",), only=("hashed_keys", "hash_version")),
    "series": Content(key=("series_id",), apart=("first_seen_at",)),
    "benchmark_runs": Content(
        key=("run_id",),
        apart=(
            *("source", "source_sha256", "ingested_at"),
            *("is_simulated", "weight_dtypes"),  # told by device_details and loads
            *("exporter", "build_kind", "build_digest", "build_s", "build_is_new"),  # told by preparation
        ),
    ),
    "benchmark_results": Content(key=("result_id",), filled=("model_size_mb",)),
    "raw_benchmark_data": Content(key=("result_id", "launch", "phase", "metric"), apart=("compacted_at",)),
    "change_points": Content(key=("change_point_id",), only=("series_id", "metric", "result_id")),
    "alerts": Content(key=("alert_id",), only=("series_id", "metric")),
    "annotations": Content(key=("annotation_id",)),
}
RAW = {
    "samples": "mine.compacted_at IS NULL AND theirs.compacted_at IS NULL AND mine.samples <> theirs.samples",
    "sketch": "len(mine.sketch) = len(theirs.sketch) AND mine.sketch <> theirs.sketch",
    **{
        name: f"abs(mine.{name} - theirs.{name}) > {CLOSE} * abs(mine.{name})"
        for name in ("sample_count", "mean", "median", "p99")
    },
}
"""Raw samples beside their quantiles are no contradiction, if both come to the same."""
SUMMED = {
    **CONTENTS,
    "raw_benchmark_data": Content(
        key=CONTENTS["raw_benchmark_data"].key, only=("unit", "started_at", "inner_loops", "sample_count", "samples")
    ),
    "series_alias": Content(key=("series_id",), only=("canonical_series_id",)),
}
"""What a checksum is taken of."""
PARTS = (("benchmark_runs", "run_id", "benchmark_results"), ("benchmark_results", "result_id", "raw_benchmark_data"))
"""Whole, its key, and the table of its parts."""

SAME_FILE = """
SELECT theirs.run_id, mine.run_id FROM {theirs} theirs JOIN {mine} mine USING (source_sha256)
WHERE theirs.run_id <> mine.run_id AND theirs.origin_format IS NULL AND mine.origin_format IS NULL ORDER BY ALL
"""

WORDS = {
    "hardware_info": "hardware",
    "series": "series",
    "series_alias": "series",
    "benchmark_runs": "run",
    "benchmark_results": "result",
    "raw_benchmark_data": "raw samples",
    "change_points": "change point",
    "alerts": "alert",
    "annotations": "annotation",
}
"""What a row of each table is called."""

COLUMNS = """
SELECT table_name, column_name, data_type FROM duckdb_columns()
WHERE database_name = current_database() AND NOT internal ORDER BY table_name, column_index
"""

Relation = Callable[[str], str]
"""Table -> what stands for it after FROM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A row that is there twice and does not say the same."""

    table: str
    subject: str
    """Its key."""
    columns: tuple[str, ...] = ()
    """Those that differ."""
    problem: str | None = None
    """What is wrong where no column is to be named."""
    part: str | None = None
    """The table of its parts, where those are not the same ones."""

    def __str__(self) -> str:
        what = self.problem or f"differs in {', '.join(self.columns)}"
        return f"{WORDS[self.table]} {self.subject} {what}"


def conflicts(
    connection: Connection, mine: Relation, theirs: Relation, tables: Sequence[str] = tuple(CONTENTS)
) -> list[Conflict]:
    """Everything in which rows of the same key differ, a run's missing parts included; in the order of the tables."""
    found: list[Conflict] = []
    types = all_column_types(connection)
    for table in tables:
        rows = connection.execute(_differing(table, types[table], mine(table), theirs(table))).fetchall()
        for subject, columns, texts in rows:
            differing = tuple(name for name in columns if not _says_the_same(texts.get(name)))
            found += [Conflict(table=table, subject=subject, columns=differing)] if differing else []
    for whole, key, part in PARTS:
        if part in tables:
            rows = connection.execute(_incomplete(whole, key, part, mine, theirs)).fetchall()
            found += [_parted(whole, part, *row) for row in rows]
    if "benchmark_runs" in tables:
        sql = SAME_FILE.format(mine=mine("benchmark_runs"), theirs=theirs("benchmark_runs"))
        problem = "comes from the same run file as run {}"
        rows = connection.execute(sql).fetchall()
        found += [Conflict(table="benchmark_runs", subject=run, problem=problem.format(other)) for run, other in rows]
    return found


def conflicts_text(found: Sequence[Conflict], most: int = 3) -> str:
    """The conflicts in a line: the first ones, and how many there are more."""
    more = f"; and {len(found) - most} more" if len(found) > most else ""
    return "; ".join(map(str, found[:most])) + more


def checksum(table: str, names: Sequence[str], relation: str) -> str:
    """SQL that gives the number of rows and a sum of their contents' hashes, whatever the order of the rows.

    Of raw samples it sees the samples, and not what they come to.
    """
    content = SUMMED[table]
    kept = [quoted(name) for name in _compared(content, names) if name not in content.filled]
    columns = ", ".join([*content.key, *kept])
    return f"SELECT count(*) AS rows, coalesce(sum(hash({columns})::HUGEINT), 0)::VARCHAR AS sum FROM {relation}"


def _compared(content: Content, names: Sequence[str]) -> list[str]:
    """The columns that are compared, the key apart."""
    return [
        name
        for name in names
        if name not in (*content.key, *content.apart) and (content.only is None or name in content.only)
    ]


def all_column_types(connection: Connection) -> dict[str, dict[str, str]]:
    """Table -> column -> type, of the connection's own database."""
    types: dict[str, dict[str, str]] = {}
    for table, column, kind in connection.execute(COLUMNS).fetchall():
        types.setdefault(table, {})[column] = kind
    return types


def _differing(table: str, types: Mapping[str, str], mine: str, theirs: str) -> str:
    """SQL that gives key, columns that differ, and for those of JSON both texts."""
    content = CONTENTS[table]
    special: Mapping[str, str] = RAW if table == "raw_benchmark_data" else {}
    names = _compared(content, list(types))
    tests = [f"CASE WHEN {_test(name, content, special)} THEN '{name}' END" for name in names]
    texts_of = [name for name in names if types[name] == "JSON"]
    texts = [f"[mine.{name}::VARCHAR, theirs.{name}::VARCHAR]" for name in texts_of]
    return f"""
        SELECT concat_ws(' ', {", ".join(f"mine.{name}" for name in content.key)}) AS subject,
            list_filter([{", ".join(tests)}], lambda name: name IS NOT NULL) AS differ,
            map({texts_of}::VARCHAR[], [{", ".join(texts)}]::VARCHAR[][]) AS texts
        FROM {mine} mine JOIN {theirs} theirs USING ({", ".join(content.key)})
        WHERE len(differ) > 0 ORDER BY subject
    """


def _says_the_same(texts: Sequence[str | None] | None) -> bool:
    """Whether two JSON texts differ only in fields that say nothing: a later version of the program writes more of
    those. False for None, which stands for a column that is not JSON."""
    if texts is None:
        return False
    mine, theirs = (_telling(json.loads(text or "null")) for text in texts)
    return bool(mine == theirs)


def _telling(value: Any) -> Any:
    """The JSON value without the fields that are null, false or empty."""
    if isinstance(value, list):
        return [_telling(one) for one in value]
    if not isinstance(value, dict):
        return value
    told = {name: _telling(one) for name, one in value.items()}
    return {name: one for name, one in told.items() if one is not None and one is not False and one not in ("", [], {})}


def _test(name: str, content: Content, special: Mapping[str, str]) -> str:
    if name in special:
        return special[name]
    equality = "<>" if name in content.filled else "IS DISTINCT FROM"
    return f"mine.{quoted(name)} {equality} theirs.{quoted(name)}"


def _incomplete(whole: str, key: str, part: str, mine: Relation, theirs: Relation) -> str:
    """The wholes that both have, and the parts of them that only one has."""
    part_key = ", ".join(dict.fromkeys((key, *CONTENTS[part].key)))
    shared = f"SELECT {key} FROM {mine(whole)} SEMI JOIN {theirs(whole)} USING ({key})"
    sides = (f"(SELECT {part_key} FROM {of(part)} WHERE {key} IN ({shared}))" for of in (mine, theirs))
    here, there = sides
    return f"""
        SELECT {key}, count(*) FILTER (side = 1), count(*) FILTER (side = 2) FROM (
            SELECT *, 1 AS side FROM ({here} EXCEPT {there}) UNION ALL SELECT *, 2 FROM ({there} EXCEPT {here})
        ) GROUP BY {key} ORDER BY {key}
    """


def _parted(whole: str, part: str, subject: str, here: int, there: int) -> Conflict:
    counts = [f"{count} of its {part} only {where}" for count, where in ((here, "here"), (there, "there")) if count]
    return Conflict(table=whole, subject=subject, problem=f"has {' and '.join(counts)}", part=part)
