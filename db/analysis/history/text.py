"""Histories and regressions as text; what all rows share is in a line above them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from benchmarking.core.metrics import Metric
from benchmarking.core.tables import LONG_WORD, NOTHING, Column, Table, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import BARS, markdown_escaped, markdown_table, number, sparkline, wrapped
from db.analysis.history.histories import SUBJECTS, ChangePoint, History
from db.analysis.history.regressions import Regression
from db.analysis.settings import SETTINGS
from db.values import heading, percent_change

SHOWN = (*SUBJECTS, SETTINGS)
ENVIRONMENT = "environment?"
SUSPECTED = "suspected: no later run has confirmed it yet"
SERIES_LETTERS = 8
"""Characters of a series id to show: enough to select it by (series=...)."""
COMMIT_LETTERS = 10
MAX_CHANGES = 3
"""Maximum change points in a line, the newest ones; the rest are counted."""
WIDTH = 40
"""Bars of a history in a file."""
BARS_SHARE = 5
"""Maximum fraction of a terminal's width for the bars of a history, so that a row is never wrapped."""


def results_words(count: int) -> str:
    """Results that no history contains, with the reason."""
    if count == 1:
        return "1 result that failed, is invalid or throttled, or has no value above 0"
    return f"{count} results that failed, are invalid or throttled, or have no value above 0"


def histories_text(histories: Sequence[History], metric: Metric, *, bars: str = BARS, page: Page = PLAIN) -> str:
    """Text for a terminal: a row per series with its newest value, and notes."""
    several = [name for name in SHOWN if len({history.subject[name] for history in histories}) > 1]
    headings = ("series", *(heading(name) for name in several), "point", "runs", "history", metric.unit)
    keys = len(several) + 2
    width = WIDTH if page.text_width is None else max(1, min(LONG_WORD, page.text_width // BARS_SHARE))
    table = Table(
        headings=(*headings, "changes"),
        rows=tuple(_row(history, several, bars, width) for history in histories),
        numbers=(keys, keys + 2),
        keys=keys,
    )
    texts = (_head(histories, several, metric), "\n".join(_notes(histories)))
    head, below = (wrapped(text, page.text_width) for text in texts)
    return "\n\n".join(part for part in (head, table_text(table, page), below) if part)


def _head(histories: Sequence[History], several: Sequence[str], metric: Metric) -> str:
    first = histories[0].subject
    shared = [f"{heading(name)} {first[name]}" for name in SHOWN if name not in several and first[name]]
    return "\n".join([metric.column, *([", ".join(shared)] if shared else [])])


def _row(history: History, several: Sequence[str], bars: str, width: int) -> tuple[str, ...]:
    values = [point.value for point in history.points]
    return (
        history.series_id[:SERIES_LETTERS],
        *(history.subject[name] or NOTHING for name in several),
        history.point.label,
        str(len(values)),
        sparkline(values, width, bars),
        number(values[-1]) if values else NOTHING,
        _changes(history),
    )


def _changes(history: History) -> str:
    found = history.change_points
    more = f"; {len(found) - MAX_CHANGES} earlier" if len(found) > MAX_CHANGES else ""
    return "; ".join(map(change_text, reversed(found[-MAX_CHANGES:]))) + more


def change_text(found: ChangePoint) -> str:
    """ "+10.2% 2026-03-01 1a2b3c4d5e confirmed" """
    commit = found.first_changed.git_commit
    words = (
        percent_change(found.change.relative_change),
        f"{found.first_changed.history_time:%Y-%m-%d}",
        *((commit[:COMMIT_LETTERS],) if commit else ()),
        found.change.state,
    )
    return " ".join(words)


def _notes(histories: Sequence[History]) -> list[str]:
    changes = [found.change for history in histories for found in history.change_points]
    left_out = sum(history.left_out for history in histories)
    lines = []
    if changes:
        lines.append(f"{len(changes)} change{'s' * (len(changes) != 1)}; each date is the first changed run's")
    if any(change.state == "suspected" for change in changes):
        lines.append(SUSPECTED)
    if left_out:
        lines.append(f"left out: {results_words(left_out)}")
    return lines


def regressions_text(found: Sequence[Regression], page: Page = PLAIN) -> str:
    """Text for a terminal."""
    texts = (_regression_head(found), "\n".join(_regression_notes(found)))
    head, below = (wrapped(text, page.text_width) for text in texts)
    return "\n\n".join(part for part in (head, table_text(_table(found, page), page), below) if part)


def regressions_markdown(found: Sequence[Regression], title: str) -> str:
    """A Markdown page, with names escaped."""
    table = _table(found)
    parts = [f"**{markdown_escaped(title)}**", markdown_escaped(_regression_head(found))]
    parts += [markdown_table(table.headings, table.rows, right=table.numbers)]
    parts.append("\n".join(f"- {markdown_escaped(line)}" for line in _regression_notes(found)))
    return "\n\n".join(part for part in parts if part)


def _regression_head(found: Sequence[Regression]) -> str:
    same = [name for name in SHOWN if not _differs(found, name) and (name != SETTINGS or found[0].settings)]
    shared = [f"{heading(name)} {getattr(found[0], name)}" for name in same]
    metrics = [] if _differs(found, "metric") else [found[0].metric.column]
    return ", ".join([*metrics, *shared])


def _table(found: Sequence[Regression], page: Page = PLAIN) -> Table:
    """A row per regression, without the subjects that all of them share."""
    number_column = partial(Column[Regression], is_number=True)
    several = [name for name in SHOWN if _differs(found, name)]
    metrics = [Column[Regression](heading="metric", text=lambda one: one.metric.column)]
    columns = [
        number_column(heading="change", text=lambda one: percent_change(one.relative_change)),
        number_column(heading="before", text=lambda one: number(one.value_before)),
        number_column(heading="after", text=lambda one: number(one.value_after)),
        Column(heading="unit", text=lambda one: one.metric.unit, spare=1),  # the metric's name ends with it
        *(metrics if _differs(found, "metric") else []),
        *(Column[Regression](heading=heading(name), text=attrgetter(name)) for name in several),
        Column(heading="point", text=lambda one: one.point.label),
        Column(heading="since", text=lambda one: f"{one.history_time:%Y-%m-%d}"),
        Column(heading="commits", text=_commit_range),
        Column(heading="state", text=_state, is_state=True),
        Column(heading="now", text=_change_now),
    ]
    return table_of(columns, found, page)


def _state(one: Regression) -> str:
    return one.state if one.together is None else f"{one.state}, {ENVIRONMENT}"


def _commit_range(one: Regression) -> str:
    """ "1a2b3c4d5e..6f7a8b9c0d", a range for git log."""
    return "..".join((commit or NOTHING)[:COMMIT_LETTERS] for commit in (one.last_good_commit, one.first_bad_commit))


def _change_now(one: Regression) -> str:
    """Today's level relative to the level before the regression; "recovered" if less than half of it is left."""
    metric, change = one.metric, one.relative_change_now
    is_recovered = not metric.is_worse(change) or abs(change) < abs(one.relative_change) / 2
    return f"{percent_change(change)}{' recovered' * is_recovered}"


def _regression_notes(found: Sequence[Regression]) -> list[str]:
    lines = [
        f"{len(found)} regression{'s' * (len(found) != 1)}; the cause lies after the first commit, up to and "
        "including the second"
    ]
    if any(one.state == "suspected" for one in found):
        lines.append(SUSPECTED)
    together = {one.session_id: one.together for one in found if one.together is not None}
    lines += [f"{ENVIRONMENT} in session {session}: {how.text}" for session, how in sorted(together.items())]
    return lines


def _differs(found: Sequence[Regression], name: str) -> bool:
    return len({getattr(one, name) for one in found}) > 1
