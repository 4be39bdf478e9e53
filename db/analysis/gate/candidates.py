"""The gate's candidates: the newest result of each series, with the segment of earlier runs that it is judged by.

A segment contains the runs of the series before the result, in history order, since the last change of level, without
the result's own session; only those of its branch, if there are as many as a gate needs. The level changes at a
confirmed change point, and at the first result of an alert whose triage says that its level stays (`NEW_LEVEL`): of one
about the judged result itself only later ones are judged by it. Invalid and throttled results are excluded: their
numbers do not depend on the code alone. Results of an open alert at the end of the segment are excluded too: an
untriaged regression must not widen the interval until it counts as normal (`gate.without_open_alarms`), and one triaged
as a regression never does. Later runs at its level are of the alert too, whether or not a gate has judged them. For the
same reason, a change point at a result of an open alert does not start a segment: the gate keeps failing until the
level is mended or accepted. Nor does a change for the worse without an alert, as where no gate has judged its runs:
until the new level has as many runs as a gate needs, results are judged by the level before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, fields
from datetime import datetime
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import POINT_COLUMNS
from benchmarking.core.doubts import FIT
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.load_doubts import HIGHEST_RATE
from benchmarking.core.metrics import Metric
from benchmarking.core.records import Point
from db.analysis.gate.gate import DETECTOR, PARAMETERS, is_left, seen_levels, without_open_alarms
from db.analysis.gate.nights import Night
from db.analysis.history.detector import detect
from db.analysis.selection import POOLED, Selection, judged_value
from db.connection import literal
from db.values import SETTING_COLUMNS, SIMULATED, with_words

if TYPE_CHECKING:
    from db.warehouse import Warehouse

Row = Mapping[str, Any]
NEW_LEVEL = ("improvement", "intended", "method", "hardware")
"""Triages of an alert whose level stays. Noise does not: its result is one of the variation."""
MAX_RUNS = 200
"""Runs to read per series: enough for a full segment after exclusions."""
COLUMNS = (
    *("result_id", "run_id", "session_id", "series_id", "hardware_id", "started_at", "history_time", "git_commit"),
    *("model_id", "device", "device_name", "runtime", "runtime_mode", "precision", *SETTING_COLUMNS),
    *(SIMULATED, *POINT_COLUMNS),
    *("status", "error", "validity", "doubts", "missing", "pooled_quantiles", "extra", "launches", "iterations"),
)
RESULTS = """
SELECT {columns}, {value} AS value FROM all_results WHERE {condition}
QUALIFY row_number() OVER (PARTITION BY series_id ORDER BY started_at DESC, result_id DESC) = 1
ORDER BY model_id, device, runtime, precision, sequence_length, batch_size, result_id
"""
NEWEST_SESSIONS = """
SELECT session_id, kind FROM (
    SELECT session_id, run_id, started_at, CASE {which} END AS kind FROM all_results WHERE {condition}
)
QUALIFY row_number() OVER (PARTITION BY kind IS NULL ORDER BY started_at DESC, run_id DESC) = 1
ORDER BY started_at DESC, run_id DESC
"""
STORED_LATER = """
SELECT session_id, origin_format FROM all_results
WHERE session_id <> ? AND {condition} AND run_id IN (
    SELECT run_id FROM benchmark_runs WHERE origin_format IS NOT NULL
    AND ingested_at > (SELECT max(ingested_at) FROM benchmark_runs WHERE session_id = ?)
)
ORDER BY started_at DESC, run_id DESC LIMIT 1
"""
"""What was imported after a session was stored: it is of an earlier date."""
FIND_RATE = "a search by benchhouse load --find-rate"
OF_AB = "regexp_full_match(tags['ab'], '[0-9a-f-]{36}')"
"""A condition: whether a run is a side of a comparison by benchhouse ab."""
SEARCHES: Mapping[str, str] = {
    "a search by benchhouse tune": "tags['tune'] = session_id",
    "a comparison by benchhouse ab": OF_AB,
    FIND_RATE: "command LIKE '%--find-rate%'",
}
"""What measures something else each time -> how it is known: by its tag, which is an id. A gate judges what is measured
alike each time."""
SEGMENTS = """
WITH judged AS (
    SELECT
        result_id AS judged_id, series_id, session_id, git_branch AS own_branch,
        row(history_time, started_at, result_id) AS place
    FROM all_results WHERE result_id IN (SELECT unnest($results))
), changes AS (
    SELECT result_id AS changed_id, any_value(relative_change) AS relative_change FROM (
        SELECT result_id, relative_change FROM change_points LEFT JOIN series_alias USING (series_id)
        WHERE metric = $metric AND state = 'confirmed'
            AND NOT list_contains($searched::VARCHAR[], coalesce(canonical_series_id, series_id))
        UNION ALL SELECT unnest($found_ids::VARCHAR[]), unnest($found_changes::DOUBLE[])
    )
    GROUP BY result_id
)
SELECT
    judged_id, r.result_id, r.session_id, r.started_at, r.git_commit, {value} AS value, r.launches, r.iterations,
    relative_change, own_branch IS NULL OR r.git_branch IS NOT DISTINCT FROM own_branch AS is_own,
    r.session_id <> judged.session_id AND r.result_id <> judged_id AND r.status = 'ok'
        AND r.validity IN (SELECT unnest($fit)) AND {value} IS NOT NULL AS counts,
    changed_id IS NOT NULL AS begins
FROM judged
JOIN all_results r ON r.series_id = judged.series_id
LEFT JOIN changes ON changed_id = r.result_id
WHERE row(r.history_time, r.started_at, r.result_id) <= judged.place AND (counts OR begins)
WINDOW newest_first AS (
    PARTITION BY judged_id, is_own ORDER BY r.history_time DESC, r.started_at DESC, r.result_id DESC
)
QUALIFY row_number() OVER newest_first <= {reach}
ORDER BY judged_id, r.history_time, r.started_at, r.result_id
"""
ALERTS = """
SELECT alert_id, result_id, confirmed_by, parameters, triage, detector, relative_change FROM alerts WHERE metric = ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRun:
    """A run of the segment."""

    result_id: str
    session_id: str
    started_at: datetime
    git_commit: str | None
    value: float
    launches: int | None = None
    iterations: int | None = None

    @property
    def copied(self) -> tuple[datetime, float]:
        """What it has in common with its copies, if it was stored twice."""
        return self.started_at, self.value

    @property
    def night(self) -> Night:
        """As the judge knows it."""
        return _night(self, self.value)


UnstoredChanges = tuple[Collection[str], Mapping[str, float | None]]
"""Series whose change points are not those that are stored, and theirs: the first changed result of each confirmed
change, and the relative change (None from 0)."""
Segments = tuple[tuple[SegmentRun, ...], ...]
"""Oldest first; the last one is the result's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A result to be judged by one of its metrics."""

    metric: Metric
    result_id: str
    run_id: str
    session_id: str
    series_id: str
    hardware_id: str
    started_at: datetime
    git_commit: str | None
    model_id: str
    device: str
    device_name: str | None
    runtime: str
    precision: str
    """The quantization if that is what the weights have instead."""
    settings: str | None = None
    """The settings that distinguish it from others of its subject; None without any."""
    simulated: bool | None = None
    """Whether a script or an emulator gave its times."""
    point: Point
    status: str
    error: str | None
    validity: str | None
    doubts: tuple[str, ...]
    """Kinds of doubt, without those of severity info."""
    value: float | None
    """In the metric's unit; None if it was not measured."""
    launches: int | None = None
    iterations: int | None = None
    """Timed calls of all launches."""
    missing: str | None
    """Why it was not measured."""
    accepted_as: str | None
    """The triage of its alert, if it has one that is no longer open."""
    segment: tuple[SegmentRun, ...]
    """Its segment, oldest first."""
    earlier_segments: tuple[tuple[SegmentRun, ...], ...]
    """The segments before it, oldest first."""
    since: str | None = None
    """The change at which its segment begins; None without one."""
    counted_alerts: tuple[str, ...] = ()
    """The ids of alerts that are new, of whose results there are some in its segment: since then, a run was fine."""

    @property
    def unfit(self) -> str | None:
        """Why its value cannot be judged; None if it can, or if there is no value."""
        if self.validity in FIT:
            return None
        return f"{self.validity}: {', '.join(self.doubts)}"

    def last_good(self, together: int = 1) -> SegmentRun | None:
        """The newest run of its segment with a value before so many newest ones that are worse together, of which it is
        one; the oldest if all are. A session that was stored twice is one of them."""
        own = (self.started_at, self.value)
        others = [*{run.copied: run for run in self.segment if run.value > 0 and run.copied != own}.values()]
        return others[max(0, len(others) - together)] if others else None

    @property
    def nights(self) -> tuple[tuple[Night, ...], ...]:
        """Its segments, the own one last."""
        return tuple(tuple(run.night for run in segment) for segment in (*self.earlier_segments, self.segment))

    @property
    def night(self) -> Night | None:
        """Its own value; None if it has none or an unfit one."""
        if self.status != "ok" or self.value is None or self.unfit is not None:
            return None
        return _night(self, self.value)

    @property
    def subject(self) -> str:
        """The series without the point: "bert-base-uncased, cuda:0, eager, float16"."""
        return ", ".join(filter(None, (self.model_id, self.device, self.runtime, self.precision, self.settings)))


def _night(of: SegmentRun | Candidate, value: float) -> Night:
    return Night(session=of.session_id, value=value, time=of.started_at, launches=of.launches, calls=of.iterations)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenAlert:
    """An open alert about a result."""

    alert_id: str
    last_good: str
    """Newest result before the regression."""
    is_new: bool
    """Whether it is untriaged."""
    before: float | None
    """The value before the regression; None if that is not known."""
    change: float | None
    """The relative change; None from 0."""

    def is_about(self, value: float) -> bool:
        """Whether a later value of its level is one of the regression."""
        return bool(self.before and self.change and is_left(value, self.before, self.change))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alerts:
    """The alerts about a metric, by each result that they are about."""

    open: Mapping[str, _OpenAlert]
    """Of the gate, open; of the history, a regression."""
    accepted: Mapping[str, str]
    """The triage of each result without an open alert whose alert, of whatever detector, is triaged as anything but a
    regression."""
    new_levels: Mapping[str, frozenset[str]]
    """The ids of the alerts whose level stays."""


NO_ALERTS = _Alerts(open={}, accepted={}, new_levels={})


@dataclass(slots=True, kw_only=True)
class _Segment:
    """Runs between two changes of level, oldest first."""

    since: str | None = None
    """The change at which it begins."""
    is_accepted: bool = False
    """Whether that is the level of an alert which stays. A change of its first runs is the same one, found later."""
    is_unseen: bool = False
    """Whether that is for the worse, and no alert about its runs is accepted."""
    runs: list[SegmentRun] = field(default_factory=list)
    alerted: dict[str, _OpenAlert] = field(default_factory=dict)
    """By the ids of its results that are of an open alert."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The results to judge: of a run or session, given by an id prefix."""

    run: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The session that is judged if none is named: the newest, but for searches and comparisons."""

    session_id: str
    kind: str | None
    """What it is, if there are only such."""
    newer: tuple[str, str] | None
    """The id of a newer one, and what it is."""
    imported: tuple[str, str] | None
    """The id and format of the newest that was stored after it, though it is older by its date."""


def newest(warehouse: Warehouse, selection: Selection, metrics: Sequence[Metric]) -> Newest | None:
    """The newest session of a selection; None without any. The highest rates that searches found are judged as any
    other metric."""
    of_rates = all(metric.column == HIGHEST_RATE for metric in metrics)
    searches = {what: known for what, known in SEARCHES.items() if what != FIND_RATE or not of_rates}
    which = " ".join(f"WHEN {known} THEN {literal(what)}" for what, known in searches.items())
    sql = NEWEST_SESSIONS.format(which=which, condition=selection.condition)
    rows = warehouse.query(sql, selection.values).dicts()
    if not rows:
        return None
    first, last = rows[0], rows[-1]
    is_newer = first["kind"] is not None and last["kind"] is None
    judged, other = (last, first) if is_newer else (first, None)
    if other is not None and other["session_id"] == judged["session_id"]:  # of which only some results are such
        other = None
    session_id = judged["session_id"]
    values = (session_id, *selection.values, session_id)
    later = warehouse.query(STORED_LATER.format(condition=selection.condition), values).dicts()
    return Newest(
        session_id=session_id,
        kind=judged["kind"],
        newer=None if other is None else (other["session_id"], other["kind"]),
        imported=next(((row["session_id"], row["origin_format"]) for row in later), None),
    )


def candidates(
    warehouse: Warehouse,
    selection: Selection,
    scope: Scope,
    metrics: Sequence[Metric],
    unstored: Callable[[Metric], UnstoredChanges] = lambda _: ((), {}),
) -> tuple[Candidate, ...]:
    """The newest result of each series in the scope, once per metric, with its segment. `unstored`: what the stored
    change points lack."""
    condition, values = f"({selection.condition})", selection.values
    if scope.run is not None:
        condition, values = f"{condition} AND starts_with(run_id, ?)", (*values, scope.run)
    if scope.session is not None:
        condition, values = f"{condition} AND starts_with(session_id, ?)", (*values, scope.session)
    found: list[Candidate] = []
    for metric in metrics:
        rows = _results(warehouse, condition, values, metric)
        alerts = _alerts(warehouse, metric)
        segments = _segments(warehouse, [row["result_id"] for row in rows], metric, alerts, unstored(metric))
        found += [_candidate(row, metric, alerts, *segments.get(row["result_id"], (((),), None))) for row in rows]
    return tuple(found)


def confirming_results(warehouse: Warehouse, run_id: str, since: datetime, metric: Metric) -> dict[str, Candidate]:
    """The results, by series, of the newest run since `since` that confirms `run_id`; without segments."""
    condition = (
        "run_id = (SELECT run_id FROM all_results WHERE tags['confirms'] = ? AND started_at >= ? "
        "ORDER BY started_at DESC, run_id DESC LIMIT 1)"
    )
    rows = _results(warehouse, condition, (run_id, since), metric)
    return {row["series_id"]: _candidate(row, metric, NO_ALERTS, ((),)) for row in rows}


def _results(warehouse: Warehouse, condition: str, values: Sequence[object], metric: Metric) -> list[dict[str, Any]]:
    sql = RESULTS.format(columns=", ".join(COLUMNS), value=judged_value(metric), condition=condition)
    return with_words(warehouse.query(sql, values).dicts(), warehouse, is_hardware_shown=False)


def _alerts(warehouse: Warehouse, metric: Metric) -> _Alerts:
    open_alerts, open_results, accepted = dict[str, _OpenAlert](), set[str](), dict[str, str]()
    new_levels = dict[str, frozenset[str]]()
    for row in warehouse.query(ALERTS, [metric.column]).dicts():
        stored = json.loads(row["parameters"])
        alerted = {row["result_id"], row["confirmed_by"], *stored["results"]} - {None}
        if row["triage"] not in ("new", "regression"):
            accepted |= dict.fromkeys(alerted, row["triage"])
            if row["triage"] in NEW_LEVEL:
                new_levels |= {one: new_levels.get(one, frozenset()) | {row["alert_id"]} for one in alerted}
            continue
        open_results |= alerted
        is_new = row["triage"] == "new"
        if row["detector"] == DETECTOR or not is_new:
            alert = _OpenAlert(
                alert_id=row["alert_id"],
                last_good=stored["last_good"],
                is_new=is_new,
                before=stored.get("centre", stored.get("value_before")),
                change=row["relative_change"],
            )
            open_alerts |= dict.fromkeys(alerted, alert)
    return _Alerts(
        open=open_alerts,
        accepted={result_id: triage for result_id, triage in accepted.items() if result_id not in open_results},
        new_levels=new_levels,
    )


def _segments(
    warehouse: Warehouse, result_ids: Sequence[str], metric: Metric, alerts: _Alerts, unstored: UnstoredChanges
) -> dict[str, tuple[Segments, str | None]]:
    """The segments of each result that has earlier ones, and the change at which the last one begins."""
    searched, found = unstored
    parameters = {
        "results": list(result_ids),
        "metric": metric.column,
        "fit": list(FIT),
        "searched": list(searched),
        "found_ids": list(found),
        "found_changes": list(found.values()),
    }
    by_result: dict[str, list[_Segment]] = {}
    begun: dict[str, frozenset[str]] = {}
    rows = warehouse.query(SEGMENTS.format(value=judged_value(metric), reach=MAX_RUNS), parameters).dicts()
    judged = (list(of_one) for _, of_one in groupby(rows, key=itemgetter("judged_id")))
    for row in chain.from_iterable(map(_of_own_branch, judged)):
        judged_id, levels = row["judged_id"], alerts.new_levels.get(row["result_id"], frozenset())
        segments = by_result.setdefault(judged_id, [_Segment()])
        known = begun.setdefault(judged_id, alerts.new_levels.get(judged_id, frozenset()))
        begun[judged_id] = known | levels
        alert = alerts.open.get(row["result_id"])
        if alert is None and row["counts"] and row["result_id"] not in alerts.accepted:
            alert = next((one for one in segments[-1].alerted.values() if one.is_about(row["value"])), None)
        if levels - known:
            segments.append(_Segment(since="the accepted change", is_accepted=True))
        elif row["begins"] and row["result_id"] != judged_id and alert is None:
            change = row["relative_change"]
            is_young = segments[-1].is_accepted and len(segments[-1].runs) < PARAMETERS.min_points
            is_unseen = change is not None and metric.is_worse(change) and not is_young
            segments.append(_Segment(since="the last change of level", is_unseen=is_unseen))
        if row["result_id"] in alerts.accepted:
            segments[-1].is_unseen = False
        if alert is not None:
            segments[-1].alerted[row["result_id"]] = alert
        if row["counts"]:
            segments[-1].runs.append(SegmentRun(**{one.name: row[one.name] for one in fields(SegmentRun)}))
    for segments in by_result.values():
        counts = [
            (
                segment.is_unseen,
                len({run.copied for run in segment.runs if run.value > 0 and run.result_id not in segment.alerted}),
            )
            for segment in segments
        ]
        del segments[seen_levels(counts) :]
    return {
        judged_id: (tuple(map(_without_alerted, segments)), segments[-1].since)
        for judged_id, segments in by_result.items()
    }


def _of_own_branch(rows: Sequence[Row]) -> Sequence[Row]:
    """The runs before a result without those of other branches, if so many of its own count that they judge by
    themselves: another branch, which may never be merged, sets no level of this one. Its changes of level are then
    those among its own runs."""
    own = [row for row in rows if row["is_own"]]
    counted = [row for row in own if row["counts"] and row["value"] > 0]
    if len(own) == len(rows) or len(counted) < PARAMETERS.min_points:
        return rows
    found = detect([row["value"] for row in counted], [row["started_at"] for row in counted])
    changes = {
        counted[one.index]["result_id"]: one.value_after / one.value_before - 1
        for one in found
        if one.state == "confirmed"
    }
    return [
        {**row, "begins": row["result_id"] in changes, "relative_change": changes.get(row["result_id"])} for row in own
    ]


def _without_alerted(segment: _Segment) -> tuple[SegmentRun, ...]:
    """The runs of the segment without the results of alerts raised in it, and their copies. An earlier alert concerns
    another level."""
    result_ids = {run.result_id for run in segment.runs}
    raised = {result_id: alert for result_id, alert in segment.alerted.items() if alert.last_good in result_ids}
    copied = {run.copied: raised[run.result_id] for run in segment.runs if run.result_id in raised}
    raised |= {run.result_id: copied[run.copied] for run in segment.runs if run.copied in copied}
    triaged = {result_id for result_id, alert in raised.items() if not alert.is_new}
    runs = tuple(run for run in segment.runs if run.result_id not in triaged)
    return runs[: without_open_alarms([run.result_id for run in runs], raised)]


def _candidate(row: Row, metric: Metric, alerts: _Alerts, segments: Segments, since: str | None = None) -> Candidate:
    raised = (alerts.open.get(run.result_id) for run in segments[-1])
    computed: dict[str, Any] = {
        "metric": metric,
        "point": Point.from_columns(row),
        "doubts": doubt_kinds(row["extra"]),
        "missing": POOLED if metric.column in row["pooled_quantiles"] else (row["missing"] or {}).get(metric.column),
        "accepted_as": alerts.accepted.get(row["result_id"]),
        "counted_alerts": tuple(dict.fromkeys(one.alert_id for one in raised if one is not None and one.is_new)),
        "segment": segments[-1],
        "earlier_segments": segments[:-1],
        "since": since,
    }
    return Candidate(
        **{field.name: row[field.name] for field in fields(Candidate) if field.name not in computed}, **computed
    )


def doubt_kinds(extra: str) -> tuple[str, ...]:
    """The kinds of doubt, without those of severity info."""
    return tuple(doubt["kind"] for doubt in json.loads(extra)["doubts"] if doubt["severity"] != "info")
