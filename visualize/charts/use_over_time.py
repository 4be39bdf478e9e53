"""Utilization, memory and power of the device over time, for the points of a cell, and of a server under load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from visualize.drawing import words
from visualize.drawing.figure import Figure, Mark, NotDrawn, Panel
from visualize.drawing.marks import Series, figure, legend, not_drawn
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Row,
    grouped,
    trust,
)
from visualize.drawing.scales import value_axis

TIMES = "monitor_time"
"""Raw metric with the time of each sample, in ms since the first."""
PANELS: Mapping[str, str] = {
    "utilization": "Device\nutilization (%)",
    "memory_device_used": "Device memory\nin use (MB)",
    "memory_resident": "Memory of the\nprocess (MB)",
    "power": "Power (W)",
    "server_running": "Requests\nrunning",
    "server_waiting": "Requests\nwaiting",
    "server_kv_cache_percent": "KV cache\nin use (%)",
}
"""Other raw metrics of the monitor -> axis titles. A server's own metrics are sampled during the load."""
MOST_POINTS = 6
"""Maximum points of a picture; each has one line per launch."""
WIDTH_IN, PANEL_IN = 7.6, 1.6
NOTE = "Sampled ten times a second during extra calls after the timed ones; one line per launch."
NOTE_OF_LOADS = "Sampled twice a second during the load; one line per repetition."


class UseOverTime(ChartPlugin):
    name = "use_over_time"
    title = "Device utilization over time"
    needs = "raw samples of a device with readable utilization"
    columns = "raw.launch, raw.metric, raw.samples"
    joins = "JOIN raw_benchmark_data raw ON raw.result_id = r.result_id"
    condition = f"""r.status = 'ok' AND raw.phase = 'measure' AND len(raw.samples) > 0
        AND raw.metric IN ({", ".join(f"'{name}'" for name in (TIMES, *PANELS))})"""
    then_by = "raw.launch, raw.metric"
    loads = "also"

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS)):
            points = [samples for _, samples in grouped(members, ("batch_size", *POINT_COLUMNS, "result_id"))]
            read = [(samples, found) for samples in points if (found := launches(samples))]
            if read:
                yield self._figure(key, read)
            else:
                yield not_drawn(self, key, "no readings with time stamps", of_cell=True)

    def _figure(self, key: Row, points: Sequence[tuple[list[Row], list[dict[str, list[float]]]]]) -> Figure:
        shown, is_load = points[-MOST_POINTS:], key["device"] == "server"
        series = [
            Series(label=words.point(rows[0]), rows=tuple(rows), style=style) for style, (rows, _) in enumerate(shown)
        ]
        readings = [found for _, found in shown]
        times = [time for launched in readings for one in launched for time in one[TIMES]]
        x = value_axis("Time since the first reading (s)", times, may_be_log=False)
        panels = []
        for name, title in PANELS.items():
            lines = []  # one for each launch with the reading
            for one, launched in zip(series, readings, strict=True):
                state = trust(one.rows[0])
                for place, reading in enumerate(launched):
                    if name in reading:
                        about = f"launch {place + 1}"
                        pairs = zip(reading[TIMES], reading[name], strict=True)
                        marks = [Mark(x=time, y=value, state=state, words=about) for time, value in pairs]
                        lines.append(one.line(marks, role=name, width=1.0, size=3.5))
            if lines:
                y = value_axis(title, [one.y for line in lines for one in line.marks], may_be_log=False)
                panels.append(Panel(x=x, y=y, elements=tuple(lines), height_in=PANEL_IN))
        rows = [one.rows[0] for one in series]
        left_out = words.left_out(len(points) - len(shown), len(points), "points", "smallest")
        lacking = (words.doubts(rows), left_out)
        return figure(
            self, key, rows, panels, of_cell=True, width_in=WIDTH_IN, legend=legend(series, rows),
            title=f"{'The server during the load' if is_load else self.title}: {key['model_id']}",
            subtitle=words.SEPARATOR.join((words.cell(key), str(key["task"]))),
            notes=words.sentences([NOTE_OF_LOADS if is_load else NOTE], lacking),
        )  # fmt: skip


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


PLUGIN = UseOverTime()
