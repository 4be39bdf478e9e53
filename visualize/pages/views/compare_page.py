"""The page Compare: two selections point by point, worst change first, as in `benchhouse compare`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import DEFAULT_METRIC
from benchmarking.core.tables import NOTHING
from db.analysis.compare.comparison import Comparison, compare
from db.analysis.compare.comparison_text import ComparisonWords, comparison_words
from db.analysis.compare.matching import across_column
from db.analysis.selection import Selection
from db.values import percent_change
from visualize.drawing.figure import Colour, Element, Figure, Mark, Panel, Rule, entries
from visualize.drawing.figure import Line as Series
from visualize.drawing.scales import Axis, row_axis, ticks
from visualize.pages import vega
from visualize.pages.elements import (
    Cell,
    Chart,
    Grid,
    Link,
    column,
    grid,
    grid_of,
    separated,
    started_text,
    state_cell,
    text_cell,
)
from visualize.pages.result_rows import metric_choices, metric_of
from visualize.pages.site import View, has_sql
from visualize.pages.views.run_page import run_link

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

MOST_BARS = 40
MOST_SESSIONS = 12
MOST_SEARCHED = 100
"""Number of newest sessions searched for pairs."""
SESSIONS = """
SELECT
    session_id, min(started_at) AS started_at, count(*) AS runs,
    any_value(coalesce(nullif(command, ''), parse_filename(source), origin_format)) AS command,
    string_agg(DISTINCT model_id, ', ' ORDER BY model_id) AS models,
    string_agg(DISTINCT device, ', ' ORDER BY device) AS devices,
    string_agg(DISTINCT runtime, ', ' ORDER BY runtime) AS runtimes
FROM benchmark_runs WHERE task <> 'device-calibration'
GROUP BY session_id ORDER BY started_at DESC, session_id LIMIT {most}
"""
SINCE = """
WITH newest AS ({sessions}), measured AS (
    SELECT DISTINCT series_id, session_id
    FROM benchmark_results r JOIN benchmark_runs USING (run_id)
    WHERE r.status = 'ok' AND series_id IN (
        SELECT series_id FROM benchmark_results JOIN benchmark_runs USING (run_id)
        WHERE session_id IN (SELECT session_id FROM newest)
    )
), started AS (
    SELECT session_id, min(started_at) AS started_at FROM benchmark_runs GROUP BY session_id
), pairs AS (
    SELECT session_id, lag(session_id) OVER earlier AS before, lag(started_at) OVER earlier AS started_before
    FROM measured JOIN started USING (session_id)
    WINDOW earlier AS (PARTITION BY series_id ORDER BY started_at, session_id)
)
SELECT newest.*, before, started_before
FROM newest JOIN pairs USING (session_id)
WHERE started_before < newest.started_at
QUALIFY row_number() OVER (PARTITION BY newest.session_id ORDER BY started_before DESC, before DESC) = 1
ORDER BY newest.started_at DESC, newest.session_id LIMIT {most}
"""
"""Each session with the newest earlier session that measured any of its series."""
UNDATED = """
SELECT DISTINCT session_id FROM benchmark_runs JOIN benchmark_results USING (run_id)
WHERE origin_format IS NOT NULL AND session_id IN (SELECT unnest($sessions)) AND list_contains(doubts, 'undated')
"""
VALUES = "SELECT DISTINCT runtime, precision, device, git_commit FROM benchmark_runs WHERE task <> 'device-calibration'"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareParameters:
    """Two selections in the syntax of commands: "runtime=eager", a run id, a commit, "latest"."""

    a: str | None = None
    b: str | None = None
    metric: str = DEFAULT_METRIC
    across: str | None = None
    """Comma-separated fields that may differ, or "all"."""
    only_changes: bool = False


def page(data: Data, parameters: CompareParameters) -> SimpleNamespace:
    """The page. Raises UsageError for an invalid selection, metric or field."""
    metric = metric_of(data, parameters.metric)
    result = None
    if parameters.a is not None and parameters.b is not None:
        before, after = (Selection.parse(text).resolved(data.path) for text in (parameters.a, parameters.b))
        across = [across_column(word.strip()) for word in (parameters.across or "").split(",") if word.strip()]
        comparison = compare(data.warehouse, before, after, metric, across)
        command = compare_command(
            parameters.a, parameters.b, parameters.metric, parameters.across, only_changes=parameters.only_changes
        )
        result = compared(comparison, command, only_changes=parameters.only_changes)

    def as_side(row: Any, side: str) -> Cell:
        text = f"session={row['session_id']}"
        changed = replace(parameters, a=text) if side == "a" else replace(parameters, b=text)
        return text_cell(f"use as {side.upper()}", link=Link(view="compare", parameters=changed))

    # The newest sessions, with links that use them as a side.
    columns: dict[str, Callable[[Any], Cell]] = {
        "started (UTC)": lambda row: text_cell(started_text(row["started_at"], row["doubts"])),
        "as A": lambda row: as_side(row, "a"),
        "as B": lambda row: as_side(row, "b"),
        "models": column("models"),
        "runs": column("runs"),
        "command": column("command"),
    }
    values = data.once("suggestions", lambda: data.warehouse.query(VALUES).dicts())
    found = {f"{name}={row[name]}" for row in values for name in ("runtime", "precision", "device")}
    commits = {f"commit={row['git_commit'][:10]}" for row in values if row["git_commit"]}
    rows = data.once("sessions", lambda: _sessions(data, SESSIONS.format(most=MOST_SESSIONS)))
    return SimpleNamespace(
        compared=result,
        metrics=metric_choices(data),
        sessions=grid(columns, rows, "Newest sessions: all runs of one command", ("runs",)),
        since=None if result is not None else _since(data),
        suggestions=("latest", *sorted(found), *sorted(commits)[:20]),  # selections for the form
        swapped=Link(view="compare", parameters=replace(parameters, a=parameters.b, b=parameters.a)),
    )


def compare_command(a: str, b: str, metric: str, across: str | None, *, only_changes: bool = False) -> str:
    """The command that prints a comparison of two selections."""
    words = ["benchhouse", "compare", a, b]
    words += ["--metric", metric] if metric != DEFAULT_METRIC else []
    words += ["--across", across] if across else []
    return shlex.join(words + (["--only-changes"] if only_changes else []))


def compared(comparison: Comparison, command: str, *, only_changes: bool = False) -> SimpleNamespace:
    """A comparison as tables, a chart and text, of which the summary has the verdicts in a sentence; `command` prints
    it."""
    words = comparison_words(comparison, only_changes=only_changes)
    table = words.table
    rows = []
    for row, finding in zip(table.rows, words.findings, strict=True):
        cells = []
        for place, (heading, text) in enumerate(zip(table.headings, row, strict=True)):
            if place in table.states:
                hint = finding.judgement.reason if heading == "verdict" else None
                cells.append(state_cell(text, hint=hint))
            elif heading.startswith(("A ", "B ")):  # the values, followed by their unit
                side = finding.before if heading.startswith("A ") else finding.after
                link = run_link(side.run_id, side.result_id)
                cells.append(text_cell(separated(text), link=link, hint="the run that measured it"))
            else:
                cells.append(text_cell(text))
        rows.append(tuple(cells))
    return SimpleNamespace(
        summary=comparison.sentence if comparison.findings else words.summary.capitalize(),
        head=words.head,
        grid=replace(grid_of(table, "Points of both sides, worst first"), rows=tuple(rows)),
        chart=_chart(comparison, words),
        notes=tuple(note for note in words.notes if note != comparison.sentence),
        is_empty=comparison.is_empty and not comparison.findings,  # else the sentence says it
        command=command,
    )


def _chart(comparison: Comparison, words: ComparisonWords) -> Chart | None:
    """Changes with their intervals, below the sentence about them; None without changes."""
    names = [" · ".join(text for text in row[: words.table.keys] if text != NOTHING) for row in words.table.rows]
    shown = [(name, one.judgement) for name, one in zip(names, words.findings, strict=True)][:MOST_BARS]
    if not shown:
        return None
    verdicts = list(dict.fromkeys(one.verdict for _, one in shown))
    lines = [
        Series(
            label=verdict, colour=TONES.get(verdict, "grey"), shape=place, dashes=None, is_across=True, has_bands=False,
            marks=tuple(
                Mark(x=100 * one.change, y=at, low=_percent(one.low), high=_percent(one.high), words=name)
                for at, (name, one) in enumerate(shown)
                if one.verdict == verdict and one.change is not None
            ),
        )
        for place, verdict in enumerate(verdicts)
    ]  # fmt: skip
    values = [0.0]  # that the axis must show: long intervals are cut off at three times the change
    for one in (mark for line in lines for mark in line.marks):
        far = 3 * abs(one.x) + 5
        values += [one.x, *(max(-far, min(far, end)) for end in (one.low, one.high) if end is not None)]
    edge = 0.06 * (max(values) - min(values)) or 1.0
    low, high = min(values) - edge, max(values) + edge
    marks_at = tuple((value, f"{value:+g} %" if value else "0 %") for value, _ in ticks(low, high))
    title = f"{comparison.title.removesuffix(f' ({comparison.unit})')}\nchange from A to B"
    title += f", {comparison.better} is better" if comparison.better else ""
    x = Axis(title=title, low=low, high=high, ticks=marks_at)
    elements: tuple[Element, ...] = (Rule(at=0.0, along="x", role="no change"), *lines)
    bounded = sum(one.low is not None and one.high is not None for _, one in shown)
    notes = ["Lines are 95 % confidence intervals."] if bounded else []
    notes += ["Points without a line have too little data for an interval."] if bounded < len(shown) else []
    notes += [f"Drawn: {MOST_BARS} of {len(words.findings)} points."] if len(shown) < len(words.findings) else []
    figure = Figure(
        title="Change of each point from A to B",
        notes=tuple(notes),
        panels=(Panel(x=x, y=row_axis([name for name, _ in shown]), elements=elements, height_in=0.5),),
        legend=entries(lines),
        columns_of_table=("point", "verdict", "change", "low", "high"),
        rows=tuple(
            (
                name,
                one.verdict,
                *(None if value is None else percent_change(value) for value in (one.change, one.low, one.high)),
            )
            for name, one in shown
        ),
    )
    return vega.chart(figure)


TONES: Mapping[str, Colour] = {
    "slower": 1, "worse": 1, "more": 1, "faster": 2, "better": 2, "less": 2, "trend": 4, "equivalent": "grey",
}  # fmt: skip
"""Verdict -> colour of its marks."""


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _sessions(data: Data, sql: str) -> list[dict[str, Any]]:
    """Sessions, also those before, with the doubt about a file that states no date."""
    rows = data.warehouse.query(sql).dicts()
    ids = sorted({one for row in rows for one in (row["session_id"], row.get("before")) if one})
    undated = {row["session_id"] for row in data.warehouse.query(UNDATED, {"sessions": ids}).dicts()} if ids else set()
    doubts = {one: ("undated",) if one in undated else () for one in ids}
    return [
        {**row, "doubts": doubts[row["session_id"]], "doubts_before": doubts.get(row.get("before"))} for row in rows
    ]


def _since(data: Data) -> Grid:
    """The newest sessions, each linked to its comparison with the previous session of any of its series."""
    sql = SINCE.format(sessions=SESSIONS.format(most=MOST_SEARCHED), most=MOST_SESSIONS)
    rows = data.once("sessions since", lambda: _sessions(data, sql))
    columns: dict[str, Callable[[Any], Cell]] = {
        "started (UTC)": lambda row: text_cell(started_text(row["started_at"], row["doubts"])),
        "compared with": lambda row: text_cell(
            started_text(row["started_before"], row["doubts_before"]),
            link=Link(
                view="compare",
                parameters=CompareParameters(a=f"session={row['before']}", b=f"session={row['session_id']}"),
            ),
        ),
        **{name: column(name) for name in ("models", "devices", "runtimes", "runs")},
    }
    return grid(columns, rows, "Newest sessions against previous ones", ("runs",))


VIEWS = (
    View(
        name="compare",
        path="/compare",
        question="Is one faster than the other?",
        title="Compare",
        parameters=CompareParameters,
        page=page,
        has_charts=True,
        runs_sql=lambda given: has_sql(given.a, given.b),
        in_files=lambda given: (  # comparisons that other pages link to
            given
            if (given.a is None) == (given.b is None) and given.across is None and not given.only_changes
            else None
        ),
    ),
)
