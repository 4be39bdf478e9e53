"""Quality against throughput: what a quantization, a runtime or a kernel costs, and what it gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarking.core.quality import QUALITY_METRICS, QualityMetric
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

SHOWN = ("kl_divergence", "embedding_cosine", "token_error_rate", "latent_error")
"""Measures of quality, one of which each task has."""
SQL = f"""
SELECT {{facts}}, r.latency_median_ms AS value, quality.metric AS measure, quality.value AS quality,
    CASE WHEN r.new_tokens IS NULL THEN r.throughput_samples_per_sec ELSE r.throughput_tokens_per_sec END AS throughput
FROM {{tables}}
JOIN quality_results quality ON quality.run_id = run.run_id
WHERE r.result_id IN {{comparable}} AND {{selected}} AND quality.value IS NOT NULL
    AND quality.metric IN ({", ".join(f"'{name}'" for name in SHOWN)})
ORDER BY {{order}}
"""  # noqa: S608 - names of this module
SUBJECT = ("model_id", *MODEL_COLUMNS, "measure")
WIDTH_IN = 7.2
NOTE = "Stepped line: no other point has both better quality and higher throughput."


class QualityTradeoff(ChartPlugin):
    name = "quality_tradeoff"
    title = "Quality and speed"
    needs = "a model measured with --quality in two configurations"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        alike = (name for name in POINT_COLUMNS if name != "concurrency")
        for key, members in grouped(rows, (*SUBJECT, *alike)):
            drawn = [row for row in members if is_ok(row) and row["throughput"]]
            what = f"{self.title}: {key['model_id']}"
            if not drawn:
                yield NotDrawn(what=what, why=words.nothing_to_draw(members))
                continue
            least = min(row["batch_size"] for row in drawn)
            drawn = [row for row in drawn if row["batch_size"] == least]
            if len(drawn) < 2:
                yield NotDrawn(what=what, why="a single configuration has no comparison")
            else:
                yield _figure({**key, "batch_size": least}, members, drawn, QUALITY_METRICS[key["measure"]])


def _figure(key: Row, members: Sequence[Row], drawn: Sequence[Row], metric: QualityMetric) -> Figure:
    sign = 1 if metric.better == "lower" else -1

    def front(rows: Sequence[Row]) -> list[Row]:
        ranked = [row for row in rows if trust(row) != "invalid" and not row["simulated"]]
        return pareto(ranked, lambda row: (sign * row["quality"], row["throughput"]))

    series, left_out = fastest(configurations(drawn), MOST_COLOURS, keep=front(drawn))
    shown = [row for one in series for row in one.rows]
    best = front(shown)
    lines = [one.line(marks_of(one.rows, "quality", "throughput"), width=1.0, opacity=0.5) for one in series]
    named = [(row["quality"], row["throughput"], f"{row['runtime']} {row['precision']}") for row in best]
    unit = "inputs/s" if key["new_tokens"] is None else "generated tokens/s"
    panel = front_panel(
        lines, named, f"{metric.title}\n{words.better(metric.better)}",
        f"Throughput ({unit})\n{words.better('higher')}", is_cost=sign > 0,
    )  # fmt: skip
    title = f"{QualityTradeoff.title}: {key['model_id']}"
    held = words.unbroken(words.point({**key, "concurrency": 1}))
    return Figure(
        title=title,
        subtitle=words.subtitle(title, QualityTradeoff.title, str(key["task"]), held),
        source=words.provenance(shown),
        notes=words.caption(
            words.accountable([row for row in members if row["batch_size"] == key["batch_size"]], shown, left_out),
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


PLUGIN = QualityTradeoff()
