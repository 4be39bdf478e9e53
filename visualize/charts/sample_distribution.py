"""Raw samples of each point: their distribution, and their order in each launch, which shows drift and levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    details,
    grouped,
    trust,
)
from visualize.drawing.style import colour, look, marker, number, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = """
SELECT {facts}, raw.launch, raw.samples, raw.sketch, raw.inner_loops
FROM {tables}
JOIN raw_benchmark_data raw ON raw.result_id = r.result_id
WHERE r.result_id IN {latest} AND raw.phase = 'measure' AND raw.metric = 'latency_wall' AND {selected}
ORDER BY {order}, raw.launch
"""

MOST_POINTS, MOST_LAUNCHES, SAMPLES_SHOWN = 6, 11, 500
"""Maximum points of a picture, launches of a point, and samples of a launch in its strip."""
WIDTH_IN, PANEL_IN = 8.4, 2.3


class SampleDistribution(ChartPlugin):
    name = "sample_distribution"
    title = "Sample distribution"
    needs = "a result with raw samples"
    sql = SQL
    by_default = False

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS)):
            points = [(point, launches) for point, launches in _points(members) if any(map(values, launches))]
            if points:
                yield _drawing(key, points)
            else:
                yield NotDrawn(what=f"{self.title}: {key['model_id']} on {words.cell(key)}", why="no raw samples")


def _points(members: Sequence[Row]) -> list[tuple[Row, list[Row]]]:
    return grouped(members, ("batch_size", *POINT_COLUMNS, "result_id"))


def values(row: Row) -> list[float]:
    """Samples of a launch in ms, or their 5 % quantiles if they were compacted."""
    return list(row["samples"] or row["sketch"] or ())


def _drawing(key: Row, points: Sequence[tuple[Row, list[Row]]]) -> Drawing:
    shown = points[:MOST_POINTS]
    with theme():
        figure, panels = new_figure(
            WIDTH_IN, PANEL_IN * len(shown), len(shown), 2, sharex=False, sharey=False, width_ratios=(2, 3)
        )
        for index, (point, launches) in enumerate(shown):
            ecdf, strip = panels[2 * index : 2 * index + 2]
            kept = launches[:MOST_LAUNCHES]
            _draw_ecdf(ecdf, kept)
            _draw_strips(strip, kept)
            ecdf.set_title(_heading(point, kept), loc="left", x=0)
            if index == len(shown) - 1:
                ecdf.set_xlabel("Latency per sample (ms)\nlower is better")
                strip.set_xlabel("Samples in measured order, launch by launch")
        finish(figure, _figure_text(key, points, shown))
    return Drawing(
        figure=figure,
        name_parts=tuple(str(key[column]) for column in CELL_COLUMNS),
        details=details(key, CELL_DETAIL_COLUMNS),
    )


def _heading(point: Row, launches: Sequence[Row]) -> str:
    state = trust(launches[0])
    return words.point(point) + ("" if state == "valid" else f" ({state})")


def _draw_ecdf(axes: Axes, launches: Sequence[Row]) -> None:
    """The cumulative share of samples by value, one line per launch."""
    for row in launches:
        ordered = sorted(values(row))
        if not ordered:
            continue
        shares = [(index + 1) / len(ordered) for index in range(len(ordered))]
        axes.step(
            ordered, shares, where="post", color=colour(row["launch"]), linewidth=1.3, label=f"_ecdf {row['launch']}"
        )
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("Share of samples")


def _draw_strips(axes: Axes, launches: Sequence[Row]) -> None:
    """Samples in measured order, one strip per launch from left to right, with its median as a line."""
    start = 0
    for row in launches:
        samples = list(row["samples"] or ())
        step = -(-len(samples) // SAMPLES_SHOWN) or 1
        kept = samples[::step]
        places = [start + index for index in range(len(kept))]
        own: dict[str, Any] = {"color": colour(row["launch"]), "label": f"_strip {row['launch']}"}
        axes.plot(places, kept, linestyle="none", marker=marker(row["launch"]), markersize=2.6, alpha=0.7, **own)
        if kept:
            middle = median(samples)
            axes.plot(
                [start, places[-1]], [middle, middle], color=look().ink, linewidth=1, label=f"_median {row['launch']}"
            )
        start += len(kept) + max(2, len(kept) // 20)
    axes.set_xticks([])
    axes.set_ylabel("Latency (ms)")
    axes.yaxis.set_major_formatter(lambda value, _: number(value))
    if not any(row["samples"] for row in launches):
        axes.text(0.5, 0.5, "order not stored", transform=axes.transAxes, ha="center", color=look().grey)


def _figure_text(
    key: Row, points: Sequence[tuple[Row, list[Row]]], shown: Sequence[tuple[Row, list[Row]]]
) -> FigureText:
    from visualize.drawing.lines import legend_entry

    rows = [launches[0] for _, launches in shown]
    numbers = sorted({row["launch"] for _, launches in shown for row in launches[:MOST_LAUNCHES]})
    most = max(len(launches) for _, launches in shown)
    blocks = {row["inner_loops"] for _, launches in shown for row in launches} - {1}
    rest = len(points) - len(shown)
    reading = (
        "Left: share of samples at or below each latency; right: one strip per launch, with its median.",
        "Each sample is the mean of a block of short calls." if blocks else None,
    )
    lacking = (
        words.doubts(rows, ("In doubt", "Invalid")),
        f"Left out: {rest} of {len(points)} points; narrow the selection to see them, e.g. batch=8." if rest else None,
        f"Left out: launches after the first {MOST_LAUNCHES}." if most > MOST_LAUNCHES else None,
    )
    title = _title(key, shown)
    return FigureText(
        title=title,
        subtitle=words.subtitle(title, SampleDistribution.title, words.cell(key), str(key["task"])),
        source=words.provenance(rows),
        notes=words.sentences(reading, lacking),
        legend=tuple(legend_entry(f"launch {launch + 1}", colour(launch), launch) for launch in numbers),
    )


def _title(key: Row, shown: Sequence[tuple[Row, list[Row]]]) -> str:
    """For a single point, how much its launches differ."""
    middles = [median(values(row)) for _, launches in shown for row in launches if values(row)]
    if len(shown) == 1 and len(middles) > 1:
        share = (max(middles) - min(middles)) / median(middles)
        if max(middles) >= 10 * min(middles) > 0:
            ratio = number(max(middles) / min(middles))
            return f"{key['model_id']}: medians of {len(middles)} launches differ by a factor of {ratio}"
        return f"{key['model_id']}: medians of {len(middles)} launches differ by up to {share:.1%}"
    return f"{SampleDistribution.title}: {key['model_id']}"


PLUGIN = SampleDistribution()
