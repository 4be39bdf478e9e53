"""Charts of a report, drawn by the browser: latency, throughput and memory of every setup, and load levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarking.core.metrics import METRICS, PEAK_MEMORY
from visualize.drawing import loads, words
from visualize.drawing.rows import clear_winner, grouped, is_ok
from visualize.pages import specs
from visualize.pages.elements import Chart, Grid, Heading, number_cell, state_cell, text_cell
from visualize.pages.load_pictures import MARKS, level_charts
from visualize.report.rows import POINT, Row, is_ranked

MOST_SETUPS = 8
"""Maximum setups of a chart, one per colour."""
MOST_SETS = 4
"""Maximum sets of charts of a model; each has its own sequence length, image size, number of tokens etc."""
ALIKE = tuple(name for name in POINT if name != "batch_size")


def result_charts(rows: Sequence[Row]) -> tuple[tuple[Chart, ...], int]:
    """Charts of a model's results, and the number of sets left out."""
    measured = [row for row in rows if is_ok(row)]
    sets = grouped([row for row in measured if not loads.is_load(row)], ALIKE)
    kinds = loads.by_kind(list(filter(loads.has_level, map(loads.as_level, filter(loads.is_load, measured)))))
    charts = [chart for _, members in sets[:MOST_SETS] for chart in _batch_charts(members)]
    charts += [chart for key, members in kinds[:MOST_SETS] for chart in _load_charts(key, members)]
    return tuple(charts), max(len(sets) - MOST_SETS, 0) + max(len(kinds) - MOST_SETS, 0)


def _load_charts(key: Row, rows: Sequence[Row]) -> list[Chart]:
    shown, left_out = _fastest_setups(_plainly_named(rows))
    return level_charts(key, shown, left_out)


def _plainly_named(rows: Sequence[Row]) -> list[Row]:
    """The rows, with settings removed from setup names that are unique without them."""
    cells = {str(row["setup"]): words.cell(row) for row in rows}
    alone = {setup for setup, cell in cells.items() if list(cells.values()).count(cell) == 1}
    names = {setup: cell if setup in alone else setup for setup, cell in cells.items()}
    return [{**row, "setup": f"{names[row['setup']]}{_batch_words(row, rows)}"} for row in rows]


def _batch_words(row: Row, rows: Sequence[Row]) -> str:
    """The batch size of a load test, if its setup has several; each is a line of its own."""
    sizes = {other["batch_size"] for other in rows if other["setup"] == row["setup"]}
    return f"{words.SEPARATOR}{words.axis('batch_size', row['batch_size'])}" if len(sizes) > 1 else ""


def _batch_charts(rows: Sequence[Row]) -> list[Chart]:
    shown, left_out = _fastest_setups(rows)
    throughput = "throughput_samples_per_sec" if rows[0]["new_tokens"] is None else "throughput_tokens_per_sec"
    memory = next((name for name in PEAK_MEMORY if any(row[name] is not None for row in shown)), None)
    columns = ["latency_median_ms", throughput, *([memory] if memory else [])]
    return [_chart(column, points, left_out) for column in columns if (points := _points(shown, column))]


def _fastest_setups(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """Results of the fastest setups, and the number of setups left out."""
    best: dict[str, tuple[bool, float]] = {}
    for row in rows:
        key = (not is_ranked(row), row["value"] or float("inf"))
        best[row["setup"]] = min(best.get(row["setup"], key), key)
    names = sorted(best, key=lambda name: (best[name], name))
    kept = names[:MOST_SETUPS]
    ordered = sorted(rows, key=lambda row: (names.index(row["setup"]), row["batch_size"]))
    return [row for row in ordered if row["setup"] in kept], len(names) - len(kept)


def _points(rows: Sequence[Row], column: str) -> list[dict[str, Any]]:
    """Data of each result with a value; only latency has intervals."""
    has_interval = column == "latency_median_ms"
    return [
        {
            "setup": row["setup"],
            "point": words.point(row),
            "batch": row["batch_size"],
            "value": row[column],
            "low": row["low"] if has_interval else None,
            "high": row["high"] if has_interval else None,
            "state": row["state"],
            "row": row,
        }
        for row in rows
        if row[column] is not None
    ]


def _chart(column: str, points: Sequence[dict[str, Any]], left_out: int) -> Chart:
    has_interval = column == "latency_median_ms"
    title = TITLES.get(column) or METRICS[column].title
    values = [{name: value for name, value in one.items() if name != "row"} for one in points]
    is_curve = len({one["batch"] for one in points}) > 1
    spec = specs.curves(values, y_title=title) if is_curve else specs.ranges(values, title=title)
    bars = "Whiskers are 95 % intervals over launches." if has_interval else "Readings have no interval."
    more = f"{left_out} slower setups are only in the table." if left_out else ""
    marks = MARKS if any(one["state"] != "valid" for one in points) else ""
    better = METRICS[column].better
    direction = f"{'Lower' if better == 'lower' else 'Higher'} is better." if better else ""
    return Chart(
        title=_title(column, title, [one["row"] for one in points]),
        caption=" ".join(part for part in (direction, bars, marks, more) if part),
        spec=spec,
        table=_table(points, title, has_interval=has_interval),
    )


TITLES = {
    "latency_median_ms": "Median latency (ms)",
    "throughput_samples_per_sec": "Throughput (items/s)",
    "throughput_tokens_per_sec": "Throughput (tokens/s)",
}


def _title(column: str, title: str, rows: Sequence[Row]) -> str:
    """The setup with the lowest latency if intervals support it at every point, else a description."""
    place = words.point(rows[0], with_batch=False)
    plain = f"{title}, {place}" if place else title
    if column != "latency_median_ms":
        return plain
    winners = [
        clear_winner([row for row in members if is_ranked(row)], "lower")
        for _, members in grouped(rows, ("batch_size",))
    ]
    names = {None if winner is None else str(winner["setup"]) for winner in winners}
    (name,) = names if len(names) == 1 else (None,)
    return plain if name is None else f"{name} has the lowest latency{f' at {place}' if place else ''}"


def _table(points: Sequence[dict[str, Any]], title: str, *, has_interval: bool) -> Grid:
    bounds = ("low", "high") if has_interval else ()
    return Grid(
        headings=(
            Heading(text="setup"),
            Heading(text="point"),
            Heading(text=title, is_number=True),
            *(Heading(text=name, is_number=True) for name in bounds),
            Heading(text="state"),
        ),
        rows=tuple(
            (
                text_cell(one["setup"]),
                text_cell(one["point"]),
                number_cell(one["value"]),
                *(number_cell(one[name]) for name in bounds),
                state_cell(one["state"]),
            )
            for one in points
        ),
        caption=title,
    )
