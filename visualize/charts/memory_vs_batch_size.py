"""Peak memory against batch size, one line per sequence length, with the size of the weights for reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarking.core.metrics import PEAK_MEMORY
from visualize.drawing import words
from visualize.drawing.lines import BatchPicture, draw_cells
from visualize.drawing.rows import (
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    grouped,
    memory_column,
)
from visualize.drawing.style import number

SQL = """
SELECT {facts}, {memory}, r.memory_weights_mb
FROM {tables}
WHERE r.result_id IN {latest} AND {selected}
ORDER BY {order}
"""


class MemoryVsBatchSize(ChartPlugin):
    name = "memory_vs_batch_size"
    title = "Peak memory vs batch size"
    needs = "a model with a memory reading"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for _, members in grouped(rows, ("hardware_id", "device", "runtime")):
            column = memory_column(members) or PEAK_MEMORY[0]
            rows_of_column = [{**row, "value": row[column], "low": None, "high": None} for row in members]
            yield from draw_cells(_picture(self.title, words.value_title(column)), rows_of_column)


def _picture(title: str, label: str) -> BatchPicture:
    note = "Median over launches, one reading each; no interval."
    return BatchPicture(
        title=title,
        quantity="peak memory",
        has_interval=False,
        value_label=lambda row: label,
        notes=lambda drawn: [note],
        reference=_weights,
    )


def _weights(drawn: Sequence[Row]) -> tuple[str, float] | None:
    sizes = [row["memory_weights_mb"] for row in drawn if row["memory_weights_mb"] is not None]
    return (f"weights alone, {number(max(sizes))} MB", max(sizes)) if sizes else None


PLUGIN = MemoryVsBatchSize()
