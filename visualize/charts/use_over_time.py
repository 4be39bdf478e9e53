"""Utilization, memory and power of the device over time, for the points of a cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure
from visualize.drawing.lines import doubtful_entries, legend_entry
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    details,
    grouped,
    trust,
)
from visualize.drawing.style import colour, look, marker, number, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TIMES = "monitor_time"
"""Raw metric with the time of each sample, in ms since the first."""
PANELS: Mapping[str, str] = {
    "utilization": "Device\nutilization (%)",
    "memory_device_used": "Device memory\nin use (MB)",
    "memory_resident": "Memory of the\nprocess (MB)",
    "power": "Power (W)",
}
"""Other raw metrics of the monitor -> axis titles."""
SQL = f"""
SELECT {{facts}}, raw.launch, raw.metric, raw.samples
FROM {{tables}}
JOIN raw_benchmark_data raw ON raw.result_id = r.result_id
WHERE r.result_id IN {{latest}} AND r.status = 'ok' AND raw.phase = 'measure' AND len(raw.samples) > 0
    AND raw.metric IN ({", ".join(f"'{name}'" for name in (TIMES, *PANELS))}) AND {{selected}}
ORDER BY {{order}}, raw.launch, raw.metric
"""  # noqa: S608 - names of this module
MOST_POINTS = 6
"""Maximum points of a picture; each has one line per launch."""
WIDTH_IN, PANEL_IN = 7.6, 1.6
NOTE = "Sampled ten times a second during extra calls after the timed ones; one line per launch."


class UseOverTime(ChartPlugin):
    name = "use_over_time"
    title = "Device utilization over time"
    needs = "raw samples of a device with readable utilization"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS)):
            points = [samples for _, samples in grouped(members, ("batch_size", *POINT_COLUMNS, "result_id"))]
            if any(launches(samples) for samples in points):
                yield _drawing(key, [samples for samples in points if launches(samples)])
            else:
                what = f"{self.title}: {key['model_id']} on {words.cell(key)}"
                yield NotDrawn(what=what, why="no readings with time stamps")


def launches(rows: Sequence[Row]) -> list[dict[str, list[float]]]:
    """For each launch, readings by raw metric with their times in s; readings without matching times are dropped."""
    readings = []
    for _, of_launch in grouped(rows, ("launch",)):
        series = {str(row["metric"]): list(row["samples"]) for row in of_launch}
        times = [time_ms / 1e3 for time_ms in series.pop(TIMES, ())]
        whole = {name: values for name, values in series.items() if len(values) == len(times)}
        if whole:
            readings.append({TIMES: times, **whole})
    return readings


def _drawing(key: Row, points: Sequence[list[Row]]) -> Drawing:
    shown = points[-MOST_POINTS:]
    series = [(rows[0], launches(rows)) for rows in shown]
    names = [name for name in PANELS if any(name in one for _, readings in series for one in readings)]
    with theme():
        figure, panels = new_figure(WIDTH_IN, PANEL_IN * len(names) + 0.4, len(names), sharey=False)
        for axes, name in zip(panels, names, strict=True):
            for style, (row, readings) in enumerate(series):
                _draw_launches(axes, name, row, readings, style)
            axes.set_ylabel(PANELS[name])
            axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
            axes.yaxis.set_major_formatter(lambda value, _: number(value))
        panels[-1].set_xlabel("Time since the first reading (s)")
        rows = [row for row, _ in series]
        rest = len(points) - len(shown)
        lacking = (
            words.doubts(rows),
            f"Left out: the {rest} smallest of {len(points)} points; narrow the selection to see them."
            if rest
            else None,
        )
        entries = [legend_entry(words.point(row), colour(style), style) for style, row in enumerate(rows)]
        finish(
            figure,
            FigureText(
                title=f"{UseOverTime.title}: {key['model_id']}",
                subtitle=words.SEPARATOR.join((words.cell(key), str(key["task"]))),
                source=words.provenance(rows),
                notes=words.sentences([NOTE], lacking),
                legend=(*entries, *doubtful_entries(rows)),
            ),
        )
    return Drawing(
        figure=figure,
        name_parts=tuple(str(key[column]) for column in CELL_COLUMNS),
        details=details(key, CELL_DETAIL_COLUMNS),
    )


def _draw_launches(axes: Axes, name: str, row: Row, readings: Sequence[Mapping[str, list[float]]], style: int) -> None:
    """One line for each launch with the reading; marks are hollow if the result is doubtful, crosses if invalid."""
    own, state = colour(style), trust(row)
    for number_of, one in enumerate(readings):
        if name in one:
            axes.plot(
                one[TIMES], one[name], color=own, linewidth=1, marker="x" if state == "invalid" else marker(style),
                markersize=3.5, markerfacecolor=own if state == "valid" else look().background,
                label=f"_{name} {words.point(row)} {number_of}",
            )  # fmt: skip


PLUGIN = UseOverTime()
