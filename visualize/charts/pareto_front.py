"""Latency against throughput of every configuration, with the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from visualize.drawing import words
from visualize.drawing.configurations import MOST_COLOURS, configurations, fastest
from visualize.drawing.layout import FigureText, finish, new_figure, spaced
from visualize.drawing.lines import Line, doubtful_entries, draw_trusted, legend_entry
from visualize.drawing.rows import (
    MODEL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    axis_values,
    details,
    grouped,
    is_ok,
    trust,
)
from visualize.drawing.style import SMALL_SIZE, look, number, scale_value_axis, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = """
SELECT {facts}, r.latency_median_ms AS value,
    CASE WHEN r.new_tokens IS NULL THEN r.throughput_samples_per_sec ELSE r.throughput_tokens_per_sec END AS throughput
FROM {tables}
WHERE r.result_id IN {comparable} AND {selected}
ORDER BY {order}
"""

SUBJECT = ("model_id", *MODEL_COLUMNS)
WIDTH_IN, HEIGHT_IN = 7.2, 4.4
LABEL_ROOM = 1.4
"""Factor of extra room on the left of a log axis, for the label of the first point of the front."""
NAME_PT = 62
"""Width of a label on the front, in points."""
NOTE = "Stepped line: no other point has both lower median latency and higher throughput."


class ParetoFront(ChartPlugin):
    name = "pareto_front"
    title = "Latency and throughput"
    needs = "a model measured at two batch sizes or with two configurations"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        alike = (name for name in POINT_COLUMNS if name != "concurrency")
        for key, members in grouped(rows, (*SUBJECT, *alike)):
            drawn = [row for row in members if is_ok(row) and row["value"] and row["throughput"]]
            what = f"{self.title}: {key['model_id']}"
            if not drawn:
                yield NotDrawn(what=what, why=words.nothing_to_draw(members))
            elif len(drawn) < 2:
                yield NotDrawn(what=what, why="a single point has no comparison")
            else:
                yield _drawing(key, members, drawn)


def front(rows: Sequence[Row]) -> list[Row]:
    """The Pareto front of latency and throughput, by latency, without invalid and simulated results."""
    ranked = [row for row in rows if trust(row) != "invalid" and not row["simulated"]]
    best: list[Row] = []
    for row in sorted(ranked, key=lambda row: (row["value"], -row["throughput"])):
        if not best or row["throughput"] > best[-1]["throughput"]:
            best.append(row)
    return best


def _drawing(key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Drawing:
    lines, left_out = fastest(configurations(drawn), MOST_COLOURS, keep=front(drawn))
    shown = [row for line in lines for row in line.rows]
    with theme():
        figure, (axes,) = new_figure(WIDTH_IN, HEIGHT_IN)
        for line in lines:
            ordered = sorted(line.rows, key=lambda row: (row["batch_size"], row["concurrency"]))
            points = [(row["value"], row["throughput"], row) for row in ordered]
            sound = [row for row in ordered if trust(row) != "invalid"]
            axes.plot(
                [row["value"] for row in sound], [row["throughput"] for row in sound], color=line.colour, alpha=0.5,
                linestyle=line.line_style, linewidth=1, zorder=2, label=f"_line {line.label}",
            )  # fmt: skip
            draw_trusted(axes, points, line.colour, line.style, line.label)
        scale_value_axis(axes, [row["value"] for row in shown], "x")
        left, _ = axes.get_xlim()
        axes.set_xlim(left=left / LABEL_ROOM)
        scale_value_axis(axes, [row["throughput"] for row in shown])
        best = front(shown)
        _draw_front(axes, best)
        axes.set(
            xlabel=words.value_title("latency_median_ms"), ylabel=f"Throughput ({_unit(key)})\n{words.better('higher')}"
        )
        finish(figure, _figure_text(key, members, shown, lines, best, left_out))
    return Drawing(
        figure=figure,
        name_parts=(str(key["model_id"]), *words.point_names(key["new_tokens"], 1, axis_values(key))),
        details=details(key, MODEL_COLUMNS),
    )


def _draw_front(axes: Axes, best: Sequence[Row]) -> None:
    axes.step(
        [row["value"] for row in best], [row["throughput"] for row in best], where="post", color=look().ink,
        linewidth=1.2, zorder=3, label="_front",
    )  # fmt: skip
    for at in spaced(axes, [(row["value"], row["throughput"]) for row in best], NAME_PT):
        row = best[at]
        text = f"batch {row['batch_size']}" + (f", {row['concurrency']} in flight" if row["concurrency"] > 1 else "")
        axes.annotate(
            text, (row["value"], row["throughput"]), xytext=(-6, 6), textcoords="offset points", ha="right",
            fontsize=SMALL_SIZE, color=look().ink,
        )  # fmt: skip


def _title(key: Row, best: Sequence[Row]) -> str:
    """The values at both ends of the front if both are valid."""
    if len(best) < 2 or {trust(best[0]), trust(best[-1])} != {"valid"}:
        return f"{ParetoFront.title}: {key['model_id']}"
    ends = [f"{number(row['throughput'])} {_unit(key)} at {number(row['value'])} ms" for row in (best[0], best[-1])]
    return f"{key['model_id']}: from {ends[0]} to {ends[1]} per call"


def _unit(key: Row) -> str:
    return "inputs/s" if key["new_tokens"] is None else "generated tokens/s"


def _figure_text(
    key: Row,
    members: Sequence[Row],
    shown: Sequence[Row],
    lines: Sequence[Line],
    best: Sequence[Row],
    left_out: str | None,
) -> FigureText:
    held = (str(key["task"]), words.unbroken(words.point({**key, "batch_size": 1, "concurrency": 1}, with_batch=False)))
    entries = [legend_entry(line.label, line.colour, line.style, linestyle=line.line_style) for line in lines]
    title = _title(key, best)
    return FigureText(
        title=title,
        subtitle=words.subtitle(title, ParetoFront.title, *held),
        source=words.provenance(shown),
        notes=words.caption(
            words.accountable(members, shown, left_out),
            shown,
            NOTE if best else None,
            lacking=[left_out],
            named=words.cell_and_point,
        ),
        legend=(*entries, *doubtful_entries(shown)),
    )


PLUGIN = ParetoFront()
