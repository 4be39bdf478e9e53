"""Histories for a terminal: a line a series, what they share above them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarking.core.tables import LONG_WORD, NOTHING, Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, visible_lines
from db.analysis.histories import SUBJECTS, ChangePoint, History
from db.analysis.metrics import Metric
from db.analysis.sparkline import BARS, sparkline

NAMES = {"model_id": "model", "device_name": "hardware"}
SERIES_LETTERS = 8
"""Of a series' id: enough to select it by (series=...)."""
COMMIT_LETTERS = 10
MAX_CHANGES = 3
"""Change points that a line tells, the newest ones; the others are counted."""
WIDTH = 40
"""Bars of a history in a file."""
BARS_SHARE = 5
"""On a terminal a history takes this part of its columns, so that it is never folded."""


def histories_text(histories: Sequence[History], metric: Metric, *, bars: str = BARS, page: Page = PLAIN) -> str:
    """The table, newest values to the right of their bars, and below it what the words in it mean."""
    several = [name for name in SUBJECTS if len({history.subject[name] for history in histories}) > 1]
    headings = ("series", *(NAMES.get(name, name) for name in several), "point", "runs", "history", metric.unit)
    keys = len(several) + 2
    width = WIDTH if page.width is None else max(1, min(LONG_WORD, page.width // BARS_SHARE))
    table = Table(
        headings=(*headings, "changes"),
        rows=tuple(_row(history, several, bars, width) for history in histories),
        numbers=(keys, keys + 2),
        keys=keys,
    )
    head, below = (visible_lines(text) for text in (_head(histories, several, metric), "\n".join(_remarks(histories))))
    return "\n\n".join(part for part in (head, table_text(table, page), below) if part)


def change_text(found: ChangePoint) -> str:
    """ "+10.2% 2026-03-01 1a2b3c4d5e confirmed" """
    commit = found.first_changed.git_commit
    words = (
        f"{found.change.relative_change:+.1%}",
        f"{found.first_changed.history_time:%Y-%m-%d}",
        *((commit[:COMMIT_LETTERS],) if commit else ()),
        found.change.state,
    )
    return " ".join(words)


def _head(histories: Sequence[History], several: Sequence[str], metric: Metric) -> str:
    first = histories[0].subject
    shared = [f"{NAMES.get(name, name)} {first[name]}" for name in SUBJECTS if name not in several and first[name]]
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
    more = f"; {len(found) - MAX_CHANGES} before" if len(found) > MAX_CHANGES else ""
    return "; ".join(map(change_text, reversed(found[-MAX_CHANGES:]))) + more


def _remarks(histories: Sequence[History]) -> list[str]:
    """What is to be known of what is shown."""
    changes = [found.change for history in histories for found in history.change_points]
    left_out = sum(history.left_out for history in histories)
    lines = []
    if changes:
        lines.append(f"{len(changes)} change{'s' * (len(changes) != 1)}; the date is that of the first changed run")
    if any(change.state == "suspected" for change in changes):
        lines.append("suspected: it has not yet survived another run")
    if left_out:
        lines.append(f"{left_out} left out: failed, invalid, throttled, very noisy or without the number")
    return lines
