"""Replaces the raw samples of old results by their quantiles: the file shrinks, and every statistic is kept.

2026-11-21: 20 steps, so 21 quantiles per launch, among them minimum, maximum, quartiles, median, p90 and p95; mean,
median and p99 are stored anyway. Between two quantiles the distribution is off by less than 1/20, which is below what
the samples of one launch resolve at 95 % (1.36 / sqrt(n), Kolmogorov) up to n = 739. Finer steps would keep noise,
coarser ones would lose p95. A launch of fewer than twice as many samples is left unchanged: little would be saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from db.analysis.selection import Selection
from db.files import temporary_sibling
from db.warehouse import Warehouse

STEPS = 20
QUANTILES = tuple(step / STEPS for step in range(STEPS + 1))
MIN_SAMPLES = 2 * len(QUANTILES)

OLD_RESULTS = "SELECT result_id FROM all_results WHERE started_at < ? AND ({condition}) ORDER BY result_id"
LONG = f"compacted_at IS NULL AND sample_count >= {MIN_SAMPLES}"
FORECAST = f"""
SELECT
    count(DISTINCT result_id) FILTER (WHERE {LONG}) AS results,
    count(*) FILTER (WHERE {LONG}) AS rows,
    coalesce(sum(sample_count) FILTER (WHERE {LONG}), 0)::BIGINT AS samples,
    count(*) FILTER (WHERE compacted_at IS NULL AND sample_count < {MIN_SAMPLES}) AS short_rows,
    count(*) FILTER (WHERE compacted_at IS NOT NULL) AS compacted_rows
FROM raw_benchmark_data WHERE result_id IN (SELECT unnest($results))
"""
REPLACE = f"""
UPDATE raw_benchmark_data SET
    sketch = list_aggregate(samples, 'quantile_cont', {list(QUANTILES)}), samples = [], compacted_at = $now
WHERE {LONG} AND result_id IN (SELECT unnest($results))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The effect on the raw samples of some results. A row is a launch and a metric."""

    results: int
    """Results with samples to be replaced."""
    rows: int
    samples: int
    """Samples in those rows."""
    short_rows: int
    """Rows left unchanged, with fewer than MIN_SAMPLES samples."""
    compacted_rows: int
    """Rows that have only quantiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the file in bytes, measured on a copy."""

    before: int
    rewritten: int
    """Rewritten with all samples: free space in the file is not saved by compacting."""
    after: int


def old_results(warehouse: Warehouse, before: datetime, selection: Selection) -> list[str]:
    """Ids of the selected results of runs that started before the time (naive UTC).

    The selection may hold SQL of a user: `warehouse` should be read-only.
    """
    sql = OLD_RESULTS.format(condition=selection.condition)
    return [str(row["result_id"]) for row in warehouse.query(sql, [before, *selection.values]).dicts()]


def forecast(warehouse: Warehouse, results: Sequence[str]) -> Forecast:
    """The effect of `replace_samples` on the results."""
    return Forecast(**warehouse.query(FORECAST, {"results": list(results)}).dicts()[0])


def replace_samples(warehouse: Warehouse, results: Sequence[str]) -> Forecast:
    """Replace the samples of the results by their quantiles, all or none; gives what was replaced.

    The file shrinks when it is rewritten: `Warehouse.compact`.
    """
    done = forecast(warehouse, results)
    now = datetime.now(UTC).replace(tzinfo=None)
    with warehouse.transaction() as connection:
        connection.execute(REPLACE, {"now": now, "results": list(results)})
    return done


def sizes(warehouse: Warehouse, results: Sequence[str]) -> Sizes:
    """The sizes of the file, measured on a temporary copy in its folder. Raises StorageError."""
    path = Path(warehouse.path)
    with temporary_sibling(path) as copy, temporary_sibling(path) as rewritten:
        warehouse.backup(copy)
        before = copy.stat().st_size
        with Warehouse.open(copy) as opened:
            replace_samples(opened, results)
            opened.backup(rewritten)
        return Sizes(before=path.stat().st_size, rewritten=before, after=rewritten.stat().st_size)
