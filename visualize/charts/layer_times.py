"""Time of each layer of a profiled call, stacked by kind of module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from visualize.drawing import profiles, words
from visualize.drawing.layout import FigureText, finish, new_figure
from visualize.drawing.profiles import Block, ProfileChart
from visualize.drawing.rows import CELL_COLUMNS, Drawing, NotDrawn, Row, details
from visualize.drawing.style import SMALL_SIZE, look, number, theme

WIDTH_IN, ROW_IN = 8.4, 0.3
MOST_LAYERS = 120


class LayerTimes(ProfileChart):
    name = "layer_times"
    title = "Time by layer"
    needs = "a profile of a model with layers (benchhouse profile MODEL --save)"

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for row in rows:
            layers = profiles.layers(row)
            if layers:
                yield _drawing(row, layers)
            else:
                what = f"{self.title}: {row['model_id']} on {words.cell(row)}"
                yield NotDrawn(what=what, why="the profile has no layers; flame_graph shows its modules")


def _drawing(row: Row, layers: Mapping[str, list[Block]]) -> Drawing:
    shown = dict(list(layers.items())[:MOST_LAYERS])
    blocks = [one for own in shown.values() for one in own]
    with theme():
        figure, (axes,) = new_figure(WIDTH_IN, ROW_IN * len(shown) + 0.7)
        for place, (layer, own) in enumerate(shown.items()):
            left = 0.0
            for block in own:
                (bar,) = axes.barh(
                    place, block.ms, left=left, height=0.7, color=profiles.fill(block.kind),
                    edgecolor=look().background, linewidth=0.5, zorder=2,
                )  # fmt: skip
                bar.set_label(f"_{block.kind} {layer}")
                left += block.ms
            axes.annotate(
                f"{number(left)} ms", (left, place), xytext=(4, 0), textcoords="offset points", va="center",
                fontsize=SMALL_SIZE,
            )  # fmt: skip
        axes.set_yticks(range(len(shown)), list(shown))
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlim(0, max(sum(one.ms for one in own) for own in shown.values()) * 1.12)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"{profiles.clock(row).capitalize()} per call (ms)\nlower is better")
        left_out = f"Left out: {len(layers) - len(shown)} of {len(layers)} layers; see the table profile_modules."
        finish(
            figure,
            FigureText(
                title=profiles.layers_title(row),
                subtitle=words.SEPARATOR.join((LayerTimes.title, words.cell(row), words.point(row))),
                notes=(
                    words.provenance([row]),
                    *profiles.notes(row),
                    *((left_out,) if len(layers) > len(shown) else ()),
                ),
                legend=profiles.legend(blocks),
            ),
        )
    return Drawing(
        figure=figure,
        name_parts=(*(str(row[column]) for column in CELL_COLUMNS), words.point(row)),
        details=details(row, profiles.DETAILS),
    )


PLUGIN = LayerTimes()
