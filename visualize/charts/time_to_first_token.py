"""Time to first token against batch size and prompt length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visualize.drawing import words
from visualize.drawing.lines import BatchPicture, draw_cells
from visualize.drawing.rows import ChartPlugin, Drawing, NotDrawn, Row

SQL = """
SELECT {facts},
    r.time_to_first_token_ms AS value, r.time_to_first_token_ci_low_ms AS low,
    r.time_to_first_token_ci_high_ms AS high
FROM {tables}
WHERE r.result_id IN {latest} AND r.new_tokens IS NOT NULL AND {selected}
ORDER BY {order}
"""


class TimeToFirstToken(ChartPlugin):
    name = "time_to_first_token"
    title = "Time to first token"
    needs = "a generative model with a measured result"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        picture = BatchPicture(
            title=self.title,
            quantity="the time to the first token",
            value_label=lambda row: words.value_title("time_to_first_token_ms"),
            notes=lambda drawn: [words.interval(drawn)],
            also_by_sequence=True,
        )
        return draw_cells(picture, rows)


PLUGIN = TimeToFirstToken()
