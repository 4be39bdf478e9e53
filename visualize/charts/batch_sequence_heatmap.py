"""Heat map of throughput by batch size and sequence length."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from benchmarking.core.axes import AXES
from visualize.drawing import words
from visualize.drawing.batch_charts import BATCH_LABEL
from visualize.drawing.figure import Figure, NotDrawn
from visualize.drawing.marks import figure, held, not_drawn
from visualize.drawing.panels import Cell, heat_key, heat_panel
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    JUDGED_THROUGHPUT,
    POINT_COLUMNS,
    ChartPlugin,
    Row,
    grouped,
    is_ok,
    trust,
)
from visualize.drawing.scales import number
from visualize.drawing.verdicts import clear_winner

ALIKE = (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS, *(name for name in POINT_COLUMNS if name != "sequence_length"))
"""What all results of a picture share: everything except batch size and sequence length."""
CELL_WIDTH_IN, LEAST_WIDTH_IN = 0.72, 6.4


class BatchSequenceHeatmap(ChartPlugin):
    name = "batch_sequence_heatmap"
    title = "Throughput by batch size and sequence length"
    needs = "a model measured at two or more batch sizes and sequence lengths"
    columns = JUDGED_THROUGHPUT
    condition = "r.sequence_length IS NOT NULL"
    is_judged = True

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, ALIKE):
            drawn = [row for row in members if is_ok(row) and row["value"] is not None]
            if not drawn:
                yield not_drawn(self, key, words.nothing_to_draw(members), of_cell=True)
            elif min(len({row[name] for row in drawn}) for name in ("batch_size", "sequence_length")) < 2:
                yield not_drawn(self, key, "needs two batch sizes and two sequence lengths", of_cell=True)
            else:
                yield self._figure(key, members, drawn)

    def _figure(self, key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Figure:
        batches, lengths = (sorted({row[name] for row in members}) for name in ("batch_size", "sequence_length"))
        cells = {}
        for row in members:  # the value, marked with ~ if doubtful, or the status of a point that was not measured
            value = row["value"] if is_ok(row) else None
            state = trust(row)
            text = ("~" if state == "doubtful" else "") + number(value) if value is not None else ""
            status = str(row["status"]).replace("_", " ")
            cells[batches.index(row["batch_size"]), lengths.index(row["sequence_length"])] = Cell(
                value=value,
                text=text or (status if not is_ok(row) else "no value"),
                is_invalid=value is not None and state == "invalid",
                words=f"{words.point(row)}: {text or status}",
            )
        unit = "inputs/s" if drawn[0]["new_tokens"] is None else "generated tokens/s"
        sound = [row for row in drawn if trust(row) != "invalid"]
        finding, best = None, clear_winner(sound, "higher")
        if best:
            place = f"batch {best['batch_size']}, sequence {best['sequence_length']:,}"
            finding = f"highest throughput at {place} ({number(best['value'])} {unit})"
        panel = heat_panel(
            cells, [f"{size:,}" for size in batches], [f"{size:,}" for size in lengths], better="higher",
            title=f"Throughput ({unit}), {words.better('higher')}", x_title=BATCH_LABEL,
            y_title=AXES["sequence_length"].title,
        )  # fmt: skip
        lacking = [words.doubts(drawn, ("~", "Crossed out")), words.missing_points(members, drawn)]
        return figure(
            self, key, drawn, [panel], finding, of_cell=True, place=[held(key, sequence_length=None)],
            names=words.point_names(key["new_tokens"], key["concurrency"], json.loads(key["axes"])),
            notes=words.sentences(["Darker is faster."], lacking),
            width_in=max(LEAST_WIDTH_IN, 1.9 + CELL_WIDTH_IN * len(batches)),
            legend=heat_key([row["value"] for row in sound], unit, better="higher"),
        )  # fmt: skip


PLUGIN = BatchSequenceHeatmap()
