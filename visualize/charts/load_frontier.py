"""Total throughput of a server against interactivity, the token rate of each user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure, spaced
from visualize.drawing.lines import Line, doubtful_entries, draw_trusted, legend_entry
from visualize.drawing.loads import LEVELS, by_kind, level_lines, level_words, ordered, request_words
from visualize.drawing.rows import MODEL_COLUMNS, ChartPlugin, Drawing, NotDrawn, Row, details, is_ok, trust
from visualize.drawing.style import SMALL_SIZE, look, number, scale_value_axis, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = f"""
SELECT {{facts}}, {LEVELS}, r.time_per_output_token_ms AS value,
    1000 / nullif(r.time_per_output_token_ms, 0) AS per_user, r.throughput_tokens_per_sec AS throughput
FROM {{tables}}
WHERE r.result_id IN {{latest}} AND {{selected}}
ORDER BY {{order}}
"""  # noqa: S608 - a constant of ours
WIDTH_IN, HEIGHT_IN = 7.2, 4.4
NAME_PT = 62
"""Width of a label on the front, in points."""
ROOM = 1.1
"""Length of each axis as a multiple of the largest value; the rest is room for labels."""
NOTE = (
    "Each point is a load level: right is faster for each user, up is more total throughput; no point beats the "
    "stepped line on both."
)


class LoadFrontier(ChartPlugin):
    name = "load_frontier"
    title = "Throughput and interactivity"
    needs = "a load test with streamed tokens at two or more levels"
    sql = SQL
    loads = "only"

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in by_kind(rows):
            drawn = [row for row in members if is_ok(row) and row["per_user"] and row["throughput"]]
            if len(drawn) > 1:
                yield _drawing(key, members, drawn)
            else:
                why = "only one level was measured" if drawn else words.nothing_to_draw(members)
                yield NotDrawn(what=f"{self.title}: {key['model_id']}", why=why)


def front(rows: Sequence[Row]) -> list[Row]:
    """The Pareto front, by falling tokens per second per user, without invalid and simulated results."""
    ranked = [row for row in rows if trust(row) != "invalid" and not row["simulated"]]
    best: list[Row] = []
    for row in sorted(ranked, key=lambda row: (-row["per_user"], -row["throughput"])):
        if not best or row["throughput"] > best[-1]["throughput"]:
            best.append(row)
    return best


def _drawing(key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Drawing:
    lines, left_out = level_lines(drawn, keep=front(drawn))
    shown = [row for line in lines for row in line.rows]
    with theme():
        figure, (axes,) = new_figure(WIDTH_IN, HEIGHT_IN)
        for line in lines:
            points = [(row["per_user"], row["throughput"], row) for row in ordered(line)]
            sound = [(x, y) for x, y, row in points if trust(row) != "invalid"]
            if sound:
                axes.plot(
                    *zip(*sound, strict=True), color=line.colour, alpha=0.5, linestyle=line.line_style, linewidth=1,
                    zorder=2, label=f"_line {line.label}",
                )  # fmt: skip
            draw_trusted(axes, points, line.colour, line.style, line.label)
        scale_value_axis(axes, [ROOM * row["per_user"] for row in shown], "x")
        scale_value_axis(axes, [ROOM * row["throughput"] for row in shown])
        best = front(shown)
        _draw_front(axes, best)
        axes.set(
            xlabel="Median output tokens/s per user\nhigher is better",
            ylabel="Total output tokens/s\nhigher is better",
        )
        finish(figure, _figure_text(key, members, shown, lines, best, left_out))
    return Drawing(
        figure=figure,
        name_parts=(str(key["model_id"]), str(key["loop"])),
        details=(*details(key, MODEL_COLUMNS), *request_words(key)),
    )


def _draw_front(axes: Axes, best: Sequence[Row]) -> None:
    axes.step(
        [row["per_user"] for row in best], [row["throughput"] for row in best], where="pre", color=look().ink,
        linewidth=1.2, zorder=3, label="_front",
    )  # fmt: skip
    for at in spaced(axes, [(row["per_user"], row["throughput"]) for row in best], NAME_PT):
        row = best[at]
        axes.annotate(
            level_words(row), (row["per_user"], row["throughput"]), xytext=(5, 5), textcoords="offset points",
            fontsize=SMALL_SIZE, color=look().ink,
        )  # fmt: skip


def _title(key: Row, best: Sequence[Row]) -> str:
    """The values at both ends of the front if both are valid."""
    if len(best) < 2 or {trust(best[0]), trust(best[-1])} != {"valid"}:
        return f"{LoadFrontier.title}: {key['model_id']}"
    ends = [
        f"{number(row['throughput'])} tokens/s at {number(row['per_user'])} per user" for row in (best[0], best[-1])
    ]
    return f"{key['model_id']}: from {ends[0]} to {ends[1]}"


def _figure_text(
    key: Row,
    members: Sequence[Row],
    shown: Sequence[Row],
    lines: Sequence[Line],
    best: Sequence[Row],
    left_out: str | None,
) -> FigureText:
    title = _title(key, best)
    entries = [legend_entry(line.label, line.colour, line.style, linestyle=line.line_style) for line in lines]
    return FigureText(
        title=title,
        subtitle=words.subtitle(title, LoadFrontier.title, *request_words(key)),
        source=words.provenance(shown),
        notes=words.caption(
            words.accountable(members, shown, left_out),
            shown,
            NOTE,
            lacking=[left_out],
            named=lambda row: f"{words.cell(row)} at {level_words(row)}",
        ),
        legend=(*entries, *doubtful_entries(shown)),
    )


PLUGIN = LoadFrontier()
