"""Total throughput of a server against interactivity, the token rate of each user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visualize.drawing import words
from visualize.drawing.figure import Figure, NotDrawn, pareto
from visualize.drawing.loads import LEVELS, by_kind, level, level_lines, level_words, request_words
from visualize.drawing.marks import legend, mark
from visualize.drawing.panels import front_panel
from visualize.drawing.rows import MODEL_COLUMNS, ChartPlugin, Row, details, is_ok, trust
from visualize.drawing.scales import number

SQL = f"""
SELECT {{facts}}, {LEVELS}, r.time_per_output_token_ms AS value,
    1000 / nullif(r.time_per_output_token_ms, 0) AS per_user, r.throughput_tokens_per_sec AS throughput
FROM {{tables}}
WHERE r.result_id IN {{latest}} AND {{selected}}
ORDER BY {{order}}
"""  # noqa: S608 - a constant of ours
WIDTH_IN = 7.2
NOTE = "Each point is a load level: right is faster for each user, up is more total throughput"


class LoadFrontier(ChartPlugin):
    name = "load_frontier"
    title = "Throughput and interactivity"
    needs = "a load test with streamed tokens at two or more levels"
    sql = SQL
    loads = "only"

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in by_kind(rows):
            drawn = [row for row in members if is_ok(row) and row["per_user"] and row["throughput"]]
            if len(drawn) > 1:
                yield _figure(key, members, drawn)
            else:
                why = "only one level was measured" if drawn else words.nothing_to_draw(members)
                yield NotDrawn(what=f"{self.title}: {key['model_id']}", why=why)


def front(rows: Sequence[Row]) -> list[Row]:
    """The Pareto front, by falling tokens per second per user, without invalid and simulated results."""
    ranked = [row for row in rows if trust(row) != "invalid" and not row["simulated"]]
    return pareto(ranked, lambda row: (-row["per_user"], row["throughput"]))


def _figure(key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Figure:
    series, left_out = level_lines(drawn, keep=front(drawn))
    shown = [row for one in series for row in one.rows]
    best = front(shown)
    lines = [
        one.line(
            [
                mark(row, row["per_user"], row["throughput"], named=level_words)
                for row in sorted(one.rows, key=level)
            ],
            width=1.0, opacity=0.5,
        )
        for one in series
    ]  # fmt: skip
    named = [(row["per_user"], row["throughput"], level_words(row)) for row in best]
    titles = ("Median output tokens/s per user\nhigher is better", "Total output tokens/s\nhigher is better")
    # The values at both ends of the front if both are valid.
    if len(best) < 2 or {trust(best[0]), trust(best[-1])} != {"valid"}:
        title = f"{LoadFrontier.title}: {key['model_id']}"
    else:
        ends = [
            f"{number(row['throughput'])} tokens/s at {number(row['per_user'])} per user" for row in (best[0], best[-1])
        ]
        title = f"{key['model_id']}: from {ends[0]} to {ends[1]}"
    return Figure(
        title=title,
        subtitle=words.subtitle(title, LoadFrontier.title, *request_words(key)),
        source=words.provenance(shown),
        notes=words.caption(
            words.accountable(members, shown, left_out),
            shown,
            f"{NOTE}; no point beats the stepped line on both." if len(best) > 1 else f"{NOTE}.",
            lacking=[left_out],
            named=lambda row: f"{words.cell(row)} at {level_words(row)}",
        ),
        panels=(front_panel(lines, named, *titles, is_cost=False),),
        width_in=WIDTH_IN,
        legend=legend(series, shown),
        name_parts=(str(key["model_id"]), str(key["loop"])),
        details=(*details(key, MODEL_COLUMNS), *request_words(key)),
    )


PLUGIN = LoadFrontier()
