"""A comparison of runtimes as text: a line a point and runtime, then what the speed-ups come to."""

from __future__ import annotations

from benchmarking.core.metrics import METRICS
from benchmarking.core.tables import NOTHING, Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, relative_error, visible
from benchmarking.sweep.comparison import Comparison, Entry, Summary

HEADINGS = (
    "point",
    "runtime",
    METRICS["latency_median_ms"].heading,
    "speed-up",
    "95 % interval",
    "error",
    "equal tokens",
    "peak MB",
    "doubts",
)
WORDS = ("point", "runtime", "doubts")
"""Columns of words, which stand to the left, and are there even where nothing is in them."""
MAX_KINDS = 2
"""Kinds of doubt that are named; the others are counted, and told below the runs' own tables."""


def comparison_text(comparison: Comparison, page: Page = PLAIN) -> str:
    """The comparison for people: title, table, means, runtimes that could not be measured, and what the marks mean."""
    table = comparison_table(comparison)
    below = ["", *remarks(comparison)]
    return "\n".join([visible(title(comparison)), table_text(table, page), *map(visible, below)])


def title(comparison: Comparison) -> str:
    """What is compared, in a line."""
    where = comparison.device_name or comparison.device
    return (
        f"{comparison.model_id} ({comparison.task}) on {where}, {comparison.precision}: "
        f"runtimes compared, speed-up over {comparison.baseline}"
    )


def comparison_table(comparison: Comparison) -> Table:
    """A row a point and runtime; columns of numbers in which no runtime has anything are left out."""
    rows = [
        (point.point if place == 0 else "", *_cells(entry, comparison.baseline))
        for point in comparison.points
        for place, entry in enumerate(point.entries)
    ]
    kept = [
        column
        for column, heading in enumerate(HEADINGS)
        if heading in WORDS or any(row[column] != NOTHING for row in rows)
    ]
    headings, *shown = [tuple(row[column] for column in kept) for row in (HEADINGS, *rows)]
    return Table(
        headings=headings,
        rows=tuple(shown),
        numbers=tuple(place for place, heading in enumerate(headings) if heading not in WORDS),
        states=(len(headings) - 1,),
        keys=2,
    )


def remarks(comparison: Comparison) -> list[str]:
    """What the speed-ups come to, what could not be measured, and what the marks in the table mean."""
    entries = [entry for point in comparison.points for entry in point.entries]
    lines = [_summary(summary, comparison.baseline) for summary in comparison.summaries]
    lines += [f"{runtime}: not measured: {why}" for runtime, why in comparison.not_measured.items()]
    if any(entry.is_fastest for entry in entries):
        lines.append("* fastest, or not to be told apart from it; invalid results and emulators are never ranked")
    if any(entry.speed_up is not None and entry.speed_up.scope == "within" for entry in entries):
        lines.append("(calls): from fewer than 3 launches, so the interval speaks of the calls inside them only")
    return lines


def _cells(entry: Entry, baseline: str) -> tuple[str, ...]:
    """What a runtime shows at a point, the label left out."""
    return (
        entry.runtime + (" *" if entry.is_fastest else ""),
        NOTHING if entry.median_ms is None else number(entry.median_ms),
        "1" if entry.runtime == baseline and entry.median_ms is not None else _speed_up(entry),
        _interval(entry),
        "reference" if entry.is_reference else _error(entry.output_error),
        NOTHING if entry.equal_token_share is None else f"{entry.equal_token_share:.0%}",
        NOTHING if entry.peak_memory_mb is None else f"{entry.peak_memory_mb:.0f}",
        _verdict(entry),
    )


def _speed_up(entry: Entry) -> str:
    return NOTHING if entry.speed_up is None else _times(entry.speed_up.ratio)


def _interval(entry: Entry) -> str:
    """The interval; "(calls)" behind it where it speaks of the calls inside the launches only."""
    ratio = entry.speed_up
    if ratio is None or ratio.low is None or ratio.high is None:
        return NOTHING
    return f"{_times(ratio.low)} .. {_times(ratio.high)}" + (" (calls)" if ratio.scope == "within" else "")


def _error(value: float | None) -> str:
    return NOTHING if value is None else relative_error(value)


def _verdict(entry: Entry) -> str:
    """The status of what has no numbers, else the validity and the first kinds of doubt."""
    if entry.status != "ok":
        return f"{entry.status.replace('_', ' ')}: {entry.error}"
    more = f" +{len(entry.doubts) - MAX_KINDS}" if len(entry.doubts) > MAX_KINDS else ""
    return f"{entry.validity}: {', '.join(entry.doubts[:MAX_KINDS])}{more}" if entry.doubts else ""


def _summary(summary: Summary, baseline: str) -> str:
    points = f"{summary.points} point{'s' * (summary.points > 1)}"
    return (
        f"{summary.runtime} over {baseline}: geometric mean {_times(summary.geometric_mean)} ({points}), "
        f"best {_times(summary.best)} at {summary.best_point}, worst {_times(summary.worst)} at {summary.worst_point}"
    )


def _times(ratio: float) -> str:
    """A ratio with three significant digits, and never an exponent."""
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:#.3g}" if ratio >= 1e-4 else number(ratio)
