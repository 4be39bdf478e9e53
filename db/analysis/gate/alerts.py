"""Alerts: regressions for a person to triage, from the gate and the history, each stored once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from benchmarking.core.errors import UsageError
from benchmarking.core.provenance import uuid7
from db.analysis.gate.findings import Finding
from db.analysis.gate.gate import DETECTOR, DETECTOR_VERSION, Parameters
from db.analysis.history.regressions import Regression
from db.analysis.selection import EVERYTHING, Selection
from db.analysis.settings import SETTING_COLUMNS, SETTINGS, settings_words

if TYPE_CHECKING:
    from db.connection import Connection
    from db.warehouse import Warehouse

Triage = Literal["new", "regression", "improvement", "method", "hardware", "noise"]
TRIAGES: tuple[Triage, ...] = get_args(Triage)
"""new: untriaged; regression and improvement: real; method: the measurement changed; hardware: the machine changed;
noise: chance."""
OPEN: tuple[Triage, ...] = ("new", "regression")
"""Triages of open alerts, whose results are excluded from the gate's segments."""
MIN_PREFIX = 4
"""Minimum characters of an alert id prefix."""
OPEN_OF = """
SELECT alert_id, series_id, first_commit, result_id, parameters FROM alerts
WHERE metric = $metric AND detector = $detector AND series_id IN (SELECT unnest($series))
    AND triage IN (SELECT unnest($open))
ORDER BY created_at, alert_id
"""
INSERT = """
INSERT INTO alerts BY NAME SELECT
    $alert_id AS alert_id, $series_id AS series_id, $metric AS metric, $first_commit AS first_commit,
    $last_commit AS last_commit, $group_id AS group_id, 'new' AS triage, $relative_change AS relative_change,
    $detector AS detector, $detector_version AS detector_version, $parameters AS parameters,
    $now AS created_at, $now AS updated_at, $result_id AS result_id, $confirmed_by AS confirmed_by,
    $change_point_id AS change_point_id
"""
EXTEND = """
UPDATE alerts SET parameters = $parameters, confirmed_by = coalesce(confirmed_by, $confirmed_by)
WHERE alert_id = $alert_id
"""
LIST_ALERTS = f"""
SELECT
    a.alert_id, a.triage, a.metric, a.relative_change, a.first_commit, a.last_commit, a.group_id, a.detector,
    a.detector_version, a.parameters, a.created_at, a.updated_at, a.confirmed_by, a.change_point_id, a.note,
    r.result_id, r.series_id, r.run_id, r.session_id, r.started_at, r.model_id, r.device, r.device_name, r.runtime,
    r.precision, {", ".join(f"r.{name}" for name in ("runtime_mode", *SETTING_COLUMNS))},
    r.batch_size, r.sequence_length, r.new_tokens, r.concurrency, r.axes
FROM alerts a
LEFT JOIN change_points c USING (change_point_id)
JOIN (SELECT * FROM all_results WHERE {{condition}}) r ON r.result_id = coalesce(a.result_id, c.result_id)
WHERE list_contains(?::VARCHAR[], a.triage)
ORDER BY a.created_at DESC, a.relative_change DESC, a.alert_id
"""
FIND = "SELECT alert_id FROM alerts WHERE starts_with(alert_id, ?)"
SET_TRIAGE = (
    "UPDATE alerts SET triage = $triage, note = coalesce($note, note), updated_at = $now WHERE alert_id = $alert_id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAlerts:
    """The alerts stored for some findings."""

    new: tuple[str, ...] = ()
    """Ids of new alerts."""
    known: tuple[str, ...] = ()
    """Ids of existing alerts about the same regressions."""


def store_alerts(warehouse: Warehouse, findings: Iterable[Finding], parameters: Parameters) -> StoredAlerts:
    """Raise an alert for each regression that has no open alert yet.

    An alert is about the same regression if series, metric and last good commit (without commits, the run) are equal;
    the finding's results are then added to it. Alerts of one session share a group. All or nothing.
    """
    regressed = [(finding, _row(finding, parameters)) for finding in findings if finding.verdict == "regressed"]

    def stored(connection: Connection) -> StoredAlerts:
        found = []
        for finding, row in regressed:
            alert = _same(_open(connection, finding), finding)
            if alert is None:
                connection.execute(INSERT, row)
            else:
                connection.execute(EXTEND, _extended(alert, finding))
            found.append(row["alert_id"] if alert is None else alert["alert_id"])
        return _stored([row for _, row in regressed], found)

    return warehouse.change(stored)


def list_alerts(warehouse: Warehouse, selection: Selection, triages: Sequence[str] = TRIAGES) -> list[dict[str, Any]]:
    """The alerts with these triages about selected results, newest first, with columns of the results and the settings
    that distinguish them."""
    rows = warehouse.query(
        LIST_ALERTS.format(condition=selection.condition), (*selection.values, list(triages))
    ).dicts()
    return [
        {**row, SETTINGS: words, **{name: json.loads(row[name]) for name in ("axes", "parameters", "runtime_mode")}}
        for row, words in zip(rows, settings_words(rows), strict=True)
    ]


def alerts_of(warehouse: Warehouse, alert_ids: Sequence[str]) -> list[dict[str, Any]]:
    """These alerts, in the form of `list_alerts`."""
    wanted = set(alert_ids)
    return [row for row in list_alerts(warehouse, EVERYTHING) if row["alert_id"] in wanted] if wanted else []


def set_triage(warehouse: Warehouse, prefixes: Sequence[str], triage: Triage, note: str | None) -> tuple[str, ...]:
    """Set the triage of the alerts; returns their ids. A note of None keeps the existing one.

    Raises UsageError, and changes nothing, for a prefix that matches no id or several.
    """
    alert_ids = tuple(dict.fromkeys(_found(warehouse, prefix) for prefix in prefixes))
    now = datetime.now(UTC).replace(tzinfo=None)

    def triaged(connection: Connection) -> None:
        for alert_id in alert_ids:
            connection.execute(SET_TRIAGE, {"alert_id": alert_id, "triage": triage, "note": note, "now": now})

    warehouse.change(triaged)
    return alert_ids


def _found(warehouse: Warehouse, prefix: str) -> str:
    if len(prefix) < MIN_PREFIX:
        raise UsageError(f"{prefix!r}: expected an alert id or at least its first {MIN_PREFIX} characters")
    ids = [row["alert_id"] for row in warehouse.query(FIND, [prefix]).dicts()]
    if len(ids) == 1:
        return str(ids[0])
    if not ids:
        raise UsageError(f"no alert has an id that begins with {prefix!r}: see benchhouse alert list")
    raise UsageError(f"{len(ids)} alerts have an id that begins with {prefix!r}: give a longer prefix")


def _open(connection: Any, finding: Finding) -> list[dict[str, Any]]:
    """The open alerts of the finding's series and metric, oldest first."""
    candidate = finding.candidate
    which = {"metric": candidate.metric.column, "detector": DETECTOR, "series": [candidate.series_id]}
    rows = connection.execute(OPEN_OF, {**which, "open": list(OPEN)}).fetchall()
    names = ("alert_id", "series_id", "first_commit", "result_id", "parameters")
    return [dict(zip(names, (*row[:-1], json.loads(row[-1])), strict=True)) for row in rows]


def _same(alerts: Sequence[dict[str, Any]], finding: Finding) -> dict[str, Any] | None:
    """The alert about the same regression as the finding, if any."""
    last_good = finding.candidate.segment[-1]
    for alert in alerts:
        if finding.candidate.result_id in alert["parameters"]["results"]:
            return alert
        if last_good.git_commit is not None and alert["first_commit"] == last_good.git_commit:
            return alert
        if alert["parameters"]["last_good"] == last_good.result_id:
            return alert
    return None


def _row(finding: Finding, parameters: Parameters) -> dict[str, Any]:
    candidate, judgement = finding.candidate, finding.judgement
    assert judgement is not None
    last_good = candidate.segment[-1]
    kept = {
        "confidence": parameters.confidence,
        "min_change": parameters.min_change,
        **{name: getattr(judgement, name) for name in ("n", "centre", "low", "high", "value")},
        "last_good": last_good.result_id,
        "results": _results(finding),
        "environment": None if finding.together is None else finding.together.text,
    }
    return _new_alert(
        series_id=candidate.series_id,
        metric=candidate.metric.column,
        first_commit=last_good.git_commit,
        last_commit=candidate.git_commit,
        group_id=candidate.session_id,
        relative_change=judgement.relative_change,
        detector=DETECTOR,
        detector_version=DETECTOR_VERSION,
        parameters=json.dumps(kept),
        result_id=candidate.result_id,
        confirmed_by=finding.again_result_id,
    )


def _new_alert(**columns: Any) -> dict[str, Any]:
    return {
        "alert_id": uuid7(),
        "now": datetime.now(UTC).replace(tzinfo=None),
        "confirmed_by": None,
        "change_point_id": None,
        **columns,
    }


def _extended(alert: Mapping[str, Any], finding: Finding) -> dict[str, Any]:
    parameters = alert["parameters"]
    results = list(dict.fromkeys((*parameters["results"], *_results(finding))))
    return {
        "alert_id": alert["alert_id"],
        "parameters": json.dumps({**parameters, "results": results}),
        "confirmed_by": finding.again_result_id,
    }


def _results(finding: Finding) -> list[str]:
    """The results that show the regression."""
    ids = (finding.candidate.result_id, finding.again_result_id)
    return [result_id for result_id in ids if result_id is not None]


SAME_CHANGE = """
SELECT alert_id FROM alerts
WHERE metric = $metric AND (
    change_point_id = $change_point_id
    OR (series_id = $series_id AND (result_id = $result_id OR first_commit = $first_commit))
)
ORDER BY created_at, alert_id LIMIT 1
"""
"""The alert about the change, with any triage: a change triaged as noise is not raised again."""
LINK = "UPDATE alerts SET change_point_id = coalesce(change_point_id, $change_point_id) WHERE alert_id = $alert_id"


def raise_alerts(warehouse: Warehouse, regressions: Iterable[Regression]) -> StoredAlerts:
    """Raise an alert for each confirmed regression without one. Alerts of one session share a group. All or nothing."""
    rows = [_alert_row(regression) for regression in regressions if regression.state == "confirmed"]

    def stored(connection: Connection) -> StoredAlerts:
        found = []
        for row in rows:
            key = ("metric", "change_point_id", "series_id", "result_id", "first_commit")
            same = connection.execute(SAME_CHANGE, {name: row[name] for name in key}).fetchall()
            if same:
                alert_id = str(same[0][0])
                connection.execute(LINK, {"alert_id": alert_id, "change_point_id": row["change_point_id"]})
                found.append(alert_id)
            else:
                connection.execute(INSERT, row)
                found.append(row["alert_id"])
        return _stored(rows, found)

    return warehouse.change(stored)


def _stored(rows: Sequence[Mapping[str, Any]], found: Sequence[str]) -> StoredAlerts:
    """The alerts found for rows: new if it is the row's own, even if an earlier attempt stored it."""
    pairs = [(row["alert_id"], one) for row, one in zip(rows, found, strict=True)]
    return StoredAlerts(
        new=tuple(one for own, one in pairs if one == own), known=tuple(one for own, one in pairs if one != own)
    )


def _alert_row(regression: Regression) -> dict[str, Any]:
    kept = {
        "value_before": regression.value_before,
        "value_after": regression.value_after,
        "p_value": regression.p_value,
        "last_good": regression.last_good_result_id,
        "results": [regression.result_id],
        "environment": None if regression.together is None else regression.together.text,
    }
    same = ("series_id", "relative_change", "detector", "detector_version", "result_id", "change_point_id")
    return _new_alert(
        metric=regression.metric.column,
        first_commit=regression.last_good_commit,
        last_commit=regression.first_bad_commit,
        group_id=regression.session_id,
        parameters=json.dumps(kept),
        **{name: getattr(regression, name) for name in same},
    )
