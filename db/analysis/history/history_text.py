"""Histories and regressions as text; what all rows share is in a line above them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from benchmarking.core.command_names import as_typed
from benchmarking.core.metrics import Metric
from benchmarking.core.tables import LONG_WORD, NOTHING, Column, Table, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import BARS, counted, markdown_escaped, markdown_table, number, sparkline, wrapped
from db.analysis.gate.gate import RECOVERED
from db.analysis.history.changes import Regression
from db.analysis.history.detector import CLIP_REACH, Trend
from db.analysis.history.histories import SHOWN, ChangePoint, History, WorseTrend
from db.values import heading, percent_change, subjects_of

PERCENTILE = re.compile(r"_p9\d_")
ENVIRONMENT = "environment?"
SAME_COMMIT = "same commit"
DATE = "the first changed commit's, or the first changed run's if no commit changed, at the change's likeliest place"
SUSPECTED = "suspected: first found with the newest run; the next run of its series confirms or withdraws it"
EXCURSION = (
    "back again: an alert of benchhouse check, of which less than half is left since; up to "
    f"{CLIP_REACH} runs in a row that come back are outliers to the history, not a change of level"
)
TREND = "trend: the newest runs move slowly and steadily, so no single run or commit is to blame"
MOST_TRENDS = 20
"""Maximum trends with a line of their own; the rest are counted."""
SERIES_LETTERS = 8
"""Characters of a series id to show: enough to select it by (series=...)."""
COMMIT_LETTERS = 10
MAX_CHANGES = 3
"""Maximum change points in a line, the newest ones; the rest are counted."""
WIDTH = 40
"""Bars of a history in a file."""
BARS_SHARE = 5
"""Maximum fraction of a terminal's width for the bars of a history, so that a row is never wrapped."""


def value_text(metric: Metric) -> str:
    """A value of the metric that is judged: "latency_median_ms above 0"."""
    return f"{metric.column} {'of 0 or more' if metric.better == 'higher' else 'above 0'}"


def excluded_results_text(count: int, metric: Metric) -> str:
    """Results that no history contains, with the reason."""
    which = value_text(metric)
    calls = " (a percentile needs more calls than a median)" if PERCENTILE.search(metric.column) else ""
    if count == 1:
        return f"1 result that failed, is invalid or throttled, or has no {which}{calls}"
    return f"{count} results that failed, are invalid or throttled, or have no {which}{calls}"


def histories_text(
    histories: Sequence[History],
    metric: Metric,
    excursions: Sequence[Mapping[str, Any]] = (),
    *,
    bars: str = BARS,
    page: Page = PLAIN,
) -> str:
    """Text for a terminal: a row per series with its newest value, and notes. `excursions` are alerts
    (`alerts.excursions_of`)."""
    several, shared = subjects_of(SHOWN, histories, lambda history, name: history.subject[name])
    headings = ("series", *(heading(name) for name in several), "point", "runs", "history", metric.unit)
    keys = len(several) + 2
    width = WIDTH if page.text_width is None else max(1, min(LONG_WORD, page.text_width // BARS_SHARE))
    rows: list[tuple[str, ...]] = []
    for history in histories:
        values, changes_of_row, trend = [point.value for point in history.points], history.change_points, history.trend
        words = [] if trend is None else [trend_text(trend)]
        words += map(change_text, reversed(changes_of_row[-MAX_CHANGES:]))
        words += [
            f"{percent_change(alert['relative_change'])} {alert['started_at']:%Y-%m-%d} for "
            f"{counted(alert['runs_off'], 'run')}, back again"
            for alert in excursions
            if alert["series_id"] == history.series_id
        ]
        more = f"; {len(changes_of_row) - MAX_CHANGES} earlier" if len(changes_of_row) > MAX_CHANGES else ""
        rows.append(
            (
                history.series_id[:SERIES_LETTERS],
                *(history.subject[name] or NOTHING for name in several),
                history.point.label,
                str(len(values)),
                sparkline(values, width, bars),
                number(values[-1]) if values else NOTHING,
                "; ".join(words) + more,
            )
        )
    table = Table(headings=(*headings, "changes"), rows=tuple(rows), numbers=(keys, keys + 2), keys=keys)
    changes = [change_point.change for history in histories for change_point in history.change_points]
    left_out = sum(history.left_out for history in histories)
    notes = []
    if changes:
        notes.append(f"{counted(len(changes), 'change')}; each date is {DATE}")
    if any(change.state == "suspected" for change in changes):
        notes.append(SUSPECTED)
    if {one["series_id"] for one in excursions} & {history.series_id for history in histories}:
        notes.append(EXCURSION)
    if any(history.trend is not None for history in histories):
        notes.append(TREND)
    if left_out:
        notes.append(f"left out: {excluded_results_text(left_out, metric)}")
    texts = ("\n".join([metric.column, *([", ".join(shared)] if shared else [])]), "\n".join(notes))
    head, below = (wrapped(text, page.text_width) for text in texts)
    return "\n\n".join(part for part in (head, table_text(table, page), below) if part)


def trend_text(trend: Trend) -> str:
    """ "trend +0.20% a run over 40 runs" """
    return f"trend {trend.per_run:+.2%} a run over {trend.runs} runs"


def change_text(change_point: ChangePoint) -> str:
    """ "+10.2% 2026-03-01 1a2b3c4d5e confirmed" """
    commit = change_point.first_changed.git_commit
    is_same = commit is not None and commit == change_point.last_good.git_commit
    words = (
        percent_change(change_point.change.relative_change),
        f"{change_point.since:%Y-%m-%d}",
        *((SAME_COMMIT if is_same else commit[:COMMIT_LETTERS],) if commit else ()),
        change_point.change.state,
    )
    return " ".join(words)


def regressions_text(regressions: Sequence[Regression], trends: Sequence[WorseTrend] = (), page: Page = PLAIN) -> str:
    """Text for a terminal; at least one regression or trend."""
    lines = [*_regression_notes(regressions), *_trend_notes(trends)]
    head, below = (wrapped(text, page.text_width) for text in (_regression_head(regressions), "\n".join(lines)))
    table = table_text(_table(regressions, page), page) if regressions else ""
    return "\n\n".join(part for part in (head, table, below) if part)


def regressions_markdown(regressions: Sequence[Regression], title: str, trends: Sequence[WorseTrend] = ()) -> str:
    """A Markdown page, with names escaped."""
    parts = [f"**{markdown_escaped(title)}**", markdown_escaped(_regression_head(regressions))]
    if regressions:
        table = _table(regressions)
        parts += [markdown_table(table.headings, table.rows, right=table.numbers)]
    lines = [*_regression_notes(regressions), *_trend_notes(trends)]
    parts.append("\n".join(f"- {markdown_escaped(line)}" for line in lines))
    return "\n\n".join(part for part in parts if part)


def _trend_notes(trends: Sequence[WorseTrend]) -> list[str]:
    """A line for each trend: "trend: gpt2, cpu, eager, float32, b1 s128: latency_median_ms +0.20% a run, +8.2% over 40
    runs since 2026-03-01"."""
    lines = [
        f"trend: {', '.join(filter(None, trend.subject.values()))}, {trend.point.label}: {trend.metric.column} "
        f"{trend.trend.per_run:+.2%} a run, {percent_change(trend.trend.change)} over {trend.trend.runs} runs since "
        f"{trend.since:%Y-%m-%d}"
        for trend in trends[:MOST_TRENDS]
    ]
    lines += [f"trend: {len(trends) - MOST_TRENDS} more series"] if len(trends) > MOST_TRENDS else []
    return [*lines, TREND] if trends else []


def _regression_head(regressions: Sequence[Regression]) -> str:
    if not regressions:
        return "no regressions, but trends"
    metrics = list(dict.fromkeys(one.metric.column for one in regressions))
    return ", ".join([*(metrics if len(metrics) == 1 else []), *subjects_of(SHOWN, regressions, getattr)[1]])


def _table(regressions: Sequence[Regression], page: Page = PLAIN) -> Table:
    """A row per regression, without the subjects that all of them share."""
    number_column = partial(Column[Regression], is_number=True)
    several, _ = subjects_of(SHOWN, regressions, getattr)
    metrics = [Column[Regression]("metric", lambda one: one.metric.column)]
    columns = [
        number_column(heading="change", text=lambda one: percent_change(one.relative_change)),
        number_column(heading="before", text=lambda one: number(one.value_before)),
        number_column(heading="after", text=lambda one: number(one.value_after)),
        Column("unit", lambda one: one.metric.unit, spare=1),  # the metric's name ends with it
        *(metrics if len({one.metric.column for one in regressions}) > 1 else []),
        *(Column[Regression](heading(name), attrgetter(name)) for name in several),
        Column("point", lambda one: one.point.label),
        Column("since", lambda one: f"{one.history_time:%Y-%m-%d}"),
        Column("between", _commit_range),
        Column(
            "state", lambda one: one.state if one.common_shift is None else f"{one.state}, {ENVIRONMENT}", is_state=True
        ),
        Column("now", _change_now),
    ]
    return table_of(columns, regressions, page)


def _commit_range(one: Regression) -> str:
    """ "1a2b3c4d5e..6f7a8b9c0d", a range for git log; the times of the two runs if no commit changed."""
    if one.is_within_commit:
        start = NOTHING if one.last_good_started_at is None else f"{one.last_good_started_at:%Y-%m-%d %H:%M}"
        return f"{start} .. {one.started_at:%Y-%m-%d %H:%M}"
    return "..".join((commit or NOTHING)[:COMMIT_LETTERS] for commit in (one.last_good_commit, one.first_bad_commit))


def _change_now(one: Regression) -> str:
    """Today's level relative to the level before the regression; "recovered" if less than half of it is left."""
    metric, change = one.metric, one.relative_change_now
    is_recovered = not metric.is_worse(change) or abs(change) < abs(one.relative_change) * RECOVERED
    return f"{percent_change(change)}{' recovered' * is_recovered}"


def _regression_notes(regressions: Sequence[Regression]) -> list[str]:
    if not regressions:
        return []
    ends = {"run" if regression.is_within_commit else "commit" for regression in regressions}
    end = " or ".join(sorted(ends))
    decides = f"; {as_typed('bisect')} tells which commit it is" if "commit" in ends else ""
    lines = [
        f"{counted(len(regressions), 'regression')}; the cause most likely lies after the first {end}, up to and "
        f"including the second, but of a small change a few runs before or after that{decides}"
    ]
    if any(regression.state == "suspected" for regression in regressions):
        lines.append(SUSPECTED)
    shifts = {
        regression.session_id: regression.common_shift
        for regression in regressions
        if regression.common_shift is not None
    }
    lines += [f"{ENVIRONMENT} in session {session}: {shift.text}" for session, shift in sorted(shifts.items())]
    return lines
