"""Throughput in inputs or generated tokens per second against batch size, one line per sequence length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visualize.drawing import words
from visualize.drawing.lines import BatchPicture, draw_cells
from visualize.drawing.rows import ChartPlugin, Drawing, NotDrawn, Row

# One call is in flight at a time, so throughput is the work of a call divided by its latency, and its interval is the
# scaled inverse of the latency interval.
SQL = """
SELECT {facts},
    CASE WHEN r.new_tokens IS NULL THEN r.throughput_samples_per_sec ELSE r.throughput_tokens_per_sec END AS value,
    value * r.latency_median_ms / r.latency_ci_high_ms AS low,
    value * r.latency_median_ms / r.latency_ci_low_ms AS high
FROM {tables}
WHERE r.result_id IN {latest} AND {selected}
ORDER BY {order}
"""


class ThroughputVsBatchSize(ChartPlugin):
    name = "throughput_vs_batch_size"
    title = "Throughput vs batch size"
    needs = "a model with a measured result"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        picture = BatchPicture(title=self.title, quantity="the throughput", value_label=_label, notes=_notes)
        return draw_cells(picture, rows)


def _label(row: Row) -> str:
    """Generated tokens if the model generates, else images or other inputs."""
    if row["new_tokens"] is not None:
        return f"Throughput (generated tokens/s)\n{words.better('higher')}"
    is_image = row["sequence_length"] is None and row["image_size"] is not None
    return f"Throughput ({'images' if is_image else 'inputs'}/s)\n{words.better('higher')}"


def _notes(drawn: Sequence[Row]) -> list[str]:
    return [words.interval(drawn, "Band or whisker, converted from latency")]


PLUGIN = ThroughputVsBatchSize()
