"""The page Charts: every chart plugin, drawn for a model or a selection of results."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import TYPE_CHECKING

from benchmarking.core.argument_types import names
from benchmarking.core.command_line import choice
from benchmarking.core.lazy_dataclass import dataclass
from db.analysis.selection import Selection
from db.run_records import selected_profiles
from visualize.drawing.figure import Figure, NotDrawn
from visualize.drawing.rows import Selection as Selected
from visualize.drawing.rows import charts
from visualize.pages import vega
from visualize.pages.result_rows import metric_choices, metric_of, models_by_calls
from visualize.pages.site import View, has_sql

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

FIRST = "latency_vs_batch_size"
ALL = "*"
MOST_FIGURES = 8
MOST_RESULTS = 20_000
"""Maximum results of a selection that are read, newest first."""
CHOSEN = """
SELECT result_id, model_id FROM all_results WHERE {condition} ORDER BY started_at DESC, result_id DESC LIMIT {most}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartsParameters:
    """The chart, and the results to draw."""

    chart: str = FIRST
    model: str | None = None
    """None for the model of the selection with the most series of calls; "*" for all models."""
    selection: str | None = None
    """A selection such as "device=cpu,precision=float32"."""
    metric: str | None = None
    """For charts of any metric."""


def page(data: Data, parameters: ChartsParameters) -> SimpleNamespace:
    """The page. Raises UsageError for an unknown chart, selection or metric."""
    known = charts()
    chart = known[choice(parameters.chart, tuple(known), "chart")]
    models = models_by_calls(data)
    if parameters.metric is not None:
        metric_of(data, parameters.metric)
    results = profiles = None
    older: list[str] = []
    candidates, why = models, f"this chart needs {chart.needs}"
    if parameters.selection is not None:
        chosen = Selection.parse(parameters.selection).resolved(data.path)
        sql = CHOSEN.format(condition=chosen.condition, most=MOST_RESULTS + 1)
        rows = data.warehouse.query(sql, chosen.values).dicts()
        results = tuple(row["result_id"] for row in rows)
        of_models = {row["model_id"] for row in rows}
        candidates = tuple(one for one in models if one in of_models) or models
        profiles = tuple(row["profile_id"] for row in selected_profiles(data.warehouse, chosen))
        if not rows and not profiles:
            why = "no result is selected"
        elif not profiles and parameters.model not in (None, ALL, *of_models) and chart.scope != "models":
            why = f"the selection has no result of {parameters.model}"
        if len(results) > MOST_RESULTS:
            results = results[:MOST_RESULTS]
            older = [f"Older results: the newest {MOST_RESULTS:,} of the selection are read; narrow it"]
    model = parameters.model or (candidates[0] if candidates else None)
    selection = Selected(
        model_id=None if model == ALL or chart.scope == "models" else model,
        results=results,
        profiles=profiles,
        metric=parameters.metric,
    )
    figures: list[Figure] = []
    missing: list[NotDrawn] = []
    for drawing in chart.draw(chart.rows(data.warehouse, selection)):
        if isinstance(drawing, NotDrawn):
            missing.append(drawing)
        else:
            figures.append(drawing)
        if len(figures) > MOST_FIGURES:
            break
    if not figures:  # better the charts of single points than none, as in files
        figures = [one.alone for one in missing if one.alone is not None]
        missing = [one for one in missing if one.alone is None]
    # The command that writes the same chart as image files, unless no flag takes the model's name: one with a comma or
    # with characters that are not shown.
    named = selection.model_id or ""
    has_command = named.isprintable() and (not named or names(named) == (named,))
    command = ["benchhouse", "charts", *([parameters.selection] if parameters.selection else [])]
    command += ["--chart", parameters.chart, *(["--model-id", selection.model_id] if selection.model_id else [])]
    return SimpleNamespace(
        names={name: one.title for name, one in known.items()},
        models=tuple(sorted(models)),
        model=model,
        why=why,
        metrics=metric_choices(data) if chart.has_metric else None,
        charts=tuple(map(vega.chart, figures[:MOST_FIGURES])),
        left_out=len(figures) > MOST_FIGURES,
        missing=(*older, *tuple(dict.fromkeys(f"{one.what}: {one.why}" for one in missing))[:MOST_FIGURES]),
        command=shlex.join(command + (["--metric", parameters.metric] if parameters.metric else []))
        if has_command
        else None,
    )


VIEWS = (
    View(
        name="charts",
        path="/charts",
        title="Charts",
        parameters=ChartsParameters,
        page=page,
        has_charts=True,
        runs_sql=lambda parameters: has_sql(parameters.selection),
    ),
)
