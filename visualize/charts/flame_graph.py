"""Flame graph of a profiled call: nested modules from the top down, with operators at the bottom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visualize.drawing import profile_spans, words
from visualize.drawing.figure import Block, Figure, NotDrawn, Panel
from visualize.drawing.profile_spans import ProfileChart, Span
from visualize.drawing.rows import CELL_COLUMNS, Row, details
from visualize.drawing.scales import Axis, share_axis

WIDTH_IN, ROW_IN = 11.0, 0.29
MOST_ROWS = 40
OPERATOR_OPACITY = 0.45


class FlameGraph(ProfileChart):
    name = "flame_graph"
    title = "Time by module and operator"
    needs = "a profile (benchhouse profile MODEL --save)"

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for row in rows:
            spans = profile_spans.flame(row)
            if spans:
                yield _figure(row, spans)
            else:
                yield NotDrawn(what=f"{self.title}: {row['model_id']}", why="the profile has no module times")


def _figure(row: Row, spans: Sequence[Span]) -> Figure:
    shown = [one for one in spans if one.depth < MOST_ROWS]
    depth = max(one.depth for one in shown) + 1
    x = share_axis(f"Share of a call of {profile_spans.total_ms(row):.3g} ms ({profile_spans.clock(row)})")
    y = Axis(low=-0.5, high=depth - 0.5, from_top=True, has_grid=False)
    how = (
        "Modules are nested from the top down, with operators (paler) below the module that called them; a gap below a "
        f"module is its own code. {profile_spans.notes(row)[0]}"
    )
    return Figure(
        title=profile_spans.flame_title(row),
        subtitle=words.SEPARATOR.join((FlameGraph.title, words.cell(row), words.point(row))),
        source=words.provenance([row]),
        notes=(how,),
        panels=(Panel(x=x, y=y, elements=tuple(map(_block, shown)), height_in=ROW_IN * depth + 0.7),),
        width_in=WIDTH_IN,
        legend=profile_spans.legend(shown),
        columns_of_table=profile_spans.MODULE_COLUMNS,
        rows=profile_spans.module_rows(row),
        name_parts=(*(str(row[column]) for column in CELL_COLUMNS), words.point(row)),
        details=details(row, profile_spans.DETAILS),
    )


def _block(span: Span) -> Block:
    return Block(
        left=span.begin, right=span.begin + span.share, bottom=span.depth - 0.47, top=span.depth + 0.47,
        role=span.name, fill=profile_spans.fill(span.kind), text=span.label, align="left", words=span.words,
        ink="ink" if span.is_operator else profile_spans.ink(span.kind),
        opacity=OPERATOR_OPACITY if span.is_operator else 1.0,
    )  # fmt: skip


PLUGIN = FlameGraph()
