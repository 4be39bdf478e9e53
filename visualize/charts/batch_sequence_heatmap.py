"""Heat map of throughput by batch size and sequence length."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from benchmarking.core.axes import AXES
from visualize.drawing import words
from visualize.drawing.batch_charts import BATCH_LABEL
from visualize.drawing.figure import Figure, NotDrawn
from visualize.drawing.panels import Cell, heat_key, heat_panel
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Row,
    details,
    grouped,
    is_ok,
    trust,
)
from visualize.drawing.scales import number
from visualize.drawing.verdicts import clear_winner

SQL = """
SELECT {facts},
    CASE WHEN r.new_tokens IS NULL THEN r.throughput_samples_per_sec ELSE r.throughput_tokens_per_sec END AS value,
    r.latency_median_ms,
    value * r.latency_median_ms / r.latency_ci_high_ms AS low,
    value * r.latency_median_ms / r.latency_ci_low_ms AS high
FROM {tables}
WHERE r.result_id IN {latest} AND r.sequence_length IS NOT NULL AND {selected}
ORDER BY {order}
"""

ALIKE = (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS, *(name for name in POINT_COLUMNS if name != "sequence_length"))
"""What all results of a picture share: everything except batch size and sequence length."""
CELL_WIDTH_IN, LEAST_WIDTH_IN = 0.72, 6.4


class BatchSequenceHeatmap(ChartPlugin):
    name = "batch_sequence_heatmap"
    title = "Throughput by batch size and sequence length"
    needs = "a model measured at two or more batch sizes and sequence lengths"
    sql = SQL
    is_judged = True

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, ALIKE):
            drawn = [row for row in members if is_ok(row) and row["value"] is not None]
            what = f"{self.title}: {key['model_id']} on {words.cell(key)}"
            if not drawn:
                yield NotDrawn(what=what, why=words.nothing_to_draw(members))
            elif min(len(_sorted(drawn, name)) for name in ("batch_size", "sequence_length")) < 2:
                yield NotDrawn(what=what, why="needs two batch sizes and two sequence lengths")
            else:
                yield _figure(key, members, drawn)


def _sorted(rows: Sequence[Row], column: str) -> list[int]:
    return sorted({row[column] for row in rows})


def _figure(key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Figure:
    batches, lengths = _sorted(members, "batch_size"), _sorted(members, "sequence_length")
    cells = {(batches.index(row["batch_size"]), lengths.index(row["sequence_length"])): _cell(row) for row in members}
    sound = [row for row in drawn if trust(row) != "invalid"]
    same = {**key, "batch_size": 1, "sequence_length": None}
    title = f"{BatchSequenceHeatmap.title}: {key['model_id']}"
    best = clear_winner(sound, "higher")
    if best:
        place = f"batch {best['batch_size']}, sequence {best['sequence_length']:,}"
        title = f"{key['model_id']}: highest throughput at {place} ({number(best['value'])} {_unit(drawn)})"
    panel = heat_panel(
        cells, [f"{size:,}" for size in batches], [f"{size:,}" for size in lengths], better="higher",
        title=f"Throughput ({_unit(drawn)}), {words.better('higher')}", x_title=BATCH_LABEL,
        y_title=AXES["sequence_length"].title,
    )  # fmt: skip
    return Figure(
        title=title,
        subtitle=words.subtitle(
            title, BatchSequenceHeatmap.title, words.cell(key), str(key["task"]),
            words.unbroken(words.point(same, with_batch=False)),
        ),
        source=words.provenance(drawn),
        notes=words.sentences(
            ["Darker is faster."], [words.doubts(drawn, ("~", "Crossed out")), words.missing_points(members, drawn)]
        ),
        panels=(panel,),
        width_in=max(LEAST_WIDTH_IN, 1.9 + CELL_WIDTH_IN * len(batches)),
        legend=heat_key([row["value"] for row in sound], _unit(drawn), better="higher"),
        name_parts=(
            *(str(key[column]) for column in CELL_COLUMNS),
            *words.point_names(key["new_tokens"], key["concurrency"], json.loads(key["axes"])),
        ),
        details=details(key, CELL_DETAIL_COLUMNS),
    )  # fmt: skip


def _unit(drawn: Sequence[Row]) -> str:
    return "inputs/s" if drawn[0]["new_tokens"] is None else "generated tokens/s"


def _cell(row: Row) -> Cell:
    """The value, marked with ~ if doubtful, or the status of a point that was not measured."""
    if not is_ok(row) or row["value"] is None:
        status = str(row["status"]).replace("_", " ")
        return Cell(value=None, text=status if not is_ok(row) else "no value", words=f"{words.point(row)}: {status}")
    state = trust(row)
    text = ("~" if state == "doubtful" else "") + number(row["value"])
    return Cell(value=row["value"], text=text, is_invalid=state == "invalid", words=f"{words.point(row)}: {text}")


PLUGIN = BatchSequenceHeatmap()
