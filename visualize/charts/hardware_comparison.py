"""One model on all hardware: one panel per sequence length and other axes, one line per configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from visualize.drawing import words
from visualize.drawing.configurations import CONFIGURATION, MOST_COLOURS, configurations, fastest
from visualize.drawing.layout import FigureText, finish, label_edges, new_figure, wrap
from visualize.drawing.lines import BATCH_LABEL, Line, draw_lines, legend_entries, scale, spread
from visualize.drawing.rows import (
    MODEL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    details,
    grouped,
    is_ok,
)
from visualize.drawing.style import TEXT_SIZE, theme

SQL = """
SELECT {facts},
    r.latency_median_ms AS value, r.latency_ci_low_ms AS low, r.latency_ci_high_ms AS high
FROM {tables}
WHERE r.result_id IN {comparable} AND {selected}
ORDER BY {order}
"""

SUBJECT = ("model_id", *MODEL_COLUMNS)
"""What all results of a picture share."""
POINT = ("batch_size", *POINT_COLUMNS)
UNSHARED = "measured on a single configuration"
MOST_PANELS = 9
COLUMNS, PANEL_WIDTH_IN, PANEL_HEIGHT_IN = 3, 3.0, 2.7


class HardwareComparison(ChartPlugin):
    name = "hardware_comparison"
    title = "Latency by hardware"
    needs = "a model measured at the same points on two devices, runtimes or precisions"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, SUBJECT):
            measured = [row for row in members if is_ok(row) and _is_comparable(row)]
            drawn = _at_shared_points(measured)
            if drawn:
                yield _drawing(self.title, key, members, drawn)
            elif measured:
                count = len(grouped(measured, CONFIGURATION))
                why = f"{count} configurations, but no two share a point"
                yield NotDrawn(what=f"{self.title}: {key['model_id']}", why=why)
            else:
                yield NotDrawn(what=f"{self.title}: {key['model_id']}", why=words.nothing_to_draw(members))


def _is_comparable(row: Row) -> bool:
    return row["validity"] != "invalid" and row["value"] is not None


def _at_shared_points(measured: Sequence[Row]) -> list[Row]:
    """Rows at points that at least two configurations share; all rows if there is only one configuration."""
    if len(grouped(measured, CONFIGURATION)) <= 1:
        return list(measured)
    points = Counter(point for point, _ in {(_at(row, POINT), _at(row, CONFIGURATION)) for row in measured})
    return [row for row in measured if points[_at(row, POINT)] > 1]


def _at(row: Row, columns: Sequence[str]) -> tuple[object, ...]:
    return tuple(row[column] for column in columns)


def _drawing(title: str, key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Drawing:
    lines, slower = fastest(configurations(drawn), MOST_COLOURS)
    drawn = [row for line in lines for row in line.rows]
    groups = grouped(drawn, POINT_COLUMNS)
    panels = spread(groups, MOST_PANELS)
    drawn = [row for _, rows in panels for row in rows]
    shown = set(map(id, drawn))
    lines = [line for line in lines if shown.intersection(map(id, line.rows))]
    left_out = (slower, words.left_out(len(groups) - len(panels), len(groups), "panels"))
    columns = min(len(panels), COLUMNS)
    grid_rows = -(-len(panels) // columns)
    with theme():
        width_in = max(6.4, PANEL_WIDTH_IN * columns)
        figure, axes = new_figure(width_in, PANEL_HEIGHT_IN * grid_rows, grid_rows, columns)
        for panel, (point, rows) in zip(axes, panels, strict=False):
            at_point = {id(row) for row in rows}
            chosen = [(line, tuple(row for row in line.rows if id(row) in at_point)) for line in lines]
            draw_lines(panel, [replace(line, rows=part) for line, part in chosen if part])
            panel.set_title(
                wrap(words.unbroken(words.point(point, with_batch=False)), TEXT_SIZE, width_in / columns - 0.5)
            )
        scale(axes[: len(panels)], drawn, most_ticks=6)
        label_edges(axes, len(panels), columns, BATCH_LABEL, words.value_title("latency_median_ms"))
        finish(figure, _figure_text(title, key, members, drawn, lines, left_out))
    return Drawing(figure=figure, name_parts=(str(key["model_id"]),), details=details(key, MODEL_COLUMNS))


def _figure_text(
    title: str,
    key: Row,
    members: Sequence[Row],
    drawn: Sequence[Row],
    lines: Sequence[Line],
    left_out: Sequence[str | None],
) -> FigureText:
    alone = "Only one configuration has been measured, so there is no comparison." if len(lines) == 1 else None
    return FigureText(
        title=f"{title}: {key['model_id']}",
        subtitle=str(key["task"]),
        source=words.provenance(drawn),
        notes=words.caption(
            words.accountable(members, drawn, *left_out),
            drawn,
            words.interval(drawn),
            lacking=(alone, *left_out),
            named=words.cell_and_point,
            otherwise=UNSHARED,
        ),
        legend=legend_entries(lines, drawn),
    )


PLUGIN = HardwareComparison()
