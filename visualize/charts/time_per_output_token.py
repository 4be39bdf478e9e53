"""Time per token after the first, against batch size and prompt length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visualize.drawing import words
from visualize.drawing.lines import BatchPicture, draw_cells
from visualize.drawing.rows import ChartPlugin, Drawing, NotDrawn, Row

SQL = """
SELECT {facts},
    r.time_per_output_token_ms AS value, r.time_per_output_token_ci_low_ms AS low,
    r.time_per_output_token_ci_high_ms AS high
FROM {tables}
WHERE r.result_id IN {latest} AND r.new_tokens IS NOT NULL AND {selected}
ORDER BY {order}
"""


class TimePerOutputToken(ChartPlugin):
    name = "time_per_output_token"
    title = "Time per output token"
    needs = "a model that generates two or more tokens"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        picture = BatchPicture(
            title=self.title,
            quantity="the time per token",
            value_label=lambda row: words.value_title("time_per_output_token_ms"),
            notes=lambda drawn: [words.interval(drawn)],
            also_by_sequence=True,
        )
        return draw_cells(picture, rows)


PLUGIN = TimePerOutputToken()
