"""Memory by phase, from before loading to inference, and device utilization, for each point of a cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarking.core.metrics import PEAK_MEMORY
from visualize.drawing import words
from visualize.drawing.batch_charts import MOST_LINES
from visualize.drawing.figure import Figure, NotDrawn, Panel
from visualize.drawing.marks import Series, ends, legend, marks_of
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Row,
    details,
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
COLUMNS = tuple(column for phases in PANELS.values() for column in phases)
SQL = f"""
SELECT {{facts}}, {", ".join(f"r.{column}" for column in COLUMNS)}
FROM {{tables}}
WHERE r.result_id IN {{latest}} AND r.status = 'ok' AND {{selected}}
ORDER BY {{order}}
"""  # noqa: S608 - columns of this module
PANEL_IN, HEIGHT_IN = 4.2, 3.4
NOTE = "Medians over launches, one reading each; no interval."


class MemoryPhases(ChartPlugin):
    name = "memory_phases"
    title = "Memory by phase"
    needs = "a result with memory readings of two phases"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS)):
            drawn = [row for row in members if is_ok(row)]
            panels = {title: phases for title in PANELS if len(phases := measured(drawn, title)) > 1}
            if panels:
                yield _figure(key, drawn, panels)
            else:
                what = f"{self.title}: {key['model_id']} on {words.cell(key)}"
                yield NotDrawn(what=what, why="no memory readings of two phases")


def measured(rows: Sequence[Row], title: str) -> tuple[str, ...]:
    """The columns of a panel with a value in any row. The size of the weights alone is not a device reading."""
    columns = tuple(column for column in PANELS[title] if any(row[column] is not None for row in rows))
    is_read = any(column.startswith(OF_THE_DEVICE) for column in columns)
    return columns if is_read or "memory_weights_mb" not in columns else ()


def _figure(key: Row, drawn: Sequence[Row], panels: Mapping[str, tuple[str, ...]]) -> Figure:
    groups = grouped(drawn, ("batch_size", *POINT_COLUMNS))
    shown = groups[-MOST_LINES:]  # the largest points need the most memory
    rows = [found[-1] for _, found in shown]
    series = [Series(label=words.point(row), rows=(row,), style=style) for style, row in enumerate(rows)]
    rest = len(groups) - len(shown)
    left_out = f"Left out: the {rest} smallest of {len(groups)} points; narrow the selection to see them."
    # The highest peak memory of a valid result during inference.
    column = next((name for name in PEAKS if any(row[name] is not None for row in rows)), None)
    sound = [row for row in rows if trust(row) == "valid" and column and row[column] is not None]
    if column is None or not sound or key["simulated"]:
        title = f"{MemoryPhases.title}: {key['model_id']}"
    else:
        most = max(sound, key=lambda row: float(row[column]))
        title = f"{key['model_id']}: memory peaks at {number(most[column])} MB at {words.point(most)}"
    return Figure(
        title=title,
        subtitle=words.subtitle(title, MemoryPhases.title, words.cell(key), str(key["task"])),
        source=words.provenance(rows),
        notes=words.sentences([NOTE], (words.doubts(rows), left_out if rest else None)),
        panels=tuple(_panel(heading, columns, series) for heading, columns in panels.items()),
        columns=len(panels),
        width_in=max(6.4, PANEL_IN * len(panels)),
        legend=legend(series, rows),
        name_parts=tuple(str(key[column]) for column in CELL_COLUMNS),
        details=details(key, CELL_DETAIL_COLUMNS),
    )


def _panel(title: str, columns: Sequence[str], series: Sequence[Series]) -> Panel:
    phases = {one.label: _phases(one.rows[0], columns) for one in series}
    values = ends([row for rows in phases.values() for row in rows])
    lines = tuple(one.line(marks_of(phases[one.label], "phase")) for one in series)
    x = name_axis([PANELS[title][column] for column in columns], edge=0.3)
    y = value_axis(title, values, may_be_log=False)
    return Panel(x=x, y=y, elements=lines, height_in=HEIGHT_IN)


def _phases(row: Row, columns: Sequence[str]) -> tuple[Row, ...]:
    """One row per phase with a reading: its position and value."""
    return tuple(
        {**row, "phase": place, "value": row[column], "low": None, "high": None}
        for place, column in enumerate(columns)
        if row[column] is not None
    )


PLUGIN = MemoryPhases()
