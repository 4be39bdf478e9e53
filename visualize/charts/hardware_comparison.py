"""One model on all hardware: one panel per sequence length and other axes, one line per configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from visualize.drawing import words
from visualize.drawing.batch_charts import BATCH_LABEL
from visualize.drawing.configurations import CONFIGURATION, MOST_COLOURS, configurations, fastest
from visualize.drawing.figure import Figure, NotDrawn, Panel
from visualize.drawing.marks import ends, figure, legend, marks_of, not_drawn, spread
from visualize.drawing.rows import LATENCY, POINT_COLUMNS, SUBJECT, ChartPlugin, Row, grouped, is_ok
from visualize.drawing.scales import size_axis, value_axis

UNSHARED = "measured on a single configuration"
MOST_PANELS = 9
COLUMNS, PANEL_WIDTH_IN, PANEL_HEIGHT_IN = 3, 3.0, 2.7


class HardwareComparison(ChartPlugin):
    name = "hardware_comparison"
    title = "Latency by hardware"
    needs = "a model measured at the same points on two devices, runtimes or precisions"
    columns = LATENCY
    newest = "comparable"

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, SUBJECT):
            measured = [
                row for row in members if is_ok(row) and row["validity"] != "invalid" and row["value"] is not None
            ]
            count = len(grouped(measured, CONFIGURATION))
            drawn = measured
            if count > 1:  # only points that two configurations share
                places = {(_at(row, ("batch_size", *POINT_COLUMNS)), _at(row, CONFIGURATION)) for row in measured}
                shared = Counter(point for point, _ in places)
                drawn = [row for row in measured if shared[_at(row, ("batch_size", *POINT_COLUMNS))] > 1]
            if drawn:
                yield self._figure(key, members, drawn)
            elif measured:
                yield not_drawn(self, key, f"{count} configurations, but no two share a point")
            else:
                yield not_drawn(self, key, words.nothing_to_draw(members))

    def _figure(self, key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Figure:
        series, slower = fastest(configurations(drawn), MOST_COLOURS)
        groups = grouped([row for one in series for row in one.rows], POINT_COLUMNS)
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
        alone = "Only one configuration has results, so there is no comparison." if len(series) == 1 else None
        notes = words.caption(
            words.accountable(members, drawn, *left_out), drawn, words.interval(drawn), lacking=(alone, *left_out),
            named=words.cell_and_point, otherwise=UNSHARED,
        )  # fmt: skip
        width_in = max(6.4, PANEL_WIDTH_IN * columns)
        return figure(
            self, key, drawn, panels, notes=notes, columns=columns, width_in=width_in, legend=legend(series, drawn)
        )


def _at(row: Row, columns: Sequence[str]) -> tuple[object, ...]:
    return tuple(row[column] for column in columns)


PLUGIN = HardwareComparison()
