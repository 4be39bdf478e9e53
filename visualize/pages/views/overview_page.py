"""The page Overview: latest runs, open alerts, regressions, load tests and newest series."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.core.quality import QUALITY_METRICS
from benchmarking.core.text import first_few, grouped
from db.analysis.gate.alerts import OPEN, list_alerts, with_recovery
from db.analysis.history.changes import regressions
from db.analysis.history.histories import series_too_short, too_short_text
from db.analysis.recommend.measured_options import (
    IS_OPTION,
    OF_WORKLOAD,
    models_by_name,
    stated_mode,
    to_choose,
    workload_config,
)
from db.analysis.selection import EVERYTHING, judged_metrics
from db.values import SETTINGS, percent_change
from visualize.drawing import words
from visualize.pages.elements import (
    Cell,
    Grid,
    Link,
    column,
    further,
    grid,
    number_cell,
    point_text,
    state_cell,
    text_cell,
    time_text,
)
from visualize.pages.site import NoParameters, View
from visualize.pages.views.loads_page import LoadParameters, newest_loads
from visualize.pages.views.recommend_page import RecommendParameters
from visualize.pages.views.results_page import ResultsParameters
from visualize.pages.views.run_page import run_link
from visualize.pages.views.trends_page import TrendsParameters, newest_histories, series_card

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

T = TypeVar("T")

LATEST_RUNS = 12
LATEST_LOADS = 4
LATEST_IMPORTS = 6
SERIES = 24
FINDINGS = 8
MODELS = 2
"""Most models of an imported file that are named."""
TOTALS = """
SELECT
    (SELECT count(*) FROM benchmark_runs WHERE task <> 'device-calibration') AS runs,
    (SELECT count(*) FROM benchmark_results) AS results,
    (SELECT count(*) FROM series_heads) AS series,
    (SELECT count(DISTINCT model_id) FROM benchmark_runs WHERE task <> 'device-calibration') AS models,
    (SELECT count(*) FROM hardware_info) AS machines,
    (SELECT max(started_at) FROM benchmark_runs WHERE origin_format IS NULL) AS newest
"""
RUNS = """
WITH newest AS (
    SELECT * FROM benchmark_runs WHERE task <> 'device-calibration' AND origin_format IS NULL
    ORDER BY started_at DESC, run_id DESC LIMIT $most
), counts AS (
    SELECT
        run_id,
        count(*) AS results,
        count(*) FILTER (WHERE status = 'ok') AS measured,
        count(*) FILTER (WHERE validity <> 'valid') AS doubtful
    FROM benchmark_results WHERE run_id IN (SELECT run_id FROM newest) GROUP BY run_id
)
SELECT
    run_id, started_at, model_id, device, device_name, runtime, runtime_mode, precision, status, git_commit,
    coalesce(results, 0) AS results, coalesce(measured, 0) AS measured, coalesce(doubtful, 0) AS doubtful
FROM newest LEFT JOIN counts USING (run_id)
LEFT JOIN (SELECT hardware_id, device_name FROM hardware_info) USING (hardware_id)
ORDER BY started_at DESC, run_id DESC
"""
IMPORTS = """
SELECT
    coalesce(parse_filename(source), origin_format) AS file, origin_format, max(ingested_at) AS imported,
    list(DISTINCT model_id ORDER BY model_id) AS models, count(DISTINCT run_id) AS runs,
    min(run_id) AS run_id, any_value(runtime_mode->>'loop') AS loop
FROM benchmark_runs WHERE origin_format IS NOT NULL
GROUP BY source, origin_format ORDER BY imported DESC, file LIMIT $most
"""
QUANTIZED = f"""
SELECT
    model_id, config_hash, any_value(runtime_mode) AS runtime_mode, precision,
    bool_or(run_id IN (SELECT run_id FROM all_measures_of_quality)) AS has_quality,
    (hardware_id, {", ".join(OF_WORKLOAD)}, origin_definition, axes)::VARCHAR AS workload
FROM latest_results JOIN (SELECT run_id, config_hash, origin_definition FROM benchmark_runs) USING (run_id)
WHERE {IS_OPTION}
GROUP BY model_id, config_hash, precision, runtime_mode->>'quantization', workload ORDER BY model_id
"""  # noqa: S608 - constants of ours
"""The precisions of the calls of each model, by machine and workload."""
CHANGED = "SELECT DISTINCT metric FROM change_points WHERE state <> 'withdrawn' ORDER BY metric"


def page(data: Data, parameters: NoParameters) -> SimpleNamespace:
    """The page."""
    (totals,) = data.warehouse.query(TOTALS).dicts()
    counts = tuple((name, f"{totals[name]:,}") for name in ("runs", "results", "series", "models", "machines"))
    newest = data.warehouse.query(RUNS, {"most": LATEST_RUNS}).dicts()
    imported = data.warehouse.query(IMPORTS, {"most": LATEST_IMPORTS}).dicts()
    quantized = data.once("quantized", lambda: _most_quantized(data))
    metric = JUDGED[DEFAULT_METRIC]
    series = [one for one in newest_histories(data, metric, SERIES) if one.points]
    cards = [series_card(history, series, metric, TrendsParameters()) for history in series]
    (alerts, more_alerts), (regressed, more_regressions) = _alerts(data), _regressions(data)
    return SimpleNamespace(
        totals=(*counts, *([("newest run here", f"{time_text(totals['newest'])} UTC")] if totals["newest"] else [])),
        is_empty=not newest and not imported,
        runs=grid(RUN_COLUMNS, newest, "The latest runs measured here", ("points", "doubtful")),
        alerts=alerts,
        more_alerts=more_alerts,
        regressions=regressed,
        more_regressions=more_regressions,
        too_short=too_short_text(*series_too_short(data.warehouse, EVERYTHING, metric)),
        cards=sorted(cards, key=lambda card: not card.is_worse),  # those that became slower first
        loads=newest_loads(data, LATEST_LOADS),
        imports=grid(IMPORT_COLUMNS, imported, "The newest imported files", ("runs",)),
        metric=metric.words,
        quantizations=None
        if quantized is None
        else Link(view="recommend", parameters=RecommendParameters(model=quantized)),
    )


def _most_quantized(data: Data) -> str | None:
    """The model with the most precisions of one workload on one machine, of several files or one, to which the question
    about quantizations leads; those with a measured quality count first. None if no model has two."""
    rows = data.warehouse.query(QUANTIZED).dicts()
    names = {
        model: name
        for name, models in models_by_name([*{row["model_id"]: None for row in rows}]).items()
        for model in models
    }
    found: dict[tuple[str, str, str], list[tuple[object, bool]]] = {}
    for row in rows:
        precision = (row["precision"], stated_mode(row).get("quantization"))
        place = (names[row["model_id"]], row["workload"], workload_config(row))
        found.setdefault(place, []).append((precision, row["has_quality"]))
    counts = {place: to_choose(of) for place, of in found.items()}
    several = {place: count for place, count in counts.items() if count[1] > 1}
    return max(several, key=lambda place: several[place])[0] if several else None


RUN_COLUMNS: Mapping[str, Callable[[Any], Cell]] = {
    "started (UTC)": lambda row: text_cell(time_text(row["started_at"])),
    "model": lambda row: text_cell(row["model_id"], link=run_link(row["run_id"])),
    "device": lambda row: text_cell(words.device(row)),
    "runtime": lambda row: text_cell(words.engine(row)),
    "precision": lambda row: text_cell(words.precision(row)),
    "status": lambda row: state_cell(row["status"]),
    "points": lambda row: text_cell(f"{row['measured']}/{row['results']}", hint="measured / planned"),
    "doubtful": lambda row: text_cell(row["doubtful"], tone="warn" if row["doubtful"] else "muted"),
    "commit": lambda row: text_cell(row["git_commit"][:10] if row["git_commit"] else None),
}


def _file_cell(row: Mapping[str, Any]) -> Cell:
    """The file, linked to the page of its load or run, or to the results of several runs."""
    link = run_link(row["run_id"]) if row["runs"] == 1 else _format_link(row)
    if row["loop"] is not None:
        link = Link(view="load", parameters=LoadParameters(run_id=row["run_id"]))
    return text_cell(row["file"], link=link)


def _format_link(row: Mapping[str, Any]) -> Link:
    """The results of all files of the format."""
    return Link(view="results", parameters=ResultsParameters(source=row["origin_format"]))


IMPORT_COLUMNS: Mapping[str, Callable[[Any], Cell]] = {
    "imported (UTC)": lambda row: text_cell(time_text(row["imported"])),
    "file": _file_cell,
    "written by": lambda row: text_cell(
        row["origin_format"], link=_format_link(row), hint="all results of this format"
    ),
    "models": lambda row: text_cell(first_few(row["models"], MODELS), hint=further(row["models"][MODELS:])),
    "runs": column("runs"),
}


def _changes(found: Iterable[T], run_metric: Callable[[T], tuple[str, str]]) -> list[list[T]]:
    """Findings of one run in one metric together: a change of a setup, at several points. In the order of the first."""
    return list(grouped((run_metric(one), one) for one in found).values())


def _points_cell(points: Sequence[str]) -> Cell:
    """The point of the first of several findings: "b1 s128 and 3 more"."""
    return text_cell(first_few(points, 1), hint=further(points[1:], "; "))


def _alerts(data: Data) -> tuple[Grid, int]:
    """The newest open alerts, and the number of further changes with one."""
    rows = list_alerts(data.warehouse, EVERYTHING, OPEN)
    changes = _changes(rows, lambda row: (row["run_id"], row["metric"]))
    shown = changes[:FINDINGS]
    followed = with_recovery(data.warehouse, [one for change in shown for one in change])
    lasting = {(one["run_id"], one["metric"]) for one in followed if one["recovered_since"] is None}
    titles = {
        judged_metric.column: judged_metric.words
        for judged_metric in judged_metrics(data.warehouse, {row["metric"] for row in rows})
    }
    titles |= {name: metric.title for name, metric in QUALITY_METRICS.items()}
    points, triages = dict[str, list[str]](), dict[str, str]()
    for change in shown:
        first = change[0]["alert_id"]
        points[first] = [point_text({**one, "axes": json.dumps(one["axes"])}) for one in change]
        triages[first] = " and ".join(sorted({one["triage"] for one in change}))

    def status(row: Mapping[str, Any]) -> Cell:
        text = triages[row["alert_id"]]
        if row["metric"] in QUALITY_METRICS:
            return text_cell(text)  # not a metric of results, so it has no trend
        text += "" if (row["run_id"], row["metric"]) in lasting else ", recovered since"
        link = _series_link(row["series_id"], row["metric"])
        return text_cell(text, link=link, hint="its trend, for triage")

    columns: Mapping[str, Callable[[Any], Cell]] = {
        "raised (UTC)": lambda row: text_cell(time_text(row["created_at"])),
        "model": lambda row: text_cell(row["model_id"], link=run_link(row["run_id"])),
        "device": lambda row: text_cell(words.device(row)),
        "setup": lambda row: text_cell(_setup(row["runtime"], row["precision"], row[SETTINGS])),
        "point": lambda row: _points_cell(points[row["alert_id"]]),
        "metric": lambda row: text_cell(titles.get(row["metric"], row["metric"])),
        "change": lambda row: text_cell(
            None if row["relative_change"] is None else percent_change(row["relative_change"]), tone="bad"
        ),
        "status": status,
    }
    return grid(columns, [change[0] for change in shown], "Open alerts", ("change",)), max(0, len(changes) - FINDINGS)


def _setup(runtime: str, precision: str, settings: str | None) -> str:
    return " · ".join(filter(None, (runtime, precision, settings)))


def _regressions(data: Data) -> tuple[Grid, int]:
    """The regressions, worst first, and the number of further changes."""
    changed = [row["metric"] for row in data.warehouse.query(CHANGED).dicts()]
    found = regressions(data.warehouse, judged_metrics(data.warehouse, changed)) if changed else ()
    changes = _changes(found, lambda one: (one.run_id, one.metric.column))
    points = {
        change[0].change_point_id: [words.short_point(regression.point) for regression in change] for change in changes
    }
    columns: Mapping[str, Callable[[Any], Cell]] = {
        "since (UTC)": lambda one: text_cell(
            time_text(one.history_time), link=_series_link(one.series_id, one.metric.column), hint="its trend"
        ),
        "model": lambda one: text_cell(one.model_id, link=run_link(one.run_id)),
        "device": lambda one: text_cell(words.device({"device": one.device, "device_name": one.device_name})),
        "setup": lambda one: text_cell(_setup(one.runtime, one.precision, one.settings)),
        "point": lambda one: _points_cell(points[one.change_point_id]),
        "metric": lambda one: text_cell(one.metric.words),
        "before": lambda one: number_cell(one.value_before),
        "after": lambda one: number_cell(one.value_after),
        "change": lambda one: text_cell(percent_change(one.relative_change), tone="bad"),
        "now": lambda one: text_cell(
            percent_change(one.relative_change_now), hint="versus the previous level; near 0 once fixed"
        ),
        "state": lambda one: (
            state_cell(one.state) if one.common_shift is None else text_cell("environment?", hint=one.common_shift.text)
        ),
    }
    worst = [change[0] for change in changes[:FINDINGS]]
    shown = grid(columns, worst, "Regressions, worst first", ("before", "after", "change", "now"))
    return shown, max(0, len(changes) - FINDINGS)


def _series_link(series_id: str, metric: str) -> Link:
    """The trend of a series."""
    return Link(view="trends", parameters=TrendsParameters(series=series_id[:16], metric=metric))


VIEWS = (
    View(
        name="overview",
        path="/",
        title="Overview",
        parameters=NoParameters,
        page=page,
        in_files=lambda parameters: parameters,
    ),
)
