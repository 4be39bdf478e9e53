"""Regressions for a terminal and for a page in Markdown: worst first, what they share above them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarking.core.tables import NOTHING, Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, visible_lines
from db import markdown
from db.analysis.history_text import COMMIT_LETTERS, NAMES
from db.analysis.metrics import Metric
from db.analysis.regressions import Regression

SUBJECTS = ("model_id", "device", "runtime", "precision", "device_name")
NUMBERS = ("change", "before", "after")
TOGETHER = "environment?"


def regressions_text(found: Sequence[Regression], page: Page = PLAIN) -> str:
    """For a terminal."""
    head, below = (visible_lines(text) for text in (_head(found), "\n".join(remarks(found))))
    return "\n\n".join(part for part in (head, table_text(_table(found), page), below) if part)


def regressions_markdown(found: Sequence[Regression], title: str) -> str:
    """A page; no text in it is taken for markup."""
    table = _table(found)
    parts = [f"**{markdown.escaped(title)}**", markdown.escaped(_head(found))]
    parts += [markdown.table(table.headings, table.rows, right=table.numbers)]
    parts.append("\n".join(f"- {markdown.escaped(line)}" for line in remarks(found)))
    return "\n\n".join(part for part in parts if part)


def remarks(found: Sequence[Regression]) -> list[str]:
    """What is to be known of what is shown."""
    lines = [
        f"{len(found)} regression{'s' * (len(found) != 1)}; the cause lies after the first commit, up to the second"
    ]
    if any(one.state == "suspected" for one in found):
        lines.append("suspected: it has not yet survived another run")
    together = {one.session_id: one.together for one in found if one.together is not None}
    lines += [f"{TOGETHER} in session {session}: {how.text}" for session, how in sorted(together.items())]
    return lines


def commits(one: Regression) -> str:
    """ "1a2b3c4d5e..6f7a8b9c0d", as git log takes it."""
    return "..".join((commit or NOTHING)[:COMMIT_LETTERS] for commit in (one.last_good_commit, one.first_bad_commit))


def now(one: Regression) -> str:
    """Where the series stands today against before: "put right", or by how much it is off."""
    metric, change = one.metric, one.relative_change_now
    is_right = not metric.is_worse(change) or abs(change) < abs(one.relative_change) / 2
    return f"{change:+.1%}{' put right' * is_right}"


def _head(found: Sequence[Regression]) -> str:
    shared = [f"{NAMES.get(name, name)} {getattr(found[0], name)}" for name in SUBJECTS if not _differs(found, name)]
    metrics = [] if len(_metrics(found)) > 1 else [found[0].metric.column]
    return ", ".join([*metrics, *shared])


def _table(found: Sequence[Regression]) -> Table:
    """What is the same in all rows is in the head."""
    several = [name for name in SUBJECTS if _differs(found, name)]
    measured = ["metric"] if len(_metrics(found)) > 1 else []
    headings = (*NUMBERS, "unit", *measured, *(NAMES.get(name, name) for name in several), "point", "since")
    rows = tuple(
        (
            f"{one.relative_change:+.1%}",
            number(one.value_before),
            number(one.value_after),
            one.metric.unit,
            *([one.metric.column] if measured else []),
            *(str(getattr(one, name) or NOTHING) for name in several),
            one.point.label,
            f"{one.history_time:%Y-%m-%d}",
            commits(one),
            one.state + (f", {TOGETHER}" if one.together is not None else ""),
            now(one),
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
