"""Which result stands for each series: its newest one, and the newest that comparisons accept.

Kept in the table series_heads as runs come in. Finding them in the results, by a window over all of them, would take
seconds in a warehouse of a million, and every comparison asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.records import Result, Run
from db import identity

if TYPE_CHECKING:
    from db.migrate import Connection
    from db.rows import Row

CALIBRATION = "device-calibration"
"""Task of the runs that stand for a device, not for a model."""

COMPUTED = """
WITH candidates AS (
    SELECT r.series_id, run.model_id, r.result_id, run.started_at, r.validity = 'valid' AS is_valid,
        r.status = 'ok' AND r.validity <> 'invalid' AS is_accepted
    FROM benchmark_results r JOIN benchmark_runs run USING (run_id)
    WHERE run.task <> 'device-calibration'
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
"""The table as the results make it."""


def compute(connection: Connection) -> None:
    """Make the table anew from the results, inside the caller's transaction."""
    connection.execute("DELETE FROM series_heads")
    connection.execute(f"INSERT INTO series_heads BY NAME {COMPUTED}")


def heads_of(run: Run, row: Row, known: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of the run's series once it is stored. `row` is the run's own, `known` the rows as they are.

    A valid result is accepted before a noisy or throttled one, a newer before an older; an invalid one never.
    """
    if run.cell.workload.task == CALIBRATION:
        return []
    heads: dict[str, Row] = {each["series_id"]: dict(each) for each in known}
    for result in run.results:
        series_id = identity.series_id(identity.series_keys(run, result.point))
        head = heads.setdefault(series_id, {"series_id": series_id, "model_id": row["model_id"]})
        _take_latest(head, result, row)
        if result.status == "ok" and result.validity != "invalid":
            _take_accepted(head, result, row)
    return list(heads.values())


def _take_latest(head: Row, result: Result, row: Row) -> None:
    key = (row["started_at"], result.result_id)
    if "latest_result_id" not in head or key > (head["latest_started_at"], head["latest_result_id"]):
        head["latest_started_at"], head["latest_result_id"] = key


def _take_accepted(head: Row, result: Result, row: Row) -> None:
    key = (result.validity == "valid", row["started_at"], result.result_id)
    names = ("accepted_is_valid", "accepted_started_at", "accepted_result_id")
    if head.get("accepted_result_id") is None or key > tuple(head[name] for name in names):
        head.update(zip(names, key, strict=True))
