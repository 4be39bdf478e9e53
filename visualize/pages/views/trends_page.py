"""The page Trends: series over time with their change points, and one series in detail with triage and notes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from benchmarking.core.errors import UsageError
from benchmarking.core.metrics import DEFAULT_METRIC, Metric
from benchmarking.core.text import number
from db.analysis.annotations import annotate
from db.analysis.gate.alerts import Triage, raise_alerts, set_triage
from db.analysis.history.changes import update_changes
from db.analysis.history.histories import ChangePoint, History, histories
from db.analysis.history.regressions import regressions
from db.analysis.history.text import change_text
from db.analysis.selection import Selection, judged_metric
from db.values import percent_change
from visualize.charts import temporal_trend
from visualize.drawing import words
from visualize.drawing.rows import grouped
from visualize.pages import vega
from visualize.pages.elements import (
    Cell,
    Chart,
    Choice,
    Grid,
    Heading,
    Link,
    Spark,
    headings,
    number_cell,
    spark,
    state_cell,
    text_cell,
    time_text,
)
from visualize.pages.parameters import query
from visualize.pages.result_rows import metric_choices, metric_of
from visualize.pages.series_notes import SeriesNotes, series_notes
from visualize.pages.site import Action, NotFoundError, View
from visualize.pages.views.compare_page import CompareParameters
from visualize.pages.views.run_page import RunParameters

if TYPE_CHECKING:
    from db.warehouse import Warehouse
    from visualize.pages.snapshot import Data

SERIES = 48
"""Maximum series in the list."""
SERIES_A_RUN = 4
LEAST_HISTORY = 3
"""Minimum runs of a series that counts as having a history."""
LEAST_PREFIX = 8
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A listed series."""

    name: str
    about: str
    runs: int
    spark: Spark | None
    newest: str
    change: str | None
    is_worse: bool
    is_drawn: bool
    link: Link


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesDetail:
    """The series in detail."""

    title: str
    series_id: str
    charts: tuple[Chart, ...]
    changes: Grid
    left_out: int
    notes: SeriesNotes


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendsPage:
    """The content of the page, for its template."""

    metrics: Mapping[str, str]
    """Column -> title."""
    lines: tuple[Line, ...]
    count: int
    """Number of series with the metric; `lines` has the first of them."""
    drawn: SeriesDetail | None
    choices: tuple[Choice, ...]
    place: tuple[tuple[str, str], ...]
    """Parameters of the page, for its forms."""


def page(data: Data, parameters: TrendsParameters) -> TrendsPage:
    """The page. Raises UsageError for an invalid selection or metric, NotFoundError for an unknown series."""
    metric = metric_of(data, parameters.metric)
    found, count = _histories(data, parameters, metric)
    shown = [one for one in found if one.points and (one.change_points or not parameters.only_changes)]
    drawn = _drawn(data, shown, parameters, metric)
    models = [row["model_id"] for row in data.warehouse.query(MODELS).dicts()]
    selections = {one: f"model={one}" for one in models if not NO_VALUE.search(one)}
    options = {"newest": None, **selections}
    choices = (
        Choice(
            title="Series",
            options=tuple(
                (text, Link(view="trends", parameters=TrendsParameters(selection=one)), one == parameters.selection)
                for text, one in options.items()
            ),
        ),
    )
    return TrendsPage(
        metrics=metric_choices(data),
        lines=tuple(_line(one, parameters, metric, drawn) for one in shown),
        count=count,
        drawn=None if drawn is None else _detail(data, drawn, metric),
        choices=choices,
        place=() if drawn is None else query(replace(parameters, series=drawn.series_id[:16])),
    )


def _histories(data: Data, parameters: TrendsParameters, metric: Metric) -> tuple[Sequence[History], int]:
    if parameters.selection is not None:
        selection = Selection.parse(parameters.selection).resolved(data.path)
        return histories(data.warehouse, selection, metric, limit=SERIES)
    ids = newest_series(data, most=SERIES)
    if not ids:
        return (), 0
    found, _ = histories(data.warehouse, Selection.parse(f"series={'|'.join(ids)}"), metric)
    return sorted(found, key=lambda one: ids.index(one.series_id)), len(found)


def newest_series(data: Data, *, most: int) -> list[str]:
    """Ids of the newest series, those with a history first."""
    values = {"most": most, "each": SERIES_A_RUN, "history": LEAST_HISTORY}
    return [row["series_id"] for row in data.warehouse.query(NEWEST_SERIES, values).dicts()]


def _drawn(data: Data, shown: Sequence[History], parameters: TrendsParameters, metric: Metric) -> History | None:
    if parameters.series is None:
        return next((one for one in shown if one.change_points), shown[0] if shown else None)
    if len(parameters.series) < LEAST_PREFIX:
        raise NotFoundError(f"{parameters.series!r} is too short: give at least 8 characters of a series id")
    for one in shown:
        if one.series_id.startswith(parameters.series):
            return one
    found, _ = histories(data.warehouse, Selection.parse(f"series={parameters.series}"), metric, limit=1)
    if not found:
        raise NotFoundError(f"no series id starts with {parameters.series!r} and has values of {metric.column}")
    return found[0]


def _name(history: History) -> str:
    return " · ".join([str(history.subject["model_id"]), *_setup(history)])


def _setup(history: History) -> list[str]:
    return [
        str(history.subject[name]) for name in ("device", "runtime", "precision", "settings") if history.subject[name]
    ]


def _is_worse(found: ChangePoint, metric: Metric) -> bool:
    return (found.change.relative_change > 0) == (metric.better == "lower")


def _line(history: History, parameters: TrendsParameters, metric: Metric, drawn: History | None) -> Line:
    values = [point.value for point in history.points]
    newest = history.change_points[-1] if history.change_points else None
    return Line(
        name=str(history.subject["model_id"]),
        about=" · ".join([*_setup(history), words.short_point(history.point)]),
        runs=len(values),
        spark=spark(values, metric.unit),
        newest=f"{number(values[-1])} {metric.unit}",
        change=None if newest is None else change_text(newest),
        is_worse=newest is not None and _is_worse(newest, metric),
        is_drawn=drawn is not None and drawn.series_id == history.series_id,
        link=Link(view="trends", parameters=replace(parameters, series=history.series_id[:16])),
    )


def _detail(data: Data, history: History, metric: Metric) -> SeriesDetail:
    chosen = Selection.parse(f"series={history.series_id}")
    rows = temporal_trend.PLUGIN.rows_of(data.warehouse, [history], metric, chosen)
    figures = [temporal_trend.trend_figure(key, [runs]) for key, runs in grouped(rows, ("model_id",))]
    names = ("first changed (UTC)", "change", "before", "after", "last good", "first changed", "state", "runs")
    changes = Grid(
        headings=headings(names, ("change", "before", "after")),
        rows=tuple(_change_row(found, metric) for found in reversed(history.change_points)),
        caption="Changes of the level",
    )
    return SeriesDetail(
        title=f"{_name(history)} · {words.short_point(history.point)}",
        series_id=history.series_id,
        charts=tuple(vega.chart(one, _point_table(history, metric)) for one in figures),
        changes=changes,
        left_out=history.left_out,
        notes=series_notes(data, history, metric),
    )


def _run_link(run_id: str, result_id: str) -> Link:
    return Link(view="run", parameters=RunParameters(run_id=run_id, result=result_id))


def _point_table(history: History, metric: Metric) -> Grid:
    return Grid(
        headings=(Heading(text="time (UTC)"), Heading(text="commit"), Heading(text=metric.unit, is_number=True)),
        rows=tuple(
            (
                text_cell(time_text(one.history_time), link=_run_link(one.run_id, one.result_id)),
                text_cell((one.git_commit or "-")[:10]),
                number_cell(one.value),
            )
            for one in reversed(history.points)
        ),
        caption="Runs of the series, newest first",
    )


def _change_row(found: ChangePoint, metric: Metric) -> tuple[Cell, ...]:
    good, changed = found.last_good, found.first_changed
    sides = CompareParameters(a=f"run={good.run_id}", b=f"run={changed.run_id}", metric=metric.column)
    return (
        text_cell(time_text(changed.history_time), link=_run_link(changed.run_id, changed.result_id)),
        text_cell(percent_change(found.change.relative_change), tone="bad" if _is_worse(found, metric) else "good"),
        number_cell(found.change.value_before),
        number_cell(found.change.value_after),
        text_cell((good.git_commit or "-")[:10], link=_run_link(good.run_id, good.result_id)),
        text_cell((changed.git_commit or "-")[:10]),
        state_cell(found.change.state),
        text_cell("compare both runs", link=Link(view="compare", parameters=sides)),
    )


def _in_files(parameters: TrendsParameters) -> TrendsParameters | None:
    """Each model, and each listed series."""
    return None if parameters.only_changes else parameters


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


def _set_triage(warehouse: Warehouse, form: TriageForm) -> Link:
    set_triage(warehouse, [form.alert], form.triage, form.note)
    return _page_of(form)


def _add_note(warehouse: Warehouse, form: NoteForm) -> Link:
    annotate(warehouse, form.about, form.note, form.author)
    return _page_of(form)


def _raise_alerts(warehouse: Warehouse, form: AlertForm) -> Link:
    """`benchhouse alert raise` for one series."""
    if not SERIES_ID.fullmatch(form.of):
        raise UsageError(f"of={form.of!r}: expected the id of a series")
    metric = judged_metric(warehouse, form.metric)
    update_changes(warehouse, metric, series=[form.of])
    raise_alerts(warehouse, regressions(warehouse, [metric], selection=Selection.parse(f"series={form.of}")))
    return _page_of(form)


def _page_of(form: TrendsParameters) -> Link:
    """The page that contains the form."""
    given = {field.name: getattr(form, field.name) for field in fields(TrendsParameters)}
    return Link(view="trends", parameters=TrendsParameters(**given))


ACTIONS = (
    Action(name="set_triage", path="/trends/triage", parameters=TriageForm, act=_set_triage, anchor="alerts"),
    Action(name="add_note", path="/trends/note", parameters=NoteForm, act=_add_note, anchor="notes"),
    Action(name="raise_alerts", path="/trends/alerts", parameters=AlertForm, act=_raise_alerts, anchor="alerts"),
)
VIEWS = (
    View(
        name="trends",
        path="/trends",
        question="What became slower, and when?",
        title="Trends",
        parameters=TrendsParameters,
        page=page,
        has_charts=True,
        in_files=_in_files,
    ),
)
