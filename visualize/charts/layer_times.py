"""Time of each layer of a profiled call, stacked by kind of module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from visualize.drawing import profile_spans, words
from visualize.drawing.figure import Block, Element, Figure, NotDrawn, Note, Panel
from visualize.drawing.profile_spans import ProfileChart, Span
from visualize.drawing.rows import CELL_COLUMNS, Row, details
from visualize.drawing.scales import number, row_axis, value_axis

WIDTH_IN, ROW_IN = 8.4, 0.3
MOST_LAYERS = 120


class LayerTimes(ProfileChart):
    name = "layer_times"
    title = "Time by layer"
    needs = "a profile of a model with layers (benchhouse profile MODEL --save)"

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for row in rows:
            layers = profile_spans.layers(row)
            if layers:
                yield _figure(row, layers)
            else:
                what = f"{self.title}: {row['model_id']} on {words.cell(row)}"
                yield NotDrawn(what=what, why="the profile has no layers; flame_graph shows its modules")


def _figure(row: Row, layers: Mapping[str, list[Span]]) -> Figure:
    shown = dict(list(layers.items())[:MOST_LAYERS])
    spans = [one for own in shown.values() for one in own]
    total = profile_spans.total_ms(row)
    left_out = f"Left out: {len(layers) - len(shown)} of {len(layers)} layers; see the table profile_modules."
    elements: list[Element] = []
    for place, (layer, own) in enumerate(shown.items()):
        left = 0.0
        for span in own:
            elements.append(
                Block(
                    left=left, right=left + span.ms, bottom=place - 0.36, top=place + 0.36, role=f"{span.kind} {layer}",
                    fill=profile_spans.fill(span.kind), words=span.words,
                )
            )  # fmt: skip
            left += span.ms
        elements.append(Note(x=left, y=place, text=f"{number(left)} ms", dx=4))
    longest = max(sum(one.ms for one in own) for own in shown.values())
    title = f"{profile_spans.clock(row).capitalize()} per call (ms)\nlower is better"
    x = value_axis(title, [longest], room=1.25, may_be_log=False)
    return Figure(
        title=profile_spans.layers_title(row),
        subtitle=words.SEPARATOR.join((LayerTimes.title, words.cell(row), words.point(row))),
        source=words.provenance([row]),
        notes=(*profile_spans.notes(row), *((left_out,) if len(layers) > len(shown) else ())),
        panels=(Panel(x=x, y=row_axis(list(shown)), elements=tuple(elements), height_in=ROW_IN * len(shown) + 0.8),),
        width_in=WIDTH_IN,
        legend=profile_spans.legend(spans),
        columns_of_table=("layer", "part", "ms", "share"),
        rows=tuple((layer, one.label, one.ms, f"{one.ms / total:.1%}") for layer, own in shown.items() for one in own),
        name_parts=(*(str(row[column]) for column in CELL_COLUMNS), words.point(row)),
        details=details(row, profile_spans.DETAILS),
    )


PLUGIN = LayerTimes()
