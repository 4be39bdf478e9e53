"""Results of the older DuckDB files: one a row, or one of several rows with a metric each, with its raw values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from benchmarking.records import Doubt, Json, Point, Result, Samples, Status
from db.importers import ForeignFile
from db.importers._building import foreign_result, iso
from db.importers._duckdb_metrics import RawValues, count_of, in_order, key_of, metrics_of, raw_values, text_of
from db.importers._duckdb_tables import Tables
from db.importers._launches import timed_result
from db.importers._reading import Fields
from db.importers._tails import supported

STATUSES: dict[str, Status] = {
    **dict.fromkeys(("ok", "success", "successful", "completed", "complete", "passed", "done"), "ok"),
    **dict.fromkeys(("failed", "error", "failure", "crashed"), "failed"),
    **dict.fromkeys(("skipped", "unsupported"), "skipped"),
    **dict.fromkeys(("timed_out", "timeout"), "timed_out"),
}
JOINS = ("result_id", "run_id", "batch_size", "sequence_length")
"""Columns by which raw values find their result, where both tables have them."""


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Raw values by what the columns hold by which they find their result."""

    joins: tuple[str, ...]
    values: Mapping[tuple[str, ...], Sequence[RawValues]]


@dataclass(frozen=True, kw_only=True)
class Held:
    """What one row of results holds, or several of the same point with a metric each."""

    point: Point
    metrics: Mapping[str, float]
    raw: tuple[RawValues, ...]
    iterations: int | None
    warmup_iterations: int
    status: Status
    error: str | None
    rows: tuple[Json, ...]
    """What of the rows has no place elsewhere."""


def _joins(tables: Tables) -> tuple[str, ...]:
    """The columns that raw values find their result by: its id alone where there is one."""
    shared = [name for name in JOINS if all(name in row for row in (*tables.raw, *tables.results))]
    return ("result_id",) if "result_id" in shared else tuple(shared)


def raw_by_result(tables: Tables) -> Raw:
    """The raw values by what the columns they join by hold. Raises FormatError for one that is of no result."""
    joins = _joins(tables)
    if tables.raw and not joins:
        tables.raw[0].refuse("result_id", f"is missing, and {', '.join(JOINS[1:])} do not say whose it is either")
    there = {_held_by(row, joins) for row in tables.results}
    found: dict[tuple[str, ...], list[RawValues]] = {}
    for row in tables.raw:
        key, values = _held_by(row, joins), raw_values(row)
        if key not in there:
            row.refuse(joins[0], f"{', '.join(key)} is not in benchmark_results")
        if values is not None:
            found.setdefault(key, []).append(values)
    return Raw(joins=joins, values=found)


def _held_by(row: Fields, columns: Sequence[str]) -> tuple[str, ...]:
    """What the row holds in the columns, as text."""
    return tuple(str(row.any(name)) for name in columns)


def held_in(row: Fields, run_id: str, raw: Raw) -> Held:
    """One row of results, with the raw values that are its own."""
    found = raw.values.get(_held_by(row, raw.joins), ())
    point = Point(
        batch_size=count_of(row, "batch_size", "batch") or 1,
        sequence_length=count_of(row, "sequence_length", "seq_length", "seq_len", "input_length"),
        new_tokens=count_of(row, "new_tokens", "max_new_tokens", "output_length"),
        concurrency=count_of(row, "concurrency") or 1,
    )
    warmups = sum(len(one.values) for one in found if one.phase == "warmup")
    stated, error = text_of(row, "status"), text_of(row, "error", "error_message")
    metrics = metrics_of(row)
    status = STATUSES.get((stated or "ok").lower(), "ok" if metrics else "failed")
    ids: dict[str, Json] = {"run_id": run_id, "result_id": key_of(row, "result_id", "id")}
    return Held(
        point=point,
        metrics=metrics,
        raw=tuple(found),
        iterations=count_of(row, "iterations", "num_iterations", "num_runs"),
        warmup_iterations=count_of(row, "warmup_iterations", "num_warmup") or warmups,
        status=status,
        error=error or (f"status {stated!r}, and no reason" if status != "ok" else None),
        rows=({**row.rest(), **ids, **({} if stated is None else {"status": stated})},),
    )


def merged(held: Sequence[Held]) -> list[Held]:
    """Rows of the same point that have no metric in common are one result: such tables have a metric a row."""
    found: list[Held] = []
    newest: dict[str, int] = {}
    for one in held:
        other = found[newest[one.point.label]] if one.point.label in newest else None
        if other is None or not one.metrics or other.metrics.keys() & one.metrics.keys():
            newest[one.point.label] = len(found)
            found.append(one)
        else:
            found[newest[one.point.label]] = replace(
                other,
                metrics={**other.metrics, **one.metrics},
                raw=other.raw if other.raw == one.raw else other.raw + one.raw,
                rows=other.rows + one.rows,
            )
    return found


def result_of(file: ForeignFile, held: Held, started_at: datetime, doubts: Sequence[Doubt]) -> Result:
    """The result, its latency columns computed from the raw values where the file does not state them."""
    raw_rest = [dict(one.kept) for one in held.raw]
    samples = [
        Samples(launch=launch, phase=phase, metric=metric, unit=unit, started_at=iso(started_at), values=values)
        for (launch, phase, metric, unit), values in in_order(held.raw)
        if values
    ]
    shared: dict[str, Any] = {
        "iterations": held.iterations,
        "warmup_iterations": held.warmup_iterations,
        "doubts": doubts,
        "kept": {"rows": list(held.rows), **({"raw_benchmark_data": raw_rest} if any(raw_rest) else {})},
    }
    if held.status != "ok":
        return foreign_result(held.point, metrics={}, status=held.status, error=held.error, **shared)
    walls = [one.values for one in samples if one.metric == "latency_wall" and one.phase == "measure"]
    metrics, missing = supported(held.metrics, sum(map(len, walls)) or held.iterations)
    if walls:
        return timed_result(file, held.point, samples, metrics=metrics, **shared)
    return foreign_result(held.point, metrics=metrics, missing=missing, samples=samples, **shared)
