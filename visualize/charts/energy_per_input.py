"""Energy per input against batch size and sequence length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarking.core.metrics import ENERGY, ENERGY_PARTS
from visualize.drawing import words
from visualize.drawing.lines import BatchPicture, draw_cells
from visualize.drawing.rows import ChartPlugin, Drawing, NotDrawn, Row, grouped, is_ok

COLUMNS = ", ".join(f"r.{column}" for column in ENERGY)
SQL = f"""
SELECT {{facts}}, {COLUMNS}
FROM {{tables}}
WHERE r.result_id IN {{latest}} AND coalesce({COLUMNS}) IS NOT NULL AND {{selected}}
ORDER BY {{order}}
"""  # noqa: S608 - columns of the table of metrics

NOTE = "Median over launches, one reading each, including idle power; no interval."


class EnergyPerInput(ChartPlugin):
    name = "energy_per_input"
    title = "Energy per input"
    needs = "a device with a readable energy counter"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for _, members in grouped(rows, ("hardware_id", "device", "runtime")):
            column = next(name for name in ENERGY if any(row[name] is not None for row in members))
            yield from draw_cells(_picture(self.title, column), [_per_input(row, column) for row in members])


def _per_input(row: Row, column: str) -> Row:
    energy_j = row[column] if is_ok(row) else None
    return {**row, "value": None if energy_j is None else energy_j / row["batch_size"], "low": None, "high": None}


def _picture(title: str, column: str) -> BatchPicture:
    label = f"Energy of the {ENERGY_PARTS[column]} per input (J)\n{words.better('lower')}"
    return BatchPicture(
        title=title,
        quantity="the energy per input",
        has_interval=False,
        value_label=lambda row: label,
        notes=lambda drawn: [NOTE],
        also_by_sequence=True,
    )


PLUGIN = EnergyPerInput()
