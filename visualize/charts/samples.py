"""Charts of raw samples: their distribution, the calls of each launch over time, and the times of generated tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import median
from typing import Any

from benchmarking.core.doubts import KINDS
from benchmarking.core.sample_statistics import quantile, quantile_of_sorted
from visualize.drawing import words
from visualize.drawing.batch_charts import MOST_LINES
from visualize.drawing.figure import Element, Entry, Figure, Line, Mark, NotDrawn, Note, Panel, Rule, entries
from visualize.drawing.marks import Series, figure, held_names, legend
from visualize.drawing.rows import CELL, CELL_COLUMNS, POINT_COLUMNS, ChartPlugin, Drawing, Row, grouped, trust
from visualize.drawing.scales import Axis, close_axis, number, share_axis, spans_decade, value_axis
from visualize.drawing.style import DASHES

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
MIDDLE, FAR, LEAST_WIDTH = 0.95, 20, 0.01
"""The quantile up to which samples are typical, how many times their range all samples may span in one picture, and the
smallest such range as a share of the value."""


class SampleDistribution(ChartPlugin):
    name = "sample_distribution"
    title = "Sample distribution"
    needs = "a result with two or more raw samples"
    columns = "raw.launch, raw.metric, raw.unit, raw.samples, raw.sketch, raw.inner_loops"
    joins = "JOIN raw_benchmark_data raw ON raw.result_id = r.result_id"
    condition = "raw.phase = 'measure' AND raw.metric = coalesce($samples, 'latency_wall')"
    then_by = "raw.launch"
    by_default = False
    of_cell = True
    alike = CELL

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        points = [
            (point, launches)
            for point, launches in grouped(members, ("batch_size", *POINT_COLUMNS, "result_id"))
            if sum(len(values(row)) for row in launches) > 1
        ]
        if not points:
            return "fewer than two raw samples"
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
        stretches = " or ".join(str(each) for each in sorted(set(map(_stretch, every)) - {1}))
        blocks = {row["inner_loops"] for row in every} - {1}
        reading = (
            curves if has_curves else strips,
            f"Bars: lowest to highest of each {stretches} samples, with their median." if stretches else None,
            "Each sample is the mean of a block of short calls." if blocks else None,
        )
        ranges = [(*_typical_range(launches), launches) for _, launches in shown if has_curves]
        below = [value for low, _, launches in ranges for row in launches for value in values(row) if value < low]
        above = [value for _, high, launches in ranges for row in launches for value in values(row) if value > high]
        unit = every[0]["unit"] or ""
        beyond = [
            f"of {' to '.join(dict.fromkeys(map(number, (min(found), max(found)))))} {unit}".rstrip() + side
            for side, found in ((" below", below), (" above", above))
            if found
        ]
        lacking = (
            words.doubts(rows, None),
            f"Beyond the axis of the curves: samples {' and '.join(beyond)}." if beyond else None,
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
            self, key, rows, panels, finding, place=[words.point(shown[0][0])] if len(shown) == 1 else [],
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
            ends = tuple(Mark(x=mark.x, y=middle) for mark in (strip.marks[0], strip.marks[-1]))
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
                    width=1.3, dashes=min(row["launch"], 1) * (1 + (row["launch"] - 1) % (len(DASHES) - 1)),
                )
            )  # fmt: skip
    if not elements:
        elements.append(Note(x=0.0, y=min(drawn), text="order not stored", dx=20, dy=20, colour="grey"))
    order = "Samples in measured order" + (", launch by launch" if len(launches) > 1 else "")
    x = Axis(title=order, low=-1.0, high=end + 1, has_grid=False)
    in_order = value_axis if spans_decade(drawn) else close_axis
    panels = [Panel(x=x, y=in_order(f"{name} ({unit})", drawn), elements=tuple(elements), height_in=PANEL_IN)]
    if has_curves:
        better = "\nlower is better" if unit in TIMES else ""
        low, high = _typical_range(launches)
        shown = [value for value in drawn if low <= value <= high]
        of_values = close_axis(f"{name} per sample ({unit}){better}", shown)
        y = share_axis("Share of samples", 1.02)
        panels.insert(0, Panel(x=of_values, y=y, elements=tuple(curves), height_in=PANEL_IN))
    return [replace(panels[0], title=heading), *panels[1:]]


def _typical_range(launches: Sequence[Row]) -> tuple[float, float]:
    """The range of values that the curves of a point show: all, unless a few are so far from the others that the curves
    of these would be one line."""
    ordered = [own for row in launches if (own := sorted(values(row)))]
    least, most = min(own[0] for own in ordered), max(own[-1] for own in ordered)
    low = min(quantile_of_sorted(own, 1 - MIDDLE) for own in ordered)
    high = max(quantile_of_sorted(own, MIDDLE) for own in ordered)
    width = max(high - low, LEAST_WIDTH * abs(high))
    return (low - width, high + width) if most - least > FAR * width else (least, most)


def _strip(row: Row, start: int) -> Line:
    """Samples of a launch in measured order. Of many, each stretch is its median and a bar from the lowest to the
    highest, so that no disturbance is lost."""
    samples, each = list(row["samples"] or ()), _stretch(row)
    marks = tuple(Mark(x=start + at, y=value, words=f"sample {at + 1}") for at, value in enumerate(samples))
    if each > 1:
        parts = [samples[at : at + each] for at in range(0, len(samples), each)]
        marks = tuple(
            Mark(
                x=start + place, y=median(part), low=min(part), high=max(part),
                words=f"samples {place * each + 1} to {place * each + len(part)}",
            )
            for place, part in enumerate(parts)
        )  # fmt: skip
    return Line(
        label=f"launch {row['launch'] + 1}", role=f"strip {row['launch']}", marks=marks, colour=row["launch"],
        shape=row["launch"], dashes=None, size=2.6, has_bands=False,
    )  # fmt: skip


def _stretch(row: Row) -> int:
    """How many samples of a launch share a place in its strip."""
    count = len(row["samples"] or ())
    return -(-2 * count // SAMPLES_SHOWN) if count > SAMPLES_SHOWN else 1


MOST_PICTURES, MOST_PANELS, MOST_DOUBTS = 6, 5, 3
LAUNCH_IN = 1.7
TIMELINE_NOTE = "Time starts at the first {}, without the gaps between calls; the line marks the result's median."


class LaunchTimeline(ChartPlugin):
    name = "launch_timeline"
    title = "Calls over time"
    needs = "a result with raw samples"
    columns = """raw.launch, raw.phase, raw.samples, raw.inner_loops, raw.started_at AS phase_started_at,
        r.latency_median_ms AS value"""
    joins = "JOIN raw_benchmark_data raw ON raw.result_id = r.result_id"
    condition = "raw.metric = 'latency_wall' AND len(raw.samples) > 0"
    then_by = "raw.launch, raw.phase DESC"
    by_default = False
    of_cell = True

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        results = [members for _, members in grouped(rows, (*CELL_COLUMNS, "batch_size", *POINT_COLUMNS, "result_id"))]
        results.sort(key=lambda members: trust(members[0]) == "valid")  # doubtful results first
        for members in results[:MOST_PICTURES]:
            yield self._figure(members)
        rest = len(results) - MOST_PICTURES
        if rest > 0:
            why = f"limit of {MOST_PICTURES} pictures, doubtful results first: narrow the selection, e.g. batch=8"
            yield NotDrawn(what=f"{self.title} of {rest} more results", why=why)

    def _figure(self, members: Sequence[Row]) -> Figure:
        key = members[0]
        launches = grouped(members, ("launch",))
        shown = launches[:MOST_PANELS]
        lines = [[_line(row, phases[0]) for row in phases] for _, phases in shown]
        marks = [mark for of_launch in lines for line in of_launch for mark in line.marks]
        x = value_axis("Time (s)", [mark.x for mark in marks], room=1.02, may_be_log=False)
        y = value_axis("Latency (ms)", [mark.y for mark in marks])
        median = [Rule(at=key["value"], along="y", role="median", colour="ink", dashes=0)] if key["value"] else []
        panels = []
        for (launch, _), of_launch in zip(shown, lines, strict=True):
            elements: tuple[Element, ...] = (*median, *of_launch)
            panels.append(
                Panel(x=x, y=y, elements=elements, title=f"launch {launch['launch'] + 1}", height_in=LAUNCH_IN)
            )
        kinds = sorted(key["doubts"], key=lambda kind: kind in KINDS and KINDS[kind].severity == "info")
        sentences = [KINDS[kind].sentence if kind in KINDS else kind.replace("_", " ") + "." for kind in kinds]
        if len(sentences) > MOST_DOUBTS:
            sentences[MOST_DOUBTS:] = [f"{len(sentences) - MOST_DOUBTS} more doubts are not listed."]
        rest = len(launches) - len(shown)
        left_out = f"Left out: {rest} of {len(launches)} launches." if rest else None
        named = {line.label: line for of_launch in lines for line in of_launch}
        first = "warm-up call" if "warm-up" in named else "timed call"
        return figure(
            self, key, [key], panels,
            title=f"{self.title}: {key['model_id']}, {words.point(key)} ({trust(key)})",
            notes=(*words.sentences([TIMELINE_NOTE.format(first), left_out]), *sentences), width_in=WIDTH_IN,
            legend=tuple(
                Entry(label=name, colour=named[name].colour, shape=0, state="valid" if name == "timed" else "doubtful")
                for name in ("warm-up", "timed")
                if name in named
            ),
            names=(f"b{key['batch_size']}", *held_names(key)),
        )  # fmt: skip


def _line(row: Row, first: Row) -> Line:
    """The calls of a phase, in ms over the seconds since the `first` phase began: warm-up calls are grey and hollow,
    timed calls filled."""
    is_timed = row["phase"] == "measure"
    offset_s = (row["phase_started_at"] - first["phase_started_at"]).total_seconds()
    starts_s = accumulate((value * row["inner_loops"] / 1e3 for value in row["samples"]), initial=offset_s)
    return Line(
        label="timed" if is_timed else "warm-up", role=row["phase"], colour=0 if is_timed else "grey", shape=0,
        dashes=None, size=3.0,
        marks=tuple(
            Mark(x=x, y=y, state="valid" if is_timed else "doubtful")
            for x, y in zip(starts_s, row["samples"], strict=False)
        ),
    )  # fmt: skip


TOKENS_WIDTH_IN, HEIGHT_IN = 9.0, 3.4
MOST_MARKS = 64
"""Maximum tokens drawn with marks."""
TOKENS_NOTE = "Medians over all calls of all launches; bands cover the middle 80 % of calls."


class TokensOverTime(ChartPlugin):
    name = "tokens_over_time"
    title = "Tokens over time"
    needs = "raw samples of a model that generates two or more tokens"
    columns = "raw.launch, raw.metric, raw.samples"
    joins = "JOIN raw_benchmark_data raw ON raw.result_id = r.result_id"
    condition = """raw.phase = 'measure' AND raw.metric IN ('time_to_first_token', 'inter_token_latency')
        AND r.new_tokens > 1"""
    then_by = "raw.launch, raw.metric"
    by_default = False
    of_cell = True
    alike = (*CELL, "new_tokens")

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        results = [samples for _, samples in grouped(members, ("batch_size", *POINT_COLUMNS, "result_id"))]
        found = [(samples[0], times) for samples in results if (times := token_times(samples)) is not None]
        if not found:
            return "no raw samples of individual tokens"
        shown = found[:MOST_LINES]
        series, gaps, arrivals = [], [], []
        for style, (row, (of_gaps, of_arrivals)) in enumerate(shown):
            one = Series(label=words.point({**row, "new_tokens": None}), rows=(row,), style=style)
            series.append(one)
            state = trust(row)
            look: dict[str, Any] = {"size": 4.0, "shape": style if len(of_gaps) <= MOST_MARKS else None}
            own = [Mark(x=x, y=y, low=low, high=high, state=state) for x, y, low, high in of_gaps]
            gaps.append(one.line(own, **look))
            arrivals.append(one.line([Mark(x=x, y=y, state=state) for x, y in of_arrivals], **look))
        x = value_axis("Token", [float(key["new_tokens"])], may_be_log=False)
        parts = [("Inter-token latency (ms)", [high for _, (times, _) in shown for *_, high in times], gaps)]
        until = [at for _, (_, arrived) in shown for _, at in arrived]
        parts += [("Time since the start of the call (ms)", until, arrivals)] if until else []
        panels = [
            Panel(
                x=x, y=value_axis(f"{title}\nlower is better", values, may_be_log=False), elements=tuple(lines),
                height_in=HEIGHT_IN,
            )
            for title, values, lines in parts
        ]  # fmt: skip
        rows = [row for row, _ in shown]
        left_out = words.left_out(len(found) - len(shown), len(found), "points", "largest")
        return figure(
            self, key, rows, panels, place=[f"{key['new_tokens']} new tokens"], columns=len(panels),
            notes=words.sentences([TOKENS_NOTE], (words.doubts(rows), left_out)), width_in=TOKENS_WIDTH_IN,
            legend=legend(series, rows), names=[f"n{key['new_tokens']}"],
        )  # fmt: skip


def token_times(rows: Sequence[Row]) -> tuple[list[tuple[int, float, float, float]], list[tuple[int, float]]] | None:
    """Of a result's tokens, from the samples of its launches: (position, median, 10th and 90th percentile of the ms
    since the previous token) from the second on, and (position, median ms since the start of the call) from the first
    on, none if its time is unknown. None if no launch has whole calls."""
    each = rows[0]["new_tokens"] - 1
    samples = [list(row["samples"]) for row in rows if row["metric"] == "inter_token_latency"]
    calls = [
        launch[at : at + each] for launch in samples if len(launch) % each == 0 for at in range(0, len(launch), each)
    ]
    if not calls:
        return None
    by_position = enumerate(map(sorted, zip(*calls, strict=True)), start=2)
    gaps = [(at, median(of), quantile_of_sorted(of, 0.1), quantile_of_sorted(of, 0.9)) for at, of in by_position]
    firsts = [value for row in rows if row["metric"] == "time_to_first_token" for value in row["samples"]]
    arrivals = accumulate((gap for _, gap, _, _ in gaps), initial=median(firsts)) if firsts else ()
    return gaps, list(enumerate(arrivals, start=1))


PLUGINS = (SampleDistribution(), LaunchTimeline(), TokensOverTime())
