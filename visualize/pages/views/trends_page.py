"""The page Trends: series over time with their change points, and one series in detail with triage and notes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import DEFAULT_METRIC, Metric
from benchmarking.core.text import counted, visible
from db.analysis.annotations import annotate, list_annotations
from db.analysis.gate.alerts import TRIAGES, Triage, has_alert, list_alerts, raise_alerts, set_triage, with_recovery
from db.analysis.history.changes import regressions, update_changes
from db.analysis.history.histories import (
    ChangePoint,
    History,
    HistoryPoint,
    histories,
    results_not_judged,
    series_with_history,
)
from db.analysis.history.history_text import change_text, excluded_results_text, trend_text, value_text
from db.analysis.selection import EVERYTHING, Selection, judged_metric
from db.values import percent_change
from visualize.charts import temporal_trend
from visualize.drawing import words
from visualize.drawing.rows import grouped
from visualize.pages import vega
from visualize.pages.elements import (
    Cell,
    Link,
    alternatives,
    grid,
    number_cell,
    number_text,
    spark,
    state_cell,
    text_cell,
    time_text,
)
from visualize.pages.result_rows import metric_choices, metric_of
from visualize.pages.site import Action, NotFoundError, View, has_sql, query_of
from visualize.pages.views.compare_page import CompareParameters
from visualize.pages.views.run_page import LEAST_PREFIX, run_link

if TYPE_CHECKING:
    from db.warehouse import Warehouse
    from visualize.pages.snapshot import Data

SERIES = 48
"""Maximum series in the list."""
SERIES_A_RUN = 4
COMMIT_LETTERS = 10
MOST_RUNS = 30
"""Number of newest runs that the form offers as the subject of a note."""
LEAST_HISTORY = 3
"""Minimum runs of a series that counts as having a history."""
SERIES_ID = re.compile(r"[0-9a-f]{8,64}")
NEWEST_SERIES = """
WITH newest AS (
    SELECT series_id, latest_result_id, latest_started_at
    FROM series_heads ORDER BY latest_started_at DESC, latest_result_id DESC LIMIT 500
), histories AS (
    SELECT series_id, count(*) AS runs FROM benchmark_results
    WHERE status = 'ok' AND series_id IN (SELECT series_id FROM newest) GROUP BY series_id
)
SELECT coalesce(alias.canonical_series_id, newest.series_id) AS series_id
FROM newest
JOIN histories USING (series_id)
JOIN benchmark_results r ON r.result_id = newest.latest_result_id
LEFT JOIN series_alias alias ON alias.series_id = newest.series_id
QUALIFY row_number() OVER (PARTITION BY r.run_id ORDER BY r.latency_median_ms DESC NULLS LAST, r.result_id) <= $each
ORDER BY runs < $history, latest_started_at DESC, r.run_id DESC, r.result_id LIMIT $most
"""
"""Series with a history come first."""
MODELS = "SELECT DISTINCT model_id FROM series_heads ORDER BY model_id"
NO_VALUE = re.compile(r"[,|]|sql:|^\s|\s$")
"""Matches values that a selection cannot contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendsParameters:
    """The listed series, and the series in detail."""

    selection: str | None = None
    """A selection such as "model=gpt2,runtime=eager"; None for the newest series."""
    metric: str = DEFAULT_METRIC
    series: str | None = None
    """Series id or a prefix of at least 8 characters; None for the first with a change, else the first."""
    only_changes: bool = False


def page(data: Data, parameters: TrendsParameters) -> SimpleNamespace:
    """The page. Raises UsageError for an invalid selection or metric, NotFoundError for an unknown series."""
    metric = metric_of(data, parameters.metric)
    selection = EVERYTHING
    if parameters.selection is not None:
        selection = Selection.parse(parameters.selection).resolved(data.path)
    shown, count, read = _listed(data, parameters, selection, metric)
    drawn = _drawn(data, shown, parameters, metric)
    models = [row["model_id"] for row in data.warehouse.query(MODELS).dicts()]
    options = [("newest", TrendsParameters())]
    options += [(one, TrendsParameters(selection=f"model={one}")) for one in models if not NO_VALUE.search(one)]
    return SimpleNamespace(
        metrics=metric_choices(data),
        lines=[
            series_card(
                history, shown, metric, parameters, is_drawn=drawn is not None and drawn.series_id == history.series_id
            )
            for history in shown
        ],
        count=count,  # of series with the metric, or of those with a change, the first of which are shown
        read=read,  # of series in which changes were searched
        not_judged=0 if read else results_not_judged(data.warehouse, selection, metric),
        judged=value_text(metric),
        drawn=None if drawn is None else _detail(data, drawn, shown, metric),
        choices=[alternatives("Series", "trends", options, TrendsParameters(selection=parameters.selection))],
        place=() if drawn is None else query_of(replace(parameters, series=drawn.series_id[:16])),
    )


def _listed(
    data: Data, parameters: TrendsParameters, selection: Selection, metric: Metric
) -> tuple[Sequence[History], int, int]:
    """The series of the list, the number of those that it is the beginning of, and that of the series in which changes
    were searched: all, if only those with a change are listed. The last answer is kept, since each series that the page
    lists leads to it again."""
    asked = (replace(parameters, series=None), selection, metric)
    kept = data.kept.get("listed series")
    if kept is None or kept[0] != asked:
        if parameters.only_changes:
            found, read = histories(data.warehouse, selection, metric)
            found = tuple(one for one in found if one.points and (one.change_points or one.trend))
            count = len(found)
        elif parameters.selection is not None:
            found, count = histories(data.warehouse, selection, metric, limit=SERIES)
            read = count
        else:
            found = tuple(newest_histories(data, metric, SERIES))
            count = read = series_with_history(data.warehouse, metric)
        shown = [one for one in found[:SERIES] if one.points]
        kept = data.kept["listed series"] = (asked, (shown, count, read))
    answer: tuple[Sequence[History], int, int] = kept[1]
    return answer


def series_card(
    history: History,
    shown: Sequence[History],
    metric: Metric,
    parameters: TrendsParameters,
    *,
    is_drawn: bool = False,
) -> SimpleNamespace:
    """A series with points, one of those shown: its newest value, its course and its newest change, linked to its
    trend."""
    values, changes, trend = [point.value for point in history.points], history.change_points, history.trend
    change, moved = None, 0.0
    if changes:
        change, moved = change_text(changes[-1]), changes[-1].change.relative_change
    elif trend is not None:
        change, moved = trend_text(trend), trend.change
    return SimpleNamespace(
        name=visible(str(history.subject["model_id"])),
        about=" · ".join([*_setup(history, shown), words.short_point(history.point), counted(len(values), "run")]),
        value=f"{number_text(values[-1])} {metric.unit}",
        spark=spark(values, metric.unit),
        change=change,
        is_worse=change is not None and metric.is_worse(moved),
        is_drawn=is_drawn,
        link=Link(view="trends", parameters=replace(parameters, series=history.series_id[:16], metric=metric.column)),
    )


def newest_histories(data: Data, metric: Metric, most: int) -> list[History]:
    """The newest series, those with a history first."""
    values = {"most": most, "each": SERIES_A_RUN, "history": LEAST_HISTORY}
    ids = [row["series_id"] for row in data.warehouse.query(NEWEST_SERIES, values).dicts()]
    if not ids:
        return []
    found, _ = histories(data.warehouse, Selection.parse(f"series={'|'.join(ids)}"), metric)
    return sorted(found, key=lambda one: ids.index(one.series_id))


def _drawn(data: Data, shown: Sequence[History], parameters: TrendsParameters, metric: Metric) -> History | None:
    """The series in detail. Raises NotFoundError."""
    if parameters.series is None:
        return next((history for history in shown if history.change_points), shown[0] if shown else None)
    if len(parameters.series) < LEAST_PREFIX:
        raise NotFoundError(
            f"{parameters.series!r} is too short: give at least {LEAST_PREFIX} characters of a series id"
        )
    for history in shown:
        if history.series_id.startswith(parameters.series):
            return history
    found, _ = histories(data.warehouse, Selection.parse(f"series={parameters.series}"), metric, limit=1)
    if not found:
        raise NotFoundError(f"no series id starts with {parameters.series!r} and has values of {metric.column}")
    return found[0]


def _setup(history: History, shown: Sequence[History]) -> list[str]:
    """The device, runtime, precision and settings, as far as they are stated, and the hardware where that of another
    one shown has a different name."""
    names = {one.subject["device_name"] for one in shown if one.subject["device"] == history.subject["device"]}
    hardware = ("device_name",) if names - {history.subject["device_name"]} else ()
    found = (history.subject[name] for name in ("device", *hardware, "runtime", "precision", "settings"))
    return [str(one) for one in found if one and one != words.UNKNOWN]


def _detail(data: Data, history: History, shown: Sequence[History], metric: Metric) -> SimpleNamespace:
    """One of the series shown, in detail."""
    chosen = Selection.parse(f"series={history.series_id}")
    rows = temporal_trend.PLUGIN.rows_of(data.warehouse, [history], metric, chosen)
    time_of = attrgetter(temporal_trend.time_of(rows)) if rows else attrgetter("history_time")
    figures = [temporal_trend.trend_figure(key, [runs]) for key, runs in grouped(rows, ("model_id",))]
    runs: Mapping[str, Callable[[Any], Cell]] = {
        "time (UTC)": lambda one: text_cell(time_text(time_of(one)), link=run_link(one.run_id, one.result_id)),
        "commit": lambda one: text_cell(_commit(one)),
        metric.unit: lambda one: number_cell(one.value),
    }
    table = grid(runs, reversed(history.points), "Runs of the series, newest first", (metric.unit,))

    def sides(one: ChangePoint) -> Link:
        a, b = f"run={one.last_good.run_id}", f"run={one.first_changed.run_id}"
        return Link(view="compare", parameters=CompareParameters(a=a, b=b, metric=metric.column))

    changes: Mapping[str, Callable[[ChangePoint], Cell]] = {
        "first changed (UTC)": lambda one: text_cell(
            time_text(one.since),
            link=run_link(one.first_changed.run_id, one.first_changed.result_id),
        ),
        "change": lambda one: text_cell(
            percent_change(one.change.relative_change),
            tone="bad" if metric.is_worse(one.change.relative_change) else "good",
        ),
        "before": lambda one: number_cell(one.change.value_before),
        "after": lambda one: number_cell(one.change.value_after),
        "commit before": lambda one: text_cell(
            _commit(one.last_good), link=run_link(one.last_good.run_id, one.last_good.result_id)
        ),
        "commit after": lambda one: text_cell(_commit(one.first_changed)),
        "state": lambda one: state_cell(one.change.state),
        "runs": lambda one: text_cell("compare both runs", link=sides(one)),
    }
    return SimpleNamespace(
        title=" · ".join([str(history.subject["model_id"]), *_setup(history, shown), words.short_point(history.point)]),
        series_id=history.series_id,
        charts=[vega.chart(figure, table) for figure in figures],
        changes=grid(changes, reversed(history.change_points), "Changes of the level", ("change", "before", "after")),
        left_out=excluded_results_text(history.left_out, metric) if history.left_out else None,
        notes=_notes(data, history, metric),
    )


def _commit(point: HistoryPoint, unknown: str = "-") -> str:
    return (point.git_commit or unknown)[:COMMIT_LETTERS]


def _notes(data: Data, history: History, metric: Metric) -> SimpleNamespace:
    """Alerts of the series for the metric, and notes about the series, its runs, results and alerts."""
    rows = list_alerts(data.warehouse, Selection.parse(f"series={history.series_id}"))
    rows = with_recovery(data.warehouse, [row for row in rows if row["metric"] == metric.column])
    places = {name: point for point in history.points for name in (point.run_id, point.result_id)}
    alerts = []
    for row in rows:
        commits = [(row[name] or "")[:COMMIT_LETTERS] for name in ("first_commit", "last_commit")]
        change = "" if row["relative_change"] is None else f"{percent_change(row['relative_change'])}, "
        between = f", between commits {commits[0]} and {commits[1]}" if all(commits) else ""
        if commits[0] and commits[0] == commits[1]:
            between = f", between two runs of commit {commits[0]}"
        back = places.get(row["recovered_since"])
        over = f", recovered since the run of {time_text(back.started_at)}" if back else ""
        alerts.append(
            SimpleNamespace(
                alert_id=row["alert_id"],
                title=f"{change}raised {time_text(row['created_at'])} UTC{between}{over}",
                triage=row["triage"],
                note=row["note"],
                run=run_link(row["run_id"], row["result_id"]),
            )
        )
    about = [history.series_id, *places, *(row["alert_id"] for row in rows)]
    notes = []
    for annotation in list_annotations(data.warehouse, about) if history.points else ():
        at = places.get(annotation.target_id)
        notes.append(
            SimpleNamespace(
                text=annotation.note,
                about=f"run of {time_text(at.started_at)}" if at else f"the {annotation.target_kind}",
                run=None if at is None else run_link(at.run_id),
                signature=(f"{annotation.author}, " if annotation.author else "")
                + f"{time_text(annotation.created_at)} UTC",
            )
        )
    return SimpleNamespace(
        alerts=alerts,
        unraised=sum(  # confirmed regressions without an alert
            change_point.change.state == "confirmed"
            and metric.is_worse(change_point.change.relative_change)
            and not has_alert(data.warehouse, history.series_id, metric.column, change_point)
            for change_point in history.change_points
        ),
        notes=notes,
        targets=[  # possible subjects of a note: (id, text)
            (history.series_id, "the whole series"),
            *(
                (
                    history_point.run_id,
                    f"run of {time_text(history_point.started_at)}, commit {_commit(history_point, 'none')}",
                )
                for history_point in reversed(history.points[-MOST_RUNS:])
            ),
        ],
        triages=TRIAGES,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageForm(TrendsParameters):
    """Triage of an alert, with the parameters of the page."""

    alert: str
    triage: Triage
    note: str | None = None
    """None keeps the existing note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteForm(TrendsParameters):
    """A new note."""

    about: str
    """Id of the series, or of a run."""
    note: str
    author: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertForm(TrendsParameters):
    """Raise alerts for confirmed regressions of a series without one."""

    of: str
    """Id of the series."""


def _raise_alerts(warehouse: Warehouse, form: AlertForm) -> None:
    """`benchhouse alert raise` for one series."""
    if not SERIES_ID.fullmatch(form.of):
        raise UsageError(f"of={form.of!r}: expected the id of a series")
    metric = judged_metric(warehouse, form.metric)
    update_changes(warehouse, metric, series=[form.of])
    raise_alerts(warehouse, regressions(warehouse, [metric], selection=Selection.parse(f"series={form.of}")))


def _page_of(form: TrendsParameters) -> Link:
    """The page that contains the form."""
    given = {field.name: getattr(form, field.name) for field in fields(TrendsParameters)}
    return Link(view="trends", parameters=TrendsParameters(**given))


ACTIONS = (
    Action(
        name="set_triage", path="/trends/triage", parameters=TriageForm, next_page=_page_of, anchor="alerts",
        act=lambda warehouse, form: set_triage(warehouse, [form.alert], form.triage, form.note),
    ),
    Action(
        name="add_note", path="/trends/note", parameters=NoteForm, next_page=_page_of, anchor="notes",
        act=lambda warehouse, form: annotate(warehouse, form.about, form.note, form.author),
    ),
    Action(
        name="raise_alerts", path="/trends/alerts", parameters=AlertForm, next_page=_page_of, anchor="alerts",
        act=_raise_alerts,
    ),
)  # fmt: skip
VIEWS = (
    View(
        name="trends",
        path="/trends",
        question="What became slower, and when?",
        title="Trends",
        parameters=TrendsParameters,
        page=page,
        has_charts=True,
        runs_sql=lambda given: has_sql(given.selection),
        in_files=lambda parameters: None if parameters.only_changes else parameters,
    ),
)
