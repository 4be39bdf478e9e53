"""Alerts: regressions for a person to triage, from the gate and the history, each stored once."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import Metric
from benchmarking.core.provenance import naive_now, uuid7
from benchmarking.core.quality import QUALITY_METRICS
from benchmarking.core.text import grouped, listed
from db.analysis.annotations import MAX_LENGTH, stored_words
from db.analysis.gate.findings import DETECTOR as QUALITY_DETECTOR
from db.analysis.gate.findings import DETECTOR_VERSION as QUALITY_DETECTOR_VERSION
from db.analysis.gate.findings import Finding, QualityCheck
from db.analysis.gate.gate import DETECTOR, DETECTOR_VERSION, PARAMETERS, is_left
from db.analysis.history.changes import POINTS, Regression, change_point_id, of_metric
from db.analysis.selection import EVERYTHING, Selection, judged_metrics
from db.values import SETTING_COLUMNS, SIMULATED, with_words

if TYPE_CHECKING:
    from db.analysis.history.histories import ChangePoint
    from db.connection import Connection
    from db.warehouse import Warehouse

Triage = Literal["new", "regression", "improvement", "intended", "method", "hardware", "noise"]
TRIAGES: tuple[Triage, ...] = get_args(Triage)
"""new: untriaged; regression and improvement: real; intended: a slowdown that is wanted; method: the measurement
changed; hardware: the machine changed; noise: chance."""
OPEN: tuple[Triage, ...] = ("new", "regression")
"""Triages of open alerts, whose results are excluded from the gate's segments."""
MIN_PREFIX = 4
"""Minimum characters of an alert id prefix."""
MOST_NAMED = 8
"""Maximum alerts named where a prefix is that of several."""
SAME_CHANGE = """
WITH place AS (
    SELECT result_id, row_number() OVER (ORDER BY history_time, started_at, result_id) AS n
    FROM all_results WHERE series_id = $series_id
), found AS (
    SELECT
        (SELECT n FROM place WHERE result_id = $last_good) AS good,
        (SELECT n FROM place WHERE result_id = $result_id) AS bad
)
SELECT alert.alert_id, alert.parameters
FROM found, alerts alert
LEFT JOIN change_points change USING (change_point_id)
LEFT JOIN place bad ON bad.result_id = coalesce(alert.result_id, change.result_id)
LEFT JOIN place good ON good.result_id = (alert.parameters->>'$.last_good')
WHERE alert.metric = $metric AND alert.triage IN (SELECT unnest($triages))
    AND (alert.relative_change IS NULL OR sign(alert.relative_change) = sign($relative_change))
    AND (
        alert.change_point_id = $change_point_id
        OR (alert.series_id = $series_id AND (
            list_contains(CAST((alert.parameters->'$.results') AS VARCHAR[]), $result_id)
            OR (alert.first_commit = $first_commit AND alert.first_commit IS DISTINCT FROM alert.last_commit
                AND $first_commit IS DISTINCT FROM $last_commit)
            OR greatest(good.n, found.good) <= least(bad.n, found.bad)
        ))
    )
ORDER BY alert.created_at, alert.alert_id LIMIT 1
"""
"""The alert about a change. One change has one alert, whoever finds it: alerts with the same series, metric and
direction are about the same change if the runs between which it lies (last good, first bad) overlap, or if both lie
after the same commit (two changes among the runs of one commit do not)."""
INSERT = """
INSERT INTO alerts BY NAME SELECT
    $alert_id AS alert_id, $series_id AS series_id, $metric AS metric, $first_commit AS first_commit,
    $last_commit AS last_commit, $group_id AS group_id, 'new' AS triage, $relative_change AS relative_change,
    $detector AS detector, $detector_version AS detector_version, $parameters AS parameters,
    $now AS created_at, $now AS updated_at, $result_id AS result_id, $confirmed_by AS confirmed_by,
    $change_point_id AS change_point_id
"""
IS_GONE = """
SELECT 1 WHERE $result_id NOT IN (SELECT result_id FROM benchmark_results)
    OR ($confirmed_by IS NOT NULL AND $confirmed_by NOT IN (SELECT result_id FROM benchmark_results))
    OR ($change_point_id IS NOT NULL AND $change_point_id NOT IN (SELECT change_point_id FROM change_points))
"""
"""A row if what an alert names is not stored any more."""
EXTEND = """
UPDATE alerts SET parameters = $parameters, confirmed_by = coalesce(confirmed_by, $confirmed_by)
WHERE alert_id = $alert_id
"""
LIST_ALERTS = f"""
SELECT
    a.alert_id, a.triage, a.metric, a.relative_change, a.first_commit, a.last_commit, a.group_id, a.detector,
    a.detector_version, a.parameters, a.created_at, a.updated_at, a.confirmed_by, a.change_point_id, a.note,
    r.result_id, r.series_id, r.run_id, r.session_id, r.started_at, r.model_id, r.device, r.device_name,
    r.hardware_id, r.runtime, r.precision, r.{SIMULATED},
    {", ".join(f"r.{name}" for name in ("runtime_mode", *SETTING_COLUMNS))},
    r.batch_size, r.sequence_length, r.new_tokens, r.concurrency, r.axes
FROM alerts a
LEFT JOIN change_points c USING (change_point_id)
JOIN (SELECT * FROM all_results WHERE {{condition}}) r ON r.result_id = coalesce(a.result_id, c.result_id)
WHERE list_contains(?::VARCHAR[], a.triage)
ORDER BY a.created_at DESC, a.relative_change DESC, a.alert_id
"""
FIND = "SELECT alert_id FROM alerts WHERE starts_with(alert_id, ?) ORDER BY alert_id"
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


def store_alerts(
    warehouse: Warehouse, findings: Iterable[Finding], quality: Iterable[QualityCheck] = ()
) -> StoredAlerts:
    """Raise an alert for each regression, and each worse quality, that has no open alert yet.

    One change has one alert (`SAME_CHANGE`), whether the gate or the history found it first;
    the finding's results are then added to it. Alerts of one session share a group. All or nothing.
    """
    rows = [_gate_alert(finding) for finding in findings if finding.verdict == "regressed"]
    rows += [_quality_alert(check) for check in quality if check.judgement.verdict == "worse"]

    def extend(connection: Connection, alert: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        known, found = alert["parameters"], json.loads(row["parameters"])
        parameters = json.dumps({**known, "results": list(dict.fromkeys((*known["results"], *found["results"])))})
        changed = {"alert_id": alert["alert_id"], "parameters": parameters, "confirmed_by": row["confirmed_by"]}
        connection.execute(EXTEND, changed)

    return _store_once(warehouse, rows, OPEN, extend)


def _store_once(
    warehouse: Warehouse,
    rows: Sequence[Mapping[str, Any]],
    triages: Sequence[Triage],
    add: Callable[[Connection, Mapping[str, Any], Mapping[str, Any]], None],
) -> StoredAlerts:
    """Store new alerts, all or none. Where an alert with one of the triages is about the change of a row, that is
    added to it instead. Alerts that an earlier attempt stored are new too. There are none about results that another
    command has deleted or labelled since they were judged."""

    def store(connection: Connection) -> StoredAlerts:
        new, known = list[str](), list[str]()
        for row in rows:
            named = {name: row[name] for name in ("result_id", "confirmed_by", "change_point_id")}
            if connection.execute(IS_GONE, named).fetchone() is not None:
                continue
            alert = _same_change(connection, row, triages)
            if alert is None:
                connection.execute(INSERT, row)
            else:
                add(connection, alert, row)
            alert_id = row["alert_id"] if alert is None else alert["alert_id"]
            (new if alert_id == row["alert_id"] else known).append(alert_id)
        return StoredAlerts(new=tuple(new), known=tuple(known))

    return warehouse.change(store)


def list_alerts(warehouse: Warehouse, selection: Selection, triages: Sequence[str] = TRIAGES) -> list[dict[str, Any]]:
    """The alerts with these triages about selected results, newest first, with columns of the results and the settings
    that distinguish them."""
    rows = warehouse.query(
        LIST_ALERTS.format(condition=selection.condition), (*selection.values, list(triages))
    ).dicts()
    columns = ("axes", "parameters", "runtime_mode")
    return [{**row, **{name: json.loads(row[name]) for name in columns}} for row in with_words(rows, warehouse)]


def with_recovery(warehouse: Warehouse, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Alerts in the form of `list_alerts`, with the first of all later runs at which less than half of the change is
    left (`recovered_since`), and the number of runs from the alert to it (`runs_off`). Both are None while the newest
    run is none, and where it is not known, as of an alert about quality."""
    found: dict[str, dict[str, Any]] = {}
    for metric in judged_metrics(warehouse, dict.fromkeys(row["metric"] for row in rows)):
        about = [row for row in rows if row["metric"] == metric.column]
        series = sorted({row["series_id"] for row in about})
        found_points = warehouse.query(POINTS.format(**of_metric(metric)), {"series": series}).dicts()
        points = grouped((point["series_id"], point) for point in found_points)
        for row in about:
            found[row["alert_id"]] = _recovery(row, points.get(row["series_id"], ()))
    return [{**row, **found.get(row["alert_id"], NOT_RECOVERED)} for row in rows]


def excursions_of(
    warehouse: Warehouse, selection: Selection, metric: Metric, changed: Collection[str]
) -> list[dict[str, Any]]:
    """The alerts of the gate from which the series has recovered, oldest first, in the form of `with_recovery`; without
    those about a change of level in the history, of which `changed` are the first results."""
    rows = [one for one in list_alerts(warehouse, selection) if one["metric"] == metric.column]
    found = with_recovery(warehouse, [one for one in rows if one["detector"] == DETECTOR])
    recovered = [one for one in reversed(found) if one["recovered_since"] is not None]
    return [one for one in recovered if not {one["result_id"], *one["parameters"]["results"]}.intersection(changed)]


NOT_RECOVERED = {"recovered_since": None, "runs_off": None}


def _recovery(alert: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns of `with_recovery`, from the runs of the alert's series, oldest first."""
    evidence, change = alert["parameters"], alert["relative_change"]
    before = evidence.get("centre", evidence.get("value_before"))
    alerted = {alert["result_id"], alert["confirmed_by"], *evidence.get("results", ())}
    first = next((place for place, point in enumerate(points) if point["result_id"] in alerted), None)
    if not before or not change or first is None:
        return NOT_RECOVERED
    off = [point["result_id"] in alerted or is_left(point["value"], before, change) for point in points[first:]]
    runs = len(off) - off[::-1].index(True)  # the first is one
    return NOT_RECOVERED if runs == len(off) else {"recovered_since": points[first + runs]["run_id"], "runs_off": runs}


def alerts_of(warehouse: Warehouse, alert_ids: Sequence[str]) -> list[dict[str, Any]]:
    """These alerts, in the form of `list_alerts`."""
    wanted = set(alert_ids)
    return [row for row in list_alerts(warehouse, EVERYTHING) if row["alert_id"] in wanted] if wanted else []


def set_triage(warehouse: Warehouse, prefixes: Sequence[str], triage: Triage, note: str | None) -> tuple[str, ...]:
    """Set the triage of the alerts; returns their ids. A note of None keeps the existing one; secrets in it are
    redacted.

    Raises UsageError, and changes nothing, for a prefix that matches no id or several, and for an empty or too long
    note.
    """
    note = None if note is None else stored_words(note, "a note", MAX_LENGTH)
    known: dict[str, None] = {}
    for prefix in prefixes:
        if len(prefix) < MIN_PREFIX:
            raise UsageError(f"{prefix!r}: expected an alert id or at least its first {MIN_PREFIX} characters")
        ids = [row["alert_id"] for row in warehouse.query(FIND, [prefix]).dicts()]
        if not ids:
            raise UsageError(f"no alert has an id that begins with {prefix!r}: see benchhouse alert list")
        if len(ids) > 1:
            enough = next(
                length for length in range(len(prefix) + 1, 99) if len({one[:length] for one in ids}) == len(ids)
            )
            meant = listed(sorted(one[:enough] for one in ids), MOST_NAMED)
            raise UsageError(f"{len(ids)} alerts have an id that begins with {prefix!r}: give one of {meant}")
        known[str(ids[0])] = None
    alert_ids, now = tuple(known), naive_now()

    def update(connection: Connection) -> None:
        for alert_id in alert_ids:
            connection.execute(SET_TRIAGE, {"alert_id": alert_id, "triage": triage, "note": note, "now": now})

    warehouse.change(update)
    return alert_ids


def _same_change(connection: Any, row: Mapping[str, Any], triages: Sequence[str]) -> dict[str, Any] | None:
    """The alert with one of these triages about the change of a new alert's row, if any."""
    columns = ("series_id", "metric", "relative_change", "result_id", "change_point_id", "first_commit", "last_commit")
    values = {**{name: row[name] for name in columns}, "last_good": json.loads(row["parameters"])["last_good"]}
    found = connection.execute(SAME_CHANGE, {**values, "triages": list(triages)}).fetchone()
    return None if found is None else {"alert_id": str(found[0]), "parameters": json.loads(found[1])}


def _gate_alert(finding: Finding) -> dict[str, Any]:
    candidate, judgement = finding.candidate, finding.judgement
    assert judgement is not None
    last_good = finding.last_good
    assert last_good is not None
    evidence = {
        "false_alarms": PARAMETERS.false_alarms,
        "min_change": PARAMETERS.min_change,
        **{name: getattr(judgement, name) for name in ("n", "centre", "low", "high", "value")},
        "last_good": last_good.result_id,
        "results": [one for one in (candidate.result_id, finding.confirmation_result_id) if one is not None],
        "environment": None if finding.common_shift is None else finding.common_shift.text,
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
        parameters=json.dumps(evidence),
        result_id=candidate.result_id,
        confirmed_by=finding.confirmation_result_id,
    )


def _quality_alert(check: QualityCheck) -> dict[str, Any]:
    """The row of a worse quality. Its change is relative only where the value before is positive."""
    judgement, before, after = check.judgement, check.before, check.after
    assert before is not None
    assert after is not None
    evidence = {
        **{name: getattr(judgement, name) for name in ("change", "low", "high")},
        "margin": QUALITY_METRICS[check.metric].margin,
        "before": before,
        "value": after,
        "last_good": check.baseline_result_id,
        "results": [check.result_id],
    }
    return _new_alert(
        series_id=check.series_id,
        metric=check.metric,
        first_commit=check.baseline_commit,
        last_commit=check.git_commit,
        group_id=check.session_id,
        relative_change=after / before - 1 if before > 0 else None,
        detector=QUALITY_DETECTOR,
        detector_version=QUALITY_DETECTOR_VERSION,
        parameters=json.dumps(evidence),
        result_id=check.result_id,
    )


def _new_alert(**columns: Any) -> dict[str, Any]:
    return {
        "alert_id": uuid7(),
        "now": naive_now(),
        "confirmed_by": None,
        "change_point_id": None,
        **columns,
    }


LINK_CHANGE = (
    "UPDATE alerts SET change_point_id = coalesce(change_point_id, $change_point_id) WHERE alert_id = $alert_id"
)


def raise_alerts(warehouse: Warehouse, regressions: Iterable[Regression]) -> StoredAlerts:
    """Raise an alert for each confirmed regression without one. Alerts of one session share a group. All or nothing."""
    rows: list[dict[str, Any]] = []
    for regression in regressions:
        if regression.state == "confirmed":
            evidence = {
                "value_before": regression.value_before,
                "value_after": regression.value_after,
                "p_value": regression.p_value,
                "last_good": regression.last_good_result_id,
                "results": [regression.result_id],
                "environment": None if regression.common_shift is None else regression.common_shift.text,
            }
            columns = ("series_id", "relative_change", "detector", "detector_version", "result_id", "change_point_id")
            rows.append(
                _new_alert(
                    metric=regression.metric.column,
                    first_commit=regression.last_good_commit,
                    last_commit=regression.first_bad_commit,
                    group_id=regression.session_id,
                    parameters=json.dumps(evidence),
                    **{name: getattr(regression, name) for name in columns},
                )
            )

    def link(connection: Connection, alert: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        connection.execute(LINK_CHANGE, {"alert_id": alert["alert_id"], "change_point_id": row["change_point_id"]})

    return _store_once(warehouse, rows, TRIAGES, link)  # a change triaged as noise is not raised again


def has_alert(warehouse: Warehouse, series_id: str, metric: str, change: ChangePoint) -> bool:
    """Whether `raise_alerts` would raise none for a change of a series, since an alert with any triage is about it."""
    first, last_good = change.first_changed.result_id, change.last_good
    row = {
        "series_id": series_id,
        "metric": metric,
        "relative_change": change.change.relative_change,
        "result_id": first,
        "change_point_id": change_point_id(metric, first),
        "first_commit": last_good.git_commit,
        "last_commit": change.first_changed.git_commit,
        "parameters": json.dumps({"last_good": last_good.result_id}),
    }
    with warehouse.cursor() as cursor:
        return _same_change(cursor, row, TRIAGES) is not None
