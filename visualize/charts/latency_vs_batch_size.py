"""Latency of a call against batch size, one line per sequence length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visualize.drawing import words
from visualize.drawing.lines import BatchPicture, draw_cells
from visualize.drawing.rows import ChartPlugin, Drawing, NotDrawn, Row

SQL = """
SELECT {facts},
    r.latency_median_ms AS value, r.latency_ci_low_ms AS low, r.latency_ci_high_ms AS high
FROM {tables}
WHERE r.result_id IN {latest} AND {selected}
ORDER BY {order}
"""


class LatencyVsBatchSize(ChartPlugin):
    name = "latency_vs_batch_size"
    title = "Latency vs batch size"
    needs = "a model with a measured result"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        picture = BatchPicture(
            title=self.title,
            quantity="the latency",
            value_label=lambda row: words.value_title("latency_median_ms"),
            notes=lambda drawn: [words.interval(drawn)],
        )
        return draw_cells(picture, rows)


PLUGIN = LatencyVsBatchSize()
