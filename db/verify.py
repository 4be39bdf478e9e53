"""Looks for what should not be in a warehouse. Nothing is changed; each finding says where and what."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarking.records import canonical_hash
from db import migrate
from db.checks import CHECKS
from db.damage import damage
from db.warehouse import MEMORY, Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it should be."""

    kind: str
    """damage, schema, orphan, duplicate, raw_count, raw_statistics, missing_value, series, change_point, axes,
    calibration, heads, hash, checksum."""
    subject: str
    """The table or row it is about."""
    problem: str


SCHEMA = {
    "column": """
        SELECT table_name || '.' || column_name AS name,
            data_type || CASE WHEN is_nullable THEN '' ELSE ' NOT NULL' END || ' -- ' || coalesce(comment, '') AS value
        FROM duckdb_columns() WHERE NOT internal
    """,
    "table": "SELECT table_name AS name, coalesce(comment, '') AS value FROM duckdb_tables() WHERE NOT internal",
    "view": "SELECT view_name AS name, coalesce(comment, '') AS value FROM duckdb_views() WHERE NOT internal",
    "constraint": """
        SELECT table_name || ' ' || constraint_type || ' ' || constraint_column_names::VARCHAR AS name,
            count(*)::VARCHAR AS value
        FROM duckdb_constraints() GROUP BY ALL
    """,
}
"""What makes the schema, as name and value. The words of views and checks are left out, which each version of DuckDB
writes in its own way: the digest in schema_migrations stands for them."""


def verify(warehouse: Warehouse) -> list[Finding]:
    """Everything that is wrong; empty when all is well. Raises StorageError when the file cannot be read."""
    damaged = [Finding(kind="damage", subject=table, problem=problem) for table, problem in damage(warehouse)]
    findings = [*damaged, *_schema(warehouse), *(() if damaged else _migrations(warehouse))]
    if findings:  # the other checks take the schema, and that it can be read, for granted
        return findings
    return [*_contents(warehouse), *_hashes(warehouse), *_checksums(warehouse)]


def _schema(warehouse: Warehouse) -> Iterator[Finding]:
    """Differences from a warehouse made anew."""
    expected, found = _new_schema(), _schema_of(warehouse)
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            yield Finding(kind="schema", subject=name, problem=f"{name} is missing")
        elif name not in expected:
            yield Finding(kind="schema", subject=name, problem=f"{name} is not part of the schema")
        elif expected[name] != found[name]:
            problem = f"{name} is {found[name]!r}, expected {expected[name]!r}"
            yield Finding(kind="schema", subject=name, problem=problem)


@cache
def _new_schema() -> dict[str, str]:
    with Warehouse.open(MEMORY) as fresh:
        return _schema_of(fresh)


def _schema_of(warehouse: Warehouse) -> dict[str, str]:
    return {
        f"{kind} {row['name']}": row["value"] for kind, sql in SCHEMA.items() for row in warehouse.query(sql).dicts()
    }


def _migrations(warehouse: Warehouse) -> Iterator[Finding]:
    """Migrations that are not what this program would have applied."""
    sql = "SELECT version, sha256 FROM schema_migrations"
    found = {row["version"]: row["sha256"] for row in warehouse.query(sql).dicts()}
    for step in (migrate.views(), *migrate.migrations()):
        if step.version not in found:
            yield Finding(kind="schema", subject=step.name, problem=f"migration {step.name} was never applied")
        elif found[step.version] != step.sha256:
            yield Finding(kind="schema", subject=step.name, problem=f"migration {step.name} was applied in other words")


def _contents(warehouse: Warehouse) -> Iterator[Finding]:
    for kind, sql in CHECKS:
        for row in warehouse.query(sql).dicts():
            yield Finding(kind=kind, subject=row["subject"], problem=row["problem"])


def _hashes(warehouse: Warehouse) -> Iterator[Finding]:
    """Ids that are not the hash of the keys beside them."""
    for table, column in (("hardware_info", "hardware_id"), ("series", "series_id")):
        for row in warehouse.query(f"SELECT {column} AS id, hashed_keys FROM {table} ORDER BY 1").dicts():
            expected = canonical_hash(json.loads(row["hashed_keys"]))[: len(row["id"])]
            if row["id"] != expected:
                problem = f"{table}: {column} {row['id']} is not the hash of its hashed_keys ({expected})"
                yield Finding(kind="hash", subject=row["id"], problem=problem)


def _checksums(warehouse: Warehouse) -> Iterator[Finding]:
    """Run files that are not any more what was loaded. One that is gone is no fault: the runs are here."""
    sql = "SELECT run_id, source, source_sha256 FROM benchmark_runs WHERE source_sha256 IS NOT NULL ORDER BY source"
    for row in warehouse.query(sql).dicts():
        problem = _file_problem(row)
        if problem is not None:
            yield Finding(kind="checksum", subject=row["run_id"], problem=problem)


def _file_problem(row: dict[str, Any]) -> str | None:
    path = Path(row["source"]) if row["source"] is not None else None
    if path is None or not path.is_file():
        return None
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return f"run {row['run_id']}: its file {path} cannot be read: {error.strerror}"
    return None if digest == row["source_sha256"] else f"run {row['run_id']}: its file {path} was changed since"
