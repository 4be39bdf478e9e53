"""Latency against throughput of every configuration, with the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visualize.drawing import words
from visualize.drawing.configurations import MOST_COLOURS, configurations, fastest
from visualize.drawing.figure import Figure, NotDrawn, pareto
from visualize.drawing.marks import legend, marks_of
from visualize.drawing.panels import front_panel
from visualize.drawing.rows import (
    MODEL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Row,
    axis_values,
    details,
    grouped,
    is_ok,
    trust,
)
from visualize.drawing.scales import number

SQL = """
SELECT {facts}, r.latency_median_ms AS value,
    CASE WHEN r.new_tokens IS NULL THEN r.throughput_samples_per_sec ELSE r.throughput_tokens_per_sec END AS throughput
FROM {tables}
WHERE r.result_id IN {comparable} AND {selected}
ORDER BY {order}
"""

SUBJECT = ("model_id", *MODEL_COLUMNS)
WIDTH_IN = 7.2
NOTE = "Stepped line: no other point has both lower median latency and higher throughput."


class ParetoFront(ChartPlugin):
    name = "pareto_front"
    title = "Latency and throughput"
    needs = "a model measured at two batch sizes or with two configurations"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        alike = (name for name in POINT_COLUMNS if name != "concurrency")
        for key, members in grouped(rows, (*SUBJECT, *alike)):
            drawn = [row for row in members if is_ok(row) and row["value"] and row["throughput"]]
            what = f"{self.title}: {key['model_id']}"
            if not drawn:
                yield NotDrawn(what=what, why=words.nothing_to_draw(members))
            elif len(drawn) < 2:
                yield NotDrawn(what=what, why="a single point has no comparison")
            else:
                yield _figure(key, members, drawn)


def front(rows: Sequence[Row]) -> list[Row]:
    """The Pareto front of latency and throughput, by latency, without invalid and simulated results."""
    ranked = [row for row in rows if trust(row) != "invalid" and not row["simulated"]]
    return pareto(ranked, lambda row: (row["value"], row["throughput"]))


def _figure(key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Figure:
    series, left_out = fastest(configurations(drawn), MOST_COLOURS, keep=front(drawn))
    shown = [row for one in series for row in one.rows]
    best = front(shown)
    lines = [
        one.line(
            marks_of(sorted(one.rows, key=lambda row: row["batch_size"]), "value", "throughput"), width=1.0, opacity=0.5
        )
        for one in series
    ]
    named = [
        (
            row["value"],
            row["throughput"],
            f"batch {row['batch_size']}" + (f", {row['concurrency']} in flight" if row["concurrency"] > 1 else ""),
        )
        for row in best
    ]
    panel = front_panel(
        lines, named, words.value_title("latency_median_ms"), f"Throughput ({_unit(key)})\n{words.better('higher')}",
        is_cost=True,
    )  # fmt: skip
    held = words.unbroken(words.point({**key, "batch_size": 1, "concurrency": 1}, with_batch=False))
    # The values at both ends of the front if both are valid.
    if len(best) < 2 or {trust(best[0]), trust(best[-1])} != {"valid"}:
        title = f"{ParetoFront.title}: {key['model_id']}"
    else:
        ends = [f"{number(row['throughput'])} {_unit(key)} at {number(row['value'])} ms" for row in (best[0], best[-1])]
        title = f"{key['model_id']}: from {ends[0]} to {ends[1]} per call"
    return Figure(
        title=title,
        subtitle=words.subtitle(title, ParetoFront.title, str(key["task"]), held),
        source=words.provenance(shown),
        notes=words.caption(
            words.accountable(members, shown, left_out),
            shown,
            NOTE if len(best) > 1 else None,
            lacking=[left_out],
            named=words.cell_and_point,
        ),
        panels=(panel,),
        width_in=WIDTH_IN,
        legend=legend(series, shown),
        name_parts=(str(key["model_id"]), *words.point_names(key["new_tokens"], 1, axis_values(key))),
        details=details(key, MODEL_COLUMNS),
    )


def _unit(key: Row) -> str:
    return "inputs/s" if key["new_tokens"] is None else "generated tokens/s"


PLUGIN = ParetoFront()
