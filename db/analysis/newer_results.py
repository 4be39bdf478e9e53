"""Results that are newer than the one shown of their series, and were passed over because they are not valid.

Comparisons show the newest valid result of a series. Where a newer one is noisy, wrong or failed, the machine or the
program may have changed since, so whoever shows the older one says it in these words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from benchmarking.core.doubts import KINDS
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import number
from db.values import listed_doubts

if TYPE_CHECKING:
    from db.warehouse import Warehouse

NEWER = """
SELECT
    shown.result_id AS shown_id, newer.result_id, newer.started_at, newer.status, newer.validity, newer.doubts,
    newer.latency_median_ms AS latency_ms
FROM benchmark_results shown
JOIN benchmark_runs run ON run.run_id = shown.run_id
LEFT JOIN series_alias alias ON alias.series_id = shown.series_id
JOIN latest_results newer ON newer.series_id = coalesce(alias.canonical_series_id, shown.series_id)
WHERE shown.result_id IN (SELECT unnest(?::VARCHAR[])) AND newer.started_at > run.started_at
    AND newer.status <> 'skipped' AND (newer.status <> 'ok' OR newer.validity <> 'valid')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newer:
    """The newest result of a series, which is not valid."""

    result_id: str
    started_at: datetime
    """Start of its run, UTC."""
    state: str
    """What it is: "is noisy", "failed", "timed out"."""
    doubts: tuple[str, ...]
    """Kinds of doubt, without those of severity info."""
    latency_ms: float | None

    @property
    def text(self) -> str:
        """ "a newer result, 87.5 ms, of 2026-11-28 09:01 UTC, is noisy (unsteady)" """
        value = "" if self.latency_ms is None else f", {number(self.latency_ms)} ms"
        why = f" ({listed_doubts(self.doubts)})" if self.doubts else ""
        return f"a newer result{value}, of {self.started_at:%Y-%m-%d %H:%M} UTC, {self.state}{why}"


def newer_doubtful(warehouse: Warehouse, shown: Collection[str]) -> Mapping[str, Newer]:
    """By the id of a shown result, the newest of its series, where that is newer and not valid."""
    return {
        row["shown_id"]: Newer(
            result_id=row["result_id"],
            started_at=row["started_at"],
            state=f"is {row['validity']}" if row["status"] == "ok" else row["status"].replace("_", " "),
            doubts=tuple(kind for kind in row["doubts"] if kind not in KINDS or KINDS[kind].severity != "info"),
            latency_ms=row["latency_ms"],
        )
        for row in warehouse.query(NEWER, (list(shown),)).dicts()
    }
