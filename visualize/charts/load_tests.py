"""Charts of load tests: latency by offered load, and the requests of one level over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import counted
from visualize.drawing import words
from visualize.drawing.figure import Block, Colour, Element, Entry, Figure, Line, Mark, NotDrawn, Note, Panel, Rule
from visualize.drawing.loads import (
    GOOD_SHARE,
    LEVELS,
    RATE,
    REQUEST_PARTS,
    TIMES,
    UNLIMITED,
    by_kind,
    in_flight,
    joined,
    level,
    level_axis,
    level_lines,
    level_words,
    limits_ms,
    part_of,
    place_of,
    request_words,
    requests_of,
    without_rate,
)
from visualize.drawing.marks import Series, figure, legend, marks_of
from visualize.drawing.rows import CELL, MODEL_COLUMNS, ChartPlugin, Drawing, Row, details, grouped, is_ok, trust
from visualize.drawing.scales import Axis, count_axis, number, value_axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A panel: one column as a solid line, another as a dotted line."""

    title: str
    better: str
    main: str
    thin: str
    named: tuple[str, str] = ("median", "99th percentile")
    """What the two lines are, for tooltips and the table."""
    limit: str | None = None
    """Name of the latency limit drawn in the panel."""


LATENCIES = (
    Metric(title="Time to first\ntoken (ms)", better="lower", main="ttft", thin="ttft_p99", limit="ttft"),
    Metric(title="Time per output\ntoken (ms)", better="lower", main="tpot", thin="tpot_p99", limit="tpot"),
    Metric(title="Latency of\na request (ms)", better="lower", main="latency", thin="latency_p99", limit="e2e"),
)
RATES = Metric(
    title="Requests\nper second", better="higher", main="throughput", thin="goodput", named=("successful", "goodput")
)
MOST_TIMES = 2
NEAR = 0.9
"""Goodput from this share of throughput on is not labelled: both lines coincide."""
WIDTH_IN, PANEL_IN = 7.2, 1.9
MOST_DOTTED = 4
"""Maximum servers with 99th percentiles, goodput and knees; with more, the picture would be cluttered."""
SOLID, TAILS = "Solid: median times, and successful requests per second", "99th percentiles"
MAIN = "Lines: median times, and successful requests per second"
GOODPUT = "goodput (requests that meet every limit)"
WITHOUT_DOTTED = "percentiles, goodput and knees are drawn for at most 4 servers."
IDEAL = "Dashed grey: offered load."
FROM_SENDING = "Imported times count from sending, without the delay of requests that were sent late."
ALL_AT_ONCE = "Unlimited: all requests are sent at once."
KNEE = "Dotted vertical: the knee, beyond which more load mainly adds queueing delay."


class LoadLatency(ChartPlugin):
    name = "load_latency"
    title = "Latency under load"
    needs = "a load test at two or more levels"
    columns = f"""{LEVELS}, coalesce(r.latency_median_ms, r.other_metrics['service_time_p50_ms']) AS latency,
        coalesce(latency, r.time_to_first_token_ms, r.time_per_output_token_ms) AS value,
        r.time_to_first_token_ms AS ttft, r.time_to_first_token_p99_ms AS ttft_p99,
        r.time_per_output_token_ms AS tpot, r.time_per_output_token_p99_ms AS tpot_p99,
        CASE WHEN r.latency_median_ms IS NULL THEN r.other_metrics['service_time_p99_ms'] ELSE r.latency_p99_ms
        END AS latency_p99, r.latency_median_ms IS NULL AND latency IS NOT NULL AS is_from_sending,
        r.throughput_samples_per_sec AS throughput, r.other_metrics['goodput_requests_per_sec'] AS goodput"""
    loads = "only"

    def groups(self, rows: Sequence[Row]) -> list[tuple[Row, list[Row]]]:
        return by_kind(rows)

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        drawn = [row for row in members if is_ok(row) and row["value"] and row["throughput"]]
        if len(drawn) < 2:
            return "only one level was measured" if drawn else words.nothing_to_draw(members)
        series, left_out = level_lines(drawn)
        shown = [row for one in series for row in one.rows]
        has_dotted = len(series) <= MOST_DOTTED
        if has_dotted and any(one.twin for one in series):  # solid and dotted lines of one colour have to be of one
            series = [replace(one, style=style, place=None) for style, one in enumerate(series)]
        times = [panel for panel in LATENCIES if any(row[panel.main] is not None for row in shown)][:MOST_TIMES]
        limits, x = limits_ms(shown), level_axis(shown, str(key["loop"]))
        panels = [_panel(metric, series, limits, x, shown, has_dotted=has_dotted) for metric in (*times, RATES)]
        finding = None
        if len(series) == 1:
            knees = [row for row in series[0].rows if row["is_knee"]]
            notes = (Note(x=place_of(row, shown), y=0.04, text="knee", dx=3, in_share=True) for row in knees)
            panels[0] = replace(panels[0], elements=(*panels[0].elements, *notes))
            sound = [row for row in knees if trust(row) == "valid"]
            finding = f"latency knee at {level_words(sound[0])}" if len(sound) == 1 else None
        tails, goods = set().union(*map(_thin_looks, panels[:-1])), _thin_looks(panels[-1])
        if all(row["goodput"] == row["throughput"] for row in shown):  # the solid line is above it
            goods = set()
        thin = " and ".join([TAILS] * bool(tails) + [GOODPUT] * bool(goods))
        has_lines = any(trust(row) != "invalid" for row in shown)  # no line leads to a cross
        reading = (
            None
            if not has_lines
            else f"{MAIN}; {WITHOUT_DOTTED}"
            if not has_dotted
            else f"{SOLID}; {' and '.join(sorted(tails | goods))}: {thin}."
            if thin
            else f"{SOLID}.",
            IDEAL if key["loop"] == "open" and any(without_rate(row) is None for row in shown) else None,
            KNEE if has_dotted and any(row["is_knee"] for row in shown) else None,
            FROM_SENDING if any(row["is_from_sending"] for row in shown) else None,
            ALL_AT_ONCE if UNLIMITED in map(without_rate, shown) else None,
        )
        return figure(
            self, key, shown, panels, finding, about=request_words(key), names=[str(key["loop"])], width_in=WIDTH_IN,
            notes=words.caption(
                words.accountable(members, shown, left_out), shown, *reading, lacking=[left_out],
                named=lambda row: f"{words.cell(row)} at {level_words(row)}",
            ),
            legend=legend(series, shown), details=(*details(key, MODEL_COLUMNS), *request_words(key)),
        )  # fmt: skip


def _panel(
    metric: Metric,
    series: Sequence[Series],
    limits: Mapping[str, float],
    x: Axis,
    rows: Sequence[Row],
    *,
    has_dotted: bool,
) -> Panel:
    def at(row: Row) -> float:
        return place_of(row, rows)

    def marks(column: str, what: str) -> Callable[[Sequence[Row]], tuple[Mark, ...]]:
        return lambda found: marks_of(found, at, column, lambda row: f"{level_words(row)}, {what}")

    median, tail = metric.named
    mains = [line for one in series for line in joined(one, marks(metric.main, median), width=1.4, size=4.5)]
    thins: list[Line] = []
    knees: list[Rule] = []
    for one in series if has_dotted else ():
        thins += joined(one, marks(metric.thin, tail), role="thin", shape=None, dashes=2, width=1.0, size=2.5)
        knees += [
            Rule(at=at(row), along="x", role="knee", label=one.label, colour=one.colour, dashes=2)
            for row in one.rows
            if row["is_knee"]
        ]
    values = [mark.y for line in (*mains, *thins) for mark in line.marks]
    limit = limits.get(metric.limit or "")
    title = f"{metric.title}\n{metric.better} is better"
    y = value_axis(title, [*values, *([limit] if limit else [])], may_be_log=metric is not RATES)
    elements: list[Element] = [*knees, *thins, *mains]
    if limit is not None:
        share = " or ".join(f"{100 * one:g}" for one in sorted({row["required_share"] for row in rows}))
        elements += [
            Rule(at=limit, along="y", role="limit", colour="ink"),
            Note(x=x.low, y=limit, text=f"limit: {share} % within {limit:,.15g} ms", dx=3, dy=6),
        ]
    offered = sorted({level(row) for one in series for row in one.rows if without_rate(row) is None})
    if metric is RATES and series[0].rows[0]["loop"] == "open" and offered:
        ends = tuple(Mark(x=value, y=min(value, y.high)) for value in (0.0, min(offered[-1], y.high)))
        ideal = Line(
            label="", role="offered", colour="grey", shape=None, dashes=1, width=1.0, marks=ends, in_table=False
        )
        elements.insert(0, ideal)
        sound = (row for row in series[0].rows if row["goodput"] is not None and trust(row) != "invalid")
        apart = [row for row in sound if row["goodput"] < NEAR * row["throughput"]]
        if len(series) == 1 and apart:
            elements.append(Note(x=at(apart[0]), y=apart[0]["goodput"], text="goodput", dx=5, dy=6))
    return Panel(x=x, y=y, elements=tuple(elements), height_in=PANEL_IN)


def _thin_looks(panel: Panel) -> set[str]:
    """How percentiles or goodput are drawn: as dotted lines, which no invalid level is part of, or, where no line leads
    to, as small marks."""
    thins = [line for line in panel.lines if line.role == "thin"]
    dotted = {"dotted"} if any(len(line.joined) > 1 for line in thins) else set()
    return dotted | ({"small marks"} if any(line.dashes is None for line in thins) else set())


MOST_BARS = 300
"""Maximum requests with a bar; with more, bars would be thinner than a pixel."""
MOST_LEVELS = 6
"""Levels of a server that are all drawn; of more, as a search for a rate has, those that decide."""
COLOURS: tuple[Colour, ...] = ("grey", 4, 0)
TIMELINE_WIDTH_IN, BARS_IN, FLIGHT_IN = 7.6, 3.4, 1.3


class RequestTimeline(ChartPlugin):
    name = "request_timeline"
    title = "Requests over time"
    needs = "a load test with stored requests"
    columns = f"{LEVELS}, requests.*, r.other_metrics['{GOOD_SHARE}'] AS good_share"
    joins = f"""JOIN (
        SELECT result_id AS load_id, launch, {TIMES}, count(*) AS count_all, count(error) AS count_failed,
            list_sort(list_distinct(list(error)))[:3] AS errors
        FROM requests WHERE phase = 'measure' GROUP BY result_id, launch
    ) requests ON requests.load_id = r.result_id"""  # noqa: S608 - names of columns only
    then_by = "requests.launch"
    by_default = False
    loads = "only"
    of_cell = True

    def groups(self, rows: Sequence[Row]) -> Iterator[tuple[Row, list[Row]]]:
        for key, members in by_kind(rows):
            own = [{**row, "runtime_mode": row["own_mode"]} for row in members]
            for _, launches in grouped(own, (*CELL, "result_id")):
                yield {**launches[0], **key}, launches

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        # Ids of the levels that show where each server ends: the highest level within the limits, the lowest beyond
        # them, and the knee; the highest level if none of these is known.
        deciding: set[str] = set()
        for _, members in grouped(rows, CELL):
            levels = sorted({row["result_id"]: row for row in members}.values(), key=level)
            judged = [row for row in levels if row["good_share"] is not None]
            met = [row for row in judged if row["good_share"] >= row["required_share"]]
            missed = [row for row in judged if row["good_share"] < row["required_share"]]
            few = [*met[-1:], *missed[:1], *(row for row in levels if row["is_knee"])] or levels[-1:]
            deciding |= {row["result_id"] for row in (levels if len(levels) <= MOST_LEVELS else few)}
        yield from super().draw([row for row in rows if row["result_id"] in deciding])
        rest = {row["result_id"]: row["offered_rate"] for row in rows if row["result_id"] not in deciding}
        if rest:
            rate = next((rate for rate in rest.values() if rate is not None), None)
            example = "" if rate is None else f", e.g. \"sql:axes->>'{RATE}' = '{rate}'\""
            why = f"of more than {MOST_LEVELS} levels, those at the limits and at the knee are drawn: narrow the "
            yield NotDrawn(what=f"{self.title} of {counted(len(rest), 'more level')}", why=f"{why}selection{example}")

    def drawing(self, key: Row, launches: Sequence[Row]) -> Drawing:
        requests = requests_of(launches[0])
        shown = list(enumerate(requests[:MOST_BARS], start=1))
        total, failed, state = launches[0]["count_all"], launches[0]["count_failed"], trust(launches[0])
        kinds = ", ".join(map(str, launches[0]["errors"] or ()))
        last = max((one.end or one.sent or one.intended) for _, one in shown)
        if len(requests) < total:  # later requests were not read and may be in flight
            last = min(last, requests[-1].intended)
        x = value_axis("Time since the first intended start (s)", [last], room=1.02, may_be_log=False)
        # One bar in three parts per request, the first at the top; a cross marks a failure.
        blocks = [
            Block(
                left=start, right=end, bottom=place - 0.4, top=place + 0.4, role=part, fill=COLOURS[at],
                words=f"request {place}: {part}, {number(end - start)} s",
            )
            for place, one in shown
            for at, part in enumerate(REQUEST_PARTS)
            for start, end in [part_of(one, at)]
            if end > start
        ]  # fmt: skip
        crosses = tuple(
            Mark(x=one.intended if one.end is None else one.end, y=place, state="invalid", words=str(one.error))
            for place, one in shown
            if one.error
        )
        lost = Line(label="failed", role="failed", marks=crosses, colour="ink", shape=0, dashes=None, size=3.5)
        first = count_axis("Request, by\nintended start", len(shown))
        bars = Panel(x=x, y=first, elements=(*blocks, *((lost,) if crosses else ())), height_in=BARS_IN)
        steps = in_flight(requests) or [(0.0, 0)]
        line = Line(
            label="", role="in flight", colour="ink", shape=None, step="after", width=1.0, in_table=False,
            marks=tuple(Mark(x=time, y=count) for time, count in steps if time <= x.high),
        )  # fmt: skip
        y = value_axis("Requests\nin flight", [float(max(count for _, count in steps))], may_be_log=False)
        y = replace(y, ticks=tuple((value, f"{value:,.0f}") for value, _ in y.ticks if value == int(value)))
        entries = [Entry(label=name, colour=own) for own, name in zip(COLOURS, REQUEST_PARTS, strict=True)]
        if crosses:
            entries.append(Entry(label="failed", colour="ink", shape=0, state="invalid"))
        more = total - len(shown)
        lacking = (
            words.doubts(launches[:1], None),
            f"{failed} of {total} requests failed ({kinds})." if failed else None,
            f"Left out: {more} of {total} requests, after the first {len(shown)}." if more else None,
            f"Shown: the first of {len(launches)} repetitions." if len(launches) > 1 else None,
        )
        return figure(
            self, key, launches[:1], [bars, Panel(x=x, y=y, elements=(line,), height_in=FLIGHT_IN)],
            title=f"{self.title}: {key['model_id']} at {level_words(key)}{'' if state == 'valid' else f' ({state})'}",
            about=request_words(key),
            notes=words.sentences(["Each line is a request from its intended start to its end."], lacking),
            width_in=TIMELINE_WIDTH_IN, legend=tuple(entries), names=[level_words(key, number)],
            columns_of_table=("request", "intended s", "sent s", "first token s", "end s", "error"),
            rows=tuple((place, one.intended, one.sent, one.first, one.end, one.error) for place, one in shown),
        )  # fmt: skip


PLUGINS = (LoadLatency(), RequestTimeline())
