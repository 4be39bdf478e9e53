"""Raw samples of each point: their distribution, and their order in each launch, which shows drift and levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from benchmarking.core.sample_statistics import quantile
from visualize.drawing import words
from visualize.drawing.figure import Element, Figure, Line, Mark, NotDrawn, Note, Panel, entries
from visualize.drawing.marks import figure, not_drawn
from visualize.drawing.rows import CELL_COLUMNS, CELL_DETAIL_COLUMNS, POINT_COLUMNS, ChartPlugin, Row, grouped, trust
from visualize.drawing.scales import Axis, close_axis, number, share_axis

MOST_POINTS, MOST_LAUNCHES, SAMPLES_SHOWN = 6, 11, 500
"""Maximum points of a figure, launches of a point, and approximate samples of a launch in its strip."""
LEAST_SAMPLES = 6
"""Fewest samples of a launch whose distribution is drawn: the curve of fewer would be a few large steps."""
LEAST_SPREAD = 0.001
TIMES = ("ns", "us", "ms", "s")
"""Units of times, which are better if lower."""
MOST_STEPS = 200
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)
WIDTH_IN, PANEL_IN = 8.4, 2.3


class SampleDistribution(ChartPlugin):
    name = "sample_distribution"
    title = "Sample distribution"
    needs = "a result with two or more raw samples"
    columns = "raw.launch, raw.metric, raw.unit, raw.samples, raw.sketch, raw.inner_loops"
    joins = "JOIN raw_benchmark_data raw ON raw.result_id = r.result_id"
    condition = "raw.phase = 'measure' AND raw.metric = coalesce($samples, 'latency_wall')"
    then_by = "raw.launch"
    by_default = False

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS)):
            points = [
                (point, launches)
                for point, launches in grouped(members, ("batch_size", *POINT_COLUMNS, "result_id"))
                if sum(len(values(row)) for row in launches) > 1
            ]
            if points:
                yield self._figure(key, points)
            else:
                yield not_drawn(self, key, "fewer than two raw samples", of_cell=True)

    def _figure(self, key: Row, points: Sequence[tuple[Row, list[Row]]]) -> Figure:
        shown = [(point, launches[:MOST_LAUNCHES]) for point, launches in points[:MOST_POINTS]]
        every = [row for _, launches in shown for row in launches]
        has_curves = any(len(values(row)) >= LEAST_SAMPLES for row in every)
        panels = [panel for point, launches in shown for panel in _panels(point, launches, has_curves=has_curves)]
        rows = [launches[0] for _, launches in shown]
        most = max(len(launches) for _, launches in points[:MOST_POINTS])
        left_out = words.left_out(len(points) - len(shown), len(points), "points", "largest")
        curves = "Curves: share of samples at or below each value. Strips: the samples of each launch, with its median."
        strips = "Strips: the samples of each launch, with its median; too few samples for a distribution."
        of_launch = {row["launch"]: row for row in every}
        if len(of_launch) == 1:  # of an import, or of a single launch
            curves = "Curve: share of samples at or below each value. Strip: the samples, with their median."
            strips = "The samples, with their median; too few samples for a distribution."
        blocks = {row["inner_loops"] for row in every} - {1}
        reading = (
            curves if has_curves else strips,
            "Each sample is the mean of a block of short calls." if blocks else None,
        )
        lacking = (
            words.doubts(rows, ("In doubt", "Invalid")),
            left_out,
            f"Left out: launches after the first {MOST_LAUNCHES}." if most > MOST_LAUNCHES else None,
        )
        finding = None  # for a single point, how much its launches differ
        middles = [median(values(row)) for row in every if values(row)]
        if len(shown) == 1 and len(middles) > 1 and median(middles) > 0:  # a device may be idle
            spread = (max(middles) - min(middles)) / median(middles)
            by = f"up to {spread:.1%}" if spread >= LEAST_SPREAD else f"less than {LEAST_SPREAD:.1%}"
            if max(middles) >= 10 * min(middles) > 0:
                by = f"a factor of {number(max(middles) / min(middles))}"
            finding = f"medians of {len(middles)} launches differ by {by}"
        return figure(
            self, key, rows, panels, finding, of_cell=True,
            place=[words.point(shown[0][0])] if len(shown) == 1 else [],
            notes=words.sentences(reading, lacking), columns=2 if has_curves else 1,
            widths=(2.0, 3.0) if has_curves else (), width_in=WIDTH_IN,
            legend=entries(_strip(of_launch[launch], 0) for launch in sorted(of_launch)) if len(of_launch) > 1 else (),
            columns_of_table=("point", "launch", "samples", "min", "p25", "median", "p75", "p95", "max"),
            rows=tuple(
                (words.point(row), row["launch"] + 1, len(own), *(quantile(own, share) for share in QUANTILES))
                for row in every
                if (own := values(row))
            ),
        )  # fmt: skip


def values(row: Row) -> list[float]:
    """Samples of a launch in ms, or their 5 % quantiles if they were compacted."""
    return list(row["samples"] or row["sketch"] or ())


def _panels(point: Row, launches: Sequence[Row], *, has_curves: bool) -> list[Panel]:
    """The distribution of each launch, and its samples in measured order: one strip per launch from left to right, with
    its median as a line."""
    first = launches[0]
    state = trust(first)
    heading = words.point(point) + ("" if state == "valid" else f" ({state})")
    metric = "latency" if first["metric"] == "latency_wall" else str(first["metric"]).replace("_", " ")
    name, unit = f"{metric[0].upper()}{metric[1:]}", first["unit"] or ""
    drawn = [value for row in launches for value in values(row)]
    elements: list[Element] = []
    curves: list[Line] = []
    start, end = 0, 1.0
    for row in launches:
        strip = _strip(row, start)
        if strip.marks:
            middle = median(row["samples"])
            ends = tuple(Mark(x=one.x, y=middle) for one in (strip.marks[0], strip.marks[-1]))
            level = Line(label=str(row["launch"]), role="median", marks=ends, colour="ink", shape=None, width=1.0)
            elements += [strip, level]
            end = strip.marks[-1].x
        start += len(strip.marks) + max(2, len(strip.marks) // 20)
        if ordered := sorted(values(row)):  # the share of samples at or below each value
            count = len(ordered)
            steps = [round(step * (count - 1) / MOST_STEPS) for step in range(MOST_STEPS + 1)]
            at = range(count) if count <= MOST_STEPS else steps
            marks = tuple(Mark(x=ordered[place], y=(place + 1) / count) for place in at)
            curves.append(
                Line(
                    label=str(row["launch"]), role="ecdf", marks=marks, colour=row["launch"], shape=None, step="after",
                    width=1.3,
                )
            )  # fmt: skip
    if not elements:
        elements.append(Note(x=0.0, y=min(drawn), text="order not stored", dx=20, dy=20, colour="grey"))
    order = "Samples in measured order" + (", launch by launch" if len(launches) > 1 else "")
    x = Axis(title=order, low=-1.0, high=end + 1, has_grid=False)
    panels = [Panel(x=x, y=close_axis(f"{name} ({unit})", drawn), elements=tuple(elements), height_in=PANEL_IN)]
    if has_curves:
        better = "\nlower is better" if unit in TIMES else ""
        of_values = close_axis(f"{name} per sample ({unit}){better}", drawn)
        y = share_axis("Share of samples", 1.02)
        panels.insert(0, Panel(x=of_values, y=y, elements=tuple(curves), height_in=PANEL_IN))
    return [replace(panels[0], title=heading), *panels[1:]]


def _strip(row: Row, start: int) -> Line:
    """Samples of a launch in measured order. Of many, the lowest and highest of each stretch are kept, so that no
    disturbance is lost."""
    samples = list(row["samples"] or ())
    kept = list(enumerate(samples))
    if len(samples) > SAMPLES_SHOWN:
        each = -(-2 * len(samples) // SAMPLES_SHOWN)
        stretches = [kept[at : at + each] for at in range(0, len(kept), each)]
        kept = [
            one for part in stretches
            for one in sorted({min(part, key=lambda pair: pair[1]), max(part, key=lambda pair: pair[1])})
        ]  # fmt: skip
    marks = tuple(Mark(x=start + place, y=value, words=f"sample {at + 1}") for place, (at, value) in enumerate(kept))
    return Line(
        label=f"launch {row['launch'] + 1}", role=f"strip {row['launch']}", marks=marks, colour=row["launch"],
        shape=row["launch"], dashes=None, size=2.6,
    )  # fmt: skip


PLUGIN = SampleDistribution()
