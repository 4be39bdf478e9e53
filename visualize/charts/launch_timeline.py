"""All calls of one result over time, from the first warm-up call to the last timed one, with its doubts explained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from benchmarking.core.doubts import KINDS
from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure
from visualize.drawing.lines import legend_entry
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    axis_values,
    details,
    grouped,
    trust,
)
from visualize.drawing.style import colour, look, scale_value_axis, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = """
SELECT {facts}, raw.launch, raw.phase, raw.samples, raw.inner_loops, raw.started_at AS phase_started_at,
    r.latency_median_ms AS value
FROM {tables}
JOIN raw_benchmark_data raw ON raw.result_id = r.result_id
WHERE r.result_id IN {latest} AND raw.metric = 'latency_wall' AND len(raw.samples) > 0 AND {selected}
ORDER BY {order}, raw.launch, raw.phase DESC
"""

MOST_PICTURES, MOST_LAUNCHES, MOST_DOUBTS = 6, 5, 3
WIDTH_IN, PANEL_IN = 8.4, 1.7
NOTE = "Time starts at the first warm-up call; the line marks the result's median."


class LaunchTimeline(ChartPlugin):
    name = "launch_timeline"
    title = "Calls over time"
    needs = "a result with raw samples"
    sql = SQL
    by_default = False

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        results = [members for _, members in grouped(rows, (*CELL_COLUMNS, "batch_size", *POINT_COLUMNS, "result_id"))]
        results.sort(key=lambda members: trust(members[0]) == "valid")  # doubtful results first
        for members in results[:MOST_PICTURES]:
            yield _drawing(members)
        rest = len(results) - MOST_PICTURES
        if rest > 0:
            why = f"limit of {MOST_PICTURES} pictures, doubtful results first: narrow the selection, e.g. batch=8"
            yield NotDrawn(what=f"{self.title} of {rest} more results", why=why)


def timeline(row: Row, origin_row: Row) -> list[tuple[float, float]]:
    """(start in seconds since the first sample of `origin_row`, duration in ms) of each sample of a phase."""
    offset_s = (row["phase_started_at"] - origin_row["phase_started_at"]).total_seconds()
    spans_s = [value * row["inner_loops"] / 1e3 for value in row["samples"]]
    starts_s = [offset_s, *(offset_s + end_s for end_s in accumulate(spans_s))]
    return list(zip(starts_s, row["samples"], strict=False))


def _drawing(members: Sequence[Row]) -> Drawing:
    key = members[0]
    launches = grouped(members, ("launch",))
    shown = launches[:MOST_LAUNCHES]
    with theme():
        figure, panels = new_figure(WIDTH_IN, PANEL_IN * len(shown) + 0.4, len(shown))
        for axes, (launch, phases) in zip(panels, shown, strict=True):
            _draw_launch(axes, phases)
            axes.set_title(f"launch {launch['launch'] + 1}", loc="left", x=0)
            axes.set_ylabel("Latency (ms)")
        drawn = [value for _, phases in shown for row in phases for value in row["samples"]]
        for axes in panels:
            scale_value_axis(axes, drawn)
        panels[-1].set_xlabel("Time (s)")
        finish(figure, _figure_text(key, shown, len(launches)))
    return Drawing(
        figure=figure,
        name_parts=(
            *(str(key[column]) for column in CELL_COLUMNS),
            f"b{key['batch_size']}",
            *words.point_names(key["new_tokens"], key["concurrency"], axis_values(key)),
        ),
        details=details(key, CELL_DETAIL_COLUMNS),
    )


def _draw_launch(axes: Axes, phases: Sequence[Row]) -> None:
    """Warm-up calls grey and hollow, timed calls filled, and the result's median as a line."""
    for row in phases:
        times_s, values = zip(*timeline(row, phases[0]), strict=True)
        is_timed = row["phase"] == "measure"
        own = colour(0) if is_timed else look().grey
        axes.plot(
            times_s, values, linestyle="none", marker="o", markersize=3, color=own,
            markerfacecolor=own if is_timed else look().background, label=f"_{row['phase']} {row['launch']}",
        )  # fmt: skip
    if phases[0]["value"] is not None:
        axes.axhline(phases[0]["value"], color=look().ink, linewidth=0.9, label="_median")


def _figure_text(key: Row, shown: Sequence[tuple[Row, list[Row]]], total: int) -> FigureText:
    kinds = sorted(key["doubts"], key=lambda kind: kind in KINDS and KINDS[kind].severity == "info")
    sentences = [KINDS[kind].sentence if kind in KINDS else kind.replace("_", " ") + "." for kind in kinds]
    more = f"{len(sentences) - MOST_DOUBTS} more doubts are not listed." if len(sentences) > MOST_DOUBTS else None
    left_out = f"Left out: {total - len(shown)} of {total} launches." if total > len(shown) else None
    has_warmup = any(row["phase"] == "warmup" for _, phases in shown for row in phases)
    entries = [legend_entry("timed", colour(0), 0)]
    if has_warmup:
        entries.insert(0, legend_entry("warm-up", look().grey, 0, markerfacecolor=look().background))
    notes = (*words.sentences([NOTE, left_out]), *sentences[:MOST_DOUBTS], more)
    return FigureText(
        title=f"{LaunchTimeline.title}: {key['model_id']}, {words.point(key)} ({trust(key)})",
        subtitle=words.SEPARATOR.join((words.cell(key), str(key["task"]))),
        source=words.provenance([key]),
        notes=tuple(note for note in notes if note),
        legend=tuple(entries),
    )


PLUGIN = LaunchTimeline()
