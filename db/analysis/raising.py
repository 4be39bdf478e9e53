"""Raises alerts for what the history found: a confirmed regression, as the gate would have for the same commits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from benchmarking.ids import uuid7
from db.analysis.alerts import INSERT, Stored
from db.analysis.regressions import Regression

if TYPE_CHECKING:
    from db.warehouse import Warehouse

SAME = """
SELECT alert_id FROM alerts
WHERE metric = $metric AND (
    change_point_id = $change_point_id
    OR (series_id = $series_id AND (result_id = $result_id OR first_commit = $first_commit))
)
ORDER BY created_at, alert_id LIMIT 1
"""
"""The alert that is about the change, whatever its triage is: what somebody called noise is not raised again."""
LINK = "UPDATE alerts SET change_point_id = coalesce(change_point_id, $change_point_id) WHERE alert_id = $alert_id"


def raise_alerts(warehouse: Warehouse, regressions: Iterable[Regression]) -> Stored:
    """An alert for each confirmed regression that has none. Those of a session share a group. All or nothing."""
    new, known = [], []
    with warehouse.transaction() as connection:
        for regression in regressions:
            if regression.state != "confirmed":
                continue
            row = _row(regression)
            asked = ("metric", "change_point_id", "series_id", "result_id", "first_commit")
            same = connection.execute(SAME, {name: row[name] for name in asked}).fetchall()
            if same:
                alert_id = str(same[0][0])
                connection.execute(LINK, {"alert_id": alert_id, "change_point_id": regression.change_point_id})
                known.append(alert_id)
            else:
                connection.execute(INSERT, row)
                new.append(row["alert_id"])
    return Stored(new=tuple(new), known=tuple(known))


def _row(regression: Regression) -> dict[str, Any]:
    kept = {
        "value_before": regression.value_before,
        "value_after": regression.value_after,
        "p_value": regression.p_value,
        "last_good": regression.last_good_result_id,
        "results": [regression.result_id],
        "environment": None if regression.together is None else regression.together.text,
    }
    return {
        "alert_id": uuid7(),
        "series_id": regression.series_id,
        "metric": regression.metric.column,
        "first_commit": regression.last_good_commit,
        "last_commit": regression.first_bad_commit,
        "group_id": regression.session_id,
        "relative_change": regression.relative_change,
        "detector": regression.detector,
        "detector_version": regression.detector_version,
        "parameters": json.dumps(kept),
        "now": datetime.now(UTC).replace(tzinfo=None),
        "result_id": regression.result_id,
        "confirmed_by": None,
        "change_point_id": regression.change_point_id,
    }
