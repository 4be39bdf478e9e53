"""Trade-offs of every configuration, with their Pareto front: latency and throughput, quality and throughput, and the
total throughput of a server against interactivity, the token rate of each user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from benchmarking.core.quality import QUALITY_METRICS
from visualize.drawing import words
from visualize.drawing.configurations import MOST_COLOURS, configurations, fastest
from visualize.drawing.figure import Figure, Mark, pareto
from visualize.drawing.loads import LEVELS, by_kind, joined, level, level_lines, level_words, request_words
from visualize.drawing.marks import Series, figure, front_panel, held, held_names, legend, mark
from visualize.drawing.rows import (
    MODEL_COLUMNS,
    POINT_COLUMNS,
    SUBJECT,
    THROUGHPUT,
    ChartPlugin,
    Drawing,
    Row,
    details,
    is_ok,
    trust,
)
from visualize.drawing.scales import number

ALIKE = (*SUBJECT, *(name for name in POINT_COLUMNS if name != "concurrency"))
"""What all results of a picture of calls share."""
QUALITIES = (
    *("kl_divergence", "embedding_cosine", "token_error_rate", "latent_error"),
    *("exact_match", "choice_accuracy", "task_accuracy"),
)
"""Measures of quality, one of which each task has, those of the user's questions and of imported evaluations."""
SCORES = ", ".join(f"'{name}'" for name in QUALITIES if not QUALITY_METRICS[name].needs_reference)
"""Those that depend on what was asked, so that results of other questions or tasks are not comparable."""
LEVEL_NOTE = "Each point is a load level: right is faster for each user, up is more total throughput"
NO_BETTER = "; no point beats the stepped line on both."
LEAST_QUALITY = 2.0**-23
"""Qualities that differ by less count as equal: the outputs that they compare have float32's resolution."""
EQUAL = "Qualities that differ by less than 1e-7, the resolution of float32, count as equal."


class ParetoFront(ChartPlugin):
    name = "pareto_front"
    title = "Latency and throughput"
    needs = "a model measured at two batch sizes or with two configurations"
    columns = f"r.latency_median_ms AS value, {THROUGHPUT} AS throughput"
    newest = "comparable"
    alike = ALIKE

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        drawn = [row for row in members if is_ok(row) and row["value"] and row["throughput"]]
        if len(drawn) < 2:
            return "a single point has no comparison" if drawn else words.nothing_to_draw(members)
        series, left_out = fastest(configurations(drawn), MOST_COLOURS, keep=_front(drawn, "value"))
        unit = _unit(key)
        best = _front([row for one in series for row in one.rows], "value")
        names = [
            f"batch {row['batch_size']}" + (f", {row['concurrency']} in flight" if row["concurrency"] > 1 else "")
            for row in best
        ]
        told = _ends(best, [f"{number(row['throughput'])} {unit} at {number(row['value'])} ms" for row in best])
        return _figure(
            self, key, members, series, left_out, best, "value", names,
            (words.value_title("latency_median_ms"), f"Throughput ({unit})\nhigher is better"),
            f"{told} per call" if told else None,
            note="Stepped line: no other point has both lower median latency and higher throughput.",
            place=[held(key, concurrency=1)], of_names=held_names(key, 1),
        )  # fmt: skip


class QualityTradeoff(ChartPlugin):
    """What a quantization, a runtime or a kernel costs in quality, and what it gains."""

    name = "quality_tradeoff"
    title = "Quality and speed"
    needs = "a model measured with --quality, or evaluated, in two configurations"
    columns = f"""r.latency_median_ms AS value, quality.metric AS measure, quality.value AS quality,
        CASE WHEN quality.metric IN ({SCORES}) THEN quality.inputs END AS asked, {THROUGHPUT} AS throughput"""
    joins = "JOIN all_measures_of_quality quality ON quality.run_id = run.run_id"
    newest = "comparable"
    condition = f"""quality.value IS NOT NULL
        AND quality.metric IN ({", ".join(f"'{name}'" for name in QUALITIES)})"""
    alike = (*ALIKE, "measure", "asked")

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        measured = [row for row in members if is_ok(row) and row["throughput"]]
        if not measured:
            return words.nothing_to_draw(members)
        least = min(row["batch_size"] for row in measured)
        drawn = [row for row in measured if row["batch_size"] == least]
        if len(drawn) < 2:
            return "a single configuration has no comparison"
        metric = QUALITY_METRICS[key["measure"]]
        is_cost = metric.better == "lower"
        keep = _front(drawn, "quality", is_cost=is_cost, apart=LEAST_QUALITY)
        series, left_out = fastest(configurations(drawn), MOST_COLOURS, keep=keep)
        shown = [row for one in series for row in one.rows]
        best = _front(shown, "quality", is_cost=is_cost, apart=LEAST_QUALITY)
        places = _places((row["quality"] for row in shown), LEAST_QUALITY)
        titles = (f"{metric.title}\n{metric.better} is better", f"Throughput ({_unit(key)})\nhigher is better")
        return _figure(
            self, key, [row for row in members if row["batch_size"] == least], series, left_out, best, "quality",
            [f"{row['runtime']} {words.precision(row)}" for row in best], titles, is_cost=is_cost,
            note="Stepped line: no other point has both better quality and higher throughput.",
            reading=EQUAL if len(set(places.values())) < len(places) else None,
            place=[words.unbroken(words.point({**key, "batch_size": least, "concurrency": 1}))],
            of_names=held_names(key, 1),
        )  # fmt: skip


class LoadFrontier(ChartPlugin):
    name = "load_frontier"
    title = "Throughput and interactivity"
    needs = "a load test with streamed tokens at two or more levels"
    columns = f"""{LEVELS}, r.time_per_output_token_ms AS value,
        1000 / nullif(r.time_per_output_token_ms, 0) AS per_user, r.throughput_tokens_per_sec AS throughput"""
    loads = "only"

    def groups(self, rows: Sequence[Row]) -> list[tuple[Row, list[Row]]]:
        return by_kind(rows)

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        drawn = [row for row in members if is_ok(row) and row["per_user"] and row["throughput"]]
        if len({(row["per_user"], row["throughput"]) for row in drawn}) < 2:
            same = "its levels have the same rates" if len(drawn) > 1 else "only one level was measured"
            return same if drawn else words.nothing_to_draw(members)
        series, left_out = level_lines(drawn, keep=_front(drawn, "per_user", is_cost=False))
        best = _front([row for one in series for row in one.rows], "per_user", is_cost=False)
        points = [f"{number(row['throughput'])} tokens/s at {number(row['per_user'])} per user" for row in best]
        titles = ("Median output tokens/s per user\nhigher is better", "Total output tokens/s\nhigher is better")
        return _figure(
            self, key, members, series, left_out, best, "per_user", list(map(level_words, best)), titles,
            _ends(best, points), is_cost=False, note=LEVEL_NOTE + (NO_BETTER if len(best) > 1 else "."),
            about=request_words(key), of_names=[str(key["loop"])],
            details=(*details(key, MODEL_COLUMNS), *request_words(key)),
        )  # fmt: skip


def _figure(
    chart: ChartPlugin,
    key: Row,
    members: Sequence[Row],
    series: Sequence[Series],
    left_out: str | None,
    best: Sequence[Row],
    x: str,
    names: Sequence[str],
    titles: tuple[str, str],
    finding: str | None = None,
    *,
    note: str,
    reading: str | None = None,
    is_cost: bool = True,
    of_names: Sequence[str],
    **parts: Any,
) -> Figure:
    """The series over the column `x`, with a stepped line through the named points of the front."""
    is_load = chart.loads == "only"

    def marks(rows: Sequence[Row]) -> tuple[Mark, ...]:
        ordered = sorted(rows, key=level if is_load else lambda row: float(row[x]))
        named = level_words if is_load else words.point
        return tuple(mark(row, row[x], row["throughput"], named=named) for row in ordered)

    look = {"width": 1.0, "opacity": 0.5}
    lines = [
        line
        for one in series
        for line in (joined(one, marks, **look) if is_load else [one.line(marks(one.rows), **look)])
    ]
    front = [(row[x], row["throughput"], name) for row, name in zip(best, names, strict=True)]
    shown = [row for one in series for row in one.rows]
    notes = words.caption(
        words.accountable(members, shown, left_out),
        shown,
        note if is_load or len(best) > 1 else None,
        reading,
        lacking=[left_out],
        named=(lambda row: f"{words.cell(row)} at {level_words(row)}") if is_load else words.cell_and_point,
    )
    panel = front_panel(lines, front, *titles, is_cost=is_cost)
    return figure(
        chart, key, shown, [panel], finding, names=of_names, notes=notes, width_in=7.2, legend=legend(series, shown),
        **parts,
    )  # fmt: skip


def _front(rows: Sequence[Row], x: str, *, is_cost: bool = True, apart: float = 0.0) -> list[Row]:
    """The Pareto front of a column and the throughput, without invalid and simulated results; its lowest x comes first
    if that is a cost, else its highest. Values of x that are less than `apart` from each other are equal."""
    ranked = [row for row in rows if trust(row) != "invalid" and not row["simulated"]]
    places, sign = _places((row[x] for row in ranked), apart), 1 if is_cost else -1
    return pareto(ranked, lambda row: (sign * places[row[x]], row["throughput"]))


def _places(values: Iterable[float], apart: float) -> dict[float, int]:
    """Value -> its place in rising order, which values share that are less than `apart` from the next one."""
    ordered = sorted(set(values))
    steps = (after - before >= apart for before, after in pairwise(ordered))
    return dict(zip(ordered, accumulate(steps, initial=0), strict=False))


def _unit(key: Row) -> str:
    return "inputs/s" if key["new_tokens"] is None else "generated tokens/s"


def _ends(best: Sequence[Row], points: Sequence[str]) -> str | None:
    """The finding: the values at both ends of the front if both are valid."""
    if len(best) < 2 or {trust(best[0]), trust(best[-1])} != {"valid"}:
        return None
    return f"from {points[0]} to {points[-1]}"


PLUGINS = (ParetoFront(), QualityTradeoff(), LoadFrontier())
