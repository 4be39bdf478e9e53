"""Heat map of throughput by batch size and sequence length."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from benchmarking.core.axes import AXES
from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure
from visualize.drawing.lines import BATCH_LABEL
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    clear_winner,
    details,
    grouped,
    is_ok,
    trust,
)
from visualize.drawing.style import SMALL_SIZE, TEXT_SIZE, look, number, spans_decade, text_on, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = """
SELECT {facts},
    CASE WHEN r.new_tokens IS NULL THEN r.throughput_samples_per_sec ELSE r.throughput_tokens_per_sec END AS value,
    value * r.latency_median_ms / r.latency_ci_high_ms AS low,
    value * r.latency_median_ms / r.latency_ci_low_ms AS high
FROM {tables}
WHERE r.result_id IN {latest} AND r.sequence_length IS NOT NULL AND {selected}
ORDER BY {order}
"""

ALIKE = (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS, *(name for name in POINT_COLUMNS if name != "sequence_length"))
"""What all results of a picture share: everything except batch size and sequence length."""
CELL_WIDTH_IN, MARGINS_IN = 0.72, 1.9
LEAST_CELL_IN, MOST_CELL_IN, CELLS_IN = 0.22, 0.42, 6.5
"""Minimum and maximum height of a cell, and the approximate height of the grid: many lengths make low cells."""
LEAST_WIDTH_IN, LEAST_HEIGHT_IN = 6.4, 2.5


class BatchSequenceHeatmap(ChartPlugin):
    name = "batch_sequence_heatmap"
    title = "Throughput by batch size and sequence length"
    needs = "a model measured at two or more batch sizes and sequence lengths"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, ALIKE):
            drawn = [row for row in members if is_ok(row) and row["value"] is not None]
            what = f"{self.title}: {key['model_id']} on {words.cell(key)}"
            if not drawn:
                yield NotDrawn(what=what, why=words.nothing_to_draw(members))
            elif min(len(_sorted(drawn, name)) for name in ("batch_size", "sequence_length")) < 2:
                yield NotDrawn(what=what, why="needs two batch sizes and two sequence lengths")
            else:
                yield _drawing(key, members, drawn)


def _sorted(rows: Sequence[Row], column: str) -> list[int]:
    return sorted({row[column] for row in rows})


def _drawing(key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Drawing:
    batches, lengths = _sorted(members, "batch_size"), _sorted(members, "sequence_length")
    with theme():
        width_in = max(LEAST_WIDTH_IN, MARGINS_IN + CELL_WIDTH_IN * len(batches))
        cell_in = min(max(CELLS_IN / len(lengths), LEAST_CELL_IN), MOST_CELL_IN)
        figure, (axes,) = new_figure(width_in, max(LEAST_HEIGHT_IN, 0.8 + cell_in * len(lengths)))
        _draw_cells(axes, drawn, batches, lengths, _unit(drawn))
        for row in members:
            _write(axes, row, batches.index(row["batch_size"]), lengths.index(row["sequence_length"]))
        axes.set(xlabel=BATCH_LABEL, ylabel=AXES["sequence_length"].title)
        finish(figure, _figure_text(key, members, drawn))
    return Drawing(
        figure=figure,
        name_parts=(
            *(str(key[column]) for column in CELL_COLUMNS),
            *words.point_names(key["new_tokens"], key["concurrency"], json.loads(key["axes"])),
        ),
        details=details(key, CELL_DETAIL_COLUMNS),
    )


def _unit(drawn: Sequence[Row]) -> str:
    return "inputs/s" if drawn[0]["new_tokens"] is None else "generated tokens/s"


def _draw_cells(axes: Axes, drawn: Sequence[Row], batches: Sequence[int], lengths: Sequence[int], unit: str) -> None:
    """One coloured cell per result; other cells stay empty. Invalid results do not affect the colour scale."""
    import seaborn
    from matplotlib.colors import LogNorm, Normalize

    at = {(row["sequence_length"], row["batch_size"]): row["value"] for row in drawn if trust(row) != "invalid"}
    values = list(at.values()) or [1.0]
    norm = (LogNorm if spans_decade(values) else Normalize)(min(values), max(values))
    grid = [[at.get((length, batch), float("nan")) for batch in batches] for length in lengths]
    seaborn.heatmap(
        grid, ax=axes, norm=norm, cmap=look().gradient, linewidths=1, linecolor=look().background,
        cbar=False,
    )  # fmt: skip
    axes.set_xticks([index + 0.5 for index in range(len(batches))], [f"{size:,}" for size in batches], rotation=0)
    axes.set_yticks([index + 0.5 for index in range(len(lengths))], [f"{size:,}" for size in lengths], rotation=0)
    axes.set_title(f"Throughput ({unit}), {words.better('higher')}", loc="left")
    axes.grid(visible=False)


def _write(axes: Axes, row: Row, column: int, line: int) -> None:
    """The value of a cell, crossed out if invalid, or the status of a point that was not measured."""
    if not is_ok(row) or row["value"] is None:
        text, own = str(row["status"]).replace("_", " "), look().grey
    else:
        text, own = ("~" if trust(row) == "doubtful" else "") + number(row["value"]), _contrast(axes, row, column, line)
    axes.text(
        column + 0.5, line + 0.5, text, ha="center", va="center", color=own, label=f"_cell {column} {line}",
        fontsize=TEXT_SIZE if is_ok(row) else SMALL_SIZE,
    )  # fmt: skip
    if is_ok(row) and trust(row) == "invalid":
        axes.plot(
            [column + 0.1, column + 0.9], [line + 0.9, line + 0.1], color=look().ink, linewidth=1,
            label=f"_crossed {column} {line}",
        )  # fmt: skip


def _contrast(axes: Axes, row: Row, column: int, line: int) -> str:
    """Black or white, whichever is legible on the cell; the theme's text colour on an uncoloured cell."""
    if trust(row) == "invalid":
        return look().ink
    mesh = axes.collections[0]
    return text_on([float(part) for part in mesh.cmap(mesh.norm(row["value"]))])


def _figure_text(key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> FigureText:
    sound = [row for row in drawn if trust(row) != "invalid"]
    same = {**key, "batch_size": 1, "sequence_length": None}
    held = (words.cell(key), str(key["task"]), words.unbroken(words.point(same, with_batch=False)))
    title = f"{BatchSequenceHeatmap.title}: {key['model_id']}"
    best = clear_winner(sound, "higher")
    if best:
        place = f"batch {best['batch_size']}, sequence {best['sequence_length']:,}"
        title = f"{key['model_id']}: highest throughput at {place} ({number(best['value'])} {_unit(drawn)})"
    doubts = words.doubts(drawn, ("~", "Crossed out"))
    lacking = (doubts, words.missing_points(members, drawn))
    return FigureText(
        title=title,
        subtitle=words.SEPARATOR.join(part for part in held if part),
        source=words.provenance(drawn),
        notes=words.sentences(lacking),
    )


PLUGIN = BatchSequenceHeatmap()
