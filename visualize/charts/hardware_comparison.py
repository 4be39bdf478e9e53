"""One model on all hardware: one panel per sequence length and other axes, one line per configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from visualize.drawing import words
from visualize.drawing.batch_charts import BATCH_LABEL
from visualize.drawing.configurations import CONFIGURATION, MOST_COLOURS, configurations, fastest
from visualize.drawing.figure import Figure, NotDrawn, Panel
from visualize.drawing.marks import ends, legend, marks_of, spread
from visualize.drawing.rows import MODEL_COLUMNS, POINT_COLUMNS, ChartPlugin, Row, details, grouped, is_ok
from visualize.drawing.scales import size_axis, value_axis

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

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, SUBJECT):
            measured = [
                row for row in members if is_ok(row) and row["validity"] != "invalid" and row["value"] is not None
            ]
            drawn = measured
            if len(grouped(measured, CONFIGURATION)) > 1:  # only points that two configurations share
                points = Counter(point for point, _ in {(_at(row, POINT), _at(row, CONFIGURATION)) for row in measured})
                drawn = [row for row in measured if points[_at(row, POINT)] > 1]
            if drawn:
                yield _figure(key, members, drawn)
            elif measured:
                count = len(grouped(measured, CONFIGURATION))
                why = f"{count} configurations, but no two share a point"
                yield NotDrawn(what=f"{self.title}: {key['model_id']}", why=why)
            else:
                yield NotDrawn(what=f"{self.title}: {key['model_id']}", why=words.nothing_to_draw(members))


def _at(row: Row, columns: Sequence[str]) -> tuple[object, ...]:
    return tuple(row[column] for column in columns)


def _figure(key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Figure:
    series, slower = fastest(configurations(drawn), MOST_COLOURS)
    drawn = [row for one in series for row in one.rows]
    groups = grouped(drawn, POINT_COLUMNS)
    shown = spread(groups, MOST_PANELS)
    drawn = [row for _, rows in shown for row in rows]
    x = size_axis(BATCH_LABEL, sorted({int(row["batch_size"]) for row in drawn}), 6)
    y = value_axis(words.value_title("latency_median_ms"), ends(drawn))
    columns = min(len(shown), COLUMNS)
    panels = []
    for point, rows in shown:
        here = set(map(id, rows))
        parts = [(one, [row for row in one.rows if id(row) in here]) for one in series]
        lines = tuple(one.line(marks_of(part, "batch_size")) for one, part in parts if part)
        title = words.unbroken(words.point(point, with_batch=False))
        panels.append(Panel(x=x, y=y, elements=lines, title=title, height_in=PANEL_HEIGHT_IN))
    kept = set(map(id, drawn))
    series = [one for one in series if kept.intersection(map(id, one.rows))]
    left_out = (slower, words.left_out(len(groups) - len(shown), len(groups), "panels"))
    alone = "Only one configuration has been measured, so there is no comparison." if len(series) == 1 else None
    return Figure(
        title=f"{HardwareComparison.title}: {key['model_id']}",
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
        panels=tuple(panels),
        columns=columns,
        width_in=max(6.4, PANEL_WIDTH_IN * columns),
        legend=legend(series, drawn),
        name_parts=(str(key["model_id"]),),
        details=details(key, MODEL_COLUMNS),
    )


PLUGIN = HardwareComparison()
