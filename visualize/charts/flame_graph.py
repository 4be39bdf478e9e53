"""Flame graph of a profiled call: nested modules from the top down, with operators at the bottom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from visualize.drawing import profiles, words
from visualize.drawing.layout import FigureText, finish, new_figure
from visualize.drawing.profiles import Block, ProfileChart
from visualize.drawing.rows import CELL_COLUMNS, Drawing, NotDrawn, Row, details
from visualize.drawing.style import SMALL_SIZE, look, text_on, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_IN, ROW_IN = 11.0, 0.27
LETTERS = 150
"""Characters of small text that fit the width of a picture."""
MOST_ROWS = 40
OPERATOR_ALPHA = 0.45


class FlameGraph(ProfileChart):
    name = "flame_graph"
    title = "Time by module and operator"
    needs = "a profile (benchhouse profile MODEL --save)"

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for row in rows:
            blocks = profiles.flame(row)
            if blocks:
                yield _drawing(row, blocks)
            else:
                yield NotDrawn(what=f"{self.title}: {row['model_id']}", why="the profile has no module times")


def _drawing(row: Row, blocks: Sequence[Block]) -> Drawing:
    shown = [one for one in blocks if one.depth < MOST_ROWS]
    depth = max(one.depth for one in shown) + 1
    with theme():
        figure, (axes,) = new_figure(WIDTH_IN, ROW_IN * depth + 0.7)
        for block in shown:
            _draw_block(axes, block)
        axes.set(xlim=(0, 1), ylim=(depth - 0.5, -0.5), yticks=[])
        axes.set_xlabel(f"Share of a call of {profiles.total_ms(row):.3g} ms ({profiles.clock(row)})")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.grid(visible=False)
        axes.spines["left"].set_visible(False)
        text = (
            "Modules are nested from the top down, with operators (paler) below the module that called them; a gap "
            f"below a module is its own code. {profiles.notes(row)[0]}"
        )
        finish(
            figure,
            FigureText(
                title=profiles.flame_title(row),
                subtitle=words.SEPARATOR.join((FlameGraph.title, words.cell(row), words.point(row))),
                notes=(words.provenance([row]), text),
                legend=profiles.legend(shown),
            ),
        )
    return Drawing(
        figure=figure,
        name_parts=(*(str(row[column]) for column in CELL_COLUMNS), words.point(row)),
        details=details(row, profiles.DETAILS),
    )


def _draw_block(axes: Axes, block: Block) -> None:
    fill = profiles.fill(block.kind)
    (bar,) = axes.barh(
        block.depth, block.share, left=block.begin, height=0.94, color=fill, edgecolor=look().background, linewidth=0.6,
        alpha=OPERATOR_ALPHA if block.is_operator else 1.0, zorder=2,
    )  # fmt: skip
    bar.set_label(f"_{block.name}")
    fitting = int(block.share * LETTERS) - 1
    label = block.label if len(block.label) <= fitting else f"{block.label[: fitting - 1]}…"
    if fitting >= min(len(block.label), 5):
        ink = look().ink if block.is_operator else text_on(bar.get_facecolor())
        axes.text(
            block.begin + 0.003, block.depth, label, va="center", fontsize=SMALL_SIZE, color=ink, clip_on=True, zorder=3
        )


PLUGIN = FlameGraph()
