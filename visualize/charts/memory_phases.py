"""Memory by phase, from before loading to inference, and device utilization, for each point of a cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarking.core.metrics import PEAK_MEMORY
from visualize.drawing import words
from visualize.drawing.batch_charts import MOST_LINES
from visualize.drawing.figure import Figure, NotDrawn, Panel
from visualize.drawing.marks import Series, figure, legend, mark, not_drawn
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Row,
    grouped,
    is_ok,
    trust,
)
from visualize.drawing.scales import name_axis, number, value_axis

PANELS: Mapping[str, Mapping[str, str]] = {
    "Memory of the process (MB)\nlower is better": {
        "memory_rss_base_mb": "before\nloading",
        "memory_peak_rss_load_mb": "peak while\nloading",
        "memory_rss_mean_mb": "mean while\ninferring",
        "memory_peak_rss_infer_mb": "peak while\ninferring",
    },
    "Memory of the device (MB)\nlower is better": {
        "memory_weights_mb": "weights\nalone",
        "memory_device_used_mean_mb": "mean while\ninferring",
        "memory_device_allocated_peak_mb": "peak\nallocated",
        "memory_device_reserved_peak_mb": "peak\nreserved",
        "memory_device_process_peak_mb": "peak of the\nprocess",
    },
    "Device utilization (%)": {
        "utilization_mean_percent": "mean while\ninferring",
        "utilization_max_percent": "maximum while\ninferring",
    },
}
"""Axis title of each panel -> its columns in phase order, with their labels."""
PEAKS = tuple(name for name in PEAK_MEMORY if any(name in phases for phases in PANELS.values()))
"""Candidates for the title; the first column with a reading is used."""
OF_THE_DEVICE = "memory_device_"
PANEL_IN, HEIGHT_IN = 4.2, 3.4
NOTE = "Medians over launches, one reading each; no interval."


class MemoryPhases(ChartPlugin):
    name = "memory_phases"
    title = "Memory by phase"
    needs = "a result with memory readings of two phases"
    columns = ", ".join(f"r.{column}" for phases in PANELS.values() for column in phases)
    condition = "r.status = 'ok'"

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS)):
            drawn = [row for row in members if is_ok(row)]
            panels = {title: phases for title in PANELS if len(phases := measured(drawn, title)) > 1}
            if panels:
                yield self._figure(key, drawn, panels)
            else:
                yield not_drawn(self, key, "no memory readings of two phases", of_cell=True)

    def _figure(self, key: Row, drawn: Sequence[Row], phases: Mapping[str, tuple[str, ...]]) -> Figure:
        groups = grouped(drawn, ("batch_size", *POINT_COLUMNS))
        shown = groups[-MOST_LINES:]  # the largest points need the most memory
        rows = [found[-1] for _, found in shown]
        series = [Series(label=words.point(row), rows=(row,), style=style) for style, row in enumerate(rows)]
        rest = len(groups) - len(shown)
        left_out = words.left_out(rest, len(groups), "points", "smallest")
        panels = []
        for title, columns in phases.items():
            values = [row[column] for row in rows for column in columns if row[column] is not None]
            lines = tuple(
                one.line(
                    mark(one.rows[0], place, one.rows[0][column])
                    for place, column in enumerate(columns)
                    if one.rows[0][column] is not None
                )
                for one in series
            )
            x = name_axis([PANELS[title][column] for column in columns], edge=0.3)
            panels.append(
                Panel(x=x, y=value_axis(title, values, may_be_log=False), elements=lines, height_in=HEIGHT_IN)
            )
        # The highest peak memory of a valid result during inference.
        column = next((name for name in PEAKS if any(row[name] is not None for row in rows)), None)
        sound = [row for row in rows if trust(row) == "valid" and column and row[column] is not None]
        finding = None
        if column is not None and sound and not key["simulated"]:
            most = max(sound, key=lambda row: float(row[column]))
            finding = f"memory peaks at {number(most[column])} MB at {words.point(most)}"
        return figure(
            self, key, rows, panels, finding, of_cell=True, columns=len(panels),
            notes=words.sentences([NOTE], (words.doubts(rows), left_out)),
            width_in=max(6.4, PANEL_IN * len(panels)), legend=legend(series, rows),
        )  # fmt: skip


def measured(rows: Sequence[Row], title: str) -> tuple[str, ...]:
    """The columns of a panel with a value in any row. The size of the weights alone is not a device reading."""
    columns = tuple(column for column in PANELS[title] if any(row[column] is not None for row in rows))
    is_read = any(column.startswith(OF_THE_DEVICE) for column in columns)
    return columns if is_read or "memory_weights_mb" not in columns else ()


PLUGIN = MemoryPhases()
