"""Histories and regressions as text: what all rows share is in a line above them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from benchmarking.core.metrics import Metric
from benchmarking.core.tables import LONG_WORD, NOTHING, Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import markdown_escaped, markdown_table, number, visible_lines
from db.analysis.history.histories import SUBJECTS, ChangePoint, History
from db.analysis.history.regressions import Regression
from db.analysis.wording import heading, percent_change

REGRESSION_SUBJECTS = ("model_id", "device", "runtime", "precision", "device_name")
NUMBERS = ("change", "before", "after")
TOGETHER = "environment?"
SUSPECTED = "suspected: no later run has confirmed it yet"


def regressions_text(found: Sequence[Regression], page: Page = PLAIN) -> str:
    """For a terminal."""
    head, below = (visible_lines(text) for text in (_regression_head(found), "\n".join(_regression_notes(found))))
    return "\n\n".join(part for part in (head, table_text(_table(found), page), below) if part)


def regressions_markdown(found: Sequence[Regression], title: str) -> str:
    """A page, with names escaped."""
    table = _table(found)
    parts = [f"**{markdown_escaped(title)}**", markdown_escaped(_regression_head(found))]
    parts += [markdown_table(table.headings, table.rows, right=table.numbers)]
    parts.append("\n".join(f"- {markdown_escaped(line)}" for line in _regression_notes(found)))
    return "\n\n".join(part for part in parts if part)


def _regression_notes(found: Sequence[Regression]) -> list[str]:
    lines = [
        f"{len(found)} regression{'s' * (len(found) != 1)}; the cause is after the first commit, up to and including "
        "the second"
    ]
    if any(one.state == "suspected" for one in found):
        lines.append(SUSPECTED)
    together = {one.session_id: one.together for one in found if one.together is not None}
    lines += [f"{TOGETHER} in session {session}: {how.text}" for session, how in sorted(together.items())]
    return lines


def _commit_range(one: Regression) -> str:
    """ "1a2b3c4d5e..6f7a8b9c0d", as git log takes it."""
    return "..".join((commit or NOTHING)[:COMMIT_LETTERS] for commit in (one.last_good_commit, one.first_bad_commit))


def _change_now(one: Regression) -> str:
    """Today's level against the one before the regression; "recovered" where less than half of it is left."""
    metric, change = one.metric, one.relative_change_now
    is_recovered = not metric.is_worse(change) or abs(change) < abs(one.relative_change) / 2
    return f"{percent_change(change)}{' recovered' * is_recovered}"


def _regression_head(found: Sequence[Regression]) -> str:
    shared = [f"{heading(name)} {getattr(found[0], name)}" for name in REGRESSION_SUBJECTS if not _differs(found, name)]
    metrics = [] if len(_metrics(found)) > 1 else [found[0].metric.column]
    return ", ".join([*metrics, *shared])


def _table(found: Sequence[Regression]) -> Table:
    """A row for each regression, without the subjects that all of them share."""
    several = [name for name in REGRESSION_SUBJECTS if _differs(found, name)]
    measured = ["metric"] if len(_metrics(found)) > 1 else []
    headings = (*NUMBERS, "unit", *measured, *(heading(name) for name in several), "point", "since")
    rows = tuple(
        (
            percent_change(one.relative_change),
            number(one.value_before),
            number(one.value_after),
            one.metric.unit,
            *([one.metric.column] if measured else []),
            *(str(getattr(one, name) or NOTHING) for name in several),
            one.point.label,
            f"{one.history_time:%Y-%m-%d}",
            _commit_range(one),
            one.state + (f", {TOGETHER}" if one.together is not None else ""),
            _change_now(one),
        )
        for one in found
    )
    headings = (*headings, "commits", "state", "now")
    numbers, states = tuple(range(len(NUMBERS))), (headings.index("state"),)
    return Table(headings=headings, rows=rows, numbers=numbers, states=states)


def _differs(found: Sequence[Regression], name: str) -> bool:
    return len({getattr(one, name) for one in found}) > 1


def _metrics(found: Sequence[Regression]) -> set[Metric]:
    return {one.metric for one in found}


BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-~=+*#"
LEAST_RANGE = 0.1
"""Of the median: smaller variation is drawn nearly flat."""


def sparkline(values: Sequence[float], width: int, bars: str = BARS) -> str:
    """One bar for each value; of more values than `width`, one for the median of each of `width` equal parts."""
    shown = _parts(values, width)
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    missing = LEAST_RANGE * abs(median(shown)) - (high - low)
    if missing > 0:
        low, high = low - missing / 2, high + missing / 2
    span = (high - low) or 1.0
    return "".join(bars[min(len(bars) - 1, int(len(bars) * (value - low) / span))] for value in shown)


def bars_for(encoding: str | None) -> str:
    """The bars that the encoding can represent."""
    try:
        BARS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII_BARS
    return BARS


def _parts(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    bounds = [math.floor(part * len(values) / width) for part in range(width + 1)]
    return [median(values[start:end]) for start, end in pairwise(bounds)]


SERIES_LETTERS = 8
"""Of a series id: enough to select it by (series=...)."""
COMMIT_LETTERS = 10
MAX_CHANGES = 3
"""Change points in a line, the newest ones; the others are counted."""
WIDTH = 40
"""Bars of a history in a file."""
BARS_SHARE = 5
"""On a terminal a history takes at most this fraction of the columns, so that it is never folded."""


def histories_text(histories: Sequence[History], metric: Metric, *, bars: str = BARS, page: Page = PLAIN) -> str:
    """For a terminal: a row for each series with its newest value, and notes."""
    several = [name for name in SUBJECTS if len({history.subject[name] for history in histories}) > 1]
    headings = ("series", *(heading(name) for name in several), "point", "runs", "history", metric.unit)
    keys = len(several) + 2
    width = WIDTH if page.width is None else max(1, min(LONG_WORD, page.width // BARS_SHARE))
    table = Table(
        headings=(*headings, "changes"),
        rows=tuple(_row(history, several, bars, width) for history in histories),
        numbers=(keys, keys + 2),
        keys=keys,
    )
    head, below = (visible_lines(text) for text in (_head(histories, several, metric), "\n".join(_notes(histories))))
    return "\n\n".join(part for part in (head, table_text(table, page), below) if part)


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


def _head(histories: Sequence[History], several: Sequence[str], metric: Metric) -> str:
    first = histories[0].subject
    shared = [f"{heading(name)} {first[name]}" for name in SUBJECTS if name not in several and first[name]]
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


def _notes(histories: Sequence[History]) -> list[str]:
    changes = [found.change for history in histories for found in history.change_points]
    left_out = sum(history.left_out for history in histories)
    lines = []
    if changes:
        lines.append(f"{len(changes)} change{'s' * (len(changes) != 1)}; each date is that of the first changed run")
    if any(change.state == "suspected" for change in changes):
        lines.append(SUSPECTED)
    if left_out:
        lines.append(
            f"left out: {left_out} results that failed, are invalid, throttled or very noisy, or have no value"
        )
    return lines
